"""The accounting against the plain way: many page sizes, memory, the envelope of a trace."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from records import Record, record, timed

import kvledger as kv
from kvledger.accounting.metadata import Interval
from kvledger.core.lengths import as_length_array
from kvledger.traces import load_lengths

Lengths = npt.NDArray[np.int64]

TEN_PAGE_SIZES = [2**k for k in range(10)]
TRACES = ("mooncake_conversation", "azure_conv_2023")


def samples(requests: int) -> dict[str, Lengths]:
    """Draw lengths evenly from 1 to 8192, and lognormal ones as requests have them."""
    rng = np.random.default_rng(0)
    lognormal = rng.lognormal(6.0, 1.0, requests)
    return {
        "uniform": rng.integers(1, 8193, requests),
        "lognormal": np.clip(lognormal, 1, 131072).astype(np.int64),
    }


def plain_page_counts(lengths: Lengths, page_sizes: Sequence[int]) -> dict[int, int]:
    """Count pages the plain NumPy way: one ceiling-divide and sum per page size."""
    return {p: int(((lengths + p - 1) // p).sum()) for p in page_sizes}


def plain_envelope(lengths: Lengths, page_sizes: Sequence[int]) -> list[Interval]:
    """Walk from c = 0 to the nearest cost at which another line is lower, again and again."""
    counts = plain_page_counts(lengths, page_sizes)
    slots = {p: p * pages for p, pages in counts.items()}
    here = min(page_sizes, key=lambda p: (slots[p], -p))
    start = Fraction(0)
    intervals: list[Interval] = []
    while True:
        fewer = [p for p in page_sizes if counts[p] < counts[here]]
        if not fewer:
            return [*intervals, Interval(here, start, math.inf)]
        meets = {p: Fraction(slots[p] - slots[here], counts[here] - counts[p]) for p in fewer}
        end = min(meets.values())
        intervals.append(Interval(here, start, end))
        here, start = max(p for p in fewer if meets[p] == end), end


def ten_page_sizes(*, quick: bool) -> list[Record]:
    """Time ten page sizes over many lengths; both ways must agree to the last slot."""
    requests, repetitions = (1_000_000, 3) if quick else (20_000_000, 15)
    results = []
    for kind, lengths in samples(requests).items():
        ratios = []
        for _ in range(repetitions):
            plain_s, plain = timed(plain_page_counts, lengths, TEN_PAGE_SIZES)
            ours_s, ours = timed(kv.page_counts, lengths, TEN_PAGE_SIZES)
            if ours != plain:
                raise AssertionError(f"{kind}: plain {plain}, ours {ours}")
            ratios.append(plain_s / ours_s)
        results.append(
            record(
                f"page_sizes.{kind}",
                what=f"speed of ten page sizes over {requests:,} lengths, {kind}",
                baseline="NumPy, one ceiling-divide and sum per page size",
                quantity="ratio",
                values=ratios,
                bar=">= 10",
            )
        )
    return results


def traced_peak(lengths: Lengths, page_sizes: Sequence[int]) -> int:
    """Return the bytes that one pass holds at most, beside its input."""
    tracemalloc.start()
    kv.page_counts(lengths, page_sizes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def memory(*, quick: bool) -> list[Record]:
    """Compare the peak memory of many page sizes with that of one."""
    requests, repetitions = (1_000_000, 3) if quick else (20_000_000, 5)
    lengths = samples(requests)["lognormal"]
    ratios: dict[int, list[float]] = {10: [], 100: []}
    for _ in range(repetitions):
        one = traced_peak(lengths, [16])
        for sizes, values in ratios.items():
            values.append(traced_peak(lengths, range(1, sizes + 1)) / one)
    return [
        record(
            f"memory.{sizes}_page_sizes",
            what=f"peak memory of {sizes} page sizes over {requests:,} lengths, lognormal",
            baseline="peak memory of one page size, the same way",
            quantity="ratio",
            values=values,
            bar="<= 1.1",
        )
        for sizes, values in ratios.items()
    ]


def trace_envelopes(*, quick: bool) -> list[Record]:
    """Time the envelope over every page size on real traces, and against a plain walk."""
    page_sizes = range(1, 513 if quick else 4097)
    results = []
    for name in TRACES:
        table = load_lengths(name).total
        lengths = as_length_array(table)
        seconds, ratios = [], []
        for repetition in range(3 if quick else 7):
            ours_s, ours = timed(kv.envelope, table, page_sizes)
            seconds.append(ours_s)
            if repetition < 3:  # the plain walk takes its time
                plain_s, plain = timed(plain_envelope, lengths, page_sizes)
                if ours != plain:
                    raise AssertionError(f"{name}: the two envelopes differ")
                ratios.append(plain_s / ours_s)
        what = f"envelope over every page size from 1 to {page_sizes[-1]}, {name}"
        results += [
            record(
                f"envelope.{name}",
                what=what,
                baseline="none: the time itself",
                quantity="seconds",
                values=seconds,
                bar="< 1",
            ),
            record(
                f"envelope.{name}.speed",
                what=f"speed of the {what}",
                baseline="one NumPy divide per page size, then the nearest crossing of every line",
                quantity="ratio",
                values=ratios,
                bar=">= 10",
            ),
        ]
    return results
