"""How fast the kernel is held to be, what it reached, and where the rest of its time went.

The bars are for an H200 and for this project's kernel. A record from a CPU has nothing to say about
them, and the table then says that.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from kvledger.chapters.attention_report import (
    PLACED,
    peer_label,
    quartiles,
    ratios,
    rows_or_nothing,
    share,
    sweep_of,
    view,
)
from kvledger.measure.record import Record, Timing
from proofbook.formats import format_value

KERNEL, DEVICE = "triton", "H200"
SHAPE, BATCH, CONTEXT = "Llama-3.1-8B", 64, 8192

LEAST_SHARE = 0.9
FROM_PAGE_SIZE = 16
MOST_AGAINST_PEERS = 1.0
MOST_AT_ONE = 1.15

NOT_YET = "not measured on a GPU yet"


class _Reached(NamedTuple):
    value: float
    words: str
    where: str


def bars(record: Record | None) -> pd.DataFrame:
    """Hold the kernel against its bars: the worst value of each, over both placements of pages.

    Columns: bar, asked, reached (median and quartiles over the repetitions), where, verdict. The
    verdict is about the median.
    """
    timings = _bar_timings(record)
    mine = [t for t in timings if t.peer == KERNEL and t.layout != "contiguous"]
    wide = [t for t in mine if t.page_size >= FROM_PAGE_SIZE]
    rows = [
        {
            "bar": f"share of the copy bandwidth, pages of {FROM_PAGE_SIZE} and more",
            "asked": f"at least {format_value(LEAST_SHARE, '.0%')}",
            **_judged(record, _least_share(record, wide), LEAST_SHARE, at_least=True),
        },
        {
            "bar": f"time against the fastest peer, pages of {FROM_PAGE_SIZE} and more",
            "asked": "no longer",
            **_judged(record, _against_peers(timings, wide), MOST_AGAINST_PEERS),
        },
        {
            "bar": "time against contiguous memory, pages of 1",
            "asked": f"at most {format_value(MOST_AT_ONE, '.2f')} times",
            **_judged(record, _at_one(record, mine), MOST_AT_ONE),
        },
    ]
    return pd.DataFrame(rows, dtype=object)


def _bar_timings(record: Record | None) -> list[Timing]:
    """Return the timings of the case that the bars are about, if a GPU took them."""
    if record is None or record.device.kind != "cuda":
        return []
    ids = {
        case.id
        for case in record.cases
        if (case.shape, case.batch, case.context_tokens) == (SHAPE, BATCH, CONTEXT)
    }
    return [t for t in record.timings if t.case in ids]


def _least_share(record: Record | None, wide: list[Timing]) -> _Reached | None:
    if record is None or not wide:
        return None
    worst = min(wide, key=lambda t: share(record, t))
    high, value, low = (
        share(record, worst) * worst.median_s / seconds for seconds in quartiles(worst.seconds)
    )
    words = f"{value:.1%} ({low:.1%} to {high:.1%})"
    return _Reached(value, words, _where(worst))


def _against_peers(timings: list[Timing], wide: list[Timing]) -> _Reached | None:
    """Find where a peer is furthest ahead: at the same page size and layout, or contiguous."""
    found = []
    for mine in wide:
        for other in timings:
            same = (other.layout, other.page_size) == (mine.layout, mine.page_size)
            if other.peer != KERNEL and (same or other.layout == "contiguous"):
                where = f"{_where(mine)}, against {peer_label(other.peer)}"
                where += "" if same else " on contiguous memory"
                found.append(_ratio(mine, other, where))
    return max(found, key=lambda each: each.value, default=None)


def _at_one(record: Record | None, mine: list[Timing]) -> _Reached | None:
    found = []
    for timing in mine:
        base = None if record is None else record.baseline(timing)
        if timing.page_size == 1 and base is not None and base.peer == KERNEL:
            found.append(_ratio(timing, base, _where(timing)))
    return max(found, key=lambda each: each.value, default=None)


def _ratio(timing: Timing, other: Timing, where: str) -> _Reached:
    low, value, high = quartiles(ratios(timing, other))
    return _Reached(value, f"{value:.2f} times ({low:.2f} to {high:.2f})", where)


def _where(timing: Timing) -> str:
    return f"pages of {timing.page_size}, {PLACED[timing.layout]}"


def _judged(
    record: Record | None, reached: _Reached | None, asked: float, *, at_least: bool = False
) -> dict[str, object]:
    if record is None or record.device.kind != "cuda":
        return {"reached": None, "where": None, "verdict": NOT_YET}
    if reached is None:
        return {"reached": None, "where": None, "verdict": "not in this record"}
    short = asked - reached.value if at_least else reached.value - asked
    missed = f"{100 * short:.1f} points" if at_least else f"{short / asked:.1%}"
    verdict = "met" if short <= 0 else f"missed by {missed}"
    if DEVICE not in record.device.name:
        verdict += f", but the bar is for an {DEVICE}"
    return {"reached": reached.words, "where": reached.where, "verdict": verdict}


def losses(record: Record | None) -> pd.DataFrame:
    """Part what the peer in view loses against the copy: before pages, to pages, to placement.

    Columns: page size, contiguous share (of the copy bandwidth, without pages), in order (time
    against contiguous, pages one after the other), at random (time against pages in order), share
    (what is left of the bandwidth, pages at random). The first times what the two ratios take away
    is the last, but for the bytes of the table.
    """
    columns = (
        "page size",
        "contiguous share",
        "in order against contiguous",
        "at random against in order",
        "share at random",
    )
    seen = view(record)
    if seen is None:
        return rows_or_nothing(columns, [])
    record, peer = seen
    ordered = {t.page_size: t for t in sweep_of(record, peer, "in_order")}
    rows = []
    for timing in sweep_of(record, peer):
        base, between = record.baseline(timing), ordered.get(timing.page_size)
        row: dict[str, object] = {"page size": timing.page_size}
        row["share at random"] = share(record, timing)
        if base is not None:
            row["contiguous share"] = share(record, base)
        if base is not None and between is not None:
            row["in order against contiguous"] = quartiles(ratios(between, base))[1]
        if between is not None:
            row["at random against in order"] = quartiles(ratios(timing, between))[1]
        rows.append(row)
    return rows_or_nothing(columns, rows)
