"""What the chapter on measured attention says about a record, and about there being none.

Every function takes a record or None. Without one, texts say that nothing was measured and a frame
has one row that says so: the chapter reads the same whatever has been measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvledger.measure.record import Record, Timing
from proofbook.formats import format_value

Floats = npt.NDArray[np.float64]

NOTHING = "not measured"
"""What stands in the place of a value that no record holds."""

PEERS: Mapping[str, str] = {
    "triton": "this kernel",
    "sdpa": "SDPA",
    "gather_sdpa": "gather, then SDPA",
    "flex_paged": "FlexAttention",
    "flash_paged": "FlashAttention in torch",
    "flashinfer": "FlashInfer",
    "cudnn_paged": "cuDNN",
    "pallas_paged": "Pallas",
}
"""What text, tables and figures call each peer."""

PLACED: Mapping[str, str] = {
    "contiguous": "contiguous",
    "in_order": "in order",
    "random": "at random",
}
"""What they call each layout of the pages."""

SHOWN_SIZES = (16, 1)
"""Page sizes that sentences and short tables speak of: the common default, and the smallest."""


def peer_label(peer: str) -> str:
    """Name a peer for readers; a peer without a name of its own keeps the record's.

    Examples
    --------
    >>> peer_label("sdpa"), peer_label("another")
    ('SDPA', 'another')
    """
    return PEERS.get(peer, peer)


def shown(value: float | None, fmt: str) -> str:
    """Write a value, or that there is none.

    Examples
    --------
    >>> shown(1.25, ".1f"), shown(None, ".1f"), shown(float("nan"), ".1f")
    ('1.2', 'not measured', 'not measured')
    """
    return NOTHING if value is None or not np.isfinite(value) else format_value(value, fmt)


def rows_or_nothing(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Make a frame; without rows, of one row whose first cell says so.

    Examples
    --------
    >>> rows_or_nothing(["peer", "ratio"], [])
               peer ratio
    0  not measured  None
    """
    if not rows:
        rows = [dict.fromkeys(columns) | {columns[0]: NOTHING}]
    frame = pd.DataFrame([dict(row) for row in rows], columns=list(columns), dtype=object)
    return frame.where(frame.notna(), None)


def is_nothing(frame: pd.DataFrame) -> bool:
    """Tell whether a frame holds nothing but the row of :func:`rows_or_nothing`."""
    return bool(frame.iloc[0, 0] == NOTHING)


def source(record: Record | None) -> str:
    """Name the record's file."""
    return "no record" if record is None else record.file


def device(record: Record | None) -> str:
    """Name what was measured on, and the day."""
    return "no device" if record is None else record.label


def titled(words: str, record: Record | None) -> str:
    r"""Put the device below a figure's title, on a line of its own, cut where it would run over.

    Examples
    --------
    >>> titled("Time by page size", None)
    'Time by page size\n(no device)'
    """
    return f"{words}\n({shorten(device(record), 64, placeholder='...')})"


# --------------------------------------------------------------------------- choosing


def sweep_of(record: Record, peer: str, layout: str = "random") -> list[Timing]:
    """Return a peer's timings of the main case at one layout, smallest pages first."""
    key = (record.main_case.id, peer, layout)
    found = [t for t in record.timings if (t.case, t.peer, t.layout) == key]
    return sorted(found, key=lambda t: t.page_size)


def peer_in_view(record: Record) -> str | None:
    """Choose the peer that the text speaks of: this project's kernel, else the widest sweep.

    One that gathers the pages before it reads them comes after all that read through the table.
    """
    sizes = {t.peer: len(sweep_of(record, t.peer)) for t in record.timings}
    paged = [peer for peer in sizes if sizes[peer]]
    order = list(PEERS)
    return max(
        paged,
        default=None,
        key=lambda peer: (
            peer == "triton",
            peer != "gather_sdpa",
            sizes[peer],
            -order.index(peer) if peer in order else -len(order),
        ),
    )


class View(NamedTuple):
    """A record, and the peer in it that the text speaks of."""

    record: Record
    peer: str


def view(record: Record | None) -> View | None:
    """Return a record with its peer in view; None without a record, or without pages in it."""
    peer = None if record is None else peer_in_view(record)
    return None if record is None or peer is None else View(record, peer)


def ratios(timing: Timing, other: Timing) -> Floats:
    """Divide two timings of one case, repetition by repetition."""
    divided: Floats = np.asarray(timing.seconds) / np.asarray(other.seconds)
    return divided


