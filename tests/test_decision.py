"""The page-size decision, held against loops over every request, step and page size."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from attention_records import GPU_PEERS, MadePeer, made_case, made_record
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import kvledger as kv
from kvledger.accounting.metadata import near_best
from kvledger.accounting.sharing import shared_page_ids
from kvledger.core.lengths import as_lengths
from kvledger.decision import decide, default_page_sizes, page_costs
from kvledger.decision.answers import Line, even_c, tolerated
from kvledger.decision.workload import Workload, common_prefixes, held_lengths, workload_of
from kvledger.measure.fit import page_cost
from kvledger.measure.record import Record
from kvledger.models.engines import PRESETS, load_structures, structures_of
from kvledger.traces.derivation import neighbour_sharing

MODEL = kv.Model("tiny", full_layers=1, kv_heads=1, head_dim=25)  # 100 bytes a token
LLAMA = "Llama-3.1-8B"

pairs = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 40)), min_size=1, max_size=12)
sizes_of = st.sets(st.integers(1, 64), min_size=1, max_size=7).map(sorted)
bytes_of = st.integers(0, 300)


def trace_of(rows: list[tuple[int, int]]) -> kv.Trace:
    return kv.Trace([p for p, _ in rows], [o for _, o in rows], name="drawn")


def steps_of(rows: list[tuple[int, int]]) -> list[int]:
    """Every length that every request holds, one by one."""
    return [n for p, o in rows for n in range(p, p + o + 1)]


def loop(held: list[int], size: int, c: Fraction) -> Fraction:
    """What one page size costs, averaged over requests and steps."""
    pages = [-(-n // size) for n in held]
    return (sum(pages) * size + c * sum(pages)) / Fraction(len(held))


# --------------------------------------------------------------------------- memory
@given(pairs, sizes_of, bytes_of, st.sampled_from([0, Fraction(1, 100), Fraction(1, 5)]))
def test_memory_is_the_loop_over_requests_steps_and_page_sizes(
    rows: list[tuple[int, int]], sizes: list[int], n_bytes: int, tolerance: Fraction
) -> None:
    decision = decide(
        trace_of(rows), MODEL, page_sizes=sizes, metadata={"a page": n_bytes}, tolerance=tolerance
    )
    costs = {p: loop(steps_of(rows), p, Fraction(n_bytes, 100)) for p in sizes}
    least = min(costs.values())
    assert [cost.page_size for cost in decision.sizes] == sizes
    assert {c.page_size: c.memory_slots for c in decision.sizes} == costs
    assert decision.memory.best == max(p for p in sizes if costs[p] == least)
    assert decision.memory.cost_slots == least
    near = [p for p in sizes if costs[p] <= least * (1 + tolerance)]
    assert list(decision.memory.near) == near
    below = [p for p in sizes if p < near[0]]
    above = [p for p in sizes if p > near[-1]]
    assert (decision.memory.below is None) == (not below)
    if decision.memory.below:
        assert decision.memory.below.page_size == below[-1]
        assert decision.memory.below.excess_share == costs[below[-1]] / least - 1 > tolerance
    assert (decision.memory.above is None) == (not above)
    if decision.memory.above:
        assert decision.memory.above.page_size == above[0]
        assert decision.memory.above.excess_share == costs[above[0]] / least - 1 > tolerance


@given(pairs, sizes_of, bytes_of)
def test_memory_of_the_lengths_held(
    rows: list[tuple[int, int]], sizes: list[int], n_bytes: int
) -> None:
    decision = decide(trace_of(rows), MODEL, page_sizes=sizes, metadata={"a page": n_bytes})
    c = Fraction(n_bytes, 100)
    held = decision.workload.held
    assert decision.memory.best == kv.best_page_size(held, c, sizes).page_size
    assert list(decision.memory.near) == near_best(held, c, sizes)


@given(pairs, st.integers(1, 64))
def test_slack_is_averaged_over_growth(rows: list[tuple[int, int]], size: int) -> None:
    trace = trace_of(rows)
    cost = decide(trace, MODEL, page_sizes=[size]).cost(size)
    grown = kv.growth_tail_slack(trace, size, start_lengths=trace.prompt_tokens)
    assert cost.tail_slack_slots == grown.mean_slots


@given(pairs)
def test_held_lengths_are_all_the_steps(rows: list[tuple[int, int]]) -> None:
    trace = trace_of(rows)
    held = held_lengths(as_lengths(trace.prompt_tokens), as_lengths(trace))
    assert np.repeat(held.tokens, held.requests).tolist() == sorted(steps_of(rows))


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), sizes_of)
def test_plain_lengths_are_taken_as_held(lengths: list[int], sizes: list[int]) -> None:
    decision = decide(lengths, MODEL, page_sizes=sizes, metadata=None)
    for cost, ledger in zip(decision.sizes, kv.paged_sweep(lengths, sizes), strict=True):
        assert cost.memory_slots == Fraction(ledger.allocated_slots, len(lengths))
        assert cost.tail_slack_slots == Fraction(ledger.tail_slack_slots, len(lengths))
        assert cost.pages == cost.entries == Fraction(ledger.pages, len(lengths))
        assert cost.allocations_per_token == Fraction(ledger.pages, sum(lengths))


@given(pairs, sizes_of)
def test_allocations_are_the_pages_of_growing(
    rows: list[tuple[int, int]], sizes: list[int]
) -> None:
    decision = decide(trace_of(rows), MODEL, page_sizes=sizes)
    generated = sum(o for _, o in rows)
    for cost in decision.sizes:
        # A page is given out when a request of n tokens, all its pages full, takes one more.
        given_out = sum(n % cost.page_size == 0 for p, o in rows for n in range(p, p + o))
        assert cost.allocations_per_token == (Fraction(given_out, generated) if generated else None)


def test_the_three_requests_of_the_article() -> None:
    decision = decide([5, 9, 17], LLAMA, metadata={"a page": 32768}, page_sizes=[1, 2, 4, 8, 16])
    assert decision.charges.c_slots == Fraction(1, 4)
    assert (decision.memory.best, 3 * decision.memory.cost_slots) == (2, Fraction("38.25"))
    smaller, larger = decision.changes
    assert (smaller.page_size, smaller.c_slots) == (1, Fraction(3, 14))
    assert (larger.page_size, larger.c_slots) == (4, Fraction(6, 7))
    assert decision.memory.below.term == "metadata_slots"
    assert decision.memory.above.term == "tail_slack_slots"
    named = decide("bwb_v2", LLAMA, page_sizes=[1, 16])
    loaded = decide(kv.load_lengths("bwb_v2"), LLAMA, page_sizes=[1, 16])
    assert named.as_dict() == loaded.as_dict()
    counted = decide({5: 2, 9: 1}, LLAMA, page_sizes=[4])
    assert counted.cost(4).memory_slots == decide([5, 5, 9], LLAMA, page_sizes=[4]).cost(4)[-2]
    assert counted.workload.name == "the counts"
    workload = workload_of([5, 9])
    assert workload_of(workload) is workload
    assert isinstance(workload, Workload)
    assert workload.name == "2 lengths"
    decision = decide([1 << 40], LLAMA, page_sizes=[1, 1 << 20])
    assert decision.cost(1 << 20).tail_slack_slots == 0
    assert decision.memory.best == 1 << 20


# --------------------------------------------------------------------------- other answers
@given(pairs, sizes_of, bytes_of, st.integers(0, 500), st.integers(0, 500))
def test_the_best_page_size_never_shrinks_as_pages_cost_more(
    rows: list[tuple[int, int]], sizes: list[int], n_bytes: int, one: int, other: int
) -> None:
    decision = decide(trace_of(rows), MODEL, page_sizes=sizes, metadata={"a page": n_bytes})
    low, high = sorted((Fraction(one, 100), Fraction(other, 100)))
    cheap, dear = decision.answer_at(low), decision.answer_at(high)
    entries = {cost.page_size: cost.entries for cost in decision.sizes}
    assert entries[dear.best] <= entries[cheap.best]
    assert dear.cost_slots >= cheap.cost_slots


@given(pairs, sizes_of, st.integers(0, 200), st.data())
def test_needs_is_where_a_page_size_is_near_the_best(
    rows: list[tuple[int, int]], sizes: list[int], n_bytes: int, data: st.DataObject
) -> None:
    decision = decide(trace_of(rows), MODEL, page_sizes=sizes, metadata={"a page": n_bytes})
    size = data.draw(st.sampled_from(sizes))
    needs = decision.needs(size)
    held = steps_of(rows)

    def is_near(c: Fraction) -> bool:
        costs = {p: loop(held, p, c) for p in sizes}
        return costs[size] <= min(costs.values()) * Fraction(101, 100)

    assert is_near(decision.charges.c_slots) == (
        needs is not None and needs.c_from <= decision.charges.c_slots <= needs.c_to
    )
    tiny = Fraction(1, 10**9)
    if needs is None:
        assert not any(is_near(Fraction(k, 7)) for k in range(200))
        return
    assert is_near(needs.c_from)
    if needs.c_from > 0:
        assert not is_near(needs.c_from - min(tiny, needs.c_from / 2))
    if math.isinf(needs.c_to):
        assert is_near(Fraction(10**9))
    else:
        assert is_near(Fraction(needs.c_to))
        assert not is_near(needs.c_to + tiny)


def test_needs_none_where_no_cost_helps() -> None:
    lines = {
        1: Line(Fraction(100), Fraction(10)),
        2: Line(Fraction(150), Fraction(10)),
        3: Line(Fraction(140), Fraction(9)),
    }
    assert tolerated(2, lines, Fraction(1, 100)) is None
    same = {1: Line(Fraction(100), Fraction(10)), 2: Line(Fraction(300), Fraction("10.1"))}
    assert tolerated(2, same, Fraction(1, 100)) is None
    assert even_c(same[1], lines[1]) is None
    assert even_c(Line(Fraction(1), Fraction(1)), Line(Fraction(2), Fraction(2))) is None


@given(pairs, st.integers(1, 200), st.integers(1, 5))
def test_changes_say_when_another_is_good(
    rows: list[tuple[int, int]], n_bytes: int, times: int
) -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    metadata = {"a page": n_bytes}
    decision = decide(trace_of(rows), MODEL, page_sizes=sizes, metadata=metadata)
    best, c = decision.memory.best, Fraction(n_bytes, 100)
    held = steps_of(rows)
    assert [change.page_size for change in decision.changes] == [
        p for p in (best // 2, 2 * best) if p in sizes
    ]
    longer = 32 * times  # a multiple of every page size: remainders, so slack, stay as they are
    for change in decision.changes:
        other = change.page_size
        gap = loop(held, other, c) - loop(held, best, c)
        assert change.lost_slots == gap >= 0
        if change.c_slots is not None:
            assert loop(held, other, change.c_slots) == loop(held, best, change.c_slots)
        else:
            entries = {p: loop(held, p, Fraction(1)) - loop(held, p, Fraction(0)) for p in sizes}
            assert entries[other] == entries[best] or other < best
        moved = decide([n + longer for n in held], MODEL, page_sizes=sizes, metadata=metadata)
        now = moved.cost(other).memory_slots - moved.cost(best).memory_slots
        per_token = c * (Fraction(1, other) - Fraction(1, best))
        assert now == gap + longer * per_token
        if change.mean_tokens is not None:
            assert change.mean_tokens >= 1
            assert gap + (change.mean_tokens - decision.workload.mean_tokens) * per_token == 0
        if change.diverging_share is not None:
            assert other < best
            assert change.diverging_share * (Fraction(best - 1, 2) - Fraction(other - 1, 2)) == gap


# --------------------------------------------------------------------------- sharing
@st.composite
def sharing_traces(draw: st.DrawFn) -> kv.Trace:
    """Requests that branch off each other at block boundaries, ids chained."""
    size = draw(st.sampled_from([2, 4, 5]))
    numbers: dict[tuple[int, ...], int] = {}
    prompts, outputs, page_ids = [], [], []
    for _ in range(draw(st.integers(1, 9))):
        path = draw(st.lists(st.integers(0, 1), min_size=1, max_size=6))
        ids = [numbers.setdefault(tuple(path[: k + 1]), len(numbers)) for k in range(len(path))]
        rest = draw(st.integers(1, size))
        prompts.append((len(path) - 1) * size + rest)
        outputs.append(draw(st.integers(0, 8)))
        page_ids.append(ids)
    return kv.Trace(prompts, outputs, page_ids=page_ids, page_ids_size=size)


def as_held(trace: kv.Trace) -> kv.Trace:
    """The same requests at the end of their prompts, one step each."""
    return kv.Trace(
        trace.prompt_tokens,
        [0] * trace.n_requests,
        page_ids=trace.page_ids,
        page_ids_size=trace.page_ids_size,
    )


@given(sharing_traces(), st.integers(1, 4))
def test_sharing_at_multiples_of_ids_is_that_of_pages(trace: kv.Trace, times: int) -> None:
    held, ids_size = as_held(trace), trace.page_ids_size or 0
    size = ids_size * times
    decision = decide(
        held, MODEL, page_sizes=[ids_size, size], metadata=None, held_together=trace.n_requests
    )
    for page_size in {ids_size, size}:
        step = page_size // ids_size
        grouped = [ids[step - 1 :: step] for ids in trace.page_ids or ()]
        ledger = shared_page_ids(grouped, held.prompt_tokens, page_size)
        cost = decision.cost(page_size)
        assert cost.memory_slots * trace.n_requests == ledger.allocated_slots
        assert cost.pages * trace.n_requests == ledger.pages
        assert cost.tail_slack_slots * trace.n_requests == ledger.tail_slack_slots
    spared = shared_page_ids(trace.page_ids or (), held.prompt_tokens, ids_size).shared_tokens
    lost = decision.cost(size).shared_lost_slots
    assert lost is not None
    assert decision.cost(ids_size).shared_lost_slots == 0
    shared_now = shared_page_ids(
        [ids[times - 1 :: times] for ids in trace.page_ids or ()], held.prompt_tokens, size
    ).shared_tokens
    assert lost * trace.n_requests == spared - shared_now


@given(sharing_traces(), st.integers(1, 12))
def test_common_prefixes_are_the_blocks_that_neighbours_share(trace: kv.Trace, group: int) -> None:
    found = common_prefixes(as_held(trace), group)
    size = trace.page_ids_size or 0
    complete = [
        ids[: prompt // size]
        for ids, prompt in zip(trace.page_ids or (), trace.prompt_tokens.tolist(), strict=True)
    ]
    assert found.token_steps == size * neighbour_sharing(complete, group).shared_blocks


@given(sharing_traces(), sizes_of, bytes_of)
def test_sharing_and_slack_stay_apart(trace: kv.Trace, sizes: list[int], n_bytes: int) -> None:
    charged = {"page_sizes": sizes, "metadata": {"a page": n_bytes}, "held_together": 4}
    with_ids = decide(trace, MODEL, **charged)
    without = decide(trace, MODEL, prefix=None, **charged)
    assert (without.prefix, without.why_no_prefix) == (None, "left out as asked")
    for one, other in zip(with_ids.sizes, without.sizes, strict=True):
        assert one.tail_slack_slots == other.tail_slack_slots
        assert one.entries == other.entries >= one.pages
        assert other.shared_lost_slots is None
        # Pages held, each of page_size slots, and metadata: nothing else.
        assert one.memory_slots == one.pages * one.page_size + one.metadata_slots
        assert other.memory_slots == other.pages * other.page_size + other.metadata_slots


def test_below_the_ids_nothing_is_lost_and_between_multiples_the_most_is() -> None:
    ids = [[0, 1, 2, 3], [0, 1, 2, 4]]
    trace = kv.Trace([16, 16], [0, 0], page_ids=ids, page_ids_size=4)
    decision = decide(trace, MODEL, page_sizes=[1, 3, 4, 5, 8, 12], held_together=2)
    lost = {cost.page_size: cost.shared_lost_slots for cost in decision.sizes}
    # Of 12 tokens in common, for one request of two.
    assert lost == {1: 0, 3: 0, 4: 0, 5: 1, 8: 2, 12: 0}
    ids = [[0, 1, 2], [0, 1, 3]]
    shorter = kv.Trace([12, 12], [0, 0], page_ids=ids, page_ids_size=4)
    decision = decide(shorter, MODEL, page_sizes=[3, 6], held_together=2)
    assert [cost.shared_lost_slots for cost in decision.sizes] == [0, 1]  # of 8 tokens


def test_tables_and_presets() -> None:
    trace = kv.Trace([8, 8], [0, 0], page_ids=[[0, 1], [0, 2]], page_ids_size=4)
    cost = decide(trace, MODEL, page_sizes=[4], metadata="vllm", held_together=2).cost(4)
    assert (cost.entries, cost.pages) == (2, Fraction(3, 2))
    assert cost.metadata_slots == (8 * cost.entries + 250 * cost.pages) / 100
    shape = page_costs.cache_shape("gpt-oss-20b")
    assert (shape.groups, shape.layers) == (2, 24)
    charges = page_costs.charges_of(structures_of("table"), shape, None)
    assert charges.entry_slots == Fraction(2 * 4, shape.bytes_per_token)
    objects = page_costs.charges_of(structures_of("vllm"), shape, None)
    assert objects.page_slots == Fraction(2 * 250, shape.bytes_per_token)
    known = load_structures()
    assert all(id in known for ids in PRESETS.values() for id in ids)
    assert [s.id for s in structures_of("vllm")] == list(PRESETS["vllm"])


@given(pairs, sizes_of)
def test_the_expectation_only_if_asked_for(rows: list[tuple[int, int]], sizes: list[int]) -> None:
    plain = decide(trace_of(rows), MODEL, page_sizes=sizes)
    asked = decide(trace_of(rows), MODEL, page_sizes=sizes, prefix="expected")
    assert plain.why_no_prefix == "the trace has no page ids"
    for one, other in zip(plain.sizes, asked.sizes, strict=True):
        assert one.shared_lost_slots is None
        assert other.shared_lost_slots == kv.expected_tail_slack(other.page_size)
        assert other.memory_slots == one.memory_slots + kv.expected_tail_slack(other.page_size)
    assert "an assumption" in asked.text()
    assert "Shared prefix lost to rounding: not measured" in plain.text()


# --------------------------------------------------------------------------- metadata
def test_structures_become_slots_by_entry_page_and_batch() -> None:
    shape = page_costs.cache_shape(LLAMA)
    table = page_costs.charges_of(structures_of("table"), shape, None)
    assert (table.entry_slots, table.page_slots) == (Fraction(4, 131072), 0)
    vllm = page_costs.charges_of(structures_of("vllm"), shape, None)
    assert (vllm.entry_slots, vllm.page_slots) == (Fraction(8, 131072), Fraction(250, 131072))
    batch = page_costs.charges_of(structures_of("torch"), shape, None, held_together=64)
    assert batch.page_slots == Fraction(16 * 64, 131072)
    for same_at_every_size in ("sglang", "none"):
        assert page_costs.charges_of(structures_of(same_at_every_size), shape, None).c_slots == 0
    assert page_costs.charges_of(structures_of(None), shape, None).c_slots == 0


# --------------------------------------------------------------------------- time
def record_of(**peers: MadePeer) -> Record:
    return replace(made_record("cuda", peers=peers or GPU_PEERS), file="made.json")


@pytest.fixture(scope="module")
def gpu() -> Record:
    return record_of()


@settings(max_examples=25)
@given(rows=pairs, sizes=sizes_of)
def test_terms_add_up(rows: list[tuple[int, int]], sizes: list[int], gpu: Record) -> None:
    decision = decide(trace_of(rows), LLAMA, page_sizes=sizes, record=gpu)
    tokens = decision.workload.mean_tokens
    assert tokens == Fraction(sum(steps_of(rows)), len(steps_of(rows)))
    for cost in decision.sizes:
        memory = sum(cost.term(t) for t in ("tail_slack_slots", "metadata_slots"))
        time = cost.term("read_slots") + cost.term("allocation_slots")
        assert cost.memory_slots == tokens + memory
        assert cost.time_slots == tokens + time
        assert cost.total_slots == tokens + sum(cost.term(t) for t in page_costs.TERMS)
        assert cost.read_slots == decision.charges.read_slots * cost.entries
    for answer in (decision.memory, decision.time, decision.answer):
        assert answer.low <= answer.best <= answer.high
    times = {cost.page_size: cost.time_slots for cost in decision.sizes}
    assert decision.time.cost_slots == min(t for t in times.values() if t is not None)
    assert decision.answer.cost_slots == min(cost.total_slots for cost in decision.sizes)
    assert set(decision.in_both or ()) == set(decision.memory.near) & set(decision.time.near)


def test_the_cost_of_reading_is_the_fit_of_the_record_for_models_of_its_heads(gpu: Record) -> None:
    read = page_costs.read_time(gpu, page_costs.cache_shape(LLAMA))
    fit = page_cost(gpu, gpu.main_case.id, "triton")
    assert (read.peer, read.case, read.on_gpu) == ("triton", gpu.main_case.id, True)
    assert float(read.c_slots) == fit.c_slots
    assert (float(read.c_low), float(read.c_high or 0)) == (fit.c_low, fit.c_high)
    assert read.slot_s == fit.a_s / gpu.main_case.tokens
    assert read.straight == fit.straight
    decision = decide("azure_conv_2023", LLAMA, record=gpu)
    assert decision.read == read
    assert decision.charges.c_slots == read.c_slots + Fraction(258, 131072)
    low, high = decision.read_interval or (None, None)
    assert low.best <= decision.answer.best <= high.best
    assert decide([5], "Llama-2-70B", record=gpu).read is not None
    assert decide([5], "Llama-2-7B", record=gpu).read is not None
    assert decide([5], "DeepSeek-V3/R1", record=gpu).read is not None
    other = decide([5], "Qwen2.5-7B", record=gpu)
    assert other.read is None
    assert "has no case of 4 K and V heads and 2048 bytes a token and layer" in other.why_no_read
    # As many bytes a layer in twice the heads are other heads.
    gemma = made_record("cuda", cases=[made_case(("Gemma-3", 32, 16, 128, 128, False), 8, 512)])
    assert decide([5], "Gemma-3-27B", record=gemma).read is not None
    assert decide([5], "Gemma-2-9B", record=gemma).read is None
    assert decide([5], kv.load_models()[LLAMA].with_dtype("fp8"), record=gpu).read is None
    for cost in other.sizes:
        assert cost.read_slots is cost.allocation_slots is cost.time_slots is None
        assert cost.total_slots == cost.memory_slots
    assert other.time is other.in_both is other.read_interval is None
    assert other.answer is other.memory


def test_a_cpu_record_a_cost_below_nothing_and_a_bent_line_are_said_to_be() -> None:
    cpu = made_record("cpu")
    decision = decide("azure_conv_2023", LLAMA, record=cpu)
    assert not decision.read.on_gpu
    assert "a CPU: it says nothing of a GPU" in decision.text()
    assert decision.read.peer == "flex_paged"  # one that gathers comes last
    named = decide("azure_conv_2023", LLAMA, record=cpu, peer="gather_sdpa")
    assert named.read.peer == "gather_sdpa"
    missing = decide("azure_conv_2023", LLAMA, record=cpu, peer="triton")
    assert missing.read is None
    assert "no sweep of triton over 3 page sizes or more" in missing.why_no_read
    free = record_of(triton=MadePeer(0.9, c_random=-0.05, own_contiguous=True))
    read = page_costs.read_time(free, page_costs.cache_shape(LLAMA))
    assert read.c_slots == read.c_low == 0
    bent = record_of()
    timings = tuple(
        replace(t, seconds=tuple(3 * s for s in t.seconds)) if t.page_size == 4 else t
        for t in bent.timings
    )
    decision = decide("azure_conv_2023", LLAMA, record=replace(bent, timings=timings))
    assert not decision.read.straight
    assert "the times do not lie on a line" in decision.text()


def test_an_allocations_time_is_the_slope_and_not_the_constant(gpu: Record) -> None:
    # Made as 40 ns a token and 60 ns a page given out.
    assert page_costs.allocation_seconds(gpu) == pytest.approx(60e-9, rel=0.05)
    decision = decide("azure_conv_2023", LLAMA, record=gpu)
    cost = decision.cost(16)
    read = decision.read
    assert cost.allocation_slots is not None
    assert float(cost.allocation_slots) == pytest.approx(
        (read.allocation_s / (32 * read.slot_s)) * float(cost.allocations_per_token or 0)
    )
    quiet = replace(gpu, host=())
    assert page_costs.allocation_seconds(quiet) is None
    silent = decide("azure_conv_2023", LLAMA, record=quiet)
    assert silent.cost(16).allocation_slots is None
    assert silent.cost(16).time_slots == silent.workload.mean_tokens + silent.cost(16).term(
        "read_slots"
    )


def test_time_alone_favours_large_pages_and_begins_by_the_rule(gpu: Record) -> None:
    decision = decide("mooncake_conversation", LLAMA, record=gpu)
    assert decision.time.best == max(default_page_sizes())
    assert decision.time.above is None
    assert decision.time.below.term == "read_slots"
    assert abs(decision.time.low - 100 * decision.charges.read_slots) <= 2
    decision = decide("azure_conv_2023", LLAMA, record=gpu)
    assert decision.read is not None
    open_ended = replace(decision, read=replace(decision.read, c_high=None))
    assert open_ended.read_interval[1] is None
    assert "to no end)" in open_ended.text()
    assert "and no end" in open_ended.text()
    low, high = decision.read_interval or (None, None)
    ends = f"{low.low} to {low.high} and {high.low} to {high.high}"
    assert f"at the ends of the measured interval: {ends}" in decision.text()
    # Two full layers of 8 heads and six windows of 4: 4 KiB and 2 KiB a token and layer.
    full = kv.LayerGroup(kind="full", layers=2, kv_heads=8, head_dim=128)
    window = kv.LayerGroup(kind="window", layers=6, kv_heads=4, head_dim=128, window=512)
    shape = page_costs.cache_shape(kv.Model("mixed", groups=(full, window)))
    assert (shape.bytes_per_token, shape.layers, shape.groups) == (2 * 4096 + 6 * 2048, 8, 2)
    assert (shape.kv_heads, shape.layer_bytes, shape.latent) == (None, None, False)
    decision = decide([100, 200], kv.Model("mixed", groups=(full, window)), record=gpu)
    assert decision.read is None
    assert decision.why_no_read.startswith("mixed has layers of different widths; a record times")


# --------------------------------------------------------------------------- every trace and model
@pytest.mark.slow
@pytest.mark.parametrize("name", kv.TRACE_NAMES)
def test_memory_alone_picks_tiny_pages_on_every_trace_and_model(name: str) -> None:
    workload = workload_of(name)
    for model in kv.load_models():
        decision = decide(workload, model)
        assert decision.memory.best < 32
        assert decision.memory.low == 1
        assert decision.memory.above.term == "tail_slack_slots"
        # 16 is near the best, and so is everything up to about a fiftieth of the mean length.
        assert 16 in decision.memory.near
        rule = 1 + workload.mean_tokens / 50
        assert Fraction(17, 20) < decision.memory.high / rule < Fraction(3, 2)


# --------------------------------------------------------------------------- showing
def test_the_default_page_sizes_hold_every_one_and_the_engines() -> None:
    sizes = default_page_sizes()
    assert set(range(1, 257)) <= set(sizes)
    assert {2**k for k in range(13)} <= set(sizes)
    assert {672, 784, 1536, 3584} <= set(sizes)
    assert list(sizes) == sorted(set(sizes))
    decision = decide("azure_conv_2023", LLAMA, kernel="vllm.flashinfer")
    assert [cost.page_size for cost in decision.sizes] == [16, 32, 64]
    assert "Tested are page sizes that vLLM: FlashInfer reads." in decision.text()
    gaps = decide([6] * 9, LLAMA, metadata=None, page_sizes=[1, 2, 3, 4, 5, 6])
    assert gaps.memory.near == (1, 2, 3, 6)
    assert "but for 2 of the page sizes between" in gaps.text()
    assert "4 is best, and no other is within 1% of it" in decide([5], LLAMA, page_sizes=[4]).text()
    decision = decide("azure_conv_2023", LLAMA)
    assert "not measured (there is no record from a GPU)" in decision.text()
    frame = decision.frame()
    for column in ("read_slots", "allocation_slots", "time_slots", "allocation_ns"):
        assert frame[column].isna().all()
    assert decision.as_dict()["answers"]["time"] is None
    # With pages that cost nothing, no length changes what is best.
    decision = decide([64], MODEL, metadata=None, page_sizes=[1, 2, 4])
    assert decision.memory.best == 4
    (smaller,) = decision.changes
    assert smaller.mean_tokens is None
    assert smaller.c_slots == 0
    assert "For 2 to be as good: if a page cost 0 slots" in decision.text()


def no_floats(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and no_floats(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(no_floats, value))
    return value is None or isinstance(value, int | str)


def test_a_decision_as_json_loses_nothing(gpu: Record) -> None:
    trace = kv.Trace([9, 9], [3, 3], page_ids=[[0, 1], [0, 2]], page_ids_size=8)
    for decision in (decide(trace, LLAMA, record=gpu), decide([5, 9, 17], LLAMA)):
        data = decision.as_dict()
        assert no_floats(data)
        again = json.loads(json.dumps(data))
        assert again == data
        for row, cost in zip(again["sizes"], decision.sizes, strict=True):
            assert Fraction(row["total_slots"]) == cost.total_slots
            for term in page_costs.TERMS:
                value = getattr(cost, term)
                assert (row[term] is None) == (value is None)
                assert value is None or Fraction(row[term]) == value
        assert again["answers"]["memory"]["near"] == list(decision.memory.near)
    assert (
        float(decide(trace, LLAMA, record=gpu).as_dict()["read"]["slot_s"])
        == page_costs.read_time(gpu, page_costs.cache_shape(LLAMA)).slot_s
    )


def test_a_frame_has_every_page_size_or_those_worth_showing(gpu: Record) -> None:
    decision = decide("azure_conv_2023", LLAMA, record=gpu)
    every, some = decision.frame(every=True), decision.frame()
    assert every["page_size"].tolist() == list(default_page_sizes())
    assert set(some["page_size"]) < set(every["page_size"])
    assert {1, 16, 672, 4096, decision.answer.low, decision.memory.high} <= set(some["page_size"])
    row = every.set_index("page_size").loc[16]
    cost = decision.cost(16)
    assert row["total_slots"] == cost.total_slots
    assert row["total_bytes"] == cost.total_slots * 131072
    assert row["kernels"] == len(kv.kernels_accepting(16))
    assert row["near"] is (16 in decision.answer.near)
    assert row["above_best"] == cost.total_slots / decision.answer.cost_slots - 1
    per_token = cost.allocations_per_token
    assert float(row["allocation_ns"]) == pytest.approx(
        1e9 * (page_costs.allocation_seconds(gpu) or 0) * float(per_token or 0)
    )


# --------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefix": "guess"}, "prefix is 'guess'; accepted: 'ids', 'expected', None"),
        ({"kernel": "mine"}, r"kernel is 'mine'; known are: vllm\.flash_attention"),
        ({"metadata": "mine"}, "metadata is 'mine'; known are: none, table, vllm"),
        ({"metadata": {"x": -1}}, r"metadata\['x'\] is -1; whole bytes a page, at least 0"),
        ({"metadata": ["x"]}, "metadata holds 'x'; a Structure is accepted"),
        ({"tolerance": -1}, "tolerance is -1; a share of at least 0"),
        ({"held_together": 0}, "held_together is 0; a whole number of requests, at least 1"),
        ({"page_sizes": []}, "page_sizes is empty"),
        ({"page_sizes": [0]}, "page_size is 0"),
        ({"page_sizes": [1, 2], "kernel": "vllm.flashmla"}, "vLLM: FlashMLA reads 64"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    refused(message, decide, [5, 9, 17], LLAMA, **changes)


def test_bad_traces_and_models_are_named() -> None:
    refused("model is 'mine'; known are", decide, [5], "mine")
    refused(r"lengths\[1\] is 0", decide, [5, 0], LLAMA)
    refused("no such file and no such trace", decide, "mine", LLAMA)
    refused("the longest request has 16777217 tokens", decide, kv.Trace([1 << 24], [1]), LLAMA)
    with pytest.raises(kv.LedgerError, match="no request shrinks"):
        decide(kv.LengthMarginals("x", as_lengths([9]), as_lengths([5])), LLAMA)
    decision = decide([5], LLAMA, page_sizes=[1, 4])
    refused("page size 3 was not tested; tested are 2 from 1 to 4", decision.cost, 3)
    refused("page size 3 was not tested", decision.needs, 3)
