"""A pool of contiguous slots: first fit, best fit and buddies, with the holes they leave."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple, Protocol

from kvledger.accounting.ledger import Ledger
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole

_FIT = '"first", "best" and "buddy" are accepted'
_SLOTS = "a number of slots is a whole number, at least 1"


class Hole(NamedTuple):
    """Free slots in one piece.

    Attributes
    ----------
    start : int
        First free slot.
    slots : int
        Number of free slots.
    """

    start: int
    slots: int


class _FreeSpace(Protocol):
    """How free slots are kept and found. Sizes here are those that are really taken."""

    @property
    def largest(self) -> int:
        """The largest request that an empty pool can serve."""

    def rounded(self, slots: int) -> int:
        """Return the slots taken for a request."""

    def take(self, size: int) -> int | None:
        """Take a piece and return its start, or None if no hole is large enough."""

    def give(self, start: int, size: int) -> None:
        """Return a piece and merge it with the free ones it may be merged with."""

    def holes(self) -> list[Hole]:
        """Return the free pieces in the order of their starts."""

    def check(self) -> None:
        """Raise AssertionError if free pieces that belong together are apart."""


class _Holes:
    """Holes in the order of their starts; neighbours are always merged."""

    def __init__(self, capacity: int, *, best: bool) -> None:
        self.largest = capacity
        self._best = best
        self._starts = [0]
        self._size = {0: capacity}

    def rounded(self, slots: int) -> int:
        return slots

    def take(self, size: int) -> int | None:
        fitting = (start for start in self._starts if self._size[start] >= size)
        if self._best:  # the smallest that fits; of equal ones the first
            start = min(fitting, key=lambda start: self._size[start], default=None)
        else:
            start = next(fitting, None)
        if start is None:
            return None
        rest = self._size.pop(start) - size
        index = bisect_left(self._starts, start)
        if rest:
            self._starts[index] = start + size
            self._size[start + size] = rest
        else:
            del self._starts[index]
        return start

    def give(self, start: int, size: int) -> None:
        index = bisect_left(self._starts, start)
        after = self._size.pop(start + size, None)
        if after is not None:
            del self._starts[index]
            size += after
        before = self._starts[index - 1] if index else None
        if before is not None and before + self._size[before] == start:
            self._size[before] += size
        else:
            self._starts.insert(index, start)
            self._size[start] = size

    def holes(self) -> list[Hole]:
        return [Hole(start, self._size[start]) for start in self._starts]

    def check(self) -> None:
        if self._starts != sorted(self._size):
            raise AssertionError(f"holes at {sorted(self._size)} are listed as {self._starts}")
        holes = self.holes()
        for one, two in pairwise(holes):
            if one.start + one.slots == two.start:
                raise AssertionError(f"{one} and {two} touch and are not merged")


class _Buddies:
    """Blocks of power-of-two sizes. A block's buddy is the other half of the one it came from.

    The capacity is cut into its powers of two, largest first, so every block starts at a multiple
    of its size, and a buddy's start differs from its own in the bit of that size alone. The first
    blocks have no buddies: what follows each of them is smaller.
    """

    def __init__(self, capacity: int) -> None:
        self._roots = []
        self._free: dict[int, list[int]] = {}
        start = 0
        for bit in reversed(range(capacity.bit_length())):
            self._free[1 << bit] = []
            if capacity >> bit & 1:
                self._roots.append(Hole(start, 1 << bit))
                self._free[1 << bit].append(start)
                start += 1 << bit
        self.largest = self._roots[0].slots

    def rounded(self, slots: int) -> int:
        return 1 << (slots - 1).bit_length()

    def take(self, size: int) -> int | None:
        found = size
        while found <= self.largest and not self._free[found]:
            found *= 2
        if found > self.largest:
            return None
        start = self._free[found].pop(0)
        while found > size:  # keep the lower half; the upper one is the only free block of its size
            found //= 2
            self._free[found].append(start + found)
        return start

    def give(self, start: int, size: int) -> None:
        while size < self.largest and (start ^ size) in self._free[size]:
            self._free[size].remove(start ^ size)
            start &= ~size
            size *= 2
        insort(self._free[size], start)

    def holes(self) -> list[Hole]:
        return sorted(Hole(start, size) for size, all_ in self._free.items() for start in all_)

    def check(self) -> None:
        for size, starts in self._free.items():
            if starts != sorted(starts):
                raise AssertionError(f"free blocks of {size} slots are out of order: {starts}")
            for start in starts:
                if start % size:
                    raise AssertionError(f"a block of {size} slots starts at {start}")
                if not any(
                    root.start <= start and start + size <= root.start + root.slots
                    for root in self._roots
                ):
                    raise AssertionError(f"block {Hole(start, size)} crosses a first block's end")
                if start ^ size in starts:
                    raise AssertionError(
                        f"buddies at {start} and {start ^ size} of {size} slots are not merged"
                    )


class ContiguousPool:
    """Slots handed out in one piece for each request.

    Parameters
    ----------
    capacity_slots : int
        All slots.
    fit : {"first", "best", "buddy"}
        Which hole a request gets: the first that is large enough, the smallest that is (of equal
        ones the first), or the smallest free block of a buddy allocator. That one cuts the
        capacity into powers of two, rounds requests up to the next power of two, halves blocks
        and merges buddies; of equal blocks it takes the first, of two halves the lower.

    Raises
    ------
    LedgerError
        For a bad capacity or an unknown fit.

    Examples
    --------
    >>> pool = ContiguousPool(100, fit="first")
    >>> [pool.allocate(slots) for slots in (40, 20, 30)]
    [0, 40, 60]
    >>> pool.release(40)
    >>> pool.holes
    (Hole(start=40, slots=20), Hole(start=90, slots=10))
    >>> pool.allocate(30) is None, pool.external_slots(30), pool.external_slots(20)
    (True, 30, 10)
    """

    def __init__(self, capacity_slots: int, fit: str = "first") -> None:
        self.capacity_slots = whole(capacity_slots, "capacity_slots", minimum=1, accepted=_SLOTS)
        if fit not in ("first", "best", "buddy"):
            raise LedgerError(f"fit is {shown(fit)}; {_FIT}")
        self.fit = fit
        self._space: _FreeSpace = (
            _Buddies(self.capacity_slots)
            if fit == "buddy"
            else _Holes(self.capacity_slots, best=fit == "best")
        )
        self._requested: dict[int, int] = {}

    @property
    def largest_request(self) -> int:
        """The largest request, in slots, that the empty pool can serve."""
        return self._space.largest

    @property
    def held(self) -> dict[int, int]:
        """Requested slots of each held piece, by its start, oldest first."""
        return dict(self._requested)

    @property
    def held_slots(self) -> int:
        """Slots requested and held; what rounding adds is not among them."""
        return sum(self._requested.values())

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Free pieces, in the order of their starts."""
        return tuple(self._space.holes())

    @property
    def rounding_slots(self) -> int:
        """Slots that held pieces take beyond what was requested: for buddies only."""
        return sum(self._space.rounded(n) - n for n in self._requested.values())

    def allocate(self, slots: int) -> int | None:
        """Take so many slots in one piece and return the first, or None if no hole is large enough.

        Raises
        ------
        LedgerError
            If even the empty pool could not serve the request.
        """
        n = self._request(slots, "slots")
        start = self._space.take(self._space.rounded(n))
        if start is not None:
            self._requested[start] = n
        return start

    def release(self, start: int) -> None:
        """Free the piece that starts at a slot.

        Raises
        ------
        LedgerError
            If no held piece starts there.
        """
        at = whole(start, "start", minimum=0, accepted="the start of a held piece is accepted")
        if at not in self._requested:
            raise LedgerError(
                f"start is {at}; no held piece starts there: it was released already, or is none"
            )
        self._space.give(at, self._space.rounded(self._requested.pop(at)))

    def external_slots(self, request_slots: int) -> int:
        """Return the slots that no request of a size could use, although nobody asked for them.

        Those are the holes too small for it, and what rounding adds to held pieces.

        Parameters
        ----------
        request_slots : int
            Size of the request that the holes are held to.

        Raises
        ------
        LedgerError
            If even the empty pool could not serve such a request.
        """
        size = self._space.rounded(self._request(request_slots, "request_slots"))
        small = sum(hole.slots for hole in self._space.holes() if hole.slots < size)
        return small + self.rounding_slots

    def ledger(
        self,
        tokens: Mapping[int, int],
        *,
        request_slots: int | None = None,
        final_tokens: Mapping[int, int] | None = None,
    ) -> Ledger:
        """Account for the pool as it is now.

        Parameters
        ----------
        tokens : mapping of int to int
            Tokens stored in each held piece, by its start. What is held and not used is reserved.
        request_slots : int, optional
            Size of the request that holes must serve, to count as unallocated and not as
            external. If not given, every hole is unallocated, and only rounding is external.
        final_tokens : mapping of int to int, optional
            Tokens that each piece will hold at its end: then the reserved slots are split.

        Returns
        -------
        Ledger

        Raises
        ------
        LedgerError
            If a held piece is missing, one that is not held is given, or tokens exceed slots.

        Examples
        --------
        >>> pool = ContiguousPool(96)
        >>> tokens = {pool.allocate(32): n for n in (5, 9, 17)}
        >>> pool.ledger(tokens)
        Ledger(3 requests: 31 tokens in 96 slots; reserved 65, capacity 96)
        """
        now = self._per_piece(tokens, "tokens")
        later = None
        if final_tokens is not None:
            final = self._per_piece(final_tokens, "final_tokens")
            for start, n in final.items():
                if n < now[start]:
                    raise LedgerError(
                        f"final_tokens[{start}] is {n}; it holds {now[start]} tokens already"
                    )
            later = sum(final.values()) - sum(now.values())
        held, stored = self.held_slots, sum(now.values())
        external = (
            self.rounding_slots if request_slots is None else self.external_slots(request_slots)
        )
        return Ledger(
            requests=len(now),
            logical_tokens=stored,
            allocated_slots=held,
            reserved_slots=held - stored,
            reserved_used_later_slots=later,
            capacity_slots=self.capacity_slots,
            unallocated_slots=self.capacity_slots - held - external,
            external_slots=external,
        )

    def check_integrity(self) -> None:
        """Prove that every slot is in exactly one place; raise AssertionError where one is not."""
        self._space.check()
        pieces = [(hole.start, hole.slots, "free") for hole in self._space.holes()]
        for start, slots in self._requested.items():
            pieces.append((start, self._space.rounded(slots), "held"))
        end = 0
        for start, size, state in sorted(pieces):
            if size < 1:
                raise AssertionError(f"a {state} piece of {size} slots starts at {start}")
            if start > end:
                raise AssertionError(f"slots {end} to {start - 1} are lost: neither free nor held")
            if start < end:
                raise AssertionError(f"the {state} piece at {start} begins before slot {end}")
            end = start + size
        if end != self.capacity_slots:
            raise AssertionError(f"pieces end at slot {end}; the pool has {self.capacity_slots}")

    def __repr__(self) -> str:
        return (
            f"ContiguousPool({self.capacity_slots} slots, {self.fit} fit: "
            f"{len(self._requested)} pieces hold {self.held_slots}, {len(self.holes)} holes)"
        )

    def _request(self, slots: object, name: str) -> int:
        n = whole(slots, name, minimum=1, accepted=_SLOTS)
        if self._space.rounded(n) > self.largest_request:
            raise LedgerError(
                f"{name} is {n}, which can never fit: the largest piece of the empty pool is "
                f"{self.largest_request} slots"
            )
        return n

    def _per_piece(self, tokens: Mapping[int, int], name: str) -> dict[int, int]:
        if not isinstance(tokens, Mapping):
            raise LedgerError(f"{name} is {shown(tokens)}; a mapping from starts to tokens")
        for start in tokens:
            if start not in self._requested:
                raise LedgerError(f"{name}[{shown(start)}]: no held piece starts there")
        result = {}
        for start, slots in self._requested.items():
            if start not in tokens:
                raise LedgerError(f"{name} says nothing of the piece at {start}")
            accepted = f"a whole number from 0 to the {slots} slots of the piece"
            result[start] = whole(tokens[start], f"{name}[{start}]", minimum=0, accepted=accepted)
            if result[start] > slots:
                raise LedgerError(f"{name}[{start}] is {result[start]}; {accepted}")
        return result
