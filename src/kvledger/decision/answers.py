"""Answers to which page size: a range near the best, its ends, what would change it; in words too.

Answers know only numbers, all exact: page sizes, their costs in slots, what each is made of. The
words for a decision that several commands, tables and pages write are all here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from kvledger.accounting.metadata import Interval
from kvledger.decision.page_costs import TERMS, ReadTime
from kvledger.decision.workload import CommonPrefixes

NOT_MEASURED = "not measured"
"""What stands in the place of a value that is absent."""


class End(NamedTuple):
    """The next page size tested beyond a range, and what it costs above the best.

    ``term`` is the part that grows most from the best to it, ``grows_slots`` by how much.
    """

    page_size: int
    excess_share: Fraction
    term: str
    grows_slots: Fraction


class Answer(NamedTuple):
    """The page sizes within a share of the best; no ``below`` or ``above`` where none is tested."""

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
    c_slots, mean_tokens : Fraction or None
        Where the two are even: all that a page costs, in slots; tokens a request holds on average,
        with every request longer or shorter by the same and the slack as it is. None if no cost is
        low enough, or no length does it.
    lost_slots : Fraction
        What the best would have to cost more for each request, through sharing lost or else.
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

    ``of`` says what is measured, ``base`` what every page size costs, in slots, and ``parts``,
    for each page size, ascending, what each part adds; ``tolerance`` is the share.

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
    costs that fulfil all of them are one interval, with exact ends; ``c_to`` may be ``math.inf``.
    None if no cost does it.

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
    """Return the cost of a page at which two page sizes cost the same; None if there is none."""
    if one.entries == other.entries:
        return None
    c = (other.held_slots - one.held_slots) / (one.entries - other.entries)
    return c if c >= 0 else None


# --------------------------------------------------------------------------- in words


def number(value: Fraction | float) -> str:
    """Write a number for a reader: three digits that count, and no exponent.

    Examples
    --------
    >>> number(Fraction(1, 3)), number(12345.6), number(Fraction(1, 10**5))
    ('0.333', '12,346', '0.00001')
    """
    exact = float(value)
    if abs(exact) >= 1000:
        return f"{exact:,.0f}"
    text = f"{exact:.3g}"
    return f"{exact:.10f}".rstrip("0") if "e" in text else text


def cell_words(column: str, value: Any) -> str:
    """Write a value of :meth:`~kvledger.Decision.frame` for a reader."""
    if value is None:
        return NOT_MEASURED
    if column == "near":
        return "yes" if value else "no"
    if column == "above_best":
        return f"{float(value):.2%}"
    return number(value) if isinstance(value, Fraction) else f"{value:,}"


def range_words(answer: Answer | None) -> str:
    """Write a range of page sizes, or that it was not measured."""
    if answer is None:
        return NOT_MEASURED
    return str(answer.best) if len(answer.near) == 1 else f"{answer.low} to {answer.high}"


def span_words(sizes: Sequence[int] | None) -> str:
    """Write the ends of some page sizes, or that there are none."""
    return f"{sizes[0]} to {sizes[-1]}" if sizes else "none"


def sentence(what: str, answer: Answer) -> str:
    """Say in one sentence which page sizes are within a percent of the best, and what ends them."""
    text = f"pages of {answer.best:,} are best, and no other is within a percent"
    if answer.low != answer.high:
        sizes = f"page sizes from {answer.low:,} to {answer.high:,}"
        text = f"{sizes} are within a percent of the best, {answer.best:,}"
    if answer.above is not None:
        text += f"; above, it is the {TERMS[answer.above.term]} that grows most"
    return f"{what}, {text}."


def answer_lines(
    title: str, answer: Answer, tested: Sequence[int], tolerance: Fraction
) -> Iterator[str]:
    """Say a range of page sizes in a line, and in one more for each of its ends what ends it."""
    share = f"{float(100 * tolerance):g}%"
    if len(answer.near) == 1:
        yield f"{title}: {answer.best} is best, and no other is within {share} of it"
    else:
        out = sum(answer.low <= size <= answer.high for size in tested) - len(answer.near)
        but = f", but for {out} of the page sizes between" if out else ""
        near = f"{title}: {answer.low} to {answer.high}"
        yield f"{near} are within {share} of the best, {answer.best}{but}"
    for words, end in (("below", answer.below), ("above", answer.above)):
        if end is None:
            yield f"  {words}: no page size was tested"
        else:
            yield (
                f"  {words}: {end.page_size} costs {number(100 * end.excess_share)}% more; "
                f"{TERMS[end.term]} grows most, by {number(end.grows_slots)} slots a request"
            )


def read_lines(read: ReadTime) -> Iterator[str]:
    """Say where the cost of reading a page was measured, and how well."""
    where = "" if read.on_gpu else ", a CPU: it says nothing of a GPU"
    yield (
        f"  measured on {read.device}{where}: {read.peer} on {read.case}, "
        f"{number(read.c_slots)} slots a page ({number(read.c_low)} to {end_words(read)}); off "
        f"the line by {number(100 * read.residual_share)}% at worst, where repetitions spread by "
        f"{number(100 * read.spread_share)}%"
    )
    if not read.straight:
        yield "  the times do not lie on a line: a page's cost is not one number"


def end_words(read: ReadTime) -> str:
    """Write the upper end of the measured cost of reading a page."""
    return "no end" if read.c_high is None else number(read.c_high)


def prefix_words(lost_slots: Fraction, page_size: int, prefixes: CommonPrefixes | None) -> str:
    """Say what rounding loses of shared prefixes, from page ids or as an assumption."""
    words = f"{number(lost_slots)} slots a request at {page_size}"
    if prefixes is None:
        return f"{words}, an assumption: each request's common prefix ends anywhere in a page"
    return (
        f"{words}, from page ids of {prefixes.ids_size} tokens among {prefixes.held_together} "
        "requests in a row; what is common within an id is not seen"
    )


def change_words(change: Change, best: int, bytes_per_token: int) -> str:
    """Say what would have to be different for another page size to be as good as the best."""
    ways = []
    if change.c_slots is not None:
        n_bytes = number(change.c_slots * bytes_per_token)
        ways.append(f"a page cost {number(change.c_slots)} slots ({n_bytes} bytes)")
    if change.mean_tokens is not None:
        ways.append(f"requests held {number(change.mean_tokens)} tokens on average")
    if change.page_size < best:
        ways.append(f"rounding lost {number(change.lost_slots)} slots more of a request's prefix")
    how = f"if {', or '.join(ways)}" if ways else "no cost a page and no length does it"
    return f"For {change.page_size} to be as good: {how}."
