"""What the chapter on measured attention says about a record, and about there being none.

Every function takes a record or None. Without one, texts say that nothing was measured and a frame
has one row that says so: the chapter reads the same whatever has been measured. The bars are for an
H200 and for this project's kernel; of a record from a CPU the table of bars says so.
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

KERNEL = "triton"
"""This project's kernel, among the peers of a record."""

PEERS: Mapping[str, str] = {
    KERNEL: "this kernel",
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


def measured_text(value: float | None, fmt: str) -> str:
    """Write a value, or that there is none.

    Examples
    --------
    >>> measured_text(1.25, ".1f"), measured_text(None, ".1f"), measured_text(float("nan"), ".1f")
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


def sweep_of(
    record: Record, peer: str, layout: str = "random", case: str | None = None
) -> list[Timing]:
    """Return a peer's timings of a case, the main one if not named, at one layout.

    They begin with the smallest pages.
    """
    key = (case or record.main_case.id, peer, layout)
    found = [t for t in record.timings if (t.case, t.peer, t.layout) == key]
    return sorted(found, key=lambda t: t.page_size)


def peer_in_view(record: Record) -> str | None:
    """Choose the peer that the text speaks of: this project's kernel, else the widest sweep.

    One that gathers the pages before it reads them comes after all that read through the table.
    """
    sizes = {t.peer: len(sweep_of(record, t.peer)) for t in record.timings}
    order = list(PEERS)

    def rank(peer: str) -> tuple[bool, bool, int, int]:
        place = order.index(peer) if peer in order else len(order)
        return peer == KERNEL, peer != "gather_sdpa", sizes[peer], -place

    return max((peer for peer in sizes if sizes[peer]), default=None, key=rank)


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
    here, source = record.device, record.source
    versions = [f"{name} {version}" for name, version in record.software.items() if version]
    versions += [f"driver {here.driver}"] if here.driver else []
    commit = (source.commit or "unknown")[:12]
    sizes = record.settings["page_sizes"]
    assert isinstance(sizes, list)
    rows = {
        "device": _machine(record),
        "memory": _bytes(here.memory_bytes),
        "last-level cache": _bytes(here.last_level_cache_bytes),
        "software": ", ".join(versions),
        "taken": f"{record.date}, in {record.elapsed_s:.0f} s, by {record.command}",
        "source": f"commit {commit}" + (", with edits" if source.dirty else ""),
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


def main_sweep(record: Record | None) -> pd.DataFrame:
    """Lay out every timing of the main case, peer by peer.

    Columns: peer, layout, page_size, ratio to the contiguous time of ``baseline`` (median and
    quartiles of the ratios within a repetition), share (of the measured copy bandwidth), seconds.
    """
    columns = (
        *("peer", "layout", "page_size", "ratio", "ratio_low", "ratio_high"),
        *("share", "seconds", "baseline"),
    )
    if record is None:
        return rows_or_nothing(columns, [])
    frame = record.frame()
    frame = frame[frame["case"] == record.main_case.id]
    known = [*PEERS, *sorted(set(frame["peer"]) - set(PEERS))]
    placed = list(PLACED)
    rows = sorted(
        ({str(name): value for name, value in row.items()} for row in frame.to_dict("records")),
        key=lambda row: (known.index(row["peer"]), placed.index(row["layout"]), row["page_size"]),
    )
    return rows_or_nothing(columns, rows)


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
        parts = [f"pages of {', '.join(map(str, sizes))}"] if sizes else []
        if case_ids:
            parts.append(next(iter(case_ids)) if len(case_ids) == 1 else f"{len(case_ids)} cases")
        row = (peer_label(peer), " in ".join(parts) or "anything", reason)
        rows.append(dict(zip(columns, row, strict=True)))
    return rows_or_nothing(columns, rows)


# --------------------------------------------------------------------------- the host

HOST: Mapping[str, tuple[str, bool]] = {
    "build_page_table": ("page table made anew", True),
    "extend_page_table": ("pages into a kept table", True),
    "allocate_pages": ("pages into lists", True),
    "hash_pages": ("hashing, pickled", False),
    "hash_pages_packed": ("hashing, packed", False),
}
"""What figures call each piece of host work, and whether it is done each step (or each token)."""


def host_work(record: Record | None) -> pd.DataFrame:
    """Lay out what the host does, by page size: each decode step, or once for each prompt token.

    Columns: what, each ("step" or "prompt token"), page_size, us with us_low and us_high (median
    and quartiles, microseconds of one such), requests, tokens (held, in a step).
    """
    columns = ("what", "each", "page_size", "us", "us_low", "us_high", "requests", "tokens")
    if record is None or not record.host:
        return rows_or_nothing(columns, [])
    # Work that follows growth was timed over several steps, of a token for each request.
    held = max((w.tokens for w in record.host if w.what == "build_page_table"), default=None)
    rows = []
    for job in record.host:
        words, stepwise = HOST.get(job.what, (job.what.replace("_", " "), False))
        grown = job.what in ("extend_page_table", "allocate_pages")
        steps = job.tokens / job.requests if grown else 1.0
        count = steps if stepwise else float(job.tokens)
        low, us, high = quartiles([1e6 * seconds / count for seconds in job.seconds])
        row: dict[str, object] = {"what": words, "each": "step" if stepwise else "prompt token"}
        row |= {"page_size": job.page_size, "us": us, "us_low": low, "us_high": high}
        row |= {"requests": job.requests, "tokens": held if stepwise else job.tokens}
        rows.append(row)
    return rows_or_nothing(columns, rows)


def host_microseconds(record: Record | None, what: str, page_size: int) -> str:
    """Write the microseconds of one piece of host work at one page size."""
    frame = host_work(record)
    found = frame[(frame["what"] == HOST[what][0]) & (frame["page_size"] == page_size)]
    return NOTHING if found.empty else measured_text(float(found["us"].iloc[0]), ",.3g")


def host_requests(record: Record | None) -> str:
    """Say how many requests and tokens a step of the host's work is for."""
    frame = host_work(record)
    stepwise = frame[frame["each"] == "step"]
    if stepwise.empty:
        return NOTHING
    first = stepwise.iloc[0]
    return f"{first['requests']:,} requests that hold {first['tokens']:,} tokens"


# --------------------------------------------------------------------------- bars and losses

BAR_DEVICE = "H200"
BAR_CASE = ("Llama-3.1-8B", 64, 8192)  # shape, requests, tokens of each
LEAST_SHARE = 0.9
FROM_PAGE_SIZE = 16
MOST_AGAINST_PEERS = 1.0
MOST_AT_ONE = 1.15


class _Reached(NamedTuple):
    value: float
    words: str
    where: str


def bars(record: Record | None) -> pd.DataFrame:
    """Hold the kernel against its bars: the worst value of each, over both placements of pages.

    Columns: bar, asked, reached (median and quartiles over the repetitions), where, verdict. The
    verdict is about the median.
    """
    timings: list[Timing] = []
    if record is not None and record.device.kind == "cuda":
        cases = {c.id for c in record.cases if (c.shape, c.batch, c.context_tokens) == BAR_CASE}
        timings = [t for t in record.timings if t.case in cases]
    mine = [t for t in timings if t.peer == KERNEL and t.layout != "contiguous"]
    wide = [t for t in mine if t.page_size >= FROM_PAGE_SIZE]
    rows = [
        {
            "bar": f"share of the copy bandwidth, pages of {FROM_PAGE_SIZE} and more",
            "asked": f"at least {format_value(LEAST_SHARE, '.0%')}",
            **_judged(record, _least_share(record, wide), LEAST_SHARE, at_least=True),
        },
        {
            "bar": f"time against the fastest peer, pages of {FROM_PAGE_SIZE} and more",
            "asked": "no longer",
            **_judged(record, _against_peers(timings, wide), MOST_AGAINST_PEERS),
        },
        {
            "bar": "time against contiguous memory, pages of 1",
            "asked": f"at most {format_value(MOST_AT_ONE, '.2f')} times",
            **_judged(record, _at_one(record, mine), MOST_AT_ONE),
        },
    ]
    return pd.DataFrame(rows, dtype=object)


def _least_share(record: Record | None, wide: list[Timing]) -> _Reached | None:
    if record is None or not wide:
        return None
    worst = min(wide, key=lambda t: share(record, t))
    high, value, low = (
        share(record, worst) * worst.median_s / seconds for seconds in quartiles(worst.seconds)
    )
    words = f"{value:.1%} ({low:.1%} to {high:.1%})"
    return _Reached(value, words, _where(worst))


def _against_peers(timings: list[Timing], wide: list[Timing]) -> _Reached | None:
    """Find where a peer is furthest ahead: at the same page size and layout, or contiguous."""
    found = []
    for mine in wide:
        for other in timings:
            same = (other.layout, other.page_size) == (mine.layout, mine.page_size)
            if other.peer != KERNEL and (same or other.layout == "contiguous"):
                where = f"{_where(mine)}, against {peer_label(other.peer)}"
                where += "" if same else " on contiguous memory"
                found.append(_ratio(mine, other, where))
    return max(found, key=lambda each: each.value, default=None)


def _at_one(record: Record | None, mine: list[Timing]) -> _Reached | None:
    found = []
    for timing in mine:
        base = None if record is None else record.baseline(timing)
        if timing.page_size == 1 and base is not None and base.peer == KERNEL:
            found.append(_ratio(timing, base, _where(timing)))
    return max(found, key=lambda each: each.value, default=None)


def _ratio(timing: Timing, other: Timing, where: str) -> _Reached:
    low, value, high = quartiles(ratios(timing, other))
    return _Reached(value, f"{value:.2f} times ({low:.2f} to {high:.2f})", where)


def _where(timing: Timing) -> str:
    return f"pages of {timing.page_size}, {PLACED[timing.layout]}"


def _judged(
    record: Record | None, reached: _Reached | None, asked: float, *, at_least: bool = False
) -> dict[str, object]:
    if record is None or record.device.kind != "cuda":
        return {"reached": None, "where": None, "verdict": "not measured on a GPU yet"}
    if reached is None:
        return {"reached": None, "where": None, "verdict": "not in this record"}
    short = asked - reached.value if at_least else reached.value - asked
    missed = f"{100 * short:.1f} points" if at_least else f"{short / asked:.1%}"
    verdict = "met" if short <= 0 else f"missed by {missed}"
    if BAR_DEVICE not in record.device.name:
        verdict += f", but the bar is for an {BAR_DEVICE}"
    return {"reached": reached.words, "where": reached.where, "verdict": verdict}


def losses(record: Record | None) -> pd.DataFrame:
    """Part what the peer in view loses against the copy: before pages, to pages, to placement.

    Columns: page size, contiguous share (of the copy bandwidth, without pages), in order (time
    against contiguous, pages one after the other), at random (time against pages in order), share
    (what is left of the bandwidth, pages at random). The first times what the two ratios take away
    is the last, but for the bytes of the table.
    """
    columns = (
        "page size",
        "contiguous share",
        "in order against contiguous",
        "at random against in order",
        "share at random",
    )
    seen = view(record)
    if seen is None:
        return rows_or_nothing(columns, [])
    record, peer = seen
    ordered = {t.page_size: t for t in sweep_of(record, peer, "in_order")}
    rows = []
    for timing in sweep_of(record, peer):
        base, between = record.baseline(timing), ordered.get(timing.page_size)
        row: dict[str, object] = {"page size": timing.page_size}
        row["share at random"] = share(record, timing)
        if base is not None:
            row["contiguous share"] = share(record, base)
        if base is not None and between is not None:
            row["in order against contiguous"] = quartiles(ratios(between, base))[1]
        if between is not None:
            row["at random against in order"] = quartiles(ratios(timing, between))[1]
        rows.append(row)
    return rows_or_nothing(columns, rows)
