"""Bytes as people write them: ``60GB`` and ``60GiB`` differ, and both are read exactly."""

from __future__ import annotations

import re
from fractions import Fraction

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import INT64_MAX

UNITS: dict[str, int] = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGTP", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", 1)},
}
"""Bytes of each unit: powers of 1000 (kB, MB, GB, TB, PB) and of 1024 (KiB, MiB, GiB, TiB, PiB)."""

_BY_LOWER_CASE = {unit.lower(): size for unit, size in UNITS.items()}
_AMOUNT = re.compile(r"(?P<number>\d{1,30}(?:\.\d{1,30})?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)
_ACCEPTED = (
    "bytes as a whole number, or a number and a unit such as 60GB (powers of 1000) or 60GiB "
    "(powers of 1024)"
)


def parse_bytes(text: str | int, name: str = "bytes") -> int:
    """Read an amount of memory; what is less than a byte is rounded off.

    Parameters
    ----------
    text : str or int
        A number, maybe with decimals, and one of `UNITS`; bytes if there is none. Capitals do not
        matter, except that ``Gb`` is refused: it stands for bits.
    name : str
        What an error calls it.

    Raises
    ------
    LedgerError
        If it is no such amount, less than one byte, or beyond 64 bits.

    Examples
    --------
    >>> parse_bytes("60GB"), parse_bytes("60GiB"), parse_bytes("1.5 KiB")
    (60000000000, 64424509440, 1536)
    >>> parse_bytes("60G")
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: bytes is '60G'; say 60GB (powers of 1000) or 60GiB (powers of 1024)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    found = _AMOUNT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise LedgerError(f"{name} is {shown(text)}; accepted: {_ACCEPTED}")
    number, unit = found["number"], found["unit"] or "B"
    size = _BY_LOWER_CASE.get(unit.lower())
    if unit.lower().removesuffix("i") in ("k", "m", "g", "t", "p"):
        prefix = unit[0].upper()
        decimal = "kB" if prefix == "K" else f"{prefix}B"
        raise LedgerError(
            f"{name} is {shown(text)}; say {number}{decimal} (powers of 1000) or "
            f"{number}{prefix}iB (powers of 1024)"
        )
    if size is None:
        raise LedgerError(f"{name} is {shown(text)}; accepted: {_ACCEPTED}")
    if len(unit) > 1 and unit[-1] == "b" and unit != unit.lower():
        raise LedgerError(
            f"{name} is {shown(text)}, which could mean bits; accepted: {number}{unit[:-1]}B"
        )
    amount = int(Fraction(number) * size)
    if not 1 <= amount <= INT64_MAX:
        raise LedgerError(f"{name} is {shown(text)}; accepted: from 1 byte to {INT64_MAX}")
    return amount


def bytes_text(n_bytes: int) -> str:
    """Write bytes in the largest unit of 1024 that they fill, with two decimals at most.

    Examples
    --------
    >>> bytes_text(131072), bytes_text(60_000_000_000)
    ('128 KiB', '55.88 GiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = max(p for p in range(len(units)) if p == 0 or n_bytes >= 1024**p)
    text = f"{n_bytes / 1024**power:,.2f}".rstrip("0").rstrip(".")
    return f"{text} {units[power]}"
