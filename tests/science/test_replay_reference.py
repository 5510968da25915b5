"""The compiled engine against the readable reference, on requests that nobody recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_replay import NEVER, Policy, replay, watermark_pages

import kvledger as kv
from kvledger.replays.replay import Paged
from kvledger.replays.replay import replay as compiled_replay


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw prompts out of few tokens, so that pages are equal often, and outputs after them."""
    page_size = draw(st.sampled_from([1, 2, 3, 4, 16]))
    token = st.integers(0, 1)
    prompts: list[list[int]] = []
    texts: list[list[int]] = []
    for _ in range(draw(st.integers(1, 12))):
        start = draw(st.sampled_from([[], *texts]))  # often a text that was there before
        prompts.append(start + draw(st.lists(token, min_size=1, max_size=2 * page_size + 1)))
        texts.append(prompts[-1] + draw(st.lists(token, max_size=page_size + 4)))
    numbers: dict[tuple[int, ...], int] = {}
    keys = [
        [
            numbers.setdefault(tuple(text[: end + 1]), len(numbers))
            for end in range(page_size - 1, len(text), page_size)
        ]
        for text in texts
    ]
    return {
        "page_size": page_size,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "output_tokens": [
            len(text) - len(prompt) for text, prompt in zip(texts, prompts, strict=True)
        ],
        "page_keys": keys,
    }


@settings(max_examples=300)
@given(
    asked=requests(),
    room=st.floats(0.3, 3.0),
    max_running=st.integers(1, 8),
    watermark=st.sampled_from([0.0, 0.1, 0.3, 0.9]),
    chunk=st.none() | st.integers(1, 20),
    options=st.sampled_from(
        [
            {"prefix_cache": False},
            {"prefix_cache": True},
            {"prefix_cache": True, "same_step_hits": False},
            {"prefix_cache": True, "same_step_hits": False, "merge_duplicates": True},
            {"prefix_cache": True, "whole_prompt_must_fit": False},
            {"prefix_cache": True, "lone_prompt_whole": False},
            {"prefix_cache": False, "whole_prompt_must_fit": False, "lone_prompt_whole": False},
        ]
    ),
)
def test_the_engine_gives_the_references_columns(
    asked: dict[str, Any],
    room: float,
    max_running: int,
    watermark: float,
    chunk: int | None,
    options: dict[str, bool],
) -> None:
    size, prompts, outputs = asked["page_size"], asked["prompt_tokens"], asked["output_tokens"]
    keys = asked["page_keys"]
    longest = max(p + max(0, o - 1) for p, o in zip(prompts, outputs, strict=True))
    pages = max(1, int(room * -(-longest // size)))
    columns = replay(
        prompts,
        outputs,
        keys,
        Policy(
            page_size=size,
            pages=pages,
            max_running=max_running,
            watermark_pages=watermark_pages(watermark, pages),
            prefill_chunk=chunk,
            **options,
        ),
        check=True,
    )
    complete = [prompt // size for prompt in prompts]
    result = compiled_replay(
        kv.Trace(
            prompts,
            outputs,
            page_ids=[each[:k] for each, k in zip(keys, complete, strict=True)],
            page_ids_size=size,
        ),
        Paged(page_size=size, watermark=watermark, null_pages=1, **options),
        capacity_slots=(pages + 1) * size,
        max_running=max_running,
        prefill_chunk=chunk,
        output_page_ids=[each[k:] for each, k in zip(keys, complete, strict=True)],
    )
    for name in (
        "running",
        "waiting",
        "pages",
        "hit_tokens",
        "resumed_hit_tokens",
        "recomputed_tokens",
        "preempted",
        "logical_tokens",
        "shared_tokens",
        "distinct_tokens",
        "tail_slack_slots",
        "allocated_slots",
        "unallocated_slots",
    ):
        assert getattr(result, name).tolist() == getattr(columns, name), name
    assert result.cached_pages.tolist() == columns.cached
    about = result.requests
    for name in ("admitted_step", "finished_step"):
        ours = np.asarray(about[name].fillna(NEVER), np.int64)
        assert ours.tolist() == getattr(columns, name), name
    assert about["preemptions"].tolist() == columns.preemptions
    assert about["hit_tokens"].tolist() == columns.request_hit_tokens
    assert np.flatnonzero(about["state"] == "refused").tolist() == columns.refused
