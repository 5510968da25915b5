"""Figures and titles of the chapter on the page-size decision.

Sharing has its own line and colour; it is never added to slack in a drawing. What was not
measured is written as such where it would stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters import drawing
from kvledger.chapters.drawing import DOTTED, INK, PART, Look, headed, note
from kvledger.chapters.metadata_figures import COST_AXIS
from kvledger.decision.decision_survey import moves
from proofbook import style
from proofbook.formats import format_value
from proofbook.plaintext import listed

_PARTS: Mapping[str, str] = {
    "tail slack": "tail slack",
    "metadata": "metadata",
    "shared prefix lost": "shared",
}
"""Costs that have a colour of the visual language; those of time are drawn in ink."""


def small_example(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw tokens, slack and metadata by page size, in slots a request, of `memory_parts`."""
    parts = {"tokens": "used", "tail_slack_slots": "tail slack", "metadata_slots": "metadata"}
    words: Look = {"x_label": "slots a request", "name": "page_size", "named": "pages of {}"}
    return drawing.parts_bars(frame, parts, title=title, words={"tokens": "tokens"}, **words)


def small_example_title(frame: pd.DataFrame) -> str:
    """Say at which page size a request holds least.

    Examples
    --------
    >>> small_example_title(pd.DataFrame({"page_size": [1, 2], "memory_slots": [12.92, 12.75]}))
    'Least is held in pages of 2: 12.75 slots a request'
    """
    best = int(frame["memory_slots"].astype(float).argmin())
    held = format_value(frame["memory_slots"].iloc[best], ".2f")
    return f"Least is held in pages of {frame['page_size'].iloc[best]}: {held} slots a request"


def cost_shares(frame: pd.DataFrame, *, title: str, tolerance: float, absent: str = "") -> Figure:
    """Draw each cost's share of the tokens held by page size, one line a cost.

    The frame is as :func:`kvledger.decision.decision_survey.shares` gives it. Shares of nothing
    are left out, as the axis is logarithmic. tolerance: share at which a level line stands.
    absent: what is not measured, written below the title.
    """
    fig, ax = headed(4.0, title + (f"\n({absent})" if absent else ""))
    near = frame[frame["near"].astype(bool)]["page_size"].astype(float)
    ax.axvspan(near.min(), near.max(), color=INK.faint, alpha=0.18, lw=0)
    ends = []
    for cost, rows in frame.groupby("cost", sort=False):
        drawn = rows[["page_size", "share"]].astype(float).query("share > 0").to_numpy()
        if not len(drawn):
            continue
        xs, ys = drawn.T
        part = _PARTS.get(str(cost))
        colour = INK.ink if part is None else PART[part].colour
        ax.plot(xs, ys, color=colour, ls=DOTTED if cost == "allocation" else "-", lw=2.2)
        ends.append((xs[-1], ys[-1], str(cost)))
    ax.set_yscale("log")
    shares = frame["share"].astype(float)
    ax.set_ylim(shares[shares > 0].min() / 1.6, 1.6 * float(shares.max()))
    sizes = frame["page_size"].astype(float)
    drawing.powers_of_two(ax, _powers_within(sizes.min(), sizes.max()))
    ax.axhline(tolerance, color=INK.ink, lw=0.8)
    level = f"{tolerance:.0%} of the tokens held"
    note(ax, level, (sizes.max(), tolerance), (0, 3), ha="right")
    middle = (float(np.sqrt(near.min() * near.max())), 0.0)
    below: Look = {"within": ("data", "axes fraction"), "ha": "center"}
    note(ax, "memory near its best", middle, (0, 4), **below)
    plain: Look = {"precision": 8, "trim": "-"}
    words = FuncFormatter(lambda v, _: f"{np.format_float_positional(100 * v, **plain)}%")
    ax.yaxis.set_major_formatter(words)
    ax.set(xlabel="page size, slots", ylabel="share of the tokens held")
    ax.grid(axis="y")
    style.end_labels(ax, ends)
    return fig


def _powers_within(low: float, high: float) -> list[int]:
    return [2**k for k in range(64) if low <= 2**k <= high]


