"""What the titles of the figures of replays, decisions and a reader's own workload say.

Each is made from the data that its figure draws, as in :mod:`kvledger.chapters.titles`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters.titles import listed
from kvledger.decision.decision_survey import moves
from proofbook.formats import format_value

__all__ = [
    "best_by_structure",
    "half_of_requests",
    "hits",
    "least_held",
    "loads",
    "memory_range",
    "moved_ranges",
    "near_the_best",
    "own_sharing",
    "own_slack",
    "pools",
    "published_shares",
    "small_steps",
]

# ---------------------------------------------------------------- growth


def small_steps(frame: pd.DataFrame) -> str:
    """Say after how many steps all requests have ended, policy by policy.

    Examples
    --------
    >>> small_steps(pd.DataFrame({"policy": ["one", "one", "two"], "step": [0, 1, 0]}))
    'All requests have ended after 2 (one) or 1 (two) steps'
    """
    steps = frame.groupby("policy", sort=False)["step"].max() + 1
    words = [f"{count} ({name})" for name, count in steps.items()]
    return f"All requests have ended after {listed(words, 'or')} steps"


def pools(shares: pd.DataFrame) -> str:
    """Say under which policy tokens fill least of the pool, and under which most.

    Parameters
    ----------
    shares : DataFrame
        As :func:`kvledger.replays.growth.mean_shares` gives it, of the replays that are drawn.

    Examples
    --------
    >>> pools(pd.DataFrame({"policy": ["one", "two"], "used": [0.1, 0.95]}))
    'Tokens fill 10.0% (one) to 95.0% (two) of the pool on average'
    """
    order = shares.sort_values("used", kind="stable")
    ends = [order.iloc[0], order.iloc[-1]][: len(order)]
    words = [f"{format_value(row['used'], '.1%')} ({row['policy']})" for row in ends]
    return f"Tokens fill {' to '.join(words)} of the pool on average"


def loads(strain: pd.DataFrame) -> str:
    """Say how often requests had to leave under each way to arrive.

    Parameters
    ----------
    strain : DataFrame
        As :func:`kvledger.replays.growth.pressure` gives it, of the replays that are drawn.

    Examples
    --------
    >>> loads(pd.DataFrame({"setting": ["evenly", "in bursts"], "preempted": [0, 1534]}))
    'At one mean load, requests had to leave 0 times (evenly) or 1534 times (in bursts)'
    """
    words = [
        f"{format_value(int(count))} times ({name})"
        for name, count in strain[["setting", "preempted"]].itertuples(index=False)
    ]
    return f"At one mean load, requests had to leave {listed(words, 'or')}"


def hits(frame: pd.DataFrame) -> str:
    """Say what the smallest prefix cache finds, and what one that never evicts finds.

    Examples
    --------
    >>> hits(pd.DataFrame({"capacity_slots": [262144, None], "hit_rate": [0.043, 0.373]}))
    'A prefix cache of 262,144 slots finds 4.3% of prompt tokens, one that never evicts 37.3%'
    """
    sized = frame[frame["capacity_slots"].notna()].iloc[0]
    endless = frame.loc[frame["capacity_slots"].isna(), "hit_rate"].iloc[0]
    return (
        f"A prefix cache of {format_value(int(sized['capacity_slots']), ',d')} slots finds "
        f"{format_value(sized['hit_rate'], '.1%')} of prompt tokens, one that never evicts "
        f"{format_value(endless, '.1%')}"
    )


def published_shares(frame: pd.DataFrame) -> str:
    """Say how far the replayed share that is furthest off is from the published one.

    Examples
    --------
    >>> published_shares(pd.DataFrame({"difference": [0.2, -1.44, None]}))
    'One set of lengths gives every published share to within 1.4 points'
    """
    most = format_value(frame["difference"].abs().max(), ".1f")
    return f"One set of lengths gives every published share to within {most} points"


# ---------------------------------------------------------------- the decision


def least_held(frame: pd.DataFrame) -> str:
    """Say at which page size a request holds least.

    Examples
    --------
    >>> least_held(pd.DataFrame({"page_size": [1, 2], "memory_slots": [12.92, 12.75]}))
    'Least is held in pages of 2: 12.75 slots a request'
    """
    best = int(frame["memory_slots"].astype(float).argmin())
    held = format_value(frame["memory_slots"].iloc[best], ".2f")
    return f"Least is held in pages of {frame['page_size'].iloc[best]}: {held} slots a request"


def memory_range(frame: pd.DataFrame, tolerance: float) -> str:
    """Say which page sizes are near the best in memory, and which cost is the largest above.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.decision.decision_survey.shares` gives it.
    tolerance : float
        What counts as near, as a share of the least.

    Examples
    --------
    >>> rows = [(1, "tail slack", 0.0, True), (1, "metadata", 0.002, True),
    ...         (32, "tail slack", 0.012, False), (32, "metadata", 0.0001, False)]
    >>> frame = pd.DataFrame(rows, columns=["page_size", "cost", "share", "near"])
    >>> memory_range(frame, 0.01)
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


def moved_ranges(frame: pd.DataFrame) -> str:
    """Say how far the largest page size near the best moves with the trace and with the model.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.decision.decision_survey.answers` gives it.

    Examples
    --------
    >>> rows = [(t, m, h, h, h) for t, m, h in
    ...         [("a", "x", 10), ("a", "y", 12), ("b", "x", 40), ("b", "y", 42)]]
    >>> moved_ranges(pd.DataFrame(rows, columns=["trace", "model", "best", "low", "high"]))
    'The largest page size near the best differs 4.0-fold between traces, 1.2-fold between models'
    """
    row = moves(frame).iloc[-1]
    trace, model = (format_value(row[f"{by}_factor"], ".1f") for by in ("trace", "model"))
    return (
        f"The largest page size near the best differs {trace}-fold between traces, "
        f"{model}-fold between models"
    )


def near_the_best(frame: pd.DataFrame, page_size: int) -> str:
    """Say up to which cost a page size is near the best, trace by trace.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.decision.decision_survey.needed` gives it.
    page_size : int
        One of those in it.

    Examples
    --------
    >>> rows = {"trace": ["bwb_v2", "a"], "page_size": [16, 16], "c_from": [0.0, 0.1],
    ...         "c_to": [0.53, None]}
    >>> near_the_best(pd.DataFrame(rows, dtype=object), 16)
    'Pages of 16 are near the best up to 0.53 (BWB) or any (a) slots a page'
    """
    words = []
    for row in frame[frame["page_size"] == page_size].to_dict("records"):
        end = "no" if row["c_from"] is None else "any"
        if row["c_to"] is not None:
            end = format_value(row["c_to"], ".2f")
        words.append(f"{end} ({TRACE_LABELS.get(str(row['trace']), str(row['trace']))})")
    return f"Pages of {page_size} are near the best up to {listed(words, 'or')} slots a page"


# ---------------------------------------------------------------- a reader's own workload


def half_of_requests(frame: pd.DataFrame) -> str:
    """Say below which length half of the requests end, by the powers of two that are drawn.

    Examples
    --------
    >>> half_of_requests(pd.DataFrame({"up_to": [1024, 2048], "requests": [3, 4]}))
    'At least half of the requests end within 2,048 tokens'
    """
    so_far = frame["requests"].cumsum()
    within = frame.loc[2 * so_far >= frame["requests"].sum(), "up_to"].iloc[0]
    return f"At least half of the requests end within {format_value(int(within), ',d')} tokens"


def own_slack(frame: pd.DataFrame, page_size: int) -> str:
    """Say which share of what is held is slack at one page size.

    Examples
    --------
    >>> own_slack(pd.DataFrame({"page_size": [16], "slack_share": [0.0006]}), 16)
    'In pages of 16, tail slack is 0.06% of what is held'
    """
    share = frame.set_index("page_size").loc[page_size, "slack_share"]
    return (
        f"In pages of {format_value(page_size, ',d')}, tail slack is {format_value(share, '.2%')} "
        "of what is held"
    )


def own_sharing(frame: pd.DataFrame, neighbours: int = 64) -> str:
    """Say how many blocks an earlier request holds too, of all and among neighbours.

    Examples
    --------
    >>> own_sharing(pd.DataFrame({"window_requests": [64, 500], "shared_share": [0.043, 0.366]}))
    'An earlier request holds 36.6% of the blocks too, one among 64 neighbours 4.3%'
    """
    last = frame.iloc[-1]
    words = (
        f"An earlier request holds {format_value(last['shared_share'], '.1%')} of the blocks too"
    )
    near = frame[frame["window_requests"] <= neighbours].iloc[-1:]
    if near.empty or near["window_requests"].iloc[0] == last["window_requests"]:
        return words
    share = format_value(near["shared_share"].iloc[0], ".1%")
    return f"{words}, one among {near['window_requests'].iloc[0]} neighbours {share}"


def best_by_structure(frame: pd.DataFrame, marks: Mapping[str, float]) -> str:
    """Say which page size is the best for each structure as the only cost of a page.

    Examples
    --------
    >>> steps = pd.DataFrame({"page_size": [1, 2], "c_from": [0, 0.5]})
    >>> best_by_structure(steps, {"table entry": 0.1, "host objects": 0.7})
    'With the table entry as its only cost, pages of 1 are best; with the host objects, pages of 2'
    """
    found = {
        name: int(frame.loc[frame["c_from"].astype(float) <= c, "page_size"].iloc[-1])
        for name, c in marks.items()
    }
    (first, size), *others = found.items()
    rest = "".join(f"; with the {name}, pages of {other:,}" for name, other in others)
    return f"With the {first} as its only cost, pages of {size:,} are best{rest}"
