"""Readable replays that the compiled one is held against, and the requests to try both on.

:class:`Oracle` adds to ``reference_replay`` what its records of vLLM do not need: a swap pool, the
clock, page ids of another size than the pages, and counts of what was taken and freed.
:class:`ContiguousOracle` gives each request one run of slots, out of a list of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import reference_replay as reference
from hypothesis import strategies as st

import kvledger as kv
from kvledger.replays.policies import Arrivals, Contiguous, Paged
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay

FLOWS = (
    "admitted",
    "preempted",
    "finished",
    "decoded_tokens",
    "computed_prompt_tokens",
    "recomputed_tokens",
    "hit_tokens",
    "resumed_hit_tokens",
    "swapped_out_tokens",
    "swapped_in_tokens",
    "allocations",
    "frees",
    "evictions",
)


@dataclass(frozen=True)
class Requests:
    """Requests with ids for the pages of their prompts and, if given, of their outputs."""

    prompts: list[int]
    outputs: list[int]
    id_size: int = 1
    ids: list[list[int]] | None = None
    output_ids: list[list[int]] | None = None

    def trace(self, arrival_s: Sequence[float] | None = None) -> kv.Trace:
        size = None if self.ids is None else self.id_size
        return kv.Trace(self.prompts, self.outputs, arrival_s, self.ids, size)

    def at_end(self) -> list[int]:
        """Return the slots that each request holds at its end."""
        return [p + max(o, 1) - 1 for p, o in zip(self.prompts, self.outputs, strict=True)]


def tokens(draw: st.DrawFn, least: int, most: int) -> list[int]:
    """Draw a text of two different tokens."""
    length = draw(st.integers(least, most))
    text = draw(st.integers(0, 2**length - 1))
    return [text >> k & 1 for k in range(length)]


@st.composite
def requests(draw: st.DrawFn, page_size: int, id_size: int | None = None) -> Requests:
    """Draw texts out of few tokens, many continuing earlier ones, and number their pages."""
    size = id_size or page_size
    prompts: list[int] = []
    texts: list[list[int]] = []
    for _ in range(draw(st.integers(1, 9))):
        earlier = draw(st.integers(0, 2 * len(texts)))
        if earlier < len(texts):
            # Another text's start, at whatever token, or all of it: its next turn.
            text = texts[earlier][: draw(st.integers(1, len(texts[earlier])))]
            text = text + tokens(draw, 0, page_size + 1)
        else:
            text = tokens(draw, 1, 2 * page_size + 2)
        prompts.append(len(text))
        texts.append(text + tokens(draw, 0, 3 * page_size + 3))
    outputs = [len(text) - p for text, p in zip(texts, prompts, strict=True)]
    if id_size is None:
        return Requests(prompts, outputs)
    numbers: dict[tuple[int, ...], int] = {}

    def ids_of(text: list[int], ends: Sequence[int]) -> list[int]:
        return [numbers.setdefault(tuple(text[:end]), 7 * len(numbers) + 3) for end in ends]

    partial = draw(st.booleans())
    ids, after = [], []
    for text, p in zip(texts, prompts, strict=True):
        ends = [*range(size, p + 1, size)]
        whole = ids_of(text, ends)
        # The id of a partial last page names a text that ends there: -1 tells it from a page that
        # goes on after the same tokens.
        rest = ids_of([*text[:p], -1], [p + 1]) if partial and p % size else []
        ids.append(whole + rest)
        after.append(ids_of(text, range(size * (p // size + 1), len(text) + 1, size)))
    return Requests(prompts, outputs, size, ids, after if draw(st.booleans()) else None)


class Keys(Sequence[Hashable]):
    """Keys of one request's pages: an id and where in its tokens the page ends, or a new object."""

    def __init__(self, asked: Requests, i: int, page_size: int) -> None:
        self.page_size, self.id_size = page_size, asked.id_size
        self.ids = [] if asked.ids is None else list(asked.ids[i])
        self.covered = min(asked.prompts[i], len(self.ids) * self.id_size)
        if asked.output_ids is not None and asked.output_ids[i]:
            complete = asked.prompts[i] // self.id_size
            self.ids = self.ids[:complete] + list(asked.output_ids[i])
            self.covered = len(self.ids) * self.id_size

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, k: Any) -> Any:
        last = (k + 1) * self.page_size - 1
        if last >= self.covered:
            return object()  # equal to no other, not even to itself when asked for again
        return (self.ids[last // self.id_size], last % self.id_size)


class Oracle(reference.Replay):
    """Replay requests under any paged policy and clock, all in plain Python."""

    def __init__(
        self,
        asked: Requests,
        policy: Paged,
        pages: int,
        *,
        max_running: int,
        prefill_chunk: int | None = None,
        arrival_s: Sequence[float] | None = None,
        clock: Arrivals | None = None,
    ) -> None:
        super().__init__(
            asked.prompts,
            asked.outputs,
            [Keys(asked, i, policy.page_size) for i in range(len(asked.prompts))],
            reference.Policy(
                page_size=policy.page_size,
                pages=pages,
                max_running=max_running,
                prefix_cache=policy.prefix_cache,
                watermark_pages=int(policy.watermark * (pages + policy.null_pages)),
                prefill_chunk=prefill_chunk,
                same_step_hits=policy.same_step_hits,
                whole_prompt_must_fit=policy.whole_prompt_must_fit,
                lone_prompt_whole=policy.lone_prompt_whole,
                merge_duplicates=policy.merge_duplicates,
            ),
        )
        n = len(asked.prompts)
        self.options, self.clock = policy, clock
        self.swaps, self.host_free = policy.preemption == "swap", policy.host_pages
        self.host: dict[int, int] = {}  # tokens of each swapped request
        self.decoding: set[int] = set()  # running requests that have sampled since admission
        self.flow = dict.fromkeys(FLOWS, 0)
        self.flows: dict[str, list[int]] = {name: [] for name in FLOWS}
        self.blocked: list[int] = []
        self.used: list[list[int]] = []
        self.time_s: list[float] = []
        self.waiting_steps = [0] * n
        self.waiting_s: list[float | None] = [None] * n
        self.latency_s: list[float | None] = [None] * n
        self.now, self.prefilled = 0.0, 0
        self.arrival_s = [0.0] * n
        self.future: deque[reference.Request] = deque()
        if clock is not None and arrival_s is not None:
            self.arrival_s = [(at - arrival_s[0]) / clock.speed for at in arrival_s]
            self.future, self.waiting = self.waiting, deque()

    @property
    def over(self) -> bool:
        return super().over and not self.future

    def step(self) -> None:
        if not self.running and not self.waiting:
            self.now = max(self.now, self.arrival_s[self.future[0].index])
        while self.future and self.arrival_s[self.future[0].index] <= self.now:
            self.waiting.append(self.future.popleft())
        self.prefilled = 0
        super().step()

    def preempt(self) -> None:
        latest = self.running[-1]
        stored, pages = latest.stored, len(latest.table)
        super().preempt()
        if self.swaps and latest.index in self.decoding and pages <= self.host_free:
            self.host_free -= pages
            self.host[latest.index] = stored
            self.flow["swapped_out_tokens"] += stored
        self.decoding.discard(latest.index)
        self.flow["preempted"] += 1

    def admit(self, chunk: int | None) -> None:
        policy = self.policy
        while self.waiting and len(self.running) < policy.max_running:
            before = len(self.running)
            self.policy = replace(policy, max_running=before + 1)  # one at a time
            super().admit(None if self.waiting[0].index in self.host else chunk)
            self.policy = policy
            if len(self.running) == before:
                break
            self.flow["admitted"] += 1
            i = self.running[-1].index
            if self.waiting_s[i] is None:
                self.waiting_s[i] = self.now - self.arrival_s[i]

    def cached_pages(self, request: reference.Request) -> list[int]:
        if self.options.compute_last_token or not self.policy.prefix_cache:
            return super().cached_pages(request)
        cached: list[int] = []
        for k in range(request.known // self.policy.page_size):
            page = self.pool.find(request.key_of(k))
            if page is None:
                break
            cached.append(page)
        return cached

    def store(self, request: reference.Request, new: int) -> None:
        if request.index in self.host:
            copied = self.host.pop(request.index)
            self.host_free += self.pages_for(copied)
            self.flow["swapped_in_tokens"] += copied
            request.stored, new = copied, new - copied
        elif request.index not in self.decoding:
            self.prefilled += new
        again = max(0, min(request.stored + new, request.reached) - request.stored)
        name = "decoded_tokens" if request.sampled else "computed_prompt_tokens"
        self.flow[name] += new - again
        super().store(request, new)

    def measure(self) -> None:
        super().measure()
        columns = self.columns
        for name in ("recomputed_tokens", "hit_tokens", "resumed_hit_tokens"):
            self.flow[name] = sum(getattr(columns, name))
        self.count_pages()
        for name in FLOWS:
            self.flows[name].append(self.flow[name])
        head_waits = bool(self.waiting) and len(self.running) < self.policy.max_running
        self.blocked.append(int(columns.preempted[-1] > 0 or head_waits))
        self.used.append([each.stored for each in self.running])
        self.time_s.append(self.now)
        for each in self.waiting:
            self.waiting_steps[each.index] += 1

    def sample(self) -> None:
        self.decoding |= {each.index for each in self.running if each.stored == each.known}
        before = {each.index for each in self.running}
        if self.clock is None:
            self.now += 1
        else:
            self.now += (
                self.clock.base_s
                + self.clock.running_s * len(self.running)
                + self.clock.prefill_s * self.prefilled
            )
        super().sample()
        gone = before - {each.index for each in self.running}
        self.flow["finished"] += len(gone)
        for i in gone:
            self.latency_s[i] = self.now - self.arrival_s[i]
            self.decoding.discard(i)

    def check_integrity(self) -> None:
        waiting = self.waiting
        self.waiting = deque([*waiting, *self.future])
        super().check_integrity()
        self.waiting = waiting
        held = sum(self.pages_for(tokens) for tokens in self.host.values())
        assert self.host_free + held == self.options.host_pages

    def run(self) -> Oracle:
        """Replay to the end, proving the integrity of every step."""
        while not self.over:
            self.step()
            self.check_integrity()
        return self

    def per_step(self, name: str) -> list[int]:
        """Return what happened between a step's measurement and the one before it."""
        return [b - a for a, b in pairwise([0, *self.flows[name]])]

    def total(self, name: str) -> int:
        self.count_pages()
        return self.flow[name]

    def count_pages(self) -> None:
        """Take the counts of pages from the store; one found again among the free ones counts."""
        counted = self.pool.counted
        self.flow["allocations"] = counted["allocated_pages"] + counted["revived_pages"]
        self.flow["frees"] = counted["freed_pages"]
        self.flow["evictions"] = counted["evicted_pages"]


class Slots:
    """Slots that say whose they are; holes are found by looking at every slot or block."""

    def __init__(self, capacity: int, fit: str) -> None:
        self.owner: list[int | None] = [None] * capacity
        self.fit = fit
        self.roots, start = [], 0  # the powers of two that a buddy allocator's capacity is cut into
        for bit in reversed(range(capacity.bit_length())):
            if capacity >> bit & 1:
                self.roots.append((start, 1 << bit))
                start += 1 << bit
        self.largest = self.roots[0][1] if fit == "buddy" else capacity

    def taken(self, slots: int) -> int:
        """Return the slots that a request really takes."""
        return 1 << (slots - 1).bit_length() if self.fit == "buddy" else slots

    def holes(self) -> list[tuple[int, int]]:
        """Return start and size of each hole; a buddy's is a largest free block."""
        if self.fit != "buddy":
            by_use = groupby(enumerate(self.owner), key=lambda each: each[1] is None)
            runs = [[slot for slot, _ in run] for is_free, run in by_use if is_free]
            return [(run[0], len(run)) for run in runs]
        holes, blocks = [], list(self.roots)
        while blocks:
            start, size = blocks.pop()
            if all(owner is None for owner in self.owner[start : start + size]):
                holes.append((start, size))
            elif size > 1:
                blocks += [(start, size // 2), (start + size // 2, size // 2)]
        return sorted(holes)

    def allocate(self, slots: int, owner: int) -> bool:
        """Take one run of slots, if there is a hole for it."""
        size = self.taken(slots)
        fitting = [hole for hole in self.holes() if hole[1] >= size]
        if fitting:
            by_size = min(fitting, key=lambda hole: (hole[1], hole[0]))
            start = (fitting[0] if self.fit == "first" else by_size)[0]
            self.owner[start : start + size] = [owner] * size
        return bool(fitting)

    def release(self, owner: int) -> None:
        """Free a request's slots."""
        self.owner = [None if each == owner else each for each in self.owner]


class ContiguousOracle:
    """Replay requests that reserve one run of slots each."""

    def __init__(self, asked: Requests, policy: Contiguous, capacity_slots: int) -> None:
        self.asked, self.policy = asked, policy
        self.pool = Slots(capacity_slots, policy.fit)
        self.at_end = asked.at_end()
        self.wanted = [self.reserve(i) for i in range(len(asked.prompts))]
        self.refused: list[int] = []
        self.finished_step: dict[int, int] = {}
        self.waiting: deque[int] = deque()
        for i, slots in enumerate(self.wanted):
            fits = self.at_end[i] <= slots <= self.pool.largest
            (self.waiting if fits else self.refused).append(i)

    def reserve(self, i: int) -> int:
        """Return the slots that a request reserves."""
        if isinstance(self.policy.reserve, int):
            return self.policy.reserve
        if self.policy.reserve == "oracle":
            return self.at_end[i]
        of = self.at_end[i] if self.policy.pow2_of == "total" else max(1, self.asked.outputs[i])
        power = 1
        while power < of:
            power *= 2
        return power if self.policy.pow2_of == "total" else power + self.asked.prompts[i]

    def steps(self, max_running: int, chunk: int | None) -> Iterator[dict[str, int]]:
        """Yield what every step holds."""
        running: list[reference.Request] = []
        step = 0
        while running or self.waiting:
            size = chunk if len(running) + len(self.waiting) > 1 and chunk else 1 << 62
            blocked = False
            for each in running:
                each.stored = min(each.known, each.stored + size)
            while self.waiting and len(running) < max_running and not blocked:
                i = self.waiting[0]
                blocked = not self.pool.allocate(self.wanted[i], i)
                if not blocked:
                    prompt, output = self.asked.prompts[i], self.asked.outputs[i]
                    stored = min(size, prompt)
                    running.append(reference.Request(i, prompt, output, (), stored=stored))
                    self.waiting.popleft()
            held = sum(self.wanted[each.index] for each in running)
            stored = sum(each.stored for each in running)
            at_end = sum(self.at_end[each.index] for each in running)
            taken = sum(self.pool.taken(self.wanted[each.index]) for each in running)
            free = self.pool.owner.count(None)
            assert free == len(self.pool.owner) - taken == sum(n for _, n in self.pool.holes())
            yield {
                "running": len(running),
                "waiting": len(self.waiting),
                "blocked": blocked,
                "logical_tokens": stored,
                "reserved_slots": held - stored,
                "reserved_used_later_slots": at_end - stored,
                "external_slots": taken - held + (free if blocked else 0),
                "unallocated_slots": 0 if blocked else free,
            }
            for each in list(running):
                if each.stored == each.known:
                    each.sampled += 1
                    if each.sampled >= each.output:
                        running.remove(each)
                        self.pool.release(each.index)
                        self.finished_step[each.index] = step
            step += 1


PAGE_SIZES = [1, 2, 3, 4, 5, 8]
EIGHTHS = st.integers(0, 16).map(lambda n: n / 8)  # sums of them are exact
CACHE_OPTIONS = st.fixed_dictionaries({"compute_last_token": st.booleans()}).flatmap(
    lambda options: st.sampled_from(
        [
            options,
            options | {"same_step_hits": False},
            options | {"same_step_hits": False, "merge_duplicates": True},
        ]
    )
)


@dataclass(frozen=True)
class Case:
    """All that a paged replay is given."""

    asked: Requests
    policy: Paged
    pages: int  # usable ones
    max_running: int
    chunk: int | None
    arrival_s: list[float] | None = None
    clock: Arrivals | None = None

    def run(self, **more: Any) -> Replay:
        arguments: dict[str, Any] = {
            "capacity_slots": (self.pages + self.policy.null_pages) * self.policy.page_size,
            "max_running": self.max_running,
            "prefill_chunk": self.chunk,
            "clock": self.clock,
            "output_page_ids": self.asked.output_ids if self.policy.prefix_cache else None,
        }
        return replay(self.asked.trace(self.arrival_s), self.policy, **arguments | more)

    def oracle(self) -> Oracle:
        return Oracle(
            self.asked,
            self.policy,
            self.pages,
            max_running=self.max_running,
            prefill_chunk=self.chunk,
            arrival_s=self.arrival_s,
            clock=self.clock,
        )


@st.composite
def cases(
    draw: st.DrawFn, *, kind: str | None = None, timed: bool | None = None, tight: bool = False
) -> Case:
    """Draw requests and a policy, with pools so tight that requests have to leave."""
    page_size = draw(st.sampled_from(PAGE_SIZES))
    kind = kind or draw(st.sampled_from(["plain", "cache", "cache", "swap"]))
    options: dict[str, Any] = {
        "watermark": draw(st.sampled_from([0.0, 0.0, 0.1, 0.25, 0.5, 0.99])),
        "null_pages": draw(st.integers(0, 2)),
        "whole_prompt_must_fit": draw(st.booleans()),
        "lone_prompt_whole": draw(st.booleans()),
    }
    id_size = None
    if kind == "cache":
        options |= {"prefix_cache": True, **draw(CACHE_OPTIONS)}
        id_size = draw(
            st.sampled_from(
                [page_size, 2 * page_size, 4 * page_size]
                + [page_size // n for n in (2, 4, 5) if page_size % n == 0]
            )
        )
    elif kind == "swap":
        options |= {"preemption": "swap", "host_pages": draw(st.integers(0, 12))}
    asked = draw(requests(page_size, id_size))
    sizes = sorted(-(-n // page_size) for n in asked.at_end())
    largest = sizes[-1] if draw(st.integers(0, 3)) else sizes[len(sizes) // 2]  # refuse some
    arrival_s, clock = None, None
    if timed or (timed is None and draw(st.booleans())):
        apart = draw(st.lists(EIGHTHS, min_size=len(sizes) - 1, max_size=len(sizes) - 1))
        arrival_s = [5.0, *(5.0 + np.cumsum(apart)).tolist()]
        clock = Arrivals(
            base_s=draw(EIGHTHS) + 0.125,
            running_s=draw(EIGHTHS),
            prefill_s=draw(EIGHTHS),
            speed=draw(st.sampled_from([0.5, 1.0, 4.0])),
        )
    return Case(
        asked,
        Paged(page_size, **options),
        pages=largest + draw(st.integers(0, 1 if tight else 4)),
        max_running=draw(st.sampled_from([1, 2, 3, 9, 9, 9])),
        chunk=draw(st.none() | st.integers(1, 3 * page_size)),
        arrival_s=arrival_s,
        clock=clock,
    )


@dataclass(frozen=True)
class ContiguousCase:
    """All that a contiguous replay is given."""

    asked: Requests
    policy: Contiguous
    capacity: int
    max_running: int
    chunk: int | None

    def run(self, **more: Any) -> Replay:
        return replay(
            self.asked.trace(),
            self.policy,
            capacity_slots=self.capacity,
            max_running=self.max_running,
            prefill_chunk=self.chunk,
            **more,
        )


@st.composite
def contiguous_cases(draw: st.DrawFn) -> ContiguousCase:
    """Draw requests and a policy, with pools that are often too small for the next in line."""
    asked = draw(requests(8))
    largest = max(asked.at_end())
    reserve: Any = draw(st.sampled_from(["max", "pow2", "oracle"]))
    policy = Contiguous(
        draw(st.integers(1, 2 * largest)) if reserve == "max" else reserve,
        fit=draw(st.sampled_from(["first", "best", "buddy"])),
        pow2_of=draw(st.sampled_from(["total", "output"])),
    )
    capacity = draw(st.integers(max(1, largest // 2), 4 * largest))
    chunk = draw(st.none() | st.integers(1, 10))
    return ContiguousCase(asked, policy, capacity, draw(st.integers(1, 8)), chunk)


@st.composite
def results(draw: st.DrawFn) -> Replay:
    """Draw a replay under any policy."""
    return draw(st.one_of(cases(), contiguous_cases())).run()
