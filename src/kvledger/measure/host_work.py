"""What pages cost on the host: the work of a serving engine around a decode step, by page size.

Each function does one job the way engines do it, in Python and NumPy. Nothing here needs torch.
"""

from __future__ import annotations

import gc
import hashlib
import pickle
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvledger.measure.record import HostTiming

_PADDING = -1


def build_page_table(page_ids: Sequence[list[int]]) -> npt.NDArray[np.int32]:
    """Make a step's page table anew from each request's list of pages, padded to the longest.

    So did early engines in every step, and so do small ones.
    """
    longest = max(map(len, page_ids))
    padded = [ids + [_PADDING] * (longest - len(ids)) for ids in page_ids]
    return np.array(padded, dtype=np.int32)


class Running(NamedTuple):
    """Running requests: tokens and pages of each, the free pages, and the table with its counts."""

    held_tokens: list[int]
    page_ids: list[list[int]]
    free: deque[int]
    table: npt.NDArray[np.int32]
    in_table: npt.NDArray[np.int32]

    def copied(self) -> Running:
        """Return a state that may change while this one stays."""
        page_ids = [list(ids) for ids in self.page_ids]
        table, in_table = self.table.copy(), self.in_table.copy()
        return Running(list(self.held_tokens), page_ids, self.free.copy(), table, in_table)


def running(lengths: Sequence[int], page_size: int, steps: int, seed: int = 0) -> Running:
    """Lay out requests in random pages, with pages and table entries free for so many steps."""
    counts = [-(-length // page_size) for length in lengths]
    last = [-(-(length + steps) // page_size) for length in lengths]
    ids = deque(np.random.default_rng(seed).permutation(sum(last)).tolist())
    page_ids = [[ids.popleft() for _ in range(count)] for count in counts]
    table = np.full((len(lengths), max(last)), _PADDING, dtype=np.int32)
    for row, pages in zip(table, page_ids, strict=True):
        row[: len(pages)] = pages
    return Running(list(lengths), page_ids, ids, table, np.array(counts, dtype=np.int32))


def allocate_pages(state: Running, page_size: int, steps: int) -> int:
    """Give each request a token a step, and a page off the free list where its last is full."""
    held, page_ids, free = state.held_tokens, state.page_ids, state.free
    before = len(free)
    for _ in range(steps):
        for request, length in enumerate(held):
            if length % page_size == 0:
                page_ids[request].append(free.popleft())
            held[request] = length + 1
    return before - len(free)


def extend_page_table(state: Running, page_size: int, steps: int) -> int:
    """Keep one table, and write each new page into it when it is given out, as vLLM does now."""
    held, free, table, in_table = state.held_tokens, state.free, state.table, state.in_table
    before = len(free)
    for _ in range(steps):
        for request, length in enumerate(held):
            if length % page_size == 0:
                at = in_table[request]
                table[request, at] = free.popleft()
                in_table[request] = at + 1
            held[request] = length + 1
    return before - len(free)


def hash_pages(token_ids: Sequence[int], page_size: int) -> list[bytes]:
    """Chain SHA-256 keys over complete pages, each over its parent's key and its token ids.

    The ids are pickled, which is vLLM's default.
    """
    keys, key = [], bytes(32)
    for first in range(0, len(token_ids) - page_size + 1, page_size):
        page = (key, tuple(token_ids[first : first + page_size]), None)
        key = hashlib.sha256(pickle.dumps(page, protocol=pickle.HIGHEST_PROTOCOL)).digest()
        keys.append(key)
    return keys


def hash_pages_packed(token_ids: Sequence[int], page_size: int) -> list[bytes]:
    """Chain keys as :func:`hash_pages` does, with four bytes an id and nothing else in between."""
    keys, key = [], bytes(32)
    for first in range(0, len(token_ids) - page_size + 1, page_size):
        page = array("i", token_ids[first : first + page_size])
        key = hashlib.sha256(key + page.tobytes()).digest()
        keys.append(key)
    return keys


class _Job(NamedTuple):
    """Work to time: ``prepare`` lays out what a repetition changes, and returns the call."""

    what: str
    page_size: int
    requests: int
    tokens: int
    prepare: Callable[[], Callable[[], int]]


def measure_host(
    page_sizes: Sequence[int],
    lengths: Sequence[int],
    *,
    steps: int,
    prompt_tokens: int,
    repetitions: int,
    deadline: float,
    least: int = 5,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> list[HostTiming]:
    """Time the host's work at each page size, in rounds of all of it.

    Requests hold ``lengths`` tokens; one repetition makes ``steps`` decode steps, or hashes the
    pages of ``prompt_tokens``. After ``deadline`` (seconds of :func:`time.monotonic`) no round
    starts once the ``least`` are done.
    """
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(0, 128_256, prompt_tokens).tolist()
    jobs = [job for size in page_sizes for job in _jobs(size, lengths, token_ids, steps, seed)]
    seconds: list[list[float]] = [[] for _ in jobs]
    units = [0] * len(jobs)
    was_enabled = gc.isenabled()
    try:
        for done in range(repetitions):
            if done >= least and time.monotonic() > deadline:
                break
            say(f"host work, round {done + 1} of {repetitions}")
            for index in rng.permutation(len(jobs)):
                call = jobs[index].prepare()
                gc.collect(0)
                gc.disable()
                start = time.perf_counter()
                units[index] = call()
                seconds[index].append(float(f"{time.perf_counter() - start:.7g}"))
                gc.enable()
    finally:
        (gc.enable if was_enabled else gc.disable)()
    return [
        HostTiming(*job[:4], units=count, unit="pages", seconds=tuple(taken))
        for job, count, taken in zip(jobs, units, seconds, strict=True)
    ]


def _jobs(
    page_size: int, lengths: Sequence[int], token_ids: list[int], steps: int, seed: int
) -> list[_Job]:
    # Laid out once: the jobs that change it start from a copy.
    state = running(lengths, page_size, steps, seed)
    pages = sum(map(len, state.page_ids))

    def built() -> int:
        build_page_table(state.page_ids)
        return pages

    def on_copy(work: Callable[[Running, int, int], int]) -> Callable[[], Callable[[], int]]:
        return lambda: partial(work, state.copied(), page_size, steps)

    def hashed(work: Callable[[Sequence[int], int], list[bytes]]) -> Callable[[], int]:
        return lambda: len(work(token_ids, page_size))

    requests, prompt = len(lengths), len(token_ids)
    grown = requests * steps
    return [
        _Job("build_page_table", page_size, requests, sum(lengths), lambda: built),
        _Job("extend_page_table", page_size, requests, grown, on_copy(extend_page_table)),
        _Job("allocate_pages", page_size, requests, grown, on_copy(allocate_pages)),
        _Job("hash_pages", page_size, 1, prompt, lambda: hashed(hash_pages)),
        _Job("hash_pages_packed", page_size, 1, prompt, lambda: hashed(hash_pages_packed)),
    ]
