"""What becomes of a trace as it is read: arrays with a number a request, or length tables."""

from __future__ import annotations

from array import array
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthTable
from kvledger.traces.forms import Reading, Skipped, nanosecond_rounded
from kvledger.traces.length_counter import LengthCounter


class Gathered(NamedTuple):
    """A whole trace: tokens, seconds from the first arrival, block ids, and what is not in it."""

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    arrival_s: NDArray[np.float64] | None
    page_ids: tuple[tuple[int, ...], ...] | None
    page_ids_size: int | None
    skipped: Skipped


class Tables(NamedTuple):
    """How long the requests of a trace are, and what is not among them."""

    prompt: LengthTable
    total: LengthTable
    skipped: Skipped


def gather(label: str, reading: Reading) -> Gathered:
    """Read all requests: 16 bytes each, and 8 more where the trace has times."""
    prompt, output, times = array("q"), array("q"), array("d")
    pages: list[tuple[int, ...]] = []
    has_times = has_pages = True
    with closing(reading.rows) as stream:
        for rows in stream:
            prompt.frombytes(rows.prompt.tobytes())
            output.frombytes(rows.output.tobytes())
            if rows.arrival_s is None or not has_times:
                has_times, times = False, array("d")
            else:
                times.frombytes(rows.arrival_s.tobytes())
            if rows.page_ids is None:
                has_pages = False
            else:
                pages += rows.page_ids
    if not prompt:
        raise no_requests(label, reading)
    prompts, outputs = np.frombuffer(prompt, np.int64), np.frombuffer(output, np.int64)
    arrival_s = np.frombuffer(times, np.float64) if has_times else None
    if arrival_s is not None and reading.by_time and bool((arrival_s[1:] < arrival_s[:-1]).any()):
        order = np.argsort(arrival_s, kind="stable")
        prompts, outputs = prompts[order], outputs[order]
        arrival_s = nanosecond_rounded(arrival_s[order] - arrival_s[order[0]])
    return Gathered(
        prompts,
        outputs,
        arrival_s,
        tuple(pages) if has_pages else None,
        reading.page_ids_size if has_pages else None,
        reading.tally.skipped(),
    )


def count_lengths(label: str, reading: Reading) -> Tables:
    """Read all requests, and keep of them how many have which length."""
    prompt, total = LengthCounter(), LengthCounter()
    is_empty = True
    with closing(reading.rows) as stream:
        for rows in stream:
            prompt.add(rows.prompt)
            total.add(rows.prompt + rows.output)
            is_empty = is_empty and not len(rows.prompt)
    if is_empty:
        raise no_requests(label, reading)
    return Tables(prompt.table(), total.table(), reading.tally.skipped())


def no_requests(label: str, reading: Reading) -> LedgerError:
    """Return the error of a source without a request that can be used."""
    skipped = reading.tally.skipped()
    if not skipped:
        return LedgerError(f"{label}: {reading.nothing}")
    if skipped.failed == skipped.rows:
        problem = (
            f"no request that succeeded: {skipped.failed:,} of {skipped.rows:,} failed "
            f"({', '.join(skipped)})"
        )
    else:
        problem = f"no request that can be used: {skipped}"
    return LedgerError(f"{label}: {problem}; accepted: at least one")
