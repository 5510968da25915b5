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
    from proofbook import style
    from proofbook.claims import Claim, ClaimMismatch, claims_table, read_claims
    from proofbook.contracts import cite, data_digest, figure, figures_folder, number, table
    from proofbook.formats import format_value

_HOMES: dict[str, tuple[str, ...]] = {
    "proofbook.claims": ("Claim", "ClaimMismatch", "claims_table", "read_claims"),
    "proofbook.contracts": (
        "cite",
        "data_digest",
        "figure",
        "figures_folder",
        "number",
        "table",
    ),
    "proofbook.formats": ("format_value",),
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
        value: object = import_module("proofbook.style")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value  # found without this function from now on


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
