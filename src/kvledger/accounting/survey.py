"""One question asked of several traces: the tables that the chapters show and draw.

Every function takes the traces as a mapping from name to :class:`~kvledger.LengthMarginals`
and returns a data frame with one row a trace and setting. Shares and means are exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import pandas as pd

from kvledger.accounting.allocations import (
    contiguous,
    expected_tail_slack,
    growth_tail_slack,
    next_power_of_two,
    paged_sweep,
    tail_slack_distribution,
)
from kvledger.accounting.ledger import Ledger
from kvledger.accounting.metadata import (
    DEFAULT_PAGE_SIZES,
    CostLike,
    Interval,
    best_page_size,
    bytes_from_slots,
    c_for_page_size,
    closed_form_c,
    closed_form_gap,
    cost,
    envelope,
    exact_cost,
    near_best,
    slots_from_bytes,
)
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import LengthsLike, whole_page_sizes
from kvledger.models.known import load_model
from kvledger.models.shapes import Model
from kvledger.traces import LengthMarginals

Traces = Mapping[str, LengthMarginals]

TRACE_LABELS: Mapping[str, str] = {
    "azure_code_2023": "Azure code",
    "azure_conv_2023": "Azure chat",
    "mooncake_conversation": "Mooncake chat",
    "mooncake_synthetic": "Mooncake synthetic",
    "sharegpt_8k": "ShareGPT",
    "arxiv_summarization_v2": "arXiv",
    "bwb_v2": "BWB",
}
"""What text, tables and figures call each trace."""


def worded(frame: pd.DataFrame) -> pd.DataFrame:
    """Put names for readers on a survey: column names as words, traces by their labels.

    Examples
    --------
    >>> worded(pd.DataFrame({"trace": ["bwb_v2"], "unused_share": [0.5]}))
      trace  unused share
    0   BWB           0.5
    """
    named = frame.rename(columns=lambda name: str(name).replace("_", " "))
    if "trace" in named.columns:
        named["trace"] = [TRACE_LABELS.get(name, name) for name in named["trace"]]
    return named


def ledgers(named: Mapping[str, Ledger]) -> pd.DataFrame:
    """Lay ledgers side by side, one row each: the columns of the accounting, never mixed.

    Examples
    --------
    >>> import kvledger as kv
    >>> ledgers({"pages of 4": kv.paged([5, 9, 17], 4)}).T
                               0
    policy            pages of 4
    logical tokens            31
    shared tokens              0
    distinct tokens           31
    tail slack slots           9
    reserved slots             0
    allocated slots           40
    pages                     10
    """
    columns: tuple[str, ...] = ("logical_tokens", "shared_tokens", "distinct_tokens")
    columns += ("tail_slack_slots", "reserved_slots", "allocated_slots", "pages")
    return pd.DataFrame(
        {"policy": name}
        | {column.replace("_", " "): value for column, value in _of(ledger, *columns).items()}
        for name, ledger in named.items()
    )


def _of(ledger: Ledger, *columns: str) -> dict[str, Any]:
    return {column: getattr(ledger, column) for column in columns}


def lengths(traces: Traces) -> pd.DataFrame:
    """Describe the traces: requests, prompt and total lengths in tokens."""
    return pd.DataFrame(
        {
            "trace": name,
            "requests": marginals.total.n_requests,
            "mean prompt": marginals.prompt.mean_tokens,
            "mean total": marginals.total.mean_tokens,
            "median total": marginals.total.quantile(Fraction(1, 2)),
            "longest": marginals.total.max_tokens,
            "file": name,
        }
        for name, marginals in traces.items()
    )


def slots_per_token(named: Mapping[str, Ledger]) -> pd.DataFrame:
    """Divide each ledger's slots by its logical tokens, part by part.

    Columns: policy, used, reserved, tail_slack, held. Ledgers that share are refused: what is
    spared by sharing is no part of what is held.
    """
    rows = []
    for name, ledger in named.items():
        if ledger.shared_tokens:
            raise LedgerError(
                f"{name}: {ledger.shared_tokens} shared tokens; only ledgers without sharing "
                "are laid side by side here"
            )
        tokens = ledger.logical_tokens
        parts = (tokens, ledger.reserved_slots, ledger.tail_slack_slots, ledger.allocated_slots)
        rows.append((name, *(Fraction(part, tokens) for part in parts)))
    return pd.DataFrame(rows, columns=["policy", "used", "reserved", "tail_slack", "held"])


def reservation(traces: Traces, reserves: Iterable[int | str]) -> pd.DataFrame:
    """Account for each contiguous policy on final lengths; longer requests are counted apart.

    Columns: trace, reserve, requests, refused_requests, refused_share (of requests),
    logical_tokens, allocated_slots, unused_slots, unused_share (of allocated slots).
    """
    rows = []
    for name, marginals in traces.items():
        for reserve in reserves:
            ledger = contiguous(marginals.total, reserve, over_maximum="count")
            rows.append(
                {
                    "trace": name,
                    "reserve": reserve,
                    **_of(ledger, "requests", "refused_requests"),
                    "refused_share": Fraction(ledger.refused_requests, marginals.total.n_requests),
                    **_of(ledger, "logical_tokens", "allocated_slots"),
                    **_of(ledger, "unused_slots", "unused_share"),
                }
            )
    return pd.DataFrame(rows)


def reservation_at_arrival(traces: Traces) -> pd.DataFrame:
    """Split what is reserved when each request arrives with its prompt and nothing more.

    Each trace's maximum is the smallest power of two that holds its longest request, the least
    that a power-of-two limit could be without refusing any.

    Columns: trace, reserve, used_share, later_share and never_share, of the slots reserved.
    """
    rows = []
    for name, marginals in traces.items():
        reserve = int(next_power_of_two([marginals.total.max_tokens])[0])
        ledger = contiguous(marginals.prompt, reserve, final_lengths=marginals.total)
        later = ledger.reserved_used_later_slots or 0
        parts = (ledger.logical_tokens, later, ledger.reserved_slots - later)
        rows.append((name, reserve, *(Fraction(n, ledger.allocated_slots) for n in parts)))
    shares = ["used_share", "later_share", "never_share"]
    return pd.DataFrame(rows, columns=["trace", "reserve", *shares])


def tail_slack(traces: Traces, page_sizes: Iterable[int]) -> pd.DataFrame:
    """Account for the slack of last pages at final lengths and averaged over growth.

    Columns: trace, page_size, pages, allocated_slots, tail_slack_slots, slack_share (of
    allocated slots), mean_slots (a request), expected_slots ((p - 1) / 2), growth_slots (a
    request and step, from prompt to end), and final_ratio and growth_ratio, the two means as
    multiples of what is expected, and final_error and growth_error, how far these are from one
    (missing for pages of one slot, where nothing is expected).
    """
    sizes = whole_page_sizes(page_sizes)
    rows = []
    for name, marginals in traces.items():
        for size, ledger in zip(sizes, paged_sweep(marginals.total, sizes), strict=True):
            growth = growth_tail_slack(marginals.total, size, start_lengths=marginals.prompt)
            mean = Fraction(ledger.tail_slack_slots, ledger.requests)
            expected = expected_tail_slack(size)
            final_ratio, growth_ratio = (
                one / expected if expected else None for one in (mean, growth.mean_slots)
            )
            rows.append(
                {
                    "trace": name,
                    "page_size": size,
                    **_of(ledger, "pages", "allocated_slots", "tail_slack_slots"),
                    "slack_share": ledger.unused_share,
                    "mean_slots": mean,
                    "expected_slots": expected,
                    "growth_slots": growth.mean_slots,
                    "final_ratio": final_ratio,
                    "growth_ratio": growth_ratio,
                    "final_error": None if final_ratio is None else abs(final_ratio - 1),
                    "growth_error": None if growth_ratio is None else abs(growth_ratio - 1),
                }
            )
    return pd.DataFrame(rows)


def slack_distribution(marginals: LengthMarginals, page_size: int) -> pd.DataFrame:
    """Give the share of requests that leave each number of slots unused, at final length.

    Columns: tail_slack_slots (0 to page size - 1), requests, share, even_share (1 / page size).
    """
    distribution = tail_slack_distribution(marginals.total, page_size)
    requests = distribution.requests.tolist()
    return pd.DataFrame(
        {
            "tail_slack_slots": range(page_size),
            "requests": requests,
            "share": [Fraction(n, marginals.total.n_requests) for n in requests],
            "even_share": Fraction(1, page_size),
        }
    )


def cost_lines(of: LengthsLike, page_sizes: Iterable[int]) -> pd.DataFrame:
    """Give each page size's cost as a line in c, and where it is the least.

    Columns: page_size, allocated_slots (the cost at c = 0), pages (the slope), c_from and c_to
    (missing where it is best for no cost; c_to also where it is best for every larger one).

    Examples
    --------
    >>> cost_lines([5, 9, 17], [4, 16])["c_from"].tolist()
    [Fraction(0, 1), Fraction(4, 1)]
    """
    sizes = whole_page_sizes(page_sizes)
    best = {interval.page_size: interval for interval in envelope(of, sizes)}
    rows = [
        {"page_size": size, **_of(ledger, "allocated_slots", "pages"), **_ends(best.get(size))}
        for size, ledger in zip(sizes, paged_sweep(of, sizes), strict=True)
    ]
    return pd.DataFrame(rows, dtype=object)


def _ends(interval: Interval | None) -> dict[str, Fraction | None]:
    if interval is None:
        return {"c_from": None, "c_to": None}
    end = interval.c_to
    return {"c_from": interval.c_from, "c_to": end if isinstance(end, Fraction) else None}


def envelopes(traces: Traces, page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES) -> pd.DataFrame:
    """Give the best page size for every cost per page.

    Columns: trace, page_size, c_from, c_to (missing for the last interval, which has no end).
    """
    sizes = whole_page_sizes(page_sizes)
    rows = [
        {"trace": name, "page_size": interval.page_size, **_ends(interval)}
        for name, marginals in traces.items()
        for interval in envelope(marginals.total, sizes)
    ]
    return pd.DataFrame(rows, dtype=object)


def closed_form(
    traces: Traces, costs: Iterable[CostLike], page_sizes: Iterable[int]
) -> pd.DataFrame:
    """Hold the closed form against the exact optimum, and show how flat the optimum is.

    Columns: trace, c, closed_form, nearest, best, excess_cost (of ``nearest`` over ``best``),
    flat_from and flat_to: the least and greatest tested page size within one percent of the best
    cost; flat_factor, the one by the other.
    """
    sizes = whole_page_sizes(page_sizes)
    rows = []
    for name, marginals in traces.items():
        for c in costs:
            flat = near_best(marginals.total, c, sizes)
            gap = closed_form_gap(marginals.total, c, sizes)
            rows.append(
                {
                    "trace": name,
                    **gap._asdict(),
                    "flat_from": flat[0],
                    "flat_to": flat[-1],
                    "flat_factor": Fraction(flat[-1], flat[0]),
                }
            )
    return pd.DataFrame(rows)


def needed_cost(
    traces: Traces,
    page_size: int,
    model: str | Model,
    page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES,
) -> pd.DataFrame:
    """Ask what a page must cost for one page size to be best, in slots and in bytes of a model.

    Columns: trace, mean_tokens, c_from, c_to (missing where it is best for no cost),
    bytes_from, bytes_to, closed_form_c, closed_form_bytes.
    """
    sizes = whole_page_sizes(page_sizes)
    rows = []
    for name, marginals in traces.items():
        mean = marginals.total.mean_tokens
        ends = _ends(c_for_page_size(marginals.total, page_size, sizes))
        n_bytes = [None if c is None else bytes_from_slots(c, model) for c in ends.values()]
        formula = closed_form_c(mean, page_size)
        rows.append(
            {
                "trace": name,
                "mean_tokens": mean,
                **ends,
                "bytes_from": n_bytes[0],
                "bytes_to": n_bytes[1],
                "closed_form_c": formula,
                "closed_form_bytes": bytes_from_slots(formula, model),
            }
        )
    return pd.DataFrame(rows)


def excess_cost(
    traces: Traces,
    page_size: int,
    c: CostLike,
    page_sizes: Iterable[int] = DEFAULT_PAGE_SIZES,
) -> pd.DataFrame:
    """Say what one page size costs above the best of those tested, as a share of the best cost.

    Columns: trace, best, excess_cost.
    """
    sizes = whole_page_sizes(page_sizes)
    rows = []
    for name, marginals in traces.items():
        best = best_page_size(marginals.total, c, sizes)
        excess = cost(marginals.total, page_size, c) / best.cost - 1
        rows.append({"trace": name, "best": best.page_size, "excess_cost": excess})
    return pd.DataFrame(rows)


def bytes_in_slots(
    models: Iterable[str | Model], bytes_per_page: Mapping[str, CostLike], needed: pd.DataFrame
) -> pd.DataFrame:
    """Convert bytes per page to token-slot equivalents, beside what a page size needs.

    Columns: model, kv_bytes_per_token, structure, bytes_per_page, c, needed_from and needed_to
    (the least and the greatest over the traces of :func:`needed_cost`, the same in every row),
    needed_times (needed_from as a multiple of c).
    """
    c_from, c_to = needed["c_from"].min(), needed["c_to"].max()
    return pd.DataFrame(
        {
            "model": shape.name,
            "kv_bytes_per_token": shape.kv_bytes_per_token,
            "structure": structure,
            "bytes_per_page": exact_cost(n_bytes),
            "c": slots_from_bytes(n_bytes, shape),
            "needed_from": c_from,
            "needed_to": c_to,
            "needed_times": c_from / slots_from_bytes(n_bytes, shape),
        }
        for shape in map(load_model, models)
        for structure, n_bytes in bytes_per_page.items()
    )


def shared_blocks(blocks: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put the block tables of several traces into one and add the share of blocks shared.

    Columns: trace, those of :func:`~kvledger.load_blocks`, and shared_share (of logical
    blocks).
    """
    frames = [frame.assign(trace=name) for name, frame in blocks.items()]
    together = pd.concat(frames, ignore_index=True)
    counts = zip(together["shared_blocks"], together["logical_blocks"], strict=True)
    shares = [Fraction(int(shared), int(logical)) for shared, logical in counts]
    together["shared_share"] = pd.Series(shares, dtype=object)
    return together[["trace", *(c for c in together.columns if c != "trace")]]
