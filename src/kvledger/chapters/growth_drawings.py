"""The figures of the chapter on growth: pools over time. They compute nothing.

A pool is drawn as a stack of what its capacity is made of. Sharing is no layer of it: what is
spared stands on a line of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, PercentFormatter

from kvledger.chapters import palette
from kvledger.chapters.drawings import short_binary
from proofbook import style

INK = style.INK["light"]

LAYERS: Mapping[str, tuple[str, str, str | None]] = {
    "used": ("used", "used", None),
    "tail_slack": ("tail slack", "tail slack", None),
    "reserved_later": ("reserved", "reserved, used later", ""),
    "reserved_never": ("reserved", "reserved, never used", None),
    "external": ("external", "holes too small to use", None),
    "unallocated": ("unallocated", "unallocated", None),
}
"""Column of a frame: part of the visual language, words, and a hatch that replaces the part's."""


SYSTEMS = {
    "orca_max": "Orca, maximum",
    "orca_pow2": "Orca, powers of two",
    "orca_oracle": "Orca, oracle",
    "vllm": "vLLM",
}
"""What a figure calls the systems of Kwon et al. 2023."""

SHARES = {
    "token_states": "tokens",
    "reserved": "reserved, used later",
    "internal": "never used",
    "external_other": "external and other",
}
"""What a figure calls the shares of their Figure 2."""


def _look(column: str) -> dict[str, Any]:
    part, _, hatch = LAYERS[column]
    look = palette.part_style(part)
    if hatch is not None:
        look["hatch"] = hatch or None
    return look


def _key(ax: Axes, columns: Sequence[str], *, lift: float) -> None:
    handles = [Patch(**_look(column)) for column in columns]
    ax.legend(
        handles,
        [LAYERS[column][1] for column in columns],
        loc="lower left",
        bbox_to_anchor=(0, lift),
        ncols=3,
        borderpad=0,
        borderaxespad=0.2,
        columnspacing=1.4,
        handlelength=1.2,
        handleheight=1.0,
        fontsize=8.5,
    )


def _present(frame: pd.DataFrame) -> list[str]:
    return [column for column in LAYERS if float(frame[column].max()) > 0]


