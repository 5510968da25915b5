"""The measuring command: fair cases, checks that catch a wrong peer, and whole records or none."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import ROOT, refused, refused_input
from hypothesis import given
from hypothesis import strategies as st

from kvledger import cli
from kvledger.core.errors import LedgerError
from kvledger.measure import __main__ as command
from kvledger.measure import host_work, machine, measurement, sweeps
from kvledger.measure.decode_step import (
    TOLERANCE,
    DecodeInputs,
    SlotPool,
    check_decode,
    checked_error,
    paged_decode_reference,
    poisoned,
    pool_bytes,
    short_lengths,
)
from kvledger.measure.library_peers import PEERS
from kvledger.measure.machine import DoesNotFitError, Stopwatch, Timed, run_rounds
from kvledger.measure.measurement import Measurement, take_record
from kvledger.measure.peers import Peer
from kvledger.measure.record import CaseShape, Record, read_record, write_record

Patch = pytest.MonkeyPatch
CPU = torch.device("cpu")
SMALL = sweeps.ModelHeads("Small-1", 4, 2, 16, 16)
SMALL_LATENT = sweeps.ModelHeads("Small-latent", 4, 1, 24, 16, latent=True)
H200_CACHE_BYTES = 50 * 2**20
H200_BYTES = 141 * 10**9

lengths_strategy = st.lists(st.integers(1, 300), min_size=1, max_size=9)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small tensors, beside other tests: more threads would wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fixed(heads: sweeps.ModelHeads, batch: int, context_tokens: int, dtype: str) -> CaseShape:
    return sweeps.case_of(heads, [context_tokens] * batch, dtype)


def small_sweeps() -> tuple[sweeps.Sweep, ...]:
    return (
        sweeps.Sweep(fixed(SMALL, 2, 256, "float32"), (16, 4), ("random", "in_order")),
        sweeps.Sweep(
            sweeps.case_of(SMALL_LATENT, (5, 300, 77), "float32", "azure_conv_2023"), (16,)
        ),
        sweeps.Sweep(sweeps.case_of(SMALL, (300,), "bfloat16"), (4,)),
    )


@pytest.fixture
def tiny(monkeypatch: Patch) -> None:
    """Runs on small cases."""
    use(monkeypatch, small_sweeps())
    monkeypatch.setattr(measurement, "CACHE_MULTIPLE", 0)
    monkeypatch.setattr(measurement, "_COPY_BYTES", {"cpu": 2**16})


def use(monkeypatch: Patch, planned: Sequence[sweeps.Sweep]) -> None:
    monkeypatch.setattr(measurement, "cpu_sweeps", lambda *a, **k: planned)


TORCH = ("sdpa", "gather_sdpa")
take_small = partial(take_record, "cpu", quick=True, page_sizes=(4, 16), peers=TORCH)


# --------------------------------------------------------------------------- cases
@given(
    lengths_strategy, st.sampled_from(sweeps.PAGE_SIZES), st.sampled_from(["in_order", "random"])
)
def test_a_table_uses_every_page_once(lengths: list[int], page_size: int, layout: str) -> None:
    placement = sweeps.Placement(
        sweeps.case_of(SMALL, lengths, "float16", "trace"), layout, page_size
    )
    table = placement.table(np.random.default_rng(1))
    assert table.dtype == np.int32
    assert table.shape == (len(lengths), placement.sizes.max_pages)
    used = [int(p) for row, n in zip(table, placement.counts, strict=True) for p in row[:n]]
    assert sorted(used) == list(range(placement.sizes.pages))
    if layout == "in_order":
        assert used == sorted(used)
    elif len(used) > 99:
        assert (np.diff(used) == 1).sum() < 12  # neighbours no more often than chance has it
    assert placement.sizes.pages == sum(-(-length // page_size) for length in lengths)
    assert placement.slots >= sum(lengths) > placement.slots - page_size * len(lengths)


@pytest.mark.parametrize("heads", [sweeps.LLAMA_3_1_8B, sweeps.LLAMA_2_7B, sweeps.DEEPSEEK_V2_LITE])
def test_moved_bytes_by_hand(heads: sweeps.ModelHeads) -> None:
    case = fixed(heads, 64, 8192, "bfloat16")
    per_token = {"Llama-3.1-8B": 4096, "Llama-2-7B": 16384, "DeepSeek-V2-Lite": 1152}[heads.shape]
    assert case.kv_bytes == 64 * 8192 * per_token
    ends = 64 * heads.q_heads * (heads.head_dim + heads.value_dim) * 2
    assert sweeps.contiguous(case).moved_bytes == case.kv_bytes + ends + 64 * 4
    assert sweeps.Placement(case, "random", 16).moved_bytes == case.kv_bytes + ends + 64 * 512 * 4


@given(st.integers(1, 9), st.integers(1, 8))
def test_every_page_size_moves_the_same_bytes_but_for_the_table(batch: int, steps: int) -> None:
    case = fixed(sweeps.LLAMA_3_1_8B, batch, steps * 256, "float16")
    plain = sweeps.contiguous(case)
    for size in sweeps.PAGE_SIZES:
        placement = sweeps.Placement(case, "random", size)
        assert placement.slots == case.tokens == plain.slots
        assert placement.moved_bytes - (4 * (placement.sizes.pages - batch)) == plain.moved_bytes


def test_running_requests_are_drawn_by_length(tmp_path: Path, monkeypatch: Patch) -> None:
    """Requests of 1 output token and of 9: the latter are met nine times as often, anywhere."""
    path = tmp_path / "two.requests.csv"
    rows = ["0,10,1", "0,1000,9", "0,77777,0"] * 20_000
    path.write_text("\n".join(["arrival_ms,prompt_tokens,output_tokens", *rows]))
    monkeypatch.setattr(sweeps, "data_file", lambda name: path)
    held = Counter(sweeps.running_lengths("two", 2000, seed=1))
    assert set(held) == {11, *range(1001, 1010)}
    spread = np.sqrt(2000 * 0.1 * 0.9)
    for tokens in held:  # each of the ten: one in ten
        assert abs(held[tokens] - 200) < 4 * spread


def test_a_batch_that_a_trace_does_not_have_is_named() -> None:
    with pytest.raises(LedgerError, match=r"a batch of azure_conv_2023 is 99999; accepted: 1 to"):
        sweeps.running_lengths("azure_conv_2023", 99999)
    refused_input(r"no data file 'traces/x\.requests\.csv'", sweeps.running_lengths, "x", 1)


# --------------------------------------------------------------------------- what is planned
def test_a_gpu_run_covers_what_it_should() -> None:
    planned = sweeps.gpu_sweeps(sweeps.PAGE_SIZES, quick=False, seed=0)
    of_one_length = [sweep.case for sweep in planned if sweep.case.trace is None]
    assert planned[0].case.id == "llama-3.1-8b.b64.c8192"
    assert {p.page_size for p in planned[0].placements()} == {8192, *sweeps.PAGE_SIZES}
    assert Counter(p.layout for p in planned[0].placements()) == {
        "contiguous": 1, "random": 9, "in_order": 9
    }  # fmt: skip
    assert {case.batch for case in of_one_length} >= {1, 2, 4, 8, 16, 32, 64, 128}
    contexts = {1024 << n for n in range(8) if n != 1}
    assert {case.context_tokens for case in of_one_length} >= contexts
    shapes = {"Llama-3.1-8B", "Llama-2-7B", "DeepSeek-V2-Lite"}
    assert {sweep.case.shape for sweep in planned} == shapes
    assert {sweep.case.trace for sweep in planned} > {"azure_conv_2023"}
    assert len({sweep.case.id for sweep in planned}) == len(planned)
    for sweep in planned:
        assert sweep.case.kv_bytes >= sweeps.CACHE_MULTIPLE * H200_CACHE_BYTES
        assert pool_bytes(sweep.placements()) < H200_BYTES / 4


@pytest.mark.parametrize("least", [2**25, 2**31])
def test_a_cpu_run_works_on_several_times_the_cache(least: int) -> None:
    planned = sweeps.cpu_sweeps(sweeps.PAGE_SIZES, quick=False, seed=0, least_bytes=least)
    assert all(sweep.case.kv_bytes >= least for sweep in planned)
    assert len({sweep.case.id for sweep in planned}) == len(planned)
    assert planned[0].case.shape == sweeps.LLAMA_3_1_8B.shape


@pytest.mark.parametrize("sizes", [(16,), (2, 8), sweeps.PAGE_SIZES])
def test_only_the_page_sizes_asked_for_are_planned(sizes: tuple[int, ...]) -> None:
    for quick in (False, True):
        for sweep in sweeps.gpu_sweeps(sizes, quick=quick, seed=0):
            assert set(sweep.page_sizes) <= set(sizes)
            assert sweep.page_sizes
            assert len(set(sweep.page_sizes)) == len(sweep.page_sizes)


@pytest.mark.parametrize("sizes", [(0,), (-1,), (48,), (512,), (16, 3)])
def test_page_sizes_that_leave_pages_part_full_are_refused(sizes: tuple[int, ...]) -> None:
    refused(r"a page size is -?\d+; accepted: powers of 2 from 1", sweeps.check_page_sizes, sizes)


# --------------------------------------------------------------------------- pools
@pytest.mark.parametrize("heads", [SMALL, SMALL_LATENT])
@pytest.mark.parametrize("lengths", [(256, 256), (5, 300, 77, 1)])
def test_placements_are_views_of_one_pool(
    heads: sweeps.ModelHeads, lengths: tuple[int, ...]
) -> None:
    case = sweeps.case_of(heads, lengths, "bfloat16", "trace")
    placements = sweeps.Sweep(case, (1, 16, 256), ("random", "in_order")).placements()
    pool = SlotPool(placements, CPU, seed=3)
    rng = np.random.default_rng(0)
    for placement in placements:
        inputs = pool.inputs(placement, rng)
        assert check_decode(inputs) == placement.sizes
        assert inputs.k_pages.data_ptr() == pool.k.data_ptr()
    held = pool.k.nbytes + (0 if pool.v is None else pool.v.nbytes)
    tables = sum(pool.inputs(each, rng).page_table.nbytes for each in placements)
    assert pool_bytes(placements) == held + tables
    assert not torch.equal(pool.k[:8], SlotPool(placements, CPU, seed=4).k[:8])


def test_in_order_pages_hold_what_contiguous_tokens_do() -> None:
    """One batch, each page size: the same tokens, so the same output."""
    case = fixed(SMALL, 3, 256, "float32")
    pool = SlotPool([sweeps.contiguous(case)], CPU, seed=0)
    rng = np.random.default_rng(0)
    plain = paged_decode_reference(pool.inputs(sweeps.contiguous(case), rng))
    for size in sweeps.PAGE_SIZES:
        paged = paged_decode_reference(pool.inputs(sweeps.Placement(case, "in_order", size), rng))
        torch.testing.assert_close(paged, plain)


# --------------------------------------------------------------------------- checking
def inputs_of(dtype: str, page_size: int, lengths: list[int], seed: int = 0) -> DecodeInputs:
    placement = sweeps.Placement(
        fixed(sweeps.LLAMA_3_1_8B, len(lengths), 512, dtype), "random", page_size
    )
    pool = SlotPool([placement], CPU, seed)
    return pool.inputs(placement, np.random.default_rng(seed)).shortened(lengths)


SHORT = short_lengths(fixed(sweeps.LLAMA_3_1_8B, 5, 512, "float32"))


def error_of(out: torch.Tensor, inputs: DecodeInputs, dtype: str = "float32") -> float:
    everyone = list(range(len(inputs.q)))
    return checked_error(out, everyone, paged_decode_reference(inputs), dtype, "it")


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_roundings_of_a_data_type_are_within_its_tolerance(dtype: str) -> None:
    """Scores, weights and output rounded to the data type, each as a peer may."""
    kind = getattr(torch, dtype)
    inputs = inputs_of(dtype, 16, SHORT)

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(kind).to(torch.float64)

    out = []
    for request, length in enumerate(inputs.lengths.tolist()):
        t = torch.arange(length)
        pages, slots = inputs.page_table[request, t // 16], t % 16
        k, v = (x[pages, slots].double().repeat_interleave(4, 1) for x in inputs[1:3])
        q = rounded(inputs.q[request].double() * 128**-0.25)
        scores = rounded(torch.einsum("hd,thd->ht", q, rounded(k * 128**-0.25)))
        out.append(torch.einsum("ht,thd->hd", rounded(scores.softmax(-1)), v).to(kind))
    assert 0 < error_of(torch.stack(out), inputs, dtype) <= TOLERANCE[dtype]


def wrong_page(inputs: DecodeInputs) -> DecodeInputs:
    table = inputs.page_table.clone()
    entry = (299 // inputs.k_pages.shape[1]) // 2
    table[0, entry] = table[1, entry]
    return inputs._replace(page_table=table)


def one_token_less(inputs: DecodeInputs) -> DecodeInputs:
    return inputs._replace(lengths=torch.clamp(inputs.lengths - 1, min=1))


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("page_size", [1, 16, 256])
@pytest.mark.parametrize(
    "change",
    [
        wrong_page,
        one_token_less,
        lambda inputs: inputs._replace(lengths=inputs.lengths + 1),
        lambda inputs: inputs._replace(k_pages=inputs.k_pages.roll(1, 2)),  # other heads
    ],
)
def test_one_wrong_token_is_beyond_the_tolerance(
    dtype: str, page_size: int, change: Callable[[DecodeInputs], DecodeInputs]
) -> None:
    inputs = inputs_of(dtype, page_size, SHORT)
    out = paged_decode_reference(change(inputs), torch.float32)
    refused(rf"it: the output is .* away .* in {dtype}", error_of, out, inputs, dtype)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.zeros(2, 32, 64), r"shape \[2, 32, 64\]; accepted: \[batch, 32, 128\]"),
        (torch.zeros(1, 32, 128), r"shape \[1, 32, 128\]"),
        (torch.zeros(2, 32, 1, 128), r"shape \[2, 32, 1, 128\]"),
        (torch.full((2, 32, 128), float("inf")), "values that are not finite"),
    ],
)
def test_an_output_that_is_none_is_refused(out: torch.Tensor, message: str) -> None:
    refused(message, error_of, out, inputs_of("float32", 16, [300, 33]))


def test_an_output_that_is_not_written_is_seen() -> None:
    kept, count = torch.zeros(2), Counter[str]()

    def first_time_only() -> torch.Tensor:
        if not count["calls"]:
            kept.fill_(1.0)
        count["calls"] += 1
        return kept

    assert poisoned(first_time_only).isnan().all()
    assert count["calls"] == 2


# --------------------------------------------------------------------------- timing
class Scripted(Stopwatch):
    """A stopwatch on a clock of its own: each call takes what the script says."""

    def __init__(self, monkeypatch: Patch, **takes: float) -> None:
        super().__init__(CPU)
        self.takes, self.now, self.order = takes, 100.0, list[str]()
        monkeypatch.setattr(machine.time, "monotonic", lambda: self.now)
        self.timed = [Timed(name, lambda: None, "host") for name in takes]
        for each in self.timed:
            self.pilot(each)
        self.order.clear()

    def seconds(self, timed: Timed) -> float:
        self.order.append(timed.name)
        self.now += self.takes[timed.name] * timed.calls
        return self.takes[timed.name]

    def rounds(self, time_s: float) -> list[Timed]:
        options: dict[str, Any] = {"repetitions": 11, "least": 5, "rng": np.random.default_rng(0)}
        return run_rounds(self.timed, self, deadline=self.now + time_s, **options)


def test_every_round_has_each_call_once_in_a_new_order(monkeypatch: Patch) -> None:
    watch = Scripted(monkeypatch, a=0.01, b=0.02, c=0.03, d=0.04)
    assert watch.rounds(1e9) == watch.timed
    assert [len(each.seconds) for each in watch.timed] == [11] * 4
    orders = [tuple(watch.order[i : i + 4]) for i in range(0, 44, 4)]
    assert all(sorted(order) == list("abcd") for order in orders)
    assert len(set(orders)) > 3


@pytest.mark.parametrize(("time_s", "done"), [(15.0, [7, 7]), (10.0, [5, 5]), (9.0, [9, 0])])
def test_rounds_stop_in_time_but_not_below_the_fewest(
    monkeypatch: Patch, time_s: float, done: list[int]
) -> None:
    """An eighth round would end after 16 s; the last are left out where five do not fit."""
    watch = Scripted(monkeypatch, a=1.0, b=1.0)
    kept = watch.rounds(time_s)
    assert [len(each.seconds) for each in watch.timed] == done
    assert kept == [each for each in watch.timed if each.seconds]


def test_short_calls_are_repeated_and_host_seconds_are_those_of_one(monkeypatch: Patch) -> None:
    watch = Scripted(monkeypatch, long=1.0, short=1e-3, shorter=1e-9)
    assert [each.calls for each in watch.timed] == [1, 5, 200]
    with pytest.raises(DoesNotFitError, match="5 repetitions of long do not fit into the time"):
        watch.rounds(4.0)
    now = iter([10.0, 16.0])
    calls = Counter[str]()
    timed = Timed("it", lambda: calls.update(["it"]), "host", calls=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine.time, "perf_counter", lambda: next(now))
        assert Stopwatch(CPU).seconds(timed) == 2.0
    assert calls["it"] == 3


def test_device_seconds_are_between_events(monkeypatch: Patch) -> None:
    """Against a stand-in for the device: what is queued, and in which order."""
    device = Mock()
    device.Event.return_value.elapsed_time.return_value = 12.0  # milliseconds
    for name in ("Event", "synchronize", "_sleep"):
        monkeypatch.setattr(torch.cuda, name, getattr(device, name))
    timed = Timed("it", device.call, "events", calls=3)
    assert Stopwatch(torch.device("cuda")).seconds(timed) == pytest.approx(0.004)
    done = [name.split(".")[-1].strip("()") for name, *_ in device.mock_calls]
    warm_up = ["synchronize", "call", "synchronize", "Event", "Event", "_sleep"]
    end = ["record", "synchronize", "elapsed_time"]
    assert done == [*warm_up, "record", "call", "call", "call", *end]


# --------------------------------------------------------------------------- the host's work
@given(lengths_strategy, st.sampled_from([1, 2, 16, 64]), st.integers(1, 80))
def test_pages_are_given_out_where_pages_end_and_kept_in_a_table(
    lengths: list[int], page_size: int, steps: int
) -> None:
    grown, listed = (host_work.running(lengths, page_size, steps, seed=5) for _ in range(2))
    before, after = (
        [-(-(length + more) // page_size) for length in lengths] for more in (0, steps)
    )
    assert host_work.allocate_pages(listed, page_size, steps) == sum(after) - sum(before)
    assert listed.held_tokens == [length + steps for length in lengths]
    assert [len(ids) for ids in listed.page_ids] == after
    assert sorted(page for ids in listed.page_ids for page in ids) == list(range(sum(after)))
    assert not listed.free
    assert host_work.extend_page_table(grown, page_size, steps) == sum(after) - sum(before)
    np.testing.assert_array_equal(grown.table, host_work.build_page_table(listed.page_ids))
    assert grown.in_table.tolist() == after


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.integers(1, 9))
def test_keys_are_chained_over_complete_pages(tokens: list[int], page_size: int) -> None:
    chains, packed_chains = [bytes(32)], [bytes(32)]
    for page in range(len(tokens) // page_size):
        ids = tokens[page * page_size : (page + 1) * page_size]
        whole = pickle.dumps((chains[-1], tuple(ids), None), 5)
        packed = packed_chains[-1] + b"".join(i.to_bytes(4, sys.byteorder) for i in ids)
        chains.append(hashlib.sha256(whole).digest())
        packed_chains.append(hashlib.sha256(packed).digest())
    assert host_work.hash_pages(tokens, page_size) == chains[1:]
    assert host_work.hash_pages_packed(tokens, page_size) == packed_chains[1:]


def test_host_work_counts_what_it_did_and_stops_in_time() -> None:
    lengths, steps, prompt = (5, 300, 77), 32, 100
    timed = partial(host_work.measure_host, steps=steps, prompt_tokens=prompt, repetitions=6)
    assert {len(w.seconds) for w in timed((16,), (5,), least=3, deadline=0.0)} == {3}
    found = timed((4, 16), lengths, deadline=1e18)
    assert Counter(work.page_size for work in found) == {4: 5, 16: 5}
    by = {(work.what, work.page_size): work for work in found}
    assert all(len(work.seconds) == 6 and min(work.seconds) > 0 for work in found)
    for size in (4, 16):
        held = sum(-(-n // size) for n in lengths)
        grown = sum(-(-(n + steps) // size) for n in lengths) - held
        assert by["build_page_table", size].units == held
        assert by["build_page_table", size].tokens == sum(lengths)
        for what in ("allocate_pages", "extend_page_table"):
            assert (by[what, size].units, by[what, size].tokens) == (grown, 3 * steps)
        for what in ("hash_pages", "hash_pages_packed"):
            assert (by[what, size].units, by[what, size].tokens) == (prompt // size, prompt)


# --------------------------------------------------------------------------- the machine
def test_the_largest_cache_is_read_and_a_containers_limit_counts(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    for index, size in enumerate(["32K", "1024K", "36M", "512"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert machine.cpu_cache_bytes(tmp_path) == 36 * 2**20
    refused("no cache sizes; accepted: Linux", machine.cpu_cache_bytes, tmp_path / "none")
    monkeypatch.setattr(machine, "_CGROUP_FOLDER", tmp_path)
    assert machine.free_bytes(CPU) > 0
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 50000\n")
    assert machine.free_bytes(CPU) == 150_000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_bytes(CPU) > 150_000


def test_the_driver_is_read(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "version")
    for words in ("x86_64 Kernel Module", "Open Kernel Module for x86_64"):
        text = f"NVRM version: NVIDIA UNIX {words}  570.86.15  Thu Jan 23 2025\nGCC 11.4.0\n"
        (tmp_path / "version").write_text(text)
        assert machine._driver() == "570.86.15"
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine._driver() is None
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 1.2.3\necho 1.2.3\n")
    tool.chmod(0o755)
    assert machine._driver() == "1.2.3"


def test_no_gpu_and_no_torch_are_said(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.pick_device(None).type == "cpu"
    refused("device cuda: torch finds no GPU; accepted: cpu", machine.pick_device, "cuda")
    refused("a device is 'tpu'; accepted: cpu, cuda", machine.pick_device, "tpu")
    monkeypatch.setitem(sys.modules, "torch", None)
    refused("accepted: an environment with torch", machine.pick_device, None)


# --------------------------------------------------------------------------- runs
@pytest.mark.usefixtures("tiny")
def test_a_small_run_is_a_whole_record(tmp_path: Path) -> None:
    asked = ("triton", *TORCH)
    record = take_small(peers=asked, command="here")
    write_record(record, tmp_path / "a.json")
    record = read_record(tmp_path / "a.json")
    assert [case.id for case in record.cases] == [
        "small-1.b2.c256", "small-latent.b3.azure_conv_2023", "small-1.b1.c300"
    ]  # fmt: skip
    assert Counter((t.case.split(".")[0], t.peer, t.layout) for t in record.timings) == {
        ("small-1", "sdpa", "contiguous"): 2,
        ("small-1", "gather_sdpa", "random"): 3,
        ("small-1", "gather_sdpa", "in_order"): 2,
        ("small-latent", "sdpa", "contiguous"): 1,
        ("small-latent", "gather_sdpa", "random"): 1,
    }
    assert all(len(t.seconds) == 5 for t in record.timings)
    assert all(t.timed_by == "host" for t in record.timings)
    assert all(t.relative_error <= TOLERANCE["bfloat16"] for t in record.timings)
    assert len(record.copy.seconds) == 5
    assert {work.what for work in record.host} == {
        "build_page_table", "extend_page_table", "allocate_pages", "hash_pages",
        "hash_pages_packed",
    }  # fmt: skip
    reasons = {(a.peer, a.case, a.page_size): a.reason for a in record.absent}
    assert "GPU" in reasons.pop(("triton", None, None))
    unasked = [(peer.name, None, None) for peer in PEERS if peer.name not in asked]
    assert reasons == dict.fromkeys(unasked, "not asked for")
    assert record.cases[1].lengths == (5, 300, 77)
    assert record.device.kind == "cpu"
    assert record.software["torch"] == torch.__version__
    lines = list(command.summary(record))
    assert len(lines) == 2 + 2 + 1 + 2 * 2
    assert "small-1.b2.c256" in lines[1]


class Made(Peer):
    """A peer made up here."""

    name = "made"

    def __init__(self, step: Callable[[DecodeInputs], torch.Tensor] | None = None) -> None:
        self.step = step or (lambda inputs: right(inputs))

    def absent(self, device: torch.device | str) -> str | None:
        return None

    def _prepare(self, shape: Any, inputs: DecodeInputs) -> Callable[[], torch.Tensor]:
        return lambda: self.step(inputs)


def right(inputs: DecodeInputs) -> torch.Tensor:
    return paged_decode_reference(inputs, inputs.q.dtype)


@pytest.fixture
def record_of(tiny: None, monkeypatch: Patch) -> Callable[..., Record]:
    """Take a record of one peer on the first small sweep, or on another."""

    def take(peer: Peer, sweep: sweeps.Sweep | None = None) -> Record:
        monkeypatch.setattr(measurement, "PEERS", (peer,))
        use(monkeypatch, [sweep or small_sweeps()[0]])
        return take_small(peers=None)

    return take


def full_length_wrong(inputs: DecodeInputs) -> torch.Tensor:
    """Right on what is cut short; wrong on the tensors that are timed."""
    out = right(inputs)
    return out if inputs.lengths.min() < 256 else out * 1.001


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            lambda inputs: right(one_token_less(inputs)),
            "pages of 16 random, cut short: the output is",
        ),
        (full_length_wrong, "pages of 16 random: the output is 0.001 away"),
        (lambda inputs: right(inputs) * float("nan"), "not finite"),
        (lambda inputs: right(inputs)[:, :2], "the output has shape"),
    ],
)
def test_a_wrong_peer_stops_the_run(
    record_of: Callable[..., Record],
    monkeypatch: Patch,
    step: Callable[[DecodeInputs], torch.Tensor],
    message: str,
) -> None:
    timed: list[Timed] = []
    monkeypatch.setattr(measurement, "run_rounds", lambda *a, **k: timed.extend(a[0]))
    refused(message, record_of, Made(step))
    assert timed == []


class Choosy(Made):
    def refuses(self, shape: Any, device: Any) -> str | None:
        return "takes no pages of 4" if shape.page_size == 4 else None

    def extra_bytes(self, shape: Any) -> int:
        return 2**60 * (shape.page_size == 16)


def test_what_a_peer_refuses_is_recorded_once_a_size(record_of: Callable[..., Record]) -> None:
    record = record_of(Choosy(), dataclasses.replace(small_sweeps()[0], page_sizes=(16, 4, 1)))
    assert {t.page_size for t in record.timings} == {1}
    assert [(a.case, a.page_size) for a in record.absent] == [
        ("small-1.b2.c256", 16), ("small-1.b2.c256", 4)
    ]  # fmt: skip
    assert record.absent[0].reason.startswith("needs 1073741824.")
    assert record.absent[1].reason == "takes no pages of 4"


class EqualOnly(Made):
    def refuses(self, shape: Any, device: Any) -> str | None:
        return "takes requests of one length" if shape.ragged else None


def test_a_peer_for_equal_lengths_is_checked_so(record_of: Callable[..., Record]) -> None:
    seen: list[list[int]] = []

    def watching(inputs: DecodeInputs) -> torch.Tensor:
        seen.append(inputs.lengths.tolist())
        return right(inputs)

    record_of(EqualOnly(watching), sweeps.Sweep(fixed(SMALL, 2, 512, "float32"), (16,)))
    assert {tuple(lengths) for lengths in seen} == {(512, 512), (300, 300)}


@pytest.mark.usefixtures("tiny")
def test_a_run_without_time_says_so() -> None:
    with pytest.raises(DoesNotFitError, match="left out: the time limit; accepted: a longer"):
        take_small(limit_s=1e-9)


@pytest.mark.usefixtures("tiny")
def test_cases_that_do_not_fit_into_the_time_are_recorded(monkeypatch: Patch) -> None:
    def late(self: Any, sweep: sweeps.Sweep, deadline: float, extra: Any = ()) -> None:
        if sweep.case.id != "small-1.b2.c256":
            raise DoesNotFitError(f"{sweep.case.id}: no time; accepted: more")
        real(self, sweep, deadline, extra)

    real = measurement.Measurement.sweep
    monkeypatch.setattr(measurement.Measurement, "sweep", late)
    record = take_small()
    assert [case.id for case in record.cases] == ["small-1.b2.c256"]
    left_out = {(a.case, a.reason) for a in record.absent if a.reason != "not asked for"}
    late_ones = ("small-latent.b3.azure_conv_2023", "small-1.b1.c300")
    assert left_out == {(case, "no time") for case in late_ones}


#: A run of one peer that is right.
MADE = partial(Measurement, CPU, [Made()], least_bytes=1, repetitions=5)


def test_a_pool_that_takes_too_long_to_fill_is_not_begun(monkeypatch: Patch) -> None:
    made = MADE()
    made._filling_s_per_byte = 1.0
    monkeypatch.setattr(measurement, "SlotPool", None)
    with pytest.raises(DoesNotFitError) as refused:
        made.sweep(small_sweeps()[0], measurement.time.monotonic() + 60)
    assert refused.value.reason == "small-1.b2.c256: left out: the time limit"


def test_a_peer_that_would_take_too_long_to_prepare_is_left_out() -> None:
    """Guessed from its last time, for as many bytes or more."""
    made = MADE()
    sweep = small_sweeps()[0]
    made._preparing = {("made", True): (20.0, sweep.case.kv_bytes // 4)}
    with pytest.raises(DoesNotFitError):
        made.sweep(sweep, measurement.time.monotonic() + 60)
    assert {(a.page_size, a.reason) for a in made.absent} == {
        (size, "left out: the time limit") for size in (4, 16)
    }
    made._preparing = {("made", True): (20.0, sweep.case.kv_bytes)}
    made.sweep(sweep, measurement.time.monotonic() + 60)
    assert len(made.timings) == 4


def test_the_sets_fit_the_cache_and_the_memory(monkeypatch: Patch) -> None:
    with pytest.raises(
        DoesNotFitError, match=r"has 0 MiB of K and V; accepted: at least 1 MiB, of"
    ):
        MADE(least_bytes=2**20).sweep(small_sweeps()[0], 1e18)
    about = dataclasses.replace(machine.describe(CPU), last_level_cache_bytes=2**30)
    monkeypatch.setattr(measurement, "free_bytes", lambda device: 16 * 2**30)
    least, notes = measurement._least_bytes(about, CPU)
    assert least == 2 * 2**30
    assert "2.0 times the last-level cache" in notes[0]
    monkeypatch.setattr(measurement, "free_bytes", lambda device: 64 * 2**30)
    assert measurement._least_bytes(about, CPU) == (4 * 2**30, [])
    monkeypatch.setattr(measurement, "free_bytes", lambda device: 2**20)
    monkeypatch.setattr(measurement, "SlotPool", None)
    with pytest.raises(LedgerError, match=r"working set of small-1.b2.c256 needs .* are free"):
        MADE().sweep(small_sweeps()[0], 1e18)


# --------------------------------------------------------------------------- the command
#: What `python -m kvledger.measure` must do without.
BLOCKED = ("numba", "joblib", "tqdm", "matplotlib", "msgspec", "typer", "pyarrow", "yaml", "sphinx")
ARGUMENTS = ["--device", "cpu", "--quick", "--peers", "sdpa,gather_sdpa"]


Said = pytest.CaptureFixture[str]


@pytest.fixture
def records_at(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("KVLEDGER_MEASUREMENTS", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("tiny")
def test_the_command_writes_a_record(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "mine.json"
    assert command.main([*ARGUMENTS, "--out", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"wrote {path}\n")
    record = read_record(path)
    assert record.quick
    assert record.command == (
        "python -m kvledger.measure --quick --device cpu --peers sdpa,gather_sdpa"
    )
    assert command.main([*ARGUMENTS, "--out", str(path)]) == 2
    assert "is there already; accepted" in capsys.readouterr().err
    assert read_record(path) == record


@pytest.mark.usefixtures("tiny")
def test_the_default_name_has_the_day_and_the_device(records_at: Path, capsys: Said) -> None:
    assert cli.main(["measure", *ARGUMENTS]) == 0
    assert capsys.readouterr().out.startswith("wrote ")
    (path,) = records_at.iterdir()
    assert re.fullmatch(rf"{read_record(path).date[:10]}-[a-z0-9-]+-quick\.json", path.name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--page-sizes", "16,x"], "page sizes are '16,x'; accepted: whole numbers"),
        (["--page-sizes", "3"], "a page size is 3; accepted: powers of 2 from 1 to 256"),
        (["--device", "gpu"], "a device is 'gpu'; accepted: cpu, cuda"),
        (["--seed", "-1"], "a seed is -1; accepted: a whole number from 0"),
        (["--time-limit", "0"], "a time limit is 0.0 s; accepted: a number above 0"),
        (["--time-limit", "nan"], "a time limit is nan s; accepted: a number above 0"),
        (["--peers", "flash,x", "--device", "cpu"], "a peer is 'flash'; accepted: triton, sdpa"),
        (["--out", "/nowhere/x.json"], "cannot be written"),
    ],
)
def test_bad_arguments_are_one_line_and_no_measurement(
    arguments: list[str], message: str, monkeypatch: Patch, records_at: Path, capsys: Said
) -> None:
    monkeypatch.setattr(measurement.Measurement, "sweep", None)
    for program, run, words in (("measure", command.main, []), ("kvledger", cli.main, ["measure"])):
        assert run([*words, *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(rf"{program}: .*{re.escape(message)}.*\n", err)
    assert list(records_at.iterdir()) == []


@pytest.mark.usefixtures("tiny")
def test_json_is_the_record_that_was_written(records_at: Path, capsys: Said) -> None:
    assert command.main([*ARGUMENTS, "--json"]) == 0
    (written,) = records_at.iterdir()
    assert capsys.readouterr().out == written.read_text(encoding="utf-8")  # no line beside it


@pytest.mark.usefixtures("tiny")
def test_a_run_that_fails_or_is_interrupted_leaves_no_record(
    records_at: Path, monkeypatch: Patch, capsys: Said
) -> None:
    interrupted = Mock(side_effect=KeyboardInterrupt)
    for place, stand_in, message in (
        ("kvledger.measure.measurement.run_rounds", interrupted, "interrupted after"),
        ("pathlib.Path.replace", interrupted, "interrupted after"),  # while the file is written
        (
            "kvledger.measure.measurement.run_rounds",
            lambda timed, *_, **__: list(timed)[:1],  # time for the copy alone
            "no time for any peer; accepted: a longer --time-limit",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, stand_in)
            assert command.main(ARGUMENTS) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr(measurement, "measure_host", Mock(side_effect=RuntimeError("gone")))
    with pytest.raises(RuntimeError, match="gone"):
        command.main(ARGUMENTS)
    assert list(records_at.iterdir()) == []


@pytest.mark.slow
def test_the_command_runs_from_a_plain_checkout(tmp_path: Path) -> None:
    """No installation, no git, and none of the libraries that other rooms need."""
    checkout = tmp_path / "checkout"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "measurements")
    for folder in ("src", "data"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=skip)
    shutil.copy(ROOT / "_toc.yml", checkout)
    code = textwrap.dedent(f"""
        import sys

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {BLOCKED!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, Blocked())
        from kvledger.measure import __main__ as command, measurement
        from kvledger.measure.sweeps import LLAMA_3_1_8B, Sweep, case_of

        case = case_of(LLAMA_3_1_8B, [256, 256], "float32")
        measurement.cpu_sweeps = lambda *a, **k: [Sweep(case, (16, 1), ("random", "in_order"))]
        measurement.CACHE_MULTIPLE, measurement._COPY_BYTES = 0, {{"cpu": 2**16}}
        sys.exit(command.main({ARGUMENTS!r}))
    """)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(checkout / "src"),
        "GIT_CEILING_DIRECTORIES": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    (written,) = (checkout / "data" / "measurements").iterdir()
    record = read_record(written)
    assert record.source.commit is None
    assert len(record.timings) == 1 + 4
    assert len(record.source.digest) == 64


def test_the_module_is_a_command() -> None:
    words = [sys.executable, "-m", "kvledger.measure", "--page-sizes", "5"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "measure: a page size is 5; accepted: powers of 2 from 1 to 256\n"
