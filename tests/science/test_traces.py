"""Every format read as published, and everything that is not a trace refused by name."""

from __future__ import annotations

import csv
import gzip
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from rawtraces import lists, raw_folder

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX
from kvledger.traces import TRACE_FORMATS, Trace, load_trace
from kvledger.traces.text_tables import TABLES

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8"
)
MOONCAKE = (
    '{"timestamp": 27482, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 2353]}\n'
    '{"timestamp": 30535, "input_length": 512, "output_length": 26, "hash_ids": [46]}\n'
)
QWEN = (
    '{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 33, '
    '"output_length": 132, "type": "text", "turn": 2, "hash_ids": [1089, 1090, 6326]}\n'
    '{"chat_id": 160, "parent_chat_id": -1, "timestamp": 61.2, "input_length": 33, '
    '"output_length": 1, "type": "text", "turn": 1, "hash_ids": [7, 8]}\n'
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,0,1087,API log\n"
    "118,GPT-4,417,276,693,API log\n"
)
PREFILL = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
    "74,918,992,0.0806100217864923\n"
    "1,905,906,0.001\n"
)
RUN = {
    "completed": 3,
    "request_throughput": 1.5,
    "input_lens": [10, 20, 30],
    "output_lens": [1, 0, 3],
    "start_times": [100.5, 100.25, 101.0],
    "errors": ["", "timed out", ""],
}


@pytest.fixture(scope="module")
def raw_traces() -> Path:
    return raw_folder()


# --------------------------------------------------------------------------- good files
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (AZURE, ([4808, 3180], [10, 8], [0.0, 0.052])),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2024-05-10 00:00:00.009930+00:00,2162,5\n"
            "2024-05-10 00:00:01+00:00,2399,6\n",
            ([2162, 2399], [5, 6], [0.0, 0.99007]),
        ),
        (MOONCAKE, ([1025, 512], [52, 26], [0.0, 3.053])),
        (QWEN, ([33, 33], [132, 1], [0.0, 0.086])),
        (PREFILL, ([74, 1], [918, 905], None)),
        (
            "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,7,2\n0.75,8,1\n",
            ([7, 8], [2, 1], [0.0, 0.25]),
        ),
        ("output_tokens,prompt_tokens\n0,7\n2,8\n", ([7, 8], [0, 2], None)),
        ("5\n9\n17", ([5, 9, 17], [0, 0, 0], None)),
        ("\n length\n5\n\n9.0\n", ([5, 9], [0, 0], None)),
        (" [5, 9,\n 17.0]\n", ([5, 9, 17], [0, 0, 0], None)),
        (json.dumps(RUN), ([10, 30], [1, 3], [0.0, 0.5])),
        (json.dumps(RUN, indent=1), ([10, 30], [1, 3], [0.0, 0.5])),
        (json.dumps(RUN) + "\n" + json.dumps(RUN) + "\n", ([10, 30, 10, 30], [1, 3, 1, 3], None)),
        ('"prompt_tokens","output_tokens"\n"7","1"\n', ([7], [1], None)),
    ],
)
def test_a_format_is_found_and_read(write: Any, content: str, expected: Any) -> None:
    assert lists(load_trace(write(content))) == expected


def test_block_ids_and_their_size(write: Any) -> None:
    mooncake = load_trace(write(MOONCAKE))
    assert (mooncake.page_ids, mooncake.page_ids_size) == (((46, 47, 2353), (46,)), 512)
    qwen = load_trace(write(QWEN))
    assert (qwen.page_ids, qwen.page_ids_size) == (((1089, 1090, 6326), (7, 8)), 16)
    line = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}'
    assert load_trace(write(line), page_ids_size=4).page_ids_size == 4
    line = '{"timestamp": 0, "input_length": 5, "output_length": 1}\n'
    assert load_trace(write(line + line)).page_ids is None
    trace = load_trace(write(BURST))
    assert lists(trace) == ([472, 417], [18, 276], [0.0, 113.0])
    assert trace.failed_requests == 1
    assert "1 failed request left out" in repr(trace)
    assert load_trace(write(gzip.compress(AZURE.encode(), mtime=0), "conv.csv.gz")).name == "conv"


