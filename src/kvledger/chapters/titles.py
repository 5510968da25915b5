"""What the titles of the accounting's figures say: each its answer, made from what it draws.

A title is quoted without its page. So no number and no comparison in one is typed, and where the
data could say otherwise the words follow the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd

from kvledger.chapters.slot_rows import HELD
from proofbook.formats import format_value

__all__ = [
    "arrival",
    "cost_lines",
    "envelopes",
    "expectation",
    "flat",
    "listed",
    "per_token",
    "reservation",
    "reserved_slots",
    "shared_blocks",
    "shared_slots",
    "slack_by_size",
    "slack_distribution",
    "slack_share",
    "spared",
    "structures",
]


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["3/14", "6/7", "2"]), listed(["2"])
    ('3/14, 6/7 and 2', '2')
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


# ---------------------------------------------------------------- reservation and pages


def _panels(frame: pd.DataFrame) -> tuple[int, list[int], list[int]]:
    """Count tokens (of each panel the same), slots held and tail slack, panel by panel."""
    held, slack, tokens = [], [], 0
    for _, rows in frame.groupby("panel", sort=False):
        held.append(int(rows["part"].isin(HELD).sum()))
        slack.append(int((rows["part"] == "tail slack").sum()))
        tokens = int(rows["part"].isin(["used", "points at"]).sum())
    return tokens, held, slack


def reserved_slots(frame: pd.DataFrame) -> str:
    """Say how many slots the same tokens take under each policy.

    Examples
    --------
    >>> from kvledger.chapters.slot_rows import contiguous_slots
    >>> squares = [contiguous_slots(str(n), [5], [n]) for n in (8, 6, 5)]
    >>> reserved_slots(pd.concat(squares))
    'What is known of the end decides: 5 tokens take 8, 6 or 5 slots'
    """
    tokens, held, _ = _panels(frame)
    slots = listed([str(n) for n in held], "or")
    decides = "What is known of the end decides: " if len(set(held)) > 1 else ""
    return f"{decides}{tokens} tokens take {slots} slots"


def slack_by_size(frame: pd.DataFrame) -> str:
    """Say how much slack each page size leaves of the same tokens.

    Examples
    --------
    >>> from kvledger.chapters.slot_rows import paged_slots
    >>> squares = [paged_slots(f"Pages of {p}", [5, 9], p) for p in (2, 4)]
    >>> slack_by_size(pd.concat(squares))
    'The larger the pages, the more slack: 2 and 6 slots for 14 tokens'
    """
    tokens, _, slack = _panels(frame)
    rises = all(a < b for a, b in pairwise(slack))
    words = "The larger the pages, the more slack" if rises else "Slack by page size"
    return f"{words}: {listed([str(n) for n in slack])} slots for {tokens} tokens"


def shared_slots(frame: pd.DataFrame) -> str:
    """Say what sharing a prefix does to the slots held, and to the slack.

    Examples
    --------
    >>> from kvledger.chapters.slot_rows import paged_slots
    >>> squares = [paged_slots(str(q), [5, 9], 4, prefix=q) for q in (0, 4)]
    >>> shared_slots(pd.concat(squares))
    'Sharing a prefix: 20 slots become 16; the tail slack stays 6'
    """
    _, (separate, shared), (before, after) = _panels(frame)
    slack = f"stays {after}" if before == after else f"goes from {before} to {after}"
    return f"Sharing a prefix: {separate} slots become {shared}; the tail slack {slack}"


def spared(frame: pd.DataFrame) -> str:
    """Say how many slots the last ledger spares beside the first, and what slack they have.

    Examples
    --------
    >>> import kvledger as kv
    >>> from kvledger.accounting.survey import ledgers
    >>> spared(ledgers({"a": kv.paged([20, 23], 4), "b": kv.shared([20, 23], 4, prefix=8)}))
    'Sharing spares 8 slots of 44 and leaves the tail slack at 1'
    """
    first, last = frame.iloc[0], frame.iloc[-1]
    slots = int(first["allocated slots"] - last["allocated slots"])
    before, after = int(first["tail slack slots"]), int(last["tail slack slots"])
    slack = f"leaves the tail slack at {after}"
    if before != after:
        slack = f"moves the tail slack from {before} to {after}"
    return f"Sharing spares {slots} slots of {first['allocated slots']} and {slack}"


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
    words = (
        f"one token takes {format_value(held[first], '.2f')} slots ({first}) or "
        f"{format_value(held[second], '.3f')} ({second})"
    )
    return f"{of}: {words}" if of else words[0].upper() + words[1:]


def reservation(frame: pd.DataFrame) -> str:
    """Say how much of the largest maximum is never used, on the trace that fills it best.

    Examples
    --------
    >>> rows = [("a", 8, 0.5), ("a", 64, 0.9), ("b", 64, 0.75)]
    >>> reservation(pd.DataFrame(rows, columns=["trace", "reserve", "unused_share"]))
    'With 64 slots reserved for every request, 75.0% or more are never used'
    """
    most = frame["reserve"].max()
    least = frame.loc[frame["reserve"] == most, "unused_share"].min()
    return (
        f"With {format_value(int(most), ',d')} slots reserved for every request, "
        f"{format_value(least, '.1%')} or more are never used"
    )


def arrival(frame: pd.DataFrame) -> str:
    """Say which share of a maximum that refuses nobody is never used.

    Examples
    --------
    >>> arrival(pd.DataFrame({"never_share": [0.297, 0.94]}))
    'Of a maximum that refuses nobody, 30% to 94% is never used, by trace'
    """
    least, most = (format_value(frame["never_share"].agg(f), ".0%") for f in ("min", "max"))
    return f"Of a maximum that refuses nobody, {least} to {most} is never used, by trace"


def expectation(frame: pd.DataFrame, near: int) -> str:
    """Say how good the estimate of half a page is up to a page size, and at the largest.

    Examples
    --------
    >>> rows = {"page_size": [4, 64], "final_error": [0.01, 0.2], "growth_error": [0.0, 0.1]}
    >>> print(expectation(pd.DataFrame(rows), near=4))
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


