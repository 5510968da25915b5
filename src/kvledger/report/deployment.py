"""What a report is about: a trace with the model and the memory that it is accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvledger.accounting.allocations import next_power_of_two
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthTable, as_lengths, whole, whole_page_size
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_model
from kvledger.models.shapes import Model
from kvledger.traces.derivation import load_requests
from kvledger.traces.trace import (
    TRACE_NAMES,
    LengthMarginals,
    Trace,
    load_lengths,
    load_trace,
)
from proofbook.plaintext import shown_name

DEFAULT_FIRST = 100_000
"""Arrivals that are replayed where a trace has more: some seconds a policy."""

DEFAULT_STEP_S = (0.02, 0.0001, 0.00005)
"""Seconds a step, a running request and a prompt token: assumed, of the order of a large GPU."""


@dataclass(frozen=True)
class Deployment:
    """A trace with the model and the memory that it is accounted for.

    Attributes
    ----------
    name : str
        The trace: a committed one's name, or the base name of a file.
    lengths : LengthMarginals
        Requests by prompt and by final length, in tokens.
    requests : Trace or None
        The requests in order; None where only their lengths are known.
    left_out : mapping of str to int
        Rows of the source that are no request, by reason.
    model : Model
        What a token takes.
    kv_memory_bytes : int
        Memory of the cache.
    page_size : int
        Slots a page, where one page size is looked at.
    max_running : int
        Most requests that run at one time.
    first : int
        Most arrivals that are looked at in order.
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
        for field in ("max_running", "first"):
            accepted = "a whole number of requests, at least 1"
            value = whole(getattr(self, field), field, minimum=1, accepted=accepted)
            object.__setattr__(self, field, value)
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


def read_deployment(
    trace: str | Path,
    model: str | Model,
    kv_memory: str | int,
    *,
    reading: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Deployment:
    """Read a trace file or a committed trace, by name, with a model and a memory.

    Parameters
    ----------
    trace : str or Path
        What :func:`~kvledger.load_lengths` reads.
    model : str or Model
        What :func:`~kvledger.models.known.load_model` takes.
    kv_memory : str or int
        Bytes, or a text such as ``"60GiB"``.
    reading : mapping
        Options of :func:`~kvledger.load_trace`.
    **settings
        ``page_size``, ``max_running``, ``first`` and ``step_s`` of a :class:`Deployment`.

    Examples
    --------
    >>> work = read_deployment("azure_conv_2023", "Llama-3.1-8B", "60GiB")
    >>> work.capacity_slots, work.maximum
    (491520, 16384)
    """
    requests, lengths = _read(trace, reading)
    path = Path(trace)
    return Deployment(
        name=shown_name(path.name if path.exists() else lengths.name),
        lengths=lengths,
        requests=requests,
        left_out=lengths.skipped,
        model=load_model(model),
        kv_memory_bytes=parse_bytes(kv_memory, "kv_memory"),
        **settings,
    )


def _read(trace: str | Path, reading: Mapping[str, Any]) -> tuple[Trace | None, LengthMarginals]:
    path, name = Path(trace), str(trace)
    if name in TRACE_NAMES and not path.exists():
        ordered = name in ("azure_conv_2023", "mooncake_conversation")
        return (load_requests(name) if ordered else None), load_lengths(name)
    if path.name.endswith(".lengths.csv") or not path.exists():
        return None, load_lengths(trace)
    requests = load_trace(path, **reading)
    prompts, totals = as_lengths(requests.prompt_tokens), as_lengths(requests)
    name = requests.name or path.name
    return requests, LengthMarginals(name, prompts, totals, requests.skipped)


def first_arrivals(trace: Trace, n: int) -> Trace:
    """Return the first ``n`` requests of a trace; the trace itself if it has no more.

    Examples
    --------
    >>> first_arrivals(Trace([5, 9, 17], [1, 2, 3], [0, 1, 4]), 2)
    Trace(2 requests, 14 prompt + 3 output tokens, over 1.0 s)
    """
    n = whole(n, "first", minimum=1, accepted="a whole number of requests, at least 1")
    if n >= trace.n_requests:
        return trace
    return Trace(
        trace.prompt_tokens[:n],
        trace.output_tokens[:n],
        None if trace.arrival_s is None else trace.arrival_s[:n],
        None if trace.page_ids is None else trace.page_ids[:n],
        trace.page_ids_size,
        name=trace.name,
    )
