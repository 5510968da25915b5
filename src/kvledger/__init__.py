"""kvledger: where KV-cache memory goes, in exact numbers."""

from kvledger.errors import LedgerError
from kvledger.ledger import Ledger
from kvledger.lengths import LengthTable
from kvledger.metadata import (
    best_page_size,
    bytes_from_slots,
    c_for_page_size,
    closed_form_gap,
    closed_form_page_size,
    cost,
    envelope,
    near_best,
    slots_from_bytes,
)
from kvledger.models import Model, kv_bytes_per_token, load_models
from kvledger.paging import (
    expected_tail_slack,
    growth_tail_slack,
    mean_tail_slack,
    page_counts,
    paged,
    paged_sweep,
    tail_slack_distribution,
)
from kvledger.replay import Arrivals, Contiguous, Paged, Replay, Saturated, replay
from kvledger.replay.sweep import sweep
from kvledger.reservation import contiguous, next_power_of_two
from kvledger.sharing import (
    Image,
    PageContext,
    shared,
    shared_page_ids,
    shared_pages,
    spared_slots,
)
from kvledger.traces import (
    TRACE_NAMES,
    LengthMarginals,
    Trace,
    load_blocks,
    load_lengths,
    load_requests,
    load_trace,
)
from kvledger.windows import NeighbourSharing, neighbour_sharing

__version__ = "0.1.0"

__all__ = [
    "TRACE_NAMES",
    "Arrivals",
    "Contiguous",
    "Image",
    "Ledger",
    "LedgerError",
    "LengthMarginals",
    "LengthTable",
    "Model",
    "NeighbourSharing",
    "PageContext",
    "Paged",
    "Replay",
    "Saturated",
    "Trace",
    "best_page_size",
    "bytes_from_slots",
    "c_for_page_size",
    "closed_form_gap",
    "closed_form_page_size",
    "contiguous",
    "cost",
    "envelope",
    "expected_tail_slack",
    "growth_tail_slack",
    "kv_bytes_per_token",
    "load_blocks",
    "load_lengths",
    "load_models",
    "load_requests",
    "load_trace",
    "mean_tail_slack",
    "near_best",
    "neighbour_sharing",
    "next_power_of_two",
    "page_counts",
    "paged",
    "paged_sweep",
    "replay",
    "shared",
    "shared_page_ids",
    "shared_pages",
    "slots_from_bytes",
    "spared_slots",
    "sweep",
    "tail_slack_distribution",
]
