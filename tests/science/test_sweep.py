"""A sweep gives the same table wherever it runs, whatever is killed, and uses what it stored."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import psutil
import pytest
from conftest import refused
from distributed import Client, LocalCluster
from joblib.externals.loky import get_reusable_executor

from kvledger import LedgerError, Trace
from kvledger.cli import main
from kvledger.replays import engine
from kvledger.replays.policies import Arrivals, Contiguous, Paged, Saturated
from kvledger.replays.replay import replay
from kvledger.replays.sweep import sweep
from proofbook.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
MODULE = importlib.import_module("kvledger.replays.sweep")

THREE = Trace([5, 9, 17], [4, 4, 4])
POLICIES = (
    Paged(1),
    Paged(16, watermark=0.01),
    Paged(16, preemption="swap", host_pages=64),
    Paged(16, prefix_cache=True),
    Paged(64, prefix_cache=True, same_step_hits=False),
    Contiguous(4096),
    Contiguous("pow2", fit="buddy"),
)
CAPACITIES = (16384, 32768)
CLOCKS = (Saturated(), Arrivals(base_s=0.02, running_s=0.0001))


def lengths(rng: np.random.Generator, requests: int, mean: int, most: int) -> list[int]:
    drawn = rng.lognormal(np.log(mean) - 0.32, 0.8, requests)
    return np.clip(np.rint(drawn), 1, most).astype(int).tolist()


def made(requests: int, seed: int = 0) -> Trace:
    """A trace with times and, among its prompts, common beginnings."""
    rng = np.random.default_rng(seed)
    prompts = lengths(rng, requests, 512, 2048)
    ids: list[list[int]] = []
    for i, prompt in enumerate(prompts):
        whole = prompt // 128
        common = min(whole, int(rng.integers(0, 4)))
        family = int(rng.integers(0, 3))
        own = range(10_000 + 100 * i, 10_000 + 100 * i + whole - common)
        ids.append([*(10 * family + k for k in range(common)), *own])
    outputs = lengths(rng, requests, 128, 1024)
    times = np.cumsum(rng.exponential(0.05, requests))
    return Trace(prompts, outputs, times, page_ids=ids, page_ids_size=128)


TRACES = {"long": made(400), "short": made(150, seed=1)}


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    """The engine is compiled here, so that no test waits for it; and poison spares this process."""
    sweep({"three": THREE}, [Paged(1)], [64], n_jobs=1)
    os.environ["SWEEP_TEST_PARENT"] = str(os.getpid())
    yield
    del os.environ["SWEEP_TEST_PARENT"]


@pytest.fixture(scope="module")
def by_one_process() -> pd.DataFrame:
    return sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as started,
    ):
        yield started


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert a.to_csv().encode() == b.to_csv().encode()


# --------------------------------------------------------------------------- the numbers
def test_every_row_is_what_a_replay_says(by_one_process: pd.DataFrame) -> None:
    rows = iter(by_one_process.to_dict("records"))
    for name, trace in TRACES.items():
        for policy in POLICIES:
            for capacity in CAPACITIES:
                for clock in CLOCKS:
                    row = next(rows)
                    result = replay(trace, policy, capacity_slots=capacity, clock=clock)
                    assert row["trace"] == name
                    assert row["policy"] == type(policy).__name__.lower()
                    assert row["clock"] == type(clock).__name__.lower()
                    assert row["capacity_slots"] == capacity
                    for field in type(policy).__dataclass_fields__:
                        given = getattr(policy, field)
                        assert row[field] == (str(given) if field == "reserve" else given)
                    assert row["steps"] == row["recorded_steps"] == len(result)
                    assert row["finished"] == result.count("finished")
                    assert row["refused"] == result.count("refused")
                    assert row["requests"] == len(trace) == row["finished"] + row["refused"]
                    assert row["blocked_share"] == result.mean("blocked")
                    assert row["waiting_steps"] == result.requests["waiting_steps"].sum()
                    for flow in ("preempted", "recomputed_tokens", "hit_tokens", "evictions"):
                        assert row[flow] == result.total(flow)
                    for level in ("running", "waiting", "pages", "shared_tokens", "external_slots"):
                        assert row[f"mean_{level}"] == result.mean(level)
                        assert row[f"peak_{level}"] == getattr(result, level).max()
                    prompts = result.total("hit_tokens") + result.total("computed_prompt_tokens")
                    assert row["hit_rate"] == result.total("hit_tokens") / prompts
                    tokens = prompts + result.total("decoded_tokens")
                    assert row["frees_per_token"] == result.total("frees") / tokens
    assert next(rows, None) is None
    for column in ("preempted", "recomputed_tokens", "swapped_in_tokens", "hit_tokens"):
        assert by_one_process[column].max() > 0, column
    assert by_one_process["blocked_share"].between(0, 1).all()
    assert by_one_process["refused"].sum() == 0


def test_a_row_by_hand(tmp_path: Path) -> None:
    row = sweep({"three": THREE}, [Paged(4)], [64], n_jobs=1).iloc[0]
    assert (row["mean_pages"], row["peak_tail_slack_slots"], row["peak_logical_tokens"]) == (
        10.0, 9, 40,
    )  # fmt: skip
    assert row["allocations_per_token"] == 10 / 40
    assert row["steps"] == 4
    row = sweep({"three": THREE}, [Paged(4)], [4], n_jobs=1).iloc[0]
    assert (row["refused"], row["steps"], row["peak_pages"]) == (3, 0, 0)
    assert np.isnan(row["mean_pages"])
    assert np.isnan(row["hit_rate"])
    paged = sweep({"three": THREE}, [Paged(4)], [64], n_jobs=1)
    runs = sweep({"three": THREE}, [Contiguous(32)], [64], n_jobs=1)
    pd.testing.assert_series_equal(paged.dtypes, runs.dtypes)
    assert runs["page_size"].isna().all()
    assert paged["reserve"].isna().all()
    table = sweep({"t": TRACES["short"]}, [Paged(16)], [32768], record_every=7, n_jobs=1)
    whole = sweep({"t": TRACES["short"]}, [Paged(16)], [32768], n_jobs=1)
    assert table["steps"].tolist() == whole["steps"].tolist()
    assert table["recorded_steps"].tolist() == [-(-int(whole["steps"][0]) // 7)]
    assert table["decoded_tokens"].tolist() == whole["decoded_tokens"].tolist()
    path = tmp_path / "three.csv"
    path.write_text("prompt_tokens,output_tokens\n5,4\n9,4\n17,4\n")
    table = sweep({"a": path, "b": str(path)}, [Paged(4), Paged(4)], [64], n_jobs=1)
    direct = sweep({"a": THREE}, [Paged(4)], [64], n_jobs=1)
    assert table["trace"].tolist() == ["a", "a", "b", "b"]
    for at in range(4):
        assert table.drop(columns="trace").iloc[at].equals(direct.drop(columns="trace").iloc[0])


# --------------------------------------------------------------------------- where it runs
def test_processes_give_the_same_table(by_one_process: pd.DataFrame) -> None:
    same(sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=2), by_one_process)


@pytest.mark.slow
def test_a_cluster_gives_one_table(by_one_process: pd.DataFrame, cluster: LocalCluster) -> None:
    address = cluster.scheduler_address
    assert address.startswith("tcp://127.0.0.1:")
    same(sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, scheduler=address), by_one_process)


class Killer(threading.Thread):
    """Kills one process as soon as some rows are finished."""

    def __init__(self, store: Path, victim: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.store, self.victim, self.finished = store, victim, -1
        self.start()

    def run(self) -> None:
        end = time.monotonic() + 30
        while rows_in(self.store) < 2 and time.monotonic() < end:
            time.sleep(0.002)
        os.kill(self.victim(), signal.SIGKILL)
        self.finished = rows_in(self.store)

    def has_killed_in_the_middle_of(self, rows: int) -> bool:
        self.join(timeout=10)
        return 2 <= self.finished < rows - 4


def rows_in(store: Path) -> int:
    return len(list(store.glob("**/output.pkl")))


def busy_worker() -> int:
    """Return a process of joblib's that is not its book-keeper."""
    for child in psutil.Process().children(recursive=True):
        if "popen_loky" in " ".join(child.cmdline()):
            return child.pid
    raise AssertionError("there is no worker to kill")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A worker stopped")
