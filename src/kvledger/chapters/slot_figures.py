"""Figures and titles of the chapters on requests that are all held at one moment, slot by slot.

These are the chapters on reservation, on slack of last pages and on shared prefixes. The squares of
their small examples are laid out without asking the accounting; a test holds the two against each
other. A row of squares has the columns panel, request, slot (position in the request), page
(missing where memory is not paged) and part. The part ``points at`` is a position whose page
another request holds: it takes no slot.

A title is quoted without its page. So no number and no comparison in one is typed, and where the
data could say otherwise the words follow the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import PercentFormatter

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters import drawing
from kvledger.chapters.drawing import DOTTED, INK, PART, Look, headed, note
from proofbook import style
from proofbook.formats import format_value
from proofbook.plaintext import listed

#: The parts that take a slot, and those that are a token of a request.
HELD, TOKENS = ("used", "tail slack", "reserved"), ("used", "points at")

_COLUMNS = ["panel", "request", "slot", "page", "part"]
_GAP = 0.25  # between pages, in slots
_PART_WORDS = {"used": "tokens", "points at": "positions that point at shared pages"}

# ---------------------------------------------------------------- squares, one a slot


def contiguous_slots(panel: str, lengths: Sequence[int], held: Sequence[int]) -> pd.DataFrame:
    """Lay out requests that each reserve a run of slots.

    Examples
    --------
    >>> contiguous_slots("reserve 4", [3], held=[4])["part"].tolist()
    ['used', 'used', 'used', 'reserved']
    """
    rows = [
        (panel, request, slot, None, "used" if slot < tokens else "reserved")
        for request, (tokens, slots) in enumerate(zip(lengths, held, strict=True))
        for slot in range(slots)
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def paged_slots(
    panel: str, lengths: Sequence[int], page_size: int, *, prefix: int = 0
) -> pd.DataFrame:
    """Lay out requests that hold whole pages; all but the first point at its prefix pages.

    Examples
    --------
    >>> paged_slots("pages of 2", [3, 3], 2, prefix=2)["part"].tolist()
    ['used', 'used', 'used', 'tail slack', 'points at', 'points at', 'used', 'tail slack']
    """
    shared = prefix // page_size * page_size

    def part(request: int, slot: int, tokens: int) -> str:
        if request and slot < shared:
            return "points at"
        return "used" if slot < tokens else "tail slack"

    rows = [
        (panel, request, slot, slot // page_size, part(request, slot, tokens))
        for request, tokens in enumerate(lengths)
        for slot in range(-(-tokens // page_size) * page_size)
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def slots(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw every slot as a square, one panel below the other, of rows of squares in order."""
    panels = drawing.panels_of(frame, "panel")
    counts = [int(frame.loc[frame["panel"] == p, "request"].nunique()) for p in panels]
    heights = [n + 2.1 for n in counts]
    fig, axes = headed(
        0.23 * sum(heights) + 0.55, title, len(panels), squeeze=False, height_ratios=heights
    )
    right = max(_place(s, p) for s, p in zip(frame["slot"], frame["page"], strict=True)) + 1
    for ax, panel, rows in zip(axes[:, 0], panels, counts, strict=True):
        part = frame[frame["panel"] == panel]
        for request, slot, page, what in part[_COLUMNS[1:]].itertuples(index=False):
            _square(ax, _place(slot, page), -request, what)
        left: Look = {"ha": "right", "va": "center", "fontsize": 9}
        for request, count in part["part"].isin(TOKENS).groupby(part["request"]).sum().items():
            ax.text(-0.5, 0.5 - float(str(request)), str(count), **left)
        held, tokens = (int(part["part"].isin(parts).sum()) for parts in (HELD, TOKENS))
        ax.set_title(f"{panel}: {held} slots for {tokens} tokens", fontsize=9.5, pad=2)
        _keys(ax, part["part"].value_counts(), rows, letter=0.0105 * (right + 2))
        ax.set(xlim=(-1.8, right + 0.2), ylim=(-rows - 0.1, 1.0), aspect="equal", anchor="W")
        ax.axis("off")
    return fig


