"""The replay of requests on the readable page store: lists, dictionaries, no arrays.

The steps and the pool are those of vLLM V1, whose recorded answers it reproduces
(``test_peers.py``). It is the oracle for the compiled engine on traces that nobody recorded.

One step:

1. Every running request, in order of admission, gets slots for what it computes next: the token
   it sampled last, or the next chunk of its prompt. While there are too few pages, the request
   admitted last loses all of its pages and goes to the front of the queue; this may be the one
   that asked.
2. If none was preempted, the queue's head is admitted while fewer than ``max_running`` run and
   its tokens fit, beside the watermark's pages unless nothing runs. Nobody overtakes it.
3. The columns are measured.
4. Every running request whose tokens are all computed samples one. With its last one it leaves;
   that token is never stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from kvledger.replays.allocator import PageStore

NEVER = -1


@dataclass(frozen=True, slots=True)
class Policy:
    """What a replay needs to know; ``pages`` are usable ones, the null page is not among them.

    The watermark is a number of pages. vLLM's is a share of all, its null page included:
    ``int(share * (pages + 1))``, see :func:`watermark_pages`.

    ``same_step_hits``: pages that a request fills in this step can be found by the next one
    admitted in the same step. ``whole_prompt_must_fit``: a prompt that enters in chunks is
    admitted only where all of it would fit, not its first chunk alone. ``lone_prompt_whole``: a
    request that is the only one in the system enters whole whatever the chunk.
    ``merge_duplicates``: after the step, a page filled with what is cached already is given up
    for the cached one.
    """

    page_size: int
    pages: int
    max_running: int
    prefix_cache: bool = False
    watermark_pages: int = 0
    prefill_chunk: int | None = None
    same_step_hits: bool = True
    whole_prompt_must_fit: bool = True
    lone_prompt_whole: bool = True
    merge_duplicates: bool = False


def watermark_pages(share: float, pages: int) -> int:
    """Return the pages that vLLM keeps free at admission, of a pool with one more as null page."""
    return int(share * (pages + 1))


@dataclass(eq=False, slots=True)
class Request:
    """A request and how far it has come, in tokens."""

    index: int
    prompt: int
    output: int
    keys: Sequence[Hashable]
    table: list[int] = field(default_factory=list)
    stored: int = 0  # tokens whose K and V have a slot
    sampled: int = 0
    keyed: int = 0  # pages of the table that have a key
    reached: int = 0  # most tokens ever stored: what is stored again below it is recomputed

    @property
    def known(self) -> int:
        """Tokens that there are: the prompt and what was sampled."""
        return self.prompt + self.sampled

    def key_of(self, k: int) -> Hashable:
        """Return the key of its page `k`; without a given one, no other request has it."""
        return self.keys[k] if k < len(self.keys) else (self.index, k)


#: A value a step, taken after admission; ``settled_pages`` is after duplicates are merged.
STEPS = (
    "running waiting pages settled_pages free cached held hit_tokens resumed_hit_tokens "
    "recomputed_tokens preempted logical_tokens shared_tokens distinct_tokens tail_slack_slots "
    "allocated_slots unallocated_slots refused"
)


class Columns(SimpleNamespace):
    """A list for each of the steps' columns, and one value a request for each of the others."""

    def __init__(self, requests: int) -> None:
        super().__init__(**{name: [] for name in STEPS.split()})
        self.admitted_step, self.finished_step = [NEVER] * requests, [NEVER] * requests
        self.request_hit_tokens = [0] * requests
        self.request_resumed_hit_tokens = [0] * requests
        self.request_recomputed_tokens = [0] * requests
        self.preemptions = [0] * requests


