"""A measurement on file: what was timed, on what, every repetition of it, and what was left out.

A record is one run on one device, written by :mod:`kvledger.measure` and never edited. Reading one
needs neither torch nor a GPU.
"""

from __future__ import annotations

import json
import math
import os
import re
import types
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from kvledger.core import data_folder
from kvledger.core.errors import LedgerError
from proofbook.errors import shown
from proofbook.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

#: A folder of records that stands in for ``data/measurements``.
FOLDER_VARIABLE = "KVLEDGER_MEASUREMENTS"

SCHEMA, KIND = 1, "attention"
#: How the pages of a timing lie: one page a request; pages in order; pages in a random order.
LAYOUTS = ("contiguous", "in_order", "random")
#: The peer that others are compared with where they have no contiguous timing of their own.
_BASELINE = "sdpa"


class _Accepted(NamedTuple):
    """What a field must hold beyond its type, and how an error says so."""

    holds: Callable[[Any], bool]
    words: str


def _one_of(*names: str) -> _Accepted:
    return _Accepted(names.__contains__, ", ".join(names))


Count = Annotated[int, _Accepted(lambda count: count >= 1, "a whole number, at least 1")]
_Time = Annotated[float, _Accepted(lambda seconds: seconds > 0, "a time above 0")]
Seconds = Annotated[tuple[_Time, ...], _Accepted(bool, "at least one repetition")]


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """The code that measured, its commit and whether edited: None where the checkout is silent."""

    commit: str | None
    digest: str
    dirty: bool | None


