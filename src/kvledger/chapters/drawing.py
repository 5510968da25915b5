"""What the figures of all chapters are drawn with: colours, axes, keys, lines and bars.

One colour has one meaning everywhere. The colours of :data:`PART` belong to the parts of a ledger
and are used for nothing else. Traces are told apart by marker, line style and two inks
(:data:`TRACE`), so that no trace ever looks like a part. A drawing takes a frame and computes
nothing: what it says in words is taken from the frame that is published beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.core.errors import LedgerError
from proofbook import style
from proofbook.formats import format_value
from proofbook.plaintext import listed

INK = style.INK["light"]
Look = dict[str, Any]
"""Keywords of a drawing function of Matplotlib."""

DASHED: tuple[float, tuple[float, ...]] = (0, (5, 1.5))
DOTTED: tuple[float, tuple[float, ...]] = (0, (1, 1.2))

# ---------------------------------------------------------------- colours


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
        "azure_code_2023": LineStyle(INK.ink, "-", "o"),
        "azure_conv_2023": LineStyle(INK.ink, DASHED, "s"),
        "mooncake_conversation": LineStyle(INK.faint, "-", "^"),
        "mooncake_synthetic": LineStyle(INK.faint, DASHED, "v"),
        "sharegpt_8k": LineStyle(INK.ink, DOTTED, "D"),
        "bwb_v2": LineStyle(INK.faint, DOTTED, "P"),
        "arxiv_summarization_v2": LineStyle(INK.ink, (0, (6, 1.5, 1, 1.5)), "X"),
    }
)


def part_style(name: str) -> dict[str, Any]:
    """Return patch keywords that draw one part of :data:`PART`; any other is a LedgerError.

    Examples
    --------
    >>> part_style("reserved")["hatch"]
    '////'
    """
    if name not in PART:
        raise LedgerError(f"part: {name!r}; accepted: {', '.join(PART)}")
    colour, hatch = PART[name]
    edge = INK.faint if hatch or colour == "none" else INK.paper
    return {"facecolor": colour, "edgecolor": edge, "hatch": hatch or None, "linewidth": 0.5}


def line_style(trace: str) -> dict[str, Any]:
    """Return line keywords that draw one trace of :data:`TRACE`; any other is a LedgerError.

    Examples
    --------
    >>> line_style("azure_conv_2023")["marker"]
    's'
    """
    if trace not in TRACE:
        raise LedgerError(f"trace: {trace!r}; accepted: {', '.join(TRACE)}")
    colour, linestyle, marker = TRACE[trace]
    return {"color": colour, "linestyle": linestyle, "marker": marker}


# ---------------------------------------------------------------- canvas, axes, words


def wider_sides(fig: Figure) -> None:
    """Leave room at both sides, for words that stand beyond the axes."""
    fig.get_layout_engine().set(w_pad=0.1)  # type: ignore[union-attr, call-arg]


def headed(height_in: float, title: str, *grid: int, **kw: Any) -> tuple[Figure, Any]:
    """Make a figure with its title, of rows and columns; return it and its axes."""
    fig, axes = style.canvas(height_in, *grid, **kw)
    style.headline(fig, title)
    return fig, axes


def note(
    ax: Axes,
    words: str,
    at: tuple[Any, Any],
    offset_pt: tuple[float, float] = (0, 0),
    *,
    within: Any = "data",
    fontsize: float = 8.5,
    **look: Any,
) -> None:
    """Write words so many points from a place, given in data units unless `within` says so."""
    look |= {"xytext": offset_pt, "textcoords": "offset points", "fontsize": fontsize}
    ax.annotate(words, at, xycoords=within, **look)


def short_binary(value: float) -> str:
    """Write 8192 as 8Ki: axes name powers of two by their binary prefix.

    Examples
    --------
    >>> short_binary(8192), short_binary(512)
    ('8Ki', '512')
    """
    for unit, size in (("Mi", 2**20), ("Ki", 2**10)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


BINARY = FuncFormatter(lambda v, _: short_binary(v))
PLAIN = FuncFormatter(lambda v, _: f"{v:g}")


def powers_of_two(ax: Axes, values: Iterable[Any], most: int = 9) -> None:
    """Make the x axis logarithmic, with ticks at the powers of two among some values.

    With more ticks than `most`, every other one is left out.
    """
    ticks = sorted({int(v) for v in values if int(v) & (int(v) - 1) == 0})
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(ticks if len(ticks) <= most else ticks[::2]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(BINARY)


def named_rows(ax: Axes, at: Sequence[float] | np.ndarray, names: Iterable[Any], **kw: Any) -> None:
    """Name rows of a drawing on the y axis; traces by their labels."""
    ax.set_yticks(at)
    ax.set_yticklabels([TRACE_LABELS.get(str(name), str(name)) for name in names], **kw)
    ax.tick_params(axis="y", length=0)


def key_above(ax: Axes, *handles_and_words: Any, lift: float = 1.0, **kw: Any) -> None:
    """Put a key above the axes, at their left end."""
    place: Look = {"loc": "lower left", "bbox_to_anchor": (0, lift), "borderaxespad": 0.2}
    ax.legend(*handles_and_words, **({"ncols": 2} | place | kw))


def key_of_parts(ax: Axes, looks: Iterable[Look], words: Sequence[str], **where: Any) -> None:
    """Put a key of filled areas above the axes."""
    narrow: Look = {"borderpad": 0, "columnspacing": 1.4, "handlelength": 1.2, "handleheight": 1.0}
    key_above(ax, [Patch(**look) for look in looks], list(words), **narrow, **where)


def panels_of(frame: pd.DataFrame, column: str) -> list[str]:
    """Return the different values of a column in the order in which they come."""
    return list(dict.fromkeys(frame[column]))


def each_with(values: Mapping[Any, object], last: str = "and", form: str = "{} ({})") -> str:
    """List values, each with its name in brackets.

    Examples
    --------
    >>> each_with({"one": 3, "two": 5}, "or")
    '3 (one) or 5 (two)'
    """
    return listed([form.format(value, name) for name, value in values.items()], last)


# ---------------------------------------------------------------- lines and bars


def trace_lines(
    frame: pd.DataFrame,
    x: str,
    y: str | Sequence[str],
    *,
    title: str,
    x_label: str,
    y_label: str,
    panels: Sequence[str] = ("",),
    reference: float | None = None,
    percent: bool = False,
    hollow: str | None = None,
) -> Figure:
    """Draw one line per trace over a logarithmic axis of powers of two, labelled at its end.

    The frame has columns trace, ``x`` (whole numbers) and ``y``; several ``y`` have one of the
    `panels` each, on the same axis. Labels say units. reference: a level line, such as what is
    expected; the axis label says what it is. percent: show y as percent. hollow: a column of truth
    values; where it holds, the point is drawn hollow.
    """
    columns = [y] if isinstance(y, str) else list(y)
    fig, axes = headed(3.6, title, 1, len(columns), squeeze=False, sharey=True)
    for ax, column, words in zip(axes[0], columns, panels, strict=True):
        ends = []
        for trace, rows in frame.groupby("trace", sort=False):
            look = line_style(str(trace))
            xs, ys = rows[x].astype(float).to_numpy(), rows[column].astype(float).to_numpy()
            ax.plot(xs, ys, **(look | {"marker": ""}))
            full = np.ones(len(rows), bool) if hollow is None else ~rows[hollow].to_numpy(bool)
            for mask, fill in ((full, look["color"]), (~full, INK.paper)):
                ax.plot(xs[mask], ys[mask], **(look | {"linestyle": "", "mfc": fill}))
            ends.append((xs[-1], ys[-1], TRACE_LABELS[str(trace)]))
        powers_of_two(ax, frame[x])
        if reference is not None:
            ax.axhline(reference, color=INK.ink, linewidth=0.8, zorder=0)
        if percent:
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        ax.set_title(words, fontsize=9.5)
        ax.set_xlabel(x_label)
        if ax is axes[0, 0]:
            ax.set_ylabel(y_label)
        ax.grid(axis="y")
        if ax is axes[0, -1]:
            style.end_labels(ax, ends)
    return fig


def parts_bars(
    frame: pd.DataFrame,
    parts: Mapping[str, str],
    *,
    title: str,
    x_label: str,
    percent: bool = False,
    plain: Sequence[str] = (),
    words: Mapping[str, str] | None = None,
    name: str = "policy",
    named: str = "{}",
) -> Figure:
    """Draw what is held, one bar a row, part by part.

    parts: column of the frame to part of the visual language, from left to right. Sharing is no
    part of what is held and is refused. percent: show values as percent. plain: columns drawn
    without their part's hatch. words: what the key calls a column, if not by its part. name, named:
    the column that names the bars, and how a name is written.
    """
    if "shared" in parts.values():
        raise ValueError("sharing is not held memory: it never stands in a bar with slack")
    fig, ax = headed(0.36 * len(frame) + 1.35, title)
    at = -np.arange(len(frame), dtype=float)
    left = np.zeros(len(frame))
    looks = {c: part_style(p) | ({"hatch": None} if c in plain else {}) for c, p in parts.items()}
    for column, look in looks.items():
        width = frame[column].astype(float).to_numpy()
        ax.barh(at, width, left=left, height=0.62, **look)
        left += width
    ax.set_xlabel(x_label)
    named_rows(ax, at, [named.format(each) for each in frame[name]])
    ax.spines["left"].set_visible(False)
    if percent:
        ax.xaxis.set_major_formatter(PercentFormatter(1.0))
        ax.set_xlim(0, 1)
    else:
        for y, total in zip(at, left, strict=True):
            ax.text(total, y, f" {total:.2f}", va="center", fontsize=9)
        ax.set_xlim(0, float(left.max()) * 1.08)
    said = [(words or {}).get(column, part) for column, part in parts.items()]
    key_of_parts(ax, list(looks.values()), said, ncols=len(parts))
    return fig


def per_token(frame: pd.DataFrame, first: str, second: str, of: str = "") -> str:
    """Say how many slots two policies hold for one token.

    Examples
    --------
    >>> import kvledger as kv
    >>> from kvledger.accounting.survey import slots_per_token
    >>> held = {"maximum": kv.contiguous([5, 9, 17], 32), "pages of 4": kv.paged([5, 9, 17], 4)}
    >>> per_token(slots_per_token(held), "maximum", "pages of 4", of="Three requests")
    'Three requests: one token takes 3.10 slots (maximum) or 1.290 (pages of 4)'
    """
    held = frame.set_index("policy")["held"]
    one, other = format_value(held[first], ".2f"), format_value(held[second], ".3f")
    words = f"one token takes {one} slots ({first}) or {other} ({second})"
    return f"{of}: {words}" if of else words[0].upper() + words[1:]


def shares_of_neighbours(ax: Axes, windows: pd.Series, most: int = 9) -> None:
    """Set the axes of shared blocks over the number of neighbours."""
    powers_of_two(ax, windows, most)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set(xlabel="requests in a row", ylabel="blocks another of them also holds")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y")
