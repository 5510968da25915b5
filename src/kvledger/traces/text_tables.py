"""Traces that are tables (CSV) or plain lists of lengths."""

from __future__ import annotations

import csv
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, Never

import numpy as np

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX
from kvledger.traces.columns import (
    KNOWN_COLUMNS,
    NUMBER,
    TABLES,
    Columns,
    Selection,
    Table,
    accepted_time,
    date_nanoseconds,
    seconds_of,
    table_format,
    table_of,
)
from kvledger.traces.forms import (
    Reading,
    Rows,
    RowStream,
    UnusableRowError,
    format_list,
    line_too_long,
    listed,
    mixed,
    shown,
)
from kvledger.traces.streams import LONGEST_LINE_BYTES, Block, Source, chain_blocks

__all__ = ["TABLES", "read_table"]

_WHOLE = re.compile(r"\s*[+-]?\d+(?:\.0*)?\s*", re.ASCII)
_SEPARATORS = re.compile(r"[\s,]+")
_MISSING = re.compile(rb"(?:^|[,\n])[ \t\r]*,")

# Up to this many blocks are read without the compiled kernel, which takes longer to import.
_FEW_BLOCKS = 8
_TO_LINES = bytes.maketrans(b", \t", b"\n\n\n")


class _TableReader:
    """Reads one CSV file, block by block.

    A block goes through a fast parser. One that is not plainly right is read again row by row,
    which is slow and says exactly what is wrong.
    """

    def __init__(
        self,
        label: str | Path,
        table: Table,
        columns: list[str],
        has_header: bool,
        *,
        format: str = "a table",
        count: bool = False,
        several: bool = False,
    ) -> None:
        self.label = label
        self.table = table
        self.columns = columns
        self.has_header = has_header
        self.format = format
        self.count = count
        self.several = several
        self.used = table.used(columns)
        self.selection = Selection(table)
        self.tally = self.selection.tally
        self.last_time: float | int | None = None

    def read(self, blocks: Iterator[Block]) -> RowStream:
        """Yield the requests of every block, in order."""
        head = list(islice(blocks, _FEW_BLOCKS + 1))
        parsed: Iterable[tuple[Block, Columns | None]]
        if len(head) <= _FEW_BLOCKS:
            parsed = ((block, self._columns(block)) for block in head)
        else:
            parsed = _in_order(self._fast_parser(), chain(head, blocks))
        for block, rows in parsed:
            yield self._requests(block, rows)

    def _requests(self, block: Block, parsed: Columns | None) -> Rows:
        if parsed is None or parsed.goes_back(self.last_time):
            if not block.is_whole:
                raise line_too_long(str(self.label), block.first_line)
            parsed = self._row_by_row(block)
        if parsed.time is not None and len(parsed.time):
            self.last_time = parsed.time[-1].item()
        return self.selection.rows(parsed)

    # ----------------------------------------------------------------------- fast

    def _fast_parser(self) -> Callable[[Block], Columns | None]:
        from kvledger.traces import plain_rows as kernel

        role_of = {
            "prompt": kernel.PROMPT,
            "output": kernel.OUTPUT,
            "total": kernel.TOTAL,
            "time": kernel.DATE if self.table.time_is_date else kernel.SECONDS,
        }
        roles = np.full(len(self.columns), kernel.IGNORED, np.int8)
        for role, column in self.used.items():
            roles[column] = role_of[role]
        failing = self.table.zero_output_failed

        def parse(block: Block) -> Columns | None:
            if not block.is_whole:
                return None
            data = block.data
            if self.several:
                if _MISSING.search(data):
                    return None
                data = data.translate(_TO_LINES)
            return kernel.parse_table(data, roles, zero_output_failed=failing)

        return parse

    def _fast(self, block: Block) -> Columns | None:
        """Return the rows, or None when anything at all is unusual."""
        rows = self._fast_parser()(block)
        return None if rows is None or rows.goes_back(self.last_time) else rows

    def _columns(self, block: Block) -> Columns | None:
        """Do the same without compiled code: column by column, for a file that is small."""
        if not block.is_whole or b'"' in block.data or self.several:
            return None
        text = block.data.decode("utf-8").replace("\r\n", "\n")
        if "\r" in text:
            return None
        lines = text.split("\n")
        fields = [line.split(",") for line in lines if line]
        if not fields or any(len(row) != len(self.columns) for row in fields):
            return None
        columns = {role: [row[i] for row in fields] for role, i in self.used.items()}
        numbers = {}
        for role in ("prompt", "output", "total"):
            if role not in columns:
                continue
            if not all(t.isascii() and t.isdecimal() and len(t) <= 18 for t in columns[role]):
                return None
            numbers[role] = np.array(list(map(int, columns[role])), np.int64)
        prompt = numbers["prompt"]
        output = numbers["output"] if "output" in numbers else np.zeros_like(prompt)
        kept = output > 0 if self.table.zero_output_failed else np.ones(len(output), bool)
        if bool((prompt[kept] < 1).any()):
            return None
        if "total" in numbers and bool((numbers["total"] != prompt + output).any()):
            return None
        if "time" not in columns:
            return Columns(prompt, output, None)
        read = date_nanoseconds if self.table.time_is_date else seconds_of
        times = [read(text) for text in columns["time"]]
        if any(time is None for time in times):
            return None
        time = np.array(times, np.int64 if self.table.time_is_date else np.float64)
        return Columns(prompt, output, time)

    # ----------------------------------------------------------------------- row by row

    def _row_by_row(self, block: Block) -> Columns:
        prompts: list[int] = []
        outputs: list[int] = []
        times: list[float | int] = []
        last_time = self.last_time
        for line, text in enumerate(block.data.decode("utf-8").split("\n"), block.first_line):
            if not text.strip():
                continue
            if self.several:
                self._several(text, line, prompts)
                continue
            try:
                prompt, output, time = self._row(text, line, last_time)
            except UnusableRowError as problem:
                self._fail_if_mixed(text, line)
                if not self.count:
                    raise
                self.tally.unusable(problem.reason)
                continue
            if time is not None:
                last_time = time
                times.append(time)
            prompts.append(prompt)
            outputs.append(output)
        if self.several:
            outputs = [0] * len(prompts)
        time_dtype: type[Any] = np.int64 if self.table.time_is_date else np.float64
        return Columns(
            np.array(prompts, np.int64),
            np.array(outputs, np.int64),
            np.array(times, time_dtype) if "time" in self.used else None,
        )

    def _several(self, text: str, line: int, prompts: list[int]) -> None:
        """Read all lengths of a line."""
        numbers = [number for number in _SEPARATORS.split(text) if number]
        if _MISSING.search(text.encode()):
            numbers.append("")  # 5,,9
        for number in numbers:
            try:
                prompts.append(self._whole([number], "prompt", line, 1))
            except UnusableRowError as problem:
                self._fail_if_mixed(text, line)
                if not self.count:
                    raise
                self.tally.unusable(problem.reason)

    def _row(
        self, text: str, line: int, last_time: float | int | None
    ) -> tuple[int, int, float | int | None]:
        fields = self._fields(text, line)
        output = self._whole(fields, "output", line, 0) if "output" in self.used else 0
        failed = self.table.zero_output_failed and output == 0
        prompt = self._whole(fields, "prompt", line, 0 if failed else 1)
        if prompt + output > INT64_MAX:
            accepted = f"at most {INT64_MAX} (64 bits)"
            self._fail(line, "the total", f"{prompt} + {output}", accepted, "beyond 64 bits")
        if "total" in self.used:
            total = self._whole(fields, "total", line, 1)
            if total != prompt + output:
                accepted = f"the sum of prompt and output, {prompt} + {output}"
                self._fail(line, self._name("total"), str(total), accepted, "is no sum")
        if "time" not in self.used:
            return prompt, output, None
        time = self._time(fields, line)
        if last_time is not None and time < last_time:
            self._fail(
                line,
                self._name("time"),
                fields[self.used["time"]].strip(),
                "a time that is not before the line ahead of it",
                "goes back",
            )
        return prompt, output, time

    def _fields(self, text: str, line: int) -> list[str]:
        most = csv.field_size_limit(LONGEST_LINE_BYTES)  # a column of texts may be wide
        try:
            fields = next(csv.reader([text.rstrip("\r")], strict=True))
        except csv.Error as error:
            raise UnusableRowError(
                f"{self.label}, line {line}: not CSV ({error}); accepted: CSV", "not CSV"
            ) from None
        finally:
            csv.field_size_limit(most)
        n = len(self.columns)
        if len(fields) != n:
            columns = listed(self.columns, ",") if self.has_header else "one length"
            cut = " (is the line cut?)" if len(fields) < n else ""
            raise UnusableRowError(
                f"{self.label}, line {line}: {len(fields)} fields in {shown(text.rstrip())}{cut}; "
                f"accepted: {n} ({columns})",
                f"not {n} fields",
            )
        return fields

    def _name(self, role: str) -> str:
        return listed([self.columns[self.used[role]]])

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
        is_date = self.table.time_is_date
        time = date_nanoseconds(text) if is_date else seconds_of(text)
        if time is None:
            self._fail(line, self._name("time"), text, accepted_time(is_date))
        return time

    def _fail(
        self, line: int, field: str, value: str, accepted: str, wrong: str = "not accepted"
    ) -> Never:
        what = f"is {shown(value)}" if value else "is missing"
        # Not the reader's own name of a column: a reason is shown where the trace is not.
        reason = "length" if self.format == "lengths" else field
        raise UnusableRowError(
            f"{self.label}, line {line}: {field} {what}; accepted: {accepted}",
            f"{reason} {wrong if value else 'missing'}",
        )

    def _fail_if_mixed(self, text: str, line: int) -> None:
        """Raise if the line is none of this format's, rather than one of its rows gone wrong."""
        if text.lstrip()[:1] in ("{", "["):
            mixed(str(self.label), line, "JSON", self.format)
        names = {field.strip().strip('"') for field in text.split(",")}
        own = set(self.columns) if self.has_header else set()
        if names & (KNOWN_COLUMNS | own) and not any(map(_WHOLE.fullmatch, names)):
            mixed(str(self.label), line, "another header", self.format)


