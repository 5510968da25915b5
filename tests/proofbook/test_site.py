"""The book as a site: lists of what can be cited, archive, cards, links; complete, and no more."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

import pytest
from browser.driver import served
from conftest import BASE, ROOT, Book
from PIL import Image

from proofbook.catalogue import Catalogue, entry_json, read_catalogue, write_catalogue
from proofbook.catalogue.notebook_entries import stored_catalogue
from proofbook.errors import InputError
from proofbook.pages.listings import OFFERED, archive, listed_files
from proofbook.pages.site import external_links, links_of


@pytest.fixture(scope="module")
def catalogue(nowhere: Book) -> Catalogue:
    return read_catalogue(nowhere.html)


def pages(book: Book) -> dict[str, str]:
    """Every page by its address below the root; pieces of templates are none."""
    found = sorted(p for p in book.html.rglob("*.html") if "_static" not in p.parts)
    return {p.relative_to(book.html).as_posix(): p.read_text(encoding="utf-8") for p in found}


def chapters(book: Book) -> dict[str, str]:
    return {name: page for name, page in pages(book).items() if name.startswith("chapters/")}


def meta(page: str) -> dict[str, str]:
    """What a page's head says of it, by name or property."""
    tags = re.findall(r'<meta (?:property|name)="([^"]+)" content="([^"]*)"', page)
    return {name: unescape(value) for name, value in tags}


# ---------------------------------------------------------------- lists
def test_every_figure_and_table_is_listed_with_its_files(
    nowhere: Book, catalogue: Catalogue
) -> None:
    page = nowhere.page("figures")
    shown = [e for e in catalogue.entries.values() if e.what != "number"]
    assert {e.what for e in shown} == {"figure", "table"}
    assert re.findall(r'id="row-((?:fig|tab)-[\w-]+)"', page) == [
        e.id for what in ("figure", "table") for e in shown if e.what == what
    ]
    for entry in shown:
        (row,) = re.findall(rf'<li[^>]* id="row-{entry.id}">.*?</li>', page, re.DOTALL)
        target = f"{entry.page.removeprefix('chapters/')}.html"
        assert f'href="{target}#{entry.id}"' in row
        assert nowhere.page(target.removesuffix(".html")).count(f'id="{entry.id}"') == 1
        assert entry.text in unescape(row)
        words = unescape(re.sub(r"<[^>]+>", "", row))
        assert (entry.caption or "").removeprefix(f"{entry.text}.").strip() in words
        for end in OFFERED[entry.what]:
            assert f'href="../{entry.what}s/{entry.id}.{end}"' in row
            assert (nowhere.html / f"{entry.what}s" / f"{entry.id}.{end}").is_file()


def test_figures_are_listed_by_section_with_number_and_both_drawings(nowhere: Book) -> None:
    (number,) = re.findall(
        r'caption-number">(Fig\. [\d.]+)', nowhere.page("slots").split('id="fig-fixture"')[1]
    )
    assert f">{number}: Larger pages hold more slots</a>" in nowhere.page("figures")
    page = nowhere.page("figures")
    assert re.findall(r'<section id="((?:figure|table)s-[\w-]+)"', page) == [
        "figures-slots",
        "tables-slots",
    ]
    assert 'href="#figures-slots"' in page  # in the page's own contents
    assert '<a href="slots.html">1. Slots</a>' in page
    for mode, end in (("light", "svg"), ("dark", "dark.svg")):
        (tag,) = re.findall(rf'<img class="only-{mode}"[^>]*>', page)
        assert f'src="../figures/fig-fixture.{end}"' in tag
        assert 'loading="lazy"' in tag
        assert re.search(r'alt="A line rises[^"]*\."', tag)


