"""The compiled loop of a replay: requests arrive, are admitted, grow, are preempted, and leave.

One step: every running request, in the order of admission, gets the slots of its next tokens; if
memory is missing, the latest admitted has to leave. If nobody had to, requests are admitted first
come first served. Then the step is recorded. Then every request that has computed all its tokens
samples one; those with all their outputs are freed.

Nothing here is stored per token: state is linear in the requests and in what runs at one time.
"""

from __future__ import annotations

from typing import NamedTuple

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

# Columns of a recorded step.
COLUMNS = (
    "running",
    "waiting",
    "blocked",
    "logical_tokens",
    "shared_tokens",
    "tail_slack_slots",
    "reserved_slots",
    "reserved_used_later_slots",
    "allocated_slots",
    "unallocated_slots",
    "external_slots",
    "pages",
    "cached_pages",
    "admitted",
    "preempted",
    "finished",
    "decoded_tokens",
    "computed_prompt_tokens",
    "recomputed_tokens",
    "hit_tokens",
    "resumed_hit_tokens",
    "swapped_out_tokens",
    "swapped_in_tokens",
    "allocations",
    "frees",
    "evictions",
)
(
    C_RUNNING,
    C_WAITING,
    C_BLOCKED,
    C_LOGICAL,
    C_SHARED,
    C_SLACK,
    C_RESERVED,
    C_LATER,
    C_ALLOCATED,
    C_UNALLOCATED,
    C_EXTERNAL,
    C_PAGES,
    C_CACHED,
    C_ADMITTED,
    C_PREEMPTED,
    C_FINISHED,
    C_DECODED,
    C_PROMPT,
    C_RECOMPUTED,
    C_HIT,
    C_RESUMED_HIT,
    C_SWAPPED_OUT,
    C_SWAPPED_IN,
    C_ALLOCATIONS,
    C_FREES,
    C_EVICTIONS,
) = range(len(COLUMNS))
_FIRST_FLOW = C_ADMITTED  # from here on, columns count what happened since the last record

# Counters of a pool.
(
    N_FREE,
    N_HELD,
    N_EXTRA,
    N_CACHED,
    N_ALLOCATIONS,
    N_FREES,
    N_EVICTIONS,
    N_HOLES,
    N_ROUNDING,
    N_UNKEYED,
    N_QUEUED,
    N_OLDEST,
    N_STAMP,
) = range(13)
COUNTERS = 13
LAST_STAMP = 2**31 - 2

NO_KEY, PRIVATE_KEY = -2, -1

WHOLE = 2**62  # tokens of a chunk that is never too small

# Columns of a page, side by side so that a page costs one line of the processor's cache: its
# holders, its key, the next page with the same key, and the number under which it was freed last.
REFS, KEY, NEXT_SAME, FREED_AS = range(4)
PAGE_COLUMNS = 4


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
    # Room for what a step touches of each running request: slots held and not yet used, and outputs
    # still to sample. 32 bits where these are enough: a step then takes half the time.
    spare: Ints | Shorts
    left: Ints | Shorts


class Pending(NamedTuple):
    """Pages that filled in this step and are not to be found before its end."""

    counter: Ints
    request: Ints
    row: Ints
    page: Ints


class Rules(NamedTuple):
    """Whom to admit, and how time passes."""

    max_running: int
    watermark: int
    chunk: int
    host_pages: int
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
    detail: bool  # record what each running request holds
    expected: int  # records to make room for at first


