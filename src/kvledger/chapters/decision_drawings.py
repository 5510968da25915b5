"""The figures of the chapter on the page-size decision. They compute nothing.

Sharing has its own line and colour; it is never added to slack in a drawing. What was not
measured is written as such where it would stand.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kvledger.accounting.survey import TRACE_LABELS
from kvledger.chapters import palette
from kvledger.chapters.drawings import short_binary
from proofbook import style

INK = style.INK["light"]

_PARTS: Mapping[str, str] = {
    "tail slack": "tail slack",
    "metadata": "metadata",
    "shared prefix lost": "shared",
}
"""Costs that have a colour of the visual language; those of time are drawn in ink."""

_DASHES: Mapping[str, object] = {
    "time to read through the table": "-",
    "allocation": (0, (1, 1.2)),
}


def cost_shares(frame: pd.DataFrame, *, title: str, tolerance: float, absent: str = "") -> Figure:
    """Draw each cost's share of the tokens held by page size, one line a cost.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.decision.decision_survey.shares` gives it. Shares of
        nothing are left out, as the axis is logarithmic.
    title : str
        The conclusion.
    tolerance : float
        Share at which a level line stands.
    absent : str
        What is not measured, written below the title.
    """
    fig, ax = style.canvas(4.0)
    style.headline(fig, title + (f"\n({absent})" if absent else ""))
    near = frame[frame["near"].astype(bool)]["page_size"].astype(float)
    ax.axvspan(near.min(), near.max(), color=INK.faint, alpha=0.18, lw=0)
    ends = []
    for cost, rows in frame.groupby("cost", sort=False):
        share = rows["share"].astype(float).to_numpy()
        drawn = share > 0
        xs, ys = rows["page_size"].astype(float).to_numpy()[drawn], share[drawn]
        if not len(xs):
            continue
        part = _PARTS.get(str(cost))
        colour = INK.ink if part is None else palette.PART[part].colour
        ax.plot(xs, ys, color=colour, ls=_DASHES.get(str(cost), "-"), lw=2.2)
        ends.append((xs[-1], ys[-1], str(cost)))
    ax.set_yscale("log")
    low = frame.loc[frame["share"].astype(float) > 0, "share"].astype(float).min()
    ax.set_ylim(low / 1.6, 1.6 * float(frame["share"].astype(float).max()))
    sizes(ax, frame["page_size"])
    ax.axhline(tolerance, color=INK.ink, lw=0.8)
    ax.annotate(
        f"{tolerance:.0%} of the tokens held", (float(frame["page_size"].max()), tolerance),
        xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8.5,
    )  # fmt: skip
    ax.annotate(
        "memory near its best", (float(np.sqrt(near.min() * near.max())), 0.0),
        xycoords=("data", "axes fraction"), xytext=(0, 4), textcoords="offset points",
        ha="center", fontsize=8.5,
    )  # fmt: skip
    ax.yaxis.set_major_formatter(FuncFormatter(_percent))
    ax.set(xlabel="page size, slots", ylabel="share of the tokens held")
    ax.grid(axis="y")
    style.end_labels(ax, ends)
    return fig


def _percent(value: float, _: int) -> str:
    text = f"{100 * value:g}"
    return (f"{100 * value:.8f}".rstrip("0") if "e" in text else text) + "%"


def sizes(ax: Axes, values: pd.Series) -> None:
    """Make the axis of page sizes logarithmic, with powers of two marked."""
    low, high = float(values.astype(float).min()), float(values.astype(float).max())
    ticks = [float(2**k) for k in range(64) if low <= 2**k <= high]
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(ticks if len(ticks) <= 9 else ticks[::2]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short_binary(v)))


def near_ranges(
    frame: pd.DataFrame,
    *,
    title: str,
    trace: str,
    model: str,
    mark: int,
    panels: tuple[str, str],
) -> Figure:
    """Draw the page sizes near the best: by trace for one model, by model for one trace.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.decision.decision_survey.answers` gives it.
    title : str
        The conclusion.
    trace, model : str
        The one trace and the one model.
    mark : int
        A page size to mark.
    panels : tuple of str
        What either panel shows.
    """
    # Models of one size keep their order, whatever kind of numbers the frame holds.
    by_trace = frame[frame["model"] == model].sort_values("mean_tokens", kind="stable")
    by_model = frame[frame["trace"] == trace].sort_values("kv_bytes_per_token", kind="stable")
    heights = [len(by_trace) + 1.5, len(by_model) + 1.5]
    fig, axes = style.canvas(
        0.19 * sum(heights) + 1.4, 2, height_ratios=heights, sharex=True, squeeze=False
    )
    style.headline(fig, title)
    fig.get_layout_engine().set(w_pad=0.1)  # type: ignore[union-attr, call-arg]
    names = [TRACE_LABELS.get(str(name), str(name)) for name in by_trace["trace"]]
    _ranges(axes[0, 0], by_trace, names, panels[0], mark)
    _ranges(axes[1, 0], by_model, [str(name) for name in by_model["model"]], panels[1], mark)
    both = pd.concat([by_trace, by_model])
    sizes(axes[1, 0], pd.concat([both["low"], 2 * both["high"]]))
    axes[1, 0].set_xlim(both["low"].min() / 1.3, both["high"].max() * 1.6)
    axes[1, 0].set_xlabel("page size, slots")
    return fig


def _ranges(ax: Axes, rows: pd.DataFrame, names: list[str], title: str, mark: int) -> None:
    at = -np.arange(len(rows), dtype=float)
    low, high = rows["low"].astype(float).to_numpy(), rows["high"].astype(float).to_numpy()
    ax.barh(at, high - low, left=low, height=0.6, color=INK.faint, alpha=0.45, lw=0)
    ax.plot(rows["best"].astype(float), at, "o", color=INK.ink, ms=4)
    for y, end in zip(at, high, strict=True):
        ax.annotate(
            f"{end:.0f}", (end, y), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=8,
        )  # fmt: skip
    ax.axvline(mark, color=INK.ink, lw=0.8, zorder=0)
    ax.annotate(
        f"pages of {mark}", (mark, at[-1] - 0.6), xytext=(3, 0), textcoords="offset points",
        va="top", fontsize=8,
    )  # fmt: skip
    ax.set(yticks=at, ylim=(at[-1] - 1.6, 0.7))
    ax.set_yticklabels(names, fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_title(title, fontsize=9.5)


def needed_costs(
    frame: pd.DataFrame,
    *,
    title: str,
    measured: tuple[float, float, float | None] | None = None,
    absent: str = "",
) -> Figure:
    """Draw what a page must cost for each page size to be near the best, one panel a trace.

    Parameters
    ----------
    frame : DataFrame
        As :func:`kvledger.decision.decision_survey.needed` gives it. A bar that
        begins at no cost begins at the edge, and one without an end ends there.
    title : str
        The conclusion.
    measured : tuple of float, optional
        The measured cost of reading and the ends of its interval; no end is None.
    absent : str
        What is written where it is not measured.
    """
    names = list(dict.fromkeys(frame["trace"]))
    rows = frame["page_size"].nunique()
    fig, axes = style.canvas(
        len(names) * (0.27 * rows + 0.75) + 0.75, len(names), sharex=True, squeeze=False
    )
    style.headline(fig, title + (f"\n({absent})" if absent else ""))
    counted = float(frame["c_slots"].iloc[0])
    known = [float(c) for column in ("c_from", "c_to") for c in frame[column] if c is not None]
    known += [counted, *(c for c in measured or () if c is not None)]
    edge, most = min(c for c in known if c > 0) / 3, max(known) * 3
    for ax, name in zip(axes[:, 0], names, strict=True):
        part = frame[frame["trace"] == name].sort_values("page_size")
        at = -np.arange(len(part), dtype=float)
        low = np.array([edge if c is None else max(float(c), edge) for c in part["c_from"]])
        high = np.array([most if c is None else float(c) for c in part["c_to"]])
        helped = part["c_from"].notna().to_numpy()
        ax.barh(
            at[helped], (high - low)[helped], left=low[helped], height=0.6, color=INK.faint,
            alpha=0.45, lw=0,
        )  # fmt: skip
        ax.axvline(counted, color=palette.PART["metadata"].colour, lw=1.8, ls=(0, (1, 1.2)))
        if measured is not None:
            c, c_low, c_high = measured
            last = most if c_high is None else c_high
            ax.axvspan(max(c_low, edge), last, color=INK.faint, alpha=0.4, lw=0)
            ax.axvline(max(c, edge), color=INK.ink, lw=1.2)
        ax.set_xscale("log")
        ax.set(xlim=(edge, most), yticks=at, ylim=(at[-1] - 0.6, 0.6))
        ax.set_yticklabels([f"pages of {size}" for size in part["page_size"]])
        ax.tick_params(axis="y", length=0)
        ax.set_title(TRACE_LABELS.get(str(name), str(name)), fontsize=9.5, pad=14)
    _marked(axes[0, 0], counted, "metadata, as counted")
    if measured is not None:
        _marked(axes[0, 0], max(measured[0], edge), "reading, as measured")
    axes[-1, 0].xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes[-1, 0].set_xlabel("c, cost of a page in token slots")
    return fig


def _marked(ax: Axes, x: float, words: str) -> None:
    ax.annotate(
        words, (x, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
        textcoords="offset points", ha="center", fontsize=8.5,
    )  # fmt: skip


def small_example(frame: pd.DataFrame, *, title: str) -> Figure:
    """Draw what each page size costs three requests: tokens, slack and metadata, in slots.

    Parameters
    ----------
    frame : DataFrame
        Columns page_size, tokens, tail_slack_slots, metadata_slots; slots a request.
    title : str
        The conclusion.
    """
    fig, ax = style.canvas(0.36 * len(frame) + 1.35)
    style.headline(fig, title)
    at = -np.arange(len(frame), dtype=float)
    left = np.zeros(len(frame))
    parts = {"tokens": "used", "tail_slack_slots": "tail slack", "metadata_slots": "metadata"}
    for column, part in parts.items():
        width = frame[column].astype(float).to_numpy()
        ax.barh(at, width, left=left, height=0.62, label=part if part != "used" else "tokens",
                **palette.part_style(part))  # fmt: skip
        left += width
    for y, total in zip(at, left, strict=True):
        ax.text(total, y, f" {total:.2f}", va="center", fontsize=9)
    ax.set(yticks=at, xlabel="slots a request", xlim=(0, float(left.max()) * 1.08))
    ax.set_yticklabels([f"pages of {size}" for size in frame["page_size"]])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderpad=0, borderaxespad=0.2,
              columnspacing=1.4, handlelength=1.2, handleheight=1.0)  # fmt: skip
    return fig
