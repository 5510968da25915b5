"""The page pool: order, holders, cache and copies, against other engines and a naive model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kvledger as kv
from kvledger.replays.allocator import PagePool, PageTable
from kvledger.replays.sampling import DecodingPages, beam_search, parallel_sampling

P = 4


def engine_pool(pages: int, page_size: int = P, *, prefix_cache: bool = True) -> PagePool:
    """Return a pool of so many usable pages, as vLLM makes it: page 0 is its null page."""
    return PagePool(pages + 1, page_size, prefix_cache=prefix_cache, null_pages=1)


def tok(first: int, n: int) -> list[int]:
    return list(range(first, first + n))


def admit(pool: PagePool, tokens: Sequence[int], **options: Any) -> PageTable:
    admission = pool.admit(list(tokens), **options)
    pool.check_integrity()
    return admission.table


def hit_of(pool: PagePool, tokens: Sequence[int], **options: Any) -> int:
    """Return the tokens a request would find, and leave the pool as it is."""
    limit = (len(tokens) - 1) // pool.page_size
    return len(pool.lookup(pool.keys_of(tokens, **options)[:limit])) * pool.page_size


# ---- the order of vLLM 0.33's block manager, line by line ---------------------------------------
def test_free_order() -> None:
    pool = engine_pool(8)
    assert (pool.pages, pool.usable_pages, pool.free_pages) == (9, 8, tuple(tok(1, 8)))
    assert admit(pool, tok(0, 32)).pages == tuple(tok(1, 8))
    assert pool.admit(1) is None
    pool = engine_pool(8)
    table = admit(pool, tok(0, 11))
    assert table.pages == (1, 2, 3)
    assert pool.free_pages == (4, 5, 6, 7, 8)
    assert pool.release(table) == 3
    assert pool.free_pages == (3, 4, 5, 6, 7, 8, 2, 1)
    pool.check_integrity()
    pool = engine_pool(8, prefix_cache=False)
    pool.release(admit(pool, tok(0, 11)))
    assert pool.free_pages == (3, 2, 1, 4, 5, 6, 7, 8)
    pool = engine_pool(8)
    table = admit(pool, tok(0, 13))
    assert pool.held_pages == 4
    pool.release(table)
    assert (pool.held_pages, pool.cached_free_pages) == (0, 3)
    assert pool.ledger().unallocated_slots == pool.ledger().capacity_slots == 32
    pool = engine_pool(64)
    assert [a.hit_tokens for _ in range(2) if (a := pool.admit(tok(0, 13)))] == [0, 12]


def test_eviction_order_hits_on_freed_pages_and_pressure() -> None:
    pool = engine_pool(8)
    a, b = admit(pool, tok(0, 13)), admit(pool, tok(100, 13))
    assert (a.pages, b.pages) == ((1, 2, 3, 4), (5, 6, 7, 8))
    pool.release(a)
    pool.release(b)
    assert pool.free_pages == (8, 4, 3, 2, 1, 7, 6, 5)
    hit = pool.admit(tok(0, 13))
    assert (hit.hit_tokens, hit.table.pages, hit.new_pages) == (12, (1, 2, 3, 8), (8,))
    assert pool.free_pages == (4, 7, 6, 5)
    assert (pool.counts.hit_pages, pool.counts.revived_pages) == (3, 3)
    pool.release(hit.table)
    d = pool.admit(tok(500, 17))
    assert (d.table.pages, d.evicted_pages) == ((8, 4, 7, 6, 5), 3)
    assert (hit_of(pool, tok(0, 13)), hit_of(pool, tok(100, 13))) == (12, 0)
    pool.check_integrity()
    pool = engine_pool(4)
    pool.release(admit(pool, tok(0, 9)))
    admit(pool, tok(100, 4))
    assert (pool.free_pages, hit_of(pool, tok(0, 13))) == ((4, 2, 1), 8)
    assert pool.admit(tok(0, 13)) is None  # two pages found and two new ones: three are free
    assert admit(pool, tok(0, 12)).pages == (1, 2, 4)


def test_a_duplicate_stays_until_it_is_freed() -> None:
    pool = engine_pool(64)
    a = admit(pool, tok(0, 9))
    b = admit(pool, tok(0, 5))  # hits one page; then fills a page that is cached already
    for token in (5, 6, 7):
        pool.append(b, [token])
    assert (a.pages, b.pages) == ((1, 2, 3), (1, 4))
    assert pool.ledger().distinct_tokens == 9 + 8 - 4
    keys = pool.keys_of(tok(0, 8))
    assert pool.lookup(keys) == (1, 2)  # the first that was cached answers
    pool.release(a)
    assert pool.lookup(keys) == (1, 2)
    pool.admit(P * len(pool.free_pages))  # evicts page 2: now the duplicate answers
    assert pool.lookup(keys) == (1, 4)
    pool.check_integrity()


# What another request's context finds of 13 tokens in pages of 4, beside 12 in the same context.
CONTEXTS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "salt": ({"cache_salt": "s1"}, {"cache_salt": "s2"}, 0),
    "adapter": ({"adapter": "ad1"}, {"adapter": "ad2"}, 0),
    "image": ({"images": (kv.Image(4, 4, "A"),)}, {"images": (kv.Image(4, 4, "B"),)}, 4),
}


@pytest.mark.parametrize("case", CONTEXTS)
def test_contexts_separate_pages(case: str) -> None:
    own, other, apart = CONTEXTS[case]
    contexts = (kv.PageContext(**own), kv.PageContext(**other), None)
    for context, hit in zip(contexts, (12, apart, apart), strict=True):
        pool = engine_pool(64)
        admit(pool, tok(0, 13), context=contexts[0])
        assert hit_of(pool, tok(0, 13), context=context) == hit, context
        assert pool.admit(tok(0, 13), context=context).hit_tokens == hit, context


# ---- the cases of the article and the other engine ----------------------------------------------
def distinct(lengths: Sequence[int], outputs: int = 1) -> list[tuple[list[int], int]]:
    return [(tok(1000 * (i + 1), n), outputs) for i, n in enumerate(lengths)]


def with_prefix(lengths: Sequence[int], prefix: int) -> list[tuple[list[int], int]]:
    return [(tok(0, prefix) + tok(1000 * (i + 1), n - prefix), 1) for i, n in enumerate(lengths)]


# name, requests, page size, pages a request, tokens; distinct pages and hits without and with cache
ENGINE_CASES: list[tuple[str, Any, int, list[int], int, int, int, list[int]]] = [
    ("A", distinct([5, 9, 17]), 1, [5, 9, 17], 31, 31, 31, [0, 0, 0]),
    ("A", distinct([5, 9, 17]), 4, [2, 3, 5], 31, 10, 10, [0, 0, 0]),
    ("A", distinct([5, 9, 17]), 8, [1, 2, 3], 31, 6, 6, [0, 0, 0]),
    ("A", distinct([5, 9, 17]), 16, [1, 1, 2], 31, 4, 4, [0, 0, 0]),
    ("B", with_prefix([20, 23], 8), 4, [5, 6], 43, 11, 9, [0, 8]),
    ("C", [(tok(0, 8), 1)] * 2, 4, [2, 2], 16, 4, 3, [0, 4]),
    ("D", [(tok(0, 9), 1)] * 2, 4, [3, 3], 18, 6, 4, [0, 8]),
    ("E", distinct([5, 9, 17], 12), 1, [16, 20, 28], 64, 64, 64, [0, 0, 0]),
    ("E", distinct([5, 9, 17], 12), 4, [4, 5, 7], 64, 16, 16, [0, 0, 0]),
    ("E", distinct([5, 9, 17], 12), 8, [2, 3, 4], 64, 9, 9, [0, 0, 0]),
    ("E", distinct([5, 9, 17], 12), 16, [1, 2, 2], 64, 5, 5, [0, 0, 0]),
    ("F", with_prefix([20, 23], 6), 4, [5, 6], 43, 11, 10, [0, 4]),
]


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("case", ENGINE_CASES, ids=lambda case: f"{case[0]}-page{case[2]}")
def test_pages_and_hits_are_those_of_the_engine(case: Any, cache: bool) -> None:
    _, requests, page_size, per_request, tokens, apart, together, hits = case
    pool = engine_pool(4096, page_size, prefix_cache=cache)
    admissions = [pool.admit(prompt) for prompt, _ in requests]
    for step in range(1, max(outputs for _, outputs in requests)):
        for admission, (_, outputs) in zip(admissions, requests, strict=True):
            if step < outputs:
                pool.append(admission.table, [10_000_000 + step])
    pool.check_integrity()
    hits = hits if cache else [0] * len(hits)
    assert [len(a.table.pages) for a in admissions] == per_request
    assert [a.hit_tokens for a in admissions] == hits
    ledger, physical = pool.ledger(), together if cache else apart
    assert (pool.held_pages, ledger.pages, ledger.logical_tokens) == (physical, physical, tokens)
    assert ledger.shared_tokens == sum(hits)


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=8),
    st.integers(1, 6),
    st.booleans(),
)
def test_a_pool_shares_as_a_snapshot(
    requests: list[list[int]], page_size: int, computed: bool
) -> None:
    pool = PagePool(200, page_size, prefix_cache=True)
    for tokens in requests:
        admit(pool, tokens, compute_last_token=computed)
    ledger = pool.ledger()
    expected = kv.shared_pages(requests, page_size, compute_last_token=computed)
    for field in ("requests", "logical_tokens", "shared_tokens", "tail_slack_slots", "pages"):
        assert getattr(ledger, field) == getattr(expected, field), field


# ---- copy-on-write as the paper has it ----------------------------------------------------------
def test_the_second_writer_writes_in_place() -> None:
    pool = PagePool(16, P)
    first = pool.admit(9)
    assert pool.held_pages == 3
    second = pool.fork(first.table)
    assert pool.held_pages == 3
    grown = pool.append(first.table)
    assert (pool.held_pages, grown.copied_page, grown.new_pages) == (4, 2, (3,))
    assert pool.append(second) == ((), None, 0)
    assert (first.table.pages, second.pages) == ((0, 1, 3), (0, 1, 2))
    assert (pool.held_pages, pool.counts.copied_pages) == (4, 1)
    pool.check_integrity()
    pool = PagePool(3, P)
    first = pool.admit(9)
    second = pool.fork(first.table)
    before = (first.table.pages, pool.counts, pool.ledger())
    assert pool.append(second) is None
    assert (first.table.pages, pool.counts, pool.ledger()) == before
    pool.release(first.table)
    assert pool.append(second) == ((), None, 0)
    pool = PagePool(16, P, prefix_cache=True)
    first = admit(pool, tok(0, 6))
    second = pool.fork(first)
    pool.append(first, [6, 7])
    pool.append(second, [60, 70])
    assert pool.lookup(pool.keys_of(tok(0, 8))) == (0, 2)
    assert pool.lookup(pool.keys_of([*tok(0, 6), 60, 70])) == (0, 1)
    pool.check_integrity()


def test_results_read_well() -> None:
    pool = engine_pool(8)
    table = admit(pool, tok(0, 9))
    assert repr(table) == "PageTable(0: 9 tokens in pages [1, 2, 3])"
    assert pool.tables == (table,)
    pool.release(table)
    assert repr(pool) == "PagePool(8 pages of 4 slots: 0 held, 8 free, 2 of them cached)"
    assert repr(PagePool(8, 4)) == "PagePool(8 pages of 4 slots: 0 held, 8 free)"
    with pytest.raises(AttributeError):
        pool.counts.freed_pages = 1
    pool = PagePool(8, P, prefix_cache=True)
    table = admit(pool, tok(0, 5))
    pool.append(table, 1)  # whatever it is
    pool.append(table, tok(6, 6))
    assert pool.lookup(pool.keys_of(tok(0, 12))) == (0,)
    assert pool.cached_free_pages == 0
    pool.release(table)
    assert pool.cached_free_pages == 1


# ---- parallel sampling and beam search ----------------------------------------------------------
SMALL = st.integers(1, 20)
FEW = st.integers(1, 6)


@given(SMALL, SMALL, FEW, FEW)
def test_parallel_sampling_in_closed_form(prompt: int, output: int, n: int, p: int) -> None:
    pages = parallel_sampling(prompt, output, n, p)
    complete = prompt // p
    assert pages.tokens == tuple(range(prompt + 1, prompt + output))
    assert pages.pages_without == tuple(n * -(-held // p) for held in pages.tokens)
    assert pages.pages_with == tuple(
        complete + n * (-(-held // p) - complete) for held in pages.tokens
    )
    assert pages.saved_pages == ((n - 1) * complete,) * (output - 1)
    assert pages.copied_pages == (n - 1 if prompt % p and output > 1 else 0)
    assert pages.total_saved == (n - 1) * complete * (output - 1)
    without = sum(pages.pages_without)
    assert pages.saved_share == (Fraction(pages.total_saved, without) if without else 0)
    whole = parallel_sampling(prompt, output, n, p, prompt_step=True)
    assert whole.tokens[0] == prompt
    assert whole.pages_with[0] == -(-prompt // p)
    assert whole.saved_pages[0] == (n - 1) * -(-prompt // p)
    assert whole.pages_with[1:] == pages.pages_with


def naive_beams(
    prompt: int, parents: list[list[int]], beams: int, page_size: int
) -> tuple[list[int], int]:
    """Count distinct pages as distinct histories, and copies as begun pages that lose a parent."""
    histories = [(-1,) * prompt] * beams
    held, copies = [], 0
    for step, chosen in enumerate([list(range(beams)), *parents]):
        histories = [histories[parent] for parent in chosen]
        if len(histories[0]) % page_size:  # each begun page is copied by all its heirs but one
            copies += beams - (1 if step == 0 else len(set(chosen)))
        histories = [(*history, step * beams + i) for i, history in enumerate(histories)]
        ends = [*range(page_size, len(histories[0]), page_size), len(histories[0])]
        held.append(len({history[:end] for history in histories for end in ends}))
    return held, copies


@given(SMALL, FEW, FEW, st.data())
def test_beams_hold_a_page_a_history(prompt: int, n: int, p: int, data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(st.lists(st.integers(0, n - 1), min_size=n, max_size=n), max_size=12)
    )
    asked: list[tuple[int, int]] = []

    def parents(step: int, beams: int, rng: np.random.Generator) -> list[int]:
        asked.append((step, beams))
        return steps[step - 2]

    pages = beam_search(prompt, len(steps) + 2, n, p, parents=parents)
    held, copies = naive_beams(prompt, steps, n, p)
    assert list(pages.pages_with) == held
    assert pages.copied_pages == copies
    assert asked == [(step, n) for step in range(2, len(steps) + 2)]
    stay = parallel_sampling(prompt, len(steps) + 2, n, p)
    assert pages.pages_without == stay.pages_without
    assert all(a <= b for a, b in zip(pages.pages_with, stay.pages_with, strict=True))


@given(SMALL, SMALL, FEW, FEW)
def test_beams_that_stay_are_samples(prompt: int, output: int, n: int, p: int) -> None:
    samples = parallel_sampling(prompt, output, n, p)
    assert beam_search(prompt, output, n, p, parents="stay") == samples
    identity = beam_search(prompt, output, n, p, parents=lambda step, beams, rng: range(beams))
    assert identity == samples


def test_uniform_parents_are_seeded_and_uniform() -> None:
    runs = [beam_search(40, 60, 4, 16, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].pages_with != runs[2].pages_with or runs[0].copied_pages != runs[2].copied_pages
    assert runs[0] == beam_search(40, 60, 4, 16, seed=np.random.default_rng(1))
    assert runs[0].saved_share > parallel_sampling(40, 60, 4, 16).saved_share
    # With two beams and pages of one slot, both have one parent half of the time.
    pages = beam_search(1, 2001, 2, 1, seed=5)
    # Only both having one parent shares a step's pages; then all before it is shared too.
    unshared = [held - tokens for held, tokens in zip(pages.pages_with, pages.tokens, strict=True)]
    mean = sum(unshared) / len(unshared)
    assert 1.9 < mean < 2.1  # generations back to a common parent: geometric, mean 2
    assert min(unshared) == 1
    pages = parallel_sampling(9, 1, 4, 4)
    assert (pages.pages_with, pages.saved_share, pages.copied_pages) == ((), 0, 0)
    assert isinstance(pages, DecodingPages)


# ---- a naive model, one operation at a time -----------------------------------------------------
class PagePoolMachine(RuleBasedStateMachine):
    """A pool beside lists and whole beginnings: a queue that is a list, keys that are texts."""

    @initialize(
        pages=st.integers(2, 12),
        page_size=st.integers(1, 4),
        prefix_cache=st.booleans(),
        null=st.integers(0, 1),
    )
    def make(self, pages: int, page_size: int, prefix_cache: bool, null: int) -> None:
        self.pool = PagePool(pages, page_size, prefix_cache=prefix_cache, null_pages=null)
        self.usable = pages - null
        self.queue = list(range(null, pages))
        # What each table holds: its pages, and the tokens (None: not known to the pool).
        self.model: dict[PageTable, tuple[list[int], list[int | None]]] = {}
        self.keys: dict[int, tuple[int, ...]] = {}  # in the order in which pages were cached
        self.memory: dict[int, list[int | None]] = {}

    def pick(self, index: int) -> PageTable:
        return list(self.model)[index % len(self.model)]

    def pages_of(self, tokens: int) -> int:
        return -(-tokens // self.pool.page_size)

    def holders(self, page: int) -> int:
        return sum(page in pages for pages, _ in self.model.values())

    def take(self, n: int) -> list[int]:
        taken, self.queue = self.queue[:n], self.queue[n:]
        for page in taken:
            self.keys.pop(page, None)
            self.memory[page] = []
        return taken

    def store(self, pages: list[int], content: list[int | None], new: list[int | None]) -> None:
        """Write tokens through the table, and cache the pages they complete."""
        p = self.pool.page_size
        for token in new:
            self.memory[pages[len(content) // p]].append(token)
            content.append(token)
            if len(content) % p == 0 and self.pool.prefix_cache:
                known = tuple(t for t in content if t is not None)
                if len(known) == len(content):
                    self.keys[pages[len(content) // p - 1]] = known

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14), computed=st.booleans())
    def admit(self, tokens: list[int], computed: bool) -> None:
        p = self.pool.page_size
        found: list[int] = []
        while (len(found) + 1) * p <= len(tokens) - computed:
            beginning = tuple(tokens[: (len(found) + 1) * p])
            page = next((page for page, key in self.keys.items() if key == beginning), None)
            if page is None:
                break
            found.append(page)
        pages = self.pages_of(len(tokens))
        if pages > self.usable:
            refused("can never fit", self.pool.admit, tokens, compute_last_token=computed)
            return
        admission = self.pool.admit(tokens, compute_last_token=computed)
        left = [page for page in self.queue if page not in found]
        if pages - len(found) > len(left):
            assert admission is None
            return
        self.queue = left
        table_pages = found + self.take(pages - len(found))
        content: list[int | None] = list(tokens[: len(found) * p])
        self.store(table_pages, content, list(tokens[len(found) * p :]))
        self.model[admission.table] = (table_pages, content)
        assert admission.hit_tokens == len(found) * p

    @precondition(lambda self: self.model)
    @rule(
        index=st.integers(0, 99),
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5),
        known=st.booleans(),
    )
    def append(self, index: int, tokens: list[int], known: bool) -> None:
        p = self.pool.page_size
        table = self.pick(index)
        pages, content = self.model[table]
        given: Any = tokens if known else len(tokens)
        needed = self.pages_of(len(content) + len(tokens))
        if needed > self.usable:
            refused("can never fit", self.pool.append, table, given)
            return
        last = len(content) // p
        copy = len(content) % p > 0 and self.holders(pages[last]) > 1
        new = needed - len(pages)
        grown = self.pool.append(table, given)
        if new + copy > len(self.queue):
            assert grown is None
            return
        assert (grown.copied_page is not None) == copy
        taken = self.take(new + copy)
        assert grown.new_pages == tuple(taken)
        if copy:
            self.memory[taken[0]] = list(self.memory[pages[last]])
            pages[last] = taken.pop(0)
        pages += taken
        unknown = not known or None in content
        self.store(pages, content, [None] * len(tokens) if unknown else list(tokens))

    @precondition(lambda self: self.model)
    @rule(index=st.integers(0, 99))
    def fork(self, index: int) -> None:
        table = self.pick(index)
        pages, content = self.model[table]
        self.model[self.pool.fork(table)] = (list(pages), list(content))

    @precondition(lambda self: self.model)
    @rule(index=st.integers(0, 99))
    def release(self, index: int) -> None:
        table = self.pick(index)
        pages, _ = self.model.pop(table)
        freed = [page for page in reversed(pages) if not self.holders(page)]
        assert self.pool.release(table) == len(freed)
        unkeyed = [page for page in freed if page not in self.keys]
        self.queue = unkeyed + self.queue + [page for page in freed if page in self.keys]
        refused("not held here", self.pool.release, table)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        assert list(self.pool.free_pages) == self.queue
        held = {page for pages, _ in self.model.values() for page in pages}
        assert self.pool.held_pages == len(held) == self.usable - len(self.queue)
        assert self.pool.cached_free_pages == sum(page in self.keys for page in self.queue)
        p = self.pool.page_size
        for table, (pages, content) in self.model.items():
            assert list(table.pages) == pages
            assert table.tokens == len(content)
            # What is read through the table is what was written through it.
            read = [self.memory[pages[i // p]][i % p] for i in range(len(content))]
            assert read == content
        ledger = self.pool.ledger()
        assert ledger.distinct_tokens == sum(len(self.memory[page]) for page in held)
        assert ledger.logical_tokens == sum(len(content) for _, content in self.model.values())
        assert ledger.reserved_slots == 0


TestPagePool = PagePoolMachine.TestCase
TestPagePool.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_page_pool_agrees_over_thousands_of_operations(seed: int, prefix_cache: bool) -> None:
    """The same machine, on a pool kept busy: hits, copies and evictions, each many times."""
    rng = np.random.default_rng(seed)
    machine = PagePoolMachine()
    machine.make(pages=20, page_size=2 + seed % 2, prefix_cache=prefix_cache, null=seed % 2)
    for _ in range(3000):
        tokens = rng.integers(2, size=rng.integers(1, 9)).tolist()
        index = int(rng.integers(99))
        name = rng.choice(["admit", "append", "fork", "release"], p=[0.35, 0.25, 0.15, 0.25])
        if name == "admit":
            machine.admit(tokens=tokens, computed=bool(rng.integers(2)))
        elif machine.model:
            match name:
                case "append":
                    machine.append(index=index, tokens=tokens[:4], known=bool(rng.random() < 0.8))
                case "fork":
                    machine.fork(index=index)
                case "release":
                    machine.release(index=index)
        machine.agrees()
    counts = machine.pool.counts
    assert counts.copied_pages > 10, counts
    if prefix_cache:
        assert min(counts.hit_pages, counts.evicted_pages) > 50, counts
        assert counts.revived_pages > 10, counts
    else:
        assert counts.hit_pages == counts.evicted_pages == 0


# ---- each invariant broken by hand --------------------------------------------------------------
def busy_pool() -> Any:
    """Return a pool with held, shared, cached and free pages, and a cached page nobody holds."""
    pool = PagePool(12, P, prefix_cache=True, null_pages=1)
    pool.release(admit(pool, tok(100, 5)))
    pool.fork(admit(pool, tok(0, 10)))
    pool.admit(1)
    pool.check_integrity()
    return pool


BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a page is lost": (lambda pool: pool._store.free.pop(8), "page 8 has 0 holders: free and held"),
    "a page is free and held": (
        lambda pool: pool._store.free.setdefault(3),
        "page 3 has 2 holders: free and held, or lost",
    ),
    "a null page is free": (lambda pool: pool._store.free.setdefault(0), "page 0 has 0 holders"),
    "too many holders": (
        lambda pool: pool._store.holders.__setitem__(3, 5),
        "page 3 counts 5 holders; 2 tables hold it",
    ),
    "a table is forgotten": (lambda pool: pool._tables.pop(1), "page 2 counts 2 holders; 1 tables"),
    "a table is filed wrongly": (
        lambda pool: pool._tables.__setitem__(9, pool._tables.pop(1)),
        "table 1 is filed as 9",
    ),
    "a table holds a null page": (
        lambda pool: pool.tables[0]._pages.__setitem__(2, 0),
        "a table holds 0, no page to hand out",
    ),
    "a table holds a page twice": (
        lambda pool: pool.tables[0]._pages.__setitem__(2, pool.tables[0].pages[1]),
        "a table holds a page twice",
    ),
    "more tokens than slots": (
        lambda pool: setattr(pool.tables[0], "_tokens", 13),
        "table 1 stores 13 tokens in 3 pages",
    ),
    "a shared page was written to": (
        lambda pool: setattr(pool.tables[0], "_tokens", 11),
        "for table 2: a shared page was written to",
    ),
    "a begun page has a key": (
        lambda pool: pool._store.cache(pool.tables[0].pages[2], 77),
        "has a key and only 2 tokens",
    ),
    "a key points at another's page": (
        lambda pool: pool._store.by_key.__setitem__(77, {8: None}),
        "keys and pages do not point at each other: {(8, 77)}",
    ),
    "a page's key does not point at it": (
        lambda pool: pool._store.key_of.__setitem__(8, 77),
        "keys and pages do not point at each other: {(8, 77)}",
    ),
    "a cache where there is none": (
        lambda pool: setattr(pool, "prefix_cache", False),
        "pages are cached in a pool without a prefix cache",
    ),
    "a count is wrong": (
        lambda pool: pool._store.counted.__setitem__("freed_pages", 0),
        "4 pages are held; counted: PoolCounts(allocated_pages=6, freed_pages=0",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_page_pool_is_found(name: str) -> None:
    damage, message = BROKEN[name]
    pool = busy_pool()
    damage(pool)
    with pytest.raises(AssertionError, match=re.escape(message)):
        pool.check_integrity()


# ---- bad input ----------------------------------------------------------------------------------
def held(pool: PagePool) -> PageTable:
    return admit(pool, tok(0, 5))


def released(pool: PagePool) -> PageTable:
    table = held(pool)
    pool.release(table)
    return table


def tiny() -> Any:
    return PagePool(3, P, prefix_cache=True)


def beams(**options: Any) -> Any:
    return beam_search(9, 3, 2, 4, **options)


def by(*parents: int) -> Any:
    return lambda step, beams, rng: list(parents)


pool_of: Any = PagePool
samples: Any = parallel_sampling
TOKENS = "a number of tokens (a whole number, at least 1) or a sequence of token ids is accepted"
HELD = "table 0 is not held here: it was released already, or is another pool's"
FIT = "4 pages for one sequence can never fit: the pool hands out 3"
PARENT = "a beam's number, from 0 to 1, for each of 2 beams"

BAD: dict[Callable[[], Any], str] = {
    lambda: pool_of(0, 4): "pages is 0; pages is a whole number of pages, at least 1",
    lambda: pool_of(1.5, 4): "pages is 1.5; ",
    lambda: pool_of(4, 0): "page_size is 0; a page size is",
    lambda: pool_of(4, 4, null_pages=-1): "null_pages is -1; ",
    lambda: pool_of(2, 4, null_pages=2): "null_pages is 2 of 2 pages; at least one page must be",
    lambda: tiny().admit(0): f"prompt is 0; {TOKENS}",
    lambda: tiny().admit([]): f"prompt is empty; {TOKENS}",
    lambda: tiny().admit("abc"): f"prompt is 'abc'; {TOKENS}",
    lambda: tiny().admit([1, -1]): "prompt[1] is -1; a token id is a whole number",
    lambda: tiny().admit([1, "2"]): "prompt[1] is '2'; a token id",
    lambda: tiny().admit([1], context=[]): "context is []; a PageContext or another hashable value",
    lambda: tiny().admit(13): FIT,
    lambda: (pool := tiny()).append(held(pool), 8): FIT,
    lambda: (pool := tiny()).append(held(pool), 0): f"tokens is 0; {TOKENS}",
    lambda: (pool := tiny()).append(held(pool), []): "tokens is empty",
    lambda: (pool := tiny()).release(released(pool)): HELD,
    lambda: tiny().release(held(tiny())): HELD,
    lambda: (pool := tiny()).append(released(pool)): HELD,
    lambda: (pool := tiny()).fork(released(pool)): HELD,
    lambda: tiny().release([0]): "table is [0]; a PageTable of this pool is accepted",
    lambda: tiny().keys_of(5): "tokens is 5; a sequence of token ids is accepted",
    lambda: samples(9, 3, 0, 4): "samples is 0; samples is a whole number of sequences",
    lambda: samples(0, 3, 2, 4): "prompt_tokens is 0; ",
    lambda: samples(9, 0, 2, 4): "output_tokens is 0; ",
    lambda: samples(9, 3, 2, 0): "page_size is 0; ",
    lambda: beam_search(9, 3, 0, 4): "beams is 0; ",
    lambda: beams(parents="best"): 'parents is \'best\'; "uniform", "stay" and a function',
    lambda: beams(parents=by(0)): f"parents at step 2 are [0]; {PARENT}",
    lambda: beams(parents=by(0, 2)): f"a parent at step 2 is 2; {PARENT}",
    lambda: beams(parents=by(0, -1)): f"a parent at step 2 is -1; {PARENT}",
    lambda: beams(seed="x"): "seed is 'x'; a whole number from 0, or a numpy Generator",
}


@pytest.mark.parametrize(("call", "message"), BAD.items())
def test_bad_input_gets_one_clear_error(call: Callable[[], Any], message: str) -> None:
    assert message in refused("", call)


@pytest.mark.parametrize(
    "call",
    [
        lambda pool, table: pool.admit(99),
        lambda pool, table: pool.admit([1, 2, -3]),
        lambda pool, table: pool.append(table, [5, -1]),
        lambda pool, table: pool.append(table, 99),
    ],
)
def test_a_refused_call_changes_nothing(call: Callable[[PagePool, PageTable], Any]) -> None:
    pool = PagePool(8, P, prefix_cache=True, null_pages=1)
    table = admit(pool, tok(0, 6))
    before = (table.pages, table.tokens, pool.free_pages, pool.counts, pool.ledger())
    with pytest.raises(kv.LedgerError):
        call(pool, table)
    assert (table.pages, table.tokens, pool.free_pages, pool.counts, pool.ledger()) == before
    pool.append(table, [6, 7])
    assert pool.lookup(pool.keys_of(tok(0, 8))) == (1, 2)
    pool.check_integrity()
