"""The printed book: tagged, navigable, complete, the same each time, and with nothing cut off."""

from __future__ import annotations

import datetime as dt
import functools
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pikepdf
import pypdfium2
import pytest
import yaml
from bs4 import BeautifulSoup, Tag
from conftest import ROOT, Book, refused_input
from playwright.sync_api import sync_playwright

from proofbook.build import printing
from proofbook.build.one_page import LEFT_OUT, BoundChapter, Cover, assemble, book_plan
from proofbook.build.printing import destinations, elements, page_numbers, print_settled
from proofbook.catalogue.check_records import DIGESTS_FILE, Check, write_checks
from proofbook.errors import InputError
from proofbook.pages.addresses import cache_folder
from proofbook.pages.number_roles import KINDS
from proofbook.project import source_digest, this_project

COVER = Cover("Book", "A. Author", "en", "1.2", "ab" * 32, "CC BY 4.0", "Never.", "2026")
#: The small book, printed.
PDF = "smallbook.pdf"
WEB = {"http", "https", "mailto"}


@pytest.fixture(scope="session")
def chromium() -> str:
    path, reason = printing.printer()
    return path or pytest.fail(reason)


def squeezed(text: str) -> str:
    """Return a text without white space and soft hyphens: a PDF keeps neither as it was."""
    return re.sub(r"[\s\u00ad\ufffe\u0002]+", "", text)


# ---------------------------------------------------------------- a printed book, read back
class Printed(NamedTuple):
    """A PDF with the pages that it was printed from."""

    root: Path
    site: Path

    @property
    def file(self) -> Path:
        return self.site / f"{this_project(self.root).name}.pdf"

    def chapters(self) -> list[BoundChapter]:
        return book_plan(yaml.safe_load((self.root / "_toc.yml").read_text(encoding="utf-8")))

    def articles(self) -> list[Tag]:
        """The articles of the pages that are printed whole."""
        return [self.article(c.name) for c in self.chapters() if c.name not in LEFT_OUT]

    def article(self, name: str) -> Tag:
        text = (self.site / f"{name}.html").read_text(encoding="utf-8")
        article = BeautifulSoup(text, "html.parser").find("article")
        assert isinstance(article, Tag)
        for link in article.select(".headerlink"):
            link.decompose()
        return article


@functools.cache
def leaves(file: Path) -> list[str]:
    """Return the text of each page, without the running header and the page number."""
    document = pypdfium2.PdfDocument(file)
    texts = []
    for index in range(len(document)):
        lines = document[index].get_textpage().get_text_range().replace("\r\n", "\n").split("\n")
        if index and str(index + 1) in lines[:3]:
            lines = lines[lines.index(str(index + 1)) + 1 :]
        texts.append("\n".join(lines))
    return texts


@pytest.fixture(params=["small", pytest.param("book", marks=pytest.mark.slow)])
def printed(request: pytest.FixtureRequest) -> Printed:
    """The small book, and the real one."""
    if request.param == "small":
        small: Book = request.getfixturevalue("small")
        return Printed(small.root, small.html)
    return Printed(ROOT, request.getfixturevalue("built_book"))


@pytest.fixture
def document(printed: Printed) -> Iterator[pikepdf.Pdf]:
    with pikepdf.open(printed.file) as opened:
        yield opened


def outline(document: pikepdf.Pdf) -> list[tuple[int, str, int]]:
    """Return the outline: depth from 1, title, and page from 1."""
    places = {page.obj.objgen: index for index, page in enumerate(document.pages, start=1)}
    named = destinations(document)
    found = []

    def walk(items: Any, depth: int) -> None:
        for item in items:
            at = item.destination
            if at is None:
                at = item.action.D
            if not isinstance(at, pikepdf.Array):
                at = named[str(at).removeprefix("/")]
            found.append((depth, " ".join(item.title.split()), places[at[0].objgen]))
            walk(item.children, depth + 1)

    with document.open_outline() as opened:
        walk(opened.root, 1)
    return found


