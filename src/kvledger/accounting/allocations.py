"""What requests hold: one run of slots reserved ahead, or fixed-size pages.

What a contiguous policy reserves depends on what it knows of the final length: nothing (a maximum
for everyone), its size class (the next power of two), or all of it (an oracle). Pages leave the
slack of the last one only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from kvledger.accounting.ledger import Ledger
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import (
    IntArray,
    LengthsLike,
    LengthTable,
    as_length_array,
    as_lengths,
    check_growth,
    checked_int64,
    exact_dot,
    exact_sum,
    is_counts,
    paired_lengths,
    whole,
    whole_page_size,
    whole_page_sizes,
)

_RESERVE = 'reserve is a whole number of slots, at least 1, or "pow2" or "oracle"'

# The survival table below has an entry for every length up to the longest. It is built up to
# this length, or up to so many entries for each different length; else dividing is faster.
_DENSE_LIMIT = 1 << 16
_DENSE_FACTOR = 64
_DISTRIBUTION_LIMIT = 1 << 24


def contiguous(
    lengths: LengthsLike,
    reserve: int | str,
    *,
    final_lengths: LengthsLike | None = None,
    over_maximum: str = "error",
) -> Ledger:
    """Account for requests that each hold one reserved, contiguous run of slots.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds now. Without ``final_lengths`` they are final.
    reserve : int or {"pow2", "oracle"}
        Slots reserved for each request: the same maximum for everyone, the next power of two of
        its final length, or exactly its final length.
    final_lengths : sequence, array or trace, optional
        Tokens each request will hold at its end, in the same order. With them,
        ``reserved_slots`` splits into what is used later and what never is. Both may be counts
        (of starts and of ends) where no request exceeds the maximum: the sums are the same.
    over_maximum : {"error", "count"}
        What becomes of a request whose final length exceeds the maximum: an error that names it,
        or counted apart, in ``refused_requests`` and ``refused_tokens`` only.

    Raises
    ------
    LedgerError
        For a bad length or policy, for a request above the maximum (unless counted), and for a
        final length below the present one.

    Examples
    --------
    >>> contiguous([5, 9, 17], reserve=32)
    Ledger(3 requests: 31 tokens in 96 slots; reserved 65 (65 never used))
    >>> contiguous([5, 9, 17], reserve="pow2")
    Ledger(3 requests: 31 tokens in 56 slots; reserved 25 (25 never used))
    >>> contiguous([5, 9, 17], reserve=32, final_lengths=[8, 20, 17])
    Ledger(3 requests: 31 tokens in 96 slots; reserved 65 (51 never used))
    >>> contiguous({5: 1, 9: 1, 17: 1}, reserve=32, final_lengths={8: 1, 17: 1, 20: 1})
    Ledger(3 requests: 31 tokens in 96 slots; reserved 65 (51 never used))
    """
    if over_maximum not in ("error", "count"):
        raise LedgerError(f'over_maximum is {over_maximum!r}; "error" and "count" are accepted')
    maximum = None
    if not isinstance(reserve, str):
        maximum = whole(reserve, "reserve", minimum=1, accepted=_RESERVE)
    elif reserve not in ("pow2", "oracle"):
        raise LedgerError(f"reserve is {reserve!r}; {_RESERVE}")
    if not is_counts(lengths):
        lengths = as_length_array(lengths)  # once: a generator can be read only once
    names = ("lengths", "final_lengths")
    if final_lengths is None:
        table = as_lengths(lengths)
        now = final = table.tokens
        requests = table.requests
    elif is_counts(lengths) or is_counts(final_lengths):
        # No sum depends on which start belongs to which end; who is refused does: an error.
        starts, ends = as_lengths(lengths), as_lengths(final_lengths, names[1])
        check_growth(starts, ends, names)
        at_end = contiguous(ends, reserve)
        return replace(
            at_end,
            logical_tokens=starts.total_tokens,
            reserved_slots=at_end.allocated_slots - starts.total_tokens,
            reserved_used_later_slots=ends.total_tokens - starts.total_tokens,
        )
    else:
        now, final = paired_lengths(lengths, final_lengths, names)
        requests = np.ones_like(now)
    if maximum is not None and over_maximum == "error":
        asked = lengths if final_lengths is None else final
        _refuse_longer(asked, maximum, names[final_lengths is not None])
    fits = np.ones(final.shape, dtype=bool) if maximum is None else final <= maximum
    kept, over = requests[fits], requests[~fits]
    if maximum is not None:
        allocated = checked_int64(exact_sum(kept, "requests") * maximum, "reserved slots")
    elif reserve == "pow2":
        allocated = exact_dot(next_power_of_two(final), requests, "reserved slots")
    else:
        allocated = exact_dot(final, requests, "reserved slots")
    tokens = exact_dot(now[fits], kept, "lengths")
    return Ledger(
        requests=exact_sum(kept, "requests"),
        logical_tokens=tokens,
        allocated_slots=allocated,
        reserved_slots=allocated - tokens,
        reserved_used_later_slots=exact_dot(final[fits], kept, "final_lengths") - tokens,
        refused_requests=exact_sum(over, "requests"),
        refused_tokens=exact_dot(now[~fits], over, "lengths"),
    )


def next_power_of_two(lengths: LengthsLike) -> IntArray:
    """Return the smallest power of two that is at least each length, in the order given.

    Raises
    ------
    LedgerError
        For a length above 2**62, whose next power of two does not fit in 64 bits.

    Examples
    --------
    >>> next_power_of_two([1, 5, 8, 17])
    array([ 1,  8,  8, 32])
    """
    values = as_length_array(lengths)
    if values.size and int(values.max()) > 2**62:
        raise LedgerError(
            f"a length is {int(values.max())}; next powers of two are given up to {2**62} tokens"
        )
    result = values - 1
    for shift in (1, 2, 4, 8, 16, 32):  # fill every bit below the highest one: exact, no floats
        result = result | (result >> shift)
    return result + 1


def _refuse_longer(lengths: LengthsLike, maximum: int, name: str) -> None:
    if is_counts(lengths):
        which, tokens = f"a request of {name}", as_lengths(lengths).max_tokens
    else:
        i = int(np.argmax(lengths > maximum))
        which, tokens = f"{name}[{i}]", int(lengths[i])
    if tokens > maximum:
        raise LedgerError(
            f"{which} is {tokens} tokens; at most the reserved {maximum} fit "
            '(over_maximum="count" counts such requests apart)'
        )


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
        """Mean tail slack per request and step, in slots, exact."""
        return Fraction(self.slot_steps, self.steps)


def page_counts(lengths: LengthsLike, page_sizes: Iterable[int]) -> dict[int, int]:
    """Count the pages that all requests need for each page size, ascending, in one pass.

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
        return {p: exact_dot(-(-table.tokens // p), table.requests, "pages") for p in sizes}
    at_length = np.zeros(longest + 1, dtype=np.int64)
    at_length[table.tokens] = table.requests
    longer = table.n_requests - np.cumsum(at_length)
    return {p: int(longer[:-1:p].sum()) for p in sizes}


def paged(lengths: LengthsLike, page_size: int) -> Ledger:
    """Account for requests that hold whole pages of one size, and nothing reserved or shared.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds.
    page_size : int
        Slots a page, at least 1.

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
    """Account for many page sizes in one pass, each as :func:`paged` does.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds.
    page_sizes : iterable of int
        Slots a page; answered in ascending order, each once.

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
    total, of_a_page = 0, page_size * (page_size - 1) // 2
    for tokens, requests in zip(table.tokens.tolist(), table.requests.tolist(), strict=True):
        full, rest = divmod(tokens, page_size)
        total += requests * (full * of_a_page + rest * page_size - rest * (rest + 1) // 2)
    return total
