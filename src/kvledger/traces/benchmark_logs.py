"""Results of vLLM's and SGLang's serving benchmarks: one run a record, one list a quantity.

Both write ``input_lens``, ``output_lens`` and ``errors`` with one entry a request, vLLM
``start_times`` as well (``vllm/benchmarks/serve.py``, ``sglang/bench_serving.py``). A request that
failed has an output of 0 tokens, and as a rule a text in ``errors``; where the server closed the
connection without a word that text is empty, and only ``completed`` tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvledger.core.errors import LedgerError
from kvledger.traces.forms import (
    Reading,
    Rows,
    RowStream,
    Tally,
    UnusableRowError,
    nanosecond_rounded,
)
from kvledger.traces.json_lines import Field, Record
from kvledger.traces.request_records import field, tokens


def read_benchmark(label: str, records: Iterator[Record], *, count: bool, tally: Tally) -> Reading:
    """Read one run a record."""

    def rows() -> RowStream:
        for number, record in enumerate(records):
            run = _run(label, record, count=count, tally=tally)
            # Each run has a clock of its own: two runs in one file have no common times.
            yield run if number == 0 else run._replace(arrival_s=None)

    # Requests are sent concurrently, so results may be out of order by a hair.
    return Reading(rows(), tally, by_time=True)


def _run(label: str, record: Record, *, count: bool, tally: Tally) -> Rows:
    lists = _lists(label, record)
    n = len(lists["input_lens"].value)
    errors = lists["errors"].value if "errors" in lists else [None] * n
    silent = _with_silent_failures(record, errors)
    prompts: list[int] = []
    outputs: list[int] = []
    starts: list[float] = []
    for i in range(n):
        if errors[i]:
            tally.fail("reported an error")
            continue
        if silent and lists["output_lens"].value[i] == 0:
            tally.fail("no output in a run with failures")
            continue
        at = {
            name: Field(label, record.line, f"{name}[{i}]", column.value[i])
            for name, column in lists.items()
        }
        try:
            prompt, output = tokens(at["input_lens"], at["output_lens"])
            start = at["start_times"].time() if "start_times" in at else None
        except UnusableRowError as problem:
            if not count:
                raise
            tally.unusable(problem.reason)
            continue
        prompts.append(prompt)
        outputs.append(output)
        if start is not None:
            starts.append(start)
    times = None
    if "start_times" in lists:
        times = nanosecond_rounded(np.array(starts, np.float64) - min(starts, default=0.0))
    return Rows(np.array(prompts, np.int64), np.array(outputs, np.int64), times)


def _lists(label: str, record: Record) -> dict[str, Field]:
    """Return the lists of a run, all of one length."""
    lists = {
        name: field(label, record, name, "benchmark") for name in ("input_lens", "output_lens")
    }
    for name in ("start_times", "errors"):
        if record.fields.get(name):
            lists[name] = Field(label, record.line, name, record.fields[name])
    n = len(lists["input_lens"].array())
    for each in lists.values():
        if len(each.array()) != n:
            # Which entry belongs to which request is not known: no row of this run can be used.
            raise LedgerError(
                f"{label}, line {record.line}: {each.name} has {len(each.value)} entries; "
                f"accepted: {n}, as many as input_lens"
            )
    return lists


def _with_silent_failures(record: Record, errors: list[object]) -> bool:
    """Tell whether fewer requests completed than have no error."""
    completed = record.fields.get("completed")
    return type(completed) is int and completed < sum(not error for error in errors)