def links(document: pikepdf.Pdf) -> Iterator[Any]:
    for page in document.pages:
        for annotation in page.get("/Annots", []):
            if annotation.get("/Subtype") == "/Link":
                yield annotation


# ---------------------------------------------------------------- tags
def alts(document: pikepdf.Pdf, role: str) -> list[str]:
    """Return the words of every element of a role."""
    tags = elements(document.Root.StructTreeRoot)
    return [str(tag.get("/Alt", "")) for tag in tags if tag.get("/S") == role]


def test_tags_hold_title_language_author_alt_texts_and_formulas(
    printed: Printed, document: pikepdf.Pdf
) -> None:
    config = yaml.safe_load((printed.root / "_config.yml").read_text(encoding="utf-8"))
    root = document.Root
    assert root.MarkInfo.Marked is True or str(root.MarkInfo.Marked) == "true"
    assert str(root.Lang) == "en"
    assert root.ViewerPreferences.DisplayDocTitle
    assert str(document.docinfo["/Title"]).startswith(str(config["title"]))
    assert str(document.docinfo.get("/Author", "")) == config.get("author", "")
    roles = {str(element.get("/S")) for element in elements(root.StructTreeRoot)}
    assert {"/Document", "/H1", "/H2", "/P", "/Table", "/TH", "/TD", "/Figure", "/Link"} <= roles
    words = {squeezed(alt) for alt in alts(document, "/Figure")}
    assert "" not in words
    images = (a.select("figure img.only-light") for a in printed.articles())
    shown = [str(image["alt"]) for found in images for image in found]
    assert shown
    assert [alt for alt in shown if squeezed(alt) not in words] == []
    formulas = alts(document, "/Formula")
    written = sum(len(article.find_all("math")) for article in printed.articles())
    assert written
    assert len(formulas) == written
    assert all(re.search(r"\w", words) for words in formulas)
    assert not [words for words in formulas if "<" in words or "\\" in words]


# ---------------------------------------------------------------- finding one's way
def expected_outline(printed: Printed) -> list[tuple[int, str]]:
    """Return parts, chapters and headings as the table of contents and the pages have them."""
    found: list[tuple[int, str]] = []
    part = None
    for chapter in printed.chapters():
        if chapter.part is not None and chapter.part != part:
            found.append((1, chapter.part))
        part = chapter.part
        headings = printed.article(chapter.name).find_all(re.compile("^h[1-6]$"))
        for heading in headings[:1] if chapter.name in LEFT_OUT else headings:
            level = int(heading.name[1]) + chapter.level - 1
            found.append((level, " ".join(heading.get_text().split())))
    return found


def test_outline_and_contents_give_each_heading_and_its_page(
    printed: Printed, document: pikepdf.Pdf
) -> None:
    assert [(depth, title) for depth, title, _ in outline(document)] == expected_outline(printed)
    pages = leaves(printed.file)
    contents = squeezed("".join(pages[1 : min(at for _, _, at in outline(document)) - 1]))
    for depth, title, at in outline(document):
        assert squeezed(title) in squeezed(pages[at - 1]), title
        if depth <= 3:
            assert squeezed(f"{title}{at}") in contents, title


def test_every_link_leads_to_its_target_and_to_a_figure_s_caption(
    printed: Printed, document: pikepdf.Pdf
) -> None:
    named = destinations(document)
    held = {page.obj.objgen for page in document.pages}
    inner = 0
    for link in links(document):
        if "/Dest" in link:
            target = link.Dest
            place = target if isinstance(target, pikepdf.Array) else named[str(target)[1:]]
            assert place[0].objgen in held
            inner += 1
        else:
            assert link.A.S == "/URI"
            assert str(link.A.URI).split(":")[0] in WEB
    assert inner > len(printed.chapters())
    for chapter in printed.chapters():
        assert chapter.name.rpartition("/")[2] in named
    numbers = printing.page_numbers(printed.file.read_bytes())
    seen = 0
    for article in printed.articles():
        for figure in article.select("figure.kv-figure"):
            caption = figure.select_one(".caption-number")
            assert caption is not None
            page = squeezed(leaves(printed.file)[numbers[str(figure["id"])] - 1])
            assert squeezed(caption.get_text()) in page, figure["id"]
            seen += 1
    assert seen