def _in_order(
    work: Callable[[Block], Columns | None], blocks: Iterable[Block]
) -> Iterator[tuple[Block, Columns | None]]:
    """Work on some blocks at a time, on all cores, and yield the results in order."""
    cores = min(os.cpu_count() or 1, 8)
    waiting: deque[tuple[Block, Future[Columns | None]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        try:
            for block in blocks:
                waiting.append((block, pool.submit(work, block)))
                if len(waiting) > cores + 1:
                    oldest, result = waiting.popleft()
                    yield oldest, result.result()
            while waiting:
                oldest, result = waiting.popleft()
                yield oldest, result.result()
        finally:
            for _, result in waiting:
                result.cancel()


def read_table(
    source: Source, blocks: Iterator[Block], first: Block, format: str | None, *, count: bool
) -> Reading:
    """Read a CSV file or a list of lengths, from its first block on."""
    label = source.label
    if not first.is_whole:
        raise line_too_long(label, first.first_line)
    is_named = format is not None
    header_line, columns, first = _header(label, first)
    where = f"{label}, line {header_line or 1}"
    if format is None:
        format = "lengths" if header_line is None else table_format(where, columns)
    table = table_of(where, format, columns, has_header=header_line is not None)
    # A list of lengths may stand on one line where it cannot be a table without a header.
    several = header_line is None and (is_named or source.is_stdin)
    blocks = chain_blocks(first, blocks)
    if several and not is_named:
        head = list(islice(blocks, 2))  # a last line without its end is a block of its own
        _check_no_table(label, head)
        blocks = chain(head, blocks)
    reader = _TableReader(
        label, table, columns, header_line is not None, format=format, count=count, several=several
    )
    nothing = "a header and no requests; accepted: at least one line after the header"
    return Reading(reader.read(blocks), reader.tally, nothing=nothing)


def _header(label: str, first: Block) -> tuple[int | None, list[str], Block]:
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
        if not data:  # blank in Unicode, though not in ASCII
            raise LedgerError(f"{label}: the file is empty; accepted:\n{format_list()}")
    if NUMBER.fullmatch(_SEPARATORS.split(text)[0]):
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
