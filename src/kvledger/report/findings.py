"""What the report says in words, where the words depend on the workload.

Each finding is one sentence or a few, whose every number comes from the workload. The template
glues them, so that its prose is true of any trace: with times or without, with page ids or not.
"""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from kvledger.accounting.metadata import c_for_page_size
from kvledger.core.errors import LedgerError
from kvledger.replays.growth import PARTS, mean_shares
from kvledger.replays.replay import Saturated
from kvledger.report.deployment import Deployment
from kvledger.report.report_replays import Growth
from kvledger.report.report_tables import sharing
from proofbook.formats import format_value

FEW_REQUESTS = 100
"""With fewer, a sum can say much about one request."""

_NEIGHBOURS = 64


def left_out(work: Deployment) -> str:
    """Say which rows of the source are no request, by reason.

    Examples
    --------
    >>> from kvledger.report.deployment import read_deployment
    >>> left_out(read_deployment("bwb_v2", "Llama-3.1-8B", "60GiB"))
    'Only its lengths are known; rows that were left out of it are not counted here.'
    """
    if not work.left_out and work.requests is None:
        return "Only its lengths are known; rows that were left out of it are not counted here."
    if not work.left_out:
        return "No row of it was left out."
    reasons = ", ".join(f"{_count(rows)} {reason}" for reason, rows in work.left_out.items())
    total = sum(work.left_out.values())
    return f"{_count(total)} {'row was' if total == 1 else 'rows were'} left out: {reasons}."


def disclosure(work: Deployment) -> str:
    """Say how far sums hide the requests that they are made of."""
    n = work.total.n_requests
    if n >= FEW_REQUESTS:
        return f"A sum over {_requests(n)} says little about any one of them."
    return (
        f"The trace has only {_requests(n)}, so a sum can say much about a single one: "
        "mind whom this page is shown to."
    )


def needed(work: Deployment) -> str:
    """Say what a page must cost for the page size looked at to be the best power of two."""
    interval = c_for_page_size(work.total, work.page_size)
    pages = f"Pages of {_count(work.page_size)}"
    if interval is None:
        return f"{pages} are at no cost per page better than every power of two."
    size = work.model.kv_bytes_per_token
    better = f"{pages} are the best, beside all powers of two, where a page costs"
    low = _bytes(interval.c_from * size)
    if isinstance(interval.c_to, float):
        return f"{better} {low} bytes of this model or more."
    return f"{better} from {low} to {_bytes(interval.c_to * size)} bytes of this model."


def sharing_frame(work: Deployment) -> pd.DataFrame | None:
    """Return how much neighbours share; None where the trace does not say."""
    try:
        return sharing(work)
    except LedgerError:
        return None


def shared(work: Deployment) -> str:
    """Say how much neighbours share, or that nothing can be said."""
    trace, frame = work.arrivals, sharing_frame(work)
    if trace is None or trace.page_ids is None:
        return "This trace has no page ids, so nothing can be said of sharing."
    if frame is None:
        return (
            "The page ids of this trace come back within a request, so they do not say which "
            "beginnings are equal, and nothing can be said of sharing."
        )
    last = frame.iloc[-1]
    near = frame[frame["window_requests"] <= _NEIGHBOURS].iloc[-1:]
    text = (
        f"Of the {_count(last['logical_blocks'])} blocks of {_count(trace.page_ids_size)} tokens "
        f"that {_scope(work)} refer to, {_number(last['shared_share'], '.1%')} are held by an "
        "earlier request too."
    )
    if len(near) and int(near["window_requests"].iloc[0]) < trace.n_requests:
        share = _number(near["shared_share"].iloc[0], ".1%")
        window = _count(near["window_requests"].iloc[0])
        text += f" Among groups of {window} neighbours it is {share}."
    return text


def replayed(work: Deployment, growth: Growth) -> str:
    """Say what was replayed, and on what clock."""
    if growth.nothing:
        return f"Nothing is replayed: {growth.nothing}."
    scope = _scope(work)
    verb = "is" if work.arrivals is not None and work.arrivals.n_requests == 1 else "are"
    what = f"{scope[0].upper()}{scope[1:]} {verb} replayed"
    if isinstance(growth.clock, Saturated):
        text = f"{what}. The trace has no times: all wait from the start, and time is in steps."
    else:
        text = f"{what} at their times, on the modelled step time."
    for name, why in growth.left_out.items():
        text += f" Not replayed is {_quoted(name)}: {why}."
    return text


def grown(growth: Growth) -> str:
    """Say which policy keeps most of the pool in use, and what full memory cost it."""
    if not growth.named:
        return "So nothing is said of growth over time."
    shares = mean_shares(growth.named)
    used = dict(zip(shares["policy"], shares["used"], strict=True))
    texts = [f"{_number(share, '.1%')} under {_quoted(name)}" for name, share in used.items()]
    text = f"On average tokens fill {_joined(texts)} of the pool."
    paged = [name for name in used if name.startswith("pages")]
    if paged:
        result = growth.named[paged[-1]]
        computed = result.total("computed_prompt_tokens") + result.total("decoded_tokens")
        again = result.total("recomputed_tokens")
        share = _number(again / max(computed + again, 1), ".2%")
        text += (
            f" Under {_quoted(paged[-1])} there were {_count(result.total('preempted'))} "
            f"preemptions, {share} of all tokens computed were computed again, and of the requests "
            f"{_count(result.count('refused'))} were refused."
        )
    return text


def time_unit(growth: Growth) -> str:
    """Return what the replays count time in.

    Examples
    --------
    >>> time_unit(Growth({}, Saturated(), {}))
    'steps'
    """
    return "steps" if isinstance(growth.clock, Saturated) else "seconds"


def slack_columns(slack: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of :func:`kvledger.report.report_tables.tail_slack` that are shown."""
    counts = ["page_size", "pages", "tail_slack_slots", "slack_share"]
    return slack[[*counts, "mean_slots", "growth_slots", "expected_slots"]]


def pool_shares(shares: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the pool from :func:`kvledger.replays.growth.mean_shares`."""
    return shares[["policy", *PARTS, "shared_share"]]


def pool_costs(shares: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that say who ran, and what full memory cost."""
    return shares[["policy", "running", "preempted", "recomputed_tokens", "refused", "steps"]]


def conclusion(work: Deployment, fits: pd.DataFrame) -> str:
    """Say in a sentence what a reserved maximum and pages leave unused, and what fits."""
    reserved, paged = fits.iloc[0], fits.iloc[-1]
    return (
        f"With {_count(work.maximum)} slots reserved for each request, "
        f"{_number(reserved['unused_share'], '.1%')} of what is held is unused and the memory "
        f"fits {_count(reserved['fit'])} requests of the mean size; in pages of "
        f"{_count(work.page_size)} it is {_number(paged['unused_share'], '.1%')}, and "
        f"{_count(paged['fit'])} fit."
    )


def _scope(work: Deployment) -> str:
    trace = work.arrivals
    assert trace is not None
    n, of = trace.n_requests, work.total.n_requests
    if n == of:
        return "the 1 request" if n == 1 else f"all {_requests(n)}"
    return f"the first {_count(n)} of {_requests(of)}"


def _requests(n: int) -> str:
    return "1 request" if n == 1 else f"{_count(n)} requests"


def _bytes(value: Fraction) -> str:
    return _number(value, ",.0f" if value >= 100 else ".3g")


def _count(value: object) -> str:
    return format_value(value, ",d")


def _number(value: object, fmt: str) -> str:
    return format_value(value, fmt)


def _quoted(name: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}"


def _joined(texts: list[str]) -> str:
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
