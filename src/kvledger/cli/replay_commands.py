"""``kvledger replay`` and ``kvledger sweep``: traces run through a pool over time.

The engine takes longer to import than most commands take to run, so it is imported when needed.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kvledger.cli import Table, answer
from kvledger.cli import options as opt
from kvledger.core.errors import LedgerError, shown
from kvledger.models.known import load_model
from proofbook.files import check_file, write_whole

if TYPE_CHECKING:
    from kvledger.replays.policies import Clock, Contiguous, Paged
    from kvledger.replays.result import Replay

_WORDS = {
    "used": "tokens",
    "tail_slack": "tail slack",
    "reserved_later": "reserved, used later",
    "reserved_never": "reserved, never used",
    "external": "external",
    "unallocated": "unallocated",
}


def replay(
    trace: opt.TraceName,
    capacity: Annotated[
        int | None, opt.option("--capacity", "S", "Slots of the pool, whole pages.", min=1)
    ] = None,
    model: opt.MaybeModel = None,
    kv_memory: opt.MaybeMemory = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = 1,
    page_size: opt.PageSize = 16,
    reserve: Annotated[
        str | None, opt.option("--reserve", "R", "Contiguous runs: slots, pow2 or oracle.")
    ] = None,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Share pages of common prefixes.")
    ] = False,
    max_running: opt.MaxRunning = 256,
    step_time: opt.StepTime = None,
    first: Annotated[
        int | None, opt.option("--first", "N", "Only the first N arrivals.", min=1)
    ] = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Replay one trace through a pool, and say what the pool was made of and who had to wait.

    All requests wait from the start; with --step-time they come at their times.
    """
    if capacity is not None and kv_memory is None:
        slots = capacity
    elif capacity is None and kv_memory is not None and model is not None:
        shape = load_model(model, dtype, tensor_parallel)
        slots = opt.memory_slots(kv_memory, shape, page_size)
    else:
        raise LedgerError(
            "accepted: --capacity, or --kv-memory with --model (kvledger replay --help)"
        )
    reserved = [] if reserve is None else opt.reserves(reserve)
    if len(reserved) > 1:
        raise LedgerError(
            f"--reserve is {shown(reserve)}; accepted: one policy (sweep takes several)"
        )
    from kvledger.replays.policies import Arrivals, Contiguous, Paged, Saturated
    from kvledger.replays.replay import replay as run
    from kvledger.traces import first_arrivals

    clock: Clock = Saturated() if step_time is None else Arrivals(*opt.step_seconds(step_time))
    policy: Paged | Contiguous = Paged(page_size, prefix_cache=prefix_cache)
    asked: dict[str, Any] = {"page_size": page_size, "prefix_cache": prefix_cache}
    held = f"pages of {page_size:,}" + " with a prefix cache" * prefix_cache
    for given in reserved:
        policy, asked = Contiguous(cast(Any, given)), {"reserve": given}
        held = f"{given:,} reserved" if isinstance(given, int) else f"reserve {given}"
    whole_trace = opt.read_trace(trace, opt.reading(read_as, unusable))
    requests = whole_trace if first is None else first_arrivals(whole_trace, first)
    result = run(requests, policy, capacity_slots=slots, max_running=max_running, clock=clock)
    found = _summary(result)
    document = {
        "command": "replay",
        "trace": requests.name,
        "requests": requests.n_requests,
        "left_out": whole_trace.skipped,
        "policy": asked,
        "capacity_slots": result.capacity_slots,
        "max_running": max_running,
        "clock": "saturated" if step_time is None else step_time,
        **found,
    }
    arriving = "all waiting from the start" if step_time is None else "at their times"
    shares = [
        [_WORDS[name], f"{float(value / result.capacity_slots):.2%}"]
        for name, value in found["mean_slots"].items()
    ]
    parts: list[str | Table] = [
        f"{requests.name}: {requests.n_requests:,} requests, {held}, "
        f"a pool of {result.capacity_slots:,} slots, {arriving}",
        *opt.left_out(whole_trace),
        "",
        Table(["share of the pool, mean of settled steps", ""], shares),
        "",
        Table(["over the whole replay", ""], _replay_rows(found, prefix_cache)),
    ]
    return answer(parts, document, as_json)


def _summary(result: Replay) -> dict[str, Any]:
    """Return means over the settled steps, and sums over the whole replay."""
    from kvledger.replays import growth

    steps = growth.settled(result)
    n = steps.stop - steps.start
    mean = {name: Fraction(int(growth.part(result, name)[steps].sum()), n) for name in growth.PARTS}
    tokens = ("recomputed_tokens", "hit_tokens", "computed_prompt_tokens")
    return {
        "settled_steps": n,
        "mean_slots": mean,
        "mean_shared_tokens": Fraction(int(result.shared_tokens[steps].sum()), n),
        "mean_running": Fraction(int(result.running[steps].sum()), n),
        "steps": len(result),
        **{state: result.count(state) for state in ("finished", "refused")},
        "preempted": result.total("preempted"),
        "blocked_steps": int(result.blocked.sum()),
        **{name: result.total(name) for name in tokens},
    }


