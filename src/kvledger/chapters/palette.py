"""Which colour means what: one colour a meaning, everywhere.

The colours of :data:`PART` belong to the parts of a ledger and are used for nothing
else. Traces are told apart by marker, line style and two inks (:data:`TRACE`), so that
no trace ever looks like a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, DrawingArea
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.transforms import Transform

from kvledger.core.errors import LedgerError
from proofbook.style import FONT_PT, INK

__all__ = ["PART", "TRACE", "LineStyle", "Part", "label", "line_style", "part_style"]

_LIGHT = INK["light"]


class Part(NamedTuple):
    """How one part of a ledger is drawn."""

    colour: str
    hatch: str


class LineStyle(NamedTuple):
    """How one trace is drawn: never by colour alone."""

    colour: str
    linestyle: str | tuple[float, tuple[float, ...]]
    marker: str


# Okabe-Ito colours, safe for colour-blind readers; the hatch repeats the meaning.
PART: Mapping[str, Part] = MappingProxyType(
    {
        "used": Part("#0072B2", ""),
        "shared": Part("#009E73", ""),
        "tail slack": Part("#E69F00", ""),
        "reserved": Part("#B8B8C4", "////"),
        "external": Part("#D55E00", "xxxx"),
        "metadata": Part("#CC79A7", ""),
        "unallocated": Part("none", ""),
    }
)

#: The seven traces. Two inks, seven markers: told apart in grey, in print and in the dark.
TRACE: Mapping[str, LineStyle] = MappingProxyType(
    {
        "azure_code_2023": LineStyle(_LIGHT.ink, "-", "o"),
        "azure_conv_2023": LineStyle(_LIGHT.ink, (0, (5, 1.5)), "s"),
        "mooncake_conversation": LineStyle(_LIGHT.faint, "-", "^"),
        "mooncake_synthetic": LineStyle(_LIGHT.faint, (0, (5, 1.5)), "v"),
        "sharegpt_8k": LineStyle(_LIGHT.ink, (0, (1, 1.2)), "D"),
        "bwb_v2": LineStyle(_LIGHT.faint, (0, (1, 1.2)), "P"),
        "arxiv_summarization_v2": LineStyle(_LIGHT.ink, (0, (6, 1.5, 1, 1.5)), "X"),
    }
)


def _part(name: str) -> Part:
    try:
        return PART[name]
    except KeyError:
        raise LedgerError(f"part: {name!r}; accepted: {', '.join(PART)}") from None


def part_style(name: str) -> dict[str, Any]:
    """Patch keywords that draw one part of a ledger.

    Parameters
    ----------
    name : str
        A key of :data:`PART`.

    Returns
    -------
    dict
        ``facecolor``, ``edgecolor``, ``hatch`` and ``linewidth``.

    Raises
    ------
    LedgerError
        If there is no such part.

    Examples
    --------
    >>> part_style("reserved")["hatch"]
    '////'
    """
    colour, hatch = _part(name)
    edge = INK["light"].faint if hatch or colour == "none" else INK["light"].paper
    return {"facecolor": colour, "edgecolor": edge, "hatch": hatch or None, "linewidth": 0.5}


def line_style(trace: str) -> dict[str, Any]:
    """Line keywords that draw one trace.

    Parameters
    ----------
    trace : str
        A key of :data:`TRACE`; a file name such as ``azure_conv_2023.csv`` will do.

    Returns
    -------
    dict
        ``color``, ``linestyle`` and ``marker``.

    Raises
    ------
    LedgerError
        If there is no such trace.

    Examples
    --------
    >>> line_style("azure_conv_2023.csv")["marker"]
    's'
    """
    key = trace.split(".")[0]
    if key not in TRACE:
        raise LedgerError(f"trace: {trace!r}; accepted: {', '.join(TRACE)}")
    colour, linestyle, marker = TRACE[key]
    return {"color": colour, "linestyle": linestyle, "marker": marker}


def label(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    part: str,
    *,
    transform: Transform | None = None,
    fontsize: float = FONT_PT,
    ha: Literal["left", "right"] = "left",
) -> Annotation:
    """Write words in ink beside a swatch: coloured words are too faint to read.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x, y : float
        Position of the swatch's middle, in data units unless `transform` is given.
    text : str
        What to say.
    part : str
        A key of :data:`PART`.
    transform : Transform, optional
        For example ``ax.transAxes``.
    fontsize : float
        In points.
    ha : {"left", "right"}
        Words to the right of the swatch ("left") or to its left ("right").

    Returns
    -------
    Annotation
        The words.
    """
    at = ax.transData if transform is None else transform
    side = 0.85 * fontsize
    look = part_style(part)
    look["edgecolor"] = INK["light"].faint
    # A patch of fixed size about (x, y), because unlike a marker it can carry the hatch.
    area = DrawingArea(side, side)
    area.add_artist(Rectangle((0, 0), side, side, **look))
    ax.add_artist(
        AnnotationBbox(area, (x, y), xycoords=at, frameon=False, pad=0, annotation_clip=False)
    )
    sign = 1 if ha == "left" else -1
    return ax.annotate(
        text,
        xy=(x, y),
        xycoords=at,
        xytext=(sign * (side / 2 + 0.45 * fontsize), 0),
        textcoords="offset points",
        ha=ha,
        va="center_baseline",
        fontsize=fontsize,
        color=INK["light"].ink,
        annotation_clip=False,
    )
