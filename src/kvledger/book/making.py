"""Which functions made what a cell shows.

The cells are read, not run: every call of a function under ``src/`` is found by its imports, and
the names that a cell uses are followed back through earlier cells to the calls that made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def makers(notebook: Any, *, page: str = "notebook") -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the functions that made each output, by cell and id."""
    return {}
