"""Published numbers beside recomputed ones: what must be reproduced, and what may differ."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from kvledger.chapters import published
from kvledger.core import data_file
from kvledger.core.errors import LedgerError


def test_the_paper_is_reproduced_where_sizes_decide() -> None:
    frame = published.paper_numbers().set_index("claim")
    assert set(frame.index[frame["verdict"] == "reproduced"]) == {
        "fig2.orca_max.external_other",
        "table1.opt13b.kv_slots",
        "table1.opt175b.kv_slots",
        "batched.sharegpt.orca_max",
        "batched.alpaca.orca_max",
    }
    assert list(frame.index[frame["verdict"] == "differs"]) == ["table1.opt66b.kv_slots"]
    assert frame.loc["table1.opt13b.kv_slots", "recomputed"] == Fraction(15728, 1000)
    assert round(float(frame.loc["fig2.orca_max.external_other", "recomputed"]), 2) == 8.85


def test_cases_and_models_are_reproduced() -> None:
    frame = published.case_numbers().set_index("case")
    assert list(frame.index[frame["verdict"] == "differs"]) == ["oversized"]
    assert frame.loc["oversized", "recomputed"] == 64
    assert set(published.model_numbers()["verdict"]) == {"reproduced"}
    for name, frame, column in (
        ("paper_pagedattention.csv", published.paper_numbers(), "claim"),
        ("cases.csv", published.case_numbers(), "case"),
        ("models.csv", published.model_numbers(), "model"),
    ):
        with data_file(name).open(encoding="utf-8", newline="") as file:
            assert frame[column].tolist() == [row[0] for row in csv.reader(file)][1:]
    for frame in (published.paper_numbers(), published.case_numbers()):
        other = frame[frame["verdict"] != "reproduced"]
        assert len(other)
        assert other["why"].str.len().min() > 10


@pytest.mark.parametrize(
    ("printed", "value", "verdict"),
    [
        ("7.00", Fraction(7), "reproduced"),
        ("8.9", Fraction(885, 100), "reproduced"),
        ("8.9", Fraction(884, 100), "differs"),
        ("15.7", Fraction(15728, 1000), "reproduced"),
        ("630", 631, "differs"),
        ("never", 64, "differs"),
        ("96.3", None, "cited"),
    ],
)
def test_a_verdict_allows_the_rounding_of_the_print_and_no_more(
    printed: str, value: Fraction | int | None, verdict: str
) -> None:
    assert published._verdict(printed, value) == verdict


def test_a_changed_fact_needs_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, old, new in (
        ("cases.csv", "57344", "57345"),
        ("paper_pagedattention.csv", ",7.00,requests,Figure 13a", ",8.00,requests,Figure 13a"),
    ):
        text = data_file(name).read_text(encoding="utf-8")
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(published, "data_file", lambda name: tmp_path / name)
    with pytest.raises(LedgerError, match="published 57345, computed 57344; say why"):
        published.case_numbers()
    with pytest.raises(LedgerError, match=r"published 8\.00, computed 7; say why"):
        published.paper_numbers()
