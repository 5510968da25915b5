"""What each part of the report shows: data frames of counts, sums and shares, and replays.

None holds a row of the trace. Where a single request would show, as the longest does, the next
power of two stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import pandas as pd

from kvledger.accounting import survey
from kvledger.accounting.allocations import contiguous, next_power_of_two, paged
from kvledger.accounting.ledger import Ledger
from kvledger.accounting.metadata import DEFAULT_PAGE_SIZES
from kvledger.core.errors import LedgerError
from kvledger.replays.policies import Arrivals, Clock, Contiguous, Paged, Policy, Saturated
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay
from kvledger.report.deployment import Deployment
from kvledger.traces.derivation import sharing_by_window
from proofbook.plaintext import shown_name

METADATA_BYTES: Mapping[str, int] = {"table entry": 4, "host objects": 250}
"""Bytes a page: an int32 entry of vLLM's block table, and the CPython objects of a cached page."""


def parameters(work: Deployment) -> pd.DataFrame:
    """List what the report is computed from. Columns: parameter, value, unit, from."""
    base, running, prefill = work.step_s
    size = work.model.kv_bytes_per_token
    rows = [
        ("trace", work.name, "name", "given"),
        ("model", shown_name(work.model.name), "name", "given"),
        ("KV cache a token", f"{size:,}", "bytes", "the model's shape"),
        ("memory of the cache", f"{work.kv_memory_bytes:,}", "bytes", "given"),
        ("slots of the pool", f"{work.capacity_slots:,}", "slots", "memory / bytes a token"),
        ("page size looked at", f"{work.page_size:,}", "slots", "given, or a common default"),
        ("running at most", f"{work.max_running:,}", "requests", "given, or a common default"),
        ("looked at in order", f"{work.first:,}", "arrivals at most", "given, or the default"),
        (
            "step time model",
            f"{base:g} + {running:g} x running + {prefill:g} x prefilled",
            "s",
            "assumption, no measurement",
        ),
    ]
    return pd.DataFrame(rows, columns=["parameter", "value", "unit", "from"])


def sums(work: Deployment) -> pd.DataFrame:
    """Add the trace up. Columns: quantity, sum, mean of a request (in tokens)."""
    n, prompts, total = work.total.n_requests, work.lengths.prompt, work.total
    outputs = total.total_tokens - prompts.total_tokens
    rows = [
        ("prompt tokens", prompts.total_tokens, prompts.mean_tokens),
        ("output tokens", outputs, Fraction(outputs, n)),
        ("final lengths", total.total_tokens, total.mean_tokens),
    ]
    return pd.DataFrame(rows, columns=["quantity", "sum", "mean of a request"])


def length_counts(work: Deployment) -> pd.DataFrame:
    """Count requests by the power of two that their length does not exceed.

    Columns: up_to (tokens), prompts, requests (by final length).

    Examples
    --------
    >>> from kvledger.report.deployment import open_deployment
    >>> counts = length_counts(open_deployment("azure_code_2023", "Llama-3.1-8B", "60GiB"))
    >>> counts.iloc[-1].tolist(), int(counts["requests"].sum())
    ([8192, 1241, 1257], 8819)
    """
    counted = [
        pd.Series(table.requests).groupby(next_power_of_two(table.tokens)).sum()
        for table in (work.lengths.prompt, work.total)
    ]
    low, high = (int(f(f(each.index) for each in counted)) for f in (min, max))
    up_to = [1 << k for k in range(low.bit_length() - 1, high.bit_length())]
    prompts, requests = (each.reindex(up_to, fill_value=0).tolist() for each in counted)
    return pd.DataFrame({"up_to": up_to, "prompts": prompts, "requests": requests})


def ledgers(work: Deployment) -> dict[str, Ledger]:
    """Account for three reservations and for pages, at final lengths."""
    return {
        "reserve the maximum": contiguous(work.total, work.maximum),
        "reserve a power of two": contiguous(work.total, "pow2"),
        "reserve the final length": contiguous(work.total, "oracle"),
        f"pages of {work.page_size:,}": paged(work.total, work.page_size),
    }


def fitting(work: Deployment, named: Mapping[str, Ledger]) -> pd.DataFrame:
    """Say what each policy holds for a mean request, and how many of that size fit the memory.

    Columns: policy, slots_per_request, MiB_per_request, unused_share (of slots), fit (requests).
    """
    rows = []
    for name, ledger in named.items():
        slots = Fraction(ledger.allocated_slots, ledger.requests)
        rows.append(
            {
                "policy": name,
                "slots_per_request": slots,
                "MiB_per_request": slots * work.model.kv_bytes_per_token / 2**20,
                "unused_share": ledger.unused_share,
                "fit": work.capacity_slots * ledger.requests // ledger.allocated_slots,
            }
        )
    return pd.DataFrame(rows)


