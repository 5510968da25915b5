"""The command ``kvledger``: the package's computations on the reader's own lengths and traces.

Everything is computed before the first line is printed. What cannot be accounted for is one line
on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvledger import __version__
from kvledger.attention import measure
from kvledger.derive import derive_tables
from kvledger.errors import LedgerError
from kvledger.ledger import Ledger
from kvledger.lengths import LengthTable
from kvledger.metadata import DEFAULT_PAGE_SIZES, best_page_size, bytes_from_slots, envelope
from kvledger.models import kv_bytes_per_token, load_model
from kvledger.paging import paged_sweep
from kvledger.reservation import contiguous
from kvledger.traces import (
    TRACE_NAMES,
    LengthMarginals,
    Trace,
    load_lengths,
    load_requests,
    load_trace,
)
from kvledger.writing import check_file, write_whole

if TYPE_CHECKING:
    import pandas as pd

_LENGTHS_HELP = "a trace file or a list of lengths, plain or .gz; or one of " + ", ".join(
    TRACE_NAMES
)
_DEFAULT_C = "0,1/4,1,4"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 2 after bad input.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process when not given.

    Examples
    --------
    >>> main(["bytes", "Llama-3.1-8B"])
    Llama-3.1-8B: 131,072 bytes of KV cache per token (128.0 KiB)
    0
    """
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], Iterable[str]] = arguments.command
    try:
        lines = list(command(arguments))
    except LedgerError as error:
        print("kvledger: " + "; ".join(str(error).split("\n")), file=sys.stderr)
        return 2
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # `kvledger report … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvledger", description="Where KV-cache memory goes, in exact numbers."
    )
    parser.add_argument("--version", action="version", version=f"kvledger {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, command: Callable[[argparse.Namespace], Iterable[str]], text: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    def add_on_lengths(
        name: str, command: Callable[[argparse.Namespace], Iterable[str]], text: str
    ) -> argparse.ArgumentParser:
        sub = add(name, command, text)
        sub.add_argument("lengths", metavar="LENGTHS", help=_LENGTHS_HELP)
        sub.add_argument(
            "--of",
            choices=("total", "prompt"),
            default="total",
            help="account for final lengths (total, the default) or for prompts alone",
        )
        return sub

    def add_page_sizes(sub: argparse.ArgumentParser, default: Sequence[int]) -> None:
        sub.add_argument(
            "--page-sizes",
            default=",".join(map(str, default)),
            metavar="P,P,…",
            help="page sizes in slots (default: %(default)s)",
        )

    report = add_on_lengths(
        "report", _report, "ledgers of contiguous and paged policies, and the best page size"
    )
    add_page_sizes(report, DEFAULT_PAGE_SIZES)
    report.add_argument(
        "--reserve",
        metavar="R,R,…",
        help='slots, "pow2" or "oracle" (default: the longest request, pow2 and oracle)',
    )
    report.add_argument(
        "--c",
        default=_DEFAULT_C,
        metavar="C,C,…",
        help="costs per page in token slots, such as 0.25 or 3/14 (default: %(default)s)",
    )
    report.add_argument("--model", help="also in bytes, for a model of data/models.csv")

    pages = add_on_lengths("paged", _paged, "ledgers of fixed-size pages")
    add_page_sizes(pages, DEFAULT_PAGE_SIZES)

    runs = add_on_lengths("contiguous", _contiguous, "ledgers of contiguous reservation")
    runs.add_argument("--reserve", required=True, metavar="R,R,…", help='slots, "pow2" or "oracle"')

    best = add_on_lengths("best", _best, "the best page size for a cost per page")
    add_page_sizes(best, DEFAULT_PAGE_SIZES)
    best.add_argument("--c", default=_DEFAULT_C, metavar="C,C,…", help="costs per page")

    hull = add_on_lengths("envelope", _envelope, "which page size is best for which cost per page")
    add_page_sizes(hull, DEFAULT_PAGE_SIZES)
    hull.add_argument("--model", help="also in bytes, for a model of data/models.csv")

    per_token = add("bytes", _bytes, "KV bytes per token of a model")
    per_token.add_argument("model", metavar="MODEL", help="a name of data/models.csv")
    per_token.add_argument("--dtype", help="data type of the cache (default: 16-bit)")

    over_time = add("sweep", _sweep, "replays of traces over time, policy by policy")
    over_time.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="a trace file, plain or .gz; or azure_conv_2023 or mooncake_conversation",
    )
    add_page_sizes(over_time, (16,))
    over_time.add_argument(
        "--capacity", required=True, metavar="S,S,…", help="slots of the pool, whole pages"
    )
    over_time.add_argument(
        "--prefix-cache", action="store_true", help="pages with a prefix cache, where ids are known"
    )
    over_time.add_argument(
        "--reserve", metavar="R,R,…", help='contiguous runs as well: slots, "pow2" or "oracle"'
    )
    over_time.add_argument(
        "--max-running",
        type=int,
        default=256,
        metavar="N",
        help="most requests that run at one time (default: %(default)s)",
    )
    over_time.add_argument(
        "--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)"
    )
    over_time.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on the Dask cluster of this scheduler"
    )
    over_time.add_argument(
        "--store", metavar="DIR", help="keep finished rows there, and go on from what it holds"
    )
    over_time.add_argument("--out", metavar="FILE.csv", help="write every column to this file")

    measuring = add("measure", measure.run_command, "time attention through a page table, here")
    measure.add_arguments(measuring)

    derive = add("derive", _derive, "make the tables of data/traces from the raw traces again")
    derive.add_argument("--raw", required=True, metavar="DIR", help="folder with the raw traces")
    derive.add_argument("--out", metavar="DIR", help="folder to write to (default: data/)")
    derive.add_argument(
        "--update-manifest",
        action="store_true",
        help="accept tables that differ from data/manifest.toml, and write a new manifest",
    )
    return parser


