"""Answers to which page size: a range near the best, its ends, and what would change it.

Everything here is exact and knows only numbers: page sizes, their costs in slots, and what each
is made of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from kvledger.accounting.metadata import Interval

__all__ = ["Answer", "Change", "End", "Line", "answer_of", "even_c", "tolerated"]


class End(NamedTuple):
    """Where a range ends: the next page size tested, and what it costs too much.

    ``excess_share`` is what it costs above the best, ``term`` the part that grows most from the
    best to it, and ``grows_slots`` by how much.
    """

    page_size: int
    excess_share: Fraction
    term: str
    grows_slots: Fraction


class Answer(NamedTuple):
    """The page sizes within a share of the best, by one measure.

    ``below`` and ``above`` are None where the smallest or the largest page size tested is good
    enough.
    """

    of: str
    best: int
    cost_slots: Fraction
    near: tuple[int, ...]
    below: End | None
    above: End | None

    @property
    def low(self) -> int:
        """The smallest page size that is good enough."""
        return self.near[0]

    @property
    def high(self) -> int:
        """The largest page size that is good enough."""
        return self.near[-1]


class Change(NamedTuple):
    """What would have to be different for another page size to be as good as the best.

    Attributes
    ----------
    page_size : int
        The other page size.
    c_slots : Fraction or None
        All that a page costs, in slots, where the two are even. None if no cost is low enough.
    mean_tokens : Fraction or None
        Tokens a request holds on average where they are even, with every request longer or
        shorter by the same and the slack as it is. None if no length does it.
    lost_slots : Fraction
        What the best would have to cost more for each request, through sharing lost or anything
        else.
    diverging_share : Fraction or None
        The share of requests that would have to lose (p - 1) / 2 tokens of a prefix to do that.
        None if all of them would not be enough, or if sharing favours the best.
    """

    page_size: int
    c_slots: Fraction | None
    mean_tokens: Fraction | None
    lost_slots: Fraction
    diverging_share: Fraction | None


class Line(NamedTuple):
    """A page size's cost as a line in the cost of a page: held + c x entries."""

    held_slots: Fraction
    entries: Fraction


def answer_of(
    of: str, base: Fraction, parts: Mapping[int, Mapping[str, Fraction]], tolerance: Fraction
) -> Answer:
    """Find the page sizes within a share of the best; of those that cost the same, the larger.

    Parameters
    ----------
    of : str
        What is measured.
    base : Fraction
        What every page size costs, in slots.
    parts : mapping of int to mapping of str to Fraction
        For each page size, ascending, what each part adds.
    tolerance : Fraction
        Accepted excess over the least cost, as a share of it.

    Examples
    --------
    >>> parts = {size: {"slack": Fraction(size), "table": Fraction(16, size)} for size in (2, 4, 8)}
    >>> answer = answer_of("memory", Fraction(92), parts, Fraction(1, 100))
    >>> answer.best, answer.near, answer.above.page_size, answer.above.term
    (4, (4,), 8, 'slack')
    """
    costs = {size: base + sum(part.values()) for size, part in parts.items()}
    best = min(costs, key=lambda size: (costs[size], -size))
    near = [size for size in costs if costs[size] <= costs[best] * (1 + tolerance)]
    tested = list(costs)

    def end(place: int) -> End | None:
        if not 0 <= place < len(tested):
            return None
        size = tested[place]
        grown = {part: slots - parts[best][part] for part, slots in parts[size].items()}
        most = max(grown, key=lambda part: grown[part])
        return End(size, costs[size] / costs[best] - 1, most, grown[most])

    below, above = tested.index(near[0]) - 1, tested.index(near[-1]) + 1
    return Answer(of, best, costs[best], tuple(near), end(below), end(above))


def tolerated(page_size: int, lines: Mapping[int, Line], tolerance: Fraction) -> Interval | None:
    """Return the costs of a page for which a page size is within a share of the best.

    Being within a share of one other page size is an inequality that is linear in the cost. The
    costs that fulfil all of them are one interval, with exact ends.

    Returns
    -------
    Interval or None
        ``c_from <= c <= c_to``; ``c_to`` may be ``math.inf``. None if no cost does it.

    Examples
    --------
    >>> lines = {1: Line(Fraction(31), Fraction(31)), 4: Line(Fraction(40), Fraction(10))}
    >>> tolerated(4, lines, Fraction(1, 100))
    Interval(page_size=4, c_from=Fraction(869, 2131), c_to=inf)
    """
    mine, times = lines[page_size], 1 + tolerance
    low = Fraction(0)
    high: Fraction | None = None
    for other in lines.values():
        room = times * other.held_slots - mine.held_slots
        slope = mine.entries - times * other.entries
        if slope > 0:
            high = room / slope if high is None else min(high, room / slope)
        elif slope < 0:
            low = max(low, room / slope)
        elif room < 0:
            return None
    if high is not None and high < low:
        return None
    return Interval(page_size, low, math.inf if high is None else high)


def even_c(one: Line, other: Line) -> Fraction | None:
    """Return the cost of a page at which two page sizes cost the same; None if there is none.

    Examples
    --------
    >>> even_c(Line(Fraction(31), Fraction(31)), Line(Fraction(40), Fraction(10)))
    Fraction(3, 7)
    """
    if one.entries == other.entries:
        return None
    c = (other.held_slots - one.held_slots) / (one.entries - other.entries)
    return c if c >= 0 else None
