"""``kvledger report``: the whole report on one trace, model and memory, as a folder."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Never

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer


def report(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help=opt.TRACE_HELP,
            autocompletion=opt.complete_trace,
        ),
    ],
    model: opt.ModelName,
    kv_memory: opt.Memory,
    out: Annotated[
        str,
        typer.Option("--out", metavar="DIR", help="The folder to make; it must not hold files."),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier report in that folder.")
    ] = False,
    model_name: Annotated[
        str | None,
        typer.Option(
            "--model-name",
            metavar="NAME",
            help="What to call a model that is read from a file.",
            show_default="the base name of the file",
        ),
    ] = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = "1",
    page_size: Annotated[
        str, typer.Option("--page-size", metavar="P", help="The page size looked at, in slots.")
    ] = "16",
    max_running: opt.MaxRunning = "256",
    first: Annotated[
        str,
        typer.Option("--first", metavar="N", help="Arrivals to replay, of those there are."),
    ] = "100000",
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
        tensor_parallel=opt.ranks(tensor_parallel),
        page_size=opt.slots(page_size, "a page size"),
        max_running=opt.max_running(max_running),
        first=opt.count(first, "--first", "arrivals"),
    )
    if read_as is not None or unusable is not None:
        settings = replace(settings, reading=opt.reading(read_as, unusable))
    if step_time is not None:
        settings = replace(settings, step_s=opt.step_seconds(step_time))
    signal.signal(signal.SIGTERM, _end)
    written = [str(path) for path in write_report(settings, Path(out), force=force)]
    document = {"command": "report", "written": written}
    return Answer([f"wrote {path}" for path in written], document).text(as_json)


def _end(number: int, frame: FrameType | None) -> Never:
    """End as Ctrl-C does, cleaning up, when asked to terminate."""
    sys.exit(128 + number)
