"""Record what vLLM's own block manager holds at every step, on a CPU and without a model.

    python tests/peers/record_vllm.py --check        record again, compare with the stored answers
    python tests/peers/record_vllm.py                write the stored answers anew
    python tests/peers/record_vllm.py --raw FOLDER   the same, the traces cut anew from raw files

Every case is driven twice: through ``KVCacheManager``, by the steps written down in
:func:`by_manager`, and through vLLM's whole ``Scheduler``, which decides by itself whom to admit,
to preempt and to finish. Both must give the same answers, or nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

import torch
import vllm
from cases import (
    Case,
    Setting,
    drawn_cases,
    needed_pages,
    page_keys,
    tokens_of_keys,
    trace_cases,
)
from vllm.config import CacheConfig, ParallelConfig, SchedulerConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

DRIVER = 1
FOLDER = Path(__file__).resolve().parent.parent / "data" / "peers"
DRAWN, TRACES = FOLDER / "vllm_drawn.jsonl", FOLDER / "vllm_traces.jsonl"
UNLIMITED = 1 << 30

init_none_hash(sha256)


@dataclass
class Answers:
    """What an engine held and did: a value a step, then a value a request (-1: never).

    ``held`` lists the pages in each running request's table, in order of admission; ``pages``
    counts those held by any. All are taken after admission, before anything is sampled or freed.
    """

    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    hit_tokens: list[int] = field(default_factory=list)
    resumed_hit_tokens: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    held: list[list[int]] = field(default_factory=list)
    admitted_step: list[int] = field(default_factory=list)
    finished_step: list[int] = field(default_factory=list)
    request_hit_tokens: list[int] = field(default_factory=list)
    request_resumed_hit_tokens: list[int] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, requests: int) -> Answers:
        """Begin with no steps, and no request admitted or finished."""
        return cls(
            admitted_step=[-1] * requests,
            finished_step=[-1] * requests,
            request_hit_tokens=[0] * requests,
            request_resumed_hit_tokens=[0] * requests,
            preemptions=[0] * requests,
        )

    def begin(self) -> int:
        """Begin a step and return its number."""
        for column in (self.hit_tokens, self.resumed_hit_tokens, self.preempted):
            column.append(0)
        return len(self.hit_tokens) - 1

    def admit(self, step: int, i: int, hit: int) -> None:
        """Note a request's first admission, or that it came back."""
        if self.admitted_step[i] < 0:
            self.admitted_step[i] = step
            self.hit_tokens[step] += hit
            self.request_hit_tokens[i] += hit
        else:
            self.resumed_hit_tokens[step] += hit
            self.request_resumed_hit_tokens[i] += hit

    def preempt(self, step: int, i: int) -> None:
        """Note that a request lost its pages."""
        self.preempted[step] += 1
        self.preemptions[i] += 1

    def measure(self, manager: KVCacheManager, running: list[Request], waiting: int) -> None:
        """Count the pages as they are held now."""
        pool = manager.block_pool
        self.running.append(len(running))
        self.waiting.append(waiting)
        self.free.append(pool.get_num_free_blocks())
        tables = [manager.get_block_ids(each.request_id)[0] for each in running]
        self.held.append([len(table) for table in tables])
        self.pages.append(len({page for table in tables for page in table}))
        self.cached.append(
            sum(each.block_hash is not None and each.ref_cnt == 0 for each in pool.blocks)
        )
        assert self.pages[-1] + self.free[-1] == pool.num_gpu_blocks - 1  # all but the null page


def cache_config(setting: Setting) -> KVCacheConfig:
    """Describe one layer of full attention; vLLM takes one page of the pool as its null page."""
    spec = FullAttentionSpec(
        block_size=setting.page_size, num_kv_heads=1, head_size=1, dtype=torch.float16
    )
    return KVCacheConfig(
        num_blocks=setting.pages + 1,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )


def made_requests(case: Case) -> list[Request]:
    """Make the engine's request of each of ours."""
    size = case.setting.page_size
    hasher = get_request_block_hasher(size, sha256) if case.setting.prefix_cache else None
    return [
        Request(
            str(i),
            list(prompt),
            SamplingParams(max_tokens=max(1, len(output)), ignore_eos=True, detokenize=False),
            None,
            block_hasher=hasher,
        )
        for i, (prompt, output) in enumerate(zip(case.prompts, case.outputs, strict=True))
    ]


