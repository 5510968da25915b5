"""What a page costs in time: the line seconds = a + b x pages, and b in token slots.

A sweep over page sizes moves the same bytes in different numbers of pages. If each page costs the
same, its times lie on a line; b is the cost of a page, and c = b x tokens / a that cost in the time
of tokens: seconds are proportional to tokens + c x pages, as :mod:`kvledger.accounting.metadata`
charges a page. Whether the times do lie on a line is part of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import LedgerError

if TYPE_CHECKING:
    from kvledger.measure.record import Record

#: Two points always lie on a line.
MIN_PAGE_SIZES = 3
#: Fewer say next to nothing about their own spread.
MIN_REPETITIONS = 5
#: Share of repeated runs whose interval is meant to hold the true value.
LEVEL = 0.95
RESAMPLES = 2000

Floats = npt.NDArray[np.float64]
Layout = Literal["random", "in_order"]


@dataclass(frozen=True, slots=True)
class PageCost:
    """A line through the times of one page-size sweep, and what it says a page costs.

    ``a_s`` is the time without pages, ``b_s_per_page`` the time of a page, ``c_slots`` the same in
    token slots; ``low`` and ``high`` bound their intervals. ``residual_share`` is the greatest
    distance of a median from the line, as a share of it, ``residual_pages`` where it is, and
    ``spread_share`` how far the quartiles are apart there, as a share of the median.
    """

    case: str
    peer: str
    layout: str
    tokens: int
    repetitions: int
    a_s: float
    b_s_per_page: float
    b_low: float
    b_high: float
    c_slots: float
    c_low: float
    c_high: float
    residual_share: float
    residual_pages: int
    spread_share: float
    straight: bool

    def seconds(self, pages: float) -> float:
        """Return what the line says for a number of pages."""
        return self.a_s + self.b_s_per_page * pages

    @property
    def costs_nothing(self) -> bool:
        """Whether the interval reaches down to no cost at all."""
        return self.c_low <= 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a page more costs between two neighbouring page sizes; on a line, always the same."""

    smaller: int
    larger: int
    pages_more: int
    c_slots: float
    c_low: float
    c_high: float


