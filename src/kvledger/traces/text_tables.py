"""Traces in tables: which columns they have, how a row is checked, and those that are CSV.

A plain list of lengths is a table of one column, with or without a header.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, Never

import numpy as np
from numpy.typing import NDArray

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import INT64_MAX
from kvledger.traces.forms import (
    TRACE_FORMATS,
    Columns,
    Reading,
    Rows,
    RowStream,
    Tally,
    UnusableRowError,
    accepted_whole,
    format_list,
    mixed,
    name_list,
    nanosecond_rounded,
)
from kvledger.traces.streams import LONGEST_LINE_BYTES, Block, Source


class TableColumns(NamedTuple):
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


TABLES: dict[str, TableColumns] = {
    "azure": TableColumns("ContextTokens", "GeneratedTokens", "TIMESTAMP", time_is_date=True),
    "burstgpt": TableColumns(
        "Request tokens", "Response tokens", "Timestamp", zero_output_failed=True
    ),
    "prefill_decode": TableColumns(
        "num_prefill_tokens",
        "num_decode_tokens",
        "arrived_at",
        time_required=False,
        total="num_total_tokens",
    ),
    "tokens": TableColumns("prompt_tokens", "output_tokens", "arrival_s", time_required=False),
}
_KNOWN_COLUMNS = frozenset(column for table in TABLES.values() for column in table.required)

_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_WHOLE = re.compile(r"\s*[+-]?\d+(?:\.0*)?\s*", re.ASCII)
_DATE = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\s*", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEPARATORS = re.compile(r"[\s,]+")
_MISSING = re.compile(rb"(?:^|[,\n])[ \t\r]*,")
_TO_LINES = bytes.maketrans(b", \t", b"\n\n\n")
# A first line such as 1O24 or nan is a length gone wrong, not the name of a column.
_A_NAME = re.compile(r"[^\W\d_]")
_NO_NAMES = frozenset({"nan", "na", "n/a", "none", "null", "inf", "infinity", "true", "false"})
# Up to this many blocks are read row by row: importing the compiled parser takes longer.
_FEW_BLOCKS = 2


def format_and_table(
    where: str, format: str | None, columns: list[str], *, has_header: bool = True
) -> tuple[str, TableColumns]:
    """Return the format, found from the columns unless given, and its columns, all there."""
    if format is None:
        format = _format_of(where, columns) if has_header else "lengths"
    if format == "lengths":
        if len(columns) != 1:
            raise LedgerError(
                f"{where}: {len(columns)} columns; accepted as lengths: {TRACE_FORMATS['lengths']}"
            )
        return format, TableColumns(columns[0], None)
    table = TABLES[format]
    for column in table.required:
        if column not in columns:
            found = name_list(columns) if has_header else "no header"
            raise LedgerError(
                f"{where}: column {column!r} is missing "
                f"(found: {found}); accepted as {format}: {TRACE_FORMATS[format]}"
            )
    for i in table.used(columns).values():
        if columns.count(columns[i]) > 1:
            raise LedgerError(f"{where}: column {columns[i]!r} is there twice; accepted: once")
    return format, table


def _format_of(where: str, columns: list[str]) -> str:
    # A missing column is reported against the format that is nearest.
    found = {name: len(set(table.required) & set(columns)) for name, table in TABLES.items()}
    best = max(found, key=lambda name: found[name])
    if found[best] > 0:
        return best
    if len(columns) == 1 and _A_NAME.match(columns[0]) and columns[0].lower() not in _NO_NAMES:
        return "lengths"
    raise LedgerError(
        f"{where}: no known trace has the columns {name_list(columns)}; accepted:\n{format_list()}"
    )


def accepted_time(is_date: bool) -> str:
    """Say which times are accepted."""
    if is_date:
        return "a date such as 2023-11-16 18:17:03.9799600"
    return "seconds, a finite number"


def date_nanoseconds(text: str) -> int | None:
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


# --------------------------------------------------------------------------- rows of any table


@dataclass
class TableReader:
    """Checks the rows of one table, and makes requests of them.

    Most rows come as columns from a fast parser. Where these are not plainly right they come one
    by one as Python's values, which is slow and says exactly what is wrong.
    """

    label: str
    format: str
    table: TableColumns
    columns: list[str]
    tally: Tally
    has_header: bool = True
    several: bool = False  # numbers on a line
    unit: str = "row"

    def __post_init__(self) -> None:
        self.used = self.table.used(self.columns)
        self.has_nanoseconds = self.table.time_is_date
        self._first_time: float | int | None = None
        self._last_time: float | int | None = None

    def requests(self, parsed: Columns | None, slowly: Callable[[], Columns]) -> Rows:
        """Return the requests that did not fail, with times from the first row."""
        if parsed is None or self._goes_back(parsed.time):
            parsed = slowly()
        prompt, output, time = parsed
        if time is not None and len(time):
            self._last_time = time[-1].item()
        if self.table.zero_output_failed:
            kept = output > 0
            self.tally.fail(f"{self.table.output} is 0", int((~kept).sum()))
            prompt, output = prompt[kept], output[kept]
            time = None if time is None else time[kept]
        if time is None:
            return Rows(prompt, output)
        if self._first_time is None and len(time):
            self._first_time = time[0].item()
        since = time - (self._first_time or 0)  # exact, of nanoseconds
        arrival_s = since / 1e9 if self.has_nanoseconds else nanosecond_rounded(since)
        return Rows(prompt, output, arrival_s)

    def _goes_back(self, time: NDArray[Any] | None) -> bool:
        if time is None or not len(time):
            return False
        is_late = self._last_time is not None and time[0] < self._last_time
        return bool(is_late or (time[1:] < time[:-1]).any())

    def one_by_one(self, rows: Iterable[tuple[int, Any]]) -> Columns:
        """Read numbered rows; the first that is not accepted is an error, or all are counted."""
        kept: list[tuple[int, int]] = []
        times: list[float | int] = []
        last_time = self._last_time
        for at, row in rows:
            try:
                prompt, output, time = self._row(self.values(row, at), at, last_time)
            except UnusableRowError as problem:
                self.check_not_mixed(row, at)
                self.tally.refuse(problem)
                continue
            if time is not None:
                last_time = time
                times.append(time)
            kept.append((prompt, output))
        dtype: type[Any] = np.int64 if self.has_nanoseconds else np.float64
        time_column = np.array(times, dtype) if "time" in self.used else None
        prompts, outputs = np.array(kept, np.int64).reshape(-1, 2).T.copy()
        return Columns(prompts, outputs, time_column)

    def values(self, row: Any, at: int) -> dict[str, Any]:
        """Return what a row holds, by role."""
        values: dict[str, Any] = row
        return values

    def number(self, value: Any) -> int | None:
        """Return a whole number; None where it is none."""
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):  # missing, NaN, infinite
            return None
        return number if number == value else None

    def time(self, value: Any) -> float | int | None:
        """Return seconds, or nanoseconds where these are; None where it is no time."""
        if value is None:
            return None
        if self.has_nanoseconds:
            time = date_nanoseconds(value) if isinstance(value, str) else int(value)
            return time if time is not None and abs(time) <= INT64_MAX else None
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None

    def check_not_mixed(self, row: Any, at: int) -> None:
        """Raise if a row is none of this format's, rather than one gone wrong."""

    def _row(
        self, values: dict[str, Any], at: int, last_time: float | int | None
    ) -> tuple[int, int, float | int | None]:
        output = self._whole(values, "output", at, 0) if "output" in values else 0
        failed = self.table.zero_output_failed and output == 0
        prompt = self._whole(values, "prompt", at, 0 if failed else 1)
        if prompt + output > INT64_MAX:
            accepted = f"at most {INT64_MAX} (64 bits)"
            self._fail(at, "the total", f"{prompt} + {output}", accepted, "beyond 64 bits")
        if "total" in values:
            total = self._whole(values, "total", at, 1)
            if total != prompt + output:
                accepted = f"the sum of prompt and output, {prompt} + {output}"
                self._fail(at, self._name("total"), shown(values["total"]), accepted, "is no sum")
        if "time" not in values:
            return prompt, output, None
        value = values["time"]
        time = self.time(value)
        text = shown(value)
        if type(value) is int and self.has_nanoseconds:
            text += " ns"
        if time is None:
            self._fail(at, self._name("time"), text, accepted_time(self.table.time_is_date))
        if last_time is not None and time < last_time:
            accepted = f"a time that is not before the {self.unit} ahead of it"
            self._fail(at, self._name("time"), text, accepted, "goes back")
        return prompt, output, time

    def _name(self, role: str) -> str:
        return name_list([self.columns[self.used[role]]])

    def _whole(self, values: dict[str, Any], role: str, at: int, minimum: int) -> int:
        number = self.number(values[role])
        if number is None or not minimum <= number <= INT64_MAX:
            self._fail(at, self._name(role), shown(values[role]), accepted_whole(minimum))
        return number

    def _fail(
        self, at: int, field: str, text: str, accepted: str, wrong: str = "not accepted"
    ) -> Never:
        text = "missing" if text == "''" else text
        # Not the reader's own name of a column: a reason is shown where the trace is not.
        reason = "length" if self.format == "lengths" else field
        raise UnusableRowError(
            f"{self.label}, {self.unit} {at}: {field} is {text}; accepted: {accepted}",
            f"{reason} {'missing' if text.startswith('missing') else wrong}",
        )


