"""Checks of what is handed to a page pool."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import INT64_MAX, whole

_TOKENS = "a number of tokens (a whole number, at least 1) or a sequence of token ids is accepted"
_PAGE_IDS = "a sequence of hashable ids, one for each complete page from the first on, is accepted"


def whole_pages(value: object, name: str, minimum: int) -> int:
    """Return a number of pages as an int."""
    accepted = f"a number of pages is a whole number, at least {minimum}"
    return whole(value, name, minimum=minimum, accepted=accepted)


def whole_tokens(value: object, name: str) -> int:
    """Return a number of tokens as an int of at least 1."""
    return whole(value, name, minimum=1, accepted=_TOKENS)


def known_token_ids(tokens: object, name: str) -> list[int] | None:
    """Return token ids as a list, or None if something else is given, such as their number."""
    if isinstance(tokens, str | bytes):
        raise LedgerError(f"{name} is {shown(tokens)}; {_TOKENS}")
    if not isinstance(tokens, Iterable):
        return None
    ids = [
        # Nearly all ids are plain and good: only another one is worth a name.
        t if type(t) is int and 0 <= t <= INT64_MAX else _token_id(t, f"{name}[{i}]")
        for i, t in enumerate(tokens)
    ]
    if not ids:
        raise LedgerError(f"{name} is empty; {_TOKENS}")
    return ids


def hashable_page_ids(page_ids: object) -> list[Hashable]:
    """Return ids of complete pages as a list."""
    if isinstance(page_ids, str | bytes) or not isinstance(page_ids, Iterable):
        raise LedgerError(f"page_ids is {shown(page_ids)}; {_PAGE_IDS}")
    given = list(page_ids)
    for index, page_id in enumerate(given):
        try:
            hash(page_id)
        except TypeError:
            raise LedgerError(f"page_ids[{index}] is {shown(page_id)}; {_PAGE_IDS}") from None
    return given


def share_below_1(value: object, name: str) -> float:
    """Return a share of a pool, from 0 to below 1."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < 1:  # type: ignore[arg-type]
        raise LedgerError(f"{name} is {shown(value)}; a share of the pool, from 0 to below 1")
    return float(value)  # type: ignore[arg-type]


def true_or_false(value: object, name: str) -> bool:
    """Return a flag as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise LedgerError(f"{name} is {shown(value)}; True or False is accepted")
    return bool(value)


def _token_id(value: object, name: str) -> int:
    return whole(value, name, minimum=0, accepted="a token id is a whole number, at least 0")
