"""The figures of the chapter on measured attention. They compute nothing.

Peers are told apart by a panel, a marker and two inks, not by the colours of a ledger's parts. What
a page costs is drawn in the colour of metadata, as everywhere. Values of others are hollow.
"""

from __future__ import annotations

import math
from textwrap import shorten

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    NullFormatter,
    NullLocator,
    PercentFormatter,
)

from kvledger.chapters import palette
from kvledger.chapters.attention_report import NOTHING, PLACED, is_nothing, peer_label, shown
from kvledger.chapters.drawings import short_binary
from proofbook import style

INK = style.INK["light"]
PURPLE = palette.PART["metadata"].colour

BARRED = "triton"

DASHED: tuple[float, tuple[float, ...]] = (0, (5, 1.5))
DOTTED: tuple[float, tuple[float, ...]] = (0, (1, 1.2))

PEER_STYLES: dict[str, palette.LineStyle] = {
    "triton": palette.LineStyle(INK.ink, "-", "o"),
    "sdpa": palette.LineStyle(INK.faint, "-", ""),
    "gather_sdpa": palette.LineStyle(INK.faint, DASHED, "s"),
    "flex_paged": palette.LineStyle(INK.ink, DASHED, "D"),
    "flash_paged": palette.LineStyle(INK.faint, (0, (6, 1.5, 1, 1.5)), "X"),
    "flashinfer": palette.LineStyle(INK.faint, "-", "^"),
    "cudnn_paged": palette.LineStyle(INK.ink, DOTTED, "v"),
    "pallas_paged": palette.LineStyle(INK.faint, DOTTED, "P"),
}
"""How each peer is drawn where several share one panel."""


def nothing(title: str) -> Figure:
    """Draw an empty panel that says that nothing was measured."""
    fig, ax = style.canvas(1.6)
    style.headline(fig, title)
    ax.axis("off")
    ax.text(0.5, 0.45, NOTHING, ha="center", va="center", transform=ax.transAxes)
    return fig


def page_table(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw requests' tokens, the table's entries and the pool they point into, row by row.

    Parameters
    ----------
    frame : DataFrame
        Columns request, page (of the request), entry (the physical page), tokens (in the page) and
        page_size.
    title : str
        The conclusion.
    """
    size = int(frame["page_size"].iloc[0])
    step = size + 0.6
    fig, ax = style.canvas(1.85)
    style.headline(fig, title)
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
        ax.add_patch(
            FancyBboxPatch(
                (x + size / 2 - 0.75, table_y - 0.55),
                1.5,
                1.1,
                boxstyle="round,pad=0,rounding_size=0.15",
                facecolor=INK.paper,
                edgecolor=PURPLE,
                linewidth=1.6,
            )
        )
        ax.text(
            x + size / 2,
            table_y,
            str(entry),
            color=INK.ink,
            ha="center",
            va="center_baseline",
            fontsize=8.5,
        )
        ax.plot([x + size / 2] * 2, [2.7, table_y + 0.6], color=INK.faint, lw=0.8)
        target = entry * step + size / 2
        ax.plot([x + size / 2, target], [table_y - 0.6, pool_y + 1.25], color=INK.faint, lw=0.8)
        _page(ax, target - size / 2, pool_y, size, tokens)
    right = count * step + shift
    for y, words in ((3.5, "requests"), (table_y, "page table"), (pool_y + 0.5, "pool")):
        ax.text(-1.0, y, words, ha="right", va="center_baseline", fontsize=9)
    ax.set(xlim=(-9.5, right), ylim=(pool_y - 0.4, 4.4), aspect="equal", anchor="W")
    ax.axis("off")
    return fig


def _page(ax: Axes, x: float, y: float, size: int, tokens: int) -> None:
    for slot in range(size):
        look = palette.part_style("used" if slot < tokens else "tail slack")
        ax.add_patch(
            FancyBboxPatch(
                (x + slot + 0.06, y + 0.08),
                0.88,
                0.84,
                boxstyle="round,pad=0,rounding_size=0.12",
                **look,
            )
        )


def latency(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw time against contiguous by page size, a panel a peer; quartiles are bands.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.chapters.attention_report.main_sweep` gives it.
    title : str
        What is shown.
    """
    paged = frame[(frame["layout"] != "contiguous") & frame["ratio"].notna()]
    if is_nothing(frame) or paged.empty:
        return nothing(title)
    peers = list(dict.fromkeys(paged["peer"]))
    columns = min(3, len(peers))
    rows = math.ceil(len(peers) / columns)
    fig, axes = style.canvas(2.2 * rows + 0.75, rows, columns, squeeze=False)
    style.headline(fig, title)
    for ax in axes.flat[len(peers) :]:
        ax.axis("off")
    for ax, peer in zip(axes.flat, peers, strict=False):
        mine = paged[paged["peer"] == peer]
        for layout in ("in_order", "random"):
            part = mine[mine["layout"] == layout].astype(
                {"page_size": float, "ratio": float, "ratio_low": float, "ratio_high": float}
            )
            if not part.empty:
                _placed_line(ax, part, "page_size", "ratio", layout)
        ax.axhline(1.0, color=INK.ink, lw=0.8, zorder=0)
        base = str(mine["baseline"].iloc[0])
        against = "itself" if base == peer else peer_label(base)
        ax.set_title(f"{peer_label(str(peer))}\nagainst {against}", fontsize=9, pad=4)
        ax.grid(axis="y")
        _page_sizes(ax, paged["page_size"])
        ax.set_xlim(float(paged["page_size"].min()) / 1.4, float(paged["page_size"].max()) * 1.4)
        _ratio_axis(ax, mine)
        ax.set_xlabel("page size, slots")
    for ax in axes[:, 0]:
        ax.set_ylabel("times contiguous")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8.5)
    return fig


