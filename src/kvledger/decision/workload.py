"""A trace as a page size sees it: what is held step by step, what is allocated, what is shared.

A request holds each length from its prompt to its end for one step, and all steps of all requests
count the same: so memory is averaged as a batch that decodes holds it. Counted so, a trace is one
table of lengths, and slack and pages follow from it as from any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from kvledger.accounting.allocations import page_counts
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import (
    IntArray,
    LengthsLike,
    LengthTable,
    as_lengths,
    check_growth,
    exact_dot,
    exact_sum,
    is_counts,
    whole,
)
from kvledger.traces import LengthMarginals, Trace, load_lengths

#: Longest request whose growth is averaged; the table of held lengths has an entry for each.
LONGEST = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class CommonPrefixes:
    """How long the prefixes are that requests share with those held together with them.

    ``tokens`` (shape (k,)) are the different lengths of a common prefix, as far as the page ids
    show it, and ``steps`` those of the requests whose prefix has that length. ``held_together``
    requests in a row were taken as held together; a page id stands for ``ids_size`` tokens.
    """

    tokens: IntArray
    steps: IntArray
    held_together: int
    ids_size: int

    @property
    def token_steps(self) -> int:
        """Tokens that sharing at the ids' own page size spares, over all requests and steps."""
        return exact_dot(self.tokens, self.steps, "shared tokens")

    def lost_token_steps(self, page_size: int) -> int:
        """Return what is no longer shared with other pages than the ids', over requests and steps.

        Larger pages round each prefix down to whole pages: exact if a page is several ids long,
        else the most it can be, as part of the last id's tokens might have filled one page more.
        Smaller pages are taken to share what the ids share: nothing says how much more they may.

        Examples
        --------
        >>> prefixes = CommonPrefixes(np.array([0, 512, 1024]), np.array([3, 1, 5]), 16, 512)
        >>> [prefixes.lost_token_steps(size) for size in (24, 512, 672, 1024)]
        [0, 0, 2272, 512]
        """
        if page_size <= self.ids_size:
            return 0
        return exact_dot(self.tokens % page_size, self.steps, "lost tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """What a page-size decision needs of a trace.

    Attributes
    ----------
    name, requests : str, int
        What it is called, and how many requests it has.
    held, growth : LengthTable, bool
        How many requests and steps hold each length, and whether these are averaged over growth;
        else they are as held, one step a request.
    ended, started : LengthTable
        Lengths at which requests end and at which they start to decode (None without growth).
    prefixes : CommonPrefixes or None
        Prefixes in common, where page ids say so.
    """

    name: str
    requests: int
    held: LengthTable
    growth: bool
    ended: LengthTable
    started: LengthTable | None = None
    prefixes: CommonPrefixes | None = None

    @property
    def steps(self) -> int:
        """Steps of all requests."""
        return self.held.n_requests

    @property
    def token_steps(self) -> int:
        """Tokens held, summed over requests and steps."""
        return self.held.total_tokens

    @property
    def mean_tokens(self) -> Fraction:
        """Tokens a request holds, averaged over requests and steps."""
        return self.held.mean_tokens

    @property
    def new_tokens(self) -> int:
        """Tokens that requests grow by; without growth, all they hold."""
        before = 0 if self.started is None else self.started.total_tokens
        return self.ended.total_tokens - before

    def page_steps(self, page_sizes: Iterable[int]) -> dict[int, int]:
        """Count the pages that requests list in their page tables, summed over steps."""
        return _counted(self.held, tuple(page_sizes))

    def allocations(self, page_sizes: Iterable[int]) -> dict[int, int]:
        """Count the pages given out while requests grow; without growth, all of them.

        Examples
        --------
        >>> workload_of(Trace([5, 8], [4, 1])).allocations([4])
        {4: 2}
        """
        sizes = tuple(page_sizes)
        ended = _counted(self.ended, sizes)
        if self.started is None:
            return ended
        started = _counted(self.started, sizes)
        return {size: ended[size] - started[size] for size in ended}


@lru_cache(maxsize=64)
def _counted(table: LengthTable, page_sizes: tuple[int, ...]) -> dict[int, int]:
    """Count pages once where one trace meets many models; a table is known by its identity."""
    return page_counts(table, page_sizes)


def held_lengths(starts: LengthTable, ends: LengthTable) -> LengthTable:
    """Count how many requests and steps hold each length while requests grow.

    A request holds a length if it started at or below it and has not ended below it. So two
    separate histograms, of starts and of ends, are enough. Raises LedgerError if a request would
    shrink, or is longer than 2^24 tokens.

    Examples
    --------
    >>> held = held_lengths(as_lengths([5, 6]), as_lengths([7, 6]))
    >>> held.tokens, held.requests
    (array([5, 6, 7]), array([1, 2, 1]))
    """
    check_growth(starts, ends, ("prompt lengths", "final lengths"))
    longest = ends.max_tokens
    if longest > LONGEST:
        raise LedgerError(
            f"the longest request has {longest} tokens; growth is averaged up to {LONGEST}"
        )
    change = np.zeros(longest + 2, dtype=np.int64)
    np.add.at(change, starts.tokens, starts.requests)
    np.add.at(change, ends.tokens + 1, -ends.requests)
    holding = np.cumsum(change[:-1])
    tokens = np.flatnonzero(holding)
    return LengthTable(tokens, holding[tokens])


def common_prefixes(trace: Trace, held_together: int) -> CommonPrefixes | None:
    """Find how many leading tokens each request has in common with one held together with it.

    The trace is cut into groups of so many requests in a row, as
    :func:`~kvledger.neighbour_sharing` cuts it; a request shares with those ahead of it in its
    group. Only complete blocks of its prompt count. A request weighs as many steps as it holds
    its prefix for. None if the trace has no page ids.

    Examples
    --------
    >>> trace = Trace([8, 9, 8], [0, 1, 0], page_ids=[[0, 1], [0, 2], [0, 1]], page_ids_size=4)
    >>> found = common_prefixes(trace, 3)
    >>> found.tokens, found.steps
    (array([0, 4, 8]), array([1, 2, 1]))
    """
    if trace.page_ids is None or trace.page_ids_size is None:
        return None
    size, group = trace.page_ids_size, _held_together(held_together)
    steps_of: Counter[int] = Counter()
    seen: set[int] = set()
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    for i, (ids, prompt, output) in enumerate(zip(trace.page_ids, prompts, outputs, strict=True)):
        if i % group == 0:
            seen = set()
        complete = ids[: prompt // size]
        blocks = next((k for k, id in enumerate(complete) if id not in seen), len(complete))
        seen.update(complete)
        steps_of[blocks * size] += output + 1
    tokens, steps = np.array(sorted(steps_of.items()), dtype=np.int64).T
    exact_sum(steps, "steps")
    return CommonPrefixes(tokens, steps, group, size)


def workload_of(
    trace: Workload | Trace | LengthMarginals | LengthsLike | str | Path,
    *,
    held_together: int = 16,
) -> Workload:
    """Reduce a trace, or lengths in any accepted form, to what a page-size decision needs.

    A trace grows: lengths are averaged from prompt to end. Plain lengths or counts are taken as
    requests hold them. A name or path is read by :func:`~kvledger.load_lengths`. Where there are
    page ids, ``held_together`` requests in a row share prefixes.

    Examples
    --------
    >>> workload_of(Trace([5, 6], [2, 0], name="two")).mean_tokens
    Fraction(6, 1)
    >>> workload_of([5, 9, 17]).mean_tokens
    Fraction(31, 3)
    """
    _held_together(held_together)
    if isinstance(trace, Workload):
        return trace
    if isinstance(trace, str | Path):
        trace = load_lengths(trace)
    prefixes = None
    if isinstance(trace, Trace):
        prefixes = common_prefixes(trace, held_together)
        trace = LengthMarginals(
            trace.name or "the trace", as_lengths(trace.prompt_tokens), as_lengths(trace)
        )
    if isinstance(trace, LengthMarginals):
        held = held_lengths(trace.prompt, trace.total)
        return Workload(
            trace.name, trace.n_requests, held, True, trace.total, trace.prompt, prefixes
        )
    table = as_lengths(trace)
    name = "the counts" if is_counts(trace) else f"{table.n_requests} lengths"
    return Workload(name, table.n_requests, table, False, table)


def _held_together(value: object) -> int:
    return whole(
        value, "held_together", minimum=1, accepted="a whole number of requests, at least 1"
    )