def _replay_rows(found: dict[str, Any], prefix_cache: bool) -> list[list[str]]:
    rows = [[name, f"{found[name]:,}"] for name in ("finished", "refused")]
    rows.append(["mean running", f"{float(found['mean_running']):,.1f}"])
    rows.append(["steps", f"{found['steps']:,}"])
    rows.append(["steps that blocked somebody", f"{found['blocked_steps']:,}"])
    rows.append(["preempted", f"{found['preempted']:,}"])
    rows.append(["recomputed tokens", f"{found['recomputed_tokens']:,}"])
    if prefix_cache:
        prompts = max(found["hit_tokens"] + found["computed_prompt_tokens"], 1)
        rows.append(["prompt tokens found cached", f"{found['hit_tokens'] / prompts:.2%}"])
        spared = float(found["mean_shared_tokens"])
        rows.append(["mean tokens spared by sharing", f"{spared:,.0f}"])
    return rows


def sweep(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE…",
            help="Trace files, or names of committed traces.",
            autocompletion=opt.complete_trace,
        ),
    ],
    capacity: Annotated[str, opt.option("--capacity", "S,S,…", "Slots of the pool, whole pages.")],
    page_size: Annotated[str, opt.option("--page-size", "P,P,…", "Page sizes in slots.")] = "16",
    reserve: Annotated[
        str | None, opt.option("--reserve", "R,R,…", "Contiguous runs too: slots, pow2, oracle.")
    ] = None,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Share pages of common prefixes, of known ids.")
    ] = False,
    max_running: opt.MaxRunning = 256,
    jobs: Annotated[int, opt.option("--jobs", "N", "Processes; -1 is one a core.", min=-1)] = -1,
    scheduler: Annotated[
        str | None, opt.option("--scheduler", "ADDRESS", "Run on this Dask scheduler's cluster.")
    ] = None,
    store: Annotated[
        str | None, opt.option("--store", "DIR", "Keep finished rows there, and go on from it.")
    ] = None,
    out: Annotated[
        str | None, opt.option("--out", "FILE.csv", "Write every column to this file.")
    ] = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Replay traces under many policies and capacities, on all cores or on a cluster."""
    sizes = opt.page_sizes(page_size)
    others = [] if reserve is None else opt.reserves(reserve)
    capacities = [opt.slots(item, "a capacity") for item in capacity.split(",")]
    if not jobs:
        raise LedgerError("--jobs is 0; accepted: a whole number of processes, at least 1, or -1")
    if out is not None:
        check_file(Path(out))
    import pandas as pd

    from kvledger.replays.policies import Contiguous, Paged
    from kvledger.replays.sweep import sweep as run

    policies: list[Paged | Contiguous] = [Paged(size, prefix_cache=prefix_cache) for size in sizes]
    policies += [Contiguous(cast(Any, each)) for each in others]
    named = opt.named_traces(traces, opt.reading(read_as, unusable))
    places: dict[str, Any] = {"scheduler": scheduler, "store": store, "n_jobs": jobs}
    table = run(named, policies, capacities, max_running=max_running, **places)
    rows = cast(list[dict[str, Any]], table.astype(object).to_dict("records"))
    parts: list[str | Table] = [_sweep_table(rows)]
    if out is not None:
        write_whole(Path(out), table.to_csv(index=False, lineterminator="\n").encode())
        parts = [f"wrote {out}: {len(table):,} rows"]
    parts += [f"{name}: {line}" for name, trace in named.items() for line in opt.left_out(trace)]
    document = {
        "command": "sweep",
        "left_out": {name: trace.skipped for name, trace in named.items()},
        # Each row without what its policy or clock does not have.
        "rows": [{n: v for n, v in row.items() if not pd.isna(v)} for row in rows],
    }
    return answer(parts, document, as_json)


def _sweep_table(table: list[dict[str, Any]]) -> Table:
    columns = ["policy", "capacity", "finished", "refused", "mean running", "tokens", "tail slack"]
    columns += ["reserved", "external", "blocked", "preempted", "recomputed", "hits"]
    parts = ("distinct_tokens", "tail_slack_slots", "reserved_slots", "external_slots")
    rows = []
    for row in table:
        held = f"reserve {row['reserve']}"
        if row["policy"] == "paged":
            held = f"pages of {row['page_size']:,}"
        cells = [f"{row['trace']}, {held}"]
        cells += [f"{row[name]:,}" for name in ("capacity_slots", "finished", "refused")]
        cells += [f"{row['mean_running']:,.1f}"]
        cells += [f"{row[f'mean_{part}'] / row['capacity_slots']:.2%}" for part in parts]
        cells += [f"{row['blocked_share']:.2%}", f"{row['preempted']:,}"]
        rows.append([*cells, f"{row['recomputed_tokens']:,}", f"{row['hit_rate']:.2%}"])
    return Table(columns, rows)