@pytest.mark.parametrize(
    "content", [AZURE, MOONCAKE, QWEN, BURST, PREFILL, json.dumps(RUN), "5\n9\n", "[5, 9]"]
)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: gzip.compress(data, mtime=0), id="gz"),
        pytest.param(lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(lambda data: b"\xef\xbb\xbf" + data, id="byte-order mark"),
        pytest.param(lambda data: data.rstrip() + b"\n\n \n", id="blank lines at the end"),
        pytest.param(lambda data: data.rstrip(), id="no final newline"),
    ],
)
def test_the_wrapping_does_not_matter(write: Any, content: str, change: Any) -> None:
    plain = load_trace(write(content, "plain"))
    changed = load_trace(write(change(content.encode()), "changed"))
    assert lists(changed) == lists(plain)
    assert changed.page_ids == plain.page_ids


@pytest.mark.parametrize("block_bytes", [1, 7, 64])
def test_blocks_do_not_matter(
    write: Any, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    contents = [AZURE, MOONCAKE, BURST, PREFILL, json.dumps(RUN, indent=1), "[5,\n9]"]
    whole = [lists(load_trace(write(content))) for content in contents]
    monkeypatch.setattr("kvledger.traces.streams._BLOCK_BYTES", block_bytes)
    assert [lists(load_trace(write(content))) for content in contents] == whole


def test_an_error_counts_lines_across_blocks(
    write: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kvledger.traces.streams._BLOCK_BYTES", 8)
    content = "\n\nlength\n" + "1000\n" * 50 + "\n-3\n"
    refused("line 55: length is '-3'", load_trace, write(content))
    backwards = "prompt_tokens,output_tokens,arrival_s\n1,1,2\n1,1,3\n1,1,2.5\n"
    refused(r"line 4: arrival_s is '2\.5'", load_trace, write(backwards))
    refused("no such file; accepted: a trace file", load_trace, tmp_path / "absent.csv")
    refused("is a folder", load_trace, tmp_path)


# --------------------------------------------------------------------------- bad files
RECORD = '{{"timestamp": {time}, "input_length": {i}, "output_length": {o}, "hash_ids": {ids}}}'


def record(time: Any = 0, i: Any = 5, o: Any = 1, ids: Any = "[1]") -> str:
    return RECORD.format(time=time, i=i, o=o, ids=ids)


COUNT = f"a whole number from 1 to {INT64_MAX}"
TOKENS = "prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # nothing there
        ("", "the file is empty; accepted:\n  azure: CSV"),
        (" \n\r\n", "the file is empty"),
        ("\xa0\n\u2028\n", "the file is empty"),
        ("\x1c", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (TOKENS, "a header and no requests"),
        (TOKENS.strip(), "a header and no requests"),
        ("[]", "an empty JSON array"),
        (json.dumps(RUN | {"errors": ["a", "b", "c"]}), "no request that succeeded"),
        (BURST.replace(",18,", ",0,").replace(",276,", ",0,"), "3 of 3 failed"),
        # cut short
        (PREFILL.rstrip()[:-6], r"line 3: 3 fields in '1,905,906' \(is the line cut\?\)"),
        (AZURE[:-2], r"line 3: 2 fields in .* accepted: 3 \(TIMESTAMP,Context"),
        (
            PREFILL.replace(",pd_ratio", "").replace(",0.0806100217864923", "")[:-8],
            r"line 3: num_total_tokens is '90'; accepted: the sum",
        ),
        (MOONCAKE[:-20], "line 2: JSON cut short or malformed"),
        (json.dumps(RUN, indent=1)[:-3], "JSON cut short"),
        ("[5, 9,", "JSON cut short or malformed"),
        (gzip.compress(AZURE.encode(), mtime=0)[:-9], "gzip data is cut short"),
        (gzip.compress(AZURE.encode() * 99, mtime=0)[:60], "gzip data is cut"),
        # wrong encoding
        (AZURE.encode("utf-16"), "line 1: the encoding is UTF-16; accepted: UTF-8"),
        (AZURE.encode("utf-16-le"), "line 1: byte 0x00 is not text"),
        (BURST.replace("GPT-4", "Modèle").encode("latin-1"), "line 3: byte 0xE8 is not text in UT"),
        # columns and keys
        (
            "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5\n",
            r"column 'GeneratedTokens' is missing \(found: TIMESTAMP, ContextTokens\)",
        ),
        (BURST.replace("Response tokens", "Answer"), "column 'Response tokens' is miss"),
        ("prompt_tokens,output_tokens,prompt_tokens\n1,2,3\n", "line 1: column 'prompt_tokens' is"),
        ("a,b\n1,2\n", "no known trace has the columns a, b; accepted:\n  azure"),
        ('{"a": 1}', "no known trace has the keys a; accepted:\n  azure"),
        ('{"prompt": "Hi", "output_tokens": 5}', "carry no token counts"),
        ('{"timestamp": 0, "input_length": 5}', "key 'output_length' is missing"),
        ('{"request_throughput": 1.5}', "key 'input_lens' is missing.*save-detailed"),
        (json.dumps(RUN | {"output_lens": [1]}), "output_lens has 1 entries"),
        (json.dumps(RUN | {"output_lens": 1}), "output_lens is 1; accepted: an array"),
        (record() + "\n[5]\n", r"line 2: \[5\] is no object"),
        (
            record(ids="[1]") + '\n{"timestamp": 0, "input_length": 5, "output_length": 1}',
            "line 2: key 'hash_ids' is missing",
        ),
        (
            '{"timestamp": 0, "input_length": 5, "output_length": 1}\n' + record(),
            "line 2: hash_ids is there and was not before",
        ),
        ("5\n9,3\n", r"line 2: 2 fields in '9,3'; accepted: 1 \(one length\)"),
        (TOKENS + "1,2,3\n", "line 2: 3 fields in '1,2,3'; accepted: 2"),
        (TOKENS + '1,"2\n', "line 2: not CSV"),
        # counts in tables
        *(
            (
                TOKENS + f"5,1\n{value},1\n",
                f"line 3: prompt_tokens is '{re.escape(value)}'; accepted: {COUNT}",
            )
            for value in ["0", "-3", "2.5", "many", "1e3", "nan", "True", f"{2**63}", "1_0", "٣"]
        ),
        (TOKENS + "9" * 400 + ",1\n", "line 2: prompt_tokens is '9999"),
        (TOKENS + ",1\n", f"line 2: prompt_tokens is missing; accepted: {COUNT}"),
        (TOKENS + "5,-1\n", "line 2: output_tokens is '-1'; accepted: a whole number from 0"),
        (TOKENS + f"{2**62},{2**62}\n", f"line 2: the total .* at most {INT64_MAX}"),
        ("5\n0\n", f"line 2: length is '0'; accepted: {COUNT}"),
        ("1O24\n5\n", "no known trace has the columns 1O24"),
        ("nan\n5\n", "no known trace has the columns nan"),
        (BURST.replace(",472,", ",0,"), "line 2: Request tokens is '0'"),
        # counts in JSON
        *(
            (
                record() + "\n" + record(i=value),
                f"line 2: input_length is {shown}; accepted: {COUNT}",
            )
            for value, shown in [("0", "0"), ("-3", "-3"), ("2.5", "2.5"), ('"5"', "'5'")]
        ),
        (record(i="true"), f"line 1: input_length is True; accepted: {COUNT}"),
        (record(i="null"), f"line 1: input_length is missing; accepted: {COUNT}"),
        (record(i=2**63), f"line 1: input_length is {2**63}; accepted: {COUNT}"),
        (record(i="NaN"), "NaN is not a JSON number"),
        (record(o="-1"), "output_length is -1; accepted: a whole number from 0"),
        (record(i=2**62, o=2**62), "output_length is .* at most"),
        ("[5, 0]", f"entry 1 is 0; accepted: {COUNT}"),
        ("[5, true]", "entry 1 is True"),
        ("[5, [6]]", r"entry 1 is \[6\]"),
        (json.dumps(RUN | {"input_lens": [10, 20, 0]}), r"input_lens\[2\] is 0;"),
        # block ids
        (record(i=513), "hash_ids has 1 ids for 513 tokens; accepted: 2 ids, one per 512 tokens"),
        (record(ids="[1, 2]"), "hash_ids has 2 ids for 5 tokens; accepted: 1 ids"),
        (record(ids="[1.5]"), "hash_ids holds 1.5"),
        (record(ids="[true]"), "hash_ids holds True"),
        (record(ids="7"), "hash_ids is 7; accepted: an array"),
        # times
        (record(time=5) + "\n" + record(time=4), "line 2: timestamp is 4; accepted: a time that i"),
        (record(time='"now"'), "timestamp is 'now'; accepted: a time"),
        (record(time="true"), "timestamp is True"),
        (record(time="1e999"), "timestamp is inf"),
        (
            AZURE.replace(":04.03", ":03.03"),
            "line 3: TIMESTAMP is '2023-11-16 18:17:03."
            "0319600'; accepted: a time that is not before",
        ),
        (
            AZURE.replace("11-16 18:17:04", "13-16 18:17:04"),
            "line 3: TIMESTAMP is '2023-13-16 .* accepted: a date such as",
        ),
        (AZURE.replace("0319600", "03196001234"), "line 3: TIMESTAMP is"),
        (AZURE.replace("2023-11-16 18:17:04.0319600", ""), "line 3: TIMESTAMP is miss"),
        (BURST.replace("118,", "inf,"), "line 4: Timestamp is 'inf'; accepted: seconds"),
    ],
)
def test_a_bad_file_is_one_clear_error(write: Any, content: str | bytes, message: str) -> None:
    path = write(content)
    with pytest.raises(LedgerError, match=message) as caught:
        load_trace(path)
    assert str(caught.value).startswith(str(path))
    assert "accepted" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (PREFILL, "azure", "column 'TIMESTAMP' is missing"),
        (MOONCAKE, "azure", "JSON; accepted as azure"),
        (AZURE, "qwen", "not JSON; accepted as qwen"),
        (AZURE, "lengths", "3 columns; accepted as lengths"),
        (MOONCAKE, "lengths", "a JSON object; accepted as lengths"),
        ("[5]", "benchmark", "a JSON array; accepted as benchmark"),
        (AZURE, "csv", "format 'csv' is not known; accepted:\n  azure"),
    ],
)
def test_a_format_can_be_forced(write: Any, content: str, format: str, message: str) -> None:
    assert load_trace(write(json.dumps(RUN)), "vllm").n_requests == 2
    assert load_trace(write(json.dumps(RUN)), "sglang").n_requests == 2
    both = "prompt_tokens,output_tokens,num_prefill_tokens,num_decode_tokens\n1,2,3,4\n"
    assert lists(load_trace(write(both), "prefill_decode"))[:2] == ([3], [4])
    assert lists(load_trace(write(both), "tokens"))[:2] == ([1], [2])
    refused(message, load_trace, write(content), format)


