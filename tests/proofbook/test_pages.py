"""What the pages say of their numbers, figures, tables and terms, with and without scripts."""

from __future__ import annotations

import json
import re
from collections import Counter
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urldefrag

import pytest
from conftest import Book
from docutils import nodes
from hypothesis import given
from hypothesis import strategies as st
from pybtex.database import parse_string

from proofbook.catalogue import FILES, Catalogue, Entry, read_catalogue
from proofbook.catalogue import citations as citing
from proofbook.pages import addresses, number_roles

PAGES = ("start", "slots", "numbers", "words", "api")


def cards_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="kv-cards">(.*?)</script>', page)
    found: dict[str, Any] = json.loads(text)
    return found


def link_of(page: str, id: str) -> list[dict[str, str]]:
    """Return the attributes of every link that a number is."""
    tags = re.findall(rf'<a ([^>]*data-number="{re.escape(id)}"[^>]*)>', page)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', tag)) for tag in tags]


def exists(pages_book: Book, href: str) -> bool:
    """Tell whether a link, as written on a page of ``chapters/``, leads somewhere."""
    url, fragment = urldefrag(href)
    file = pages_book.html / "chapters" / url
    return file.is_file() and (
        not fragment or f'id="{fragment}"' in file.read_text(encoding="utf-8")
    )


def resolved(page: str, href: str) -> str:
    return f"{page}.html{href}" if href.startswith("#") else href


# ---------------------------------------------------------------- numbers
def test_every_entry_has_its_anchor_once_and_a_number_leads_to_its_row(
    pages_book: Book, pages_catalogue: Catalogue
) -> None:
    (found, again) = link_of(pages_book.page("start"), "fixture.answer")
    assert found["class"] == "kv-number kv-computed"
    assert found["id"] == "n-fixture.answer"
    assert found["href"] == "numbers.html#row-fixture.answer"
    assert found["title"] == "fixture.answer: computed"
    assert "id" not in again  # an anchor is one place
    assert again["href"] == found["href"]
    counts = {page: Counter(re.findall(r'\bid="([^"]+)"', pages_book.page(page))) for page in PAGES}
    assert {entry.what for entry in pages_catalogue.entries.values()} == {
        "number",
        "figure",
        "table",
    }
    for entry in pages_catalogue.entries.values():
        for page, count in counts.items():
            assert count[entry.anchor] == (entry.page == f"chapters/{page}"), (entry.id, page)
        assert counts[entry.page.removeprefix("chapters/")][f"cell-{entry.cell}"] == 1
    assert all(n == 1 for count in counts.values() for n in count.values())
    cell = pages_book.page("start").split('id="cell-unseen"')[1].split('class="cell_input')[0]
    assert 'id="n-fixture.unseen"' in cell


def test_cards_say_what_the_lists_say(pages_book: Book, pages_catalogue: Catalogue) -> None:
    said = cards_of(pages_book.page("start"))["numbers"]
    ids = {f"fixture.{name}" for name in ("answer", "cited", "measured", "share", "allocated")}
    assert set(said) == ids
    for id, card in said.items():
        entry = pages_catalogue.entries[id]
        assert entry.value is not None
        assert card["value"] == f"{entry.value} {entry.unit}".strip()
        assert card["kind"].startswith(entry.kind)
        assert card["cell"] == entry.cell
        # The same words as `kvledger cite` prints.
        assert card["text"] == citing.plain(entry, pages_catalogue, "")
        assert card["BibTeX"] == citing.bibtex(entry, pages_catalogue, "")
        assert exists(pages_book, resolved("start", card["page"][1])), card["page"]
        assert exists(pages_book, card["row"])
    assert said["fixture.allocated"]["page"] == ["Slots", "slots.html#cell-number"]
    assert said["fixture.share"]["value"] == "44.4444444444 %"
    assert "source" not in said["fixture.answer"]


def test_a_cited_number_leads_to_its_reference_and_a_measured_one_to_no_page(
    pages_book: Book,
) -> None:
    said = cards_of(pages_book.page("start"))["numbers"]
    words, href = said["fixture.cited"]["source"]
    assert words == "Smith 2020, section 2"
    assert exists(pages_book, href)
    anchor = href.partition("#")[2]
    assert "A work that does not exist" in pages_book.page("words").split(f'id="{anchor}"')[1][:600]
    assert said["fixture.measured"]["source"] == ["data/run.json", None]


def test_pages_without_anything_to_show_load_no_script(pages_book: Book) -> None:
    for page in PAGES:
        wanted = page in {"start", "slots", "words"}
        assert ("page.js" in pages_book.page(page)) == wanted, page
    for name in (*number_roles.SCRIPTS, "vendor/floating-ui.LICENSE.txt"):
        assert (pages_book.html / "_static" / name).is_file()


