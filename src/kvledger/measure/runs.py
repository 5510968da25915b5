"""One run: each sweep checked, and timed within its share of the time; what is left out, noted."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from kvledger.measure.cases import DecodeCase, Placement
from kvledger.measure.correctness import (
    check_error,
    checked_requests,
    expected,
    poisoned,
    relative_error,
    short_lengths,
)
from kvledger.measure.machine import DoesNotFitError, check_memory, free_bytes
from kvledger.measure.peers import Peer, RefusedError
from kvledger.measure.plan import Sweep
from kvledger.measure.pools import Inputs, Pool, pool_bytes
from kvledger.measure.record import Absence, Timing
from kvledger.measure.timing import Stopwatch, Timed, pilot, run_rounds

#: Kernels that read through a table whatever the page size: one page a request is their own
#: contiguous timing. The others are compared with contiguous attention as torch does it.
_OWN_CONTIGUOUS = ("triton", "flashinfer")

#: Memory left free beside what is counted: libraries take workspaces.
_SPARE_BYTES = {"cuda": 2**31, "cpu": 2**29}

_NO_TIME = "left out: the time limit"


@dataclass
class _Prepared:
    peer: Peer
    placement: Placement
    timed: Timed
    error: float


@dataclass
class Run:
    """What a run knows while it goes on.

    Parameters
    ----------
    device : torch.device
    peers : sequence of Peer
        Those to use; what is absent on the device is noted at once.
    least_bytes : int
        Fewest bytes of K and V of a case, so that the cache holds little of them.
    repetitions, least : int
        Rounds wanted, and fewest.
    seed : int
    say : callable
        Told how far it is.
    """

    device: torch.device
    peers: Sequence[Peer]
    least_bytes: int
    repetitions: int
    least: int
    seed: int = 0
    say: Callable[[str], None] = lambda text: None
    absent: list[Absence] = field(default_factory=list)
    tiles: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stopwatch = Stopwatch(self.device)
        self._usable: list[Peer] = []
        for peer in self.peers:
            reason = peer.absent(self.device)
            if reason is None:
                self._usable.append(peer)
            else:
                self._leave_out(peer.name, None, None, reason)
        # What preparing and checking took last and for how many bytes, by peer, and whether for
        # sizes that are new to it, which it may have to compile for: a guess for the next time.
        self._preparing: dict[tuple[str, bool], tuple[float, int]] = {}
        self._filling_s_per_byte = 0.0

    def sweep(self, sweep: Sweep, deadline: float, extra: Sequence[Timed] = ()) -> list[Timing]:
        """Check and time one sweep.

        Parameters
        ----------
        sweep : Sweep
        deadline : float
            Seconds of :func:`time.monotonic` by when it should have ended.
        extra : sequence of Timed
            What is timed in the same rounds beside the peers.

        Returns
        -------
        list of Timing

        Raises
        ------
        DoesNotFitError
            If there is no memory or no time for the case, or the cache could hold much of it.
        LedgerError
            If a peer computes something else than the reference.
        """
        try:
            return self._sweep(sweep.case, sweep.placements(), deadline, extra)
        finally:  # what was prepared is gone by now
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _sweep(
        self,
        case: DecodeCase,
        placements: list[Placement],
        deadline: float,
        extra: Sequence[Timed],
    ) -> list[Timing]:
        self._check_room(case, placements)
        n_bytes, start = pool_bytes(case, placements), time.monotonic()
        if start + 2 * n_bytes * self._filling_s_per_byte > deadline:
            raise DoesNotFitError(f"{case.id}: {_NO_TIME}; accepted: a longer --time-limit")
        self.say(f"{case.id}: filling {n_bytes / 2**30:.2f} GiB")
        pool = Pool(case, placements, self.device, self.seed)
        self._stopwatch.wait()
        self._filling_s_per_byte = (time.monotonic() - start) / n_bytes
        for other in extra:
            pilot(other, self._stopwatch)
        prepared = self._prepare_all(pool, placements, deadline, extra)
        if not prepared:
            raise DoesNotFitError(
                f"{case.id}: no time for any peer; accepted: a longer --time-limit"
            )
        timed = [*extra, *(each.timed for each in prepared)]
        kept = run_rounds(
            timed,
            self._stopwatch,
            repetitions=self.repetitions,
            least=self.least,
            deadline=deadline,
            rng=np.random.default_rng(self.seed),
            say=lambda text: self.say(f"{case.id}: {len(timed)} timings, {text}"),
        )
        for each in prepared:
            if each.timed not in kept:
                self._leave_out(each.peer.name, case.id, each.placement.page_size, _NO_TIME)
        timings = [_timing(each) for each in prepared if each.timed in kept]
        if not timings:  # the time went to what is timed beside them
            raise DoesNotFitError(
                f"{case.id}: no time for any peer; accepted: a longer --time-limit"
            )
        return timings

    def _check_room(self, case: DecodeCase, placements: list[Placement]) -> None:
        if case.kv_bytes < self.least_bytes:
            raise DoesNotFitError(
                f"{case.id} has {case.kv_bytes / 2**20:,.0f} MiB of K and V; accepted: at least "
                f"{self.least_bytes / 2**20:,.0f} MiB, of which the last-level cache holds little"
            )
        needed = pool_bytes(case, placements) + self._check_bytes(placements[0])
        check_memory(needed, self.device, f"the working set of {case.id}")

    def skip(self, sweep: Sweep, reason: str) -> None:
        """Note that nothing of a sweep was measured."""
        for peer in self._usable:
            self._leave_out(
                peer.name, sweep.case.id, None, reason.removeprefix(f"{sweep.case.id}: ")
            )

    # ----------------------------------------------------------------------- preparing

    def _prepare_all(
        self,
        pool: Pool,
        placements: Sequence[Placement],
        deadline: float,
        extra: Sequence[Timed],
    ) -> list[_Prepared]:
        """Prepare and check what fits into the time, the first placements first."""
        rng = np.random.default_rng(self.seed)
        rounds = (self.repetitions + self.least) // 2
        round_s = sum(each.repetition_s for each in extra)
        prepared: list[_Prepared] = []
        seen: set[tuple[str, int]] = set()
        for placement in placements:
            inputs = pool.inputs(placement, rng)
            reference: torch.Tensor | None = None
            requests = checked_requests(placement.case.lengths)
            for peer in self._usable:
                if not _is_for(peer, placement):
                    continue
                start = time.monotonic()
                sizes = (peer.name, placement.page_size)
                kind = (peer.name, sizes not in seen)
                taken_s, n_bytes = self._preparing.get(kind, (0.0, 1))
                guess = taken_s * max(1.0, placement.case.kv_bytes / n_bytes)
                if start + guess + rounds * round_s > deadline:
                    self._leave_out_placement(peer, placement, _NO_TIME)
                    continue
                reason = self._unfit(peer, placement)
                if reason is not None:
                    self._leave_out_placement(peer, placement, reason)
                    continue
                self.say(f"{_name(peer, placement)}: preparing")
                if reference is None:
                    reference = expected(inputs, requests, torch.float32)
                try:
                    each = self._prepare(peer, placement, inputs, requests, reference)
                except RefusedError as refused:
                    self._leave_out_placement(peer, placement, refused.reason)
                    continue
                finally:
                    taken = time.monotonic() - start
                    self._preparing[kind] = (taken, placement.case.kv_bytes)
                seen.add(sizes)
                prepared.append(each)
                round_s += each.timed.repetition_s
        return prepared

    def _prepare(
        self,
        peer: Peer,
        placement: Placement,
        inputs: Inputs,
        requests: list[int],
        reference: torch.Tensor,
    ) -> _Prepared:
        what = _name(peer, placement)
        self._check_short(peer, placement, inputs)
        step = peer.prepare(*inputs)
        error = relative_error(poisoned(step), requests, reference, what)
        check_error(error, placement.dtype, what)
        timed = Timed(what, step, peer.timed_by if self.device.type == "cuda" else "host")
        if hasattr(step, "tiles"):  # how this package's kernel cut its work
            self.tiles[placement.case.shape.name] = str(step.tiles)
        pilot(timed, self._stopwatch)
        return _Prepared(peer, placement, timed, float(f"{error:.3g}"))

    def _check_short(self, peer: Peer, placement: Placement, inputs: Inputs) -> None:
        """Compare all requests of the same step with a few tokens left of each."""
        what = f"{_name(peer, placement)}, cut short"
        lengths = short_lengths(placement.case.lengths)
        cut = replace(placement, case=replace(placement.case, lengths=tuple(lengths)))
        if peer.refuses(cut, self.device) is not None:
            lengths = short_lengths(placement.case.lengths, ragged=False)
        short = inputs.shortened(lengths)
        everyone = list(range(placement.batch))
        reference = expected(short, everyone, torch.float64)
        out = poisoned(peer.prepare(*short))
        check_error(relative_error(out, everyone, reference, what), placement.dtype, what)

    def _unfit(self, peer: Peer, placement: Placement) -> str | None:
        """Return why a peer does not take a placement, or has no room for it."""
        reason = peer.refuses(placement, self.device)
        if reason is not None:
            return reason
        needed = peer.extra_bytes(placement) + self._check_bytes(placement)
        free = free_bytes(self.device)
        if needed > free:
            return f"needs {needed / 2**30:.1f} GiB more, of which {free / 2**30:.1f} are free"
        return None

    def _check_bytes(self, placement: Placement) -> int:
        """Bytes that the reference takes on the requests that it computes, and some to spare."""
        case = placement.case
        tokens = sum(case.lengths[i] for i in checked_requests(case.lengths))
        return (
            4 * tokens * case.shape.kv_bytes_per_token("float32") + _SPARE_BYTES[self.device.type]
        )

    def _leave_out_placement(self, peer: Peer, placement: Placement, reason: str) -> None:
        self._leave_out(peer.name, placement.case.id, placement.page_size, reason)

    def _leave_out(self, peer: str, case: str | None, page_size: int | None, reason: str) -> None:
        absence = Absence(peer, case, page_size, reason)
        if absence not in self.absent:  # once for both layouts
            self.absent.append(absence)


def _is_for(peer: Peer, placement: Placement) -> bool:
    if placement.layout == "contiguous":
        return not peer.paged or peer.name in _OWN_CONTIGUOUS
    return peer.paged


def _name(peer: Peer, placement: Placement) -> str:
    how = placement.layout.replace("_", " ")
    return f"{peer.name}, {placement.case.id}, pages of {placement.page_size} {how}"


def _timing(each: _Prepared) -> Timing:
    placement, timed = each.placement, each.timed
    return Timing(
        case=placement.case.id,
        peer=each.peer.name,
        layout=placement.layout,
        page_size=placement.page_size,
        pages=placement.pages,
        moved_bytes=placement.moved_bytes,
        calls=timed.calls,
        timed_by=timed.timed_by,
        seconds=tuple(timed.seconds),
        relative_error=each.error,
    )
