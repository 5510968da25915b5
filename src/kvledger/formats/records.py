"""Traces that are JSON: one request a line, one benchmark run a line, or an array of lengths."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Never, cast

import numpy as np

from kvledger.errors import LedgerError
from kvledger.formats.common import (
    TRACE_FORMATS,
    Requests,
    accepted_whole,
    format_list,
    seconds_from_first,
    shown,
)
from kvledger.formats.reading import Block, chain_blocks
from kvledger.lengths import INT64_MAX, whole


class _Record(NamedTuple):
    line: int
    fields: dict[str, Any]


_RECORD_SIZES = {"mooncake": 512, "qwen": 16}
_RECORD_TIME_UNITS = {"mooncake": 1000, "qwen": 1}


def read_json(
    path: Path, blocks: Iterator[Block], first: Block, format: str | None, size: int | None
) -> Requests:
    """Read a JSON or JSONL file, from its first block on."""
    if first.data.lstrip()[:1] == b"[":
        if format not in (None, "lengths"):
            raise LedgerError(
                f"{path}, line 1: a JSON array; accepted as {format}: {TRACE_FORMATS[format]}"
            )
        return _load_json_array(path, b"".join(block.data for block in chain_blocks(first, blocks)))
    if format == "lengths":
        raise LedgerError(
            f"{path}, line {first.first_line}: a JSON object; "
            f"accepted as lengths: {TRACE_FORMATS['lengths']}"
        )
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


def _records(path: Path, blocks: Iterator[Block], first: Block) -> Iterator[_Record]:
    accepted = "accepted: one complete JSON object a line"
    alone = True
    for block in chain_blocks(first, blocks):
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
                raise LedgerError(f"{path}, line {line}: {shown(fields)} is no object; {accepted}")
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
        f"accepted:\n{format_list()}"
    )


def _load_json_array(path: Path, data: bytes) -> Requests:
    try:
        values = _parse_json(data)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        problem = _json_problem(error) if isinstance(error, ValueError) else "too deep"
        raise LedgerError(
            f"{path}, line {line}: JSON cut short or malformed ({problem}); "
            f"accepted: {TRACE_FORMATS['lengths']}"
        ) from None
    if not values:
        raise LedgerError(f"{path}: an empty JSON array; accepted: at least one length")
    lengths = [
        whole(value, f"{path}, entry {i}", minimum=1, accepted=accepted_whole(1))
        for i, value in enumerate(values)
    ]
    return Requests(np.array(lengths, np.int64), np.zeros(len(lengths), np.int64))


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
        return whole(self.value, name, minimum=minimum, accepted=accepted_whole(minimum))

    def time(self) -> float | int:
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not number or not abs(self.value) < 2**63:
            self.fail(f"is {shown(self.value)}", "a time, a finite number")
        return cast(float, self.value)

    def array(self) -> list[Any]:
        if not isinstance(self.value, list):
            self.fail(f"is {shown(self.value)}", "an array")
        return self.value


def _field(path: Path, record: _Record, name: str, format: str) -> _Field:
    if name not in record.fields:
        raise LedgerError(
            f"{path}, line {record.line}: key {name!r} is missing "
            f"(found: {', '.join(record.fields) or 'none'}); "
            f"accepted as {format}: {TRACE_FORMATS[format]}"
        )
    return _Field(path, record.line, name, record.fields[name])


def _load_records(path: Path, records: Iterable[_Record], format: str, size: int) -> Requests:
    """Read Mooncake and Qwen-Bailian records: one request a line."""
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
    return Requests(
        np.array(prompts, np.int64),
        np.array(outputs, np.int64),
        arrival,
        page_ids=pages if with_ids else None,
        page_ids_size=size if with_ids else None,
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
            field.fail(f"holds {shown(page_id)}, which is not a whole number", "integer ids")
    return tuple(ids)


def _load_benchmark(path: Path, records: Iterable[_Record]) -> Requests:
    """Read results of vLLM's and SGLang's serving benchmarks: one run a line, arrays inside."""
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
        arrival = seconds_from_first(np.array(starts, np.float64)[order])
    return Requests(
        np.array(prompts, np.int64), np.array(outputs, np.int64), arrival, failed=failed
    )
