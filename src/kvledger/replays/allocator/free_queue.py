"""Free pages, in the order in which they are handed out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvledger.core.errors import LedgerError

_HELD = -1  # the link of a page that is not in the queue


class FreeQueue:
    """A doubly linked list of page numbers: both ends and any one page in constant time.

    The links are two lists indexed by page; one entry more, past the last page, stands before the
    head and after the tail.

    Parameters
    ----------
    size : int
        Pages are numbered from 0 to ``size - 1``.
    pages : iterable of int
        The pages that are free at the start, head first.

    Examples
    --------
    >>> queue = FreeQueue(6, [1, 2, 3, 4, 5])
    >>> queue.pop()
    1
    >>> queue.remove(4)
    >>> queue.push_front([4, 1])
    >>> list(queue)
    [4, 1, 2, 3, 5]
    """

    __slots__ = ("_end", "_length", "_next", "_previous")

    def __init__(self, size: int, pages: Iterable[int]) -> None:
        self._end = size
        self._next = [_HELD] * size + [size]
        self._previous = [_HELD] * size + [size]
        self._length = 0
        for page in pages:
            self.append(page)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, page: object) -> bool:
        return isinstance(page, int) and 0 <= page < self._end and self._next[page] != _HELD

    def __iter__(self) -> Iterator[int]:
        page = self._next[self._end]
        while page != self._end:
            yield page
            page = self._next[page]

    def append(self, page: int) -> None:
        """Put a page at the tail, where it is handed out last."""
        self._insert(page, self._previous[self._end], self._end)

    def push_front(self, pages: Iterable[int]) -> None:
        """Put pages before the head; the first of them is handed out next."""
        before, head = self._end, self._next[self._end]
        for page in pages:
            self._insert(page, before, head)
            before = page

    def pop(self) -> int:
        """Take the page at the head."""
        page = self._next[self._end]
        if page == self._end:
            raise LedgerError("no page is free")
        self.remove(page)
        return page

    def remove(self, page: int) -> None:
        """Take a page out from wherever it stands."""
        if page not in self:
            raise LedgerError(f"page {page} is not free")
        before, after = self._previous[page], self._next[page]
        self._next[before], self._previous[after] = after, before
        self._next[page] = self._previous[page] = _HELD
        self._length -= 1

    def _insert(self, page: int, before: int, after: int) -> None:
        if page in self:
            raise LedgerError(f"page {page} is free already")
        self._next[before] = self._previous[after] = page
        self._previous[page], self._next[page] = before, after
        self._length += 1

    def check_integrity(self) -> None:
        """Raise AssertionError unless both chains of links visit the same pages, each once."""
        page, seen = self._end, 0
        while seen <= self._length:
            after = self._next[page]
            if not 0 <= after <= self._end:
                raise AssertionError(f"free queue: page {page} is followed by {after}, no page")
            if self._previous[after] != page:
                raise AssertionError(
                    f"free queue: {after} follows {page}, but {self._previous[after]} precedes it"
                )
            page, seen = after, seen + 1
            if page == self._end:
                break
        if page != self._end or seen - 1 != self._length:
            raise AssertionError(
                f"free queue: {self._length} pages are counted, the links visit another number"
            )
        linked = sum(link != _HELD for link in self._next[: self._end])
        back = sum(link != _HELD for link in self._previous[: self._end])
        if not linked == back == self._length:
            raise AssertionError(
                f"free queue: {linked} pages have a link forward and {back} one back, "
                f"{self._length} are in the queue"
            )
