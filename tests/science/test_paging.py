"""Pages and tail slack against ceilings taken one request at a time."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.accounting import allocations
from kvledger.core.lengths import INT64_MAX

LENGTHS = st.lists(st.integers(1, 3000), min_size=1, max_size=40)
ANY_LENGTHS = st.lists(st.integers(1, 2**52), min_size=1, max_size=12)
PAGE_SIZE = st.integers(1, 4096)


def pages_of(n: int, page_size: int) -> int:
    return -(-n // page_size)


@given(LENGTHS | ANY_LENGTHS, st.lists(PAGE_SIZE | st.integers(1, 2**40), min_size=1, max_size=6))
def test_every_quantity_is_a_sum_of_ceilings(lengths: list[int], sizes: list[int]) -> None:
    expected = {p: sum(pages_of(n, p) for n in lengths) for p in sorted(set(sizes))}
    assert kv.page_counts(lengths, sizes) == expected
    assert kv.page_counts(Counter(lengths), iter(sizes)) == expected
    for p, ledger in zip(expected, kv.paged_sweep(lengths, sizes), strict=True):
        assert ledger == kv.paged(lengths, p)
        assert ledger.pages == expected[p]
        assert ledger.allocated_slots == expected[p] * p
        assert ledger.tail_slack_slots == sum(pages_of(n, p) * p - n for n in lengths)
        assert (ledger.requests, ledger.logical_tokens) == (len(lengths), sum(lengths))
        assert (ledger.reserved_slots, ledger.shared_tokens) == (0, 0)


@given(LENGTHS, st.lists(PAGE_SIZE, min_size=1, max_size=6))
def test_the_survival_table_and_plain_division_agree(lengths: list[int], sizes: list[int]) -> None:
    plain = {p: sum(pages_of(n, p) for n in lengths) for p in sorted(set(sizes))}
    assert kv.page_counts(lengths, sizes) == plain  # lengths this short always have a table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocations, "_DENSE_LIMIT", 0)
        patch.setattr(allocations, "_DENSE_FACTOR", 0)
        assert kv.page_counts(lengths, sizes) == plain


@given(LENGTHS)
def test_doubling_a_page_never_takes_more_pages_and_never_leaves_less_slack(
    lengths: list[int],
) -> None:
    """True of doubling only: a page of 3 can leave less slack than one of 2."""
    sweep = kv.paged_sweep(lengths, [2**k for k in range(13)])
    for smaller, larger in itertools.pairwise(sweep):
        assert larger.pages <= smaller.pages
        assert larger.tail_slack_slots >= smaller.tail_slack_slots
    assert sweep[0].tail_slack_slots == 0
    assert kv.paged([3], 3).tail_slack_slots < kv.paged([3], 2).tail_slack_slots


@given(LENGTHS)
def test_pages_never_increase_with_the_page_size(lengths: list[int]) -> None:
    pages = list(kv.page_counts(lengths, range(1, 200)).values())
    assert pages == sorted(pages, reverse=True)


@given(LENGTHS, PAGE_SIZE)
def test_each_request_leaves_less_than_a_page(lengths: list[int], page_size: int) -> None:
    ledger = kv.paged(lengths, page_size)
    assert 0 <= ledger.tail_slack_slots <= len(lengths) * (page_size - 1)
    assert ledger.pages >= len(lengths)


@given(LENGTHS, PAGE_SIZE)
def test_the_distribution_holds_every_request_and_the_mean(
    lengths: list[int], page_size: int
) -> None:
    slacks = [pages_of(n, page_size) * page_size - n for n in lengths]
    distribution = kv.tail_slack_distribution(lengths, page_size)
    assert distribution.requests.tolist() == [slacks.count(s) for s in range(page_size)]
    assert distribution.mean_slots == Fraction(sum(slacks), len(slacks))
    assert distribution.mean_slots == kv.mean_tail_slack(lengths, page_size)


@given(st.integers(1, 200), st.integers(1, 30))
def test_uniform_remainders_give_the_expectation_exactly(page_size: int, pages: int) -> None:
    every_remainder_alike = range(1, page_size * pages + 1)
    assert kv.expected_tail_slack(page_size) == Fraction(page_size - 1, 2)
    assert kv.mean_tail_slack(list(every_remainder_alike), page_size) == Fraction(page_size - 1, 2)


def brute_growth(starts: list[int], ends: list[int], page_size: int) -> tuple[int, int]:
    passed = [n for a, b in zip(starts, ends, strict=True) for n in range(a, b + 1)]
    return sum(pages_of(n, page_size) * page_size - n for n in passed), len(passed)


@given(st.data(), st.integers(1, 64))
def test_growth_slack_equals_walking_through_every_length(
    data: st.DataObject, page_size: int
) -> None:
    starts = data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=12))
    ends = [n + data.draw(st.integers(0, 90)) for n in starts]
    growth = kv.growth_tail_slack(ends, page_size, start_lengths=starts)
    assert (growth.slot_steps, growth.steps) == brute_growth(starts, ends, page_size)
    from_one = kv.growth_tail_slack(ends, page_size)
    ones = [1] * len(ends)
    assert (from_one.slot_steps, from_one.steps) == brute_growth(ones, ends, page_size)
    of_counts = kv.growth_tail_slack(Counter(ends), page_size, start_lengths=Counter(starts))
    assert of_counts == growth


@given(st.integers(1, 64), st.integers(1, 40))
def test_growth_over_whole_pages_has_the_uniform_expectation(page_size: int, pages: int) -> None:
    growth = kv.growth_tail_slack([page_size * pages], page_size)
    assert growth.mean_slots == kv.expected_tail_slack(page_size)


def test_a_request_that_shrinks_is_an_error() -> None:
    """Its missing steps must not be taken from another request's."""
    with pytest.raises(kv.LedgerError, match=r"final_lengths\[0\] is 4; .*already holds 9 tokens"):
        kv.growth_tail_slack([4, 100], 4, start_lengths=[9, 3])
    with pytest.raises(kv.LedgerError, match="no request shrinks"):
        kv.growth_tail_slack({4: 1, 5: 1, 100: 1}, 4, start_lengths={3: 1, 9: 2})
    with pytest.raises(kv.LedgerError, match="there are 2 start_lengths and 1 final_lengths"):
        kv.growth_tail_slack([4], 4, start_lengths=[1, 2])


