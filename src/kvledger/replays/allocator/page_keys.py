"""What makes two complete pages the same page: all that came before, and what they hold.

A page's key is a number given out for the pair of its parent's key and its own part, as in
:func:`kvledger.shared_pages`. So equal keys mean equal chains, with no hash that could collide.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from kvledger.accounting.sharing import PageContext
from kvledger.core.errors import LedgerError, shown


@dataclass(frozen=True, slots=True)
class PageKey:
    """The key of one complete page, with everything before it."""

    number: int


class KeyChains:
    """Numbers given out to chains of pages, as they are first seen.

    Parameters
    ----------
    page_size : int
        Slots a page.

    Examples
    --------
    >>> chains = KeyChains(2)
    >>> chains.of_tokens([7, 8, 9, 9, 5])
    (PageKey(number=0), PageKey(number=1))
    >>> chains.of_tokens([9, 9, 7, 8])      # the same pages after other beginnings
    (PageKey(number=2), PageKey(number=3))
    """

    __slots__ = ("_keys", "_page_size")

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._keys: dict[tuple[PageKey | None, Hashable], PageKey] = {}

    def of_tokens(self, tokens: Sequence[int], context: Hashable = None) -> tuple[PageKey, ...]:
        """Return the keys of the complete pages that token ids fill from position 0 on."""
        p = self._page_size
        complete = range(0, len(tokens) - p + 1, p)
        return self.of_pages([tuple(tokens[first : first + p]) for first in complete], context)

    def of_pages(
        self, page_ids: Iterable[Hashable], context: Hashable = None
    ) -> tuple[PageKey, ...]:
        """Return the keys of complete pages that are given by one id each."""
        keys: list[PageKey] = []
        for page_id in page_ids:
            self.follow(keys, page_id, context)
        return tuple(keys)

    def follow(self, keys: list[PageKey], content: Hashable, context: Hashable) -> None:
        """Add to a chain of keys the key of one more complete page."""
        first = len(keys) * self._page_size
        part = (content, context_part(context, first, first + self._page_size))
        link = (keys[-1] if keys else None, part)
        keys.append(self._keys.setdefault(link, PageKey(len(self._keys))))


def context_part(context: Hashable, first: int, end: int) -> Hashable:
    """Return what a request's context adds to the key of positions ``first`` to ``end - 1``.

    Raises
    ------
    LedgerError
        If the context is neither None, a PageContext nor another hashable value.
    """
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
