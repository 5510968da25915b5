"""``kvledger decide``: the range of page sizes that is good for a trace and a model, and why."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer, Table
from kvledger.core.errors import LedgerError, shown
from kvledger.models.known import load_model

if TYPE_CHECKING:
    from kvledger.decision.decide import Decision

_PREFIXES = ("ids", "expected", "none")
_COLUMNS = {
    "page_size": "page size",
    "tail_slack_slots": "tail slack",
    "metadata_slots": "metadata",
    "shared_lost_slots": "prefix lost",
    "read_slots": "reading",
    "total_slots": "slots in all",
    "above_best": "above the best",
    "near": "near it",
    "kernels": "kernels",
}


def _prefix_names(incomplete: str) -> list[str]:
    return [name for name in _PREFIXES if name.startswith(incomplete)]


def decide(
    trace: opt.TraceName,
    model: opt.ModelName,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = "1",
    page_size: Annotated[
        str | None,
        typer.Option(
            "--page-size",
            metavar="P,P,…",
            help="Page sizes to test, in slots.",
            show_default="all that engines take, and more",
        ),
    ] = None,
    metadata: Annotated[
        str, typer.Option("--metadata", metavar="NAME", help="What is kept for pages, or none.")
    ] = "vllm",
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="A record of kvledger measure, or none.",
            show_default="the latest of a GPU, if there is one",
        ),
    ] = None,
    peer: Annotated[
        str | None, typer.Option("--peer", metavar="NAME", help="Whose times of the record.")
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix",
            metavar="|".join(_PREFIXES),
            help="Shared prefixes lost to rounding: from page ids, as published, or left out.",
            autocompletion=_prefix_names,
        ),
    ] = "ids",
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="ID", help="Test only what this kernel reads."),
    ] = None,
    tolerance: Annotated[
        str, typer.Option("--tolerance", metavar="SHARE", help="Accepted excess over the best.")
    ] = "1/100",
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say which page sizes are good, what decides it at each end, and what would change it.

    Time to read through the page table comes from a measurement; without one it is not measured.
    """
    if prefix not in _PREFIXES:
        raise LedgerError(f"--prefix is {shown(prefix)}; accepted: {', '.join(_PREFIXES)}")
    sizes = None if page_size is None else opt.page_sizes(page_size)
    share = opt.cost(tolerance, "--tolerance")
    shape = load_model(model, dtype, opt.ranks(tensor_parallel))
    from kvledger.decision.decide import decide as weigh
    from kvledger.measure.record import latest_record, read_record

    if record is None:
        measured = latest_record("cuda")
    else:
        measured = None if record == "none" else read_record(record)
    requests = opt.trace_or_lengths(trace, opt.reading(read_as, unusable))
    decision = weigh(
        requests,
        shape,
        page_sizes=sizes,
        metadata=None if metadata == "none" else metadata,
        record=measured,
        peer=peer,
        prefix=None if prefix == "none" else prefix,  # type: ignore[arg-type]
        kernel=kernel,
        tolerance=share,
    )
    document = {"command": "decide", "left_out": requests.skipped, **decision.as_dict()}
    lines = [*decision.text().split("\n"), *opt.left_out(requests)]
    return Answer([*lines, "", _table(decision)], document).text(as_json)


def _table(decision: Decision) -> Table:
    frame = decision.frame()
    rows = [[_cell(name, row[name]) for name in _COLUMNS] for row in frame.to_dict("records")]
    return Table(list(_COLUMNS.values()), rows, left=0)


def _cell(name: str, value: Any) -> str:
    from kvledger.decision.answers import number

    if value is None:
        return "not measured"
    if name == "near":
        return "yes" if value else "no"
    if name == "above_best":
        return f"{float(value):.2%}"
    return number(value) if isinstance(value, Fraction) else f"{value:,}"
