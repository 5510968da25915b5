"""Pages of models whose layers do not all keep the same.

A full layer grows for ever, a window or a chunk is capped, a linear-attention layer has a fixed
state. Each group of such layers has page tables of its own. If every group may have pages of its
own size in bytes, only slack is lost. An engine that draws all pages from one pool needs them
equal: it raises the page size of attention until a state fits in a page, gives every table the
same number of layers, and pads what is left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import NamedTuple

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthsLike, as_lengths, exact_dot, whole, whole_page_size
from kvledger.models.layers import LayerGroup
from kvledger.models.shapes import Model

# vLLM 0.33.0, kv_cache_planning.py: with fewer than this many times the layers of the rarest kind,
# every table gets as many layers as the commonest has, and the others are padded.
_NEARLY_EQUAL = Fraction(3, 2)
# vLLM 0.33.0, platforms/interface.py: block sizes of hybrid models are multiples of the kernel's,
# which is 16 slots for most attention kernels, and of 128 with MLA.
_KERNEL_SLOTS = 16
_LATENT_KERNEL_SLOTS = 128


class GroupLayout(NamedTuple):
    """How the pages of one layer group are made.

    ``layers_per_table`` layers have one page table, and ``tables`` of them hold the whole group;
    what they hold more than ``group.layers`` is padding. ``page_bytes_per_layer`` is what a page
    takes in each layer, its own padding included.

    Examples
    --------
    >>> window = LayerGroup(kind="window", layers=52, kv_heads=16, head_dim=128, window=1024)
    >>> layout = GroupLayout(window, page_size=16, page_bytes_per_layer=131072,
    ...                      layers_per_table=10, tables=6)
    >>> layout.padding_layers, layout.page_bytes, layout.most_pages     # 65 pages in each table
    (8, 1310720, 390)
    """

    group: LayerGroup
    page_size: int
    page_bytes_per_layer: int
    layers_per_table: int
    tables: int

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of one table."""
        return self.layers_per_table * self.page_bytes_per_layer

    @property
    def padding_layers(self) -> int:
        """Layers that the tables have room for and the model does not have."""
        return self.tables * self.layers_per_table - self.group.layers

    @property
    def content_bytes_per_layer(self) -> int:
        """Bytes of a page in one layer that can hold something."""
        per_token = self.group.kv_bytes_per_token_and_layer
        return self.page_size * per_token + self.group.state_bytes_per_layer

    @property
    def page_padding_bytes_per_layer(self) -> int:
        """Bytes of a page in one layer that hold nothing, whatever the request."""
        return self.page_bytes_per_layer - self.content_bytes_per_layer

    @property
    def most_pages(self) -> int | None:
        """Most pages that one request of any length holds; None if it grows for ever."""
        pages = self.group.most_pages(self.page_size)
        return None if pages is None else pages * self.tables


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPages:
    """Where the bytes of one layer group go.

    One identity holds, and making one that breaks it is an error::

        allocated_bytes = kept_bytes + tail_slack_bytes + expired_bytes
                          + page_padding_bytes + layer_padding_bytes

    Parameters
    ----------
    layout : GroupLayout
        How its pages are made.
    requests, pages, allocated_bytes : int
        Requests held, the pages of all its tables, and the bytes of those pages.
    kept_bytes : int
        K and V of the tokens that the newest one attends to, or the fixed states.
    tail_slack_bytes : int
        Unused slots of last pages.
    expired_bytes : int
        Slots of first pages whose tokens the window, or the chunk, has left behind.
    page_padding_bytes, layer_padding_bytes : int
        Bytes of pages that hold nothing, so that all pages have one size, and of layers that the
        model does not have, so that all tables have one size.

    Raises
    ------
    LedgerError
        If a quantity is negative, or the identity does not hold.

    Examples
    --------
    >>> from kvledger.models.known import load_model
    >>> _, window = hybrid_pages([5000], unified_layout(load_model("Gemma-3-27B")))
    >>> window.pages, Fraction(window.layer_padding_bytes, window.allocated_bytes)
    (390, Fraction(2, 15))
    """

    layout: GroupLayout
    requests: int
    pages: int
    allocated_bytes: int
    kept_bytes: int
    tail_slack_bytes: int
    expired_bytes: int
    page_padding_bytes: int
    layer_padding_bytes: int

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            whole(getattr(self, field.name), field.name, minimum=0)
        if self.allocated_bytes != self.kept_bytes + self.waste_bytes:
            raise LedgerError(
                f"allocated_bytes is {self.allocated_bytes}; kept {self.kept_bytes} + waste "
                f"{self.waste_bytes} = {self.kept_bytes + self.waste_bytes}"
            )

    @property
    def group(self) -> LayerGroup:
        """The layers."""
        return self.layout.group

    @property
    def waste_bytes(self) -> int:
        """Allocated bytes that hold nothing needed."""
        slack = self.tail_slack_bytes + self.expired_bytes
        return slack + self.page_padding_bytes + self.layer_padding_bytes

    @property
    def padding_bytes(self) -> int:
        """What equal pages and equal tables cost this group."""
        return self.page_padding_bytes + self.layer_padding_bytes