def _placed_line(ax: Axes, part: pd.DataFrame, x: str, y: str, layout: str) -> None:
    """Draw one placement: at random full and solid, in order hollow and dashed."""
    full = layout == "random"
    xs, ys = part[x].to_numpy(float), part[y].to_numpy(float)
    low, high = part[f"{y}_low"].to_numpy(float), part[f"{y}_high"].to_numpy(float)
    ax.fill_between(xs, low, high, color=INK.faint, alpha=0.3, lw=0)
    ax.plot(
        xs,
        ys,
        color=INK.ink,
        linestyle="-" if full else DASHED,
        marker="o" if full else "s",
        markersize=4,
        mfc=INK.ink if full else INK.paper,
        label=PLACED[layout],
    )


def _page_sizes(ax: Axes, values: pd.Series) -> None:
    sizes = sorted({int(v) for v in values})
    shown = sizes if len(sizes) < 6 else sizes[::2]
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))


def _ratio_axis(ax: Axes, mine: pd.DataFrame) -> None:
    """Show one, which is contiguous, in every panel, and no more room than the times need."""
    low = min(1.0, float(mine["ratio_low"].min()))
    high = max(1.0, float(mine["ratio_high"].max()))
    pad = 0.08 * (high - low) + 0.005
    ax.set_ylim(low - pad, high + pad)


def bandwidth(frame: pd.DataFrame, *, title: str, bar: float, bar_words: str) -> Figure:
    """Draw the share of the copy bandwidth by page size, pages at random, one line a peer.

    A peer that was timed on contiguous memory only is a level line.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.chapters.attention_report.main_sweep` gives it.
    title : str
        What is shown.
    bar : float
        The share that this project's kernel is to reach: a level line where it was timed.
    bar_words : str
        What the line is.
    """
    if is_nothing(frame):
        return nothing(title)
    fig, ax = style.canvas(3.7)
    style.headline(fig, title)
    sizes = frame.loc[frame["layout"] == "random", "page_size"].astype(int)
    least, most = (int(sizes.min()), int(sizes.max())) if len(sizes) else (1, 256)
    ends = []
    for peer in dict.fromkeys(frame["peer"]):
        mine = frame[frame["peer"] == peer]
        colour, line, marker = PEER_STYLES.get(str(peer), palette.LineStyle(INK.faint, DOTTED, "*"))
        part = mine[mine["layout"] == "random"]
        words = peer_label(str(peer))
        xs, ys = part["page_size"].to_numpy(float), part["share"].to_numpy(float)
        if part.empty:
            level = float(mine["share"].iloc[0])
            xs, ys, words = (
                np.array([least, most], float),
                np.full(2, level),
                f"{words}, contiguous",
            )
            marker = ""
        ax.plot(xs, ys, color=colour, linestyle=line, marker=marker, markersize=4.5)
        ends.append((float(xs[-1]), float(ys[-1]), words))
    if BARRED in set(frame["peer"]):
        ax.axhline(bar, color=INK.ink, lw=0.8, linestyle=DOTTED, zorder=0)
        ends.append((float(most), bar, bar_words))
    _page_sizes(ax, sizes if len(sizes) else pd.Series([least, most]))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylim(0, max(1.0, float(frame["share"].astype(float).max())) * 1.06)
    ax.set(xlabel="page size, slots", ylabel="share of the copy bandwidth")
    ax.grid(axis="y")
    style.end_labels(ax, ends, fontsize=8.5)
    return fig