def cost_shares_title(frame: pd.DataFrame, tolerance: float) -> str:
    """Say which page sizes are near the best in memory, and which cost is the largest above.

    Examples
    --------
    >>> rows = [(1, "tail slack", 0.0, True), (1, "metadata", 0.002, True),
    ...         (32, "tail slack", 0.012, False), (32, "metadata", 0.0001, False)]
    >>> frame = pd.DataFrame(rows, columns=["page_size", "cost", "share", "near"])
    >>> cost_shares_title(frame, 0.01)
    'Memory is within 1% of its best in pages of 1; above, tail slack is the largest cost'
    """
    near = frame.loc[frame["near"].astype(bool), "page_size"]
    sizes = listed([str(size) for size in dict.fromkeys((near.min(), near.max()))], "to")
    words = f"Memory is within {format_value(tolerance, '.0%')} of its best in pages of {sizes}"
    above = frame[frame["page_size"] > near.max()]
    if above.empty:
        return words
    next_size = above[above["page_size"] == above["page_size"].min()]
    largest = next_size.loc[next_size["share"].astype(float).idxmax(), "cost"]
    return f"{words}; above, {largest} is the largest cost"


def near_ranges(
    frame: pd.DataFrame, *, title: str, trace: str, model: str, mark: int, panels: Sequence[str]
) -> Figure:
    """Draw the page sizes near the best: by trace for one model, by model for one trace.

    The frame is as :func:`kvledger.decision.decision_survey.answers` gives it. trace, model:
    the one trace and the one model. mark: a page size to mark. panels: what either of the two
    panels shows.
    """
    # Models of one size keep their order, whatever kind of numbers the frame holds.
    by_trace = frame[frame["model"] == model].sort_values("mean_tokens", kind="stable")
    by_model = frame[frame["trace"] == trace].sort_values("kv_bytes_per_token", kind="stable")
    heights = [len(by_trace) + 1.5, len(by_model) + 1.5]
    two: Look = {"height_ratios": heights, "sharex": True}
    fig, (above, below) = headed(0.19 * sum(heights) + 1.4, title, 2, **two)
    drawing.wider_sides(fig)
    _ranges(above, by_trace, "trace", panels[0], mark)
    _ranges(below, by_model, "model", panels[1], mark)
    low, high = (pd.concat([by_trace[end], by_model[end]]).astype(float) for end in ("low", "high"))
    drawing.powers_of_two(below, _powers_within(min(low.min(), 2 * high.min()), 2 * high.max()))
    below.set_xlim(low.min() / 1.3, high.max() * 1.6)
    below.set_xlabel("page size, slots")
    return fig


def _ranges(ax: Axes, rows: pd.DataFrame, names: str, title: str, mark: int) -> None:
    at = -np.arange(len(rows), dtype=float)
    low, high = rows["low"].astype(float).to_numpy(), rows["high"].astype(float).to_numpy()
    ax.barh(at, high - low, left=low, height=0.6, color=INK.faint, alpha=0.45, lw=0)
    ax.plot(rows["best"].astype(float), at, "o", color=INK.ink, ms=4)
    for y, end in zip(at, high, strict=True):
        note(ax, f"{end:.0f}", (end, y), (4, 0), va="center", fontsize=8)
    ax.axvline(mark, color=INK.ink, lw=0.8, zorder=0)
    note(ax, f"pages of {mark}", (mark, at[-1] - 0.6), (3, 0), va="top", fontsize=8)
    drawing.named_rows(ax, at, rows[names], fontsize=8)
    ax.set_ylim(at[-1] - 1.6, 0.7)
    ax.spines["left"].set_visible(False)
    ax.set_title(title, fontsize=9.5)


def near_ranges_title(frame: pd.DataFrame) -> str:
    """Say how far the largest page size near the best moves with the trace and with the model.

    Examples
    --------
    >>> rows = [(t, m, h, h, h) for t, m, h in
    ...         [("a", "x", 10), ("a", "y", 12), ("b", "x", 40), ("b", "y", 42)]]
    >>> near_ranges_title(pd.DataFrame(rows, columns=["trace", "model", "best", "low", "high"]))
    'The largest page size near the best differs 4.0-fold between traces, 1.2-fold between models'
    """
    row = moves(frame).iloc[-1]
    trace, model = (format_value(row[f"{by}_factor"], ".1f") for by in ("trace", "model"))
    return (
        f"The largest page size near the best differs {trace}-fold between traces, "
        f"{model}-fold between models"
    )


