"""Page-size decisions side by side: over traces and models, over kernels, over measurements.

Every function returns a data frame for a chapter to show or draw. Shares, slots and costs are
exact fractions; what is not known is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pandas as pd

from kvledger.accounting.allocations import expected_tail_slack
from kvledger.core.errors import LedgerError
from kvledger.decision import Decision, decide
from kvledger.decision.answers import NOT_MEASURED, end_words, number, range_words, span_words
from kvledger.decision.page_costs import TERMS
from kvledger.decision.workload import Workload
from kvledger.models.engines import kernels_for, load_page_size_rules
from kvledger.models.shapes import Model

if TYPE_CHECKING:
    from kvledger.measure.record import Record

Workloads = Mapping[str, Workload]
_MEASURED = ["measured on", "device", "trace", "c", "c from", "c to", "a line", "off it", "spread"]
_MEASURED += ["memory", "time", "both", "added"]
_ENDS = {"best": "best", "low": "smallest near the best", "high": "largest near the best"}


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), dtype=object)


def answers(
    workloads: Workloads, models: Iterable[str | Model], *, page_size: int, **settings: Any
) -> pd.DataFrame:
    """Decide for every trace and model, by memory alone; settings are those of `decide`.

    Columns: trace, model, mean_tokens (held), kv_bytes_per_token, c_slots (a page's cost as
    counted), best, low, high, below and above (the part that decides at each end; None where no
    page size tested is too small or too large), excess_share (of ``page_size`` over the best).

    Examples
    --------
    >>> from kvledger.decision.workload import workload_of
    >>> three, a_quarter = {"three": workload_of([5, 9, 17])}, {"a page": 32768}
    >>> frame = answers(
    ...     three, ["Llama-3.1-8B"], page_size=4, metadata=a_quarter, page_sizes=[1, 2, 4]
    ... )
    >>> frame[["best", "above", "excess_share"]].iloc[0].tolist()
    [2, 'tail slack', Fraction(1, 9)]
    """
    rows, models = [], list(models)
    for name, workload in workloads.items():
        for model in models:
            decision = decide(workload, model, **settings)
            memory = decision.memory
            ends = {"below": memory.below, "above": memory.above}
            rows.append(
                {
                    "trace": name,
                    "model": decision.shape.name,
                    "mean_tokens": workload.mean_tokens,
                    "kv_bytes_per_token": decision.shape.bytes_per_token,
                    "c_slots": decision.charges.c_slots,
                    **{end: getattr(memory, end) for end in _ENDS},
                    **{at: None if end is None else TERMS[end.term] for at, end in ends.items()},
                    "excess_share": decision.cost(page_size).memory_slots / memory.cost_slots - 1,
                }
            )
    return _frame(rows)


def spread(frame: pd.DataFrame) -> pd.DataFrame:
    """Gather answers by trace: the least and the greatest over the models.

    Columns: trace, mean_tokens (in whose order the rows are), rule_high (the largest near the
    best, by :func:`rule_ends`), and for each of best, low and high the least and the greatest, as
    best_least and so on.
    """
    rows: list[dict[str, Any]] = []
    for name, group in frame.groupby("trace", sort=False):
        tokens = group["mean_tokens"].iloc[0]
        row = {"trace": name, "mean_tokens": tokens, "rule_high": rule_ends(tokens)[1]}
        for end in _ENDS:
            row |= {f"{end}_least": group[end].min(), f"{end}_greatest": group[end].max()}
        rows.append(row)
    return _frame(sorted(rows, key=lambda row: row["mean_tokens"]))


def moves(frame: pd.DataFrame) -> pd.DataFrame:
    """Say how far each answer moves with the trace alone, and with the model alone.

    Columns: answer (best, smallest, largest), least and greatest over all, trace_factor (the
    greatest ratio between two traces with the same model) and model_factor (between two models on
    the same trace). ``frame`` is as :func:`answers` gives it, every model for every trace.
    """
    rows = []
    for end, words in _ENDS.items():
        row = [words, frame[end].min(), frame[end].max()]
        for fixed in ("model", "trace"):
            groups = (group[end].tolist() for _, group in frame.groupby(fixed, sort=False))
            row.append(max(Fraction(max(each), min(each)) for each in groups))
        rows.append(row)
    columns = ["answer", "least", "greatest", "trace_factor", "model_factor"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def rule_ends(
    mean_tokens: Fraction, c_read: Fraction | None = None, tolerance: Fraction = Fraction(1, 100)
) -> tuple[Fraction | None, Fraction]:
    """Return where the two ranges end by rule of thumb: time from c / e, memory up to 1 + 2 e L.

    With remainders that are uniform and nothing else held for pages, slack is (p - 1) / 2 of the L
    tokens that a request holds on average; with c slots to read a page (the first is None without
    it), time is c / p of a token's. Each is the share e of its best at these page sizes.

    Examples
    --------
    >>> rule_ends(Fraction(1000), Fraction(1, 8))
    (Fraction(25, 2), Fraction(21, 1))
    """
    low = None if c_read is None else c_read / tolerance
    return low, 1 + 2 * tolerance * mean_tokens


def shares(decision: Decision, page_sizes: Iterable[int]) -> pd.DataFrame:
    """Divide each cost of each page size by the tokens held, one row a page size and cost.

    A cost that is absent has no row. Columns: page_size, cost, share, near (whether memory is
    within the tolerance).
    """
    tokens, near = decision.workload.mean_tokens, decision.memory.near
    return _frame(
        {"page_size": size, "cost": words, "share": slots / tokens, "near": size in near}
        for size in page_sizes
        for term, words in TERMS.items()
        if (slots := getattr(decision.cost(size), term)) is not None
    )


def least_token_bytes(decision: Decision, page_size: int) -> Fraction | None:
    """Return the bytes a token below which what is kept for pages rules a page size out.

    The same bytes a page are more slots on a model whose tokens take fewer bytes. None if no
    number of slots rules the page size out, or none lets it in.

    Examples
    --------
    >>> decision = decide([5, 9, 17], "Llama-3.1-8B", page_sizes=[1, 2, 4])
    >>> round(least_token_bytes(decision, 1))
    1068
    """
    needs = decision.needs(page_size)
    if needs is None or not isinstance(needs.c_to, Fraction) or not needs.c_to:
        return None
    return decision.charges.metadata_slots * decision.shape.bytes_per_token / needs.c_to


def memory_parts(decision: Decision) -> pd.DataFrame:
    """Lay out what memory is made of, one row a page size tested, in slots a request and step.

    Columns: page_size, tokens, tail_slack_slots, metadata_slots, memory_slots, above_best (a share
    of the best). A decision with shared prefixes is refused: what is shared is no part of what is
    held.
    """
    if decision.prefix is not None:
        raise LedgerError("prefixes are shared; parts that are held are laid out without sharing")
    frame = decision.frame(every=True)
    above = [slots / decision.memory.cost_slots - 1 for slots in frame["memory_slots"]]
    frame["above_best"] = pd.Series(above, dtype=object)
    frame.insert(1, "tokens", pd.Series([decision.workload.mean_tokens] * len(frame), dtype=object))
    parts = ["tail_slack_slots", "metadata_slots", "memory_slots"]
    return frame[["page_size", "tokens", *parts, "above_best"]]


def costs(decision: Decision, page_sizes: Iterable[int]) -> pd.DataFrame:
    """Write the costs of some page sizes for readers; what is absent says so.

    Columns: page size; tail slack, metadata, shared prefix lost, time to read, allocation (slots a
    request and step); allocations a token; allocation, ns a token; memory, above best (shares of
    the best).
    """
    frame = decision.frame(every=True).set_index("page_size").loc[list(page_sizes)].reset_index()
    least = decision.memory.cost_slots
    above = [slots / least - 1 for slots in frame["memory_slots"]]
    frame["memory_above_best"] = pd.Series(above, dtype=object)
    columns = {
        "page_size": "page size",
        **TERMS,
        "read_slots": "time to read",
        "allocations_per_token": "allocations a token",
        "allocation_ns": "allocation, ns a token",
        "memory_above_best": "memory above best",
        "above_best": "all above best",
    }
    shown = frame[list(columns)].rename(columns=columns).astype(object)
    return shown.where(shown.notna(), NOT_MEASURED)


def read_words(decision: Decision) -> str:
    """Say what reading a page through the table costs, or why that is not known.

    Examples
    --------
    >>> read_words(decide([5, 9, 17], "Llama-3.1-8B"))
    'not measured (there is no record from a GPU)'
    """
    read = decision.read
    if read is None:
        return f"{NOT_MEASURED} ({decision.why_no_read})"
    line = "" if read.straight else "; the times do not lie on a line"
    return (
        f"{number(read.c_slots)} slots a page (between {number(read.c_low)} and "
        f"{end_words(read)}) on {read.device}{line}"
    )


def read_interval(decision: Decision) -> tuple[float, float, float | None] | None:
    """Return the measured cost of reading and the ends of its interval, for a drawing."""
    if (read := decision.read) is None:
        return None
    high = None if read.c_high is None else float(read.c_high)
    return float(read.c_slots), float(read.c_low), high


def needed(
    workloads: Workloads, model: str | Model, chosen: Iterable[int], **settings: Any
) -> pd.DataFrame:
    """Ask of each trace what a page must cost for each chosen page size to be near the best.

    Columns: trace, mean_tokens, page_size, c_from, c_to and bytes_from, bytes_to of the model (c_to
    is None where the interval has no end; all are None if no cost does it), c_slots (as counted),
    met (whether what is counted is between the two).
    """
    chosen, rows = list(chosen), []
    for name, workload in workloads.items():
        decision = decide(workload, model, **settings)
        c, tokens = decision.charges.c_slots, workload.mean_tokens
        for size in chosen:
            needs = decision.needs(size)
            ends = (None, None) if needs is None else (needs.c_from, needs.c_to)
            slots = [end if isinstance(end, Fraction) else None for end in ends]
            n_bytes = [
                None if end is None else end * decision.shape.bytes_per_token for end in slots
            ]
            met = needs is not None and needs.c_from <= c <= needs.c_to
            rows.append([name, tokens, size, *slots, *n_bytes, c, met])
    columns = ["trace", "mean_tokens", "page_size", "c_from", "c_to", "bytes_from", "bytes_to"]
    return pd.DataFrame(rows, columns=[*columns, "c_slots", "met"], dtype=object)


def page_sizes_in_use() -> pd.DataFrame:
    """List what kernels accept and what page sizes are in use, with sources.

    Columns: who, what, accepts, heads (that it reads; None for any), default, note, source.
    """
    return _frame(
        {
            "who": rule.who,
            "what": rule.what,
            "accepts": rule.accepts if rule.kind == "kernel" else f"fixed: {rule.accepts}",
            "heads": {"kv": "K and V", "latent": "latent"}.get(rule.heads),
            "default": rule.default,
            "note": rule.note or None,
            "source": rule.source,
        }
        for rule in load_page_size_rules().values()
    )


def kernels(decision: Decision) -> pd.DataFrame:
    """Hold what each kernel for the model's heads accepts against a decision.

    Columns: kernel, accepts, default, near (page sizes it reads that are near the best), least
    (the one of those it reads that costs least), excess_share (what that costs above the best).
    """
    answer, rows = decision.answer, []
    for rule in kernels_for(decision.shape.latent):
        accepted = [cost for cost in decision.sizes if rule.accepts_size(cost.page_size)]
        if not accepted:
            continue
        least = min(accepted, key=lambda cost: (cost.total_slots, -cost.page_size))
        near = [size for size in answer.near if rule.accepts_size(size)]
        words = span_words(near) if len(near) > 3 else ", ".join(map(str, near)) or "none"
        excess = least.total_slots / answer.cost_slots - 1
        rows.append([rule.label, rule.accepts, rule.default, words, least.page_size, excess])
    columns = ["kernel", "accepts", "default", "near", "least", "excess_share"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def measured(
    records: Mapping[str, Record | None], workloads: Workloads, model: str | Model, **settings: Any
) -> pd.DataFrame:
    """Put what records say of the time to read beside memory, trace by trace.

    ``records`` are named by what they are of, such as "a GPU". Columns: measured on, device,
    trace, c, c from, c to (slots a page), a line ("yes" or "no"), off it and spread (of the worst
    page size and of its repetitions, shares), memory, time, both, added (ranges of page sizes near
    the best). One row says that nothing was measured where there is no record, or none of the
    model's heads.
    """
    rows: list[dict[str, object]] = []
    for kind, record in records.items():
        for name, workload in workloads.items():
            decision = decide(workload, model, record=record, **settings)
            read = decision.read
            if read is None:
                why = f"no record from {kind}" if record is None else decision.why_no_read
                absent = {"measured on": kind, "device": f"{NOT_MEASURED}: {why}"}
                rows.append(dict.fromkeys(_MEASURED) | absent)
                break  # of no trace
            line = "yes" if read.straight else "no"
            values: list[object] = [kind, read.device, name, read.c_slots, read.c_low, read.c_high]
            values += [line, read.residual_share, read.spread_share, range_words(decision.memory)]
            values += [range_words(decision.time), span_words(decision.in_both)]
            values += [range_words(decision.answer)]
            rows.append(dict(zip(_MEASURED, values, strict=True)))
    return pd.DataFrame(rows, columns=_MEASURED, dtype=object)


def lost_prefixes(decision: Decision, page_sizes: Iterable[int]) -> pd.DataFrame:
    """Lay what rounding loses of shared prefixes beside the slack, which is another matter.

    Columns: page_size, lost_slots (from page ids; None without), expected_slots ((p - 1) / 2, as
    if every request's common prefix ended anywhere), tail_slack_slots; a request and step each.
    """
    return _frame(
        {
            "page_size": cost.page_size,
            "lost_slots": cost.shared_lost_slots if decision.prefix == "ids" else None,
            "expected_slots": expected_tail_slack(cost.page_size),
            "tail_slack_slots": cost.tail_slack_slots,
        }
        for cost in map(decision.cost, page_sizes)
    )
