"""The allocator of pages, one operation at a time: shared, copied on write, cached and evicted.

This is the reference: plain Python, meant to be read, with a ``check_integrity()`` that proves
every slot to be in exactly one place. A whole trace runs through a compiled engine, which is held
to it. :class:`PageStore` knows pages, :class:`PagePool` the sequences that hold them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from kvledger.accounting.ledger import Ledger
from kvledger.accounting.sharing import PageContext
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import INT64_MAX, whole, whole_page_size
from kvledger.replays.policies import whole_number

_TOKENS = "a number of tokens (a whole number, at least 1) or a sequence of token ids is accepted"


class PoolCounts(NamedTuple):
    """What has happened in a pool since it was made, in pages."""

    allocated_pages: int = 0  # taken from the head of the free queue, copies included
    freed_pages: int = 0  # whose last holder let go
    copied_pages: int = 0  # because a shared one was written to
    evicted_pages: int = 0  # handed out while they still held cached content
    hit_pages: int = 0  # cached ones found and held once more
    revived_pages: int = 0  # those of them that nobody held, taken back out of the free queue


class PageStore:
    """The pages of a pool: how often each is held, which are free, and what is cached in them.

    Parameters
    ----------
    pages : int
        All pages.
    null_pages : int
        Pages at the beginning that are never handed out.

    Examples
    --------
    >>> store = PageStore(4, null_pages=1)
    >>> store.take(2)
    [1, 2]
    >>> store.cache(1, "a key")
    >>> store.drop([1, 2])           # tail first: 2 has no key and goes to the head
    2
    >>> list(store.free), store.find("a key")
    ([2, 3, 1], 1)
    """

    __slots__ = ("_first", "by_key", "counted", "free", "holders", "key_of")

    def __init__(self, pages: int, null_pages: int = 0) -> None:
        self._first = null_pages
        # Free pages, the next to be handed out first.
        self.free = OrderedDict.fromkeys(range(null_pages, pages))
        self.holders = [0] * pages
        self.key_of: list[Hashable | None] = [None] * pages
        # Pages under each key in the order in which they were cached: the first one answers.
        self.by_key: dict[Hashable, dict[int, None]] = {}
        self.counted = dict.fromkeys(PoolCounts._fields, 0)

    def take(self, n: int) -> list[int]:
        """Take pages from the head of the queue; what was cached in them is forgotten."""
        pages = [self.free.popitem(last=False)[0] for _ in range(n)]
        for page in pages:
            if self.key_of[page] is not None:
                self.forget(page)
                self.counted["evicted_pages"] += 1
            self.holders[page] = 1
        self.counted["allocated_pages"] += n
        return pages

    def find(self, key: Hashable) -> int | None:
        """Return the page that was cached under a key first, of those that still are."""
        return next(iter(self.by_key.get(key, ())), None)

    def hold(self, page: int) -> None:
        """Hold a cached page once more; a free one is taken out of the queue."""
        if not self.holders[page]:
            del self.free[page]
            self.counted["revived_pages"] += 1
        self.holders[page] += 1
        self.counted["hit_pages"] += 1

    def drop(self, pages: Sequence[int]) -> int:
        """Let go of pages, the last one first, and return how many nobody holds any more.

        Of these, pages without a key go to the head of the queue, and cached ones to its tail.
        """
        freed = []
        for page in reversed(pages):
            self.holders[page] -= 1
            if not self.holders[page]:
                freed.append(page)
                self.free[page] = None
        for page in reversed(freed):
            if self.key_of[page] is None:
                self.free.move_to_end(page, last=False)
        self.counted["freed_pages"] += len(freed)
        return len(freed)

    def cache(self, page: int, key: Hashable) -> None:
        """Let a complete page be found under its key, after those that have the same one."""
        self.key_of[page] = key
        self.by_key.setdefault(key, {})[page] = None

    def forget(self, page: int) -> None:
        """Take a page's key away."""
        pages = self.by_key[self.key_of[page]]
        del pages[page]
        if not pages:
            del self.by_key[self.key_of[page]]
        self.key_of[page] = None

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Prove every page to be free, or held by as many tables as it counts; all keys sound."""
        counts = [0] * len(self.holders)
        for table in tables:
            if len(set(table)) != len(table):
                raise AssertionError(f"a table holds a page twice: {list(table)}")
            for page in table:
                if not self._first <= page < len(counts):
                    raise AssertionError(f"a table holds {page}, no page to hand out")
                counts[page] += 1
        for page, (held, count) in enumerate(zip(self.holders, counts, strict=True)):
            if held != count:
                raise AssertionError(f"page {page} counts {held} holders; {count} tables hold it")
            if (page in self.free) == (count > 0 or page < self._first):
                raise AssertionError(f"page {page} has {count} holders: free and held, or lost")
        under = {(page, key) for key, pages in self.by_key.items() for page in pages}
        own = {(page, key) for page, key in enumerate(self.key_of) if key is not None}
        if under != own or not all(self.by_key.values()):
            raise AssertionError(f"keys and pages do not point at each other: {under ^ own}")
        total = PoolCounts(**self.counted)
        if sum(map(bool, counts)) != (
            total.allocated_pages + total.revived_pages - total.freed_pages
        ):
            raise AssertionError(f"{sum(map(bool, counts))} pages are held; counted: {total}")


class PageTable:
    """One sequence's pages, in order, and how many tokens are stored in them.

    Made and changed by its :class:`PagePool` only.
    """

    __slots__ = ("_context", "_keys", "_pages", "_pending", "_tokens", "number")

    def __init__(self, number: int, pages: Iterable[int], tokens: int, context: Hashable) -> None:
        self.number = number
        self._pages = list(pages)
        self._tokens = tokens
        # Keys of its pages from the first on, as far as they are known.
        self._keys: list[int] = []
        # Ids of the tokens in the page not yet complete; None once a token's id is not known.
        self._pending: list[int] | None = None
        self._context = context

    @property
    def pages(self) -> tuple[int, ...]:
        """Pages in the order of the tokens."""
        return tuple(self._pages)

    @property
    def tokens(self) -> int:
        """Tokens stored."""
        return self._tokens

    def __repr__(self) -> str:
        return f"PageTable({self.number}: {self._tokens} tokens in pages {self._pages})"


class Admission(NamedTuple):
    """What admitting a prompt did."""

    table: PageTable
    hit_tokens: int  # found in cached pages, so not computed
    new_pages: tuple[int, ...]  # taken from the free queue, in order
    evicted_pages: int  # whose cached content was given up for them


class Growth(NamedTuple):
    """What storing more tokens did."""

    new_pages: tuple[int, ...]  # taken from the free queue, in order; the copy first
    copied_page: int | None  # that others hold too, copied before it was written to
    evicted_pages: int


class PagePool:
    """Pages of one size for sequences that are admitted, grow, fork, write and leave.

    Free pages stand in a queue and are handed out from its head. A sequence's pages are freed
    tail first. Those without a key go to the head; those whose content is cached go to the tail,
    so the least recently freed is evicted first. A hit takes a page back out of the queue. The
    order is that of vLLM's block manager (0.33); copy-on-write is that of Kwon et al. (2023),
    which that manager no longer has and which happens after a :meth:`fork` only.

    A page's key is a number given out for the pair of its parent's key and its own part, as in
    :func:`kvledger.shared_pages`: equal keys mean equal chains, with no hash that could collide.

    Parameters
    ----------
    pages, page_size : int
        All pages, at least one more than ``null_pages``, and slots a page.
    prefix_cache : bool
        Whether complete pages are kept under their key and found again.
    null_pages : int
        Pages at the beginning that are never handed out. vLLM keeps one.

    Raises
    ------
    LedgerError
        For numbers that are not whole or too small.

    Examples
    --------
    >>> pool = PagePool(8, page_size=4)
    >>> first = pool.admit(9).table
    >>> second = pool.fork(first)
    >>> pool.held_pages, pool.append(first).copied_page, pool.append(second).copied_page
    (3, 2, None)
    >>> first, second                                # the last holder wrote in place
    (PageTable(0: 10 tokens in pages [0, 1, 3]), PageTable(1: 10 tokens in pages [0, 1, 2]))
    >>> pool.ledger()
    Ledger(2 requests: 20 tokens in 16 slots, 4 pages; shared 8 tokens, tail slack 4, capacity 32)
    """

    def __init__(
        self, pages: int, page_size: int, *, prefix_cache: bool = False, null_pages: int = 0
    ) -> None:
        self.page_size = whole_page_size(page_size)
        self.null_pages = whole_number(null_pages, "null_pages", "pages", 0)
        self.pages = whole_number(pages, "pages", "pages")
        if self.null_pages >= self.pages:
            raise LedgerError(
                f"null_pages is {self.null_pages} of {self.pages} pages; at least one page must be "
                "left to hand out"
            )
        self.prefix_cache = prefix_cache
        self._store = PageStore(self.pages, self.null_pages)
        self._keys: dict[tuple[int | None, Hashable], int] = {}
        self._tables: dict[int, PageTable] = {}
        self._made = 0

    @property
    def usable_pages(self) -> int:
        """Pages that can be handed out: all but the null pages."""
        return self.pages - self.null_pages

    @property
    def held_pages(self) -> int:
        """Pages that some sequence holds, each counted once."""
        return self.usable_pages - len(self._store.free)

    @property
    def free_pages(self) -> tuple[int, ...]:
        """Pages nobody holds, the next to be handed out first. Cached ones are among them."""
        return tuple(self._store.free)

    @property
    def cached_free_pages(self) -> int:
        """Free pages whose content can still be found."""
        return sum(self._store.key_of[page] is not None for page in self._store.free)

    @property
    def tables(self) -> tuple[PageTable, ...]:
        """Sequences in the pool, in the order in which they were made."""
        return tuple(self._tables.values())

    @property
    def counts(self) -> PoolCounts:
        """What has happened since the pool was made."""
        return PoolCounts(**self._store.counted)

    def keys_of(self, tokens: Sequence[int], *, context: Hashable = None) -> tuple[int, ...]:
        """Return the chained keys of a beginning's complete pages.

        ``tokens`` are ids from the first position on, ``context`` is all else that the tensors
        depend on, such as a PageContext.
        """
        (_, ids), p = _tokens(tokens, "tokens"), self.page_size
        if ids is None:
            raise LedgerError(f"tokens is {shown(tokens)}; a sequence of token ids is accepted")
        keys: list[int] = []
        for k in range(0, len(ids) - p + 1, p):
            self._follow(keys, tuple(ids[k : k + p]), context)
        return tuple(keys)

    def lookup(self, keys: Iterable[int]) -> tuple[int, ...]:
        """Return the cached pages of the longest unbroken beginning of keys; change nothing.

        Of several pages under one key the first that was cached answers.
        """
        found = []
        for key in keys:
            page = self._store.find(key)
            if page is None:
                break
            found.append(page)
        return tuple(found)

    def admit(
        self,
        prompt: int | Sequence[int],
        *,
        context: Hashable = None,
        compute_last_token: bool = True,
    ) -> Admission | None:
        """Store a prompt, taking from the cache what is there: all of it, or nothing.

        Parameters
        ----------
        prompt : int or sequence of int
            A number of tokens, or their ids.
        context : PageContext or hashable, optional
            All else that the tensors depend on.
        compute_last_token : bool
            Whether at least the prompt's last token is computed, so that no lookup covers all of
            it. vLLM does; SGLang's cache answers for all of a prompt.

        Returns
        -------
        Admission or None
            None if there is no room now.

        Raises
        ------
        LedgerError
            If the prompt can never fit, and for bad input.

        Examples
        --------
        >>> pool = PagePool(9, page_size=4, prefix_cache=True, null_pages=1)
        >>> [pool.admit(list(range(8))).hit_tokens for _ in range(2)], pool.held_pages
        ([0, 4], 3)
        """
        n, ids = _tokens(prompt, "prompt")
        _context_part(context, 0, 1)
        keys = self.keys_of(ids, context=context) if ids and self.prefix_cache else ()
        found = self.lookup(keys[: (n - bool(compute_last_token)) // self.page_size])
        hit, store = len(found) * self.page_size, self._store
        new = self._pages_that_fit(n) - len(found)
        if new + sum(not store.holders[page] for page in found) > len(store.free):
            return None
        for page in found:
            store.hold(page)
        taken, evicted = self._take(new)
        table = self._new_table([*found, *taken], hit, context)
        table._keys = list(keys[: len(found)])
        table._pending = [] if self.prefix_cache and ids is not None else None
        self._write(table, n - hit, None if ids is None else ids[hit:])
        return Admission(table, hit, tuple(taken), evicted)

    def append(self, table: PageTable, tokens: int | Sequence[int] = 1) -> Growth | None:
        """Store more tokens of a sequence: all of them, or none and return None.

        A page that others hold too is copied before it is written to, that page alone; whoever
        is the last to hold a page writes in place.

        ``tokens`` is a number of tokens, or their ids. Pages complete from here on have a key,
        and can be found, only while all ids are known. None is returned if there is no room now;
        a table that is not held, or so many tokens that they can never fit, is a LedgerError.

        Examples
        --------
        >>> pool = PagePool(2, page_size=4)
        >>> pool.append(pool.admit(7).table)
        Growth(new_pages=(), copied_page=None, evicted_pages=0)
        """
        self._must_hold(table)
        n, ids = _tokens(tokens, "tokens")
        new = self._pages_that_fit(table._tokens + n) - len(table._pages)
        last, begun = divmod(table._tokens, self.page_size)
        copy = begun > 0 and self._store.holders[table._pages[last]] > 1
        if new + copy > len(self._store.free):
            return None
        taken, evicted = self._take(new + copy)
        copied = None
        if copy:
            copied, table._pages[last] = table._pages[last], taken[0]
            self._store.holders[copied] -= 1
            self._store.counted["copied_pages"] += 1
        table._pages += taken[copy:]
        self._write(table, n, ids)
        return Growth(tuple(taken), copied, evicted)

    def fork(self, table: PageTable) -> PageTable:
        """Return a table that shares all pages of another; none is copied."""
        self._must_hold(table)
        for page in table._pages:
            self._store.holders[page] += 1
        child = self._new_table(table._pages, table._tokens, table._context)
        child._keys = list(table._keys)
        child._pending = None if table._pending is None else list(table._pending)
        return child

    def release(self, table: PageTable) -> int:
        """Let go of a sequence's pages, its tail first, and return how many became free.

        A table that is not held, released already or another pool's, is a LedgerError.
        """
        self._must_hold(table)
        del self._tables[table.number]
        return self._store.drop(table._pages)

    def ledger(self) -> Ledger:
        """Account for the pool as it is now, its capacity being that of the usable pages.

        A token in a page that several sequences hold is one distinct token; cached pages that
        nobody holds are unallocated.
        """
        filled = self._filled_slots()
        logical = sum(table._tokens for table in self._tables.values())
        distinct, held = sum(filled.values()), len(filled)
        return Ledger(
            requests=len(self._tables),
            logical_tokens=logical,
            shared_tokens=logical - distinct,
            tail_slack_slots=held * self.page_size - distinct,
            reserved_used_later_slots=0,
            allocated_slots=held * self.page_size,
            pages=held,
            capacity_slots=self.usable_pages * self.page_size,
            unallocated_slots=len(self._store.free) * self.page_size,
        )

    def check_integrity(self) -> None:
        """Prove that every slot is in exactly one place; raise AssertionError where one is not."""
        for number, table in self._tables.items():
            if number != table.number:
                raise AssertionError(f"table {table.number} is filed as {number}")
            if self._pages_for(table._tokens) != len(table._pages):
                raise AssertionError(
                    f"table {number} stores {table._tokens} tokens in {len(table._pages)} pages"
                )
        self._store.check_integrity(table._pages for table in self._tables.values())
        if not self.prefix_cache and self._store.by_key:
            raise AssertionError("pages are cached in a pool without a prefix cache")
        for page, slots in self._filled_slots().items():
            if self._store.key_of[page] is not None and slots != self.page_size:
                raise AssertionError(f"page {page} has a key and only {slots} tokens")
        self.ledger()  # asserts the identities of the quantities

    def __repr__(self) -> str:
        cached = f", {self.cached_free_pages} of them cached" if self.prefix_cache else ""
        return (
            f"PagePool({self.usable_pages} pages of {self.page_size} slots: "
            f"{self.held_pages} held, {len(self._store.free)} free{cached})"
        )

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _pages_that_fit(self, tokens: int) -> int:
        """Return the pages of one sequence, or refuse what can never fit."""
        pages = self._pages_for(tokens)
        if pages > self.usable_pages:
            raise LedgerError(
                f"{pages} pages for one sequence can never fit: the pool hands out "
                f"{self.usable_pages}"
            )
        return pages

    def _filled_slots(self) -> dict[int, int]:
        """Return how many slots of each held page hold tokens; its holders must agree."""
        filled: dict[int, int] = {}
        for table in self._tables.values():
            for index, page in enumerate(table._pages):
                slots = min(table._tokens - index * self.page_size, self.page_size)
                if filled.setdefault(page, slots) != slots:
                    raise AssertionError(
                        f"page {page} holds {filled[page]} tokens for one table and {slots} for "
                        f"table {table.number}: a shared page was written to"
                    )
        return filled

    def _new_table(self, pages: Iterable[int], tokens: int, context: Hashable) -> PageTable:
        table = PageTable(self._made, pages, tokens, context)
        self._tables[table.number] = table
        self._made += 1
        return table

    def _take(self, n: int) -> tuple[list[int], int]:
        """Take pages from the head of the queue, and count those evicted for them."""
        before = self._store.counted["evicted_pages"]
        return self._store.take(n), self._store.counted["evicted_pages"] - before

    def _write(self, table: PageTable, n: int, ids: Sequence[int] | None) -> None:
        """Count tokens as stored, and cache the pages they complete."""
        first = table._tokens // self.page_size
        table._tokens += n
        if ids is None or table._pending is None:
            table._pending = None
        else:
            table._pending += ids
            while len(table._pending) >= self.page_size:
                page_ids = table._pending[: self.page_size]
                del table._pending[: self.page_size]
                self._follow(table._keys, tuple(page_ids), table._context)
        if self.prefix_cache:
            complete = min(table._tokens // self.page_size, len(table._keys))
            for index in range(first, complete):
                self._store.cache(table._pages[index], table._keys[index])

    def _follow(self, keys: list[int], content: Hashable, context: Hashable) -> None:
        """Add to a chain of keys the key of one more complete page."""
        first = len(keys) * self.page_size
        part = (content, _context_part(context, first, first + self.page_size))
        link = (keys[-1] if keys else None, part)
        keys.append(self._keys.setdefault(link, len(self._keys)))

    def _must_hold(self, table: PageTable) -> None:
        if not isinstance(table, PageTable):
            raise LedgerError(f"table is {shown(table)}; a PageTable of this pool is accepted")
        if self._tables.get(table.number) is not table:
            raise LedgerError(
                f"table {table.number} is not held here: it was released already, or is another "
                "pool's"
            )


def _tokens(tokens: object, name: str) -> tuple[int, list[int] | None]:
    """Return how many tokens are given, and their ids if it is these that are given."""
    if isinstance(tokens, str | bytes):
        raise LedgerError(f"{name} is {shown(tokens)}; {_TOKENS}")
    if not isinstance(tokens, Iterable):
        return whole(tokens, name, minimum=1, accepted=_TOKENS), None
    accepted = "a token id is a whole number, at least 0"
    ids = [
        # Nearly all ids are plain and good: only another one is worth a name.
        t
        if type(t) is int and 0 <= t <= INT64_MAX
        else whole(t, f"{name}[{i}]", minimum=0, accepted=accepted)
        for i, t in enumerate(tokens)
    ]
    if not ids:
        raise LedgerError(f"{name} is empty; {_TOKENS}")
    return len(ids), ids


def _context_part(context: Hashable, first: int, end: int) -> Hashable:
    """Return what a request's context adds to the key of positions ``first`` to ``end - 1``."""
    if context is None:
        context = PageContext()
    if isinstance(context, PageContext):
        return context.key_of(first, end)
    try:
        hash(context)
    except TypeError:
        raise LedgerError(
            f"context is {shown(context)}; a PageContext or another hashable value is accepted"
        ) from None
    return context