def refused(case: Case) -> list[bool]:
    """Tell which requests could never fit: they are not put to the engine at all."""
    s = case.setting
    return [
        needed_pages(p, o, s.page_size) > s.pages
        for p, o in zip(case.prompts, case.outputs, strict=True)
    ]


def by_manager(case: Case) -> Answers:
    """Drive the block manager alone, by the steps that vLLM's scheduler takes."""
    s = case.setting
    manager = KVCacheManager(
        cache_config(s),
        max_model_len=UNLIMITED,
        scheduler_block_size=s.page_size,
        hash_block_size=s.page_size,
        enable_caching=s.prefix_cache,
        watermark=s.watermark,
    )
    requests = made_requests(case)
    answers = Answers.of(len(requests))
    waiting = deque(r for r, never in zip(requests, refused(case), strict=True) if not never)
    running: list[Request] = []

    while waiting or running:
        step = answers.begin()
        # A chunk holds a long prompt back for the sake of others; alone, it enters whole.
        chunk = s.prefill_chunk if len(waiting) + len(running) > 1 else None
        scheduled: dict[str, int] = {}
        at = 0
        while at < len(running):
            request = running[at]
            new = min(request.num_tokens - request.num_computed_tokens, chunk or UNLIMITED)
            while request in running and manager.allocate_slots(request, new) is None:
                latest = running.pop()
                manager.free(latest)
                latest.status = RequestStatus.PREEMPTED
                latest.num_computed_tokens = 0
                latest.num_preemptions += 1
                waiting.appendleft(latest)
                answers.preempt(step, int(latest.request_id))
            if request in running:
                scheduled[request.request_id] = new
                at += 1
        while waiting and not answers.preempted[step] and len(running) < s.max_running:
            request = waiting[0]
            blocks, hit, _ = manager.get_computed_blocks(request)
            new = min(request.num_tokens - hit, chunk or UNLIMITED)
            given = manager.allocate_slots(
                request,
                new,
                num_new_computed_tokens=hit,
                new_computed_blocks=blocks,
                full_sequence_must_fit=True,
                has_scheduled_reqs=bool(running),
            )
            if given is None:
                break
            running.append(waiting.popleft())
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = hit
            scheduled[request.request_id] = new
            answers.admit(step, int(request.request_id), hit)
        answers.measure(manager, running, len(waiting))

        for request in list(running):
            i = int(request.request_id)
            request.num_computed_tokens += scheduled[request.request_id]
            if request.num_computed_tokens < request.num_tokens:
                continue  # its prompt is not through yet
            output = case.outputs[i]
            if request.num_output_tokens < len(output):
                request.append_output_token_ids(output[request.num_output_tokens])
            if request.num_output_tokens == len(output):
                manager.free(request)
                running.remove(request)
                answers.finished_step[i] = step
    return answers


