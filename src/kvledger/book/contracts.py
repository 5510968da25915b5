"""What a chapter may show: a number, a table or a figure, each tied to code and data.

A chapter calls :func:`number`, :func:`table`, :func:`figure` and :func:`cite`, and shows
nothing else. Each emits one output whose text strict nbval compares when it runs the
chapter again; each carries its kind, ``computed``, ``cited`` or ``measured``.

One format language serves all of them (:func:`kvledger.book.formats.format_value`).
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from kvledger import datafiles
from kvledger.book import style
from kvledger.book.claims import NUMBER_ID, SOURCES, check_claim, published
from kvledger.book.formats import DASH, exact_value, format_value, is_missing
from kvledger.book.slimming import slim_svg
from kvledger.errors import LedgerError

__all__ = [
    "cite",
    "data_digest",
    "figure",
    "figures_folder",
    "number",
    "table",
]

Kind = Literal["computed", "cited", "measured"]

KINDS = ("computed", "cited", "measured")
MIME_PREFIX = "application/papermill.record/"
RECORD = MIME_PREFIX + "text/plain"

TABLE_ID = re.compile(r"tab-[a-z0-9]+(-[a-z0-9]+)*")
FIGURE_ID = re.compile(r"fig-[a-z0-9]+(-[a-z0-9]+)*")

RELEASE_YEAR = 2026
NOTEBOOK_DPI = 144
#: Twice the 96 pixels an inch of a web page.
DOWNLOAD_DPI = 192
MIN_ALT = 40
#: Above so many letters a column of texts is given room, so that it does not become a ribbon.
LONG_TEXT = 60

# Text shown so far under each id: one id says one thing on every page.
_shown: dict[str, str] = {}


# --- output ---------------------------------------------------------------------------


def _check_kind(id: str, kind: str, source: str | None) -> None:
    if kind not in KINDS:
        raise LedgerError(f"{id}: kind {kind!r}; accepted: {', '.join(KINDS)}")
    if kind == "computed" and source is not None:
        raise LedgerError(f"{id}: kind 'computed' has no source, got {source!r}")
    if kind != "computed" and not (isinstance(source, str) and source.strip()):
        what = "a citation" if kind == "cited" else "a record file"
        raise LedgerError(f"{id}: kind {kind!r} needs a source: {what}")


def _check_id(id: object, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(id, str) or not pattern.fullmatch(id):
        raise LedgerError(f"{what} id: {id!r}; accepted: {pattern.pattern}")
    return id


def _once(id: str, text: str) -> None:
    """Refuse to let one id say two things in one chapter."""
    if _shown.setdefault(id, text) != text:
        raise LedgerError(f"{id}: shown before as {_shown[id]!r}, now as {text!r}")


def _emit(data: dict[str, object], metadata: dict[str, object]) -> None:
    from IPython.display import display

    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def _glue(id: str, text: str, kind: str, source: str | None) -> None:
    _once(id, text)
    _emit(
        {RECORD: text},
        {
            "scrapbook": {"name": id, "mime_prefix": MIME_PREFIX},
            "kvledger": {"kind": kind, "source": source},
        },
    )


def number(
    id: str,
    value: object,
    fmt: str | None = None,
    *,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Glue one number under an id, for prose to show as ``{glue:text}`id```.

    Parameters
    ----------
    id : str
        Lower-case words joined by dots, such as ``paged.p4.allocated_slots``.
    value : int, Fraction, Decimal, float, NumPy scalar or str
        The number itself, not a rounded copy.
    fmt : str, optional
        See :func:`~kvledger.book.formats.format_value`.
    kind : {"computed", "cited", "measured"}
        Where it comes from.
    source : str, optional
        Citation of a cited number, record file of a measured one.

    Raises
    ------
    ClaimMismatch
        If ``data/claims.csv`` publishes another value under this id.
    LedgerError
        For a malformed id, an unknown kind, a missing source, a value or format
        :func:`~kvledger.book.formats.format_value` refuses, or an id shown before with
        another text.

    Examples
    --------
    >>> number("paged.p4.tail_slack_slots", 10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    kvledger.book.claims.ClaimMismatch: paged.p4.tail_slack_slots: 10 here, 9 slots published ...
    """
    _check_id(id, NUMBER_ID, "number")
    _check_kind(id, kind, source)
    text = format_value(value, fmt, name=id)
    claim = published(id)
    if claim is not None:
        check_claim(claim, value)
    _glue(id, text, kind, source)