def test_a_killed_process_is_survived(by_one_process: pd.DataFrame, tmp_path: Path) -> None:
    killer = Killer(tmp_path, busy_worker)
    table = sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=2, store=tmp_path)
    assert killer.has_killed_in_the_middle_of(len(table))
    same(table, by_one_process)


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_is_survived(
    by_one_process: pd.DataFrame, cluster: LocalCluster, tmp_path: Path
) -> None:
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=30)
        workers = list(client.run(os.getpid).values())
    killer = Killer(tmp_path, lambda: workers[0])
    table = sweep(
        TRACES,
        POLICIES,
        CAPACITIES,
        clocks=CLOCKS,
        scheduler=cluster.scheduler_address,
        store=tmp_path,
    )
    assert killer.has_killed_in_the_middle_of(len(table))
    assert not psutil.pid_exists(workers[0]) or psutil.Process(workers[0]).status() == "zombie"
    same(table, by_one_process)


class Poison(Paged):
    """A policy that kills every process but the one named in the environment."""

    def __getattribute__(self, name: str) -> Any:
        if name == "page_size" and os.getpid() != int(os.environ["SWEEP_TEST_PARENT"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A worker stopped")
def test_a_combination_that_kills_again_and_again_is_named(tmp_path: Path) -> None:
    policies = [Paged(4), Poison(page_size=8), Paged(16), Paged(2)]
    # Workers that idle from before the variable was set do not have it.
    get_reusable_executor().shutdown(wait=True, kill_workers=True)
    with pytest.raises(LedgerError, match=r"^three, Poison\(page_size=8.*killed each time"):
        sweep({"three": THREE}, policies, [64], n_jobs=2, store=tmp_path)
    # Whoever was in its company is replayed by the next sweep at the latest.
    table = sweep({"three": THREE}, [Paged(4), Paged(16), Paged(2)], [64], store=tmp_path)
    assert table["finished"].tolist() == [3, 3, 3]


@pytest.mark.slow
def test_a_combination_that_kills_workers_is_named(cluster: LocalCluster) -> None:
    policies = [Paged(4), Poison(page_size=8), Paged(16)]
    with pytest.raises(LedgerError, match=r"^three, Poison\(page_size=8.*killed each time"):
        sweep({"three": THREE}, policies, [64], scheduler=cluster.scheduler_address)


def test_writable_arrays_do_not_compile_the_engine_again() -> None:
    settings = MODULE._Settings(256, None, 1)
    (task,) = MODULE._tasks({"three": THREE}, [Paged(4)], [64], [Saturated()], settings)
    MODULE._run(task, Trace([5, 9, 17], [4, 4, 4]))
    before = list(engine.run.signatures)
    trace = Trace([5, 9, 17], [4, 4, 4])
    for array in (trace.prompt_tokens, trace.output_tokens):
        array.setflags(write=True)
    MODULE._run(task, trace)
    assert engine.run.signatures == before


# --------------------------------------------------------------------------- the store
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the combinations that are replayed from now on, in this process."""
    replayed: list[str] = []
    run = MODULE._run

    def noting(task: Any, *rest: Any) -> Any:
        replayed.append(str(task))
        return run(task, *rest)

    monkeypatch.setattr(MODULE, "_run", noting)
    return replayed


def test_what_is_stored_is_not_replayed(
    by_one_process: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = tmp_path / "new" / "store"
    few = POLICIES[:2]
    sweep(TRACES, few, CAPACITIES, clocks=CLOCKS, n_jobs=1, store=store)
    assert rows_in(store) == 16
    replayed = counted(monkeypatch)
    same(sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=1, store=store), by_one_process)
    assert len(replayed) == len(by_one_process) - 16
    replayed.clear()
    same(sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=1, store=store), by_one_process)
    assert replayed == []


def test_what_changes_a_row_renames_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(trace: Trace = THREE, **options: Any) -> None:
        chosen: dict[str, Any] = {"policies": [Paged(4)], "capacities": [64]} | options
        sweep({"any name": trace}, **chosen, n_jobs=1, store=tmp_path)

    replayed = counted(monkeypatch)
    ids = [[1], [1, 2], [1, 2, 3, 4]]
    changes: list[dict[str, Any]] = [
        {},
        {"policies": [Paged(4, watermark=0.1)]},
        {"capacities": [128]},
        {"max_running": 2},
        {"prefill_chunk": 2},
        {"record_every": 2},
        {"trace": Trace([5, 9, 17], [4, 4, 5])},
        {"trace": Trace([5, 9, 18], [4, 4, 4])},
        {"trace": Trace([5, 9, 17], [4, 4, 4], [0.0, 1.0, 2.0])},
        {"trace": Trace([5, 9, 17], [4, 4, 4], [0.0, 1.0, 3.0])},
        {"trace": Trace([5, 9, 17], [4, 4, 4], page_ids=ids, page_ids_size=4)},
        {"trace": Trace([5, 9, 17], [4, 4, 4], page_ids=[[2], *ids[1:]], page_ids_size=4)},
    ]
    for change in changes:
        run(**change)
    assert len(replayed) == len(changes) == rows_in(tmp_path)
    run(Trace([5, 9, 17], [4, 4, 4], name="another name"))
    assert len(replayed) == len(changes)
    monkeypatch.setattr(MODULE, "_code_digest", lambda: "0" * 64)
    run()
    assert len(replayed) == len(changes) + 1


@pytest.mark.parametrize("spoil", [lambda kept: kept[: len(kept) // 2], lambda kept: b""])
def test_a_spoilt_row(
    spoil: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = sweep({"three": THREE}, [Paged(4), Paged(8)], [64], n_jobs=1, store=tmp_path)
    first = min(tmp_path.glob("**/output.pkl"))
    content = first.read_bytes()
    first.write_bytes(spoil(content))
    replayed = counted(monkeypatch)
    same(sweep({"three": THREE}, [Paged(4), Paged(8)], [64], n_jobs=1, store=tmp_path), whole)
    assert len(replayed) == 1
    assert first.read_bytes() == content


@pytest.mark.slow
def test_a_killed_sweep(
    by_one_process: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_sweep import CAPACITIES, CLOCKS, POLICIES, TRACES, sweep\n"
        "sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=1, store=sys.argv[2])\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(store)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"},
    )
    while rows_in(store) < 5:
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    there = rows_in(store)
    assert 5 <= there < len(by_one_process)
    replayed = counted(monkeypatch)
    table = sweep(TRACES, POLICIES, CAPACITIES, clocks=CLOCKS, n_jobs=1, store=store)
    assert len(replayed) == len(by_one_process) - there
    same(table, by_one_process)


def test_the_source_that_a_row_depends_on() -> None:
    names = {path.relative_to(ROOT / "src" / "kvledger").as_posix() for path in MODULE._sources()}
    assert {f"replays/{name}.py" for name in ("engine", "policies", "replay", "sweep")} <= names
    assert {
        "core/errors.py",
        "core/lengths.py",
        "accounting/ledger.py",
        "traces/__init__.py",
    } <= names
    assert not {"cli/__init__.py", "__init__.py", "replays/figure2.py"} & names
    assert not any(name.startswith("chapters/") for name in names)
    # Whatever is imported of the package in another way would be missed.
    for path in MODULE._sources():
        assert not re.search(
            r"^\s*import kvledger|^\s*from (kvledger|\.+) import", path.read_text(), re.M
        )


# --------------------------------------------------------------------------- bad input
def is_refused(message: str, /, **options: Any) -> None:
    chosen: dict[str, Any] = {
        "traces": {"three": THREE},
        "policies": [Paged(4)],
        "capacities": [64],
        "n_jobs": 1,
    }
    with pytest.raises(InputError) as caught:
        sweep(**(chosen | options))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"traces": {}}, "traces is {}; accepted"),
        ({"traces": [THREE]}, "traces is [Trace("),
        ({"traces": {"x": [5]}}, "traces['x'] is [5]; accepted: a Trace or a path"),
        ({"traces": {3: THREE}}, "traces has the name 3"),
        ({"traces": {"x": "absent.csv"}}, "absent.csv: no such file"),
        ({"policies": []}, "policies is []; accepted: a sequence of Paged or Contiguous"),
        ({"policies": Paged(4)}, "policies is Paged(page_size=4"),
        ({"policies": [Paged(4), 16]}, "policies[1] is 16"),
        ({"capacities": []}, "capacities is []"),
        ({"capacities": 64}, "capacities is 64"),
        ({"capacities": [64, 0]}, "capacities[1] is 0"),
        ({"clocks": []}, "clocks is []"),
        ({"clocks": ["arrivals"]}, "clocks[0] is 'arrivals'"),
        ({"clocks": [Arrivals(1.0)]}, "the trace has no arrival_s"),
        ({"max_running": 0}, "max_running is 0"),
        ({"prefill_chunk": 0}, "prefill_chunk is 0"),
        ({"record_every": 1.5}, "record_every is 1.5"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"n_jobs": 1.0}, "n_jobs is 1.0"),
        ({"scheduler": 8786}, "scheduler is 8786"),
        ({"scheduler": "cluster"}, "scheduler is 'cluster'"),
        ({"scheduler": "http://127.0.0.1:1"}, "scheduler is 'http://127.0.0.1:1'"),
    ],
)
def test_bad_input_is_one_error(options: dict[str, Any], message: str) -> None:
    is_refused(message, **options)


@pytest.mark.parametrize(
    ("policy", "capacity", "message"),
    [
        (Paged(48), 64, "capacity_slots is 64; a whole number of pages of 48 slots"),
        (Paged(64, null_pages=1), 64, "1 pages less 1 null pages"),
        (Paged(12, prefix_cache=True), 96, "an id stands for 8 tokens"),
    ],
)
def test_the_combination_is_named_before_anything_runs(
    policy: Paged, capacity: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = counted(monkeypatch)
    trace = Trace([9], [4], page_ids=[[1]], page_ids_size=8)
    with pytest.raises(LedgerError) as caught:
        sweep({"ids": trace}, [Paged(4), policy], [capacity], n_jobs=1)
    assert str(caught.value).startswith(f"ids, {policy}, capacity_slots={capacity}, Saturated()")
    assert message in str(caught.value)
    assert replayed == []


def test_an_error_of_a_replay_names_its_combination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    is_refused("cannot be written", store=tmp_path / "file")
    is_refused("cannot be written", store=tmp_path / "file" / "below")

    def failing(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(MODULE, "replay", failing)
    is_refused("three, Paged(page_size=4")


def command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["sweep", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def three(tmp_path: Path) -> str:
    path = tmp_path / "three.csv"
    path.write_text("prompt_tokens,output_tokens\n5,4\n9,4\n17,4\n")
    return str(path)


def test_the_command_prints_each_row(three: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--page-size", "4,8", "--capacity", "64,128", "--reserve", "32,pow2", "--jobs", "1"]
    status, out, err = command([three, *sizes], capsys)
    assert (status, err) == (0, "")
    head, *rows = [[cell.strip() for cell in line.split("  ") if cell] for line in out.splitlines()]
    head = [cell for cell in head if cell]
    rows = [[cell for cell in row if cell] for row in rows]
    assert head[:4] == ["policy", "capacity", "finished", "refused"]
    assert [row[0] for row in rows[::2]] == [
        "three, pages of 4", "three, pages of 8", "three, reserve 32", "three, reserve pow2",
    ]  # fmt: skip
    assert [row[1] for row in rows] == ["64", "128"] * 4
    assert rows[0][4:] == [
        "3.0", "55.47%", "7.03%", "0.00%", "0.00%", "0.00%", "0", "0", "0.00%",
    ]  # fmt: skip


def test_the_command_writes_whole(
    three: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_file, store = tmp_path / "rows.csv", tmp_path / "store"
    arguments = [three, three, "--page-size", "4", "--capacity", "64", "--max-running", "2"]
    arguments += ["--prefix-cache", "--jobs", "1", "--out", str(out_file), "--store", str(store)]
    assert command(arguments, capsys) == (0, f"wrote {out_file}: 2 rows\n", "")
    table = pd.read_csv(out_file)
    assert table["trace"].tolist() == ["three", three]
    assert table["prefix_cache"].all()
    assert table["max_running"].tolist() == [2, 2]
    assert rows_in(store) == 1
    direct = sweep({"three": Path(three)}, [Paged(4, prefix_cache=True)], [64], max_running=2)
    assert out_file.read_text().splitlines()[:2] == direct.to_csv(index=False).splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv", "--capacity", "64"], "absent.csv: no such file"),
        (["{three}", "--capacity", "64,0"], "a capacity is '0'"),
        (["{three}", "--capacity", "100"], "three, Paged(page_size=16"),
        (["{three}", "--capacity", "64", "--max-running", "0"], "--max-running"),
        (["{three}", "--capacity", "64", "--jobs", "0"], "--jobs is 0"),
        (["{three}", "--capacity", "64", "--reserve", "x"], "a reserve is 'x'"),
        (["{three}", "--capacity", "64", "--scheduler", "x"], "scheduler is 'x'"),
        (["{three}", "--capacity", "64", "--out", "{folder}/no/rows.csv"], "cannot be written"),
        (["{three}", "--capacity", "64", "--out", "{folder}"], "cannot be written"),
        (["{three}", "--capacity", "64", "--store", "{three}"], "cannot be written"),
    ],
)
def test_a_command_that_cannot_run_writes_nothing(
    arguments: list[str],
    message: str,
    three: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(tmp_path.rglob("*"))
    given = [each.format(three=three, folder=tmp_path) for each in arguments]
    status, out, err = command(given, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_committed_trace_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["azure_conv_2023", "--page-size", "512", "--capacity", "524288", "--jobs", "1"]
    status, out, _ = command(arguments, capsys)
    assert status == 0
    assert "azure_conv_2023, pages of 512" in out


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"  # bound, and nobody listens
        start = time.monotonic()
        is_refused(f"scheduler is '{address}'", scheduler=address)
        assert time.monotonic() - start < 10
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        is_refused(f"scheduler is '{address}': ", scheduler=address)
        assert time.monotonic() - start < 10


@pytest.mark.slow
def test_a_worker_of_another_source(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_code_digest", other_source)
    is_refused("differs", scheduler=cluster.scheduler_address)
    monkeypatch.undo()
    settings = MODULE._Settings(256, None, 1)
    (task,) = MODULE._tasks({"three": THREE}, [Paged(4)], [64], [Saturated()], settings)
    task = task._replace(code="another")
    refused("another version of kvledger", MODULE._run, task, THREE)


def other_source() -> str:
    return f"of process {os.getpid()}"


# --------------------------------------------------------------------------- compiled code
def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_compiled_code_is_kept_and_found(tmp_path: Path) -> None:
    code = "from kvledger.replays.replay import engine; print(engine.run.stats.cache_path)"
    assert python(code, NUMBA_CACHE_DIR=str(tmp_path)).startswith(str(tmp_path))
    code = (
        "from kvledger import Trace\n"
        "from kvledger.replays.policies import Paged\n"
        "from kvledger.replays.replay import engine, replay\n"
        "replay(Trace([5], [4]), Paged(4), capacity_slots=64)\n"
        "print(sum(engine.run.stats.cache_hits.values()), len(engine.run.stats.cache_misses))\n"
    )
    assert python(code) == "1 0"
