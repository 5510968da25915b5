"""How every figure looks, for light and for dark.

Which colour means what is the book's own affair. Ink, paper and faint (:data:`INK`) are the only
colours that change between the light and the dark drawing: a figure is drawn once, for light,
and its dark twin is the same file with these three swapped (:func:`to_dark`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Annotation, Text
from matplotlib.textpath import TextPath

from proofbook.errors import InputError


class Inks(NamedTuple):
    """The three colours that differ between a light and a dark page."""

    ink: str
    paper: str
    faint: str


INK: Mapping[str, Inks] = MappingProxyType(
    {"light": Inks("#1f2328", "#ffffff", "#8a9099"), "dark": Inks("#e6e9ee", "#14181e", "#7d8590")}
)

#: White for words on a coloured bar. It differs from paper by one step, because paper
#: turns dark in the dark drawing and words on colour must stay light in both.
ON_COLOUR = "#fefefe"

#: Width of every figure in inches. An SVG of 7.2 in is 691 CSS pixels wide, the width of
#: the text column, so that 10 pt in the drawing is 10 pt on the page.
WIDTH_IN = 7.2
FONT_PT = 10.0
HEADLINE_PT = 10.5
FOOTER_PT = 6.5
#: Between the end of a line and its label.
LABEL_PAD_PT = 8.0
#: Height at the bottom of a figure that belongs to the footer, in inches.
FOOTER_IN = 0.16

_LIGHT = INK["light"]

#: Every setting a figure depends on; :func:`proofbook.figure` saves under the same.
RC: Mapping[Any, Any] = MappingProxyType(
    {
        # DejaVu Sans comes with Matplotlib: the same letters on every machine.
        "font.family": ["DejaVu Sans"],
        **dict.fromkeys(("font.size", "axes.labelsize"), FONT_PT),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 9.0),
        "axes.titlesize": 11.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "figure.figsize": (WIDTH_IN, 3.2),
        "figure.dpi": 96.0,
        **dict.fromkeys(
            [f"{part}.{side}color" for part in ("figure", "savefig") for side in ("face", "edge")],
            _LIGHT.paper,
        ),
        "axes.facecolor": _LIGHT.paper,
        **dict.fromkeys([f"{part}.labelcolor" for part in ("axes", "xtick", "ytick")], _LIGHT.ink),
        **dict.fromkeys(("text.color", "axes.titlecolor", "lines.color"), _LIGHT.ink),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color", "hatch.color"), _LIGHT.faint),
        **dict.fromkeys(("axes.edgecolor", "patch.edgecolor"), _LIGHT.faint),
        "savefig.bbox": None,
        "savefig.transparent": False,
        "legend.frameon": False,
        "grid.alpha": 0.3,
        **dict.fromkeys(("grid.linewidth", "hatch.linewidth"), 0.6),
        "lines.linewidth": 1.6,
        "lines.markersize": 5.0,
        "axes.prop_cycle": cycler(color=[_LIGHT.ink, _LIGHT.faint]),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        **dict.fromkeys(("axes.axisbelow", "axes.unicode_minus"), True),
        # Letters as paths: an <img> cannot count on the reader's fonts.
        "svg.fonttype": "path",
        "svg.hashsalt": "proofbook",
        "path.simplify": True,
    }
)

_DARK_OF = {light.lower(): dark for light, dark in zip(INK["light"], INK["dark"], strict=True)}
_LIGHT_COLOUR = re.compile("|".join(map(re.escape, _DARK_OF)), re.IGNORECASE)


def apply() -> Inks:
    """Set Matplotlib to the book's style and return the inks of the light drawing.

    Examples
    --------
    >>> apply().paper
    '#ffffff'
    """
    mpl.rcParams.update(RC)
    return INK["light"]


def canvas(height_in: float, nrows: int = 1, ncols: int = 1, **kwargs: Any) -> tuple[Figure, Any]:
    """Make a figure of the standard width whose layout leaves room for the footer.

    Parameters
    ----------
    height_in : float
        Height in inches, footer included.
    nrows, ncols, **kwargs
        As :func:`matplotlib.pyplot.subplots` takes them, which makes what is returned.
    """
    import matplotlib.pyplot as plt

    if not height_in > FOOTER_IN:
        raise InputError(f"height_in: {height_in!r}; accepted: inches, above {FOOTER_IN}")
    apply()
    kwargs.setdefault("layout", "constrained")
    return plt.subplots(nrows, ncols, figsize=(WIDTH_IN, height_in), **kwargs)


def headline(fig: Figure, text: str) -> Text:
    """Write a figure's answer above everything else in it, in as many lines as it takes.

    It stands at the figure's left edge: axes begin further right the longer their labels. For each
    line after the first the figure is made higher. Lines of the text's own stay lines.

    Examples
    --------
    >>> fig, _ = canvas(2.0)
    >>> headline(fig, "Twice as many parts are sold").get_text()
    'Twice as many parts are sold'
    """
    room = 72 * fig.get_figwidth() * 0.95  # what is drawn may be hinted a little wider
    lines: list[str] = []
    for part in text.split("\n"):
        best = _lines(part, room)
        narrower = 0.97 * room
        while len(best) > 1 and len(again := _lines(part, narrower)) == len(best):
            best = again  # lines of like length, and no word alone on the last
            narrower *= 0.97
        lines += best
    fig.set_figheight(fig.get_figheight() + (len(lines) - 1) * 1.2 * HEADLINE_PT / 72)
    return fig.suptitle(
        "\n".join(lines), x=0.01, ha="left", fontsize=HEADLINE_PT, fontweight="bold"
    )


def _lines(text: str, room: float) -> list[str]:
    """Break words in the headline's letters into lines of so many points."""
    font = FontProperties(family=RC["font.family"], weight="bold", size=HEADLINE_PT)
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}".lstrip()
        if line and TextPath((0, 0), longer, prop=font).get_extents().width > room:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]


