"""What a report is about: a trace, a model and a memory; and what is asked for, as data.

A notebook is given what a reader asks for as a file of JSON, never as code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from kvledger.accounting.allocations import next_power_of_two
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthTable, as_lengths, whole, whole_page_size
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_model, load_models
from kvledger.models.shapes import Model
from kvledger.traces import (
    TRACE_NAMES,
    LengthMarginals,
    Trace,
    first_arrivals,
    load_lengths,
    load_trace,
)
from kvledger.traces.derivation import load_requests
from proofbook.plaintext import shown_name

SETTINGS_FILE = "settings.json"
TRACE_FOLDER, MODEL_FOLDER = "trace", "model"
FOLDER_VARIABLE = "KVLEDGER_REPORT_DIR"
"""Names the folder where a notebook that is run for a report keeps its tables and numbers."""

DEFAULT_FIRST = 100_000
"""Arrivals that are replayed where a trace has more: some seconds a policy."""

DEFAULT_STEP_S = (0.02, 0.0001, 0.00005)
"""Seconds a step, a running request and a prompt token: assumed, of the order of a large GPU."""


@dataclass(frozen=True)
class Deployment:
    """A trace with the model and the memory that it is accounted for.

    Attributes
    ----------
    name, lengths : str, LengthMarginals
        The trace: a committed one's name, or the base name of a file; and its lengths.
    requests : Trace or None
        The requests in order; None where only their lengths are known.
    left_out : mapping of str to int
        Rows of the source that are no request, by reason.
    model, kv_memory_bytes : Model, int
        What a token takes, and the memory of the cache.
    page_size, max_running, first : int
        Slots a page, most requests that run at one time, most arrivals looked at in order.
    step_s : tuple of three float
        Assumed seconds a step, a running request and a computed prompt token, as of
        :class:`~kvledger.Arrivals`.
    """

    name: str
    lengths: LengthMarginals
    requests: Trace | None
    left_out: Mapping[str, int]
    model: Model
    kv_memory_bytes: int
    page_size: int = 16
    max_running: int = 256
    first: int = DEFAULT_FIRST
    step_s: tuple[float, float, float] = DEFAULT_STEP_S

    def __post_init__(self) -> None:
        object.__setattr__(self, "page_size", whole_page_size(self.page_size))
        for name in ("max_running", "first"):
            accepted = "a whole number of requests, at least 1"
            value = whole(getattr(self, name), name, minimum=1, accepted=accepted)
            object.__setattr__(self, name, value)
        if self.capacity_slots < self.page_size:
            least = self.page_size * self.model.kv_bytes_per_token
            raise LedgerError(
                f"kv_memory is {self.kv_memory_bytes} bytes; accepted: room for a page at least, "
                f"{least} bytes of {self.model.name}"
            )

    @property
    def total(self) -> LengthTable:
        """Requests by final length."""
        return self.lengths.total

    @property
    def capacity_slots(self) -> int:
        """Slots that fit in the memory, in whole pages."""
        page_bytes = self.model.kv_bytes_per_token * self.page_size
        return self.kv_memory_bytes // page_bytes * self.page_size

    @property
    def maximum(self) -> int:
        """The smallest power of two that holds the longest request, in slots."""
        return int(next_power_of_two([self.total.max_tokens])[0])

    @cached_property
    def arrivals(self) -> Trace | None:
        """The first requests in order, as many as are looked at."""
        return None if self.requests is None else first_arrivals(self.requests, self.first)


@dataclass(frozen=True, slots=True)
class Settings:
    """A trace, a model and a memory, and how they are looked at.

    Parameters
    ----------
    trace, model : str
        A file's base name, or a committed trace; a known model, or the base name of a
        ``config.json`` or of its folder.
    kv_memory : str
        As :func:`~kvledger.core.units.parse_bytes` reads it.
    model_name : str, optional
        What to call a model that is read from a file; the base name if not given.
    dtype, tensor_parallel : str, optional; int
        Data type of the cache, and ranks that share the KV heads.
    page_size, max_running, first, step_s
        As of a :class:`Deployment`.
    reading : mapping of str to str
        Options of :func:`~kvledger.load_trace`: ``format`` and ``unusable``.
    """

    trace: str
    model: str
    kv_memory: str
    model_name: str | None = None
    dtype: str | None = None
    tensor_parallel: int = 1
    page_size: int = 16
    max_running: int = 256
    first: int = DEFAULT_FIRST
    step_s: tuple[float, float, float] = DEFAULT_STEP_S
    reading: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write them to ``settings.json``."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        (folder / SETTINGS_FILE).write_text(text, encoding="ascii")


def open_deployment(
    trace: str, model: str, kv_memory: str, *, settings: str | Path | None = None
) -> Deployment:
    """Return what a notebook names, or what a file of settings names instead.

    Parameters
    ----------
    trace, model, kv_memory : str
        As of :class:`Settings`; where there is a file of them, they are not used.
    settings : path, optional
        A file that :meth:`Settings.write` wrote. Its trace and config are looked for beside it.

    Examples
    --------
    >>> work = open_deployment("azure_conv_2023", "Llama-3.1-8B", "60GiB")
    >>> work.capacity_slots, work.maximum
    (491520, 16384)
    """
    if settings is None:
        return read_deployment(Settings(trace, model, kv_memory))
    path = Path(settings)
    return read_deployment(read_settings(path), path.resolve().parent)


def read_deployment(given: Settings, folder: Path | None = None) -> Deployment:
    """Read the trace and the model that settings name, from a folder if they are files there."""
    trace, model, called = given.trace, given.model, given.model_name
    if folder is not None:
        trace = _beside(folder, TRACE_FOLDER, trace)
        called = called or base_name(Path(model))
        if model not in load_models():
            model = _beside(folder, MODEL_FOLDER, model)
    requests, lengths = _read(trace, given.reading)
    path = Path(trace)
    return Deployment(
        name=shown_name(path.name if path.exists() else lengths.name),
        lengths=lengths,
        requests=requests,
        left_out=lengths.skipped,
        model=load_model(model, given.dtype, given.tensor_parallel, name=called),
        kv_memory_bytes=parse_bytes(given.kv_memory, "kv_memory"),
        page_size=given.page_size,
        max_running=given.max_running,
        first=given.first,
        step_s=given.step_s,
    )


def _read(trace: str, reading: Mapping[str, Any]) -> tuple[Trace | None, LengthMarginals]:
    path = Path(trace)
    if trace in TRACE_NAMES and not path.exists():
        ordered = trace in ("azure_conv_2023", "mooncake_conversation")
        return (load_requests(trace) if ordered else None), load_lengths(trace)
    if path.name.endswith(".lengths.csv") or not path.exists():
        return None, load_lengths(trace)
    requests = load_trace(path, **reading)
    prompts, totals = as_lengths(requests.prompt_tokens), as_lengths(requests)
    name = requests.name or path.name
    return requests, LengthMarginals(name, prompts, totals, requests.skipped)


def read_settings(path: Path) -> Settings:
    """Read a file of settings; raises LedgerError if it holds something else."""
    names = [each.name for each in fields(Settings)]
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        settings = Settings(**found | {"step_s": tuple(found["step_s"])})
        if not set(settings.reading) <= {"format", "unusable"}:
            raise ValueError(f"reading is {settings.reading!r}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{path}: no settings of a report ({error}); accepted: {', '.join(names)}"
        ) from None
    return settings


def base_name(path: Path) -> str:
    """Return the last part of a path, of ``.`` too."""
    return path.absolute().name


def _beside(folder: Path, within: str, name: str) -> str:
    """Return the file of a name: in its folder or beside the settings; else the name itself."""
    base = base_name(Path(name))
    for path in (folder / within / base, folder / base):
        if base and path.exists():
            return str(path)
    return name
