"""Files of figures and tables after the build: drawings, JSON and citation say the same."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import matplotlib as mpl

from kvledger.chapters import drawing

mpl.use("Agg")

import pandas as pd
import pytest
from pybtex.database import parse_string

from proofbook import figure, number, style, table
from proofbook import showing as outputs
from proofbook.catalogue import Catalogue, Entry, permalink
from proofbook.catalogue.citations import publish
from proofbook.catalogue.notebook_entries import catalogue_of
from proofbook.errors import InputError
from proofbook.stamps import read_stamp

DATA = pd.DataFrame({"policy": ["pages", "reserved"], "slots": [40, 96]})
ALT = "Two bars of slots, one a policy: pages hold less than half of what is reserved."
TITLE = 'Pages hold less: 50% & "{more}" <than> \\half'


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Catalogue, Path]:
    """What one page shows, and the folder where its cell saved it."""
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(
        outputs, "emit", lambda data, meta: shown.append({"data": data, "metadata": meta})
    )
    monkeypatch.setattr(outputs, "_shown", {})
    monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(tmp_path / "figures"))
    fig, ax = style.canvas(2.4)
    ax.barh([0, 1], DATA["slots"], **drawing.part_style("used"))
    fig.suptitle(TITLE)
    number("toy.slots", 40)
    figure("fig-toy", fig, DATA, ALT)
    table("tab-toy", DATA, caption="Slots a policy.")
    cell = {
        "cell_type": "code",
        "id": "toy-cell",
        "source": "",
        "metadata": {"mystnb": {"figure": {"caption": "Only {glue:text}`toy.slots` slots."}}},
        "outputs": shown,
    }
    page = {"chapters/toy": {"cells": [cell]}}
    return catalogue_of(page, version="1.2", source_digest="f" * 64), tmp_path


def test_all_files_say_the_same(made: tuple[Catalogue, Path]) -> None:
    catalogue, folder = made
    publish(catalogue, folder)
    for id, what in (("fig-toy", "figure"), ("tab-toy", "table")):
        entry = catalogue.entries[id]
        about = json.loads((folder / f"{what}s" / f"{id}.json").read_text(encoding="utf-8"))
        for field in fields(Entry):
            value = getattr(entry, field.name)
            assert about[field.name] == value
        assert about["permalink"] == permalink(entry) == f"chapters/toy.html#{id}"
        assert (about["version"], about["source_digest"]) == ("1.2", "f" * 64)
        listed = json.loads((folder / f"{what}s.json").read_text(encoding="utf-8"))
        (same,) = listed[f"{what}s"]
        assert {key: about[key] for key in same} == same
        citation = (folder / f"{what}s" / f"{id}.bib").read_text(encoding="utf-8")
        found = parse_string(citation, "bibtex").entries[f"kvledger-{id}"]
        assert found.fields["url"] == permalink(entry)
        assert entry.digest[:8] in found.fields["note"]


def test_drawings_lead_back_to_their_page(made: tuple[Catalogue, Path]) -> None:
    catalogue, folder = made
    publish(catalogue, folder)
    about = json.loads((folder / "figures" / "fig-toy.json").read_text(encoding="utf-8"))
    for end in (".svg", ".dark.svg", ".png"):
        stamp = read_stamp(folder / "figures" / f"fig-toy{end}")
        assert stamp.pop("data_digest") == about["digest"]
        assert stamp == {key: about[key] for key in stamp}
        assert stamp["title"] == TITLE
        assert (stamp["page"], stamp["cell"]) == ("chapters/toy", "toy-cell")
        assert (stamp["version"], stamp["licence"]) == ("1.2", "CC BY 4.0")
    assert about["caption"] == "Only 40 slots."


def test_to_publish_again_changes_nothing(made: tuple[Catalogue, Path]) -> None:
    catalogue, folder = made
    publish(catalogue, folder, "https://book.example")
    first = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    publish(catalogue, folder, "https://book.example")
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == first
    assert len(first) == 3 + 6 + 3


@pytest.mark.parametrize("end", [".json", ".svg", ".dark.svg", ".png"])
def test_a_lost_file_is_named(made: tuple[Catalogue, Path], end: str) -> None:
    catalogue, folder = made
    (folder / "figures" / f"fig-toy{end}").unlink()
    with pytest.raises(InputError, match=rf"fig-toy{end}.*make clean"):
        publish(catalogue, folder)


def test_files_of_other_data_are_refused(made: tuple[Catalogue, Path]) -> None:
    catalogue, folder = made
    path = folder / "tables" / "tab-toy.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**about, "digest": "0" * 64}), encoding="utf-8")
    with pytest.raises(InputError, match="tab-toy: its files are of data 0000"):
        publish(catalogue, folder)