def by_scheduler(case: Case) -> Answers:
    """Let vLLM's scheduler decide, and feed it the sampled tokens; nothing is computed."""
    s = case.setting
    scheduler = Scheduler(
        vllm_config=scheduler_config(s),
        kv_cache_config=cache_config(s),
        structured_output_manager=SimpleNamespace(
            accept_tokens=lambda *_: True, should_advance=lambda *_: False
        ),
        block_size=s.page_size,
    )
    requests = made_requests(case)
    answers = Answers.of(len(requests))
    for request, never in zip(requests, refused(case), strict=True):
        if not never:
            scheduler.add_request(request)

    while scheduler.waiting or scheduler.running:
        step = answers.begin()
        before = {each.request_id for each in scheduler.running}
        decided = scheduler.schedule()
        for name in decided.preempted_req_ids or ():
            answers.preempt(step, int(name))
        for request in scheduler.running:
            if request.request_id not in before:
                name = request.request_id
                hit = request.num_computed_tokens - decided.num_scheduled_tokens[name]
                answers.admit(step, int(name), hit)
        answers.measure(scheduler.kv_cache_manager, scheduler.running, len(scheduler.waiting))

        names = list(decided.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for name in names:
            request = scheduler.requests[name]
            output = case.outputs[int(name)] or [0]  # it has to sample: a token never stored
            done = request.num_computed_tokens == request.num_tokens
            sampled.append([output[request.num_output_tokens]] if done else [])
        scheduler.update_from_output(
            decided,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: i for i, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        for name in names:
            if requests[int(name)].is_finished():
                answers.finished_step[int(name)] = step
    return answers


def scheduler_config(setting: Setting) -> Any:
    """Give the scheduler its settings, with a stand-in for the model that it never runs."""
    chunk = setting.prefill_chunk
    scheduling = SchedulerConfig.default_factory(
        max_num_seqs=setting.max_running,
        max_num_batched_tokens=UNLIMITED,
        max_model_len=UNLIMITED,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=chunk or 0,
        watermark=setting.watermark,
    )
    cache = CacheConfig(block_size=setting.page_size, enable_prefix_caching=setting.prefix_cache)
    cache.num_gpu_blocks = setting.pages + 1
    return Lenient(
        scheduler_config=scheduling,
        cache_config=cache,
        parallel_config=ParallelConfig(),
        model_config=Lenient(max_model_len=UNLIMITED, runner_type="generate"),
        observability_config=Lenient(per_request_spec_decode_metrics=None),
        ec_manager_config=Lenient(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=Lenient(enabled=False),
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
        max_in_flight_tokens=UNLIMITED,
        max_concurrent_batches=1,
    )


class Lenient(SimpleNamespace):
    """Settings that are off unless given."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def line(case: Case, requests: str | None) -> str:
    """Return a case and its answers as a line of the record."""
    answers = by_manager(case)
    decided = by_scheduler(case)
    if answers != decided:
        for name, ours in asdict(answers).items():
            if ours != getattr(decided, name):
                print(f"{name}\n  steps     {ours}\n  scheduler {getattr(decided, name)}")
        raise SystemExit(f"{case.name}: the driver's steps are not those of vLLM's scheduler")
    inputs: Any = requests
    if requests is None:
        inputs = {
            "prompt_tokens": [len(each) for each in case.prompts],
            "output_tokens": [len(each) for each in case.outputs],
            "page_keys": page_keys(case),
        }
    record = {
        "case": case.name,
        "setting": asdict(case.setting),
        "requests": inputs,
        "refused": [i for i, never in enumerate(refused(case)) if never],
        "answers": asdict(answers),
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


def lines(cases: Iterable[Case]) -> Iterator[str]:
    """Return the record of all cases: what recorded it, then a line each."""
    head = {"driver": DRIVER, "vllm": vllm.__version__}
    yield json.dumps(head, sort_keys=True, separators=(",", ":"))
    seen: dict[str, str] = {}
    for case in cases:
        # Cases with the same requests store them once: the later ones name the first.
        same = json.dumps([case.setting.page_size, case.prompts, case.outputs])
        yield line(case, seen.get(same))
        seen.setdefault(same, case.name)


def stored_cases(path: Path) -> Iterator[Case]:
    """Make the cases of a record again, with tokens of their page numbers."""
    stored = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()[1:]]
    known = {each["case"]: each["requests"] for each in stored}
    for each in stored:
        requests = each["requests"]
        if isinstance(requests, str):
            requests = known[requests]
        yield tokens_of_keys(
            each["case"],
            Setting(**each["setting"]),
            requests["prompt_tokens"],
            requests["output_tokens"],
            requests["page_keys"],
        )


def main() -> int:
    """Write the records, or compare what is recorded now with what is stored."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--raw", type=Path, help="folder of the raw traces, to cut them anew")
    options = parser.parse_args()
    traced = trace_cases(options.raw) if options.raw else stored_cases(TRACES)
    differing = 0
    for path, cases in ((DRAWN, drawn_cases()), (TRACES, traced)):
        new = list(lines(cases))
        text = "".join(f"{each}\n" for each in new)
        if not options.check:
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {len(new) - 1} cases, {len(text):,} bytes written")
        elif path.read_text(encoding="utf-8") == text:
            print(f"{path.name}: {len(new) - 1} cases, the same again, byte for byte")
        else:
            differing += 1
            print(f"{path.name}: differs from what was recorded", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
