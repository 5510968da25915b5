"""The replay against itself at other sizes, against a plain free list, and its first call.

The requests are those of the comparison with vLLM: prompts of mean 512 and outputs of mean 256
tokens, 256 running, page size 16, 32,768 pages. Seconds are of CPU, so that what else runs on the
machine counts little.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers_vllm import MAX_RUNNING, PAGE_SIZE, PAGES, requests
from records import Record, record

import kvledger as kv
from kvledger.replays.policies import Paged
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay

ROOT = Path(__file__).resolve().parent.parent
CAPACITY = PAGES * PAGE_SIZE
RECORDED_STEPS = 10_000  # about; the longer a trace, the rarer it is recorded
MANY = 1_000_000  # beyond, one repetition is long enough
LONGER = 4  # times the tokens of the same number of requests


def cpu_seconds(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the seconds of CPU that a call takes, and its answer."""
    start = time.process_time()
    answer = work(*arguments)
    return time.process_time() - start, answer


def replayed(trace: kv.Trace, *, prefix_cache: bool = False, times: int = 1) -> Replay:
    """Replay the requests, or such that are some times as long in a pool as many times as large."""
    return replay(
        trace,
        Paged(page_size=PAGE_SIZE, prefix_cache=prefix_cache),
        capacity_slots=times * CAPACITY,
        max_running=MAX_RUNNING,
        record_every=max(1, times * trace.n_requests // RECORDED_STEPS),
    )


# --------------------------------------------------------------------------- linear time


def _sizes(*, quick: bool, full: bool) -> list[int]:
    if quick:
        return [1_000, 10_000]
    return [10_000, 100_000, 1_000_000, *([10_000_000] if full else [])]


def linear_time(*, quick: bool, full: bool = False) -> list[Record]:
    """Compare the time per token of more and more requests with that of the fewest."""
    results = []
    for prefix_cache in (False, True):
        few, *more = _sizes(quick=quick, full=full)
        traces = {number: kv.Trace(*requests(number)) for number in (few, *more)}
        per_token: dict[int, list[float]] = {number: [] for number in traces}
        for repetition in range(3):
            for number, trace in traces.items():
                if repetition and number > MANY:
                    continue
                # A few seconds of each, so that short replays are timed as well as long ones.
                repeat = max(1, min(20, more[-1] // (10 * number)))
                work = partial(replayed, trace, prefix_cache=prefix_cache)
                seconds = [cpu_seconds(work)[0] for _ in range(repeat)]
                tokens = int(trace.total_tokens.sum())
                per_token[number].append(float(np.median(seconds)) / tokens)
        state = "on" if prefix_cache else "off"
        for number in more:
            pairs = zip(per_token[number], per_token[few], strict=False)
            nanoseconds = 1e9 * float(np.median(per_token[number]))
            results.append(
                record(
                    f"replay.time.prefix_cache_{state}.{number}",
                    what=f"time per token of {number:,} requests, prefix cache {state} "
                    f"({nanoseconds:.2g} ns)",
                    baseline=f"time per token of {few:,} requests",
                    quantity="ratio",
                    values=[many / one for many, one in pairs],
                    bar="<= 1.3",
                )
            )
    return results


# --------------------------------------------------------------------------- linear memory


def peak(number: int, times: int) -> int:
    """Return the most bytes that this process ever held, after a replay of so many requests."""
    with tempfile.TemporaryDirectory() as folder:
        # Lengths come from a process that has ended: drawing them takes more than a replay.
        path = Path(folder) / "lengths.npy"
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import numpy as np; from peers_vllm import requests\n"
            "np.save(sys.argv[2], np.array(requests(int(sys.argv[3]))) * int(sys.argv[4]))\n"
        )
        folder_of_this = str(Path(__file__).parent)
        _python(["-c", code, folder_of_this, str(path), str(number), str(times)])
        prompts, outputs = np.load(path, mmap_mode="r")
        trace = kv.Trace(prompts, outputs)
    result = replayed(trace, times=times)
    assert result.count("finished") == number
    return _most_held()


def _most_held() -> int:
    """Return the most bytes this process held; what its parent held before does not count."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _python(arguments: Sequence[str], **environment: str) -> str:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def peak_of_a_process(number: int, times: int = 1) -> int:
    """Return the same of a process of its own."""
    return int(_python([__file__, "peak", str(number), str(times)]))


def linear_memory(*, quick: bool, full: bool = False) -> list[Record]:
    """Compare the memory a request takes among many and among few, and when it is longer."""
    # The fewest already take more than importing and loading compiled code did before.
    none, few, *more = (500_000, 1_000_000, 2_000_000, *([10_000_000] if full else []))
    if quick:
        none, few, more = 200_000, 400_000, [800_000]
    replayed(kv.Trace(*requests(1_000)))  # compiled once, kept for the processes
    base = peak_of_a_process(none)

    def a_request(number: int, times: int = 1) -> float:
        return (peak_of_a_process(number, times) - base) / (number - none)

    of_few = [a_request(few) for _ in range(1 if quick else 3)]
    results = []
    for number in more:
        of_many = [a_request(number) for _ in of_few[: 1 if number > MANY else None]]
        results.append(
            record(
                f"replay.memory.{number}",
                what=f"peak memory per request of {number:,} requests, the trace included "
                f"({np.median(of_many):,.0f} bytes)",
                baseline=f"peak memory per request of {few:,} requests",
                quantity="ratio",
                values=[many / one for many, one in zip(of_many, of_few, strict=False)],
                bar="<= 1.3",
            )
        )
    of_long = [a_request(few, LONGER) for _ in of_few]
    results.append(
        record(
            "replay.memory.longer",
            what=f"peak memory of {few:,} requests {LONGER} times as long",
            baseline=f"peak memory of {few:,} requests, as many steps recorded",
            quantity="ratio",
            values=[long / one for long, one in zip(of_long, of_few, strict=True)],
            bar="<= 1.1",
        )
    )
    return results


# --------------------------------------------------------------------------- the first call

_FIRST_CALL = """
import json, time
start = time.process_time()
import kvledger as kv
from kvledger.replays.policies import Paged
from kvledger.replays.replay import replay
imported = time.process_time()
replay(kv.Trace([5, 9, 17], [4, 4, 4]), Paged(page_size=4), capacity_slots=64)
print(json.dumps([imported - start, time.process_time() - imported]))
"""


def first_call(*, quick: bool, full: bool = False) -> list[Record]:
    """Time the first replay of a process: with an empty cache of compiled code, and after that."""
    del full
    cold, warm = [], []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(json.loads(_python(["-c", _FIRST_CALL], NUMBA_CACHE_DIR=folder))[1])
            warm.append(json.loads(_python(["-c", _FIRST_CALL], NUMBA_CACHE_DIR=folder))[1])
    return [
        record(
            "replay.first_call.compiling",
            what="CPU time of the first replay ever, compilation included",
            baseline="none: the time itself",
            quantity="seconds",
            values=cold,
            bar="< 60",
        ),
        record(
            "replay.first_call.compiled",
            what="CPU time of a process's first replay, compiled code found in the cache",
            baseline="none: the time itself",
            quantity="seconds",
            values=warm,
            bar="< 1",
        ),
    ]


# --------------------------------------------------------------------------- a plain free list


class Held(NamedTuple):
    """Pages held: steps, the most, and their sum over the steps."""

    steps: int
    peak: int
    total: int


def plain_free_list(prompts: Sequence[int], outputs: Sequence[int]) -> Held:
    """Do the same with a list of free pages and a page table a request, in plain Python."""
    free = list(range(PAGES))
    tables: dict[int, list[int]] = {}
    length: dict[int, int] = {}
    left: dict[int, int] = {}
    waiting = deque(range(len(prompts)))
    steps = most = total = 0
    while waiting or tables:
        for request, table in tables.items():
            if length[request] % PAGE_SIZE == 0:
                table.append(free.pop())
            length[request] += 1
        while waiting and len(tables) < MAX_RUNNING:
            request = waiting.popleft()
            pages = -(-prompts[request] // PAGE_SIZE)
            tables[request] = [free.pop() for _ in range(pages)]
            length[request], left[request] = prompts[request], outputs[request]
        held = PAGES - len(free)
        steps, most, total = steps + 1, max(most, held), total + held
        done = []
        for request in tables:
            left[request] -= 1
            if left[request] == 0:
                done.append(request)
        for request in done:
            free.extend(reversed(tables.pop(request)))
    return Held(steps, most, total)


def free_list(*, quick: bool, full: bool = False) -> list[Record]:
    """Time both on the same requests; they must hold the same pages."""
    del full
    number = 2_000 if quick else 20_000
    prompts, outputs = requests(number)
    trace = kv.Trace(prompts, outputs)
    policy = Paged(page_size=PAGE_SIZE)
    replay(trace, policy, capacity_slots=CAPACITY, max_running=MAX_RUNNING)  # compiles
    ratios = []
    for _ in range(3 if quick else 7):
        theirs_s, theirs = cpu_seconds(plain_free_list, prompts.tolist(), outputs.tolist())
        ours_s, result = cpu_seconds(
            lambda: replay(trace, policy, capacity_slots=CAPACITY, max_running=MAX_RUNNING)
        )
        ours = Held(len(result), int(result.pages.max()), int(result.pages.sum()))
        if ours != theirs:
            raise AssertionError(f"held by the free list: {theirs}; by ours: {ours}")
        ratios.append(theirs_s / ours_s)
    return [
        record(
            "replay.free_list",
            what=f"speed of replaying {number:,} requests, every column recorded",
            baseline="a plain Python list of free pages that records the number held",
            quantity="ratio",
            values=ratios,
            bar=">= 10",
        )
    ]


if __name__ == "__main__":
    command, *numbers = sys.argv[1:]
    if command != "peak":
        raise SystemExit("python benchmarks/run.py --replay measures the replay")
    print(peak(*map(int, numbers)))
