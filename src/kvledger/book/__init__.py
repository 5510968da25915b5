"""What the chapters call, and what checks them.

The Sphinx extension and the build stand in modules of their own, so that a chapter, and
a reader's own notebook, need neither. A name is imported when it is first used: what looks
something up in the catalogue does not load the library that draws.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The names again, for type checkers and editors; a test compares the two lists.
    from kvledger.book import style
    from kvledger.book.claims import Claim, ClaimMismatch, claims_table, read_claims
    from kvledger.book.contracts import cite, data_digest, figure, figures_folder, number, table
    from kvledger.book.formats import format_value

_HOMES: dict[str, tuple[str, ...]] = {
    "kvledger.book.claims": ("Claim", "ClaimMismatch", "claims_table", "read_claims"),
    "kvledger.book.contracts": (
        "cite",
        "data_digest",
        "figure",
        "figures_folder",
        "number",
        "table",
    ),
    "kvledger.book.formats": ("format_value",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> object:
    if name == "style":
        value: object = import_module("kvledger.book.style")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value  # found without this function from now on


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
