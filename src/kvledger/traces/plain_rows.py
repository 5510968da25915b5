"""A table's plain rows parsed at the speed of memory: compiled, and without Python's lock.

Only what is plainly right is parsed: digits, dots and dates as the formats write them. At
anything else the answer is None, and the block is read row by row.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kvledger.traces.forms import Columns

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: What a column holds. The parser looks at nothing in an ignored one but where it ends.
IGNORED, SECONDS, DATE, PROMPT, OUTPUT, TOTAL = range(6)

_MOST_DIGITS = 18  # so that a sum of two numbers is within 64 bits
_EXACT = 2**53  # up to here an integer is a float, and a quotient of two floats is rounded once
_HARD_BYTES = 32
_POWERS = 10.0 ** np.arange(19)
_TENS = 10 ** np.arange(10)
_SPACE, _TAB, _CR, _LF, _QUOTE, _COMMA, _DOT = (ord(c) for c in ' \t\r\n",.')
_DASH, _COLON, _PLUS, _T, _Z, _DIGIT_0 = (ord(c) for c in "-:+TZ0")
# Less than zero wraps round in unsigned numbers: a digit is what is at most nine.
_ZERO, _NINE = np.uint8(ord("0")), np.uint8(9)
_NO_NUMBER = 1 << 20
_ONE = np.uint64(1)


def parse_table(
    data: bytes, roles: NDArray[np.int8], *, zero_output_failed: bool = False
) -> Columns | None:
    r"""Parse rows of comma-separated values, or return None if any is unusual.

    The data are whole lines without a header, ``roles`` what each column holds. Where
    ``zero_output_failed``, a request without output failed, and its prompt may be 0.

    Examples
    --------
    >>> roles = np.array([PROMPT, IGNORED, OUTPUT], np.int8)
    >>> parse_table(b"7,GPT-4,2\n8,,1\n", roles).output.tolist()
    [2, 1]
    """
    is_date, is_seconds = bool((roles == DATE).any()), bool((roles == SECONDS).any())
    most = len(data) // (len(roles) + 1) + 1  # a row has a digit, its commas and its line's end
    prompt, output = np.empty((2, most), np.int64)
    dates = np.empty(most if is_date else 0, np.int64)
    most_hard = most if is_seconds else 0
    seconds, hard = np.empty(most_hard), np.empty(most_hard, np.int64)
    text = np.empty((most_hard, _HARD_BYTES), np.uint8)
    bytes_ = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    rows, n_hard = _parse(
        bytes_, roles, zero_output_failed, prompt, output, seconds, dates, hard, text
    )
    if rows < 0:
        return None
    if n_hard:
        # NumPy reads a text as Python does, correctly rounded.
        seconds[hard[:n_hard]] = text[:n_hard].view(f"S{_HARD_BYTES}")[:, 0].astype(np.float64)
    time = dates[:rows] if is_date else seconds[:rows] if is_seconds else None
    return Columns(prompt[:rows], output[:rows], time)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _parse(
    data: Bytes,
    roles: NDArray[np.int8],
    zero_output_failed: bool,
    prompts: Ints,
    outputs: Ints,
    seconds: NDArray[np.float64],
    dates: Ints,
    hard: Ints,
    text: Bytes,
) -> tuple[int, int]:
    """Fill the columns; return how many rows there are (-1: not plain) and how many hard times."""
    # The data ends with a line feed, at which every loop over its bytes stops.
    end = np.uint64(len(data))
    at: Any = np.uint64(0)  # unsigned: no test for an index from the end
    columns = len(roles)
    rows = n_hard = 0
    while at < end:
        if data[at] == _CR and data[at + _ONE] == _LF:
            at += _ONE
        if data[at] == _LF:
            at += _ONE
            continue
        prompt = output = 0
        total = -1
        for column in range(columns):
            role = roles[column]
            if role == IGNORED:
                while data[at] != _COMMA and data[at] != _LF and data[at] != _CR:
                    if data[at] == _QUOTE:
                        return -1, 0
                    at += _ONE
            else:
                if data[at] <= _SPACE:
                    at = _behind_blanks(data, at)
                start = at
                if role >= PROMPT:  # a whole number
                    at, number, digits = _digits(data, at, 0)
                    if digits > _MOST_DIGITS:
                        return -1, 0
                    if digits and data[at] == _DOT:
                        at += _ONE
                        while data[at] == _DIGIT_0:
                            at += _ONE
                    if role == PROMPT:
                        prompt = number
                    elif role == OUTPUT:
                        output = number
                    else:
                        total = number
                elif role == DATE:
                    at, dates[rows] = _date(data, at)
                else:
                    at, seconds[rows], fits = _decimal(data, at)
                    if not fits:
                        length = np.int64(at - start)
                        if length > _HARD_BYTES:
                            return -1, 0
                        hard[n_hard] = rows
                        for place in range(_HARD_BYTES):
                            is_in = place < length
                            text[n_hard, place] = data[start + np.uint64(place)] if is_in else 0
                        n_hard += 1
                if at == start:
                    return -1, 0
            if data[at] <= _SPACE:
                at = _behind_blanks(data, at)
            if column < columns - 1:
                if data[at] != _COMMA:
                    return -1, 0
                at += _ONE
        if data[at] == _CR:
            at += _ONE
        if data[at] != _LF:
            return -1, 0
        at += _ONE
        if prompt < 1 and not (zero_output_failed and output == 0):
            return -1, 0
        if total >= 0 and total != prompt + output:
            return -1, 0
        prompts[rows] = prompt
        outputs[rows] = output
        rows += 1
    return rows, n_hard


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _behind_blanks(data: Bytes, at: Any) -> Any:
    while data[at] == _SPACE or data[at] == _TAB:
        at += _ONE
    return at


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _digits(data: Bytes, at: Any, number: Any) -> tuple[Any, Any, Any]:
    """Append digits to a number, which wraps if they are too many; return how many they are."""
    start = at
    digit = data[at] - _ZERO
    while digit <= _NINE:
        number = number * 10 + np.int64(digit)
        at += _ONE
        digit = data[at] - _ZERO
    return at, number, np.int64(at - start)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _decimal(data: Bytes, at: Any) -> tuple[Any, float, bool]:
    """Read digits with or without a dot, if any, and tell if the value is exactly rounded."""
    start, places = at, 0
    at, number, digits = _digits(data, at, 0)
    if data[at] == _DOT:
        at, number, places = _digits(data, at + _ONE, number)
    if digits + places == 0:
        return start, 0.0, True
    if digits + places > _MOST_DIGITS or number > _EXACT:
        return at, 0.0, False
    return at, number / _POWERS[places], True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _two(data: Bytes, at: Any) -> Any:
    """Return the two digits there as a number, or one beyond all that a date has."""
    tens, ones = data[at] - _ZERO, data[at + _ONE] - _ZERO
    return 10 * np.int64(tens) + np.int64(ones) if tens <= _NINE and ones <= _NINE else _NO_NUMBER


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _date(data: Bytes, at: Any) -> tuple[Any, int]:
    """Read ``2023-11-16 18:17:03.9799600``, with or without a zone, as nanoseconds since 1970."""
    bad = at, 0  # the place behind none is the place before it
    end = np.uint64(len(data))
    if at + np.uint64(19) >= end:
        return bad
    year = 100 * _two(data, at) + _two(data, at + np.uint64(2))
    month, day = _two(data, at + np.uint64(5)), _two(data, at + np.uint64(8))
    hour, minute = _two(data, at + np.uint64(11)), _two(data, at + np.uint64(14))
    second = _two(data, at + np.uint64(17))
    middle = data[at + np.uint64(10)]
    if (
        data[at + np.uint64(4)] != _DASH
        or data[at + np.uint64(7)] != _DASH
        or (middle != _SPACE and middle != _T)
        or data[at + np.uint64(13)] != _COLON
        or data[at + np.uint64(16)] != _COLON
    ):
        return bad
    # Nanoseconds in 64 bits reach from 1677 to 2262.
    if not (1700 <= year <= 2200 and 1 <= month <= 12 and day >= 1):
        return bad
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    month_days = 28 + is_leap if month == 2 else 30 + (month + month // 8) % 2
    if day > month_days or hour > 23 or minute > 59 or second > 59:
        return bad
    at += np.uint64(19)
    nanoseconds: Any = 0
    if data[at] == _DOT:
        at, nanoseconds, places = _digits(data, at + _ONE, 0)
        if not 1 <= places <= 9:
            return bad
        nanoseconds *= _TENS[9 - places]
    east = 0  # minutes
    if data[at] == _Z:
        at += _ONE
    elif data[at] == _PLUS or data[at] == _DASH:
        sign = 1 if data[at] == _PLUS else -1
        if at + np.uint64(6) >= end:
            return bad
        hours = _two(data, at + _ONE)
        at += np.uint64(4) if data[at + np.uint64(3)] == _COLON else np.uint64(3)
        minutes = _two(data, at)
        at += np.uint64(2)
        if hours > 23 or minutes > 59:
            return bad
        east = sign * (60 * hours + minutes)
    # Days since 1970, of a year that begins in March, so that a leap day is its last.
    years = year - (month <= 2)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * years + years // 4 - years // 100 + years // 400 + of_year - 719468
    return at, (((days * 24 + hour) * 60 + minute - east) * 60 + second) * 10**9 + nanoseconds
