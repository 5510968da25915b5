"""Request traces: the lengths of real requests, when they came, and which pages they share.

:func:`load_trace` reads the public formats as they are published, plain or gzipped.
A file that cannot be read exactly is an error that names the line, the field, the
value and what is accepted: a trace that loads was read whole.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Never, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from kvledger.errors import LedgerError
from kvledger.lengths import INT64_MAX, as_length_array, whole

__all__ = ["TRACE_FORMATS", "Trace", "load_trace"]

#: What :func:`load_trace` accepts: the name for ``format=`` and what such a file holds.
TRACE_FORMATS: dict[str, str] = {
    "azure": "CSV with columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure 2023 and 2024)",
    "burstgpt": "CSV with columns Timestamp, Request tokens, Response tokens (BurstGPT)",
    "prefill_decode": (
        "CSV with columns num_prefill_tokens, num_decode_tokens and maybe num_total_tokens, "
        "arrived_at (Vidur, Etalon)"
    ),
    "tokens": "CSV with columns prompt_tokens, output_tokens and maybe arrival_s",
    "mooncake": (
        "JSONL with timestamp (ms), input_length, output_length and maybe hash_ids "
        "(Mooncake; 512 tokens an id)"
    ),
    "qwen": (
        "JSONL with timestamp (s), input_length, output_length and maybe hash_ids, beside chat_id "
        "(Qwen-Bailian; 16 tokens an id)"
    ),
    "benchmark": (
        "JSON or JSONL results with input_lens, output_lens and maybe start_times, errors "
        "(vllm bench serve --save-detailed, sglang.bench_serving --output-details)"
    ),
    "lengths": "one length a line, a CSV of one column with a header, or a JSON array of lengths",
}


# --------------------------------------------------------------------------- the trace


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Trace:
    """Requests in the order of their arrival.

    Parameters
    ----------
    prompt_tokens : array_like of int, shape (n,)
        Tokens of each prompt, at least 1.
    output_tokens : array_like of int, shape (n,)
        Tokens generated for each request, at least 0.
    arrival_s : array_like of float, shape (n,), optional
        Arrival times in seconds. They may tie and may not go backwards; they are stored
        as seconds from the first arrival.
    page_ids : sequence of sequences of int, length n, optional
        Ids of each prompt's pages in order, each id chained to the pages before it: two
        requests with the same id hold the same tokens up to that page. There is one id per
        complete page of the prompt, and there may be one more for a partial last page.
    page_ids_size : int, optional
        Tokens per page id, in tokens; needed with `page_ids`.
    name : str, optional
        What the trace is called in tables.
    failed_requests : int
        Requests of the source that failed and are not in the trace.

    Raises
    ------
    LedgerError
        Names the field, the position and the value, and says what is accepted.

    Examples
    --------
    >>> trace = Trace([5, 9, 17], [0, 3, 4], arrival_s=[10.0, 10.5, 12.0], name="three")
    >>> trace
    Trace('three': 3 requests, 31 prompt + 7 output tokens, over 2.0 s)
    >>> trace.total_tokens.tolist()
    [5, 12, 21]
    >>> trace.arrival_s.tolist()
    [0.0, 0.5, 2.0]
    """

    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    arrival_s: NDArray[np.float64] | None
    page_ids: tuple[tuple[int, ...], ...] | None
    page_ids_size: int | None
    name: str | None
    failed_requests: int

    def __init__(
        self,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        arrival_s: ArrayLike | None = None,
        page_ids: Sequence[Sequence[int]] | None = None,
        page_ids_size: int | None = None,
        name: str | None = None,
        failed_requests: int = 0,
    ) -> None:
        # Copies: what the caller does to its own arrays later must not reach the trace.
        prompts = as_length_array(prompt_tokens, "prompt_tokens").copy()
        outputs = as_length_array(output_tokens, "output_tokens", minimum=0).copy()
        if len(prompts) == 0:
            raise LedgerError("prompt_tokens is empty; accepted: at least one request")
        _same_length(outputs, prompts, "output_tokens")
        too_long = np.flatnonzero(prompts > INT64_MAX - outputs)
        if len(too_long):
            i = int(too_long[0])
            raise LedgerError(
                f"prompt_tokens[{i}] + output_tokens[{i}] = {int(prompts[i])} + {int(outputs[i])} "
                f"is beyond 64 bits; accepted: a total of at most {INT64_MAX} tokens"
            )
        arrivals = None
        if arrival_s is not None:
            arrivals = _arrivals(arrival_s)
            _same_length(arrivals, prompts, "arrival_s")
            arrivals = arrivals - arrivals[0]
        pages = None
        if page_ids is None:
            if page_ids_size is not None:
                raise LedgerError(
                    f"page_ids_size is {page_ids_size!r} but there are no page_ids; "
                    "accepted: both or neither"
                )
        else:
            if page_ids_size is None:
                raise LedgerError(
                    "page_ids need page_ids_size; accepted: the tokens per id, such as 512"
                )
            page_ids_size = _page_ids_size(page_ids_size)
            pages = tuple(tuple(ids) for ids in page_ids)
            _same_length(pages, prompts, "page_ids")
            _check_page_ids(pages, prompts, page_ids_size)
        for array in (prompts, outputs, arrivals):
            if array is not None:
                array.setflags(write=False)
        failed = whole(
            failed_requests, "failed_requests", minimum=0, accepted="accepted: a count from 0"
        )
        for field, value in (
            ("prompt_tokens", prompts),
            ("output_tokens", outputs),
            ("arrival_s", arrivals),
            ("page_ids", pages),
            ("page_ids_size", page_ids_size),
            ("name", name),
            ("failed_requests", failed),
        ):
            object.__setattr__(self, field, value)

    @property
    def total_tokens(self) -> NDArray[np.int64]:
        """Final length of each request, prompt and output, in tokens, shape (n,)."""
        total = self.prompt_tokens + self.output_tokens
        total.setflags(write=False)
        return total

    @property
    def n_requests(self) -> int:
        """Number of requests."""
        return len(self.prompt_tokens)

    def __len__(self) -> int:
        return self.n_requests

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}: "
        prompt, output = (sum(map(int, t)) for t in (self.prompt_tokens, self.output_tokens))
        parts = [
            f"{name}{self.n_requests:,} requests",
            f"{prompt:,} prompt + {output:,} output tokens",
        ]
        if self.arrival_s is not None:
            parts.append(f"over {self.arrival_s[-1]:,.1f} s")
        if self.page_ids is not None:
            parts.append(f"an id per {self.page_ids_size} tokens")
        if self.failed_requests:
            parts.append(f"{self.failed_requests:,} failed requests left out")
        return f"Trace({', '.join(parts)})"


def _same_length(values: Sequence[Any] | NDArray[Any], prompts: NDArray[Any], field: str) -> None:
    if len(values) != len(prompts):
        raise LedgerError(
            f"{field} has {len(values)} entries for {len(prompts)} prompt_tokens; "
            "accepted: one entry for each request"
        )


def _accepted(minimum: int) -> str:
    return f"accepted: a whole number from {minimum} to {INT64_MAX}"


def _page_ids_size(value: object) -> int:
    return whole(
        value,
        "page_ids_size",
        minimum=1,
        accepted="accepted: a whole number of tokens, at least 1, such as 512",
    )


def _arrivals(values: ArrayLike) -> NDArray[np.float64]:
    accepted = "accepted: finite seconds that do not go backwards"
    try:
        times = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise LedgerError(f"arrival_s holds something that is not a number; {accepted}") from None
    if times.ndim != 1:
        raise LedgerError(f"arrival_s has {times.ndim} dimensions; accepted: one")
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        raise LedgerError(f"arrival_s[{bad[0]}]: {float(times[bad[0]])} is not finite; {accepted}")
    back = np.flatnonzero(np.diff(times) < 0)
    if len(back):
        i = int(back[0]) + 1
        raise LedgerError(
            f"arrival_s[{i}]: {float(times[i])} is before {float(times[i - 1])}, the arrival "
            f"of the request ahead of it; {accepted}"
        )
    return times


def _check_page_ids(
    pages: tuple[tuple[int, ...], ...], prompts: NDArray[np.int64], size: int
) -> None:
    for i, (ids, prompt) in enumerate(zip(pages, prompts.tolist(), strict=True)):
        complete, whole = prompt // size, -(-prompt // size)
        if len(ids) not in (complete, whole):
            raise LedgerError(
                f"page_ids[{i}] has {len(ids)} ids for a prompt of {prompt} tokens; accepted: "
                f"{whole}, one per {size} tokens (or {complete}, complete pages only)"
            )
        for j, page_id in enumerate(ids):
            if isinstance(page_id, bool) or not isinstance(page_id, int | np.integer):
                raise LedgerError(f"page_ids[{i}][{j}] is {page_id!r}; accepted: an integer id")


# --------------------------------------------------------------------------- reading bytes


class _Block(NamedTuple):
    """Whole lines of a file, and the number of the first of them."""

    first_line: int
    data: bytes


_BLOCK_BYTES = 8 << 20
_SHOW_PROGRESS_FROM = 64 << 20


def _open_plain_or_gzip(path: Path) -> tuple[BinaryIO, BinaryIO]:
    raw = path.open("rb")
    is_gzip = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return raw, cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if is_gzip else raw


def _read_blocks(path: Path) -> Iterator[_Block]:
    """Blocks of whole lines, decompressed, checked to be UTF-8, without a byte-order mark."""
    try:
        raw, stream = _open_plain_or_gzip(path)
    except FileNotFoundError:
        raise LedgerError(f"{path}: no such file; accepted: a trace file, plain or .gz") from None
    except IsADirectoryError:
        raise LedgerError(f"{path}: is a folder; accepted: a trace file, plain or .gz") from None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from None
    size = path.stat().st_size
    # Only for a person at a terminal: notebooks must stay free of stderr.
    progress = size >= _SHOW_PROGRESS_FROM and sys.stderr.isatty()
    line = 1
    with raw, stream:
        rest: list[bytes] = []
        while True:
            try:
                chunk = stream.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise LedgerError(
                    f"{path}: the gzip data is cut short or damaged ({error}); "
                    "accepted: a complete .gz file"
                ) from None
            if progress:
                share = 100 * raw.tell() // size
                sys.stderr.write(f"\rreading {path.name}: {share}%" if chunk else "\r\x1b[K")
                sys.stderr.flush()
            cut = chunk.rfind(b"\n") + 1
            if chunk and not cut:
                rest.append(chunk)
                continue
            data = b"".join((*rest, chunk[:cut]))
            rest = [chunk[cut:]]
            if line == 1:
                data = _without_byte_order_mark(data, path)
            _check_utf8(data, path, line)
            if data:
                yield _Block(line, data)
                line += data.count(b"\n")
            if not chunk:
                return


def _without_byte_order_mark(data: bytes, path: Path) -> bytes:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LedgerError(f"{path}, line 1: the encoding is UTF-16; accepted: UTF-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def _check_utf8(data: bytes, path: Path, first_line: int) -> None:
    at = data.find(b"\0")
    if at < 0:
        if data.isascii():
            return
        try:
            data.decode("utf-8")
            return
        except UnicodeDecodeError as error:
            at = error.start
    line = first_line + data.count(b"\n", 0, at)
    raise LedgerError(
        f"{path}, line {line}: byte 0x{data[at]:02X} is not text in UTF-8; accepted: UTF-8"
    )


# --------------------------------------------------------------------------- tables (CSV)


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


_TABLES: dict[str, _Table] = {
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

    def rows(self, block: _Block) -> _Rows:
        rows = self._fast(block)
        if rows is None:
            rows = self._row_by_row(block)
        if rows.time is not None and len(rows.time):
            self.last_time = rows.time[-1].item()
        return rows

    def _fast(self, block: _Block) -> _Rows | None:
        """Return the rows, or None when anything at all is unusual."""
        if b'"' in block.data or b"_" in block.data:  # float("1_0") is 10
            return None
        dtype: dict[int, Any] = dict.fromkeys(self.used.values(), np.int64)
        if "time" in self.used:
            # As text: the C parser's own reading of a float may be off in the last digit.
            dtype[self.used["time"]] = str
        try:
            frame = pd.read_csv(
                BytesIO(block.data),
                header=None,
                names=list(range(len(self.columns))),
                usecols=sorted(self.used.values()),
                dtype=dtype,
                na_filter=False,
                index_col=False,
            )
        except (ValueError, OverflowError):  # pandas.errors.ParserError is a ValueError
            return None
        if block.data.count(b",") != len(frame) * (len(self.columns) - 1):
            return None  # some line has too few fields
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

    def _row_by_row(self, block: _Block) -> _Rows:
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
            raise LedgerError(f"{self.path}, line {line}: not CSV ({error})") from None
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
        shown = f"is {_shown(value)}" if value else "is missing"
        raise LedgerError(f"{self.path}, line {line}: {field} {shown}; accepted: {accepted}")


def _fast_times(column: pd.Series[Any], is_date: bool) -> NDArray[Any] | None:
    """Return seconds, or nanoseconds where times are dates; None when any is unusual."""
    try:
        if not is_date:
            seconds = column.to_numpy(object).astype(np.float64)
            return seconds if bool(np.isfinite(seconds).all()) else None
        if int(column.str.len().min()) < len("2023-11-16 18:17:03"):
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


def _seconds_from_first(time: NDArray[Any]) -> NDArray[np.float64]:
    if time.dtype.kind == "i":
        return cast(NDArray[np.float64], (time - time[0]) / 1e9)
    # Rounded to a nanosecond: 61.114 - 61.1 is 0.014, not 0.013999999999996.
    return cast(NDArray[np.float64], np.round(time - time[0], 9))


def _load_table(path: Path, blocks: Iterator[_Block], first: _Block, format: str | None) -> Trace:
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
        table = _TABLES[format]
        missing = [column for column in table.required if column not in columns]
        if missing:
            shown = ", ".join(columns) if has_header else "no header"
            raise LedgerError(
                f"{path}, line {header_line or 1}: column {missing[0]!r} is missing "
                f"(found: {shown}); accepted as {format}: {TRACE_FORMATS[format]}"
            )
    reader = _TableReader(path, table, columns, has_header)
    rows = [reader.rows(block) for block in _chain(first, blocks)]
    prompt = np.concatenate([r.prompt for r in rows])
    output = np.concatenate([r.output for r in rows])
    if len(prompt) == 0:
        raise LedgerError(
            f"{path}: a header and no requests; accepted: at least one line after the header"
        )
    kept = output > 0 if table.zero_output_failed else np.ones(len(output), bool)
    if not kept.any():
        raise LedgerError(
            f"{path}: all {len(kept)} requests failed ({table.output} is 0); "
            "accepted: at least one that did not"
        )
    arrival = None
    if "time" in reader.used:
        times = np.concatenate([r.time for r in rows if r.time is not None])
        arrival = _seconds_from_first(times[kept])
    return Trace(
        prompt[kept],
        output[kept],
        arrival,
        name=_trace_name(path),
        failed_requests=int((~kept).sum()),
    )


def _chain(first: _Block, blocks: Iterator[_Block]) -> Iterator[_Block]:
    if first.data:
        yield first
    yield from blocks


def _header(path: Path, first: _Block) -> tuple[int | None, list[str], _Block]:
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
        return None, ["length"], _Block(line, data)
    try:
        columns = [column.strip() for column in next(csv.reader([text], strict=True))]
    except csv.Error as error:
        raise LedgerError(f"{path}, line {line}: not CSV ({error})") from None
    return line, columns, _Block(line + 1, data[end:])


def _table_format(path: Path, header_line: int | None, columns: list[str]) -> str:
    if header_line is None:
        return "lengths"
    found = {
        name: sum(column in columns for column in table.required) for name, table in _TABLES.items()
    }
    best = max(found, key=lambda name: found[name])
    if found[best] == len(_TABLES[best].required) or found[best] > 0:
        return best  # a missing column is reported against the format that is nearest
    if len(columns) == 1:
        return "lengths"
    raise LedgerError(
        f"{path}, line {header_line}: no known trace has the columns {', '.join(columns)}; "
        f"accepted:\n{_format_list()}"
    )


def _format_list() -> str:
    return "\n".join(f"  {name}: {holds}" for name, holds in TRACE_FORMATS.items())


# --------------------------------------------------------------------------- JSON and JSONL


class _Record(NamedTuple):
    line: int
    fields: dict[str, Any]


_RECORD_SIZES = {"mooncake": 512, "qwen": 16}
_RECORD_TIME_UNITS = {"mooncake": 1000, "qwen": 1}


def _load_json(
    path: Path, blocks: Iterator[_Block], first: _Block, format: str | None, size: int | None
) -> Trace:
    if first.data.lstrip()[:1] == b"[":
        if format not in (None, "lengths"):
            raise LedgerError(
                f"{path}, line 1: a JSON array; accepted as {format}: {TRACE_FORMATS[format]}"
            )
        return _load_json_array(path, b"".join(block.data for block in _chain(first, blocks)))
    records = _records(path, blocks, first)
    head = next(records)
    format = format or _record_format(path, head)
    everything = _chain_records(head, records)
    if format == "benchmark":
        return _load_benchmark(path, everything)
    return _load_records(path, everything, format, size or _RECORD_SIZES[format])


def _chain_records(head: _Record, rest: Iterator[_Record]) -> Iterator[_Record]:
    yield head
    yield from rest


def _no_constants(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON number")


def _parse_json(text: bytes) -> Any:
    return json.loads(text, parse_constant=_no_constants)


def _json_problem(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _records(path: Path, blocks: Iterator[_Block], first: _Block) -> Iterator[_Record]:
    accepted = "accepted: one complete JSON object a line"
    alone = True
    for block in _chain(first, blocks):
        for line, text in enumerate(block.data.split(b"\n"), block.first_line):
            if not text.strip():
                continue
            try:
                fields = _parse_json(text)
            except (ValueError, RecursionError) as error:
                if alone:
                    # One object over many lines, as a pretty-printed result file is.
                    rest = b"".join(b.data for b in blocks)
                    try:
                        fields = _parse_json(block.data + rest)
                    except (ValueError, RecursionError):
                        fields = None
                    if isinstance(fields, dict):
                        yield _Record(line, fields)
                        return
                problem = _json_problem(error) if isinstance(error, ValueError) else "too deep"
                raise LedgerError(
                    f"{path}, line {line}: JSON cut short or malformed ({problem}); {accepted}"
                ) from None
            if not isinstance(fields, dict):
                raise LedgerError(f"{path}, line {line}: {_shown(fields)} is no object; {accepted}")
            alone = False
            yield _Record(line, fields)


def _record_format(path: Path, record: _Record) -> str:
    fields = record.fields
    if "input_lens" in fields or "output_lens" in fields or "request_throughput" in fields:
        return "benchmark"
    if "input_length" in fields or "output_length" in fields or "hash_ids" in fields:
        return "qwen" if "chat_id" in fields or "parent_chat_id" in fields else "mooncake"
    hint = ""
    if "prompt" in fields or "conversations" in fields or "messages" in fields:
        hint = " (prompts as text carry no token counts: tokenise them first)"
    raise LedgerError(
        f"{path}, line {record.line}: no known trace has the keys {', '.join(fields)}{hint}; "
        f"accepted:\n{_format_list()}"
    )


def _load_json_array(path: Path, data: bytes) -> Trace:
    try:
        values = _parse_json(data)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        problem = _json_problem(error) if isinstance(error, ValueError) else "too deep"
        raise LedgerError(
            f"{path}, line {line}: the JSON is cut short or malformed ({problem}); "
            f"accepted: {TRACE_FORMATS['lengths']}"
        ) from None
    if not values:
        raise LedgerError(f"{path}: an empty JSON array; accepted: at least one length")
    lengths = [
        whole(value, f"{path}, entry {i}", minimum=1, accepted=_accepted(1))
        for i, value in enumerate(values)
    ]
    return Trace(lengths, [0] * len(lengths), name=_trace_name(path))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _Field(NamedTuple):
    """One value of a JSON record and where it stands."""

    path: Path
    line: int
    name: str
    value: Any

    def fail(self, why: str, accepted: str) -> Never:
        raise LedgerError(f"{self.path}, line {self.line}: {self.name} {why}; accepted: {accepted}")

    def whole(self, minimum: int) -> int:
        name = f"{self.path}, line {self.line}: {self.name}"
        return whole(self.value, name, minimum=minimum, accepted=_accepted(minimum))

    def time(self) -> float | int:
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not number or not abs(self.value) < 2**63:
            self.fail(f"is {_shown(self.value)}", "a time, a finite number")
        return cast(float, self.value)

    def array(self) -> list[Any]:
        if not isinstance(self.value, list):
            self.fail(f"is {_shown(self.value)}", "an array")
        return self.value


def _field(path: Path, record: _Record, name: str, format: str) -> _Field:
    if name not in record.fields:
        raise LedgerError(
            f"{path}, line {record.line}: key {name!r} is missing "
            f"(found: {', '.join(record.fields) or 'none'}); "
            f"accepted as {format}: {TRACE_FORMATS[format]}"
        )
    return _Field(path, record.line, name, record.fields[name])


def _load_records(path: Path, records: Iterable[_Record], format: str, size: int) -> Trace:
    """Mooncake and Qwen-Bailian: one request a line."""
    prompts: list[int] = []
    outputs: list[int] = []
    times: list[float | int] = []
    pages: list[tuple[int, ...]] = []
    with_ids: bool | None = None
    for record in records:
        prompt = _field(path, record, "input_length", format).whole(1)
        output_field = _field(path, record, "output_length", format)
        output = output_field.whole(0)
        if prompt + output > INT64_MAX:
            output_field.fail(
                f"is {output} after a prompt of {prompt}",
                f"a total of at most {INT64_MAX} (64 bits)",
            )
        time_field = _field(path, record, "timestamp", format)
        time = time_field.time()
        if times and time < times[-1]:
            time_field.fail(f"is {time}", "a time that is not before the line ahead of it")
        if with_ids is None:
            with_ids = "hash_ids" in record.fields
        if with_ids or "hash_ids" in record.fields:
            ids_field = _field(path, record, "hash_ids", format)
            if not with_ids:
                ids_field.fail("is there and was not before", "hash_ids on every line or on none")
            pages.append(_hash_ids(ids_field, prompt, format, size))
        prompts.append(prompt)
        outputs.append(output)
        times.append(time)
    unit = _RECORD_TIME_UNITS[format]
    # Differences first: of whole milliseconds they are exact.
    arrival = np.array([round((time - times[0]) / unit, 9) for time in times])
    return Trace(
        prompts,
        outputs,
        arrival,
        page_ids=pages if with_ids else None,
        page_ids_size=size if with_ids else None,
        name=_trace_name(path),
    )


def _hash_ids(field: _Field, prompt: int, format: str, size: int) -> tuple[int, ...]:
    ids = field.array()
    whole = -(-prompt // size)
    # Mooncake's last id is a partial page; Qwen-Bailian's page does not say, so both are read.
    if len(ids) != whole and not (format == "qwen" and len(ids) == prompt // size):
        field.fail(
            f"has {len(ids)} ids for {prompt} tokens",
            f"{whole} ids, one per {size} tokens (page_ids_size says otherwise if it is otherwise)",
        )
    for page_id in ids:
        if type(page_id) is not int:
            field.fail(f"holds {_shown(page_id)}, which is not a whole number", "integer ids")
    return tuple(ids)


def _load_benchmark(path: Path, records: Iterable[_Record]) -> Trace:
    """Results of vLLM's and SGLang's serving benchmarks: one run a line, arrays inside."""
    prompts: list[int] = []
    outputs: list[int] = []
    starts: list[float] = []
    failed = 0
    runs = 0
    timed = True
    for record in records:
        runs += 1
        arrays = {
            name: _field(path, record, name, "benchmark") for name in ("input_lens", "output_lens")
        }
        for name in ("start_times", "errors"):
            if record.fields.get(name):
                arrays[name] = _field(path, record, name, "benchmark")
        n = len(arrays["input_lens"].array())
        for field in arrays.values():
            if len(field.array()) != n:
                field.fail(f"has {len(field.value)} entries", f"{n}, as many as input_lens")
        timed = timed and "start_times" in arrays
        for i in range(n):
            at = {
                name: _Field(path, record.line, f"{name}[{i}]", field.value[i])
                for name, field in arrays.items()
            }
            if "errors" in at and at["errors"].value:
                failed += 1
                continue
            prompts.append(at["input_lens"].whole(1))
            outputs.append(at["output_lens"].whole(0))
            if timed:
                starts.append(at["start_times"].time())
    if not prompts:
        raise LedgerError(
            f"{path}: no request that succeeded ({failed} failed); accepted: at least one"
        )
    arrival = None
    if timed and runs == 1:
        # Requests are sent concurrently, so results may be out of order by a hair.
        order = np.argsort(np.array(starts), kind="stable")
        prompts = [prompts[i] for i in order]
        outputs = [outputs[i] for i in order]
        arrival = _seconds_from_first(np.array(starts, np.float64)[order])
    return Trace(prompts, outputs, arrival, name=_trace_name(path), failed_requests=failed)


# --------------------------------------------------------------------------- the loader


def _trace_name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    for suffix in (".csv", ".jsonl", ".json", ".txt"):
        name = name.removesuffix(suffix)
    return name


def load_trace(
    path: str | Path, format: str | None = None, *, page_ids_size: int | None = None
) -> Trace:
    r"""Read a trace of requests as it was published.

    Parameters
    ----------
    path : str or Path
        A file in one of `TRACE_FORMATS`, plain or gzipped, UTF-8 with or without a
        byte-order mark, lines ending in LF or CRLF, with or without a final newline.
    format : str, optional
        A name out of `TRACE_FORMATS` (``"vllm"`` and ``"sglang"`` are ``"benchmark"``).
        Found from the columns or keys when not given.
    page_ids_size : int, optional
        Tokens per hash id of a JSONL trace, where it is not the publisher's own
        (512 for Mooncake, 16 for Qwen-Bailian).

    Returns
    -------
    Trace
        Times in seconds from the first arrival. Failed requests (BurstGPT's zero
        responses, a benchmark's errors) are left out and counted in ``failed_requests``.
        Several benchmark runs in one file are joined without times: each run has a clock
        of its own. A plain length is a prompt with no output.

    Raises
    ------
    LedgerError
        Names the file, the line, the field and the value, and what is accepted. One thing
        cannot be seen: a last line cut inside its last number is still a number. Tables
        with ``num_total_tokens`` are safe from that, as the total is checked.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "azure.csv"
    >>> _ = path.write_bytes(
    ...     b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    ...     b"2023-11-16 18:17:03.9799600,4808,10\r\n"
    ...     b"2023-11-16 18:17:04.0319600,3180,8"
    ... )
    >>> load_trace(path)
    Trace('azure': 2 requests, 7,988 prompt + 18 output tokens, over 0.1 s)
    """
    path = Path(path)
    if format in ("vllm", "sglang"):
        format = "benchmark"
    if format is not None and format not in TRACE_FORMATS:
        raise LedgerError(f"format {format!r} is not known; accepted:\n{_format_list()}")
    if page_ids_size is not None:
        page_ids_size = _page_ids_size(page_ids_size)
    blocks = _read_blocks(path)
    first = next((block for block in blocks if block.data.strip()), None)
    if first is None:
        raise LedgerError(f"{path}: the file is empty; accepted:\n{_format_list()}")
    is_json = first.data.lstrip()[:1] in (b"{", b"[")
    if is_json and (format is None or format not in _TABLES):
        return _load_json(path, blocks, first, format, page_ids_size)
    if format is None or format in _TABLES or format == "lengths":
        return _load_table(path, blocks, first, format)
    raise LedgerError(
        f"{path}, line {first.first_line}: not JSON; accepted as {format}: {TRACE_FORMATS[format]}"
    )