def needed_costs(
    frame: pd.DataFrame,
    *,
    title: str,
    measured: tuple[float, float, float | None] | None = None,
    absent: str = "",
) -> Figure:
    """Draw what a page must cost for each page size to be near the best, one panel a trace.

    The frame is as :func:`kvledger.decision.decision_survey.needed` gives it. A bar that begins
    at no cost begins at the edge, and one without an end ends there. measured: the measured
    cost of reading and the ends of its interval; no end is None. absent: what is written where
    it is not measured.
    """
    names, rows = drawing.panels_of(frame, "trace"), frame["page_size"].nunique()
    height, said = len(names) * (0.27 * rows + 0.75) + 0.75, f"\n({absent})" if absent else ""
    fig, axes = headed(height, title + said, len(names), sharex=True, squeeze=False)
    counted = float(frame["c_slots"].iloc[0])
    known = [float(c) for column in ("c_from", "c_to") for c in frame[column] if c is not None]
    known += [counted, *(c for c in measured or () if c is not None)]
    edge, most = min(c for c in known if c > 0) / 3, max(known) * 3
    for ax, name in zip(axes[:, 0], names, strict=True):
        part = frame[frame["trace"] == name].sort_values("page_size")
        at = -np.arange(len(part), dtype=float)
        low = np.array([edge if c is None else max(float(c), edge) for c in part["c_from"]])
        high = np.array([most if c is None else float(c) for c in part["c_to"]])
        helped = part["c_from"].notna().to_numpy()
        look = {"height": 0.6, "color": INK.faint, "alpha": 0.45, "lw": 0}
        ax.barh(at[helped], (high - low)[helped], left=low[helped], **look)
        ax.axvline(counted, color=PART["metadata"].colour, lw=1.8, ls=DOTTED)
        if measured is not None:
            c, c_low, c_high = measured
            last = most if c_high is None else c_high
            ax.axvspan(max(c_low, edge), last, color=INK.faint, alpha=0.4, lw=0)
            ax.axvline(max(c, edge), color=INK.ink, lw=1.2)
        ax.set_xscale("log")
        drawing.named_rows(ax, at, [f"pages of {size}" for size in part["page_size"]])
        ax.set(xlim=(edge, most), ylim=(at[-1] - 0.6, 0.6))
        ax.set_title(TRACE_LABELS.get(str(name), str(name)), fontsize=9.5, pad=14)
    marks = {"metadata, as counted": counted}
    if measured is not None:
        marks["reading, as measured"] = max(measured[0], edge)
    for words, c in marks.items():
        within = ("data", "axes fraction")
        note(axes[0, 0], words, (c, 1.0), (0, 3), within=within, ha="center")
    axes[-1, 0].xaxis.set_major_formatter(drawing.PLAIN)
    axes[-1, 0].set_xlabel(COST_AXIS)
    return fig


def needed_costs_title(frame: pd.DataFrame, page_size: int) -> str:
    """Say up to which cost a page size is near the best, trace by trace.

    Examples
    --------
    >>> rows = {"trace": ["bwb_v2", "a"], "page_size": [16, 16], "c_from": [0.0, 0.1],
    ...         "c_to": [0.53, None]}
    >>> needed_costs_title(pd.DataFrame(rows, dtype=object), 16)
    'Pages of 16 are near the best up to 0.53 (BWB) or any (a) slots a page'
    """
    ends = {}
    for row in frame[frame["page_size"] == page_size].to_dict("records"):
        open_end = "no" if row["c_from"] is None else "any"
        end = open_end if row["c_to"] is None else format_value(row["c_to"], ".2f")
        ends[TRACE_LABELS.get(str(row["trace"]), str(row["trace"]))] = end
    said = drawing.each_with(ends, "or")
    return f"Pages of {page_size} are near the best up to {said} slots a page"
