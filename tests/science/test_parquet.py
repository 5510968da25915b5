"""Traces in Parquet: the columns of the tables in CSV, in whatever types they were saved."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st
from rawtraces import lists

import kvledger as kv
from kvledger.core.errors import LedgerError
from kvledger.traces import parquet


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(columns: dict[str, Any], **options: Any) -> Path:
        path = tmp_path / "mine.parquet"
        pq.write_table(pa.table(columns), path, **options)
        return path

    return write


def tokens(prompt: Any = (5, 9), output: Any = (1, 0), **columns: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "output_tokens": output, **columns}


TIMES = pd.to_datetime(["2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.0319600"])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (tokens(), ([5, 9], [1, 0], None)),
        (tokens(arrival_s=[0.5, 0.75]), ([5, 9], [1, 0], [0.0, 0.25])),
        (tokens(arrival_s=[3, 5]), ([5, 9], [1, 0], [0.0, 2.0])),
        (tokens(arrival_s=[61.1, 61.114]), ([5, 9], [1, 0], [0.0, 0.014])),
        (tokens(arrival_s=TIMES), ([5, 9], [1, 0], [0.0, 0.052])),
        (
            {"TIMESTAMP": TIMES, "ContextTokens": [5, 9], "GeneratedTokens": [1, 0]},
            ([5, 9], [1, 0], [0.0, 0.052]),
        ),
        (
            {
                "TIMESTAMP": ["2023-11-16 18:17:03.9799600", "2023-11-16T18:17:04.0319600Z"],
                "ContextTokens": [5, 9],
                "GeneratedTokens": [1, 0],
            },
            ([5, 9], [1, 0], [0.0, 0.052]),
        ),
        (
            {
                "Timestamp": [5, 45, 118], "Model": ["a", None, "b"], "Request tokens": [472, 0, 9],
                "Response tokens": [18, 0, 2],
            },
            ([472, 9], [18, 2], [0.0, 113.0]),
        ),
        (
            {
                "num_prefill_tokens": [5, 9], "num_decode_tokens": [1, 0],
                "num_total_tokens": [6, 9], "arrived_at": [0.5, 0.5],
            },
            ([5, 9], [1, 0], [0.0, 0.0]),
        ),
        ({"any \"name\", <b>a.b</b>": [5, 9]}, ([5, 9], [0, 0], None)),
    ],
)  # fmt: skip
def test_the_formats_of_tables_are_found_and_read(write: Any, columns: Any, expected: Any) -> None:
    path = write(columns)
    trace, lengths = kv.load_trace(path), kv.load_lengths(path)
    assert (lists(trace), trace.name) == (expected, "mine")
    assert np.repeat(lengths.total.tokens, lengths.total.requests).tolist() == sorted(
        trace.total_tokens.tolist()
    )
    assert lengths.skipped == trace.skipped


WHOLE = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 0),
    pa.decimal128(9, 2), pa.decimal256(60, 0), pa.dictionary(pa.int8(), pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize("type_", WHOLE, ids=str)
def test_whole_numbers_of_every_type(write: Any, type_: pa.DataType) -> None:
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_decimal(value):
        prompts = pa.array([decimal.Decimal(5), decimal.Decimal(9)], value)
    elif value == pa.float16():
        prompts = pa.array(np.array([5, 9], np.float16))
    else:
        prompts = pa.array([5, 9], value)
    prompts = prompts.dictionary_encode() if pa.types.is_dictionary(type_) else prompts
    assert lists(kv.load_trace(write(tokens(prompts)))) == ([5, 9], [1, 0], None)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_of_every_unit(write: Any, unit: str, zone: str | None) -> None:
    ticks = pa.array([1_700_000_000, 1_700_000_002], pa.int64())
    times = ticks.cast(pa.timestamp(unit, zone))
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    assert lists(kv.load_trace(write(tokens(arrival_s=times))))[2] == [0.0, 2 / per_second]
    # One row that is not plain sends all of them the slow way.
    slow = kv.load_trace(write(tokens([5, None], arrival_s=times)), unusable="count")
    assert lists(slow) == ([5], [1], [0.0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (tokens([5, 0]), "row 2: prompt_tokens is 0; accepted: a whole number from 1 to"),
        (tokens([5, -1]), "row 2: prompt_tokens is -1; accepted"),
        (tokens([5, None]), "row 2: prompt_tokens is missing; accepted"),
        (tokens([5, 9.5]), "row 2: prompt_tokens is 9.5; accepted"),
        (tokens([5, float("nan")]), r"row 2: prompt_tokens is missing \(NaN\); accepted"),
        (tokens([5, float("inf")]), "row 2: prompt_tokens is inf; accepted"),
        (tokens(pa.array([5, 2**63], pa.uint64())), f"row 2: prompt_tokens is {2**63}; accepted"),
        (tokens([5.0, 1e300]), r"row 2: prompt_tokens is 1e\+300; accepted"),
        (tokens([decimal.Decimal("5.0"), decimal.Decimal("9.5")]), "row 2: prompt_tokens is Decim"),
        (tokens(output=[1, -1]), "row 2: output_tokens is -1; accepted: a whole number from 0"),
        (tokens([5, 2**62], [1, 2**62]), "row 2: the total is .* at most .* .64 bits"),
        (tokens(["5", "9"]), "column prompt_tokens holds string; accepted: a column of whole num"),
        (tokens([True, False]), "column prompt_tokens holds bool; accepted"),
        (tokens([[5], [9]]), "column prompt_tokens holds list.*; accepted"),
        (tokens(TIMES), "column prompt_tokens holds timestamp.ns.; accepted"),
        (tokens([None, None]), "column prompt_tokens holds null; accepted"),
        (tokens(arrival_s=["1", "2"]), "column arrival_s holds string; accepted: .* seconds"),
        (tokens(arrival_s=[True, True]), "column arrival_s holds bool; accepted"),
        (tokens(arrival_s=[2.0, 1.5]), "row 2: arrival_s is 1.5; accepted: a time that is not bef"),
        (tokens(arrival_s=[2.0, None]), "row 2: arrival_s is missing; accepted: seconds"),
        (tokens(arrival_s=[2.0, float("inf")]), "row 2: arrival_s is inf; accepted: seconds"),
        (tokens(arrival_s=TIMES[::-1]), "row 2: arrival_s is 1700158623979960000 ns; accepted"),
        (tokens(arrival_s=pa.array([0, 2**62], pa.timestamp("ms"))), "row 2: arrival_s is .* ns; "),
        (
            {"TIMESTAMP": ["now"], "ContextTokens": [5], "GeneratedTokens": [1]},
            "row 1: TIMESTAMP is 'now'; accepted: a date such as",
        ),
        (
            {"TIMESTAMP": [1.5], "ContextTokens": [5], "GeneratedTokens": [1]},
            "column TIMESTAMP holds double; accepted: a column of a date such as .*or timestamps",
        ),
        (
            {"num_prefill_tokens": [5], "num_decode_tokens": [1], "num_total_tokens": [7]},
            r"row 1: num_total_tokens is 7; accepted: the sum of prompt and output, 5 \+ 1",
        ),
        ({"prompt_tokens": [5]}, r"column 'output_tokens' is missing \(found: prompt_tokens\)"),
        ({"a": [5], "b": [1]}, "no known trace has the columns a, b; accepted:\n  azure"),
        ({"length": [5.5]}, "row 1: length is 5.5"),
        (tokens(pa.array([], pa.int64()), pa.array([], pa.int64())), "a table without rows"),
    ],
)
def test_a_bad_file_is_one_clear_error(write: Any, columns: Any, message: str) -> None:
    path = write(columns)
    messages = set()
    for load in (kv.load_trace, kv.load_lengths):
        with pytest.raises(LedgerError, match=message) as caught:
            load(path)
        assert str(caught.value).startswith(str(path))
        assert caught.value.__cause__ is None
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.parametrize("keep", [4, 40, -1, -8, -40])
def test_damage_is_one_clear_error(write: Any, keep: int) -> None:
    path = write(tokens(list(range(1, 5000)), [1] * 4999))
    path.write_bytes(path.read_bytes()[:keep])
    assert "\n" not in refused("Parquet data is cut short or damaged", kv.load_trace, path)


def test_damage_is_one_clear_error_or_other_data(write: Any, tmp_path: Path) -> None:
    path = write(tokens(list(range(1, 50000)), [1] * 49999), use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[1000:3000] = bytes(2000)
    path.write_bytes(data)
    refused(r"data is cut short or damaged|accepted", kv.load_trace, path)
    import gzip

    (tmp_path / "t.gz").write_bytes(gzip.compress(write(tokens()).read_bytes()))
    with pytest.raises(LedgerError, match="compressed Parquet; accepted: the Parquet file itself"):
        kv.load_trace(tmp_path / "t.gz")
    both = {"prompt_tokens": [5], "output_tokens": [1], "num_prefill_tokens": [3]}
    both["num_decode_tokens"] = [4]
    assert lists(kv.load_trace(write(both), "prefill_decode"))[:2] == ([3], [4])
    refused("Parquet; accepted as mooncake: JSONL", kv.load_trace, write(both), "mooncake")


rows = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**6)),
    min_size=1,
    max_size=40,
)


@given(rows, st.integers(1, 12), st.sampled_from(["snappy", "gzip", "zstd", "none"]))
def test_parquet_is_what_the_same_table_is_in_csv(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], batch: int, compression: str
) -> None:
    folder = tmp_path_factory.mktemp("same")
    frame = pd.DataFrame(rows, columns=["prompt_tokens", "output_tokens", "arrival_s"])
    frame["arrival_s"] = frame["arrival_s"].cumsum() / 1000
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet", compression=compression, row_group_size=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_BATCH_ROWS", batch)
        one, other = kv.load_trace(folder / "t.parquet"), kv.load_trace(folder / "t.csv")
        assert lists(one) == lists(other)
        lengths = [kv.load_lengths(folder / name) for name in ("t.parquet", "t.csv")]
    assert repr(lengths[0]) == repr(lengths[1])
    assert lengths[0].total.tokens.tolist() == lengths[1].total.tokens.tolist()


def test_times_do_not_go_back_between_batches(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 10)
    times = [float(i) for i in range(50)]
    times[30] = 28.5
    path = write(tokens([5] * 50, [1] * 50, arrival_s=times))
    refused(r"row 31: arrival_s is 28\.5; accepted: a time that", kv.load_trace, path)
    counted = kv.load_trace(path, unusable="count")
    assert (counted.n_requests, counted.skipped) == (49, {"arrival_s goes back": 1})
