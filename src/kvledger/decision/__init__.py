"""Which page sizes are good for a trace and a model, what decides it, and what would change it.

Memory is what a page size holds, time is what reading it takes. Each gives its own answer, the
page sizes within a share of the best; a size that is in both needs no price of one in the other.
The two added on one axis, a slot held for the time to read a slot, are a third answer. None of
them is a winner for every trace or model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvledger.accounting.metadata import DEFAULT_PAGE_SIZES, CostLike, Interval, exact_cost
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthsLike, whole_page_sizes
from kvledger.decision import answers
from kvledger.decision.answers import Answer, Change, Line, number
from kvledger.decision.page_costs import (
    TERMS,
    CacheShape,
    Charges,
    Prefix,
    ReadTime,
    SizeCost,
    cache_shape,
    charges_of,
    read_time,
    size_costs,
)
from kvledger.decision.workload import Workload, workload_of
from kvledger.models.engines import (
    Structure,
    kernels_accepting,
    load_page_size_rules,
    page_size_rule,
    structures_of,
)
from kvledger.models.shapes import Model
from kvledger.traces import LengthMarginals, Trace
from proofbook.plaintext import exact

if TYPE_CHECKING:
    import pandas as pd

    from kvledger.measure.record import Record

_MEMORY = ("tail_slack_slots", "metadata_slots", "shared_lost_slots")
_TIME = ("read_slots", "allocation_slots")


@dataclass(frozen=True)
class Decision:
    """All costs of all page sizes tested, for one trace and one model, and the answers.

    Attributes
    ----------
    workload, shape : Workload, CacheShape
        The trace as a page size sees it, and the model.
    structures, charges : tuple of Structure, Charges
        What is kept for pages, and what a page costs, in slots.
    read, prefix : ReadTime or None; {"ids", "expected"} or None
        The measured cost of reading, and where the cost of lost prefixes comes from; where one is
        None, ``why_no_read`` or ``why_no_prefix`` says why.
    sizes, tolerance, kernel : tuple of SizeCost, Fraction, str or None
        Every page size tested, ascending; the accepted excess over the least cost, a share of it;
        the kernel whose page sizes alone were tested.
    """

    workload: Workload
    shape: CacheShape
    structures: tuple[Structure, ...]
    charges: Charges
    read: ReadTime | None
    why_no_read: str
    prefix: Prefix | None
    why_no_prefix: str
    sizes: tuple[SizeCost, ...]
    tolerance: Fraction
    kernel: str | None = None

    @cached_property
    def memory(self) -> Answer:
        """The page sizes that hold little more than the best."""
        return self._answer("memory", self._distinct, _MEMORY)

    @cached_property
    def time(self) -> Answer | None:
        """The page sizes that take little longer than the best; None if that is not measured."""
        if self.read is None:
            return None
        return self._answer("time", self.workload.mean_tokens, _TIME)

    @cached_property
    def answer(self) -> Answer:
        """The answer for all that is known: memory and time added, or memory alone."""
        return self.memory if self.read is None else self.answer_at(self.read.c_slots)

    def answer_at(self, c_read: CostLike) -> Answer:
        """Return the answer for memory and time if reading a page cost so many slots.

        Examples
        --------
        >>> decision = decide([5, 9, 17], "Llama-3.1-8B", metadata=None, page_sizes=[1, 2, 4, 8])
        >>> decision.answer_at(0).best, decision.answer_at(1).best
        (1, 4)
        """
        c = exact_cost(c_read, "c_read")
        return self._answer("memory and time", self._distinct, (*_MEMORY, *_TIME), c)

    @cached_property
    def read_interval(self) -> tuple[Answer, Answer | None] | None:
        """The answers at the two ends of the measured interval of the cost of reading.

        None where it is not measured; the second is None where the interval has no upper end.
        """
        if self.read is None:
            return None
        high = self.read.c_high
        return self.answer_at(self.read.c_low), None if high is None else self.answer_at(high)

    @property
    def in_both(self) -> tuple[int, ...] | None:
        """Page sizes near the best in memory and in time, each by itself; None if not measured."""
        if self.time is None:
            return None
        return tuple(size for size in self.memory.near if size in set(self.time.near))

    def cost(self, page_size: int) -> SizeCost:
        """Return the costs of one page size; raises LedgerError if it was not tested."""
        for cost in self.sizes:
            if cost.page_size == page_size:
                return cost
        raise LedgerError(
            f"page size {page_size!r} was not tested; tested are {len(self.sizes)} from "
            f"{self.sizes[0].page_size} to {self.sizes[-1].page_size}"
        )

    def needs(self, page_size: int) -> Interval | None:
        """Return what a page must cost, all told, for a page size to be within the tolerance.

        Exact, in slots a page, whether or not reading was measured; None if no cost does it.
        ``charges.c_slots`` is what is counted here.

        Examples
        --------
        >>> decision = decide([5, 9, 17], "Llama-3.1-8B", metadata=None, page_sizes=[1, 2, 4, 8])
        >>> decision.needs(4)
        Interval(page_size=4, c_from=Fraction(566, 717), c_to=Fraction(424, 197))
        """
        self.cost(page_size)
        return answers.tolerated(page_size, self._lines, self.tolerance)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """What would make half and twice the best page size, or the nearest beyond, as good."""
        tested = list(self._lines)
        smaller = [size for size in tested if 2 * size <= self.answer.best]
        larger = [size for size in tested if size >= 2 * self.answer.best]
        return tuple(self._change(size) for size in (*smaller[-1:], *larger[:1]))

    def _change(self, page_size: int) -> Change:
        best, other = self.cost(self.answer.best), self.cost(page_size)
        more = other.total_slots - best.total_slots
        # Every request longer by t tokens: the same slack, and t / p entries more.
        slower = self.charges.c_slots * (Fraction(1, best.page_size) - Fraction(1, page_size))
        tokens = self.workload.mean_tokens + more / slower if slower else None
        diverging = more / Fraction(best.page_size - page_size, 2)
        return Change(
            page_size=page_size,
            c_slots=answers.even_c(self._lines[best.page_size], self._lines[page_size]),
            mean_tokens=None if tokens is None or tokens < 1 else tokens,
            lost_slots=more,
            diverging_share=diverging if 0 <= diverging <= 1 else None,
        )

    @cached_property
    def _lines(self) -> dict[int, Line]:
        """Each page size's cost as a line in what a page costs, all told."""
        c = self.charges.c_slots
        return {
            cost.page_size: Line(cost.total_slots - c * cost.entries, cost.entries)
            for cost in self.sizes
        }

    @property
    def _distinct(self) -> Fraction:
        """Tokens held and not shared: what every page size holds."""
        spared = 0
        if self.prefix == "ids" and self.workload.prefixes is not None:
            spared = self.workload.prefixes.token_steps
        return Fraction(self.workload.token_steps - spared, self.workload.steps)

    def _answer(
        self, of: str, base: Fraction, terms: tuple[str, ...], c_read: Fraction | None = None
    ) -> Answer:
        parts = {c.page_size: {term: c.term(term) for term in terms} for c in self.sizes}
        if c_read is not None:
            for cost in self.sizes:
                parts[cost.page_size]["read_slots"] = c_read * cost.entries
        return answers.answer_of(of, base, parts, self.tolerance)

    def frame(self, *, every: bool = False) -> pd.DataFrame:
        """Lay out the costs, exact, one row a page size; None is "not measured".

        Without ``every`` page size tested, the rows are the powers of two, those that engines take
        or fix, the best and the ends of the range.

        Returns
        -------
        DataFrame
            page_size; entries (a request and step); tail_slack_slots, metadata_slots,
            shared_lost_slots, read_slots and allocation_slots, means in slots; memory_slots,
            time_slots and total_slots; total_bytes (of the model); allocations_per_token and
            allocation_ns (of the host, a token); above_best (of the answer, a share) and near
            (within the tolerance); kernels (how many for this model's heads accept it).
        """
        import pandas as pd

        shown = {cost.page_size for cost in self.sizes} if every else self._shown
        columns = ("page_size", "entries", *TERMS, "memory_slots", "time_slots", "total_slots")
        rows = [
            {
                **{column: getattr(cost, column) for column in columns},
                "total_bytes": cost.total_slots * self.shape.bytes_per_token,
                "allocations_per_token": cost.allocations_per_token,
                "allocation_ns": self._allocation_ns(cost),
                "above_best": cost.total_slots / self.answer.cost_slots - 1,
                "near": cost.page_size in self.answer.near,
                "kernels": len(kernels_accepting(cost.page_size, latent=self.shape.latent)),
            }
            for cost in self.sizes
            if cost.page_size in shown
        ]
        return pd.DataFrame(rows, dtype=object)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: integers, and fractions and decimals as text.

        A fraction is written ``"3/14"``, an absent value is null, and a range without an end ends
        at ``"inf"``.
        """
        needs = (self.needs(size) for size in sorted(self._shown))
        document = {
            "trace": self.workload.name,
            "requests": self.workload.requests,
            "averaged_over": "growth" if self.workload.growth else "lengths as held",
            "steps": self.workload.steps,
            "mean_tokens": self.workload.mean_tokens,
            "model": self.shape.name,
            "kv_bytes_per_token": self.shape.bytes_per_token,
            "tolerance": self.tolerance,
            "kernel": self.kernel,
            "structures": self.structures,
            "c_slots": self.charges.c_slots,
            "read": self.read,
            "why_no_read": self.why_no_read or None,
            "prefix": self.prefix,
            "why_no_prefix": self.why_no_prefix or None,
            "answers": {
                "memory": self.memory,
                "time": self.time,
                "answer": self.answer,
                "at_the_ends_of_read": self.read_interval,
            },
            "in_both": self.in_both,
            "needs": [needed for needed in needs if needed is not None],
            "changes": self.changes,
            "sizes": [c._asdict() | {"total_slots": c.total_slots} for c in self.sizes],
        }
        return exact(document, floats=False)  # type: ignore[no-any-return]

    def text(self) -> str:
        """Return the answers as lines of plain text, the conclusion first."""
        workload, shape, c = self.workload, self.shape, self.charges.c_slots
        lines = [
            f"{workload.name} on {shape.name}: {workload.requests:,} requests hold "
            f"{number(workload.mean_tokens)} tokens on average "
            f"{'while they grow' if workload.growth else 'as held'}; "
            f"{shape.bytes_per_token:,} bytes a token"
        ]
        if self.kernel is not None:
            rule = page_size_rule(self.kernel)
            lines.append(f"Tested are page sizes that {rule.label} reads.")
        prefix = f"not measured ({self.why_no_prefix})"
        if self.prefix is not None:
            lost = self.cost(self.answer.best).shared_lost_slots or Fraction(0)
            found = workload.prefixes if self.prefix == "ids" else None
            prefix = answers.prefix_words(lost, self.answer.best, found)
        n_bytes, best = number(c * shape.bytes_per_token), self.answer.best
        lines += ["", *self._range_lines("Memory", self.memory), *self._time_lines(), ""]
        lines.append(f"Shared prefix lost to rounding: {prefix}")
        lines.append(f"A page costs {number(c)} slots ({n_bytes} bytes) as counted here.")
        lines += [answers.change_words(each, best, shape.bytes_per_token) for each in self.changes]
        return "\n".join(lines)

    def _range_lines(self, title: str, answer: Answer) -> Iterator[str]:
        tested = [cost.page_size for cost in self.sizes]
        return answers.answer_lines(title, answer, tested, self.tolerance)

    def _time_lines(self) -> list[str]:
        if self.read is None or self.time is None or self.read_interval is None:
            return [f"Time to read through the table: not measured ({self.why_no_read})"]
        both = answers.span_words(self.in_both)
        together = "Memory and time, a slot held for the time to read one"
        ends = [f"{end.low} to {end.high}" for end in self.read_interval if end is not None]
        no_end = ", and no end" * (len(ends) == 1)
        return [
            *self._range_lines("Time", self.time),
            *answers.read_lines(self.read),
            *self._range_lines(together, self.answer),
            f"  at the ends of the measured interval: {' and '.join(ends)}{no_end}",
            f"Near the best in memory and in time, each by itself: {both}",
        ]

    @property
    def _shown(self) -> set[int]:
        """Page sizes that a short table shows."""
        sizes = {cost.page_size for cost in self.sizes}
        ends = {each for a in (self.answer, self.memory) for each in (a.best, a.low, a.high)}
        return sizes & (ends | set(DEFAULT_PAGE_SIZES) | _engine_sizes())

    def _allocation_ns(self, cost: SizeCost) -> Fraction | None:
        seconds = None if self.read is None else self.read.allocation_s
        if seconds is None or cost.allocations_per_token is None:
            return None
        return 10**9 * exact_cost(seconds) * cost.allocations_per_token


def decide(
    trace: Workload | Trace | LengthMarginals | LengthsLike | str | Path,
    model: str | Model,
    *,
    page_sizes: Iterable[int] | None = None,
    metadata: str | Mapping[str, int] | Iterable[Structure] | None = "vllm",
    record: Record | None = None,
    peer: str | None = None,
    prefix: Prefix | None = "ids",
    held_together: int = 16,
    kernel: str | None = None,
    tolerance: CostLike = Fraction(1, 100),
) -> Decision:
    """Weigh all the costs of a page size for a trace and a model.

    Parameters
    ----------
    trace : Trace, LengthMarginals, lengths, str or Path
        As :func:`~kvledger.decision.workload.workload_of` takes it: a trace is
        averaged over growth, plain lengths are taken as held.
    model, page_sizes : str or Model, iterable of int
        Whose bytes a token turn bytes into slots; :func:`default_page_sizes` if none are given.
    metadata : str, mapping, iterable of Structure or None
        What is kept for pages, as :func:`~kvledger.models.engines.structures_of` takes it.
    record, peer : Record, str, optional
        A measurement of attention, and whose times of it. Without one, or without one of this
        model's heads, the time to read is absent. The record of a CPU is used as what it is: text
        and tables name its device.
    prefix : {"ids", "expected"} or None
        Shared prefixes lost to rounding: from the page ids of the trace where it has them; as the
        published expectation, which is an assumption; or left out.
    held_together : int
        Requests in a row that share prefixes, and the batch of structures that grow with it.
    kernel : str, optional
        Test only page sizes that this kernel reads: an id of
        :func:`~kvledger.models.engines.load_page_size_rules`.
    tolerance : int, float, Decimal or Fraction
        Accepted excess over the least cost, as a share of it.

    Raises
    ------
    LedgerError
        For bad lengths, page sizes, metadata, prefix, kernel or tolerance, an unknown model, or a
        kernel that reads none of the page sizes.

    Examples
    --------
    >>> decision = decide("azure_conv_2023", "Llama-3.1-8B")
    >>> decision.memory.best, decision.memory.low, decision.memory.high
    (2, 1, 28)
    >>> decision.memory.above.term, decision.read is None
    ('tail_slack_slots', True)
    """
    workload = workload_of(trace, held_together=held_together)
    shape = cache_shape(model)
    structures = structures_of(metadata)
    read, why_no_read = None, "there is no record from a GPU"
    if record is not None:
        try:
            read, why_no_read = read_time(record, shape, peer=peer), ""
        except LedgerError as error:
            why_no_read = str(error)
    why_no_prefix = ""
    if prefix is None:
        why_no_prefix = "left out as asked"
    elif prefix == "ids" and workload.prefixes is None:
        prefix, why_no_prefix = None, "the trace has no page ids"
    charges = charges_of(structures, shape, read, held_together=held_together)
    return Decision(
        workload=workload,
        shape=shape,
        structures=structures,
        charges=charges,
        read=read,
        why_no_read=why_no_read,
        prefix=prefix,
        why_no_prefix=why_no_prefix,
        sizes=size_costs(workload, charges, _sizes(page_sizes, kernel), prefix=prefix),
        tolerance=exact_cost(tolerance, "tolerance", "a share of at least 0"),
        kernel=kernel,
    )


@cache
def default_page_sizes() -> tuple[int, ...]:
    """Return the page sizes that are tested where none are given.

    Every one up to 256, multiples of 16 up to 1024, powers of two up to 4096, and those that
    engines take or fix.

    Examples
    --------
    >>> sizes = default_page_sizes()
    >>> sizes[0], 48 in sizes, 672 in sizes, sizes[-1]
    (1, True, True, 4096)
    """
    dense = {*range(1, 257), *range(16, 1025, 16)}
    return tuple(sorted(dense | set(DEFAULT_PAGE_SIZES) | _engine_sizes()))


def _engine_sizes() -> set[int]:
    rules = load_page_size_rules().values()
    listed = {size for rule in rules for size in rule.sizes}
    return listed | {rule.default for rule in rules if rule.default is not None}


def _sizes(page_sizes: Iterable[int] | None, kernel: str | None) -> list[int]:
    sizes = whole_page_sizes(default_page_sizes() if page_sizes is None else page_sizes)
    if kernel is None:
        return sizes
    rule = page_size_rule(kernel)
    accepted = [size for size in sizes if rule.accepts_size(size)]
    if not accepted:
        raise LedgerError(
            f"page_sizes are {', '.join(map(str, sizes[:8]))}; {rule.label} reads {rule.accepts}"
        )
    return accepted
