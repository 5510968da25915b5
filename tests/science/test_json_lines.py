"""Chat logs with usage, and what the serving benchmarks of vLLM and SGLang write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st
from rawtraces import lists

import kvledger as kv
from kvledger.core.errors import LedgerError

USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: Any) -> Path:
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


def body(usage: Any = USAGE, **fields: Any) -> dict[str, Any]:
    """Return a chat completion as the API reference shows it, shortened."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hi"},
        "finish_reason": "stop",
    }
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice],
        "usage": usage, **fields,
    }  # fmt: skip


def batch(body: Any, status: Any = 200, error: Any = None) -> dict[str, Any]:
    """Return a line of a batch's output file."""
    response = {"status_code": status, "request_id": "req-1", "body": body}
    return {"id": "batch_req_1", "custom_id": "request-1", "response": response, "error": error}


RESPONSE = {
    "id": "resp_1", "object": "response", "status": "completed", "output": [],
    "usage": {"input_tokens": 9, "output_tokens": 12, "total_tokens": 21,
              "output_tokens_details": {"reasoning_tokens": 3}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "prompt", "output"),
    [
        pytest.param(batch(body()), 9, 12, id="batch"),
        pytest.param(body(), 9, 12, id="chat completion"),
        pytest.param(body() | {"object": "text_completion"}, 9, 12, id="completion"),
        pytest.param(RESPONSE, 9, 12, id="response"),
        pytest.param(batch(RESPONSE), 9, 12, id="response in a batch"),
        pytest.param({"usage": USAGE}, 9, 12, id="nothing but usage"),
        pytest.param(body({"prompt_tokens": 9, "completion_tokens": 0}), 9, 0, id="no output"),
        pytest.param(
            {"object": "list", "data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}}, 8, 0,
            id="embeddings",
        ),
        pytest.param(batch(body(), 201), 9, 12, id="another success"),
    ],
)  # fmt: skip
def test_usage_is_found_wherever_it_stands(write: Any, line: Any, prompt: int, output: int) -> None:
    trace = kv.load_trace(write(line))
    assert lists(trace) == ([prompt], [output], None)
    assert trace.skipped == {}
    assert lists(kv.load_trace(write(line), "openai")) == ([prompt], [output], None)


@pytest.mark.parametrize(
    ("line", "reason", "failed"),
    [
        (batch(None, 429), "HTTP status 429", 1),
        (batch({"error": {"message": "m"}}, 400), "HTTP status 400", 1),
        (batch(None, 500, error="e"), "HTTP status 500", 1),
        (batch(body(), error={"code": "batch_expired"}), "reported an error", 1),
        ({"custom_id": "a", "response": None, "error": {"code": "c"}}, "reported an error", 1),
        ({"custom_id": "a", "response": None, "error": None}, "no response", 1),
        (batch(None), "no response", 1),
        ({"error": {"message": "m"}}, "reported an error", 1),
        (RESPONSE | {"status": "failed", "usage": None}, "status failed", 1),
        (RESPONSE | {"status": "cancelled"}, "status cancelled", 1),
        (body({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}), "no tokens", 1),
        (body(None), "no usage", 0),
        (batch(body(None)), "no usage", 0),
        ({"object": "chat.completion"}, "no usage", 0),
        (body(choices=[{}, {}]), "more than one choice", 0),
        (body(object="chat.completion.chunk"), "part of a stream", 0),
    ],
)
def test_the_unusable_is_counted_by_reason(write: Any, line: Any, reason: str, failed: int) -> None:
    path = write(body(), line, body(), line)
    for loaded in (kv.load_trace(path), kv.load_lengths(path)):
        assert loaded.n_requests == 2
        assert loaded.skipped == {reason: 2}
        assert loaded.failed_requests == 2 * failed
    with pytest.raises(LedgerError, match=f"no request that .*{reason}.*accepted: at least one"):
        kv.load_trace(write(line), "openai")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (body({"prompt_tokens": "9", "completion_tokens": 1}), "prompt_tokens is '9'; accepted: a"),
        (body({"prompt_tokens": -1, "completion_tokens": 1}), "prompt_tokens is -1; accepted"),
        (body({"prompt_tokens": 9.5, "completion_tokens": 1}), "prompt_tokens is 9.5; accepted"),
        (body({"prompt_tokens": True, "completion_tokens": 1}), "prompt_tokens is True; accepted"),
        (body({"prompt_tokens": 0, "completion_tokens": 1}), "prompt_tokens is 0; accepted"),
        (body({"prompt_tokens": 2**63, "completion_tokens": 1}), f"prompt_tokens is {2**63}"),
        (body({"prompt_tokens": 9}), "key 'completion_tokens' is missing .*accepted as openai"),
        (body({"input_tokens": 9}), "key 'output_tokens' is missing"),
        (body({"completion_tokens": 9}), "key 'prompt_tokens' is missing"),
        (body({}), "key 'prompt_tokens' is missing"),
        (body(USAGE | {"total_tokens": 22}), "total_tokens is 22; accepted: the sum .*9 \\+ 12"),
        (body([9, 12]), r"usage is \[9, 12\]; accepted: an object"),
        (body(created="now"), "created is 'now'; accepted: a time"),
        (batch(body(), "200"), "status_code is '200'"),
        (batch(body(), 1000), "status_code is 1000; accepted: an HTTP status"),
        (batch([]), r"body is \[\]; accepted: an object"),
        (batch(body()) | {"response": "x"}, "response is 'x'; accepted: an object"),
        ({"a": 1}, "key 'usage' is missing .found: a.; accepted as openai"),
    ],
)
def test_a_malformed_line_is_one_clear_error(write: Any, line: Any, message: str) -> None:
    path = write(body(), line)
    for load in (kv.load_trace, kv.load_lengths):
        with pytest.raises(LedgerError, match=f"line 2: {message}") as caught:
            load(path)
        assert caught.value.__cause__ is None
    counted = kv.load_trace(path, unusable="count")
    assert (counted.n_requests, counted.skipped.rows, counted.failed_requests) == (1, 1, 0)


