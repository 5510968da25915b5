"""A cost per page: which page size is best, for which cost, exactly.

With c token-slot equivalents charged for each page, a page size costs ``allocated + c x pages``
slots. That is a straight line in c. So the best page size for every c at once is the lower
envelope of the lines, and its corners, the break-even costs, are exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from kvledger.accounting.allocations import page_counts
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import LengthsLike, as_lengths, whole_page_size, whole_page_sizes
from kvledger.models.known import load_model
from kvledger.models.shapes import Model

DEFAULT_PAGE_SIZES: tuple[int, ...] = tuple(2**k for k in range(13))
"""Powers of two from 1 to 4096: what is tested where no page sizes are given."""

CostLike = int | float | Decimal | Fraction
_COST = "a cost per page is a finite number of token-slot equivalents, at least 0"


class Best(NamedTuple):
    """The best page size among those tested, and its cost in token-slot equivalents."""

    page_size: int
    cost: Fraction


class Interval(NamedTuple):
    """A page size and the costs per page, ``c_from <= c < c_to``, for which it is the best.

    ``c_to`` of the last interval is ``math.inf``.
    """

    page_size: int
    c_from: Fraction
    c_to: Fraction | float


class ClosedFormGap(NamedTuple):
    """The closed form beside the exact answer, for one c.

    ``closed_form`` is not rounded; ``nearest`` is the tested page size with the least ratio to
    it; ``excess_cost`` is what ``nearest`` costs above the best, as a share of the best cost.
    """

    c: Fraction
    closed_form: float
    nearest: int
    best: int
    excess_cost: Fraction


def cost(lengths: LengthsLike, page_size: int, c: CostLike) -> Fraction:
    """Return what a page size costs: allocated slots + c x pages, in token-slot equivalents.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens a request.
    page_size : int
        Slots a page.
    c : int, float, Decimal or Fraction
        Cost of a page in token-slot equivalents. A float means the decimal it prints as.

    Raises
    ------
    LedgerError
        For a bad length, page size or cost.

    Examples
    --------
    >>> cost([5, 9, 17], page_size=2, c=0.25)
    Fraction(153, 4)
    """
    (price,) = _costs(lengths, exact_cost(c), [page_size]).values()
    return price


def best_page_size(
    lengths: LengthsLike, c: CostLike, page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES
) -> Best:
    """Return the page size with the least cost among those tested.

    Of page sizes that cost the same, the larger is returned: it has fewer pages.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens a request.
    c : int, float, Decimal or Fraction
        Cost of a page in token-slot equivalents.
    page_sizes : iterable of int
        Page sizes to test; the powers of two from 1 to 4096 if not given.

    Examples
    --------
    >>> best_page_size([5, 9, 17], c=1, page_sizes=[1, 2, 4, 8, 16])
    Best(page_size=4, cost=Fraction(50, 1))
    """
    costs = _costs(lengths, exact_cost(c), page_sizes)
    size = min(costs, key=lambda p: (costs[p], -p))
    return Best(size, costs[size])


def _costs(lengths: LengthsLike, c: Fraction, page_sizes: Iterable[int]) -> dict[int, Fraction]:
    return {p: pages * (p + c) for p, pages in page_counts(lengths, page_sizes).items()}


def envelope(
    lengths: LengthsLike, page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES
) -> list[Interval]:
    """Return which page size is best for which cost per page, with exact break-even costs.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens a request.
    page_sizes : iterable of int
        Page sizes to test.

    Returns
    -------
    list of Interval
        From c = 0 upwards without a gap. A page size that is best for no c is not in it.

    Notes
    -----
    As c grows, the best line never gets steeper: it has fewer pages. The lines are taken from
    most pages to fewest; a line that meets the new one before it becomes best itself is dropped.
    All comparisons are of integers, so a break-even cost is exact.

    Examples
    --------
    >>> for interval in envelope([5, 9, 17], page_sizes=[1, 2, 4, 8, 16]):
    ...     print(interval.page_size, interval.c_from, interval.c_to)
    1 0 3/14
    2 3/14 6/7
    4 6/7 2
    8 2 8
    16 8 inf
    """
    kept: list[tuple[int, int, int, Fraction]] = []  # page size, slots, pages, best from c
    lines = [(p, p * pages, pages) for p, pages in page_counts(lengths, page_sizes).items()]
    for size, slots, pages in sorted(lines, key=lambda line: (-line[2], line[1])):
        if kept and kept[-1][2] == pages:
            continue  # the same number of larger pages: never better
        start = Fraction(0)
        while kept:
            start = Fraction(slots - kept[-1][1], kept[-1][2] - pages)
            if start > kept[-1][3]:
                break
            kept.pop()  # the new line is better from where this one would begin, or earlier
        kept.append((size, slots, pages, start if kept else Fraction(0)))
    ends: Sequence[Fraction | float] = [*(line[3] for line in kept[1:]), math.inf]
    return [Interval(size, start, end) for (size, _, _, start), end in zip(kept, ends, strict=True)]


def closed_form_page_size(mean_tokens: Fraction | float, c: CostLike) -> float:
    """Return sqrt(c (2 L - 1)): the best page size if remainders are uniform.

    Then a request of mean length L has L + (p - 1) / 2 slots in pages of p, and 1/p as many
    pages; the sum of slots and c x pages is least at this p.

    Parameters
    ----------
    mean_tokens : Fraction or float
        Mean length L, in tokens, at least 1.
    c : int, float, Decimal or Fraction
        Cost of a page in token-slot equivalents.

    Examples
    --------
    >>> round(closed_form_page_size(499, c=1), 2)
    31.58
    """
    try:
        return math.sqrt(exact_cost(c) * (2 * _mean(mean_tokens) - 1))
    except OverflowError:
        beyond = "its closed form is beyond what a float holds"
        raise LedgerError(f"c is {shown(c)}; {beyond}") from None


def closed_form_gap(
    lengths: LengthsLike, c: CostLike, page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES
) -> ClosedFormGap:
    """Compare the closed form with the exact best page size.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens per request.
    c : int, float, Decimal or Fraction
        Cost of a page in token-slot equivalents.
    page_sizes : iterable of int
        The page sizes tested, in slots.

    Examples
    --------
    >>> gap = closed_form_gap([5, 9, 17], c=1, page_sizes=[1, 2, 4, 8, 16])
    >>> round(gap.closed_form, 2), gap.nearest, gap.best, gap.excess_cost
    (4.43, 4, 4, Fraction(0, 1))
    """
    c = exact_cost(c)
    table = as_lengths(lengths)
    costs = _costs(table, c, page_sizes)
    best = best_page_size(table, c, costs)
    closed = closed_form_page_size(table.mean_tokens, c)
    nearest = min(costs, key=lambda p: abs(math.log(p / max(closed, 1.0))))
    return ClosedFormGap(c, closed, nearest, best.page_size, costs[nearest] / best.cost - 1)


def near_best(
    lengths: LengthsLike,
    c: CostLike,
    page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES,
    *,
    tolerance: CostLike = Fraction(1, 100),
) -> list[int]:
    """Return the tested page sizes whose cost is within a share of the least cost.

    The more there are, the flatter the optimum and the less the exact answer matters.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens a request.
    c : int, float, Decimal or Fraction
        Cost of a page in token-slot equivalents.
    page_sizes : iterable of int
        Page sizes to test.
    tolerance : int, float, Decimal or Fraction
        Accepted excess over the least cost, as a share of it.

    Examples
    --------
    >>> near_best([5, 9, 17], c=1, page_sizes=[1, 2, 4, 8, 16], tolerance=0.1)
    [2, 4, 8]
    """
    accepted_excess = exact_cost(tolerance, "tolerance", "a share of at least 0")
    costs = _costs(lengths, exact_cost(c), page_sizes)
    limit = min(costs.values()) * (1 + accepted_excess)
    return [p for p, each in costs.items() if each <= limit]


def c_for_page_size(
    lengths: LengthsLike, page_size: int, page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES
) -> Interval | None:
    """Return the costs per page for which a page size is the best of those tested.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens per request.
    page_size : int
        Slots per page.
    page_sizes : iterable of int
        The page sizes tested, in slots.

    Returns
    -------
    Interval or None
        None if it is best for no cost. ``page_size`` itself is always among those tested.

    Examples
    --------
    >>> c_for_page_size([5, 9, 17], 4, page_sizes=[1, 2, 8, 16])
    Interval(page_size=4, c_from=Fraction(6, 7), c_to=Fraction(2, 1))
    """
    size = whole_page_size(page_size)
    intervals = envelope(lengths, [*whole_page_sizes(page_sizes), size])
    return next((each for each in intervals if each.page_size == size), None)


def closed_form_c(mean_tokens: Fraction | float, page_size: int) -> Fraction:
    """Return p^2 / (2 L - 1): the c at which the closed form gives page size p."""
    return whole_page_size(page_size) ** 2 / (2 * _mean(mean_tokens) - 1)


def _mean(mean_tokens: CostLike) -> Fraction:
    accepted = "a mean length is at least 1 token"
    mean = exact_cost(mean_tokens, "mean_tokens", accepted)
    if mean < 1:
        raise LedgerError(f"mean_tokens is {mean_tokens}; {accepted}")
    return mean


def slots_from_bytes(n_bytes: CostLike, model: str | Model) -> Fraction:
    """Convert bytes to token-slot equivalents through a model's KV bytes per token.

    Parameters
    ----------
    n_bytes : int, float, Decimal or Fraction
        Bytes, such as those of a page-table entry.
    model : str or Model
        Name in ``data/models.csv``, or a :class:`~kvledger.Model`.

    Examples
    --------
    >>> slots_from_bytes(4, "Llama-3.1-8B")
    Fraction(1, 32768)
    """
    accepted = "a finite number of bytes, at least 0, is accepted"
    return exact_cost(n_bytes, "n_bytes", accepted) / load_model(model).kv_bytes_per_token


def bytes_from_slots(slots: CostLike, model: str | Model) -> Fraction:
    """Convert token-slot equivalents to bytes through a model's KV bytes per token.

    Examples
    --------
    >>> bytes_from_slots(Fraction(1, 32768), "Llama-3.1-8B")
    Fraction(4, 1)
    """
    accepted = "a finite number of token-slot equivalents, at least 0, is accepted"
    return exact_cost(slots, "slots", accepted) * load_model(model).kv_bytes_per_token


def exact_cost(c: CostLike, name: str = "c", accepted: str = _COST) -> Fraction:
    """Return a finite cost of at least 0 as an exact fraction, a float as the decimal it prints as.

    ``name`` is what an error calls it, and ``accepted`` what it says is accepted.
    """
    if isinstance(c, np.generic):
        c = c.item()
    if isinstance(c, bool) or not isinstance(c, int | float | Decimal | Fraction):
        raise LedgerError(f"{name} is {shown(c)}; {accepted}")
    try:
        exact = Fraction(repr(c)) if isinstance(c, float) else Fraction(c)
    except (ValueError, OverflowError):  # NaN or an infinity
        exact = Fraction(-1)
    if exact < 0:
        raise LedgerError(f"{name} is {shown(c)}; {accepted}")
    return exact