# --------------------------------------------------------------------------- CSV


class TextReader(TableReader):
    """Reads one CSV file, block by block."""

    def read(self, blocks: Iterator[Block]) -> RowStream:
        """Yield the requests of every block, in order."""
        head = list(islice(blocks, _FEW_BLOCKS + 1))
        if len(head) <= _FEW_BLOCKS:
            yield from (self.requests(None, partial(self.slowly, block)) for block in head)
            return
        # Closed here: an error's traceback would keep its threads until the next collection.
        with closing(_in_order(self.parser(), chain(head, blocks))) as parsed:
            for block, columns in parsed:
                yield self.requests(columns, partial(self.slowly, block))

    def parser(self) -> Callable[[Block], Columns | None]:
        """Return what parses a block at once; it returns None where anything is unusual."""
        from kvledger.traces import plain_rows

        is_date = self.table.time_is_date
        role_of = {
            "prompt": plain_rows.PROMPT, "output": plain_rows.OUTPUT, "total": plain_rows.TOTAL,
            "time": plain_rows.DATE if is_date else plain_rows.SECONDS,
        }  # fmt: skip
        roles = np.full(len(self.columns), plain_rows.IGNORED, np.int8)
        for role, column in self.used.items():
            roles[column] = role_of[role]

        def parse(block: Block) -> Columns | None:
            data = block.data
            if self.several:
                if _MISSING.search(data):
                    return None
                data = data.translate(_TO_LINES)
            failing = self.table.zero_output_failed
            return plain_rows.parse_table(data, roles, zero_output_failed=failing)

        return parse

    def slowly(self, block: Block) -> Columns:
        """Read a block row by row."""
        lines = enumerate(block.data.decode("utf-8").split("\n"), block.first_line)
        rows = ((line, text) for line, text in lines if text.strip())
        if self.several:
            rows = ((line, number) for line, text in rows for number in _numbers(text))
        return self.one_by_one(rows)

    def values(self, row: str, at: int) -> dict[str, Any]:
        """Cut a line into fields, without the blanks around them."""
        if self.several:
            return {"prompt": row}
        most = csv.field_size_limit(LONGEST_LINE_BYTES)  # a column of texts may be wide
        try:
            fields = next(csv.reader([row.rstrip("\r")], strict=True))
        except csv.Error as error:
            raise UnusableRowError(
                f"{self.label}, line {at}: not CSV ({error}); accepted: CSV", "not CSV"
            ) from None
        finally:
            csv.field_size_limit(most)
        n = len(self.columns)
        if len(fields) != n:
            columns = name_list(self.columns, ",") if self.has_header else "one length"
            cut = " (is the line cut?)" if len(fields) < n else ""
            raise UnusableRowError(
                f"{self.label}, line {at}: {len(fields)} fields in {shown(row.rstrip())}{cut}; "
                f"accepted: {n} ({columns})",
                f"not {n} fields",
            )
        return {role: fields[column].strip() for role, column in self.used.items()}

    def number(self, value: str) -> int | None:
        """Return a whole number, written with or without a dot; None where it is none."""
        # Python refuses to read thousands of digits; nothing that long is accepted anyway.
        is_whole = _WHOLE.fullmatch(value) and len(value) < 100
        return int(value.split(".")[0]) if is_whole else None

    def time(self, value: str) -> float | int | None:
        """Return seconds, or the nanoseconds of a date; None where it is neither."""
        # float() would also take 1_0 and nan.
        is_time = self.has_nanoseconds or _NUMBER.fullmatch(value)
        return super().time(value) if is_time else None

    def check_not_mixed(self, row: str, at: int) -> None:
        """Raise if a line is JSON or a header, rather than a row gone wrong."""
        if row.lstrip()[:1] in ("{", "["):
            mixed(self.label, at, "JSON", self.format)
        names = {field.strip().strip('"') for field in row.split(",")}
        own = set(self.columns) if self.has_header else set()
        if names & (_KNOWN_COLUMNS | own) and not any(map(_WHOLE.fullmatch, names)):
            mixed(self.label, at, "another header", self.format)


