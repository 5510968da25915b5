"""What the loading benchmark compares is the same on both sides; how fast, no test asserts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import kvledger as kv

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def loading() -> Iterator[ModuleType]:
    """The benchmark's module, imported as its command does."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("loading")
    finally:
        sys.path.remove(str(FOLDER))


def test_both_files_hold_the_same_requests(loading: Any, tmp_path: Path) -> None:
    csv, parquet = loading.write_trace(tmp_path, 1000)
    one, other = kv.load_trace(csv), kv.load_trace(parquet)
    assert one.n_requests == 1000
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert one.output_tokens.tolist() == other.output_tokens.tolist()


def test_a_difference_in_the_counts_would_be_seen(loading: Any, tmp_path: Path) -> None:
    csv, _ = loading.write_trace(tmp_path, 1000)
    lengths, frame = kv.load_lengths(csv), pd.read_csv(csv)
    assert loading.same(loading.grouped(frame), lengths)
    for column in ("prompt_tokens", "output_tokens"):
        changed = frame.copy()
        changed.loc[500, column] += 1
        assert not loading.same(loading.grouped(changed), lengths)
    assert not loading.same(loading.grouped(frame.iloc[1:]), lengths)


def test_the_records_state_the_bars(loading: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "QUICK_NUMBER", 20_000)
    measured = [*loading.speed(quick=True), *loading.memory(quick=True)]
    assert {each.name: each.bar for each in measured} == {
        "loading.csv": ">= 3",
        "loading.parquet": ">= 3",
        "loading.parquet.read_parquet": ">= 1",
        "loading.memory.csv": "<= 1.1",
        "loading.memory.parquet": "<= 1.1",
        "loading.memory.trace": "<= 1.1",
    }
    for each in measured:
        assert each.quantity == "ratio"
        assert "20,000" in each.what + each.baseline
        assert len(each.baseline) >= 10
        assert "/" not in each.what  # no path of this machine
