"""The figures of the chapters: each takes a data frame and draws it, and computes nothing.

What a figure says in words, its numbers included, is taken from the frame that is published
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters import palette
from kvledger.chapters.slot_rows import HELD
from proofbook import style
from proofbook.formats import format_value

INK = style.INK["light"]
_GAP = 0.25  # between pages, in slots
_PART_WORDS = {"used": "tokens", "points at": "positions that point at shared pages"}


def slots(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw every slot as a square, one panel below the other.

    Parameters
    ----------
    frame : DataFrame
        As :mod:`kvledger.chapters.slot_rows` makes it; panels and requests in order.
    title : str
        The conclusion.
    """
    panels = list(dict.fromkeys(frame["panel"]))
    counts = [int(frame.loc[frame["panel"] == p, "request"].nunique()) for p in panels]
    heights = [n + 2.1 for n in counts]
    fig, axes = style.canvas(
        0.23 * sum(heights) + 0.55, len(panels), squeeze=False, height_ratios=heights
    )
    style.headline(fig, title)
    right = max(_place(s, p) for s, p in zip(frame["slot"], frame["page"], strict=True)) + 1
    for ax, panel, rows in zip(axes[:, 0], panels, counts, strict=True):
        part = frame[frame["panel"] == panel]
        for slot, page, request, what in part[["slot", "page", "request", "part"]].itertuples(
            index=False
        ):
            _square(ax, _place(slot, page), -request, what)
        for request, own in part.groupby("request"):
            tokens = int(own["part"].isin(["used", "points at"]).sum())
            ax.text(-0.5, -request + 0.5, str(tokens), ha="right", va="center", fontsize=9)
        held = int(part["part"].isin(HELD).sum())
        tokens = int(part["part"].isin(["used", "points at"]).sum())
        ax.set_title(f"{panel}: {held} slots for {tokens} tokens", fontsize=9.5, pad=2)
        _keys(ax, part["part"].value_counts(), rows, letter=0.0105 * (right + 2))
        ax.set(xlim=(-1.8, right + 0.2), ylim=(-rows - 0.1, 1.0), aspect="equal", anchor="W")
        ax.axis("off")
    return fig


def _place(slot: int, page: Any) -> float:
    return slot + (0 if page is None or pd.isna(page) else int(page) * _GAP)


def _square(ax: Axes, x: float, y: float, part: str) -> None:
    if part == "points at":
        look: dict[str, Any] = {
            "facecolor": "none",
            "edgecolor": palette.PART["shared"].colour,
            "linewidth": 1.3,
        }
    else:
        look = palette.part_style(part)
    ax.add_patch(
        FancyBboxPatch(
            (x + 0.08, y + 0.1),
            0.84,
            0.8,
            boxstyle="round,pad=0,rounding_size=0.12",
            **look,
        )
    )


def _keys(ax: Axes, counts: pd.Series, rows: int, letter: float) -> None:
    """Say below a panel what its squares are; a letter is about so many slots wide."""
    x = 0.0
    for part in ("used", "points at", "tail slack", "reserved"):
        if part not in counts.index:
            continue
        words = f"{counts[part]} {_PART_WORDS.get(part, part)}"
        _square(ax, x, -rows, part)
        ax.text(x + 1.3, -rows + 0.5, words, va="center", fontsize=9)
        x += 3.0 + letter * len(words)


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
    height_in: float = 3.6,
) -> Figure:
    """Draw one line a trace over a logarithmic axis of powers of two, labelled at its end.

    Parameters
    ----------
    frame : DataFrame
        Columns trace, ``x`` and ``y``.
    x : str
        Column of whole numbers.
    y : str or sequence of str
        Column to draw; with several, one panel each, on the same axis.
    title : str
        The conclusion.
    x_label, y_label : str
        With units.
    panels : sequence of str
        What each panel shows.
    reference : float, optional
        A level line, such as what is expected; the axis label says what it is.
    percent : bool
        Show y as percent.
    hollow : str, optional
        A column of truth values: where it holds, the point is drawn hollow.
    height_in : float
        Height in inches.
    """
    columns = [y] if isinstance(y, str) else list(y)
    fig, axes = style.canvas(height_in, 1, len(columns), squeeze=False, sharey=True)
    style.headline(fig, title)
    for ax, column, words in zip(axes[0], columns, panels, strict=True):
        ends = []
        for trace, rows in frame.groupby("trace", sort=False):
            look = palette.line_style(str(trace))
            xs, ys = rows[x].astype(float).to_numpy(), rows[column].astype(float).to_numpy()
            ax.plot(xs, ys, **(look | {"marker": ""}))
            full = np.ones(len(rows), bool) if hollow is None else ~rows[hollow].to_numpy(bool)
            for mask, fill in ((full, look["color"]), (~full, INK.paper)):
                marks = {"marker": look["marker"], "color": look["color"], "mfc": fill}
                ax.plot(xs[mask], ys[mask], linestyle="", **marks)
            ends.append((xs[-1], ys[-1], TRACE_LABELS[str(trace)]))
        _powers_of_two(ax, frame[x])
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