def pools_over_time(frame: pd.DataFrame, *, title: str, x_label: str) -> Figure:
    """Draw what each pool's capacity is made of over time, one panel below the other.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.replays.growth.over_time` gives it.
    title : str
        The conclusion.
    x_label : str
        What time is counted in.
    """
    names = list(dict.fromkeys(frame["policy"]))
    fig, axes = style.canvas(1.25 * len(names) + 1.2, len(names), squeeze=False)
    style.headline(fig, title)
    columns = _present(frame)
    for ax, name in zip(axes[:, 0], names, strict=True):
        rows = frame[frame["policy"] == name]
        xs = rows["time_s"].to_numpy(float)
        low = np.zeros(len(rows))
        for column in columns:
            high = low + rows[column].to_numpy(float)
            if (high > low).any():
                look = _look(column)
                look["linewidth"] = 0.0
                ax.fill_between(xs, low, high, **look)
            low = high
        ax.set_title(str(name), fontsize=9.5, pad=3)
        ax.set(xlim=(xs[0], max(xs[-1], xs[0] + 1)), ylim=(0, 1))
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.set_yticks([0, 0.5, 1])
        if float(rows["shared_share"].max()) > 0:
            line = rows["shared_share"].to_numpy(float)
            ax.plot(xs, line, color=INK.paper, lw=4.0)  # a rim, so that it shows on any layer
            ax.plot(xs, line, color=palette.PART["shared"].colour, lw=2.0)
            ax.annotate(
                "spared by sharing",
                (xs[len(xs) // 2], float(line[len(xs) // 2])),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
                color=style.ON_COLOUR,
            )
    axes[-1, 0].set_xlabel(x_label)
    _key(axes[0, 0], columns, lift=1.22)
    return fig


def slot_steps(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw small pools step by step, in slots: one bar a step, one panel a policy.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.replays.growth.step_by_step` gives it.
    title : str
        The conclusion.
    """
    names = list(dict.fromkeys(frame["policy"]))
    fig, axes = style.canvas(3.8, 1, len(names), squeeze=False, sharey=True)
    style.headline(fig, title)
    columns = _present(frame)
    for ax, name in zip(axes[0], names, strict=True):
        rows = frame[frame["policy"] == name]
        low = np.zeros(len(rows))
        for column in columns:
            height = rows[column].to_numpy(float)
            ax.bar(rows["step"], height, bottom=low, width=0.84, **_look(column))
            low += height
        for step, running, waiting in rows[["step", "running", "waiting"]].itertuples(index=False):
            words = f"{running}" + (f"+{waiting}" if waiting else "")
            ax.text(step, float(low.max()) * 1.01, words, ha="center", va="bottom", fontsize=6.3)
        ax.set_title(str(name), fontsize=9.5, pad=14)
        ax.set_xlabel("step")
        ax.set_xlim(-0.7, float(frame["step"].max()) + 0.7)
    axes[0, 0].set_ylabel("slots")
    _key(axes[0, 0], columns, lift=1.16)
    return fig


def loads(frame: pd.DataFrame, *, title: str, panels: Mapping[str, str]) -> Figure:
    """Draw how many requests run and wait over time, one panel a setting, on one scale.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.replays.growth.over_time` gives it.
    title : str
        The conclusion.
    panels : mapping of str to str
        Setting to what its panel is called.
    """
    fig, axes = style.canvas(
        1.6 * len(panels) + 0.8, len(panels), squeeze=False, sharex=True, sharey=True
    )
    style.headline(fig, title)
    for ax, (name, words) in zip(axes[:, 0], panels.items(), strict=True):
        rows = frame[frame["policy"] == name]
        ax.plot(rows["time_s"], rows["running"], color=INK.ink, lw=1.2)
        ax.fill_between(
            rows["time_s"].to_numpy(float),
            0,
            rows["waiting"].to_numpy(float),
            color=INK.faint,
            alpha=0.5,
            lw=0,
        )
        ax.set_title(words, fontsize=9.5, pad=3)
        ax.set_ylabel("requests")
        ax.grid(axis="y")
    top = axes[0, 0]
    top.plot([], [], color=INK.ink, lw=1.2, label="running")
    top.fill_between([], [], color=INK.faint, alpha=0.5, lw=0, label="waiting")
    top.legend(loc="upper right", ncols=2)
    axes[-1, 0].set_xlabel("seconds, by the stated model of a step")
    axes[-1, 0].set_ylim(bottom=0)
    return fig


def hit_curve(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the hit rate of a prefix cache against its size, and of one that never evicts.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.replays.growth.hit_rates` gives it.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(3.3)
    style.headline(fig, title)
    sized = frame[frame["capacity_slots"].notna()]
    endless = float(frame.loc[frame["capacity_slots"].isna(), "hit_rate"].iloc[0])
    xs, ys = sized["capacity_slots"].to_numpy(float), sized["hit_rate"].to_numpy(float)
    ax.plot(xs, ys, color=INK.ink, marker="o")
    ax.axhline(endless, color=INK.ink, lw=0.9)
    ax.annotate(
        "never evicts", (xs[0], endless), xytext=(0, 4), textcoords="offset points", fontsize=8.5
    )
    ax.set_xscale("log", base=2)
    ax.set_xticks(xs)
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set(
        ylim=(0, max(endless * 1.15, 0.01)),
        xlabel="slots of the pool",
        ylabel="prompt tokens found cached",
    )
    ax.grid(axis="y")
    return fig


def beside_published(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw replayed shares as dots beside published ones as ticks, one row a share.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.replays.figure2.shares` gives it; rows without a published
        share are left out.
    title : str
        The conclusion.
    """
    frame = frame[frame["published"].notna()]
    fig, ax = style.canvas(0.27 * len(frame) + 1.2)
    style.headline(fig, title)
    at = -np.arange(len(frame), dtype=float)
    published, replayed = (frame[c].to_numpy(float) for c in ("published", "computed"))
    ax.hlines(at, published, replayed, color=INK.faint, lw=2)
    ax.plot(published, at, "|", color=INK.ink, ms=13, mew=1.8, label="published")
    ax.plot(replayed, at, "o", color=INK.ink, ms=5, label="replayed")
    names = zip(frame["system"], frame["part"], strict=True)
    ax.set(yticks=at, xlabel="% of the cache's memory", xlim=(0, 100))
    ax.set_yticklabels([f"{SYSTEMS[system]}: {SHARES[part]}" for system, part in names])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)
    return fig