@dataclass(frozen=True, slots=True)
class Device:
    """What was measured on. ``units`` are cores, or a GPU's multiprocessors."""

    kind: Annotated[str, _one_of("cpu", "cuda")]
    name: str
    units: int
    memory_bytes: int
    last_level_cache_bytes: int
    driver: str | None
    capability: str | None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy in memory: bytes read plus bytes written, and its times."""

    bytes: Count
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class CaseShape:
    """A decode step: one new token for each of ``batch`` requests, in one layer.

    ``shape`` names the model. ``tokens`` are the requests' lengths in all and ``kv_bytes`` their K
    and V. A batch of a real trace has no single ``context_tokens``; its ``lengths`` stand here
    instead. With ``latent``, V is the first ``value_dim`` elements of K, and its bytes count once.
    """

    id: str
    shape: str
    q_heads: Count
    kv_heads: Count
    head_dim: Count
    value_dim: Count
    batch: Count
    context_tokens: int | None
    trace: str | None
    tokens: Count
    kv_bytes: Count
    dtype: str
    latent: bool = False
    lengths: tuple[int, ...] | None = None

    @property
    def held_tokens(self) -> tuple[int, ...]:
        """Tokens of each request; none where the record of a trace does not say."""
        if self.context_tokens is not None:
            return (self.context_tokens,) * self.batch
        return self.lengths or ()

    def pages(self, page_size: int) -> int:
        """Return the pages that all requests need, 0 where their lengths are not known."""
        return sum(-(-length // page_size) for length in self.held_tokens)


@dataclass(frozen=True, slots=True)
class Timing:
    """One peer on one case, layout and page size: seconds a call, one entry a repetition.

    ``moved_bytes`` are the fewest that must move: K and V of the tokens once, q, the output and
    the table's entries. ``calls`` were timed together in a repetition. ``relative_error`` is the
    distance from the reference, in norms, on the timed tensors.
    """

    case: str
    peer: str
    layout: Annotated[str, _one_of(*LAYOUTS)]
    page_size: Count
    pages: Count
    moved_bytes: int
    calls: Count
    timed_by: Annotated[str, _one_of("events", "host")]
    seconds: Seconds
    relative_error: Annotated[float, _Accepted(lambda error: error >= 0, "at least 0")]

    @property
    def median_s(self) -> float:
        """Median seconds a call."""
        return float(np.median(self.seconds))


@dataclass(frozen=True, slots=True)
class Absence:
    """What was not measured, and why. No case or page size: none of them was."""

    peer: str
    case: str | None
    page_size: int | None
    reason: Annotated[str, _Accepted(bool, "a reason")]


@dataclass(frozen=True, slots=True)
class HostTiming:
    """Work of a serving engine's host: ``what``, for so many requests and tokens.

    ``units`` counts what was handled, in ``unit``; ``seconds`` are of all of it.
    """

    what: str
    page_size: Count
    requests: Count
    tokens: Count
    units: int
    unit: str
    seconds: Seconds


@dataclass(frozen=True)
class Record:
    """One run of the measuring command on one device; ``file`` is where it was read from."""

    schema: int
    kind: str
    date: str
    command: str
    source: CodeVersion
    device: Device
    software: dict[str, str | None]
    settings: dict[str, object]
    copy: Copy
    cases: tuple[CaseShape, ...]
    timings: tuple[Timing, ...]
    absent: tuple[Absence, ...]
    host: tuple[HostTiming, ...]
    elapsed_s: float
    file: str = ""

    @property
    def label(self) -> str:
        """The device and the day, such as "NVIDIA H200, 2026-11-29"."""
        return f"{self.device.name}, {self.date[:10]}"

    @property
    def quick(self) -> bool:
        """Whether the run was shortened, to try the command and not to quote."""
        return bool(self.settings["quick"])

    @property
    def main_case(self) -> CaseShape:
        """The case that was measured first and in most detail."""
        return self.cases[0]

    @property
    def copy_bytes_per_s(self) -> float:
        """Bytes a second of the median copy, read and written."""
        return self.copy.bytes / float(np.median(self.copy.seconds))

    @cached_property
    def _baselines(self) -> dict[tuple[str, str], Timing]:
        """The contiguous timing of each case and peer."""
        return {(t.case, t.peer): t for t in self.timings if t.layout == "contiguous"}

    def baseline(self, timing: Timing) -> Timing | None:
        """Return what a timing is compared with: the same peer's contiguous timing, else SDPA's."""
        own = self._baselines.get((timing.case, timing.peer))
        return own or self._baselines.get((timing.case, _BASELINE))

    def frame(self) -> pd.DataFrame:
        """Return one row a timing.

        Columns: case, shape, batch, context_tokens (missing for a trace), trace, dtype, peer,
        layout, page_size, pages, seconds (median), seconds_low and seconds_high (quartiles),
        baseline (the peer compared with; missing if the case has none), ratio to that peer's
        contiguous timing (median of the ratios within a repetition) with ratio_low and ratio_high
        (quartiles), share of the measured copy bandwidth.
        """
        import pandas as pd

        cases = {case.id: case for case in self.cases}
        of_case = ("shape", "batch", "context_tokens", "trace", "dtype")
        rows = []
        for timing in self.timings:
            case, baseline = cases[timing.case], self.baseline(timing)
            seconds = np.array(timing.seconds)
            ratios = np.full(1, np.nan) if baseline is None else seconds / baseline.seconds
            rows.append(
                {"case": case.id}
                | {name: getattr(case, name) for name in of_case}
                | {name: getattr(timing, name) for name in ("peer", "layout", "page_size", "pages")}
                | _quartiles("seconds", seconds)
                | {"baseline": None if baseline is None else baseline.peer}
                | _quartiles("ratio", ratios)
                | {"share": timing.moved_bytes / np.median(seconds) / self.copy_bytes_per_s}
            )
        return pd.DataFrame(rows).astype({"context_tokens": "Int64"})

    def host_frame(self) -> pd.DataFrame:
        """Return one row a piece of host work.

        Columns: what, page_size, requests, tokens, units, unit, seconds (median), seconds_low and
        seconds_high (quartiles), seconds_per_token, seconds_per_unit (missing without units).
        """
        import pandas as pd

        rows = []
        for work in self.host:
            row = asdict(work) | _quartiles("seconds", np.array(work.seconds))
            row["seconds_per_token"] = row["seconds"] / work.tokens
            row["seconds_per_unit"] = row["seconds"] / work.units if work.units else np.nan
            rows.append(row)
        return pd.DataFrame(rows)


def _quartiles(name: str, values: np.typing.NDArray[np.float64]) -> dict[str, float]:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {name: median, f"{name}_low": low, f"{name}_high": high}


def records_folder() -> Path:
    """Return the folder of records: `FOLDER_VARIABLE` if set, else ``data/measurements``."""
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        return data_folder() / "measurements"
    if not Path(named).is_dir():
        raise LedgerError(f"{FOLDER_VARIABLE} is {named!r}; accepted: a folder of records")
    return Path(named)


def records(folder: Path | None = None) -> list[Record]:
    """Read all records of a folder, the oldest first; that of :func:`records_folder` unless given.

    Examples
    --------
    >>> all(record.timings for record in records())
    True
    """
    paths = sorted((folder or records_folder()).glob("*.json"))
    return sorted(map(read_record, paths), key=lambda record: (record.date, record.file))


def latest_record(kind: str, folder: Path | None = None) -> Record | None:
    """Return the latest record of a kind of device, ``"cuda"`` or ``"cpu"``, or None.

    Shortened runs (``--quick``) are passed over: they are there to try the command.

    Examples
    --------
    >>> record = latest_record("cpu")
    >>> record is None or record.device.kind == "cpu"
    True
    """
    if kind not in ("cpu", "cuda"):
        raise LedgerError(f"a kind of device is {kind!r}; accepted: cpu, cuda")
    found = [r for r in records(folder) if r.device.kind == kind and not r.quick]
    return found[-1] if found else None


def read_record(path: str | Path) -> Record:
    """Read a record and check all of it; an error names the file, the field and its value."""
    path = Path(path)
    try:
        return replace(_from_text(path.read_text("utf-8")), file=path.name)
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise LedgerError(f"{path}: {error}; accepted: a JSON record of a measurement") from None


def write_record(record: Record, path: str | Path) -> None:
    """Write a new record that holds together, whole or not at all."""
    path = Path(path)
    text = record_text(record)
    _from_text(text)
    check_is_new(path)
    write_whole(path, text.encode())


def check_is_new(path: Path) -> None:
    """Refuse the path of a file that is there: a record is never replaced."""
    if path.exists():
        raise LedgerError(f"{path} is there already; accepted: the name of a new file (--out FILE)")


def record_text(record: Record) -> str:
    """Return a record as JSON, one line an entry of its lists."""
    parts = []
    for key, value in asdict(record).items():
        text = json.dumps(value)
        if isinstance(value, tuple) and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        if key != "file":
            parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _from_text(text: str) -> Record:
    record: Record = _built(Record, json.loads(text, parse_constant=_no_constant), "")
    _check_whole(record)
    return record


def _no_constant(text: str) -> float:
    raise LedgerError(f"a number is {text}; accepted: finite numbers")


def _require(holds: bool, where: str, value: object, accepted: str) -> None:
    """Raise the one error of a field, if it does not hold."""
    if not holds:
        raise LedgerError(f"{where} is {shown(value)}; accepted: {accepted}")


_WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}
_WORDS |= {list: "a list", dict: "an object"}


def _built(kind: Any, value: Any, where: str) -> Any:
    """Make what a type hint names from what JSON holds; errors name the field and its value."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        built = _built(inner[0], value, where)
        _require(inner[1].holds(built), where, value, inner[1].words)
        return built
    if origin is types.UnionType:  # of a type and None
        return None if value is None else _built(inner[0], value, where)
    if kind is object:
        return value
    if kind is float:
        is_right = type(value) in (int, float) and math.isfinite(value)
    else:  # not isinstance: true is no number
        json_type = dict if is_dataclass(kind) else {tuple: list, dict: dict}.get(origin, kind)
        is_right = type(value) is json_type
    _require(is_right, where or "the whole", value, _WORDS[kind if kind is float else json_type])
    if origin is tuple:
        return tuple(_built(inner[0], each, f"{where}[{i}]") for i, each in enumerate(value))
    if origin is dict:
        return {key: _built(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    return (
        _built_dataclass(kind, value, f"{where}." * bool(where))
        if is_dataclass(kind)
        else kind(value)
    )


def _built_dataclass(kind: Any, value: dict[str, Any], prefix: str) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    known = {each.name: each.default is MISSING for each in fields(kind) if each.name != "file"}
    for name in value:
        names = f"the fields {', '.join(known)}"
        _require(name in known, f"{prefix}{name}", value[name], names)
    for name, is_needed in known.items():
        if is_needed and name not in value:
            raise LedgerError(f"{prefix}{name} is missing; accepted: a value")
    return kind(**{name: _built(hints[name], each, prefix + name) for name, each in value.items()})


def _check_whole(record: Record) -> None:
    """Refuse a record whose parts do not hold together."""
    of_kind = (record.schema, record.kind)
    _require(of_kind == (SCHEMA, KIND), "schema, kind", of_kind, f"{SCHEMA} and {KIND!r}")
    is_date = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record.date) is not None
    _require(is_date, "date", record.date, "a time such as 2026-11-29T18:00:00Z")
    for name, kind in (("quick", bool), ("seed", int), ("repetitions", int), ("page_sizes", list)):
        value = record.settings.get(name)
        _require(isinstance(value, kind), f"settings.{name}", value, f"a {kind.__name__}")
    for name in ("cases", "timings"):
        _require(len(getattr(record, name)) > 0, name, [], "at least one")
    ids = [case.id for case in record.cases]
    for index, case in enumerate(record.cases):
        where, context, lengths = f"cases[{index}]", case.context_tokens, case.lengths
        _require(case.id not in ids[:index], f"{where}.id", case.id, "each id once")
        is_one = (context is None) != (case.trace is None)
        _require(is_one, f"{where}.context_tokens", context, "a context or a trace, not both")
        adds_up = context is None or case.tokens == case.batch * context
        _require(adds_up, f"{where}.tokens", case.tokens, f"{case.batch} x {context}")
        adds_up = lengths is None or (sum(lengths), len(lengths)) == (case.tokens, case.batch)
        _require(adds_up, f"{where}.lengths", lengths, "as many as the batch, tokens in all")
    _check_timings(record)


def _check_timings(record: Record) -> None:
    cases = {case.id: case for case in record.cases}
    seen: set[tuple[str, str, str, int]] = set()
    repetitions: dict[str, int] = {}
    for index, timing in enumerate(record.timings):
        where = f"timings[{index}]"
        _require(timing.case in cases, f"{where}.case", timing.case, ", ".join(cases))
        key = (timing.case, timing.peer, timing.layout, timing.page_size)
        _require(key not in seen, where, key, "each case, peer, layout and page size once")
        seen.add(key)
        case = cases[timing.case]
        pages = case.batch if timing.layout == "contiguous" else case.pages(timing.page_size)
        fits, needed = timing.pages == (pages or timing.pages), f"{pages}, what the case needs"
        _require(fits, f"{where}.pages", timing.pages, needed)
        moved, least = timing.moved_bytes, f"at least {case.kv_bytes}, its K and V"
        _require(moved >= case.kv_bytes, f"{where}.moved_bytes", moved, least)
        rounds = len(timing.seconds)
        others = repetitions.setdefault(timing.case, rounds)
        alike = f"{others}, as the others of the case"
        _require(rounds == others, f"{where}.seconds", f"{rounds} repetitions", alike)
