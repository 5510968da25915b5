"""Every cost of a page size, each in its own unit and then in token slots.

All of them are means over requests and steps, so that they add up: of memory, what a request
holds; of time, what a step that reads its tokens takes, in the time of a slot. Time comes from a
measurement of a model's own heads, and is carried over to no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from kvledger.accounting.metadata import exact_cost
from kvledger.core.errors import LedgerError
from kvledger.decision.workload import Workload
from kvledger.models.engines import Structure
from kvledger.models.known import load_model
from kvledger.models.shapes import Model

if TYPE_CHECKING:
    from kvledger.measure.record import Record

Prefix = Literal["ids", "expected"]

TERMS: Mapping[str, str] = {
    "tail_slack_slots": "tail slack",
    "metadata_slots": "metadata",
    "shared_lost_slots": "shared prefix lost",
    "read_slots": "time to read through the table",
    "allocation_slots": "allocation",
}
"""The costs on one axis, as fields of :class:`SizeCost`, and what text calls them."""

_OWN = "triton"  # this project's kernel, as records name it
_GATHERS = "gather"  # a peer that copies pages before it reads them comes last


class CacheShape(NamedTuple):
    """What a page-size decision needs of a model; a page size does not change its fixed states.

    ``groups`` counts the kinds of layers that keep page tables of their own; ``kv_heads`` and
    ``layer_bytes`` are those of one layer, None where layers differ, and ``latent`` says whether
    one vector stands for K and V.
    """

    name: str
    bytes_per_token: int
    layers: int
    groups: int
    kv_heads: int | None
    layer_bytes: int | None
    latent: bool


def cache_shape(model: str | Model) -> CacheShape:
    """Return what a page-size decision needs of a model: the one place that looks into it.

    Every layer is charged for every token, those with a window too.

    Examples
    --------
    >>> shape = cache_shape("gpt-oss-20b")
    >>> shape.bytes_per_token, shape.layers, shape.groups
    (49152, 24, 2)
    """
    found = load_model(model)
    widths = {(group.kv_heads, group.kv_bytes_per_token_and_layer) for group in found.kv_groups}
    kv_heads, layer_bytes = widths.pop() if len(widths) == 1 else (None, None)
    return CacheShape(
        name=found.name,
        bytes_per_token=found.kv_bytes_per_token,
        layers=found.layers,
        groups=len(found.kv_groups),
        kv_heads=kv_heads,
        layer_bytes=layer_bytes,
        latent=found.latent,
    )


@dataclass(frozen=True, slots=True)
class ReadTime:
    """The cost of reading a page through the table, in the time of token slots.

    ``device`` names what was measured on and the day, ``file`` the record, ``case`` and ``peer``
    what was measured and whose kernel. ``c_slots`` is in slots a page, with the ends of its
    interval (``c_high`` None without a bound), as :class:`~kvledger.measure.fit.PageCost` gives
    them; below nothing counts as nothing. If the times are not ``straight``, on the fitted line,
    a page's cost is not one number: ``residual_share`` is how far the worst page size is off it,
    ``spread_share`` how far its repetitions spread. ``slot_s`` is seconds to read one slot in one
    layer, ``allocation_s`` the host's seconds for each page given out, None if not recorded.
    """

    device: str
    on_gpu: bool
    file: str
    case: str
    peer: str
    c_slots: Fraction
    c_low: Fraction
    c_high: Fraction | None
    straight: bool
    residual_share: float
    spread_share: float
    slot_s: float
    allocation_s: float | None

    def allocation_slots(self, layers: int) -> Fraction | None:
        """Return one allocation's time in the time to read a slot in all layers."""
        if self.allocation_s is None:
            return None
        return exact_cost(self.allocation_s / (self.slot_s * layers))


