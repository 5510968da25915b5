"""Pages as such: how often each is held, in which order free ones go, what is cached in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvledger.core.errors import LedgerError, shown
from kvledger.replays.allocator.free_queue import FreeQueue
from kvledger.replays.allocator.page_keys import PageKey


class PoolCounts(NamedTuple):
    """What has happened in a pool since it was made, in pages.

    Attributes
    ----------
    allocated_pages : int
        Pages taken from the head of the free queue, copies included.
    freed_pages : int
        Pages whose last holder let go.
    copied_pages : int
        Pages copied because a shared one was written to.
    evicted_pages : int
        Pages handed out while they still held cached content.
    hit_pages : int
        Cached pages found and held once more.
    revived_pages : int
        Those of them that nobody held, taken back out of the free queue.
    """

    allocated_pages: int = 0
    freed_pages: int = 0
    copied_pages: int = 0
    evicted_pages: int = 0
    hit_pages: int = 0
    revived_pages: int = 0


class PageStore:
    """The pages of a pool, knowing nothing of sequences: the floor that they stand on.

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
    >>> store.cache(1, PageKey(0))
    >>> store.drop([1, 2])           # tail first: 2 has no key and goes to the head
    2
    >>> list(store.free), store.lookup([PageKey(0)])
    ([2, 3, 1], (1,))
    """

    __slots__ = ("_first", "_size", "by_key", "counted", "free", "holds", "key_of")

    def __init__(self, pages: int, null_pages: int) -> None:
        self._size, self._first = pages, null_pages
        self.free = FreeQueue(pages, range(null_pages, pages))
        self.holds = [0] * pages
        self.key_of: list[PageKey | None] = [None] * pages
        # Pages under each key in the order in which they were cached: the first one answers.
        self.by_key: dict[PageKey, dict[int, None]] = {}
        self.counted = dict.fromkeys(PoolCounts._fields, 0)

    def take(self, n: int) -> list[int]:
        """Take pages from the head of the queue; what was cached in them is forgotten."""
        pages = []
        for _ in range(n):
            page = self.free.pop()
            key = self.key_of[page]
            if key is not None:
                self._forget(page, key)
                self.counted["evicted_pages"] += 1
            self.holds[page] = 1
            pages.append(page)
        self.counted["allocated_pages"] += n
        return pages

    def lookup(self, keys: Iterable[PageKey]) -> tuple[int, ...]:
        """Return the cached pages of the longest unbroken beginning of the keys."""
        found = []
        for key in keys:
            if not isinstance(key, PageKey):
                raise LedgerError(f"a key is {shown(key)}; keys as keys_of returns are accepted")
            pages = self.by_key.get(key)
            if not pages:
                break
            found.append(next(iter(pages)))
        return tuple(found)

    def touch(self, pages: Sequence[int]) -> None:
        """Hold cached pages once more; free ones are taken out of the queue."""
        if len(set(pages)) != len(pages):
            raise LedgerError(f"pages are {shown(list(pages))}; each page once is accepted")
        for page in pages:
            if not self.is_page(page) or self.key_of[page] is None:
                raise LedgerError(
                    f"page {shown(page)} is not cached; pages from lookup are accepted"
                )
        for page in pages:
            if not self.holds[page]:
                self.free.remove(page)
                self.counted["revived_pages"] += 1
            self.holds[page] += 1
        self.counted["hit_pages"] += len(pages)

    def share(self, pages: Iterable[int]) -> None:
        """Hold pages once more that are held already."""
        for page in pages:
            self.holds[page] += 1

    def drop(self, pages: Sequence[int]) -> int:
        """Let go of pages, the last one first, and return how many nobody holds any more.

        Of these, pages without a key go to the head of the queue, and cached ones to its tail.
        """
        freed = []
        for page in reversed(pages):
            self.holds[page] -= 1
            if not self.holds[page]:
                freed.append(page)
        self.free.push_front(page for page in freed if self.key_of[page] is None)
        for page in freed:
            if self.key_of[page] is not None:
                self.free.append(page)
        self.counted["freed_pages"] += len(freed)
        return len(freed)

    def leave_for_copy(self, page: int) -> None:
        """Let go of a page that others hold on to, for the copy of it that is written to."""
        self.holds[page] -= 1
        self.counted["copied_pages"] += 1

    def cache(self, page: int, key: PageKey) -> None:
        """Let a complete page be found under its key, after those that have the same one."""
        self.key_of[page] = key
        self.by_key.setdefault(key, {})[page] = None

    def is_page(self, page: object) -> bool:
        """Say whether this is the number of a page that can be handed out."""
        return isinstance(page, int) and self._first <= page < self._size

    def check_integrity(self, holders: Sequence[int]) -> None:
        """Prove every page to be free or held as often as its holders say, and all keys sound."""
        self.free.check_integrity()
        for page, count in enumerate(holders):
            if self.holds[page] != count:
                raise AssertionError(
                    f"page {page} counts {self.holds[page]} holders; {count} tables hold it"
                )
            free = page in self.free
            if page < self._first:
                if free or count:
                    raise AssertionError(f"null page {page} is in use")
            elif free and count:
                raise AssertionError(f"page {page} is free and held by {count} tables")
            elif not free and not count:
                raise AssertionError(f"page {page} is lost: neither free nor held")
        for key, pages in self.by_key.items():
            if not pages:
                raise AssertionError(f"{key} is cached with no page")
            for page in pages:
                if not self.is_page(page) or self.key_of[page] != key:
                    raise AssertionError(f"{key} points at page {page}, which has another key")
        for page, own in enumerate(self.key_of):
            if own is not None and page not in self.by_key.get(own, ()):
                raise AssertionError(f"page {page} has {own}, which does not point at it")
        counts = PoolCounts(**self.counted)
        held = counts.allocated_pages + counts.revived_pages - counts.freed_pages
        if held != self._size - self._first - len(self.free):
            raise AssertionError(
                f"{self._size - self._first - len(self.free)} pages are held; "
                f"allocated + revived - freed is {held}"
            )

    def _forget(self, page: int, key: PageKey) -> None:
        del self.by_key[key][page]
        if not self.by_key[key]:
            del self.by_key[key]
        self.key_of[page] = None