# ---------------------------------------------------------------- all that the pages say
def test_headings_captions_and_paragraphs_with_their_numbers_are_all_there(
    printed: Printed,
) -> None:
    """Section, figure and equation numbers included: they are the ones of the pages."""
    whole = squeezed("".join(leaves(printed.file)))
    missing, numbers = [], 0
    for article in printed.articles():
        shown = [tag.get_text() for tag in article.select(".kv-number, td.kv-num, th.kv-num")]
        missing += [text for text in shown if squeezed(text) not in whole]
        for extra in article.select(".kv-legend, .kv-line, .kv-checked, .kv-pdf, details, form"):
            extra.decompose()
        for part in article.select("p, caption, h1, h2, h3, figcaption p, .eqno"):
            # Paper sets a formula in two dimensions: its letters come in another order.
            if part.find("math") is not None or part.select_one("a[href^=http]") is not None:
                continue
            numbers += len(part.select(".kv-number"))
            text = squeezed(part.get_text())
            if text not in whole:
                missing.append(part.get_text()[:90])
    assert missing == []
    assert numbers


def test_cover_says_what_it_is_and_what_is_left_out_says_so(printed: Printed) -> None:
    cover = squeezed(leaves(printed.file)[0])
    for words in ("source digest", "How to cite", "Checked", KINDS["cited"][1]):
        assert squeezed(words) in cover
    whole = squeezed("".join(leaves(printed.file)))
    for chapter in printed.chapters():
        if chapter.name in LEFT_OUT:
            assert squeezed(LEFT_OUT[chapter.name]) in whole
            assert squeezed(f"open {chapter.name}.html of the book") in whole


# ---------------------------------------------------------------- what must not be there
def test_no_path_of_this_machine_and_no_file_address(printed: Printed) -> None:
    with pikepdf.open(printed.file) as document:
        plain = io.BytesIO()
        document.save(
            plain,
            object_stream_mode=pikepdf.ObjectStreamMode.disable,
            stream_decode_level=pikepdf.StreamDecodeLevel.generalized,
        )
    content = plain.getvalue()
    text = "".join(leaves(printed.file)).encode()
    here = {str(printed.root).encode(), str(Path.home()).encode()} - {b"/"}
    for trace in (b"file://", b"book.invalid", *here):
        assert trace not in content
        assert trace not in text


def test_every_leaf_is_a4_none_is_empty_and_drawings_are_vectors(
    printed: Printed, document: pikepdf.Pdf
) -> None:
    for page, text in zip(document.pages, leaves(printed.file), strict=True):
        sides = sorted(float(side) for side in page.mediabox[2:])
        assert sides == pytest.approx([595.3, 841.9], abs=1)
        assert len(text.strip()) > 20
    assert [name for page in document.pages for name in page.get_images()] == []


# ---------------------------------------------------------------- the small book, made and broken
def test_offered_on_the_first_page_with_its_size(small: Book) -> None:
    with pikepdf.open(small.html / PDF) as document:
        pages = len(document.pages)
    size = (small.html / PDF).stat().st_size / 2**20
    line = f'<a href="../{PDF}">This book as a PDF</a> ({pages} pages, {size:.1f} MiB)'
    assert small.page("start").count(line) == 1
    assert "kv-pdf" not in small.page("slots")


def test_two_prints_of_the_same_pages_are_the_same_bytes(
    small: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.root)
    made_in = []
    for place, zone, locale in (("a", "UTC", "C"), ("other/b", "Asia/Kathmandu", "de_DE.UTF-8")):
        site = tmp_path / place / "html"
        shutil.copytree(small.html, site)
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("LANG", locale)
        printing.make_pdf(small.root, site, tmp_path / "none")
        made_in.append(site / PDF)
    assert leaves(made_in[0]) == leaves(made_in[1])
    assert made_in[0].read_bytes() == made_in[1].read_bytes()