def read_time(record: Record, shape: CacheShape, *, peer: str | None = None) -> ReadTime:
    """Take the cost of a page for a model out of a measurement record.

    Parameters
    ----------
    record, shape : Record, CacheShape
        A case of the record must have the model's K and V heads and bytes a token and layer.
    peer : str, optional
        Whose times; else this project's kernel if it was timed, else the widest sweep.

    Raises
    ------
    LedgerError
        If no case has the model's heads, or none of them was timed at three page sizes.
    """
    from kvledger.measure.fit import MIN_PAGE_SIZES, page_cost

    if shape.layer_bytes is None:
        raise LedgerError(
            f"{shape.name} has layers of different widths; a record times layers of one width"
        )
    heads, width = shape.kv_heads, shape.layer_bytes
    cases = [c for c in record.cases if (c.kv_heads, c.kv_bytes) == (heads, c.tokens * width)]
    if not cases:
        there = ", ".join(dict.fromkeys(f"{case.shape} in {case.dtype}" for case in record.cases))
        raise LedgerError(
            f"{record.label} has no case of {shape.kv_heads} K and V heads and "
            f"{shape.layer_bytes} bytes a token and layer, as {shape.name} has; there are: {there}"
        )
    for case in cases:
        swept = _swept(record, case.id, MIN_PAGE_SIZES)
        swept = [each for each in swept if not peer or each == peer]
        if not swept:
            continue
        cost = page_cost(record, case.id, swept[0])
        return ReadTime(
            device=record.label,
            on_gpu=record.device.kind == "cuda",
            file=record.file,
            case=case.id,
            peer=swept[0],
            c_slots=exact_cost(max(cost.c_slots, 0.0)),
            c_low=exact_cost(max(cost.c_low, 0.0)),
            c_high=exact_cost(max(cost.c_high, 0.0)) if np.isfinite(cost.c_high) else None,
            straight=cost.straight,
            residual_share=cost.residual_share,
            spread_share=cost.spread_share,
            slot_s=cost.a_s / cost.tokens,
            allocation_s=allocation_seconds(record),
        )
    who = f"of {peer} " if peer else ""
    raise LedgerError(
        f"{record.label} has no sweep {who}over {MIN_PAGE_SIZES} page sizes or more for "
        f"{', '.join(case.id for case in cases)}"
    )


def allocation_seconds(record: Record) -> float | None:
    """Return the host's seconds for each page given out while decoding, or None.

    The least-squares slope of the time against pages given out, over the page sizes of the record:
    what each token costs whatever the page size is no part of it.
    """
    work = [w for w in record.host if w.what == "allocate_pages"]
    pages = np.array([w.units for w in work], dtype=float)
    seconds = np.array([float(np.median(w.seconds)) for w in work])
    if len(set(pages.tolist())) < 2 or len({w.tokens for w in work}) != 1:
        return None
    far = pages - pages.mean()
    return max(float((far * seconds).sum() / (far**2).sum()), 0.0)


def _swept(record: Record, case: str, at_least: int) -> list[str]:
    """Peers with a sweep of a case; the one whose times are taken is first."""
    sizes: dict[str, set[int]] = {}
    for timing in record.timings:
        if timing.case == case and timing.layout == "random":
            sizes.setdefault(timing.peer, set()).add(timing.page_size)
    swept = [peer for peer, found in sizes.items() if len(found) >= at_least]
    return sorted(swept, key=lambda p: (p != _OWN, p.startswith(_GATHERS), -len(sizes[p])))


class SizeCost(NamedTuple):
    """What one page size costs. Slots, entries and pages are a request's, averaged over steps.

    What is not known or not measured is None.

    Attributes
    ----------
    page_size : int
        Slots a page.
    entries, pages : Fraction
        Entries of its page table; pages held for it, fewer where a prefix is shared.
    tail_slack_slots, metadata_slots, shared_lost_slots : Fraction
        Slack of the last page; bytes kept for pages, in slots of the model; of a common prefix,
        what is held again because it does not fill a page.
    read_slots, allocation_slots, allocations_per_token : Fraction or None
        Time to read through the table, and of the allocations for the token of a step, in the time
        of slots; pages given out for each token generated.
    memory_slots, time_slots : Fraction
        Slots held: tokens not shared, slack, what sharing loses, and metadata; tokens read, and
        the two costs of time.
    """

    page_size: int
    entries: Fraction
    pages: Fraction
    tail_slack_slots: Fraction
    metadata_slots: Fraction
    shared_lost_slots: Fraction | None
    read_slots: Fraction | None
    allocations_per_token: Fraction | None
    allocation_slots: Fraction | None
    memory_slots: Fraction
    time_slots: Fraction | None

    @property
    def total_slots(self) -> Fraction:
        """Memory and time on one axis: a slot held counts as much as the time to read one."""
        return self.memory_slots + (self.read_slots or 0) + (self.allocation_slots or 0)

    def term(self, field: str) -> Fraction:
        """Return one of :data:`TERMS`; one that is absent adds nothing."""
        value: Fraction | None = getattr(self, field)
        return Fraction(0) if value is None else value