def tail_slack(work: Deployment) -> pd.DataFrame:
    """Account for the slack of last pages, for every power of two up to the maximum.

    The columns are those of :func:`kvledger.accounting.survey.tail_slack`.
    """
    sizes = sorted({*(p for p in DEFAULT_PAGE_SIZES if p <= max(work.maximum, 2)), work.page_size})
    return survey.tail_slack({work.name: work.lengths}, sizes).drop(columns="trace")


def sharing(work: Deployment) -> pd.DataFrame | None:
    """Count the blocks that requests share with more and more neighbours.

    Columns: window_requests, logical_blocks, shared_blocks, shared_share. None without usable ids.
    """
    trace = work.arrivals
    if trace is None or trace.page_ids is None:
        return None
    windows = [1 << k for k in range(1, trace.n_requests.bit_length()) if 1 << k < trace.n_requests]
    try:
        found = sharing_by_window(trace.page_ids, [*windows, trace.n_requests])
    except LedgerError:
        return None
    share = [Fraction(f.shared_blocks, max(f.logical_blocks, 1)) for f in found]
    return pd.DataFrame(found).assign(shared_share=pd.Series(share, dtype=object))


class Charge(NamedTuple):
    """What one structure costs a page, in slots (``c``), and which page size is best for it.

    ``excess`` is what the page size looked at costs above the best, a share of the best cost.
    """

    structure: str
    bytes_per_page: int
    c: Fraction
    best: int
    excess: Fraction


def charges(work: Deployment) -> list[Charge]:
    """Charge each known structure of metadata, and find the best page size for it alone."""
    found = []
    for structure, n_bytes in METADATA_BYTES.items():
        c = Fraction(n_bytes, work.model.kv_bytes_per_token)
        sizes = [*DEFAULT_PAGE_SIZES, work.page_size]
        row = survey.excess_cost({work.name: work.lengths}, work.page_size, c, sizes).iloc[0]
        found.append(Charge(structure, n_bytes, c, int(row["best"]), row["excess_cost"]))
    return found


def break_evens(work: Deployment) -> pd.DataFrame:
    """Give the best page size for every cost per page, in slots and in bytes of the model.

    Columns: page_size, c_from, c_to (missing for the last), bytes_from, bytes_to.
    """
    frame = survey.envelopes({work.name: work.lengths}).drop(columns="trace")
    bytes_a_slot = work.model.kv_bytes_per_token
    for side in ("from", "to"):
        values = [None if c is None else c * bytes_a_slot for c in frame[f"c_{side}"]]
        frame[f"bytes_{side}"] = pd.Series(values, dtype=object)
    return frame


# --------------------------------------------------------------------------- over time

# Of so many outputs every step is recorded; of twice as many, every second. It bounds the memory.
_OUTPUTS_RECORDED_WHOLE = 20_000_000


class ReplayedGrowth(NamedTuple):
    """What was replayed.

    ``named`` has a replay for each policy, on ``clock``; ``left_out`` says of the others why they
    were not replayed, and ``nothing`` why none was (empty if some were).
    """

    named: Mapping[str, Replay]
    clock: Clock
    left_out: Mapping[str, str]
    nothing: str = ""

    @property
    def time_unit(self) -> str:
        """What the replays count time in."""
        return "steps" if isinstance(self.clock, Saturated) else "seconds"


def grow(work: Deployment) -> ReplayedGrowth:
    """Replay the first arrivals under reservations and under pages.

    Requests come at their times; where the trace has none, all wait from the start. A policy under
    which no request ever runs is left out, as is a prefix cache for page ids that do not fit.
    """
    trace = work.arrivals
    if trace is None:
        why = "of this trace only the lengths are known, not the order"
        return ReplayedGrowth({}, Saturated(), {}, why)
    if not trace.output_tokens.any():
        return ReplayedGrowth({}, Saturated(), {}, "no request has an output, so none grows")
    clock: Clock = Saturated() if trace.arrival_s is None else Arrivals(*work.step_s)
    named: dict[str, Replay] = {}
    left_out: dict[str, str] = {}
    paged = f"pages of {work.page_size:,}"
    policies: dict[str, Policy] = {
        "reserve the maximum": Contiguous(work.maximum),
        "reserve a power of two": Contiguous("pow2"),
        paged: Paged(work.page_size),
    }
    if trace.page_ids is not None:
        policies[f"{paged}, prefix cache"] = Paged(work.page_size, prefix_cache=True)
    for name, policy in policies.items():
        try:
            result = replay(
                trace,
                policy,
                capacity_slots=work.capacity_slots,
                max_running=work.max_running,
                clock=clock,
                record_every=max(1, int(trace.output_tokens.sum()) // _OUTPUTS_RECORDED_WHOLE),
            )
        except LedgerError:
            if not (isinstance(policy, Paged) and policy.prefix_cache):
                raise
            left_out[name] = "the page ids of the trace do not fit"
            continue
        if len(result):
            named[name] = result
        else:
            left_out[name] = "not one request fits the pool"
    return ReplayedGrowth(named, clock, left_out, "" if named else "not one request fits the pool")
