"""Prefix sharing: several requests point at one cached page.

Sharing is not slack and saves none. It makes *physical* smaller than *logical*: fewer tensors
are stored than positions refer to. Only complete pages of a common prefix are shared, and two
pages are the same page only if everything that made their tensors is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvledger.accounting.ledger import Ledger
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import (
    IntArray,
    LengthsLike,
    as_length_array,
    as_lengths,
    exact_dot,
    exact_sum,
    is_counts,
    whole,
    whole_page_size,
)

_PAGE_ID = "a page id is a whole number, at least 0"
_TOKEN_ID = "a token id is a whole number, at least 0"
_PREFIX = "prefix is a whole number of tokens, from 0 to the shortest request"


@dataclass(frozen=True, slots=True)
class Image:
    """An image's place in a prompt. Its placeholder tokens say nothing of what it shows.

    Parameters
    ----------
    offset, length : int
        First position and number of positions that stand for the image.
    identifier : str
        What tells one image from another, such as a hash of its content.
    """

    offset: int
    length: int
    identifier: str


@dataclass(frozen=True, slots=True)
class PageContext:
    """All that makes a request's cached tensors what they are, besides its tokens.

    Two requests share a page only if their contexts agree, however alike their text is.

    Parameters
    ----------
    model : str
        Model, with its weights' version and the cache's data type.
    adapter : str
        Adapter (LoRA) applied, or empty.
    cache_salt : str
        A tenant's salt, or empty: keeps tenants from seeing each other's hits.
    position_scheme : str
        How positions enter the keys (rotary base, scaling), or empty.
    images : tuple of Image
        Images in the prompt. An image separates pages from the one it begins in.

    Examples
    --------
    >>> plain, salted = PageContext(), PageContext(cache_salt="tenant-a")
    >>> text = list(range(8))
    >>> shared_pages([text, text], page_size=4, keys=[plain, plain]).pages
    2
    >>> shared_pages([text, text], page_size=4, keys=[plain, salted]).pages
    4
    """

    model: str = ""
    adapter: str = ""
    cache_salt: str = ""
    position_scheme: str = ""
    images: tuple[Image, ...] = ()

    def key_of(self, first: int, end: int) -> Hashable:
        """Return what distinguishes the page of positions ``first`` to ``end - 1``."""
        inside = tuple(
            (image.offset - first, image.length, image.identifier)
            for image in self.images
            if image.offset < end and image.offset + image.length > first
        )
        return (self.model, self.adapter, self.cache_salt, self.position_scheme, inside)


def shared(
    lengths: LengthsLike, page_size: int, prefix: int, *, compute_last_token: bool = False
) -> Ledger:
    """Account for paged requests that all start with the same ``prefix`` tokens.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds, in order of arrival: the first computes the prefix.
        In a table, which has no order, the longest comes first.
    page_size : int
        Slots a page.
    prefix : int
        Tokens that all requests start with. Only its complete pages are shared.
    compute_last_token : bool
        Engines compute at least a prompt's last token, since its output is needed to sample the
        next one: so no request takes *all* of its tokens from shared pages.

    Raises
    ------
    LedgerError
        For a bad length, page size or prefix; for a prefix longer than a request.

    Examples
    --------
    >>> shared([20, 23], page_size=4, prefix=8)
    Ledger(2 requests: 43 tokens in 36 slots, 9 pages; shared 8 tokens, tail slack 1)
    >>> shared([8, 8], page_size=4, prefix=8).pages
    2
    >>> shared([8, 8], page_size=4, prefix=8, compute_last_token=True).pages
    3
    """
    page_size = whole_page_size(page_size)
    prefix = whole(prefix, "prefix", minimum=0, accepted=_PREFIX)
    if is_counts(lengths):
        table = as_lengths(lengths)
        array, requests, first = table.tokens, table.requests, -1
    else:
        array, first = as_length_array(lengths), 0
        requests = np.ones_like(array)
    if not array.size:
        raise LedgerError("lengths is empty; at least one request is needed")
    if int(array.min()) < prefix:
        i = int(np.argmax(array < prefix))
        raise LedgerError(f"prefix is {prefix}; request {i} has {array[i]} tokens; {_PREFIX}")
    hits = np.full(array.shape, prefix // page_size, dtype=np.int64)
    if compute_last_token:
        hits = np.minimum(hits, (array - 1) // page_size)
    found = exact_dot(hits, requests, "shared pages") - int(hits[first])
    return _shared_ledger(array, requests, found, page_size)


def shared_pages(
    token_ids: Sequence[Sequence[int]],
    page_size: int,
    keys: Sequence[PageContext | Hashable] | None = None,
    *,
    compute_last_token: bool = False,
) -> Ledger:
    """Account for paged requests whose common prefixes are found from their tokens.

    A page's key chains its parent page's key, its tokens and its context. Equal keys mean that
    every token before and in the page, and all else that made the tensors, is the same.

    Parameters
    ----------
    token_ids : sequence of sequences of int
        The tokens of each request, in order of arrival; all requests are held together.
    page_size : int
        Slots a page.
    keys : sequence, optional
        A :class:`PageContext` (or any hashable value) for each request; None if all agree.
    compute_last_token : bool
        As in :func:`shared`.

    Raises
    ------
    LedgerError
        For an empty request, a token that is no whole number, a bad page size, or a number of
        keys that is not the number of requests.

    Examples
    --------
    >>> shared_pages([[1, 2, 3, 4, 5], [1, 2, 3, 4, 9]], page_size=2)
    Ledger(2 requests: 10 tokens in 8 slots, 4 pages; shared 4 tokens, tail slack 2)

    The same page after another beginning is another page:

    >>> shared_pages([[1, 2, 3, 4], [9, 9, 3, 4]], page_size=2).shared_tokens
    0
    """
    page_size = whole_page_size(page_size)
    given = enumerate(_requests(token_ids, "token_ids"))
    requests = [_tokens(tokens, f"token_ids[{i}]") for i, tokens in given]
    chains: list[list[Hashable]] = []
    for tokens, context in zip(requests, _contexts(keys, len(requests)), strict=True):
        firsts = range(0, len(tokens) - page_size + 1, page_size)
        keyed = isinstance(context, PageContext)
        made = (context.key_of(i, i + page_size) if keyed else context for i in firsts)
        pages = (tokens[first : first + page_size] for first in firsts)
        chains.append(list(zip(pages, made, strict=True)))
    lengths = np.array([len(tokens) for tokens in requests], dtype=np.int64)
    return _of_chains(chains, lengths, page_size, compute_last_token)


def shared_page_ids(
    page_ids: Sequence[Sequence[int]],
    lengths: LengthsLike,
    page_size: int,
    *,
    compute_last_token: bool = False,
) -> Ledger:
    """Account for paged requests from chained page ids, as published traces give them.

    Parameters
    ----------
    page_ids : sequence of sequences of int
        For each request one id a page. Equal ids stand for equal tokens after equal beginnings.
    lengths : sequence, array or trace
        Tokens each request holds. The id of an incomplete last page is not used: such a page is
        not shared.
    page_size : int
        Tokens an id stands for.
    compute_last_token : bool
        As in :func:`shared`.

    Raises
    ------
    LedgerError
        If a request has fewer ids than complete pages, or the numbers of requests differ.

    Examples
    --------
    >>> shared_page_ids([[0, 1, 2], [0, 1, 3]], [10, 11], page_size=4)
    Ledger(2 requests: 21 tokens in 16 slots, 4 pages; shared 8 tokens, tail slack 3)
    """
    page_size = whole_page_size(page_size)
    if is_counts(lengths):
        raise LedgerError("lengths are counts; page_ids need the lengths in the requests' order")
    array = as_length_array(lengths)
    ids = _requests(page_ids, "page_ids")
    if len(ids) != array.size:
        raise LedgerError(f"there are {len(ids)} page_ids and {array.size} lengths; one a request")
    chains: list[list[Hashable]] = []
    for i, (request, tokens) in enumerate(zip(ids, array.tolist(), strict=True)):
        complete = tokens // page_size
        given = _sequence(request, f"page_ids[{i}]", "a sequence of whole numbers")
        if len(given) < complete:
            raise LedgerError(
                f"page_ids[{i}] has {len(given)} ids; {tokens} tokens fill {complete} pages"
            )
        chains.append(list(_whole_ids(given[:complete], f"page_ids[{i}]", _PAGE_ID)))
    return _of_chains(chains, array, page_size, compute_last_token)


def spared_slots(before: Ledger, after: Ledger) -> int:
    """Return how many slots sharing spares: the same tokens held in fewer.

    Raises
    ------
    LedgerError
        If the ledgers are not of the same logical tokens, or the second holds more.

    Examples
    --------
    >>> from kvledger.accounting.allocations import paged
    >>> spared_slots(paged([20, 23], 4), shared([20, 23], 4, prefix=8))
    8
    """
    tokens, slots = before.logical_tokens, before.allocated_slots
    if tokens != after.logical_tokens:
        same = "slots are spared between two ledgers of the same tokens"
        raise LedgerError(f"{tokens} and {after.logical_tokens} logical tokens; {same}")
    if after.allocated_slots > slots:
        more = f"{after.allocated_slots} slots after and {slots} before"
        raise LedgerError(f"{more}; sharing never takes more")
    return slots - after.allocated_slots


def _of_chains(
    chains: list[list[Hashable]], lengths: IntArray, page_size: int, compute_last_token: bool
) -> Ledger:
    """Account for requests of whose leading pages an earlier request holds some.

    A key is the number of the parent's key with the page's own part. Numbers are given out as
    keys are first seen, so equal numbers mean equal chains, with no chance of a hash collision.
    """
    numbers: dict[tuple[int, Hashable], int] = {}
    hits = 0
    for i, chain in enumerate(chains):
        parent, unbroken = -1, True
        limit = (int(lengths[i]) - 1) // page_size if compute_last_token else len(chain)
        for page, part in enumerate(chain):
            key = (parent, part)
            unbroken = unbroken and key in numbers and page < limit
            hits += unbroken
            parent = numbers.setdefault(key, len(numbers))
    return _shared_ledger(lengths, np.ones_like(lengths), hits, page_size)


def _shared_ledger(
    lengths: IntArray, requests: IntArray, shared_count: int, page_size: int
) -> Ledger:
    tokens = exact_dot(lengths, requests, "lengths")
    pages = exact_dot(-(-lengths // page_size), requests, "pages") - shared_count
    distinct = tokens - shared_count * page_size
    return Ledger(
        requests=exact_sum(requests, "requests"),
        logical_tokens=tokens,
        shared_tokens=shared_count * page_size,
        allocated_slots=pages * page_size,
        tail_slack_slots=pages * page_size - distinct,
        reserved_used_later_slots=0,
        pages=pages,
    )


def _sequence(values: Any, name: str, accepted: str) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise LedgerError(f"{name} is {shown(values)}; {accepted}")
    return list(values)


def _requests(values: Any, name: str) -> list[Any]:
    requests = _sequence(values, name, "a sequence with one sequence of ids a request")
    if not requests:
        raise LedgerError(f"{name} is empty; at least one request is needed")
    return requests


def _whole_ids(values: Sequence[Any], name: str, accepted: str) -> tuple[int, ...]:
    return tuple(
        whole(value, f"{name}[{j}]", minimum=0, accepted=accepted) for j, value in enumerate(values)
    )


def _tokens(tokens: Any, name: str) -> tuple[int, ...]:
    given = _sequence(tokens, name, f"{_TOKEN_ID}, in a sequence a request")
    if not given:
        raise LedgerError(f"{name} is empty; a request has at least one token")
    return _whole_ids(given, name, _TOKEN_ID)


def _contexts(keys: Any, requests: int) -> list[Any]:
    if keys is None:
        return [PageContext()] * requests
    contexts = _sequence(keys, "keys", "a sequence with one key a request is accepted")
    if len(contexts) != requests:
        raise LedgerError(f"there are {len(contexts)} keys for {requests} requests; one a request")
    for context in contexts:
        try:
            isinstance(context, PageContext) or hash(context)
        except TypeError:
            accepted = "a PageContext or another hashable value is accepted"
            raise LedgerError(f"a key is {shown(context)}; {accepted}") from None
    return contexts
