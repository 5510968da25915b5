"""Fixed-size pages: how many a request needs, and the slack of its last one."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from kvledger.accounting.ledger import Ledger
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import (
    IntArray,
    LengthsLike,
    LengthTable,
    as_lengths,
    check_growth,
    checked_int64,
    exact_dot,
    is_counts,
    paired_lengths,
    whole_page_size,
    whole_page_sizes,
)

# The survival table below has an entry for every length up to the longest. It is built up to
# this length, or up to so many entries for each different length; else dividing is faster.
_DENSE_LIMIT = 1 << 16
_DENSE_FACTOR = 64
_DISTRIBUTION_LIMIT = 1 << 24


class SlackDistribution(NamedTuple):
    """How many requests leave how many slots of their last page unused.

    ``requests[s]`` is the number of requests with a tail slack of ``s`` slots, for s from 0 to
    page size - 1.
    """

    page_size: int
    requests: IntArray

    @property
    def mean_slots(self) -> Fraction:
        """Mean tail slack a request, in slots, exact."""
        slots = np.arange(self.page_size, dtype=np.int64)
        return Fraction(exact_dot(slots, self.requests, "slack"), int(self.requests.sum()))


class GrowthSlack(NamedTuple):
    """Tail slack added up over every length that requests pass through while they grow."""

    page_size: int
    slot_steps: int
    steps: int

    @property
    def mean_slots(self) -> Fraction:
        """Mean tail slack a request and step, in slots, exact."""
        return Fraction(self.slot_steps, self.steps)


def page_counts(lengths: LengthsLike, page_sizes: Iterable[int]) -> dict[int, int]:
    """Count the pages that all requests need, for many page sizes in one pass over the lengths.

    A request of n tokens has a page k (counted from 0) if it is longer than k pages. So the pages
    of size p are the requests longer than 0, p, 2p, ... slots: every p-th entry of one table of
    how many requests are longer than each length, added up. Memory does not depend on the number
    of page sizes.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens a request.
    page_sizes : iterable of int
        Slots a page.

    Returns
    -------
    dict of int to int
        Pages for each page size, ascending.

    Raises
    ------
    LedgerError
        For a bad length or page size.

    Examples
    --------
    >>> page_counts([5, 9, 17], [4, 8, 16])
    {4: 10, 8: 6, 16: 4}
    """
    sizes = whole_page_sizes(page_sizes)
    table = as_lengths(lengths)
    longest = table.max_tokens
    if longest > max(_DENSE_LIMIT, _DENSE_FACTOR * table.tokens.size):
        pages_each = (-(-table.tokens // p) for p in sizes)
        return {
            p: exact_dot(pages, table.requests, "pages")
            for p, pages in zip(sizes, pages_each, strict=True)
        }
    at_length = np.zeros(longest + 1, dtype=np.int64)
    at_length[table.tokens] = table.requests
    longer = table.n_requests - np.cumsum(at_length)
    return {p: int(longer[:-1:p].sum()) for p in sizes}


def paged(lengths: LengthsLike, page_size: int) -> Ledger:
    """Account for requests that hold whole pages of one size.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds.
    page_size : int
        Slots a page, at least 1.

    Returns
    -------
    Ledger
        ``tail_slack_slots`` is the unused part of last pages; nothing is reserved or shared.

    Raises
    ------
    LedgerError
        For a bad length or page size, or more than 64 bits of slots.

    Examples
    --------
    >>> paged([5, 9, 17], page_size=4)
    Ledger(3 requests: 31 tokens in 40 slots, 10 pages; tail slack 9)
    """
    return paged_sweep(lengths, [whole_page_size(page_size)])[0]


def paged_sweep(lengths: LengthsLike, page_sizes: Iterable[int]) -> list[Ledger]:
    """Account for many page sizes in one pass over the lengths.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds.
    page_sizes : iterable of int
        Slots a page; answered in ascending order, each once.

    Returns
    -------
    list of Ledger
        As :func:`paged` gives for each page size.

    Examples
    --------
    >>> [ledger.tail_slack_slots for ledger in paged_sweep([5, 9, 17], [1, 4, 8, 16])]
    [0, 9, 17, 33]
    """
    table = as_lengths(lengths)
    requests, tokens = table.n_requests, table.total_tokens
    ledgers = []
    for page_size, pages in page_counts(table, page_sizes).items():
        allocated = checked_int64(pages * page_size, f"slots of {page_size}-slot pages")
        ledgers.append(
            Ledger(
                requests=requests,
                logical_tokens=tokens,
                allocated_slots=allocated,
                tail_slack_slots=allocated - tokens,
                reserved_used_later_slots=0,
                pages=pages,
            )
        )
    return ledgers


def tail_slack_distribution(lengths: LengthsLike, page_size: int) -> SlackDistribution:
    """Return how many requests have each possible tail slack.

    Examples
    --------
    >>> tail_slack_distribution([5, 9, 16], page_size=4)
    SlackDistribution(page_size=4, requests=array([1, 0, 0, 2]))
    """
    page_size = whole_page_size(page_size)
    table = as_lengths(lengths)
    if page_size > _DISTRIBUTION_LIMIT:
        raise LedgerError(
            f"page_size is {page_size}; a distribution is given up to {_DISTRIBUTION_LIMIT} "
            "slots a page"
        )
    requests = np.zeros(page_size, dtype=np.int64)
    np.add.at(requests, -table.tokens % page_size, table.requests)
    requests.setflags(write=False)
    return SlackDistribution(page_size, requests)


def mean_tail_slack(lengths: LengthsLike, page_size: int) -> Fraction:
    """Return the mean tail slack a request, in slots, exact.

    Examples
    --------
    >>> mean_tail_slack([5, 9, 17], page_size=4)
    Fraction(3, 1)
    """
    ledger = paged(lengths, page_size)
    return Fraction(ledger.tail_slack_slots, ledger.requests)


def expected_tail_slack(page_size: int) -> Fraction:
    """Return (p - 1) / 2: the mean tail slack if every remainder is equally likely.

    Examples
    --------
    >>> expected_tail_slack(16)
    Fraction(15, 2)
    """
    return Fraction(whole_page_size(page_size) - 1, 2)


def growth_tail_slack(
    final_lengths: LengthsLike, page_size: int, *, start_lengths: LengthsLike | None = None
) -> GrowthSlack:
    """Average the tail slack over every length a request passes through, not the last alone.

    Each request holds each length from its start to its end for one step; all steps of all
    requests count the same. The sum over lengths 1 to n has a closed form, and a request that
    starts at s takes away the sum over 1 to s - 1: so two separate histograms, of starts and of
    ends, are enough.

    Parameters
    ----------
    final_lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request ends with.
    page_size : int
        Slots a page.
    start_lengths : as final_lengths, optional
        Tokens each request starts with (its prompt); 1 for everyone if not given.

    Returns
    -------
    GrowthSlack

    Raises
    ------
    LedgerError
        For a bad length or page size, different numbers of starts and ends, or a request that
        ends with fewer tokens than it starts with.

    Examples
    --------
    >>> growth_tail_slack([4], page_size=4).mean_slots      # 3, 2, 1 and 0 slots
    Fraction(3, 2)
    >>> growth_tail_slack([6], page_size=4, start_lengths=[5]).mean_slots     # 3 and 2 slots
    Fraction(5, 2)
    """
    page_size = whole_page_size(page_size)
    names = ("start_lengths", "final_lengths")
    if start_lengths is not None and not (is_counts(start_lengths) or is_counts(final_lengths)):
        start_lengths, final_lengths = paired_lengths(start_lengths, final_lengths, names)
    final = as_lengths(final_lengths, "final_lengths")
    slot_steps, steps = _slack_up_to(final, page_size), final.total_tokens
    if start_lengths is not None:
        start = as_lengths(start_lengths, "start_lengths")
        check_growth(start, final, names)
        before = start.tokens - 1
        kept = before > 0
        steps -= start.total_tokens - start.n_requests
        if bool(kept.any()):
            slot_steps -= _slack_up_to(LengthTable(before[kept], start.requests[kept]), page_size)
    return GrowthSlack(page_size, slot_steps, steps)


def _slack_up_to(table: LengthTable, page_size: int) -> int:
    """Sum the slack of lengths 1 to n over all requests: full pages, then the rest of one."""
    total = 0
    for tokens, requests in zip(table.tokens.tolist(), table.requests.tolist(), strict=True):
        full, rest = divmod(tokens, page_size)
        slack = full * (page_size * (page_size - 1) // 2)
        slack += rest * page_size - rest * (rest + 1) // 2
        total += requests * slack
    return total
