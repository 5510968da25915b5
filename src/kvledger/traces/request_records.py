"""Mooncake's and Qwen-Bailian's traces: JSON, one request a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from kvledger.core.lengths import INT64_MAX
from kvledger.traces.forms import (
    TRACE_FORMATS,
    Reading,
    Rows,
    RowStream,
    Tally,
    UnusableRowError,
    listed,
    shown,
)
from kvledger.traces.json_lines import Field, Record

#: Tokens per block id, and units of time per second.
BLOCK_TOKENS = {"mooncake": 512, "qwen": 16}
_TIME_UNITS = {"mooncake": 1000, "qwen": 1}
_BATCH = 1 << 16


class Request(NamedTuple):
    """One request of a trace, checked; its time in seconds."""

    prompt: int
    output: int
    time: float | None = None
    page_ids: tuple[int, ...] | None = None


def in_batches(requests: Iterable[Request]) -> RowStream:
    """Yield requests as arrays; a batch in which one has no time has none."""
    requests = iter(requests)
    while batch := list(islice(requests, _BATCH)):
        prompts, outputs, times, pages = zip(*batch, strict=True)
        yield Rows(
            np.array(prompts, np.int64),
            np.array(outputs, np.int64),
            None if None in times else np.array(times, np.float64),
            None if None in pages else list(pages),
        )


def field(label: str, record: Record, name: str, format: str) -> Field:
    """Return a value that every record of the format has."""
    if name not in record.fields:
        raise UnusableRowError(
            f"{label}, line {record.line}: key {name!r} is missing "
            f"(found: {listed(record.fields) or 'none'}); "
            f"accepted as {format}: {TRACE_FORMATS[format]}",
            f"{name} missing",
        )
    return Field(label, record.line, name, record.fields[name])


def tokens(prompt_field: Field, output_field: Field, least_prompt: int = 1) -> tuple[int, int]:
    """Return the tokens of a prompt and its output, whose sum is within 64 bits."""
    prompt, output = prompt_field.whole(least_prompt), output_field.whole(0)
    if prompt + output > INT64_MAX:
        output_field.fail(
            f"is {output} after a prompt of {prompt}",
            f"a total of at most {INT64_MAX} (64 bits)",
            "beyond 64 bits",
        )
    return prompt, output


def read_requests(
    label: str,
    records: Iterator[Record],
    format: str,
    size: int | None,
    *,
    count: bool,
    tally: Tally,
) -> Reading:
    """Read one request a record."""
    size = size or BLOCK_TOKENS[format]
    reader = _RequestReader(label, format, size)

    def requests() -> Iterator[Request]:
        for record in records:
            try:
                yield reader.request(record)
            except UnusableRowError as problem:
                if not count:
                    raise
                tally.unusable(problem.reason)

    return Reading(in_batches(requests()), tally, page_ids_size=size)


class _RequestReader:
    """Reads records, each of which must fit those before it."""

    def __init__(self, label: str, format: str, size: int) -> None:
        self._label = label
        self._format = format
        self._size = size
        self._with_ids: bool | None = None
        self._first_time: float | int | None = None
        self._last_time: float | int | None = None

    def request(self, record: Record) -> Request:
        prompt, output = tokens(
            field(self._label, record, "input_length", self._format),
            field(self._label, record, "output_length", self._format),
        )
        time_field = field(self._label, record, "timestamp", self._format)
        time = time_field.time()
        if self._last_time is not None and time < self._last_time:
            accepted = "a time that is not before the line ahead of it"
            time_field.fail(f"is {time}", accepted, "goes back")
        ids = self._ids(record, prompt)
        # Nothing is remembered of a record that is refused.
        self._with_ids = ids is not None
        self._last_time = time
        if self._first_time is None:
            self._first_time = time
        # The difference first: of whole milliseconds it is exact.
        seconds = round((time - self._first_time) / _TIME_UNITS[self._format], 9)
        return Request(prompt, output, seconds, ids)

    def _ids(self, record: Record, prompt: int) -> tuple[int, ...] | None:
        if "hash_ids" not in record.fields and not self._with_ids:
            return None
        ids_field = field(self._label, record, "hash_ids", self._format)
        if self._with_ids is False:
            ids_field.fail("is there and was not before", "hash_ids on every line or on none")
        ids = ids_field.array()
        complete, pages = prompt // self._size, -(-prompt // self._size)
        # Mooncake's last id is a partial page; Qwen-Bailian's page does not say, so both are read.
        if len(ids) != pages and not (self._format == "qwen" and len(ids) == complete):
            ids_field.fail(
                f"has {len(ids)} ids for {prompt} tokens",
                f"{pages} ids, one per {self._size} tokens "
                "(page_ids_size says otherwise if it is otherwise)",
            )
        for page_id in ids:
            if type(page_id) is not int:
                why = f"holds {shown(page_id)}, which is not a whole number"
                ids_field.fail(why, "integer ids")
        return tuple(ids)
