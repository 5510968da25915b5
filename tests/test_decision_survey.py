"""Decisions side by side, and their drawings: each row is held against the decision itself."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest
from attention_records import made_record
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

import kvledger as kv
from kvledger.chapters import decision_figures as drawings
from kvledger.decision import decide
from kvledger.decision import decision_survey as survey
from kvledger.decision.workload import Workload, workload_of

pytestmark = pytest.mark.usefixtures("no_warnings")

LLAMA = "Llama-3.1-8B"
MODELS = [LLAMA, "OPT-13B", "Qwen3.5-397B-A17B"]


@pytest.fixture(scope="module")
def workloads() -> dict[str, Workload]:
    return {name: workload_of(name) for name in ("azure_conv_2023", "mooncake_synthetic")}


@pytest.fixture(scope="module")
def frame(workloads: dict[str, Workload]) -> pd.DataFrame:
    return survey.answers(workloads, MODELS, page_size=16)


def words(fig: Figure) -> list[str]:
    fig.draw_without_rendering()
    texts = [t for t in fig.findobj(Text) if isinstance(t, Text)]
    return [t.get_text() for t in texts if t.get_visible() and t.get_text().strip()]


# --------------------------------------------------------------------------- tables
def test_answers_are_the_decisions_and_spread_their_ends(
    workloads: dict[str, Workload], frame: pd.DataFrame
) -> None:
    assert len(frame) == len(workloads) * len(MODELS)
    for row in frame.to_dict("records"):
        decision = decide(workloads[row["trace"]], row["model"])
        memory = decision.memory
        assert (row["best"], row["low"], row["high"]) == (memory.best, memory.low, memory.high)
        assert (row["below"], row["above"]) == (None, "tail slack")
        assert row["excess_share"] == decision.cost(16).memory_slots / memory.cost_slots - 1
        assert row["c_slots"] * row["kv_bytes_per_token"] == 258
    spread = survey.spread(frame)
    assert spread["mean_tokens"].is_monotonic_increasing
    for row in spread.to_dict("records"):
        own = frame[frame["trace"] == row["trace"]]
        assert row["rule_high"] == survey.rule_ends(row["mean_tokens"])[1]
        for end in ("best", "low", "high"):
            assert row[f"{end}_least"] == min(own[end])
            assert row[f"{end}_greatest"] == max(own[end])


def test_moves_by_hand() -> None:
    frame = pd.DataFrame(
        [("a", "m", 1, 1, 10), ("a", "n", 4, 1, 20), ("b", "m", 2, 1, 60), ("b", "n", 2, 2, 90)],
        columns=["trace", "model", "best", "low", "high"],
    )
    moves = survey.moves(frame).set_index("answer")
    assert moves.loc["best", ["trace_factor", "model_factor"]].tolist() == [2, 4]
    assert moves.loc["smallest near the best", "trace_factor"] == 2
    assert moves.loc["largest near the best", ["least", "greatest"]].tolist() == [10, 90]
    assert moves.loc["largest near the best", "trace_factor"] == 6
    assert moves.loc["largest near the best", "model_factor"] == 2


@given(st.integers(1, 10**5), st.fractions(0, 2), st.fractions("1/1000", "1/10"))
def test_the_rule_is_each_costs_share(tokens: int, c: Fraction, tolerance: Fraction) -> None:
    low, high = survey.rule_ends(Fraction(tokens), c, tolerance)
    assert (high - 1) / 2 == tolerance * tokens  # slack of uniform remainders
    assert c == 0 or c / low == tolerance  # time of the pages of a token
    assert survey.rule_ends(Fraction(tokens))[0] is None


def test_shares_are_the_costs_over_the_tokens(workloads: dict[str, Workload]) -> None:
    decision = decide(workloads["azure_conv_2023"], LLAMA, record=made_record())
    shares = survey.shares(decision, [1, 16, 64])
    assert set(shares["cost"]) == {
        "tail slack",
        "metadata",
        "time to read through the table",
        "allocation",
    }
    row = shares[(shares["page_size"] == 16) & (shares["cost"] == "metadata")].iloc[0]
    assert row["share"] * decision.workload.mean_tokens == decision.cost(16).metadata_slots
    assert bool(row["near"])
    assert not shares[shares["page_size"] == 64]["near"].any()


def test_needed_asks_each_trace_for_each_page_size_and_the_token_s_bytes(
    workloads: dict[str, Workload],
) -> None:
    frame = survey.needed(workloads, LLAMA, [1, 16, 256])
    assert len(frame) == 6
    for row in frame.to_dict("records"):
        decision = decide(workloads[row["trace"]], LLAMA)
        needs = decision.needs(row["page_size"])
        assert (row["c_from"], row["c_to"]) == (needs.c_from, needs.c_to)
        assert row["bytes_from"] == needs.c_from * 131072
        assert row["met"] == (row["page_size"] in decision.memory.near)
    never = survey.needed({"x": workload_of([8] * 5)}, LLAMA, [7], page_sizes=[1, 7, 8])
    assert pd.isna(never["c_from"].iloc[0])
    assert not never["met"].iloc[0]
    endless = survey.needed({"x": workload_of([8] * 5)}, LLAMA, [8], page_sizes=[1, 8])
    assert pd.isna(endless["c_to"].iloc[0])
    assert endless["met"].iloc[0]
    least = survey.least_token_bytes(decide(workloads["azure_conv_2023"], LLAMA), 1)
    for n_bytes, near in ((least + 100, True), (least - 100, False)):
        half = int(n_bytes / 2)  # bytes a head's element pair, one layer, one head
        model = kv.Model("x", full_layers=1, kv_heads=1, head_dim=half, bytes_per_element=1)
        assert (1 in decide(workloads["azure_conv_2023"], model).memory.near) is near
    assert survey.least_token_bytes(decide([8] * 5, LLAMA, page_sizes=[1, 8]), 8) is None


def test_kernels_say_what_they_read_of_the_range(workloads: dict[str, Workload]) -> None:
    decision = decide(workloads["azure_conv_2023"], LLAMA)
    frame = survey.kernels(decision).set_index("kernel")
    assert frame.loc["vLLM: FlashInfer", ["near", "least"]].tolist() == ["16", 16]
    assert "vLLM: FlashMLA" not in frame.index
    latent = survey.kernels(decide(workloads["azure_conv_2023"], "DeepSeek-V3/R1"))
    latent = latent.set_index("kernel")
    assert latent.loc["vLLM: FlashMLA", ["near", "least"]].tolist() == ["none", 64]
    assert "vLLM: FlashInfer" not in latent.index
    assert frame.loc["FlashAttention: version 3", "near"] == f"1 to {decision.memory.high}"
    assert frame.loc["FlashAttention: version 3", "excess_share"] == 0
    assert frame.loc["TensorRT-LLM: attention", "near"] == "2 to 16"
    none = decide([5, 9, 17], LLAMA, page_sizes=[3])
    assert "vLLM: FlashInfer" not in set(survey.kernels(none)["kernel"])


def test_in_use_lists_every_row_and_parts_add_up() -> None:
    frame = survey.page_sizes_in_use()
    assert frame["source"].notna().all()
    assert "fixed: 672 784 1536 3584" in set(frame["accepts"])
    frame = survey.memory_parts(decide([5, 9, 17], LLAMA, page_sizes=[1, 4]))
    parts = frame["tokens"] + frame["tail_slack_slots"] + frame["metadata_slots"]
    assert (parts == frame["memory_slots"]).all()
    assert frame["above_best"].min() == 0
    trace = kv.Trace([8, 8], [0, 0], page_ids=[[0], [0]], page_ids_size=8)
    refused("prefixes are shared", survey.memory_parts, decide(trace, LLAMA))
    trace = kv.Trace([12, 12], [0, 0], page_ids=[[0, 1, 2]] * 2, page_ids_size=4)
    frame = survey.lost_prefixes(decide(trace, LLAMA, page_sizes=[4, 8]), [4, 8])
    assert frame["lost_slots"].tolist() == [0, 2]
    assert frame["expected_slots"].tolist() == [Fraction(3, 2), Fraction(7, 2)]
    assert frame["tail_slack_slots"].tolist() == [0, 4]
    plain = survey.lost_prefixes(decide([5], LLAMA, page_sizes=[4], prefix="expected"), [4])
    assert pd.isna(plain["lost_slots"].iloc[0])
    assert survey.read_words(decide([5], LLAMA)).startswith("not measured (there is no record")
    read = decide([5], LLAMA, record=made_record())
    assert "slots a page (between" in survey.read_words(read)
    assert "Test device, a GPU" in survey.read_words(read)
    interval = survey.read_interval(read)
    assert interval[1] <= interval[0] <= (interval[2] or 0)
    assert survey.read_interval(decide([5], LLAMA)) is None
    assert survey.range_words(decide([5], LLAMA, page_sizes=[4]).memory) == "4"
    decision = decide([5, 9, 17], LLAMA, metadata={"a page": 32768}, page_sizes=[1, 2, 4])
    said = words(drawings.small_example(survey.memory_parts(decision), title="t"))
    assert " 12.75" in said
    assert {"tokens", "tail slack", "metadata", "pages of 4"} <= set(said)


def test_measured_says_what_is_absent_and_for_whom(workloads: dict[str, Workload]) -> None:
    records = {"a GPU": made_record(), "a CPU": None}
    frame = survey.measured(records, workloads, LLAMA)
    assert frame["measured on"].tolist() == ["a GPU", "a GPU", "a CPU"]
    assert frame["device"].iloc[-1] == "not measured: no record from a CPU"
    first = frame.iloc[0]
    decision = decide(workloads["azure_conv_2023"], LLAMA, record=records["a GPU"])
    assert first["c"] == decision.charges.read_slots
    assert first["time"] == survey.range_words(decision.time)
    both = decision.in_both
    assert first["both"] == f"{both[0]} to {both[-1]}"
    other = survey.measured({"a GPU": made_record()}, workloads, "Qwen2.5-7B")
    assert len(other) == 1
    assert "has no case of 4 K and V heads" in other["device"].iloc[0]


def test_costs_are_written_and_drawn_and_absence_said(workloads: dict[str, Workload]) -> None:
    decision = decide(workloads["azure_conv_2023"], LLAMA)
    frame = survey.costs(decision, [1, 16])
    absent = ["shared prefix lost", "time to read", "allocation", "allocation, ns a token"]
    assert (frame[absent] == survey.NOT_MEASURED).all(axis=None)
    assert frame["tail slack"].tolist() == [0, decision.cost(16).tail_slack_slots]
    assert frame["all above best"].tolist() == frame["memory above best"].tolist()
    with_record = survey.costs(
        decide(workloads["azure_conv_2023"], LLAMA, record=made_record()), [16]
    )
    assert not (with_record.drop(columns="shared prefix lost") == survey.NOT_MEASURED).any(
        axis=None
    )
    shares = survey.shares(decide(workloads["azure_conv_2023"], LLAMA), [1, 4, 16, 64])
    said = words(drawings.cost_shares(shares, title="t", tolerance=0.01, absent="not measured"))
    assert {"tail slack", "metadata", "t\n(not measured)", "1% of the tokens held"} <= set(said)
    assert "time to read through the table" not in said
    trace = kv.Trace([16] * 4, [4] * 4, page_ids=[[0, 1]] * 4, page_ids_size=8)
    measured = decide(trace, LLAMA, record=made_record(), page_sizes=[1, 4, 16])
    fig = drawings.cost_shares(survey.shares(measured, [1, 4, 16]), title="t", tolerance=0.01)
    assert {"time to read through the table", "allocation"} <= set(words(fig))
    colours = {str(line.get_color()) for line in fig.axes[0].lines}
    assert {drawings.PART[p].colour for p in ("tail slack", "metadata")} <= colours
    lost = kv.Trace([20] * 4, [4] * 4, page_ids=[[0, 1, 2]] * 4, page_ids_size=8)
    shared = decide(lost, LLAMA, page_sizes=[8, 16])
    fig = drawings.cost_shares(survey.shares(shared, [8, 16]), title="t", tolerance=0.01)
    assert "metadata" in words(fig)


# --------------------------------------------------------------------------- drawings


def test_ranges_and_needed_costs_are_drawn_as_they_are(
    frame: pd.DataFrame, workloads: dict[str, Workload]
) -> None:
    fig = drawings.near_ranges(
        frame, title="t", trace="azure_conv_2023", model=LLAMA, mark=16, panels=("one", "two")
    )
    said = words(fig)
    assert {"one", "two", "Azure chat", "Mooncake synthetic", "OPT-13B", "pages of 16"} <= set(said)
    assert {str(high) for high in frame[frame["model"] == LLAMA]["high"]} <= set(said)
    bars = [(p.get_x(), p.get_x() + p.get_width()) for p in fig.axes[0].patches]
    drawn = frame[frame["model"] == LLAMA].sort_values("mean_tokens")
    expected = [(float(a), float(b)) for a, b in zip(drawn["low"], drawn["high"], strict=True)]
    assert sum(bars, ()) == pytest.approx(sum(expected, ()))
    needed = survey.needed(workloads, LLAMA, [1, 16, 256])
    plain = words(drawings.needed_costs(needed, title="t", absent="not measured"))
    assert {"t\n(not measured)", "metadata, as counted", "pages of 16", "Azure chat"} <= set(plain)
    assert "reading, as measured" not in plain
    for high in (0.13, None):
        fig = drawings.needed_costs(needed, title="t", measured=(0.12, 0.11, high))
        assert "reading, as measured" in words(fig)
    single = survey.needed({"mine": workload_of([8] * 5)}, LLAMA, [7, 8], page_sizes=[1, 7, 8])
    fig = drawings.needed_costs(single, title="t")
    assert len(fig.axes[0].patches) == 1
