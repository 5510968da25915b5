"""Which columns the tables have, in CSV and in Parquet alike, and how their times are written."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX
from kvledger.traces.forms import (
    TRACE_FORMATS,
    Rows,
    Tally,
    format_list,
    listed,
    nanosecond_rounded,
)


class Table(NamedTuple):
    """Columns of one format. Every required column is named here and nowhere else."""

    prompt: str
    output: str | None
    time: str | None = None
    time_is_date: bool = False
    time_required: bool = True
    total: str | None = None
    zero_output_failed: bool = False

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that a file must have."""
        time = self.time if self.time_required else None
        return tuple(c for c in (time, self.prompt, self.output) if c is not None)

    def used(self, columns: list[str]) -> dict[str, int]:
        """Return which column holds the prompt, the output, the time and the total."""
        names = {
            "prompt": self.prompt, "output": self.output, "time": self.time, "total": self.total,
        }  # fmt: skip
        return {role: columns.index(name) for role, name in names.items() if name in columns}


TABLES: dict[str, Table] = {
    "azure": Table("ContextTokens", "GeneratedTokens", "TIMESTAMP", time_is_date=True),
    "burstgpt": Table("Request tokens", "Response tokens", "Timestamp", zero_output_failed=True),
    "prefill_decode": Table(
        "num_prefill_tokens",
        "num_decode_tokens",
        "arrived_at",
        time_required=False,
        total="num_total_tokens",
    ),
    "tokens": Table("prompt_tokens", "output_tokens", "arrival_s", time_required=False),
}
KNOWN_COLUMNS = frozenset(column for table in TABLES.values() for column in table.required)

NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
DATE = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\s*", re.ASCII
)
# A first line such as 1O24 or nan is a length gone wrong, not the name of a column.
_A_NAME = re.compile(r"[^\W\d_]")
_NO_NAMES = frozenset({"nan", "na", "n/a", "none", "null", "inf", "infinity", "true", "false"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Columns(NamedTuple):
    """Some rows as they were read: times in seconds, or in nanoseconds where they are dates."""

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    time: NDArray[Any] | None

    def goes_back(self, last_time: float | int | None) -> bool:
        """Tell whether a time is before the one ahead of it, of these rows or the last one."""
        if self.time is None or not len(self.time):
            return False
        if last_time is not None and bool(self.time[0] < last_time):
            return True
        return bool((self.time[1:] < self.time[:-1]).any())


class Selection:
    """Makes requests of columns: leaves out those that failed, and counts time from the first."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._first_time: float | int | None = None
        self.tally = Tally()

    def rows(self, columns: Columns) -> Rows:
        """Return the requests that did not fail."""
        prompt, output, time = columns
        if self._table.zero_output_failed:
            kept = output > 0
            self.tally.fail(f"{self._table.output} is 0", int((~kept).sum()))
            prompt, output = prompt[kept], output[kept]
            time = None if time is None else time[kept]
        if time is None:
            return Rows(prompt, output)
        if self._first_time is None and len(time):
            self._first_time = time[0].item()
        if time.dtype.kind == "i":  # nanoseconds; the difference first, which is exact
            return Rows(prompt, output, (time - (self._first_time or 0)) / 1e9)
        return Rows(prompt, output, nanosecond_rounded(time - (self._first_time or 0)))


def table_of(where: str, format: str, columns: list[str], *, has_header: bool = True) -> Table:
    """Return the columns of a format, all of which are there."""
    if format == "lengths":
        if len(columns) != 1:
            raise LedgerError(
                f"{where}: {len(columns)} columns; accepted as lengths: {TRACE_FORMATS['lengths']}"
            )
        return Table(columns[0], None)
    table = TABLES[format]
    missing = [column for column in table.required if column not in columns]
    if missing:
        found = listed(columns) if has_header else "no header"
        raise LedgerError(
            f"{where}: column {missing[0]!r} is missing "
            f"(found: {found}); accepted as {format}: {TRACE_FORMATS[format]}"
        )
    for i in table.used(columns).values():
        if columns.count(columns[i]) > 1:
            raise LedgerError(f"{where}: column {columns[i]!r} is there twice; accepted: once")
    return table


def table_format(where: str, columns: list[str]) -> str:
    """Find the format that has these columns."""
    found = {
        name: sum(column in columns for column in table.required) for name, table in TABLES.items()
    }
    best = max(found, key=lambda name: found[name])
    if found[best] > 0:
        return best  # a missing column is reported against the format that is nearest
    if len(columns) == 1 and _A_NAME.match(columns[0]) and columns[0].lower() not in _NO_NAMES:
        return "lengths"
    raise LedgerError(
        f"{where}: no known trace has the columns {listed(columns)}; accepted:\n{format_list()}"
    )


def accepted_time(is_date: bool) -> str:
    """Say which times are accepted."""
    if is_date:
        return "a date such as 2023-11-16 18:17:03.9799600"
    return "seconds, a finite number"


def seconds_of(text: str) -> float | None:
    """Return a number of seconds; None where it is no finite number."""
    if NUMBER.fullmatch(text) is None:  # float() would also take 1_0 and nan
        return None
    seconds = float(text)
    return seconds if math.isfinite(seconds) else None


def date_nanoseconds(text: str) -> int | None:
    """Return nanoseconds since 1970 of an ISO date, exactly; None where it is no date."""
    match = DATE.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}")
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    nanoseconds = seconds * 10**9 + int((fraction or "").ljust(9, "0"))
    return nanoseconds if abs(nanoseconds) <= INT64_MAX else None
