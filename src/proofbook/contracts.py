"""What a chapter may show: a number, a table or a figure, each tied to code and data.

A chapter calls :func:`number`, :func:`table`, :func:`figure` and :func:`cite`, and shows
nothing else. Each emits one output whose text strict nbval compares when it runs the
chapter again; each carries its kind, ``computed``, ``cited`` or ``measured``, a number its exact
value and unit, a table and a figure the digest of its data.

One format language serves all of them (:func:`proofbook.formats.format_value`).
"""

from proofbook.showing.figures import MIN_ALT, figure
from proofbook.showing.folders import figures_folder, tables_folder
from proofbook.showing.frames import data_digest
from proofbook.showing.numbers import cite, number
from proofbook.showing.outputs import KINDS
from proofbook.showing.tables import table

__all__ = [
    "KINDS",
    "MIN_ALT",
    "cite",
    "data_digest",
    "figure",
    "figures_folder",
    "number",
    "table",
    "tables_folder",
]
