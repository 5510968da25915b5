"""What a chapter may show: a number, a table or a figure, each tied to code and data.

A chapter calls :func:`number`, :func:`table`, :func:`figure` and :func:`cite`, and shows
nothing else. Each emits one output whose text strict nbval compares when it runs the
chapter again; each carries its kind, ``computed``, ``cited`` or ``measured``, a number its exact
value and unit, a table and a figure the digest of its data.

One format language serves all of them (:func:`kvledger.book.formats.format_value`).
"""

from kvledger.book.showing.figures import MIN_ALT, figure
from kvledger.book.showing.folders import figures_folder, tables_folder
from kvledger.book.showing.frames import data_digest
from kvledger.book.showing.numbers import cite, number
from kvledger.book.showing.outputs import KINDS
from kvledger.book.showing.tables import table

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
