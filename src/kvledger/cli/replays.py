"""``kvledger replay`` and ``kvledger sweep``: traces run through a pool over time.

The engine takes longer to import than most commands take to run, so it is imported when needed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer, Table
from kvledger.core.errors import LedgerError, shown
from kvledger.models.known import load_model
from proofbook.files import check_file, write_whole

if TYPE_CHECKING:
    import pandas as pd

    from kvledger.replays.policies import Clock
    from kvledger.replays.replay import Contiguous, Paged
    from kvledger.traces.trace import Trace

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
        str | None, typer.Option("--capacity", metavar="S", help="Slots of the pool, whole pages.")
    ] = None,
    model: opt.MaybeModel = None,
    kv_memory: opt.MaybeMemory = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = "1",
    page_size: Annotated[
        str, typer.Option("--page-size", metavar="P", help="Slots a page.")
    ] = "16",
    reserve: Annotated[
        str | None,
        typer.Option("--reserve", metavar="R", help="Contiguous runs: slots, pow2 or oracle."),
    ] = None,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Share pages of common prefixes.")
    ] = False,
    max_running: opt.MaxRunning = "256",
    step_time: opt.StepTime = None,
    first: Annotated[
        str | None, typer.Option("--first", metavar="N", help="Only the first N arrivals.")
    ] = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Replay one trace through a pool, and say what the pool was made of and who had to wait.

    All requests wait from the start; with --step-time they come at their times.
    """
    size, most = opt.slots(page_size, "a page size"), opt.max_running(max_running)
    slots = _capacity(capacity, model, kv_memory, dtype, opt.ranks(tensor_parallel), size)
    given = None if reserve is None else _one_reserve(reserve)
    n = None if first is None else opt.count(first, "--first", "arrivals")
    from kvledger.replays import growth
    from kvledger.replays.replay import Arrivals, Contiguous, Paged, Saturated
    from kvledger.replays.replay import replay as run

    clock: Clock = Saturated() if step_time is None else Arrivals(*opt.step_seconds(step_time))
    policy: Paged | Contiguous = (
        Paged(size, prefix_cache=prefix_cache) if given is None else Contiguous(cast(Any, given))
    )
    whole_trace = opt.read_trace(trace, opt.reading(read_as, unusable))
    requests = _first(whole_trace, n)
    result = run(requests, policy, capacity_slots=slots, max_running=most, clock=clock)
    steps = growth.settled(result)
    n = steps.stop - steps.start
    mean = {name: Fraction(int(growth.part(result, name)[steps].sum()), n) for name in growth.PARTS}
    shared = Fraction(int(result.shared_tokens[steps].sum()), n)
    running = Fraction(int(result.running[steps].sum()), n)
    hits, again = result.total("hit_tokens"), result.total("recomputed_tokens")
    computed = result.total("computed_prompt_tokens")
    document = {
        "command": "replay",
        "trace": requests.name,
        "requests": requests.n_requests,
        "left_out": whole_trace.skipped,
        "policy": {"page_size": size, "prefix_cache": prefix_cache}
        if given is None
        else {"reserve": given},
        "capacity_slots": result.capacity_slots,
        "max_running": most,
        "clock": "saturated" if step_time is None else step_time,
        "settled_steps": n,
        "mean_slots": mean,
        "mean_shared_tokens": shared,
        "mean_running": running,
        "steps": len(result),
        "finished": result.count("finished"),
        "refused": result.count("refused"),
        "preempted": result.total("preempted"),
        "blocked_steps": int(result.blocked.sum()),
        "recomputed_tokens": again,
        "hit_tokens": hits,
        "computed_prompt_tokens": computed,
    }
    parts: list[str | Table] = [
        f"{requests.name}: {requests.n_requests:,} requests, {_policy(size, given, prefix_cache)}, "
        f"a pool of {result.capacity_slots:,} slots"
        + (", all waiting from the start" if step_time is None else ", at their times"),
        *opt.left_out(whole_trace),
        "",
        Table(
            ["share of the pool, mean of settled steps", ""],
            [
                [_WORDS[name], f"{float(value / result.capacity_slots):.2%}"]
                for name, value in mean.items()
            ],
        ),
        "",
        Table(
            ["over the whole replay", ""],
            [
                ["finished", f"{result.count('finished'):,}"],
                ["refused", f"{result.count('refused'):,}"],
                ["mean running", f"{float(running):,.1f}"],
                ["steps", f"{len(result):,}"],
                ["steps that blocked somebody", f"{int(result.blocked.sum()):,}"],
                ["preempted", f"{result.total('preempted'):,}"],
                ["recomputed tokens", f"{again:,}"],
                *(_cached(hits / max(hits + computed, 1), shared) if prefix_cache else []),
            ],
        ),
    ]
    return Answer(parts, document).text(as_json)


def _cached(hit_rate: float, shared: Fraction) -> list[list[str]]:
    return [
        ["prompt tokens found cached", f"{hit_rate:.2%}"],
        ["mean tokens spared by sharing", f"{float(shared):,.0f}"],
    ]