def _powers_of_two(ax: Axes, values: pd.Series) -> None:
    ticks = sorted({int(v) for v in values if int(v) & (int(v) - 1) == 0})
    ax.set_xscale("log", base=2)
    shown = ticks if len(ticks) <= 9 else ticks[::2]
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))


def short_binary(value: float) -> str:
    """Write 8192 as 8Ki: axes name powers of two by their binary prefix."""
    for unit, size in (("Mi", 2**20), ("Ki", 2**10)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


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
) -> Figure:
    """Draw what is held, one bar a row, part by part.

    Parameters
    ----------
    frame : DataFrame
        A column of names and one for each part.
    parts : mapping of str to str
        Column to part of the visual language, from left to right. Sharing is no part of what is
        held and is refused.
    title, x_label : str
        The conclusion, and the unit.
    percent : bool
        Show values as percent.
    plain : sequence of str
        Columns drawn without their part's hatch.
    words : mapping of str to str, optional
        What the key calls each column.
    name : str
        Column that names the bars.
    """
    if "shared" in parts.values():
        raise ValueError("sharing is not held memory: it never stands in a bar with slack")
    fig, ax = style.canvas(0.36 * len(frame) + 1.35)
    style.headline(fig, title)
    at = -np.arange(len(frame), dtype=float)
    left = np.zeros(len(frame))
    for column, part in parts.items():
        look = palette.part_style(part) | ({"hatch": None} if column in plain else {})
        width = frame[column].astype(float).to_numpy()
        ax.barh(at, width, left=left, height=0.62, **look)
        left += width
    for y, total in zip(at, left, strict=True):
        if not percent:
            ax.text(total, y, f" {total:.2f}", va="center", fontsize=9)
    ax.set(yticks=at, xlabel=x_label)
    ax.set_yticklabels([TRACE_LABELS.get(str(n), str(n)) for n in frame[name]])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    if percent:
        ax.xaxis.set_major_formatter(PercentFormatter(1.0))
        ax.set_xlim(0, 1)
    else:
        ax.set_xlim(0, float(left.max()) * 1.08)
    _bar_key(ax, parts, plain, words or {})
    return fig


def _bar_key(
    ax: Axes, parts: Mapping[str, str], plain: Sequence[str], words: Mapping[str, str]
) -> None:
    handles = [
        Patch(**(palette.part_style(p) | ({"hatch": None} if c in plain else {})))
        for c, p in parts.items()
    ]
    ax.legend(
        handles,
        [words.get(c, p) for c, p in parts.items()],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(parts),
        borderpad=0,
        borderaxespad=0.2,
        columnspacing=1.4,
        handlelength=1.2,
        handleheight=1.0,
    )


