"""Numbers and tables that are shown and, where a report is being made, kept for programs too.

The template calls these in place of :func:`kvledger.book.number` and :func:`kvledger.book.table`.
They show the same. Where ``KVLEDGER_REPORT_DIR`` names a folder, each table is also saved there
as CSV, and all numbers as one JSON file, exact: fractions as texts such as ``"3/14"``.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from kvledger import book
from kvledger.book.formats import format_value, is_missing
from kvledger.report.settings import FOLDER_VARIABLE
from kvledger.writing import write_whole

__all__ = ["NUMBERS_FILE", "TABLES_FOLDER", "number", "table"]

Kind = Literal["computed", "cited", "measured"]

NUMBERS_FILE = "numbers.json"
TABLES_FOLDER = "tables"

# What a spreadsheet would take for the start of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

_kept: dict[str, dict[str, Any]] = {}


def number(
    id: str,
    value: object,
    fmt: str | None = None,
    *,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Show a number as :func:`kvledger.book.number` does, and keep it."""
    book.number(id, value, fmt, kind=kind, source=source)
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


def table(
    id: str,
    frame: pd.DataFrame,
    *,
    caption: str,
    formats: Mapping[str, str] | None = None,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Show a table as :func:`kvledger.book.table` does, and keep its exact values."""
    book.table(id, frame, caption=caption, formats=formats, kind=kind, source=source)
    folder = _folder()
    if folder is not None:
        (folder / TABLES_FOLDER).mkdir(exist_ok=True)
        write_whole(folder / TABLES_FOLDER / f"{id}.csv", csv_text(frame).encode())


def csv_text(frame: pd.DataFrame) -> str:
    r"""Return a frame as CSV, exact, where no text can be taken for a formula.

    Examples
    --------
    >>> from fractions import Fraction
    >>> csv_text(pd.DataFrame({"policy": ["=1+1"], "share": [Fraction(3, 14)]}))
    "policy,share\n'=1+1,3/14\n"
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_cell(str(name)) for name in frame.columns])
    for row in frame.astype(object).itertuples(index=False, name=None):
        writer.writerow([_cell(value) for value in row])
    return stream.getvalue()


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


def _cell(value: object) -> object:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    found = exact(value)
    return "" if found is None else found


def _folder() -> Path | None:
    name = os.environ.get(FOLDER_VARIABLE)
    return Path(name) if name else None
