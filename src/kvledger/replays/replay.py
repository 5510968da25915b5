"""A trace run through an allocator over time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from tqdm import tqdm

from kvledger.accounting.allocations import next_power_of_two
from kvledger.core.errors import LedgerError, shown
from kvledger.replays import engine
from kvledger.replays.policies import (
    Arrivals,
    Clock,
    Contiguous,
    Paged,
    Policy,
    Saturated,
    whole_number,
)
from kvledger.replays.result import Replay
from kvledger.traces import Trace

_KINDS = {"first": engine.FIRST_FIT, "best": engine.BEST_FIT, "buddy": engine.BUDDY}
_DETAILS = ["record", "request", "held_slots", "used_slots"]
_MOST_TABLE_ENTRIES = 1 << 30
_INT32_MAX = (1 << 31) - 1


def replay(
    trace: Trace,
    policy: Policy,
    *,
    capacity_slots: int,
    max_running: int = 256,
    clock: Clock | None = None,
    prefill_chunk: int | None = None,
    record_every: int = 1,
    record_requests: bool = False,
    output_page_ids: Sequence[Sequence[int]] | None = None,
) -> Replay:
    """Replay a trace through a pool, step by step.

    One step: every running request, in the order of admission, gets the slots of its next tokens;
    where memory is missing, the latest admitted is preempted until it fits. If nobody was
    preempted, requests are admitted first come first served, those that were preempted before
    those that are new, until one does not fit. The step is recorded. Every request whose tokens
    are all computed samples one, and leaves with its last, which is never stored: a request of
    P prompt and O output tokens holds P + O - 1 at its end.

    Parameters
    ----------
    trace : Trace
        Requests. ``page_ids`` matter with a prefix cache only.
    policy : Paged or Contiguous
        How memory is handed out.
    capacity_slots : int
        Slots of the pool; a whole number of pages where it is paged.
    max_running : int
        Most requests that run at one time.
    clock : Saturated or Arrivals, optional
        Saturated if not given: all requests wait from the start.
    prefill_chunk : int, optional
        Most tokens a request computes in a step before its first output; all if not given.
    record_every : int
        Record each so-many-th step.
    record_requests : bool
        Record also what each running request holds in every recorded step.
    output_page_ids : sequence of sequences of int, optional
        For each request, the ids of the complete pages (of ``trace.page_ids_size`` tokens) that end
        in its output, in order; chained with its prompt's. Without them, what a request generates
        is found by no other, and not by itself after a preemption.

    Returns
    -------
    Replay
        Every request ends finished or refused. A request is refused, and never waited for, if at
        its end it is larger than the pool or than the slots its policy reserves.

    Raises
    ------
    LedgerError
        For a capacity that is no whole number of pages, an arrival clock for a trace without
        times, page ids that do not fit the page size, or numbers out of range.

    Examples
    --------
    >>> trace = Trace(prompt_tokens=[5, 9, 17], output_tokens=[4, 4, 4])
    >>> result = replay(trace, Paged(page_size=4), capacity_slots=64)
    >>> result.pages.tolist(), result.tail_slack_slots.tolist()
    ([10, 10, 10, 10], [9, 6, 3, 0])
    >>> result.total("preempted"), result.count("finished")
    (0, 3)
    """
    clock = Saturated() if clock is None else clock
    kinds: tuple[tuple[object, str, Any, str], ...] = (
        (trace, "trace", Trace, "Trace"),
        (policy, "policy", Policy, "Paged or Contiguous"),
        (clock, "clock", Clock, "Saturated or Arrivals"),
    )
    for value, name, kind, accepted in kinds:
        if not isinstance(value, kind):
            raise LedgerError(f"{name} is {shown(value)}; a {accepted} is accepted")
    capacity = whole_number(capacity_slots, "capacity_slots", "slots")
    most = min(whole_number(max_running, "max_running", "requests"), trace.n_requests)
    stride = whole_number(record_every, "record_every", "steps")
    chunk = engine.WHOLE
    if prefill_chunk is not None:
        chunk = whole_number(prefill_chunk, "prefill_chunk", "tokens")
    check_fit(trace, policy, capacity, clock)
    ids = _page_ids(trace, policy, output_page_ids)
    slots = capacity - (policy.null_pages * policy.page_size if isinstance(policy, Paged) else 0)
    load, most_held = _load(trace, policy, clock, slots, ids)
    pool = _pool(policy, slots, most, most_held, ids.keys)
    held = np.int32 if most_held + pool.unit <= _INT32_MAX else np.int64
    rules = _rules(policy, clock, capacity, most, chunk, stride)
    work = _work(policy, trace.n_requests, most, held)
    steps, time_s, detail = _recorded(pool, load, rules, work, record_requests)
    return Replay(
        policy=policy,
        clock=clock,
        capacity_slots=slots,
        steps=steps,
        time_s=time_s,
        after=work.flow,
        requests=_requests(work),
        running_requests=pd.DataFrame(detail, columns=_DETAILS) if record_requests else None,
    )


def _recorded(
    pool: engine.Pool, load: engine.Load, rules: engine.Rules, work: engine.Work, details: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Run to the end; return the recorded steps, their times, and details of what ran in them."""
    total, most = load.prompt.size, work.row_of.size
    room = max(1, min(1024, (1 << 22) // most)) if details else 1 << 14
    parts = []
    on_terminal = sys.stderr.isatty()
    bar: Any = tqdm(total=total, unit="request", delay=1.0, leave=False) if on_terminal else None
    with nullcontext() if bar is None else bar:
        while work.tally[engine.T_ENDED] < total:
            record, record_s = np.zeros((room, len(engine.COLUMNS)), np.int64), np.zeros(room)
            detail = np.zeros((room * most if details else 0, len(_DETAILS)), np.int64)
            n = engine.run(pool, load, rules, work, record, record_s, detail)
            parts.append((record[:n], record_s[:n], detail[: work.tally[engine.T_DETAILS]]))
            if bar is not None:
                bar.update(int(work.tally[engine.T_ENDED]) - bar.n)
    steps, time_s, detail = (np.concatenate(each) for each in zip(*parts, strict=True))
    return steps, time_s, detail


class _PageIds(NamedTuple):
    """Page ids as the engine reads them: dense numbers, one request after the other."""

    start: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    covered: npt.NDArray[np.int64]  # tokens of each request that its ids speak for
    size: int
    keys: int  # different page keys


def _page_ids(
    trace: Trace, policy: Policy, output_page_ids: Sequence[Sequence[int]] | None
) -> _PageIds:
    none = np.zeros(trace.n_requests, np.int64)
    ids, size = trace.page_ids, trace.page_ids_size
    lists: Sequence[Sequence[int]] = ids or ()
    if output_page_ids is not None:
        if ids is None or size is None:
            raise LedgerError("output_page_ids are given and the trace has no page_ids")
        lists, covered = _with_outputs(trace, ids, size, output_page_ids)
    if not isinstance(policy, Paged) or not policy.prefix_cache or size is None:
        return _PageIds(none, np.empty(0, np.int64), none, 1, 0)
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    if output_page_ids is None:
        covered = np.minimum(trace.prompt_tokens, size * counts)
    try:
        flat = np.fromiter(chain.from_iterable(lists), np.int64, int(counts.sum()))
    except OverflowError:  # hashes beyond 64 bits
        flat = np.array([*chain.from_iterable(lists)], object)
    places, different = pd.factorize(flat)
    dense, starts = places.astype(np.int64), np.cumsum(counts) - counts
    _check_chained(dense, starts, counts, len(different), lists)
    keys = len(different) * max(1, size // policy.page_size)
    if keys > _MOST_TABLE_ENTRIES:
        raise LedgerError(
            f"page_size is {policy.page_size}: {keys} different pages; a prefix cache is replayed "
            f"up to {_MOST_TABLE_ENTRIES}, so take larger pages"
        )
    return _PageIds(starts, dense, covered, size, keys)


def _check_chained(
    ids: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    n_different: int,
    lists: Sequence[Sequence[int]],
) -> None:
    """Refuse ids that follow different ids: equal ids must mean equal beginnings."""
    if not ids.size:
        return
    before = np.concatenate(([-1], ids[:-1]))
    before[starts[counts > 0]] = -1
    parent = np.empty(n_different, np.int64)
    parent[ids] = before
    wrong = np.flatnonzero(parent[ids] != before)
    if wrong.size:
        i = int(np.searchsorted(starts, wrong[0], side="right")) - 1
        j = int(wrong[0] - starts[i])
        raise LedgerError(
            f"page_ids[{i}][{j}] is {lists[i][j]}, which also stands after another id; accepted: "
            "ids that chain all pages before them"
        )


def _with_outputs(
    trace: Trace,
    page_ids: Sequence[Sequence[int]],
    size: int,
    output_page_ids: Sequence[Sequence[int]],
) -> tuple[list[Sequence[int]], npt.NDArray[np.int64]]:
    """Put the ids of pages that end in outputs behind those of the prompts' complete pages."""
    if len(output_page_ids) != trace.n_requests:
        raise LedgerError(
            f"there are {len(output_page_ids)} output_page_ids and {trace.n_requests} requests; "
            "one sequence a request"
        )
    lists: list[Sequence[int]] = []
    covered = trace.prompt_tokens.copy()
    for i, (ids, more) in enumerate(zip(page_ids, output_page_ids, strict=True)):
        prompt, output = int(trace.prompt_tokens[i]), int(trace.output_tokens[i])
        complete = prompt // size
        most = (prompt + output) // size - complete
        if len(more) > most or len(ids) < complete:
            raise LedgerError(
                f"output_page_ids[{i}] has {len(more)} ids after {len(ids)}; accepted: "
                f"{complete} of the prompt and up to {most} of complete pages after them"
            )
        for j, each in enumerate(more):
            if isinstance(each, bool) or not isinstance(each, int | np.integer):
                raise LedgerError(f"output_page_ids[{i}][{j}] is {each!r}; accepted: an integer id")
        lists.append([*ids[:complete], *more] if len(more) else ids)
        covered[i] = size * len(lists[i]) if len(more) else min(prompt, size * len(ids))
    return lists, covered


def check_fit(trace: Trace, policy: Policy, capacity: int, clock: Clock) -> None:
    """Refuse with a LedgerError what cannot be replayed, whatever the requests' lengths."""
    if isinstance(clock, Arrivals) and trace.arrival_s is None:
        raise LedgerError("the clock is Arrivals and the trace has no arrival_s; accepted: times")
    if not isinstance(policy, Paged):
        return
    page, size = policy.page_size, trace.page_ids_size
    if capacity % page:
        raise LedgerError(
            f"capacity_slots is {capacity}; a whole number of pages of {page} slots is accepted"
        )
    if capacity // page <= policy.null_pages:
        raise LedgerError(
            f"capacity_slots is {capacity}: {capacity // page} pages less {policy.null_pages} null "
            "pages; at least one usable page is needed"
        )
    if policy.prefix_cache and size and size % page and page % size:
        raise LedgerError(
            f"page_size is {page} and an id stands for {size} tokens; one must divide the other"
        )


def _reserved(
    policy: Contiguous, trace: Trace, at_end: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    if policy.reserve == "oracle":
        return at_end
    if policy.reserve != "pow2":
        return np.full(trace.n_requests, policy.reserve, np.int64)
    slots = next_power_of_two(at_end)
    if policy.pow2_of == "output":
        slots = trace.prompt_tokens + next_power_of_two(np.maximum(trace.output_tokens, 1))
    return slots if policy.maximum is None else np.minimum(slots, policy.maximum)


def _load(
    trace: Trace, policy: Policy, clock: Clock, slots: int, ids: _PageIds
) -> tuple[engine.Load, int]:
    """Return the requests as the engine reads them, and the most slots that one of them takes."""
    at_end = trace.prompt_tokens + np.maximum(trace.output_tokens, 1) - 1
    wanted, largest = at_end, slots
    if isinstance(policy, Contiguous):
        wanted = _reserved(policy, trace, at_end)
        largest = 1 << (slots.bit_length() - 1) if policy.fit == "buddy" else slots
    never = (wanted < at_end) | (wanted > largest)
    arrival = np.empty(0)
    if isinstance(clock, Arrivals) and trace.arrival_s is not None:
        arrival = trace.arrival_s / clock.speed
    load = engine.Load(
        prompt=np.ascontiguousarray(trace.prompt_tokens),
        output=np.ascontiguousarray(trace.output_tokens),
        arrival=np.ascontiguousarray(arrival),
        never=never,
        reserve=wanted if isinstance(policy, Contiguous) else np.empty(0, np.int64),
        id_start=ids.start,
        ids=ids.ids,
        covered=ids.covered,
        id_size=ids.size,
    )
    return load, int(np.max(wanted, initial=0, where=~never))


def _pool(policy: Policy, slots: int, rows: int, most_held: int, keys: int) -> engine.Pool:
    """Return an empty pool for ``rows`` running requests of up to ``most_held`` slots each.

    ``keys`` counts the different pages that can be found.
    """
    paged, cached = isinstance(policy, Paged), isinstance(policy, Paged) and policy.prefix_cache
    unit = policy.page_size if isinstance(policy, Paged) else 1
    free, longest = slots // unit, -(-most_held // unit)
    if cached and max(rows * longest, free) > _MOST_TABLE_ENTRIES:
        raise LedgerError(
            f"{rows} requests of up to {longest} pages: a prefix cache is replayed with up to "
            f"{_MOST_TABLE_ENTRIES} entries, so take larger pages or run fewer requests"
        )
    lines = np.zeros((free if cached else 0, engine.PAGE_COLUMNS), np.int32)
    lines[:, engine.KEY], lines[:, engine.NEXT_SAME] = engine.NO_KEY, -1
    count = np.zeros(engine.COUNTERS, np.int64)
    count[engine.N_FREE], count[engine.N_UNKEYED] = free, len(lines)
    holes: list[int] = []
    most_holes = 0
    if isinstance(policy, Contiguous):
        # Each running request splits at most one hole (a buddy block: one of each order).
        most_holes = rows + 2 if policy.fit != "buddy" else 64 * (rows + 2)
        holes = [free]
        if policy.fit == "buddy":
            holes = [1 << k for k in reversed(range(free.bit_length())) if free >> k & 1]
    start, size = np.zeros(most_holes, np.int64), np.zeros(most_holes, np.int64)
    size[: len(holes)] = holes
    start[: len(holes)] = np.cumsum([0, *holes])[: len(holes)]
    count[engine.N_HOLES] = len(holes)
    table = np.zeros((rows if paged else 0, longest if cached else 0), np.int32)
    pending = isinstance(policy, Paged) and not policy.same_step_hits
    kind = _KINDS[policy.fit] if isinstance(policy, Contiguous) else engine.COUNTED
    return engine.Pool(
        kind=engine.CACHED if cached else kind,
        unit=unit,
        counter=count,
        page=lines,
        unkeyed=np.arange(len(lines))[::-1].copy(),
        # Twice as long as there are pages, so that tidying it up is rare.
        queue=np.zeros((2 * len(lines), 2), np.int32),
        first_of_key=np.full(keys, -1, np.int32),
        table=table,
        pending=np.zeros((table.size if pending else 0, 3), np.int64),
        hole_start=start,
        hole_size=size,
    )


def _rules(
    policy: Policy, clock: Clock, capacity: int, most: int, chunk: int, stride: int
) -> engine.Rules:
    paged = policy if isinstance(policy, Paged) else Paged(page_size=1)
    times = clock if isinstance(clock, Arrivals) else Arrivals(base_s=1.0)
    return engine.Rules(
        max_running=most,
        watermark=int(paged.watermark * (capacity // paged.page_size)),
        chunk=chunk,
        swap=paged.preemption == "swap",
        lookup_slack=1 if paged.compute_last_token else 0,
        same_step=paged.same_step_hits,
        merge=paged.merge_duplicates,
        base_s=float(times.base_s),
        running_s=float(times.running_s),
        prefill_s=float(times.prefill_s),
        stride=stride,
        whole_must_fit=paged.whole_prompt_must_fit,
        lone_whole=paged.lone_prompt_whole,
    )


def _work(policy: Policy, requests: int, most: int, held: npt.DTypeLike) -> engine.Work:
    """Return where a replay stands before its first step; ``held`` is the type of slots held."""
    work = engine.Work(
        tally=np.zeros(engine.TALLIES, np.int64),
        clock=np.zeros(1),
        flow=np.zeros(len(engine.COLUMNS), np.int64),
        request=np.zeros((requests, engine.REQUEST_COLUMNS), np.int64),
        request_s=np.full((requests, 2), -1.0),
        back=np.zeros(requests, np.int64),
        row=np.zeros((most, engine.ROW_COLUMNS), np.int64),
        spare_row=np.arange(most - 1, -1, -1),
        row_of=np.zeros(most, np.int64),
        spare=np.zeros(most, held),
        left=np.zeros(most, held),
    )
    work.tally[engine.T_ROWS] = most
    work.tally[engine.T_HOST_FREE] = policy.host_pages if isinstance(policy, Paged) else 0
    work.request[:, [engine.Q_ADMITTED, engine.Q_FINISHED]] = -1
    return work


def _requests(work: engine.Work) -> pd.DataFrame:
    column = work.request.T
    admitted, finished = column[engine.Q_ADMITTED], column[engine.Q_FINISHED]
    waiting_s, latency_s = work.request_s.T
    return pd.DataFrame(
        {
            "state": np.array(["waiting", "running", "finished", "refused"])[
                column[engine.Q_STATE]
            ],
            "admitted_step": pd.Series(admitted, dtype="Int64").mask(admitted < 0),
            "finished_step": pd.Series(finished, dtype="Int64").mask(finished < 0),
            "preemptions": column[engine.Q_PREEMPTIONS],
            "hit_tokens": column[engine.Q_HIT],
            "waiting_steps": column[engine.Q_WAITED],
            "waiting_s": np.where(admitted >= 0, waiting_s, np.nan),
            "latency_s": np.where(finished >= 0, latency_s, np.nan),
        }
    )
