"""The speed records state their bars and are whole; how fast a machine is, no test asserts."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import kvledger as kv

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"
RECORDS = ROOT / "data" / "benchmarks.json"

#: field -> the texts that it may hold
FIELDS = {
    "name": r"[a-z0-9_]+(\.[a-z0-9_]+)+",
    "what": r".{10,}",
    "baseline": r".{10,}",
    "quantity": r"ratio|seconds",
    "bar": r"(>=|<=|<) [0-9.]+",
    "date": r"\d{4}-\d{2}-\d{2}",
}
MACHINE = {"python": str, "numpy": str, "system": str, "machine": str, "cores": int}

# The bars of the project. A record may not lower its own.
BARS = {
    "page_sizes.uniform": ">= 10",
    "page_sizes.lognormal": ">= 10",
    "memory.10_page_sizes": "<= 1.1",
    "memory.100_page_sizes": "<= 1.1",
    "envelope.mooncake_conversation": "< 1",
    "envelope.mooncake_conversation.speed": ">= 10",
    "envelope.azure_conv_2023": "< 1",
    "envelope.azure_conv_2023.speed": ">= 10",
}
BOOK_BARS = {"book.first_build": "<= 1", "book.prose_only": "< 0.25", "book.unchanged": "< 5"}
REPLAY_BARS = {
    "replay.first_call.compiling": "< 60",
    "replay.first_call.compiled": "< 1",
    "replay.free_list": ">= 10",
    **{
        f"replay.time.prefix_cache_{state}.{10**power}": "<= 1.3"
        for state in ("off", "on")
        for power in (5, 6, 7)
    },
    "replay.memory.2000000": "<= 1.3",
    "replay.memory.10000000": "<= 1.3",
    "replay.memory.longer": "<= 1.1",
}
LOADING_BARS = {
    "loading.csv": ">= 3",
    "loading.parquet": ">= 3",
    "loading.parquet.read_parquet": ">= 1",
    "loading.memory.csv": "<= 1.1",
    "loading.memory.parquet": "<= 1.1",
    "loading.memory.trace": "<= 1.1",
}
COMMAND_BARS = {
    "command.account.seconds": "< 0.4",
    "command.account.start": "<= 4",
    "command.report.compiled": "< 60",
    "command.report.compiling": "< 60",
}
PEER_BARS = {"replay.vllm.prefix_cache_off": ">= 1000", "replay.vllm.prefix_cache_on": ">= 200"}
ALL_BARS = BARS | BOOK_BARS | REPLAY_BARS | LOADING_BARS | COMMAND_BARS | PEER_BARS


def check(records: list[dict[str, Any]], made: ModuleType) -> None:
    assert records
    assert len({each["name"] for each in records}) == len(records)
    for each in records:
        made.Record(**each)  # neither a field less nor one more
        for name, pattern in FIELDS.items():
            assert re.fullmatch(pattern, each[name]), (name, each[name])
        machine = each["environment"]
        assert {name: type(value) for name, value in machine.items()} == MACHINE
        assert 0 < each["least"] <= each["median"] <= each["greatest"]
        assert each["repetitions"] >= 1
        assert each["bar"] == ALL_BARS[each["name"]]
        comparison, limit = each["bar"].split()
        passes = {
            ">=": each["median"] >= float(limit),
            "<=": each["median"] <= float(limit),
            "<": each["median"] < float(limit),
        }
        assert each["met"] is passes[comparison]
        dt.date.fromisoformat(each["date"])
    assert not re.search(r"(/home|/root|/tmp|/work|/usr|[A-Z]:\\\\)", json.dumps(records))


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """The benchmark's own modules, imported as its command does."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {
            name: importlib.import_module(name)
            for name in ("records", "accounting", "loading", "replay", "startup")
        }
    finally:
        sys.path.remove(str(FOLDER))


def test_the_committed_records_are_whole_and_state_the_projects_bars(modules: Any) -> None:
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    check(records, modules["records"])
    assert {each["name"] for each in records} >= set(BARS)


@pytest.mark.slow
def test_the_command_writes_such_records(modules: Any, tmp_path: Path) -> None:
    output = tmp_path / "benchmarks.json"
    output.write_text('[{"name": "book.unchanged"}]', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, FOLDER / "run.py", "--quick", "--output", output],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *measured = json.loads(output.read_text(encoding="utf-8"))
    assert first == {"name": "book.unchanged"}  # not measured this time: kept as it was
    check(measured, modules["records"])
    assert {each["name"] for each in measured} == set(BARS)
    for name in BARS:
        assert name in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["benchmarks.json"]


