"""Figures and titles of the chapter on the metadata cost: a cost per page, and what it decides."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters import drawing
from kvledger.chapters.drawing import INK, PART, headed, note
from proofbook import style
from proofbook.formats import format_value
from proofbook.plaintext import listed

COST_AXIS = "c, cost of a page in token slots"


def cost_lines(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw each page size's cost as a line in c, and their envelope, of `survey.cost_lines`."""
    fig, ax = headed(3.8, title)
    edge = frame[frame["c_from"].notna()]
    last = float(edge["c_from"].iloc[-1]) * 1.6
    best = frame.set_index("page_size")[["allocated_slots", "pages"]].astype(float)
    held, pages = best.loc[edge["page_size"].iloc[-1]]
    top = 1.25 * (held + pages * last)
    for size, (held, pages) in zip(best.index, best.to_numpy(), strict=True):
        end = min(last, (top - held) / pages)
        ax.plot([0, end], [held, held + pages * end], color=INK.faint, lw=1)
        offset, ha, va = ((0, 3), "center", "bottom") if end < last else ((4, 0), "left", "center")
        note(ax, f"pages of {size}", (end, held + pages * end), offset, ha=ha, va=va)
    for size, start, end in edge[["page_size", "c_from", "c_to"]].itertuples(index=False):
        held, pages = best.loc[size]
        xs = np.array([float(start), last if pd.isna(end) else float(end)])
        ys = held + pages * xs
        ax.plot(xs, ys, color=INK.ink, lw=3.2, solid_capstyle="butt")
        if start:
            ax.plot(xs[0], ys[0], "o", color=INK.ink, mfc=INK.paper, ms=5, zorder=3)
            note(ax, f"c = {format_value(start, 'fraction')}", (xs[0], ys[0]), (6, -11))
    ax.set(xlim=(0, last), ylim=(0, top), xlabel=COST_AXIS, ylabel="allocated slots + c × pages")
    return fig


def cost_lines_title(frame: pd.DataFrame) -> str:
    """Say at which costs the best page size changes.

    Examples
    --------
    >>> from kvledger.accounting.survey import cost_lines as lines
    >>> cost_lines_title(lines([5, 9, 17], [1, 2, 4, 8, 16]))
    'The best page size changes at c = 3/14, 6/7, 2 and 8 slots a page'
    """
    corners = [c for c in frame["c_from"] if c]
    if not corners:
        return "One page size is best at every cost"
    words = listed([format_value(c, "fraction") for c in sorted(corners)])
    return f"The best page size changes at c = {words} slots a page"


def size_by_cost(ax: Axes) -> None:
    """Set the two logarithmic axes of a best page size over the cost per page."""
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(drawing.BINARY)
    ax.set(xlabel=COST_AXIS, ylabel="best page size, slots")


def best_by_cost(
    frame: pd.DataFrame, *, title: str, c_min: float, c_max: float, mark: int
) -> Figure:
    """Draw the best page size as steps over the cost per page, one line per trace.

    The frame has envelopes in long form: trace, page_size, c_from, c_to. c_min, c_max: range of
    the cost axis, in token slots. mark: page size to mark with a level line.
    """
    fig, ax = headed(3.9, title)
    ends = []
    for trace, rows in frame.groupby("trace", sort=False):
        starts = rows["c_from"].astype(float).clip(lower=c_min).to_numpy()
        sizes = rows["page_size"].to_numpy(float)
        inside = starts <= c_max
        xs, ys = np.append(starts[inside], c_max), sizes[inside]
        look = drawing.line_style(str(trace)) | {"marker": ""}
        ax.step(xs, np.append(ys, ys[-1]), where="post", **look)
        ends.append((c_max, ys[-1], TRACE_LABELS[str(trace)]))
    size_by_cost(ax)
    ax.axhline(mark, color=INK.ink, linewidth=0.8)
    note(ax, f"pages of {mark}", (c_min, mark), (3, 3))
    ax.set_xlim(c_min, c_max)
    style.end_labels(ax, ends)
    return fig