def test_page_numbers_that_still_hold_spare_a_print(tmp_path: Path, chromium: str) -> None:
    asked: list[Mapping[str, int]] = []

    def document(numbers: Mapping[str, int]) -> str:
        asked.append(numbers)
        here = f'<p><a href="#end">The end</a> is on {numbers.get("end", "")}.</p>'
        return page_with(f'{here}<p style="break-before: page" id="end">The end.</p>')

    right = page_numbers(print_settled(document, tmp_path, chromium, {}))
    assert right["end"] == 2
    assert asked == [{}, right]
    for begun, prints in ((right, 1), ({"end": 7}, 2)):
        asked.clear()
        assert page_numbers(print_settled(document, tmp_path, chromium, begun)) == right
        assert len(asked) == prints
        assert asked[-1] == right


def test_dates_are_those_of_the_sources(
    small: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.root)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "951782400")
    site = tmp_path / "html"
    shutil.copytree(small.html, site)
    printing.make_pdf(small.root, site, site)
    with pikepdf.open(site / PDF) as document:
        assert str(document.docinfo["/CreationDate"]) == "D:20000229000000+00'00"
        assert str(document.docinfo["/ModDate"]) == "D:20000229000000+00'00"
    # The year of the citation is the release's, whatever the date of the build.
    assert "(2026)." in leaves(site / PDF)[0]
    with pikepdf.open(small.html / PDF) as document:
        assert document.docinfo["/CreationDate"] == "D:19800101000000+00'00"


def test_cells_are_named_by_their_order_and_not_by_the_browsers_count(
    tmp_path: Path, chromium: str
) -> None:
    table = (
        '<table><tr><th scope="col">size<th scope="col">pages<tr><th scope="row">16<td>3'
        '<tr><th scope="row">32<td>2</table>'
    )
    raw = print_settled(lambda _: page_with(table), tmp_path, chromium, {})
    # What a browser that has laid out more before it writes.
    later, changed = re.subn(rb"\(node0(\d{7})\)", rb"(node1\1)", raw)
    assert changed >= 3 * 2
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = [printing.finish(pdf, COVER._replace(author=""), moment) for pdf in (raw, later)]
    assert made[0] == made[1]
    with pikepdf.open(io.BytesIO(made[0])) as document:
        tree = document.Root.StructTreeRoot
        named = dict(pikepdf.NameTree(tree.IDTree).items())
        for each in named.values():
            assert each.S == "/TH"
        headers = [
            [cells.index(named[str(name)].objgen) for name in attributes.Headers]
            for cells in [[each.objgen for each in named.values()]]
            for element in elements(tree)
            if element.get("/S") == "/TD"
            for attributes in element.A
            if "/Headers" in attributes
        ]
        # Of "pages", "16" and "32", in this order: "size" heads no cell of its own column.
        assert headers == [[0, 1], [0, 2]]


