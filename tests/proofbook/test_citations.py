"""Citations, read back by a BibTeX parser whatever a title holds, and the files that say them."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import pandas as pd
import pytest
from conftest import refused_input
from hypothesis import given
from hypothesis import strategies as st
from pybtex.database import parse_string

from proofbook import figure, number, style, table
from proofbook.catalogue import Catalogue, Entry, permalink
from proofbook.catalogue.citations import bibtex, escaped, plain, publish, title
from proofbook.catalogue.notebook_entries import catalogue_of
from proofbook.stamps import read_stamp

pytestmark = pytest.mark.usefixtures("smallbook")
FIGURE = Entry(
    "fig-a", "figure", "measured", "data/run.json", "chapters/a_b", "c", "Sales grow", None, None,
    "0123456789abcdef" * 4, "Sales grow.", "A line that rises.",
)  # fmt: skip
BOOK = Catalogue("1.2", "f" * 64, {"fig-a": FIGURE})

#: What TeX shows for a command without arguments that an escaped text may hold.
SHOWN = {
    "textbackslash": "\\",
    "textbraceleft": "{",
    "textbraceright": "}",
    "textasciicircum": "^",
    "textasciitilde": "~",
}


def typeset(field: str) -> str:
    """What TeX shows of a field: the commands that are known, and no other."""
    text = re.sub(r"\\([a-z]+)\{\}", lambda m: SHOWN[m[1]], field)
    return re.sub(r"\\([&%$#_])", r"\1", text)


def bib_fields(text: str) -> dict[str, str]:
    (entry,) = parse_string(text, "bibtex").entries.values()
    return {**entry.fields, "author": " and ".join(map(str, entry.persons["author"]))}


def one_line(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_title_comes_back(words: str) -> None:
    found = bib_fields(bibtex(replace(FIGURE, text=words), BOOK))
    outer = re.fullmatch(r"\{(.*)\}", found["title"], re.DOTALL)
    assert outer is not None
    assert typeset(outer[1]).split() == one_line(words).removesuffix(".").split()
    assert set(found) == {"title", "author", "year", "version", "url", "note"}
    assert found["url"] == "chapters/a_b.html#fig-a"


@given(st.text(st.sampled_from("\\{}%$#_&~^\"'@,= a\n"), max_size=30))
def test_hostile_words_stay_words(words: str) -> None:
    source = one_line(words).strip() or "x"
    said = typeset(bib_fields(bibtex(replace(FIGURE, text=words, source=source), BOOK))["note"])
    assert said.split() == (
        "smallbook 1.2, figure fig-a, data digest 01234567, measured "
        f"({one_line(source).rstrip('.')})"
    ).split()  # fmt: skip
    text = escaped(words)
    assert text.count("{") == text.count("}")
    assert typeset(text) == one_line(words)
    assert not re.search(r"(?<!\\)[%$#&_^~]", text)


def test_both_say_all_that_leads_back() -> None:
    for text in (bibtex(FIGURE, BOOK), plain(FIGURE, BOOK)):
        for part in ("Small Book Makers", "smallbook", "1.2", "fig-a", "01234567", "measured",
                     "data/run.json", "chapters/a_b.html#fig-a", "2026", "Sales grow"):  # fmt: skip
            assert part in text
    assert "\n" not in plain(FIGURE, BOOK)
    base = "https://book.example/v1"
    assert f"{base}/chapters/a_b.html#fig-a" in plain(FIGURE, BOOK, base)
    assert bib_fields(bibtex(FIGURE, BOOK, base))["url"] == permalink(FIGURE, base)


def test_the_year_is_that_of_the_release(smallbook: Path) -> None:
    path = smallbook / "CITATION.cff"
    path.write_text(path.read_text().replace("2026-01-31", '"2019-01-31"'))
    assert bib_fields(bibtex(FIGURE, BOOK))["year"] == "2019"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"text": "38", "value": "38", "unit": "slots"}, "a.n: 38 slots"),
        ({"text": "4.2", "value": "21/5", "unit": ""}, "a.n: 4.2"),
        ({"text": "36.6%", "value": "36.6", "unit": "%"}, "a.n: 36.6%"),
        ({"text": "1.6", "value": "1.64", "unit": "%"}, "a.n: 1.6%"),
        ({"text": "96.3%", "value": "963/10", "unit": "% of the room"}, "a.n: 96.3% of the room"),
        ({"text": "60\u00a0GiB", "value": "64424509440", "unit": "bytes"}, "a.n: 60 GiB"),
        ({"text": "A shop", "value": "A shop", "unit": "text"}, "a.n: A shop"),
        ({"text": "5", "value": "5", "unit": "x"}, "a.n: 5 x"),
    ],
)
def test_a_number_is_cited_with_its_unit(changed: dict[str, Any], says: str) -> None:
    cited = replace(FIGURE, id="a.n", what="number", caption=None, alt=None, **changed)
    assert title(cited) == says


# --- the files beside the pages -------------------------------------------------------
DATA = pd.DataFrame({"policy": ["pages", "reserved"], "slots": [40, 96]})
ALT = "Two bars of slots, one a policy: pages hold less than half of what is reserved."
TITLE = 'Pages hold less: 50% & "{more}" <than> \\half'


@pytest.fixture
def made(outputs: list[tuple[Any, Any]], tmp_path: Path) -> tuple[Catalogue, Path]:
    """What one page shows, and the folder where its cell saved it."""
    fig, ax = style.canvas(2.4)
    ax.barh([0, 1], DATA["slots"], color="#0072b2")
    fig.suptitle(TITLE)
    number("toy.parts", 40)
    figure("fig-toy", fig, DATA, ALT)
    table("tab-toy", DATA, caption="Slots a policy.")
    cell = {
        "cell_type": "code",
        "id": "toy-cell",
        "metadata": {"mystnb": {"figure": {"caption": "Only {glue:text}`toy.parts` slots."}}},
        "outputs": [{"data": data, "metadata": meta} for data, meta in outputs],
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
            assert about[field.name] == getattr(entry, field.name)
        assert about["permalink"] == permalink(entry) == f"chapters/toy.html#{id}"
        assert (about["version"], about["source_digest"]) == ("1.2", "f" * 64)
        (same,) = json.loads((folder / f"{what}s.json").read_text(encoding="utf-8"))[f"{what}s"]
        assert {key: about[key] for key in same} == same
        citation = (folder / f"{what}s" / f"{id}.bib").read_text(encoding="utf-8")
        found = parse_string(citation, "bibtex").entries[f"smallbook-{id}"]
        assert found.fields["url"] == permalink(entry)
        assert entry.digest[:8] in found.fields["note"]


def test_drawings_lead_back_to_their_page_however_often_published(
    made: tuple[Catalogue, Path],
) -> None:
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
    publish(catalogue, folder, "https://book.example")
    places = [folder, folder / "figures", folder / "tables"]
    first = {p: p.read_bytes() for place in places for p in place.glob("*.*")}
    publish(catalogue, folder, "https://book.example")
    assert {p: p.read_bytes() for place in places for p in place.glob("*.*")} == first
    assert len(first) == 3 + 6 + 3


@pytest.mark.parametrize("end", [".json", ".svg", ".dark.svg", ".png"])
def test_a_lost_file_is_named(made: tuple[Catalogue, Path], end: str) -> None:
    catalogue, folder = made
    (folder / "figures" / f"fig-toy{end}").unlink()
    refused_input(rf"fig-toy{end}.*make clean", publish, catalogue, folder)


def test_files_of_other_data_are_refused(made: tuple[Catalogue, Path]) -> None:
    catalogue, folder = made
    path = folder / "tables" / "tab-toy.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**about, "digest": "0" * 64}), encoding="utf-8")
    refused_input("tab-toy: its files are of data 0000", publish, catalogue, folder)
