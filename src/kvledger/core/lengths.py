"""Request lengths in any form, checked once and reduced to exact counts.

Every quantity of the accounting chapters is a sum over requests of a function of the request's
length. So a histogram of lengths holds all that is needed, and it is small: a trace of millions
of requests has some thousands of different lengths. Everything on the floors above works on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import LedgerError, shown

IntArray: TypeAlias = npt.NDArray[np.int64]
LengthsLike: TypeAlias = Any
"""A sequence or array of whole numbers, a mapping length -> requests, a data frame of counts,
a :class:`LengthTable`, or anything with ``total_tokens`` (a trace)."""

INT64_MAX = 2**63 - 1
_WHOLE = "a length is a whole number of tokens, at least 1"
_AT_MOST = f"and at most {INT64_MAX} (64 bits)"
_CHUNK = 1 << 20
# Up to this length there is a counter for each; a context of a million tokens is within it.
_DENSE_TOKENS = 1 << 20
_PENDING = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class LengthTable:
    """How many requests have each length.

    Parameters
    ----------
    tokens : int64 array, shape (k,)
        The different lengths, ascending, each at least 1.
    requests : int64 array, shape (k,)
        How many requests have that length, each at least 1.

    Raises
    ------
    LedgerError
        If the shapes differ, the lengths do not ascend, anything is below 1, there is no request
        at all, or the tokens add up to more than 64 bits hold.

    Examples
    --------
    >>> table = as_lengths([9, 5, 9])
    >>> table.tokens, table.requests
    (array([5, 9]), array([1, 2]))
    >>> table
    LengthTable(3 requests, 23 tokens, lengths 5 to 9)
    """

    tokens: IntArray
    requests: IntArray

    def __post_init__(self) -> None:
        tokens = as_length_array(self.tokens, "tokens")
        requests = as_length_array(self.requests, "requests", minimum=0)
        if tokens.shape != requests.shape:
            raise LedgerError(
                f"a length table has shapes {tokens.shape} and {requests.shape}; "
                "tokens and requests are two arrays of one length"
            )
        if not tokens.size:
            raise LedgerError("no lengths given; at least one request is needed")
        if bool(np.any(tokens[1:] <= tokens[:-1])):
            raise LedgerError("a length table's tokens must ascend, each different")
        if int(requests.min()) < 1:
            raise LedgerError(
                f"a length table counts {int(requests.min())} requests for one length; at least 1"
            )
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "requests", requests)
        _ = self.n_requests, self.total_tokens  # both must fit in 64 bits

    @property
    def n_requests(self) -> int:
        """Number of requests."""
        return exact_sum(self.requests, "requests")

    @property
    def total_tokens(self) -> int:
        """Sum of all lengths, in tokens."""
        return exact_dot(self.tokens, self.requests, "lengths")

    @property
    def mean_tokens(self) -> Fraction:
        """Mean length, in tokens, exact."""
        return Fraction(self.total_tokens, self.n_requests)

    @property
    def max_tokens(self) -> int:
        """Longest length, in tokens."""
        return int(self.tokens[-1])

    def quantile(self, share: Fraction) -> int:
        """Return the least length that at least ``share`` of the requests do not exceed.

        Examples
        --------
        >>> as_lengths([5, 9, 17]).quantile(Fraction(1, 2))
        9
        """
        if not 0 < share <= 1:
            raise LedgerError(f"share is {share}; a share above 0 and up to 1 is accepted")
        needed = -(-share.numerator * self.n_requests // share.denominator)
        return int(self.tokens[np.searchsorted(np.cumsum(self.requests), needed)])

    def __repr__(self) -> str:
        return (
            f"LengthTable({self.n_requests} requests, {self.total_tokens} tokens, "
            f"lengths {int(self.tokens[0])} to {self.max_tokens})"
        )


def exact_sum(values: IntArray, name: str) -> int:
    """Add up non-negative 64-bit integers; more than 64 bits is an error, not a wrap."""
    return exact_dot(values, np.ones(1, dtype=np.int64), name)


def exact_dot(values: IntArray, weights: IntArray, name: str) -> int:
    """Return the exact sum of ``values * weights``, both non-negative; see :func:`exact_sum`.

    Examples
    --------
    >>> exact_dot(np.array([5, 9]), np.array([1, 2]), "lengths")
    23
    """
    if not values.size:
        return 0
    bound = int(values.max()) * int(weights.max()) * values.size
    if bound <= INT64_MAX:
        return int((values * weights).sum())
    weight = np.broadcast_to(weights, values.shape)
    return checked_int64(sum(int(v) * int(w) for v, w in zip(values, weight, strict=True)), name)


def checked_int64(total: int, name: str) -> int:
    """Return ``total``, or raise if it does not fit in a signed 64-bit integer."""
    if total > INT64_MAX:
        raise LedgerError(
            f"{name} add up to {total}; sums up to {INT64_MAX} (64 bits) are accepted"
        )
    return total


def whole(value: object, name: str, *, minimum: int, accepted: str = "") -> int:
    """Return ``value`` as a Python int, or raise an error that names it.

    Booleans, fractions, strings and NaN are not whole numbers. A float without a fractional part
    is one, since a column that once held a missing value comes as floats. ``accepted`` is what the
    error says is accepted, if not a whole number of at least ``minimum``.

    Examples
    --------
    >>> whole(4.0, "page_size", minimum=1)
    4
    """
    accepted = accepted or f"a whole number of at least {minimum} is accepted"
    number: int | None = None
    if isinstance(value, float | np.floating):
        number = int(value) if float(value).is_integer() else None
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
    elif isinstance(value, Fraction) and value.denominator == 1:
        number = value.numerator
    if number is None or number < minimum:
        raise LedgerError(f"{name} is {shown(value)}; {accepted}")
    if number > INT64_MAX:
        raise LedgerError(f"{name} is {shown(value)}; {accepted}, {_AT_MOST}")
    return number


def whole_page_size(page_size: object) -> int:
    """Return a page size in slots as an int of at least 1."""
    accepted = "a page size is a whole number of slots, at least 1"
    return whole(page_size, "page_size", minimum=1, accepted=accepted)


def whole_page_sizes(page_sizes: Iterable[object]) -> list[int]:
    """Return different page sizes in ascending order."""
    if isinstance(page_sizes, str | bytes) or not isinstance(page_sizes, Iterable):
        raise LedgerError(
            f"page_sizes is {shown(page_sizes)}; a sequence of whole numbers is accepted"
        )
    sizes = sorted({whole_page_size(p) for p in page_sizes})
    if not sizes:
        raise LedgerError("page_sizes is empty; at least one page size is needed")
    return sizes


def as_length_array(lengths: LengthsLike, name: str = "lengths", *, minimum: int = 1) -> IntArray:
    """Return lengths as a read-only int64 array in the order given.

    Parameters
    ----------
    lengths : sequence, array or trace
        Whole numbers of tokens. Floats without a fractional part are accepted.
    name : str
        What an error calls them.
    minimum : int
        The smallest accepted value.

    Raises
    ------
    LedgerError
        For the first value that is below ``minimum``, fractional, missing, not a number, or too
        large for 64 bits; the message gives its index.

    Examples
    --------
    >>> as_length_array([5, 9, 17])
    array([ 5,  9, 17])
    >>> as_length_array([5, 0])
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: lengths[1] is 0; a length is a whole number of tokens, at least 1
    """
    if isinstance(lengths, LengthTable):
        return np.repeat(lengths.tokens, lengths.requests)
    array = _int64_array(lengths, name, minimum)
    if array.size and int(array.min()) < minimum:
        _raise_first(array, array < minimum, name, _accepted(minimum))
    return array


def _int64_array(lengths: LengthsLike, name: str, minimum: int) -> IntArray:
    """Return whole numbers as a read-only int64 array; only some are checked for the minimum."""
    if hasattr(lengths, "total_tokens") and not isinstance(lengths, LengthTable):
        lengths = lengths.total_tokens
    accepted = _accepted(minimum)
    array = _raw_array(lengths, name)
    if array.dtype.kind == "f":
        bad = ~(np.isfinite(array) & (array == np.floor(array)) & (array >= minimum))
        _raise_first(array, bad, name, accepted)
        _raise_first(array, array >= 2.0**63, name, f"{accepted}, {_AT_MOST}")
        array = array.astype(np.int64)
    elif array.dtype.kind == "O":
        whole_numbers = [
            whole(v, f"{name}[{i}]", minimum=minimum, accepted=accepted)
            for i, v in enumerate(array.tolist())
        ]
        array = np.array(whole_numbers, dtype=np.int64)
    elif array.dtype.kind == "u":
        _raise_first(array, array > INT64_MAX, name, f"{accepted}, {_AT_MOST}")
    elif array.dtype.kind != "i":
        value = array.flat[0].item() if array.size else array.dtype
        raise LedgerError(f"{name}[0] is {shown(value)}; {accepted}")
    # A view, so that an array of the caller's never becomes read-only.
    result: IntArray = array.astype(np.int64, copy=False).view()
    result.setflags(write=False)
    return result


def _accepted(minimum: int) -> str:
    return _WHOLE if minimum == 1 else f"a whole number, at least {minimum}, is accepted"


def as_lengths(lengths: LengthsLike, name: str = "lengths") -> LengthTable:
    """Reduce lengths in any accepted form to a :class:`LengthTable`.

    One pass over the lengths, in chunks on all cores, whatever is computed from them later.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping, data frame or LengthTable
        A mapping gives the number of requests for each length, and so does a data frame with the
        columns ``tokens`` and ``requests``.
    name : str
        What an error calls them.

    Raises
    ------
    LedgerError
        As :func:`as_length_array`; also if there is no length at all.

    Examples
    --------
    >>> as_lengths([5, 9, 17])
    LengthTable(3 requests, 31 tokens, lengths 5 to 17)
    >>> as_lengths({5: 1000, 9: 2})
    LengthTable(1002 requests, 5018 tokens, lengths 5 to 9)
    """
    if isinstance(lengths, LengthTable):
        return lengths
    if is_counts(lengths):
        return _from_counts(lengths, name)
    array = _int64_array(lengths, name, 1)
    if not array.size:
        raise LedgerError(f"{name} is empty; at least one request is needed")

    def count(starts: IntArray) -> LengthCounter:
        counter = LengthCounter()
        for start in starts.tolist():
            chunk = array[start : start + _CHUNK]  # in the processor's cache while it is used
            if int(chunk.min()) < 1:
                _raise_first(array, array < 1, name, _accepted(1))
            counter.add(chunk)
        return counter

    starts = np.arange(0, array.size, _CHUNK)
    if starts.size == 1:
        return count(starts).table()
    workers = min(os.cpu_count() or 1, starts.size)
    with ThreadPoolExecutor(workers) as pool:
        counter, *others = pool.map(count, np.array_split(starts, workers))
    for other in others:
        counter.merge(other)
    return counter.table()


class LengthCounter:
    """Counts requests by length as they come, in memory that does not grow with them.

    There is a counter for each length up to about a million tokens that is not above the longest,
    and a pair of numbers for each different length above.
    """

    def __init__(self) -> None:
        self._dense: IntArray = np.zeros(1, np.int64)
        self._long: list[tuple[IntArray, IntArray]] = []
        self._pending = 0

    def add(self, lengths: IntArray) -> None:
        """Count the lengths, each at least 1."""
        if not lengths.size:
            return
        if int(lengths.max()) > _DENSE_TOKENS:
            is_long = lengths > _DENSE_TOKENS
            self._add_long(*np.unique(lengths[is_long], return_counts=True))
            lengths = lengths[~is_long]
        self._add_dense(np.bincount(lengths, minlength=1))

    def merge(self, other: LengthCounter) -> None:
        """Count what another counter has counted."""
        self._add_dense(other._dense)
        for counts in other._long:
            self._add_long(*counts)

    def _add_dense(self, requests: IntArray) -> None:
        short, self._dense = sorted((requests, self._dense), key=len)
        self._dense[: short.size] += short

    def _add_long(self, tokens: IntArray, requests: IntArray) -> None:
        self._long.append((tokens, requests))
        self._pending += tokens.size
        if self._pending > _PENDING:
            self._long = [_added_up(*map(np.concatenate, zip(*self._long, strict=True)))]
            self._pending = 0

    def table(self) -> LengthTable:
        """Return the counts so far; none, or more tokens than 64 bits hold, is an error."""
        tokens = np.flatnonzero(self._dense)
        requests = self._dense[tokens]
        if self._long:
            parts = zip((tokens, requests), *self._long, strict=True)
            tokens, requests = _added_up(*map(np.concatenate, parts))
        return LengthTable(tokens, requests)


def _added_up(tokens: IntArray, requests: IntArray) -> tuple[IntArray, IntArray]:
    """Return the different lengths, ascending, and the sum of the requests of each."""
    different, which = np.unique(tokens, return_inverse=True)
    total = np.zeros(different.size, dtype=np.int64)
    np.add.at(total, which, requests)
    return different[total > 0], total[total > 0]


def paired_lengths(
    starts: LengthsLike, ends: LengthsLike, names: tuple[str, str]
) -> tuple[IntArray, IntArray]:
    """Return each request's start and end, in order; a request that shrinks is an error.

    Examples
    --------
    >>> paired_lengths([5, 9], [8, 7], ("lengths", "final_lengths"))
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: final_lengths[1] is 7; request 1 already holds 9 tokens
    """
    start, end = as_length_array(starts, names[0]), as_length_array(ends, names[1])
    _check_as_many(start.size, end.size, names)
    if not start.size:
        raise LedgerError(f"{names[0]} is empty; at least one request is needed")
    shrunk = end < start
    if bool(shrunk.any()):
        i = int(np.argmax(shrunk))
        raise LedgerError(
            f"{names[1]}[{i}] is {end[i]}; request {i} already holds {start[i]} tokens"
        )
    return start, end


def check_growth(starts: LengthTable, ends: LengthTable, names: tuple[str, str]) -> None:
    """Raise unless the starts can be paired with the ends so that no request shrinks.

    They can if, for every length, at least as many requests start at or below it as end there.

    Examples
    --------
    >>> check_growth(as_lengths([1, 6]), as_lengths([5, 5]), ("lengths", "final_lengths"))
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: of final_lengths 2 are 5 or less, of lengths 1; no request shrinks
    """
    _check_as_many(starts.n_requests, ends.n_requests, names)
    ended = np.cumsum(ends.requests)
    below = np.searchsorted(starts.tokens, ends.tokens, side="right")
    started = np.concatenate(([0], np.cumsum(starts.requests)))[below]
    if bool(np.any(started < ended)):
        i = int(np.argmax(started < ended))
        raise LedgerError(
            f"of {names[1]} {ended[i]} are {ends.tokens[i]} or less, of {names[0]} {started[i]}; "
            "no request shrinks"
        )


def _check_as_many(starts: int, ends: int, names: tuple[str, str]) -> None:
    if starts != ends:
        raise LedgerError(
            f"there are {starts} {names[0]} and {ends} {names[1]}; one of each a request"
        )


def is_counts(lengths: LengthsLike) -> bool:
    """Tell whether lengths come as counts, so without an order of requests."""
    return isinstance(lengths, LengthTable | Mapping) or hasattr(lengths, "columns")


def _from_counts(counts: Any, name: str) -> LengthTable:
    if not isinstance(counts, Mapping):
        for column in ("tokens", "requests"):
            if column not in counts.columns:
                raise LedgerError(
                    f"{name} is a table with the columns {', '.join(map(str, counts.columns))}; "
                    "a table of counts has the columns tokens and requests"
                )
        tokens = as_length_array(counts["tokens"], f"{name} (tokens)")
        requests = as_length_array(counts["requests"], f"{name} (requests)", minimum=0)
    else:
        tokens = as_length_array(list(counts), name)
        requests = as_length_array(list(counts.values()), f"{name} (requests)", minimum=0)
    exact_sum(requests, f"{name} (requests)")  # so that adding up rows of one length cannot wrap
    return LengthTable(*_added_up(tokens, requests))


def _raw_array(lengths: LengthsLike, name: str) -> npt.NDArray[Any]:
    if isinstance(lengths, str | bytes | Mapping) or not isinstance(lengths, Iterable):
        raise LedgerError(f"{name} is {shown(lengths)}; a sequence of whole numbers is accepted")
    if not hasattr(lengths, "__array__") and not isinstance(lengths, list | tuple):
        lengths = list(lengths)
    if isinstance(lengths, list | tuple) and any(
        isinstance(v, bool | np.bool_ | str | bytes) or v is None for v in lengths
    ):
        return np.array(lengths, dtype=object)  # NumPy would turn [True, 2] into [1, 2]
    if isinstance(lengths, np.ma.MaskedArray) and bool(np.ma.getmaskarray(lengths).any()):
        index = int(np.argmax(np.ma.getmaskarray(lengths)))
        raise LedgerError(f"{name}[{index}] is missing (masked); {_WHOLE}")
    try:
        array = np.asarray(lengths)
    except (ValueError, OverflowError, TypeError):
        raise LedgerError(f"{name} is {shown(lengths)}; one whole number a request") from None
    if array.ndim != 1:
        raise LedgerError(f"{name} has shape {array.shape}; one whole number a request is accepted")
    if not array.size:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu" and isinstance(lengths, list | tuple):
        return np.array(lengths, dtype=object)  # exact: one odd value must not change the others
    return array


def _raise_first(array: npt.NDArray[Any], bad: npt.NDArray[Any], name: str, accepted: str) -> None:
    if bool(bad.any()):
        index = int(np.argmax(bad))
        raise LedgerError(f"{name}[{index}] is {shown(array[index].item())}; {accepted}")
