"""The options that several commands have, and how their texts are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvledger.accounting.metadata import DEFAULT_PAGE_SIZES
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import LengthTable, as_lengths
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_models
from kvledger.models.shapes import Model

if TYPE_CHECKING:
    from kvledger.traces.trace import LengthMarginals, Trace

_POWERS = ",".join(map(str, DEFAULT_PAGE_SIZES))


#: What is shown of layers of several kinds where no page size is asked for.
COMMON_PAGE_SIZE = 16


def complete_trace(incomplete: str) -> list[str]:
    """Return the names of committed traces; the shell adds its own files."""
    names = (path.name.split(".")[0] for path in _tables("lengths"))
    return [name for name in names if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Return the names of known models."""
    return [name for name in load_models() if name.startswith(incomplete)]


TRACE_HELP = "A trace file, plain or compressed, - for standard input, or a committed trace."
MODEL_HELP = "A model by name (see: kvledger models), or its config.json."

AsJson = Annotated[bool, typer.Option("--json", help="Print exact JSON for programs.")]
TraceName = Annotated[
    str, typer.Argument(metavar="TRACE", help=TRACE_HELP, autocompletion=complete_trace)
]
MaybeTrace = Annotated[
    str | None, typer.Argument(metavar="TRACE", help=TRACE_HELP, autocompletion=complete_trace)
]
ModelName = Annotated[
    str,
    typer.Option("--model", metavar="MODEL", help=MODEL_HELP, autocompletion=complete_model),
]
MaybeModel = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help=MODEL_HELP, autocompletion=complete_model),
]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="TYPE", help="Data type of the cache, such as fp8."),
]
Ranks = Annotated[
    str,
    typer.Option("--tensor-parallel", metavar="N", help="Ranks that share the KV heads."),
]
Memory = Annotated[
    str,
    typer.Option("--kv-memory", metavar="SIZE", help="Memory of the cache: 60GB, 60GiB or bytes."),
]
MaybeMemory = Annotated[
    str | None,
    typer.Option("--kv-memory", metavar="SIZE", help="Memory of the cache: 60GB, 60GiB or bytes."),
]
TestedSizes = Annotated[
    str,
    typer.Option(
        "--test-sizes",
        metavar="P,P,…",
        help="Page sizes tested for the best, in slots.",
        show_default="powers of two from 1 to 4096",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The trace's format.",
        show_default="found from the file",
    ),
]
Unusable = Annotated[
    str | None,
    typer.Option(
        "--unusable",
        metavar="error|count",
        help="A row that cannot be read is an error, or left out and counted.",
        show_default="error",
    ),
]
_STEP_TIME = "seconds a step, a running request and a computed prompt token, as in 0.02,0.0001,0"
StepTime = Annotated[
    str | None,
    typer.Option("--step-time", metavar="S,S,S", help=f"Modelled {_STEP_TIME}."),
]
MaxRunning = Annotated[
    str, typer.Option("--max-running", metavar="N", help="Most requests that run at one time.")
]
ALL_POWERS = _POWERS


def items(text: str) -> list[str]:
    """Part a list at its commas."""
    return [item.strip() for item in text.split(",")]


def slots(text: str, what: str, also: str = "") -> int:
    """Read a whole number of slots, at least 1."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if value < 1:
        raise LedgerError(
            f"{what} is {shown(text)}; accepted: a whole number of slots, at least 1{also}"
        )
    return value


def count(text: str, option: str, of: str) -> int:
    """Read the number that an option takes: a whole one, at least 1."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if value < 1:
        raise LedgerError(
            f"{option} is {shown(text)}; accepted: a whole number of {of}, at least 1"
        )
    return value


def ranks(text: str) -> int:
    """Read ``--tensor-parallel``."""
    return count(text, "--tensor-parallel", "ranks")


def max_running(text: str) -> int:
    """Read ``--max-running``."""
    return count(text, "--max-running", "requests")


def page_sizes(text: str) -> list[int]:
    """Read page sizes; each once, ascending."""
    return sorted({slots(item, "a page size") for item in items(text)})


def reserves(text: str) -> list[int | str]:
    """Read reservations: slots, or the name of a policy."""
    return [
        item
        if item in ("pow2", "oracle")
        else slots(item, "a reserve", also=", or pow2, or oracle")
        for item in items(text)
    ]


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
        found = [float(item) for item in items(text)]
    except ValueError:
        found = []
    if len(found) != 3 or not all(0 <= value < math.inf for value in found):
        raise LedgerError(f"--step-time is {shown(text)}; accepted: {_STEP_TIME}")
    return (found[0], found[1], found[2])


def plain_lengths(text: str) -> LengthTable:
    """Read lengths given on the command line."""
    lengths = []
    for item in items(text):
        if not (item.isascii() and item.isdigit() and len(item) < 20 and int(item)):
            raise LedgerError(
                f"a length is {shown(item)}; accepted: whole numbers of tokens, at least 1, "
                "with commas between them"
            )
        lengths.append(int(item))
    return as_lengths(lengths)


def memory_slots(memory: str, model: Model, page_size: int = 1) -> int:
    """Return the slots that fit in an amount of memory, in whole pages.

    Raises
    ------
    LedgerError
        If not one page does.
    """
    n_bytes = parse_bytes(memory, "--kv-memory")
    pages = n_bytes // (model.kv_bytes_per_token * page_size)
    if not pages:
        raise LedgerError(
            f"--kv-memory is {shown(memory)}; accepted: room for a page at least, "
            f"{model.kv_bytes_per_token * page_size:,} bytes of {model.name}"
        )
    return pages * page_size


def reading(read_as: str | None, unusable: str | None) -> dict[str, Any]:
    """Return the options of reading that were given."""
    given = {"format": read_as, "unusable": unusable}
    return {name: value for name, value in given.items() if value is not None}


def read_trace(text: str, options: Mapping[str, Any]) -> Trace:
    """Read a trace's requests in order: from a file, or a committed table of requests."""
    from kvledger.traces.derivation import load_requests
    from kvledger.traces.trace import TRACE_NAMES, load_trace

    if text not in TRACE_NAMES or Path(text).exists():
        return load_trace(text, **options)
    ordered = [path.name.split(".")[0] for path in _tables("requests")]
    if text not in ordered:
        raise LedgerError(
            f"{text}: of this trace only the lengths are kept, not the order of requests; "
            f"accepted: a trace file, or {' or '.join(ordered)}"
        )
    return load_requests(text)


def _tables(kind: str) -> list[Path]:
    from kvledger.core import data_folder

    return sorted((data_folder() / "traces").glob(f"*.{kind}.csv"))


def trace_or_lengths(text: str, options: Mapping[str, Any]) -> Trace | LengthMarginals:
    """Read a trace with all that its file says; of a committed one, what is kept of it."""
    from kvledger.traces.trace import TRACE_NAMES, load_lengths

    kept = [path.name.split(".")[0] for path in _tables("requests")]
    if text.endswith(".lengths.csv") or (text in TRACE_NAMES and text not in kept):
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
