"""``kvledger account`` and ``kvledger models``: what lengths hold, and what a token takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import typer

from kvledger.accounting.allocations import contiguous, paged_sweep
from kvledger.accounting.ledger import Ledger
from kvledger.accounting.metadata import Interval, best_page_size, bytes_from_slots, envelope
from kvledger.cli import Table, answer
from kvledger.cli import options as opt
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthTable
from kvledger.core.units import bytes_text, parse_bytes
from kvledger.models.known import load_model, load_models
from kvledger.models.shapes import Model
from kvledger.traces.forms import Skipped

Policy = dict[str, Any]

#: What is shown of layers of several kinds where no page size is asked for.
_COMMON_PAGE_SIZE = 16
_GROUP_BYTES: tuple[str, ...] = (
    "allocated_bytes",
    "kept_bytes",
    "tail_slack_bytes",
    "expired_bytes",
)
_GROUP_BYTES += ("page_padding_bytes", "layer_padding_bytes")


def account(
    trace: opt.MaybeTrace = None,
    lengths: Annotated[
        str | None, opt.option("--lengths", "N,N,…", "Lengths in tokens, no trace.")
    ] = None,
    page_size: Annotated[
        str,
        opt.option(
            "--page-size", "P,P,…", "Page sizes to show a ledger of, in slots.", opt.POWERS_WORDS
        ),
    ] = opt.ALL_POWERS,
    reserve: Annotated[
        str | None,
        opt.option(
            "--reserve",
            "R,R,…",
            "Slots reserved for each request, or pow2, or oracle.",
            "the longest request, pow2 and oracle",
        ),
    ] = None,
    c: Annotated[str, opt.option("--c", "C,C,…", "Costs of a page in token slots.")] = "0,1/4,1,4",
    test_sizes: Annotated[
        str,
        opt.option(
            "--test-sizes", "P,P,…", "Page sizes tested for the best, in slots.", opt.POWERS_WORDS
        ),
    ] = opt.ALL_POWERS,
    of: Annotated[
        Literal["total", "prompt"],
        typer.Option("--of", help="Account for final lengths, or for prompts alone."),
    ] = "total",
    model: opt.MaybeModel = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = 1,
    kv_memory: opt.MaybeMemory = None,
    read_as: opt.Format = None,
    unusable: opt.Unusable = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say where slots go, reserved or in pages; and the best page size, with its break-evens."""
    sizes, tested = opt.page_sizes(page_size), opt.page_sizes(test_sizes)
    costs = [opt.cost(text.strip()) for text in c.split(",")]
    reserved = [] if reserve is None else opt.reserves(reserve)
    if kv_memory is not None and model is None:
        raise LedgerError("--kv-memory without --model; accepted: both, or neither")
    shape = None if model is None else load_model(model, dtype, tensor_parallel)
    about = _lengths(trace, lengths, of, opt.reading(read_as, unusable))
    memory = slots = None
    if kv_memory is not None and shape is not None:
        memory, slots = parse_bytes(kv_memory, "--kv-memory"), opt.memory_slots(kv_memory, shape)
    table = about.table
    ledgers: list[tuple[Policy, Ledger]] = [
        ({"policy": "contiguous", "reserve": r}, contiguous(table, r, over_maximum="count"))
        for r in reserved or [table.max_tokens, "pow2", "oracle"]
    ]
    ledgers += [
        ({"policy": "paged", "page_size": size}, ledger)
        for size, ledger in zip(sizes, paged_sweep(table, sizes), strict=True)
    ]
    groups: tuple[list[str | Table], list[dict[str, Any]]] = ([], [])
    if shape is not None:
        one = [_COMMON_PAGE_SIZE] if page_size == opt.ALL_POWERS else sizes
        groups = layer_groups(table, shape, one)
    best = [(each, best_page_size(table, each, tested)) for each in costs]
    corners = envelope(table, tested)
    document = {
        "command": "account",
        "lengths": {
            "name": about.name,
            "of": about.of,
            "requests": table.n_requests,
            "tokens": table.total_tokens,
            "mean_tokens": table.mean_tokens,
            "longest": table.max_tokens,
            "left_out": about.left_out,
        },
        "model": shape and {"name": shape.name, "kv_bytes_per_token": shape.kv_bytes_per_token},
        "kv_memory": memory and {"bytes": memory, "slots": slots},
        "ledgers": [_ledger_document(policy, ledger, shape) for policy, ledger in ledgers],
        "layer_groups": groups[1],
        "best": [{"c": each, "page_size": f.page_size, "cost": f.cost} for each, f in best],
        "envelope": [
            corner._asdict()
            | {"bytes_from": _bytes(corner.c_from, shape), "bytes_to": _bytes(corner.c_to, shape)}
            for corner in corners
        ],
    }
    rows = [[str(each), f"{f.page_size:,}", f"{float(f.cost):,.2f}"] for each, f in best]
    parts: list[str | Table] = [about.title()]
    if shape is not None and slots is not None:
        size = f"{shape.kv_bytes_per_token:,} bytes a token"
        parts.append(f"{kv_memory} hold {slots:,} slots of {shape.name}, {size}")
    parts += [
        "",
        _ledger_table(ledgers, shape, kv_memory, slots),
        *groups[0],
        "",
        Table(["c (token slots a page)", "best page size", "cost"], rows),
        "",
        _envelope_table(corners, shape),
    ]
    return answer(parts, document, as_json)