# --------------------------------------------------------------------------- Trace
def test_a_trace_owns_its_arrays() -> None:
    prompt = np.array([5, 9])
    trace = Trace(prompt, [1, 2], arrival_s=[3, 3.5])
    prompt[0] = 99
    assert trace.prompt_tokens.tolist() == [5, 9]
    for array in (trace.prompt_tokens, trace.output_tokens, trace.arrival_s, trace.total_tokens):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        trace.name = "other"
    assert (len(trace), trace.n_requests, trace.total_tokens.tolist()) == (2, 2, [6, 11])
    assert prompt.flags.writeable
    assert Trace([5, 9], [1, 1], None, [[1], [1, 2]], 4).page_ids == ((1,), (1, 2))
    assert set(TABLES) <= set(TRACE_FORMATS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "prompt_tokens is empty"),
        (([5, 0], [1, 1]), r"prompt_tokens\[1\] is 0"),
        (([5, -1], [1, 1]), r"prompt_tokens\[1\] is -1"),
        (([5, 2.5], [1, 1]), r"prompt_tokens\[1\] is 2.5"),
        (([5, "9"], [1, 1]), r"prompt_tokens\[1\] is '9'"),
        (([5, None], [1, 1]), r"prompt_tokens\[1\] is missing"),
        (([5, True], [1, 1]), r"prompt_tokens\[1\] is True"),
        ((np.array([5.0, np.nan]), [1, 1]), r"prompt_tokens\[1\] is missing"),
        (([5, 2**63], [1, 1]), rf"prompt_tokens\[1\] is {2**63}"),
        (([5, 2**62], [1, 2**62]), r"prompt_tokens\[1\] \+ output_tokens\[1\] .* beyond 64 bits"),
        (([5, 9], [1, -1]), r"output_tokens\[1\] is -1"),
        (([5, 9], [1]), "output_tokens has 1 entries for 2 prompt_tokens"),
        (([5, 9], [1, 1], [1]), "arrival_s has 1 entries for 2"),
        (([5, 9], [1, 1], [2, 1]), r"arrival_s\[1\]: 1.0 is before 2.0"),
        (([5, 9], [1, 1], [2, float("inf")]), r"arrival_s\[1\]: inf is not finite"),
        (([5, 9], [1, 1], ["a", 1]), "arrival_s holds something that is not a number"),
        (([5, 9], [1, 1], [[1, 2]]), "arrival_s has 2 dimensions"),
        (([5, 9], [1, 1], None, [[1], [2]]), "page_ids need page_ids_size"),
        (([5, 9], [1, 1], None, None, 4), "page_ids_size is 4"),
        (([5, 9], [1, 1], None, [[1], [2]], 0), "page_ids_size is 0"),
        (([5, 9], [1, 1], None, [[1, 2]], 4), "page_ids has 1 entries for 2"),
        (([5, 9], [1, 1], None, [[1, 2], [1]], 4), r"page_ids\[1\] has 1 ids for .* 9 tokens"),
        (([5, 9], [1, 1], None, [[1, 2], [1, 2, 2.5]], 4), r"page_ids\[1\]\[2\] is 2.5"),
    ],
)
def test_a_bad_trace_names_the_field_and_the_value(arguments: Any, message: str) -> None:
    refused(message, Trace, *arguments)


