"""What attention through a page table costs, measured on the device at hand.

This room runs from a plain checkout with torch, Triton, NumPy and pandas: ``python -m
kvledger.measure``. :mod:`~kvledger.measure.decode_step` says what is computed,
:mod:`~kvledger.measure.triton_decode` computes it on a GPU, and
:mod:`~kvledger.measure.measurement` times it beside its peers.
"""
