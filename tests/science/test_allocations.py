"""Reservation, pages and tail slack against plain loops over the requests."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
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


@given(LENGTHS, PAGE_SIZE)
def test_the_distribution_holds_every_request(lengths: list[int], page_size: int) -> None:
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
def test_growth_slack_is_that_of_every_length(data: st.DataObject, page_size: int) -> None:
    starts = data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=12))
    ends = [n + data.draw(st.integers(0, 90)) for n in starts]
    growth = kv.growth_tail_slack(ends, page_size, start_lengths=starts)
    assert (growth.slot_steps, growth.steps) == brute_growth(starts, ends, page_size)
    from_one = kv.growth_tail_slack(ends, page_size)
    ones = [1] * len(ends)
    assert (from_one.slot_steps, from_one.steps) == brute_growth(ones, ends, page_size)
    of_counts = kv.growth_tail_slack(Counter(ends), page_size, start_lengths=Counter(starts))
    assert of_counts == growth


def test_a_request_that_shrinks_is_an_error() -> None:
    """Its missing steps must not be taken from another request's."""
    with pytest.raises(kv.LedgerError, match=r"final_lengths\[0\] is 4; .*already holds 9 tokens"):
        kv.growth_tail_slack([4, 100], 4, start_lengths=[9, 3])
    with pytest.raises(kv.LedgerError, match="no request shrinks"):
        kv.growth_tail_slack({4: 1, 5: 1, 100: 1}, 4, start_lengths={3: 1, 9: 2})
    with pytest.raises(kv.LedgerError, match="there are 2 start_lengths and 1 final_lengths"):
        kv.growth_tail_slack([4], 4, start_lengths=[1, 2])
    # Where a logarithm in floats would round: one below, at and above each power.
    for k in range(1, 62):
        power = 2**k
        around = kv.next_power_of_two([power - 1, power, power + 1]).tolist()
        assert around == [power if k > 1 else 1, power, 2 * power]
    assert kv.next_power_of_two([2**62 - 1, 2**62]).tolist() == [2**62, 2**62]
    refused(rf"{2**62 + 1}; .*up to {2**62}", kv.next_power_of_two, [2**62 + 1])


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
    refused(rf"{2**62}-slot pages add up to {2**63}; .*64 bits", kv.paged, [2**62 + 1], 2**62)
    assert kv.paged([2**62], 2**62).allocated_slots == 2**62
    assert kv.paged([INT64_MAX], 1).allocated_slots == INT64_MAX
    assert kv.paged([INT64_MAX], INT64_MAX).tail_slack_slots == 0
    refused(r"add up to \d+; .*64 bits", kv.paged, {1: 2**40}, 2**24)
    ledger = kv.paged({1000: 10**12}, 16)
    assert ledger.pages == 63 * 10**12
    for lengths in ([5, 5], {5: 2}):
        with pytest.raises(kv.LedgerError, match=f"reserved slots add up to {2**63}; .*64 bits"):
            kv.contiguous(lengths, reserve=2**62)
    with pytest.raises(kv.LedgerError, match=r"reserved slots add up to \d+; .*64 bits"):
        kv.contiguous([2**61 + 1] * 3, reserve="pow2")
    assert kv.contiguous([5], reserve=2**62).allocated_slots == 2**62


# --- Reserved ahead, in one piece ---------------------------------------------------------------
RESERVED = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


def power_of_two_at_least(n: int) -> int:
    size = 1
    while size < n:
        size *= 2
    return size


def reserved_for(n: int, reserve: int | str) -> int:
    if isinstance(reserve, int):
        return reserve
    return n if reserve == "oracle" else power_of_two_at_least(n)


@pytest.mark.parametrize("reserve", [5000, 8192, 2**40, "pow2", "oracle"])
@given(lengths=RESERVED)
def test_policies_reserve_what_a_loop_reserves(lengths: list[int], reserve: int | str) -> None:
    ledger = kv.contiguous(lengths, reserve)
    assert ledger.requests == len(lengths)
    assert ledger.logical_tokens == sum(lengths)
    assert ledger.allocated_slots == sum(reserved_for(n, reserve) for n in lengths)
    assert ledger.unused_slots == ledger.reserved_slots == ledger.reserved_never_used_slots
    assert (ledger.tail_slack_slots, ledger.shared_tokens, ledger.pages) == (0, 0, 0)
    assert kv.contiguous(Counter(lengths), reserve) == ledger
    assert kv.contiguous((n for n in lengths), reserve) == ledger


@pytest.mark.parametrize("reserve", [6000, "pow2", "oracle"])
@given(data=st.data())
def test_reserved_slots_split_by_later_use(data: st.DataObject, reserve: int | str) -> None:
    now = data.draw(RESERVED)
    final = [n + data.draw(st.integers(0, 1000)) for n in now]
    ledger = kv.contiguous(now, reserve, final_lengths=final)
    slots = sum(reserved_for(n, reserve) for n in final)
    assert ledger.allocated_slots == slots
    assert ledger.logical_tokens == sum(now)
    assert ledger.reserved_used_later_slots == sum(final) - sum(now)
    assert ledger.reserved_never_used_slots == slots - sum(final)
    at_end = kv.contiguous(final, reserve)
    assert ledger.reserved_never_used_slots == at_end.reserved_never_used_slots
    assert kv.contiguous(Counter(now), reserve, final_lengths=Counter(final)) == ledger
    assert kv.contiguous(now, reserve, final_lengths=Counter(final)) == ledger


@given(lengths=RESERVED, maximum=st.integers(1, 5000))
def test_refused_requests_are_counted_apart(lengths: list[int], maximum: int) -> None:
    kept = [n for n in lengths if n <= maximum]
    ledger = kv.contiguous(lengths, maximum, over_maximum="count")
    assert ledger.refused_requests == len(lengths) - len(kept)
    assert ledger.refused_tokens == sum(lengths) - sum(kept)
    assert (ledger.requests, ledger.logical_tokens) == (len(kept), sum(kept))
    assert ledger.allocated_slots == maximum * len(kept)
    assert kv.contiguous(Counter(lengths), maximum, over_maximum="count") == ledger


def test_a_request_above_the_maximum_is_named() -> None:
    for lengths, which in (
        ([5, 9, 33], r"lengths\[2\] is 33 tokens"),
        (np.array([33, 5]), r"lengths\[0\] is 33 tokens"),
        ({5: 2, 33: 1}, "a request of lengths is 33 tokens"),
    ):
        refused(rf"{which}; at most the reserved 32 fit", kv.contiguous, lengths, reserve=32)
    with pytest.raises(kv.LedgerError, match=r"final_lengths\[1\] is 40 tokens; at most .* 32 fit"):
        kv.contiguous([5, 9], reserve=32, final_lengths=[8, 40])
    assert kv.contiguous([32], reserve=32).refused_requests == 0
    ledger = kv.contiguous([5, 9], 16, final_lengths=[17, 16], over_maximum="count")
    assert (ledger.refused_requests, ledger.refused_tokens) == (1, 5)
    assert (ledger.requests, ledger.logical_tokens, ledger.reserved_used_later_slots) == (1, 9, 7)
