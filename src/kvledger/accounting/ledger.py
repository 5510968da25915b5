"""The quantities of the accounting, in one type that cannot be inconsistent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole

_ACCEPTED = "a whole number from 0 to 64 bits is accepted"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ledger:
    """Where the slots of a KV cache go. A slot has room for one token's K and V in every layer.

    Two identities hold for every ledger; making one that breaks them is an error::

        allocated_slots = distinct_tokens + tail_slack_slots + reserved_slots
        capacity_slots  = allocated_slots + unallocated_slots + external_slots   (of a pool)

    Parameters
    ----------
    requests, logical_tokens, allocated_slots : int
        Requests held, the sum of their lengths in tokens, and the physical slots held.
    shared_tokens : int, optional
        Logical positions that point at a cached tensor which another request already holds.
    tail_slack_slots : int, optional
        Allocated, unused slots of last pages.
    reserved_slots : int, optional
        Slots allocated ahead for growth and not (yet) used.
    reserved_used_later_slots : int, optional
        The part of ``reserved_slots`` that its request will use before it ends. None where final
        lengths are not known.
    pages : int, optional
        Physical pages held; 0 where memory is not paged.
    refused_requests, refused_tokens : int, optional
        Requests longer than the policy's maximum, counted apart: no other field includes them.
    capacity_slots, unallocated_slots, external_slots : int, optional
        Of a pool: all its slots; those neither held nor reserved; and, of a contiguous pool, the
        holes too small to use.

    Raises
    ------
    LedgerError
        If a quantity is negative or no whole number, or an identity does not hold.

    Examples
    --------
    >>> ledger = Ledger(requests=3, logical_tokens=31, tail_slack_slots=9, allocated_slots=40,
    ...                 pages=10)
    >>> ledger
    Ledger(3 requests: 31 tokens in 40 slots, 10 pages; tail slack 9)
    >>> ledger.unused_share
    Fraction(9, 40)
    >>> ledger + ledger
    Ledger(6 requests: 62 tokens in 80 slots, 20 pages; tail slack 18)
    """

    requests: int
    logical_tokens: int
    allocated_slots: int
    shared_tokens: int = 0
    tail_slack_slots: int = 0
    reserved_slots: int = 0
    reserved_used_later_slots: int | None = None
    pages: int = 0
    refused_requests: int = 0
    refused_tokens: int = 0
    capacity_slots: int | None = None
    unallocated_slots: int | None = None
    external_slots: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                value = whole(value, field.name, minimum=0, accepted=_ACCEPTED)
                object.__setattr__(self, field.name, value)
        if self.shared_tokens > self.logical_tokens:
            raise LedgerError(
                f"shared_tokens is {self.shared_tokens}; at most the {self.logical_tokens} logical "
                "tokens can be shared"
            )
        parts = self.distinct_tokens + self.tail_slack_slots + self.reserved_slots
        if self.allocated_slots != parts:
            raise LedgerError(
                f"allocated_slots is {self.allocated_slots}; distinct tokens {self.distinct_tokens}"
                f" + tail slack {self.tail_slack_slots} + reserved {self.reserved_slots} = {parts}"
            )
        later = self.reserved_used_later_slots
        if later is not None and later > self.reserved_slots:
            raise LedgerError(
                f"reserved_used_later_slots is {later}; at most the {self.reserved_slots} reserved"
                " slots can be used later"
            )
        free, holes = self.unallocated_slots, self.external_slots
        if self.capacity_slots is None and (free is not None or holes is not None):
            raise LedgerError("unallocated_slots and external_slots need a capacity_slots")
        parts = self.allocated_slots + (free or 0) + (holes or 0)
        if self.capacity_slots not in (None, parts):
            raise LedgerError(
                f"capacity_slots is {self.capacity_slots}; allocated {self.allocated_slots} + "
                f"unallocated {free or 0} + external {holes or 0} = {parts}"
            )

    @property
    def distinct_tokens(self) -> int:
        """Logical tokens less shared ones, so the cached tensors that are held, each once."""
        return self.logical_tokens - self.shared_tokens

    @property
    def unused_slots(self) -> int:
        """Tail slack and reserved slots, which are allocated and hold no token now."""
        return self.tail_slack_slots + self.reserved_slots

    @property
    def unused_share(self) -> Fraction:
        """Unused part of the allocated slots, exact; 0 where nothing is allocated."""
        return Fraction(self.unused_slots, self.allocated_slots or 1)

    @property
    def reserved_never_used_slots(self) -> int | None:
        """The part of ``reserved_slots`` that no request ever uses; None where not known."""
        if self.reserved_used_later_slots is None:
            return None
        return self.reserved_slots - self.reserved_used_later_slots

    def __add__(self, other: Ledger) -> Ledger:
        if not isinstance(other, Ledger):
            return NotImplemented
        total: dict[str, Any] = {}
        for field in fields(self):
            a, b = getattr(self, field.name), getattr(other, field.name)
            # Unknown plus known is unknown; nothing reserved is known to be used by nobody.
            total[field.name] = None if a is None or b is None else a + b
        for one, two in ((self, other), (other, self)):
            if one.reserved_used_later_slots is None and not one.reserved_slots:
                total["reserved_used_later_slots"] = two.reserved_used_later_slots
        for name in ("unallocated_slots", "external_slots"):
            known = [n for n in (getattr(self, name), getattr(other, name)) if n is not None]
            # Of two pools, one that names none has none.
            total[name] = sum(known) if known and total["capacity_slots"] is not None else None
        return Ledger(**total)

    def __radd__(self, other: object) -> Ledger:
        return self if other == 0 else NotImplemented  # sum() starts from 0

    def __repr__(self) -> str:
        text = f"{self.requests} requests: {self.logical_tokens} tokens"
        text += f" in {self.allocated_slots} slots"
        text += f", {self.pages} pages" if self.pages else ""
        split = self.reserved_never_used_slots
        never = "" if split is None else f" ({split} never used)"
        details = (
            (self.shared_tokens, f"shared {self.shared_tokens} tokens"),
            (self.pages or self.tail_slack_slots, f"tail slack {self.tail_slack_slots}"),
            (self.reserved_slots, f"reserved {self.reserved_slots}{never}"),
            (self.refused_requests, f"refused {self.refused_requests} requests"),
            (self.capacity_slots is not None, f"capacity {self.capacity_slots}"),
        )
        said = ", ".join(detail for there, detail in details if there)
        return f"Ledger({text}{'; ' if said else ''}{said})"
