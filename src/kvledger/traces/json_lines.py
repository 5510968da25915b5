"""JSON as people save it: an object a line, one object over many lines, or an array of numbers.

A value that fits into a line of `LONGEST_LINE_BYTES` is read by Python's own parser. A longer one
is read in pieces, of which only what the traces need is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, Never, cast

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX, whole
from kvledger.traces.forms import UnusableRowError, accepted_whole, mixed, shown
from kvledger.traces.streams import LONGEST_LINE_BYTES, Block

_ACCEPTED = "accepted: one complete JSON object a line"
#: The keys of a long object that are kept.
_KEPT = frozenset({"input_lens", "output_lens", "start_times", "errors", "completed"})
_MOST_NUMBERS = 1 << 16


class Record(NamedTuple):
    """One JSON object and the line on which it begins."""

    line: int
    fields: dict[str, Any]


class Field(NamedTuple):
    """One value of a record and where it stands."""

    label: str
    line: int
    name: str
    value: Any

    def fail(self, why: str, accepted: str, reason: str = "not accepted") -> Never:
        """Raise the error of a value that is not accepted."""
        name = self.name.split("[")[0]  # an entry's place does not make another reason
        raise UnusableRowError(
            f"{self.label}, line {self.line}: {self.name} {why}; accepted: {accepted}",
            f"{name} {reason}",
        )

    def whole(self, minimum: int) -> int:
        """Return the value as a whole number."""
        if type(self.value) is int and minimum <= self.value <= INT64_MAX:
            return self.value
        try:
            return whole(
                self.value,
                f"{self.label}, line {self.line}: {self.name}",
                minimum=minimum,
                accepted=accepted_whole(minimum),
            )
        except LedgerError as error:
            reason = "missing" if self.value is None else "not accepted"
            name = self.name.split("[")[0]
            raise UnusableRowError(str(error), f"{name} {reason}") from None

    def time(self) -> float | int:
        """Return the value as a time."""
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not number or not abs(self.value) < 2**63:
            self.fail(f"is {shown(self.value)}", "a time, a finite number")
        return cast(float, self.value)

    def array(self) -> list[Any]:
        """Return the value as a list."""
        if not isinstance(self.value, list):
            self.fail(f"is {shown(self.value)}", "an array")
        return self.value


def records(
    label: str, blocks: Iterator[Block], *, malformed: Callable[[str], None] | None = None
) -> Iterator[Record]:
    """Yield the objects of a file, one by one.

    Parameters
    ----------
    label : str
        What an error calls the file.
    blocks : iterator of Block
        Its lines.
    malformed : callable, optional
        Called with the reason for each line after the first that is no JSON, instead of an error.
    """
    is_first = True
    for block in blocks:
        if not block.is_whole:
            pieces = chain([block.data], _rest_of_line(blocks))
            yield Record(block.first_line, _long_object(label, block.first_line, pieces))
            is_first = False
            continue
        lines = block.data.split(b"\n")
        for line, text in enumerate(lines, block.first_line):
            if not text.strip():
                continue
            try:
                fields = _parse(text)
            except (ValueError, RecursionError) as error:
                if is_first:
                    # One object over many lines, as a pretty-printed result file is.
                    begun = b"\n".join(lines[line - block.first_line :])
                    whole_file = _one_object(label, line, begun, blocks)
                    if whole_file is not None:
                        yield Record(line, whole_file)
                        return
                elif text.lstrip()[:1] not in (b"{", b"["):
                    mixed(label, line, shown(text.decode("utf-8").strip()), "JSON")
                if malformed is None or is_first:
                    raise _malformed(label, line, error) from None
                malformed("JSON malformed")
                continue
            if not isinstance(fields, dict):
                raise LedgerError(
                    f"{label}, line {line}: {shown(fields)} is no object; {_ACCEPTED}"
                )
            is_first = False
            yield Record(line, fields)


def numbers(label: str, blocks: Iterator[Block]) -> Iterator[list[Any]]:
    """Yield the entries of one JSON array, some at a time."""
    data, held = [], 0
    for block in blocks:
        data.append(block.data)
        held += len(block.data)
        if held > LONGEST_LINE_BYTES:
            yield from _long_array(label, chain(data, (b.data for b in blocks)))
            return
    try:
        yield _parse(b"".join(data))
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise _malformed(label, line, error, "a JSON array of lengths") from None


def _no_constants(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_constants)


def _parse(text: bytes) -> Any:
    return _DECODER.decode(text.decode("utf-8"))


def _malformed(
    label: str, line: int, error: Exception, accepted: str = _ACCEPTED.removeprefix("accepted: ")
) -> LedgerError:
    problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split("\n")[0]
    if isinstance(error, RecursionError):
        problem = "too deep"
    return LedgerError(
        f"{label}, line {line}: JSON cut short or malformed ({problem}); accepted: {accepted}"
    )


# --------------------------------------------------------------------------- long values


def _one_object(
    label: str, line: int, begun: bytes, blocks: Iterator[Block]
) -> dict[str, Any] | None:
    """Return the one object that is the whole rest of the file; None if it is none."""
    data, held = [begun], len(begun)
    for block in blocks:
        data.append(block.data)
        held += len(block.data)
        if held > LONGEST_LINE_BYTES:
            return _long_object(label, line, chain(data, (b.data for b in blocks)))
    try:
        fields = _parse(b"".join(data))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _rest_of_line(blocks: Iterator[Block]) -> Iterator[bytes]:
    """Yield the pieces of a line up to its end, and leave the line after it alone."""
    for block in blocks:
        yield block.data
        if block.data.endswith(b"\n"):
            return


def _events(label: str, line: int, pieces: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield what a JSON text consists of, without ever holding the whole of it."""
    import ijson  # here: few traces need it

    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events)
    silent = 0
    try:
        for piece in pieces:
            parser.send(piece)
            yield from events
            silent = 0 if events else silent + len(piece)
            if silent > LONGEST_LINE_BYTES:
                raise LedgerError(
                    f"{label}, line {line}: a value longer than {LONGEST_LINE_BYTES >> 20} MiB; "
                    "accepted: shorter values"
                )
            events.clear()
        parser.close()
        yield from events
    except (ijson.JSONError, SystemError) as error:  # the latter for thousands of digits
        raise _malformed(label, line, error) from None