def _capacity(
    capacity: str | None,
    model: str | None,
    kv_memory: str | None,
    dtype: str | None,
    ranks: int,
    page_size: int,
) -> int:
    if capacity is not None and kv_memory is None:
        return opt.slots(capacity, "a capacity")
    if capacity is None and kv_memory is not None and model is not None:
        return opt.memory_slots(kv_memory, load_model(model, dtype, ranks), page_size)
    raise LedgerError("accepted: --capacity, or --kv-memory with --model (kvledger replay --help)")


def _one_reserve(text: str) -> int | str:
    found = opt.reserves(text)
    if len(found) != 1:
        raise LedgerError(f"--reserve is {shown(text)}; accepted: one policy (sweep takes several)")
    return found[0]


def _first(trace: Trace, first: int | None) -> Trace:
    from kvledger.report.deployment import first_arrivals

    return trace if first is None else first_arrivals(trace, first)


def _policy(page_size: int, reserve: int | str | None, prefix_cache: bool) -> str:
    if reserve is not None:
        return f"{reserve:,} reserved" if isinstance(reserve, int) else f"reserve {reserve}"
    return f"pages of {page_size:,}" + (" with a prefix cache" if prefix_cache else "")


def sweep(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE…",
            help="Trace files, or names of committed traces.",
            autocompletion=opt.complete_trace,
        ),
    ],
    capacity: Annotated[
        str, typer.Option("--capacity", metavar="S,S,…", help="Slots of the pool, whole pages.")
    ],
    page_size: Annotated[
        str, typer.Option("--page-size", metavar="P,P,…", help="Page sizes in slots.")
    ] = "16",
    reserve: Annotated[
        str | None,
        typer.Option(
            "--reserve", metavar="R,R,…", help="Contiguous runs too: slots, pow2, oracle."
        ),
    ] = None,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Share pages of common prefixes, of known ids.")
    ] = False,
    max_running: opt.MaxRunning = "256",
    jobs: Annotated[
        str, typer.Option("--jobs", metavar="N", help="Processes; -1 is one a core.")
    ] = "-1",
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler", metavar="ADDRESS", help="Run on this Dask scheduler's cluster."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR", help="Keep finished rows there, and go on from it."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE.csv", help="Write every column to this file."),
    ] = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Replay traces under many policies and capacities, on all cores or on a cluster."""
    sizes = opt.page_sizes(page_size)
    others = [] if reserve is None else opt.reserves(reserve)
    capacities = [opt.slots(item, "a capacity") for item in opt.items(capacity)]
    if out is not None:
        check_file(Path(out))
    from kvledger.replays.replay import Contiguous, Paged
    from kvledger.replays.sweep import sweep as run

    policies: list[Paged | Contiguous] = [Paged(size, prefix_cache=prefix_cache) for size in sizes]
    policies += [Contiguous(cast(Any, each)) for each in others]
    named = opt.named_traces(traces, opt.reading(read_as, unusable))
    table = run(
        named,
        policies,
        capacities,
        max_running=opt.max_running(max_running),
        scheduler=scheduler,
        store=store,
        n_jobs=-1 if jobs == "-1" else opt.count(jobs, "--jobs", "processes"),
    )
    parts: list[str | Table] = [_sweep_table(table)]
    if out is not None:
        write_whole(Path(out), table.to_csv(index=False, lineterminator="\n").encode())
        parts = [f"wrote {out}: {len(table):,} rows"]
    parts += [f"{name}: {line}" for name, trace in named.items() for line in opt.left_out(trace)]
    document = {
        "command": "sweep",
        "left_out": {name: trace.skipped for name, trace in named.items()},
        "rows": [_plain(row) for row in _records(table)],
    }
    return Answer(parts, document).text(as_json)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], table.astype(object).to_dict("records"))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without what its policy or clock does not have."""
    import pandas as pd

    return {name: value for name, value in row.items() if not pd.isna(value)}


def _sweep_table(table: pd.DataFrame) -> Table:
    def size(row: dict[str, Any]) -> str:
        if row["policy"] == "paged":
            return f"pages of {row['page_size']:,}"
        return f"reserve {row['reserve']}"

    def share(row: dict[str, Any], column: str) -> str:
        return f"{row[f'mean_{column}'] / row['capacity_slots']:.2%}"

    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "policy": lambda row: f"{row['trace']}, {size(row)}",
        "capacity": lambda row: f"{row['capacity_slots']:,}",
        "finished": lambda row: f"{row['finished']:,}",
        "refused": lambda row: f"{row['refused']:,}",
        "mean running": lambda row: f"{row['mean_running']:,.1f}",
        "tokens": lambda row: share(row, "distinct_tokens"),
        "tail slack": lambda row: share(row, "tail_slack_slots"),
        "reserved": lambda row: share(row, "reserved_slots"),
        "external": lambda row: share(row, "external_slots"),
        "blocked": lambda row: f"{row['blocked_share']:.2%}",
        "preempted": lambda row: f"{row['preempted']:,}",
        "recomputed": lambda row: f"{row['recomputed_tokens']:,}",
        "hits": lambda row: f"{row['hit_rate']:.2%}",
    }
    rows = [[text(row) for text in columns.values()] for row in _records(table)]
    return Table(list(columns), rows)
