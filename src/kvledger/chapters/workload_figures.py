"""Figures and titles of the report on a reader's own workload.

No name from outside is drawn: one workload needs no label, and a name could hold what a drawing
takes for mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from kvledger.chapters import drawing
from kvledger.chapters.drawing import INK, PART, headed, note
from kvledger.chapters.metadata_figures import size_by_cost
from proofbook import style
from proofbook.formats import format_value

_MOST_TICKS = 7


def lengths(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw requests by length, prompts and final, of `report_tables.length_counts`."""
    fig, ax = headed(3.1, title)
    at = np.arange(len(frame), dtype=float)
    looks = {
        "prompts": {"facecolor": INK.paper, "edgecolor": INK.ink, "label": "prompts"},
        "requests": {"facecolor": INK.ink, "edgecolor": INK.ink, "label": "final lengths"},
    }
    for side, (column, look) in zip((-0.2, 0.2), looks.items(), strict=True):
        ax.bar(at + side, frame[column].astype(float), width=0.38, linewidth=0.8, **look)
    ax.set_xticks(at, [drawing.short_binary(v) for v in frame["up_to"]])
    ax.set(xlabel="tokens, up to", ylabel="requests")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    drawing.key_above(ax)
    ax.grid(axis="y")
    return fig


def lengths_title(frame: pd.DataFrame) -> str:
    """Say below which length half of the requests end, by the powers of two that are drawn.

    Examples
    --------
    >>> lengths_title(pd.DataFrame({"up_to": [1024, 2048], "requests": [3, 4]}))
    'At least half of the requests end within 2,048 tokens'
    """
    so_far = frame["requests"].cumsum()
    within = frame.loc[2 * so_far >= frame["requests"].sum(), "up_to"].iloc[0]
    return f"At least half of the requests end within {format_value(int(within), ',d')} tokens"


def tail_slack(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw tail slack by page size, as a share and in slots, of `report_tables.tail_slack`."""
    fig, (left, right) = headed(3.4, title, 1, 2)
    xs = frame["page_size"].to_numpy(float)
    colour = PART["tail slack"].colour
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
    right.yaxis.set_major_formatter(drawing.PLAIN)
    right.set_ylabel("mean slots a request")
    for ax, words in ((left, "Tail slack, as a share"), (right, "Tail slack, in slots a request")):
        drawing.powers_of_two(ax, frame["page_size"], _MOST_TICKS)
        ax.set_xlabel("page size, slots")
        ax.set_title(words, fontsize=9.5)
        ax.grid(axis="y")
    style.end_labels(right, ends, fontsize=8.5)
    return fig


def tail_slack_title(frame: pd.DataFrame, page_size: int) -> str:
    """Say which share of what is held is slack at one page size.

    Examples
    --------
    >>> tail_slack_title(pd.DataFrame({"page_size": [16], "slack_share": [0.0006]}), 16)
    'In pages of 16, tail slack is 0.06% of what is held'
    """
    share = frame.set_index("page_size").loc[page_size, "slack_share"]
    return (
        f"In pages of {format_value(page_size, ',d')}, tail slack is {format_value(share, '.2%')} "
        "of what is held"
    )


def sharing(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the share of blocks that a neighbour holds too, of `report_tables.sharing`."""
    fig, ax = headed(3.3, title)
    xs, shares = frame["window_requests"].to_numpy(float), frame["shared_share"].astype(float)
    ax.plot(xs, shares, color=PART["shared"].colour, marker="o", markersize=4)
    drawing.shares_of_neighbours(ax, frame["window_requests"], _MOST_TICKS)
    return fig


def sharing_title(frame: pd.DataFrame, neighbours: int = 64) -> str:
    """Say how many blocks an earlier request holds too, of all and among neighbours.

    Examples
    --------
    >>> sharing_title(pd.DataFrame({"window_requests": [64, 500], "shared_share": [0.043, 0.366]}))
    'An earlier request holds 36.6% of the blocks too, one among 64 neighbours 4.3%'
    """
    last = frame.iloc[-1]
    share = format_value(last["shared_share"], ".1%")
    words = f"An earlier request holds {share} of the blocks too"
    near = frame[frame["window_requests"] <= neighbours].iloc[-1:]
    if near.empty or near["window_requests"].iloc[0] == last["window_requests"]:
        return words
    share = format_value(near["shared_share"].iloc[0], ".1%")
    return f"{words}, one among {near['window_requests'].iloc[0]} neighbours {share}"


def best_size(frame: pd.DataFrame, marks: Mapping[str, float], *, title: str) -> Figure:
    """Draw the best page size as steps over the cost per page, and what known structures cost.

    The frame is as :func:`kvledger.report.report_tables.break_evens` gives it. marks: name of a
    structure to its cost, in token slots per page.
    """
    fig, ax = headed(3.4, title)
    starts = frame["c_from"].astype(float).to_numpy()
    edges = [*starts[1:], *marks.values()]
    low, high = min(edges) / 8, max(edges) * 8
    xs = np.append(np.maximum(starts, low), high)
    ys = frame["page_size"].to_numpy(float)
    ax.step(xs, np.append(ys, ys[-1]), where="post", color=INK.ink, lw=2.4)
    size_by_cost(ax)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low, high)
    for i, (name, c) in enumerate(marks.items()):
        ax.axvline(c, color=PART["metadata"].colour, lw=1.8, linestyle=(0, (4, 2)))
        note(ax, name, (c, 1.0), (4, -9 - 12 * i), within=("data", "axes fraction"))
    ax.grid(axis="y")
    return fig


def best_size_title(frame: pd.DataFrame, marks: Mapping[str, float]) -> str:
    """Say which page size is the best for each structure as the only cost of a page.

    Examples
    --------
    >>> steps = pd.DataFrame({"page_size": [1, 2], "c_from": [0, 0.5]})
    >>> best_size_title(steps, {"table entry": 0.1, "host objects": 0.7})
    'With the table entry as its only cost, pages of 1 are best; with the host objects, pages of 2'
    """
    found = {
        name: int(frame.loc[frame["c_from"].astype(float) <= c, "page_size"].iloc[-1])
        for name, c in marks.items()
    }
    (first, size), *others = found.items()
    rest = "".join(f"; with the {name}, pages of {other:,}" for name, other in others)
    return f"With the {first} as its only cost, pages of {size:,} are best{rest}"
