"""Counting bit by bit is counting at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import as_lengths
from kvledger.traces import length_counter as counting
from kvledger.traces.length_counter import LengthCounter

lengths = st.one_of(st.integers(1, 50), st.integers(1, 2**40), st.integers(2**20 - 2, 2**20 + 2))


@given(st.lists(st.lists(lengths, max_size=8), min_size=1, max_size=8))
def test_bit_by_bit_is_all_at_once(parts: list[list[int]]) -> None:
    everything = [length for part in parts for length in part]
    counter = LengthCounter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_PENDING", 5)
        for part in parts:
            counter.add(np.array(part, np.int64))
    if not everything:
        with pytest.raises(LedgerError, match="at least one request is needed"):
            counter.table()
        return
    one, other = counter.table(), as_lengths(everything)
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.requests.tolist() == other.requests.tolist()


def test_a_table_may_be_asked_for_along_the_way() -> None:
    counter = LengthCounter()
    for n in range(1, 4):
        counter.add(np.array([5, 2**30]))
        assert counter.table().requests.tolist() == [n, n]


def test_what_64_bits_do_not_hold_is_refused() -> None:
    counter = LengthCounter()
    counter.add(np.array([2**62, 2**62]))
    with pytest.raises(LedgerError, match="64 bits"):
        counter.table()
