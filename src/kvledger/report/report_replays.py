"""A deployment over time: its first arrivals, replayed through a pool of its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kvledger.core.errors import LedgerError
from kvledger.replays.policies import Clock, Policy
from kvledger.replays.replay import Arrivals, Contiguous, Paged, Replay, Saturated, replay
from kvledger.report.deployment import Deployment
from kvledger.traces.trace import Trace

# Of so many outputs every step is recorded; of twice as many, every second. It bounds the memory.
_OUTPUTS_RECORDED_WHOLE = 20_000_000


class Growth(NamedTuple):
    """What was replayed.

    Attributes
    ----------
    named : mapping of str to Replay
        One replay a policy; empty where there is nothing to replay.
    clock : Clock
        How requests came: at their times, or all at the start where there are none.
    left_out : mapping of str to str
        Policies that were not replayed, and why.
    nothing : str
        Why nothing at all was replayed; empty if something was.
    """

    named: Mapping[str, Replay]
    clock: Clock
    left_out: Mapping[str, str]
    nothing: str = ""


def grow(work: Deployment) -> Growth:
    """Replay the first arrivals under reservations and under pages.

    Requests come at their times; where the trace has none, all wait from the start.

    Returns
    -------
    Growth
        A policy under which no request ever runs is left out, as is a prefix cache for page ids
        that cannot be used.
    """
    trace = work.arrivals
    clock: Clock = Saturated()
    if trace is None:
        return Growth({}, clock, {}, "of this trace only the lengths are known, not the order")
    if not trace.output_tokens.any():
        return Growth({}, clock, {}, "no request has an output, so none grows")
    if trace.arrival_s is not None:
        clock = Arrivals(*work.step_s)
    named: dict[str, Replay] = {}
    left_out: dict[str, str] = {}
    for name, policy in _policies(work, trace).items():
        try:
            result = replay(
                trace,
                policy,
                capacity_slots=work.capacity_slots,
                max_running=work.max_running,
                clock=clock,
                record_every=max(1, int(trace.output_tokens.sum()) // _OUTPUTS_RECORDED_WHOLE),
            )
        except LedgerError:
            if not (isinstance(policy, Paged) and policy.prefix_cache):
                raise
            left_out[name] = "the page ids of the trace do not fit"
            continue
        if len(result):
            named[name] = result
        else:
            left_out[name] = "not one request fits the pool"
    nothing = "" if named else "not one request fits the pool"
    return Growth(named, clock, left_out, nothing)


def _policies(work: Deployment, trace: Trace) -> dict[str, Policy]:
    policies: dict[str, Policy] = {
        "reserve the maximum": Contiguous(work.maximum),
        "reserve a power of two": Contiguous("pow2"),
        f"pages of {work.page_size:,}": Paged(work.page_size),
    }
    if trace.page_ids is not None:
        name = f"pages of {work.page_size:,}, prefix cache"
        policies[name] = Paged(work.page_size, prefix_cache=True)
    return policies