def slack_distribution(frame: pd.DataFrame, of: str) -> str:
    """Say how far the shares of the slacks are from an even spread.

    Examples
    --------
    >>> spread = pd.DataFrame({"share": [0.4, 0.6], "even_share": [0.5, 0.5]})
    >>> slack_distribution(spread, of="A trace")
    'A trace: each slack has 40.00% to 60.00% of the requests; an even spread has 50.00%'
    """
    values = [frame["share"].min(), frame["share"].max(), frame["even_share"].iloc[0]]
    least, most, even = (format_value(value, ".2%") for value in values)
    return f"{of}: each slack has {least} to {most} of the requests; an even spread has {even}"


def slack_share(frame: pd.DataFrame, page_size: int) -> str:
    """Say how much of the slots held is slack at most, at one page size and at the largest.

    Examples
    --------
    >>> slack_share(pd.DataFrame({"page_size": [16, 512], "slack_share": [0.0054, 0.134]}), 16)
    'Tail slack is at most 0.54% of the slots held in pages of 16, and 13% in pages of 512'
    """
    most, largest = frame.groupby("page_size")["slack_share"].max(), frame["page_size"].max()
    return (
        f"Tail slack is at most {format_value(most[page_size], '.2%')} of the slots held in pages "
        f"of {page_size}, and {format_value(most[largest], '.0%')} in pages of {largest}"
    )


# ---------------------------------------------------------------- sharing


def shared_blocks(frame: pd.DataFrame, neighbours: int) -> str:
    """Say how many blocks neighbours share at most, and how many come back in a whole trace.

    Examples
    --------
    >>> rows = [("a", "with", 4, 0.04), ("a", "with", 99, 0.6), ("b", "with", 4, 0.01),
    ...         ("b", "with", 88, 0.4)]
    >>> names = ["trace", "preamble", "window_requests", "shared_share"]
    >>> shared_blocks(pd.DataFrame(rows, columns=names), neighbours=4)
    'Among 4 neighbours at most 4.0% of blocks are shared; over a whole trace 40% or more repeat'
    """
    near = frame.loc[frame["window_requests"] == neighbours, "shared_share"].max()
    each = frame.sort_values("window_requests").groupby(["trace", "preamble"])["shared_share"]
    return (
        f"Among {neighbours} neighbours at most {format_value(near, '.1%')} of blocks are shared; "
        f"over a whole trace {format_value(each.last().min(), '.0%')} or more repeat"
    )


# ---------------------------------------------------------------- a cost per page


def cost_lines(frame: pd.DataFrame) -> str:
    """Say at which costs the best page size changes.

    Examples
    --------
    >>> from kvledger.accounting.survey import cost_lines as lines
    >>> cost_lines(lines([5, 9, 17], [1, 2, 4, 8, 16]))
    'The best page size changes at c = 3/14, 6/7, 2 and 8 slots a page'
    """
    corners = [c for c in frame["c_from"] if c]
    if not corners:
        return "One page size is best at every cost"
    words = listed([format_value(c, "fraction") for c in sorted(corners)])
    return f"The best page size changes at c = {words} slots a page"


def envelopes(frame: pd.DataFrame, page_size: int) -> str:
    """Say from which cost on a page size is the best, over the traces.

    Examples
    --------
    >>> rows = {"page_size": [1, 16, 1, 16], "c_from": [0, 0.0042, 0, 0.0465]}
    >>> envelopes(pd.DataFrame(rows), 16)
    'Pages of 16 become the best once a page costs 0.0042 to 0.0465 slots, by trace'
    """
    start = frame.loc[frame["page_size"] == page_size, "c_from"]
    if start.empty:
        return f"Pages of {page_size} are the best at no cost"
    least, most = (format_value(value, ".4f") for value in (start.min(), start.max()))
    return (
        f"Pages of {page_size} become the best once a page costs {least} to {most} slots, by trace"
    )


def flat(frame: pd.DataFrame) -> str:
    """Say how far apart page sizes may be that cost within a percent of the least.

    Examples
    --------
    >>> flat(pd.DataFrame({"flat_factor": [4.2, 6.0]}))
    'The optimum is flat: within 1% of the least cost, sizes span a factor of 4.2 or more'
    """
    factor = format_value(frame["flat_factor"].min(), ".1f")
    return (
        f"The optimum is flat: within 1% of the least cost, sizes span a factor of {factor} or more"
    )


def structures(frame: pd.DataFrame, page_size: int, structure: str) -> str:
    """Say what a structure costs at most, and what a page must cost for a page size to be best.

    Examples
    --------
    >>> rows = {"structure": ["entry", "entry"], "c": [0.0001, 0.00013], "needed_from": [0.004] * 2}
    >>> structures(pd.DataFrame(rows), 16, "entry")
    'An entry is worth at most 0.00013 slots; for pages of 16 a page must cost 0.0040'
    """
    most = format_value(frame.loc[frame["structure"] == structure, "c"].max(), ".5f")
    need = format_value(frame["needed_from"].iloc[0], ".4f")
    article = "An" if structure[0] in "aeiou" else "A"
    return (
        f"{article} {structure} is worth at most {most} slots; "
        f"for pages of {page_size} a page must cost {need}"
    )
