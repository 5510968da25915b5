"""Replays beside each other: the tables that the chapter on growth shows and draws.

Shares are of the pool's capacity. Sharing is never one of them: it is a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from kvledger.core.errors import LedgerError
from kvledger.replays.policies import Paged, Policy, whole_number
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay
from kvledger.traces import Trace

PARTS: Mapping[str, str] = {
    "used": "distinct_tokens",
    "tail_slack": "tail_slack_slots",
    "reserved_later": "reserved_used_later_slots",
    "reserved_never": "reserved_never_used_slots",
    "external": "external_slots",
    "unallocated": "unallocated_slots",
}
"""The parts that a pool's capacity is made of, and the column of a replay that holds each."""


def part(result: Replay, name: str) -> np.ndarray:
    """Return one part of the capacity, in slots, one value a recorded step.

    Examples
    --------
    >>> part(replay(Trace([5, 9], [4, 4]), Paged(4), capacity_slots=32), "tail_slack").tolist()
    [6, 4, 2, 0]
    """
    if name not in PARTS:
        raise LedgerError(f"part is {name!r}; parts are {', '.join(PARTS)}")
    if name == "reserved_never":
        return result.reserved_slots - result.reserved_used_later_slots
    values: np.ndarray = getattr(result, PARTS[name])
    return values


def settled(result: Replay, *, drop: float = 0.1) -> slice:
    """Return the recorded steps without a share at each end: the pool fills, and it drains.

    Examples
    --------
    >>> result = replay(Trace([5] * 40, [4] * 40), Paged(4), capacity_slots=16)
    >>> settled(result)
    slice(8, 72, None)
    """
    if not 0 <= drop < 0.5:
        raise LedgerError(f"drop is {drop!r}; a share from 0 to below one half is accepted")
    n = len(result)
    if not n:
        raise LedgerError(f"nothing ran: all {len(result.requests)} requests were refused")
    return slice(int(n * drop), n - int(n * drop))


def over_time(named: Mapping[str, Replay], *, points: int = 200) -> pd.DataFrame:
    """Sample the parts of each pool over time.

    Columns: policy, time_s, one share of the capacity for each of :data:`PARTS`, shared_share
    (tokens spared by sharing, over the capacity), running and waiting.
    """
    points = whole_number(points, "points", "points", 2)
    sampled = {}
    for name, result in named.items():
        settled(result)  # an error where nothing ran
        at = np.unique(np.linspace(0, len(result) - 1, points).round().astype(int))
        slots = {key: part(result, key) for key in PARTS} | {"shared_share": result.shared_tokens}
        sampled[name] = {
            "time_s": result.time_s[at],
            **{key: values[at] / result.capacity_slots for key, values in slots.items()},
            "running": result.running[at],
            "waiting": result.waiting[at],
        }
    return _stacked(sampled)


def step_by_step(named: Mapping[str, Replay]) -> pd.DataFrame:
    """Lay out every step of small replays, in slots.

    Columns: policy, step, one number of slots for each of :data:`PARTS`, running, waiting and
    capacity.
    """
    laid_out = {}
    for name, result in named.items():
        loads = {"running": result.running, "waiting": result.waiting}
        slots = {key: part(result, key) for key in PARTS}
        ends = {"capacity": result.capacity_slots}
        laid_out[name] = {"step": np.arange(len(result)), **slots, **loads, **ends}
    return _stacked(laid_out)


def _stacked(named: Mapping[str, Mapping[str, object]]) -> pd.DataFrame:
    frames = [pd.DataFrame({"policy": name, **columns}) for name, columns in named.items()]
    return pd.concat(frames, ignore_index=True)


def mean_shares(named: Mapping[str, Replay], *, drop: float = 0.1) -> pd.DataFrame:
    """Average the parts of each pool over its settled steps.

    Columns: policy, one share for each of :data:`PARTS` (they add up to one), shared_share (what
    sharing spares, no part of the capacity), running (requests on average), steps (of the whole
    replay), preempted, recomputed_tokens, refused.
    """
    rows = []
    for name, result in named.items():
        steps = settled(result, drop=drop)
        slots = {key: part(result, key) for key in PARTS} | {"shared_share": result.shared_tokens}
        rows.append(
            {
                "policy": name,
                **{k: float(v[steps].mean()) / result.capacity_slots for k, v in slots.items()},
                "running": float(result.running[steps].mean()),
                "steps": len(result),
                "preempted": result.total("preempted"),
                "recomputed_tokens": result.total("recomputed_tokens"),
                "refused": result.count("refused"),
            }
        )
    return pd.DataFrame(rows)