def _plain(value: Any) -> Any:
    """Return a number as Python's own JSON parser would have."""
    return value if isinstance(value, int | str | None) else float(value)


def _long_object(label: str, line: int, pieces: Iterable[bytes]) -> dict[str, Any]:
    """Read an object too long for memory; all keys are there, but few have their value."""
    fields: dict[str, Any] = {}
    key, depth = "", 0
    for event, value in _events(label, line, pieces):
        starts = event in ("start_map", "start_array")
        ends = event in ("end_map", "end_array")
        if event == "map_key" and depth == 1:
            key, fields[value] = value, None
        elif depth == 1 and key in _KEPT and not ends:
            fields[key] = [] if event == "start_array" else {} if starts else _plain(value)
        elif depth == 2 and key in _KEPT and not ends and isinstance(fields[key], list):
            fields[key].append({} if starts else _short(_plain(value)))
        depth += starts - ends
    return fields


def _short(value: Any) -> Any:
    """Keep of a text only whether there is one: errors are counted, not shown."""
    return value if not isinstance(value, str) else value[:1]


def _long_array(label: str, pieces: Iterable[bytes]) -> Iterator[list[Any]]:
    entries: list[Any] = []
    depth = 0
    for event, value in _events(label, 1, pieces):
        starts = event in ("start_map", "start_array")
        ends = event in ("end_map", "end_array")
        if depth == 1 and not ends:
            entries.append([] if starts else _plain(value))
            if len(entries) == _MOST_NUMBERS:
                yield entries
                entries = []
        depth += starts - ends
    yield entries
