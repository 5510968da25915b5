"""Traces in JSON: an object a line, one object over many lines, or an array of lengths.

Mooncake and Qwen-Bailian write one request a line; the serving benchmarks of vLLM and SGLang one
run an object, with one list a quantity; servers and batches one response a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, Never, cast

import numpy as np

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import INT64_MAX, whole
from kvledger.traces import streams
from kvledger.traces.forms import (
    TRACE_FORMATS,
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
from kvledger.traces.streams import Block

#: Tokens per block id, and units of time per second.
BLOCK_TOKENS = {"mooncake": 512, "qwen": 16}
_TIME_UNITS = {"mooncake": 1000, "qwen": 1}
_OBJECTS = ("chat.completion", "chat.completion.chunk", "text_completion", "response")
_USAGE_NAMES = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
_BATCH = 1 << 16


class Field(NamedTuple):
    """One value of a record and where it stands."""

    where: str
    name: str
    value: Any

    def fail(self, why: str, accepted: str, reason: str = "not accepted") -> Never:
        """Raise the error of a value that is not accepted."""
        name = self.name.split("[")[0]  # an entry's place does not make another reason
        raise UnusableRowError(
            f"{self.where}: {self.name} {why}; accepted: {accepted}", f"{name} {reason}"
        )

    def whole(self, minimum: int) -> int:
        """Return the value as a whole number."""
        if type(self.value) is int and minimum <= self.value <= INT64_MAX:
            return self.value
        try:
            return whole(self.value, self.name, minimum=minimum, accepted="")
        except LedgerError:
            reason = "missing" if self.value is None else "not accepted"
            self.fail(f"is {shown(self.value)}", accepted_whole(minimum), reason)

    def time(self) -> float | int:
        """Return the value as a time."""
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not number or not abs(self.value) < 2**63:
            self.fail(f"is {shown(self.value)}", "a time, a finite number")
        return cast(float, self.value)

    def array(self) -> list[Any]:
        """Return the value as a list."""
        return cast(list[Any], self._of(list, "an array"))

    def object(self) -> dict[str, Any]:
        """Return the value as a dictionary."""
        return cast(dict[str, Any], self._of(dict, "an object"))

    def _of(self, kind: type, accepted: str) -> Any:
        if not isinstance(self.value, kind):
            self.fail(f"is {shown(self.value)}", accepted)
        return self.value


class JsonRecord(NamedTuple):
    """One JSON object, and the file and line in which it begins."""

    where: str
    line: int
    fields: dict[str, Any]

    def field(self, name: str, format: str) -> Field:
        """Return a value that every record of the format has."""
        if name not in self.fields:
            raise UnusableRowError(
                f"{self.where}: key {name!r} is missing "
                f"(found: {name_list(self.fields) or 'none'}); "
                f"accepted as {format}: {TRACE_FORMATS[format]}",
                f"{name} missing",
            )
        return self.of(name, self.fields[name])

    def of(self, name: str, value: Any) -> Field:
        """Return a value that stands in the record."""
        return Field(self.where, name, value)


class Request(NamedTuple):
    """One request of a trace, checked; its time in units of the format."""

    prompt: int
    output: int
    time: float | None = None
    page_ids: tuple[int, ...] | None = None


class _LeftOutError(Exception):
    """A line that is read and holds no request that can be used."""

    def __init__(self, reason: str, *, failed: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failed = failed


# --------------------------------------------------------------------------- finding the format


def read_json(
    label: str,
    first: Block,
    blocks: Iterator[Block],
    format: str | None,
    size: int | None,
    tally: Tally,
) -> Reading:
    """Read JSON, from its first block on; `format` None, it is found from the keys."""
    blocks = chain([first], blocks)
    if first.data.lstrip()[:1] == b"[":
        if format not in (None, "lengths"):
            raise LedgerError(
                f"{label}, line 1: a JSON array; accepted as {format}: {TRACE_FORMATS[format]}"
            )
        rows = _array_rows(label, blocks, tally)
        return Reading(rows, tally, nothing="an empty JSON array; accepted: at least one length")
    if format == "lengths":
        raise LedgerError(
            f"{label}, line {first.first_line}: a JSON object; "
            f"accepted as lengths: {TRACE_FORMATS['lengths']}"
        )
    found = _records(label, blocks, tally)
    if format is None:
        head = next(found)
        format = _format_of(head)
        found = _of_one_kind(label, chain([head], found), format)
    if format == "benchmark":
        # Requests are sent concurrently, so results may be out of order by a hair.
        return Reading(_runs(found, tally), tally, by_time=True)
    if format == "openai":
        # A batch is written as its requests finish.
        return Reading(_rows(found, _response, tally, 1), tally, by_time=True)
    size = size or BLOCK_TOKENS[format]
    rows = _rows(found, _RequestReader(format, size).request, tally, _TIME_UNITS[format])
    return Reading(rows, tally, page_ids_size=size)


def _of_one_kind(label: str, found: Iterator[JsonRecord], format: str) -> Iterator[JsonRecord]:
    for record in found:
        kind = _kind(record.fields)
        if kind is not None and kind != format:
            mixed(label, record.line, kind, format)
        yield record


def _kind(fields: dict[str, Any]) -> str | None:
    if "input_lens" in fields or "output_lens" in fields or "request_throughput" in fields:
        return "benchmark"
    if "input_length" in fields or "output_length" in fields or "hash_ids" in fields:
        return "qwen" if "chat_id" in fields or "parent_chat_id" in fields else "mooncake"
    return "openai" if _is_response(fields) else None


def _is_response(fields: dict[str, Any]) -> bool:
    if "custom_id" in fields:
        return "response" in fields
    return "usage" in fields or fields.get("object") in _OBJECTS


def _format_of(record: JsonRecord) -> str:
    fields = record.fields
    if (kind := _kind(fields)) is not None:
        return kind
    if set(fields) == {"error"}:
        return "openai"  # what a server answers to a request that it refuses
    hint = ""
    if "prompt" in fields or "conversations" in fields or "messages" in fields:
        hint = " (prompts as text carry no token counts: tokenise them first)"
    elif "custom_id" in fields and "body" in fields:
        hint = " (a batch's requests carry no token counts: its output file does)"
    raise LedgerError(
        f"{record.where}: no known trace has the keys {name_list(fields)}{hint}; "
        f"accepted:\n{format_list()}"
    )


# --------------------------------------------------------------------------- objects and arrays


def _records(label: str, blocks: Iterator[Block], tally: Tally) -> Iterator[JsonRecord]:
    """Yield the objects of a file, one by one."""
    is_first = True
    for block in blocks:
        lines = block.data.split(b"\n")
        for line, text in enumerate(lines, block.first_line):
            if not text.strip():
                continue
            where = f"{label}, line {line}"
            try:
                fields = _parse(text)
            except (ValueError, RecursionError) as error:
                if is_first:
                    # One object over many lines, as a pretty-printed result file is.
                    begun = Block(line, b"\n".join(lines[line - block.first_line :]))
                    whole_file = _one_object(label, chain([begun], blocks))
                    if whole_file is not None:
                        yield JsonRecord(where, line, whole_file)
                        return
                elif text.lstrip()[:1] not in (b"{", b"["):
                    mixed(label, line, shown(text.decode("utf-8").strip()), "JSON")
                problem = _malformed(where, error)
                if is_first:
                    raise problem from None
                tally.refuse(problem)
                continue
            if not isinstance(fields, dict):
                raise LedgerError(
                    f"{where}: {shown(fields)} is no object; accepted: one complete JSON object "
                    "a line"
                )
            is_first = False
            yield JsonRecord(where, line, fields)


def _one_object(label: str, blocks: Iterable[Block]) -> dict[str, Any] | None:
    """Return the one object that is the whole rest of the file; None if it is none."""
    data = _joined(label, blocks)
    try:
        fields = _parse(data)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _joined(label: str, blocks: Iterable[Block]) -> bytes:
    held, parts = 0, []
    for block in blocks:
        parts.append(block)
        held += len(block.data)
        if held > streams.LONGEST_LINE_BYTES:
            raise streams.too_long(label, parts[0].first_line)
    return b"".join(part.data for part in parts)


def _no_constants(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_constants)


def _parse(text: bytes) -> Any:
    return _DECODER.decode(text.decode("utf-8"))


def _malformed(
    where: str, error: Exception, accepted: str = "one complete JSON object a line"
) -> UnusableRowError:
    problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split("\n")[0]
    if isinstance(error, RecursionError):
        problem = "too deep"
    return UnusableRowError(
        f"{where}: JSON cut short or malformed ({problem}); accepted: {accepted}", "JSON malformed"
    )


def _array_rows(label: str, blocks: Iterable[Block], tally: Tally) -> RowStream:
    """Yield the lengths of a JSON array."""
    data = _joined(label, blocks)
    try:
        entries = _parse(data)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise _malformed(f"{label}, line {line}", error, "a JSON array of lengths") from None
    lengths = []
    accepted = f"accepted: {accepted_whole(1)}"
    for position, entry in enumerate(entries):
        try:
            where = f"{label}, entry {position}"
            lengths.append(whole(entry, where, minimum=1, accepted=accepted))
        except LedgerError as error:
            tally.refuse(UnusableRowError(str(error), "entry not accepted"))
    yield Rows(np.array(lengths, np.int64), np.zeros(len(lengths), np.int64))


# --------------------------------------------------------------------------- one request a record


def _rows(
    found: Iterable[JsonRecord],
    read: Callable[[JsonRecord], Request],
    tally: Tally,
    units_per_second: int,
) -> RowStream:
    """Yield the requests of records as arrays; a batch in which one has no time has none."""

    def requests() -> Iterator[Request]:
        first: float | None = None
        for record in found:
            try:
                request = read(record)
            except _LeftOutError as left:
                (tally.fail if left.failed else tally.leave_out)(left.reason)
                continue
            except UnusableRowError as problem:
                tally.refuse(problem)
                continue
            if request.time is not None:
                first = request.time if first is None else first
                # The difference first: of whole milliseconds it is exact.
                seconds = round((request.time - first) / units_per_second, 9)
                request = request._replace(time=seconds)
            yield request

    stream = requests()
    while batch := list(islice(stream, _BATCH)):
        prompts, outputs, times, pages = zip(*batch, strict=True)
        yield Rows(
            np.array(prompts, np.int64),
            np.array(outputs, np.int64),
            None if None in times else np.array(times, np.float64),
            None if None in pages else list(pages),
        )


def _tokens(prompt_field: Field, output_field: Field, least_prompt: int = 1) -> tuple[int, int]:
    """Return the tokens of a prompt and its output, whose sum is within 64 bits."""
    prompt, output = prompt_field.whole(least_prompt), output_field.whole(0)
    if prompt + output > INT64_MAX:
        output_field.fail(
            f"is {output} after a prompt of {prompt}",
            f"a total of at most {INT64_MAX} (64 bits)",
            "beyond 64 bits",
        )
    return prompt, output


class _RequestReader:
    """Reads Mooncake's and Qwen-Bailian's records, each of which must fit those before it."""

    def __init__(self, format: str, size: int) -> None:
        self._format = format
        self._size = size
        self._with_ids: bool | None = None
        self._last_time: float | int | None = None

    def request(self, record: JsonRecord) -> Request:
        prompt, output = _tokens(
            record.field("input_length", self._format), record.field("output_length", self._format)
        )
        time_field = record.field("timestamp", self._format)
        time = time_field.time()
        if self._last_time is not None and time < self._last_time:
            accepted = "a time that is not before the line ahead of it"
            time_field.fail(f"is {time}", accepted, "goes back")
        ids = self._ids(record, prompt)
        # Nothing is remembered of a record that is refused.
        self._with_ids, self._last_time = ids is not None, time
        return Request(prompt, output, time, ids)

    def _ids(self, record: JsonRecord, prompt: int) -> tuple[int, ...] | None:
        if "hash_ids" not in record.fields and not self._with_ids:
            return None
        ids_field = record.field("hash_ids", self._format)
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


def _response(record: JsonRecord) -> Request:
    """Read one response of the chat, completions, embeddings or Responses endpoint."""
    body = _body(record)
    if body.get("error"):
        raise _LeftOutError("reported an error")
    if body is record.fields and not _is_response(body):
        record.field("usage", "openai")  # raises
    kind = body.get("object")
    if kind == "response" and body.get("status") in ("failed", "cancelled"):
        raise _LeftOutError(f"status {body['status']}")
    usage = body.get("usage")
    if usage is None:
        raise _LeftOutError("no usage", failed=False)
    usage = record.of("usage", usage).object()
    choices = body.get("choices")
    if choices and kind == "chat.completion.chunk":
        # The sum is in the last part, which has no text.
        raise _LeftOutError("part of a stream", failed=False)
    if isinstance(choices, list) and len(choices) > 1:
        # Their tokens are added up, so how long each became is not known.
        raise _LeftOutError("more than one choice", failed=False)
    prompt, output = _usage_tokens(record._replace(fields=usage), has_output=kind != "list")
    created = body.get("created", body.get("created_at"))
    time = None if created is None else record.of("created", created).time()
    return Request(prompt, output, time)


def _body(record: JsonRecord) -> dict[str, Any]:
    """Return the response object: the line itself, or what a line of a batch's output holds."""
    fields = record.fields
    if "custom_id" not in fields:
        return fields
    response = fields.get("response")
    if response is None:
        raise _LeftOutError("reported an error" if fields.get("error") else "no response")
    response = record.of("response", response).object()
    status = record.of("status_code", response.get("status_code", 200))
    code = status.whole(100)
    if code > 599:
        status.fail(f"is {code}", "an HTTP status from 100 to 599")
    if not 200 <= code < 300:
        raise _LeftOutError(f"HTTP status {code}")
    if fields.get("error"):
        raise _LeftOutError("reported an error")
    if response.get("body") is None:
        raise _LeftOutError("no response")
    return record.of("body", response["body"]).object()