class Replay:
    """Requests that all wait at the first step; :meth:`step` until :attr:`over`."""

    def __init__(
        self,
        prompt_tokens: Sequence[int],
        output_tokens: Sequence[int],
        page_keys: Sequence[Sequence[Hashable]] | None,
        policy: Policy,
    ) -> None:
        self.policy = policy
        self.pool = PageStore(policy.pages)
        self.columns = Columns(len(prompt_tokens))
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.new_keys: list[tuple[int, Hashable]] = []  # filled now, to be found after the step
        for i, (prompt, output) in enumerate(zip(prompt_tokens, output_tokens, strict=True)):
            if self.pages_for(prompt + max(0, output - 1)) > policy.pages:
                self.columns.refused.append(i)
            else:
                keys = page_keys[i] if page_keys is not None else ()
                self.waiting.append(Request(i, prompt, output, keys))

    @property
    def over(self) -> bool:
        """Whether every request has finished or was refused."""
        return not self.waiting and not self.running

    def pages_for(self, tokens: int) -> int:
        """Return the pages that so many tokens need."""
        return -(-tokens // self.policy.page_size)

    def step(self) -> None:
        """Do one step and measure it."""
        columns, chunk = self.columns, self.policy.prefill_chunk
        for column in (
            columns.hit_tokens,
            columns.resumed_hit_tokens,
            columns.recomputed_tokens,
            columns.preempted,
        ):
            column.append(0)
        if self.policy.lone_prompt_whole and len(self.running) + len(self.waiting) == 1:
            chunk = None
        self.grow_running(chunk)
        if columns.preempted[-1] == 0:
            self.admit(chunk)
        self.measure()
        self.let_keys_be_found()
        self.sample()

    def grow_running(self, chunk: int | None) -> None:
        """Give every running request its next slots, preempting the latest where none are left."""
        at = 0
        while at < len(self.running):
            request = self.running[at]
            new = _at_most(request.known - request.stored, chunk)
            missing = self.pages_for(request.stored + new) - len(request.table)
            while missing > len(self.pool.free) and at < len(self.running):
                self.preempt()
            if at < len(self.running):
                self.store(request, new)
                at += 1

    def preempt(self) -> None:
        """Take all pages from the request admitted last; what it sampled it keeps."""
        latest = self.running.pop()
        self.release(latest)
        self.waiting.appendleft(latest)
        self.columns.preempted[-1] += 1
        self.columns.preemptions[latest.index] += 1

    def admit(self, chunk: int | None) -> None:
        """Admit the queue's head, again and again, until one does not fit."""
        policy, pool, columns = self.policy, self.pool, self.columns
        while self.waiting and len(self.running) < policy.max_running:
            request = self.waiting[0]
            cached = self.cached_pages(request)
            hit = len(cached) * policy.page_size
            new = _at_most(request.known - hit, chunk)
            slots = request.known if policy.whole_prompt_must_fit else hit + new
            needed = self.pages_for(slots) - len(cached)
            needed += sum(pool.holders[page] == 0 for page in cached)  # free until it takes them
            if self.running:
                needed += policy.watermark_pages
            if needed > len(pool.free):
                break
            self.running.append(self.waiting.popleft())
            for page in cached:
                pool.hold(page)
            request.table = cached
            request.stored, request.keyed = hit, len(cached)
            if columns.admitted_step[request.index] == NEVER:
                columns.admitted_step[request.index] = len(columns.running)
                columns.hit_tokens[-1] += hit
                columns.request_hit_tokens[request.index] += hit
            else:
                columns.resumed_hit_tokens[-1] += hit
                columns.request_resumed_hit_tokens[request.index] += hit
            self.store(request, new)

    def cached_pages(self, request: Request) -> list[int]:
        """Find the cached pages it begins with; its last token is always left to compute."""
        cached: list[int] = []
        if self.policy.prefix_cache:
            for k in range((request.known - 1) // self.policy.page_size):
                page = self.pool.find(request.key_of(k))
                if page is None:
                    break
                cached.append(page)
        return cached

    def store(self, request: Request, new: int) -> None:
        """Take pages for new tokens, and key those that become complete."""
        again = max(0, min(request.stored + new, request.reached) - request.stored)
        self.columns.recomputed_tokens[-1] += again
        self.columns.request_recomputed_tokens[request.index] += again
        request.stored += new
        request.reached = max(request.reached, request.stored)
        missing = self.pages_for(request.stored) - len(request.table)
        request.table += self.pool.take(max(0, missing))
        if self.policy.prefix_cache:
            for k in range(request.keyed, request.stored // self.policy.page_size):
                self.new_keys.append((request.table[k], request.key_of(k)))
            request.keyed = request.stored // self.policy.page_size
            if self.policy.same_step_hits:
                self.let_keys_be_found()

    def let_keys_be_found(self) -> None:
        """Key the pages filled before, in the order they were filled."""
        for page, key in self.new_keys:
            self.pool.cache(page, key)
        self.new_keys.clear()

    def measure(self) -> None:
        """Append to every column what is held now."""
        columns, pool, size = self.columns, self.pool, self.policy.page_size
        columns.running.append(len(self.running))
        columns.waiting.append(len(self.waiting))
        columns.held.append([len(each.table) for each in self.running])
        columns.pages.append(self.policy.pages - len(pool.free))
        columns.free.append(len(pool.free))
        columns.cached.append(sum(pool.key_of[page] is not None for page in pool.free))
        logical = sum(each.stored for each in self.running)
        shared = size * sum(holders - 1 for holders in pool.holders if holders > 1)
        allocated = size * columns.pages[-1]
        columns.logical_tokens.append(logical)
        columns.shared_tokens.append(shared)
        columns.distinct_tokens.append(logical - shared)
        columns.allocated_slots.append(allocated)
        columns.tail_slack_slots.append(allocated - logical + shared)
        columns.unallocated_slots.append(size * len(pool.free))

    def sample(self) -> None:
        """Let every request whose tokens are all stored sample one; the finished ones go."""
        if self.policy.merge_duplicates:
            self.merge()
        self.columns.settled_pages.append(self.policy.pages - len(self.pool.free))
        step = len(self.columns.running) - 1
        for request in list(self.running):
            if request.stored < request.known:
                continue
            request.sampled = min(request.sampled + 1, request.output)
            if request.sampled == request.output:
                self.running.remove(request)
                self.release(request)
                self.columns.finished_step[request.index] = step

    def merge(self) -> None:
        """Put the page found first in place of later ones with the same key."""
        for request in self.running:
            for k in range(request.keyed):
                page = request.table[k]
                first = self.pool.find(request.key_of(k))
                if first is not None and first != page:
                    self.pool.hold(first)
                    request.table[k] = first
                    if self.pool.holders[page] == 1:
                        self.pool.forget(page)
                    self.pool.drop([page])

    def release(self, request: Request) -> None:
        """Free a request's pages, the last one first."""
        self.pool.drop(request.table)
        request.table, request.stored, request.keyed = [], 0, 0

    def check_integrity(self) -> None:
        """Prove the pool's integrity, the ledger's identities, and that no request is lost."""
        self.pool.check_integrity([each.table for each in self.running])
        columns, size = self.columns, self.policy.page_size
        if columns.running:
            assert (
                columns.distinct_tokens[-1] + columns.tail_slack_slots[-1]
                == (columns.allocated_slots[-1])
            )
            assert columns.allocated_slots[-1] + columns.unallocated_slots[-1] == (
                size * self.policy.pages
            )
            assert 0 <= columns.tail_slack_slots[-1] < size * max(1, columns.running[-1])
        places = [
            *(each.index for each in self.running),
            *(each.index for each in self.waiting),
            *columns.refused,
            *(i for i, step in enumerate(columns.finished_step) if step != NEVER),
        ]
        assert sorted(places) == list(range(len(columns.finished_step)))


def replay(
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    page_keys: Sequence[Sequence[Hashable]] | None,
    policy: Policy,
    *,
    check: bool = False,
) -> Columns:
    """Replay requests to the end; `check` proves the integrity of every step."""
    it = Replay(prompt_tokens, output_tokens, page_keys, policy)
    while not it.over:
        it.step()
        if check:
            it.check_integrity()
    return it.columns


def _at_most(tokens: int, chunk: int | None) -> int:
    return tokens if chunk is None else min(tokens, chunk)
