"""This book as its notebooks are stored: no number typed, all catalogued, compared and cited."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from pybtex.database import parse_string

from kvledger import __version__
from kvledger.traces.derivation import load_manifest
from proofbook import ClaimMismatch, number, prose, read_claims, showing
from proofbook.catalogue import Catalogue, number_digest, permalink
from proofbook.catalogue.citations import bibtex
from proofbook.catalogue.editions import edition, read_release, release_names
from proofbook.catalogue.notebook_entries import stored_catalogue
from proofbook.contents import base_url, page_files
from proofbook.project import source_digest

PAGES = [
    path for path in sorted((ROOT / "chapters").glob("[!_]*")) if path.suffix in {".ipynb", ".md"}
]


@pytest.fixture(scope="module")
def book() -> Catalogue:
    return stored_catalogue(ROOT)


# --- prose ----------------------------------------------------------------------------
@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_a_chapter_types_no_number_and_stores_all_it_shows(path: Path) -> None:
    assert [str(problem) for problem in prose.check_file(path)] == []


def test_the_whole_book_glues_every_claim_and_says_one_thing_under_an_id() -> None:
    assert [str(problem) for problem in prose.check_book(PAGES)] == []


def test_a_digit_is_read_as_the_book_reads_it() -> None:
    """The same extensions, no more and no fewer."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert set(config["parse"]["myst_enable_extensions"]) == prose.EXTENSIONS


# --- claims ---------------------------------------------------------------------------
@pytest.mark.parametrize("table", ["claims.csv", "paper_pagedattention.csv"])
def test_every_published_number_is_compared(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "emit", lambda data, meta: None)
    monkeypatch.setattr(showing, "_shown", {})
    for id, claim in read_claims(table).items():
        number(id, claim.value, ".12f")
        with pytest.raises(ClaimMismatch, match=re.escape(f"{table} line")):
            number(id, claim.value + Fraction(1, 1000), ".12f")
    assert not set(read_claims()) & set(read_claims("paper_pagedattention.csv"))


# --- the catalogue --------------------------------------------------------------------
def test_it_holds_all_that_the_pages_show(book: Catalogue) -> None:
    """Counted in the files' text, without the code that reads notebooks."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in page_files(ROOT) if path.suffix == ".ipynb"
    )
    numbers = set(
        re.findall(r'"scrapbook": \{\s*"mime_prefix": "[^"]+",\s*"name": "([^"]+)"', text)
    )
    figures = set(re.findall(r'"(fig-[a-z0-9-]+) · data [0-9a-f]{8}"', text))
    tables = set(re.findall(r'<div class=\\"kv-table\\"[^>]*? id=\\"(tab-[a-z0-9-]+)\\"', text))
    for what, ids in (("number", numbers), ("figure", figures), ("table", tables)):
        assert len(ids) > 20
        assert {e.id for e in book.entries.values() if e.what == what} == ids


def test_every_entry_is_whole(book: Catalogue) -> None:
    for id, entry in book.entries.items():
        assert entry.id == id
        assert re.fullmatch("[0-9a-f]{64}", entry.digest), id
        assert entry.text.strip()
        assert (entry.source is None) == (entry.kind == "computed")
        assert (ROOT / f"{entry.page}.ipynb").is_file()
        if entry.what == "number":
            assert entry.value is not None
            assert entry.unit is not None
            assert entry.digest == number_digest(id, entry.value, entry.unit)
            assert entry.caption is entry.alt is None
        else:
            assert entry.caption is not None
            assert not re.search(r"[{}`$]|glue", entry.caption), entry.caption
            assert entry.value is entry.unit is None
            assert (entry.alt is not None) == (entry.what == "figure")


def test_a_number_reads_as_its_value(book: Catalogue) -> None:
    """What is shown is the exact value, rounded: wherever the text is a plain decimal."""
    compared = 0
    for entry in book.entries.values():
        text = entry.text.replace(",", "").replace("\N{MINUS SIGN}", "-").removesuffix("%")
        if entry.what != "number" or not re.fullmatch(r"-?\d+(\.\d+)?", text):
            continue
        if entry.unit != "text":
            places = len(text.partition(".")[2])
            exact = Fraction(str(entry.value))
            assert abs(exact - Fraction(text)) <= Fraction(1, 2 * 10**places), entry.id
            compared += 1
    assert compared > 200


def test_pages_their_order_and_their_links(book: Catalogue) -> None:
    listed = [p.relative_to(ROOT).with_suffix("").as_posix() for p in page_files(ROOT)]
    assert list(book.pages) == [page for page in listed if page in set(book.pages)]
    assert (book.version, book.source_digest) == (__version__, source_digest(ROOT))
    places = [book.pages.index(entry.page) for entry in book.entries.values()]
    assert places == sorted(places)
    links = [permalink(entry) for entry in book.entries.values()]
    assert len(set(links)) == len(links)
    slots = book.entries["paged.p4.allocated_slots"]
    assert permalink(slots) == "chapters/page_tail_slack.html#n-paged.p4.allocated_slots"
    assert base_url(ROOT) == "" or base_url(ROOT).startswith("http")


def test_a_caption_says_the_numbers_of_its_page(book: Catalogue) -> None:
    caption = book.entries["fig-slack-share"].caption
    assert caption is not None
    for id in ("paged.default_size", "slack.p16.least_share", "slack.p16.greatest_share"):
        assert book.entries[id].text in caption


def test_every_entry_can_be_cited(book: Catalogue) -> None:
    parsed = parse_string("\n".join(bibtex(e, book) for e in book.entries.values()), "bibtex")
    assert len(parsed.entries) == len(book.entries)
    released = re.search(r"date-released:\s*(\d{4})", (ROOT / "CITATION.cff").read_text())
    for entry in book.entries.values():
        found = parsed.entries[f"kvledger-{entry.id}"].fields
        assert found["note"].replace("\\", "").startswith(f"kvledger {__version__}, {entry.what} ")
        assert entry.digest[:8] in found["note"]
        assert (found["version"], found["year"]) == (book.version, released[1])
        assert found["url"] == permalink(entry)


# --- releases -------------------------------------------------------------------------
@pytest.mark.parametrize("name", release_names())
def test_a_release_on_file_is_listed_and_can_be_compared(name: str) -> None:
    assert [e for e in load_manifest() if e["path"] == f"releases/{name}.json"]
    assert read_release(name).catalogue.version == name


def test_a_present_version_is_later_than_every_release() -> None:
    """A release is on file when it is over: what is built now is the next one, or the last."""
    order = [*release_names(), edition(".", ROOT).catalogue.version]
    assert order == sorted(order, key=lambda name: [int(part) for part in name.split(".")])
