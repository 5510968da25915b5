"""The cost of a page: lines that are known, noise that is made, and times that lie on no line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from attention_records import GPU_PEERS, PAGE_SIZES, made_record
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.core.errors import LedgerError
from kvledger.measure.fit import PageCost, fit_pages, page_cost, page_steps, step_costs, sweep

TOKENS = 64 * 8192
PAGES = [TOKENS // p for p in PAGE_SIZES]


def repeated(values: Sequence[float], times: int = 7) -> list[list[float]]:
    return [[value] * times for value in values]


def noisy(
    rng: np.random.Generator, c: float, *, repetitions: int = 11, a: float = 1e-3
) -> list[list[float]]:
    """Times of a sweep whose rounds are slower or faster as a whole, with stalls here and there."""
    shape = (len(PAGES), repetitions)
    exact = a * (1 + c * np.array(PAGES) / TOKENS)
    seconds = exact[:, None] * np.exp(0.02 * rng.standard_normal((1, repetitions)))
    seconds = seconds * np.exp(0.005 * rng.standard_normal(shape))
    return np.where(rng.random(shape) < 0.03, 2 * seconds, seconds).tolist()


@given(
    a=st.floats(1e-6, 1.0),
    share=st.floats(0.0, 3.0),
    tokens=st.integers(2**8, 2**22),
    sizes=st.sets(st.sampled_from(PAGE_SIZES), min_size=3),
)
def test_an_exact_line_is_found(a: float, share: float, tokens: int, sizes: set[int]) -> None:
    pages = sorted({-(-tokens // size) for size in sizes})
    if len(pages) < 3:
        return
    b = share * a / tokens
    cost = fit_pages(pages, repeated([a + b * n for n in pages]), tokens=tokens, resamples=100)
    assert math.isclose(cost.a_s, a, rel_tol=1e-9)
    assert math.isclose(cost.c_slots, share, rel_tol=1e-7, abs_tol=1e-7)
    assert math.isclose(cost.b_s_per_page * tokens, share * a, rel_tol=1e-7, abs_tol=1e-7 * a)
    assert cost.straight
    assert cost.residual_share < 1e-9
    assert math.isclose(cost.c_low, cost.c_high, rel_tol=1e-7, abs_tol=1e-7)
    # What c is for: seconds are proportional to tokens + c x pages.
    for n in pages:
        assert math.isclose(cost.seconds(n), a / tokens * (tokens + cost.c_slots * n), rel_tol=1e-7)


def test_the_line_and_its_interval() -> None:
    seconds = np.array(noisy(np.random.default_rng(3), 0.2))
    medians = np.median(seconds, axis=1)
    slope, intercept = np.polyfit(np.array(PAGES, float), medians, 1, w=1 / medians)
    cost = fit_pages(PAGES, seconds.tolist(), tokens=TOKENS)
    assert (cost.b_s_per_page, cost.a_s) == pytest.approx((slope, intercept), rel=1e-8)
    rng = np.random.default_rng(5)
    exact = np.array([1 + 0.3 * n / TOKENS for n in PAGES])
    rounds = np.exp(0.5 * rng.standard_normal(11))
    cost = fit_pages(PAGES, (exact[:, None] * rounds).tolist(), tokens=TOKENS)
    assert (cost.c_low, cost.c_high) == pytest.approx((0.3, 0.3), rel=1e-6)
    assert cost.b_high > 1.05 * cost.b_low  # the seconds themselves are not so well known
    seconds = noisy(np.random.default_rng(1), 0.2)
    costs = [fit_pages(PAGES, seconds, tokens=TOKENS, seed=seed) for seed in (0, 0, 1)]
    assert costs[0] == costs[1] != costs[2]
    cost = fit_pages(PAGES, repeated([1e-3 - 1e-10 * n for n in PAGES]), tokens=TOKENS)
    assert cost.c_slots < 0
    assert cost.costs_nothing


@pytest.mark.parametrize("c", [0.0, 0.05, 1.0])
def test_the_interval_holds_the_true_cost_about_as_often_as_it_says(c: float) -> None:
    rng = np.random.default_rng(17)
    costs = [fit_pages(PAGES, noisy(rng, c), tokens=TOKENS, resamples=500) for _ in range(150)]
    held = sum(cost.c_low <= c <= cost.c_high for cost in costs)
    held_b = sum(cost.b_low <= c * 1e-3 / TOKENS <= cost.b_high for cost in costs)
    assert held >= 0.9 * len(costs)
    assert held_b >= 0.9 * len(costs)
    # An interval that holds everything would hold this too: it is narrow beside the noise.
    assert np.median([cost.c_high - cost.c_low for cost in costs]) < 0.03 * (1 + c)
    assert sum(cost.straight for cost in costs) >= 0.9 * len(costs)


@given(st.integers(0, len(PAGES) - 1), st.integers(0, 6), st.floats(1.0, 100.0))
def test_one_stall_moves_nothing(row: int, column: int, factor: float) -> None:
    seconds = repeated([1e-3 + 1e-9 * n for n in PAGES])
    still = fit_pages(PAGES, seconds, tokens=TOKENS, resamples=100)
    seconds[row][column] *= factor
    stalled = fit_pages(PAGES, seconds, tokens=TOKENS, resamples=100)
    assert (stalled.a_s, stalled.b_s_per_page) == (still.a_s, still.b_s_per_page)


@given(st.floats(1e-6, 1e6), st.integers(0, 2**31))
@settings(max_examples=25)
def test_the_unit_of_time_does_not_matter(scale: float, seed: int) -> None:
    seconds = np.array(noisy(np.random.default_rng(seed), 0.4))
    one = fit_pages(PAGES, seconds.tolist(), tokens=TOKENS, resamples=100)
    other = fit_pages(PAGES, (scale * seconds).tolist(), tokens=TOKENS, resamples=100)
    assert math.isclose(other.a_s, scale * one.a_s, rel_tol=1e-9)
    for name in ("c_slots", "c_low", "c_high", "residual_share", "spread_share"):
        assert math.isclose(getattr(other, name), getattr(one, name), rel_tol=1e-6, abs_tol=1e-9)
    assert other.straight == one.straight


@pytest.mark.parametrize(
    "shape",
    [
        lambda n: max(1e-3, 4e-9 * n),  # hidden until there are too many
        lambda n: 1e-3 + 1e-12 * n**1.5,
        lambda n: 1e-3 if n < 20_000 else 1.5e-3,  # another path for small pages
    ],
    ids=["hidden", "bent", "step"],
)
def test_times_on_no_line_are_said_to_be_on_none(shape: object) -> None:
    rng = np.random.default_rng(2)
    exact = np.array([shape(n) for n in PAGES])
    seconds = exact[:, None] * np.exp(0.002 * rng.standard_normal((len(PAGES), 11)))
    cost = fit_pages(PAGES, seconds.tolist(), tokens=TOKENS)
    assert not cost.straight
    assert cost.residual_share > cost.spread_share
    worst = PAGES.index(cost.residual_pages)
    off = abs(float(np.median(seconds[worst])) / cost.seconds(PAGES[worst]) - 1)
    assert math.isclose(off, cost.residual_share, rel_tol=1e-6)


GOOD = repeated([1e-3, 1.1e-3, 1.3e-3])


@pytest.mark.parametrize(
    ("pages", "seconds", "tokens", "message"),
    [
        ([1, 2], GOOD[:2], 64, r"pages are \[1, 2\]; accepted: at least 3 numbers .* different"),
        ([4], GOOD[:1], 64, "at least 3"),
        ([], [], 64, "at least 3"),
        ([1, 2, 2], GOOD, 64, r"pages are \[1, 2, 2\]"),
        ([0, 1, 2], GOOD, 64, "whole numbers, at least 1"),
        ([1, 2, math.nan], GOOD, 64, "whole numbers, at least 1"),
        ([1, 2, 3], GOOD, 0, "0 tokens; accepted: at least 1"),
        ([1, 2, 3], GOOD[:2], 64, r"\[7, 7\] repetitions at 3 page sizes"),
        ([1, 2, 3], [*GOOD[:2], [1.0] * 6], 64, r"\[7, 7, 6\] repetitions .* all of one length"),
        ([1, 2, 3], repeated([1.0, 2.0, 3.0], 4), 64, "at least 5"),
        ([1, 2, 3], [*GOOD[:2], [1.0] * 6 + [math.nan]], 64, "repetition 6 at 3 pages took nan s"),
        ([1, 2, 3], [*GOOD[:2], [math.inf] + [1.0] * 6], 64, "repetition 0 at 3 pages took inf"),
        ([1, 2, 3], [[0.0] + [1.0] * 6, *GOOD[1:]], 64, "repetition 0 at 1 pages took 0.0 s"),
        ([1, 2, 3], repeated([1e-6, 1.0, 2.0]), 64, "s without pages; accepted: times that leave"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    pages: list[int], seconds: list[list[float]], tokens: int, message: str
) -> None:
    with pytest.raises(LedgerError, match=f"case, peer, random: .*{message}"):
        fit_pages(pages, seconds, tokens=tokens, case="case", peer="peer", layout="random")


# --------------------------------------------------------------------------- steps
@given(st.floats(0.0, 2.0), st.permutations(range(len(PAGES))))
@settings(max_examples=25)
def test_on_a_line_every_step_costs_the_same(c: float, order: list[int]) -> None:
    seconds = [1e-3 * (1 + c * n / TOKENS) for n in PAGES]
    steps = step_costs(
        [PAGE_SIZES[i] for i in order],
        [PAGES[i] for i in order],
        repeated([seconds[i] for i in order]),
        tokens=TOKENS,
        resamples=100,
    )
    assert [(s.smaller, s.larger) for s in steps] == list(pairwise(PAGE_SIZES))
    assert sum(s.pages_more for s in steps) == PAGES[0] - PAGES[-1]
    expected = c * 1e-3 / seconds[-1]  # in tokens at the largest page size
    for step in steps:
        found = (step.c_slots, step.c_low, step.c_high)
        assert found == pytest.approx((expected,) * 3, rel=1e-6, abs=1e-6)


def test_a_step_in_the_times_is_found_where_it_is() -> None:
    seconds = repeated([1.5e-3 if n > 20_000 else 1e-3 for n in PAGES])
    steps = step_costs(PAGE_SIZES, PAGES, seconds, tokens=TOKENS)
    assert [s.smaller for s in steps if s.c_slots != 0] == [16]
    dear = steps[4]
    assert math.isclose(dear.c_slots, 0.5 * TOKENS / dear.pages_more, rel_tol=1e-9)
    with pytest.raises(LedgerError, match="resamples is 10; accepted: at least 100"):
        fit_pages([1, 2, 3], GOOD, tokens=64, resamples=10)
    refused("2 page sizes for 3 numbers of pages", step_costs, [1, 2], [3, 2, 1], GOOD, tokens=64)
    refused("at least 2 numbers of pages", step_costs, [1], [3], GOOD[:1], tokens=64)


# --------------------------------------------------------------------------- records
def test_a_record_is_fitted_as_its_times_are_and_a_trace_over_its_pages() -> None:
    record = made_record()
    case = record.main_case
    sizes, pages, seconds = sweep(record, case.id, "triton", "random")
    assert sizes == list(PAGE_SIZES)
    cost = page_cost(record, case.id, "triton")
    assert isinstance(cost, PageCost)
    by_hand = fit_pages(pages, seconds, tokens=case.tokens, resamples=2000)
    assert replace(by_hand, case=case.id, peer="triton", layout="random") == cost
    assert cost.c_low < GPU_PEERS["triton"].c_random < cost.c_high
    assert page_steps(record, case.id, "triton") == step_costs(
        sizes, pages, seconds, tokens=case.tokens
    )
    case = record.cases[-1]
    _, pages, _ = sweep(record, case.id, "triton", "in_order")
    assert case.lengths is not None
    assert pages[4] == sum(-(-length // 16) for length in case.lengths)
    cost = page_cost(record, case.id, "triton", "in_order")
    assert cost.c_low < GPU_PEERS["triton"].c_in_order < cost.c_high
    with pytest.raises(LedgerError, match=r"no timings of .*, cudnn, random in Test device.*sdpa"):
        page_cost(record, record.main_case.id, "cudnn")
