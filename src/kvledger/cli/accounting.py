"""``kvledger account``: ledgers of a set of lengths, the best page size, and its break-evens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kvledger.accounting.allocations import contiguous, paged_sweep
from kvledger.accounting.ledger import Ledger
from kvledger.accounting.metadata import best_page_size, bytes_from_slots, envelope
from kvledger.cli import options as opt
from kvledger.cli.answer import Answer, Table
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import LengthTable
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_model
from kvledger.models.shapes import Model
from kvledger.traces.forms import Skipped

if TYPE_CHECKING:
    from kvledger.traces.trace import LengthMarginals

_COSTS = "0,1/4,1,4"
_SIDES = ("total", "prompt")


class Lengths(NamedTuple):
    """Lengths to account for, and where they are from."""

    name: str
    of: str
    table: LengthTable
    left_out: Mapping[str, int]  # a Skipped, which says itself in words


def _sides(incomplete: str) -> list[str]:
    return [side for side in _SIDES if side.startswith(incomplete)]


def account(
    trace: opt.MaybeTrace = None,
    lengths: Annotated[
        str | None, typer.Option("--lengths", metavar="N,N,…", help="Lengths in tokens, no trace.")
    ] = None,
    page_size: Annotated[
        str,
        typer.Option(
            "--page-size",
            metavar="P,P,…",
            help="Page sizes to show a ledger of, in slots.",
            show_default="powers of two from 1 to 4096",
        ),
    ] = opt.ALL_POWERS,
    reserve: Annotated[
        str | None,
        typer.Option(
            "--reserve",
            metavar="R,R,…",
            help="Slots reserved for each request, or pow2, or oracle.",
            show_default="the longest request, pow2 and oracle",
        ),
    ] = None,
    c: Annotated[
        str,
        typer.Option("--c", metavar="C,C,…", help="Costs of a page in token slots."),
    ] = _COSTS,
    test_sizes: opt.TestedSizes = opt.ALL_POWERS,
    of: Annotated[
        str,
        typer.Option(
            "--of",
            metavar="total|prompt",
            help="Account for final lengths, or for prompts alone.",
            autocompletion=_sides,
        ),
    ] = "total",
    model: opt.MaybeModel = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = "1",
    kv_memory: opt.MaybeMemory = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say where slots go, reserved or in pages; and the best page size, with its break-evens."""
    sizes, tested = opt.page_sizes(page_size), opt.page_sizes(test_sizes)
    costs = [opt.cost(text) for text in opt.items(c)]
    given = None if reserve is None else opt.reserves(reserve)
    if of not in _SIDES:
        raise LedgerError(f"--of is {shown(of)}; accepted: {' or '.join(_SIDES)}")
    if kv_memory is not None and model is None:
        raise LedgerError("--kv-memory without --model; accepted: both, or neither")
    shape = None if model is None else load_model(model, dtype, opt.ranks(tensor_parallel))
    about = _lengths(trace, lengths, of, opt.reading(read_as, unusable))
    policies = given or [about.table.max_tokens, "pow2", "oracle"]
    ledgers: list[tuple[dict[str, Any], Ledger]] = [
        ({"policy": "contiguous", "reserve": r}, contiguous(about.table, r, over_maximum="count"))
        for r in policies
    ]
    ledgers += [
        ({"policy": "paged", "page_size": size}, ledger)
        for size, ledger in zip(sizes, paged_sweep(about.table, sizes), strict=True)
    ]
    memory = None
    if kv_memory is not None and shape is not None:
        n_bytes = parse_bytes(kv_memory, "--kv-memory")
        memory = (n_bytes, opt.memory_slots(kv_memory, shape), kv_memory)
    groups: tuple[list[str | Table], list[dict[str, Any]]] = ([], [])
    if shape is not None:
        from kvledger.cli.grouping import layer_groups  # of few runs

        one = (opt.COMMON_PAGE_SIZE,) if page_size == opt.ALL_POWERS else sizes
        groups = layer_groups(about.table, shape, one)
    best = [(each, best_page_size(about.table, each, tested)) for each in costs]
    corners = envelope(about.table, tested)
    document = {
        "command": "account",
        "lengths": {
            "name": about.name,
            "of": about.of,
            "requests": about.table.n_requests,
            "tokens": about.table.total_tokens,
            "mean_tokens": about.table.mean_tokens,
            "longest": about.table.max_tokens,
            "left_out": about.left_out,
        },
        "model": _model_document(shape),
        "kv_memory": None if memory is None else {"bytes": memory[0], "slots": memory[1]},
        "ledgers": [
            policy
            | {"allocated_bytes": _bytes(ledger.allocated_slots, shape)}
            | _ledger_document(ledger)
            for policy, ledger in ledgers
        ],
        "layer_groups": groups[1],
        "best": [
            {"c": each, "page_size": found.page_size, "cost": found.cost} for each, found in best
        ],
        "envelope": [
            corner._asdict()
            | {"bytes_from": _bytes(corner.c_from, shape), "bytes_to": _bytes(corner.c_to, shape)}
            for corner in corners
        ],
    }
    parts: list[str | Table] = [_title(about)]
    if memory is not None and shape is not None:
        parts.append(
            f"{memory[2]} hold {memory[1]:,} slots of {shape.name}, "
            f"{shape.kv_bytes_per_token:,} bytes a token"
        )
    parts += ["", _ledger_table(ledgers, shape, memory), *groups[0], ""]
    rows = [[str(each), f"{f.page_size:,}", f"{float(f.cost):,.2f}"] for each, f in best]
    parts += [Table(["c (token slots a page)", "best page size", "cost"], rows), ""]
    parts.append(_envelope_table(corners, shape))
    return Answer(parts, document).text(as_json)