def _place(slot: int, page: Any) -> float:
    return slot + (0 if page is None or pd.isna(page) else int(page) * _GAP)


def _square(ax: Axes, x: float, y: float, part: str) -> None:
    hollow: Look = {"facecolor": "none", "edgecolor": PART["shared"].colour, "linewidth": 1.3}
    look = hollow if part == "points at" else drawing.part_style(part)
    rounded = "round,pad=0,rounding_size=0.12"
    ax.add_patch(FancyBboxPatch((x + 0.08, y + 0.1), 0.84, 0.8, boxstyle=rounded, **look))


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


def _counted(frame: pd.DataFrame) -> tuple[int, list[int], list[int]]:
    """Count tokens (of each panel the same), slots held and tail slack, panel by panel."""
    panels = [part for _, part in frame.groupby("panel", sort=False)["part"]]
    parts = (TOKENS, HELD, ["tail slack"])
    tokens, held, slack = ([int(p.isin(of).sum()) for p in panels] for of in parts)
    return tokens[-1], held, slack


def reserved_slots_title(frame: pd.DataFrame) -> str:
    """Say how many slots the same tokens take under each policy.

    Examples
    --------
    >>> squares = [contiguous_slots(str(n), [5], [n]) for n in (8, 6, 5)]
    >>> reserved_slots_title(pd.concat(squares))
    'What is known of the end decides: 5 tokens take 8, 6 or 5 slots'
    """
    tokens, held, _ = _counted(frame)
    decides = "What is known of the end decides: " if len(set(held)) > 1 else ""
    return f"{decides}{tokens} tokens take {listed([str(n) for n in held], 'or')} slots"


def slack_by_size_title(frame: pd.DataFrame) -> str:
    """Say how much slack each page size leaves of the same tokens.

    Examples
    --------
    >>> squares = [paged_slots(f"Pages of {p}", [5, 9], p) for p in (2, 4)]
    >>> slack_by_size_title(pd.concat(squares))
    'The larger the pages, the more slack: 2 and 6 slots for 14 tokens'
    """
    tokens, _, slack = _counted(frame)
    rises = all(a < b for a, b in pairwise(slack))
    words = "The larger the pages, the more slack" if rises else "Slack by page size"
    return f"{words}: {listed([str(n) for n in slack])} slots for {tokens} tokens"


def shared_slots_title(frame: pd.DataFrame) -> str:
    """Say what sharing a prefix does to the slots held, and to the slack.

    Examples
    --------
    >>> squares = [paged_slots(str(q), [5, 9], 4, prefix=q) for q in (0, 4)]
    >>> shared_slots_title(pd.concat(squares))
    'Sharing a prefix: 20 slots become 16; the tail slack stays 6'
    """
    _, (separate, shared), (before, after) = _counted(frame)
    slack = f"stays {after}" if before == after else f"goes from {before} to {after}"
    return f"Sharing a prefix: {separate} slots become {shared}; the tail slack {slack}"


# ---------------------------------------------------------------- reservation


def reservation_title(frame: pd.DataFrame) -> str:
    """Say how much of the largest maximum is never used, on the trace that fills it best.

    Examples
    --------
    >>> rows = [("a", 8, 0.5), ("a", 64, 0.9), ("b", 64, 0.75)]
    >>> reservation_title(pd.DataFrame(rows, columns=["trace", "reserve", "unused_share"]))
    'With 64 slots reserved for every request, 75.0% or more are never used'
    """
    most = frame["reserve"].max()
    least = frame.loc[frame["reserve"] == most, "unused_share"].min()
    return (
        f"With {format_value(int(most), ',d')} slots reserved for every request, "
        f"{format_value(least, '.1%')} or more are never used"
    )


