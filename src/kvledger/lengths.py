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

from kvledger.errors import LedgerError

IntArray: TypeAlias = npt.NDArray[np.int64]
LengthsLike: TypeAlias = Any
"""A sequence or array of whole numbers, a mapping length -> requests, a data frame of counts,
a :class:`LengthTable`, or anything with ``total_tokens`` (a trace)."""

INT64_MAX = 2**63 - 1
_WHOLE = "a length is a whole number of tokens, at least 1"
_CHUNK = 1 << 20
# Past this length a dense histogram would cost more memory than it saves time.
_DENSE_LIMIT = 1 << 24


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
        tokens, requests = self.tokens, self.requests
        if tokens.shape != requests.shape or tokens.ndim != 1:
            raise LedgerError(
                f"a length table has shapes {tokens.shape} and {requests.shape}; "
                "tokens and requests are two arrays of one length"
            )
        if not tokens.size:
            raise LedgerError("no lengths given; at least one request is needed")
        if tokens[0] < 1 or bool(np.any(np.diff(tokens) <= 0)):
            raise LedgerError("a length table's tokens must ascend and be at least 1")
        if int(requests.min()) < 1:
            raise LedgerError(
                f"a length table counts {int(requests.min())} requests for one length; at least 1"
            )
        for array in (tokens, requests):
            array.setflags(write=False)
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

    def __repr__(self) -> str:
        return (
            f"LengthTable({self.n_requests} requests, {self.total_tokens} tokens, "
            f"lengths {int(self.tokens[0])} to {self.max_tokens})"
        )


def exact_sum(values: IntArray, name: str) -> int:
    """Add up non-negative 64-bit integers; more than 64 bits is an error, not a wrap."""
    return exact_dot(values, np.ones(1, dtype=np.int64), name)


def exact_dot(values: IntArray, weights: IntArray, name: str) -> int:
    """Return the exact sum of ``values * weights``, both non-negative.

    Raises
    ------
    LedgerError
        If the sum does not fit in a signed 64-bit integer.

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


def whole(value: object, name: str, *, minimum: int, accepted: str) -> int:
    """Return ``value`` as a Python int, or raise an error that names it.

    Booleans, fractions, strings and NaN are not whole numbers. A float without a fractional part
    is one, since a column that once held a missing value comes as floats.

    Examples
    --------
    >>> whole(4.0, "page_size", minimum=1, accepted="a whole number")
    4
    """
    number: int | None = None
    if isinstance(value, float | np.floating):
        number = int(value) if float(value).is_integer() else None
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
    elif isinstance(value, Fraction) and value.denominator == 1:
        number = value.numerator
    if number is None or not minimum <= number <= INT64_MAX:
        raise LedgerError(f"{name} is {_shown(value)}; {accepted}")
    return number


def whole_page_size(page_size: object) -> int:
    """Return a page size in slots as an int of at least 1."""
    return whole(
        page_size,
        "page_size",
        minimum=1,
        accepted="a page size is a whole number of slots, at least 1",
    )


def whole_page_sizes(page_sizes: Iterable[object]) -> list[int]:
    """Return different page sizes in ascending order."""
    if isinstance(page_sizes, str | bytes) or not isinstance(page_sizes, Iterable):
        raise LedgerError(
            f"page_sizes is {_shown(page_sizes)}; a sequence of whole numbers is accepted"
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
    kvledger.errors.LedgerError: lengths[1] is 0; a length is a whole number of tokens, at least 1
    """
    if hasattr(lengths, "total_tokens") and not isinstance(lengths, LengthTable):
        lengths = lengths.total_tokens
    if isinstance(lengths, LengthTable):
        return np.repeat(lengths.tokens, lengths.requests)
    accepted = _WHOLE if minimum == 1 else f"a whole number, at least {minimum}, is accepted"
    array = _raw_array(lengths, name)
    if array.dtype.kind == "f":
        bad = ~(np.isfinite(array) & (array == np.floor(array)) & (array < 2.0**63))
        _raise_first(array, bad, name, accepted)
        array = array.astype(np.int64)
    elif array.dtype.kind == "O":
        whole_numbers = [
            whole(v, f"{name}[{i}]", minimum=minimum, accepted=accepted)
            for i, v in enumerate(array.tolist())
        ]
        array = np.array(whole_numbers, dtype=np.int64)
    elif array.dtype.kind == "u":
        _raise_first(array, array > INT64_MAX, name, accepted)
    elif array.dtype.kind != "i":
        value = array.flat[0].item() if array.size else array.dtype
        raise LedgerError(f"{name}[0] is {_shown(value)}; {accepted}")
    if array.size and int(array.min()) < minimum:
        _raise_first(array, array < minimum, name, accepted)
    result: IntArray = array.astype(np.int64, copy=False)
    if result is lengths:
        result = result.view()
    result.setflags(write=False)
    return result


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
    array = as_length_array(lengths, name)
    if not array.size:
        raise LedgerError(f"{name} is empty; at least one request is needed")
    longest = int(array.max())
    if longest > max(_DENSE_LIMIT, 4 * array.size):
        tokens, requests = np.unique(array, return_counts=True)
        return LengthTable(tokens, requests)
    histogram = _histogram(array, longest)
    tokens = np.flatnonzero(histogram)
    return LengthTable(tokens, histogram[tokens])


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
        counts = dict(zip(counts["tokens"].tolist(), counts["requests"].tolist(), strict=True))
    tokens = as_length_array(list(counts), name)
    requests = as_length_array(list(counts.values()), f"{name} (requests)", minimum=0)
    order = np.argsort(tokens)
    order = order[requests[order] > 0]
    return LengthTable(tokens[order], requests[order])


