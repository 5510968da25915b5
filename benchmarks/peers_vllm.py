"""Time the replay against vLLM's own block manager on the same requests, in turn in one run.

    make test-peers                                           makes .venv-peers, once
    python benchmarks/peers_vllm.py                           writes data/benchmarks.json
    python benchmarks/peers_vllm.py --quick                   few requests, prints only
    python benchmarks/peers_vllm.py --peer-python PYTHON      vLLM from another environment

The requests: prompts lognormal of mean 512, clipped at 4096, outputs of mean 256, clipped at 2048,
sigma 0.8 both; 256 running, page size 16, 32,768 pages, whole prompts, always a queue. vLLM's
manager runs in an environment and a process of its own. Both are timed in seconds of CPU, one
thread each, so that a busy machine slows neither: of vLLM all that its manager does, its request
objects and hashes included; of ours the whole call, every column recorded. Compilation is not in
it. Both must hold the same number of pages, at the peak and on average.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
PAGE_SIZE, PAGES, MAX_RUNNING = 16, 32_768, 256
REQUESTS, QUICK_REQUESTS = 20_000, 1_000
LONGEST_PROMPT, LONGEST_OUTPUT = 4096, 2048

Lengths = npt.NDArray[np.int64]


class Held(NamedTuple):
    """What a manager held: the pages at the peak, and summed over the steps."""

    steps: int
    peak: int
    total: int


def requests(number: int) -> tuple[Lengths, Lengths]:
    """Draw the lengths of prompts, then those of outputs."""
    rng = np.random.default_rng(0)

    def lognormal(mean: int, longest: int, sigma: float = 0.8) -> Lengths:
        drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, number)
        return np.clip(np.rint(drawn), 1, longest).astype(np.int64)

    prompts = lognormal(512, LONGEST_PROMPT)
    return prompts, lognormal(256, LONGEST_OUTPUT)


def drive_vllm(number: int, *, prefix_cache: bool) -> dict[str, Any]:
    """Run vLLM's manager over the requests; runs in its environment, without this package."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    import torch
    import vllm
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request, RequestStatus

    init_none_hash(sha256)
    spec = FullAttentionSpec(block_size=PAGE_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float16)
    manager = KVCacheManager(
        KVCacheConfig(
            num_blocks=PAGES + 1,  # one is vLLM's null page
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        max_model_len=LONGEST_PROMPT + LONGEST_OUTPUT,
        scheduler_block_size=PAGE_SIZE,
        hash_block_size=PAGE_SIZE,
        enable_caching=prefix_cache,
    )
    hasher = get_request_block_hasher(PAGE_SIZE, sha256) if prefix_cache else None
    prompts, outputs = (lengths.tolist() for lengths in requests(number))
    text = np.random.default_rng(1).integers(0, 32_000, LONGEST_PROMPT).tolist()
    # No two requests share a page: the first token of each is its own.
    tokens = [[32_000 + i, *text[1:prompt]] for i, prompt in enumerate(prompts)]

    waiting = deque(range(number))
    running: list[Any] = []
    left: list[int] = []
    steps = peak = total = 0
    start = time.process_time()
    while waiting or running:
        for request in running:
            if manager.allocate_slots(request, 1) is None:
                raise RuntimeError("the pool is meant to be large enough never to preempt")
            request.num_computed_tokens += 1
        while waiting and len(running) < MAX_RUNNING:
            i = waiting.popleft()
            request = Request(
                str(i), tokens[i], SamplingParams(max_tokens=outputs[i]), None, block_hasher=hasher
            )
            blocks, hit, _ = manager.get_computed_blocks(request)
            if manager.allocate_slots(request, len(tokens[i]) - hit, hit, blocks) is None:
                raise RuntimeError("the pool is meant to be large enough for all that may run")
            request.num_computed_tokens = request.num_tokens
            request.status = RequestStatus.RUNNING
            running.append(request)
            left.append(outputs[i])
        held = PAGES - manager.block_pool.get_num_free_blocks()
        steps += 1
        peak, total = max(peak, held), total + held
        for request in running:
            request.append_output_token_ids(steps % 1000)
        left = [more - 1 for more in left]
        if 0 in left:
            for request, more in zip(running, left, strict=True):
                if more == 0:
                    manager.free(request)
            running = [each for each, more in zip(running, left, strict=True) if more]
            left = [more for more in left if more]
    seconds = time.process_time() - start
    held_in_all = Held(steps, peak, total)
    return {"seconds": seconds, "vllm": vllm.__version__, **held_in_all._asdict()}


def vllm_in_its_environment(python: Path, number: int, *, prefix_cache: bool) -> dict[str, Any]:
    """Start a process of that environment, and return what it measured."""
    command = [str(python), __file__, "--drive", "cached" if prefix_cache else "plain"]
    done = subprocess.run(
        [*command, "--requests", str(number)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"vLLM's manager failed in {python.name}'s environment:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def speeds(python: Path, *, quick: bool, repetitions: int) -> list[Any]:
    """Time both in turn, with the prefix cache off and on, and compare what they held."""
    from records import record

    import kvledger as kv
    from kvledger.replays.policies import Paged
    from kvledger.replays.replay import replay

    number = QUICK_REQUESTS if quick else REQUESTS
    prompts, outputs = requests(number)
    complete = prompts // PAGE_SIZE
    pages = np.split(np.arange(int(complete.sum())), np.cumsum(complete)[:-1])
    trace = kv.Trace(
        prompts, outputs, page_ids=[each.tolist() for each in pages], page_ids_size=PAGE_SIZE
    )
    results = []
    for prefix_cache, bar in ((False, ">= 1000"), (True, ">= 200")):
        policy = Paged(page_size=PAGE_SIZE, prefix_cache=prefix_cache, null_pages=1)

        def ours(policy: Paged = policy) -> Any:
            return replay(
                trace,
                policy,
                capacity_slots=(PAGES + 1) * PAGE_SIZE,
                max_running=MAX_RUNNING,
            )

        ours()  # compiles
        ratios, version = [], ""
        for _ in range(repetitions):
            theirs = vllm_in_its_environment(python, number, prefix_cache=prefix_cache)
            # One call of ours is over before the processor has warmed up: the median of several.
            times = []
            for _ in range(5):
                start = time.process_time()
                result = ours()
                times.append(time.process_time() - start)
            seconds = float(np.median(times))
            held = Held(len(result), int(result.pages.max()), int(result.pages.sum()))
            if held != Held(*(theirs[name] for name in Held._fields)):
                raise AssertionError(f"held by vLLM: {theirs}; by ours: {held}")
            ratios.append(theirs["seconds"] / seconds)
            version = theirs["vllm"]
            print(
                f"vLLM {theirs['seconds']:.2f} s, ours {seconds:.4f} s of CPU; {held.steps:,} steps"
                f", peak {held.peak:,} pages, mean {held.total / held.steps:,.2f}",
                flush=True,
            )
        state = "on" if prefix_cache else "off"
        results.append(
            record(
                f"replay.vllm.prefix_cache_{state}",
                what=f"speed of replaying {number:,} requests, prefix cache {state}",
                baseline=f"vLLM {version}'s block manager on the same requests, seconds of CPU",
                quantity="ratio",
                values=ratios,
                bar=bar,
            )
        )
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write, or, as the process that is measured, drive vLLM's manager."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few requests, prints only")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each, in turn")
    parser.add_argument(
        "--peer-python",
        type=Path,
        default=ROOT / ".venv-peers" / "bin" / "python",
        help="Python that can import vLLM",
    )
    parser.add_argument("--output", type=Path, help="file to write (quick: none if not given)")
    parser.add_argument("--drive", choices=("plain", "cached"), help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=REQUESTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive:
        print(json.dumps(drive_vllm(options.requests, prefix_cache=options.drive == "cached")))
        return 0
    if not options.peer_python.is_file():
        parser.error("no environment with vLLM: run `make test-peers`, or name --peer-python")

    # Only here: the process that is measured has neither the package nor its dependencies.
    from records import line, merged, write

    records = speeds(options.peer_python, quick=options.quick, repetitions=options.repetitions)
    for each in records:
        print(line(each))
    output = options.output
    if output is None and not options.quick:
        output = ROOT / "data" / "benchmarks.json"
    if output is not None:
        write(output, merged(output, records))
        print(f"written: {output.name}")
    return 0 if options.quick or all(each.met for each in records) else 1


if __name__ == "__main__":
    sys.exit(main())
