"""A measurement on file: what was timed, on what, every repetition of it, and what was left out.

A record is one run on one device, written by :mod:`kvledger.measure.measuring` and never edited.
Reading one needs neither torch nor a GPU.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvledger.core import data_folder
from kvledger.core.errors import LedgerError
from kvledger.measure.record_checks import LAYOUTS, check_record
from kvledger.measure.record_fields import build
from proofbook.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FOLDER_VARIABLE",
    "LAYOUTS",
    "Absence",
    "CaseShape",
    "Copy",
    "Device",
    "HostTiming",
    "Record",
    "Source",
    "Timing",
    "latest_record",
    "read_record",
    "record_text",
    "records",
    "records_folder",
    "write_record",
]

#: A folder of records that stands in for ``data/measurements``.
FOLDER_VARIABLE = "KVLEDGER_MEASUREMENTS"

#: The peer that others are compared with where they have no contiguous timing of their own.
_BASELINE = "sdpa"


@dataclass(frozen=True, slots=True)
class Source:
    """The code that measured: its commit, a digest of the wing's modules, and whether edited.

    ``commit`` and ``dirty`` are None where the checkout does not say.
    """

    commit: str | None
    digest: str
    dirty: bool | None


@dataclass(frozen=True, slots=True)
class Device:
    """What was measured on. ``units`` are cores, or a GPU's multiprocessors."""

    kind: str
    name: str
    units: int
    memory_bytes: int
    last_level_cache_bytes: int
    driver: str | None
    capability: str | None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy in memory: bytes read plus bytes written, and its times."""

    bytes: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CaseShape:
    """A decode step: one new token for each of ``batch`` requests, in one layer.

    ``tokens`` are the requests' lengths in all and ``kv_bytes`` their K and V. A batch of a real
    trace has no single ``context_tokens``; its ``lengths`` stand here instead. With ``latent``,
    V is a part of K, and its bytes count once.
    """

    id: str
    shape: str
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    batch: int
    context_tokens: int | None
    trace: str | None
    tokens: int
    kv_bytes: int
    dtype: str
    latent: bool = False
    lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """One peer on one case, layout and page size: seconds a call, one entry a repetition.

    ``moved_bytes`` are the fewest that must move: K and V of the tokens once, q, the output and
    the table's entries. ``calls`` were timed together in a repetition. ``relative_error`` is the
    distance from the reference, in norms, on the timed tensors.
    """

    case: str
    peer: str
    layout: str
    page_size: int
    pages: int
    moved_bytes: int
    calls: int
    timed_by: str
    seconds: tuple[float, ...]
    relative_error: float

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
    reason: str


@dataclass(frozen=True, slots=True)
class HostTiming:
    """Work of a serving engine's host: ``what``, for so many requests and tokens.

    ``units`` counts what was handled, in ``unit``; ``seconds`` are of all of it.
    """

    what: str
    page_size: int
    requests: int
    tokens: int
    units: int
    unit: str
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Record:
    """One run of the measuring command on one device.

    ``file`` is the name of the file it was read from; it is not part of what was measured.
    """

    schema: int
    kind: str
    date: str
    command: str
    source: Source
    device: Device
    software: dict[str, str | None]
    settings: dict[str, object]
    copy: Copy
    cases: tuple[CaseShape, ...]
    timings: tuple[Timing, ...]
    absent: tuple[Absence, ...]
    host: tuple[HostTiming, ...]
    elapsed_s: float
    file: str = field(default="", metadata={"kept": False})

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

    def case(self, case_id: str) -> CaseShape:
        """Return the case of an id.

        Raises
        ------
        LedgerError
            If the record has none; the message lists those that it has.
        """
        for case in self.cases:
            if case.id == case_id:
                return case
        there = ", ".join(case.id for case in self.cases)
        raise LedgerError(f"no case {case_id!r} in {self.label}; there are: {there}")

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
        rows = []
        for timing in self.timings:
            case, baseline = cases[timing.case], self.baseline(timing)
            seconds = np.array(timing.seconds)
            low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
            ratios = np.full(1, np.nan) if baseline is None else seconds / baseline.seconds
            ratio_low, ratio, ratio_high = np.quantile(ratios, [0.25, 0.5, 0.75])
            rows.append(
                {
                    "case": case.id,
                    "shape": case.shape,
                    "batch": case.batch,
                    "context_tokens": case.context_tokens,
                    "trace": case.trace,
                    "dtype": case.dtype,
                    "peer": timing.peer,
                    "layout": timing.layout,
                    "page_size": timing.page_size,
                    "pages": timing.pages,
                    "seconds": median,
                    "seconds_low": low,
                    "seconds_high": high,
                    "baseline": None if baseline is None else baseline.peer,
                    "ratio": ratio,
                    "ratio_low": ratio_low,
                    "ratio_high": ratio_high,
                    "share": timing.moved_bytes / median / self.copy_bytes_per_s,
                }
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
            low, median, high = np.quantile(work.seconds, [0.25, 0.5, 0.75])
            rows.append(
                {
                    "what": work.what,
                    "page_size": work.page_size,
                    "requests": work.requests,
                    "tokens": work.tokens,
                    "units": work.units,
                    "unit": work.unit,
                    "seconds": median,
                    "seconds_low": low,
                    "seconds_high": high,
                    "seconds_per_token": median / work.tokens,
                    "seconds_per_unit": median / work.units if work.units else np.nan,
                }
            )
        return pd.DataFrame(rows)


# --------------------------------------------------------------------------- files


def records_folder() -> Path:
    """Return the folder of records: that of `FOLDER_VARIABLE` if set, else ``data/measurements``.

    Raises
    ------
    LedgerError
        If the variable names something that is not a folder.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        return data_folder() / "measurements"
    if not Path(named).is_dir():
        raise LedgerError(f"{FOLDER_VARIABLE} is {named!r}; accepted: a folder of records")
    return Path(named)


def records(folder: Path | None = None) -> list[Record]:
    """Read all records of a folder, the oldest first.

    Parameters
    ----------
    folder : Path, optional
        That of :func:`records_folder` when not given; none of it there means no records.

    Raises
    ------
    LedgerError
        If one of them is not a record.

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
    """Read a record and check all of it.

    Raises
    ------
    LedgerError
        Names the file, the field, its value and what is accepted.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text("utf-8"), parse_constant=_no_constant)
        return replace(check_record(build(Record, data, "")), file=path.name)
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise LedgerError(f"{path}: {error}; accepted: a JSON record of a measurement") from None


def write_record(record: Record, path: str | Path) -> None:
    """Write a new record, whole or not at all.

    Raises
    ------
    LedgerError
        If there is a file of that name already, the folder cannot be written to, or the record
        does not hold together.
    """
    path = Path(path)
    text = record_text(record)
    check_record(build(Record, json.loads(text, parse_constant=_no_constant), ""))
    check_is_new(path)
    write_whole(path, text.encode())


def check_is_new(path: Path) -> None:
    """Refuse the path of a file that is there: a record is never replaced."""
    if path.exists():
        raise LedgerError(f"{path} is there already; accepted: the name of a new file (--out FILE)")


def record_text(record: Record) -> str:
    """Return a record as JSON, one line an entry of its lists."""
    kept = {key: value for key, value in asdict(record).items() if key != "file"}
    fields = [f" {json.dumps(key)}: {_lines(value)}" for key, value in kept.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(json.dumps(each) for each in value) + "\n ]"
    return json.dumps(value)


def _no_constant(text: str) -> float:
    raise LedgerError(f"a number is {text}; accepted: finite numbers")
