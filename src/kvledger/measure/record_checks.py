"""What must hold in a record beyond the types of its fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvledger.measure.record_fields import refuse

if TYPE_CHECKING:
    from kvledger.measure.record import CaseShape, Record, Timing

SCHEMA = 1
KIND = "attention"

#: How the pages of a timing lie: one page a request; pages in order; pages in a random order.
LAYOUTS = ("contiguous", "in_order", "random")


def check_record(record: Record) -> Record:
    """Return a record that holds together.

    Raises
    ------
    LedgerError
        Names the field, its value and what is accepted.
    """
    if record.schema != SCHEMA or record.kind != KIND:
        refuse("schema, kind", (record.schema, record.kind), f"{SCHEMA} and {KIND!r}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record.date):
        refuse("date", record.date, "a time such as 2026-11-29T18:00:00Z")
    if record.device.kind not in ("cpu", "cuda"):
        refuse("device.kind", record.device.kind, "cpu, cuda")
    for name, kind in (("quick", bool), ("seed", int), ("repetitions", int), ("page_sizes", list)):
        if not isinstance(record.settings.get(name), kind):
            refuse(f"settings.{name}", record.settings.get(name), f"a {kind.__name__}")
    _positive("copy.bytes", record.copy.bytes)
    _times("copy", record.copy.seconds)
    if not record.cases:
        refuse("cases", [], "at least one")
    cases: dict[str, CaseShape] = {}
    for index, case in enumerate(record.cases):
        _check_case(f"cases[{index}]", case, cases)
    _check_timings(record, cases)
    for index, work in enumerate(record.host):
        where = f"host[{index}]"
        for name in ("page_size", "requests", "tokens"):
            _positive(f"{where}.{name}", getattr(work, name))
        _times(where, work.seconds)
    for index, absence in enumerate(record.absent):
        if not absence.reason:
            refuse(f"absent[{index}].reason", absence.reason, "a reason")
    return record


def _check_case(where: str, case: CaseShape, before: dict[str, CaseShape]) -> None:
    if case.id in before:
        refuse(f"{where}.id", case.id, "each id once")
    before[case.id] = case
    for name in ("q_heads", "kv_heads", "head_dim", "value_dim", "batch", "tokens", "kv_bytes"):
        _positive(f"{where}.{name}", getattr(case, name))
    if (case.context_tokens is None) == (case.trace is None):
        refuse(f"{where}.context_tokens", case.context_tokens, "a context or a trace, not both")
    if case.context_tokens is not None and case.tokens != case.batch * case.context_tokens:
        refuse(f"{where}.tokens", case.tokens, f"{case.batch} x {case.context_tokens}")
    if case.lengths is not None and (sum(case.lengths), len(case.lengths)) != (
        case.tokens,
        case.batch,
    ):
        refuse(f"{where}.lengths", list(case.lengths), "as many as the batch, tokens in all")


def _check_timings(record: Record, cases: dict[str, CaseShape]) -> None:
    if not record.timings:
        refuse("timings", [], "at least one")
    seen: set[tuple[str, str, str, int]] = set()
    repetitions: dict[str, int] = {}
    for index, timing in enumerate(record.timings):
        where = f"timings[{index}]"
        if timing.case not in cases:
            refuse(f"{where}.case", timing.case, ", ".join(cases))
        if timing.layout not in LAYOUTS:
            refuse(f"{where}.layout", timing.layout, ", ".join(LAYOUTS))
        if timing.timed_by not in ("events", "host"):
            refuse(f"{where}.timed_by", timing.timed_by, "events, host")
        key = (timing.case, timing.peer, timing.layout, timing.page_size)
        if key in seen:
            refuse(where, " ".join(map(str, key)), "each case, peer, layout and page size once")
        seen.add(key)
        for name in ("page_size", "pages", "calls"):
            _positive(f"{where}.{name}", getattr(timing, name))
        case = cases[timing.case]
        pages = _pages(case, timing)
        if pages is not None and timing.pages != pages:
            refuse(f"{where}.pages", timing.pages, f"{pages}, what the case needs")
        if timing.moved_bytes < case.kv_bytes:
            refuse(
                f"{where}.moved_bytes", timing.moved_bytes, f"at least {case.kv_bytes}, its K and V"
            )
        if timing.relative_error < 0:
            refuse(f"{where}.relative_error", timing.relative_error, "at least 0")
        _times(where, timing.seconds)
        if repetitions.setdefault(timing.case, len(timing.seconds)) != len(timing.seconds):
            refuse(
                f"{where}.seconds",
                f"{len(timing.seconds)} repetitions",
                f"{repetitions[timing.case]}, as the others of the case",
            )


def _pages(case: CaseShape, timing: Timing) -> int | None:
    """Count the pages that a case needs; None where the record does not say its lengths."""
    if timing.layout == "contiguous":
        return case.batch
    if case.context_tokens is not None:
        return case.batch * -(-case.context_tokens // timing.page_size)
    if case.lengths is not None:
        return sum(-(-length // timing.page_size) for length in case.lengths)
    return None


def _times(where: str, seconds: tuple[float, ...]) -> None:
    if not seconds:
        refuse(f"{where}.seconds", [], "at least one repetition")
    for index, each in enumerate(seconds):
        if not each > 0:
            refuse(f"{where}.seconds[{index}]", each, "a time above 0")


def _positive(where: str, value: int) -> None:
    if value < 1:
        refuse(where, value, "a whole number, at least 1")