def quartiles(values: Sequence[float] | Floats) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile.

    Examples
    --------
    >>> quartiles([1.0, 2.0, 3.0, 4.0, 9.0])
    (2.0, 3.0, 4.0)
    """
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return low, median, high


def share(record: Record, timing: Timing) -> float:
    """Return the share of the measured copy bandwidth that a timing reaches."""
    return timing.moved_bytes / timing.median_s / record.copy_bytes_per_s


# --------------------------------------------------------------------------- sentences


def state(record: Record | None) -> str:
    """Say in a sentence whether there is a record from a GPU, and what is shown without one."""
    if record is None:
        return (
            "No record has been taken, from a GPU or from any other device: where a measured value "
            "belongs, it says so."
        )
    if record.device.kind == "cuda":
        return f"Measured on one GPU: {record.label}."
    return (
        "No record from a GPU has been taken. What is shown was measured on a CPU "
        f"({_machine(record)}, {record.date[:10]}): it tries the method and says nothing about a "
        "GPU."
    )


def _machine(record: Record) -> str:
    """Name the device with its units, once."""
    here = record.device
    unit = "multiprocessor" if here.kind == "cuda" else "core"
    if unit in here.name:
        return here.name
    return f"{here.name}, {here.units} {unit}{'' if here.units == 1 else 's'}"


def result(record: Record | None) -> str:
    """Say in a sentence what the main case gave: pages of 16 and of 1 against no pages."""
    seen = view(record)
    found = {} if seen is None else {t.page_size: t for t in sweep_of(*seen)}
    parts = [
        f"{quartiles(ratios(found[size], base))[1]:.2f} times as long with pages of {size}"
        for size in SHOWN_SIZES
        if seen and size in found and (base := seen.record.baseline(found[size]))
    ]
    if not parts:
        return "What an indirect read costs is open."
    against = baseline_label(record)
    where = "on contiguous memory" if against == "itself" else f"{against} on contiguous memory"
    return f"There, {in_view(record)} took {' and '.join(parts)}, placed at random, as {where}."


def baseline_label(record: Record | None) -> str:
    """Name what the peer in view is held against: itself on contiguous memory, or another."""
    seen = view(record)
    found = None if seen is None else seen.record.baseline(sweep_of(*seen)[0])
    if seen is None or found is None:
        return NOTHING
    return "itself" if found.peer == seen.peer else peer_label(found.peer)


def in_view(record: Record | None) -> str:
    """Name the peer that the text speaks of."""
    seen = view(record)
    return NOTHING if seen is None else peer_label(seen.peer)


def main_case(record: Record | None) -> str:
    """Describe the case that was measured in most detail."""
    if record is None:
        return NOTHING
    case = record.main_case
    each = f"{case.context_tokens} tokens each" if case.context_tokens else f"{case.tokens} tokens"
    return (
        f"one layer of {case.shape}, {case.batch} requests of {each}, "
        f"{_bytes(case.kv_bytes)} of K and V in {case.dtype}"
    )


def row_bytes(record: Record | None) -> str:
    """Write the bytes of K of one token and one head in the main case: what lies side by side."""
    if record is None:
        return NOTHING
    case = record.main_case
    elements = case.kv_heads * (case.head_dim + (0 if case.latent else case.value_dim))
    return str(case.kv_bytes * case.head_dim // (case.tokens * elements))


# --------------------------------------------------------------------------- frames


def settings(record: Record | None) -> pd.DataFrame:
    """List what a record was taken on and with. Columns: setting, value."""
    columns = ("setting", "value")
    if record is None:
        return rows_or_nothing(columns, [])
    here = record.device
    versions = ", ".join(
        f"{name} {version}" for name, version in record.software.items() if version
    )
    sizes = record.settings["page_sizes"]
    assert isinstance(sizes, list)
    rows = {
        "device": _machine(record),
        "memory": _bytes(here.memory_bytes),
        "last-level cache": _bytes(here.last_level_cache_bytes),
        "software": versions + (f", driver {here.driver}" if here.driver else ""),
        "taken": f"{record.date}, in {record.elapsed_s:.0f} s, by {record.command}",
        "source": f"commit {(record.source.commit or 'unknown')[:12]}"
        + (", with edits" if record.source.dirty else ""),
        "copy bandwidth": f"{record.copy_bytes_per_s / 1e9:,.1f} GB/s, reads and writes together",
        "page sizes": ", ".join(map(str, sizes)),
        "repetitions": f"{len(record.timings[0].seconds)}, page sizes, layouts and peers in turn",
        "main case": main_case(record),
    }
    return rows_or_nothing(columns, [{"setting": k, "value": v} for k, v in rows.items()])


def _bytes(count: int) -> str:
    if count < 1:
        return "unknown"
    return format_value(count, "bytes").replace("\N{NO-BREAK SPACE}", " ")


SWEEP_COLUMNS = (
    "peer",
    "layout",
    "page_size",
    "ratio",
    "ratio_low",
    "ratio_high",
    "share",
    "seconds",
    "baseline",
)


def main_sweep(record: Record | None) -> pd.DataFrame:
    """Lay out every timing of the main case, peer by peer.

    Columns: peer, layout, page_size, ratio to the contiguous time of ``baseline`` (median and
    quartiles of the ratios within a repetition), share (of the measured copy bandwidth), seconds.
    """
    if record is None:
        return rows_or_nothing(SWEEP_COLUMNS, [])
    frame = record.frame()
    frame = frame[frame["case"] == record.main_case.id]
    known = [*PEERS, *sorted(set(frame["peer"]) - set(PEERS))]
    placed = list(PLACED)
    rows = sorted(
        ({str(name): value for name, value in row.items()} for row in frame.to_dict("records")),
        key=lambda row: (known.index(row["peer"]), placed.index(row["layout"]), row["page_size"]),
    )
    return rows_or_nothing(SWEEP_COLUMNS, rows)


def absences(record: Record | None) -> pd.DataFrame:
    """Gather what was not measured, and why. Columns: peer, not measured, because."""
    columns = ("peer", "not measured", "because")
    grouped: dict[tuple[str, str], list[tuple[str | None, int | None]]] = {}
    for absence in () if record is None else record.absent:
        # A reason that ends in the page size it is about is one reason for all of them.
        ending = f", not {absence.page_size}"
        key = (absence.peer, " ".join(absence.reason.split()).removesuffix(ending))
        grouped.setdefault(key, []).append((absence.case, absence.page_size))
    rows = []
    for (peer, reason), where in grouped.items():
        case_ids = {case for case, _ in where if case is not None}
        sizes = sorted({size for _, size in where if size is not None})
        parts = []
        if sizes:
            parts.append(f"pages of {', '.join(map(str, sizes))}")
        if case_ids:
            parts.append(next(iter(case_ids)) if len(case_ids) == 1 else f"{len(case_ids)} cases")
        rows.append(
            {
                "peer": peer_label(peer),
                "not measured": " in ".join(parts) or "anything",
                "because": reason,
            }
        )
    return rows_or_nothing(columns, rows)
