"""The decode kernels as machine code for Hopper: no spills, wide loads, matrix instructions.

Compiled here with no GPU present, by tests/hopper.py, for every shape and page size that is
measured, and every way to cut the work that tuning may pick.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: What one program on a multiprocessor of an H100 or H200 may use of its shared memory.
MOST_SHARED_BYTES = 227 << 10
SHAPES = ("Llama-3.1-8B", "Llama-2-7B", "DeepSeek-V2-Lite")
PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 8192)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every variant; in a process of its own, where Triton compiles and keeps nothing."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("hopper.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def attending(rows: list[dict[str, Any]], dtype: str = "bfloat16") -> list[dict[str, Any]]:
    return [row for row in rows if row["kernel"] == "attend" and row["dtype"] == dtype]


def count(row: dict[str, Any], pattern: str) -> int:
    return sum(n for name, n in row["instructions"].items() if re.fullmatch(pattern, name))


def label(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in ("kernel", "shape", "page_size", "dtype", "tiles"))


def test_every_variant_that_is_measured_was_compiled(compiled: list[dict[str, Any]]) -> None:
    assert {(row["shape"], row["page_size"]) for row in attending(compiled)} == {
        (shape, size) for shape in SHAPES for size in PAGE_SIZES
    }
    # Five other ways for steps of 64 tokens, three for the 16 of the wide head.
    tiles = {(row["shape"], *row["tiles"]) for row in attending(compiled)}
    assert [sum(shape == name for shape, *_ in tiles) for name in SHAPES] == [6, 6, 4]
    for row in compiled:
        assert sum(row["instructions"].values()) > 100, label(row)
        assert count(row, r"EXIT") >= 1, label(row)


def test_nothing_spills(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert row["stack_bytes"] == 0, label(row)
        assert count(row, r"LDL.*|STL.*") == 0, label(row)


def test_keys_and_values_load_sixteen_bytes_a_time(compiled: list[dict[str, Any]]) -> None:
    """Copies of four bytes are entries of the table; all of K and V comes in sixteen."""
    for row in attending(compiled):
        assert count(row, r"LDGSTS\..*\.128") >= 8, label(row)
        assert count(row, r"LDGSTS\..*\.64") == 0, label(row)
        entries = count(row, r"LDGSTS\.E")
        assert count(row, r"LDGSTS.*") == entries + count(row, r"LDGSTS\..*\.128"), label(row)
        steps_in_flight = row["tiles"][2]
        assert entries <= 2 * steps_in_flight, label(row)
        # One load that is not copied to shared memory is the length; the others are q, whole.
        assert count(row, r"LDG\.E") == 1, label(row)
        assert count(row, r"LDG\.E(\.64)?") <= 1, label(row)


def test_loads_are_in_flight_while_a_step_is_computed(compiled: list[dict[str, Any]]) -> None:
    """The loop waits for the oldest copies only: by default two steps of K and V are on the way."""
    for row in attending(compiled):
        assert count(row, r"LDGDEPBAR") >= (6 if row["default"] else 3), label(row)
        assert count(row, r"DEPBAR\.LE") >= 2, label(row)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_matrix_units_multiply(compiled: list[dict[str, Any]], dtype: str) -> None:
    rows = attending(compiled, dtype)
    assert rows
    for row in rows:
        assert count(row, r"HMMA\.16816\.F32.*") >= 16, label(row)
        assert count(row, r"FFMA") < 64, label(row)  # none of the products is done one by one


def test_float32_is_not_rounded_to_what_matrix_units_take(compiled: list[dict[str, Any]]) -> None:
    (row,) = attending(compiled, "float32")
    assert count(row, r"HMMA.*|HGMMA.*") == 0
    assert count(row, r"FFMA.*") > 100


def test_it_fits_a_multiprocessor_more_than_once(compiled: list[dict[str, Any]]) -> None:
    for row in attending(compiled):
        assert 2 * row["shared_bytes"] <= MOST_SHARED_BYTES, label(row)


def test_joining_loads_wide_as_well(compiled: list[dict[str, Any]]) -> None:
    rows = [row for row in compiled if row["kernel"] == "join"]
    assert {row["shape"] for row in rows} == set(SHAPES)
    for row in rows:
        assert count(row, r"LDG\.E\.128") >= 8, label(row)
        assert row["stack_bytes"] == 0, label(row)


def test_pages_of_whole_steps_are_contiguous_code(compiled: list[dict[str, Any]]) -> None:
    """One entry serves a step: page sizes from 64 on run the same instructions."""
    rows = [row for row in attending(compiled) if row["default"]]
    llama = {row["page_size"]: row for row in rows if row["shape"] == "Llama-3.1-8B"}
    assert llama[64]["instructions"] == llama[128]["instructions"] == llama[256]["instructions"]
    for kind in (r"HMMA.*", r"LDGSTS.*", r"LDGDEPBAR", r"MUFU.*"):
        assert count(llama[8192], kind) == count(llama[64], kind)
