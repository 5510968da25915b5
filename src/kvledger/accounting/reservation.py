"""Contiguous policies: every request reserves its slots ahead, in one piece.

What a policy reserves depends on what it knows of the final length: nothing (a maximum for
everyone), its size class (the next power of two), or all of it (an oracle).
"""

from __future__ import annotations

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
)

_NAMES = ("lengths", "final_lengths")
_RESERVE = 'reserve is a whole number of slots, at least 1, or "pow2" or "oracle"'


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

    Returns
    -------
    Ledger

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
    maximum = _maximum(reserve)
    if not is_counts(lengths):
        lengths = as_length_array(lengths)  # once: a generator can be read only once
    if final_lengths is not None and (is_counts(lengths) or is_counts(final_lengths)):
        return _of_counts(as_lengths(lengths), as_lengths(final_lengths, "final_lengths"), reserve)
    if final_lengths is None:
        if maximum is not None and over_maximum == "error":
            _refuse_longer(lengths, maximum, "lengths")
        table = as_lengths(lengths)
        now = final = table.tokens
        requests = table.requests
    else:
        now, final = paired_lengths(lengths, final_lengths, _NAMES)
        if maximum is not None and over_maximum == "error":
            _refuse_longer(final, maximum, "final_lengths")
        requests = np.ones_like(now)
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


def _maximum(reserve: int | str) -> int | None:
    if isinstance(reserve, str):
        if reserve not in ("pow2", "oracle"):
            raise LedgerError(f"reserve is {reserve!r}; {_RESERVE}")
        return None
    return whole(reserve, "reserve", minimum=1, accepted=_RESERVE)


def _of_counts(now: LengthTable, final: LengthTable, reserve: int | str) -> Ledger:
    """Account from two histograms: no sum depends on which start belongs to which end."""
    check_growth(now, final, _NAMES)
    at_end = contiguous(final, reserve)  # counts say nothing of who would be refused: an error
    return Ledger(
        requests=at_end.requests,
        logical_tokens=now.total_tokens,
        allocated_slots=at_end.allocated_slots,
        reserved_slots=at_end.allocated_slots - now.total_tokens,
        reserved_used_later_slots=final.total_tokens - now.total_tokens,
    )


def _refuse_longer(lengths: LengthsLike, maximum: int, name: str) -> None:
    if is_counts(lengths):
        table = as_lengths(lengths)
        if table.max_tokens > maximum:
            raise LedgerError(_too_long(f"a request of {name}", table.max_tokens, maximum))
        return
    array = as_length_array(lengths, name)
    if array.size and int(array.max()) > maximum:
        i = int(np.argmax(array > maximum))
        raise LedgerError(_too_long(f"{name}[{i}]", int(array[i]), maximum))


def _too_long(which: str, tokens: int, maximum: int) -> str:
    return (
        f"{which} is {tokens} tokens; at most the reserved {maximum} fit "
        '(over_maximum="count" counts such requests apart)'
    )