def _numbers(text: str) -> list[str]:
    """Return all numbers of a line, and an empty one where one is missing, as in 5,,9."""
    numbers = [number for number in _SEPARATORS.split(text) if number]
    return [*numbers, ""] if _MISSING.search(text.encode()) else numbers


def _in_order(
    work: Callable[[Block], Columns | None], blocks: Iterable[Block]
) -> Generator[tuple[Block, Columns | None], None, None]:
    """Work on some blocks at a time, on all cores, and yield the results in order."""
    cores = min(os.cpu_count() or 1, 8)
    waiting: deque[tuple[Block, Future[Columns | None]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        try:
            for block in chain(blocks, [None]):
                if block is not None:
                    waiting.append((block, pool.submit(work, block)))
                while waiting and (block is None or len(waiting) > cores + 1):
                    oldest, result = waiting.popleft()
                    yield oldest, result.result()
        finally:
            for _, result in waiting:
                result.cancel()


def read_table(
    source: Source, first: Block, blocks: Iterator[Block], format: str | None, tally: Tally
) -> Reading:
    """Read a CSV file or a list of lengths, from its first block on."""
    label = source.label
    is_named = format is not None
    header_line, columns, first = _header(label, first)
    has_header = header_line is not None
    where = f"{label}, line {header_line or 1}"
    format, table = format_and_table(where, format, columns, has_header=has_header)
    # A list of lengths may stand on one line where it cannot be a table without a header.
    several = not has_header and (is_named or source.is_stdin)
    blocks = chain([first], blocks)
    if several and not is_named:
        head = list(islice(blocks, 2))  # a last line without its end is a block of its own
        _check_no_table(label, head)
        blocks = chain(head, blocks)
    reader = TextReader(label, format, table, columns, tally, has_header, several, unit="line")
    nothing = "a header and no requests; accepted: at least one line after the header"
    return Reading(reader.read(blocks), tally, nothing=nothing)


def _header(label: str, first: Block) -> tuple[int | None, list[str], Block]:
    """Return the header's line (none if it begins with a number), the columns and the rest."""
    line, data = first
    while True:
        end = data.find(b"\n") + 1 or len(data)
        text = data[:end].decode("utf-8").strip()
        if text:
            break
        data, line = data[end:], line + 1
        if not data:  # blank in Unicode, though not in ASCII
            raise LedgerError(f"{label}: the file is empty; accepted:\n{format_list()}")
    if _NUMBER.fullmatch(_SEPARATORS.split(text)[0]):
        return None, ["length"], Block(line, data)
    try:
        columns = [column.strip() for column in next(csv.reader([text], strict=True))]
    except csv.Error as error:
        raise LedgerError(f"{label}, line {line}: not CSV ({error}); accepted: CSV") from None
    return line, columns, Block(line + 1, data[end:])


def _check_no_table(label: str, head: list[Block]) -> None:
    """Refuse numbers that stand in columns: whether they are lengths, no one can tell."""
    text = b"".join(block.data for block in head).decode("utf-8")
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    commas = {-1 if line.endswith(",") else line.count(",") for line in lines}
    if len(lines) > 1 and commas in ({1}, {2}, {3}):
        raise LedgerError(
            f"{label}, line {head[0].first_line}: {commas.pop() + 1} numbers on every line; "
            "accepted: a table with a header, or format='lengths' if each number is a length"
        )
