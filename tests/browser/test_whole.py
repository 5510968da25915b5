"""Every page is whole, quiet and within its window: wide and narrow, light and dark."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser import whole
from browser.driver import MODES, ROOT, WIDTHS, Visit, pages_of_the_book
from browser.made_wrong import ALT, GOOD_FIGURE, Wrong, address, visiting_wrong

#: A picture of every page as it was seen, and a page that shows them.
PICTURES = ROOT / "_build" / "screenshots"
INDEX = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Screenshots</title><style>
img { height: 60rem; object-fit: cover; object-position: top; width: 24vw }</style>"""


@pytest.fixture(scope="module")
def pictures() -> Iterator[Path]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    yield PICTURES
    names = sorted(path.name for path in PICTURES.glob("*.jpg"))
    shown = [f'<a href="{n}"><img src="{n}" alt="{n}" loading="lazy"></a>' for n in names]
    (PICTURES / "index.html").write_text("\n".join([INDEX, *shown]), encoding="utf-8")


@pytest.mark.parametrize("path", pages_of_the_book())
def test_page(visits: dict[tuple[int, str], Visit], pictures: Path, path: str) -> None:
    wrong = []
    name = path.removesuffix(".html").replace("/", "-")
    for (width, mode), visit in visits.items():
        first = (width, mode) == (WIDTHS[0], MODES[0])
        visit.open(path, settle=first)  # what is fetched late does not depend on the mode
        for check in whole.CHECKS + (whole.ONCE if first else ()):
            wrong += [f"{width} px, {mode}, {check.__name__}: {what}" for what in check(visit)]
        picture = pictures / f"{name}-{width}-{mode}.jpg"
        visit.page.screenshot(path=picture, full_page=True, type="jpeg", quality=70)
    assert not wrong, "\n".join(wrong)


def test_no_two_pages_have_one_title(built_book: Path) -> None:
    texts = [(built_book / path).read_text(encoding="utf-8") for path in pages_of_the_book()]
    titles = Counter(re.findall(r"<title>(.*?)</title>", text)[0] for text in texts)
    assert [title for title, pages in titles.items() if pages > 1] == []


def test_the_first_page_leads_to_the_book(visit: Visit) -> None:
    visit.page.goto(f"{visit.origin}/")
    visit.page.wait_for_url(f"{visit.origin}/{pages_of_the_book()[0]}")


def test_paper_is_light(visits: dict[tuple[int, str], Visit]) -> None:
    visit = visits[WIDTHS[0], "dark"]
    visit.open(pages_of_the_book()[1])
    visit.page.emulate_media(media="print", color_scheme="dark")
    assert visit.page.locator("figure").count() > 0
    assert whole.one_rendering_a_mode(dataclasses.replace(visit, mode="light")) == []
    assert whole.one_rendering_a_mode(visit) != []
    visit.page.emulate_media(media="screen", color_scheme="dark")
    assert whole.one_rendering_a_mode(visit) == []


def test_every_page_is_visited(built_book: Path) -> None:
    made = {path.relative_to(built_book).as_posix() for path in built_book.rglob("*.html")}
    assert made - {"index.html"} == set(pages_of_the_book())


