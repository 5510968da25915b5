"""Which cells of a figure's data differ: two CSV files side by side."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

from proofbook.errors import InputError

__all__ = ["CellChange", "DataChanges", "differing_cells"]


class CellChange(NamedTuple):
    """One cell: its row, counted from 1 below the header, its column, and what stood there."""

    row: int
    column: str
    old: str
    new: str


class DataChanges(NamedTuple):
    """How two files differ; cells only where both have the row and the column."""

    rows: tuple[int, int]
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    cells: tuple[CellChange, ...]


def differing_cells(old: bytes, new: bytes, name: str = "data") -> DataChanges:
    r"""Compare the data of a figure with those it was drawn from before.

    Parameters
    ----------
    old, new : bytes
        CSV files with a header, as the book saves them.
    name : str
        What the error message calls them.

    Raises
    ------
    InputError
        If one is no CSV file with as many values in each row as in its header.

    Examples
    --------
    >>> differing_cells(b"page_size,share\n1,0\n16,0.3\n", b"page_size,share\n1,0\n16,0.4\n").cells
    (CellChange(row=2, column='share', old='0.3', new='0.4'),)
    """
    before, after = _read(old, name), _read(new, name)
    (names, rows), (new_names, new_rows) = before, after
    cells = [
        CellChange(number, column, row[names.index(column)], new_row[new_names.index(column)])
        for number, (row, new_row) in enumerate(zip(rows, new_rows, strict=False), start=1)
        for column in names
        if column in new_names and row[names.index(column)] != new_row[new_names.index(column)]
    ]
    return DataChanges(
        (len(rows), len(new_rows)),
        tuple(column for column in new_names if column not in names),
        tuple(column for column in names if column not in new_names),
        tuple(cells),
    )


def _read(content: bytes, name: str) -> tuple[list[str], list[list[str]]]:
    try:
        header, *rows = list(
            csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
        )
    except (ValueError, csv.Error) as error:
        raise InputError(f"{name}: {error}; accepted: CSV with a header") from None
    if len(set(header)) != len(header) or any(len(row) != len(header) for row in rows):
        raise InputError(f"{name}: accepted: CSV with a value for each of different columns")
    return header, rows
