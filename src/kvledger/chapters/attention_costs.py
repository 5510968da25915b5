"""A page's cost in time beside the costs at which page sizes change places on real traces."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pandas as pd

from kvledger.accounting.allocations import page_counts
from kvledger.accounting.metadata import best_page_size, c_for_page_size
from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters.attention_report import (
    NOTHING,
    PLACED,
    measured_text,
    peer_label,
    quartiles,
    ratios,
    rows_or_nothing,
    share,
    sweep_of,
    view,
)
from kvledger.core.errors import LedgerError
from kvledger.measure.fit import MIN_PAGE_SIZES, Layout, PageCost, StepCost, page_cost, page_steps
from kvledger.measure.record import CaseShape, Record
from kvledger.traces import LengthMarginals
from proofbook.formats import format_value

Traces = Mapping[str, LengthMarginals]
LAYOUTS: tuple[Layout, ...] = ("random", "in_order")


def fitted(record: Record | None, layout: Layout = "random") -> PageCost | None:
    """Fit the main case's sweep of the peer in view; None where there is none to fit."""
    seen = view(record)
    return None if seen is None else _fit(*seen, layout)[0]


def _fit(
    record: Record, peer: str, layout: Layout, case: str | None = None
) -> tuple[PageCost | None, str]:
    """Return the fit of one sweep, of the main case if no other is named, or why there is none."""
    case = case or record.main_case.id
    if len(sweep_of(record, peer, layout, case)) < MIN_PAGE_SIZES:
        return None, "too few page sizes"
    try:
        return page_cost(record, case, peer, layout), ""
    except LedgerError as error:
        return None, str(error).split("; accepted")[0]


def verdict(record: Record | None) -> str:
    """Say whether the main sweep lies on a line, and how far the worst page size is off it."""
    cost = fitted(record)
    if cost is None:
        return "Whether the times lie on a line is open."
    size = cost.tokens / cost.residual_pages
    worst = (
        f"the page size furthest from it, about {measured_text(size, '.0f')}, is off by "
        f"{measured_text(cost.residual_share, '.1%')}, and its repetitions spread by "
        f"{measured_text(cost.spread_share, '.1%')}"
    )
    if cost.straight:
        return f"The line describes the times: {worst}."
    return f"The line does not describe the times: {worst}. The cost of a page is not one number."


def interval(cost: PageCost | None) -> str:
    """Write c with its interval.

    Examples
    --------
    >>> interval(None)
    'not measured'
    """
    if cost is None:
        return NOTHING
    words = _with_interval(cost, "between {} and {}")
    return words if cost.straight else f"{words}, though the times are not on a line"


def _with_interval(cost: PageCost | StepCost, form: str = "{} to {}") -> str:
    ends = form.format(measured_text(cost.c_low, ".3f"), measured_text(cost.c_high, ".3f"))
    return f"{measured_text(cost.c_slots, '.3f')} ({ends})"


def points(record: Record | None) -> pd.DataFrame:
    """Lay out the main sweep of the peer in view, both placements, beside its lines.

    Columns: layout, page_size, pages, ms (median and quartiles), line_ms, off (of the median from
    the line, as a share of the line), off_low, off_high (of the quartiles), c, c_low, c_high,
    straight.
    """
    columns = (
        *("layout", "page_size", "pages", "ms", "ms_low", "ms_high", "line_ms"),
        *("off", "off_low", "off_high", "c", "c_low", "c_high", "straight"),
    )
    seen = view(record)
    rows: list[dict[str, object]] = []
    if seen is None:
        return rows_or_nothing(columns, rows)
    for layout in LAYOUTS:
        cost = _fit(*seen, layout)[0]
        for timing in sweep_of(*seen, layout):
            low, ms, high = quartiles([1e3 * seconds for seconds in timing.seconds])
            row: dict[str, object] = {"layout": layout, "page_size": timing.page_size}
            row |= {"pages": timing.pages, "ms": ms, "ms_low": low, "ms_high": high}
            if cost is not None:
                line = 1e3 * cost.seconds(timing.pages)
                row |= {"line_ms": line, "off": ms / line - 1}
                row |= {"off_low": low / line - 1, "off_high": high / line - 1}
                row |= {"c": cost.c_slots, "c_low": cost.c_low, "c_high": cost.c_high}
                row["straight"] = "yes" if cost.straight else "no"
            rows.append(row)
    return rows_or_nothing(columns, rows)


def fits(record: Record | None) -> pd.DataFrame:
    """Fit every sweep of the main case.

    Columns: peer, pages placed, page sizes, ns a page, c (with its interval), off the line (of the
    page size that is furthest off), a line (yes or no, or why nothing was fitted).
    """
    columns = ("peer", "pages placed", "page sizes", "ns a page", "c", "off the line", "a line")
    rows: list[dict[str, object]] = []
    if record is None:
        return rows_or_nothing(columns, rows)
    for peer in dict.fromkeys(t.peer for t in record.timings):
        for layout in LAYOUTS:
            sizes = [t.page_size for t in sweep_of(record, peer, layout)]
            if not sizes:
                continue
            cost, why = _fit(record, peer, layout)
            row: dict[str, object] = {"peer": peer_label(peer), "pages placed": PLACED[layout]}
            row["page sizes"] = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
            row["a line"] = why or None
            if cost is not None:
                row |= {"ns a page": 1e9 * cost.b_s_per_page, "c": _with_interval(cost)}
                row["off the line"] = cost.residual_share
                row["a line"] = "yes" if cost.straight else "no"
            rows.append(row)
    return rows_or_nothing(columns, rows)


