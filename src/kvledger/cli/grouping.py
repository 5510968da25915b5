"""Layers that do not all keep every token, in ``kvledger account``: what each kind holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvledger.accounting.page_groups import GroupPages, hybrid_pages, unified_layout
from kvledger.cli.answer import Table
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthTable
from kvledger.models.layers import LayerGroup
from kvledger.models.shapes import Model

_BYTES = (
    "allocated_bytes",
    "kept_bytes",
    "tail_slack_bytes",
    "expired_bytes",
    "page_padding_bytes",
    "layer_padding_bytes",
)


def layer_groups(
    lengths: LengthTable, shape: Model, page_sizes: Iterable[int]
) -> tuple[list[str | Table], list[dict[str, Any]]]:
    """Account by layer group, pages of all groups being of the same bytes, as one pool needs.

    Parameters
    ----------
    lengths : LengthTable
        Tokens each request holds.
    shape : Model
        Whose layers.
    page_sizes : iterable of int
        Slots a page that are asked for; an engine raises them where a fixed state needs it.

    Returns
    -------
    tuple of list
        Lines and a table for people, and the same for programs; both empty if every layer keeps
        every token.
    """
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
    rows = [_row(size, held) for size, held in found]
    title = "Above, every layer is charged for every token. What each keeps, in pages of one size:"
    return ["", title, Table(columns, rows)], [_document(size, held) for size, held in found]


def _row(size: int, held: GroupPages) -> list[str]:
    parts = (held.kept_bytes, held.tail_slack_bytes, held.expired_bytes, held.padding_bytes)
    return [
        _kind(held.group),
        f"{size:,}",
        f"{held.layout.page_size:,}" if held.layout.page_size else "-",
        f"{held.pages:,}",
        f"{held.allocated_bytes / 2**30:,.1f}",
        *(f"{part / held.allocated_bytes:.2%}" for part in parts),
    ]


def _kind(group: LayerGroup) -> str:
    window = "" if group.window is None else f" of {group.window:,}"
    return f"{group.layers:,} {group.kind}{window}"


def _document(size: int, held: GroupPages) -> dict[str, Any]:
    return {
        "page_size": size,
        "kind": held.group.kind,
        "layers": held.group.layers,
        "window": held.group.window,
        "slots_per_page": held.layout.page_size,
        "pages": held.pages,
        **{name: getattr(held, name) for name in _BYTES},
    }
