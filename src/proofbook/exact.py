"""Exact values as JSON has them: no digit lost, nothing that another program reads otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

__all__ = ["exact", "json_text"]


def exact(value: object) -> Any:
    """Turn a result into what JSON holds: whole numbers as they are, fractions as texts.

    Named tuples and data classes become objects. A float stays a float; one that is not finite
    has no digits, and becomes null.

    Examples
    --------
    >>> exact({"c": Fraction(3, 14), "pages": 10, "end": float("inf")})
    {'c': '3/14', 'pages': 10, 'end': None}
    """
    if isinstance(value, Mapping):
        return {str(key): exact(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: exact(item) for name, item in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: exact(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return exact(value.item())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def json_text(document: object) -> str:
    r"""Return a document as JSON in ASCII, which no terminal obeys.

    Examples
    --------
    >>> json_text({"c": Fraction(3, 14)})
    '{\\n "c": "3/14"\\n}'
    """
    return json.dumps(exact(document), indent=1, allow_nan=False)