# ---------------------------------------------------------------- pages made to be wrong
WRONG = {
    "script from elsewhere": Wrong(
        whole.no_foreign_request,
        '<script src="http://elsewhere.invalid/a.js"></script>',
        "elsewhere.invalid",
    ),
    "fetch from elsewhere": Wrong(
        whole.no_foreign_request,
        "<script>fetch('http://elsewhere.invalid/b').catch(() => 0)</script>",
        "elsewhere.invalid/b",
    ),
    "font from elsewhere": Wrong(
        whole.no_foreign_request,
        "<style>@font-face{font-family:x;src:url(http://elsewhere.invalid/f)}h1{font-family:x}"
        "</style>",
        "elsewhere.invalid/f",
    ),
    "missing file": Wrong(
        whole.no_failed_response, '<script src="none.js"></script>', "none.js: 404"
    ),
    "console error": Wrong(
        whole.no_console_error, "<script>console.error('broken')</script>", "broken"
    ),
    "exception": Wrong(
        whole.no_console_error, "<script>throw new Error('thrown')</script>", "thrown"
    ),
    "wide block": Wrong(
        whole.no_sideways_overflow,
        '<div style="width: 600px">wide</div>',
        "px in a window of 390 px",
    ),
    "long word": Wrong(
        whole.no_sideways_overflow, "<p>" + "x" * 200 + "</p>", "px in a window of 390 px"
    ),
    "broken image": Wrong(whole.images_loaded, f'<img src="none.png" {ALT}>', "none.png"),
    "no alt": Wrong(
        whole.alt_says_something, GOOD_FIGURE.replace("alt=", "data-alt="), "a.svg: alt is None"
    ),
    "alt of a hash": Wrong(
        whole.alt_says_something, GOOD_FIGURE.replace(ALT, 'alt="../_images/0a1b2c.png"'), "0a1b2c"
    ),
    "two drawings": Wrong(
        whole.one_rendering_a_mode,
        GOOD_FIGURE.replace("</div>", f'<img class="only-dark" src="a.svg" {ALT}></div>'),
        "fig-a: 2 drawings",
    ),
    "no drawing": Wrong(
        whole.one_rendering_a_mode,
        GOOD_FIGURE.replace("<img", '<img style="display: none"'),
        "fig-a: 0 drawings",
    ),
    "drawing of the other mode": Wrong(
        whole.one_rendering_a_mode,
        GOOD_FIGURE.replace("only-light", "only-dark"),
        "1 drawings, only-dark",
    ),
    "no caption": Wrong(
        whole.figures_are_whole,
        GOOD_FIGURE.replace("A square, as it should be.", ""),
        "fig-a lacks a caption",
    ),
    "no id": Wrong(
        whole.figures_are_whole,
        GOOD_FIGURE.replace('<figure id="fig-a">', "<figure>"),
        "figure lacks an id",
    ),
    "no keyboard": Wrong(
        whole.figures_are_whole,
        GOOD_FIGURE.replace(' tabindex="0"', "").replace('\ntabindex="0"', ""),
        "a scroll box",
    ),
    "no data": Wrong(
        whole.figures_are_whole,
        GOOD_FIGURE.replace('<a href="figures/fig-a.csv">csv</a>', ""),
        "a download of csv",
    ),
    "lost download": Wrong(
        whole.downloads_come, GOOD_FIGURE.replace("fig-a.csv", "fig-b.csv"), "fig-b.csv: 404"
    ),
    "link to nowhere": Wrong(
        whole.links_lead_somewhere, '<a href="none.html">a</a>', "no such page"
    ),
    "link to no place": Wrong(whole.links_lead_somewhere, '<a href="#none">a</a>', "no such place"),
    "link here": Wrong(whole.links_say_where, 'See <a href="#x">here</a>.', "is called 'here'"),
    "link without a name": Wrong(
        whole.links_say_where, '<a href="#x"><img src="a.svg" alt=""></a>', "is called ''"
    ),
    "title of another page": Wrong(
        whole.has_a_title, "<script>document.title = 'Untitled'</script>", "title 'Untitled'"
    ),
    "wider than a phone": Wrong(
        whole.reflows, '<div style="width: 380px">wide</div>', "in a window of 320 px"
    ),
    "wide in letters": Wrong(
        whole.bears_large_letters, '<div style="width: 20rem">wide</div>', "in a window of 390 px"
    ),
    "faint text": Wrong(
        whole.axe_finds_nothing,
        '<p style="color: #ddd; background: #fff">faint</p>',
        "color-contrast (serious)",
    ),
    "list of no items": Wrong(
        whole.axe_finds_nothing,
        '<div role="list"><div role="doc-biblioentry">a</div></div>',
        "aria-required-children (critical)",
    ),
    "level skipped": Wrong(
        whole.axe_finds_nothing, "<h2>A</h2><h4>B</h4>", "heading-order (moderate)"
    ),
    "small target": Wrong(
        whole.axe_finds_nothing,
        '<p><button style="all: unset; width: 9px; height: 9px" aria-label="a">.</button>'
        '<button style="all: unset; width: 9px; height: 9px" aria-label="b">.</button></p>',
        "target-size (serious)",
    ),
    "box that cuts": Wrong(
        whole.bears_wide_spacing,
        '<p style="height: 1.2em; overflow: hidden; line-height: 1.2">cut</p>',
        "cut off: <p",
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    with visiting_wrong(browser, tmp_path_factory.mktemp("wrong"), WRONG) as visit:
        yield visit


def test_a_good_page_passes_every_check(doctored: Visit) -> None:
    doctored.open("good.html")
    assert [what for check in whole.CHECKS + whole.ONCE for what in check(doctored)] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {page.check for page in WRONG.values()} == set(whole.CHECKS + whole.ONCE)
