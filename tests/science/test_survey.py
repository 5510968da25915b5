"""Surveys of several traces: each row is held against the policy asked by itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.accounting import survey
from kvledger.core.lengths import as_lengths

requests = st.lists(
    st.tuples(st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=30
).map(lambda pairs: ([p for p, _ in pairs], [p + o for p, o in pairs]))


def as_traces(prompts: list[int], totals: list[int]) -> survey.Traces:
    return {"mine": kv.LengthMarginals("mine", as_lengths(prompts), as_lengths(totals))}


@given(requests, st.integers(1, 700))
def test_a_reservation_row_is_the_policy(pair: tuple[list[int], list[int]], reserve: int) -> None:
    _, totals = pair
    row = survey.reservation(as_traces(*pair), [reserve]).iloc[0]
    kept = [n for n in totals if n <= reserve]
    assert row["requests"] == len(kept)
    assert row["refused_requests"] == len(totals) - len(kept)
    assert row["refused_share"] == Fraction(len(totals) - len(kept), len(totals))
    assert row["allocated_slots"] == reserve * len(kept)
    assert row["unused_slots"] == reserve * len(kept) - sum(kept)


@given(requests)
def test_arrival_splits_the_reservation_by_power_of_two(pair: tuple[list[int], list[int]]) -> None:
    prompts, totals = pair
    row = survey.reservation_at_arrival(as_traces(*pair)).iloc[0]
    assert row["reserve"] >= max(totals) > row["reserve"] // 2
    slots = row["reserve"] * len(totals)
    assert row["used_share"] == Fraction(sum(prompts), slots)
    assert row["later_share"] == Fraction(sum(totals) - sum(prompts), slots)
    assert row["used_share"] + row["later_share"] + row["never_share"] == 1


@given(requests, st.integers(1, 64))
def test_a_tail_slack_row_is_the_loop(pair: tuple[list[int], list[int]], size: int) -> None:
    prompts, totals = pair
    row = survey.tail_slack(as_traces(*pair), [size]).iloc[0]
    slack = [-n % size for n in totals]
    grown = [-n % size for p, t in zip(prompts, totals, strict=True) for n in range(p, t + 1)]
    assert row["tail_slack_slots"] == sum(slack)
    assert row["mean_slots"] == Fraction(sum(slack), len(slack))
    assert row["growth_slots"] == Fraction(sum(grown), len(grown))
    if size == 1:
        assert pd.isna(row["final_ratio"])
        assert pd.isna(row["growth_error"])
    else:
        expected = Fraction(size - 1, 2)
        assert row["final_ratio"] * expected == row["mean_slots"]
        assert row["final_error"] == abs(row["final_ratio"] - 1)
        assert row["growth_error"] == abs(row["growth_slots"] / expected - 1)


@given(requests, st.integers(1, 64))
def test_slack_distribution_counts_each_once(pair: tuple[list[int], list[int]], size: int) -> None:
    frame = survey.slack_distribution(as_traces(*pair)["mine"], size)
    slack = [-n % size for n in pair[1]]
    assert frame["requests"].tolist() == [slack.count(s) for s in range(size)]
    assert sum(frame["share"]) == 1
    assert sum(frame["even_share"]) == 1


@given(requests)
def test_envelopes_and_cost_lines_say_as_envelope(pair: tuple[list[int], list[int]]) -> None:
    totals = pair[1]
    sizes = [1, 2, 3, 5, 8, 13, 21]
    intervals = kv.envelope(totals, sizes)
    long = survey.envelopes(as_traces(*pair), sizes)
    assert long["page_size"].tolist() == [i.page_size for i in intervals]
    assert long["c_from"].tolist() == [i.c_from for i in intervals]
    assert long["c_to"].tolist() == [i.c_to for i in intervals[:-1]] + [None]
    lines = survey.cost_lines(totals, sizes)
    assert lines["page_size"].tolist() == sizes
    assert lines["pages"].tolist() == [kv.paged(totals, p).pages for p in sizes]
    best = lines[lines["c_from"].notna()]
    assert best["page_size"].tolist() == sorted(i.page_size for i in intervals)


@given(requests, st.sampled_from([0, Fraction(1, 4), 1, 4, 64]))
def test_a_closed_form_row_is_exact(pair: tuple[list[int], list[int]], c: Fraction | int) -> None:
    totals, sizes = pair[1], range(1, 65)
    row = survey.closed_form(as_traces(*pair), [c], sizes).iloc[0]
    costs = {p: kv.cost(totals, p, c) for p in sizes}
    least = min(costs.values())
    assert costs[row["best"]] == least
    assert row["excess_cost"] == costs[row["nearest"]] / least - 1
    near = [p for p in sizes if costs[p] <= least * Fraction(101, 100)]
    assert (row["flat_from"], row["flat_to"]) == (near[0], near[-1])
    assert row["flat_factor"] == Fraction(near[-1], near[0])


def test_needed_costs_in_slots_and_bytes() -> None:
    def needed(totals: list[int], size: int, sizes: list[int]) -> pd.Series[Any]:
        traces = as_traces([1] * len(totals), totals)
        return survey.needed_cost(traces, size, "Llama-3.1-8B", sizes).iloc[0]

    row = needed([5, 9, 17], 4, [1, 2, 4, 8, 16])
    assert (row["c_from"], row["c_to"]) == (Fraction(6, 7), Fraction(2))
    assert row["bytes_to"] == 2 * 131072
    assert row["closed_form_c"] == Fraction(16) / (2 * Fraction(31, 3) - 1)
    last = needed([5], 8, [1, 8])
    assert not pd.isna(last["c_from"])
    assert pd.isna(last["c_to"])
    assert pd.isna(last["bytes_to"])
    never = needed([8], 7, [1, 8])
    assert pd.isna(never["c_from"])
    assert pd.isna(never["bytes_from"])
    needed = pd.DataFrame({"c_from": [Fraction(1, 100), Fraction(1, 50)], "c_to": [1, 2]})
    frame = survey.bytes_in_slots(["Llama-3.1-8B", "OPT-13B"], {"entry": 4, "host": 250}, needed)
    assert frame["c"].tolist() == [Fraction(b, per) for per in (131072, 819200) for b in (4, 250)]
    assert (frame["needed_from"] == Fraction(1, 100)).all()
    assert (frame["needed_to"] == 2).all()
    assert all(
        n == Fraction(1, 100) / c for n, c in zip(frame["needed_times"], frame["c"], strict=True)
    )


@given(requests, st.integers(1, 64), st.sampled_from([0, Fraction(1, 32768), 1, 7]))
def test_excess_cost_is_none_below(
    pair: tuple[list[int], list[int]], size: int, c: Fraction | int
) -> None:
    row = survey.excess_cost(as_traces(*pair), size, c, [*range(1, 65)]).iloc[0]
    assert row["excess_cost"] >= 0
    best = kv.cost(pair[1], int(row["best"]), c)
    assert kv.cost(pair[1], size, c) == best * (1 + row["excess_cost"])


def test_slots_per_token_adds_up_and_refuses_sharing() -> None:
    frame = survey.slots_per_token(
        {"max": kv.contiguous([5, 9, 17], 32), "pages": kv.paged([5, 9, 17], 4)}
    )
    assert (frame["used"] + frame["reserved"] + frame["tail_slack"] == frame["held"]).all()
    assert frame["held"].tolist() == [Fraction(96, 31), Fraction(40, 31)]
    with pytest.raises(kv.LedgerError, match="8 shared tokens; only ledgers without sharing"):
        survey.slots_per_token({"shared": kv.shared([20, 23], 4, prefix=8)})


def test_lengths_describes_the_committed_traces() -> None:
    frame = survey.lengths({n: kv.load_lengths(n) for n in kv.TRACE_NAMES})
    assert frame["trace"].tolist() == list(kv.TRACE_NAMES)
    assert frame.set_index("trace").loc["arxiv_summarization_v2", "longest"] == 4096
    assert frame["requests"].sum() == 8819 + 19366 + 12031 + 3993 + 30731 + 28257 + 33768
    assert set(survey.TRACE_LABELS) == set(kv.TRACE_NAMES)
    blocks = {
        name: pd.DataFrame({"logical_blocks": [10, 20], "shared_blocks": [1, s]})
        for name, s in (("a", 5), ("b", 0))
    }
    frame = survey.shared_blocks(blocks)
    assert frame["trace"].tolist() == ["a", "a", "b", "b"]
    assert frame["shared_share"].tolist() == [Fraction(1, 10), Fraction(1, 4), Fraction(1, 10), 0]
