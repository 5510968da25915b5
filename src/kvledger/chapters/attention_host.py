"""What pages cost on the host, by page size, as a record has it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from kvledger.chapters.attention_report import NOTHING, quartiles, rows_or_nothing, shown
from kvledger.measure.record import Record

HOST: Mapping[str, tuple[str, bool]] = {
    "build_page_table": ("page table made anew", True),
    "extend_page_table": ("pages into a kept table", True),
    "allocate_pages": ("pages into lists", True),
    "hash_pages": ("hashing, pickled", False),
    "hash_pages_packed": ("hashing, packed", False),
}
"""What figures call each piece of host work, and whether it is done each step (or each token)."""


def work(record: Record | None) -> pd.DataFrame:
    """Lay out what the host does, by page size: each decode step, or once for each prompt token.

    Columns: what, each ("step" or "prompt token"), page_size, us with us_low and us_high (median
    and quartiles, microseconds of one such), requests, tokens (held, in a step).
    """
    columns = ("what", "each", "page_size", "us", "us_low", "us_high", "requests", "tokens")
    if record is None or not record.host:
        return rows_or_nothing(columns, [])
    # Work that follows growth was timed over several steps, of a token for each request.
    held = max((w.tokens for w in record.host if w.what == "build_page_table"), default=None)
    rows = []
    for job in record.host:
        words, stepwise = HOST.get(job.what, (job.what.replace("_", " "), False))
        grown = job.what in ("extend_page_table", "allocate_pages")
        steps = job.tokens / job.requests if grown else 1.0
        count = steps if stepwise else float(job.tokens)
        low, us, high = quartiles([1e6 * seconds / count for seconds in job.seconds])
        row: dict[str, object] = {"what": words, "each": "step" if stepwise else "prompt token"}
        row |= {"page_size": job.page_size, "us": us, "us_low": low, "us_high": high}
        row |= {"requests": job.requests, "tokens": held if stepwise else job.tokens}
        rows.append(row)
    return rows_or_nothing(columns, rows)


def microseconds(record: Record | None, what: str, page_size: int) -> str:
    """Write the microseconds of one piece of host work at one page size."""
    frame = work(record)
    found = frame[(frame["what"] == HOST[what][0]) & (frame["page_size"] == page_size)]
    return NOTHING if found.empty else shown(float(found["us"].iloc[0]), ",.3g")


def requests(record: Record | None) -> str:
    """Say how many requests and tokens a step of the host's work is for."""
    frame = work(record)
    stepwise = frame[frame["each"] == "step"]
    if stepwise.empty:
        return NOTHING
    first = stepwise.iloc[0]
    return f"{first['requests']:,} requests that hold {first['tokens']:,} tokens"
