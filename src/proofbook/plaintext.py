"""Plain text: names from outside made safe to show, lists and counts, exact values as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any


def printable(text: str) -> str:
    r"""Write out the characters that cannot be printed: controls, line ends, directions of text.

    Examples
    --------
    >>> print(printable("sales\x1b[2J\n.csv"))
    sales\x1b[2J\n.csv
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def shown_name(text: str) -> str:
    r"""Return a name as one line without spaces around it, never blank.

    Examples
    --------
    >>> shown_name("  my sales.csv "), shown_name("\n"), shown_name("  ")
    ('my sales.csv', '\\n', 'unnamed')
    """
    return printable(text).strip() or "unnamed"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["3/14", "6/7", "2"]), listed(["2"]), listed([])
    ('3/14, 6/7 and 2', '2', '')
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(n: int, noun: str) -> str:
    """Return a count and what is counted, in the plural unless it is one.

    Examples
    --------
    >>> counted(1, "shop"), counted(1200, "part")
    ('1 shop', '1,200 parts')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def exact(value: object, *, floats: bool = True) -> Any:
    """Turn a result into what JSON holds: whole numbers as they are, fractions as texts.

    Named tuples and data classes become objects. A float stays a float; one that is not finite
    has no digits, and becomes null. Without `floats` each is a text, as Python writes it.

    Examples
    --------
    >>> exact({"c": Fraction(3, 14), "parts": 10, "end": float("inf")})
    {'c': '3/14', 'parts': 10, 'end': None}
    """
    if isinstance(value, Mapping):
        return {str(key): exact(item, floats=floats) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return exact(value._asdict(), floats=floats)
    if is_dataclass(value) and not isinstance(value, type):
        each = {field.name: getattr(value, field.name) for field in fields(value)}
        return exact(each, floats=floats)
    if isinstance(value, list | tuple):
        return [exact(item, floats=floats) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return exact(value.item(), floats=floats)
    if isinstance(value, float) and not floats:
        return repr(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def json_text(document: object) -> str:
    r"""Return a document as JSON in ASCII, which no terminal obeys.

    Examples
    --------
    >>> json_text({"c": Fraction(3, 14)})
    '{\n "c": "3/14"\n}'
    """
    return json.dumps(exact(document), indent=1, allow_nan=False)