# --------------------------------------------------------------------------- commands


def _report(arguments: argparse.Namespace) -> Iterable[str]:
    marginals, sizes = load_lengths(arguments.lengths), _page_sizes(arguments.page_sizes)
    costs = [_cost(text) for text in _items(arguments.c)]
    lengths = _side(marginals, arguments)
    if arguments.reserve is None:
        reserves: list[int | str] = [lengths.max_tokens, "pow2", "oracle"]
    else:
        reserves = _reserves(arguments.reserve)
    model = None if arguments.model is None else load_model(arguments.model).name
    yield _title(marginals, arguments)
    yield ""
    ledgers = {
        f"reserve {_reserve_name(r)}": contiguous(lengths, r, over_maximum="count")
        for r in reserves
    }
    ledgers |= _paged_ledgers(marginals, arguments)
    yield from _ledger_lines(ledgers, model)
    yield ""
    yield from _best_lines(marginals, arguments, costs, sizes)
    yield ""
    yield from _envelope_lines(marginals, arguments, sizes, model)


def _paged(arguments: argparse.Namespace) -> Iterable[str]:
    marginals = load_lengths(arguments.lengths)
    yield _title(marginals, arguments)
    yield from _ledger_lines(_paged_ledgers(marginals, arguments), None)


def _contiguous(arguments: argparse.Namespace) -> Iterable[str]:
    marginals = load_lengths(arguments.lengths)
    lengths = _side(marginals, arguments)
    ledgers = {
        f"reserve {_reserve_name(reserve)}": contiguous(lengths, reserve)
        for reserve in _reserves(arguments.reserve)
    }
    yield _title(marginals, arguments)
    yield from _ledger_lines(ledgers, None)


def _best(arguments: argparse.Namespace) -> Iterable[str]:
    marginals, sizes = load_lengths(arguments.lengths), _page_sizes(arguments.page_sizes)
    costs = [_cost(text) for text in _items(arguments.c)]
    yield _title(marginals, arguments)
    yield from _best_lines(marginals, arguments, costs, sizes)


def _envelope(arguments: argparse.Namespace) -> Iterable[str]:
    marginals, sizes = load_lengths(arguments.lengths), _page_sizes(arguments.page_sizes)
    model = None if arguments.model is None else load_model(arguments.model).name
    yield _title(marginals, arguments)
    yield from _envelope_lines(marginals, arguments, sizes, model)


