"""Rows that cannot be used are counted by reason and reported, from every format alike."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import refused

import kvledger as kv
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import as_lengths
from kvledger.traces.forms import Skipped, Tally

# --------------------------------------------------------------------------- the mapping


def test_a_mapping_that_does_not_change() -> None:
    counts = {"no usage": 2, "never": 0}
    skipped = Skipped(counts, failed=1)
    counts["no usage"] = 9
    assert skipped == {"no usage": 2}
    assert (len(skipped), skipped.rows, skipped.failed, list(skipped)) == (1, 2, 1, ["no usage"])
    with pytest.raises(TypeError):
        skipped["no usage"] = 3
    with pytest.raises(KeyError):
        skipped["never"]
    for copied in (pickle.loads(pickle.dumps(skipped)), copy.deepcopy(skipped)):
        assert (copied, copied.failed) == (skipped, 1)


@pytest.mark.parametrize(
    ("reasons", "failed", "text"),
    [
        ({}, 0, "none left out"),
        ({"a": 1}, 1, "1 failed request left out (1 a)"),
        ({"a": 1200}, 0, "1,200 unusable rows left out (1,200 a)"),
        ({"a": 1, "b": 2}, 1, "1 failed request and 2 unusable rows left out (1 a, 2 b)"),
    ],
)
def test_it_says_what_was_left_out(reasons: Any, failed: int, text: str) -> None:
    assert str(Skipped(reasons, failed)) == text


@pytest.mark.parametrize(
    ("reasons", "failed", "message"),
    [
        ({"a": -1}, 0, r"skipped\['a'\] is -1; accepted: a count from 0"),
        ({"a": 0.5}, 0, r"skipped\['a'\] is 0.5"),
        ({"a": True}, 0, r"skipped\['a'\] is True"),
        ({"a": 1}, -1, "failed_requests is -1; accepted: a count from 0"),
        ({"a": 1}, 2, "failed_requests is 2 of 1 skipped rows; accepted: at most as many"),
    ],
)
def test_counts_that_are_none_are_refused(reasons: Any, failed: int, message: str) -> None:
    refused(message, Skipped, reasons, failed)


def test_a_trace_says_what_is_not_in_it() -> None:
    old = kv.Trace([5], [1], failed_requests=3)
    assert (old.failed_requests, old.skipped) == (3, {"failed": 3})
    assert repr(old).endswith("3 failed requests left out (3 failed))")
    both = kv.Trace([5], [1], failed_requests=1, skipped={"HTTP status 500": 1, "no usage": 2})
    assert (both.failed_requests, both.skipped.rows) == (1, 3)
    assert kv.Trace([5], [1]).skipped == {}
    assert pickle.loads(pickle.dumps(both)).skipped == both.skipped
    with pytest.raises(LedgerError, match="failed_requests is 2 of 1 skipped rows"):
        kv.Trace([5], [1], failed_requests=2, skipped={"no usage": 1})
    lengths = as_lengths([5, 9])
    plain = kv.LengthMarginals("mine", lengths, lengths)
    assert (plain.skipped, plain.failed_requests) == ({}, 0)
    assert repr(plain) == "LengthMarginals('mine': 2 requests, 14 prompt + 0 output tokens)"
    tally = Tally()
    tally.fail("reported an error")
    tally.leave_out("no usage", 2)
    some = kv.LengthMarginals("mine", lengths, lengths, tally.skipped())
    assert some.failed_requests == 1
    assert repr(some).endswith("1 failed request and 2 unusable rows left out "
                               "(1 reported an error, 2 no usage))")  # fmt: skip
    assert kv.LengthMarginals("mine", lengths, lengths, {"no usage": 2}).skipped.rows == 2


# --------------------------------------------------------------------------- from files
TOKENS = "prompt_tokens,output_tokens,arrival_s\n"
MOONCAKE = '{{"timestamp": {}, "input_length": {}, "output_length": {}}}\n'
UNUSABLE = {
    "table": (
        TOKENS + '1,1,1\n2,2,0\n3,x,3\n,4,4\n5\n6,"6,6\n7,7,7\n8,8,nan\n9,9,9,9\n'
        f"{2**62},{2**62},10\n0,5,10\n",
        2,
        {
            "arrival_s goes back": 1,
            "output_tokens not accepted": 1,
            "prompt_tokens missing": 1,
            "not 3 fields": 2,
            "not CSV": 1,
            "arrival_s not accepted": 1,
            "the total beyond 64 bits": 1,
            "prompt_tokens not accepted": 1,
        },
    ),
    "table with totals": (
        "num_prefill_tokens,num_decode_tokens,num_total_tokens\n5,1,6\n5,1,7\n5,1,\n",
        1,
        {"num_total_tokens is no sum": 1, "num_total_tokens missing": 1},
    ),
    "lengths": ("5\n0\nx\n1e3\n7\n", 2, {"length not accepted": 3}),
    "lengths under a name": ("my \"secret\" column\n5\nx\n", 1, {"length not accepted": 1}),
    "array": ("[5, 0, null, 7.0]", 2, {"entry not accepted": 2}),
    "mooncake": (
        MOONCAKE.format(1000, 5, 1) + MOONCAKE.format(0, 5, 1) + MOONCAKE.format(1000, '"5"', 1)
        + MOONCAKE.format(1000, 5, -1) + '{"timestamp": 1, "input_length": 5}\n{"timestamp": 1, \n'
        + MOONCAKE.format("null", 5, 1) + MOONCAKE.format(3000, 6, 0),
        2,
        {
            "timestamp goes back": 1,
            "input_length not accepted": 1,
            "output_length not accepted": 1,
            "output_length missing": 1,
            "JSON malformed": 1,
            "timestamp not accepted": 1,
        },
    ),
    "benchmark": (
        json.dumps({"input_lens": [5, 0, None, 7], "output_lens": [1, 1, 1, 0]}),
        2,
        {"input_lens not accepted": 1, "input_lens missing": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_rows_are_counted_where_that_is_asked_for(write: Any, case: str) -> None:
    content, requests, reasons = UNUSABLE[case]
    path = write(content)
    for load in (kv.load_trace, kv.load_lengths):
        loaded = load(path, unusable="count")
        assert loaded.n_requests == requests
        assert loaded.skipped == reasons
        assert loaded.failed_requests == 0
        assert str(loaded.skipped) in repr(loaded)


@pytest.mark.parametrize("case", UNUSABLE)
def test_the_first_of_them_is_an_error_where_it_is_not(write: Any, case: str) -> None:
    path = write(UNUSABLE[case][0])
    messages = set()
    for load in (kv.load_trace, kv.load_lengths):
        with pytest.raises(LedgerError, match="accepted: ") as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}, ")
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_a_parquet_file_counts_as_its_table_does(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "prompt_tokens": [1, 2, None, 4, 2.5, 0],
            "output_tokens": [1, 2, 3, None, 5, 6],
            "arrival_s": [1.0, 0.5, 1, 1, 1, 1],
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    trace = kv.load_trace(tmp_path / "t.parquet", unusable="count")
    assert trace.n_requests == 1
    assert trace.skipped == {
        "arrival_s goes back": 1,
        "prompt_tokens missing": 1,
        "output_tokens missing": 1,
        "prompt_tokens not accepted": 2,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prompt_tokens,output_tokens\n1,x\n", "no request that can be used: 1 unusable row left"),
        ("[0]", "no request that can be used: 1 unusable row left out"),
        ("[]", "an empty JSON array"),
        ("prompt_tokens,output_tokens\n", "a header and no requests"),
        ('{"input_lens": [], "output_lens": []}', "no requests; accepted: at least one"),
        (
            "Timestamp,Request tokens,Response tokens\n1,5,0\n2,x,1\n",
            r"no request that can be used: 1 failed request and 1 unusable row left out "
            r"\(1 Request tokens not accepted, 1 Response tokens is 0\)",
        ),
    ],
)
def test_a_trace_needs_a_request_that_can_be_used(write: Any, content: str, message: str) -> None:
    for load in (kv.load_trace, kv.load_lengths):
        refused(message, load, write(content), unusable="count")


def test_no_reason_holds_what_a_row_holds(write: Any) -> None:
    marker = "MARKER"
    batch = {"custom_id": marker, "response": {"status_code": 200, "body": {"usage": marker}}}
    good = {"custom_id": "a", "response": {"body": {"usage": {"prompt_tokens": 5,
            "completion_tokens": 1}}}}  # fmt: skip
    contents = [
        TOKENS + f"1,1,1\n{marker},1,1\n1,{marker},1\n1,1,{marker}\n{marker}\n",
        f"{marker}\n5\n{marker}1\n",
        MOONCAKE.format(1, 5, 1) + MOONCAKE.format(f'"{marker}"', 5, 1) + f'{{"{marker}": 1}}\n'
        + f'{{"{marker}\n',
        json.dumps({"input_lens": [5, marker], "output_lens": [1, 1]}),
        json.dumps({"input_lens": [5, 5], "output_lens": [1, 1], "errors": ["", marker]}),
        json.dumps(good) + "\n" + json.dumps(batch) + "\n"
        + json.dumps(batch | {"response": None, "error": {marker: marker}}) + "\n"
        + json.dumps({"custom_id": marker, "response": marker}),
    ]  # fmt: skip
    for content in contents:
        trace = kv.load_trace(write(content), unusable="count")
        assert trace.skipped.rows >= 1
        assert marker not in repr(trace) + repr(trace.skipped)


def test_unusable_is_one_of_two_and_names_are_cut(write: Any) -> None:
    for load in (kv.load_trace, kv.load_lengths):
        with pytest.raises(LedgerError, match="unusable is 'drop'; accepted: 'error', 'count'"):
            load(write("5\n"), unusable="drop")
    for content in (",".join(f"column{i}" for i in range(1000)) + "\n",
                    json.dumps({f"key{i}" * 50: i for i in range(1000)})):  # fmt: skip
        assert len(refused("and 980 others; accepted", kv.load_trace, write(content))) < 4000


# --------------------------------------------------------------------------- mixed formats
LINE = {
    "mooncake": MOONCAKE.format(1, 5, 1).strip(),
    "qwen": '{"chat_id": 1, "timestamp": 1, "input_length": 5, "output_length": 1}',
    "openai": '{"usage": {"prompt_tokens": 5, "completion_tokens": 1}}',
    "benchmark": '{"input_lens": [5], "output_lens": [1]}',
}


@pytest.mark.parametrize("unusable", ["error", "count"])
@pytest.mark.parametrize("first", LINE)
@pytest.mark.parametrize("second", LINE)
def test_one_kind_of_record_a_file(write: Any, first: str, second: str, unusable: Any) -> None:
    path = write(f"{LINE[first]}\n\n{LINE[second]}\n")
    if first == second:
        assert kv.load_trace(path).n_requests == 2
        return
    for load in (kv.load_trace, kv.load_lengths):
        with pytest.raises(LedgerError) as caught:
            load(path, unusable=unusable)
        assert str(caught.value) == (
            f"{path}, line 3: {second} in a file that began as {first}; "
            "accepted: one format a file, and one header"
        )


@pytest.mark.parametrize("unusable", ["error", "count"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TOKENS + "5,1,1\n" + LINE["mooncake"], "line 3: JSON in a file that began as tokens"),
        (TOKENS + "5,1,1\n[5, 6]\n", "line 3: JSON in a file that began as tokens"),
        (TOKENS + "5,1,1\n" + TOKENS + "6,1,1", "line 3: another header in a file that began as t"),
        (TOKENS + "5,1,1\nTIMESTAMP,ContextTokens,GeneratedTokens\n", "line 3: another header in "),
        (TOKENS + '5,1,1\n"num_prefill_tokens","num_decode_tokens"\n', "line 3: another header in"),
        ("5\n" + LINE["qwen"], "line 2: JSON in a file that began as lengths"),
        ("5\n" + TOKENS, "line 2: another header in a file that began as lengths"),
        ("mine\n5\nmine\n6\n", "line 3: another header in a file that began as lengths"),
        (LINE["mooncake"] + "\n5,6\n", "line 2: '5,6' in a file that began as JSON"),
        (LINE["openai"] + "\n" + TOKENS, "line 2: 'prompt_tokens.*' in a file that began as JSON"),
    ],
)
def test_mixed_formats_are_one_error(write: Any, content: str, message: str, unusable: Any) -> None:
    for load in (kv.load_trace, kv.load_lengths):
        refused(message, load, write(content), unusable=unusable)


# --------------------------------------------------------------------------- names are data
HOSTILE = "<script>\x1b[31m\u202e$(rm)`x`"


def test_a_hostile_name_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[31mb"
    folder.mkdir()
    contents = [
        f"{HOSTILE},b\n1,2\n",
        f"{HOSTILE}\nx\n",
        json.dumps({HOSTILE: 1}),
        LINE["mooncake"] + "\n" + json.dumps({HOSTILE: 1}),
        f"prompt_tokens,output_tokens,{HOSTILE}\n1,2\n",
        TOKENS + f"{HOSTILE},1,1\n",
        LINE["mooncake"] + "\n" + HOSTILE,
    ]
    paths = []
    for i, content in enumerate(contents):
        paths.append(folder / f"{i}.csv")
        paths[-1].write_text(content)
    for values in ([1], ["x"], [{HOSTILE: 1}]):
        paths.append(folder / f"{len(paths)}.parquet")
        columns = {HOSTILE: values, "b": values} if values == [1] else {HOSTILE: values}
        pd.DataFrame(columns).to_parquet(paths[-1])
    paths.append(folder / "absent")
    for path in paths:
        for load in (kv.load_trace, kv.load_lengths):
            assert all(line.isprintable() for line in refused("", load, path).split("\n"))