def test_without_chromium_there_are_pages_and_no_offer_and_later_there_is(
    small: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = small.copy(tmp_path / "book")
    book.edit("chapters/notes.md", "says nothing about it", "says little about it")
    real = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("CHROMIUM", raising=False)
    lines = [line for line in book.done().splitlines() if PDF in line]
    assert lines == [f"no {PDF}: Chromium was not found; install it, or set CHROMIUM to its path"]
    assert "says little about it" in book.page("notes")
    assert not (book.html / PDF).exists()
    assert "kv-pdf" not in book.page("start")
    assert "nothing changed" in book.done()
    monkeypatch.setenv("PATH", real)
    book.done()
    assert (book.html / PDF).is_file()
    assert "kv-pdf" in book.page("start")
    assert "says little about it" in "".join(leaves(book.html / PDF)).replace("\n", " ")


@pytest.mark.parametrize(
    ("browser", "says"),
    [
        ("/nowhere/chromium", "CHROMIUM is '/nowhere/chromium', which cannot be run; accepted"),
        ("false", "the PDF could not be printed"),
    ],
)
def test_a_browser_that_is_not_there_or_fails_keeps_the_pages(
    small: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: str, says: str
) -> None:
    book = small.copy(tmp_path / "book")
    before = book.tree()
    book.edit("chapters/notes.md", "says nothing about it", "says little about it")
    monkeypatch.setenv("CHROMIUM", browser)
    result = book.build()
    assert result.returncode == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert book.tree() == before


SEEN = """() => [...document.body.querySelectorAll("*")]
  .filter((part) => part.checkVisibility() && part.getBoundingClientRect().width > 0)
  .filter((part) => part.matches(
    "nav, header, aside, button, summary, .headerlink, .kv-line, .kv-pdf, .only-dark"))
  .map((part) => part.outerHTML.slice(0, 90))"""
HIDES = """() => [...document.querySelectorAll("article *")]
  .filter((part) => part.checkVisibility() && part.localName !== "math" && !part.closest("math"))
  .filter((part) => getComputedStyle(part).overflowX !== "visible")
  .filter((part) => part.scrollWidth > part.clientWidth + 1)
  .map((part) => part.outerHTML.slice(0, 90))"""


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_page_printed_by_its_reader_is_light_whole_and_without_navigation(
    small: Book, chromium: str, mode: Any
) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*printing.FLAGS])
        page = browser.new_page(viewport={"width": 680, "height": 900}, color_scheme=mode)
        for name in ("start", "slots", "notes"):
            page.goto((small.html / "chapters" / f"{name}.html").as_uri())
            assert page.evaluate(SEEN) != []  # on the screen there is all that
            page.emulate_media(media="print")
            assert page.evaluate(SEEN) == []
            assert page.evaluate(HIDES) == []
            paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
            assert paper in {"rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"}
            assert page.locator("article h1").is_visible()
            page.emulate_media(media="screen")
        page.emulate_media(media="print")
        page.goto((small.html / "chapters" / "slots.html").as_uri())
        assert page.locator("figure img.only-light").is_visible()
        browser.close()


# ---------------------------------------------------------------- printing, made to be wrong
def page_with(body: str) -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><title>A</title>'
        "<style>@page { size: A4; margin: 24mm 22mm 22mm } body { margin: 0 }</style></head>"
        f'<body hidden><main><div class="kvp-chapter" style="page: one">{body}</div></main></body>'
        "</html>"
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<p style="width: 900px">too wide</p>', "does not fit its page: <p.*too wide"),
        (
            '<pre style="width: 400px; overflow: hidden; white-space: pre">' + "x" * 200 + "</pre>",
            "does not fit its page: <pre",
        ),
        ('<figure style="height: 1500px">too high</figure>', "does not fit its page: <figure"),
        ('<img src="http://elsewhere.invalid/a.png" alt="a">', "asks another host: http://else"),
        ('<img src="missing.png" alt="a">', "not in the book: chapters/missing.png"),
    ],
)
def test_printing_refuses_what_is_cut_off_foreign_or_missing(
    body: str, says: str, tmp_path: Path, chromium: str
) -> None:
    refused_input(says, print_settled, lambda _: page_with(body), tmp_path, chromium, {})


def test_a_wide_table_shrinks_first_and_then_lies_on_its_side(
    tmp_path: Path, chromium: str
) -> None:
    def table(columns: int) -> str:
        cells = "".join(f"<td style='white-space: nowrap'>column {i}</td>" for i in range(columns))
        style = "<style>.kvp-wide { width: 253mm } @page one-wide { size: A4 landscape }</style>"
        return page_with(f"{style}<div class='kv-table'><table><tr>{cells}</tr></table></div>")

    def width_of_page(columns: int) -> int:
        content = print_settled(lambda _: table(columns), tmp_path, chromium, {})
        with pikepdf.open(io.BytesIO(content)) as document:
            return round(float(document.pages[0].mediabox[2]))

    assert [width_of_page(columns) for columns in (4, 13, 20)] == [595, 595, 842]
    refused_input("does not fit its page: <table", width_of_page, 40)


