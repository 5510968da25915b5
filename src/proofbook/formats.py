"""Numbers as text: one small format language, exact until a format asks to round."""

from __future__ import annotations

import math
import numbers
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd

from proofbook.errors import InputError

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"

_FORMAT = re.compile(r"(?P<sign>\+?)(?P<comma>,?)(\.(?P<digits>\d+))?(?P<type>[dfg%])")
_ACCEPTED = (
    "None, 'fraction', 'bytes', or [+][,][.digits] and one of d f g % "
    "(such as ',d' '.2f' '.1%' '.3g')"
)
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def exact_value(value: object, name: str) -> Fraction:
    """Return the exact value of any finite real number, to the last bit.

    Raises
    ------
    InputError
        For anything else, a truth value too, which the message calls by `name`.

    Examples
    --------
    >>> exact_value(38.25, "cost")
    Fraction(153, 4)
    """
    if isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name}: {value!r} is a truth value; accepted: a number or a text")
    if isinstance(value, Decimal) and value.is_finite():
        return Fraction(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            raise InputError(f"{name}: {value!r}; accepted: a finite number")
        return Fraction(value)
    raise InputError(
        f"{name}: {value!r} ({type(value).__name__}); accepted: int, Fraction, Decimal, "
        "float, NumPy number or str"
    )


def float_text(value: float | np.floating) -> str:
    """Return a float with twelve digits: enough to redraw, few enough that a last bit is hidden."""
    return format(float(value), ".12g")


def _fixed(value: Fraction, digits: int, comma: bool, plus: bool) -> str:
    """Decimal text with `digits` places, rounded half to even from the exact value."""
    scaled = round(value * 10**digits)
    whole, part = divmod(abs(scaled), 10**digits)
    text = f"{whole:,}" if comma else str(whole)
    if digits:
        text += f".{part:0{digits}d}"
    sign = MINUS if scaled < 0 else "+" if plus and scaled > 0 else ""
    return sign + text


def _significant(value: Fraction, digits: int, comma: bool, plus: bool) -> str:
    """Decimal text with `digits` significant digits, never an exponent."""
    if value == 0:
        return "0"
    places = digits
    size = abs(value)
    # The exact position of the first digit; logarithms of floats can be one off.
    while round(size * Fraction(10) ** places) >= 10**digits:
        places -= 1
    while round(size * Fraction(10) ** (places + 1)) < 10**digits:
        places += 1
    if places >= 0:
        return _fixed(value, places, comma, plus)
    rounded = round(value / 10**-places) * 10**-places
    return _fixed(Fraction(rounded), 0, comma, plus)


def _in_bytes(value: Fraction, name: str) -> str:
    if value.denominator != 1:
        raise InputError(f"{name}: {value} bytes; accepted: a whole number of bytes")
    fitting = (n for n in range(1, len(_BYTE_UNITS)) if abs(value) >= 1024**n)
    unit = max(fitting, default=0)
    text = _fixed(value / 1024**unit, 2 if unit else 0, True, False)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text}\N{NO-BREAK SPACE}{_BYTE_UNITS[unit]}"


def format_value(value: object, fmt: str | None = None, *, name: str = "value") -> str:
    """Text of a number: exact where it can be, rounded only where `fmt` asks.

    Parameters
    ----------
    value : int, Fraction, Decimal, float, NumPy scalar or str
        What to show. A text is shown as it is.
    fmt : str, optional
        One of

        * None: integers in full, in groups of three from 10,000 up; fractions as a
          decimal when four places show them exactly; floats are refused;
        * ``[+][,][.digits]`` and one of ``d`` (a whole number), ``f`` (that many
          decimals), ``g`` (that many significant digits, no exponent), ``%`` (times one
          hundred, with the sign): ``",d"``, ``".2f"``, ``".3g"``, ``".1%"``;
        * ``"fraction"``: numerator and denominator, ``3/14``;
        * ``"bytes"``: whole bytes in the largest fitting IEC unit, at most two decimals.

        Rounding is half to even, from the exact value.
    name : str
        What the error message calls the value.

    Returns
    -------
    str
        The text. A negative number has a true minus sign.

    Raises
    ------
    InputError
        For a value or a format outside of this language, or two that do not go together.

    Examples
    --------
    >>> format_value(9000), format_value(524288), format_value(Fraction(153, 4))
    ('9000', '524,288', '38.25')
    >>> format_value(Fraction(3, 14), "fraction"), format_value(Fraction(3, 14), ".3g")
    ('3/14', '0.214')
    >>> format_value(0.366, ".1%"), format_value(57344, "bytes").replace(chr(160), " ")
    ('36.6%', '56 KiB')
    """
    if isinstance(value, str):
        if fmt is not None:
            raise InputError(f"{name}: format {fmt!r} given for the text {value!r}")
        if not value.strip() or value != value.strip() or "\n" in value:
            raise InputError(f"{name}: {value!r}; accepted: one line of text, not blank")
        return value
    exact = exact_value(value, name)
    if fmt is None:
        # Decimal places that show it exactly, if four are enough.
        places = next((p for p in range(5) if (exact * 10**p).denominator == 1), None)
        if places is None or isinstance(value, (float, np.floating)):
            raise InputError(f"{name}: {value!r} needs a format; accepted: {_ACCEPTED[6:]}")
        return _fixed(exact, places, abs(exact) >= 10_000, False)
    if fmt == "fraction":
        return str(exact).replace("-", MINUS)
    if fmt == "bytes":
        return _in_bytes(exact, name)
    found = _FORMAT.fullmatch(fmt) if isinstance(fmt, str) else None
    if found is None:
        raise InputError(f"{name}: format {fmt!r}; accepted: {_ACCEPTED}")
    comma, plus, digits = bool(found["comma"]), bool(found["sign"]), found["digits"]
    if found["type"] == "d":
        if digits is not None or exact.denominator != 1:
            raise InputError(f"{name}: {value!r} with format {fmt!r}; accepted: a whole number")
        return _fixed(exact, 0, comma, plus)
    if digits is None or (found["type"] == "g" and int(digits) == 0):
        raise InputError(f"{name}: format {fmt!r} does not say how many digits")
    if found["type"] == "g":
        return _significant(exact, int(digits), comma, plus)
    if found["type"] == "%":
        return _fixed(exact * 100, int(digits), comma, plus) + "%"
    return _fixed(exact, int(digits), comma, plus)


def is_missing(value: object) -> bool:
    """Tell whether a cell of a frame holds no value: None, NaN, NA or NaT."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    return isinstance(value, (float, np.floating)) and math.isnan(value)
