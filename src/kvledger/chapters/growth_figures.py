"""Figures and titles of the chapter on growth: pools over time.

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
from matplotlib.ticker import PercentFormatter

from kvledger.chapters import drawing
from kvledger.chapters.drawing import INK, PART, headed, note
from proofbook import style
from proofbook.formats import format_value

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


def layer_style(column: str) -> dict[str, Any]:
    """Return patch keywords that draw one layer of a pool.

    Examples
    --------
    >>> layer_style("reserved_later")["hatch"], layer_style("reserved_never")["hatch"]
    (None, '////')
    """
    part, _, hatch = LAYERS[column]
    look = drawing.part_style(part)
    return look if hatch is None else look | {"hatch": hatch or None}


def _key(ax: Axes, columns: Sequence[str], lift: float) -> None:
    words = [LAYERS[column][1] for column in columns]
    drawing.key_of_parts(ax, map(layer_style, columns), words, ncols=3, lift=lift, fontsize=8.5)


def _present(frame: pd.DataFrame) -> list[str]:
    return [column for column in LAYERS if float(frame[column].max()) > 0]


def pools_over_time(frame: pd.DataFrame, *, title: str, x_label: str) -> Figure:
    """Draw what pools are made of over time, panel below panel, of `growth.over_time`."""
    names = drawing.panels_of(frame, "policy")
    fig, axes = headed(1.25 * len(names) + 1.2, title, len(names), squeeze=False)
    columns = _present(frame)
    for ax, name in zip(axes[:, 0], names, strict=True):
        rows = frame[frame["policy"] == name]
        xs = rows["time_s"].to_numpy(float)
        low = np.zeros(len(rows))
        for column in columns:
            high = low + rows[column].to_numpy(float)
            if (high > low).any():
                ax.fill_between(xs, low, high, **(layer_style(column) | {"linewidth": 0.0}))
            low = high
        ax.set_title(str(name), fontsize=9.5, pad=3)
        ax.set(xlim=(xs[0], max(xs[-1], xs[0] + 1)), ylim=(0, 1))
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.set_yticks([0, 0.5, 1])
        if float(rows["shared_share"].max()) > 0:
            line = rows["shared_share"].to_numpy(float)
            ax.plot(xs, line, color=INK.paper, lw=4.0)  # a rim, so that it shows on any layer
            ax.plot(xs, line, color=PART["shared"].colour, lw=2.0)
            middle = (xs[len(xs) // 2], float(line[len(xs) // 2]))
            note(ax, "spared by sharing", middle, (0, 5), ha="center", color=style.ON_COLOUR)
    axes[-1, 0].set_xlabel(x_label)
    _key(axes[0, 0], columns, lift=1.22)
    return fig


def pools_title(shares: pd.DataFrame) -> str:
    """Say under which policy tokens fill least of the pool, and under which most.

    Examples
    --------
    >>> pools_title(pd.DataFrame({"policy": ["one", "two"], "used": [0.1, 0.95]}))
    'Tokens fill 10.0% (one) to 95.0% (two) of the pool on average'
    """
    used = shares.set_index("policy")["used"].sort_values(kind="stable")
    ends = {name: format_value(used[name], ".1%") for name in (used.index[0], used.index[-1])}
    return f"Tokens fill {drawing.each_with(ends, 'to')} of the pool on average"


def slot_steps(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw small pools in slots: a bar a step, a panel a policy, of `growth.step_by_step`."""
    names = drawing.panels_of(frame, "policy")
    fig, axes = headed(3.8, title, 1, len(names), squeeze=False, sharey=True)
    columns = _present(frame)
    for ax, name in zip(axes[0], names, strict=True):
        rows = frame[frame["policy"] == name]
        low = np.zeros(len(rows))
        for column in columns:
            height = rows[column].to_numpy(float)
            ax.bar(rows["step"], height, bottom=low, width=0.84, **layer_style(column))
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


def slot_steps_title(frame: pd.DataFrame) -> str:
    """Say after how many steps all requests have ended, policy by policy.

    Examples
    --------
    >>> slot_steps_title(pd.DataFrame({"policy": ["one", "one", "two"], "step": [0, 1, 0]}))
    'All requests have ended after 2 (one) or 1 (two) steps'
    """
    steps = frame.groupby("policy", sort=False)["step"].max() + 1
    return f"All requests have ended after {drawing.each_with(steps.to_dict(), 'or')} steps"