def _histogram(array: IntArray, longest: int) -> IntArray:
    """Count each value from 0 to ``longest``; NumPy's counting loop runs outside the GIL."""
    if array.size <= _CHUNK:
        return np.bincount(array, minlength=longest + 1)
    workers = min(os.cpu_count() or 1, array.size // _CHUNK + 1)
    with ThreadPoolExecutor(workers) as pool:
        parts = pool.map(
            lambda part: np.bincount(part, minlength=longest + 1), np.array_split(array, workers)
        )
        total: IntArray = np.sum(list(parts), axis=0)
    return total


def _raw_array(lengths: LengthsLike, name: str) -> npt.NDArray[Any]:
    if isinstance(lengths, str | bytes | Mapping) or not isinstance(lengths, Iterable):
        raise LedgerError(f"{name} is {_shown(lengths)}; a sequence of whole numbers is accepted")
    if not hasattr(lengths, "__array__") and not isinstance(lengths, list | tuple):
        lengths = list(lengths)
    if isinstance(lengths, list | tuple) and any(
        isinstance(v, bool | str | bytes) or v is None for v in lengths
    ):
        return np.array(lengths, dtype=object)  # NumPy would turn [True, 2] into [1, 2]
    try:
        array = np.asarray(lengths)
    except (ValueError, OverflowError, TypeError):
        array = np.empty(0)
        raise LedgerError(f"{name} is {_shown(lengths)}; one whole number a request") from None
    if array.ndim != 1:
        raise LedgerError(f"{name} has shape {array.shape}; one whole number a request is accepted")
    if not array.size:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind == "f" and isinstance(lengths, list | tuple):
        return np.array(lengths, dtype=object)  # exact: no rounding through a float
    return array


def _raise_first(array: npt.NDArray[Any], bad: npt.NDArray[Any], name: str, accepted: str) -> None:
    if bool(bad.any()):
        index = int(np.argmax(bad))
        raise LedgerError(f"{name}[{index}] is {_shown(array[index].item())}; {accepted}")


def _shown(value: object) -> str:
    if value is None:
        return "missing"
    if isinstance(value, float) and value != value:
        return "missing (NaN)"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."