@numba.njit(cache=True, inline="always")
def _page_key(
    covered: Ints, id_start: Ints, ids: Ints, id_size: int, request: int, page: int, unit: int
) -> int:
    """Return the key of a complete page; ids chain, so a page of several ids has the last's."""
    if (page + 1) * unit > covered[request]:
        return PRIVATE_KEY
    if unit <= id_size:
        ratio = id_size // unit
        return int(ids[id_start[request] + page // ratio] * ratio + page % ratio)
    each = unit // id_size
    return int(ids[id_start[request] + (page + 1) * each - 1])


@numba.njit(cache=True)
def _tidy(count: Ints, pages: Shorts, queue: Shorts) -> None:
    """Drop what is no longer free from the full queue; at least half of it goes."""
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


@numba.njit(cache=True, inline="always")
def _forget(pages: Shorts, first_of_key: Shorts, page: int) -> None:
    """Take a page out of the prefix cache."""
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


@numba.njit(cache=True, inline="always")
def _publish(pages: Shorts, first_of_key: Shorts, page: int, key: int) -> None:
    """Let a complete page be found by its key, after those that already carry it."""
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


@numba.njit(cache=True, inline="always")
def _take(
    kind: int,
    count: Ints,
    pages: Shorts,
    unkeyed: Ints,
    queue: Shorts,
    first_of_key: Shorts,
    table: Shorts,
    row: int,
    have: int,
    more: int,
) -> None:
    """Give a row ``more`` free pages after the ``have`` it holds."""
    count[N_FREE] -= more
    count[N_HELD] += more
    count[N_ALLOCATIONS] += more
    if kind == COUNTED:
        return
    fresh = min(more, count[N_UNKEYED])
    count[N_UNKEYED] -= fresh
    for k in range(fresh):
        page = unkeyed[count[N_UNKEYED] + fresh - 1 - k]
        pages[page, REFS] = 1
        table[row, have + k] = page
    if fresh == more:
        return
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
        _forget(pages, first_of_key, page)
        pages[page, REFS] = 1
        table[row, k] = page
    count[N_OLDEST] = at
    count[N_QUEUED] -= passed


@numba.njit(cache=True, inline="always")
def _drop(count: Ints, pages: Shorts, unkeyed: Ints, queue: Shorts, page: int) -> None:
    """Let one holder of a page go."""
    pages[page, REFS] -= 1
    if pages[page, REFS] > 0:
        count[N_EXTRA] -= 1
        return
    count[N_FREE] += 1
    count[N_HELD] -= 1
    count[N_FREES] += 1
    if pages[page, KEY] == NO_KEY:
        unkeyed[count[N_UNKEYED]] = page
        count[N_UNKEYED] += 1
        return
    count[N_CACHED] += 1
    size = queue.shape[0]
    if count[N_QUEUED] == size:
        _tidy(count, pages, queue)
    # Numbers come round again, long after the last page that had one has left the queue.
    count[N_STAMP] = count[N_STAMP] % LAST_STAMP + 1
    at = count[N_OLDEST] + count[N_QUEUED]
    at = at - size if at >= size else at
    queue[at, 0], queue[at, 1] = page, count[N_STAMP]
    pages[page, FREED_AS] = count[N_STAMP]
    count[N_QUEUED] += 1


@numba.njit(cache=True, inline="always")
def _release_pages(
    kind: int,
    count: Ints,
    pages: Shorts,
    unkeyed: Ints,
    queue: Shorts,
    table: Shorts,
    row: int,
    held: int,
) -> None:
    if kind == COUNTED:
        count[N_FREE] += held
        count[N_HELD] -= held
        count[N_FREES] += held
        return
    for k in range(held - 1, -1, -1):  # tail first, so that it is evicted first
        _drop(count, pages, unkeyed, queue, table[row, k])


@numba.njit(cache=True)
def _find(
    pages: Shorts,
    first_of_key: Shorts,
    table: Shorts,
    unit: int,
    covered: Ints,
    id_start: Ints,
    ids: Ints,
    id_size: int,
    request: int,
    row: int,
    tokens: int,
) -> tuple[int, int]:
    """Write the cached leading pages into a row; return how many, and how many are unused."""
    hits, unused = 0, 0
    while (hits + 1) * unit <= tokens:
        key = _page_key(covered, id_start, ids, id_size, request, hits, unit)
        if key < 0:
            break
        page = first_of_key[key]
        if page < 0:
            break
        table[row, hits] = page
        unused += pages[page, REFS] == 0
        hits += 1
    return hits, unused


@numba.njit(cache=True, inline="always")
def _hold(count: Ints, pages: Shorts, page: int) -> None:
    """Add a holder to a page that can be found; a free one is free no longer."""
    if pages[page, REFS] == 0:
        pages[page, FREED_AS] = 0
        count[N_FREE] -= 1
        count[N_HELD] += 1
        count[N_CACHED] -= 1
        count[N_ALLOCATIONS] += 1
    else:
        count[N_EXTRA] += 1
    pages[page, REFS] += 1


@numba.njit(cache=True)
def _touch(count: Ints, pages: Shorts, table: Shorts, row: int, hits: int) -> None:
    """Hold the pages that were found."""
    for k in range(hits):
        page = table[row, k]
        _hold(count, pages, page)


@numba.njit(cache=True)
def _order_of(slots: int) -> int:
    order = 0
    while (1 << order) < slots:
        order += 1
    return order


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def _grown(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    wider = np.zeros((2 * array.shape[0], array.shape[1]), array.dtype)
    wider[: array.shape[0]] = array
    return wider


@numba.njit(cache=True, inline="always")
def _fill(
    pages: Shorts,
    first_of_key: Shorts,
    table: Shorts,
    unit: int,
    covered: Ints,
    id_start: Ints,
    ids: Ints,
    id_size: int,
    pending: Pending,
    same_step: bool,
    request: int,
    row: int,
    page: int,
) -> None:
    """Let a complete page be found, now or at the end of the step."""
    if same_step:
        _publish(
            pages,
            first_of_key,
            table[row, page],
            _page_key(covered, id_start, ids, id_size, request, page, unit),
        )
        return
    k = pending.counter[0]
    pending.request[k], pending.row[k], pending.page[k] = request, row, page
    pending.counter[0] = k + 1


@numba.njit(cache=True)
def _settle(
    count: Ints,
    pages: Shorts,
    unkeyed: Ints,
    queue: Shorts,
    first_of_key: Shorts,
    table: Shorts,
    unit: int,
    covered: Ints,
    id_start: Ints,
    ids: Ints,
    id_size: int,
    pending: Pending,
    merge: bool,
) -> None:
    """Let the pages filled in this step be found; merge copies of pages that are known."""
    for k in range(pending.counter[0]):
        row, page = pending.row[k], pending.page[k]
        at = table[row, page]
        key = _page_key(covered, id_start, ids, id_size, pending.request[k], page, unit)
        known = first_of_key[key] if key >= 0 else -1
        if not merge or known < 0 or known == at:
            _publish(pages, first_of_key, at, key)
            continue
        table[row, page] = known
        _hold(count, pages, known)
        _drop(count, pages, unkeyed, queue, at)
    pending.counter[0] = 0


@numba.njit(cache=True, nogil=True)
def run(
    pool: Pool, load: Load, rules: Rules, pending: Pending, progress: Ints
) -> tuple[Ints, Floats, Ints, Ints, Floats, Ints]:
    """Replay a trace; return recorded steps, their times, what came after, and request columns.

    Last come the running requests of every recorded step, if asked for: record, request, slots
    held and slots used.

    Request columns: state, first admitted step, finished step, preemptions, hit tokens, waiting
    steps; and, as times, waiting and finishing.
    """
    n = load.prompt.size
    kind, unit, count = pool.kind, pool.unit, pool.counter
    # Arrays of their own: reaching through the tuple at each use would cost more than the use.
    lines, unkeyed, queue = pool.page, pool.unkeyed, pool.queue
    first_of_key, table = pool.first_of_key, pool.table
    covered, id_start, ids, id_size = load.covered, load.id_start, load.ids, load.id_size
    prompt, output = load.prompt, load.output
    contiguous = kind >= FIRST_FIT
    cached = kind == CACHED
    timed = load.arrival.size > 0

    about = np.zeros((n, 6), np.int64)
    about[:, 1:3] = -1
    about_s = np.full((n, 2), -1.0)
    sampled = np.zeros(n, np.int64)  # of requests that are not running
    reached = np.zeros(n, np.int64)  # slots a request had when it had to leave
    swapped = np.zeros(n, np.int64)  # slots a swapped request has on the host
    waits_from = np.zeros(n, np.int64)

    # Running requests in the order of admission, each with a row of its own for what rarely
    # changes. A step touches `spare` and `left` of each and, but for pages that fill and requests
    # that end, nothing else.
    most = rules.max_running
    row_of = np.zeros(most, np.int64)
    spare, left = load.spare, load.left
    who = np.zeros(most, np.int64)  # by row, as are the next three
    room = np.zeros(most, np.int64)  # slots held
    todo = np.zeros(most, np.int64)  # tokens to compute before the next is sampled
    place = np.zeros(most, np.int64)  # contiguous: where the run starts
    spare_rows = np.arange(most - 1, -1, -1)
    spares = most

    back = np.zeros(n, np.int64)  # requests that had to leave, the next to return on top
    backs = 0

    record = np.zeros((rules.expected, len(COLUMNS)), np.int64)
    record_s = np.zeros(rules.expected)
    records = 0
    detail = np.zeros((1024, 4), np.int64)
    details = 0
    flow = np.zeros(len(COLUMNS), np.int64)

    running = 0
    computing = 0  # running requests with something still to compute
    next_new = 0
    arrived = 0
    waiting_new = 0
    logical = 0
    final_held = 0  # contiguous: what running requests hold at their ends
    now = 0.0
    step = 0
    host_free = rules.host_pages
    finished = 0
    refused = 0

    while finished + refused < n:
        if timed and running == 0 and backs == 0 and waiting_new == 0:
            now = max(now, load.arrival[arrived])
        while arrived < n and (not timed or load.arrival[arrived] <= now):
            waits_from[arrived] = step
            if load.never[arrived]:  # refused as it comes, never waited for
                about[arrived, 0] = REFUSED
                refused += 1
            else:
                waiting_new += 1
            arrived += 1
        if running == 0 and backs == 0 and waiting_new == 0:
            continue  # all that arrived were refused: no step passes with nothing to do
        prefilled = 0
        chunk = rules.chunk
        if rules.lone_whole and running + backs + waiting_new == 1:
            chunk = WHOLE

        # 1. Every running request gets the slots of its next tokens.
        # Where nobody has a prompt to compute, all take one at once, and only those that then have
        # less than none are looked at one by one.
        forced = False
        served = 0
        alike = computing == 0
        if alike:
            for j in range(running):
                spare[j] -= 1
        j = 0
        while j < running:
            if alike and spare[j] >= 0:
                if cached and spare[j] == 0:
                    row = row_of[j]
                    page = room[row] // unit - 1
                    _fill(
                        lines,
                        first_of_key,
                        table,
                        unit,
                        covered,
                        id_start,
                        ids,
                        id_size,
                        pending,
                        rules.same_step,
                        who[row],
                        row,
                        page,
                    )
                j += 1
                continue
            spare[j] += alike
            row = row_of[j]
            more = 1 if todo[row] == 0 else min(todo[row], chunk)
            pages = (more - spare[j] + unit - 1) // unit if more > spare[j] else 0
            while count[N_FREE] < pages and running > j:
                running -= 1
                spare[running] += alike and running > j
                gone = row_of[running]
                i = who[gone]
                kept = room[gone] // unit
                stored = room[gone] - spare[running]
                forced = True
                flow[C_PREEMPTED] += 1
                about[i, 3] += 1
                about[i, 0] = WAITING
                _release_pages(kind, count, lines, unkeyed, queue, table, gone, kept)
                if rules.swap and todo[gone] == 0 and host_free >= kept:
                    host_free -= kept
                    swapped[i] = stored
                    flow[C_SWAPPED_OUT] += stored
                computing -= todo[gone] > 0
                logical -= stored
                sampled[i] = max(output[i], 1) - left[running]
                reached[i] = max(reached[i], stored)
                spare_rows[spares] = gone
                spares += 1
                waits_from[i] = step
                back[backs] = i
                backs += 1
            if running == j:
                break
            if pages > 0:
                _take(
                    kind,
                    count,
                    lines,
                    unkeyed,
                    queue,
                    first_of_key,
                    table,
                    row,
                    room[row] // unit,
                    pages,
                )
            before = room[row] - spare[j]
            room[row] += pages * unit
            spare[j] = room[row] - before - more
            if cached:
                for page in range(before // unit, (before + more) // unit):
                    _fill(
                        lines,
                        first_of_key,
                        table,
                        unit,
                        covered,
                        id_start,
                        ids,
                        id_size,
                        pending,
                        rules.same_step,
                        who[row],
                        row,
                        page,
                    )
            if todo[row] > 0:
                todo[row] -= more
                computing -= todo[row] == 0
                prefilled += more
                again = max(min(before + more, reached[who[row]]) - before, 0)
                fresh = left[j] == max(output[who[row]], 1)
                flow[C_RECOMPUTED] += again
                flow[C_PROMPT if fresh else C_DECODED] += more - again
                logical += more
                served -= 1
            j += 1
        served += running
        logical += served
        flow[C_DECODED] += served

        # 2. Admission, first come first served, unless somebody had to leave.
        blocked = forced
        while not forced and running < most and (backs > 0 or waiting_new > 0):
            returns = backs > 0
            while not returns and load.never[next_new]:
                next_new += 1
            i = back[backs - 1] if returns else next_new
            outputs = max(output[i], 1)
            tokens = prompt[i] + sampled[i]
            row = spare_rows[spares - 1]
            hits = 0
            start = 0
            if contiguous:
                start = _reserve(pool, load.reserve[i])
                if start < 0:
                    blocked = True
                    break
                held = load.reserve[i]
                computed = min(tokens, chunk)
            else:
                unused = 0
                if cached:
                    hits, unused = _find(
                        lines,
                        first_of_key,
                        table,
                        unit,
                        covered,
                        id_start,
                        ids,
                        id_size,
                        i,
                        row,
                        tokens - rules.lookup_slack,
                    )
                computed = tokens - hits * unit
                room_for = computed
                if swapped[i] == 0:
                    computed = min(computed, chunk)
                    room_for = room_for if rules.whole_must_fit else computed
                pages = (computed + unit - 1) // unit
                wanted = (room_for + unit - 1) // unit + unused
                if running > 0:  # alone, it waits for nobody
                    wanted += rules.watermark
                if wanted > count[N_FREE]:
                    blocked = True
                    break
                if hits > 0:
                    _touch(count, lines, table, row, hits)
                _take(kind, count, lines, unkeyed, queue, first_of_key, table, row, hits, pages)
                held = (hits + pages) * unit
            spares -= 1
            if returns:
                backs -= 1
            else:
                next_new += 1
                waiting_new -= 1
            stored = hits * unit + computed
            first_time = about[i, 1] < 0
            if first_time:
                about[i, 1] = step
                about_s[i, 0] = now - (load.arrival[i] if timed else 0.0)
            about[i, 5] += step - waits_from[i]
            about[i, 0] = RUNNING
            flow[C_ADMITTED] += 1
            if swapped[i] > 0:
                flow[C_SWAPPED_IN] += swapped[i]
                flow[C_DECODED] += 1
                host_free += (swapped[i] + unit - 1) // unit
                swapped[i] = 0
            else:
                again = max(min(stored, reached[i]) - hits * unit, 0)
                flow[C_RECOMPUTED] += again
                flow[C_DECODED if sampled[i] > 0 else C_PROMPT] += computed - again
                prefilled += computed
                if first_time:
                    flow[C_HIT] += hits * unit
                    about[i, 4] += hits * unit
                else:
                    flow[C_RESUMED_HIT] += hits * unit
            row_of[running] = row
            spare[running] = held - stored
            left[running] = outputs - sampled[i]
            who[row], room[row], todo[row], place[row] = i, held, tokens - stored, start
            computing += stored < tokens
            logical += stored
            final_held += prompt[i] + outputs - 1
            if cached:
                for page in range(hits, stored // unit):
                    _fill(
                        lines,
                        first_of_key,
                        table,
                        unit,
                        covered,
                        id_start,
                        ids,
                        id_size,
                        pending,
                        rules.same_step,
                        i,
                        row,
                        page,
                    )
            running += 1

        # 3. The step is recorded.
        if step % rules.stride == 0:
            if records == record.shape[0]:
                record = _grown(record)
                record_s = np.concatenate((record_s, np.zeros(record_s.size)))
            line = record[records]
            line[:] = flow
            flow[:] = 0
            line[C_RUNNING] = running
            line[C_WAITING] = backs + waiting_new
            line[C_BLOCKED] = blocked
            line[C_LOGICAL] = logical
            line[C_SHARED] = count[N_EXTRA] * unit
            line[C_ALLOCATED] = count[N_HELD] * unit
            unused = line[C_ALLOCATED] - logical + line[C_SHARED]
            free = count[N_FREE]
            if contiguous:
                line[C_RESERVED] = unused
                line[C_LATER] = final_held - logical
                line[C_EXTERNAL] = count[N_ROUNDING] + (free if blocked else 0)
                line[C_UNALLOCATED] = 0 if blocked else free
            else:
                line[C_SLACK] = unused
                line[C_UNALLOCATED] = free * unit
                line[C_PAGES] = count[N_HELD]
                line[C_CACHED] = count[N_CACHED]
            line[C_ALLOCATIONS] = count[N_ALLOCATIONS]
            line[C_FREES] = count[N_FREES]
            line[C_EVICTIONS] = count[N_EVICTIONS]
            count[N_ALLOCATIONS] = count[N_FREES] = count[N_EVICTIONS] = 0
            record_s[records] = now
            if rules.detail:
                for j in range(running):
                    if details == detail.shape[0]:
                        detail = _grown(detail)
                    row = row_of[j]
                    used = room[row] - spare[j]
                    detail[details] = (records, who[row], room[row], used)
                    details += 1
            records += 1

        if pending.counter[0] > 0:
            _settle(
                count,
                lines,
                unkeyed,
                queue,
                first_of_key,
                table,
                unit,
                covered,
                id_start,
                ids,
                id_size,
                pending,
                rules.merge,
            )
        if timed:
            now += rules.base_s + rules.running_s * running + rules.prefill_s * prefilled
        else:
            now += 1.0

        # 4. Those that have computed all their tokens sample one, and leave with their last.
        ending = 0
        if computing == 0:
            for j in range(running):
                left[j] -= 1
                ending += left[j] == 0
        else:
            for j in range(running):
                left[j] -= todo[row_of[j]] == 0
                ending += left[j] == 0
        if ending > 0:
            kept = 0
            for j in range(running):
                if left[j] > 0:
                    row_of[kept], spare[kept], left[kept] = row_of[j], spare[j], left[j]
                    kept += 1
                    continue
                row = row_of[j]
                i = who[row]
                if contiguous:
                    _unreserve(pool, place[row], room[row])
                else:
                    _release_pages(
                        kind, count, lines, unkeyed, queue, table, row, room[row] // unit
                    )
                logical -= room[row] - spare[j]
                final_held -= prompt[i] + max(output[i], 1) - 1
                spare_rows[spares] = row
                spares += 1
                about[i, 0] = FINISHED
                about[i, 2] = step
                about_s[i, 1] = now - (load.arrival[i] if timed else 0.0)
            flow[C_FINISHED] += ending
            finished += ending
            running = kept
        step += 1
        progress[0] = finished + refused
    flow[C_ALLOCATIONS] += count[N_ALLOCATIONS]
    flow[C_FREES] += count[N_FREES]
    flow[C_EVICTIONS] += count[N_EVICTIONS]
    return record[:records], record_s[:records], flow, about, about_s, detail[:details]
