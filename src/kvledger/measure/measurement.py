"""One run: each sweep checked, then timed in its share of the time; what is left out, noted.

Every peer is first compared with the reference on the tensors that are timed: on a few of the
requests, and on all of them cut down to a few hundred tokens or one. Then all are timed side by
side, the most telling case first.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import torch

from kvledger.core.errors import LedgerError
from kvledger.measure.decode_step import (
    DecodeInputs,
    SlotPool,
    checked_error,
    checked_requests,
    paged_decode_reference,
    poisoned,
    pool_bytes,
    short_lengths,
)
from kvledger.measure.host_work import measure_host
from kvledger.measure.library_peers import PEERS
from kvledger.measure.machine import (
    DoesNotFitError,
    Stopwatch,
    Timed,
    copy_call,
    describe,
    free_bytes,
    pick_device,
    run_rounds,
    software,
    source,
)
from kvledger.measure.peers import Peer, RefusedError
from kvledger.measure.record import Absence, Copy, Device, HostTiming, Record, Timing
from kvledger.measure.sweeps import (
    CACHE_MULTIPLE,
    PAGE_SIZES,
    Placement,
    Sweep,
    check_page_sizes,
    cpu_sweeps,
    gpu_sweeps,
    running_lengths,
)

#: Eight minutes on a GPU, three on a CPU and half of one, less what starting and ending take.
TIME_LIMIT_S = {"cuda": 450.0, "cpu": 168.0}
QUICK_TIME_LIMIT_S = 25.0
REPETITIONS, QUICK_REPETITIONS = 11, 5
#: Below it a median and quartiles say little.
MIN_REPETITIONS = 5
#: The host's work: running requests of a trace, decode steps a repetition, a prompt to hash, and
#: its share of the time beside the weights of sweeps.
HOST_TRACE, HOST_REQUESTS, HOST_STEPS, HOST_PROMPT_TOKENS = "azure_conv_2023", 256, 64, 2**15
HOST_WEIGHT = 1.2

_COPY_BYTES = {"cuda": 2**31, "cpu": 2**28}
#: Of what is free on a CPU, what one case's K and V may take.
_CPU_MEMORY_SHARE = 8
#: Memory left free beside what is counted: libraries take workspaces.
_SPARE_BYTES = {"cuda": 2**31, "cpu": 2**29}
#: Kernels that read through a table whatever the page size: one page a request is their own
#: contiguous timing. The others are compared with contiguous attention as torch does it.
_OWN_CONTIGUOUS = ("triton", "flashinfer")
_NO_TIME = "left out: the time limit"


def take_record(
    on: str | None = None,
    *,
    quick: bool = False,
    seed: int = 0,
    page_sizes: Sequence[int] = PAGE_SIZES,
    limit_s: float | None = None,
    peers: Sequence[str] | None = None,
    command: str = "",
    started: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Record:
    """Measure, and return the record without writing it.

    ``command`` is what the record says was called; ``started`` the seconds of
    :func:`time.monotonic` from which the time limit counts; ``say`` is told how far it is. A wrong
    peer is a LedgerError, and so is no device, memory or time for the first case.
    """
    started = time.monotonic() if started is None else started
    page_sizes = check_page_sizes(page_sizes)
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    device = pick_device(on)
    about = describe(device)
    least_bytes, notes = _least_bytes(about, device)
    if about.kind == "cuda":
        sweeps = gpu_sweeps(page_sizes, quick=quick, seed=seed)
    else:
        sweeps = cpu_sweeps(page_sizes, quick=quick, seed=seed, least_bytes=least_bytes)
    used, unasked = _peers(peers)
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    if limit_s is None:
        limit_s = QUICK_TIME_LIMIT_S if quick else TIME_LIMIT_S[about.kind]
    run = Measurement(device, used, least_bytes, repetitions, seed=seed, say=say)
    with torch.no_grad():
        copy, host = run.all(sweeps, started + limit_s, max(_COPY_BYTES[about.kind], least_bytes))
    return Record(
        schema=1,
        kind="attention",
        date=date,
        command=command,
        source=source(),
        device=about,
        software=software(),
        settings={
            "quick": quick,
            "seed": seed,
            "repetitions": repetitions,
            "page_sizes": list(page_sizes),
            "time_limit_s": limit_s,
            "least_bytes": least_bytes,
            "threads": torch.get_num_threads(),
            "tiles": run.tiles,
            "notes": notes,
        },
        copy=copy,
        cases=tuple(sweep.case for sweep in run.measured),
        timings=tuple(run.timings),
        absent=(*unasked, *run.absent),
        host=tuple(host),
        elapsed_s=round(time.monotonic() - started, 1),
    )


def _least_bytes(about: Device, device: torch.device) -> tuple[int, list[str]]:
    """Return the fewest bytes of a case, and what there is to say about them."""
    wanted = CACHE_MULTIPLE * about.last_level_cache_bytes
    room = free_bytes(device) // _CPU_MEMORY_SHARE
    if about.kind == "cuda" or wanted <= room:
        return wanted, []
    times = room / about.last_level_cache_bytes
    return room, [
        f"for lack of memory, working sets are {times:.1f} times the last-level cache that the "
        f"system shows, not {CACHE_MULTIPLE}: parts of them may be read from it"
    ]


def _peers(names: Sequence[str] | None) -> tuple[list[Peer], list[Absence]]:
    """Return the peers that are asked for, and the others as absent."""
    known = {peer.name: peer for peer in PEERS}
    for name in names or ():
        if name not in known:
            raise LedgerError(f"a peer is {name!r}; accepted: {', '.join(known)}")
    asked = set(known if names is None else names)
    others = [Absence(name, None, None, "not asked for") for name in known if name not in asked]
    return [peer for name, peer in known.items() if name in asked], others


@dataclass
class Measurement:
    """What a run knows while it goes on; peers that are absent on the device are noted at once.

    ``least_bytes`` are the fewest of a case's K and V, so that the cache holds little of them;
    ``repetitions`` the rounds wanted.
    """

    device: torch.device
    peers: Sequence[Peer]
    least_bytes: int
    repetitions: int
    seed: int = 0
    say: Callable[[str], None] = lambda text: None
    measured: list[Sweep] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    absent: list[Absence] = field(default_factory=list)
    tiles: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stopwatch = Stopwatch(self.device)
        self._usable: list[Peer] = []
        for peer in self.peers:
            if (reason := peer.absent(self.device)) is None:
                self._usable.append(peer)
            else:
                self._leave_out(peer.name, None, None, reason)
        # What preparing and checking took last and for how many bytes, by peer, and whether for
        # sizes that are new to it, which it may have to compile for: a guess for the next time.
        self._preparing: dict[tuple[str, bool], tuple[float, int]] = {}
        self._filling_s_per_byte = 0.0

    def all(
        self, sweeps: Sequence[Sweep], deadline: float, copy_bytes: int
    ) -> tuple[Copy, list[HostTiming]]:
        """Measure all sweeps, a copy beside the first of them, and the host's work after it."""
        call, moved = copy_call(copy_bytes, self.device)
        copies = Timed("copy", call, "events" if self.device.type == "cuda" else "host")
        beside, host = [copies], list[HostTiming]()
        del call
        for index, sweep in enumerate(sweeps):
            weights = sum(each.weight for each in sweeps[index:]) + (0 if host else HOST_WEIGHT)
            now = time.monotonic()
            until = now + max(0.0, deadline - now) * sweep.weight / weights
            try:
                self.sweep(sweep, until, beside)
            except DoesNotFitError as error:
                if not self.measured:
                    raise
                reason = error.reason.removeprefix(f"{sweep.case.id}: ")
                for peer in self._usable:
                    self._leave_out(peer.name, sweep.case.id, None, reason)
                continue
            if not self.measured:  # the copy is timed with the main case, and its memory given back
                beside.clear()
                copies.call = lambda: None
                host = measure_host(
                    sorted(sweep.page_sizes),
                    running_lengths(HOST_TRACE, HOST_REQUESTS, self.seed),
                    steps=HOST_STEPS,
                    prompt_tokens=HOST_PROMPT_TOKENS,
                    repetitions=self.repetitions,
                    least=MIN_REPETITIONS,
                    deadline=deadline,
                    seed=self.seed,
                    say=self.say,
                )
            self.measured.append(sweep)
        return Copy(moved, tuple(copies.seconds)), host

    def sweep(self, sweep: Sweep, deadline: float, extra: Sequence[Timed] = ()) -> None:
        """Check and time one sweep, with something else in the same rounds.

        No memory or time for the case, or much of it in the cache, is a DoesNotFitError; a peer
        that computes something else than the reference, a LedgerError.
        """
        try:
            self._sweep(sweep.placements(), deadline, extra)
        finally:  # what was prepared is gone by now
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _sweep(self, placements: list[Placement], deadline: float, extra: Sequence[Timed]) -> None:
        name = placements[0].case.id
        no_time = f"{name}: no time for any peer; accepted: a longer --time-limit"
        pool = self._filled_pool(placements, deadline)
        for other in extra:
            self._stopwatch.pilot(other)
        prepared = list(self._prepared(pool, placements, deadline, extra))
        if not prepared:
            raise DoesNotFitError(no_time)
        timed = [*extra, *(each for each, _ in prepared)]
        kept = run_rounds(
            timed,
            self._stopwatch,
            repetitions=self.repetitions,
            least=MIN_REPETITIONS,
            deadline=deadline,
            rng=np.random.default_rng(self.seed),
            say=lambda text: self.say(f"{name}: {len(timed)} timings, {text}"),
        )
        if len(kept) <= len(extra):  # the time went to what is timed beside them
            raise DoesNotFitError(no_time)
        for each, timing in prepared:
            if each in kept:
                seconds = tuple(each.seconds)
                self.timings.append(replace(timing, calls=each.calls, seconds=seconds))
            else:
                self._leave_out(timing.peer, name, timing.page_size, _NO_TIME)

    def _filled_pool(self, placements: list[Placement], deadline: float) -> SlotPool:
        """Fill the pool of a case, if there is room and time, and note how long that took."""
        case = placements[0].case
        if case.kv_bytes < self.least_bytes:
            raise DoesNotFitError(
                f"{case.id} has {case.kv_bytes / 2**20:,.0f} MiB of K and V; accepted: at least "
                f"{self.least_bytes / 2**20:,.0f} MiB, of which the last-level cache holds little"
            )
        n_bytes, start = pool_bytes(placements), time.monotonic()
        needed, free = n_bytes + self._check_bytes(placements[0]), free_bytes(self.device)
        if needed > free:
            raise DoesNotFitError(
                f"the working set of {case.id} needs {needed / 2**30:.1f} GiB on "
                f"{self.device.type}, and {free / 2**30:.1f} GiB are free; accepted: a device with "
                "room for it"
            )
        if start + 2 * n_bytes * self._filling_s_per_byte > deadline:
            raise DoesNotFitError(f"{case.id}: {_NO_TIME}; accepted: a longer --time-limit")
        self.say(f"{case.id}: filling {n_bytes / 2**30:.2f} GiB")
        pool = SlotPool(placements, self.device, self.seed)
        self._stopwatch.wait()
        self._filling_s_per_byte = (time.monotonic() - start) / n_bytes
        return pool

    def _prepared(
        self,
        pool: SlotPool,
        placements: Sequence[Placement],
        deadline: float,
        extra: Sequence[Timed],
    ) -> Iterator[tuple[Timed, Timing]]:
        """Prepare and check what fits into the time, the first placements first."""
        rng = np.random.default_rng(self.seed)
        rounds = (self.repetitions + MIN_REPETITIONS) // 2
        round_s = sum(each.repetition_s for each in extra)
        seen: set[tuple[str, int]] = set()
        for placement in placements:
            inputs, case = pool.inputs(placement, rng), placement.case
            reference: torch.Tensor | None = None
            requests = checked_requests(case)
            for peer in self._usable:
                side_by_side = not peer.paged or peer.name in _OWN_CONTIGUOUS
                if not (side_by_side if placement.layout == "contiguous" else peer.paged):
                    continue
                start, sizes = time.monotonic(), (peer.name, placement.page_size)
                kind = (peer.name, sizes not in seen)
                taken_s, n_bytes = self._preparing.get(kind, (0.0, 1))
                guess = taken_s * max(1.0, case.kv_bytes / n_bytes)
                late = start + guess + rounds * round_s > deadline
                reason = _NO_TIME if late else self._unfit(peer, placement)
                if reason is None:
                    self.say(f"{_name(peer, placement)}: preparing")
                    if reference is None:
                        some = inputs.of_requests(requests)
                        reference = paged_decode_reference(some, torch.float32)
                    try:
                        timed, timing = self._prepare(peer, placement, inputs, requests, reference)
                    except RefusedError as refused:
                        reason = refused.reason
                    self._preparing[kind] = (time.monotonic() - start, case.kv_bytes)
                if reason is not None:
                    self._leave_out(peer.name, case.id, placement.page_size, reason)
                    continue
                seen.add(sizes)
                round_s += timed.repetition_s
                yield timed, timing

    def _prepare(
        self,
        peer: Peer,
        placement: Placement,
        inputs: DecodeInputs,
        requests: list[int],
        reference: torch.Tensor,
    ) -> tuple[Timed, Timing]:
        what, case = _name(peer, placement), placement.case
        self._check_short(peer, placement, inputs)
        step = peer.prepare(inputs)
        error = checked_error(poisoned(step), requests, reference, case.dtype, what)
        timed = Timed(what, step, peer.timed_by if self.device.type == "cuda" else "host")
        if hasattr(step, "tiles"):  # how this package's kernel cut its work
            self.tiles[case.shape] = str(step.tiles)
        self._stopwatch.pilot(timed)
        return timed, Timing(
            case=case.id,
            peer=peer.name,
            layout=placement.layout,
            page_size=placement.page_size,
            pages=placement.sizes.pages,
            moved_bytes=placement.moved_bytes,
            calls=timed.calls,
            timed_by=timed.timed_by,
            seconds=(),
            relative_error=float(f"{error:.3g}"),
        )

    def _check_short(self, peer: Peer, placement: Placement, inputs: DecodeInputs) -> None:
        """Compare all requests of the same step with a few tokens left of each."""
        case, everyone = placement.case, list(range(placement.case.batch))
        lengths = short_lengths(case)
        cut = placement.sizes._replace(longest=max(lengths), tokens=sum(lengths))
        if peer.refuses(cut, self.device) is not None:
            lengths = short_lengths(case, ragged=False)
        short = inputs.shortened(lengths)
        reference = paged_decode_reference(short)
        out = poisoned(peer.prepare(short))
        checked_error(out, everyone, reference, case.dtype, f"{_name(peer, placement)}, cut short")

    def _unfit(self, peer: Peer, placement: Placement) -> str | None:
        """Return why a peer does not take a placement, or has no room for it."""
        reason = peer.refuses(placement.sizes, self.device)
        needed = peer.extra_bytes(placement.sizes) + self._check_bytes(placement)
        free = free_bytes(self.device)
        if reason is None and needed > free:
            return f"needs {needed / 2**30:.1f} GiB more, of which {free / 2**30:.1f} are free"
        return reason

    def _check_bytes(self, placement: Placement) -> int:
        """Bytes that the reference takes on the requests that it computes, and some to spare."""
        case, as_float32 = placement.case, placement.sizes._replace(dtype="float32")
        tokens = sum(case.held_tokens[request] for request in checked_requests(case))
        return 4 * tokens * as_float32.token_bytes + _SPARE_BYTES[self.device.type]

    def _leave_out(self, peer: str, case: str | None, page_size: int | None, reason: str) -> None:
        absence = Absence(peer, case, page_size, reason)
        if absence not in self.absent:  # once for both layouts
            self.absent.append(absence)


def _name(peer: Peer, placement: Placement) -> str:
    how = placement.layout.replace("_", " ")
    return f"{peer.name}, {placement.case.id}, pages of {placement.page_size} {how}"
