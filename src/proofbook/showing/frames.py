"""Data frames as the CSV files that stand beside figures and tables."""

from __future__ import annotations

import csv
import hashlib
import io
import math

import numpy as np
import pandas as pd

from proofbook.errors import InputError
from proofbook.formats import is_missing
from proofbook.showing.quantities import float_text

__all__ = ["csv_bytes", "data_digest", "named_columns"]

# What a spreadsheet would take for the start of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def named_columns(frame: object, id: str) -> pd.DataFrame:
    """Return a copy whose every column is named and whose index says nothing more."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{id}: {type(frame).__name__}; accepted: a pandas DataFrame")
    if all(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    elif not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{id}: the index has no name; name it, or reset_index(drop=True)")
    names = list(frame.columns)
    bad = [n for n in names if not isinstance(n, str) or not n.strip()]
    if bad or len(set(names)) != len(names):
        raise InputError(f"{id}: columns {names}; accepted: different names, none empty")
    if frame.empty:
        raise InputError(f"{id}: the frame is empty ({len(frame)} rows, {len(names)} columns)")
    return frame


def _text(value: object, name: str) -> str:
    if is_missing(value):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise InputError(f"{name}: {value!r}; accepted: a finite number")
        return float_text(value)
    return _harmless(value) if isinstance(value, str) else str(value)


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_bytes(frame: pd.DataFrame, id: str) -> bytes:
    r"""Return a frame as CSV: exact values, and no text that can be taken for a formula.

    Parameters
    ----------
    frame : DataFrame
        With named columns, see :func:`named_columns`.
    id : str
        What the error message calls it.

    Raises
    ------
    InputError
        For an infinity.

    Examples
    --------
    >>> from fractions import Fraction
    >>> csv_bytes(pd.DataFrame({"policy": ["=1+1"], "share": [Fraction(3, 14)]}), "tab-a")
    b"policy,share\n'=1+1,3/14\n"
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [str(name) for name in frame.columns]
    writer.writerow([_harmless(name) for name in names])
    for row in frame.astype(object).itertuples(index=False, name=None):
        writer.writerow([_text(v, f"{id}, column {n!r}") for n, v in zip(names, row, strict=True)])
    return stream.getvalue().encode()


def data_digest(data: pd.DataFrame, id: str = "data") -> str:
    """SHA-256 of a figure's or a table's data as it is saved in its CSV file.

    Parameters
    ----------
    data : DataFrame
        What the figure draws, or the table shows.
    id : str
        What the error message calls it.

    Returns
    -------
    str
        Sixty-four hexadecimal digits; a footer shows the first eight.

    Examples
    --------
    >>> data_digest(pd.DataFrame({"x": [1, 2]}))[:8]
    'aea28487'
    """
    return hashlib.sha256(csv_bytes(named_columns(data, id), id)).hexdigest()
