"""Titles of figures: each follows its data, says an answer, and is typed nowhere."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from attention_records import GPU_PEERS, made_record
from hypothesis import given, settings
from hypothesis import strategies as st
from redraw import figure_calls

import kvledger as kv
from kvledger.accounting import survey
from kvledger.chapters import (
    attention_costs,
    attention_figures,
    decision_figures,
    growth_figures,
    metadata_figures,
    slot_figures,
    workload_figures,
)
from kvledger.chapters.slot_figures import contiguous_slots, paged_slots
from kvledger.measure.record import latest_record
from proofbook import style

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
NOTEBOOKS = sorted(CHAPTERS.glob("[!_]*.ipynb"))


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def traces() -> survey.Traces:
    return {name: kv.load_lengths(name) for name in kv.TRACE_NAMES}


# ---------------------------------------------------------------- no title is typed


CELLS = [cell for path in NOTEBOOKS for cell in json.loads(path.read_text("utf-8"))["cells"]]
CALLS = [(path, id, call) for path in NOTEBOOKS for id, call, _ in figure_calls(path)]


def test_all_figures_are_looked_at() -> None:
    captions = sum("figure" in cell["metadata"].get("mystnb", {}) for cell in CELLS)
    assert len(CALLS) == captions > 30


@pytest.mark.parametrize(("path", "id", "call"), CALLS, ids=[id for _, id, _ in CALLS])
def test_a_title_is_made_from_data(path: Path, id: str, call: ast.Call) -> None:
    """It is the value of a function that stands beside the drawing, given what the figure draws."""
    drawn = call.args[1]
    assert isinstance(drawn, ast.Call)
    title = next((word.value for word in drawn.keywords if word.arg == "title"), None)
    assert isinstance(title, ast.Call), f"{path.name}: {id}: the title is typed"
    assert re.fullmatch(r"(drawing|\w+_figures)\.\w+", ast.unparse(title.func))
    assert title.args
    assert not isinstance(title.args[0], ast.Constant)


def test_stored_titles_say_an_answer_each() -> None:
    """A number stands in each, and no two figures have the same."""
    stored = {
        output["metadata"]["proofbook"]["id"]: output["metadata"]["proofbook"]["title"]
        for cell in CELLS
        for output in cell.get("outputs", [])
        if "title" in output.get("metadata", {}).get("proofbook", {})
    }
    assert set(stored) == {id for _, id, _ in CALLS}
    assert len(set(stored.values())) == len(stored)
    assert [id for id, title in stored.items() if not re.search(r"\d", title)] == []


# ---------------------------------------------------------------- each follows its data
lengths_of = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@given(lengths_of)
def test_squares_are_counted_as_the_ledger_counts(lengths: list[int]) -> None:
    sizes = (2, 4, 8)
    squares = pd.concat([paged_slots(f"Pages of {p}", lengths, p) for p in sizes])
    slack = [kv.paged(lengths, p).tail_slack_slots for p in sizes]
    said = slot_figures.slack_by_size_title(squares)
    assert f"{slack[0]}, {slack[1]} and {slack[2]} slots for {sum(lengths)} tokens" in said
    assert ("The larger the pages, the more slack" in said) == (slack[0] < slack[1] < slack[2])


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_reserved_squares_are_counted_as_the_ledger_counts(lengths: list[int]) -> None:
    held = [[32] * len(lengths), lengths]
    squares = pd.concat([contiguous_slots(str(i), lengths, h) for i, h in enumerate(held)])
    asked = kv.contiguous(lengths, 32).allocated_slots
    assert f"take {asked} or {sum(lengths)} slots" in slot_figures.reserved_slots_title(squares)


def test_sharing_that_moved_the_slack_would_be_told() -> None:
    same = survey.ledgers({"a": kv.paged([20, 23], 4), "b": kv.shared([20, 23], 4, prefix=8)})
    assert slot_figures.spared_title(same).endswith("leaves the tail slack at 1")
    moved = same.assign(**{"tail slack slots": [1, 3]})
    assert slot_figures.spared_title(moved).endswith("moves the tail slack from 1 to 3")
    squares = pd.concat([paged_slots("a", [5, 9], 4), paged_slots("b", [5, 10], 4)])
    assert slot_figures.shared_slots_title(squares).endswith("the tail slack goes from 6 to 5")


def test_titles_of_traces_are_true_of_every_trace(traces: survey.Traces) -> None:
    slack = survey.tail_slack(traces, [16, 64, 512])
    said = slot_figures.slack_share_title(slack, 16)
    most = slack.groupby("page_size")["slack_share"].max().astype(float)
    assert f"{most[16]:.2%}" in said
    assert f"{most[512]:.0%}" in said
    errors = slack.loc[slack["page_size"] <= 64, ["final_error", "growth_error"]].astype(float)
    close = slot_figures.expectation_title(slack, near=64)
    assert f"within {errors.to_numpy().max():.1%} up to pages of 64" in close
    unused = survey.reservation(traces, [4096, 131072])
    least = min(float(v) for v in unused.loc[unused["reserve"] == 131072, "unused_share"])
    assert f"{least:.1%} or more" in slot_figures.reservation_title(unused)


def test_titles_of_bounds_and_ends() -> None:
    one = survey.cost_lines([4, 8], [4])
    assert metadata_figures.cost_lines_title(one) == "One page size is best at every cost"
    corners = survey.cost_lines([5, 9, 17], [4, 16])
    said = metadata_figures.cost_lines_title(corners)
    assert said == "The best page size changes at c = 4 slots a page"
    never = pd.DataFrame({"page_size": [1], "c_from": [Fraction(0)]})
    assert metadata_figures.envelopes_title(never, 16) == "Pages of 16 are the best at no cost"
    one = pd.DataFrame({"policy": ["only"], "used": [0.5]})
    assert growth_figures.pools_title(one) == "Tokens fill 50.0% (only) of the pool on average"
    many = pd.DataFrame({"policy": list("abc"), "used": [0.9, 0.1, 0.5]})
    said = growth_figures.pools_title(many)
    assert said == "Tokens fill 10.0% (b) to 90.0% (a) of the pool on average"
    strain = pd.DataFrame({"setting": ["x"], "preempted": [3]})
    assert "3 times (x)" in growth_figures.loads_title(strain)
    costs = ["tail slack", "tail slack", "metadata", "tail slack"]
    frame = pd.DataFrame({"page_size": [1, 2, 2, 4], "cost": costs, "share": [0, 0.02, 0.03, 0.9]})
    frame["near"] = frame["page_size"] == 1
    said = decision_figures.cost_shares_title(frame, 0.01)
    assert said.endswith("above, metadata is the largest cost")
    assert "largest cost" not in decision_figures.cost_shares_title(frame[frame["near"]], 0.01)
    few = pd.DataFrame({"window_requests": [2, 30], "shared_share": [0.1, 0.4]})
    assert "neighbours" not in workload_figures.sharing_title(few)


def test_titles_of_measurements_follow_the_record() -> None:
    kinds = ("latency", "bandwidth", "line", "host")
    nothing = [getattr(attention_figures, f"{kind}_title")(None) for kind in kinds]
    assert all(said.endswith("\n(no device)") and not re.search(r"\d", said) for said in nothing)
    record = made_record("cuda", noise=1e-6)
    said = attention_figures.latency_title(record)
    assert "this kernel takes 1.12 (pages of 1) and 1.01 (pages of 16) times" in said
    assert "as long as without pages" in said
    share = GPU_PEERS["triton"].share / (1 + GPU_PEERS["triton"].c_random / 16)
    assert f"reaches {share:.1%} of the copy bandwidth" in attention_figures.bandwidth_title(record)
    straight = attention_figures.line_title(record)
    assert "the time of 0.120 tokens: the times are on a line" in straight
    sdpa = attention_figures.latency_title(made_record("cpu", noise=1e-6))
    assert "times as long as SDPA without pages" in sdpa
    record = latest_record("cpu")
    cost = attention_costs.fitted(record)
    said = attention_figures.line_title(record)
    assert "on a line" in said
    assert ("not on a line" in said) == (not cost.straight)


# ---------------------------------------------------------------- where they stand
@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.text("abcdefgh", min_size=1, max_size=9), min_size=1, max_size=30))
def test_a_headline_keeps_its_words_and_stays_inside(words: list[str]) -> None:
    text = " ".join(words)
    fig, _ = style.canvas(2.0)
    title = style.headline(fig, text)
    try:
        lines = title.get_text().split("\n")
        assert " ".join(lines) == text
        fig.draw_without_rendering()
        assert title.get_window_extent().x1 <= fig.bbox.width
        higher = (len(lines) - 1) * 1.2 * style.HEADLINE_PT / 72
        assert fig.get_figheight() == pytest.approx(2.0 + higher)
    finally:
        plt.close(fig)
