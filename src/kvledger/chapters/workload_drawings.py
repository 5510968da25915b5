"""The figures of the report on a reader's own workload. They compute nothing.

No name from outside is drawn: one workload needs no label, and a name could hold what a drawing
takes for mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from kvledger.chapters import palette
from kvledger.chapters.drawings import short_binary
from proofbook import style

INK = style.INK["light"]


def lengths(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw how many requests have each length, by powers of two: prompts, and final lengths.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.report.report_tables.length_counts` gives it.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(3.1)
    style.headline(fig, title)
    at = np.arange(len(frame), dtype=float)
    looks = {
        "prompts": {"facecolor": INK.paper, "edgecolor": INK.ink, "label": "prompts"},
        "requests": {"facecolor": INK.ink, "edgecolor": INK.ink, "label": "final lengths"},
    }
    for side, (column, look) in zip((-0.2, 0.2), looks.items(), strict=True):
        ax.bar(at + side, frame[column].astype(float), width=0.38, linewidth=0.8, **look)
    ax.set_xticks(at, [short_binary(v) for v in frame["up_to"]])
    ax.set(xlabel="tokens, up to", ylabel="requests")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)
    ax.grid(axis="y")
    return fig


def tail_slack(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw tail slack by page size: as a share of what is held, and in slots a request.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.report.report_tables.tail_slack` gives it.
    title : str
        The conclusion.
    """
    fig, (left, right) = style.canvas(3.4, 1, 2)
    style.headline(fig, title)
    xs = frame["page_size"].to_numpy(float)
    colour = palette.PART["tail slack"].colour
    left.plot(xs, frame["slack_share"].astype(float), color=colour, marker="o")
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    left.set_ylim(bottom=0)
    left.set_ylabel("share of the slots held")
    ends = []
    lines: dict[str, tuple[str, dict[str, Any]]] = {
        "mean_slots": ("at the end", {"color": colour, "marker": "o"}),
        "growth_slots": ("over growth", {"color": colour, "marker": "s", "linestyle": ":"}),
        "expected_slots": ("(p − 1)/2", {"color": INK.ink, "linewidth": 0.9}),
    }
    for column, (words, look) in lines.items():
        ys = frame[column].astype(float).to_numpy()
        some = ys > 0  # pages of one slot have none, and a logarithm has no zero
        right.plot(xs[some], ys[some], **look)
        if some.any():
            ends.append((xs[some][-1], ys[some][-1], words))
    right.set_yscale("log")
    right.yaxis.set_minor_locator(NullLocator())
    right.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    right.set_ylabel("mean slots a request")
    for ax, words in ((left, "Tail slack, as a share"), (right, "Tail slack, in slots a request")):
        _powers(ax, frame["page_size"])
        ax.set_xlabel("page size, slots")
        ax.set_title(words, fontsize=9.5)
        ax.grid(axis="y")
    style.end_labels(right, ends, fontsize=8.5)
    return fig


def sharing(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the share of blocks that a neighbour holds too, over the number of neighbours.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.report.report_tables.sharing` gives it.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(3.3)
    style.headline(fig, title)
    colour = palette.PART["shared"].colour
    xs = frame["window_requests"].to_numpy(float)
    ax.plot(xs, frame["shared_share"].astype(float), color=colour, marker="o", markersize=4)
    _powers(ax, frame["window_requests"])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set(xlabel="requests in a row", ylabel="blocks another of them also holds")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y")
    return fig


def best_by_cost(frame: pd.DataFrame, marks: Mapping[str, float], *, title: str) -> Figure:
    """Draw the best page size as steps over the cost per page, and what known structures cost.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.report.report_tables.break_evens` gives it.
    marks : mapping of str to float
        Name of a structure to its cost, in token slots a page.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(3.4)
    style.headline(fig, title)
    starts = frame["c_from"].astype(float).to_numpy()
    edges = [*starts[1:], *marks.values()]
    low, high = min(edges) / 8, max(edges) * 8
    xs = np.append(np.maximum(starts, low), high)
    ys = frame["page_size"].to_numpy(float)
    ax.step(xs, np.append(ys, ys[-1]), where="post", color=INK.ink, lw=2.4)
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))
    ax.set(
        xlim=(low, high),
        xlabel="c, cost of a page in token slots",
        ylabel="best page size, slots",
    )
    for i, (name, c) in enumerate(marks.items()):
        ax.axvline(c, color=palette.PART["metadata"].colour, lw=1.8, linestyle=(0, (4, 2)))
        ax.annotate(
            name,
            (c, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(4, -9 - 12 * i),
            textcoords="offset points",
            fontsize=8.5,
        )
    ax.grid(axis="y")
    return fig


def _powers(ax: Axes, values: pd.Series) -> None:
    ticks = sorted({int(v) for v in values if int(v) & (int(v) - 1) == 0})
    shown = ticks if len(ticks) <= 7 else ticks[::2]
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))
