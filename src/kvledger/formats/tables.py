"""Traces that are tables (CSV) or plain lists of lengths."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Never

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kvledger.errors import LedgerError
from kvledger.formats.common import (
    TRACE_FORMATS,
    Requests,
    format_list,
    seconds_from_first,
    shown,
)
from kvledger.formats.reading import Block, chain_blocks
from kvledger.lengths import INT64_MAX


class _Table(NamedTuple):
    """Columns of one CSV format. Every required column is named here and nowhere else."""

    prompt: str
    output: str | None
    time: str | None = None
    time_is_date: bool = False
    time_required: bool = True
    total: str | None = None
    zero_output_failed: bool = False

    @property
    def required(self) -> tuple[str, ...]:
        time = self.time if self.time_required else None
        return tuple(c for c in (time, self.prompt, self.output) if c is not None)


TABLES: dict[str, _Table] = {
    "azure": _Table("ContextTokens", "GeneratedTokens", "TIMESTAMP", time_is_date=True),
    "burstgpt": _Table("Request tokens", "Response tokens", "Timestamp", zero_output_failed=True),
    "prefill_decode": _Table(
        "num_prefill_tokens",
        "num_decode_tokens",
        "arrived_at",
        time_required=False,
        total="num_total_tokens",
    ),
    "tokens": _Table("prompt_tokens", "output_tokens", "arrival_s", time_required=False),
}

_WHOLE = re.compile(r"\s*[+-]?\d+(?:\.0*)?\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_DATE = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\s*", re.ASCII
)
# A first line such as 1O24 or nan is a length gone wrong, not the name of a column.
_A_NAME = re.compile(r"[^\W\d_]")
_NO_NAMES = frozenset({"nan", "na", "n/a", "none", "null", "inf", "infinity", "true", "false"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Rows(NamedTuple):
    """Rows of one block: times in seconds, or in nanoseconds where they are dates."""

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    time: NDArray[Any] | None


class _TableReader:
    """Reads one CSV file, block by block.

    A block goes through the pandas C parser. One that is not plainly right is read again row by
    row, which is slow and says exactly what is wrong.
    """

    def __init__(self, path: Path, table: _Table, columns: list[str], has_header: bool) -> None:
        self.path = path
        self.table = table
        self.columns = columns
        self.has_header = has_header
        time = table.time if table.time in columns else None
        self.used = {
            role: columns.index(column)
            for role, column in (
                ("prompt", table.prompt),
                ("output", table.output),
                ("time", time),
                ("total", table.total),
            )
            if column is not None and column in columns
        }
        self.last_time: float | int | None = None

    def rows(self, block: Block) -> _Rows:
        rows = self._fast(block)
        if rows is None:
            rows = self._row_by_row(block)
        if rows.time is not None and len(rows.time):
            self.last_time = rows.time[-1].item()
        return rows

    def _fast(self, block: Block) -> _Rows | None:
        """Return the rows, or None when anything at all is unusual."""
        if b'"' in block.data:
            return None
        # Times as text: the C parser's own reading of a float may be off in the last digit.
        # Counts by inference: asked for integers, the parser would also take True and 1e3.
        dtype = {self.used["time"]: str} if "time" in self.used else None
        try:
            frame = pd.read_csv(
                BytesIO(block.data),
                header=None,
                names=list(range(len(self.columns))),
                usecols=sorted(self.used.values()),
                dtype=dtype,
                na_filter=False,
                index_col=False,
                low_memory=False,
            )
        except (ValueError, OverflowError):  # pandas.errors.ParserError is a ValueError
            return None
        if block.data.count(b",") != len(frame) * (len(self.columns) - 1):
            return None  # some line has too few fields
        counts = [self.used[role] for role in ("prompt", "output", "total") if role in self.used]
        if not all(frame[column].dtype == np.int64 for column in counts):
            return None
        prompt = frame[self.used["prompt"]].to_numpy(np.int64)
        output = (
            frame[self.used["output"]].to_numpy(np.int64)
            if "output" in self.used
            else np.zeros_like(prompt)
        )
        kept = output > 0 if self.table.zero_output_failed else np.ones(len(output), bool)
        if (prompt[kept] < 1).any() or (prompt < 0).any() or (output < 0).any():
            return None
        if (prompt > INT64_MAX - output).any():
            return None
        if (
            "total" in self.used
            and (frame[self.used["total"]].to_numpy(np.int64) != prompt + output).any()
        ):
            return None
        time: NDArray[Any] | None = None
        if "time" in self.used:
            time = _fast_times(frame[self.used["time"]], self.table.time_is_date)
            if time is None:
                return None
            before = time[:1] if self.last_time is None else np.array([self.last_time])
            if bool((np.diff(np.concatenate((before, time))) < 0).any()):
                return None
        return _Rows(prompt, output, time)

    def _row_by_row(self, block: Block) -> _Rows:
        prompts: list[int] = []
        outputs: list[int] = []
        times: list[float | int] = []
        last_time = self.last_time
        for line, text in enumerate(block.data.decode("utf-8").split("\n"), block.first_line):
            if not text.strip():
                continue
            fields = self._fields(text, line)
            output = self._whole(fields, "output", line, 0) if "output" in self.used else 0
            failed = self.table.zero_output_failed and output == 0
            prompt = self._whole(fields, "prompt", line, 0 if failed else 1)
            if prompt + output > INT64_MAX:
                self._fail(
                    line, "the total", f"{prompt} + {output}", f"at most {INT64_MAX} (64 bits)"
                )
            if "total" in self.used:
                total = self._whole(fields, "total", line, 1)
                if total != prompt + output:
                    self._fail(
                        line,
                        self._name("total"),
                        str(total),
                        f"the sum of prompt and output, {prompt} + {output}",
                    )
            if "time" in self.used:
                time = self._time(fields, line)
                if last_time is not None and time < last_time:
                    self._fail(
                        line,
                        self._name("time"),
                        fields[self.used["time"]].strip(),
                        "a time that is not before the line ahead of it",
                    )
                last_time = time
                times.append(time)
            prompts.append(prompt)
            outputs.append(output)
        time_dtype: type[Any] = np.int64 if self.table.time_is_date else np.float64
        return _Rows(
            np.array(prompts, np.int64),
            np.array(outputs, np.int64),
            np.array(times, time_dtype) if "time" in self.used else None,
        )

    def _fields(self, text: str, line: int) -> list[str]:
        try:
            fields = next(csv.reader([text.rstrip("\r")], strict=True))
        except csv.Error as error:
            raise LedgerError(
                f"{self.path}, line {line}: not CSV ({error}); accepted: CSV"
            ) from None
        n = len(self.columns)
        if len(fields) != n:
            columns = ",".join(self.columns) if self.has_header else "one length"
            cut = " (is the line cut?)" if len(fields) < n else ""
            raise LedgerError(
                f"{self.path}, line {line}: {len(fields)} fields in {text.rstrip()!r}{cut}; "
                f"accepted: {n} ({columns})"
            )
        return fields

    def _name(self, role: str) -> str:
        return self.columns[self.used[role]]

    def _whole(self, fields: list[str], role: str, line: int, minimum: int) -> int:
        text = fields[self.used[role]].strip()
        # Python refuses to read thousands of digits; nothing that long is accepted anyway.
        digits = text.split(".")[0] if _WHOLE.fullmatch(text) and len(text) < 100 else None
        if digits is None or not minimum <= int(digits) <= INT64_MAX:
            self._fail(
                line, self._name(role), text, f"a whole number from {minimum} to {INT64_MAX}"
            )
        return int(digits)

    def _time(self, fields: list[str], line: int) -> float | int:
        text = fields[self.used["time"]].strip()
        if self.table.time_is_date:
            nanoseconds = _date_nanoseconds(text)
            if nanoseconds is not None:
                return nanoseconds
            accepted = "a date such as 2023-11-16 18:17:03.9799600"
        else:
            if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
                return float(text)
            accepted = "seconds, a finite number"
        return self._fail(line, self._name("time"), text, accepted)

    def _fail(self, line: int, field: str, value: str, accepted: str) -> Never:
        what = f"is {shown(value)}" if value else "is missing"
        raise LedgerError(f"{self.path}, line {line}: {field} {what}; accepted: {accepted}")


def _fast_times(column: pd.Series[Any], is_date: bool) -> NDArray[Any] | None:
    """Return seconds, or nanoseconds where times are dates; None when any is unusual."""
    try:
        if not is_date:
            if not all(map(_NUMBER.fullmatch, column)):  # float() would also take 1_0 and nan
                return None
            seconds = column.to_numpy(object).astype(np.float64)
            return seconds if bool(np.isfinite(seconds).all()) else None
        if not all(map(_DATE.fullmatch, column)):  # pandas would cut a tenth digit off
            return None
        # A nanosecond is exact for the seven digits that the files carry.
        dates = pd.to_datetime(column, format="ISO8601", utc=True).dt.as_unit("ns")
    except (ValueError, OverflowError):
        return None
    return None if bool(dates.isna().any()) else dates.astype(np.int64).to_numpy()


def _date_nanoseconds(text: str) -> int | None:
    """Return nanoseconds since 1970 of an ISO date, exactly; None where it is no date."""
    match = _DATE.fullmatch(text)
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


def read_table(path: Path, blocks: Iterator[Block], first: Block, format: str | None) -> Requests:
    """Read a CSV file or a list of lengths, from its first block on."""
    header_line, columns, first = _header(path, first)
    has_header = header_line is not None
    if format is None:
        format = _table_format(path, header_line, columns)
    if format == "lengths":
        if len(columns) != 1:
            raise LedgerError(
                f"{path}, line {header_line or 1}: {len(columns)} columns; accepted as lengths: "
                f"{TRACE_FORMATS['lengths']}"
            )
        table = _Table(columns[0], None)
    else:
        table = TABLES[format]
        missing = [column for column in table.required if column not in columns]
        if missing:
            found = ", ".join(columns) if has_header else "no header"
            raise LedgerError(
                f"{path}, line {header_line or 1}: column {missing[0]!r} is missing "
                f"(found: {found}); accepted as {format}: {TRACE_FORMATS[format]}"
            )
    reader = _TableReader(path, table, columns, has_header)
    rows = [reader.rows(block) for block in chain_blocks(first, blocks)]
    if not any(len(r.prompt) for r in rows):
        raise LedgerError(
            f"{path}: a header and no requests; accepted: at least one line after the header"
        )
    prompt = np.concatenate([r.prompt for r in rows])
    output = np.concatenate([r.output for r in rows])
    kept = output > 0 if table.zero_output_failed else np.ones(len(output), bool)
    if not kept.any():
        raise LedgerError(
            f"{path}: all {len(kept)} requests failed ({table.output} is 0); "
            "accepted: at least one that did not"
        )
    arrival = None
    if "time" in reader.used:
        times = np.concatenate([r.time for r in rows if r.time is not None])
        arrival = seconds_from_first(times[kept])
    return Requests(prompt[kept], output[kept], arrival, failed=int((~kept).sum()))


def _header(path: Path, first: Block) -> tuple[int | None, list[str], Block]:
    """Return the header's line number, the columns, and the block without the header.

    A file whose first line is a number has no header: it is a list of lengths.
    """
    data, line = first.data, first.first_line
    while True:
        end = data.find(b"\n") + 1 or len(data)
        text = data[:end].decode("utf-8").strip()
        if text:
            break
        data, line = data[end:], line + 1
    if _NUMBER.fullmatch(text.split(",")[0]):
        # "5,9,17" on one line fails later with its line number: one length a line.
        return None, ["length"], Block(line, data)
    try:
        columns = [column.strip() for column in next(csv.reader([text], strict=True))]
    except csv.Error as error:
        raise LedgerError(f"{path}, line {line}: not CSV ({error}); accepted: CSV") from None
    return line, columns, Block(line + 1, data[end:])


def _table_format(path: Path, header_line: int | None, columns: list[str]) -> str:
    if header_line is None:
        return "lengths"
    found = {
        name: sum(column in columns for column in table.required) for name, table in TABLES.items()
    }
    best = max(found, key=lambda name: found[name])
    if found[best] == len(TABLES[best].required) or found[best] > 0:
        return best  # a missing column is reported against the format that is nearest
    if len(columns) == 1 and _A_NAME.match(columns[0]) and columns[0].lower() not in _NO_NAMES:
        return "lengths"
    raise LedgerError(
        f"{path}, line {header_line}: no known trace has the columns {', '.join(columns)}; "
        f"accepted:\n{format_list()}"
    )
