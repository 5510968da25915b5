"""Measure what attention through a page table costs here, and write a record.

    python -m kvledger.measure.measuring [--quick] [--device cpu|cuda] [--out FILE]

Every peer is compared with the reference first; then all are timed side by side, the most telling
case first. What there is no time, memory or package for is written down with its reason. A run
that is interrupted, or finds a peer wrong, leaves no record.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger.core import data_folder
from kvledger.core.errors import InputError, LedgerError
from kvledger.measure.host_model import measure_host
from kvledger.measure.machine import (
    DoesNotFitError,
    describe,
    free_bytes,
    pick_device,
    software,
    source,
)
from kvledger.measure.plan import (
    CACHE_MULTIPLE,
    HOST_PROMPT_TOKENS,
    HOST_STEPS,
    HOST_WEIGHT,
    MIN_REPETITIONS,
    PAGE_SIZES,
    QUICK_REPETITIONS,
    QUICK_TIME_LIMIT_S,
    REPETITIONS,
    TIME_LIMIT_S,
    Sweep,
    check_page_sizes,
    cpu_sweeps,
    gpu_sweeps,
    host_lengths,
)
from kvledger.measure.record import (
    FOLDER_VARIABLE,
    Absence,
    Copy,
    Device,
    HostTiming,
    Record,
    Timing,
    check_is_new,
    record_text,
    records_folder,
    write_record,
)
from proofbook.files import check_folder

if TYPE_CHECKING:
    import torch

    from kvledger.measure.peers import Peer

_COPY_BYTES = {"cuda": 2**31, "cpu": 2**28}
#: Of what is free on a CPU, what one case's K and V may take.
_CPU_MEMORY_SHARE = 8


@dataclass(frozen=True)
class Settings:
    """What a run is asked for. ``sweeps`` stands in for the standard ones, in tests."""

    device: str | None = None
    quick: bool = False
    seed: int = 0
    page_sizes: tuple[int, ...] = PAGE_SIZES
    time_limit_s: float | None = None
    peers: tuple[str, ...] | None = None
    sweeps: tuple[Sweep, ...] | None = None
    least_bytes: int | None = None
    copy_bytes: int | None = None

    @property
    def repetitions(self) -> int:
        """Rounds wanted."""
        return QUICK_REPETITIONS if self.quick else REPETITIONS

    def limit_s(self, kind: str) -> float:
        """Return the seconds that a run on a kind of device may take."""
        if self.time_limit_s is not None:
            return self.time_limit_s
        return QUICK_TIME_LIMIT_S if self.quick else TIME_LIMIT_S[kind]


def take_record(
    settings: Settings,
    *,
    command: str = "",
    started: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Record:
    """Measure, and return the record without writing it.

    Parameters
    ----------
    settings : Settings
    command : str
        What the record says was called.
    started : float, optional
        Seconds of :func:`time.monotonic` from which the time limit counts; now if not given.
    say : callable
        Told how far it is.

    Raises
    ------
    LedgerError
        If a peer is wrong, or there is no device, memory or time for the first case.
    """
    started = time.monotonic() if started is None else started
    page_sizes = check_page_sizes(settings.page_sizes)
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    device = pick_device(settings.device)
    import torch

    from kvledger.measure.runs import Run
    from kvledger.measure.timing import Timed, copy_call

    about = describe(device)
    least_bytes, notes = _least_bytes(settings, about, device)
    sweeps = settings.sweeps or _sweeps(settings, page_sizes, about.kind, least_bytes)
    peers, unasked = _peers(settings.peers)
    run = Run(
        device=device,
        peers=peers,
        least_bytes=least_bytes,
        repetitions=settings.repetitions,
        least=MIN_REPETITIONS,
        seed=settings.seed,
        say=say,
    )
    copy_bytes = settings.copy_bytes or max(_COPY_BYTES[about.kind], least_bytes)
    deadline = started + settings.limit_s(about.kind)
    timings: list[Timing] = []
    host: list[HostTiming] = []
    measured: list[Sweep] = []
    call, moved = copy_call(copy_bytes, device)
    copies = Timed("copy", call, "events" if about.kind == "cuda" else "host")
    beside = [copies]
    del call
    with torch.no_grad():
        for index, sweep in enumerate(sweeps):
            weights = sum(each.weight for each in sweeps[index:]) + (0 if host else HOST_WEIGHT)
            now = time.monotonic()
            until = now + max(0.0, deadline - now) * sweep.weight / weights
            try:
                timings += run.sweep(sweep, until, beside)
            except DoesNotFitError as reason:
                if not measured:
                    raise
                run.skip(sweep, reason.reason)
                continue
            if not measured:  # the copy is timed with the main case, and its memory given back
                beside.clear()
                copies.call = _nothing
                host = _host(settings, sorted(sweep.page_sizes), deadline, say)
            measured.append(sweep)
    return Record(
        schema=1,
        kind="attention",
        date=date,
        command=command,
        source=source(),
        device=about,
        software=software(),
        settings={
            "quick": settings.quick,
            "seed": settings.seed,
            "repetitions": settings.repetitions,
            "page_sizes": list(page_sizes),
            "time_limit_s": settings.limit_s(about.kind),
            "least_bytes": least_bytes,
            "threads": torch.get_num_threads(),
            "tiles": dict(run.tiles),
            "notes": notes,
        },
        copy=Copy(moved, tuple(copies.seconds)),
        cases=tuple(sweep.case.described() for sweep in measured),
        timings=tuple(timings),
        absent=(*unasked, *run.absent),
        host=tuple(host),
        elapsed_s=round(time.monotonic() - started, 1),
    )


def _nothing() -> None:
    """Stand in for a call whose memory is no longer needed."""


def _least_bytes(settings: Settings, about: Device, device: torch.device) -> tuple[int, list[str]]:
    """Return the fewest bytes of a case, and what there is to say about them."""
    wanted = CACHE_MULTIPLE * about.last_level_cache_bytes
    if settings.least_bytes is not None:
        return settings.least_bytes, []
    room = free_bytes(device) // _CPU_MEMORY_SHARE
    if about.kind == "cuda" or wanted <= room:
        return wanted, []
    times = room / about.last_level_cache_bytes
    return room, [
        f"for lack of memory, working sets are {times:.1f} times the last-level cache that the "
        f"system shows, not {CACHE_MULTIPLE}: parts of them may be read from it"
    ]


def _sweeps(
    settings: Settings, page_sizes: tuple[int, ...], kind: str, least_bytes: int
) -> Sequence[Sweep]:
    if kind == "cuda":
        return gpu_sweeps(page_sizes, quick=settings.quick, seed=settings.seed)
    return cpu_sweeps(page_sizes, quick=settings.quick, seed=settings.seed, least_bytes=least_bytes)


def _peers(names: tuple[str, ...] | None) -> tuple[list[Peer], list[Absence]]:
    """Return the peers that are asked for, and the others as absent."""
    from kvledger.measure.peers import PEERS

    known = {peer.name: peer for peer in PEERS}
    for name in names or ():
        if name not in known:
            raise LedgerError(f"a peer is {name!r}; accepted: {', '.join(known)}")
    asked = set(known if names is None else names)
    others = [Absence(name, None, None, "not asked for") for name in known if name not in asked]
    return [peer for name, peer in known.items() if name in asked], others


def _host(
    settings: Settings, page_sizes: Sequence[int], deadline: float, say: Callable[[str], None]
) -> list[HostTiming]:
    return measure_host(
        page_sizes,
        host_lengths(settings.seed),
        steps=HOST_STEPS,
        prompt_tokens=HOST_PROMPT_TOKENS,
        repetitions=settings.repetitions,
        least=MIN_REPETITIONS,
        deadline=deadline,
        seed=settings.seed,
        say=say,
    )


# --------------------------------------------------------------------------- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to a parser."""
    parser.add_argument("--quick", action="store_true", help="half a minute, to try the command")
    parser.add_argument("--device", metavar="cpu|cuda", help="default: the GPU if there is one")
    parser.add_argument(
        "--out", metavar="FILE.json", help="default: data/measurements/DATE-DEVICE.json"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--page-sizes",
        default=",".join(map(str, PAGE_SIZES)),
        metavar="P,P,…",
        help="page sizes in slots, powers of 2 up to 256 (default: %(default)s)",
    )
    parser.add_argument(
        "--peers", metavar="NAME,NAME,…", help="only these (default: all that can be used)"
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help="seconds for all of it (default: by device; what does not fit is left out)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the record itself instead of a table"
    )


