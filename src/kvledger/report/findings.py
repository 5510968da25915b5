"""What the report says in words that depend on the workload, and the numbers that it keeps.

Each finding is one sentence or a few, whose every number comes from the workload. The template
glues them, so that its prose is true of any trace: with times or without, with page ids or not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import proofbook
from kvledger.accounting.metadata import c_for_page_size
from kvledger.replays.growth import PARTS, mean_shares
from kvledger.replays.policies import Saturated
from kvledger.report.deployment import FOLDER_VARIABLE, Deployment
from kvledger.report.report_tables import ReplayedGrowth
from proofbook.files import write_whole
from proofbook.formats import format_value, is_missing
from proofbook.plaintext import counted, exact, listed

if TYPE_CHECKING:
    from kvledger.decision import Decision

NUMBERS_FILE = "numbers.json"

FEW_REQUESTS = 100
"""With fewer, a sum can say much about one request."""

SLACK_COLUMNS = ["page_size", "pages", "tail_slack_slots", "slack_share"]
SLACK_COLUMNS += ["mean_slots", "growth_slots", "expected_slots"]
POOL_COLUMNS = ["policy", *PARTS, "shared_share"]
PRESSURE_COLUMNS = ["policy", "running", "preempted", "recomputed_tokens", "refused", "steps"]
"""What is shown of the slack, of the mean shares of the pool, and of what full memory cost."""

_NEIGHBOURS = 64
_kept: dict[str, dict[str, Any]] = {}


def number(id: str, value: object, fmt: str | None = None, **given: Any) -> None:
    """Show a number as :func:`proofbook.number` does, which takes the same, and keep it.

    Where ``KVLEDGER_REPORT_DIR`` names a folder, as it does while a report is made, all numbers are
    saved there as one JSON file, exact: fractions as texts such as ``"3/14"``.
    """
    proofbook.number(id, value, fmt, **given)
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        _kept[id] = {
            "value": None if is_missing(value) else exact(value),
            "shown": format_value(value, fmt, name=id),
            "kind": given.get("kind", "computed"),
            "source": given.get("source"),
        }
        text = json.dumps(_kept, indent=1, allow_nan=False, default=str) + "\n"
        write_whole(Path(folder) / NUMBERS_FILE, text.encode())


def left_out(work: Deployment) -> str:
    """Say which rows of the source are no request, by reason.

    Examples
    --------
    >>> from kvledger.report.deployment import open_deployment
    >>> left_out(open_deployment("bwb_v2", "Llama-3.1-8B", "60GiB"))
    'Only its lengths are known; rows that were left out of it are not counted here.'
    """
    if not work.left_out and work.requests is None:
        return "Only its lengths are known; rows that were left out of it are not counted here."
    if not work.left_out:
        return "No row of it was left out."
    reasons = ", ".join(f"{rows:,} {reason}" for reason, rows in work.left_out.items())
    total = sum(work.left_out.values())
    return f"{total:,} {'row was' if total == 1 else 'rows were'} left out: {reasons}."


def disclosure(work: Deployment) -> str:
    """Say how far sums hide the requests that they are made of."""
    requests = counted(work.total.n_requests, "request")
    if work.total.n_requests >= FEW_REQUESTS:
        return f"A sum over {requests} says little about any one of them."
    return (
        f"The trace has only {requests}, so a sum can say much about a single one: "
        "mind whom this page is shown to."
    )


def needed(work: Deployment) -> str:
    """Say what a page must cost for the page size looked at to be the best power of two."""
    interval = c_for_page_size(work.total, work.page_size)
    if interval is None:
        return (
            f"Pages of {work.page_size:,} are at no cost per page better than every power of two."
        )
    ends = [
        format_value(n_bytes, ",.0f" if n_bytes >= 100 else ".3g")
        for end in (interval.c_from, interval.c_to)
        if not isinstance(end, float)
        for n_bytes in [end * work.model.kv_bytes_per_token]
    ]
    where = f"{ends[0]} bytes of this model or more"
    if len(ends) == 2:
        where = f"from {ends[0]} to {ends[1]} bytes of this model"
    best = f"Pages of {work.page_size:,} are the best, beside all powers of two"
    return f"{best}, where a page costs {where}."


def shared(work: Deployment, frame: pd.DataFrame | None) -> str:
    """Say how much neighbours share, or that nothing can be said; of the frame of `sharing`."""
    trace = work.arrivals
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
        f"Of the {last['logical_blocks']:,} blocks of {trace.page_ids_size:,} tokens that "
        f"{_scope(work)} refer to, {format_value(last['shared_share'], '.1%')} are held by an "
        "earlier request too."
    )
    if len(near) and int(near["window_requests"].iloc[0]) < trace.n_requests:
        share = format_value(near["shared_share"].iloc[0], ".1%")
        text += f" Among groups of {near['window_requests'].iloc[0]:,} neighbours it is {share}."
    return text


def replayed(work: Deployment, growth: ReplayedGrowth) -> str:
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
    return text + "".join(
        f" Not replayed is {_quoted(name)}: {why}." for name, why in growth.left_out.items()
    )


def grown(growth: ReplayedGrowth) -> str:
    """Say which policy keeps most of the pool in use, and what full memory cost it."""
    if not growth.named:
        return "So nothing is said of growth over time."
    shares = mean_shares(growth.named)
    used = dict(zip(shares["policy"], shares["used"], strict=True))
    texts = [f"{format_value(used[name], '.1%')} under {_quoted(name)}" for name in used]
    text = f"On average tokens fill {listed(texts)} of the pool."
    paged = [name for name in used if name.startswith("pages")]
    if paged:
        result = growth.named[paged[-1]]
        computed = result.total("computed_prompt_tokens") + result.total("decoded_tokens")
        again = result.total("recomputed_tokens")
        share = format_value(again / max(computed + again, 1), ".2%")
        text += (
            f" Under {_quoted(paged[-1])} there were {result.total('preempted'):,} "
            f"preemptions, {share} of all tokens computed were computed again, and of the requests "
            f"{result.count('refused'):,} were refused."
        )
    return text


def conclusion(work: Deployment, fits: pd.DataFrame) -> str:
    """Say in a sentence what a reserved maximum and pages leave unused, and what fits."""
    (reserved, fit_reserved), (paged, fit_paged) = (
        (format_value(row["unused_share"], ".1%"), f"{row['fit']:,}")
        for row in (fits.iloc[0], fits.iloc[-1])
    )
    return (
        f"With {work.maximum:,} slots reserved for each request, {reserved} of what is held is "
        f"unused and the memory fits {fit_reserved} requests of the mean size; in pages of "
        f"{work.page_size:,} it is {paged}, and {fit_paged} fit."
    )


def _scope(work: Deployment) -> str:
    trace = work.arrivals
    assert trace is not None
    n, of = trace.n_requests, work.total.n_requests
    if n == of:
        return "the 1 request" if n == 1 else f"all {counted(n, 'request')}"
    return f"the first {n:,} of {counted(of, 'request')}"


def _quoted(name: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}"


# --------------------------------------------------------------------------- the decision

CAPTION = (
    "What a request holds in pages of each size, in slots averaged over its growth; a dash is not "
    "measured. The last column counts the kernels that read it."
)
FORMATS = {
    "tail slack slots": ",.3g",
    "metadata slots": ",.3g",
    "shared lost slots": ",.3g",
    "read slots": ",.3g",
    "total slots": ",.1f",
    "above best": ".2%",
}
"""The formats of the table of costs."""


def decision_of(work: Deployment) -> Decision | None:
    """Weigh a page size's costs, with the latest record of a GPU; None for too long requests."""
    from kvledger.decision import decide
    from kvledger.decision.workload import LONGEST
    from kvledger.measure.record import latest_record

    if work.total.max_tokens > LONGEST:
        return None
    trace = work.arrivals
    with_ids = trace is not None and trace.page_ids is not None
    return decide(trace if with_ids else work.lengths, work.model, record=latest_record("cuda"))


def decided(decision: Decision | None) -> str:
    """Say which page sizes are good in memory, what ends the range, and what is not measured."""
    from kvledger.decision.answers import sentence

    if decision is None:
        return "A request is too long for its growth to be averaged, so nothing is decided here."
    text = sentence("In memory alone", decision.memory)
    if decision.read is None or decision.time is None:
        return f"{text} The time to read through the page table is not measured, and not guessed."
    return (
        f"{text} {sentence('In time alone', decision.time)} Reading was measured on "
        f"{decision.read.device}: {decision.read.peer}."
    )


def costs(decision: Decision) -> pd.DataFrame:
    """Return the costs of the page sizes that a short table shows, in slots a request."""
    columns = [name.replace(" ", "_") for name in FORMATS]
    return pd.DataFrame(decision.frame()[["page_size", *columns, "kernels"]])
