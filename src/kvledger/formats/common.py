"""What the readers share: the list of formats, their result, and the words of their errors."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from kvledger.lengths import INT64_MAX

#: What :func:`load_trace` accepts: the name for ``format=`` and what such a file holds.
TRACE_FORMATS: dict[str, str] = {
    "azure": "CSV with columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure 2023 and 2024)",
    "burstgpt": "CSV with columns Timestamp, Request tokens, Response tokens (BurstGPT)",
    "prefill_decode": (
        "CSV with columns num_prefill_tokens, num_decode_tokens and maybe num_total_tokens, "
        "arrived_at (Vidur, Etalon)"
    ),
    "tokens": "CSV with columns prompt_tokens, output_tokens and maybe arrival_s",
    "mooncake": (
        "JSONL with timestamp (ms), input_length, output_length and maybe hash_ids "
        "(Mooncake; 512 tokens an id)"
    ),
    "qwen": (
        "JSONL with timestamp (s), input_length, output_length and maybe hash_ids, beside chat_id "
        "(Qwen-Bailian; 16 tokens an id)"
    ),
    "benchmark": (
        "JSON or JSONL results with input_lens, output_lens and maybe start_times, errors "
        "(vllm bench serve --save-detailed, sglang.bench_serving --output-details)"
    ),
    "lengths": "one length a line, a CSV of one column with a header, or a JSON array of lengths",
}


class Requests(NamedTuple):
    """What a trace file holds.

    Attributes
    ----------
    prompt, output : int64 arrays, shape (n,)
        Tokens of each request that did not fail.
    arrival_s : float64 array, shape (n,), or None
        Seconds from the first arrival.
    page_ids, page_ids_size
        Block ids of each prompt and the tokens per id, or None.
    failed : int
        Requests that failed and were left out.
    """

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    arrival_s: NDArray[np.float64] | None = None
    page_ids: list[tuple[int, ...]] | None = None
    page_ids_size: int | None = None
    failed: int = 0


def format_list() -> str:
    """Return one line for each format, for an error message."""
    return "\n".join(f"  {name}: {holds}" for name, holds in TRACE_FORMATS.items())


def accepted_whole(minimum: int) -> str:
    """Say which whole numbers are accepted."""
    return f"accepted: a whole number from {minimum} to {INT64_MAX}"


def shown(value: object) -> str:
    """Return a value as an error message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def seconds_from_first(time: NDArray[Any]) -> NDArray[np.float64]:
    """Return seconds from the first time: nanoseconds if integers come in, seconds if floats."""
    if time.dtype.kind == "i":
        return cast(NDArray[np.float64], (time - time[0]) / 1e9)
    # Rounded to a nanosecond: 61.114 - 61.1 is 0.014, not 0.013999999999996.
    return cast(NDArray[np.float64], np.round(time - time[0], 9))
