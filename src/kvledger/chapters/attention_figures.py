"""Figures and titles of the chapter on measured attention.

Peers are told apart by a panel, a marker and two inks, not by the colours of a ledger's parts. What
a page costs is drawn in the colour of metadata, as everywhere. Values of others are hollow. A title
says the answer, and on what device; without a record, or where it has not what a title is about, it
says what would be shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from textwrap import shorten
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator, PercentFormatter

from kvledger.chapters import attention_report as report
from kvledger.chapters import drawing
from kvledger.chapters.attention_costs import fitted
from kvledger.chapters.drawing import DASHED, DOTTED, INK, PART, Look, headed, note
from kvledger.measure.record import Record
from proofbook import style
from proofbook.formats import format_value

PURPLE = PART["metadata"].colour
_MOST_TICKS = 5

PEER_STYLES: dict[str, drawing.LineStyle] = {
    "triton": drawing.LineStyle(INK.ink, "-", "o"),
    "sdpa": drawing.LineStyle(INK.faint, "-", ""),
    "gather_sdpa": drawing.LineStyle(INK.faint, DASHED, "s"),
    "flex_paged": drawing.LineStyle(INK.ink, DASHED, "D"),
    "flash_paged": drawing.LineStyle(INK.faint, (0, (6, 1.5, 1, 1.5)), "X"),
    "flashinfer": drawing.LineStyle(INK.faint, "-", "^"),
    "cudnn_paged": drawing.LineStyle(INK.ink, DOTTED, "v"),
    "pallas_paged": drawing.LineStyle(INK.faint, DOTTED, "P"),
}
"""How each peer is drawn where several share one panel."""


def nothing(title: str) -> Figure:
    """Draw an empty panel that says that nothing was measured."""
    fig, ax = headed(1.6, title)
    ax.axis("off")
    ax.text(0.5, 0.45, report.NOTHING, ha="center", va="center", transform=ax.transAxes)
    return fig


# ---------------------------------------------------------------- a page table, by hand


def small_table(lengths: Sequence[int], page_size: int, seed: int = 0) -> pd.DataFrame:
    """Put a few requests into pages of a pool that were handed out in no order.

    Columns: request, page (of the request), entry (the physical page, as the table has it), tokens
    (of the request in it) and page_size.

    Examples
    --------
    >>> frame = small_table([5, 9], page_size=4)
    >>> frame["tokens"].tolist(), sorted(frame["entry"])
    ([4, 1, 4, 4, 1], [0, 1, 2, 3, 4])
    """
    pages = [
        (request, page, min(page_size, length - page * page_size))
        for request, length in enumerate(lengths)
        for page in range(-(-length // page_size))
    ]
    entries = np.random.default_rng(seed).permutation(len(pages)).tolist()
    rows = [(r, p, entry, n, page_size) for (r, p, n), entry in zip(pages, entries, strict=True)]
    return pd.DataFrame(rows, columns=["request", "page", "entry", "tokens", "page_size"])


def table_reads(lengths: Sequence[int], page_sizes: Sequence[int]) -> pd.DataFrame:
    """Count what one decode step reads: tokens, and entries of the page table, by page size.

    Columns: page size, tokens read, entries read, tokens an entry.

    Examples
    --------
    >>> table_reads([5, 9, 17], [1, 4])["entries read"].tolist()
    [31, 10]
    """
    tokens = sum(lengths)
    rows = []
    for size in page_sizes:
        entries = len(small_table(lengths, size))
        rows.append((size, tokens, entries, Fraction(tokens, entries)))
    columns = ["page size", "tokens read", "entries read", "tokens an entry"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def page_table(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw requests' tokens, the table's entries and the pool, row by row, of `small_table`."""
    size = int(frame["page_size"].iloc[0])
    step = size + 0.6
    fig, ax = headed(1.85, title)
    count = len(frame)
    table_y, pool_y = 0.0, -3.4
    shift = 0.0
    last = int(frame["request"].iloc[0])
    rows = frame[["request", "entry", "tokens"]].to_numpy(int).tolist()
    for i, (request, entry, tokens) in enumerate(rows):
        if request != last:
            shift, last = shift + 0.9, request
        x = i * step + shift
        _page(ax, x, 3.0, size, tokens)
        middle, target = x + size / 2, entry * step + size / 2
        frame_look = {"facecolor": INK.paper, "edgecolor": PURPLE, "linewidth": 1.6}
        _box(ax, middle - 0.75, table_y - 0.55, 1.5, 1.1, 0.15, **frame_look)
        words: Look = {"ha": "center", "va": "center_baseline", "fontsize": 8.5}
        ax.text(middle, table_y, str(entry), color=INK.ink, **words)
        ax.plot([middle] * 2, [2.7, table_y + 0.6], color=INK.faint, lw=0.8)
        ax.plot([middle, target], [table_y - 0.6, pool_y + 1.25], color=INK.faint, lw=0.8)
        _page(ax, target - size / 2, pool_y, size, tokens)
    right = count * step + shift
    for y, name in ((3.5, "requests"), (table_y, "page table"), (pool_y + 0.5, "pool")):
        ax.text(-1.0, y, name, ha="right", va="center_baseline", fontsize=9)
    ax.set(xlim=(-9.5, right), ylim=(pool_y - 0.4, 4.4), aspect="equal", anchor="W")
    ax.axis("off")
    return fig