def cite(id: str) -> None:
    """Glue a published number as it was published, with its source.

    Parameters
    ----------
    id : str
        An id of ``data/claims.csv`` or ``data/paper_pagedattention.csv``. The text is the
        published decimal, with a percent sign where the unit is one.

    Raises
    ------
    LedgerError
        If neither table holds the id.
    """
    _check_id(id, NUMBER_ID, "number")
    claim = published(id)
    if claim is None:
        raise LedgerError(f"{id}: not in {' or '.join(dict(SOURCES))}")
    text = claim.text + ("%" if claim.unit.startswith("%") else "")
    _glue(id, text, "cited", claim.source)


# --- tables ---------------------------------------------------------------------------


def _columns(frame: object, id: str) -> pd.DataFrame:
    """Return a copy whose every column is named and whose index says nothing more."""
    if not isinstance(frame, pd.DataFrame):
        raise LedgerError(f"{id}: {type(frame).__name__}; accepted: a pandas DataFrame")
    if all(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    elif not isinstance(frame.index, pd.RangeIndex):
        raise LedgerError(f"{id}: the index has no name; name it, or reset_index(drop=True)")
    names = list(frame.columns)
    bad = [n for n in names if not isinstance(n, str) or not n.strip()]
    if bad or len(set(names)) != len(names):
        raise LedgerError(f"{id}: columns {names}; accepted: different names, none empty")
    if frame.empty:
        raise LedgerError(f"{id}: the frame is empty ({len(frame)} rows, {len(names)} columns)")
    return frame


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
        raise LedgerError(f"{id}: caption {caption!r}; accepted: a sentence, with its full stop")
    if caption.count("`") % 2:
        raise LedgerError(f"{id}: caption {caption!r} has an odd number of backticks")
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
    """Show a table whose text depends on its values and on nothing else.

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
        Format of a column, see :func:`~kvledger.book.formats.format_value`. Columns of
        floats need one.
    kind : {"computed", "cited", "measured"}
        Where the values come from; the caption says so.
    source : str, optional
        Citation or record file.

    Raises
    ------
    LedgerError
        For a malformed id, caption or frame, a format for a column that is not there, or
        a value :func:`~kvledger.book.formats.format_value` refuses; the message names
        column and row.
    """
    _check_id(id, TABLE_ID, "table")
    _check_kind(id, kind, source)
    plain_caption, html_caption = _caption(caption, id)
    frame = _columns(frame, id)
    formats = dict(formats or {})
    names = [str(name) for name in frame.columns]
    unknown = sorted(set(formats) - set(names))
    if unknown:
        raise LedgerError(f"{id}: formats for {unknown}; accepted: {names}")
    texts: list[list[str | None]] = []
    numeric: list[bool] = []
    for position, name in enumerate(names):
        values = frame.iloc[:, position].astype(object).tolist()
        column, is_numeric = _column_text(values, formats.get(name), f"{id}, column {name!r}")
        texts.append(column)
        numeric.append(is_numeric)
    if None in texts[0]:
        raise LedgerError(f"{id}, column {names[0]!r}: the first column names the rows; no gaps")
    rows = list(zip(*texts, strict=True))
    kind_line = _kind_line(kind, source)
    plain = _plain_table(names, rows, numeric, plain_caption, kind_line)
    _once(id, plain)
    body = _html_table(id, names, rows, numeric, (plain_caption, html_caption), kind, kind_line)
    _emit({"text/html": body, "text/plain": plain}, {"kvledger": {"kind": kind, "source": source}})


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


# --- figures --------------------------------------------------------------------------


def _csv_text(value: object, name: str) -> str:
    if is_missing(value):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise LedgerError(f"{name}: {value!r}; accepted: a finite number")
        # Twelve digits: enough to redraw, few enough that a last bit does not show.
        return format(float(value), ".12g")
    return str(value)


def _csv_bytes(frame: pd.DataFrame, id: str) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [str(name) for name in frame.columns]
    writer.writerow(names)
    for row in frame.astype(object).itertuples(index=False, name=None):
        writer.writerow(
            [_csv_text(v, f"{id}, column {n!r}") for n, v in zip(names, row, strict=True)]
        )
    return stream.getvalue().encode()


def data_digest(data: pd.DataFrame, id: str = "data") -> str:
    """SHA-256 of a figure's data as it is saved in its CSV file.

    Parameters
    ----------
    data : DataFrame
        What the figure draws.
    id : str
        What the error message calls it.

    Returns
    -------
    str
        Sixty-four hexadecimal digits; a footer shows the first eight.

    Examples
    --------
    >>> import pandas as pd
    >>> data_digest(pd.DataFrame({"x": [1, 2]}))[:8]
    'aea28487'
    """
    return hashlib.sha256(_csv_bytes(_columns(data, id), id)).hexdigest()


def figures_folder() -> Path:
    """Where figures are saved.

    Returns
    -------
    Path
        ``KVLEDGER_FIGURES_DIR`` if it is set, else ``_build/figures`` of the repository,
        else ``figures`` in the current folder.
    """
    chosen = os.environ.get("KVLEDGER_FIGURES_DIR")
    if chosen:
        return Path(chosen)
    root = datafiles.repository_root()
    return root / "_build" / "figures" if root is not None else Path("figures")


def _save(path: Path, content: bytes) -> None:
    """Write whole or not at all: chapters run side by side, and readers may be reading."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _check_alt(id: str, alt: object) -> str:
    if not isinstance(alt, str) or len(alt.strip()) < MIN_ALT or not alt.strip().endswith("."):
        raise LedgerError(
            f"{id}: alt {alt!r}; accepted: a sentence of at least {MIN_ALT} characters, "
            "with its full stop"
        )
    return " ".join(alt.split())


def _drawn_texts(fig: Figure) -> list[Text]:
    return [
        text
        for text in fig.findobj(Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    ]


def _check_inks(id: str, fig: Figure) -> None:
    """Words are in ink, faint or on-colour white: anything else would not turn dark."""
    allowed = {*(c.lower() for c in style.INK["light"]), style.ON_COLOUR}
    for text in _drawn_texts(fig):
        colour = to_hex(text.get_color())
        if colour not in allowed:
            raise LedgerError(
                f"{id}: the words {text.get_text()!r} are drawn in {colour}; accepted: "
                f"style.INK['light'] or style.ON_COLOUR ({', '.join(sorted(allowed))})"
            )


def _check_svg(id: str, svg: str) -> None:
    """Black is what Matplotlib draws when nobody chose a colour; it has no dark twin."""
    if re.search(r"(fill|stroke):\s*#000000", svg) or re.search(
        r'<path d="[^"]*"(?: clip-path="[^"]*")?/>', svg.split("</defs>", 1)[-1]
    ):
        raise LedgerError(
            f"{id}: something is drawn in black; accepted: style.INK['light'], style.PART, "
            "style.ON_COLOUR (call style.apply() or style.canvas() before drawing)"
        )


def _check_inside(id: str, fig: Figure, footer: Text) -> None:
    """Nothing is cut off at the edge, and nothing lies on the footer."""
    renderer = fig.canvas.get_renderer()  # type: ignore[attr-defined]
    width, height = fig.get_size_inches()
    box = fig.get_tightbbox(renderer)
    slack = 0.02
    over = {
        "left": -box.x0,
        "right": box.x1 - width,
        "bottom": -box.y0,
        "top": box.y1 - height,
    }
    side, most = max(over.items(), key=lambda item: item[1])
    if most > slack:
        raise LedgerError(
            f"{id}: the drawing runs out of the figure by {most:.2f} in at the {side}; "
            f"accepted: everything within {width:g} x {height:g} in"
        )
    mine = footer.get_window_extent(renderer)
    words = [text for text in fig.findobj(Text, include_self=False) if text.axes is None]
    for axes in fig.axes:
        lies = axes.get_tightbbox(renderer)
        # Ticks beyond the view are never drawn, so ask the axes first what is.
        if lies is not None and lies.overlaps(mine):
            words += axes.findobj(Text)
    for text in words:
        assert isinstance(text, Text)
        shown = text is not footer and text.get_visible() and text.get_text().strip()
        if shown and text.get_window_extent(renderer).overlaps(mine):
            raise LedgerError(
                f"{id}: {text.get_text()!r} lies on the footer; leave the lowest "
                f"{style.FOOTER_IN} in free, or use style.canvas()"
            )


def _title(fig: Figure, alt: str) -> str:
    if fig.get_suptitle():
        return " ".join(fig.get_suptitle().split())
    for axes in fig.axes:
        for side in ("left", "center", "right"):
            if axes.get_title(loc=side):
                return " ".join(axes.get_title(loc=side).split())
    return re.split(r"(?<=\.)\s", alt)[0].rstrip(".")


def _bibtex(id: str, title: str, version: str, digest: str) -> str:
    clean = re.sub(r"([&%$#_{}])", r"\\\1", title.replace("\\", ""))
    return (
        f"@misc{{kvledger-{id},\n"
        f"  title   = {{{{{clean}}}}},\n"
        "  author  = {{kvledger contributors}},\n"
        f"  year    = {{{RELEASE_YEAR}}},\n"
        f"  version = {{{version}}},\n"
        f"  url     = {{figures/{id}.svg}},\n"
        f"  note    = {{kvledger {version}, figure {id}, data digest {digest}}}\n"
        "}\n"
    )


def _render(fig: Figure, fmt: str, dpi: int, metadata: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fig.savefig(stream, format=fmt, dpi=dpi, metadata=metadata)
    return stream.getvalue()


def figure(
    id: str,
    fig: Figure,
    data: pd.DataFrame,
    alt: str,
    *,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Show a figure, save it with its data and citation, and close it.

    Saves ``<id>.svg``, ``<id>.dark.svg``, ``<id>.png``, ``<id>.csv``, ``<id>.bib`` and
    ``<id>.json`` in :func:`figures_folder`. The caption and the name stand in the cell's
    metadata, as ``mystnb.figure``.

    Parameters
    ----------
    id : str
        ``fig-`` and lower-case words joined by hyphens.
    fig : matplotlib.figure.Figure
        The light drawing, made after :func:`kvledger.book.style.apply`. The footer is
        added here.
    data : DataFrame
        Every value the figure draws.
    alt : str
        A sentence or more that says what the figure shows.
    kind : {"computed", "cited", "measured"}
        Where the values come from.
    source : str, optional
        Citation or record file.

    Raises
    ------
    LedgerError
        For a malformed id, alt text or frame, words in a colour that has no dark twin, a
        drawing that runs out of the figure or lies on the footer, or an id shown before
        with other data.
    """
    import matplotlib.pyplot as plt

    import kvledger

    _check_id(id, FIGURE_ID, "figure")
    _check_kind(id, kind, source)
    alt = _check_alt(id, alt)
    if not isinstance(fig, Figure):
        raise LedgerError(f"{id}: fig is {type(fig).__name__}; accepted: a Matplotlib Figure")
    rows = _columns(data, id)
    version = str(kvledger.__version__)
    content = _csv_bytes(rows, id)
    full = hashlib.sha256(content).hexdigest()
    digest = full[:8]
    try:
        _once(id, digest)
        with mpl.rc_context(dict(style.RC)):
            footer = fig.text(
                1 - 0.04 / fig.get_figwidth(),
                0.03 / fig.get_figheight(),
                f"kvledger {version} · {id} · data {digest}",
                ha="right",
                va="bottom",
                fontsize=style.FOOTER_PT,
                color=style.INK["light"].faint,
            )
            footer.set_in_layout(False)
            engine = fig.get_layout_engine()
            if isinstance(engine, ConstrainedLayoutEngine):
                low = style.FOOTER_IN / fig.get_figheight()
                engine.set(rect=(0, low, 1, 1 - low))
            _check_inks(id, fig)
            small = _render(fig, "png", NOTEBOOK_DPI, {"Software": f"kvledger {version}"})
            _check_inside(id, fig, footer)
            large = _render(fig, "png", DOWNLOAD_DPI, {"Software": f"kvledger {version}"})
            svg = _render(
                fig,
                "svg",
                72,
                {
                    "Date": None,
                    "Creator": f"kvledger {version}",
                    "Title": id,
                    "Description": alt,
                    "Rights": "CC BY 4.0",
                },
            ).decode()
        _check_svg(id, svg)
        svg = slim_svg(svg)
        title = _title(fig, alt)
        about = {
            "id": id,
            "title": title,
            "version": version,
            "source_digest": datafiles.source_digest(),
            "data_digest": digest,
            "data_sha256": full,
            "alt": alt,
            "kind": kind,
            "source": source,
            "width_in": float(fig.get_figwidth()),
            "height_in": float(fig.get_figheight()),
        }
        folder = figures_folder()
        folder.mkdir(parents=True, exist_ok=True)
        _save(folder / f"{id}.svg", svg.encode())
        _save(folder / f"{id}.dark.svg", style.to_dark(svg).encode())
        _save(folder / f"{id}.png", large)
        _save(folder / f"{id}.csv", content)
        _save(folder / f"{id}.bib", _bibtex(id, title, version, digest).encode())
        _save(
            folder / f"{id}.json",
            (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode(),
        )
    finally:
        plt.close(fig)
    _emit(
        {"image/png": small, "text/plain": f"{id} · data {digest}"},
        {"kvledger": {"kind": kind, "source": source}},
    )