def test_the_archive_holds_what_the_page_offers_and_names_what_is_not_there(
    nowhere: Book, catalogue: Catalogue
) -> None:
    page = nowhere.page("figures")
    offered = re.findall(r'href="\.\./((?:figures|tables)/[^"]+)"', page)
    content = (nowhere.html / "figures.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert packed.testzip() is None
        names = packed.namelist()
        assert names == sorted({*offered, "numbers.json", "figures.json", "tables.json"})
        for name in names:
            assert packed.read(name) == (nowhere.html / name).read_bytes(), name
    assert re.findall(r"figures\.zip</a> \((\d+\.\d) MB\)", page) == [f"{len(content) / 1e6:.1f}"]
    assert "1 figure and 1 table," in page
    figures, tables = nowhere.html / "figures", nowhere.html / "tables"
    assert len(listed_files(catalogue, figures, tables)) == sum(map(len, OFFERED.values()))
    with pytest.raises(InputError, match=r"tab-fixture, shown on chapters/slots: no tab-fixture"):
        listed_files(catalogue, figures, figures)


def test_every_number_is_listed_in_tables_that_can_be_read_aloud(
    nowhere: Book, catalogue: Catalogue
) -> None:
    page = nowhere.page("numbers")
    numbers = [e for e in catalogue.entries.values() if e.what == "number"]
    assert len(numbers) == 4
    assert re.findall(r'<tr id="row-([\w.]+)">', page) == [e.id for e in numbers]
    for entry in numbers:
        (row,) = re.findall(rf'<tr id="row-{re.escape(entry.id)}">(.*?)</tr>', page, re.DOTALL)
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        name = entry.page.removeprefix("chapters/")
        assert f'href="{name}.html#n-{entry.id}"' in cells[0]
        assert f'id="n-{entry.id}"' in nowhere.page(name)
        words = [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells]
        exact = "as shown" if entry.value == entry.text else entry.value
        assert words[:4] == [entry.id, entry.text, exact, entry.unit]
        assert words[4].startswith(entry.kind)
        assert (entry.source or "") in words[4]
        assert words[5] == entry.digest[:8]
    tables = re.findall(r'<div class="kv-table kv-numbers".*?</table>', page, re.DOTALL)
    assert len(tables) == 2  # one for each page that shows a number
    for table in tables:
        assert 'role="region" tabindex="0" aria-label="Numbers of ' in table
        assert table.count("<caption>") == 1
        assert table.count('<th scope="col">') == 6
        assert table.count('<th scope="row">') == table.count("<tr ")
    (href,) = re.findall(r'cited: <a href="([^"]+)">Smith 2020</a>', nowhere.page("numbers"))
    page, anchor = href.split("#")
    assert f'id="{anchor}"' in (nowhere.html / "chapters" / page).read_text(encoding="utf-8")
    assert "measured: <code>data/run.json</code>" in nowhere.page("numbers")


def test_the_example_quotes_a_number_and_the_fields_are_those_of_the_files(tmp_path: Path) -> None:
    text = (ROOT / "chapters" / "numbers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    write_catalogue(stored_catalogue(ROOT), tmp_path)
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    slots = sum(-(-tokens // 4) * 4 for tokens in (5, 9, 17))  # of whole pages
    digest = hashlib.sha256(f"paged.p4.allocated_slots\0{slots}\0slots".encode()).hexdigest()
    assert said == f"{slots} slots as of {digest[:8]}\n"
    rows = text.split("| field | is |")[1].split("\n\n")[0].splitlines()
    named = " ".join(row.split("|")[1] for row in rows if row.startswith("|"))
    (entry, *_) = stored_catalogue(ROOT).entries.values()
    assert set(re.findall(r"`(\w+)`", named)) == set(entry_json(entry))


# ---------------------------------------------------------------- archive
def test_an_archive_depends_on_contents_and_date_alone(tmp_path: Path) -> None:
    made = {}
    for name, mode in (("here", 0o600), ("there", 0o755)):
        folder = tmp_path / name
        folder.mkdir()
        for at, file in enumerate(("b.csv", "a.png", "c.json")):
            (folder / file).write_text(f"{file}\n" * 50, encoding="utf-8")
            os.utime(folder / file, (at + mode, at + mode))
            (folder / file).chmod(mode)
        files = {p.name: p for p in folder.iterdir()}
        made[name] = archive(files, dt.datetime(2026, 11, 29, 12, 30, 2, tzinfo=dt.UTC))
    assert made["here"] == made["there"]
    with zipfile.ZipFile(io.BytesIO(made["here"])) as packed:
        assert packed.namelist() == ["a.png", "b.csv", "c.json"]
        for member in packed.infolist():
            assert member.date_time == (2026, 11, 29, 12, 30, 2)
            assert member.external_attr >> 16 == 0o100644
    (tmp_path / "here" / "b.csv").write_text("other\n", encoding="utf-8")
    files = {p.name: p for p in (tmp_path / "here").iterdir()}
    assert archive(files, dt.datetime(2026, 11, 29, 12, 30, 2)) != made["there"]


# ---------------------------------------------------------------- addresses
def test_every_chapter_has_a_card_and_without_an_address_none_is_made_up(nowhere: Book) -> None:
    assert not (nowhere.html / "sitemap.xml").exists()
    for name, page in pages(nowhere).items():
        about = meta(page)
        assert "og:url" not in about, name
        assert "og:image" not in about, name
        assert 'rel="canonical"' not in page or name == "index.html", name
        assert "https://" not in re.sub(r"<!--.*?-->", "", page.split("</head>")[0]), name
    for name, page in chapters(nowhere).items():
        about = meta(page)
        assert about["og:title"], name
        assert about["og:site_name"] == "Fixture"
        assert about["og:type"] == ("website" if name.endswith("start.html") else "article")
        assert page.count('property="og:description"') <= 1
        assert page.count('name="description"') <= 1
    about = meta(nowhere.page("start"))
    assert about["og:description"].startswith("The answer is 4, a source says 5")
    assert about["og:description"] == about["description"]


def test_with_an_address_all_are_whole_and_the_map_lists_every_chapter(public: Book) -> None:
    for name, page in chapters(public).items():
        about = meta(page)
        assert about["og:url"] == f"{BASE}{name}"
        assert f'<link rel="canonical" href="{BASE}{name}"' in page
        picture = about["og:image"].removeprefix(BASE)
        assert picture == "figures/fig-fixture.png"
        with Image.open(public.html / picture) as image:
            size = [int(about[f"og:image:{side}"]) for side in ("width", "height")]
            assert size == list(image.size)
        assert about["og:image:alt"].startswith("A line rises")
        assert not (public.html / "_images").exists()
    root = ElementTree.parse(public.html / "sitemap.xml").getroot()
    space = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
    assert root.tag == f"{space}urlset"
    found = [element.text for element in root.iter(f"{space}loc")]
    assert sorted(found, key=str) == sorted(f"{BASE}{name}" for name in chapters(public))
    assert not list(root.iter(f"{space}lastmod"))  # no date of a build


def test_every_page_has_an_icon(nowhere: Book) -> None:
    for name, page in pages(nowhere).items():
        if name == "index.html":
            continue
        (href,) = re.findall(r'<link rel="icon" href="([^"]+)"', page)
        path = urlsplit(urljoin(f"http://host/{name}", href)).path
        assert (nowhere.html / path.lstrip("/")).is_file(), name


def test_a_bad_address_is_refused(nowhere: Book, tmp_path: Path) -> None:
    book = nowhere.copy(tmp_path / "bad")
    book.edit("_config.yml", 'baseurl: ""', 'baseurl: "book.example"')
    result = book.build()
    assert result.returncode == 1
    assert "html.baseurl: 'book.example'; accepted: an http or https address" in result.stderr


def test_launch_buttons_wait_for_a_repository(nowhere: Book, public: Book) -> None:
    for name, page in pages(nowhere).items():
        assert "mybinder" not in page, name
        assert "colab" not in page, name
    for name in ("start", "slots"):
        page = public.page(name)
        assert (
            f"https://mybinder.org/v2/gh/example/kv/main?urlpath=lab/tree/chapters/{name}" in page
        )
        assert "https://colab.research.google.com/github/example/kv/blob/main/chapters/" in page
        loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]+)"', page)
        assert {urlsplit(url).netloc for url in loaded} <= {urlsplit(BASE).netloc}  # canonical
    assert "mybinder" not in public.page("notes")  # no notebook


# ---------------------------------------------------------------- links
def test_links_that_leave_are_listed(public: Book) -> None:
    listing = json.loads((public.html / "links.json").read_text(encoding="utf-8"))
    assert listing["project"] == "smallbook"
    found = {link["url"]: link["pages"] for link in listing["links"]}
    assert list(found) == sorted(found)
    for url, names in found.items():
        for name, page in pages(public).items():
            # Looked for by another reader than ours.
            assert (name in names) == (f'<a href="{url}"' in _anchors(page)), (url, name)


def _anchors(page: str) -> str:
    """The anchors of a page, each reduced to where it leads."""
    tags = re.findall(r"<a\s[^>]*>", page)
    targets = [re.search(r'href="([^"]*)"', tag) for tag in tags]
    return " ".join(f'<a href="{unescape(t[1])}"' for t in targets if t)


def test_links_are_read_from_markup_alone_and_none_is_lost(tmp_path: Path) -> None:
    page = '<a class="x" href="https://a.example/?a=1&amp;b=2">A</a> <code>https://b.example</code>'
    assert links_of(page) == ["https://a.example/?a=1&b=2"]
    assert links_of('<a href="//c.example">C</a><link href="https://d.example">') == []
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.html").write_text('<a href="https://x.example/">', encoding="utf-8")
    (tmp_path / "deep" / "a.html").write_text('<a href="https://x.example/">', encoding="utf-8")
    assert external_links(tmp_path) == {"https://x.example/": ["b.html", "deep/a.html"]}


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[str]:
    """A server with one page that opens; all others are not there."""
    (tmp_path / "doors").mkdir()
    (tmp_path / "doors" / "open").touch()
    with served(tmp_path / "doors") as origin:
        yield origin


@pytest.mark.slow
def test_a_broken_link_is_found_and_named(nowhere: Book, doors: str, tmp_path: Path) -> None:
    book = nowhere.copy(tmp_path / "book")
    before = book.tree()
    book.edit(
        "chapters/notes.md", "# Notes", f"# Notes\n\n[Good]({doors}/open), [bad]({doors}/shut)."
    )
    result = book.build("linkcheck")
    assert result.returncode == 1, result.stdout
    assert "broken links: 1" in result.stderr
    assert f"{doors}/shut" in result.stderr
    assert "chapters/notes.md" in result.stderr
    assert f"{doors}/open" not in result.stderr
    assert book.tree() == before  # a check makes no pages
    book.edit("chapters/notes.md", f", [bad]({doors}/shut)", "")
    assert "none is broken" in book.done("linkcheck")


def test_data_of_the_lists_are_those_of_the_page(nowhere: Book, catalogue: Catalogue) -> None:
    entry = catalogue.entries["tab-fixture"]
    content = (nowhere.html / "tables" / "tab-fixture.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry.digest
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert rows[0] == ["page size", "allocated slots"]
    assert [int(slots) for _, slots in rows[1:]] == [
        sum(-(-tokens // int(page)) * int(page) for tokens in (5, 9, 17)) for page, _ in rows[1:]
    ]
