"""What the chapters call, and what checks them.

The Sphinx extension and the build stand in modules of their own, so that a chapter, and
a reader's own notebook, need neither.
"""

from kvledger.book import style
from kvledger.book.claims import Claim, ClaimMismatch, claims_table, read_claims
from kvledger.book.contracts import cite, data_digest, figure, figures_folder, number, table
from kvledger.book.formats import format_value

__all__ = [
    "Claim",
    "ClaimMismatch",
    "cite",
    "claims_table",
    "data_digest",
    "figure",
    "figures_folder",
    "format_value",
    "number",
    "read_claims",
    "style",
    "table",
]