# --------------------------------------------------------------------------- properties
requests = st.lists(
    st.tuples(
        st.integers(1, 10**12), st.integers(0, 10**12), st.integers(0, 10**7), st.integers(0, 30)
    ),
    min_size=1,
    max_size=30,
)


def _azure(rows: list[Any], milliseconds: list[int]) -> str:
    start = datetime(2023, 11, 16, 23, 59, 58)
    lines = (
        f"{start + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S.%f}0,{p},{o}"
        for (p, o, *_), ms in zip(rows, milliseconds, strict=True)
    )
    return "\r\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *lines))


def _tokens(rows: list[Any], milliseconds: list[int]) -> str:
    lines = (f"{p},{o},{ms / 1000!r}" for (p, o, *_), ms in zip(rows, milliseconds, strict=True))
    return "\n".join(("prompt_tokens,output_tokens,arrival_s", *lines))


def _mooncake(rows: list[Any], milliseconds: list[int]) -> str:
    return "\n".join(
        json.dumps({"timestamp": ms, "input_length": p, "output_length": o})
        for (p, o, *_), ms in zip(rows, milliseconds, strict=True)
    )


def _benchmark(rows: list[Any], milliseconds: list[int]) -> str:
    return json.dumps(
        {
            "input_lens": [p for p, *_ in rows],
            "output_lens": [o for _, o, *_ in rows],
            "start_times": [ms / 1000 for ms in milliseconds],
            "errors": ["" for _ in rows],
        }
    )