def run_command(arguments: argparse.Namespace) -> Iterable[str]:
    """Measure, write the record, and return lines that say what was found.

    Raises
    ------
    LedgerError
        For bad arguments before anything is measured; for what :func:`take_record` refuses; or if
        the run is interrupted. There is no record then.
    """
    started = time.monotonic()
    settings = Settings(
        device=arguments.device,
        quick=arguments.quick,
        seed=_seed(arguments.seed),
        page_sizes=_page_sizes(arguments.page_sizes),
        time_limit_s=_limit(arguments.time_limit),
        peers=None if arguments.peers is None else tuple(arguments.peers.split(",")),
    )
    path = Path(arguments.out) if arguments.out else _default_path(settings)
    check_is_new(path)
    check_folder(_there(path.parent) if arguments.out is None else path.parent)
    try:
        record = take_record(
            settings, command=_command(arguments), started=started, say=_speaker(started)
        )
        if arguments.out is None:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_record(record, path)
    except KeyboardInterrupt:
        seconds = time.monotonic() - started
        raise LedgerError(f"interrupted after {seconds:.0f} s; no record was written") from None
    if arguments.json:
        return [record_text(record).rstrip("\n")]
    return [f"wrote {path}", *summary(record)]


def summary(record: Record) -> Iterable[str]:
    """Say in a few lines what a record holds: its main case, peer by peer."""
    case, frame = record.main_case, record.frame()
    yield (
        f"{record.label}: {len(record.cases)} cases, {len(record.timings)} timings, "
        f"{len(record.absent)} left out, {record.elapsed_s:.0f} s"
    )
    yield (
        f"copy {record.copy_bytes_per_s / 1e9:,.1f} GB/s; {case.id}, {case.dtype}, "
        f"{case.kv_bytes / 2**30:.2f} GiB; microseconds (share of the copy's bandwidth):"
    )
    rows = frame[frame.case == case.id]
    peers = list(dict.fromkeys(rows.peer))
    yield "  ".join([f"{'layout':12}{'page size':>9}", *(f"{peer:>18}" for peer in peers)])
    for (layout, size), part in rows.groupby(["layout", "page_size"], sort=True):
        cells = dict(
            zip(
                part.peer,
                (
                    f"{s * 1e6:,.0f} ({share:.2f})"
                    for s, share in zip(part.seconds, part.share, strict=True)
                ),
                strict=True,
            )
        )
        texts = [f"{cells.get(peer, '-'):>18}" for peer in peers]
        yield "  ".join([f"{layout:12}{size:>9}", *texts])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 2 where there is no record."""
    parser = argparse.ArgumentParser(
        prog="python -m kvledger.measure.measuring", description=__doc__.split("\n")[0]
    )
    add_arguments(parser)
    try:
        lines = list(run_command(parser.parse_args(argv)))
    except InputError as error:
        print(f"measure: {'; '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


def _page_sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(item) for item in text.split(","))
    except ValueError:
        raise LedgerError(f"page sizes are {text!r}; accepted: whole numbers, as in 1,16") from None
    return check_page_sizes(sizes)


def _seed(seed: int) -> int:
    if seed < 0:
        raise LedgerError(f"a seed is {seed}; accepted: a whole number from 0")
    return seed


def _limit(seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds < float("inf"):
        raise LedgerError(f"a time limit is {seconds} s; accepted: a number above 0")
    return seconds


def _command(arguments: argparse.Namespace) -> str:
    """Return the command as it would be typed again, without where its record went."""
    words = ["python", "-m", "kvledger.measure.measuring"]
    words += ["--quick"] if arguments.quick else []
    for name in ("device", "seed", "page_sizes", "peers", "time_limit"):
        value = getattr(arguments, name)
        if value not in (None, 0, ",".join(map(str, PAGE_SIZES))):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _default_path(settings: Settings) -> Path:
    about = describe(pick_device(settings.device))
    slug = re.sub("[^a-z0-9]+", "-", about.name.lower()).strip("-")
    end = "-quick" if settings.quick else ""
    name = f"{datetime.now(UTC):%Y-%m-%d}-{slug}{end}.json"
    if os.environ.get(FOLDER_VARIABLE) or (data_folder().parent / "_toc.yml").is_file():
        return records_folder() / name
    return Path(name)  # an installed package keeps no records in itself


def _there(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _speaker(started: float) -> Callable[[str], None]:
    """Return what tells a person at a terminal how far the run is."""
    if not sys.stderr.isatty():
        return lambda text: None

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {text}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
