"""The replay holds at every step what vLLM's own block manager held, as recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from peerrecords import FOLDER, Recorded, heads, recorded
from reference_replay import Columns, Policy, replay, watermark_pages

import kvledger as kv
from kvledger.replays.policies import Paged
from kvledger.replays.replay import replay as compiled_replay
from kvledger.replays.result import Replay

CASES = pytest.mark.parametrize("case", recorded(), ids=repr)


def policy_of(case: Recorded) -> Policy:
    return Policy(
        page_size=case.page_size,
        pages=case.pages,
        max_running=case.max_running,
        prefix_cache=case.prefix_cache,
        watermark_pages=watermark_pages(case.watermark, case.pages),
        prefill_chunk=case.prefill_chunk,
    )


def by_reference(case: Recorded, policy: Policy | None = None, *, check: bool = False) -> Columns:
    return replay(
        case.prompt_tokens,
        case.output_tokens,
        case.page_keys,
        policy or policy_of(case),
        check=check,
    )


def by_engine(case: Recorded) -> Replay:
    """Replay a case as vLLM does: its null page, its watermark, its pages' keys."""
    complete = [prompt // case.page_size for prompt in case.prompt_tokens]
    pairs = list(zip(case.page_keys, complete, strict=True))
    trace = kv.Trace(
        case.prompt_tokens,
        case.output_tokens,
        page_ids=[keys[:k] for keys, k in pairs],
        page_ids_size=case.page_size,
        name=case.name,
    )
    policy = Paged(
        page_size=case.page_size,
        prefix_cache=case.prefix_cache,
        watermark=case.watermark,
        null_pages=1,
    )
    return compiled_replay(
        trace,
        policy,
        capacity_slots=(case.pages + 1) * case.page_size,
        max_running=case.max_running,
        prefill_chunk=case.prefill_chunk,
        record_requests=True,
        output_page_ids=[keys[k:] for keys, k in pairs],
    )


def held_pages(result: Replay, page_size: int) -> list[list[int]]:
    """Pages in each running request's table, in order of admission, for every step."""
    held: list[list[int]] = [[] for _ in range(len(result))]
    assert result.running_requests is not None
    rows = result.running_requests
    for step, slots in zip(rows["record"].tolist(), rows["held_slots"].tolist(), strict=True):
        held[step].append(slots // page_size)
    return held


@CASES
def test_the_reference_holds_what_vllm_held_at_every_step(case: Recorded) -> None:
    columns = by_reference(case, check=case.name.startswith("drawn"))
    for name, answer in case.answers.items():
        assert getattr(columns, name) == answer, name


@CASES
def test_the_engine_holds_what_vllm_held_at_every_step(case: Recorded) -> None:
    result, answers = by_engine(case), case.answers
    for column, answer in (
        (result.running, "running"),
        (result.waiting, "waiting"),
        (result.pages, "pages"),
        (result.cached_pages, "cached"),
        (result.hit_tokens, "hit_tokens"),
        (result.resumed_hit_tokens, "resumed_hit_tokens"),
        (result.preempted, "preempted"),
        (result.requests["admitted_step"].fillna(-1), "admitted_step"),
        (result.requests["finished_step"].fillna(-1), "finished_step"),
        (result.requests["hit_tokens"], "request_hit_tokens"),
        (result.requests["preemptions"], "preemptions"),
    ):
        np.testing.assert_array_equal(np.asarray(column, np.int64), answers[answer], answer)
    assert held_pages(result, case.page_size) == answers["held"]
    assert (result.unallocated_slots // case.page_size).tolist() == answers["free"]
    refused = np.flatnonzero(result.requests["state"] == "refused")
    assert refused.tolist() == answers["refused"]
    result, columns = by_engine(case), by_reference(case)
    for name in (
        "logical_tokens",
        "shared_tokens",
        "distinct_tokens",
        "tail_slack_slots",
        "allocated_slots",
        "unallocated_slots",
    ):
        assert getattr(result, name).tolist() == getattr(columns, name), name


def test_the_records_hold_what_they_are_to_judge() -> None:
    """Cases without preemption, eviction or sharing would pass whatever the rules."""
    cases = recorded()

    def having(answer: str, *, at_least: int = 1, **setting: Any) -> int:
        return sum(
            sum(case.answers[answer]) >= at_least
            for case in cases
            if all(getattr(case, name) == value for name, value in setting.items())
        )

    assert len(cases) == 107
    for page_size in (1, 4, 16):
        for prefix_cache in (False, True):
            setting = {"page_size": page_size, "prefix_cache": prefix_cache}
            assert having("preempted", **setting) >= 4
        assert having("hit_tokens", page_size=page_size, prefix_cache=True) >= 15
        assert having("resumed_hit_tokens", page_size=page_size, prefix_cache=True) >= 8
    assert having("preempted", at_least=10) >= 10
    assert sum(1 for case in cases if case.answers["refused"]) >= 10
    assert sum(1 for case in cases if case.prefill_chunk) >= 15
    assert {case.watermark for case in cases} >= {0.0, 0.02, 0.1, 0.2}
    assert {case.max_running for case in cases} >= set(range(2, 9))
    assert any(0 in case.output_tokens for case in cases)
    evicting = [case for case in cases if np.any(np.diff(case.answers["cached"]) < 0)]
    assert len(evicting) >= 50
    assert {file: head["vllm"] for file, head in heads().items()} == dict.fromkeys(
        heads(), "0.33.0"
    )
    assert len({head["driver"] for head in heads().values()}) == 1
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_500_000


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({"same_step_hits": False}, 40),
        ({"merge_duplicates": True}, 20),
        ({"whole_prompt_must_fit": False}, 8),
        ({"lone_prompt_whole": False}, 4),
        ({"prefill_chunk": None}, 15),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_rule_of_engines_changes_recorded_answers(change: dict[str, Any], least: int) -> None:
    different = 0
    for case in recorded():
        columns = by_reference(case, replace(policy_of(case), **change))
        different += any(getattr(columns, name) != answer for name, answer in case.answers.items())
    assert different >= least


def test_two_identical_prompts_hold_three_pages_or_two() -> None:
    """Eight tokens each, pages of four: vLLM keeps the second copy, SGLang merges it."""
    vllm = Policy(page_size=4, pages=8, max_running=2, prefix_cache=True)
    asked = ([8, 8], [1, 1], [[0, 1], [0, 1]])
    columns = replay(*asked, vllm, check=True)
    assert (columns.pages, columns.settled_pages, columns.hit_tokens) == ([3], [3], [4])
    merging = replace(vllm, same_step_hits=False, merge_duplicates=True)
    columns = replay(*asked, merging, check=True)
    assert (columns.pages, columns.settled_pages, columns.hit_tokens) == ([4], [2], [0])


def test_a_record_that_is_off_by_one_is_noticed() -> None:
    case = next(case for case in recorded() if sum(case.answers["preempted"]))
    answers = json.loads(json.dumps(case.answers))
    answers["pages"][-1] += 1
    with pytest.raises(AssertionError, match="pages"):
        test_the_reference_holds_what_vllm_held_at_every_step(replace(case, answers=answers))
    with pytest.raises(AssertionError, match="pages"):
        test_the_engine_holds_what_vllm_held_at_every_step(replace(case, answers=answers))
