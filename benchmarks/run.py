"""Measure the project's speed bars: prints them, and writes them to a file.

    python benchmarks/run.py                  accounting; writes data/benchmarks.json
    python benchmarks/run.py --book           the book's build as well (some minutes)
    python benchmarks/run.py --replay         replays over time as well (some minutes)
    python benchmarks/run.py --replay --full  up to ten million requests
    python benchmarks/run.py --loading        loading long traces as well (some minutes)
    python benchmarks/run.py --commands       the command's start, and a report, as well (minutes)
    python benchmarks/run.py --quick          small inputs, prints only

Everything is a ratio of two things measured in turn in one run, or a time with a bar of its own.
The exit status is 1 if a bar is missed (not with --quick: the bars are for the full size).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import accounting
import book
import startup
from records import Record, line, merged, write

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks asked for; the file is written once all have finished."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small inputs, few repetitions")
    parser.add_argument("--book", action="store_true", help="measure the book's build as well")
    parser.add_argument("--only-book", action="store_true", help="measure the book's build alone")
    parser.add_argument("--replay", action="store_true", help="measure replays as well")
    parser.add_argument("--only-replay", action="store_true", help="measure replays alone")
    parser.add_argument("--loading", action="store_true", help="measure loading as well")
    parser.add_argument("--only-loading", action="store_true", help="measure loading alone")
    parser.add_argument("--commands", action="store_true", help="measure commands as well")
    parser.add_argument("--only-commands", action="store_true", help="measure commands alone")
    parser.add_argument("--full", action="store_true", help="replays of ten million requests")
    parser.add_argument("--output", type=Path, help="file to write (quick: none if not given)")
    options = parser.parse_args(arguments)

    parts: list[Callable[..., list[Record]]] = []
    alone = (options.only_book, options.only_replay, options.only_loading, options.only_commands)
    if not any(alone):
        parts += [accounting.ten_page_sizes, accounting.memory, accounting.trace_envelopes]
    if options.book or options.only_book:
        parts.append(book.builds)
    if options.replay or options.only_replay:
        import replay  # compiles, or takes compiled code from its cache

        measured = (replay.first_call, replay.free_list, replay.linear_time, replay.linear_memory)
        parts += [partial(part, full=options.full) for part in measured]
    if options.loading or options.only_loading:
        import loading  # needs pyarrow

        parts += [loading.speed, loading.memory]
    if options.commands or options.only_commands:
        parts += [startup.account, startup.report]
    records: list[Record] = []
    for part in parts:
        for each in part(quick=options.quick):
            records.append(each)
            print(line(each), flush=True)

    output = options.output
    if output is None and not options.quick:
        output = ROOT / "data" / "benchmarks.json"
    if output is not None:
        write(output, merged(output, records))
        print(f"written: {output.name}")
    return 0 if options.quick or all(each.met for each in records) else 1


if __name__ == "__main__":
    raise SystemExit(main())
