"""Make frozen dataclasses of what JSON holds, and name the field that does not fit."""

from __future__ import annotations

import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from kvledger.core.errors import LedgerError

T = TypeVar("T")

_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    type(None): "null",
}


def build(kind: type[T], value: object, where: str) -> T:
    """Make a dataclass, and those within it, from what :func:`json.loads` returned.

    Parameters
    ----------
    kind : type
        A dataclass of texts, numbers, truth values, None, dataclasses, tuples of one kind and
        dicts. A field with a default may be missing; one of which the metadata says
        ``"kept": False`` must be.
    value : object
        What stands in the file.
    where : str
        Where it stands, such as ``"timings[3]"``; empty for the whole.

    Raises
    ------
    LedgerError
        Names the field, its value and what is accepted.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Copy:
    ...     bytes: int
    ...     seconds: tuple[float, ...]
    >>> build(Copy, {"bytes": 8, "seconds": [0.5, 1]}, "copy")
    Copy(bytes=8, seconds=(0.5, 1.0))
    >>> build(Copy, {"bytes": 8, "seconds": [0.5, "1"]}, "copy")
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: copy.seconds[1] is '1'; accepted: a finite number
    """
    return cast(T, _value(kind, value, where))


def refuse(where: str, value: object, accepted: str) -> NoReturn:
    """Raise the one error of a field."""
    shown = repr(value)
    if len(shown) > 80:
        shown = f"{shown[:77]}..."
    raise LedgerError(f"{where} is {shown}; accepted: {accepted}")


def _value(kind: Any, value: object, where: str) -> object:
    if is_dataclass(kind):
        return _dataclass(cast(type, kind), value, where)
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        options = get_args(kind)
        if value is None and type(None) in options:
            return None
        return _value(next(each for each in options if each is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            refuse(where, value, "a list")
        inner = get_args(kind)[0]
        return tuple(_value(inner, each, f"{where}[{i}]") for i, each in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            refuse(where, value, "an object")
        inner = get_args(kind)[1]
        return {key: _value(inner, each, f"{where}.{key}") for key, each in value.items()}
    return value if kind is object else _plain(kind, value, where)


def _plain(kind: type, value: object, where: str) -> object:
    if kind is float and type(value) in (int, float):
        number = float(cast(float, value))
        if math.isfinite(number):
            return number
    elif type(value) is kind:  # not isinstance: true is no number
        return value
    refuse(where, value, _WORDS[kind])


def _dataclass(kind: type, value: object, where: str) -> object:
    if not isinstance(value, dict):
        refuse(where or "the whole", value, "an object")
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind) if each.metadata.get("kept", True)}
    prefix = f"{where}." if where else ""
    for name in value:
        if name not in known:
            refuse(f"{prefix}{name}", value[name], f"the fields {', '.join(known)}")
    for name, each in known.items():
        if name not in value and each.default is MISSING:
            raise LedgerError(f"{prefix}{name} is missing; accepted: {_accepted(hints[name])}")
    return kind(
        **{
            name: _value(hints[name], value[name], f"{prefix}{name}")
            for name in known & value.keys()
        }
    )


def _accepted(kind: Any) -> str:
    return _WORDS.get(kind, "a value")