def beside_published(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw published run times (hollow, with their bounds) above measured ones (full).

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.chapters.attention_others.beside` gives it.
    title : str
        What is shown.
    """
    fig, ax = style.canvas(0.29 * len(frame) + 1.55)
    style.headline(fig, title)
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
        ax.annotate(
            str(row["words"]),
            (high, y),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    ax.axvline(1.0, color=INK.ink, lw=0.8, zorder=0)
    for kind, words in (("published", "measured by others"), ("measured", "measured here")):
        chosen = (frame["kind"] == kind).to_numpy()
        if chosen.any():
            device = f": {frame.loc[chosen, 'source'].iloc[0]}" if kind == "measured" else ""
            ax.annotate(
                shorten(words + device, 54, placeholder="..."),
                (0.0, float(at[chosen].max())),
                xycoords=ax.get_yaxis_transform(),
                xytext=(5, 9),
                textcoords="offset points",
                fontsize=8.5,
                color=INK.faint,
            )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set(
        xlim=(min(0.9, float(frame["high"].astype(float).min())) * 0.97, most * 1.6),
        ylim=(at.min() - 0.7, 1.1),
        yticks=at,
        xlabel="time against what each is compared with",
    )
    ax.set_yticklabels(list(frame["label"]), fontsize=8.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    return fig


def line(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw seconds against pages with the fitted line, and below how far off it each page size is.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.chapters.attention_costs.points` gives it.
    title : str
        What is shown.
    """
    if is_nothing(frame) or frame["line_ms"].isna().all():
        return nothing(title)
    fig, (ax, below) = style.canvas(4.6, 2, 1, height_ratios=[2.0, 1.0])
    style.headline(fig, title)
    for layout in dict.fromkeys(frame["layout"]):
        part = frame[frame["layout"] == layout].sort_values("pages").dropna(subset=["line_ms"])
        if part.empty:
            continue
        full = layout == "random"
        pages, ms = part["pages"].to_numpy(float), part["ms"].to_numpy(float)
        look = {"linestyle": "", "marker": "o" if full else "s", "color": INK.ink, "ms": 4.5}
        look["mfc"] = INK.ink if full else INK.paper
        lines = part["line_ms"].to_numpy(float)
        ax.plot(pages, lines, color=PURPLE, lw=2, linestyle="-" if full else DASHED)
        look["label"] = f"{PLACED[str(layout)]}: c = {_c(part)}"
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
    _page_sizes(below, frame["page_size"])
    below.axhline(0.0, color=PURPLE, lw=2)
    below.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    below.set(xlabel="page size, slots", ylabel="off the line")
    below.grid(axis="y")
    return fig


def _c(part: pd.DataFrame) -> str:
    c, low, high = (part[name].iloc[0] for name in ("c", "c_low", "c_high"))
    return f"{shown(c, '.3f')} ({shown(low, '.3f')} to {shown(high, '.3f')}) token slots a page"


def _name_points(ax: Axes, sizes: np.ndarray, pages: np.ndarray, ms: np.ndarray) -> None:
    """Say the page size above the points that stand apart; those of large pages crowd together."""
    for size, x, y in zip(sizes, pages, ms, strict=True):
        if x >= 0.2 * float(pages.max()):
            ax.annotate(
                f"pages of {size:.0f}",
                (x, y),
                xytext=(0, 7),
                textcoords="offset points",
                ha="right" if x == pages.max() else "center",
                fontsize=8.5,
            )


def host(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw host time by page size: what each decode step takes, and what each prompt token takes.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.chapters.attention_host.work` gives it.
    title : str
        What is shown.
    """
    if is_nothing(frame):
        return nothing(title)
    panels = list(dict.fromkeys(frame["each"]))
    fig, axes = style.canvas(2.5 * len(panels) + 0.4, len(panels), 1, squeeze=False)
    style.headline(fig, title)
    for ax, each in zip(axes[:, 0], panels, strict=True):
        ends = []
        rows = frame[frame["each"] == each]
        for index, (what, part) in enumerate(rows.groupby("what", sort=False)):
            xs, ys = part["page_size"].to_numpy(float), part["us"].to_numpy(float)
            colour = INK.faint if index == 1 else INK.ink
            low, high = part["us_low"].to_numpy(float), part["us_high"].to_numpy(float)
            ax.fill_between(xs, low, high, color=colour, alpha=0.25, lw=0)
            ax.plot(xs, ys, color=colour, marker="os^Dv"[index % 5], markersize=4.5)
            ends.append((float(xs[-1]), float(ys[-1]), str(what)))
        _page_sizes(ax, frame["page_size"])
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_ylabel(f"\N{MICRO SIGN}s a {each}")
        ax.grid(axis="y")
        style.end_labels(ax, ends, fontsize=8.5)
    axes[-1, 0].set_xlabel("page size, slots")
    return fig
