"""A page-size decision in words, and as JSON holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvledger.decision.answers import Answer, Change
from kvledger.decision.page_costs import TERMS
from kvledger.models.engines import page_size_rule

if TYPE_CHECKING:
    from kvledger.decision.decide import Decision

__all__ = ["plain", "text_of"]


def plain(value: object) -> Any:
    """Turn a result into what JSON holds, without losing a digit: fractions and decimals as text.

    Examples
    --------
    >>> plain((3, Fraction(3, 14), 0.1, None))
    [3, '3/14', '0.1', None]
    """
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def text_of(decision: Decision) -> str:
    """Write a decision as lines of text, the conclusion first."""
    return "\n".join(_lines(decision))


def _lines(decision: Decision) -> Iterator[str]:
    workload, shape = decision.workload, decision.shape
    how = "while they grow" if workload.growth else "as held"
    yield (
        f"{workload.name} on {shape.name}: {workload.requests:,} requests hold "
        f"{number(workload.mean_tokens)} tokens on average {how}; "
        f"{shape.bytes_per_token:,} bytes a token"
    )
    if decision.kernel is not None:
        yield f"Tested are page sizes that {page_size_rule(decision.kernel).label} reads."
    yield ""
    yield from _answer_lines(decision, "Memory", decision.memory)
    yield from _time_lines(decision)
    yield ""
    yield f"Shared prefix lost to rounding: {_prefix_words(decision)}"
    c = decision.charges.c_slots
    yield (
        f"A page costs {number(c)} slots ({number(c * shape.bytes_per_token)} bytes) as "
        "counted here."
    )
    for change in decision.changes:
        yield from _change_lines(decision, change)


def _answer_lines(decision: Decision, title: str, answer: Answer) -> Iterator[str]:
    share = f"{float(100 * decision.tolerance):g}%"
    if len(answer.near) == 1:
        yield f"{title}: {answer.best} is best, and no other is within {share} of it"
    else:
        between = sum(answer.low <= cost.page_size <= answer.high for cost in decision.sizes)
        out = between - len(answer.near)
        but = f", but for {out} of the page sizes between" if out else ""
        yield (
            f"{title}: {answer.low} to {answer.high} are within {share} of the best, "
            f"{answer.best}{but}"
        )
    for words, end in (("below", answer.below), ("above", answer.above)):
        if end is None:
            yield f"  {words}: no page size was tested"
        else:
            yield (
                f"  {words}: {end.page_size} costs {number(100 * end.excess_share)}% more; "
                f"{TERMS[end.term]} grows most, by {number(end.grows_slots)} slots a request"
            )


def _time_lines(decision: Decision) -> Iterator[str]:
    read, time = decision.read, decision.time
    if read is None or time is None:
        yield f"Time to read through the table: not measured ({decision.why_no_read})"
        return
    yield from _answer_lines(decision, "Time", time)
    where = "" if read.on_gpu else ", a CPU: it says nothing of a GPU"
    high = "no end" if read.c_high is None else number(read.c_high)
    yield (
        f"  measured on {read.device}{where}: {read.peer} on {read.case}, "
        f"{number(read.c_slots)} slots a page ({number(read.c_low)} to {high}); off the line by "
        f"{number(100 * read.residual_share)}% at worst, where repetitions spread by "
        f"{number(100 * read.spread_share)}%"
    )
    if not read.straight:
        yield "  the times do not lie on a line: a page's cost is not one number"
    title = "Memory and time, a slot held for the time to read one"
    yield from _answer_lines(decision, title, decision.answer)
    least, most = decision.read_interval or (decision.answer, None)
    ends = [least] if most is None else [least, most]
    ranges = " and ".join(f"{each.low} to {each.high}" for each in ends)
    yield f"  at the ends of the measured interval: {ranges}{', and no end' * (most is None)}"
    both = decision.in_both or ()
    found = f"{both[0]} to {both[-1]}" if both else "none"
    yield f"Near the best in memory and in time, each by itself: {found}"


def _prefix_words(decision: Decision) -> str:
    if decision.prefix is None:
        return f"not measured ({decision.why_no_prefix})"
    best = decision.answer.best
    lost = decision.cost(best).shared_lost_slots or Fraction(0)
    words = f"{number(lost)} slots a request at {best}"
    prefixes = decision.workload.prefixes
    if decision.prefix == "expected" or prefixes is None:
        return f"{words}, an assumption: each request's common prefix ends anywhere in a page"
    return (
        f"{words}, from page ids of {prefixes.ids_size} tokens among {prefixes.held_together} "
        "requests in a row; what is common within an id is not seen"
    )


def _change_lines(decision: Decision, change: Change) -> Iterator[str]:
    conditions = []
    if change.c_slots is not None:
        n_bytes = number(change.c_slots * decision.shape.bytes_per_token)
        conditions.append(f"a page cost {number(change.c_slots)} slots ({n_bytes} bytes)")
    if change.mean_tokens is not None:
        conditions.append(f"requests held {number(change.mean_tokens)} tokens on average")
    if change.page_size < decision.answer.best:
        lost = number(change.lost_slots)
        conditions.append(f"rounding lost {lost} slots more of a request's prefix")
    if conditions:
        yield f"For {change.page_size} to be as good: if {', or '.join(conditions)}."
    else:
        yield f"For {change.page_size} to be as good: no cost a page and no length does it."


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
