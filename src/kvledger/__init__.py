"""kvledger: where KV-cache memory goes, in exact numbers.

A name is imported when it is first used. So a command that only multiplies does not load pandas
and the replay's compiler, and the attention wing runs where neither Numba nor tqdm is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The names again, for type checkers and editors; a test compares the two lists.
    from kvledger.accounting.ledger import Ledger
    from kvledger.accounting.metadata import (
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
    from kvledger.accounting.page_groups import (
        GroupLayout,
        GroupPages,
        hybrid_pages,
        separate_layout,
        unified_layout,
    )
    from kvledger.accounting.paging import (
        expected_tail_slack,
        growth_tail_slack,
        mean_tail_slack,
        page_counts,
        paged,
        paged_sweep,
        tail_slack_distribution,
    )
    from kvledger.accounting.reservation import contiguous, next_power_of_two
    from kvledger.accounting.sharing import (
        Image,
        PageContext,
        shared,
        shared_page_ids,
        shared_pages,
        spared_slots,
    )
    from kvledger.core.errors import LedgerError
    from kvledger.core.lengths import LengthTable
    from kvledger.decision.decide import Decision, decide
    from kvledger.models.configs import read_config
    from kvledger.models.engines import kernels_accepting
    from kvledger.models.known import kv_bytes_per_token, load_models
    from kvledger.models.layers import LayerGroup
    from kvledger.models.shapes import Model
    from kvledger.replays.replay import Arrivals, Contiguous, Paged, Replay, Saturated, replay
    from kvledger.replays.sweep import sweep
    from kvledger.traces.derivation import (
        NeighbourSharing,
        load_blocks,
        load_requests,
        neighbour_sharing,
    )
    from kvledger.traces.trace import (
        TRACE_NAMES,
        LengthMarginals,
        Trace,
        load_lengths,
        load_trace,
    )

_HOMES: dict[str, tuple[str, ...]] = {
    "kvledger.models.configs": ("read_config",),
    "kvledger.decision.decide": ("Decision", "decide"),
    "kvledger.models.engines": ("kernels_accepting",),
    "kvledger.core.errors": ("LedgerError",),
    "kvledger.accounting.page_groups": (
        "GroupLayout",
        "GroupPages",
        "hybrid_pages",
        "separate_layout",
        "unified_layout",
    ),
    "kvledger.models.layers": ("LayerGroup",),
    "kvledger.accounting.ledger": ("Ledger",),
    "kvledger.core.lengths": ("LengthTable",),
    "kvledger.accounting.metadata": (
        "best_page_size",
        "bytes_from_slots",
        "c_for_page_size",
        "closed_form_gap",
        "closed_form_page_size",
        "cost",
        "envelope",
        "near_best",
        "slots_from_bytes",
    ),
    "kvledger.models.known": ("kv_bytes_per_token", "load_models"),
    "kvledger.accounting.paging": (
        "expected_tail_slack",
        "growth_tail_slack",
        "mean_tail_slack",
        "page_counts",
        "paged",
        "paged_sweep",
        "tail_slack_distribution",
    ),
    "kvledger.replays.replay": ("Arrivals", "Contiguous", "Paged", "Replay", "Saturated", "replay"),
    "kvledger.replays.sweep": ("sweep",),
    "kvledger.accounting.reservation": ("contiguous", "next_power_of_two"),
    "kvledger.models.shapes": ("Model",),
    "kvledger.accounting.sharing": (
        "Image",
        "PageContext",
        "shared",
        "shared_page_ids",
        "shared_pages",
        "spared_slots",
    ),
    "kvledger.traces.trace": (
        "TRACE_NAMES",
        "LengthMarginals",
        "Trace",
        "load_lengths",
        "load_trace",
    ),
    "kvledger.traces.derivation": (
        "NeighbourSharing",
        "load_blocks",
        "load_requests",
        "neighbour_sharing",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.2.0"

__all__ = [
    "TRACE_NAMES",
    "Arrivals",
    "Contiguous",
    "Decision",
    "GroupLayout",
    "GroupPages",
    "Image",
    "LayerGroup",
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
    "decide",
    "envelope",
    "expected_tail_slack",
    "growth_tail_slack",
    "hybrid_pages",
    "kernels_accepting",
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
    "read_config",
    "replay",
    "separate_layout",
    "shared",
    "shared_page_ids",
    "shared_pages",
    "slots_from_bytes",
    "spared_slots",
    "sweep",
    "tail_slack_distribution",
    "unified_layout",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value  # found without this function from now on


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