def _spread(wanted: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Move sorted positions as little as possible so that neighbours are `gap` apart."""
    steps = np.arange(len(wanted)) * gap
    # With the gaps taken out, "far enough apart" is "not decreasing": least squares
    # under that order is the pool-adjacent-violators rule.
    blocks: list[list[float]] = []
    for value in wanted - steps:
        blocks.append([float(value), 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, size = blocks.pop()
            blocks[-1][0] = (blocks[-1][0] * blocks[-1][1] + mean * size) / (blocks[-1][1] + size)
            blocks[-1][1] += size
    flat = np.concatenate([np.full(int(size), mean) for mean, size in blocks])
    top = max(low, high - steps[-1])
    return np.asarray(np.clip(flat, low, top) + steps)


def end_labels(
    ax: Axes, ends: Iterable[tuple[float, float, str]], *, fontsize: float = 9.0
) -> list[Annotation]:
    """Label lines at their right ends without one label covering another.

    Labels move as little as they can (least squares); a leader ties one that moved to its line.

    Parameters
    ----------
    ax : Axes
        Axes whose limits and scales are already set.
    ends : iterable of (x, y, text)
        The last point of each line, in data units, and its name.
    fontsize : float
        In points.

    Returns
    -------
    list of Annotation
        The labels, from the lowest to the highest.
    """
    points = [(float(x), float(y), text) for x, y, text in ends]
    if not points:
        return []
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # settles the layout, so that pixels are final
    scale = 72.0 / figure.dpi
    pixels = ax.transData.transform([(x, y) for x, y, _ in points]) * scale
    order = np.argsort(pixels[:, 1], kind="stable")
    box = ax.get_window_extent()
    placed = _spread(pixels[order, 1], 1.3 * fontsize, box.y0 * scale, box.y1 * scale)
    right = float(pixels[:, 0].max())
    leader = {"arrowstyle": "-", "color": INK["light"].faint, "lw": 0.6, "patchA": None}
    leader |= {"shrinkA": 2.0, "shrinkB": 3.0, "relpos": (0.0, 0.5)}
    labels = []
    for index, y_pt in zip(order, placed, strict=True):
        x, y, text = points[index]
        behind = right - pixels[index, 0]
        dy = float(y_pt - pixels[index, 1])
        label = ax.annotate(
            text,
            xy=(x, y),
            xytext=(behind + LABEL_PAD_PT, dy),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=fontsize,
            color=INK["light"].ink,
            annotation_clip=False,
            arrowprops=leader if abs(dy) > 1.0 or behind > 1.0 else None,
        )
        labels.append(label)
    return labels


def to_dark(svg: str) -> str:
    """Turn the text of a light SVG into the dark one: ink, paper and faint change, no more.

    Examples
    --------
    >>> to_dark("fill: #FFFFFF; stroke: #0072b2")
    'fill: #14181e; stroke: #0072b2'
    """
    return _LIGHT_COLOUR.sub(lambda found: _DARK_OF[found.group().lower()], svg)
