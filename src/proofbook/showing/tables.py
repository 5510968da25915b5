"""Tables whose text depends on their values alone, and the CSV that is saved with them."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from proofbook import project, showing
from proofbook.errors import InputError
from proofbook.formats import DASH, exact_value, float_text, format_value, is_missing
from proofbook.showing import Kind

#: Above so many letters a column of texts is given room, so that it does not become a ribbon.
LONG_TEXT = 60
GAP = f'<span role="img" aria-label="no value">{DASH}</span>'
# What a spreadsheet would take for the start of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table(
    id: str,
    frame: pd.DataFrame,
    *,
    caption: str,
    formats: Mapping[str, str] | None = None,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Show a table whose text depends on its values and on nothing else, and save the values.

    Saves ``<id>.csv``, with exact values in place of the texts shown, and ``<id>.json`` in
    :func:`~proofbook.showing.tables_folder`.

    Parameters
    ----------
    id : str
        ``tab-`` and lower-case words joined by hyphens; the anchor on the page.
    frame : DataFrame
        One row a line. The first column names the rows. Headers carry the units. A named
        index becomes the first columns. Missing values show as a dash.
    caption : str
        A sentence that says what to conclude; ``code`` may stand in backticks.
    formats : mapping of str to str, optional
        Format of a column, see :func:`~proofbook.formats.format_value`. Columns of
        floats need one.
    kind : {"computed", "cited", "measured"}
        Where the values come from; the caption says so.
    source : str, optional
        Citation or record file.

    Raises
    ------
    InputError
        For a malformed id, caption or frame, a format for a column that is not there, or
        a value :func:`~proofbook.formats.format_value` refuses; the message names
        column and row.
    """
    showing.check_id(id, showing.TABLE_ID, "table")
    showing.check_kind(id, kind, source)
    plain_caption, html_caption = _caption(caption, id)
    frame = named_columns(frame, id)
    formats = formats or {}
    names = [str(name) for name in frame.columns]
    unknown = sorted(set(formats) - set(names))
    if unknown:
        raise InputError(f"{id}: formats for {unknown}; accepted: {names}")
    columns = [
        _column_text(list(frame[name].astype(object)), formats.get(name), f"{id}, column {name!r}")
        for name in names
    ]
    if None in columns[0][0]:
        raise InputError(f"{id}, column {names[0]!r}: the first column names the rows; no gaps")
    numeric = [is_numeric for _, is_numeric in columns]
    rows = list(zip(*(texts for texts, _ in columns), strict=True))
    where = " here" if source is None else f": {source.rstrip('.')}"
    kind_line = f"{kind.capitalize()}{where}."
    plain = _plain_table(names, rows, numeric, f"{plain_caption} {kind_line}")
    showing.once(id, plain)
    classes = {}
    for name, (texts, right) in zip(names, columns, strict=True):
        long = max(len(text or "") for text in texts) > LONG_TEXT
        classes[name] = "kv-num" if right else "kv-long" if long else ""
    whole_caption = f'{html_caption} <span class="kv-kind">{html.escape(kind_line)}</span>'
    cells = [[GAP if text is None else html.escape(text) for text in row] for row in rows]
    body = showing.html_table(id, plain_caption, whole_caption, classes, cells, kind)
    content = csv_bytes(frame, id)
    about = {"id": id, "kind": kind, "source": source, "caption": plain_caption}
    about["digest"] = hashlib.sha256(content).hexdigest()
    here = project.this_project()
    saved = {"project": here.name, "version": here.version, "what": "table", **about}
    saved["source_digest"] = project.source_digest()
    files = {f"{id}.csv": content, f"{id}.json": showing.json_bytes(saved)}
    showing.save(showing.tables_folder(), files)
    showing.emit({"text/html": body, "text/plain": plain}, {showing.MARK: about})


def _column_text(values: list[object], fmt: str | None, name: str) -> tuple[list[str | None], bool]:
    """Texts of one column (None where a value is missing), and whether it is numeric."""
    present = {f"{name}, row {i}": v for i, v in enumerate(values, start=1) if not is_missing(v)}
    is_text = [isinstance(v, (str, bool, np.bool_)) for v in present.values()]
    numeric = bool(present) and not any(is_text)
    if numeric and fmt is None:
        exact = [exact_value(v, at) for at, v in present.items()]
        is_float = [isinstance(v, (float, np.floating)) for v in present.values()]
        if all(e.denominator == 1 for e in exact) and not any(is_float):
            # One grouping for a whole column, or the digits would not line up.
            fmt = ",d" if any(abs(e) >= 10_000 for e in exact) else "d"
    texts: list[str | None] = []
    for row, value in enumerate(values, start=1):
        at = f"{name}, row {row}"
        if at not in present:
            texts.append(None)
        elif isinstance(value, (bool, np.bool_)):
            texts.append("yes" if value else "no")
        else:
            texts.append(format_value(value, None if isinstance(value, str) else fmt, name=at))
    return texts, numeric


def _caption(caption: object, id: str) -> tuple[str, str]:
    """Caption as plain text and as HTML, where `code` keeps its backticks' meaning."""
    if not isinstance(caption, str) or len(caption.strip()) < 12 or not caption.endswith("."):
        raise InputError(f"{id}: caption {caption!r}; accepted: a sentence, with its full stop")
    if caption.count("`") % 2:
        raise InputError(f"{id}: caption {caption!r} has an odd number of backticks")
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(caption, quote=False))
    return caption.replace("`", ""), marked


def _plain_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    numeric: Sequence[bool],
    caption: str,
) -> str:
    cells = [list(names), *([DASH if text is None else text for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([caption, "", *lines])


# ---------------------------------------------------------------- frames as CSV


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


def csv_bytes(frame: pd.DataFrame, id: str) -> bytes:
    r"""Return a frame as CSV: exact values, and no text that can be taken for a formula.

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
        writer.writerow(
            [_csv_text(v, f"{id}, column {n!r}") for n, v in zip(names, row, strict=True)]
        )
    return stream.getvalue().encode()


def _csv_text(value: object, name: str) -> str:
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
