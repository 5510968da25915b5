"""The options that several commands have, and how their texts are read."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kvledger.accounting.metadata import DEFAULT_PAGE_SIZES
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import LengthTable, as_lengths
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_models
from kvledger.models.shapes import Model

if TYPE_CHECKING:
    from kvledger.traces import LengthMarginals, Trace

ALL_POWERS = ",".join(map(str, DEFAULT_PAGE_SIZES))
POWERS_WORDS = "powers of two from 1 to 4096"
_STEP_TIME = "seconds a step, a running request and a computed prompt token, as in 0.02,0.0001,0"


def complete_trace(incomplete: str) -> list[str]:
    """Return the names of committed traces; the shell adds its own files."""
    return [name for name in _tables("lengths") if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Return the names of known models."""
    return [name for name in load_models() if name.startswith(incomplete)]


def option(name: str, metavar: str, help: str, default: str | bool = True, **more: Any) -> Any:
    """Describe an option: what stands for its value, its help, and its default in words."""
    return typer.Option(name, metavar=metavar, help=help, show_default=default, **more)


_TRACE = typer.Argument(
    metavar="TRACE",
    help="A trace file, plain or compressed, - for standard input, or a committed trace.",
    autocompletion=complete_trace,
)
_MODEL = option(
    "--model",
    "MODEL",
    "A model by name (see: kvledger models), or its config.json.",
    autocompletion=complete_model,
)
_MEMORY = option("--kv-memory", "SIZE", "Memory of the cache: 60GB, 60GiB or bytes.")

AsJson = Annotated[bool, typer.Option("--json", help="Print exact JSON for programs.")]
TraceName = Annotated[str, _TRACE]
MaybeTrace = Annotated[str | None, _TRACE]
ModelName = Annotated[str, _MODEL]
MaybeModel = Annotated[str | None, _MODEL]
Memory = Annotated[str, _MEMORY]
MaybeMemory = Annotated[str | None, _MEMORY]
Dtype = Annotated[str | None, option("--dtype", "TYPE", "Data type of the cache, such as fp8.")]
Ranks = Annotated[int, option("--tensor-parallel", "N", "Ranks that share the KV heads.", min=1)]
PageSize = Annotated[int, option("--page-size", "P", "Slots a page.", min=1)]
MaxRunning = Annotated[
    int, option("--max-running", "N", "Most requests that run at one time.", min=1)
]
Format = Annotated[
    str | None, option("--format", "NAME", "The trace's format.", "found from the file")
]
Unusable = Annotated[
    Literal["error", "count"] | None,
    typer.Option(
        "--unusable",
        help="A row that cannot be read is an error, or left out and counted.",
        show_default="error",
    ),
]
StepTime = Annotated[str | None, option("--step-time", "S,S,S", f"Modelled {_STEP_TIME}.")]


def slots(text: str, what: str, accepted: str = "a whole number of slots, at least 1") -> int:
    """Read a whole number, at least 1."""
    text = text.strip()
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not value:
        raise LedgerError(f"{what} is {shown(text)}; accepted: {accepted}")
    return value


def page_sizes(text: str) -> list[int]:
    """Read page sizes; each once, ascending."""
    return sorted({slots(item, "a page size") for item in text.split(",")})


def reserves(text: str) -> list[int | str]:
    """Read reservations: slots, or the name of a policy."""
    accepted = "a whole number of slots, at least 1, or pow2, or oracle"
    return [
        item if item in ("pow2", "oracle") else slots(item, "a reserve", accepted)
        for item in map(str.strip, text.split(","))
    ]


def plain_lengths(text: str) -> LengthTable:
    """Read lengths given on the command line."""
    accepted = "whole numbers of tokens, at least 1, with commas between them"
    return as_lengths([slots(item, "a length", accepted) for item in text.split(",")])


def cost(text: str, name: str = "a cost per page") -> Fraction:
    """Read a cost per page, or a share: a decimal or a fraction, from 0."""
    try:
        # Twenty digits are more than any cost needs, and an exponent could ask for a billion.
        value = Fraction(text) if len(text) <= 41 and "e" not in text.lower() else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if value < 0:
        raise LedgerError(
            f"{name} is {shown(text)}; accepted: a number from 0, such as 0.25 or 3/14"
        )
    return value


def step_seconds(text: str) -> tuple[float, float, float]:
    """Read the three numbers of a modelled step time."""
    try:
        step, running, prompt = (float(item) for item in text.split(","))
        if all(0 <= value < math.inf for value in (step, running, prompt)):
            return step, running, prompt
    except ValueError:
        pass
    raise LedgerError(f"--step-time is {shown(text)}; accepted: {_STEP_TIME}")


def memory_slots(memory: str, model: Model, page_size: int = 1) -> int:
    """Return the slots that fit in an amount of memory, in whole pages, one at least."""
    page_bytes = model.kv_bytes_per_token * page_size
    pages = parse_bytes(memory, "--kv-memory") // page_bytes
    if not pages:
        raise LedgerError(
            f"--kv-memory is {shown(memory)}; accepted: room for a page at least, "
            f"{page_bytes:,} bytes of {model.name}"
        )
    return pages * page_size


def reading(read_as: str | None, unusable: str | None) -> dict[str, Any]:
    """Return the options of reading that were given."""
    given = {"format": read_as, "unusable": unusable}.items()
    return {name: value for name, value in given if value is not None}


def read_trace(text: str, options: Mapping[str, Any]) -> Trace:
    """Read a trace's requests in order: from a file, or a committed table of requests."""
    from kvledger.traces import TRACE_NAMES, load_trace
    from kvledger.traces.derivation import load_requests

    if text not in TRACE_NAMES or Path(text).exists():
        return load_trace(text, **options)
    if text not in _tables("requests"):
        raise LedgerError(
            f"{text}: of this trace only the lengths are kept, not the order of requests; "
            f"accepted: a trace file, or {' or '.join(_tables('requests'))}"
        )
    return load_requests(text)


def _tables(kind: str) -> list[str]:
    """Return the names of the committed traces of which there is such a table."""
    from kvledger.core import data_folder

    found = (data_folder() / "traces").glob(f"*.{kind}.csv")
    return sorted(path.name.split(".")[0] for path in found)


def trace_or_lengths(text: str, options: Mapping[str, Any]) -> Trace | LengthMarginals:
    """Read a trace with all that its file says; of a committed one, what is kept of it."""
    from kvledger.traces import TRACE_NAMES, load_lengths

    of_lengths = text in TRACE_NAMES and text not in _tables("requests")
    if text.endswith(".lengths.csv") or of_lengths:
        return load_lengths(text)
    return read_trace(text, options)


def left_out(trace: Trace | LengthMarginals) -> list[str]:
    """Say which rows of a source are in no answer, by reason; nothing if all are."""
    return [str(trace.skipped)] if trace.skipped else []


def named_traces(texts: Iterable[str], options: Mapping[str, Any]) -> dict[str, Trace]:
    """Read traces, each under its name; a name that is taken gives way to the path."""
    named: dict[str, Trace] = {}
    for text in texts:
        trace = read_trace(text, options)
        name = trace.name or text
        named[text if name in named else name] = trace
    return named


def end_cleanly() -> None:
    """End as Ctrl-C does, cleaning up, when asked to terminate."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
