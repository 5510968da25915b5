"""The page-size decision of a deployment, as the report shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kvledger.report.deployment import Deployment
from proofbook.formats import format_value

if TYPE_CHECKING:
    from kvledger.decision.answers import Answer
    from kvledger.decision.decide import Decision

_COLUMNS = (
    "page_size",
    "tail_slack_slots",
    "metadata_slots",
    "shared_lost_slots",
    "read_slots",
    "total_slots",
    "above_best",
    "kernels",
)


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
    """Weigh the costs of a page size, with the latest measurement of a GPU if there is one.

    None where a request is longer than what growth is averaged over.
    """
    from kvledger.decision.workload import LONGEST

    if work.total.max_tokens > LONGEST:
        return None
    from kvledger.decision.decide import decide
    from kvledger.measure.record import latest_record

    trace = work.arrivals
    with_ids = trace is not None and trace.page_ids is not None
    return decide(trace if with_ids else work.lengths, work.model, record=latest_record("cuda"))


def decided(decision: Decision | None) -> str:
    """Say which page sizes are good in memory, what ends the range, and what is not measured."""
    if decision is None:
        return "A request is too long for its growth to be averaged, so nothing is decided here."
    text = _range("In memory alone", decision.memory)
    if decision.read is None or decision.time is None:
        return f"{text} The time to read through the page table is not measured, and not guessed."
    return (
        f"{text} {_range('In time alone', decision.time)} Reading was measured on "
        f"{decision.read.device}: {decision.read.peer}."
    )


def _range(what: str, answer: Answer) -> str:
    from kvledger.decision.page_costs import TERMS

    if answer.low == answer.high:
        text = f"{what}, pages of {_count(answer.best)} are best, and no other is within a percent"
    else:
        text = (
            f"{what}, page sizes from {_count(answer.low)} to {_count(answer.high)} are within a "
            f"percent of the best, {_count(answer.best)}"
        )
    if answer.above is not None:
        text += f"; above, it is the {TERMS[answer.above.term]} that grows most"
    return f"{text}."


def costs(decision: Decision) -> pd.DataFrame:
    """Return the costs of the page sizes that a short table shows, in slots a request."""
    frame: pd.DataFrame = decision.frame()[list(_COLUMNS)]
    return frame


def _count(value: int) -> str:
    return format_value(value, ",d")
