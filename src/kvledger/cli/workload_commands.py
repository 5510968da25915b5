"""``kvledger decide`` and ``kvledger report``: good page sizes for a workload; all of it as a page.

Either looks at a trace together with a model. What weighs and runs them is imported when needed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvledger.cli import Table, answer
from kvledger.cli import options as opt
from kvledger.models.known import load_model

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


def decide(
    trace: opt.TraceName,
    model: opt.ModelName,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = 1,
    page_size: Annotated[
        str | None,
        opt.option(
            "--page-size",
            "P,P,…",
            "Page sizes to test, in slots.",
            "all that engines take, and more",
        ),
    ] = None,
    metadata: Annotated[
        str, opt.option("--metadata", "NAME", "What is kept for pages, or none.")
    ] = "vllm",
    record: Annotated[
        str | None,
        opt.option(
            "--record",
            "FILE",
            "A record of kvledger measure, or none.",
            "the latest of a GPU, if there is one",
        ),
    ] = None,
    peer: Annotated[str | None, opt.option("--peer", "NAME", "Whose times of the record.")] = None,
    prefix: Annotated[
        Literal["ids", "expected", "none"],
        typer.Option(
            "--prefix",
            help="Shared prefixes lost to rounding: from page ids, as published, or left out.",
        ),
    ] = "ids",
    kernel: Annotated[
        str | None, opt.option("--kernel", "ID", "Test only what this kernel reads.")
    ] = None,
    tolerance: Annotated[
        str, opt.option("--tolerance", "SHARE", "Accepted excess over the best.")
    ] = "1/100",
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say which page sizes are good, what decides it at each end, and what would change it.

    Time to read through the page table comes from a measurement; without one it is not measured.
    """
    sizes = None if page_size is None else opt.page_sizes(page_size)
    share = opt.cost(tolerance, "--tolerance")
    shape = load_model(model, dtype, tensor_parallel)
    from kvledger.decision import decide as weigh
    from kvledger.decision.answers import cell_words
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
        prefix=None if prefix == "none" else prefix,
        kernel=kernel,
        tolerance=share,
    )
    document = {"command": "decide", "left_out": requests.skipped, **decision.as_dict()}
    lines = [*decision.text().split("\n"), *opt.left_out(requests)]
    frame = decision.frame().to_dict("records")
    rows = [[cell_words(name, row[name]) for name in _COLUMNS] for row in frame]
    return answer([*lines, "", Table(list(_COLUMNS.values()), rows, left=0)], document, as_json)


def report(
    trace: opt.TraceName,
    model: opt.ModelName,
    kv_memory: opt.Memory,
    out: Annotated[str, opt.option("--out", "DIR", "The folder to make; it must not hold files.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier report in that folder.")
    ] = False,
    model_name: Annotated[
        str | None,
        opt.option(
            "--model-name",
            "NAME",
            "What to call a model that is read from a file.",
            "the base name of the file",
        ),
    ] = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = 1,
    page_size: opt.PageSize = 16,
    max_running: opt.MaxRunning = 256,
    first: Annotated[
        int, opt.option("--first", "N", "Arrivals to replay, of those there are.", min=1)
    ] = 100_000,
    step_time: opt.StepTime = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Write the report of the book on your own trace: a page, its notebook, figures and numbers.

    It holds counts and sums only. It needs what the book is made with: pip install
    'kvledger[book]'.
    """
    from kvledger.report import Settings, write_report

    settings = Settings(
        trace=trace,
        model=model,
        kv_memory=kv_memory,
        model_name=model_name,
        dtype=dtype,
        tensor_parallel=tensor_parallel,
        page_size=page_size,
        max_running=max_running,
        first=first,
        reading=opt.reading(read_as, unusable),
    )
    if step_time is not None:
        settings = replace(settings, step_s=opt.step_seconds(step_time))
    opt.end_cleanly()
    written = [str(path) for path in write_report(settings, Path(out), force=force)]
    document = {"command": "report", "written": written}
    return answer([f"wrote {path}" for path in written], document, as_json)