@given(requests, st.sampled_from([_azure, _tokens, _mooncake, _benchmark]), st.booleans())
@settings(deadline=None)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], form: Any, zipped: bool
) -> None:
    milliseconds = np.cumsum([gap for _, _, gap, _ in rows]).tolist()
    data = form(rows, milliseconds).encode()
    path = tmp_path_factory.mktemp("written") / "trace"
    path.write_bytes(gzip.compress(data, 1, mtime=0) if zipped else data)
    trace = load_trace(path)
    assert trace.prompt_tokens.tolist() == [p for p, *_ in rows]
    assert trace.output_tokens.tolist() == [o for _, o, *_ in rows]
    assert trace.arrival_s.tolist() == [(ms - milliseconds[0]) / 1000 for ms in milliseconds]


# --------------------------------------------------------------------------- the raw traces
def test_azure_times_are_exact_to_the_last_digit(raw_traces: Path) -> None:
    path = raw_traces / "azure_conv_2023.csv"
    with path.open(newline="") as file:
        stamps = [row["TIMESTAMP"] for row in csv.DictReader(file)]

    def ticks(stamp: str) -> int:  # of 100 ns, since midnight of the first day
        day, clock = stamp.split()
        hours, minutes, seconds = clock.split(":")
        whole, digits = seconds.split(".")
        assert len(digits) == 7
        days = (datetime.fromisoformat(day) - datetime(2023, 11, 16)).days
        return (((days * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(whole)) * 10**7 + int(
            digits
        )

    expected = [(ticks(stamp) - ticks(stamps[0])) / 10**7 for stamp in stamps]
    arrival = load_trace(path).arrival_s
    assert arrival.tolist() == expected


@pytest.mark.parametrize(
    ("name", "prompt", "output"),
    [
        ("azure_code_2023.csv", "ContextTokens", "GeneratedTokens"),
        ("azure_conv_2023.csv", "ContextTokens", "GeneratedTokens"),
        ("mooncake_conversation.jsonl", "input_length", "output_length"),
        ("mooncake_synthetic.jsonl", "input_length", "output_length"),
        ("sharegpt_8k.csv", "num_prefill_tokens", "num_decode_tokens"),
        ("arxiv_summarization_v2.csv", "num_prefill_tokens", "num_decode_tokens"),
        ("bwb_v2.csv", "num_prefill_tokens", "num_decode_tokens"),
    ],
)
def test_raw_traces_are_read_whole(raw_traces: Path, name: str, prompt: str, output: str) -> None:
    with (raw_traces / name).open(newline="") as file:
        lines = csv.DictReader(file) if name.endswith(".csv") else map(json.loads, file)
        rows = [(int(row[prompt]), int(row[output])) for row in lines]
    trace = load_trace(raw_traces / name)
    assert lists(trace)[:2] == ([p for p, _ in rows], [o for _, o in rows])
