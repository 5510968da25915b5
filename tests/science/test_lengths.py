"""Lengths in every accepted form reduce to the same exact counts."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.core.lengths import (
    INT64_MAX,
    LengthCounter,
    as_length_array,
    as_lengths,
    check_growth,
    exact_dot,
    exact_sum,
    paired_lengths,
    whole,
    whole_page_sizes,
)

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def counts_of(table: kv.LengthTable) -> dict[int, int]:
    return dict(zip(table.tokens.tolist(), table.requests.tolist(), strict=True))


@given(LENGTHS)
def test_every_form_gives_the_same_counts_and_sums(lengths: list[int]) -> None:
    expected = dict(sorted(Counter(lengths).items()))
    forms = [
        lengths,
        tuple(lengths),
        (n for n in lengths),
        np.array(lengths),
        np.array(lengths, dtype=np.uint16),
        np.array(lengths, dtype=np.float64),
        np.array(lengths, dtype=object),
        np.array(lengths)[::-1],
        pd.Series(lengths),
        pd.Series(lengths, dtype="Int64"),
        Counter(lengths),
        pd.DataFrame({"tokens": list(expected), "requests": list(expected.values())}),
        SimpleNamespace(total_tokens=np.array(lengths)),
        as_lengths(lengths),
    ]
    for form in forms:
        table = as_lengths(form)
        assert counts_of(table) == expected
        assert table.tokens.dtype == table.requests.dtype == np.int64
    assert sorted(as_length_array(as_lengths(lengths)).tolist()) == sorted(lengths)
    assert as_length_array(lengths).tolist() == lengths
    table = as_lengths(lengths)
    assert table.n_requests == len(lengths)
    assert table.total_tokens == sum(lengths)
    assert table.mean_tokens == Fraction(sum(lengths), len(lengths))
    assert table.max_tokens == max(lengths)


@given(LENGTHS, st.fractions(Fraction(1, 100), 1))
def test_a_quantile_is_the_least_length_of_enough_requests(
    lengths: list[int], share: Fraction
) -> None:
    at_most = {n: Fraction(sum(m <= n for m in lengths), len(lengths)) for n in lengths}
    expected = min(n for n in lengths if at_most[n] >= share)
    assert as_lengths(lengths).quantile(share) == expected


@pytest.mark.parametrize("longest", [4_000, 1 << 20, (1 << 20) + 1, 1 << 25, 1 << 45])
def test_long_arrays_are_counted_alike_whatever_their_longest_length(longest: int) -> None:
    """Chunks on several cores, one bincount, and sorting: three ways, one answer."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 4_000, (1 << 20) * 2 + 17)
    lengths[[7, -3]] = longest
    tokens, requests = np.unique(lengths, return_counts=True)
    table = as_lengths(lengths)
    np.testing.assert_array_equal(table.tokens, tokens)
    np.testing.assert_array_equal(table.requests, requests)


# --------------------------------------------------------------------------- bit by bit
FAR_APART = st.one_of(st.integers(1, 50), st.integers(1, 2**40), st.integers(2**20 - 2, 2**20 + 2))


@given(st.lists(st.lists(FAR_APART, max_size=8), min_size=1, max_size=8))
def test_bit_by_bit_is_all_at_once(parts: list[list[int]]) -> None:
    everything = [length for part in parts for length in part]
    counter = LengthCounter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvledger.core.lengths._PENDING", 5)
        for part in parts:
            counter.add(np.array(part, np.int64))
    if not everything:
        refused("at least one request is needed", counter.table)
        return
    one, other = counter.table(), as_lengths(everything)
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.requests.tolist() == other.requests.tolist()


def test_a_table_may_be_asked_for_along_the_way() -> None:
    counter = LengthCounter()
    for n in range(1, 4):
        counter.add(np.array([5, 2**30]))
        assert counter.table().requests.tolist() == [n, n]
    frame = pd.DataFrame({"tokens": [9, 5, 9], "requests": [1, 2, 3]})
    assert counts_of(as_lengths(frame)) == {5: 2, 9: 4}
    assert counts_of(as_lengths({5: 0, 9: 2})) == {9: 2}
    assert whole_page_sizes([16, 4, 4.0, np.int64(8)]) == [4, 8, 16]
    half = 2**62
    assert as_lengths([half, half - 1]).total_tokens == INT64_MAX
    refused(f"lengths add up to {INT64_MAX + 1}; .*64 bits", as_lengths, [half, half])


# --------------------------------------------------------------------------- forms
@pytest.mark.parametrize("index", [0, 1 << 20, 2 * (1 << 20) + 16])
def test_a_bad_length_is_found_in_every_chunk(index: int) -> None:
    lengths = np.full((1 << 20) * 2 + 17, 5)
    lengths[index] = 0
    refused(rf"lengths\[{index}\] is 0; .*at least 1", as_lengths, lengths)


def test_results_are_read_only_and_the_callers_array_stays_writeable() -> None:
    mine = np.array([5, 9, 17])
    series = pd.Series(mine)
    mine_tokens, mine_requests = np.array([5]), np.array([1])
    for result in (
        as_length_array(mine),
        as_length_array(series),
        as_lengths(mine).tokens,
        as_lengths(mine).requests,
        kv.LengthTable(mine_tokens, mine_requests).tokens,
    ):
        with pytest.raises(ValueError, match="read-only"):
            result[0] = 1
    for array in (mine, mine_tokens, mine_requests):
        array[0] = 6
    series.iloc[0] = 7


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=8))
def test_exact_sums_equal_those_of_python(pairs: list[tuple[int, int]]) -> None:
    values = np.array([a for a, _ in pairs], dtype=np.int64)
    weights = np.array([b for _, b in pairs], dtype=np.int64)
    expected = sum(a * b for a, b in pairs)
    if expected > INT64_MAX:
        refused(f"things add up to {expected}; .*64 bits", exact_dot, values, weights, "things")
    else:
        assert exact_dot(values, weights, "things") == expected
    assert exact_sum(values, "things") == sum(values.tolist())


@given(LENGTHS, st.data())
def test_starts_and_ends_pair_up_where_some_order_does(
    starts: list[int], data: st.DataObject
) -> None:
    """The k-th shortest start must not exceed the k-th shortest end: then, and only then."""
    size = len(starts)
    ends = data.draw(st.lists(st.integers(1, 300), min_size=size, max_size=size))
    names = ("starts", "ends")
    possible = all(a <= b for a, b in zip(sorted(starts), sorted(ends), strict=True))
    if possible:
        check_growth(as_lengths(starts), as_lengths(ends), names)
    else:
        refused("no request shrinks", check_growth, as_lengths(starts), as_lengths(ends), names)
    if all(a <= b for a, b in zip(starts, ends, strict=True)):
        start, end = paired_lengths(starts, ends, names)
        assert (start.tolist(), end.tolist()) == (starts, ends)
    else:
        with pytest.raises(kv.LedgerError, match=r"ends\[\d+\] is \d+; request \d+ already holds"):
            paired_lengths(starts, ends, names)


@pytest.mark.parametrize("value", [4, 4.0, np.int8(4), np.uint64(4), np.float32(4), Fraction(4)])
def test_whole_numbers_of_every_type_are_accepted(value: object) -> None:
    result = whole(value, "page_size", minimum=1, accepted="whole numbers")
    assert result == 4
    assert type(result) is int
