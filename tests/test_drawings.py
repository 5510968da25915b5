"""Drawings: what they draw adds up to the ledger, and what they say comes from their data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redraw import words

import kvledger as kv
from kvledger.accounting import survey
from kvledger.chapters import drawing, metadata_figures, slot_figures
from kvledger.chapters.slot_figures import HELD, contiguous_slots, paged_slots

pytestmark = pytest.mark.usefixtures("no_warnings")

LABELS: dict[str, Any] = {"title": "t", "x_label": "x", "y_label": "y"}
lengths_of = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def traces() -> survey.Traces:
    return {name: kv.load_lengths(name) for name in kv.TRACE_NAMES}


def counts(frame: pd.DataFrame) -> dict[str, int]:
    return {str(k): int(v) for k, v in frame["part"].value_counts().items()}


@given(lengths_of, st.integers(1, 16), st.data())
def test_paged_squares_are_the_ledger(lengths: list[int], size: int, data: st.DataObject) -> None:
    prefix = data.draw(st.integers(0, min(lengths)))
    frame = paged_slots("panel", lengths, size, prefix=prefix)
    ledger = kv.shared(lengths, size, prefix=prefix)
    found = counts(frame)
    assert found.get("used", 0) == ledger.distinct_tokens
    assert found.get("points at", 0) == ledger.shared_tokens
    assert found.get("tail slack", 0) == ledger.tail_slack_slots
    held = frame[frame["part"].isin(HELD)]
    assert len(held) == ledger.allocated_slots
    assert len(held[["request", "page"]].drop_duplicates()) == ledger.pages


@given(lengths_of, st.integers(40, 64))
def test_contiguous_squares_are_the_ledger(lengths: list[int], reserve: int) -> None:
    found = counts(contiguous_slots("panel", lengths, [reserve] * len(lengths)))
    ledger = kv.contiguous(lengths, reserve)
    assert found["used"] == ledger.logical_tokens
    assert found.get("reserved", 0) == ledger.reserved_slots


def test_slots_says_the_counts_of_its_frame() -> None:
    shared = paged_slots("Shared", [20, 23], 4, prefix=8)
    frame = pd.concat([contiguous_slots("Reserve", [5, 9, 17], [32] * 3), shared])
    said = words(slot_figures.slots(frame, title="Fewer"))
    assert said.count("Fewer") == 1
    assert "Reserve: 96 slots for 31 tokens" in said
    assert "Shared: 36 slots for 43 tokens" in said
    assert {"65 reserved", "1 tail slack", "8 positions that point at shared pages"} <= set(said)


def test_held_and_spared_keeps_slack_and_sharing_apart() -> None:
    frame = survey.ledgers(
        {"separate": kv.paged([20, 23], 4), "shared": kv.shared([20, 23], 4, prefix=8)}
    )
    said = words(slot_figures.held_and_spared(frame, title="t"))
    assert {"44 held, 1 of it tail slack", "36 held, 1 of it tail slack"} <= set(said)
    assert "8 spared by sharing" in said


def test_sharing_is_refused_as_a_part_of_a_bar() -> None:
    frame = pd.DataFrame({"policy": ["p"], "a": [1.0]})
    with pytest.raises(ValueError, match="sharing is not held memory"):
        drawing.parts_bars(frame, {"a": "shared"}, title="t", x_label="x")


def test_bars_are_as_long_as_their_parts() -> None:
    frame = survey.slots_per_token(
        {"max": kv.contiguous([5, 9, 17], 32), "pages": kv.paged([5, 9, 17], 4)}
    )
    parts = {"used": "used", "reserved": "reserved", "tail_slack": "tail slack"}
    fig = drawing.parts_bars(frame, parts, title="t", x_label="x")
    said = words(fig)
    assert " 3.10" in said  # 96 slots for 31 tokens
    assert " 1.29" in said  # 40 slots for 31 tokens
    ends = sorted({round(p.get_x() + p.get_width(), 6) for p in fig.axes[0].patches})
    assert ends[-1] == round(96 / 31, 6)


def test_cost_lines_marks_the_exact_corners() -> None:
    frame = survey.cost_lines([5, 9, 17], [1, 2, 4, 8, 16])
    said = words(metadata_figures.cost_lines(frame, title="t"))
    assert {"c = 3/14", "c = 6/7", "c = 2", "c = 8"} <= set(said)
    assert {f"pages of {p}" for p in (1, 2, 4, 8, 16)} <= set(said)


def test_every_trace_is_labelled_by_name(traces: survey.Traces) -> None:
    slack = survey.tail_slack(traces, [2, 16, 128])
    one = drawing.trace_lines(slack, "page_size", "slack_share", **LABELS, percent=True)
    both, panels = ["final_ratio", "growth_ratio"], ["a", "b"]
    two = drawing.trace_lines(slack, "page_size", both, panels=panels, **LABELS, reference=1.0)
    costs = {"c_min": 1e-5, "c_max": 100, "mark": 16}
    steps = metadata_figures.best_by_cost(survey.envelopes(traces), title="t", **costs)
    for fig in (one, two, steps):
        assert set(survey.TRACE_LABELS.values()) <= set(words(fig))


def test_hollow_points_stand_where_the_column_holds(traces: survey.Traces) -> None:
    unused = survey.reservation(traces, [4096, 131072])
    unused["some_refused"] = unused["refused_requests"] > 0
    fig = drawing.trace_lines(unused, "reserve", "unused_share", **LABELS, hollow="some_refused")
    paper = drawing.INK.paper
    hollow = sum(
        len(line.get_xdata())
        for line in fig.axes[0].lines
        if line.get_marker() not in ("", "None") and line.get_markerfacecolor() == paper
    )
    assert hollow == int(unused["some_refused"].sum())


def test_flat_optimum_writes_both_ends(traces: survey.Traces) -> None:
    frame = survey.closed_form(traces, [1], range(1, 1025))
    said = words(metadata_figures.flat_optimum(frame, title="t"))
    for column in ("flat_from", "flat_to"):
        assert {str(n) for n in frame[column]} <= set(said)


def test_distribution_and_bytes_and_blocks_draw_their_rows(traces: survey.Traces) -> None:
    spread = survey.slack_distribution(traces["azure_code_2023"], 16)
    assert len(slot_figures.slack_distribution(spread, title="t").axes[0].patches) == 16
    need = survey.needed_cost(traces, 16, "Llama-3.1-8B")
    charged = survey.bytes_in_slots(["Llama-3.1-8B", "OPT-13B"], {"entry": 4}, need)
    said = words(metadata_figures.bytes_against_need(charged, title="t"))
    assert {"Llama-3.1-8B", "OPT-13B", "entry"} <= set(said)
    synthetic = {"mooncake_synthetic": kv.load_blocks("mooncake_synthetic")}
    rows = "how == 'groups' and blocks == 'all' and preamble == 'with'"
    blocks = survey.shared_blocks(synthetic).query(rows)
    said = words(slot_figures.shared_blocks(blocks, title="t"))
    assert "Mooncake synthetic" in said
    assert blocks["shared_share"].iloc[-1] > Fraction(6, 10)
