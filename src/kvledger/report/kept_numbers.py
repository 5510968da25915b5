"""Numbers and tables that are shown and, where a report is being made, kept for programs too.

The template calls these in place of :func:`proofbook.number` and :func:`proofbook.table`.
They show the same, and a table's exact values are saved as CSV. Where ``KVLEDGER_REPORT_DIR``
names a folder, all numbers are saved there as one JSON file, exact: fractions as texts such as
``"3/14"``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

import proofbook as book
from kvledger.report.report_settings import FOLDER_VARIABLE
from proofbook import table
from proofbook.files import write_whole
from proofbook.formats import format_value, is_missing

__all__ = ["NUMBERS_FILE", "number", "table"]

Kind = Literal["computed", "cited", "measured"]

NUMBERS_FILE = "numbers.json"

_kept: dict[str, dict[str, Any]] = {}


def number(
    id: str,
    value: object,
    fmt: str | None = None,
    *,
    unit: str | None = None,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Show a number as :func:`proofbook.number` does, and keep it."""
    book.number(id, value, fmt, unit=unit, kind=kind, source=source)
    folder = _folder()
    if folder is not None:
        _kept[id] = {
            "value": exact(value),
            "shown": format_value(value, fmt, name=id),
            "kind": kind,
            "source": source,
        }
        text = json.dumps(_kept, indent=1, allow_nan=False) + "\n"
        write_whole(folder / NUMBERS_FILE, text.encode())


def exact(value: object) -> int | float | str | None:
    """Return a value as JSON has it: whole numbers as they are, fractions as texts.

    Examples
    --------
    >>> from fractions import Fraction
    >>> exact(np.int64(3)), exact(Fraction(3, 14)), exact(float("nan"))
    (3, '3/14', None)
    """
    if is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _folder() -> Path | None:
    name = os.environ.get(FOLDER_VARIABLE)
    return Path(name) if name else None