def held_and_spared(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw what is held in bars, and what sharing spared on a line of its own.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.accounting.survey.ledgers` gives it.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(0.75 * len(frame) + 1.0)
    style.headline(fig, title)
    for i, row in enumerate(frame.to_dict("records")):
        distinct, slack = int(row["distinct tokens"]), int(row["tail slack slots"])
        held, spared = int(row["allocated slots"]), int(row["shared tokens"])
        ax.barh(-i, distinct, height=0.46, **palette.part_style("used"))
        ax.barh(-i, slack, left=distinct, height=0.46, **palette.part_style("tail slack"))
        ax.text(
            distinct / 2,
            -i,
            f"{distinct} distinct",
            color=style.ON_COLOUR,
            ha="center",
            va="center",
        )
        ax.text(held + 0.5, -i, f"{held} held, {slack} of it tail slack", va="center")
        if spared:
            ax.plot(
                [held, held + spared],
                [-i - 0.38] * 2,
                lw=4,
                solid_capstyle="butt",
                color=palette.PART["shared"].colour,
            )
            ax.text(held + spared + 0.5, -i - 0.38, f"{spared} spared by sharing", va="center")
    widest = float((frame["allocated slots"] + frame["shared tokens"]).astype(float).max())
    ax.set(
        yticks=[-i for i in range(len(frame))],
        yticklabels=frame["policy"],
        xlabel="slots",
        xlim=(0, widest * 1.5),
        ylim=(-len(frame) + 0.35, 0.4),
    )
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return fig


def slack_distribution(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw how many requests leave each number of slots unused, beside an even spread.

    Parameters
    ----------
    frame : DataFrame
        Columns tail_slack_slots, share (of requests) and even_share.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(2.9)
    style.headline(fig, title)
    ax.bar(
        frame["tail_slack_slots"],
        frame["share"].astype(float),
        width=0.8,
        **palette.part_style("tail slack"),
    )
    even = float(frame["even_share"].iloc[0])
    ax.axhline(even, color=INK.ink, linewidth=1)
    ax.annotate(
        "an even spread",
        (1.0, even),
        xycoords=ax.get_yaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
    )
    ax.set_xlim(-1, len(frame))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    ax.set(xlabel="slots of the last page left unused", ylabel="share of requests")
    return fig


def shared_blocks(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the share of blocks that neighbours hold too, over the number of neighbours.

    Parameters
    ----------
    frame : DataFrame
        Columns trace, preamble ("with" or "without"), window_requests and shared_share.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(3.6)
    style.headline(fig, title)
    ends = []
    for (trace, preamble), rows in frame.groupby(["trace", "preamble"], sort=False):
        look = palette.line_style(str(trace))
        look["linestyle"] = "-" if preamble == "with" else (0, (1, 1.2))
        xs, ys = rows["window_requests"].to_numpy(float), rows["shared_share"].to_numpy(float)
        ax.plot(xs, ys, **(look | {"color": palette.PART["shared"].colour}))
        kinds = frame.loc[frame["trace"] == trace, "preamble"].nunique()
        words = f", {preamble} preamble" if kinds > 1 else ""
        ends.append((xs[-1], ys[-1], TRACE_LABELS[str(trace)] + words))
    _powers_of_two(ax, frame["window_requests"])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set(xlabel="requests in a row", ylabel="blocks another of them also holds")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y")
    style.end_labels(ax, ends, fontsize=8.5)
    return fig


def cost_lines(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the cost of each page size as a line in c, and the lower envelope along them.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.accounting.survey.cost_lines` gives it.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(3.8)
    style.headline(fig, title)
    edge = frame[frame["c_from"].notna()]
    last = float(edge["c_from"].iloc[-1]) * 1.6
    best = frame.set_index("page_size")[["allocated_slots", "pages"]].astype(float)
    held, pages = best.loc[edge["page_size"].iloc[-1]]
    top = 1.25 * (held + pages * last)
    for size, (held, pages) in zip(best.index, best.to_numpy(), strict=True):
        end = min(last, (top - held) / pages)
        ax.plot([0, end], [held, held + pages * end], color=INK.faint, lw=1)
        above = end < last
        ax.annotate(
            f"pages of {size}",
            (end, held + pages * end),
            xytext=(0, 3) if above else (4, 0),
            textcoords="offset points",
            ha="center" if above else "left",
            va="bottom" if above else "center",
            fontsize=8.5,
        )
    for size, start, end in edge[["page_size", "c_from", "c_to"]].itertuples(index=False):
        held, pages = best.loc[size]
        xs = np.array([float(start), last if pd.isna(end) else float(end)])
        ax.plot(
            xs,
            held + pages * xs,
            color=INK.ink,
            lw=3.2,
            solid_capstyle="butt",
        )
        if start:
            ax.plot(xs[0], held + pages * xs[0], "o", color=INK.ink, mfc=INK.paper, ms=5, zorder=3)
            ax.annotate(
                f"c = {format_value(start, 'fraction')}",
                (xs[0], held + pages * xs[0]),
                xytext=(6, -11),
                textcoords="offset points",
                fontsize=8.5,
            )
    ax.set(
        xlim=(0, last),
        ylim=(0, top),
        xlabel="c, cost of a page in token slots",
        ylabel="allocated slots + c × pages",
    )
    return fig


def best_by_cost(
    frame: pd.DataFrame, *, title: str, c_min: float, c_max: float, mark: int
) -> Figure:
    """Draw the best page size as steps over the cost per page, one line a trace.

    Parameters
    ----------
    frame : DataFrame
        Envelopes in long form: trace, page_size, c_from, c_to.
    title : str
        The conclusion.
    c_min, c_max : float
        Range of the cost axis, in token slots.
    mark : int
        Page size to mark with a level line.
    """
    fig, ax = style.canvas(3.9)
    style.headline(fig, title)
    ends = []
    for trace, rows in frame.groupby("trace", sort=False):
        starts = rows["c_from"].astype(float).clip(lower=c_min).to_numpy()
        sizes = rows["page_size"].to_numpy(float)
        inside = starts <= c_max
        xs, ys = np.append(starts[inside], c_max), sizes[inside]
        look = palette.line_style(str(trace)) | {"marker": ""}
        ax.step(xs, np.append(ys, ys[-1]), where="post", **look)
        ends.append((c_max, ys[-1], TRACE_LABELS[str(trace)]))
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))
    ax.axhline(mark, color=INK.ink, linewidth=0.8)
    ax.annotate(
        f"pages of {mark}", (c_min, mark), xytext=(3, 3), textcoords="offset points", fontsize=8.5
    )
    ax.set(
        xlim=(c_min, c_max),
        xlabel="c, cost of a page in token slots",
        ylabel="best page size, slots",
    )
    style.end_labels(ax, ends)
    return fig