def arrival_title(frame: pd.DataFrame) -> str:
    """Say which share of a maximum that refuses nobody is never used.

    Examples
    --------
    >>> arrival_title(pd.DataFrame({"never_share": [0.297, 0.94]}))
    'Of a maximum that refuses nobody, 30% to 94% is never used, by trace'
    """
    least, most = (format_value(frame["never_share"].agg(f), ".0%") for f in ("min", "max"))
    return f"Of a maximum that refuses nobody, {least} to {most} is never used, by trace"


# ---------------------------------------------------------------- slack of last pages


def expectation_title(frame: pd.DataFrame, near: int) -> str:
    """Say how good the estimate of half a page is up to a page size, and at the largest.

    Examples
    --------
    >>> rows = {"page_size": [4, 64], "final_error": [0.01, 0.2], "growth_error": [0.0, 0.1]}
    >>> print(expectation_title(pd.DataFrame(rows), near=4))
    The estimate of half a page is within 1.0% up to pages of 4; at 64 it is off by up to 20%
    """
    error = frame[["final_error", "growth_error"]].max(axis=1)
    largest = frame["page_size"].max()
    close = format_value(error[frame["page_size"] <= near].max(), ".1%")
    far = format_value(error[frame["page_size"] == largest].max(), ".0%")
    return (
        f"The estimate of half a page is within {close} up to pages of {near}; "
        f"at {largest} it is off by up to {far}"
    )


