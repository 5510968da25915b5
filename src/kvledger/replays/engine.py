"""The compiled loop of a replay: requests arrive, are admitted, grow, are preempted, and leave.

What one step does is told in :func:`kvledger.replay`.

Nothing here is stored per token: state is linear in the requests and in what runs at one time.
All that is compiled stands in this file: numba's cache of compiled code looks at no other. It is
compiled without reference counts (``_nrt``), so nothing in it makes an array: counting references
at each use of an array out of a tuple takes longer than the replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

# Kinds of pool.
COUNTED, CACHED, FIRST_FIT, BEST_FIT, BUDDY = range(5)

# What a request is.
WAITING, RUNNING, FINISHED, REFUSED = range(4)


class StepColumns(NamedTuple):
    """Where each column of a recorded step stands.

    From ``admitted`` on, they count what happened since the step recorded before.
    """

    running: int
    waiting: int
    blocked: int
    logical_tokens: int
    shared_tokens: int
    tail_slack_slots: int
    reserved_slots: int
    reserved_used_later_slots: int
    allocated_slots: int
    unallocated_slots: int
    external_slots: int
    pages: int
    cached_pages: int
    admitted: int
    preempted: int
    finished: int
    decoded_tokens: int
    computed_prompt_tokens: int
    recomputed_tokens: int
    hit_tokens: int
    resumed_hit_tokens: int
    swapped_out_tokens: int
    swapped_in_tokens: int
    allocations: int
    frees: int
    evictions: int


COLUMNS = StepColumns._fields
C = StepColumns(*range(len(COLUMNS)))

# Counters of a pool: pages or slots free and held, further holders of shared pages, free pages that
# can be found; what happened since the last record.
N_FREE, N_HELD, N_EXTRA, N_CACHED, N_ALLOCATIONS, N_FREES, N_EVICTIONS = range(7)
# Of its lists: holes, slots that buddies round up; unkeyed pages, the queue of those with a key,
# where it starts, the last stamp given out; pages to be found at the end of the step.
N_HOLES, N_ROUNDING, N_UNKEYED, N_QUEUED, N_OLDEST, N_STAMP, N_PENDING = range(7, 14)
COUNTERS = 14
LAST_STAMP = 2**31 - 2

NO_KEY, PRIVATE_KEY = -2, -1

WHOLE = 2**62  # tokens of a chunk that is never too small

# Columns of a page, side by side so that a page costs one line of the processor's cache: its
# holders, its key, the next page with the same key, and the number under which it was freed last.
REFS, KEY, NEXT_SAME, FREED_AS = range(4)
PAGE_COLUMNS = 4

# Columns of a request: what it is, its first admitted step, its last step, how often it was
# preempted, tokens found on first admission, steps it waited.
Q_STATE, Q_ADMITTED, Q_FINISHED, Q_PREEMPTIONS, Q_HIT, Q_WAITED = range(6)
# While it does not run: outputs sampled, the most tokens it ever stored, tokens on the host, and
# since when it waits.
Q_SAMPLED, Q_REACHED, Q_SWAPPED, Q_SINCE = range(6, 10)
REQUEST_COLUMNS = 10
S_WAITING, S_LATENCY = range(2)  # its times

# Columns of a running request's row: the request, slots held, tokens to compute before the next is
# sampled, and, where memory is contiguous, where its run starts.
R_REQUEST, R_ROOM, R_TODO, R_PLACE = range(4)
ROW_COLUMNS = 4

# Counts of a replay as it stands: requests that run, those of them with something to compute, that
# were preempted, that wait and are new; the next new one and the next to arrive.
T_RUNNING, T_COMPUTING, T_BACK, T_NEW, T_NEXT, T_ARRIVED = range(6)
# Logical tokens, and what running requests hold at their ends; rows to spare, free pages of the
# host, tokens computed for prompts in this step.
T_LOGICAL, T_FINAL, T_ROWS, T_HOST_FREE, T_PREFILLED = range(6, 11)
# Requests that have ended, the step, all steps recorded, lines of details written by one call.
T_ENDED, T_STEP, T_RECORDS, T_DETAILS = range(11, 15)
TALLIES = 15


class Pool(NamedTuple):
    """All that a pool knows, as arrays; which are used depends on its kind."""

    kind: int
    unit: int  # slots a page; 1 where memory is contiguous
    counter: Ints  # the counters above, in pages or slots
    page: Shorts  # a line a page, of the columns above
    unkeyed: Ints  # free pages that cannot be found, reused first, the latest freed on top
    queue: Shorts  # free pages that can: page and number, the oldest first, in a ring
    first_of_key: Shorts
    table: Shorts  # pages of each running row
    pending: Ints  # request, row, page: filled in this step and not to be found before its end
    hole_start: Ints  # contiguous: holes in order of address; buddy: free blocks
    hole_size: Ints


class Load(NamedTuple):
    """The requests."""

    prompt: Ints
    output: Ints
    arrival: Floats  # times, or empty where all wait from the start
    never: npt.NDArray[np.bool_]  # whether a request can never fit
    reserve: Ints  # slots each reserves, or empty where memory is paged
    id_start: Ints  # where each request's ids start
    ids: Ints  # dense page ids
    covered: Ints  # tokens of each request that its ids speak for
    id_size: int


class Rules(NamedTuple):
    """Whom to admit, and how time passes."""

    max_running: int
    watermark: int
    chunk: int
    swap: bool
    lookup_slack: int  # tokens at the end that are never looked up
    same_step: bool
    merge: bool
    base_s: float
    running_s: float
    prefill_s: float
    stride: int
    whole_must_fit: bool  # a prompt in chunks is admitted only where all of it would fit
    lone_whole: bool  # a request that is alone enters whole


class Work(NamedTuple):
    """Where the replay stands. Lines are of the columns above."""

    tally: Ints
    clock: Floats  # the time, alone
    flow: Ints  # what happened since the last record, in the columns of a step
    request: Ints
    request_s: Floats
    back: Ints  # requests that were preempted, the next to return on top
    row: Ints  # what rarely changes of a running request
    spare_row: Ints
    # By the order of admission: its row, slots held and not yet used, and outputs still to sample.
    # A step touches the last two of each and, but for pages that fill and requests that end,
    # nothing else. In 32 bits, where these are enough, it takes half the time.
    row_of: Ints
    spare: Ints | Shorts
    left: Ints | Shorts


_Function = TypeVar("_Function", bound=Callable[..., object])
_njit: Any = numba.njit


def _compiled(function: _Function) -> _Function:
    made: _Function = _njit(cache=True, nogil=True, _nrt=False)(function)
    return made


def _inlined(function: _Function) -> _Function:
    made: _Function = _njit(cache=True, inline="always", _nrt=False)(function)
    return made


# --------------------------------------------------------------------------- pages


@_inlined
def _page_key(load: Load, request: int, page: int, unit: int) -> int:
    """Return the key of a complete page; ids chain, so a page of several ids has the last's."""
    id_size = load.id_size
    if (page + 1) * unit > load.covered[request]:
        return PRIVATE_KEY
    if unit <= id_size:
        ratio = id_size // unit
        return int(load.ids[load.id_start[request] + page // ratio] * ratio + page % ratio)
    each = unit // id_size
    return int(load.ids[load.id_start[request] + (page + 1) * each - 1])


@_compiled
def _tidy(pool: Pool) -> None:
    """Drop what is no longer free from the full queue; at least half of it goes."""
    count, pages, queue = pool.counter, pool.page, pool.queue
    size = queue.shape[0]
    kept = 0
    for k in range(count[N_QUEUED]):
        at = (count[N_OLDEST] + k) % size
        page, number = queue[at, 0], queue[at, 1]
        if pages[page, FREED_AS] == number:
            to = (count[N_OLDEST] + kept) % size
            queue[to, 0], queue[to, 1] = page, number
            kept += 1
    count[N_QUEUED] = kept


@_inlined
def _forget(pool: Pool, page: int) -> None:
    """Take a page out of the prefix cache."""
    pages, first_of_key = pool.page, pool.first_of_key
    key = pages[page, KEY]
    pages[page, KEY] = NO_KEY
    if key < 0:
        return
    if first_of_key[key] == page:
        first_of_key[key] = pages[page, NEXT_SAME]
        return
    other = first_of_key[key]
    while pages[other, NEXT_SAME] != page:
        other = pages[other, NEXT_SAME]
    pages[other, NEXT_SAME] = pages[page, NEXT_SAME]


@_inlined
def _publish(pool: Pool, page: int, key: int) -> None:
    """Let a complete page be found by its key, after those that already carry it."""
    pages, first_of_key = pool.page, pool.first_of_key
    pages[page, KEY] = key
    if key < 0:
        return
    pages[page, NEXT_SAME] = -1
    other = first_of_key[key]
    if other < 0:
        first_of_key[key] = page
        return
    while pages[other, NEXT_SAME] >= 0:
        other = pages[other, NEXT_SAME]
    pages[other, NEXT_SAME] = page


@_inlined
def _take(pool: Pool, row: int, have: int, more: int) -> None:
    """Give a row ``more`` free pages after the ``have`` it holds."""
    count, pages, table = pool.counter, pool.page, pool.table
    count[N_FREE] -= more
    count[N_HELD] += more
    count[N_ALLOCATIONS] += more
    if pool.kind == COUNTED:
        return
    fresh = min(more, count[N_UNKEYED])
    count[N_UNKEYED] -= fresh
    for k in range(fresh):
        page = pool.unkeyed[count[N_UNKEYED] + fresh - 1 - k]
        pages[page, REFS] = 1
        table[row, have + k] = page
    if fresh == more:
        return
    queue = pool.queue
    count[N_CACHED] -= more - fresh
    count[N_EVICTIONS] += more - fresh
    size, at = queue.shape[0], count[N_OLDEST]
    passed = 0
    for k in range(have + fresh, have + more):
        page = -1
        while page < 0:  # what was found again since it was freed is passed over
            candidate, number = queue[at, 0], queue[at, 1]
            at = at + 1 if at + 1 < size else 0
            passed += 1
            if pages[candidate, FREED_AS] == number:
                page = candidate
        pages[page, FREED_AS] = 0
        _forget(pool, page)
        pages[page, REFS] = 1
        table[row, k] = page
    count[N_OLDEST] = at
    count[N_QUEUED] -= passed


@_inlined
def _drop(pool: Pool, page: int) -> None:
    """Let one holder of a page go."""
    count, pages, queue = pool.counter, pool.page, pool.queue
    pages[page, REFS] -= 1
    if pages[page, REFS] > 0:
        count[N_EXTRA] -= 1
        return
    count[N_FREE] += 1
    count[N_HELD] -= 1
    count[N_FREES] += 1
    if pages[page, KEY] == NO_KEY:
        pool.unkeyed[count[N_UNKEYED]] = page
        count[N_UNKEYED] += 1
        return
    count[N_CACHED] += 1
    size = queue.shape[0]
    if count[N_QUEUED] == size:
        _tidy(pool)
    # Stamps wrap at LAST_STAMP, long after the last page that had one has left the queue.
    count[N_STAMP] = count[N_STAMP] % LAST_STAMP + 1
    at = count[N_OLDEST] + count[N_QUEUED]
    at = at - size if at >= size else at
    queue[at, 0], queue[at, 1] = page, count[N_STAMP]
    pages[page, FREED_AS] = count[N_STAMP]
    count[N_QUEUED] += 1


@_inlined
def _release_pages(pool: Pool, row: int, held: int) -> None:
    count = pool.counter
    if pool.kind == COUNTED:
        count[N_FREE] += held
        count[N_HELD] -= held
        count[N_FREES] += held
        return
    for k in range(held - 1, -1, -1):  # tail first, so that it is evicted first
        _drop(pool, pool.table[row, k])


@_compiled
def _find(pool: Pool, load: Load, request: int, row: int, tokens: int) -> tuple[int, int]:
    """Write the cached leading pages into a row; return how many, and how many are unused."""
    hits, unused = 0, 0
    while (hits + 1) * pool.unit <= tokens:
        key = _page_key(load, request, hits, pool.unit)
        if key < 0:
            break
        page = pool.first_of_key[key]
        if page < 0:
            break
        pool.table[row, hits] = page
        unused += pool.page[page, REFS] == 0
        hits += 1
    return hits, unused


@_inlined
def _hold(pool: Pool, page: int) -> None:
    """Add a holder to a page that can be found; a free one is free no longer."""
    count, pages = pool.counter, pool.page
    if pages[page, REFS] == 0:
        pages[page, FREED_AS] = 0
        count[N_FREE] -= 1
        count[N_HELD] += 1
        count[N_CACHED] -= 1
        count[N_ALLOCATIONS] += 1
    else:
        count[N_EXTRA] += 1
    pages[page, REFS] += 1


@_inlined
def _fill(pool: Pool, load: Load, same_step: bool, request: int, row: int, page: int) -> None:
    """Let a complete page be found, now or at the end of the step."""
    if same_step:
        key = _page_key(load, request, page, pool.unit)
        _publish(pool, pool.table[row, page], key)
        return
    k = pool.counter[N_PENDING]
    pool.pending[k, 0], pool.pending[k, 1], pool.pending[k, 2] = request, row, page
    pool.counter[N_PENDING] = k + 1


@_compiled
def _settle(pool: Pool, load: Load, merge: bool) -> None:
    """Let the pages filled in this step be found; merge copies of pages that are known."""
    for k in range(pool.counter[N_PENDING]):
        row, page = pool.pending[k, 1], pool.pending[k, 2]
        at = pool.table[row, page]
        key = _page_key(load, pool.pending[k, 0], page, pool.unit)
        known = pool.first_of_key[key] if key >= 0 else -1
        if not merge or known < 0 or known == at:
            _publish(pool, at, key)
            continue
        pool.table[row, page] = known
        _hold(pool, known)
        _drop(pool, at)
    pool.counter[N_PENDING] = 0


# --------------------------------------------------------------------------- runs of slots


@_compiled
def _order_of(slots: int) -> int:
    order = 0
    while (1 << order) < slots:
        order += 1
    return order


@_compiled
def _reserve(pool: Pool, slots: int) -> int:
    """Take one run of slots; return its start, or -1 if no hole is large enough."""
    count, start, size = pool.counter, pool.hole_start, pool.hole_size
    wanted = (1 << _order_of(slots)) if pool.kind == BUDDY else slots
    best = -1
    for h in range(count[N_HOLES]):
        if size[h] < wanted:
            continue
        if pool.kind == FIRST_FIT:
            best = h
            break
        smaller = best < 0 or size[h] < size[best]
        lower = best >= 0 and size[h] == size[best] and start[h] < start[best]
        if smaller or lower:
            best = h
    if best < 0:
        return -1
    at = start[best]
    if pool.kind == BUDDY:
        while size[best] > wanted:  # split: the upper half becomes a free block of its own
            half = size[best] // 2
            size[best] = half
            start[count[N_HOLES]] = at + half
            size[count[N_HOLES]] = half
            count[N_HOLES] += 1
        _remove_hole(pool, best)
        count[N_ROUNDING] += wanted - slots
    elif size[best] == slots:
        _remove_hole(pool, best)
    else:
        start[best] += slots
        size[best] -= slots
    count[N_FREE] -= wanted
    count[N_HELD] += slots
    count[N_ALLOCATIONS] += 1
    return int(at)


@_compiled
def _remove_hole(pool: Pool, hole: int) -> None:
    """Remove a hole; those of first and best fit stay in order of address."""
    count = pool.counter
    last = count[N_HOLES] - 1
    if pool.kind == BUDDY:
        pool.hole_start[hole], pool.hole_size[hole] = pool.hole_start[last], pool.hole_size[last]
    else:
        for h in range(hole, last):
            pool.hole_start[h], pool.hole_size[h] = pool.hole_start[h + 1], pool.hole_size[h + 1]
    count[N_HOLES] = last


@_compiled
def _unreserve(pool: Pool, at: int, slots: int) -> None:
    """Return one run of slots, merged with free neighbours."""
    count, start, size = pool.counter, pool.hole_start, pool.hole_size
    count[N_HELD] -= slots
    count[N_FREES] += 1
    if pool.kind == BUDDY:
        block = 1 << _order_of(slots)
        count[N_ROUNDING] -= block - slots
        count[N_FREE] += block
        h = 0
        while h < count[N_HOLES]:
            if size[h] == block and start[h] == at ^ block:
                _remove_hole(pool, h)
                at = min(at, at ^ block)
                block *= 2
                h = 0
            else:
                h += 1
        start[count[N_HOLES]], size[count[N_HOLES]] = at, block
        count[N_HOLES] += 1
        return
    count[N_FREE] += slots
    h = 0
    while h < count[N_HOLES] and start[h] < at:
        h += 1
    joins_left = h > 0 and start[h - 1] + size[h - 1] == at
    joins_right = h < count[N_HOLES] and at + slots == start[h]
    if joins_left and joins_right:
        size[h - 1] += slots + size[h]
        _remove_hole(pool, h)
    elif joins_left:
        size[h - 1] += slots
    elif joins_right:
        start[h] = at
        size[h] += slots
    else:
        for k in range(count[N_HOLES], h, -1):
            start[k], size[k] = start[k - 1], size[k - 1]
        start[h], size[h] = at, slots
        count[N_HOLES] += 1


# --------------------------------------------------------------------------- one step


@_inlined
def _arrive(load: Load, work: Work, step: int, now: float) -> float:
    """Let requests come that are due, and refuse those that never fit; return the time."""
    tally, arrival = work.tally, load.arrival
    timed = arrival.size > 0
    if timed and tally[T_RUNNING] + tally[T_BACK] + tally[T_NEW] == 0:
        now = max(now, arrival[tally[T_ARRIVED]])
    while tally[T_ARRIVED] < load.prompt.size and (not timed or arrival[tally[T_ARRIVED]] <= now):
        i = tally[T_ARRIVED]
        work.request[i, Q_SINCE] = step
        if load.never[i]:  # refused as it comes, never waited for
            work.request[i, Q_STATE] = REFUSED
            tally[T_ENDED] += 1
        else:
            tally[T_NEW] += 1
        tally[T_ARRIVED] += 1
    return now


@_inlined
def _preempt(pool: Pool, load: Load, swap: bool, work: Work, j: int, step: int) -> None:
    """Take all pages from the latest admitted, number ``j``; what it sampled it keeps."""
    tally, flow, request = work.tally, work.flow, work.request
    row = work.row_of[j]
    i, room, todo = work.row[row, R_REQUEST], work.row[row, R_ROOM], work.row[row, R_TODO]
    stored = room - work.spare[j]
    flow[C.preempted] += 1
    request[i, Q_PREEMPTIONS] += 1
    request[i, Q_STATE] = WAITING
    _release_pages(pool, row, room // pool.unit)
    if swap and todo == 0 and tally[T_HOST_FREE] >= room // pool.unit:
        tally[T_HOST_FREE] -= room // pool.unit
        request[i, Q_SWAPPED] = stored
        flow[C.swapped_out_tokens] += stored
    tally[T_COMPUTING] -= todo > 0
    tally[T_LOGICAL] -= stored
    request[i, Q_SAMPLED] = max(load.output[i], 1) - work.left[j]
    request[i, Q_REACHED] = max(request[i, Q_REACHED], stored)
    request[i, Q_SINCE] = step
    work.spare_row[tally[T_ROWS]] = row
    tally[T_ROWS] += 1
    work.back[tally[T_BACK]] = i
    tally[T_BACK] += 1


@_inlined
def _grow(pool: Pool, load: Load, rules: Rules, work: Work, step: int, chunk: int) -> bool:
    """Give every running request the slots of its next tokens; say whether any was preempted.

    Where nobody has a prompt to compute, all take one at once, and only those that then have less
    than none are looked at one by one.
    """
    tally, flow, spare = work.tally, work.flow, work.spare
    rows, row_of, unit, cached = work.row, work.row_of, pool.unit, pool.kind == CACHED
    before_all = running = tally[T_RUNNING]
    decoded = 0
    alike = tally[T_COMPUTING] == 0
    if alike:
        for j in range(running):
            spare[j] -= 1
    j = 0
    while j < running:
        if alike and spare[j] >= 0:
            if cached and spare[j] == 0:
                row = row_of[j]
                page = rows[row, R_ROOM] // unit - 1
                _fill(pool, load, rules.same_step, rows[row, R_REQUEST], row, page)
            j += 1
            continue
        spare[j] += alike
        row = row_of[j]
        more = 1 if rows[row, R_TODO] == 0 else min(rows[row, R_TODO], chunk)
        pages = (more - spare[j] + unit - 1) // unit if more > spare[j] else 0
        while pool.counter[N_FREE] < pages and running > j:
            running -= 1
            spare[running] += alike and running > j
            _preempt(pool, load, rules.swap, work, running, step)
        if running == j:
            break
        if pages > 0:
            _take(pool, row, rows[row, R_ROOM] // unit, pages)
        before = rows[row, R_ROOM] - spare[j]
        rows[row, R_ROOM] += pages * unit
        spare[j] = rows[row, R_ROOM] - before - more
        i = rows[row, R_REQUEST]
        if cached:
            for page in range(before // unit, (before + more) // unit):
                _fill(pool, load, rules.same_step, i, row, page)
        if rows[row, R_TODO] > 0:
            rows[row, R_TODO] -= more
            tally[T_COMPUTING] -= rows[row, R_TODO] == 0
            tally[T_PREFILLED] += more
            again = max(min(before + more, work.request[i, Q_REACHED]) - before, 0)
            fresh = work.left[j] == max(load.output[i], 1)
            flow[C.recomputed_tokens] += again
            flow[C.computed_prompt_tokens if fresh else C.decoded_tokens] += more - again
            tally[T_LOGICAL] += more
            decoded -= 1
        j += 1
    decoded += running
    tally[T_RUNNING] = running
    tally[T_LOGICAL] += decoded
    flow[C.decoded_tokens] += decoded
    return bool(running < before_all)


@_inlined
def _admit(
    pool: Pool, load: Load, rules: Rules, work: Work, step: int, chunk: int, now: float
) -> bool:
    """Admit requests first come first served; say whether one did not fit."""
    tally, request, unit = work.tally, work.request, pool.unit
    cached, contiguous = pool.kind == CACHED, pool.kind >= FIRST_FIT
    while tally[T_RUNNING] < rules.max_running and tally[T_BACK] + tally[T_NEW] > 0:
        returns = tally[T_BACK] > 0
        while not returns and load.never[tally[T_NEXT]]:
            tally[T_NEXT] += 1
        i = work.back[tally[T_BACK] - 1] if returns else tally[T_NEXT]
        tokens = load.prompt[i] + request[i, Q_SAMPLED]
        row = work.spare_row[tally[T_ROWS] - 1]
        hits = 0
        start = 0
        if contiguous:
            held = load.reserve[i]
            computed = min(tokens, chunk)
            start = _reserve(pool, held)
            if start < 0:
                return True
        else:
            unused = 0
            if cached:
                hits, unused = _find(pool, load, i, row, tokens - rules.lookup_slack)
            computed = tokens - hits * unit
            room_for = computed
            if request[i, Q_SWAPPED] == 0:
                computed = min(computed, chunk)
                room_for = room_for if rules.whole_must_fit else computed
            pages = (computed + unit - 1) // unit
            wanted = (room_for + unit - 1) // unit + unused
            if tally[T_RUNNING] > 0:  # alone, it waits for nobody
                wanted += rules.watermark
            if wanted > pool.counter[N_FREE]:
                return True
            for k in range(hits):
                _hold(pool, pool.table[row, k])
            _take(pool, row, hits, pages)
            held = (hits + pages) * unit
        tally[T_ROWS] -= 1
        if returns:
            tally[T_BACK] -= 1
        else:
            tally[T_NEXT] += 1
            tally[T_NEW] -= 1
        _enter(load, work, i, row, start, held, hits * unit, computed, unit, step, now)
        if cached:
            for page in range(hits, (hits * unit + computed) // unit):
                _fill(pool, load, rules.same_step, i, row, page)
    return False


@_inlined
def _enter(
    load: Load,
    work: Work,
    i: int,
    row: int,
    start: int,
    held: int,
    found: int,
    computed: int,
    unit: int,
    step: int,
    now: float,
) -> None:
    """Count request ``i`` as running in a row, with the slots it holds and the tokens in them."""
    tally, flow, request = work.tally, work.flow, work.request
    stored = found + computed
    outputs = max(load.output[i], 1)
    tokens = load.prompt[i] + request[i, Q_SAMPLED]
    first_time = request[i, Q_ADMITTED] < 0
    if first_time:
        request[i, Q_ADMITTED] = step
        work.request_s[i, S_WAITING] = now - (load.arrival[i] if load.arrival.size else 0.0)
    request[i, Q_WAITED] += step - request[i, Q_SINCE]
    request[i, Q_STATE] = RUNNING
    flow[C.admitted] += 1
    if request[i, Q_SWAPPED] > 0:
        flow[C.swapped_in_tokens] += request[i, Q_SWAPPED]
        flow[C.decoded_tokens] += 1
        tally[T_HOST_FREE] += (request[i, Q_SWAPPED] + unit - 1) // unit
        request[i, Q_SWAPPED] = 0
    else:
        again = max(min(stored, request[i, Q_REACHED]) - found, 0)
        flow[C.recomputed_tokens] += again
        flow[C.decoded_tokens if request[i, Q_SAMPLED] > 0 else C.computed_prompt_tokens] += (
            computed - again
        )
        tally[T_PREFILLED] += computed
        flow[C.hit_tokens if first_time else C.resumed_hit_tokens] += found
        if first_time:
            request[i, Q_HIT] += found
    j = tally[T_RUNNING]
    work.row_of[j] = row
    work.spare[j] = held - stored
    work.left[j] = outputs - request[i, Q_SAMPLED]
    work.row[row, R_REQUEST], work.row[row, R_ROOM] = i, held
    work.row[row, R_TODO], work.row[row, R_PLACE] = tokens - stored, start
    tally[T_COMPUTING] += stored < tokens
    tally[T_LOGICAL] += stored
    tally[T_FINAL] += load.prompt[i] + outputs - 1
    tally[T_RUNNING] += 1


@_inlined
def _write(pool: Pool, work: Work, line: Ints, blocked: bool) -> None:
    """Write a step's columns."""
    tally, count, unit = work.tally, pool.counter, pool.unit
    for column in range(line.size):
        line[column] = work.flow[column]
        work.flow[column] = 0
    logical, free = tally[T_LOGICAL], count[N_FREE]
    line[C.running] = tally[T_RUNNING]
    line[C.waiting] = tally[T_BACK] + tally[T_NEW]
    line[C.blocked] = blocked
    line[C.logical_tokens] = logical
    line[C.shared_tokens] = count[N_EXTRA] * unit
    line[C.allocated_slots] = count[N_HELD] * unit
    unused = line[C.allocated_slots] - logical + line[C.shared_tokens]
    if pool.kind >= FIRST_FIT:
        line[C.reserved_slots] = unused
        line[C.reserved_used_later_slots] = tally[T_FINAL] - logical
        line[C.external_slots] = count[N_ROUNDING] + (free if blocked else 0)
        line[C.unallocated_slots] = 0 if blocked else free
    else:
        line[C.tail_slack_slots] = unused
        line[C.unallocated_slots] = free * unit
        line[C.pages] = count[N_HELD]
        line[C.cached_pages] = count[N_CACHED]
    _write_flows(count, line)


@_inlined
def _write_flows(count: Ints, line: Ints) -> None:
    """Move the pool's own counts of what happened into a line."""
    line[C.allocations] += count[N_ALLOCATIONS]
    line[C.frees] += count[N_FREES]
    line[C.evictions] += count[N_EVICTIONS]
    count[N_ALLOCATIONS] = count[N_FREES] = count[N_EVICTIONS] = 0


@_inlined
def _write_running(work: Work, detail: Ints) -> None:
    """Write what each running request holds in the step that is being recorded."""
    tally = work.tally
    for j in range(tally[T_RUNNING]):
        line, row = detail[tally[T_DETAILS]], work.row_of[j]
        room = work.row[row, R_ROOM]
        line[0], line[1] = tally[T_RECORDS], work.row[row, R_REQUEST]
        line[2], line[3] = room, room - work.spare[j]
        tally[T_DETAILS] += 1


@_inlined
def _sample(pool: Pool, load: Load, work: Work, step: int, now: float) -> None:
    """Let those that have computed all their tokens sample one, and leave with their last."""
    tally, left, spare, row_of = work.tally, work.left, work.spare, work.row_of
    running = tally[T_RUNNING]
    ending = 0
    if tally[T_COMPUTING] == 0:
        for j in range(running):
            left[j] -= 1
            ending += left[j] == 0
    else:
        for j in range(running):
            left[j] -= work.row[row_of[j], R_TODO] == 0
            ending += left[j] == 0
    if ending == 0:
        return
    kept = 0
    for j in range(running):
        row = row_of[j]
        if left[j] > 0:
            row_of[kept], spare[kept], left[kept] = row, spare[j], left[j]
            kept += 1
            continue
        i, room = work.row[row, R_REQUEST], work.row[row, R_ROOM]
        if pool.kind >= FIRST_FIT:
            _unreserve(pool, work.row[row, R_PLACE], room)
        else:
            _release_pages(pool, row, room // pool.unit)
        tally[T_LOGICAL] -= room - spare[j]
        tally[T_FINAL] -= load.prompt[i] + max(load.output[i], 1) - 1
        work.spare_row[tally[T_ROWS]] = row
        tally[T_ROWS] += 1
        work.request[i, Q_STATE] = FINISHED
        work.request[i, Q_FINISHED] = step
        work.request_s[i, S_LATENCY] = now - (load.arrival[i] if load.arrival.size else 0.0)
    work.flow[C.finished] += ending
    tally[T_ENDED] += ending
    tally[T_RUNNING] = kept


@_compiled
def run(
    pool: Pool,
    load: Load,
    rules: Rules,
    work: Work,
    record: Ints,
    record_s: Floats,
    detail: Ints,
) -> int:
    """Replay a trace until it ends or no more can be recorded; return how many steps were.

    Called again with the same work, it goes on. What came after the last record stays in
    ``work.flow``; ``work.request`` and ``work.request_s`` say what became of each request.

    Parameters
    ----------
    record, record_s : arrays, shape (k, columns) and (k,)
        For k recorded steps: their columns, and their times.
    detail : int64 array, shape (k x most running, 4), or empty
        For the running requests of each: record, request, slots held and slots used.
    """
    tally = work.tally
    step, now = tally[T_STEP], work.clock[0]
    records = 0
    tally[T_DETAILS] = 0
    while tally[T_ENDED] < load.prompt.size and records < record_s.size:
        now = _arrive(load, work, step, now)
        present = tally[T_RUNNING] + tally[T_BACK] + tally[T_NEW]
        if present == 0:
            continue  # all that arrived were refused: no step passes with nothing to do
        chunk = WHOLE if rules.lone_whole and present == 1 else rules.chunk
        tally[T_PREFILLED] = 0
        blocked = _grow(pool, load, rules, work, step, chunk)
        if not blocked:  # nobody is admitted in a step in which another was preempted
            blocked = _admit(pool, load, rules, work, step, chunk, now)
        if step % rules.stride == 0:
            _write(pool, work, record[records], blocked)
            record_s[records] = now
            if detail.size > 0:
                _write_running(work, detail)
            records += 1
            tally[T_RECORDS] += 1
        if pool.counter[N_PENDING] > 0:
            _settle(pool, load, rules.merge)
        if load.arrival.size > 0:
            now += (
                rules.base_s
                + rules.running_s * tally[T_RUNNING]
                + rules.prefill_s * tally[T_PREFILLED]
            )
        else:
            now += 1.0
        _sample(pool, load, work, step, now)
        step += 1
    work.clock[0], tally[T_STEP] = now, step
    _write_flows(pool.counter, work.flow)
    return records