def _usage_tokens(usage: JsonRecord, *, has_output: bool) -> tuple[int, int]:
    names = next((pair for pair in _USAGE_NAMES if pair[0] in usage.fields), _USAGE_NAMES[0])
    if not has_output:  # embeddings
        usage = usage._replace(fields={names[1]: 0, **usage.fields})
    prompt_field, output_field = (usage.field(name, "openai") for name in names)
    prompt, output = _tokens(prompt_field, output_field, least_prompt=0)
    if "total_tokens" in usage.fields:
        total = usage.field("total_tokens", "openai")
        if total.whole(0) != prompt + output:
            accepted = f"the sum of prompt and output, {prompt} + {output}"
            total.fail(f"is {total.value}", accepted, "no sum")
    if prompt == 0:
        if output == 0:
            raise _LeftOutError("no tokens")
        prompt_field.whole(1)  # raises
    return prompt, output


# --------------------------------------------------------------------------- one run a record


def _runs(found: Iterable[JsonRecord], tally: Tally) -> RowStream:
    """Yield the requests of each run of a serving benchmark."""
    for number, record in enumerate(found):
        run = _run(record, tally)
        # Each run has a clock of its own: two runs in one file have no common times.
        yield run if number == 0 else run._replace(arrival_s=None)


def _run(record: JsonRecord, tally: Tally) -> Rows:
    """Read one run."""
    lists = _lists(record)
    inputs, outputs = lists["input_lens"].value, lists["output_lens"].value
    errors = lists["errors"].value if "errors" in lists else [None] * len(inputs)
    completed = record.fields.get("completed")
    # A request that failed has 0 tokens and as a rule an error; without a word from the server that
    # is empty, and only ``completed`` tells.
    silent = type(completed) is int and completed < sum(not error for error in errors)
    requests: list[tuple[int, int]] = []
    starts: list[float] = []
    for i, error in enumerate(errors):
        if error or (silent and outputs[i] == 0):
            tally.fail("reported an error" if error else "no output in a run with failures")
            continue
        at = {name: record.of(f"{name}[{i}]", column.value[i]) for name, column in lists.items()}
        try:
            request = _tokens(at["input_lens"], at["output_lens"])
            if "start_times" in at:
                starts.append(at["start_times"].time())
        except UnusableRowError as problem:
            tally.refuse(problem)
            continue
        requests.append(request)
    prompt, output = np.array(requests, np.int64).reshape(-1, 2).T
    if "start_times" not in lists:
        return Rows(prompt, output)
    return Rows(
        prompt, output, nanosecond_rounded(np.array(starts, np.float64) - min(starts, default=0))
    )


def _lists(record: JsonRecord) -> dict[str, Field]:
    """Return the lists of a run, all of one length."""
    lists = {name: record.field(name, "benchmark") for name in ("input_lens", "output_lens")}
    for name in ("start_times", "errors"):
        if record.fields.get(name):
            lists[name] = record.of(name, record.fields[name])
    n = len(lists["input_lens"].array())
    for each in lists.values():
        if len(each.array()) != n:
            # Which entry belongs to which request is not known: no row of this run can be used.
            raise LedgerError(
                f"{record.where}: {each.name} has {len(each.value)} entries; "
                f"accepted: {n}, as many as input_lens"
            )
    return lists