def slack_distribution(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw requests by tail slack beside an even spread, of `survey.slack_distribution`."""
    fig, ax = headed(2.9, title)
    shares = frame["share"].astype(float)
    ax.bar(frame["tail_slack_slots"], shares, width=0.8, **drawing.part_style("tail slack"))
    even = float(frame["even_share"].iloc[0])
    ax.axhline(even, color=INK.ink, linewidth=1)
    end = {"within": ax.get_yaxis_transform(), "va": "center", "fontsize": 9}
    note(ax, "an even spread", (1.0, even), (4, 0), **end)
    ax.set_xlim(-1, len(frame))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    ax.set(xlabel="slots of the last page left unused", ylabel="share of requests")
    return fig


def slack_distribution_title(frame: pd.DataFrame, of: str) -> str:
    """Say how far the shares of the slacks are from an even spread.

    Examples
    --------
    >>> spread = pd.DataFrame({"share": [0.4, 0.6], "even_share": [0.5, 0.5]})
    >>> slack_distribution_title(spread, of="A trace")
    'A trace: each slack has 40.00% to 60.00% of the requests; an even spread has 50.00%'
    """
    values = [frame["share"].min(), frame["share"].max(), frame["even_share"].iloc[0]]
    least, most, even = (format_value(value, ".2%") for value in values)
    return f"{of}: each slack has {least} to {most} of the requests; an even spread has {even}"


def slack_share_title(frame: pd.DataFrame, page_size: int) -> str:
    """Say how much of the slots held is slack at most, at one page size and at the largest.

    Examples
    --------
    >>> rows = pd.DataFrame({"page_size": [16, 512], "slack_share": [0.0054, 0.134]})
    >>> slack_share_title(rows, 16)
    'Tail slack is at most 0.54% of the slots held in pages of 16, and 13% in pages of 512'
    """
    most, largest = frame.groupby("page_size")["slack_share"].max(), frame["page_size"].max()
    return (
        f"Tail slack is at most {format_value(most[page_size], '.2%')} of the slots held in pages "
        f"of {page_size}, and {format_value(most[largest], '.0%')} in pages of {largest}"
    )


# ---------------------------------------------------------------- shared prefixes


def held_and_spared(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw what is held in bars, and what sharing spared as lines, of `survey.ledgers`."""
    fig, ax = headed(0.75 * len(frame) + 1.0, title)
    for i, row in enumerate(frame.to_dict("records")):
        distinct, slack = int(row["distinct tokens"]), int(row["tail slack slots"])
        held, spared = int(row["allocated slots"]), int(row["shared tokens"])
        ax.barh(-i, distinct, height=0.46, **drawing.part_style("used"))
        ax.barh(-i, slack, left=distinct, height=0.46, **drawing.part_style("tail slack"))
        inside = {"color": style.ON_COLOUR, "ha": "center", "va": "center"}
        ax.text(distinct / 2, -i, f"{distinct} distinct", **inside)
        ax.text(held + 0.5, -i, f"{held} held, {slack} of it tail slack", va="center")
        if spared:
            look: Look = {"color": PART["shared"].colour, "solid_capstyle": "butt"}
            ax.plot([held, held + spared], [-i - 0.38] * 2, lw=4, **look)
            ax.text(held + spared + 0.5, -i - 0.38, f"{spared} spared by sharing", va="center")
    widest = float((frame["allocated slots"] + frame["shared tokens"]).astype(float).max())
    drawing.named_rows(ax, [-i for i in range(len(frame))], frame["policy"])
    ax.set(xlabel="slots", xlim=(0, widest * 1.5), ylim=(-len(frame) + 0.35, 0.4))
    ax.spines["left"].set_visible(False)
    return fig


def spared_title(frame: pd.DataFrame) -> str:
    """Say how many slots the last ledger spares beside the first, and what slack they have.

    Examples
    --------
    >>> import kvledger as kv
    >>> from kvledger.accounting.survey import ledgers
    >>> two = {"a": kv.paged([20, 23], 4), "b": kv.shared([20, 23], 4, prefix=8)}
    >>> spared_title(ledgers(two))
    'Sharing spares 8 slots of 44 and leaves the tail slack at 1'
    """
    first, last = frame.iloc[0], frame.iloc[-1]
    spared = int(first["allocated slots"] - last["allocated slots"])
    before, after = int(first["tail slack slots"]), int(last["tail slack slots"])
    slack = f"leaves the tail slack at {after}"
    if before != after:
        slack = f"moves the tail slack from {before} to {after}"
    return f"Sharing spares {spared} slots of {first['allocated slots']} and {slack}"


def shared_blocks(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the share of blocks that neighbours hold too, of `survey.shared_blocks`."""
    fig, ax = headed(3.6, title)
    ends = []
    for (trace, preamble), rows in frame.groupby(["trace", "preamble"], sort=False):
        look = drawing.line_style(str(trace)) | {"color": PART["shared"].colour}
        look["linestyle"] = "-" if preamble == "with" else DOTTED
        xs, ys = rows["window_requests"].to_numpy(float), rows["shared_share"].to_numpy(float)
        ax.plot(xs, ys, **look)
        kinds = frame.loc[frame["trace"] == trace, "preamble"].nunique()
        words = f", {preamble} preamble" if kinds > 1 else ""
        ends.append((xs[-1], ys[-1], TRACE_LABELS[str(trace)] + words))
    drawing.shares_of_neighbours(ax, frame["window_requests"])
    style.end_labels(ax, ends, fontsize=8.5)
    return fig


def shared_blocks_title(frame: pd.DataFrame, neighbours: int) -> str:
    """Say how many blocks neighbours share at most, and how many come back in a whole trace.

    Examples
    --------
    >>> rows = [("a", "with", 4, 0.04), ("a", "with", 99, 0.6), ("b", "with", 4, 0.01),
    ...         ("b", "with", 88, 0.4)]
    >>> names = ["trace", "preamble", "window_requests", "shared_share"]
    >>> shared_blocks_title(pd.DataFrame(rows, columns=names), neighbours=4)
    'Among 4 neighbours at most 4.0% of blocks are shared; over a whole trace 40% or more repeat'
    """
    near = frame.loc[frame["window_requests"] == neighbours, "shared_share"].max()
    each = frame.sort_values("window_requests").groupby(["trace", "preamble"])["shared_share"]
    return (
        f"Among {neighbours} neighbours at most {format_value(near, '.1%')} of blocks are shared; "
        f"over a whole trace {format_value(each.last().min(), '.0%')} or more repeat"
    )