# ---------------------------------------------------------------- figures and tables
@pytest.mark.parametrize("id", ["fig-fixture", "tab-fixture"])
def test_the_line_cites_fetches_and_traces(
    pages_book: Book, pages_catalogue: Catalogue, id: str
) -> None:
    entry = pages_catalogue.entries[id]
    page = pages_book.page("slots")
    line = page.split(f'aria-label="Cite, fetch or trace {id}"')[1].split("</div>")[0]
    folder = "figures" if entry.what == "figure" else "tables"
    drawn = ("svg", "png") if entry.what == "figure" else ()
    ends = (*drawn, "csv", "bib", "json")
    assert re.findall(r'href="([^"]+)" download', line) == [
        f"../{folder}/{id}.{end}" for end in ends
    ]
    for end in ends:
        assert (pages_book.html / folder / f"{id}.{end}").stat().st_size > 0
    texts = dict(re.findall(r'class="kv-citation" data-copy="(\w+)">([^<]*)<', line))
    assert unescape(texts["text"]) == citing.plain(entry, pages_catalogue, "")
    bibtex = unescape(texts["BibTeX"])
    assert bibtex == (pages_book.html / folder / f"{id}.bib").read_text(encoding="utf-8")
    assert list(parse_string(bibtex, "bibtex").entries) == [f"smallbook-{id}"]
    assert f'<a href="#cell-{entry.cell}"><code>{entry.cell}</code></a>' in line
    assert entry.digest in line
    assert "Computed by this book's code." in unescape(line)


def test_the_caption_is_words_alone(pages_book: Book) -> None:
    figure = pages_book.page("slots").split('id="fig-fixture"')[1].split("</figure>")[0]
    caption, rest = figure.split("</figcaption>")
    assert "kv-line" not in caption
    assert rest.strip().startswith('<div class="kv-line"')


def test_the_lists_at_the_root_are_those_of_the_run(
    pages_book: Book, pages_catalogue: Catalogue
) -> None:
    (cache,) = (pages_book.root / "_build" / "cache").iterdir()
    assert read_catalogue(cache) == pages_catalogue
    for name in FILES:
        assert (pages_book.html / name).read_bytes() == (cache / name).read_bytes()


def _builder(root: Path, objects: dict[str, Any], **options: str) -> Any:
    return SimpleNamespace(
        name="html",
        confdir=str(root),
        current_docname="chapters/slots",
        get_relative_uri=lambda here, there: f"{there.removeprefix('chapters/')}.html",
        config=SimpleNamespace(html_theme_options=options),
        env=SimpleNamespace(
            config=SimpleNamespace(root_doc="chapters/start"),
            domaindata={"py": {"objects": objects}},
            found_docs={"chapters/start", "chapters/slots"},
            domains={},
        ),
    )


# ---------------------------------------------------------------- links
def _number(id: str = "a.b", page: str = "chapters/start") -> Entry:
    return Entry(id, "number", "computed", None, page, "c", "4", "4", "slots", "0" * 64, None, None)


def test_without_a_list_of_numbers_a_number_leads_to_where_it_is_shown(tmp_path: Path) -> None:
    builder = _builder(tmp_path, {})
    assert addresses.to_number(builder, _number()) == "start.html#n-a.b"
    assert addresses.to_number(builder, _number(page="chapters/slots")) == "#n-a.b"
    builder.env.found_docs.add("chapters/numbers")
    assert addresses.to_number(builder, _number()) == "numbers.html#row-a.b"


BIBLIOGRAPHY = parse_string(
    "".join(
        f"@misc{{{key}, author={{{author}}}, year={{{year}}}, title={{T}}}}\n"
        for key, author, year in (
            ("kwon", "Kwon, Woosuk and Li, Zhuohan", 2023),
            ("ye", "Ye, Zihao", 2024),
            ("twice1", "Agrawal, Amey", 2024),
            ("twice2", "Agrawal, Amey", 2024),
            ("nobody", "{NVIDIA}", 2025),
        )
    ),
    "bibtex",
).entries


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("Kwon et al. 2023", "kwon"),
        ("Kwon et al. 2023, section 3.3", "kwon"),
        ("Ye 2024", "ye"),
        ("Kwon et al. 2022", None),  # another year
        ("Li et al. 2023", None),  # not the first author
        ("Agrawal et al. 2024", None),  # which of two?
        ("vLLM source, int32 block table", None),
        ("2026-11-29-amd-epyc-2-cores.json", None),
        ("Kwon, on a page of 2023", None),
        ("", None),
    ],
)
def test_a_source_is_a_work_only_if_it_names_one(source: str, key: str | None) -> None:
    assert addresses.work_cited(source, BIBLIOGRAPHY) == key


# ---------------------------------------------------------------- cards and terms
def test_terms_mean_on_a_page_what_the_glossary_says(pages_book: Book) -> None:
    said = cards_of(pages_book.page("start"))["terms"]
    assert set(said) == {"term-page", "term-page-size"}
    term, meaning = said["term-page"]
    assert term == "page"
    assert "<math" in meaning
    assert "<em>used</em> &amp; <code>held</code>" in meaning
    assert said["term-page-size"] == ["page size", "<p>The slots of a page, in all 40.</p>"]
    for anchor in said:
        assert exists(pages_book, f"words.html#{anchor}")
    # On the glossary's own page too.
    assert set(cards_of(pages_book.page("words"))["terms"]) == {"term-page"}


@given(st.text())
def test_embedded_json_is_read_back_and_ends_no_element(text: str) -> None:
    cards_given = {"numbers": {text: {"text": text}}, "terms": {}}
    element = number_roles.embedded(cards_given)
    assert element.count("<") == 2
    assert json.loads(element[element.index(">") + 1 : element.rindex("<")]) == cards_given


# NUL is docutils' own mark of an escape.
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_words_of_a_definition_are_words(text: str) -> None:
    html = number_roles.inline_html(nodes.emphasis("", "", nodes.Text(text)))
    words = html.removeprefix("<em>").removesuffix("</em>")
    assert "<" not in words
    assert unescape(words) == text