def _bytes(arguments: argparse.Namespace) -> Iterable[str]:
    per_token = kv_bytes_per_token(arguments.model, dtype=arguments.dtype)
    kib = f"{per_token / 1024:,.1f} KiB"
    yield f"{arguments.model}: {per_token:,} bytes of KV cache per token ({kib})"


def _sweep(arguments: argparse.Namespace) -> Iterable[str]:
    # Here, because the engine takes longer to import than the other commands take to run.
    from kvledger.replaying import Contiguous, Paged
    from kvledger.replaying.sweep import sweep

    policies: list[Paged | Contiguous] = [
        Paged(size, prefix_cache=arguments.prefix_cache)
        for size in _page_sizes(arguments.page_sizes)
    ]
    if arguments.reserve is not None:
        policies += [Contiguous(cast(Any, reserve)) for reserve in _reserves(arguments.reserve)]
    capacities = [_slots(item, "a capacity") for item in _items(arguments.capacity)]
    if arguments.out is not None:
        check_file(Path(arguments.out))
    table = sweep(
        _named_traces(arguments.traces),
        policies,
        capacities,
        max_running=arguments.max_running,
        scheduler=arguments.scheduler,
        store=arguments.store,
        n_jobs=arguments.jobs,
    )
    if arguments.out is not None:
        content = table.to_csv(index=False, lineterminator="\n")
        write_whole(Path(arguments.out), content.encode())
        return [f"wrote {arguments.out}: {len(table):,} rows"]
    return _sweep_lines(table)


def _derive(arguments: argparse.Namespace) -> Iterable[str]:
    written = derive_tables(arguments.raw, arguments.out, update_manifest=arguments.update_manifest)
    return [f"wrote {path}" for path in written]


# --------------------------------------------------------------------------- arguments


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _page_sizes(text: str) -> list[int]:
    return [_slots(item, "a page size") for item in _items(text)]


def _slots(text: str, what: str, also: str = "") -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise LedgerError(
            f"{what} is {text!r}; accepted: a whole number of slots, at least 1{also}"
        )
    return value


def _reserves(text: str) -> list[int | str]:
    return [
        item
        if item in ("pow2", "oracle")
        else _slots(item, "a reserve", also=", or pow2, or oracle")
        for item in _items(text)
    ]


