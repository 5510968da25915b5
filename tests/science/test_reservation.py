"""Contiguous policies against a plain loop over the requests."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv

LENGTHS = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


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
@given(lengths=LENGTHS)
def test_policies_reserve_what_a_loop_reserves(lengths: list[int], reserve: int | str) -> None:
    ledger = kv.contiguous(lengths, reserve)
    assert ledger.requests == len(lengths)
    assert ledger.logical_tokens == sum(lengths)
    assert ledger.allocated_slots == sum(reserved_for(n, reserve) for n in lengths)
    assert ledger.unused_slots == ledger.reserved_slots == ledger.reserved_never_used_slots
    assert (ledger.tail_slack_slots, ledger.shared_tokens, ledger.pages) == (0, 0, 0)
    assert kv.contiguous(Counter(lengths), reserve) == ledger
    assert kv.contiguous((n for n in lengths), reserve) == ledger


@given(LENGTHS)
def test_the_oracle_leaves_nothing_unused_and_a_power_of_two_less_than_half(
    lengths: list[int],
) -> None:
    assert kv.contiguous(lengths, "oracle").unused_slots == 0
    assert kv.contiguous(lengths, "pow2").unused_share < Fraction(1, 2)


@pytest.mark.parametrize("reserve", [6000, "pow2", "oracle"])
@given(data=st.data())
def test_reserved_slots_split_into_what_is_used_later_and_what_never_is(
    data: st.DataObject, reserve: int | str
) -> None:
    now = data.draw(LENGTHS)
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


@given(lengths=LENGTHS, maximum=st.integers(1, 5000))
def test_refused_requests_are_counted_apart_and_nowhere_else(
    lengths: list[int], maximum: int
) -> None:
    kept = [n for n in lengths if n <= maximum]
    ledger = kv.contiguous(lengths, maximum, over_maximum="count")
    assert ledger.refused_requests == len(lengths) - len(kept)
    assert ledger.refused_tokens == sum(lengths) - sum(kept)
    assert (ledger.requests, ledger.logical_tokens) == (len(kept), sum(kept))
    assert ledger.allocated_slots == maximum * len(kept)
    assert kv.contiguous(Counter(lengths), maximum, over_maximum="count") == ledger


def test_a_request_is_refused_by_its_final_length_and_counted_with_its_present_one() -> None:
    ledger = kv.contiguous([5, 9], 16, final_lengths=[17, 16], over_maximum="count")
    assert (ledger.refused_requests, ledger.refused_tokens) == (1, 5)
    assert (ledger.requests, ledger.logical_tokens, ledger.reserved_used_later_slots) == (1, 9, 7)


def test_a_request_above_the_maximum_is_named() -> None:
    for lengths, which in (
        ([5, 9, 33], r"lengths\[2\] is 33 tokens"),
        (np.array([33, 5]), r"lengths\[0\] is 33 tokens"),
        ({5: 2, 33: 1}, "a request of lengths is 33 tokens"),
    ):
        with pytest.raises(kv.LedgerError, match=rf"{which}; at most the reserved 32 fit"):
            kv.contiguous(lengths, reserve=32)
    with pytest.raises(kv.LedgerError, match=r"final_lengths\[1\] is 40 tokens; at most .* 32 fit"):
        kv.contiguous([5, 9], reserve=32, final_lengths=[8, 40])
    assert kv.contiguous([32], reserve=32).refused_requests == 0


@given(st.integers(1, 2**62))
def test_next_power_of_two_is_exact_up_to_62_bits(n: int) -> None:
    assert kv.next_power_of_two([n]).tolist() == [1 << (n - 1).bit_length()]


def test_next_power_of_two_around_every_power() -> None:
    """Where a logarithm in floats would round: one below, at and above each power."""
    for k in range(1, 62):
        power = 2**k
        around = kv.next_power_of_two([power - 1, power, power + 1]).tolist()
        assert around == [power if k > 1 else 1, power, 2 * power]
    assert kv.next_power_of_two([2**62 - 1, 2**62]).tolist() == [2**62, 2**62]
    with pytest.raises(kv.LedgerError, match=rf"{2**62 + 1}; .*up to {2**62}"):
        kv.next_power_of_two([2**62 + 1])


def test_reserved_slots_beyond_64_bits_are_an_error() -> None:
    for lengths in ([5, 5], {5: 2}):
        with pytest.raises(kv.LedgerError, match=f"reserved slots add up to {2**63}; .*64 bits"):
            kv.contiguous(lengths, reserve=2**62)
    with pytest.raises(kv.LedgerError, match=r"reserved slots add up to \d+; .*64 bits"):
        kv.contiguous([2**61 + 1] * 3, reserve="pow2")
    assert kv.contiguous([5], reserve=2**62).allocated_slots == 2**62
