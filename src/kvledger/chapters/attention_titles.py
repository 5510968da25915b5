"""What the titles of the figures of measured attention say: the answer, and on what device.

Without a record, or where it has not what a title is about, the title says what would be shown.
"""

from __future__ import annotations

import pandas as pd

from kvledger.chapters import attention_costs, attention_host
from kvledger.chapters.attention_report import (
    NOTHING,
    SHOWN_SIZES,
    baseline_label,
    in_view,
    main_sweep,
    quartiles,
    ratios,
    sweep_of,
    titled,
    view,
)
from kvledger.measure.record import Record
from proofbook.formats import format_value

__all__ = ["bandwidth", "cost", "host", "latency", "page_table", "published"]


def page_table(frame: pd.DataFrame) -> str:
    """Say how many entries are read to find how many tokens.

    Examples
    --------
    >>> page_table(pd.DataFrame({"tokens": [4, 1, 4]}))
    'To read 9 tokens, a step reads 3 entries of the page table'
    """
    return (
        f"To read {frame['tokens'].sum()} tokens, a step reads {len(frame)} entries of the page "
        "table"
    )


def latency(record: Record | None) -> str:
    r"""Say how long the peer in view takes at the page sizes that sentences speak of.

    Examples
    --------
    >>> latency(None)
    'Time against contiguous memory\n(no device)'
    """
    seen = view(record)
    times = []
    for timing in () if seen is None else sweep_of(*seen):
        base = None if seen is None else seen.record.baseline(timing)
        if timing.page_size in SHOWN_SIZES and base is not None:
            middle = quartiles(ratios(timing, base))[1]
            times.append(f"{format_value(middle, '.2f')} (pages of {timing.page_size})")
    if not times:
        return titled("Time against contiguous memory", record)
    against = baseline_label(record)
    than = "without pages" if against == "itself" else f"{against} without pages"
    return titled(f"{in_view(record)} takes {' and '.join(times)} times as long as {than}", record)


def bandwidth(record: Record | None) -> str:
    r"""Say which share of the copy bandwidth the peer in view reaches in the usual pages.

    Examples
    --------
    >>> bandwidth(None)
    'Share of the copy bandwidth, pages at random\n(no device)'
    """
    size = SHOWN_SIZES[0]
    frame = main_sweep(record)
    seen = view(record)
    share = None
    if seen is not None:
        mine = frame[(frame["peer"] == seen.peer) & (frame["layout"] == "random")]
        share = mine.set_index("page_size")["share"].get(size)
    if share is None:
        return titled("Share of the copy bandwidth, pages at random", record)
    words = f"In pages of {size} at random, {in_view(record)} reaches"
    return titled(f"{words} {format_value(share, '.1%')} of the copy bandwidth", record)


def published(frame: pd.DataFrame) -> str:
    """Say how long attention through a page table takes at most, elsewhere and here.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.chapters.attention_others.beside` gives it.

    Examples
    --------
    >>> rows = {"kind": ["published", "measured"], "high": [4.61, 17.2], "middle": [None, 17.04]}
    >>> published(pd.DataFrame(rows))
    'Others report up to 4.61 times what they compare with; this record has up to 17.04 times'
    """
    kind = frame["kind"]
    theirs = format_value(frame.loc[kind == "published", "high"].max(), ".2f")
    words = f"Others report up to {theirs} times what they compare with"
    here = frame.loc[kind == "measured", "middle"]
    if here.empty:
        return f"{words}; nothing is measured here"
    return f"{words}; this record has up to {format_value(here.max(), '.2f')} times"


def cost(record: Record | None) -> str:
    r"""Say what a page costs, and whether the times are on a line.

    Examples
    --------
    >>> cost(None)
    'A cost for each page, if the times are on a line\n(no device)'
    """
    fitted = attention_costs.fitted(record)
    if fitted is None:
        return titled("A cost for each page, if the times are on a line", record)
    c = format_value(float(fitted.c_slots), ".3f")
    if fitted.straight:
        return titled(f"A page costs the time of {c} tokens: the times are on a line", record)
    words = f"Fitted, a page costs the time of {c} tokens, but the times are not on a line"
    return titled(words, record)


def host(record: Record | None) -> str:
    r"""Say how long the host makes a table anew, at the page sizes that sentences speak of.

    Examples
    --------
    >>> host(None)
    'Host work by page size\n(no device)'
    """
    found = {
        size: attention_host.microseconds(record, "build_page_table", size)
        for size in reversed(SHOWN_SIZES)
    }
    times = [
        f"{us} \N{MICRO SIGN}s in pages of {size}" for size, us in found.items() if us != NOTHING
    ]
    if not times:
        return titled("Host work by page size", record)
    return titled(f"Making the page table anew takes {', '.join(times)}", record)
