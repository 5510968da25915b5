"""Timing calls side by side: in rounds, each of them once a round, in a new order each time.

A machine drifts: clocks change, neighbours come and go. What is compared is therefore timed in
the same round, and compared within it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kvledger.measure.machine import DoesNotFitError

if TYPE_CHECKING:
    import torch

#: Time of one repetition: above what an event, a clock or a launch disturbs.
_REPETITION_S = {"cuda": 0.01, "cpu": 0.005}
_MOST_CALLS = 200

#: A queue of launches is filled while the GPU waits. Cycles, at the clock of the fastest.
_WAIT_CYCLES_PER_S = 2e9
_LONGEST_WAIT_S = 0.05


@dataclass
class Timed:
    """A call, and its seconds: one entry a round.

    ``timed_by`` is "events" (the device's own clock) or "host" (the call returns when its work is
    done). ``calls`` are made in one repetition.
    """

    name: str
    call: Callable[[], Any]
    timed_by: str
    calls: int = 1
    pilot_s: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def repetition_s(self) -> float:
        """Expected time of one repetition."""
        return self.pilot_s * self.calls


class Stopwatch:
    """Seconds a call on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def seconds(self, timed: Timed) -> float:
        """Return the seconds of one call, out of ``timed.calls`` made one after another."""
        if timed.timed_by == "events":
            return self._by_events(timed.call, timed.calls)
        self.wait()
        start = time.perf_counter()
        for _ in range(timed.calls):
            timed.call()
        self.wait()
        return (time.perf_counter() - start) / timed.calls

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def _by_events(self, call: Callable[[], Any], calls: int) -> float:
        """Time calls by the device's clock, all of them queued before the first one starts.

        Otherwise a short kernel would wait for the host to launch the next one, and the wait would
        be timed.
        """
        import torch

        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        wait_s = min(_LONGEST_WAIT_S, 1.5 * self._launch_s(call) * calls)
        torch.cuda._sleep(int(wait_s * _WAIT_CYCLES_PER_S))  # type: ignore[no-untyped-call]
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000 / calls

    def _launch_s(self, call: Callable[[], Any]) -> float:
        """Seconds that the host takes to launch one call. Warms the call up too."""
        self.wait()
        start = time.perf_counter()
        call()
        taken = time.perf_counter() - start
        self.wait()
        return taken


def run_rounds(
    timed: Sequence[Timed],
    stopwatch: Stopwatch,
    *,
    repetitions: int,
    least: int,
    deadline: float,
    rng: np.random.Generator,
    say: Callable[[str], None] = lambda text: None,
) -> list[Timed]:
    """Time calls in rounds until there are enough, or the time is up.

    Parameters
    ----------
    timed : sequence of Timed
        The most important first, each with its `pilot` done.
    stopwatch : Stopwatch
    repetitions, least : int
        Rounds wanted, and fewest. Where even these do not fit, the last of `timed` are left out.
    deadline : float
        Seconds of :func:`time.monotonic` by when the last round should have ended.
    rng : Generator
        Draws the order of each round.
    say : callable
        Told how far it is.

    Returns
    -------
    list of Timed
        Those that were timed, in the given order, all in the same rounds.

    Raises
    ------
    DoesNotFitError
        If there is not even time for the first.
    """
    kept = list(timed)
    while kept and time.monotonic() + least * sum(each.repetition_s for each in kept) > deadline:
        kept.pop()
    if not kept:
        raise DoesNotFitError(
            f"{least} repetitions of {timed[0].name} do not fit into the time; "
            "accepted: a longer --time-limit"
        )
    slowest = 0.0
    for done in range(repetitions):
        start = time.monotonic()
        if done >= least and start + slowest > deadline:
            break
        for index in rng.permutation(len(kept)):
            kept[index].seconds.append(float(f"{stopwatch.seconds(kept[index]):.7g}"))
        slowest = max(slowest, time.monotonic() - start)
        say(f"round {done + 1} of {repetitions}, {slowest:.1f} s each")
    return kept


def pilot(timed: Timed, stopwatch: Stopwatch) -> None:
    """Find out how long a call takes, and how many make a repetition."""
    timed.calls = 1
    stopwatch.seconds(timed)
    timed.pilot_s = stopwatch.seconds(timed)
    wanted = _REPETITION_S[stopwatch.device.type] / max(timed.pilot_s, 1e-9)
    timed.calls = int(min(max(np.ceil(wanted), 1), _MOST_CALLS))


def copy_call(n_bytes: int, device: torch.device) -> tuple[Callable[[], Any], int]:
    """Return a call that copies so many bytes, and the bytes that it reads and writes."""
    import torch

    elements = n_bytes // 4
    # Random bits: a memory that is full of zeros may be read faster.
    origin = torch.empty(elements, dtype=torch.int32, device=device).random_()
    target = torch.zeros_like(origin)
    return lambda: target.copy_(origin), 2 * elements * 4