def _lengths(
    trace: str | None, lengths: str | None, of: str, options: Mapping[str, Any]
) -> Lengths:
    if (trace is None) == (lengths is None):
        raise LedgerError(
            "accepted: a TRACE or --lengths, one of the two (kvledger account --help)"
        )
    if lengths is not None:
        return Lengths("lengths given", "total", opt.plain_lengths(lengths), Skipped())
    from kvledger.traces.trace import (
        load_lengths,  # pandas: half a second that --lengths does not wait
    )

    found: LengthMarginals = load_lengths(str(trace), **options)
    table = found.prompt if of == "prompt" else found.total
    return Lengths(found.name, of, table, found.skipped)


def _title(about: Lengths) -> str:
    what = "prompts" if about.of == "prompt" else "requests"
    text = (
        f"{about.name}: {about.table.n_requests:,} {what}, {about.table.total_tokens:,} tokens, "
        f"mean {float(about.table.mean_tokens):,.1f}, longest {about.table.max_tokens:,}"
    )
    if about.left_out:
        text += f"; {about.left_out}"
    return text


def _bytes(slots: int | Fraction | float, shape: Model | None) -> Fraction | int | None:
    """Return slots in bytes of a model; None without one, or for a cost without end."""
    if shape is None or isinstance(slots, float):
        return None
    n_bytes = bytes_from_slots(slots, shape)
    return n_bytes.numerator if isinstance(slots, int) else n_bytes


def _model_document(shape: Model | None) -> dict[str, Any] | None:
    if shape is None:
        return None
    return {"name": shape.name, "kv_bytes_per_token": shape.kv_bytes_per_token}


def _ledger_document(ledger: Ledger) -> dict[str, Any]:
    document = {name: value for name, value in asdict(ledger).items() if value is not None}
    document["distinct_tokens"] = ledger.distinct_tokens
    document["unused_share"] = ledger.unused_share
    return document


def _ledger_table(
    ledgers: list[tuple[dict[str, Any], Ledger]],
    shape: Model | None,
    memory: tuple[int, int, str] | None,
) -> Table:
    columns = ["policy", "allocated slots", "tail slack", "reserved", "unused", "pages"]
    refused = any(ledger.refused_requests for _, ledger in ledgers)
    columns += ["refused requests"] * refused
    columns += [] if shape is None else [f"GiB of {shape.name}"]
    columns += [] if memory is None else [f"requests in {memory[2]}"]
    rows = []
    for policy, ledger in ledgers:
        row = [
            f"pages of {ledger_size:,}"
            if (ledger_size := policy.get("page_size")) is not None
            else f"reserve {reserve_name(policy['reserve'])}",
            f"{ledger.allocated_slots:,}",
            f"{ledger.tail_slack_slots:,}",
            f"{ledger.reserved_slots:,}",
            f"{float(ledger.unused_share):.2%}",
            f"{ledger.pages:,}" if ledger.pages else "-",
        ]
        row += [f"{ledger.refused_requests:,}"] * refused
        if shape is not None:
            row.append(f"{float(bytes_from_slots(ledger.allocated_slots, shape)) / 2**30:,.1f}")
        if memory is not None:
            # As many requests of the mean size as fit: what all take, scaled to the memory.
            fit = memory[1] * ledger.requests // max(ledger.allocated_slots, 1)
            row.append(f"{fit:,}")
        rows.append(row)
    return Table(columns, rows)


def reserve_name(reserve: int | str) -> str:
    """Write slots with commas, and a policy by its name."""
    return f"{reserve:,}" if isinstance(reserve, int) else reserve


def _envelope_table(corners: list[Any], shape: Model | None) -> Table:
    columns = ["best page size", "from c", "to c", "exactly to"]
    columns += [] if shape is None else [f"to bytes per page of {shape.name}"]
    rows = []
    for size, c_from, c_to in corners:
        ends = isinstance(c_to, Fraction)
        row = [f"{size:,}", f"{float(c_from):.6g}", f"{float(c_to):.6g}" if ends else "any"]
        row.append(str(c_to) if ends else "any")
        if shape is not None:
            row.append(f"{float(bytes_from_slots(c_to, shape)):,.0f}" if ends else "any")
        rows.append(row)
    return Table(columns, rows)
