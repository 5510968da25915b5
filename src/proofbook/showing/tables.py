"""Tables whose text depends on their values alone."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from proofbook import project
from proofbook.errors import InputError
from proofbook.files import replace_whole
from proofbook.formats import DASH, exact_value, format_value, is_missing
from proofbook.marks import MARK
from proofbook.showing import outputs
from proofbook.showing.folders import json_bytes, tables_folder
from proofbook.showing.frames import csv_bytes, named_columns
from proofbook.showing.outputs import TABLE_ID, Kind

__all__ = ["table"]

#: Above so many letters a column of texts is given room, so that it does not become a ribbon.
LONG_TEXT = 60


def _column_text(values: list[object], fmt: str | None, name: str) -> tuple[list[str | None], bool]:
    """Texts of one column (None where a value is missing), and whether it is numeric."""
    present = [v for v in values if not is_missing(v)]
    numeric = bool(present) and not any(isinstance(v, (str, bool, np.bool_)) for v in present)
    if numeric and fmt is None:
        exact = [exact_value(v, name) for v in present]
        if all(e is not None and e.denominator == 1 for e in exact) and not any(
            isinstance(v, (float, np.floating)) for v in present
        ):
            # One grouping for a whole column, or the digits would not line up.
            fmt = ",d" if any(abs(e) >= 10_000 for e in exact if e is not None) else "d"
    texts: list[str | None] = []
    for row, value in enumerate(values, start=1):
        at = f"{name}, row {row}"
        if is_missing(value):
            texts.append(None)
        elif isinstance(value, (bool, np.bool_)):
            texts.append("yes" if value else "no")
        elif isinstance(value, str):
            texts.append(format_value(value, name=at))
        else:
            texts.append(format_value(value, fmt, name=at))
    return texts, numeric


def _kind_line(kind: str, source: str | None) -> str:
    if kind == "computed":
        return "Computed here."
    return f"{kind.capitalize()}: {str(source).rstrip('.')}."


def _caption(caption: object, id: str) -> tuple[str, str]:
    """Caption as plain text and as HTML, where `code` keeps its backticks' meaning."""
    if not isinstance(caption, str) or len(caption.strip()) < 12 or not caption.endswith("."):
        raise InputError(f"{id}: caption {caption!r}; accepted: a sentence, with its full stop")
    if caption.count("`") % 2:
        raise InputError(f"{id}: caption {caption!r} has an odd number of backticks")
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(caption, quote=False))
    return caption.replace("`", ""), marked


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
    :func:`~proofbook.showing.folders.tables_folder`.

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
    outputs.check_id(id, TABLE_ID, "table")
    outputs.check_kind(id, kind, source)
    plain_caption, html_caption = _caption(caption, id)
    frame = named_columns(frame, id)
    formats = dict(formats or {})
    names = [str(name) for name in frame.columns]
    unknown = sorted(set(formats) - set(names))
    if unknown:
        raise InputError(f"{id}: formats for {unknown}; accepted: {names}")
    texts: list[list[str | None]] = []
    numeric: list[bool] = []
    for position, name in enumerate(names):
        values = frame.iloc[:, position].astype(object).tolist()
        column, is_numeric = _column_text(values, formats.get(name), f"{id}, column {name!r}")
        texts.append(column)
        numeric.append(is_numeric)
    if None in texts[0]:
        raise InputError(f"{id}, column {names[0]!r}: the first column names the rows; no gaps")
    rows = list(zip(*texts, strict=True))
    kind_line = _kind_line(kind, source)
    plain = _plain_table(names, rows, numeric, plain_caption, kind_line)
    outputs.once(id, plain)
    body = _html_table(id, names, rows, numeric, (plain_caption, html_caption), kind, kind_line)
    digest = _save(id, frame, plain_caption, kind, source)
    about = {
        "id": id,
        "kind": kind,
        "source": source,
        "caption": plain_caption,
        "digest": digest,
    }
    outputs.emit({"text/html": body, "text/plain": plain}, {MARK: about})


def _save(id: str, frame: pd.DataFrame, caption: str, kind: str, source: str | None) -> str:
    """Save the exact values and what they are; return the digest of the CSV."""
    about_project = project.this_project()
    content = csv_bytes(frame, id)
    digest = hashlib.sha256(content).hexdigest()
    about = {
        "project": about_project.name,
        "version": about_project.version,
        "id": id,
        "what": "table",
        "kind": kind,
        "source": source,
        "caption": caption,
        "digest": digest,
        "source_digest": project.source_digest(),
    }
    folder = tables_folder()
    folder.mkdir(parents=True, exist_ok=True)
    replace_whole(folder / f"{id}.csv", content)
    replace_whole(folder / f"{id}.json", json_bytes(about))
    return digest


def _plain_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    numeric: Sequence[bool],
    caption: str,
    kind_line: str,
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
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([f"{caption} {kind_line}", "", lines[0], rule, *lines[1:]])


def _html_table(
    id: str,
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    numeric: Sequence[bool],
    captions: tuple[str, str],
    kind: str,
    kind_line: str,
) -> str:
    columns = zip(*rows, strict=True)
    longest = [max(len(text or "") for text in column) for column in columns]
    side = [
        ' class="kv-num"' if right else ' class="kv-long"' if length > LONG_TEXT else ""
        for right, length in zip(numeric, longest, strict=True)
    ]
    gap = '<span role="img" aria-label="no value">' + DASH + "</span>"
    out = [
        f'<div class="kv-table" role="region" tabindex="0" '
        f'aria-label="{html.escape(captions[0])}" id="{id}" data-kind="{kind}">',
        f'<table><caption>{captions[1]} <span class="kv-kind">{html.escape(kind_line)}</span>'
        "</caption>",
        "<thead><tr>"
        + "".join(
            f'<th scope="col"{s}>{html.escape(n)}</th>' for n, s in zip(names, side, strict=True)
        )
        + "</tr></thead>",
        "<tbody>",
    ]
    for row in rows:
        shown = [gap if text is None else html.escape(text) for text in row]
        line = f'<tr><th scope="row"{side[0]}>{shown[0]}</th>'
        line += "".join(f"<td{s}>{t}</td>" for s, t in zip(side[1:], shown[1:], strict=True))
        out.append(line + "</tr>")
    out.append("</tbody></table></div>")
    return "\n".join(out)