def pressure(named: Mapping[str, Replay], *, drop: float = 0.1) -> pd.DataFrame:
    """Say what full memory costs each replay, beside how full it looks.

    Columns: setting, held_share (allocated, over settled steps), preempted, recomputed_tokens,
    recomputed_share (of all tokens computed), swapped_tokens, blocked_share (of steps),
    mean_waiting_s and worst_waiting_s (until first admitted), steps.
    """
    rows = []
    for name, result in named.items():
        steps = settled(result, drop=drop)
        again = result.total("recomputed_tokens")
        computed = result.total("computed_prompt_tokens") + result.total("decoded_tokens") + again
        rows.append(
            {
                "setting": name,
                "held_share": float(result.allocated_slots[steps].mean()) / result.capacity_slots,
                "preempted": result.total("preempted"),
                "recomputed_tokens": again,
                "recomputed_share": again / computed,
                "swapped_tokens": result.total("swapped_out_tokens"),
                "blocked_share": float(result.blocked.mean()),
                "mean_waiting_s": float(result.requests["waiting_s"].mean()),
                "worst_waiting_s": float(result.requests["waiting_s"].max()),
                "steps": len(result),
            }
        )
    return pd.DataFrame(rows)


def quiet_moment(result: Replay) -> pd.Series:
    """Return the step that flatters most: in the middle half, nobody waits, and least is held.

    The series has time_s, held_share, running, waiting, and preempted_before: the preemptions
    until then. Where somebody waits in every step of the middle half, it is a LedgerError.

    Examples
    --------
    >>> result = replay(Trace([5] * 8, [4] * 8), Paged(4), capacity_slots=64)
    >>> quiet_moment(result)["held_share"]
    1.0
    """
    middle = settled(result, drop=0.25)
    held = np.where(result.waiting == 0, result.allocated_slots, result.capacity_slots + 1)[middle]
    at = middle.start + int(np.argmin(held))
    if result.waiting[at]:
        raise LedgerError("somebody waits in every step of the middle half: no moment is quiet")
    return pd.Series(
        {
            "time_s": float(result.time_s[at]),
            "held_share": float(result.allocated_slots[at]) / result.capacity_slots,
            "running": int(result.running[at]),
            "waiting": int(result.waiting[at]),
            "preempted_before": int(result.preempted[: at + 1].sum()),
        },
        dtype=object,
    )


def replays(trace: Trace, policies: Mapping[str, Policy], **options: Any) -> dict[str, Replay]:
    """Replay one trace under several policies; options are those of :func:`kvledger.replay`."""
    return {name: replay(trace, policy, **options) for name, policy in policies.items()}


def evenly(trace: Trace) -> Trace:
    """Return the same requests, arriving at equal distances over the same time.

    Examples
    --------
    >>> evenly(Trace([5, 9, 17], [1, 1, 1], [0, 1, 4])).arrival_s.tolist()
    [0.0, 2.0, 4.0]
    """
    return in_bursts(trace, 1)


def in_bursts(trace: Trace, size: int) -> Trace:
    """Return the same requests at the same mean rate, ``size`` of them at one time.

    A trace without times or of a single request, and a size below one, are a LedgerError.

    Examples
    --------
    >>> in_bursts(Trace([5] * 5, [1] * 5, [0, 1, 2, 3, 4]), 2).arrival_s.tolist()
    [0.0, 0.0, 2.0, 2.0, 4.0]
    """
    size = whole_number(size, "size", "requests")
    if trace.arrival_s is None or trace.n_requests < 2:
        raise LedgerError(f"{trace!r} has no times to spread; accepted: times, and two requests")
    apart = trace.arrival_s[-1] / (trace.n_requests - 1)
    arrivals = np.arange(trace.n_requests) // size * size * apart
    tokens, ids = (trace.prompt_tokens, trace.output_tokens), (trace.page_ids, trace.page_ids_size)
    return Trace(*tokens, arrivals, *ids, name=trace.name, skipped=trace.skipped)


def hit_rates(
    trace: Trace, capacities: Iterable[int], *, page_size: int, max_running: int
) -> pd.DataFrame:
    """Replay a prefix cache of several sizes, and one that never evicts.

    Columns: capacity_slots (missing for the one that never evicts), hit_tokens, hit_rate (of
    prompt tokens on first admission), mean_shared_tokens (spared at one time), preempted,
    evictions, refused.
    """
    policy = Paged(page_size, prefix_cache=True)
    slots = trace.total_tokens.sum() + trace.n_requests * page_size
    endless = int(-(-int(slots) // page_size) * page_size)
    rows = []
    for size in (*capacities, None):
        capacity = endless if size is None else size
        result = replay(trace, policy, capacity_slots=capacity, max_running=max_running)
        row: dict[str, object] = {"capacity_slots": size, "hit_tokens": result.total("hit_tokens")}
        row |= {"hit_rate": result.hit_rate, "mean_shared_tokens": result.mean("shared_tokens")}
        row |= {flow: result.total(flow) for flow in ("preempted", "evictions")}
        rows.append(row | {"refused": result.count("refused")})
    return pd.DataFrame(rows, dtype=object)
