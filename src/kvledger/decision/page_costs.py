"""Every cost of a page size, each in its own unit and then in token slots.

All of them are means over requests and steps, so that they add up: of memory, what a request
holds; of time, what a step that reads its tokens takes, in the time of a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from kvledger.core.errors import LedgerError
from kvledger.decision.read_time import CacheShape, ReadTime
from kvledger.decision.workload import Workload
from kvledger.models.engines import Structure

__all__ = ["TERMS", "Charges", "SizeCost", "charges_of", "size_costs"]

Prefix = Literal["ids", "expected"]

TERMS: Mapping[str, str] = {
    "tail_slack_slots": "tail slack",
    "metadata_slots": "metadata",
    "shared_lost_slots": "shared prefix lost",
    "read_slots": "time to read through the table",
    "allocation_slots": "allocation",
}
"""The costs on one axis, as fields of :class:`SizeCost`, and what text calls them."""


class SizeCost(NamedTuple):
    """What one page size costs. Slots, entries and pages are a request's, averaged over steps.

    Attributes
    ----------
    page_size : int
        Slots a page.
    entries : Fraction
        Entries of its page table: pages it refers to.
    pages : Fraction
        Pages held for it: fewer than its entries where a prefix is shared.
    tail_slack_slots, metadata_slots : Fraction
        Slack of the last page; bytes kept for pages, in slots of the model.
    shared_lost_slots : Fraction or None
        Of a common prefix, what is held again because it does not fill a page. None where it is
        not known.
    read_slots : Fraction or None
        Time to read through the table, in the time of slots. None where it is not measured.
    allocations_per_token : Fraction or None
        Pages given out for each token generated. None where no token is.
    allocation_slots : Fraction or None
        Time of those allocations for the token of a step; None where it is not measured.
    memory_slots : Fraction
        Slots held: tokens not shared, slack, what sharing loses, and metadata.
    time_slots : Fraction or None
        Tokens read, and the two costs of time. None where reading is not measured.
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
    """What each page costs a model, in slots.

    Attributes
    ----------
    entry_slots, page_slots : Fraction
        Metadata of an entry of a page table, and of a page held.
    read_slots : Fraction or None
        Time to read through an entry.
    allocation_slots : Fraction or None
        Time of one allocation.
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
    if they were bytes of the cache, which is more than they cost.

    Parameters
    ----------
    structures : iterable of Structure
        Those whose bytes do not depend on pages cost the same at every page size and are left out.
    shape : CacheShape
        Of the model.
    read : ReadTime or None
        The measured cost of reading.
    held_together : int
        Requests of a batch, for structures that are as large as page and batch.

    Examples
    --------
    >>> from kvledger.models.engines import structures_of
    >>> from kvledger.decision.read_time import cache_shape
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

    Parameters
    ----------
    workload : Workload
        Of the trace.
    charges : Charges
        What a page costs.
    page_sizes : iterable of int
        Slots a page.
    prefix : {"ids", "expected"} or None
        Where a shared prefix is lost to rounding: from the trace's page ids; (p - 1) / 2 tokens
        for each request, as if each one's common prefix ended anywhere in a page; or nowhere.

    Raises
    ------
    LedgerError
        For another ``prefix``, or a bad page size.

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