def envelopes_title(frame: pd.DataFrame, page_size: int) -> str:
    """Say from which cost on a page size is the best, over the traces.

    Examples
    --------
    >>> rows = {"page_size": [1, 16, 1, 16], "c_from": [0, 0.0042, 0, 0.0465]}
    >>> envelopes_title(pd.DataFrame(rows), 16)
    'Pages of 16 become the best once a page costs 0.0042 to 0.0465 slots, by trace'
    """
    start = frame.loc[frame["page_size"] == page_size, "c_from"]
    if start.empty:
        return f"Pages of {page_size} are the best at no cost"
    least, most = (format_value(value, ".4f") for value in (start.min(), start.max()))
    return (
        f"Pages of {page_size} become the best once a page costs {least} to {most} slots, by trace"
    )


def flat_optimum(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw sizes within 1% of the best, it and the closed form, of `survey.closed_form` at a c."""
    fig, ax = headed(0.34 * len(frame) + 1.3, title)
    at = -np.arange(len(frame), dtype=float)
    low, high = frame["flat_from"].to_numpy(float), frame["flat_to"].to_numpy(float)
    ax.barh(at, high - low, left=low, height=0.5, color=INK.faint, alpha=0.45, lw=0)
    for y, a, b in zip(at, low, high, strict=True):
        note(ax, f"{a:.0f}", (a, y), (-4, 0), ha="right", va="center")
        note(ax, f"{b:.0f}", (b, y), (4, 0), va="center")
    best, formula = (frame[column].astype(float) for column in ("best", "closed_form"))
    ax.plot(best, at, "o", color=INK.ink, ms=6, label="exact best")
    ax.plot(formula, at, "|", color=INK.ink, ms=15, mew=1.8, label="by the formula")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(drawing.BINARY)
    ax.set(xlabel="page size, slots", xlim=(low.min() / 1.35, high.max() * 1.35))
    drawing.named_rows(ax, at, frame["trace"])
    drawing.key_above(ax)
    return fig


def flat_title(frame: pd.DataFrame) -> str:
    """Say how far apart page sizes may be that cost within a percent of the least.

    Examples
    --------
    >>> flat_title(pd.DataFrame({"flat_factor": [4.2, 6.0]}))
    'The optimum is flat: within 1% of the least cost, sizes span a factor of 4.2 or more'
    """
    factor = format_value(frame["flat_factor"].min(), ".1f")
    return (
        f"The optimum is flat: within 1% of the least cost, sizes span a factor of {factor} or more"
    )


def bytes_against_need(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw what bytes cost in slots, below what a size needs, of `survey.bytes_in_slots`."""
    order = drawing.panels_of(frame.sort_values("kv_bytes_per_token", kind="stable"), "model")
    fig, ax = headed(0.19 * len(order) + 1.5, title)
    drawing.wider_sides(fig)
    low, high = (float(frame[column].iloc[0]) for column in ("needed_from", "needed_to"))
    ax.axvspan(low, high, color=INK.faint, alpha=0.25, lw=0)
    above = "what a page must cost, from the least to the most demanding trace"
    note(ax, above, (high, 1.0), (0, 4), within=("data", "axes fraction"), ha="right")
    marks = iter(("o", "D", "^"))
    for structure, rows in frame.groupby("structure", sort=False):
        ys = [-order.index(m) for m in rows["model"]]
        costs = rows["c"].astype(float).to_numpy()
        ax.plot(costs, ys, next(marks), color=PART["metadata"].colour, ms=5)
        note(ax, str(structure), (costs[int(np.argmax(ys))], 0), (0, 7), ha="center")
    ax.set_xscale("log")
    drawing.named_rows(ax, [-i for i in range(len(order))], order, fontsize=8)
    ax.set(ylim=(-len(order) + 0.3, 1.6), xlabel="token slots a page")
    ax.grid(axis="x")
    return fig


def structures_title(frame: pd.DataFrame, page_size: int, structure: str) -> str:
    """Say what a structure costs at most, and what a page must cost for a page size to be best.

    Examples
    --------
    >>> rows = {"structure": ["entry", "entry"], "c": [0.0001, 0.00013], "needed_from": [0.004] * 2}
    >>> structures_title(pd.DataFrame(rows), 16, "entry")
    'An entry is worth at most 0.00013 slots; for pages of 16 a page must cost 0.0040'
    """
    most = format_value(frame.loc[frame["structure"] == structure, "c"].max(), ".5f")
    need = format_value(frame["needed_from"].iloc[0], ".4f")
    article = "An" if structure[0] in "aeiou" else "A"
    return (
        f"{article} {structure} is worth at most {most} slots; "
        f"for pages of {page_size} a page must cost {need}"
    )