# --------------------------------------------------------------------------- times
@given(st.lists(st.integers(1_700_000_000, 1_700_000_100), min_size=1, max_size=20))
def test_responses_in_order_of_creation(
    tmp_path_factory: pytest.TempPathFactory, times: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    lines = [
        body({"prompt_tokens": i + 1, "completion_tokens": 0}, created=time)
        for i, time in enumerate(times)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    order = sorted(range(len(times)), key=lambda i: (times[i], i))
    trace = kv.load_trace(path)
    assert lists(trace) == (
        [i + 1 for i in order],
        [0] * len(times),
        [float(times[i] - min(times)) for i in order],
    )
    assert kv.load_lengths(path).prompt.tokens.tolist() == [i + 1 for i in range(len(times))]


def test_times_are_all_or_none(write: Any) -> None:
    assert lists(kv.load_trace(write(body(created=5), body()))) == ([9, 9], [12, 12], None)
    times = [RESPONSE | {"created_at": t} for t in (7.25, 7.0)]
    assert lists(kv.load_trace(write(*times)))[2] == [0.0, 0.25]
    # What is left out needs no time.
    assert lists(kv.load_trace(write(body(created=5), body(None))))[2] == [0.0]
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}
    refused("requests carry no token counts: its output file does", kv.load_trace, write(line))
    chunks = [body(None, object="chat.completion.chunk") for _ in range(3)]
    last = body(object="chat.completion.chunk", choices=[])
    trace = kv.load_trace(write(*chunks, last))
    assert lists(trace) == ([9], [12], None)
    assert trace.skipped == {"no usage": 3}


# --------------------------------------------------------------------------- benchmarks
# The keys that vLLM 0.33 writes with --save-result --save-detailed, and those of SGLang with
# --output-details; a failed request has an output of 0 tokens in both.
VLLM = {
    "date": "20251101-120000", "backend": "vllm", "num_prompts": 4, "request_rate": "inf",
    "duration": 2.0, "completed": 2, "failed": 2, "total_input_tokens": 30,
    "total_output_tokens": 5, "request_throughput": 1.0, "input_lens": [10, 20, 30, 40],
    "output_lens": [2, 0, 3, 0], "ttfts": [0.1, 0.0, 0.2, 0.0], "itls": [[0.1], [], [0.1, 0.1], []],
    "latencies": [0.2, 0.0, 0.4, 0.0], "start_times": [100.5, 100.25, 101.0, 101.0],
    "generated_texts": ["a", "", "b", ""], "errors": ["", "Traceback", "", ""],
}  # fmt: skip
SGLANG = {
    "backend": "sglang", "dataset_name": "sharegpt", "duration": 2.0, "completed": 3,
    "total_input_tokens": 60, "total_output_tokens": 6, "request_throughput": 1.5,
    "input_lens": [10, 20, 30, 40], "output_lens": [2, 1, 3, 0], "ttfts": [0.1] * 4,
    "itls": [[]] * 4, "generated_texts": [""] * 4, "errors": ["", "", "", "Traceback"],
}  # fmt: skip


def test_results_of_benchmarks(write: Any) -> None:
    trace = kv.load_trace(write(VLLM))
    assert lists(trace) == ([10, 30], [2, 3], [0.0, 0.5])
    # The last request failed without a word: only `completed` tells.
    assert trace.skipped == {"reported an error": 1, "no output in a run with failures": 1}
    assert trace.failed_requests == 2
    trace = kv.load_trace(write(SGLANG), "sglang")
    assert lists(trace) == ([10, 20, 30], [2, 1, 3], None)
    assert trace.skipped == {"reported an error": 1}
    run = {"completed": 2, "input_lens": [10, 20], "output_lens": [0, 5]}
    for completed in ({}, {"completed": 2}, {"completed": None}, {"completed": "1"}):
        assert kv.load_trace(write(run | completed)).n_requests == 2
    assert kv.load_trace(write(run | {"completed": 1})).failed_requests == 1
    # ``--append-result`` puts a line feed ahead of each run but the first, and none behind.
    path = write(VLLM)
    path.write_text(json.dumps(VLLM) + "\n" + json.dumps(SGLANG))
    trace = kv.load_trace(path)
    assert lists(trace) == ([10, 30, 10, 20, 30], [2, 3, 2, 1, 3], None)
    assert trace.failed_requests == 3
    assert kv.load_lengths(path).skipped == trace.skipped
    short = {key: value for key, value in VLLM.items() if not isinstance(value, list)}
    refused(r"'input_lens' is missing.*--save-detailed", kv.load_trace, write(short))