@pytest.mark.slow
def test_a_quick_run_without_an_output_leaves_the_records_alone(modules: Any) -> None:
    before = RECORDS.read_bytes()
    subprocess.run(
        [sys.executable, FOLDER / "run.py", "--quick"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=True,
    )
    assert RECORDS.read_bytes() == before


@pytest.mark.parametrize(
    ("bar", "values", "met"),
    [
        (">= 10", [9.0, 10.0, 11.0], True),
        (">= 10", [9.0, 9.9, 30.0], False),
        ("<= 1", [0.5, 1.0, 2.0], True),
        ("<= 1", [0.5, 1.1, 2.0], False),
        ("< 5", [4.9], True),
        ("< 5", [5.0], False),
    ],
)
def test_the_median_decides_a_bar(modules: Any, bar: str, values: list[float], met: bool) -> None:
    made = modules["records"].record(
        "a.b", what="what", baseline="baseline", quantity="ratio", values=values, bar=bar
    )
    assert made.met is met
    assert (made.least, made.greatest, made.repetitions) == (min(values), max(values), len(values))


def test_the_plain_ways_are_right(modules: Any) -> None:
    accounting = modules["accounting"]
    lengths = accounting.np.array([5, 9, 17])
    assert accounting.plain_page_counts(lengths, [4, 8, 16]) == {4: 10, 8: 6, 16: 4}
    corners = [each.c_from for each in accounting.plain_envelope(lengths, [1, 2, 4, 8, 16])]
    assert [str(c) for c in corners] == ["0", "3/14", "6/7", "2", "8"]
    # Two requests of one page each, the first growing into a second page in its last step.
    held = modules["replay"].plain_free_list([16, 3], [3, 2])
    assert held == (3, 3, 2 + 3 + 2)
    startup = modules["startup"]
    with pytest.raises(RuntimeError, match="ended with 2"):
        startup.on_a_terminal([*startup.KVLEDGER, "account", "--lengths", "0"])
    with pytest.raises(subprocess.CalledProcessError):
        startup.run([*startup.KVLEDGER, "account", "--lengths", "0"])
    assert modules["replay"].peak_of_a_process(1_000) > 10 << 20


@pytest.mark.slow
def test_the_replays_records_are_whole(modules: Any) -> None:
    benchmark = modules["replay"]
    measured = [*benchmark.free_list(quick=True), *benchmark.linear_time(quick=True)]
    names = [each.name for each in measured]
    # A quick run takes fewer requests, and its numbers stand in the names.
    assert names == [
        "replay.free_list",
        "replay.time.prefix_cache_off.10000",
        "replay.time.prefix_cache_on.10000",
    ]
    check([dataclasses.asdict(measured[0])], modules["records"])
    assert {each.bar for each in measured[1:]} == {"<= 1.3"}


@pytest.mark.slow
def test_the_commands_records_are_whole(modules: Any) -> None:
    measured = [dataclasses.asdict(each) for each in modules["startup"].account(quick=True)]
    check(measured, modules["records"])
    assert [each["name"] for each in measured] == list(COMMAND_BARS)[:2]


def test_both_files_hold_the_same_requests(modules: Any, tmp_path: Path) -> None:
    csv, parquet = modules["loading"].write_trace(tmp_path, 1000)
    one, other = kv.load_trace(csv), kv.load_trace(parquet)
    assert one.n_requests == 1000
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert one.output_tokens.tolist() == other.output_tokens.tolist()


def test_a_difference_in_the_counts_would_be_seen(modules: Any, tmp_path: Path) -> None:
    loading = modules["loading"]
    csv, _ = loading.write_trace(tmp_path, 1000)
    lengths, frame = kv.load_lengths(csv), pd.read_csv(csv)
    assert loading.same(loading.grouped(frame), lengths)
    for column in ("prompt_tokens", "output_tokens"):
        changed = frame.copy()
        changed.loc[500, column] += 1
        assert not loading.same(loading.grouped(changed), lengths)
    assert not loading.same(loading.grouped(frame.iloc[1:]), lengths)


@pytest.mark.slow
def test_the_loadings_records_are_whole(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = modules["loading"]
    monkeypatch.setattr(loading, "QUICK_NUMBER", 20_000)
    measured = [*loading.speed(quick=True), *loading.memory(quick=True)]
    check([dataclasses.asdict(each) for each in measured], modules["records"])
    assert [each.name for each in measured] == list(LOADING_BARS)
    assert all("20,000" in each.what + each.baseline for each in measured)
