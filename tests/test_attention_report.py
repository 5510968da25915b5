"""What the chapter on measured attention says: of made records whose answers are known."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from attention_records import (
    CPU_PEERS,
    GPU_PEERS,
    LLAMA3,
    PAGE_SIZES,
    MadePeer,
    made_case,
    made_record,
)
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from redraw import words

import kvledger as kv
from kvledger.chapters import attention_costs, attention_figures, attention_report, published
from kvledger.core import data_file
from kvledger.measure.record import Absence, Record, Timing
from proofbook import figure
from proofbook import showing as outputs
from proofbook.showing import figures

SHARP = 1e-6
TRACES = {"azure_conv_2023": kv.load_lengths("azure_conv_2023")}


@pytest.fixture(autouse=True)
def _quiet(no_warnings: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(tmp_path))
    monkeypatch.setattr(outputs, "_shown", {})
    monkeypatch.setattr(outputs, "emit", lambda *args: None)
    for dpi in ("NOTEBOOK_DPI", "DOWNLOAD_DPI"):  # what is checked does not depend on it
        monkeypatch.setattr(figures, dpi, 24)


def only(record: Record, keep: Callable[[Timing], bool]) -> Record:
    return replace(record, timings=tuple(t for t in record.timings if keep(t)))


# --------------------------------------------------------------------------- sentences
def test_the_words_of_a_record() -> None:
    assert "No record has been taken" in attention_report.state(None)
    cpu = attention_report.state(made_record("cpu"))
    assert cpu.startswith("No record from a GPU has been taken.")
    assert "Test device, a CPU, 2 cores, 2026-01-02" in cpu
    gpu = attention_report.state(made_record("cuda", name="NVIDIA H200"))
    assert gpu == "Measured on one GPU: NVIDIA H200, 2026-01-02."
    record = made_record("cuda", noise=SHARP)
    text = attention_report.result(record)
    made = GPU_PEERS["triton"]
    # The contiguous layout has a page for each request, which the formula charges nothing.
    assert f"{1 + made.c_random / 16:.2f} times as long with pages of 16" in text
    assert f"{1 + made.c_random:.2f} times as long with pages of 1," in text
    assert text.endswith("as on contiguous memory.")
    assert attention_report.baseline_label(record) == "itself"
    record = made_record("cpu", noise=SHARP)
    made, base = CPU_PEERS["flex_paged"], CPU_PEERS["sdpa"]
    ratio = base.share / made.share * (1 + made.c_random / 16)
    assert attention_report.result(record) == (
        f"There, FlexAttention took {ratio:.2f} times as long with pages of 16, placed at random, "
        "as SDPA on contiguous memory."
    )
    record = made_record()
    assert attention_report.row_bytes(record) == str(128 * 2)
    latent = replace(record, cases=(record.cases[2], *record.cases[:2]))
    assert attention_report.row_bytes(latent) == str(576 * 2)
    record = made_record("cuda", noise=SHARP)
    flat = next(t for t in record.timings if t.peer == "sdpa" and t.layout == "contiguous")
    assert attention_report.share(record, flat) == pytest.approx(GPU_PEERS["sdpa"].share, rel=1e-3)


TWO_SIZES = MadePeer(0.5, page_sizes=(16, 32))


@pytest.mark.parametrize(
    ("peers", "chosen"),
    [
        (GPU_PEERS, "triton"),
        (CPU_PEERS, "flex_paged"),
        ({"sdpa": CPU_PEERS["sdpa"], "gather_sdpa": CPU_PEERS["gather_sdpa"]}, "gather_sdpa"),
        ({"sdpa": CPU_PEERS["sdpa"]}, None),
        ({"flex_paged": TWO_SIZES, "another": TWO_SIZES}, "flex_paged"),
        ({"flex_paged": TWO_SIZES, "another": MadePeer(0.5)}, "another"),
    ],
)
def test_the_peer_in_view(peers: dict[str, MadePeer], chosen: str | None) -> None:
    assert attention_report.peer_in_view(made_record("cpu", peers=peers)) == chosen


# --------------------------------------------------------------------------- frames
def test_the_sweep_holds_every_timing_once_and_losses_part_the_time() -> None:
    record = made_record("cuda")
    frame = attention_report.main_sweep(record)
    timed = [t for t in record.timings if t.case == record.main_case.id]
    keys = {(t.peer, t.layout, t.page_size) for t in timed}
    got = frame[["peer", "layout", "page_size"]].itertuples(index=False, name=None)
    assert sorted(got) == sorted(keys)
    for t in timed:
        base = record.baseline(t)
        row = frame.set_index(["peer", "layout", "page_size"]).loc[(t.peer, t.layout, t.page_size)]
        assert row["ratio"] == pytest.approx(np.median(np.divide(t.seconds, base.seconds)))
        assert row["share"] == pytest.approx(attention_report.share(record, t))
        assert row["baseline"] == ("triton" if t.peer == "triton" else "sdpa")
    record = made_record("cuda", noise=SHARP)
    made = GPU_PEERS["triton"]
    frame = attention_report.losses(record).set_index("page size").astype(float)
    for size in PAGE_SIZES:
        row = frame.loc[size]
        order = 1 + made.c_in_order / size
        assert row["in order against contiguous"] == pytest.approx(order, rel=1e-4)
        places = (1 + made.c_random / size) / order
        assert row["at random against in order"] == pytest.approx(places, rel=1e-4)
        left = row["contiguous share"] / row["in order against contiguous"]
        left /= row["at random against in order"]
        # The table's own bytes are the only rest.
        assert row["share at random"] == pytest.approx(left, rel=2e-3)


def test_every_case_has_its_row_and_its_cost() -> None:
    record = made_record("cuda", noise=SHARP)
    frame = attention_costs.cases(record)
    assert len(frame) == len(record.cases)
    assert frame["c"].tolist() == ["0.120 (0.120 to 0.120)"] * len(frame)
    assert frame["batch"].iloc[-1].endswith(" of Azure chat")
    few = only(record, lambda t: t.page_size in (1, 16) or t.layout == "contiguous")
    assert attention_costs.cases(few)["c"].isna().all()
    frame = barred(MadePeer(0.85, 0.30, 0.05, own_contiguous=True), flashinfer=MadePeer(0.95))
    share, peers, one = (str(text) for text in frame["verdict"])
    assert share == f"missed by {100 * (0.9 - 0.85 / (1 + 0.3 / 16)):.1f} points"
    assert peers == f"missed by {0.95 / 0.85 * (1 + 0.3 / 16) - 1:.1%}"
    assert one == f"missed by {1.3 / 1.15 - 1:.1%}"
    assert "against FlashInfer" in str(frame["where"].iloc[1])
    frame = barred(MadePeer(0.95, 0.05, 0.40, own_contiguous=True))
    assert frame["where"].iloc[2] == "pages of 1, in order"
    assert str(frame["verdict"].iloc[2]).startswith("missed")
    other = barred(MadePeer(0.95, 0.10, 0.05, own_contiguous=True), name="NVIDIA A100")["verdict"]
    assert other.tolist() == ["met, but the bar is for an H200"] * 3
    for record in (None, made_record("cpu")):
        frame = attention_report.bars(record)
        assert set(frame["verdict"]) == {"not measured on a GPU yet"}
        assert frame["reached"].isna().all()
    without = only(made_record("cuda"), lambda t: t.peer != "triton")
    assert set(attention_report.bars(without)["verdict"]) == {"not in this record"}


def test_absences_and_host_work_are_gathered_by_reason_and_by_step() -> None:
    record = made_record("cuda")
    main = record.main_case.id
    absent = [Absence("flex_paged", main, p, f"takes pages from 16, not {p}") for p in (1, 2, 8)]
    absent += [Absence("flashinfer", None, None, "flashinfer cannot be\nimported")]
    absent += [Absence("cudnn_paged", c.id, None, "no time was left") for c in record.cases]
    assert attention_report.absences(replace(record, absent=tuple(absent))).to_numpy().tolist() == [
        ["FlexAttention", f"pages of 1, 2, 8 in {main}", "takes pages from 16"],
        ["FlashInfer", "anything", "flashinfer cannot be imported"],
        ["cuDNN", "5 cases", "no time was left"],
    ]
    record = made_record("cuda", noise=SHARP)
    frame = attention_report.host_work(record).set_index(["what", "page_size"])
    held, requests = 256 * 1024, 256
    anew = frame.loc[("page table made anew", 16)]
    assert anew["us"] == pytest.approx(1e6 * (2e-5 + 3e-9 * held / 16), rel=1e-4)
    assert (anew["each"], anew["requests"], anew["tokens"]) == ("step", requests, held)
    lists = frame.loc[("pages into lists", 16)]
    assert lists["us"] == pytest.approx(1e6 * (requests * (6e-8 / 16 + 4e-8)), rel=1e-4)
    assert lists["tokens"] == held
    hashing = frame.loc[("hashing, packed", 1)]
    assert hashing["us"] == pytest.approx(1e6 * (4e-7 + 2e-8), rel=1e-4)
    assert hashing["each"] == "prompt token"
    assert attention_report.host_requests(record) == "256 requests that hold 262,144 tokens"
    assert attention_report.host_microseconds(record, "build_page_table", 3) == "not measured"


# --------------------------------------------------------------------------- bars
def barred(kernel: MadePeer, name: str = "NVIDIA H200", **others: MadePeer) -> pd.DataFrame:
    peers = {"triton": kernel, "sdpa": MadePeer(0.9, page_sizes=(), own_contiguous=True), **others}
    case = made_case(LLAMA3, 64, 8192)
    record = made_record("cuda", name=name, peers=peers, cases=[case], noise=SHARP)
    return attention_report.bars(record).set_index("bar")


def test_a_kernel_that_reaches_its_bars_has_met_them() -> None:
    frame = barred(MadePeer(0.95, 0.10, 0.05, own_contiguous=True))
    assert frame["verdict"].tolist() == ["met", "met", "met"]
    reached = [str(text) for text in frame["reached"]]
    assert reached[0].startswith(f"{0.95 / (1 + 0.1 / 16):.1%} (")
    assert reached[1].startswith(f"{0.9 / 0.95 * (1 + 0.1 / 16):.2f} times (")
    assert reached[2].startswith("1.10 times (")
    against = "pages of 16, at random, against SDPA on contiguous memory"
    assert set(frame["where"]) == {"pages of 16, at random", against, "pages of 1, at random"}


# --------------------------------------------------------------------------- costs
def test_costs_are_put_among_the_exact_costs_of_a_trace() -> None:
    record = made_record("cuda", noise=SHARP)
    row = attention_costs.best_sizes(record, TRACES, 16).iloc[0]
    exact = kv.c_for_page_size(TRACES["azure_conv_2023"].total, 16, PAGE_SIZES)
    assert (row.iloc[1], row.iloc[2]) == (exact.c_from, float(exact.c_to))
    assert exact.c_from < Fraction("0.12") < exact.c_to
    assert row.iloc[3:].tolist() == [16, 16, 16]
    record = made_record("cuda", noise=SHARP)
    frame = attention_costs.points(record)
    assert len(frame) == 2 * len(PAGE_SIZES)
    assert frame["off"].astype(float).abs().max() < 1e-4
    costs = frame.groupby("layout")["c"].first().astype(float).to_dict()
    assert costs == pytest.approx({"random": 0.12, "in_order": 0.07}, rel=1e-3)
    peers = {"triton": MadePeer(0.9, -0.05, -0.05, own_contiguous=True)}
    row = attention_costs.best_sizes(made_record("cuda", peers=peers), TRACES, 16).iloc[0]
    assert row.iloc[3:].tolist() == [1, 1, 1]
    record = only(made_record("cpu"), lambda t: t.page_size in (16, 32, 2048))
    assert attention_costs.fitted(record) is None
    assert "open" in attention_costs.verdict(record)
    fits = attention_costs.fits(record)
    assert fits["c"].isna().all()
    assert (fits["a line"] == "too few page sizes").all()


@given(st.sampled_from(list(pairwise(PAGE_SIZES))))
def test_two_page_sizes_cost_the_same_at_their_even_cost(pair: tuple[int, int]) -> None:
    total = TRACES["azure_conv_2023"].total
    even = attention_costs.even_c(TRACES["azure_conv_2023"], *pair)
    small, large = (kv.cost(total, size, even) for size in pair)
    assert small == large
    assert kv.best_page_size(total, even * 2, pair).page_size == pair[1]
    assert kv.best_page_size(total, even / 2, pair).page_size == pair[0]


def test_a_step_is_open_unless_it_is_on_one_side_and_times_on_a_line() -> None:
    frame = attention_costs.steps(made_record("cuda", noise=0.004), TRACES).set_index("pages of")
    seen = set()
    for pages, row in frame.iterrows():
        smaller, larger = map(int, str(pages).split(" or "))
        need = attention_costs.even_c(TRACES["azure_conv_2023"], smaller, larger)
        ends = re.findall(r"-?\d+\.\d+", row["c"].replace("\N{MINUS SIGN}", "-"))
        low, high = float(ends[1]), float(ends[2])
        expected = "larger" if low > need else "smaller" if high < need else "open"
        assert row["Azure chat"] == f"{expected}: {float(need):.4f}"
        seen.add(expected)
    assert seen == {"larger", "smaller", "open"}
    record = made_record("cuda")
    small = {t: t.peer == "triton" and t.page_size < 16 for t in record.timings}
    bent = tuple(
        replace(t, seconds=tuple((1.5 if slow else 1) * s for s in t.seconds))
        for t, slow in small.items()
    )
    broken = replace(record, timings=bent)
    assert attention_costs.verdict(record).startswith("The line describes the times: ")
    assert attention_costs.verdict(broken).startswith("The line does not describe the times: ")
    assert attention_costs.interval(attention_costs.fitted(broken)).endswith(
        "though the times are not on a line"
    )
    fits = attention_costs.fits(broken).set_index(["peer", "pages placed"])
    assert fits.loc[("this kernel", "at random"), "a line"] == "no"
    assert fits.loc[("FlashInfer", "at random"), "a line"] == "yes"


# --------------------------------------------------------------------------- published
def test_published_costs_are_as_printed_each_with_its_source() -> None:
    frame = published.cost_numbers().set_index("id")
    times = frame.loc["kernel.paper", ["times_low", "times_high"]].tolist()
    assert times == [Fraction(6, 5), Fraction(63, 50)]
    assert frame.loc["decode.early_vllm", "times_high"] == Fraction(14, 5)
    assert frame.loc["decode.fa4.p1", "times_low"] == Fraction(9906, 2147)
    assert frame.loc["decode.fa4.p128", "times_high"] == 1
    assert frame.loc["host.before", "high"] == Decimal(30)
    assert frame["times_high"].notna().sum() == 8
    assert frame.index.is_unique
    with data_file("published_costs.csv").open(encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == frame.index.tolist()
    root = Path(__file__).resolve().parent.parent
    keys = set(re.findall(r"@\w+\{(\w+),", (root / "chapters/references.bib").read_text("utf-8")))
    cited = set(published.cost_numbers()["citation"])
    assert cited <= keys
    assert cited == set(published.SOURCES)
    printed = published.printed_costs()["published"].tolist()
    assert {"20 to 26% longer", "up to 42% longer", "under 5% longer", "9.906 ms"} <= set(printed)
    assert {"30% of a decode iteration", "up to 10% of a decode iteration"} <= set(printed)
    costs = published.cost_numbers().set_index("id")
    paper = published.paper_numbers().set_index("claim")["published"]
    for row, claim in {
        "kernel.paper": "kernel.latency_overhead",
        "block_size.sharegpt": "block_size.sharegpt.best",
        "block_size.alpaca": "block_size.alpaca.best",
    }.items():
        for end in ("low", "high"):
            assert costs.loc[row, end] == Decimal(paper[f"{claim}_{end}"])


def test_measured_and_published_are_never_one_kind() -> None:
    alone = published.beside(None)
    assert set(alone["kind"]) == {"published"}
    record = made_record("cuda")
    frame = published.beside(record)
    theirs, ours = (frame[frame["kind"] == kind] for kind in ("published", "measured"))
    assert theirs["source"].isin(list(published.SOURCES.values())).all()
    assert set(ours["source"]) == {record.label}
    assert ours["label"].tolist()[:3] == [f"this kernel: pages of {p}" for p in (1, 16, 128)]
    assert (ours["low"].astype(float) <= ours["high"].astype(float)).all()
    pd.testing.assert_frame_equal(theirs.reset_index(drop=True), alone)


# --------------------------------------------------------------------------- by hand
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 20), st.integers(0, 99))
def test_the_small_table_holds_each_once(lengths: list[int], size: int, seed: int) -> None:
    frame = attention_figures.small_table(lengths, size, seed)
    ledger = kv.paged(lengths, size)
    assert len(frame) == ledger.pages
    assert frame["tokens"].sum() == ledger.logical_tokens
    assert sorted(frame["entry"]) == list(range(ledger.pages))
    assert (size * len(frame) - frame["tokens"].sum()) == ledger.tail_slack_slots
    reads = attention_figures.table_reads(lengths, [size]).iloc[0]
    assert reads["tokens an entry"] == Fraction(ledger.logical_tokens, ledger.pages)


# --------------------------------------------------------------------------- drawings
LONG = "A processor with a very long name indeed, of a maker that likes them so, at 2.40 GHz, x 2"

MORE = {"cudnn_paged": MadePeer(0.96), "pallas_paged": MadePeer(0.5)}
SLOW = {"flex_paged": MadePeer(0.001, 9.0)}

RECORDS: dict[str, Callable[[], Record | None]] = {
    "none": lambda: None,
    "gpu": lambda: made_record("cuda"),
    "cpu": lambda: made_record("cpu"),
    "a long name": lambda: made_record("cpu", name=LONG),
    "every peer": lambda: made_record("cuda", peers={**GPU_PEERS, **MORE}),
    "one more": lambda: made_record("cuda", peers={**GPU_PEERS, "of_tomorrow": MadePeer(0.99)}),
    "contiguous alone": lambda: made_record("cpu", peers={"sdpa": CPU_PEERS["sdpa"]}),
    "two sizes": lambda: only(made_record("cpu"), lambda t: t.page_size in (16, 32, 2048)),
    "no host": lambda: replace(made_record("cuda"), host=()),
    "no baseline": lambda: made_record("cpu", peers={"flex_paged": CPU_PEERS["flex_paged"]}),
    "very slow": lambda: made_record("cpu", peers={**CPU_PEERS, **SLOW}),
    "noisy": lambda: made_record("cpu", noise=0.3),
}

_SAID = ["state", "result", "device", "source", "baseline_label", "in_view", "main_case"]
_SAID += ["row_bytes", "host_requests"]
SENTENCES = [*(getattr(attention_report, name) for name in _SAID), attention_costs.verdict]
_LAID = ["settings", "main_sweep", "absences", "bars", "losses", "host_work"]
FRAMES = [getattr(attention_report, name) for name in _LAID]
FRAMES += [attention_costs.cases, attention_costs.points, attention_costs.fits, published.beside]


def drawn(record: Record | None) -> dict[str, tuple[Figure, pd.DataFrame]]:
    sweep, points = attention_report.main_sweep(record), attention_costs.points(record)
    work, beside = attention_report.host_work(record), published.beside(record)
    small = attention_figures.small_table([5, 9, 17], 4)
    title = attention_report.titled("What a figure shows", record)
    reached = attention_figures.bandwidth(sweep, title=title, bar=0.9, bar_words="bar")
    return {
        "fig-table": (attention_figures.page_table(small, title="t"), small),
        "fig-latency": (attention_figures.latency(sweep, title=title), sweep),
        "fig-bandwidth": (reached, sweep),
        "fig-line": (attention_figures.line(points, title=title), points),
        "fig-host": (attention_figures.host(work, title=title), work),
        "fig-published": (attention_figures.beside_published(beside, title="t"), beside),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECORDS)
def test_any_record_can_be_told_and_drawn(kind: str) -> None:
    record = RECORDS[kind]()
    for sentence in SENTENCES:
        text = sentence(record)
        assert text
        assert text == " ".join(text.split())
        assert "nan" not in re.findall(r"\w+", text)
    for frame_of in FRAMES:
        frame = frame_of(record)
        assert len(frame)
        assert frame.iloc[:, 0].notna().all()
        assert np.isfinite([v for v in frame.to_numpy().ravel() if isinstance(v, float)]).all()
    assert len(attention_costs.steps(record, TRACES))
    assert len(attention_costs.best_sizes(record, TRACES, 16))
    # figure() refuses what runs out of the page, lies on the footer or has no dark twin.
    for id, (fig, data) in drawn(record).items():
        figure(id, fig, data, "A sentence that says what is drawn, long enough to be one.")


def test_figures_say_what_their_frames_hold_and_draw_the_bar_where_it_was_timed() -> None:
    record = made_record("cuda", noise=SHARP)
    figures = {id: words(fig) for id, (fig, _) in drawn(record).items()}
    pairs = ("this kernel", "itself"), ("FlashInfer", "SDPA"), ("FlexAttention", "SDPA")
    assert {f"{one}\nagainst {other}" for one, other in pairs} <= set(figures["fig-latency"])
    assert {"this kernel", "SDPA, contiguous", "bar"} <= set(figures["fig-bandwidth"])
    assert "at random: c = 0.120 (0.120 to 0.120)" in "\n".join(figures["fig-line"])
    found = {"up to 1.42", "1.20 to 1.26", "4.61", "1.12", f"measured here: {record.label}"}
    assert found <= set(figures["fig-published"])
    for id in ("fig-latency", "fig-bandwidth", "fig-line", "fig-host"):
        assert any("Test device, a GPU, 2026-01-02" in text for text in figures[id])
    assert "bar" in words(drawn(made_record("cuda"))["fig-bandwidth"][0])
    assert "bar" not in words(drawn(made_record("cpu"))["fig-bandwidth"][0])


def test_the_figures_of_latency() -> None:
    fig, _ = drawn(RECORDS["every peer"]())["fig-latency"]
    fig.draw_without_rendering()
    panels = [ax for ax in fig.axes if ax.get_title(loc="left")]
    assert len(panels) == 6
    for ax in panels:
        low, high = ax.get_ylim()
        assert low < 1 < high
        assert math.isclose(ax.get_xlim()[0], fig.axes[0].get_xlim()[0])
    for id, (fig, _) in drawn(None).items():
        if id not in ("fig-table", "fig-published"):
            assert "not measured" in words(fig)
