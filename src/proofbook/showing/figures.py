"""Figures that can be cited: drawn, stamped, and saved with their data."""

from __future__ import annotations

import hashlib
import io
import re
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from proofbook import project, showing, style
from proofbook.errors import InputError
from proofbook.showing import Kind
from proofbook.showing.tables import csv_bytes, named_columns
from proofbook.stamps import stamped_png, stamped_svg

#: Digits of an axes' place, as shares of the figure.
POSITION_DIGITS = 7
NOTEBOOK_DPI = 144
#: Twice the 96 pixels an inch of a web page.
DOWNLOAD_DPI = 192
#: Above so many inches a drawing is said to run out of the figure.
OVERHANG_IN = 0.02
MIN_ALT = 40


class _Drawing(NamedTuple):
    """A figure in all its forms: for the notebook, to download, and as SVG in the light inks."""

    small: bytes
    large: bytes
    svg: str


def figure(
    id: str,
    fig: Figure,
    data: pd.DataFrame,
    alt: str,
    *,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Show a figure, save it with its data, and close it.

    Saves ``<id>.svg``, ``<id>.dark.svg``, ``<id>.png``, ``<id>.csv`` and ``<id>.json`` in
    :func:`~proofbook.showing.figures_folder`. Drawings carry a stamp
    (:mod:`proofbook.stamps`). The caption and the name stand in the cell's metadata, as
    ``mystnb.figure``; page, licence and citation, which a cell cannot know, are added when the book
    is built (:func:`proofbook.catalogue.citations.publish`).

    Parameters
    ----------
    id : str
        ``fig-`` and lower-case words joined by hyphens.
    fig : matplotlib.figure.Figure
        The light drawing, made after :func:`proofbook.style.apply`. The footer is
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
    InputError
        For a malformed id, alt text or frame, words in a colour that has no dark twin, a
        drawing that runs out of the figure or lies on the footer, or an id shown before
        with other data.
    """
    import matplotlib.pyplot as plt

    showing.check_id(id, showing.FIGURE_ID, "figure")
    showing.check_kind(id, kind, source)
    alt = _check_alt(id, alt)
    if not isinstance(fig, Figure):
        raise InputError(f"{id}: fig is {type(fig).__name__}; accepted: a Matplotlib Figure")
    content = csv_bytes(named_columns(data, id), id)
    digest = hashlib.sha256(content).hexdigest()
    title = _title(fig, alt)
    try:
        showing.once(id, digest[:8])
        drawing = _render(id, fig, digest[:8], alt)
        about = {"id": id, "kind": kind, "source": source, "title": title, "alt": alt}
        about["digest"] = digest
        size = {"width_in": float(fig.get_figwidth()), "height_in": float(fig.get_figheight())}
        shown = _save(drawing, content, about, size)
    finally:
        plt.close(fig)
    text = f"{id} · data {digest[:8]}"
    showing.emit({"image/png": shown, "text/plain": text}, {showing.MARK: about})


# ---------------------------------------------------------------- what is refused


def _check_alt(id: str, alt: object) -> str:
    if not isinstance(alt, str) or len(alt.strip()) < MIN_ALT or not alt.strip().endswith("."):
        raise InputError(
            f"{id}: alt {alt!r}; accepted: a sentence of at least {MIN_ALT} characters, "
            "with its full stop"
        )
    return " ".join(alt.split())


def _is_drawn(text: Text) -> bool:
    return bool(text.get_visible() and text.get_text().strip())


def _check_inks(id: str, fig: Figure) -> None:
    """Words are in ink, faint or on-colour white: anything else would not turn dark."""
    allowed = {*(c.lower() for c in style.INK["light"]), style.ON_COLOUR}
    for text in fig.findobj(Text):
        assert isinstance(text, Text)
        colour = to_hex(text.get_color())
        if _is_drawn(text) and colour not in allowed:
            raise InputError(
                f"{id}: the words {text.get_text()!r} are drawn in {colour}; accepted: "
                f"style.INK['light'] or style.ON_COLOUR ({', '.join(sorted(allowed))})"
            )


def _check_svg(id: str, svg: str) -> None:
    """Black is what Matplotlib draws when nobody chose a colour; it has no dark twin."""
    bare = r'<path d="[^"]*"(?: clip-path="[^"]*")?/>'
    if re.search(r"(fill|stroke):\s*#000000", svg) or re.search(bare, svg.split("</defs>", 1)[-1]):
        raise InputError(
            f"{id}: something is drawn in black; accepted: style.INK['light'], style.ON_COLOUR or "
            "a colour of the book's own (call style.apply() or style.canvas() before drawing)"
        )


def _check_inside(id: str, fig: Figure, footer: Text) -> None:
    """Nothing is cut off at the edge, and nothing lies on the footer."""
    (width, height), box = fig.get_size_inches(), fig.get_tightbbox()
    over = {"left": -box.x0, "right": box.x1 - width, "bottom": -box.y0, "top": box.y1 - height}
    side, most = max(over.items(), key=lambda item: item[1])
    if most > OVERHANG_IN:
        raise InputError(
            f"{id}: the drawing runs out of the figure by {most:.2f} in at the {side}; "
            f"accepted: everything within {width:g} x {height:g} in"
        )
    mine = footer.get_window_extent()
    words = [text for text in fig.findobj(Text, include_self=False) if text.axes is None]
    for axes in fig.axes:
        lies = axes.get_tightbbox()
        # Ticks beyond the view are never drawn, so ask the axes first what is.
        if lies is not None and lies.overlaps(mine):
            words += axes.findobj(Text)
    for text in words:
        assert isinstance(text, Text)
        if text is not footer and _is_drawn(text) and text.get_window_extent().overlaps(mine):
            raise InputError(
                f"{id}: {text.get_text()!r} lies on the footer; leave the lowest "
                f"{style.FOOTER_IN} in free, or use style.canvas()"
            )


# ---------------------------------------------------------------- drawing and saving


def _title(fig: Figure, alt: str) -> str:
    titles = [fig.get_suptitle()]
    titles += [axes.get_title(loc=at) for axes in fig.axes for at in ("left", "center", "right")]
    found = next(filter(None, titles), None)
    return " ".join(found.split()) if found else re.split(r"(?<=\.)\s", alt)[0].rstrip(".")


def _render(id: str, fig: Figure, digest: str, alt: str) -> _Drawing:
    """Add the footer, lay the figure out once for all its forms, check it and draw them."""
    made_by = " ".join(project.this_project()[:2])
    with mpl.rc_context(dict(style.RC)):
        footer = fig.text(
            1 - 0.04 / fig.get_figwidth(),
            0.03 / fig.get_figheight(),
            f"{made_by} · {id} · data {digest}",
            ha="right",
            va="bottom",
            fontsize=style.FOOTER_PT,
            color=style.INK["light"].faint,
        )
        footer.set_in_layout(False)
        _settle(fig)
        _check_inks(id, fig)
        small = _drawn(fig, "png", NOTEBOOK_DPI, {"Software": made_by})
        _check_inside(id, fig, footer)
        large = _drawn(fig, "png", DOWNLOAD_DPI, {"Software": made_by})
        words = {"Date": None, "Creator": made_by, "Title": id, "Description": alt}
        svg = _drawn(fig, "svg", 72, words).decode()
    _check_svg(id, svg)
    return _Drawing(small, large, svg)


def _settle(fig: Figure) -> None:
    """Lay the figure out once, on a grid: the solver's last digits, which vary, name SVG parts."""
    engine = fig.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        low = style.FOOTER_IN / fig.get_figheight()
        engine.set(rect=(0, low, 1, 1 - low))
    fig.draw_without_rendering()
    fig.set_layout_engine("none")
    for axes in fig.axes:
        in_layout = axes.get_in_layout()
        x, y, w, h = (round(side, POSITION_DIGITS) for side in axes.get_position(True).bounds)
        axes.set_position((x, y, w, h))
        axes.set_in_layout(in_layout)


def _drawn(fig: Figure, fmt: str, dpi: int, metadata: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fig.savefig(stream, format=fmt, dpi=dpi, metadata=metadata)
    return stream.getvalue()


def _save(
    drawing: _Drawing, content: bytes, about: dict[str, Any], size: dict[str, float]
) -> bytes:
    """Save a figure's files, stamped; return the stamped picture for the notebook."""
    here = project.this_project()
    id, digest = about["id"], about["digest"]
    stamp = {"project": here.name, "version": here.version, "data_digest": digest}
    stamp |= {name: about[name] for name in ("id", "title", "kind")}
    # What stands in the notebook must not change with every edit of the code.
    shown = stamped_png(drawing.small, stamp)
    stamp["source_digest"] = project.source_digest()
    whole = {**stamp, "what": "figure", **about, **size}
    whole |= {"data_digest": digest[:8], "data_sha256": digest}
    files = {
        f"{id}.svg": stamped_svg(drawing.svg, stamp).encode(),
        f"{id}.dark.svg": stamped_svg(style.to_dark(drawing.svg), stamp).encode(),
        f"{id}.png": stamped_png(drawing.large, stamp),
        f"{id}.csv": content,
        f"{id}.json": showing.json_bytes(whole),
    }
    showing.save(showing.figures_folder(), files)
    return shown