def cases(record: Record | None) -> pd.DataFrame:
    """Lay out every case for the peer in view, pages placed at random.

    Columns: shape, batch (requests and the tokens of each, or the trace), contiguous ms (of what
    it is held against), then times at page size 1, 16 and 256, the share of the copy bandwidth at
    16, and the fitted c with its interval where three page sizes or more were timed.
    """
    sizes = (1, 16, 256)
    times = [f"at {size}" for size in sizes]
    columns = ["shape", "batch", "contiguous, ms", *times, "share at 16", "c"]
    seen = view(record)
    rows: list[dict[str, object]] = []
    if seen is None:
        return rows_or_nothing(columns, rows)
    record, peer = seen
    for case in record.cases:
        found = {t.page_size: t for t in sweep_of(record, peer, case=case.id)}
        if not found:
            continue
        base = record.baseline(next(iter(found.values())))
        row: dict[str, object] = {
            "shape": case.shape,
            "batch": _batch(case),
            "contiguous, ms": None if base is None else 1e3 * base.median_s,
            "share at 16": share(record, found[16]) if 16 in found else None,
        }
        for size in sizes:
            if size in found and base is not None:
                row[f"at {size}"] = quartiles(ratios(found[size], base))[1]
        cost = _fit(record, peer, "random", case.id)[0]
        if cost is not None:
            row["c"] = _with_interval(cost)
        rows.append(row)
    return rows_or_nothing(columns, rows)


def _batch(case: CaseShape) -> str:
    if case.context_tokens is not None:
        return f"{case.batch} x {case.context_tokens}"
    return f"{case.batch} of {TRACE_LABELS.get(str(case.trace), str(case.trace))}"


def steps(record: Record | None, traces: Traces) -> pd.DataFrame:
    """Compare what a page costs between neighbouring page sizes with what it must cost there.

    Columns: pages of (smaller or larger), c (measured between them, with its interval), then one
    column a trace: which of the two is better, if the whole interval says so, and the c above which
    the larger is.
    """
    labels = {name: TRACE_LABELS.get(name, name) for name in traces}
    columns = ["pages of", "c", *labels.values()]
    seen = view(record)
    if seen is None or len(sweep_of(*seen)) < 2:
        return rows_or_nothing(columns, [])
    rows = []
    for step in page_steps(seen.record, seen.record.main_case.id, seen.peer):
        row: dict[str, object] = {"pages of": f"{step.smaller} or {step.larger}"}
        row["c"] = _with_interval(step)
        for name, marginals in traces.items():
            needed = even_c(marginals, step.smaller, step.larger)
            so = _so(step.c_low, step.c_high, needed)
            row[labels[name]] = f"{so}: {format_value(needed, '.4f')}"
        rows.append(row)
    return rows_or_nothing(columns, rows)


def even_c(marginals: LengthMarginals, smaller: int, larger: int) -> Fraction:
    """Return the cost per page at which two page sizes cost the same on a trace's final lengths.

    Examples
    --------
    >>> from kvledger.traces import load_lengths
    >>> round(float(even_c(load_lengths("azure_conv_2023"), 8, 16)), 4)
    0.0465
    """
    counts = page_counts(marginals.total, [smaller, larger])
    slots = larger * counts[larger] - smaller * counts[smaller]
    return Fraction(slots, counts[smaller] - counts[larger])


def _so(low: float, high: float, needed: Fraction) -> str:
    if low > needed:
        return "larger"
    return "smaller" if high < needed else "open"


def best_sizes(record: Record | None, traces: Traces, page_size: int) -> pd.DataFrame:
    """Put the fitted c, and the ends of its interval, into the exact costs of each trace.

    Columns: trace, the interval of c for which ``page_size`` is best of those measured, and the
    best page size at the low end of the measured interval, at c and at the high end. A cost below
    nothing counts as nothing.
    """
    needs = [f"{page_size} is best from c", f"{page_size} is best to c"]
    columns = ["trace", *needs, "best at the low end", "best at c", "best at the high end"]
    seen, cost = view(record), fitted(record)
    if seen is None or cost is None:
        return rows_or_nothing(columns, [])
    sizes = [t.page_size for t in sweep_of(*seen)]
    rows = []
    for name, marginals in traces.items():
        row: dict[str, object] = {"trace": TRACE_LABELS.get(name, name)}
        if page_size in sizes:
            needed = c_for_page_size(marginals.total, page_size, sizes)
            if needed is not None:
                last = float(needed.c_to)
                row |= {needs[0]: needed.c_from, needs[1]: last if np.isfinite(last) else None}
        ends = (cost.c_low, cost.c_slots, cost.c_high)
        for column, c in zip(columns[3:], ends, strict=True):
            if np.isfinite(c):
                row[column] = best_page_size(marginals.total, max(c, 0.0), sizes).page_size
        rows.append(row)
    return rows_or_nothing(columns, rows)