def _cost(text: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if value < 0:
        raise LedgerError(
            f"a cost per page is {text!r}; accepted: a number from 0, such as 0.25 or 3/14"
        )
    return value


def _named_traces(texts: Iterable[str]) -> dict[str, Trace]:
    """Read traces, each under its name; a name that is taken gives way to the path."""
    named: dict[str, Trace] = {}
    for text in texts:
        committed = text in TRACE_NAMES and not Path(text).exists()
        trace = load_requests(text) if committed else load_trace(text)
        name = trace.name or text
        named[text if name in named else name] = trace
    return named


# --------------------------------------------------------------------------- lines


def _side(marginals: LengthMarginals, arguments: argparse.Namespace) -> LengthTable:
    return marginals.prompt if arguments.of == "prompt" else marginals.total


def _title(marginals: LengthMarginals, arguments: argparse.Namespace) -> str:
    lengths = _side(marginals, arguments)
    what = "prompts" if arguments.of == "prompt" else "requests"
    return (
        f"{marginals.name}: {lengths.n_requests:,} {what}, {lengths.total_tokens:,} tokens, "
        f"mean {float(lengths.mean_tokens):,.1f}, longest {lengths.max_tokens:,}"
    )


def _reserve_name(reserve: int | str) -> str:
    return f"{reserve:,}" if isinstance(reserve, int) else reserve


def _paged_ledgers(marginals: LengthMarginals, arguments: argparse.Namespace) -> dict[str, Ledger]:
    sizes = sorted(set(_page_sizes(arguments.page_sizes)))
    ledgers = paged_sweep(_side(marginals, arguments), sizes)
    return {f"pages of {size:,}": ledger for size, ledger in zip(sizes, ledgers, strict=True)}


def _ledger_lines(ledgers: dict[str, Ledger], model: str | None) -> Iterable[str]:
    head = ["policy", "allocated slots", "tail slack", "reserved", "unused", "pages"]
    rows = [
        [
            name,
            f"{ledger.allocated_slots:,}",
            f"{ledger.tail_slack_slots:,}",
            f"{ledger.reserved_slots:,}",
            f"{float(ledger.unused_share):.2%}",
            f"{ledger.pages:,}" if ledger.pages else "-",
        ]
        for name, ledger in ledgers.items()
    ]
    if any(ledger.refused_requests for ledger in ledgers.values()):
        head.append("refused requests")
        for row, ledger in zip(rows, ledgers.values(), strict=True):
            row.append(f"{ledger.refused_requests:,}")
    if model is not None:
        head.append(f"GiB of {model}")
        for row, ledger in zip(rows, ledgers.values(), strict=True):
            row.append(f"{float(bytes_from_slots(ledger.allocated_slots, model)) / 2**30:,.1f}")
    return _aligned([head, *rows])


def _best_lines(
    marginals: LengthMarginals,
    arguments: argparse.Namespace,
    costs: list[Fraction],
    sizes: list[int],
) -> Iterable[str]:
    rows = [["c (token-slot equivalents per page)", "best page size", "cost"]]
    for c in costs:
        best = best_page_size(_side(marginals, arguments), c, sizes)
        rows.append([str(c), f"{best.page_size:,}", f"{float(best.cost):,.2f}"])
    return _aligned(rows)


def _envelope_lines(
    marginals: LengthMarginals,
    arguments: argparse.Namespace,
    sizes: list[int],
    model: str | None,
) -> Iterable[str]:
    head = ["best page size", "from c", "to c", "exactly to"]
    if model is not None:
        head.append(f"to bytes per page of {model}")
    rows = [head]
    for size, c_from, c_to in envelope(_side(marginals, arguments), sizes):
        exact = isinstance(c_to, Fraction)
        row = [
            f"{size:,}",
            f"{float(c_from):.6g}",
            f"{float(c_to):.6g}" if exact else "any",
            str(c_to) if exact else "any",
        ]
        if model is not None:
            limit = bytes_from_slots(c_to, model) if isinstance(c_to, Fraction) else math.inf
            row.append(f"{float(limit):,.0f}" if exact else "any")
        rows.append(row)
    return _aligned(rows)


def _sweep_lines(table: pd.DataFrame) -> Iterable[str]:
    def size(row: dict[str, Any]) -> str:
        if row["policy"] == "paged":
            return f"pages of {row['page_size']:,}"
        return f"reserve {row['reserve']}"

    def share(row: dict[str, Any], column: str) -> str:
        return f"{row[f'mean_{column}'] / row['capacity_slots']:.2%}"

    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "policy": lambda row: f"{row['trace']}, {size(row)}",
        "capacity": lambda row: f"{row['capacity_slots']:,}",
        "finished": lambda row: f"{row['finished']:,}",
        "refused": lambda row: f"{row['refused']:,}",
        "mean running": lambda row: f"{row['mean_running']:,.1f}",
        "tokens": lambda row: share(row, "distinct_tokens"),
        "tail slack": lambda row: share(row, "tail_slack_slots"),
        "reserved": lambda row: share(row, "reserved_slots"),
        "external": lambda row: share(row, "external_slots"),
        "blocked": lambda row: f"{row['blocked_share']:.2%}",
        "preempted": lambda row: f"{row['preempted']:,}",
        "recomputed": lambda row: f"{row['recomputed_tokens']:,}",
        "hits": lambda row: f"{row['hit_rate']:.2%}",
    }
    records = cast(list[dict[str, Any]], table.to_dict("records"))
    rows = [[text(row) for text in columns.values()] for row in records]
    return _aligned([list(columns), *rows])


def _aligned(rows: list[list[str]]) -> Iterable[str]:
    """Return the rows as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
