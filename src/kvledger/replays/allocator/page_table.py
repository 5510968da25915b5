"""One sequence's pages, and what storing tokens in them did."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from kvledger.replays.allocator.page_keys import PageKey


class PageTable:
    """One sequence's pages, in order, and how many tokens are stored in them.

    Made and changed by its :class:`~kvledger.replays.allocator.PagePool` only.
    """

    __slots__ = ("_context", "_keys", "_pages", "_pending", "_tokens", "number")

    def __init__(self, number: int, pages: Iterable[int], tokens: int) -> None:
        self.number = number
        self._pages = list(pages)
        self._tokens = tokens
        # Keys of its pages from the first on, as far as they are known.
        self._keys: list[PageKey] = []
        # Ids of the tokens in the page not yet complete; None once a token's id is not known.
        self._pending: list[int] | None = None
        self._context: Hashable = None

    @property
    def pages(self) -> tuple[int, ...]:
        """Pages in the order of the tokens; the last ones may be allocated ahead and empty."""
        return tuple(self._pages)

    @property
    def tokens(self) -> int:
        """Tokens stored."""
        return self._tokens

    def filled_slots(self, index: int, page_size: int) -> int:
        """Return how many slots of its page number ``index`` hold tokens."""
        return min(max(self._tokens - index * page_size, 0), page_size)

    def __repr__(self) -> str:
        return f"PageTable({self.number}: {self._tokens} tokens in pages {self._pages})"


class Admission(NamedTuple):
    """What admitting a prompt did.

    Attributes
    ----------
    table : PageTable
        The new sequence's pages.
    hit_tokens : int
        Tokens found in cached pages, so not computed.
    new_pages : tuple of int
        Pages taken from the free queue, in order.
    evicted_pages : int
        Cached pages whose content was given up for them.
    """

    table: PageTable
    hit_tokens: int
    new_pages: tuple[int, ...]
    evicted_pages: int


class Growth(NamedTuple):
    """What storing more tokens, or allocating ahead, did.

    Attributes
    ----------
    new_pages : tuple of int
        Pages taken from the free queue, in order; the copy first if there is one.
    copied_page : int or None
        The page that others hold too and that was therefore copied before it was written to.
    evicted_pages : int
        Cached pages whose content was given up.
    """

    new_pages: tuple[int, ...]
    copied_page: int | None
    evicted_pages: int