class _Lengths(NamedTuple):
    """Lengths to account for, and where they are from."""

    name: str
    of: str
    table: LengthTable
    left_out: Mapping[str, int]  # a Skipped, which says itself in words

    def title(self) -> str:
        what = "prompts" if self.of == "prompt" else "requests"
        text = (
            f"{self.name}: {self.table.n_requests:,} {what}, {self.table.total_tokens:,} tokens, "
            f"mean {float(self.table.mean_tokens):,.1f}, longest {self.table.max_tokens:,}"
        )
        return f"{text}; {self.left_out}" if self.left_out else text


def _lengths(
    trace: str | None, lengths: str | None, of: str, options: Mapping[str, Any]
) -> _Lengths:
    if (trace is None) == (lengths is None):
        raise LedgerError(
            "accepted: a TRACE or --lengths, one of the two (kvledger account --help)"
        )
    if lengths is not None:
        return _Lengths("lengths given", "total", opt.plain_lengths(lengths), Skipped())
    # Here, because it imports pandas: half a second that --lengths does not wait.
    from kvledger.traces import load_lengths

    found = load_lengths(str(trace), **options)
    table = found.prompt if of == "prompt" else found.total
    return _Lengths(found.name, of, table, found.skipped)


def _bytes(slots: int | Fraction | float, shape: Model | None) -> Fraction | int | None:
    """Return slots in bytes of a model; None without one, or for a cost without end."""
    if shape is None or isinstance(slots, float):
        return None
    n_bytes = bytes_from_slots(slots, shape)
    return n_bytes.numerator if isinstance(slots, int) else n_bytes


def _ledger_document(policy: Policy, ledger: Ledger, shape: Model | None) -> dict[str, Any]:
    known = {name: value for name, value in asdict(ledger).items() if value is not None}
    shares = {"distinct_tokens": ledger.distinct_tokens, "unused_share": ledger.unused_share}
    return policy | {"allocated_bytes": _bytes(ledger.allocated_slots, shape)} | known | shares


def _ledger_table(
    ledgers: list[tuple[Policy, Ledger]], shape: Model | None, memory: str | None, slots: int | None
) -> Table:
    columns = ["policy", "allocated slots", "tail slack", "reserved", "unused", "pages"]
    refused = any(ledger.refused_requests for _, ledger in ledgers)
    columns += ["refused requests"] * refused
    columns += [] if shape is None else [f"GiB of {shape.name}"]
    columns += [] if slots is None else [f"requests in {memory}"]
    rows = []
    for policy, ledger in ledgers:
        reserve = policy.get("reserve")
        held = f"{reserve:,}" if isinstance(reserve, int) else reserve
        row = [
            f"pages of {policy['page_size']:,}" if reserve is None else f"reserve {held}",
            f"{ledger.allocated_slots:,}",
            f"{ledger.tail_slack_slots:,}",
            f"{ledger.reserved_slots:,}",
            f"{float(ledger.unused_share):.2%}",
            f"{ledger.pages:,}" if ledger.pages else "-",
        ]
        row += [f"{ledger.refused_requests:,}"] * refused
        if shape is not None:
            row.append(f"{float(bytes_from_slots(ledger.allocated_slots, shape)) / 2**30:,.1f}")
        if slots is not None:
            # As many requests of the mean size as fit: what all take, scaled to the memory.
            row.append(f"{slots * ledger.requests // max(ledger.allocated_slots, 1):,}")
        rows.append(row)
    return Table(columns, rows)


def _envelope_table(corners: list[Interval], shape: Model | None) -> Table:
    columns = ["best page size", "from c", "to c", "exactly to"]
    columns += [] if shape is None else [f"to bytes per page of {shape.name}"]
    rows = []
    for size, c_from, c_to in corners:
        ends = ["any"] * 3
        if isinstance(c_to, Fraction):
            n_bytes = 0 if shape is None else float(bytes_from_slots(c_to, shape))
            ends = [f"{float(c_to):.6g}", str(c_to), f"{n_bytes:,.0f}"]
        rows.append([f"{size:,}", f"{float(c_from):.6g}", *ends][: len(columns)])
    return Table(columns, rows)


