"""The exact value of a number and its unit, as texts that another program can use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from proofbook.claims import Claim
from proofbook.errors import InputError
from proofbook.formats import exact_value

__all__ = ["TEXT", "UNIT_OF_WORD", "Quantity", "float_text", "quantity"]

TEXT = "text"
PERCENT = "%"

#: Last words of an id that say its unit with certainty, by the names that this project gives.
UNIT_OF_WORD: Mapping[str, str] = MappingProxyType(
    {
        "slots": "slots",
        "tokens": "tokens",
        "pages": "pages",
        "bytes": "bytes",
        "requests": "requests",
        "steps": "steps",
        "page_size": "slots",
        "c": "slots a page",
    }
)


class Quantity(NamedTuple):
    """A value, exact, in the unit that is named beside it."""

    value: str
    unit: str


def quantity(
    id: str,
    value: object,
    fmt: str | None = None,
    *,
    unit: str | None = None,
    claim: Claim | None = None,
) -> Quantity:
    """Return a number's exact value with its unit.

    Parameters
    ----------
    id : str
        The number's id; its last word may say the unit.
    value : int, Fraction, Decimal, float, NumPy scalar or str
        The number.
    fmt : str, optional
        The format it is shown in. One in percent makes the value one in percent.
    unit : str, optional
        What it is counted in; empty for a pure number. It may be left out where the claim, the
        format or the id says it.
    claim : Claim, optional
        What is published under the id.

    Returns
    -------
    Quantity
        A fraction as ``153/4``, a float with twelve significant digits; ``text`` is the unit of
        words.

    Raises
    ------
    InputError
        If nothing says the unit, or two things say different ones.

    Examples
    --------
    >>> from fractions import Fraction
    >>> quantity("paged.mean_slots", Fraction(153, 4))
    Quantity(value='153/4', unit='slots')
    >>> quantity("slack.share", Fraction(183, 500), ".1%")
    Quantity(value='183/5', unit='%')
    >>> quantity("workload.name", "Azure code")
    Quantity(value='Azure code', unit='text')
    >>> quantity("slack.near", 64)
    Traceback (most recent call last):
    ...
    proofbook.errors.InputError: slack.near: no unit; accepted: unit='...' ('' for a pure number), \
or an id that ends in slots, tokens, pages, bytes, requests, steps, page_size, c
    """
    if unit is not None and (not isinstance(unit, str) or unit != " ".join(unit.split())):
        raise InputError(f"{id}: unit {unit!r}; accepted: one line of text, '' for a pure number")
    known = _known_unit(value, fmt, claim)
    if known is not None and unit not in (None, known):
        raise InputError(f"{id}: unit {unit!r}, but it is known to be {known!r}; leave it out")
    found = known if known is not None else unit
    if found is None:
        found = next((u for word, u in UNIT_OF_WORD.items() if _ends_in(id, word)), None)
    if found is None:
        raise InputError(
            f"{id}: no unit; accepted: unit='...' ('' for a pure number), or an id that ends in "
            f"{', '.join(UNIT_OF_WORD)}"
        )
    return Quantity(_value_text(id, value, in_percent=_in_percent(fmt)), found)


def float_text(value: float | np.floating) -> str:
    """Return a float with twelve digits: enough to redraw, few enough that a last bit is hidden.

    Examples
    --------
    >>> float_text(0.1 + 0.2)
    '0.3'
    """
    return format(float(value), ".12g")


def _known_unit(value: object, fmt: str | None, claim: Claim | None) -> str | None:
    if claim is not None:
        return claim.unit
    if isinstance(value, str):
        return TEXT
    if _in_percent(fmt):
        return PERCENT
    return "bytes" if fmt == "bytes" else None


def _in_percent(fmt: object) -> bool:
    return isinstance(fmt, str) and fmt.endswith(PERCENT)


def _ends_in(id: str, word: str) -> bool:
    return id == word or id.endswith((f".{word}", f"_{word}"))


def _value_text(id: str, value: object, *, in_percent: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float | np.floating):
        return float_text(float(value) * 100 if in_percent else value)
    exact = exact_value(value, id)
    if exact is None:
        raise InputError(f"{id}: {value!r} ({type(value).__name__}); accepted: a number or a text")
    return str(exact * 100 if in_percent else exact)