# What vLLM 0.33.0's KVCacheManager held for requests with no common token, with and without
# prefix caching alike: pages of each request, at each page size.
VLLM_PAGES_OF_5_9_17 = {1: [5, 9, 17], 4: [2, 3, 5], 8: [1, 2, 3], 16: [1, 1, 2]}
# The same after 12 sampled tokens each; the last one's K and V are never written.
VLLM_PAGES_OF_16_20_28 = {1: [16, 20, 28], 4: [4, 5, 7], 8: [2, 3, 4], 16: [1, 2, 2]}


@pytest.mark.parametrize(
    ("lengths", "recorded"),
    [([5, 9, 17], VLLM_PAGES_OF_5_9_17), ([16, 20, 28], VLLM_PAGES_OF_16_20_28)],
)
def test_vllm_held_the_same_pages(lengths: list[int], recorded: dict[int, list[int]]) -> None:
    for page_size, pages in recorded.items():
        assert [kv.paged([n], page_size).pages for n in lengths] == pages
        ledger = kv.paged(lengths, page_size)
        assert ledger.pages == sum(pages)
        assert ledger.allocated_slots == sum(pages) * page_size
        assert ledger.logical_tokens == sum(lengths)


def test_slots_up_to_64_bits_and_not_beyond() -> None:
    # 2**62 + 1 tokens in pages of 2**62 take two of them.
    with pytest.raises(kv.LedgerError, match=rf"{2**62}-slot pages add up to {2**63}; .*64 bits"):
        kv.paged([2**62 + 1], 2**62)
    assert kv.paged([2**62], 2**62).allocated_slots == 2**62
    assert kv.paged([INT64_MAX], 1).allocated_slots == INT64_MAX
    assert kv.paged([INT64_MAX], INT64_MAX).tail_slack_slots == 0
    with pytest.raises(kv.LedgerError, match=r"add up to \d+; .*64 bits"):
        kv.paged({1: 2**40}, 2**24)


def test_many_requests_of_one_length_cost_one_row() -> None:
    ledger = kv.paged({1000: 10**12}, 16)
    assert ledger.pages == 63 * 10**12


def test_a_large_random_sample_equals_plain_numpy() -> None:
    rng = np.random.default_rng(0)
    lengths = np.maximum(1, rng.lognormal(6, 1, 300_000)).astype(np.int64)
    sizes = [1, 3, 16, 100, 4096]
    plain = {p: int(((lengths + p - 1) // p).sum()) for p in sizes}
    assert kv.page_counts(lengths, sizes) == plain