# ---------------------------------------------------------------- one document of many pages
def one(pages: dict[str, str], **options: Any) -> str:
    plan = [BoundChapter(name, 1, None) for name in pages]
    wrapped = {name: f"<article>{text}</article>" for name, text in pages.items()}
    return assemble(wrapped, plan, COVER, **options)({})


def test_ids_that_chapters_share_become_each_chapters_own() -> None:
    html = one(
        {
            "c/a": '<section id="s"><h1>A</h1><a href="#s">x</a><a href="b.html#s">y</a></section>',
            "c/b": '<section id="s"><h1>B</h1><p id="only">p</p><a href="a.html">z</a></section>',
        }
    )
    soup = BeautifulSoup(html, "html.parser")
    ids = [str(tag["id"]) for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    assert {"a", "b", "a--s", "b--s", "only"} <= set(ids)
    main = soup.find("main")
    assert isinstance(main, Tag)
    assert [link["href"] for link in main.find_all("a")] == ["#a--s", "#b--s", "#a"]
    soup = BeautifulSoup(
        one({"a": '<h1>A</h1><p id="b">p</p><a href="#b">x</a>', "b": "<h1>B</h1>"}), "html.parser"
    )
    assert [tag.name for tag in soup.find_all(id="b")] == ["div"]
    assert soup.select_one('main a[href="#a--b"]') is not None
    figure = '<figure id="f"><span class="caption-number">Fig. 1</span><span class="caption-text">T'
    pages = {"figures": f"<h1>A</h1>{figure}</span></figure>", "contents": "<h1>B</h1>"}
    soup = BeautifulSoup(one(pages), "html.parser")
    ids = [str(tag["id"]) for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    assert {"figures", "contents", "f"} <= set(ids)


FILE = {"c/a": '<h1>A</h1><p><a href="../figures/f.csv">data</a></p>'}
EXPLORER = '<section id="e"><h1>Explorer</h1><p>It computes.</p><form id="f">x</form></section>'
LINKS = {
    # Files of the site are at its address or nowhere, what is not printed at its chapter.
    "no address": (FILE, "", ["<p>data</p>"], []),
    "address": (
        FILE,
        "https://example.org/book/",
        ['<a href="https://example.org/book/figures/f.csv">data</a>'],
        [],
    ),
    "not printed": (
        {"a": '<h1>A</h1><div class="kv-line" id="l">l</div><p><a href="#l">x</a></p>'},
        "",
        ['<a href="#a">x</a>'],
        [],
    ),
    # An address on the web is shown unless the text says it.
    "web": (
        {
            "a": '<h1>A</h1><a href="https://x.org/a">X</a> <a href="https://x.org/a">x.org/a</a>'
            '<a href="https://doi.org/10.1/2">doi:10.1/2</a>'
        },
        "",
        ['X<span class="kvp-url"> (https://x.org/a)</span>'],
        ["x.org/a<span", "doi:10.1/2<span"],
    ),
    # A page left out keeps its title and says why.
    "left out": (
        {"chapters/a": '<h1>A</h1><a href="explorer.html#f">x</a>', "chapters/explorer": EXPLORER},
        "",
        ["It computes.", LEFT_OUT["chapters/explorer"], '<a href="#explorer">x</a>'],
        ["<form"],
    ),
}


@pytest.mark.parametrize(("pages", "base", "there", "gone"), LINKS.values(), ids=LINKS)
def test_links_lead_where_paper_can(
    pages: dict[str, str], base: str, there: list[str], gone: list[str]
) -> None:
    html = one(pages, base_url=base)
    assert [text for text in there if text not in html] == []
    assert [text for text in gone if text in html] == []


@pytest.mark.parametrize("href", ["#nowhere", "b.html#nowhere"])
def test_a_link_that_leads_nowhere_is_named(href: str) -> None:
    with pytest.raises(InputError, match=f"a.html links to '{href}', but there is no such place"):
        one({"a": f'<h1>A</h1><a href="{href}">x</a>', "b": "<h1>B</h1>"})


def test_code_is_printed_with_its_answer_and_not_without() -> None:
    def cell(tags: str, output: str) -> str:
        return (
            f'<div class="cell {tags} docutils container"><div class="cell_input"><pre>code'
            f'</pre></div><div class="cell_output">{output}</div></div>'
        )

    answer = '<div class="output text_plain"><pre>42</pre></div>'
    assert "<pre>code" in one({"a": "<h1>A</h1>" + cell("", answer)})
    for tags, output in (("tag_hide-input", answer), ("", "<figure>f</figure>"), ("", "")):
        html = one({"a": "<h1>A</h1>" + cell(tags, output)}).partition("<main")[2]
        assert "code" not in html
        assert ("42" in html) == (output == answer)


def test_a_missing_page_and_a_page_without_article_are_named() -> None:
    with pytest.raises(InputError, match="no page b; the table of contents lists it"):
        assemble({}, [BoundChapter("b", 1, None)], COVER)
    with pytest.raises(InputError, match=r"b.html has no <article>"):
        assemble({"b": "<p>x</p>"}, [BoundChapter("b", 1, None)], COVER)


def test_titles_cannot_break_out_of_the_style_or_the_head() -> None:
    odd = Cover('B "x" </style><b>', "A & B", "en", "1", "ab" * 32, "CC", "Never.", "2026")
    head = assemble(
        {"a": '<article><h1>A "q" \\ &lt;/style&gt;</h1></article>'},
        [BoundChapter("a", 1, None)],
        odd,
    )({}).split("</head>")[0]
    assert head.count("</style>") == 1
    assert "<b>" not in head


def test_plan_follows_parts_chapters_and_sections() -> None:
    toc = {
        "root": "index",
        "parts": [
            {"caption": "One", "chapters": [{"file": "a", "sections": [{"file": "b"}]}]},
            {"chapters": [{"file": "c"}]},
        ],
    }
    assert book_plan(toc) == [
        BoundChapter("index", 1, None),
        BoundChapter("a", 2, "One"),
        BoundChapter("b", 3, "One"),
        BoundChapter("c", 1, None),
    ]


# ---------------------------------------------------------------- what the cover says of checks
def test_cover_says_what_the_record_of_checks_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chapters").mkdir()
    kept = cache_folder(tmp_path)
    kept.mkdir(parents=True)
    assert printing.checked_words(tmp_path) == "Not checked yet, or not since it changed."

    def check(digest: str, day: int) -> Check:
        return Check(
            digest=digest * 64,
            source_digest=source_digest(),
            data_digest="d" * 64,
            date=dt.date(2026, 3, day),
            seconds=1.0,
            cells=2,
            numbers=5,
            tables=1,
            figures=0,
            commit="c" * 40,
            changed_since=None,
            versions={"python": "3.11.9", "numpy": "2.0"},
            cores=2,
        )

    write_checks(tmp_path, {"chapters/a": check("a", 2), "chapters/b": check("b", 4)})
    digests = {"chapters/a": "a" * 64, "chapters/b": "b" * 64}
    (kept / DIGESTS_FILE).write_text(json.dumps(digests), encoding="utf-8")
    words = printing.checked_words(tmp_path)
    assert words.startswith("10 numbers and 2 tables were run again and compared")
    assert "on 2026-03-02, at commit cccccccc, with Python 3.11.9, data digest dddddddd" in words
    (kept / DIGESTS_FILE).write_text(json.dumps({**digests, "chapters/b": "x" * 64}))
    assert printing.checked_words(tmp_path).startswith("1 of 2 chapters")
