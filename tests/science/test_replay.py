"""The replay: on random requests against readable ones, and on small cases worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import refused
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from replay_models import (
    FLOWS,
    Case,
    ContiguousCase,
    ContiguousOracle,
    Requests,
    cases,
    contiguous_cases,
    results,
)

import kvledger as kv
from kvledger.replays import engine
from kvledger.replays.policies import Arrivals, Contiguous, Paged, Saturated
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay

LEVELS = engine.COLUMNS[: engine.COLUMNS.index("admitted")]


def held_by_request(result: Replay, column: str) -> list[list[int]]:
    rows = result.running_requests
    by_step: list[list[int]] = [[] for _ in range(len(result))]
    for step, slots in zip(rows["record"].tolist(), rows[column].tolist(), strict=True):
        by_step[step].append(slots)
    return by_step


def missing_as_none(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else value for value in column]


# 1. Paged policies against the readable replay.
@settings(max_examples=1000)
@given(case=cases())
def test_every_column_is_the_readable_replays_at_every_step(case: Case) -> None:
    result, oracle = case.run(record_requests=True), case.oracle().run()
    columns, size = oracle.columns, case.policy.page_size
    for name in ("preempted", "evictions", "hit_tokens", "resumed_hit_tokens"):
        event(f"{name}: {'some' if result.total(name) else 'none'}")
    for name in (
        "running",
        "waiting",
        "pages",
        "logical_tokens",
        "shared_tokens",
        "distinct_tokens",
        "tail_slack_slots",
        "allocated_slots",
        "unallocated_slots",
    ):
        assert getattr(result, name).tolist() == getattr(columns, name), name
    assert result.cached_pages.tolist() == columns.cached
    assert result.blocked.tolist() == oracle.blocked
    assert result.time_s.tolist() == oracle.time_s
    for name in FLOWS:
        assert getattr(result, name).tolist() == oracle.per_step(name), name
        assert result.total(name) == oracle.total(name), name
    held = [[slots // size for slots in step] for step in held_by_request(result, "held_slots")]
    assert held == columns.held
    assert held_by_request(result, "used_slots") == oracle.used
    about = result.requests
    for name, answer in (
        ("admitted_step", [None if at < 0 else at for at in columns.admitted_step]),
        ("finished_step", [None if at < 0 else at for at in columns.finished_step]),
        ("preemptions", columns.preemptions),
        ("hit_tokens", columns.request_hit_tokens),
        ("waiting_steps", oracle.waiting_steps),
        ("waiting_s", oracle.waiting_s),
        ("latency_s", oracle.latency_s),
    ):
        assert missing_as_none(about[name]) == answer, name
    assert np.flatnonzero(about["state"] == "refused").tolist() == columns.refused


@settings(max_examples=200)
@given(case=cases())
def test_nothing_is_lost_and_every_step_adds_up(case: Case) -> None:
    result = case.run()
    about, asked, size = result.requests, case.asked, case.policy.page_size
    finished = (about["state"] == "finished").to_numpy()
    fits = np.array([-(-n // size) <= case.pages for n in asked.at_end()])
    np.testing.assert_array_equal(finished, fits)
    np.testing.assert_array_equal(about["state"] == "refused", ~fits)
    assert result.count("finished") + result.count("refused") == len(asked.prompts)
    assert about["admitted_step"].notna().tolist() == fits.tolist()
    prompts, outputs = np.array(asked.prompts), np.maximum(asked.outputs, 1)
    decoded = result.total("decoded_tokens") - (outputs[fits] - 1).sum()
    assert decoded == 0 if not case.policy.prefix_cache else decoded <= 0
    if case.chunk is None or not result.total("preempted"):
        computed = result.total("computed_prompt_tokens") + result.total("hit_tokens")
        assert computed == prompts[fits].sum()
    assert result.total("hit_tokens") == about["hit_tokens"].sum()
    assert (about["hit_tokens"] <= prompts).all()
    assert result.total("preempted") == about["preemptions"].sum()
    assert result.total("finished") == fits.sum()
    assert result.total("admitted") == result.total("finished") + result.total("preempted")
    assert result.total("evictions") <= result.total("allocations")
    assert result.total("swapped_out_tokens") == result.total("swapped_in_tokens")
    for step in range(len(result)):
        ledger = result.ledger(step)  # its identities are checked where it is made
        assert ledger.capacity_slots == size * case.pages == result.capacity_slots
    assert (result.tail_slack_slots < size * np.maximum(result.running, 1)).all()
    assert (result.running <= case.max_running).all()
    assert (result.cached_pages * size <= result.unallocated_slots).all()
    if case.clock is None:
        gone = np.cumsum(result.finished)  # in the steps before each
        assert (result.running + result.waiting + gone == fits.sum()).all()
    result = case.run()
    assert result.total("allocations") == result.total("frees")
    change = np.diff(result.pages, prepend=0)
    np.testing.assert_array_equal(change, result.allocations - result.frees)


@given(case=cases(kind="cache"))
def test_the_same_texts_in_other_ids_are_the_same_replay(case: Case) -> None:
    def renamed(ids: list[list[int]]) -> list[list[int]]:
        return [[-3 * each - 1 for each in request] for request in ids]

    asked = case.asked
    assert asked.ids is not None
    other = replace(
        asked,
        ids=renamed(asked.ids),
        output_ids=None if asked.output_ids is None else renamed(asked.output_ids),
    )
    one, two = case.run(), replace(case, asked=other).run()
    np.testing.assert_array_equal(one.steps, two.steps)
    pd.testing.assert_frame_equal(one.requests, two.requests)


@given(case=cases(kind="cache"))
def test_a_cache_without_ids_counts_as_none(case: Case) -> None:
    bare = replace(case.asked, ids=None, output_ids=None)
    with_cache = replace(case, asked=bare).run()
    off = {"prefix_cache": False, "same_step_hits": True, "merge_duplicates": False}
    policy = replace(case.policy, **off, compute_last_token=True)
    without = replace(case, asked=bare, policy=policy).run()
    for name in engine.COLUMNS:
        if name not in ("cached_pages", "evictions"):
            assert getattr(with_cache, name).tolist() == getattr(without, name).tolist(), name
    assert with_cache.total("hit_tokens") == with_cache.total("resumed_hit_tokens") == 0


# 2. Contiguous policies against the allocator.
@settings(max_examples=1000)
@given(case=contiguous_cases())
def test_contiguous_columns_are_the_allocators_at_every_step(case: ContiguousCase) -> None:
    result = case.run(record_requests=True)
    oracle = ContiguousOracle(case.asked, case.policy, case.capacity)
    steps = list(oracle.steps(case.max_running, case.chunk))
    event("blocked" if any(step["blocked"] for step in steps) else "never blocked")
    assert len(result) == len(steps)
    for name in steps[0] if steps else ():
        assert getattr(result, name).tolist() == [step[name] for step in steps], name
    about = result.requests
    assert np.flatnonzero(about["state"] == "refused").tolist() == oracle.refused
    done = about.loc[about["state"] == "finished", "finished_step"]
    assert dict(zip(done.index, done, strict=True)) == oracle.finished_step
    held = held_by_request(result, "held_slots")
    assert [sum(step) for step in held] == result.allocated_slots.tolist()
    kept = len(case.asked.prompts) - len(oracle.refused)
    assert result.total("allocations") == result.total("frees") == kept
    assert (result.total("preempted"), result.total("evictions")) == (0, 0)
    assert not result.pages.any()
    assert not result.tail_slack_slots.any()


@pytest.mark.parametrize("fit", ["first", "best", "buddy"])
def test_a_long_contiguous_replay_is_the_readable_one(fit: Any) -> None:
    """Many requests in a pool that is cut into many holes."""
    rng = np.random.default_rng(0)
    prompts, outputs = rng.integers(1, 40, 300).tolist(), rng.integers(1, 30, 300).tolist()
    case = ContiguousCase(Requests(prompts, outputs), Contiguous("oracle", fit), 503, 64, None)
    steps = list(ContiguousOracle(case.asked, case.policy, case.capacity).steps(64, None))
    result = case.run()
    for name in steps[0]:
        assert getattr(result, name).tolist() == [step[name] for step in steps], name
    assert sum(step["blocked"] for step in steps) > 100


@pytest.mark.parametrize("fit", ["first", "best", "buddy"])
def test_the_papers_seven_requests_of_the_maximum(fit: Any) -> None:
    """Kwon et al. print 8.9% of the memory as external to the seven runs that fit."""
    trace = kv.Trace([500] * 9, [9] * 9)
    result = replay(trace, Contiguous(2048, fit), capacity_slots=15728)
    assert (result.running[0], result.unallocated_slots[0]) == (7, 0)
    assert result.external_slots[0] == 15728 - 7 * 2048 == 1392


def test_fits_by_hand() -> None:
    trace = kv.Trace([6, 2, 3, 2, 2, 6], [1, 9, 1, 9, 2, 1])
    first, best = (
        replay(trace, Contiguous("oracle", fit=fit), capacity_slots=29, max_running=4)
        for fit in ("first", "best")
    )
    # At step 1, holes of 6 and of 3 slots are left; the fifth wants 3, the sixth 6.
    assert first.running.tolist()[:2] == [4, 3]
    assert best.running.tolist()[:2] == [4, 4]
    assert (first.external_slots[1], first.unallocated_slots[1]) == (6, 0)  # two holes of 3
    assert (best.external_slots[1], best.unallocated_slots[1]) == (0, 0)
    result = replay(kv.Trace([5, 3], [2, 2]), Contiguous("oracle", fit="buddy"), capacity_slots=16)
    assert result.allocated_slots.tolist() == [10, 10]  # 6 and 4 slots in blocks of 8 and 4
    assert result.external_slots.tolist() == [2, 2]
    assert result.unallocated_slots.tolist() == [4, 4]
    # Four blocks of 4; the third is freed, then the first; the fifth request takes the first. So
    # the fourth's block, freed next, joins the third's, and the sixth request has its 8 slots.
    trace = kv.Trace([3, 1, 4, 2, 1, 8], [2, 4, 1, 3, 4, 1], [0, 0, 0, 0, 2, 3])
    result = replay(
        trace, Contiguous("oracle", fit="buddy"), capacity_slots=16, clock=Arrivals(base_s=1)
    )
    assert result.requests["admitted_step"].tolist() == [0, 0, 0, 0, 2, 3]


def test_the_power_of_two_is_that_of_the_whole_or_of_the_output() -> None:
    trace = kv.Trace([20], [5])  # 24 slots at its end
    for of, slots in (("total", 32), ("output", 28)):
        policy = Contiguous("pow2", pow2_of=of)
        result = replay(trace, policy, capacity_slots=64)
        assert result.allocated_slots.tolist() == [slots] * 5
        assert result.reserved_slots.tolist() == [slots - n for n in range(20, 25)]
        assert result.reserved_used_later_slots.tolist() == [4, 3, 2, 1, 0]


# 3. Swapping.
@settings(max_examples=300)
@given(
    case=cases(kind="swap", timed=False, tight=True), host=st.sampled_from([0, 1, 3, 10, 10_000])
)
def test_swapping_changes_what_is_computed_and_not_who_runs(case: Case, host: int) -> None:
    case = replace(case, chunk=None)
    swap = replace(case.policy, preemption="swap", host_pages=host)
    swapping = replace(case, policy=swap).run(record_requests=True)
    recompute = replace(case.policy, preemption="recompute", host_pages=0)
    computing = replace(case, policy=recompute).run(record_requests=True)
    event(f"preempted: {min(3, computing.total('preempted'))}")
    moved = {"recomputed_tokens", "swapped_out_tokens", "swapped_in_tokens"}
    for name in engine.COLUMNS:
        if name not in moved:
            assert getattr(swapping, name).tolist() == getattr(computing, name).tolist(), name
    assert swapping.running_requests is not None
    assert computing.running_requests is not None
    pd.testing.assert_frame_equal(swapping.running_requests, computing.running_requests)
    out, back = swapping.total("swapped_out_tokens"), swapping.total("swapped_in_tokens")
    again = swapping.total("recomputed_tokens")
    assert out == back
    assert out + again == computing.total("recomputed_tokens")
    if host == 0:
        assert out == 0
    if host == 10_000:
        assert again == 0


def swapped(host_pages: int) -> Replay:
    """Three requests of 4 + 9 tokens in four pages: the second and third have to leave."""
    policy = Paged(4, preemption="swap", host_pages=host_pages)
    return replay(kv.Trace([4] * 3, [9] * 3), policy, capacity_slots=16)


def test_swapped_tokens_are_counted() -> None:
    # The third leaves with 4 tokens (1 page), later the second with 8 (2 pages).
    moved = {
        n: (swapped(n).total("swapped_out_tokens"), swapped(n).total("recomputed_tokens"))
        for n in range(5)
    }
    assert moved == {0: (0, 12), 1: (4, 8), 2: (4, 8), 3: (12, 0), 4: (12, 0)}
    result = swapped(3)
    assert result.swapped_out_tokens.nonzero()[0].tolist() == [1, 5]
    assert result.swapped_in_tokens.nonzero()[0].tolist() == [9, 13]
    assert result.swapped_in_tokens[[9, 13]].tolist() == [8, 4]
    assert result.total("decoded_tokens") == 3 * 8
    trace = kv.Trace([4] * 3, [9] * 3, [0] * 3)
    clock = Arrivals(base_s=1, prefill_s=1)
    ends = {
        policy.preemption: replay(trace, policy, capacity_slots=16, clock=clock)
        .requests["latency_s"]
        .max()
        for policy in (Paged(4), Paged(4, preemption="swap", host_pages=3))
    }
    # Both take 21 steps and the 12 prompt tokens; recomputing adds 9 and 5 tokens.
    assert ends == {"swap": 33, "recompute": 33 + 9 + 5}
    policy = Paged(2, preemption="swap", host_pages=100, whole_prompt_must_fit=False)
    result = replay(kv.Trace([4, 8], [5, 1]), policy, capacity_slots=8, prefill_chunk=2)
    assert result.total("preempted") > 0
    assert result.total("swapped_out_tokens") == 0
    assert result.total("recomputed_tokens") > 0
    assert result.count("finished") == 2


# 4. Clocks and recording.
@given(case=cases(timed=False))
def test_saturated_time_is_the_step(case: Case) -> None:
    result = case.run()
    assert result.time_s.tolist() == list(range(len(result)))
    about = result.requests.dropna()
    assert (about["waiting_s"] == about["admitted_step"]).all()
    assert (about["latency_s"] == about["finished_step"] + 1).all()
    explicit = case.run(clock=Saturated())
    np.testing.assert_array_equal(explicit.steps, result.steps)


@given(case=cases(timed=True))
def test_times_that_are_all_equal_are_a_saturated_queue(case: Case) -> None:
    n = len(case.asked.prompts)
    together = replace(case, arrival_s=[3.0] * n).run()
    saturated = replace(case, arrival_s=None, clock=None).run()
    np.testing.assert_array_equal(together.steps, saturated.steps)


def test_waiting_and_latency_by_hand() -> None:
    clock = Arrivals(base_s=1, running_s=0.5, prefill_s=0.25)
    trace = kv.Trace([4, 4, 8], [2, 1, 1], [100, 101, 110])
    result = replay(trace, Paged(4), capacity_slots=16, clock=clock)
    # 1 + 0.5 + 4 x 0.25; then the second comes in: 1 + 2 x 0.5 + 4 x 0.25; then idle until 10.
    assert result.time_s.tolist() == [0, 2.5, 10]
    assert result.running.tolist() == [1, 2, 1]
    assert result.requests["waiting_s"].tolist() == [0, 1.5, 0]
    assert result.requests["latency_s"].tolist() == [5.5, 4.5, 3.5]
    assert result.requests["waiting_steps"].tolist() == [0, 0, 0]
    twice = replay(trace, Paged(4), capacity_slots=16, clock=replace(clock, speed=2))
    assert twice.time_s.tolist() == [0, 2.5, 5.5]
    assert twice.requests["waiting_s"].tolist() == [0, 2, 0.5]
    trace = kv.Trace([100, 3, 100, 3], [1] * 4, [0, 0.25, 7, 8])
    result = replay(trace, Paged(4), capacity_slots=16, clock=Arrivals(base_s=1))
    assert result.requests["state"].tolist() == ["refused", "finished"] * 2
    assert result.time_s.tolist() == [0.25, 8]
    assert result.running.tolist() == [1, 1]
    assert result.requests["waiting_s"].dropna().tolist() == [0, 0]


@given(case=cases(), stride=st.integers(1, 9))
def test_recording_every_so_many_steps_loses_no_count(case: Case, stride: int) -> None:
    full, sparse = case.run(), case.run(record_every=stride)
    for name in LEVELS:
        assert getattr(sparse, name).tolist() == getattr(full, name)[::stride].tolist(), name
    assert sparse.time_s.tolist() == full.time_s[::stride].tolist()
    for name in FLOWS:
        assert sparse.total(name) == full.total(name), name
        through = np.cumsum(getattr(full, name))[::stride]
        assert np.cumsum(getattr(sparse, name)).tolist() == through.tolist(), name
    pd.testing.assert_frame_equal(sparse.requests, full.requests)


# 5. Determinism and inputs.
@given(case=cases())
def test_a_replay_is_repeatable_and_leaves_its_inputs_alone(case: Case) -> None:
    trace = case.asked.trace(case.arrival_s)
    before = [trace.prompt_tokens.copy(), trace.output_tokens.copy(), trace.page_ids]
    given_ids = case.asked.output_ids if case.policy.prefix_cache else None
    kept = None if given_ids is None else [list(ids) for ids in given_ids]
    arguments: dict[str, Any] = {
        "capacity_slots": (case.pages + case.policy.null_pages) * case.policy.page_size,
        "max_running": case.max_running,
        "clock": case.clock,
        "prefill_chunk": case.chunk,
        "output_page_ids": given_ids,
    }
    one, two = (replay(trace, case.policy, **arguments) for _ in range(2))
    np.testing.assert_array_equal(one.steps, two.steps)
    np.testing.assert_array_equal(one.after, two.after)
    pd.testing.assert_frame_equal(one.requests, two.requests)
    np.testing.assert_array_equal(trace.prompt_tokens, before[0])
    np.testing.assert_array_equal(trace.output_tokens, before[1])
    assert trace.page_ids == before[2]
    assert given_ids == kept


def test_the_columns_are_named_and_read_only() -> None:
    result = replay(kv.Trace([5], [2]), Paged(4), capacity_slots=8)
    for array in (result.steps, result.time_s, result.pages):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    result = replay(ONE, Paged(4), capacity_slots=8)
    with pytest.raises(AttributeError, match="has no 'page'; its columns are running, waiting"):
        _ = result.page
    policy = Paged(4.0, null_pages=np.int64(1))
    assert (policy.page_size, policy.null_pages) == (4, 1)
    result = replay(ONE, policy, capacity_slots=np.int64(64), max_running=3.0)
    assert result.capacity_slots == 60
    trace = kv.Trace(
        [9, 9], [1, 1], page_ids=[[2**63, 2**64 - 1]] * 2, page_ids_size=4
    )  # 64-bit hashes without a sign
    assert replay(trace, CACHE, capacity_slots=64).total("hit_tokens") == 8
    # The first turn stores 15 of its 16 tokens, so its fourth page is never complete.
    trace = kv.Trace([8, 20], [8, 1], page_ids=[[10, 11], [10, 11, 12, 13, 14]], page_ids_size=4)
    policy = Paged(4, prefix_cache=True)
    told = replay(trace, policy, capacity_slots=64, max_running=1, output_page_ids=[[12, 13], []])
    untold = replay(trace, policy, capacity_slots=64, max_running=1)
    assert told.requests["hit_tokens"].tolist() == [0, 12]
    assert untold.requests["hit_tokens"].tolist() == [0, 8]
    # Records start with room for 1,024 steps.
    result = replay(kv.Trace([1], [5000]), Paged(16), capacity_slots=5008, record_requests=True)
    assert len(result) == 5000
    assert result.logical_tokens.tolist() == list(range(1, 5001))
    assert result.running_requests["used_slots"].tolist() == list(range(1, 5001))


# 6. Small cases worked by hand.
@pytest.mark.parametrize(("page_size", "slots"), [(1, 31), (4, 40), (8, 48), (16, 64)])
def test_the_articles_three_requests(page_size: int, slots: int) -> None:
    trace = kv.Trace([5, 9, 17], [4, 4, 4])
    result = replay(trace, Paged(page_size), capacity_slots=64)
    assert result.allocated_slots[0] == slots
    assert result.logical_tokens.tolist() == [31, 34, 37, 40]
    pages = [sum(-(-(n + k) // page_size) for n in (5, 9, 17)) for k in range(4)]
    assert result.pages.tolist() == pages
    assert result.ledger(0) == replace(
        kv.paged([5, 9, 17], page_size),
        capacity_slots=64,
        unallocated_slots=64 - slots,
        external_slots=0,
        reserved_used_later_slots=0,
    )


def test_the_article_reserved_and_shared() -> None:
    result = replay(kv.Trace([5, 9, 17], [4] * 3), Contiguous(32), capacity_slots=100)
    assert result.reserved_slots.tolist() == [65, 62, 59, 56]
    assert result.reserved_used_later_slots.tolist() == [9, 6, 3, 0]
    assert result.unallocated_slots.tolist() == [4] * 4
    trace = kv.Trace([20, 23], [1, 1], page_ids=[[0, 1, 2, 3, 4], [0, 1, 5, 6, 7]], page_ids_size=4)
    shared = replay(trace, Paged(4, prefix_cache=True), capacity_slots=64)
    apart = replay(trace, Paged(4), capacity_slots=64)
    assert (apart.allocated_slots[0], shared.allocated_slots[0]) == (44, 36)
    assert (apart.shared_tokens[0], shared.shared_tokens[0]) == (0, 8)
    assert (apart.tail_slack_slots[0], shared.tail_slack_slots[0]) == (1, 1)
    result = replay(kv.Trace([5, 9], [0, 0]), Paged(4), capacity_slots=32)
    assert result.logical_tokens.tolist() == [14]
    assert result.requests["finished_step"].tolist() == [0, 0]
    assert result.total("decoded_tokens") == 0
    trace = kv.Trace([8] * 50, [4] * 50, page_ids=[[0, 1]] * 50, page_ids_size=4)
    for policy in (Paged(4), Paged(4, prefix_cache=True)):
        result = replay(trace, policy, capacity_slots=24)
        assert result.count("finished") == 50
        assert result.requests["finished_step"].is_monotonic_increasing


def test_the_watermark() -> None:
    alone = replay(kv.Trace([16], [1]), Paged(4, watermark=0.9), capacity_slots=16)
    assert alone.running.tolist() == [1]
    # Of 9 usable pages 4 are taken and 4 wanted: 1 is left, and 2 are not. A fifth of 9 pages is
    # 1, and of 10, the null page among them, 2.
    running = [
        replay(
            kv.Trace([4, 4], [5, 1]),
            Paged(1, watermark=0.2, null_pages=null),
            capacity_slots=9 + null,
        ).running[0]
        for null in (0, 1)
    ]
    assert running == [2, 1]


@pytest.mark.parametrize(
    "policy", [Paged(4), Paged(4, prefix_cache=True), Contiguous("oracle"), Contiguous(16)]
)
def test_a_request_larger_than_the_pool_is_refused_and_delays_nobody(policy: Any) -> None:
    trace = kv.Trace([5, 30, 6, 1000, 7], [2] * 5)
    result = replay(trace, policy, capacity_slots=16)
    without = replay(kv.Trace([5, 6, 7], [2] * 3), policy, capacity_slots=16)
    about = result.requests
    assert about["state"].tolist() == ["finished", "refused"] * 2 + ["finished"]
    assert result.count("refused") == 2
    np.testing.assert_array_equal(result.steps, without.steps)
    assert about["finished_step"].dropna().tolist() == without.requests["finished_step"].tolist()
    assert about.loc[[1, 3], ["admitted_step", "waiting_s", "latency_s"]].isna().all(axis=None)


@pytest.mark.parametrize("outputs", [[9], [8], [1], [0]])
def test_what_a_request_holds_at_its_end_decides_if_it_fits(outputs: list[int]) -> None:
    """The last token is never stored: 9 + 8 - 1 tokens fit into 16 slots, 9 + 9 - 1 do not."""
    result = replay(kv.Trace([9], outputs), Paged(4), capacity_slots=16)
    assert result.count("refused") == (outputs == [9])
    assert len(result) == (0 if outputs == [9] else max(1, outputs[0]))


def test_a_replay_in_which_all_are_refused_has_no_steps() -> None:
    result = replay(kv.Trace([90, 80], [1, 1]), Paged(4), capacity_slots=16)
    assert (len(result), result.count("refused")) == (0, 2)
    assert result.total("allocations") == 0
    assert result.mean("pages") == 0
    assert result.frame().empty
    timed = replay(
        kv.Trace([90, 80], [1, 1], [0, 5]), Paged(4), capacity_slots=16, clock=Arrivals(1)
    )
    assert len(timed) == 0


@pytest.mark.parametrize("policy", [Paged(1), Paged(1, prefix_cache=True, same_step_hits=False)])
def test_a_refused_request_may_be_of_any_size(policy: Paged) -> None:
    result = replay(kv.Trace([9, 10**13], [1, 1]), policy, capacity_slots=16)
    assert result.requests["state"].tolist() == ["finished", "refused"]


# Where engines differ: each option with both answers.

TWICE = kv.Trace([8, 8], [2, 2], page_ids=[[0, 1], [0, 1]], page_ids_size=4)


@pytest.mark.parametrize(
    ("options", "pages", "shared"),
    [
        ({}, [3, 5], [4, 4]),  # vLLM: the last token is computed, in a page of its own
        ({"same_step_hits": False}, [4, 6], [0, 0]),  # both are computed; copies stay
        ({"same_step_hits": False, "merge_duplicates": True}, [4, 4], [0, 8]),  # SGLang
        ({"compute_last_token": False}, [2, 4], [8, 8]),
    ],
    ids=lambda value: ",".join(value) or "vllm" if isinstance(value, dict) else "",
)
def test_two_identical_prompts(
    options: dict[str, Any], pages: list[int], shared: list[int]
) -> None:
    """Two pages each at page size 4. At the second step each takes one more for token 9."""
    result = replay(TWICE, Paged(4, prefix_cache=True, **options), capacity_slots=64)
    assert result.pages.tolist() == pages
    assert result.shared_tokens.tolist() == shared


def test_a_prompt_in_chunks() -> None:
    trace = kv.Trace([8, 16], [1, 1])
    running = {
        whole: replay(
            trace, Paged(4, whole_prompt_must_fit=whole), capacity_slots=16, prefill_chunk=4
        ).running[0]
        for whole in (True, False)
    }
    assert running == {True: 1, False: 2}
    steps = {
        whole: replay(
            kv.Trace([12], [1]),
            Paged(4, lone_prompt_whole=whole),
            capacity_slots=16,
            prefill_chunk=4,
        ).logical_tokens.tolist()
        for whole in (True, False)
    }
    assert steps == {True: [12], False: [4, 8, 12]}
    trace = kv.Trace([16], [1])
    assert replay(trace, Paged(4), capacity_slots=16).count("finished") == 1
    less = replay(trace, Paged(4, null_pages=1), capacity_slots=16)
    assert (less.count("refused"), less.capacity_slots) == (1, 12)


def test_ids_of_other_sizes_and_merged_copies() -> None:
    for size, ids in (
        (8, [[1, 2], [1, 3]]),
        (2, [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 10, 11, 12]]),
    ):
        trace = kv.Trace([16, 16], [1, 1], page_ids=ids, page_ids_size=size)
        result = replay(trace, Paged(4, prefix_cache=True), capacity_slots=64)
        assert result.requests["hit_tokens"].tolist() == [0, 8]
    # At the end of the step in which both are computed, before either grows.
    trace = kv.Trace([8, 8, 1], [1, 1, 1], page_ids=[[0, 1], [0, 1], []], page_ids_size=4)
    policy = Paged(4, prefix_cache=True, same_step_hits=False)
    kept = replay(trace, policy, capacity_slots=64, max_running=2)
    merged = replay(trace, replace(policy, merge_duplicates=True), capacity_slots=64, max_running=2)
    assert (kept.pages[0], merged.pages[0]) == (4, 4)
    assert (kept.cached_pages[1], merged.cached_pages[1]) == (4, 2)


# 7. Bad input.
ONE = kv.Trace([5], [2])
CACHE = Paged(4, prefix_cache=True)
IDS: dict[str, Any] = {
    "trace": kv.Trace([9], [9], page_ids=[[1, 2]], page_ids_size=4), "policy": CACHE
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Paged(0), "page_size is 0; a page size is a whole number of slots, at least 1"),
        (lambda: Paged(2.5), "page_size is 2.5; a page size"),
        (lambda: Paged(True), "page_size is True; a page size"),
        (lambda: Paged("4"), "page_size is '4'; a page size"),
        (lambda: Paged(4, host_pages=-1), "host_pages is -1; .* at least 0"),
        (lambda: Paged(4, null_pages=-2), "null_pages is -2; .* at least 0"),
        (lambda: Paged(4, null_pages=0.5), "null_pages is 0.5; .* at least 0"),
        (lambda: Paged(4, watermark=1.0), "watermark is 1.0; .* from 0 to below 1"),
        (lambda: Paged(4, watermark=-0.1), "watermark is -0.1; .* from 0 to below 1"),
        (lambda: Paged(4, watermark=math.nan), "watermark is nan; .* from 0 to below 1"),
        (lambda: Paged(4, watermark="x"), "watermark is 'x'; .* from 0"),
        (lambda: Paged(4, preemption="drop"), "preemption is 'drop'; \"recompute\" and \"swap\""),
        (
            lambda: Paged(4, preemption="swap", prefix_cache=True),
            "preemption is 'swap' with a prefix cache; .* accepted is one of the two",
        ),
        (lambda: Paged(4, host_pages=3), 'host_pages is 3 without swapping; .*preemption="swap"'),
        (
            lambda: Paged(4, prefix_cache=True, merge_duplicates=True),
            "merge_duplicates with same_step_hits; .*same_step_hits=False",
        ),
        (lambda: Paged(4, same_step_hits=False), "accepted with prefix_cache=True only"),
        (lambda: Paged(4, same_step_hits=False, merge_duplicates=True), "accepted with prefix_cac"),
        (lambda: Contiguous(0), 'reserve is 0; .* at least 1, or "pow2" or "oracle"'),
        (lambda: Contiguous(2.5), 'reserve is 2.5; .* at least 1, or "pow2"'),
        (lambda: Contiguous("max"), "reserve is 'max'; .* \"oracle\""),
        (lambda: Contiguous(8, fit="worst"), "fit is 'worst'; \"first\", \"best\" and \"buddy\""),
        (
            lambda: Contiguous("pow2", pow2_of="prompt"),
            "pow2_of is 'prompt'; \"total\" and \"output\"",
        ),
        (lambda: Arrivals(base_s=0), "base_s is 0; a finite number above 0"),
        (lambda: Arrivals(base_s=math.inf), "base_s is inf; a finite number above 0"),
        (lambda: Arrivals(base_s=math.nan), "base_s is nan; a finite number above 0"),
        (lambda: Arrivals(1, running_s=-1), "running_s is -1; a finite number of at least 0"),
        (lambda: Arrivals(1, prefill_s=-0.5), "prefill_s is -0.5; a finite number of at least 0"),
        (lambda: Arrivals(1, speed=0), "speed is 0; a finite number above 0"),
        (lambda: Arrivals(1, speed="x"), "speed is 'x'; a finite number above 0"),
    ],
)  # fmt: skip
def test_a_policy_or_clock_out_of_range_is_refused(make: Callable[[], Any], said: str) -> None:
    refused(said, make)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"capacity_slots": 6}, "capacity_slots is 6; a whole number of pages of 4"),
        ({"capacity_slots": 0}, "capacity_slots is 0; .* at least 1"),
        ({"capacity_slots": -8}, "capacity_slots is -8; .* at least 1"),
        ({"capacity_slots": 7.5}, "capacity_slots is 7.5; .* whole number of slots"),
        ({"policy": Contiguous(8), "capacity_slots": 0}, "capacity_slots is 0; .* at least 1"),
        (
            {"policy": Paged(4, null_pages=2), "capacity_slots": 8},
            "capacity_slots is 8: 2 pages less 2 null pages; at least one usable page",
        ),
        ({"max_running": 0}, "max_running is 0; .* requests, at least 1"),
        ({"max_running": 1.5}, "max_running is 1.5; .* requests, at least 1"),
        ({"record_every": 0}, "record_every is 0; .* steps, at least 1"),
        ({"prefill_chunk": 0}, "prefill_chunk is 0; .* tokens, at least 1"),
        ({"prefill_chunk": -4}, "prefill_chunk is -4; .* tokens, at least 1"),
        (
            {"clock": Arrivals(1)},
            "clock is Arrivals and the trace has no arrival_s; accepted: times",
        ),
        (
            IDS | {"policy": Paged(3, prefix_cache=True), "capacity_slots": 30},
            "page_size is 3 and an id stands for 4 tokens; one must divide the other",
        ),
        (IDS | {"output_page_ids": []}, "there are 0 output_page_ids and 1 requests"),
        (
            IDS | {"output_page_ids": [[3, 4, 5]]},
            r"output_page_ids\[0\] has 3 ids after 2; accepted: 2 of the prompt and up to 2",
        ),
        (IDS | {"output_page_ids": [[1.5]]}, r"output_page_ids\[0\]\[0\] is 1.5; .* integer"),
        (IDS | {"output_page_ids": [["x"]]}, r"output_page_ids\[0\]\[0\] is 'x'; .* integer"),
        (
            IDS | {"policy": Paged(4), "output_page_ids": [[3], [4]]},
            "there are 2 output_page_ids and 1 req",
        ),
        ({"policy": CACHE, "output_page_ids": [[3]]}, "the trace has no page_ids"),
        ({"trace": [5, 9]}, r"trace is \[5, 9\]; a Trace is accepted"),
        ({"policy": "paged"}, "policy is 'paged'; a Paged or Contiguous is accepted"),
        ({"clock": 0.5}, "clock is 0.5; a Saturated or Arrivals is accepted"),
    ],
)
def test_a_replay_out_of_range_is_refused(change: dict[str, Any], said: str) -> None:
    refused(said, replay, **{"trace": ONE, "policy": Paged(4), "capacity_slots": 64} | change)


@pytest.mark.slow
def test_tables_that_memory_could_not_hold_are_refused() -> None:
    trace = kv.Trace([2**40], [1])
    with pytest.raises(kv.LedgerError, match="take larger pages or run fewer requests"):
        replay(trace, Paged(1, prefix_cache=True), capacity_slots=2**40)
    assert replay(trace, Paged(1), capacity_slots=2**40).pages.tolist() == [2**40]


@pytest.mark.parametrize(
    ("page_ids", "place"),
    [
        ([[1, 2], [3, 2]], r"page_ids\[0\]\[1\] is 2"),  # one id after two
        ([[1, 1], [3, 4]], r"page_ids\[0\]\[[01]\] is 1"),  # one id twice in a request
        ([[1, 2], [2, 1]], r"page_ids\[0\]\[[01]\] is [12]"),  # at the start and behind
    ],
)
def test_a_prefix_cache_refuses_ids_without_chain(page_ids: list[list[int]], place: str) -> None:
    trace = kv.Trace([8, 8], [1, 1], page_ids=page_ids, page_ids_size=4)
    with pytest.raises(kv.LedgerError, match=place + ", which also stands after another id"):
        replay(trace, Paged(4, prefix_cache=True), capacity_slots=64)
    assert replay(trace, Paged(4), capacity_slots=64).count("finished") == 2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda result: result.total("pages"), "column is 'pages'; flows are admitted, preempted"),
        (lambda result: result.mean("frees"), "column is 'frees'; levels are running, waiting"),
        (lambda result: result.count("done"), "state is 'done'; states are finished, refused"),
    ],
)
def test_an_unknown_column_or_state_is_refused(call: Callable[[Replay], Any], said: str) -> None:
    result = replay(ONE, Paged(4), capacity_slots=8)
    refused(said, call, result)


# 8. A replay that does not add up is refused.
PARTS = (
    "logical_tokens",
    "shared_tokens",
    "tail_slack_slots",
    "reserved_slots",
    "allocated_slots",
    "unallocated_slots",
    "external_slots",
)


@settings(max_examples=200)
@given(result=results())
def test_the_columns_add_up_to_the_capacity_under_every_policy(result: Replay) -> None:
    used = result.logical_tokens - result.shared_tokens
    unused = result.tail_slack_slots + result.reserved_slots
    free = result.unallocated_slots + result.external_slots
    assert (used + unused + free == result.capacity_slots).all()
    assert (result.reserved_used_later_slots <= result.reserved_slots).all()
    assert (result.shared_tokens <= result.logical_tokens).all()
    assert result.steps.min(initial=0) >= 0


@given(result=results(), data=st.data())
def test_a_tampered_replay_is_refused(result: Replay, data: st.DataObject) -> None:
    assume(len(result))
    step = data.draw(st.integers(0, len(result) - 1))
    name = data.draw(st.sampled_from(PARTS))
    by = data.draw(st.integers(-3, 3).filter(bool))
    steps = result.steps.copy()
    steps[step, engine.COLUMNS.index(name)] += by
    refused(f"step {step} does not add up", replace, result, steps=steps)
    steps = result.steps.copy()
    steps[step, engine.COLUMNS.index(data.draw(st.sampled_from(FLOWS)))] = -1
    refused(f"step {step} ", replace, result, steps=steps)