def fit_pages(
    pages: Sequence[int],
    seconds: Sequence[Sequence[float]],
    *,
    tokens: int,
    case: str = "",
    peer: str = "",
    layout: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PageCost:
    """Fit seconds = a + b x pages to one sweep, with intervals for b and c.

    Parameters
    ----------
    pages : sequence of int
        Pages in use at each page size; at least three numbers, all different.
    seconds : sequence of sequences of float, shape (page sizes, repetitions)
        Times; the r-th of each row was taken in the same round. At least five.
    tokens : int
        Tokens read, the same at every page size.
    case, peer, layout : str
        What was timed; the error message names them.
    resamples, seed : int
        Of the bootstrap: the same seed gives the same interval.

    Raises
    ------
    LedgerError
        For what cannot be fitted, or a line that is not positive without pages.

    Notes
    -----
    Least squares on the medians over repetitions: a stall moves a mean and leaves a median where
    it is. Residuals are weighed as shares of the time, because that is how timings spread. The
    interval is the percentile bootstrap over rounds: all page sizes of a round are drawn together,
    as they were timed together, so that a slow round does not look like a cost of pages.

    Examples
    --------
    >>> pages, tokens = [4096, 1024, 256, 64], 4096
    >>> seconds = [[1e-3 + 1e-7 * n] * 5 for n in pages]
    >>> cost = fit_pages(pages, seconds, tokens=tokens)
    >>> round(cost.b_s_per_page * 1e9, 6), round(cost.c_slots, 6), cost.straight
    (100.0, 0.4096, True)
    """
    name = _name(case, peer, layout)
    counts, times = _checked(pages, seconds, tokens, name)
    medians, drawn = np.median(times, axis=1), _resampled(times, resamples, seed)
    a, b = map(float, _lines(counts, medians))
    if not a > 0:
        raise LedgerError(
            f"{name}: the line through the times is {a:.3g} s without pages; accepted: times that "
            "leave something above zero when the pages are taken away"
        )
    many_a, many_b = _lines(counts, drawn)
    c_all = np.divide(many_b * tokens, many_a, out=np.full_like(many_b, np.inf), where=many_a > 0)
    (b_low, b_high), (c_low, c_high) = _interval(many_b), _interval(c_all)
    fitted = a + b * counts
    away = np.abs(medians - fitted) / fitted
    lower, upper = np.quantile(times, [0.25, 0.75], axis=1)
    spread = (upper - lower) / medians
    worst = int(np.argmax(away))
    return PageCost(
        case=case,
        peer=peer,
        layout=layout,
        tokens=tokens,
        repetitions=times.shape[1],
        a_s=a,
        b_s_per_page=b,
        b_low=b_low,
        b_high=b_high,
        c_slots=b * tokens / a,
        c_low=c_low,
        c_high=c_high,
        residual_share=float(away[worst]),
        residual_pages=int(counts[worst]),
        spread_share=float(spread[worst]),
        # A median is known better than its repetitions spread: the last bits of a float aside,
        # a distance beyond the spread is not noise.
        straight=bool(np.all(away <= np.maximum(spread, 1e-9))),
    )


def step_costs(
    page_sizes: Sequence[int],
    pages: Sequence[int],
    seconds: Sequence[Sequence[float]],
    *,
    tokens: int,
    case: str = "",
    peer: str = "",
    layout: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[StepCost]:
    """Compare each page size with the next larger one: what the pages between them cost.

    The time of a token is that at the largest page size, over the tokens. Parameters and errors
    are those of :func:`fit_pages`; two page sizes are enough.

    Examples
    --------
    >>> sizes = [1, 4, 16, 64]
    >>> pages, tokens = [4096 // p for p in sizes], 4096
    >>> seconds = [[1e-3 + 1e-7 * n] * 5 for n in pages]
    >>> [round(s.c_slots, 3) for s in step_costs(sizes, pages, seconds, tokens=tokens)]
    [0.407, 0.407, 0.407]
    """
    name = _name(case, peer, layout)
    counts, times = _checked(pages, seconds, tokens, name, at_least=2)
    if len(page_sizes) != len(counts):
        raise LedgerError(
            f"{name}: {len(page_sizes)} page sizes for {len(counts)} numbers of pages; "
            "accepted: one for each"
        )
    order = np.argsort(np.asarray(page_sizes))
    sizes, counts, times = np.asarray(page_sizes)[order].tolist(), counts[order], times[order]
    medians, drawn = np.median(times, axis=1), _resampled(times, resamples, seed)
    steps = []
    for i, more in enumerate(counts[:-1] - counts[1:]):
        scale = tokens / more
        low, high = _interval((drawn[:, i] - drawn[:, i + 1]) / drawn[:, -1] * scale)
        c = (medians[i] - medians[i + 1]) / medians[-1] * scale
        steps.append(StepCost(sizes[i], sizes[i + 1], int(more), float(c), low, high))
    return steps


def page_cost(record: Record, case: str, peer: str, layout: Layout = "random") -> PageCost:
    """Fit the page-size sweep of one case, peer and placement of a record."""
    (_, pages, seconds), tokens = sweep(record, case, peer, layout), _tokens(record, case)
    return fit_pages(pages, seconds, tokens=tokens, case=case, peer=peer, layout=layout)


def page_steps(record: Record, case: str, peer: str, layout: Layout = "random") -> list[StepCost]:
    """Compare neighbouring page sizes of one case, peer and placement of a record."""
    swept, tokens = sweep(record, case, peer, layout), _tokens(record, case)
    return step_costs(*swept, tokens=tokens, case=case, peer=peer, layout=layout)


def sweep(
    record: Record, case: str, peer: str, layout: str
) -> tuple[list[int], list[int], list[tuple[float, ...]]]:
    """Return page sizes, pages and seconds of one sweep of a record, smallest pages first."""
    found = sorted(
        (t.page_size, t.pages, tuple(t.seconds))
        for t in record.timings
        if (t.case, t.peer, t.layout) == (case, peer, layout)
    )
    if not found:
        there = sorted({_name(t.case, t.peer, t.layout) for t in record.timings})
        raise LedgerError(
            f"no timings of {_name(case, peer, layout)} in {record.label}; "
            f"there are: {'; '.join(there) or 'none'}"
        )
    sizes, pages, seconds = map(list, zip(*found, strict=True))
    return sizes, pages, seconds


def _tokens(record: Record, case: str) -> int:
    return next(each.tokens for each in record.cases if each.id == case)


def _name(case: str, peer: str, layout: str) -> str:
    return ", ".join(part for part in (case, peer, layout) if part) or "the sweep"


def _checked(
    pages: Sequence[int],
    seconds: Sequence[Sequence[float]],
    tokens: int,
    name: str,
    at_least: int = MIN_PAGE_SIZES,
) -> tuple[Floats, Floats]:
    """Return pages and seconds as arrays, or say what cannot be fitted."""
    counts = np.asarray(pages, dtype=np.float64)
    rounds = [len(row) for row in seconds]
    said, accepted = f"pages are {list(pages)}", ""
    if counts.ndim != 1 or len(set(counts.tolist())) != counts.size or counts.size < at_least:
        accepted = f"at least {at_least} numbers of pages, all different"
    elif not (np.isfinite(counts).all() and (counts > 0).all()):
        accepted = "whole numbers, at least 1"
    elif not tokens >= 1:
        said, accepted = f"{tokens} tokens", "at least 1"
    elif len(rounds) != counts.size or len(set(rounds)) != 1 or rounds[0] < MIN_REPETITIONS:
        said = f"{rounds} repetitions at {counts.size} page sizes"
        accepted = f"one row for each page size, all of one length, at least {MIN_REPETITIONS}"
    if accepted:
        raise LedgerError(f"{name}: {said}; accepted: {accepted}")
    times = np.asarray(seconds, dtype=np.float64)
    bad = ~(np.isfinite(times) & (times > 0))
    if bad.any():
        row, column = (int(x[0]) for x in np.nonzero(bad))
        raise LedgerError(
            f"{name}: repetition {column} at {int(counts[row])} pages took "
            f"{float(times[row, column])!r} s; accepted: a positive number of seconds"
        )
    return counts, times


def _lines(counts: Floats, medians: Floats) -> tuple[Floats, Floats]:
    """Weighted least squares along the last axis: a and b of each row of medians."""
    weights = 1.0 / medians**2
    total = weights.sum(axis=-1)
    at = (weights * counts).sum(axis=-1) / total
    centre = (weights * medians).sum(axis=-1) / total
    far = counts - at[..., None]
    rise = (weights * far * (medians - centre[..., None])).sum(axis=-1)
    slope = rise / (weights * far**2).sum(axis=-1)
    return centre - slope * at, slope


def _resampled(times: Floats, resamples: int, seed: int) -> Floats:
    """Medians over rounds drawn with replacement, shape (resamples, page sizes)."""
    if resamples < 100:
        raise LedgerError(f"resamples is {resamples}; accepted: at least 100")
    rounds = times.shape[1]
    drawn = np.random.default_rng(seed).integers(0, rounds, (resamples, rounds))
    return np.median(times[:, drawn], axis=2).T


def _interval(values: Floats) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    # Of the values themselves: an infinite c (a line that is zero without pages) stays one.
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)
