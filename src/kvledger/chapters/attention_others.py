"""What others measured, beside the record: always marked as theirs, never in one line with ours."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

import pandas as pd

from kvledger.chapters import published
from kvledger.chapters.attention_report import peer_label, quartiles, ratios, sweep_of, view
from kvledger.measure.record import Record
from proofbook.formats import format_value

SOURCES = {
    "kwon2023pagedattention": "Kwon et al. 2023",
    "prabhu2025vattention": "Prabhu et al. 2025",
    "ye2024flashinferblog": "FlashInfer blog 2024",
    "pytorch2025flexinference": "PyTorch blog 2025",
    "flashattention1999": "Dao-AILab/flash-attention, pull request 1999",
    "sglang4356": "sgl-project/sglang, pull request 4356",
}
"""What a table calls each citation."""

USUAL = 16
SIZES = (1, USUAL, 128)

SECTOR_BYTES = 32
"""What a GPU's global memory moves at least: CUDA C++ Best Practices Guide, coalesced access."""


def table() -> pd.DataFrame:
    """Lay out the published figures as printed.

    Columns: source (with the section), what, published, against, setting.

    Examples
    --------
    >>> table().loc[3, "published"]
    'up to 37% longer'
    """
    frame = published.cost_numbers()
    return pd.DataFrame(
        {
            "source": f"{SOURCES[row['citation']]}, {row['where']}",
            "what": row["what"],
            "published": _printed({str(name): value for name, value in row.items()}),
            "against": row["against"],
            "setting": row["setting"],
        }
        for row in frame.to_dict("records")
    ).astype(object)


def _printed(row: Mapping[str, object]) -> str:
    low, high, unit = row["low"], row["high"], str(row["unit"])
    if high is None:
        return str(row["finding"])
    value = f"{row['bound']} {high}" if row["bound"] else f"{low} to {high}"
    value = f"{high}" if low == high else value
    return value + ("" if unit.startswith("%") else " ") + unit


def beside(record: Record | None) -> pd.DataFrame:
    """Put published run times, as multiples, above those of the record's main case.

    Columns: label, kind (published or measured), low (missing where only a bound is printed),
    middle (of a measured one: the median, between its quartiles), high, words, against, source.
    """
    rows: list[dict[str, object]] = []
    for row in published.cost_numbers().to_dict("records"):
        if row["chart"] is None:
            continue
        low, high = row["times_low"], row["times_high"]
        words = format_value(high, ".2f")
        if row["bound"]:
            words = f"{row['bound']} {words}"
        elif low != high:
            words = f"{format_value(low, '.2f')} to {words}"
        against = row["against"] or "its own pages of 128"
        rows.append(
            {"label": row["chart"], "kind": "published", "low": low, "middle": None, "high": high}
            | {"words": words, "against": against, "source": SOURCES[row["citation"]]}
        )
    seen = view(record)
    if seen is None:
        return pd.DataFrame(rows, dtype=object)
    for name in dict.fromkeys(t.peer for t in seen.record.timings):
        timings = sweep_of(seen.record, name)
        timed = {timing.page_size for timing in timings}
        usual = USUAL if USUAL in timed else min(timed, default=0)
        for timing in timings:
            base = seen.record.baseline(timing)
            if timing.page_size not in (SIZES if name == seen.peer else (usual,)) or base is None:
                continue
            low, middle, high = quartiles(ratios(timing, base))
            against = "itself" if base.peer == name else peer_label(base.peer)
            rows.append(
                {
                    "label": f"{peer_label(name)}: pages of {timing.page_size}",
                    "kind": "measured",
                    "low": low,
                    "middle": middle,
                    "high": high,
                    "words": format_value(middle, ".2f"),
                    "against": f"{against}, contiguous",
                    "source": seen.record.label,
                }
            )
    return pd.DataFrame(rows, dtype=object)


def sources(record: Record | None) -> str:
    """Name where the rows of :func:`beside` come from."""
    return "the source of each row" + (f"; {record.file}" if record is not None else "")


class Cited(NamedTuple):
    """A number of somebody else's, and whose."""

    value: Decimal
    source: str


def cited() -> dict[str, Cited]:
    """Return the single figures that the chapter's prose cites.

    Examples
    --------
    >>> cited()["instructions_high"]
    Cited(value=Decimal('13'), source='Prabhu et al. 2025, section 3.3')
    """
    costs = published.cost_numbers()
    counted = costs[costs["id"] == "prefill.instructions"].to_dict("records")[0]
    source = f"{SOURCES[counted['citation']]}, {counted['where']}"
    return {
        "instructions_low": Cited(counted["low"], source),
        "instructions_high": Cited(counted["high"], source),
        "sector": Cited(Decimal(SECTOR_BYTES), "NVIDIA, CUDA C++ Best Practices Guide"),
    }