def layer_groups(
    lengths: LengthTable, shape: Model, page_sizes: Iterable[int]
) -> tuple[list[str | Table], list[dict[str, Any]]]:
    """Account by layer group, pages of all groups being of the same bytes, as one pool needs.

    An engine raises the page sizes asked for where a fixed state needs it. Returned are lines and
    a table for people, and the same for programs; both empty if every layer keeps every token.
    """
    from kvledger.accounting.page_groups import hybrid_pages, unified_layout

    if all(group.grows for group in shape.groups):
        return [], []
    try:
        found = [
            (size, held)
            for size in page_sizes
            for held in hybrid_pages(lengths, unified_layout(shape, size))
        ]
    except LedgerError as error:
        return ["", f"Layer by layer: no pages of one size for all. {error}"], []
    columns = ["layers", "asked", "slots a page", "pages", "GiB"]
    columns += ["kept", "tail slack", "left behind", "padding"]
    rows, documents = [], []
    for size, held in found:
        group, slots = held.group, held.layout.page_size
        window = "" if group.window is None else f" of {group.window:,}"
        row = [
            f"{group.layers:,} {group.kind}{window}",
            f"{size:,}",
            f"{slots:,}" if slots else "-",
        ]
        row += [f"{held.pages:,}", f"{held.allocated_bytes / 2**30:,.1f}"]
        parts = (held.kept_bytes, held.tail_slack_bytes, held.expired_bytes, held.padding_bytes)
        rows.append([*row, *(f"{part / held.allocated_bytes:.2%}" for part in parts)])
        layers = {name: getattr(group, name) for name in ("kind", "layers", "window")}
        pages = {"slots_per_page": slots, "pages": held.pages}
        n_bytes = {name: getattr(held, name) for name in _GROUP_BYTES}
        documents.append({"page_size": size} | layers | pages | n_bytes)
    title = "Above, every layer is charged for every token. What each keeps, in pages of one size:"
    return ["", title, Table(columns, rows)], documents


# --------------------------------------------------------------------------- models


def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]…",
            help="Names, or config.json files or their folders; all known models if none.",
            autocompletion=opt.complete_model,
        ),
    ] = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = 1,
    kv_memory: opt.MaybeMemory = None,
    as_json: opt.AsJson = False,
) -> str:
    """List models with the KV bytes of a token, on each tensor-parallel rank."""
    n_bytes = None if kv_memory is None else parse_bytes(kv_memory, "--kv-memory")
    shapes = [load_model(name, dtype, tensor_parallel) for name in names or load_models()]
    columns = ["model", "layers", "KV bytes per token", "past its windows", "windows hold at most"]
    columns += [] if n_bytes is None else [f"slots in {kv_memory}"]
    rows = []
    for shape in shapes:
        row, windows = [shape.name, f"{shape.layers:,}", f"{shape.kv_bytes_per_token:,}"], ["-"] * 2
        if shape.window_layers:
            windows = [f"{shape.growth_bytes_per_token:,}", bytes_text(shape.window_cap_bytes)]
        slots = [] if n_bytes is None else [f"{n_bytes // shape.kv_bytes_per_token:,}"]
        rows.append([*row, *windows, *slots])
    document = {
        "command": "models",
        "dtype": dtype,
        "tensor_parallel": tensor_parallel,
        "kv_memory": n_bytes,
        "models": [_model_document(shape, n_bytes) for shape in shapes],
    }
    ranks = f", on each of {tensor_parallel} tensor-parallel ranks" * (tensor_parallel != 1)
    title = f"What the K and V of a token take{ranks}; {dtype or 'each model in its own data type'}"
    parts: list[str | Table] = [title, "", Table(columns, rows)]
    if names:
        parts += ["", _groups_table(shapes)]
    return answer(parts, document, as_json)


def _groups_table(shapes: list[Model]) -> Table:
    columns = ["layers by what they keep", "kind", "layers", "KV heads", "head", "window"]
    columns += ["bytes of a token", "bytes of a request's state"]
    rows = []
    for shape in shapes:
        for group in shape.groups:
            heads = (None, None) if group.kind == "state" else (group.kv_heads, group.head_dim)
            kept = group.kv_bytes_per_token or None, group.state_bytes_per_request or None
            cells = (*heads, group.window, *kept)
            row = [shape.name, group.kind, f"{group.layers:,}"]
            rows.append(row + ["-" if each is None else f"{each:,}" for each in cells])
    return Table(columns, rows, left=2)


def _model_document(shape: Model, n_bytes: int | None) -> dict[str, Any]:
    sizes = ("full_layers", "window_layers", "kv_bytes_per_token", "growth_bytes_per_token")
    kept = ("kv_heads", "head_dim", "value_dim", "window", "kv_bytes_per_token")
    return {
        "name": shape.name,
        "layers": shape.layers,
        **{name: getattr(shape, name) for name in (*sizes, "window_cap_bytes")},
        "slots": None if n_bytes is None else n_bytes // shape.kv_bytes_per_token,
        "groups": [
            {name: getattr(group, name) for name in ("kind", "layers", *kept)}
            | {"state_bytes_per_request": group.state_bytes_per_request}
            for group in shape.groups
        ],
        "source": shape.source,
    }
