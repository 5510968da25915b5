"""What attention through a page table costs, measured on the device at hand.

This wing knows only its own records: it runs from a plain checkout with torch, Triton, NumPy and
pandas. :mod:`~kvledger.measure.reference` says what is computed,
:mod:`~kvledger.measure.triton_decode` computes it on a GPU, and
:mod:`~kvledger.measure.measuring` times it beside its peers and writes a record.
"""
