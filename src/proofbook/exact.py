"""Exact values as JSON has them: no digit lost, nothing that another program reads otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

__all__ = ["exact", "json_text"]


def exact(value: object, *, floats: bool = True) -> Any:
    """Turn a result into what JSON holds: whole numbers as they are, fractions as texts.

    Named tuples and data classes become objects. A float stays a float; one that is not finite
    has no digits, and becomes null. Without `floats` each is a text, as Python writes it.

    Examples
    --------
    >>> exact({"c": Fraction(3, 14), "pages": 10, "end": float("inf")})
    {'c': '3/14', 'pages': 10, 'end': None}
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