def loads(frame: pd.DataFrame, *, title: str, panels: Mapping[str, str]) -> Figure:
    """Draw requests that run and wait, `panels` naming the settings, of `growth.over_time`."""
    alike = {"squeeze": False, "sharex": True, "sharey": True}
    fig, axes = headed(1.6 * len(panels) + 0.8, title, len(panels), **alike)
    line, area = {"color": INK.ink, "lw": 1.2}, {"color": INK.faint, "alpha": 0.5, "lw": 0}
    for ax, (name, words) in zip(axes[:, 0], panels.items(), strict=True):
        rows = frame[frame["policy"] == name]
        ax.plot(rows["time_s"], rows["running"], **line)
        xs, waiting = (rows[column].to_numpy(float) for column in ("time_s", "waiting"))
        ax.fill_between(xs, 0, waiting, **area)
        ax.set_title(words, fontsize=9.5, pad=3)
        ax.set_ylabel("requests")
        ax.grid(axis="y")
    top = axes[0, 0]
    top.plot([], [], label="running", **line)
    top.fill_between([], [], label="waiting", **area)
    top.legend(loc="upper right", ncols=2)
    axes[-1, 0].set_xlabel("seconds, by the stated model of a step")
    axes[-1, 0].set_ylim(bottom=0)
    return fig


def loads_title(strain: pd.DataFrame) -> str:
    """Say how often requests were preempted under each way to arrive.

    Examples
    --------
    >>> loads_title(pd.DataFrame({"setting": ["evenly", "in bursts"], "preempted": [0, 1534]}))
    'At one mean load, requests had to leave 0 times (evenly) or 1534 times (in bursts)'
    """
    counts = strain.set_index("setting")["preempted"].astype(int).map(format_value)
    said = drawing.each_with(counts.to_dict(), "or", "{} times ({})")
    return f"At one mean load, requests had to leave {said}"


def hit_curve(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw the hit rate of a prefix cache by its size, and without end, of `growth.hit_rates`."""
    fig, ax = headed(3.3, title)
    sized = frame[frame["capacity_slots"].notna()]
    endless = float(frame.loc[frame["capacity_slots"].isna(), "hit_rate"].iloc[0])
    xs, ys = sized["capacity_slots"].to_numpy(float), sized["hit_rate"].to_numpy(float)
    ax.plot(xs, ys, color=INK.ink, marker="o")
    ax.axhline(endless, color=INK.ink, lw=0.9)
    note(ax, "never evicts", (xs[0], endless), (0, 4))
    ax.set_xscale("log", base=2)
    ax.set_xticks(xs)
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(drawing.BINARY)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylim(0, max(endless * 1.15, 0.01))
    ax.set(xlabel="slots of the pool", ylabel="prompt tokens found cached")
    ax.grid(axis="y")
    return fig


def hits_title(frame: pd.DataFrame) -> str:
    """Say what the smallest prefix cache finds, and what one that never evicts finds.

    Examples
    --------
    >>> hits_title(pd.DataFrame({"capacity_slots": [262144, None], "hit_rate": [0.043, 0.373]}))
    'A prefix cache of 262,144 slots finds 4.3% of prompt tokens, one that never evicts 37.3%'
    """
    sized = frame[frame["capacity_slots"].notna()].iloc[0]
    endless = frame.loc[frame["capacity_slots"].isna(), "hit_rate"].iloc[0]
    return (
        f"A prefix cache of {format_value(int(sized['capacity_slots']), ',d')} slots finds "
        f"{format_value(sized['hit_rate'], '.1%')} of prompt tokens, one that never evicts "
        f"{format_value(endless, '.1%')}"
    )


def beside_paper(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw replayed shares as dots, and those published as ticks, of `figure2.shares`."""
    frame = frame[frame["published"].notna()]
    fig, ax = headed(0.27 * len(frame) + 1.2, title)
    at = -np.arange(len(frame), dtype=float)
    published, replayed = (frame[c].to_numpy(float) for c in ("published", "computed"))
    ax.hlines(at, published, replayed, color=INK.faint, lw=2)
    ax.plot(published, at, "|", color=INK.ink, ms=13, mew=1.8, label="published")
    ax.plot(replayed, at, "o", color=INK.ink, ms=5, label="replayed")
    names = zip(frame["system"], frame["part"], strict=True)
    drawing.named_rows(ax, at, [f"{SYSTEMS[system]}: {SHARES[part]}" for system, part in names])
    ax.set(xlabel="% of the cache's memory", xlim=(0, 100))
    ax.grid(axis="x")
    drawing.key_above(ax)
    return fig


def beside_paper_title(frame: pd.DataFrame) -> str:
    """Say how far the replayed share that is furthest off is from the published one.

    Examples
    --------
    >>> beside_paper_title(pd.DataFrame({"difference": [0.2, -1.44, None]}))
    'One set of lengths gives every published share to within 1.4 points'
    """
    most = format_value(frame["difference"].abs().max(), ".1f")
    return f"One set of lengths gives every published share to within {most} points"