def flat_optimum(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the page sizes within one percent of the best, the best, and the closed form.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.accounting.survey.closed_form` gives it, for one c.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(0.34 * len(frame) + 1.3)
    style.headline(fig, title)
    at = -np.arange(len(frame), dtype=float)
    low, high = frame["flat_from"].to_numpy(float), frame["flat_to"].to_numpy(float)
    ax.barh(at, high - low, left=low, height=0.5, color=INK.faint, alpha=0.45, lw=0)
    for y, a, b in zip(at, low, high, strict=True):
        ax.annotate(
            f"{a:.0f}",
            (a, y),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
        )
        ax.annotate(
            f"{b:.0f}", (b, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    ax.plot(frame["best"].astype(float), at, "o", color=INK.ink, ms=6, label="exact best")
    ax.plot(
        frame["closed_form"].astype(float),
        at,
        "|",
        color=INK.ink,
        ms=15,
        mew=1.8,
        label="by the formula",
    )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))
    ax.set(yticks=at, xlabel="page size, slots", xlim=(low.min() / 1.35, high.max() * 1.35))
    ax.set_yticklabels([TRACE_LABELS.get(str(n), str(n)) for n in frame["trace"]])
    ax.tick_params(axis="y", length=0)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)
    return fig


def bytes_against_need(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw what metadata bytes cost in slots, model by model, below what a page size needs.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.accounting.survey.bytes_in_slots` gives it.
    title : str
        The conclusion.
    """
    order = list(dict.fromkeys(frame.sort_values("kv_bytes_per_token", kind="stable")["model"]))
    fig, ax = style.canvas(0.19 * len(order) + 1.5)
    style.headline(fig, title)
    fig.get_layout_engine().set(w_pad=0.1)  # type: ignore[union-attr, call-arg]
    low, high = (float(frame[column].iloc[0]) for column in ("needed_from", "needed_to"))
    ax.axvspan(low, high, color=INK.faint, alpha=0.25, lw=0)
    ax.annotate(
        "what a page must cost, from the least to the most demanding trace",
        (high, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )
    marks = iter(("o", "D", "^"))
    for structure, rows in frame.groupby("structure", sort=False):
        ys = [-order.index(m) for m in rows["model"]]
        ax.plot(
            rows["c"].astype(float), ys, next(marks), color=palette.PART["metadata"].colour, ms=5
        )
        top = rows["c"].astype(float).to_numpy()[int(np.argmax(ys))]
        ax.annotate(
            str(structure),
            (top, 0),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
        )
    ax.set_xscale("log")
    ax.set(
        yticks=[-i for i in range(len(order))],
        ylim=(-len(order) + 0.3, 1.6),
        xlabel="token slots a page",
    )
    ax.set_yticklabels(order, fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    return fig
