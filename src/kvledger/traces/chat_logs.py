"""Chat logs with token counts: an OpenAI batch's output file, or one response object a line.

A line of a batch's output is ``{"id", "custom_id", "response": {"status_code", "body"}, "error"}``;
``vllm run-batch`` writes the same. The body, or the line itself, is a response of the chat,
completions, embeddings or Responses endpoint with its ``usage``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvledger.traces.forms import Reading, Tally, UnusableRowError, shown
from kvledger.traces.json_lines import Field, Record
from kvledger.traces.request_records import Request, field, in_batches, tokens

_OBJECTS = ("chat.completion", "chat.completion.chunk", "text_completion", "response")
_NAMES = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))


class _LeftOutError(Exception):
    """A line that is read and holds no request that can be used."""

    def __init__(self, reason: str, *, failed: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failed = failed


def is_openai(fields: dict[str, Any]) -> bool:
    """Tell whether an object is a line of such a log."""
    if "custom_id" in fields:
        return "response" in fields
    return "usage" in fields or fields.get("object") in _OBJECTS


def read_openai(label: str, records: Iterator[Record], *, count: bool, tally: Tally) -> Reading:
    """Read one response a record, with the times at which they were created where all say so."""

    def requests() -> Iterator[Request]:
        first: float | None = None
        for record in records:
            try:
                request = _request(label, record)
            except _LeftOutError as left:
                (tally.fail if left.failed else tally.unusable)(left.reason)
                continue
            except UnusableRowError as problem:
                if not count:
                    raise
                tally.unusable(problem.reason)
                continue
            if request.time is not None:
                first = request.time if first is None else first
                request = request._replace(time=round(request.time - first, 9))
            yield request

    # A batch is written as its requests finish.
    return Reading(in_batches(requests()), tally, by_time=True)


def _request(label: str, record: Record) -> Request:
    body = _body(label, record)
    if body.get("error"):
        raise _LeftOutError("reported an error", failed=True)
    if body is record.fields and not is_openai(body):
        field(label, record, "usage", "openai")  # raises
    if body.get("object") == "response" and body.get("status") in ("failed", "cancelled"):
        raise _LeftOutError(f"status {body['status']}", failed=True)
    usage = body.get("usage")
    if usage is None:
        raise _LeftOutError("no usage", failed=False)
    if not isinstance(usage, dict):
        Field(label, record.line, "usage", usage).fail(f"is {shown(usage)}", "an object")
    choices = body.get("choices")
    if choices and body.get("object") == "chat.completion.chunk":
        raise _LeftOutError(
            "part of a stream", failed=False
        )  # the sum is in the last, which has no text
    if isinstance(choices, list) and len(choices) > 1:
        # Their tokens are added up, so how long each became is not known.
        raise _LeftOutError("more than one choice", failed=False)
    prompt, output = _tokens(label, Record(record.line, usage), str(body.get("object")))
    created = body.get("created", body.get("created_at"))
    time = None if created is None else Field(label, record.line, "created", created).time()
    return Request(prompt, output, time)


def _body(label: str, record: Record) -> dict[str, Any]:
    """Return the response object of a line."""
    fields = record.fields
    if "custom_id" not in fields:
        return fields
    response = fields.get("response")
    if response is None:
        raise _LeftOutError(
            "reported an error" if fields.get("error") else "no response", failed=True
        )
    if not isinstance(response, dict):
        Field(label, record.line, "response", response).fail(f"is {shown(response)}", "an object")
    status = Field(label, record.line, "status_code", response.get("status_code", 200))
    code = status.whole(100)
    if code > 599:
        status.fail(f"is {code}", "an HTTP status from 100 to 599")
    if not 200 <= code < 300:
        raise _LeftOutError(f"HTTP status {code}", failed=True)
    if fields.get("error"):
        raise _LeftOutError("reported an error", failed=True)
    body = response.get("body")
    if body is None:
        raise _LeftOutError("no response", failed=True)
    if not isinstance(body, dict):
        Field(label, record.line, "body", body).fail(f"is {shown(body)}", "an object")
    return body


def _tokens(label: str, usage: Record, object_: str) -> tuple[int, int]:
    names = next((pair for pair in _NAMES if pair[0] in usage.fields), _NAMES[0])
    if object_ == "list":  # embeddings have no output
        usage = Record(usage.line, {names[1]: 0, **usage.fields})
    prompt_field, output_field = (field(label, usage, name, "openai") for name in names)
    prompt, output = tokens(prompt_field, output_field, least_prompt=0)
    if "total_tokens" in usage.fields:
        total = field(label, usage, "total_tokens", "openai")
        if total.whole(0) != prompt + output:
            total.fail(
                f"is {total.value}", f"the sum of prompt and output, {prompt} + {output}", "no sum"
            )
    if prompt == 0:
        if output == 0:
            raise _LeftOutError("no tokens", failed=True)
        prompt_field.whole(1)  # raises
    return prompt, output
