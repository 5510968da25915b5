"""Measure what attention through a page table costs here, and write a record.

    python -m kvledger.measure [--quick] [--device cpu|cuda] [--out FILE]

What there is no time, memory or package for is written down with its reason. A run that is
interrupted, or finds a peer wrong, leaves no record.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvledger.core import data_folder
from kvledger.core.errors import InputError, LedgerError
from kvledger.measure.machine import describe, pick_device
from kvledger.measure.record import (
    FOLDER_VARIABLE,
    Record,
    check_is_new,
    record_text,
    records_folder,
    write_record,
)
from kvledger.measure.sweeps import PAGE_SIZES, check_page_sizes
from proofbook.files import check_folder

_ALL_PAGE_SIZES = ",".join(map(str, PAGE_SIZES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to a parser."""
    add = parser.add_argument
    add("--quick", action="store_true", help="half a minute, to try the command")
    add("--device", metavar="cpu|cuda", help="default: the GPU if there is one")
    add("--out", metavar="FILE.json", help="default: data/measurements/DATE-DEVICE.json")
    add("--seed", type=int, default=0, metavar="N", help="default: %(default)s")
    slots = "page sizes in slots, powers of 2 up to 256 (default: %(default)s)"
    add("--page-sizes", default=_ALL_PAGE_SIZES, metavar="P,P,…", help=slots)
    add("--peers", metavar="NAME,NAME,…", help="only these (default: all that can be used)")
    seconds = "seconds for all of it (default: by device; what does not fit is left out)"
    add("--time-limit", type=float, metavar="S", help=seconds)
    add("--json", action="store_true", help="print the record itself instead of a table")


def run_command(arguments: argparse.Namespace) -> list[str]:
    """Measure, write the record, and return lines that say what was found.

    Where there is no record, for bad arguments or an interruption too, that is an InputError.
    """
    started = time.monotonic()
    seed, limit_s, sizes = arguments.seed, arguments.time_limit, arguments.page_sizes
    if not re.fullmatch(r"-?\d+(,-?\d+)*", sizes):
        raise LedgerError(f"page sizes are {sizes!r}; accepted: whole numbers, as in 1,16")
    page_sizes = check_page_sizes(list(map(int, sizes.split(","))))
    if seed < 0:
        raise LedgerError(f"a seed is {seed}; accepted: a whole number from 0")
    if limit_s is not None and not 0 < limit_s < float("inf"):
        raise LedgerError(f"a time limit is {limit_s} s; accepted: a number above 0")
    path = Path(arguments.out) if arguments.out else _default_path(arguments)
    check_is_new(path)
    folders = [each for each in (path.parent, *path.parent.parents) if each.is_dir()]
    check_folder(path.parent if arguments.out else folders[0])
    pick_device(arguments.device)  # says that there is no torch, where there is none
    from kvledger.measure.measurement import take_record

    quick, peers = arguments.quick, arguments.peers and arguments.peers.split(",")
    asked: dict[str, Any] = {"page_sizes": page_sizes, "limit_s": limit_s, "peers": peers}
    # As it would be typed again, without where its record went.
    words = ["python", "-m", "kvledger.measure", *(["--quick"] if quick else [])]
    for name in ("device", "seed", "page_sizes", "peers", "time_limit"):
        value = getattr(arguments, name)
        if value not in (None, 0, _ALL_PAGE_SIZES):
            words += [f"--{name.replace('_', '-')}", str(value)]

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"{time.monotonic() - started:5.0f} s  {text}", file=sys.stderr, flush=True)

    try:
        asked |= {"command": shlex.join(words), "started": started, "say": say}
        record = take_record(arguments.device, quick=quick, seed=seed, **asked)
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
    text = (rows.seconds * 1e6).map("{:,.0f}".format) + rows.share.map(" ({:.2f})".format)
    table = rows.assign(text=text).pivot(index=["layout", "page_size"], columns="peer")["text"]
    yield from table[rows.peer.unique()].fillna("-").to_string().splitlines()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 2 where there is no record."""
    about = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m kvledger.measure", description=about)
    add_arguments(parser)
    try:
        lines = run_command(parser.parse_args(argv))
    except InputError as error:
        print(f"measure: {'; '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


def _default_path(arguments: argparse.Namespace) -> Path:
    about = describe(pick_device(arguments.device))
    slug = re.sub("[^a-z0-9]+", "-", about.name.lower()).strip("-")
    end = "-quick" if arguments.quick else ""
    name = f"{datetime.now(UTC):%Y-%m-%d}-{slug}{end}.json"
    if os.environ.get(FOLDER_VARIABLE) or (data_folder().parent / "_toc.yml").is_file():
        return records_folder() / name
    return Path(name)  # an installed package keeps no records in itself


if __name__ == "__main__":
    sys.exit(main())