def separate_layout(model: Model, page_size: int) -> tuple[GroupLayout, ...]:
    """Give each layer group, in the model's order, one page table and pages of its own bytes.

    Parameters
    ----------
    model : Model
        Whose groups.
    page_size : int
        Slots a page. A fixed state is a page of its own.

    Examples
    --------
    >>> from kvledger.models.known import load_model
    >>> [(part.group.kind, part.page_bytes) for part in separate_layout(
    ...     load_model("Gemma-3-27B"), page_size=16)]
    [('full', 1310720), ('window', 6815744)]
    """
    page_size = whole_page_size(page_size)
    layouts = []
    for group in model.groups:
        content = page_size * group.kv_bytes_per_token_and_layer + group.state_bytes_per_layer
        slots = 0 if group.kind == "state" else page_size
        layouts.append(GroupLayout(group, slots, content, group.layers, 1))
    return tuple(layouts)


def unified_layout(
    model: Model, page_size: int = _KERNEL_SLOTS, *, kernel_slots: int | None = None
) -> tuple[GroupLayout, ...]:
    """Give every page the same bytes, as one pool for all groups needs: vLLM 0.33.0's rules.

    1. With fixed states, the page size of attention is raised to the least multiple of
       ``kernel_slots`` at which a page of one layer holds the largest state of one layer; states
       are padded to that page.
    2. Without, groups whose tokens take fewer bytes get as many times the slots, if that is a
       whole number of times; else their pages are padded.
    3. Every table has as many layers as the rarest kind has; or as the commonest has, if that is
       less than one and a half times as many. What does not fill the last table is padding.

    Parameters
    ----------
    model : Model
        Whose groups; of one rank, if it is split.
    page_size : int
        Slots a page that was asked for, from which it may be raised.
    kernel_slots : int, optional
        The attention kernel accepts multiples of it; 16 if not given, 128 with latent layers.

    Raises
    ------
    LedgerError
        For a page size that is no whole number of at least 1, or for a model of which one kind
        of page can be neither made larger nor padded.

    Examples
    --------
    >>> from kvledger.models.known import load_model
    >>> gemma = unified_layout(load_model("Gemma-3-27B"))
    >>> [(part.group.kind, part.tables, part.layers_per_table, part.padding_layers)
    ...  for part in gemma]
    [('full', 1, 10, 0), ('window', 6, 10, 8)]
    """
    page_size = whole_page_size(page_size)
    if kernel_slots is None:
        latent = any(group.kind == "latent" for group in model.groups)
        kernel_slots = _LATENT_KERNEL_SLOTS if latent else _KERNEL_SLOTS
    kernel_slots = whole(kernel_slots, "kernel_slots", minimum=1)
    # Growing layers alone have one table for all, even if they differ in width.
    if len(model.groups) == 1 or all(group.grows for group in model.groups):
        return separate_layout(model, page_size)
    page_size = _raised(model, page_size, kernel_slots)
    page_bytes = page_size * max(group.kv_bytes_per_token_and_layer for group in model.groups)
    layers = [group.layers for group in model.groups]
    per_table = max(layers) if max(layers) < _NEARLY_EQUAL * min(layers) else min(layers)
    return tuple(
        GroupLayout(
            group,
            page_size=_slots(model, group, page_size, page_bytes),
            page_bytes_per_layer=page_bytes,
            layers_per_table=per_table,
            tables=-(-group.layers // per_table),
        )
        for group in model.groups
    )


def _raised(model: Model, page_size: int, kernel_slots: int) -> int:
    """Return the page size at which one layer's page holds the largest state."""
    state = max(group.state_bytes_per_layer for group in model.groups)
    if not state:
        return page_size
    per_token = {group.kv_bytes_per_token_and_layer for group in model.kv_groups}
    if len(per_token) > 1:
        raise LedgerError(
            f"{model.name}: layers take {', '.join(map(str, sorted(per_token)))} bytes a token "
            "beside fixed states; one width is accepted"
        )
    step = max(kernel_slots, page_size)
    return step * -(-state // (step * per_token.pop()))


def _slots(model: Model, group: LayerGroup, page_size: int, page_bytes: int) -> int:
    """Return the slots that a page of ``page_bytes`` in each layer has for this group."""
    per_token = group.kv_bytes_per_token_and_layer
    if group.kind == "state":
        return 0
    if page_bytes % (page_size * per_token) == 0:
        return page_bytes // per_token
    if group.one_vector:
        raise LedgerError(
            f"{model.name}: pages of {page_size * per_token} bytes a latent layer do not divide "
            f"those of {page_bytes} bytes, and latent pages are not padded"
        )
    return page_size


def hybrid_pages(lengths: LengthsLike, layout: Sequence[GroupLayout]) -> tuple[GroupPages, ...]:
    """Account for requests of a model with several kinds of layers, group by group in order.

    Parameters
    ----------
    lengths : sequence, array, trace, mapping or LengthTable
        Tokens each request holds.
    layout : sequence of GroupLayout
        As :func:`separate_layout` or :func:`unified_layout` gives it.

    Raises
    ------
    LedgerError
        For a bad length, or more than 64 bits of bytes.

    Examples
    --------
    >>> from kvledger.models.known import load_model
    >>> full, window = hybrid_pages([1000, 5000], separate_layout(load_model("gpt-oss-20b"), 16))
    >>> full.pages, window.pages, window.layout.most_pages
    (376, 18, 9)
    >>> window.expired_bytes, window.tail_slack_bytes
    (393216, 393216)
    """
    table = as_lengths(lengths)
    accounted = []
    for part in layout:
        group, per_token = part.group, part.group.kv_bytes_per_token
        n_pages = exact_dot(group.pages(table.tokens, part.page_size), table.requests, "pages")
        n_kept = exact_dot(group.tokens_kept(table.tokens), table.requests, "tokens")
        # A fixed state has no slots, so no slack either.
        slack = -table.tokens % (part.page_size or 1)
        n_slack = exact_dot(slack, table.requests, "slack")
        n_expired = n_pages * part.page_size - n_kept - n_slack
        accounted.append(
            GroupPages(
                layout=part,
                requests=table.n_requests,
                pages=n_pages * part.tables,
                allocated_bytes=n_pages * part.tables * part.page_bytes,
                kept_bytes=n_kept * per_token + table.n_requests * group.state_bytes_per_request,
                tail_slack_bytes=n_slack * per_token,
                expired_bytes=n_expired * per_token,
                page_padding_bytes=n_pages * group.layers * part.page_padding_bytes_per_layer,
                layer_padding_bytes=n_pages * part.padding_layers * part.page_bytes_per_layer,
            )
        )
    return tuple(accounted)