def _page(ax: Axes, x: float, y: float, size: int, tokens: int) -> None:
    for slot in range(size):
        look = drawing.part_style("used" if slot < tokens else "tail slack")
        _box(ax, x + slot + 0.06, y + 0.08, 0.88, 0.84, 0.12, **look)


def _box(
    ax: Axes, x: float, y: float, width: float, height: float, rounding: float, **look: Any
) -> None:
    rounded = f"round,pad=0,rounding_size={rounding}"
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=rounded, **look))


def page_table_title(frame: pd.DataFrame) -> str:
    """Say how many entries are read to find how many tokens.

    Examples
    --------
    >>> page_table_title(pd.DataFrame({"tokens": [4, 1, 4]}))
    'To read 9 tokens, a step reads 3 entries of the page table'
    """
    tokens = frame["tokens"].sum()
    return f"To read {tokens} tokens, a step reads {len(frame)} entries of the page table"


# ---------------------------------------------------------------- time and bandwidth


def latency(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw time against contiguous, a panel a peer, quartiles as bands, of `report.main_sweep`."""
    paged = frame[(frame["layout"] != "contiguous") & frame["ratio"].notna()]
    if report.is_nothing(frame) or paged.empty:
        return nothing(title)
    peers = drawing.panels_of(paged, "peer")
    columns = min(3, len(peers))
    rows = math.ceil(len(peers) / columns)
    fig, axes = headed(2.2 * rows + 0.75, title, rows, columns, squeeze=False)
    for ax in axes.flat[len(peers) :]:
        ax.axis("off")
    sizes = paged["page_size"]
    for ax, peer in zip(axes.flat, peers, strict=False):
        mine = paged[paged["peer"] == peer]
        for layout in ("in_order", "random"):
            part = mine[mine["layout"] == layout]
            if not part.empty:
                _placed_line(ax, part, layout)
        ax.axhline(1.0, color=INK.ink, lw=0.8, zorder=0)
        base = str(mine["baseline"].iloc[0])
        against = "itself" if base == peer else report.peer_label(base)
        ax.set_title(f"{report.peer_label(str(peer))}\nagainst {against}", fontsize=9, pad=4)
        ax.grid(axis="y")
        drawing.powers_of_two(ax, sizes, _MOST_TICKS)
        ax.set_xlim(float(sizes.min()) / 1.4, float(sizes.max()) * 1.4)
        # One, which is contiguous, is in every panel, with no more room than the times need.
        low = min(1.0, float(mine["ratio_low"].min()))
        high = max(1.0, float(mine["ratio_high"].max()))
        pad = 0.08 * (high - low) + 0.005
        ax.set_ylim(low - pad, high + pad)
        ax.set_xlabel("page size, slots")
    for ax in axes[:, 0]:
        ax.set_ylabel("times contiguous")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8.5)
    return fig


def _placed(layout: str) -> Look:
    """Tell placements apart: at random full, in order hollow."""
    full = layout == "random"
    return {"marker": "o" if full else "s", "mfc": INK.ink if full else INK.paper}


def _placed_line(ax: Axes, part: pd.DataFrame, layout: str) -> None:
    names = ("page_size", "ratio", "ratio_low", "ratio_high")
    xs, ys, low, high = (part[name].to_numpy(float) for name in names)
    ax.fill_between(xs, low, high, color=INK.faint, alpha=0.3, lw=0)
    look: Look = {"linestyle": "-" if layout == "random" else DASHED, "markersize": 4}
    ax.plot(xs, ys, color=INK.ink, label=report.PLACED[layout], **look, **_placed(layout))


def latency_title(record: Record | None) -> str:
    r"""Say how long the peer in view takes at the page sizes that sentences speak of.

    Examples
    --------
    >>> latency_title(None)
    'Time against contiguous memory\n(no device)'
    """
    seen = report.view(record)
    times = []
    for timing in () if seen is None else report.sweep_of(*seen):
        base = None if seen is None else seen.record.baseline(timing)
        if timing.page_size in report.SHOWN_SIZES and base is not None:
            middle = report.quartiles(report.ratios(timing, base))[1]
            times.append(f"{format_value(middle, '.2f')} (pages of {timing.page_size})")
    if not times:
        return report.titled("Time against contiguous memory", record)
    against = report.baseline_label(record)
    than = "without pages" if against == "itself" else f"{against} without pages"
    return report.titled(
        f"{report.in_view(record)} takes {' and '.join(times)} times as long as {than}", record
    )


def bandwidth(frame: pd.DataFrame, *, title: str, bar: float, bar_words: str) -> Figure:
    """Draw the share of the copy bandwidth by page size, pages at random, one line per peer.

    A peer that was timed on contiguous memory only is a level line.

    The frame is as :func:`kvledger.chapters.attention_report.main_sweep` gives it. bar: the
    share that this project's kernel is to reach: a level line where it was timed. bar_words:
    what the line is.
    """
    if report.is_nothing(frame):
        return nothing(title)
    fig, ax = headed(3.7, title)
    sizes = frame.loc[frame["layout"] == "random", "page_size"].astype(int)
    least, most = (int(sizes.min()), int(sizes.max())) if len(sizes) else (1, 256)
    ends = []
    for peer in drawing.panels_of(frame, "peer"):
        mine = frame[frame["peer"] == peer]
        colour, line, marker = PEER_STYLES.get(peer, drawing.LineStyle(INK.faint, DOTTED, "*"))
        part = mine[mine["layout"] == "random"]
        words = report.peer_label(peer)
        xs, ys = part["page_size"].to_numpy(float), part["share"].to_numpy(float)
        if part.empty:
            xs, ys = np.array([least, most], float), np.full(2, float(mine["share"].iloc[0]))
            words, marker = f"{words}, contiguous", ""
        ax.plot(xs, ys, color=colour, linestyle=line, marker=marker, markersize=4.5)
        ends.append((float(xs[-1]), float(ys[-1]), words))
    if report.KERNEL in set(frame["peer"]):
        ax.axhline(bar, color=INK.ink, lw=0.8, linestyle=DOTTED, zorder=0)
        ends.append((float(most), bar, bar_words))
    drawing.powers_of_two(ax, sizes if len(sizes) else [least, most], _MOST_TICKS)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylim(0, max(1.0, float(frame["share"].astype(float).max())) * 1.06)
    ax.set(xlabel="page size, slots", ylabel="share of the copy bandwidth")
    ax.grid(axis="y")
    style.end_labels(ax, ends, fontsize=8.5)
    return fig


def bandwidth_title(record: Record | None) -> str:
    r"""Say which share of the copy bandwidth the peer in view reaches in the usual pages.

    Examples
    --------
    >>> bandwidth_title(None)
    'Share of the copy bandwidth, pages at random\n(no device)'
    """
    size = report.SHOWN_SIZES[0]
    frame = report.main_sweep(record)
    seen = report.view(record)
    share = None
    if seen is not None:
        mine = frame[(frame["peer"] == seen.peer) & (frame["layout"] == "random")]
        share = mine.set_index("page_size")["share"].get(size)
    if share is None:
        return report.titled("Share of the copy bandwidth, pages at random", record)
    words = f"In pages of {size} at random, {report.in_view(record)} reaches"
    return report.titled(f"{words} {format_value(share, '.1%')} of the copy bandwidth", record)


def beside_published(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw published run times (hollow) above measured ones (full), of `published.beside`."""
    fig, ax = headed(0.29 * len(frame) + 1.55, title)
    gap = (frame["kind"] == "measured").cumsum().clip(upper=1) * 0.8
    at = -(np.arange(len(frame), dtype=float) + gap.to_numpy(float))
    most = float(frame["high"].astype(float).max())
    for y, row in zip(at, frame.to_dict("records"), strict=True):
        theirs, high = row["kind"] == "published", float(row["high"])
        low = 1.0 if row["low"] is None else float(row["low"])
        colour = INK.faint if theirs else INK.ink
        ax.plot([low, high], [y, y], color=colour, lw=3.0, solid_capstyle="butt")
        if theirs:
            ends = [high] if row["low"] is None or low == high else [low, high]
            ax.plot(ends, [y] * len(ends), "o", color=INK.ink, mfc=INK.paper, ms=5)
        else:
            ax.plot([float(row["middle"])], [y], "o", color=INK.ink, ms=5)
        note(ax, str(row["words"]), (high, y), (7, 0), va="center")
    ax.axvline(1.0, color=INK.ink, lw=0.8, zorder=0)
    for kind, words in (("published", "measured by others"), ("measured", "measured here")):
        chosen = (frame["kind"] == kind).to_numpy()
        if chosen.any():
            device = f": {frame.loc[chosen, 'source'].iloc[0]}" if kind == "measured" else ""
            left = (0.0, float(at[chosen].max()))
            look = {"within": ax.get_yaxis_transform(), "color": INK.faint}
            note(ax, shorten(words + device, 54, placeholder="..."), left, (5, 9), **look)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(drawing.PLAIN)
    ax.xaxis.set_minor_locator(NullLocator())
    drawing.named_rows(ax, at, frame["label"], fontsize=8.5)
    ax.set(
        xlim=(min(0.9, float(frame["high"].astype(float).min())) * 0.97, most * 1.6),
        ylim=(at.min() - 0.7, 1.1),
        xlabel="time against what each is compared with",
    )
    ax.grid(axis="x")
    return fig


def beside_published_title(frame: pd.DataFrame) -> str:
    """Say how long attention through a page table takes at most, elsewhere and here.

    Examples
    --------
    >>> rows = {"kind": ["published", "measured"], "high": [4.61, 17.2], "middle": [None, 17.04]}
    >>> beside_published_title(pd.DataFrame(rows))
    'Others report up to 4.61 times what they compare with; this record has up to 17.04 times'
    """
    kind = frame["kind"]
    theirs = format_value(frame.loc[kind == "published", "high"].max(), ".2f")
    words = f"Others report up to {theirs} times what they compare with"
    here = frame.loc[kind == "measured", "middle"]
    if here.empty:
        return f"{words}; nothing is measured here"
    return f"{words}; this record has up to {format_value(here.max(), '.2f')} times"


# ---------------------------------------------------------------- the cost of a page, the host


def line(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw time by pages with the fitted line, and what is off it, of `attention_costs.points`."""
    if report.is_nothing(frame) or frame["line_ms"].isna().all():
        return nothing(title)
    fig, (ax, below) = headed(4.6, title, 2, 1, height_ratios=[2.0, 1.0])
    for layout in drawing.panels_of(frame, "layout"):
        part = frame[frame["layout"] == layout].sort_values("pages").dropna(subset=["line_ms"])
        if part.empty:
            continue
        full = layout == "random"
        pages, ms = part["pages"].to_numpy(float), part["ms"].to_numpy(float)
        lines = part["line_ms"].to_numpy(float)
        ax.plot(pages, lines, color=PURPLE, lw=2, linestyle="-" if full else DASHED)
        look = {"linestyle": "", "color": INK.ink, "ms": 4.5, **_placed(layout)}
        look["label"] = f"{report.PLACED[layout]}: c = {_c(part)}"
        ax.plot(pages, ms, **look)
        sizes = part["page_size"].to_numpy(float)
        if full:
            _name_points(ax, sizes, pages, ms)
        off = part["off"].to_numpy(float)
        bars = np.abs(part[["off_low", "off_high"]].to_numpy(float).T - off)
        moved = sizes * (1.04 if full else 0.96)
        below.errorbar(moved, off, yerr=bars, ecolor=INK.faint, elinewidth=1.2, **look)
    ax.set(xlabel="pages", ylabel="ms a step and layer", xlim=(0, None))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    ax.set_ylim(0, float(frame["ms_high"].astype(float).max()) * 1.18)
    ax.legend(loc="lower right", fontsize=8.5, borderaxespad=0.4, handletextpad=0.2)
    ax.grid(axis="y")
    drawing.powers_of_two(below, frame["page_size"], _MOST_TICKS)
    below.axhline(0.0, color=PURPLE, lw=2)
    below.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    below.set(xlabel="page size, slots", ylabel="off the line")
    below.grid(axis="y")
    return fig


def _c(part: pd.DataFrame) -> str:
    c, low, high = (
        report.measured_text(part[name].iloc[0], ".3f") for name in ("c", "c_low", "c_high")
    )
    return f"{c} ({low} to {high}) token slots a page"


def _name_points(ax: Axes, sizes: np.ndarray, pages: np.ndarray, ms: np.ndarray) -> None:
    """Say the page size above the points that stand apart; those of large pages crowd together."""
    for size, x, y in zip(sizes, pages, ms, strict=True):
        if x >= 0.2 * float(pages.max()):
            ha = "right" if x == pages.max() else "center"
            note(ax, f"pages of {size:.0f}", (x, y), (0, 7), ha=ha)


def line_title(record: Record | None) -> str:
    r"""Say what a page costs, and whether the times are on a line.

    Examples
    --------
    >>> line_title(None)
    'A cost for each page, if the times are on a line\n(no device)'
    """
    cost = fitted(record)
    if cost is None:
        return report.titled("A cost for each page, if the times are on a line", record)
    c = format_value(float(cost.c_slots), ".3f")
    if cost.straight:
        return report.titled(
            f"A page costs the time of {c} tokens: the times are on a line", record
        )
    words = f"Fitted, a page costs the time of {c} tokens, but the times are not on a line"
    return report.titled(words, record)


def host(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw host time by page size, of a decode step and of a prompt token (`report.host_work`)."""
    if report.is_nothing(frame):
        return nothing(title)
    panels = drawing.panels_of(frame, "each")
    fig, axes = headed(2.5 * len(panels) + 0.4, title, len(panels), 1, squeeze=False)
    for ax, each in zip(axes[:, 0], panels, strict=True):
        ends = []
        rows = frame[frame["each"] == each]
        for index, (what, part) in enumerate(rows.groupby("what", sort=False)):
            names = ("page_size", "us", "us_low", "us_high")
            xs, ys, low, high = (part[name].to_numpy(float) for name in names)
            colour = INK.faint if index == 1 else INK.ink
            ax.fill_between(xs, low, high, color=colour, alpha=0.25, lw=0)
            ax.plot(xs, ys, color=colour, marker="os^Dv"[index % 5], markersize=4.5)
            ends.append((float(xs[-1]), float(ys[-1]), str(what)))
        drawing.powers_of_two(ax, frame["page_size"], _MOST_TICKS)
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(drawing.PLAIN)
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_ylabel(f"\N{MICRO SIGN}s a {each}")
        ax.grid(axis="y")
        style.end_labels(ax, ends, fontsize=8.5)
    axes[-1, 0].set_xlabel("page size, slots")
    return fig


def host_title(record: Record | None) -> str:
    r"""Say how long the host makes a table anew, at the page sizes that sentences speak of.

    Examples
    --------
    >>> host_title(None)
    'Host work by page size\n(no device)'
    """
    sizes = reversed(report.SHOWN_SIZES)
    found = {size: report.host_microseconds(record, "build_page_table", size) for size in sizes}
    times = [
        f"{us} \N{MICRO SIGN}s in pages of {size}"
        for size, us in found.items()
        if us != report.NOTHING
    ]
    if not times:
        return report.titled("Host work by page size", record)
    return report.titled(f"Making the page table anew takes {', '.join(times)}", record)