@dataclass(frozen=True, slots=True)
class Charges:
    """What each page costs a model, in slots: metadata of a table entry and of a page held.

    ``read_slots`` is the time to read through an entry and ``allocation_slots`` that of one
    allocation; None where they are not measured.
    """

    entry_slots: Fraction
    page_slots: Fraction
    read_slots: Fraction | None
    allocation_slots: Fraction | None

    @property
    def metadata_slots(self) -> Fraction:
        """Metadata of a page that nothing else refers to."""
        return self.entry_slots + self.page_slots

    @property
    def c_slots(self) -> Fraction:
        """All that is charged for a page, metadata and reading: the c of the cost per page."""
        return self.metadata_slots + (self.read_slots or 0)


def charges_of(
    structures: Iterable[Structure],
    shape: CacheShape,
    read: ReadTime | None,
    *,
    held_together: int = 16,
) -> Charges:
    """Convert bytes and seconds a page to slots of a model.

    Each group of layers has a page table and pages of its own. Bytes on the host are charged as
    if they were bytes of the cache, which is more than they cost. Structures whose bytes do not
    depend on pages cost the same at every page size and are left out; those that are as large as
    page and batch count ``held_together`` requests.

    Examples
    --------
    >>> from kvledger.models.engines import structures_of
    >>> charges_of(structures_of("vllm"), cache_shape("Llama-3.1-8B"), None).c_slots
    Fraction(129, 65536)
    """
    each = {"entry": 0, "page": 0}
    for structure in structures:
        if structure.per == "page and request":
            each["page"] += structure.n_bytes * held_together
        elif structure.per in each:
            each[structure.per] += structure.n_bytes
    return Charges(
        entry_slots=Fraction(each["entry"] * shape.groups, shape.bytes_per_token),
        page_slots=Fraction(each["page"] * shape.groups, shape.bytes_per_token),
        read_slots=None if read is None else read.c_slots,
        allocation_slots=None if read is None else read.allocation_slots(shape.layers),
    )


def size_costs(
    workload: Workload,
    charges: Charges,
    page_sizes: Iterable[int],
    *,
    prefix: Prefix | None = "ids",
) -> tuple[SizeCost, ...]:
    """Work out every cost of every page size, ascending.

    ``prefix`` says what rounding loses of shared prefixes: what the trace's page ids show;
    (p - 1) / 2 tokens for each request, as if each one's common prefix ended anywhere in a page;
    or nothing. Another one, or a bad page size, raises LedgerError.

    Examples
    --------
    >>> from kvledger.decision.workload import workload_of
    >>> quarter = Charges(Fraction(1, 4), Fraction(0), None, None)
    >>> [str(cost.memory_slots) for cost in size_costs(workload_of([5, 9, 17]), quarter, [1, 2, 4])]
    ['155/12', '51/4', '85/6']
    """
    if prefix not in ("ids", "expected", None):
        raise LedgerError(f"prefix is {prefix!r}; accepted: 'ids', 'expected', None")
    steps, tokens = workload.steps, workload.token_steps
    prefixes = workload.prefixes if prefix == "ids" else None
    spared = 0 if prefixes is None else prefixes.token_steps
    given_out = workload.allocations(page_sizes := list(page_sizes))
    new_tokens = workload.new_tokens
    costs = []
    for size, entries in workload.page_steps(page_sizes).items():
        pages, lost = Fraction(entries), None
        if prefixes is not None:
            lost_steps = prefixes.lost_token_steps(size)
            lost = Fraction(lost_steps, steps)
            pages -= Fraction(spared - lost_steps, size)
        elif prefix == "expected":
            lost = Fraction(size - 1, 2)
        slack = Fraction(entries * size - tokens, steps)
        metadata = (charges.entry_slots * entries + charges.page_slots * pages) / steps
        read = allocation = time = per_token = None
        if new_tokens:
            per_token = Fraction(given_out[size], new_tokens)
        if charges.read_slots is not None:
            read = charges.read_slots * entries / steps
            time = Fraction(tokens, steps) + read
            if charges.allocation_slots is not None and per_token is not None:
                allocation = charges.allocation_slots * per_token
                time += allocation
        costs.append(
            SizeCost(
                page_size=size,
                entries=Fraction(entries, steps),
                pages=pages / steps,
                tail_slack_slots=slack,
                metadata_slots=metadata,
                shared_lost_slots=lost,
                read_slots=read,
                allocations_per_token=per_token,
                allocation_slots=allocation,
                memory_slots=Fraction(tokens - spared, steps) + slack + metadata + (lost or 0),
                time_slots=time,
            )
        )
    return tuple(costs)
