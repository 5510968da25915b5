"""The cost of pages: exact optimum, exact break-even costs, closed form."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.accounting.metadata import DEFAULT_PAGE_SIZES, Interval, closed_form_c, exact_cost

ARTICLE = [5, 9, 17]
POWERS = [1, 2, 4, 8, 16]

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=20)
SIZES = st.lists(st.integers(1, 64), min_size=1, max_size=10)
COST = st.fractions(0, 600, max_denominator=1000)


def naive_cost(lengths: list[int], page_size: int, c: Fraction) -> Fraction:
    pages = sum(-(-n // page_size) for n in lengths)
    return pages * page_size + c * pages


def naive_best(lengths: list[int], sizes: list[int], c: Fraction) -> tuple[int, Fraction]:
    """Try every page size; of equal ones the largest."""
    costs = {p: naive_cost(lengths, p, c) for p in sizes}
    least = min(costs.values())
    return max(p for p in sizes if costs[p] == least), least


@given(LENGTHS, SIZES, COST, st.fractions(0, 1, max_denominator=100))
def test_the_best_and_the_near_best_page_sizes(
    lengths: list[int], sizes: list[int], c: Fraction, tolerance: Fraction
) -> None:
    best = kv.best_page_size(lengths, c, sizes)
    assert tuple(best) == naive_best(lengths, sizes, c)
    assert kv.best_page_size(Counter(lengths), c, iter(sizes)) == best
    costs = {p: naive_cost(lengths, p, c) for p in sizes}
    assert {p: kv.cost(lengths, p, c) for p in sizes} == costs
    near = kv.near_best(lengths, c, sizes, tolerance=tolerance)
    assert near == sorted(p for p in costs if costs[p] <= best.cost * (1 + tolerance))
    gap = kv.closed_form_gap(lengths, c, iter(sizes))
    assert (gap.c, gap.best) == (c, best.page_size)
    mean = Fraction(sum(lengths), len(lengths))
    assert gap.closed_form == pytest.approx(math.sqrt(c * (2 * mean - 1)))
    assert gap.excess_cost == costs[gap.nearest] / best.cost - 1 >= 0

    def distance(p: int) -> float:
        ratio = p / max(gap.closed_form, 1)
        return max(ratio, 1 / ratio)

    assert distance(gap.nearest) == pytest.approx(min(map(distance, sizes)))


def lookup(intervals: list[Interval], c: Fraction) -> int:
    inside = [each.page_size for each in intervals if each.c_from <= c < each.c_to]
    assert len(inside) == 1
    return inside[0]


@given(LENGTHS, SIZES, st.lists(COST, max_size=5), st.integers(1, 64))
def test_the_envelope(
    lengths: list[int], sizes: list[int], costs: list[Fraction], page_size: int
) -> None:
    """The best page size at every cost, at break-even costs themselves too and just beside them."""
    intervals = kv.envelope(lengths, sizes)
    corners = [each.c_from for each in intervals]
    assert all(isinstance(c, Fraction) for c in corners)
    eps = Fraction(1, 10**9)
    near = [c + d for c in corners for d in (-eps, 0, eps) if c + d >= 0]
    for c in [*costs, *near, Fraction(10**9)]:
        best, _ = naive_best(lengths, sizes, c)
        assert lookup(intervals, c) == best == kv.best_page_size(lengths, c, sizes).page_size
    assert (corners[0], intervals[-1].c_to) == (0, math.inf)
    for one, two in itertools.pairwise(intervals):
        assert one.c_from < one.c_to == two.c_from
        assert one.page_size < two.page_size
        # At a break-even cost both cost the same, exactly.
        both = [naive_cost(lengths, each.page_size, two.c_from) for each in (one, two)]
        assert both[0] == both[1]
    # What a page size needs is its interval among the others.
    found = kv.c_for_page_size(lengths, page_size, sizes)
    tested = kv.envelope(lengths, [*sizes, page_size])
    assert found == next((each for each in tested if each.page_size == page_size), None)


def test_the_articles_break_even_costs() -> None:
    assert kv.envelope(ARTICLE, POWERS) == [
        (1, 0, Fraction(3, 14)),
        (2, Fraction(3, 14), Fraction(6, 7)),
        (4, Fraction(6, 7), 2),
        (8, 2, 8),
        (16, 8, math.inf),
    ]
    for c, (size, cost) in {0: (1, 31), 0.25: (2, 38.25), 1: (4, 50), 4: (8, 72)}.items():
        assert kv.best_page_size(ARTICLE, c, POWERS) == (size, Fraction(cost))
        assert lookup(kv.envelope(ARTICLE, POWERS), Fraction(c)) == size
    # At a mean of 499 tokens: 0.257 slots, about 34 kB on Llama-3.1-8B; an entry has 4 bytes.
    c = closed_form_c(499, 16)
    assert c == Fraction(256, 997)
    n_bytes = kv.bytes_from_slots(c, "Llama-3.1-8B")
    assert n_bytes == Fraction(256 * 131072, 997)
    assert round(n_bytes / 1000) == 34
    assert kv.slots_from_bytes(4, "Llama-3.1-8B") == Fraction(1, 32768)
    assert round(kv.closed_form_page_size(499, kv.slots_from_bytes(4, "Llama-3.1-8B")), 2) == 0.17


def test_lines_that_meet_in_one_point_leave_no_empty_interval() -> None:
    # One request of 12: pages of 1, 2, 3 hold 12 slots in 12, 6, 4 pages: 3 is best from c = 0.
    only_three: list[Any] = [(3, 0, math.inf)]
    assert kv.envelope([12], [1, 2, 3]) == only_three
    # Lengths 6 and 12: page sizes 6 and 4 (18 slots in 3 pages; 20 in 5): 4 is never best.
    only_six: list[Any] = [(6, 0, math.inf)]
    assert kv.envelope([6, 12], [4, 6]) == only_six
    assert kv.c_for_page_size([4, 8], 3, [1, 2, 4, 8]) is None
    assert kv.c_for_page_size(ARTICLE, 4, POWERS) == (4, Fraction(6, 7), 2)
    assert list(DEFAULT_PAGE_SIZES) == [2**k for k in range(13)]
    assert kv.best_page_size(ARTICLE, 4) == kv.best_page_size(ARTICLE, 4, DEFAULT_PAGE_SIZES)
    assert kv.envelope(ARTICLE)[-1].page_size == 32
    shape = kv.Model("mine", full_layers=2, kv_heads=1, head_dim=64)
    assert kv.slots_from_bytes(512, shape) == 1


@given(st.fractions(1, 10_000, max_denominator=50), st.fractions(Fraction(1, 100), 5000))
def test_the_closed_form_is_where_the_smooth_cost_is_least(mean: Fraction, c: Fraction) -> None:
    """With uniform remainders a request costs (L + (p - 1) / 2) (1 + c / p) slots."""
    best = kv.closed_form_page_size(mean, c)

    def smooth(p: float) -> float:
        return (float(mean) + (p - 1) / 2) * (1 + float(c) / p)

    assert smooth(best) <= smooth(best * 1.01) + 1e-9 * smooth(best)
    assert smooth(best) <= smooth(best * 0.99) + 1e-9 * smooth(best)
    # The derivative 1/2 - c (L - 1/2) / p^2 is zero there.
    assert float(c) * (float(mean) - 0.5) / best**2 == pytest.approx(0.5)


@given(st.fractions(1, 10_000, max_denominator=50), st.integers(1, 4096))
def test_the_cost_from_the_closed_form_is_its_inverse(mean: Fraction, page_size: int) -> None:
    c = closed_form_c(mean, page_size)
    assert c == Fraction(page_size**2) / (2 * mean - 1)
    assert kv.closed_form_page_size(mean, c) == pytest.approx(page_size)


@given(st.sampled_from(sorted(kv.load_models())), st.fractions(0, 10**9, max_denominator=10**6))
def test_bytes_and_slots_convert_back(model: str, amount: Fraction) -> None:
    assert kv.bytes_from_slots(kv.slots_from_bytes(amount, model), model) == amount
    assert kv.slots_from_bytes(kv.kv_bytes_per_token(model), model) == 1


@pytest.mark.parametrize(
    ("c", "exact"),
    [
        (0.1, Fraction(1, 10)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Fraction(3, 14), Fraction(3, 14)),
        (2, Fraction(2)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int32(2), Fraction(2)),
        (1e-9, Fraction(1, 10**9)),
        (-0.0, Fraction(0)),
    ],
)
def test_a_cost_means_the_decimal_that_it_prints_as(c: object, exact: Fraction) -> None:
    assert exact_cost(c) == exact
