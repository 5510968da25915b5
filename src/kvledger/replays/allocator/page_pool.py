"""A pool of pages for sequences that are admitted, grow, fork, write and leave."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction

from kvledger.accounting.ledger import Ledger
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole, whole_page_size
from kvledger.replays.allocator.page_keys import KeyChains, PageKey, context_part
from kvledger.replays.allocator.page_store import PageStore, PoolCounts
from kvledger.replays.allocator.page_table import Admission, Growth, PageTable
from kvledger.replays.allocator.pool_inputs import (
    hashable_page_ids,
    known_token_ids,
    share_below_1,
    true_or_false,
    whole_pages,
    whole_tokens,
)


class PagePool:
    """Pages of one size: handed out, shared, copied on write, kept for reuse, and evicted.

    Free pages stand in a queue and are handed out from its head. A sequence's pages are freed
    tail first. Those without a key go to the head; those whose content is cached go to the tail,
    so the least recently freed is evicted first. A hit takes a page back out of the queue. The
    order is that of vLLM's block manager (0.33); copy-on-write is that of Kwon et al. (2023),
    which that manager no longer has and which happens after a :meth:`fork` only.

    Parameters
    ----------
    pages : int
        All pages, at least one more than ``null_pages``.
    page_size : int
        Slots a page.
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
    >>> pool.held_pages, pool.append(first).copied_page, pool.held_pages
    (3, 2, 4)
    >>> pool.append(second).copied_page is None      # the last holder writes in place
    True
    >>> first, second
    (PageTable(0: 10 tokens in pages [0, 1, 3]), PageTable(1: 10 tokens in pages [0, 1, 2]))
    >>> pool.ledger()
    Ledger(2 requests: 20 tokens in 16 slots, 4 pages; shared 8 tokens, tail slack 4, capacity 32)
    """

    def __init__(
        self, pages: int, page_size: int, *, prefix_cache: bool = False, null_pages: int = 0
    ) -> None:
        self.page_size = whole_page_size(page_size)
        self.null_pages = whole_pages(null_pages, "null_pages", 0)
        self.pages = whole_pages(pages, "pages", 1)
        if self.null_pages >= self.pages:
            raise LedgerError(
                f"null_pages is {self.null_pages} of {self.pages} pages; at least one page must be "
                "left to hand out"
            )
        self.prefix_cache = true_or_false(prefix_cache, "prefix_cache")
        self._store = PageStore(self.pages, self.null_pages)
        self._chains = KeyChains(self.page_size)
        self._tables: dict[int, PageTable] = {}
        self._made = 0

    @classmethod
    def of_capacity(
        cls, capacity_slots: int, page_size: int, *, prefix_cache: bool = False, null_pages: int = 0
    ) -> PagePool:
        """Make a pool of so many slots, which must be a whole number of pages.

        Examples
        --------
        >>> PagePool.of_capacity(30, page_size=4)
        Traceback (most recent call last):
        ...
        kvledger.LedgerError: capacity_slots is 30, which is 7 pages of 4 and 2 slots; ...
        """
        size = whole_page_size(page_size)
        capacity = whole(
            capacity_slots,
            "capacity_slots",
            minimum=1,
            accepted="a capacity is a whole number of pages' slots, at least one page",
        )
        pages, rest = divmod(capacity, size)
        if rest:
            raise LedgerError(
                f"capacity_slots is {capacity}, which is {pages} pages of {size} and {rest} slots; "
                f"a whole number of pages is accepted, such as {pages * size or size}"
            )
        return cls(pages, size, prefix_cache=prefix_cache, null_pages=null_pages)

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
    def usage(self) -> Fraction:
        """Held part of the usable pages, exact."""
        return Fraction(self.held_pages, self.usable_pages)

    @property
    def tables(self) -> tuple[PageTable, ...]:
        """Sequences in the pool, in the order in which they were made."""
        return tuple(self._tables.values())

    @property
    def counts(self) -> PoolCounts:
        """What has happened since the pool was made."""
        return PoolCounts(**self._store.counted)

    def watermark_pages(self, watermark: float) -> int:
        """Return the pages that a watermark keeps free at admission: a share of all, cut down.

        Examples
        --------
        >>> PagePool(11, page_size=4, null_pages=1).watermark_pages(0.2)
        2
        """
        return int(share_below_1(watermark, "watermark") * self.pages)

    def keys_of(
        self,
        tokens: Sequence[int] | None = None,
        *,
        page_ids: Iterable[Hashable] | None = None,
        context: Hashable = None,
    ) -> tuple[PageKey, ...]:
        """Return the chained keys of a beginning's complete pages.

        Parameters
        ----------
        tokens : sequence of int, optional
            Token ids from the first position on.
        page_ids : iterable of hashable, optional
            Instead of them one id a complete page.
        context : PageContext or hashable, optional
            All else that the tensors depend on.
        """
        context_part(context, 0, 1)
        if (tokens is None) == (page_ids is None):
            raise LedgerError("keys are made of tokens or of page_ids; give one of them")
        if page_ids is not None:
            return self._chains.of_pages(hashable_page_ids(page_ids), context)
        ids = known_token_ids(tokens, "tokens")
        if ids is None:
            raise LedgerError(f"tokens is {shown(tokens)}; a sequence of token ids is accepted")
        return self._chains.of_tokens(ids, context)

    def lookup(self, keys: Iterable[PageKey]) -> tuple[int, ...]:
        """Return the cached pages of the longest unbroken beginning of keys, as from `keys_of`.

        Of several pages under one key the first that was cached answers. Nothing is changed.
        """
        return self._store.lookup(keys)

    def touch(self, pages: Iterable[int]) -> PageTable:
        """Hold cached pages in a new table; free ones are taken out of the free queue.

        Raises
        ------
        LedgerError
            If a page is not cached, or given twice.
        """
        found = tuple(pages)
        self._store.touch(found)
        table = self._new_table(found, len(found) * self.page_size)
        table._keys = [key for page in found if (key := self._store.key_of[page]) is not None]
        return table

    def allocate(self, pages: int) -> PageTable | None:
        """Hold so many new pages in a new table, or none at all and return None.

        Raises
        ------
        LedgerError
            If the pool can never give so many.
        """
        n = whole_pages(pages, "pages", 1)
        self._refuse_never(n, 0)
        if n > len(self._store.free):
            return None
        return self._new_table(self._store.take(n), 0)

    def extend(self, table: PageTable, pages: int) -> Growth | None:
        """Allocate empty pages ahead at a table's end: all of them, or none and return None."""
        self._must_hold(table)
        n = whole_pages(pages, "pages", 1)
        self._refuse_never(len(table._pages) + n, 0)
        if n > len(self._store.free):
            return None
        new, evicted = self._take(n)
        table._pages += new
        return Growth(tuple(new), None, evicted)

    def admit(
        self,
        prompt: int | Sequence[int],
        *,
        context: Hashable = None,
        page_ids: Sequence[Hashable] | None = None,
        chunk: int | None = None,
        lookahead: int = 0,
        keep_free: int = 0,
        compute_last_token: bool = True,
    ) -> Admission | None:
        """Store a prompt, taking from the cache what is there: all of it, or nothing.

        Parameters
        ----------
        prompt : int or sequence of int
            A number of tokens, or their ids.
        context : PageContext or hashable, optional
            All else that the tensors depend on.
        page_ids : sequence of hashable, optional
            One id for each complete page, as published traces give them, where the tokens are
            given by their number alone. Ids past the prompt's are those of the pages that fill
            later.
        chunk : int, optional
            Store at most so many tokens now, besides those found; :meth:`append` stores the rest.
        lookahead : int
            Slots to hold beyond the stored tokens.
        keep_free : int
            Pages that must stay free: what :meth:`watermark_pages` says.
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
        ids = known_token_ids(prompt, "prompt")
        n = whole_tokens(prompt, "prompt") if ids is None else len(ids)
        step = n if chunk is None else whole_tokens(chunk, "chunk")
        ahead = whole(lookahead, "lookahead", minimum=0, accepted="slots, a whole number from 0")
        spare = whole_pages(keep_free, "keep_free", 0)
        keys = self._keys_for(ids, n, context, page_ids)
        computed = true_or_false(compute_last_token, "compute_last_token")
        limit = (n - computed) // self.page_size
        found = self.lookup(keys[:limit])
        hit = len(found) * self.page_size
        stored = min(hit + step, n)
        pages = -(-(stored + ahead) // self.page_size)
        self._refuse_never(-(-n // self.page_size), 0)
        self._refuse_never(pages, spare)
        new = pages - len(found)
        if new + sum(not self._store.holds[page] for page in found) > len(self._store.free) - spare:
            return None
        table = self.touch(found)
        taken, evicted = self._take(new)
        table._pages += taken
        table._context = context
        if ids is None:
            table._keys = list(keys)
            self._write(table, stored - hit, None)
        else:
            table._pending = [] if self.prefix_cache else None
            self._write(table, stored - hit, ids[hit:stored])
        return Admission(table, hit, tuple(taken), evicted)

    def append(self, table: PageTable, tokens: int | Sequence[int] = 1) -> Growth | None:
        """Store more tokens of a sequence: all of them, or none and return None.

        A page that others hold too is copied before it is written to, that page alone; whoever
        is the last to hold a page writes in place.

        Parameters
        ----------
        table : PageTable
            The sequence.
        tokens : int or sequence of int
            A number of tokens, or their ids. Pages complete from here on have a key, and can be
            found, only while all ids are known.

        Returns
        -------
        Growth or None
            None if there is no room now.

        Raises
        ------
        LedgerError
            If the table is not held, or the pool can never hold so many tokens of one sequence.

        Examples
        --------
        >>> pool = PagePool(2, page_size=4)
        >>> table = pool.admit(7).table
        >>> pool.append(table)
        Growth(new_pages=(), copied_page=None, evicted_pages=0)
        >>> pool.append(table)
        Traceback (most recent call last):
        ...
        kvledger.LedgerError: 3 pages for one sequence can never fit: the pool hands out 2
        """
        self._must_hold(table)
        ids = known_token_ids(tokens, "tokens")
        n = whole_tokens(tokens, "tokens") if ids is None else len(ids)
        pages = -(-(table._tokens + n) // self.page_size)
        self._refuse_never(pages, 0)
        last = table._tokens // self.page_size
        begun = table._tokens % self.page_size > 0
        copy = begun and self._store.holds[table._pages[last]] > 1
        new = max(0, pages - len(table._pages))
        if new + copy > len(self._store.free):
            return None
        taken, evicted = self._take(new + copy)
        copied = None
        if copy:
            copied, table._pages[last] = table._pages[last], taken[0]
            self._store.leave_for_copy(copied)
        table._pages += taken[copy:]
        self._write(table, n, ids)
        return Growth(tuple(taken), copied, evicted)

    def fork(self, table: PageTable) -> PageTable:
        """Return a table that shares all pages of another that hold tokens; none is copied.

        Pages allocated ahead, which hold nothing, stay with the first table alone.
        """
        self._must_hold(table)
        pages = table._pages[: -(-table._tokens // self.page_size)]
        self._store.share(pages)
        child = self._new_table(pages, table._tokens)
        child._keys = list(table._keys)
        child._pending = None if table._pending is None else list(table._pending)
        child._context = table._context
        return child

    def release(self, table: PageTable) -> int:
        """Let go of a sequence's pages, its tail first, and return how many became free.

        Raises
        ------
        LedgerError
            If the table is not held: released already, or another pool's.
        """
        self._must_hold(table)
        del self._tables[table.number]
        return self._store.drop(table._pages)

    def ledger(self) -> Ledger:
        """Account for the pool as it is now.

        A token in a page held by several sequences is one distinct token. Pages allocated ahead
        are reserved; the rest of a page that holds tokens is tail slack. The capacity is that of
        the usable pages, and cached pages nobody holds are unallocated.
        """
        filled = self._filled_slots()
        logical = sum(table._tokens for table in self._tables.values())
        distinct = sum(filled.values())
        empty = sum(slots == 0 for slots in filled.values())
        held, p = len(filled), self.page_size
        return Ledger(
            requests=len(self._tables),
            logical_tokens=logical,
            shared_tokens=logical - distinct,
            tail_slack_slots=(held - empty) * p - distinct,
            reserved_slots=empty * p,
            reserved_used_later_slots=None if empty else 0,
            allocated_slots=held * p,
            pages=held,
            capacity_slots=self.usable_pages * p,
            unallocated_slots=len(self._store.free) * p,
        )

    def check_integrity(self) -> None:
        """Prove that every slot is in exactly one place; raise AssertionError where one is not."""
        holders = [0] * self.pages
        for number, table in self._tables.items():
            if number != table.number:
                raise AssertionError(f"table {table.number} is filed as {number}")
            for page in table._pages:
                if not self._store.is_page(page):
                    raise AssertionError(f"table {number} holds {page}, no page to hand out")
                holders[page] += 1
            if len(set(table._pages)) != len(table._pages):
                raise AssertionError(f"table {number} holds a page twice: {table._pages}")
            if table._tokens > len(table._pages) * self.page_size:
                raise AssertionError(
                    f"table {number} stores {table._tokens} tokens in {len(table._pages)} pages"
                )
        self._store.check_integrity(holders)
        if not self.prefix_cache and self._store.by_key:
            raise AssertionError("pages are cached in a pool without a prefix cache")
        self._check_fill()
        self.ledger()  # asserts the identities of the quantities

    def __repr__(self) -> str:
        cached = f", {self.cached_free_pages} of them cached" if self.prefix_cache else ""
        return (
            f"PagePool({self.usable_pages} pages of {self.page_size} slots: "
            f"{self.held_pages} held, {len(self._store.free)} free{cached})"
        )

    def _check_fill(self) -> None:
        """Holders of one page agree on it, since a shared page is never written to."""
        filled = self._filled_slots()
        for table in self._tables.values():
            for index, page in enumerate(table._pages):
                slots = table.filled_slots(index, self.page_size)
                if slots != filled[page]:
                    raise AssertionError(
                        f"page {page} holds {filled[page]} tokens for one table and {slots} for "
                        f"table {table.number}: a shared page was written to"
                    )
                if self._store.key_of[page] is not None and slots != self.page_size:
                    raise AssertionError(f"page {page} has a key and only {slots} tokens")

    def _filled_slots(self) -> dict[int, int]:
        """Return how many slots of each held page hold tokens."""
        return {
            page: table.filled_slots(index, self.page_size)
            for table in self._tables.values()
            for index, page in enumerate(table._pages)
        }

    def _new_table(self, pages: Iterable[int], tokens: int) -> PageTable:
        table = PageTable(self._made, pages, tokens)
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
                self._chains.follow(table._keys, tuple(page_ids), table._context)
        if self.prefix_cache:
            complete = min(table._tokens // self.page_size, len(table._keys))
            for index in range(first, complete):
                self._store.cache(table._pages[index], table._keys[index])

    def _keys_for(
        self,
        ids: Sequence[int] | None,
        tokens: int,
        context: Hashable,
        page_ids: Sequence[Hashable] | None,
    ) -> tuple[PageKey, ...]:
        context_part(context, 0, 1)
        if page_ids is None:
            known = ids is not None and self.prefix_cache
            return self._chains.of_tokens(ids or (), context) if known else ()
        if ids is not None:
            raise LedgerError("page_ids and token ids are given; give the number of tokens instead")
        given, complete = hashable_page_ids(page_ids), tokens // self.page_size
        if len(given) < complete:
            raise LedgerError(
                f"page_ids has {len(given)} ids; {tokens} tokens fill {complete} pages"
            )
        return self._chains.of_pages(given, context) if self.prefix_cache else ()

    def _must_hold(self, table: PageTable) -> None:
        if not isinstance(table, PageTable):
            raise LedgerError(f"table is {shown(table)}; a PageTable of this pool is accepted")
        if self._tables.get(table.number) is not table:
            raise LedgerError(
                f"table {table.number} is not held here: it was released already, or is another "
                "pool's"
            )

    def _refuse_never(self, pages: int, keep_free: int) -> None:
        if pages > self.usable_pages - keep_free:
            kept = f" and keeps {keep_free} of them free" if keep_free else ""
            raise LedgerError(
                f"{pages} pages for one sequence can never fit: the pool hands out "
                f"{self.usable_pages}{kept}"
            )
