"""Cards, citations and links in a real browser: pointer, keyboard, touch, and no script at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.driver import chromium, served
from conftest import Book
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
)

from proofbook.catalogue import Catalogue, read_catalogue
from proofbook.catalogue import citations as citing

SIZES = {"wide": (1400, 900), "narrow": (390, 844)}
ANSWER = '[data-number="fixture.answer"]'
Opener = Callable[..., Page]


@pytest.fixture
def made(pages_book: Book, monkeypatch: pytest.MonkeyPatch) -> Book:
    """The small book: a citation names the project of the folder that one is in."""
    monkeypatch.chdir(pages_book.root)
    return pages_book


@pytest.fixture
def catalogue(made: Book) -> Catalogue:
    return read_catalogue(made.html)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def _is_ours(message: ConsoleMessage) -> bool:
    """Tell an error of the page from what axe causes: it asks for a style's own imports again."""
    return message.type == "error" and not message.location["url"].endswith("/basic.css")


@pytest.fixture
def visit(browser: Browser, made: Book) -> Iterator[Opener]:
    """Open a page of the book in a window of its own; a console error fails the test."""
    contexts: list[BrowserContext] = []
    said: list[str] = []
    with served(made.html) as origin:

        def open_page(
            path: str = "chapters/start.html",
            *,
            size: str = "wide",
            mode: str = "light",
            clipboard: bool = True,
            **options: object,
        ) -> Page:
            width, height = SIZES[size]
            context = browser.new_context(  # type: ignore[arg-type]
                viewport={"width": width, "height": height},
                color_scheme=mode,
                **options,
            )
            contexts.append(context)
            if clipboard:
                context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = context.new_page()
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("console", lambda m: said.append(m.text) if _is_ours(m) else None)
            page.goto(f"{origin}/{path}", wait_until="load")
            return page

        yield open_page
        for context in contexts:
            context.close()
    assert said == []


def card_of(page: Page) -> str:
    """Return what the card that is shown says."""
    card = page.locator("#kv-card")
    expect(card).to_be_visible()
    return card.inner_text()


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


# ---------------------------------------------------------------- pointer


def test_hovering_a_number_says_what_it_is(visit: Opener) -> None:
    page = visit()
    page.hover('[data-number="fixture.share"]')
    said = card_of(page)
    for words in ("fixture.share", "computed by", "44.4444444444 %", "Start, cell answer"):
        assert words in said
    page.hover('[data-number="fixture.cited"]')
    expect(page.locator("#kv-card")).to_contain_text("Smith 2020, section 2")
    page.hover('[data-number="fixture.measured"]')
    expect(page.locator("#kv-card")).to_contain_text("data/run.json")
    page.mouse.move(700, 850)
    expect(page.locator("#kv-card")).to_be_hidden()


def test_the_pointer_can_move_to_the_card_and_stay_there(visit: Opener) -> None:
    page = visit()
    page.hover(ANSWER)
    card_of(page)
    box = page.locator("#kv-card").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20, steps=5)
    page.wait_for_timeout(600)
    card_of(page)
    page.keyboard.press("Escape")
    expect(page.locator("#kv-card")).to_be_hidden()


def test_a_click_opens_the_card_and_stays_on_the_page(visit: Opener) -> None:
    page = visit()
    address = page.url
    page.click(f"{ANSWER} >> nth=1")
    card_of(page)
    page.mouse.move(700, 850)
    page.wait_for_timeout(600)
    card_of(page)
    assert page.url == address
    page.mouse.click(700, 850)
    expect(page.locator("#kv-card")).to_be_hidden()


def test_the_card_lies_within_the_window_beside_its_number(visit: Opener) -> None:
    for size, (width, height) in SIZES.items():
        page = visit("chapters/slots.html", size=size)
        number = page.locator("figcaption a[data-number]")
        number.scroll_into_view_if_needed()
        number.hover()
        card_of(page)
        box, at = page.locator("#kv-card").bounding_box(), number.bounding_box()
        assert box is not None
        assert at is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        below, above = box["y"] - (at["y"] + at["height"]), at["y"] - (box["y"] + box["height"])
        assert 0 <= max(below, above) < 12
        assert page.evaluate("document.documentElement.scrollWidth") <= width


# ---------------------------------------------------------------- keyboard


def test_the_keyboard_reaches_a_number_and_its_card(visit: Opener) -> None:
    page = visit()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.number") == "fixture.answer":
            break
    else:
        pytest.fail("no number is reached by the keyboard")
    card_of(page)  # focus alone shows it
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    described = page.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert "4 slots" in page.locator(f"#{described}").inner_text()
    # On to the next number, without a stop in the card.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.number") == "fixture.cited"
    expect(page.locator("#kv-card")).to_contain_text("fixture.cited")
    # Enter goes into the card; beyond its last control the page goes on where it was left.
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "kv-card"
    stops = page.locator("#kv-card a, #kv-card button").count()
    for _ in range(stops):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('#kv-card') !== null")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.number") == "fixture.measured"
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.dataset.number") == "fixture.measured"
    expect(page.locator("#kv-card")).to_be_hidden()


def test_escape_closes_and_gives_the_focus_back(visit: Opener) -> None:
    page = visit()
    number = page.locator(ANSWER).first
    number.focus()
    page.keyboard.press("Enter")
    assert number.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(page.locator("#kv-card")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.number") == "fixture.answer"
    assert number.get_attribute("aria-expanded") == "false"
    # What focus alone has shown is dismissed too, without moving the focus.
    page.keyboard.press("Tab")
    card_of(page)
    page.keyboard.press("Escape")
    expect(page.locator("#kv-card")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.number") == "fixture.cited"


def test_a_screen_reader_gets_name_and_description(visit: Opener) -> None:
    page = visit()
    number = page.locator(ANSWER).first
    expect(number).to_have_accessible_name("4")
    expect(number).to_have_accessible_description("fixture.answer: computed")
    number.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="fixture.answer")).to_be_focused()


def test_terms_show_their_definition_and_stay_links(visit: Opener) -> None:
    page = visit()
    term = page.locator("a:has(> .std-term)").first
    term.hover()
    said = card_of(page)
    assert "A run of slots" in said
    assert page.locator("#kv-card math").count() == 1
    term.click()
    page.wait_for_url("**/words.html#term-page")


# ---------------------------------------------------------------- touch


def test_a_tap_shows_the_card_of_a_number_and_of_a_term(visit: Opener) -> None:
    page = visit(size="narrow", has_touch=True, is_mobile=True)
    address = page.url
    for selector, words in ((ANSWER, "4 slots"), ("a:has(> .std-term)", "A run of slots")):
        page.locator(selector).first.tap()
        assert words in card_of(page)
        assert page.url == address
        page.get_by_role("heading", level=1).tap()
        expect(page.locator("#kv-card")).to_be_hidden()


# ---------------------------------------------------------------- copying


def test_the_citation_of_a_number_is_copied(visit: Opener, catalogue: Catalogue) -> None:
    page = visit()
    page.locator(ANSWER).first.focus()
    page.keyboard.press("Enter")
    entry = catalogue.entries["fixture.answer"]
    page.get_by_role("button", name="Copy BibTeX").click()
    expect(page.get_by_role("status")).to_have_text("BibTeX copied.")
    assert clipboard(page) == citing.bibtex(entry, catalogue, "")
    page.get_by_role("button", name="Copy text").click()
    expect(page.get_by_role("status")).to_have_text("text copied.")
    assert clipboard(page) == citing.plain(entry, catalogue, "")


@pytest.mark.parametrize("id", ["fig-fixture", "tab-fixture"])
def test_the_citation_of_a_figure_or_table_is_copied(
    visit: Opener, catalogue: Catalogue, id: str
) -> None:
    page = visit("chapters/slots.html")
    line = page.get_by_role("group", name=f"Cite, fetch or trace {id}")
    line.get_by_text(f"Cite {id}").focus()
    page.keyboard.press("Enter")
    line.get_by_role("button", name="Copy BibTeX").click()
    expect(page.get_by_role("status")).to_have_text("BibTeX copied.")
    assert clipboard(page) == citing.bibtex(catalogue.entries[id], catalogue, "")
    line.get_by_role("button", name="Copy text").click()
    expect(page.get_by_role("status")).to_have_text("text copied.")
    assert clipboard(page) == citing.plain(catalogue.entries[id], catalogue, "")


REFUSED = """() => {
  navigator.clipboard.writeText = () => Promise.reject(new DOMException("refused"));
}"""


def test_where_the_clipboard_is_refused_the_text_is_selected(
    visit: Opener, catalogue: Catalogue
) -> None:
    page = visit()
    page.evaluate(REFUSED)
    page.locator(ANSWER).first.click()
    expected = citing.bibtex(catalogue.entries["fixture.answer"], catalogue, "")
    page.get_by_role("button", name="Copy BibTeX").click()
    expect(page.get_by_role("status")).to_have_text("BibTeX selected: copy it with your keyboard.")
    assert page.evaluate("getSelection().toString()").strip() == expected.strip()


def test_from_a_file_everything_works_too(
    browser: Browser, made: Book, catalogue: Catalogue
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto((made.html / "chapters" / "start.html").as_uri())
    page.locator(ANSWER).first.click()
    page.get_by_role("button", name="Copy text").click()
    expect(page.get_by_role("status")).to_have_text("text copied.")
    context.close()


# ---------------------------------------------------------------- every reader


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_axe_finds_nothing_in_cards_and_lines(visit: Opener, size: str, mode: str) -> None:
    for path in ("chapters/start.html", "chapters/slots.html"):
        page = visit(path, size=size, mode=mode)
        for details in page.locator(".kv-line details").all():
            details.locator("summary").click()
        page.locator("a[data-number]").first.focus()
        page.keyboard.press("Enter")
        card_of(page)
        page.wait_for_timeout(200)  # until it has appeared
        for part in (".kv-popup", ".kv-line", "article p"):
            if page.locator(part).count() == 0:
                continue
            violations = Axe().run(page, context={"include": [[part]]}).response["violations"]
            assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
        targets = page.locator(".kv-popup button, .kv-line summary, .kv-line p a").all()
        assert targets
        for target in targets:
            box = target.bounding_box()
            assert box is not None
            assert box["height"] >= 24


def test_without_scripts_all_is_there(browser: Browser, made: Book, catalogue: Catalogue) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    start = (made.html / "chapters" / "start.html").as_uri()
    page.goto(start)
    assert page.locator(ANSWER).first.get_attribute("title") == "fixture.answer: computed"
    page.locator(ANSWER).first.click()
    assert page.url.endswith("numbers.html#row-fixture.answer")
    page.goto(start.replace("start", "slots"))
    entry = catalogue.entries["fig-fixture"]
    line = page.locator(".kv-line", has_text="fig-fixture")
    line.locator("summary", has_text="Cite").click()
    assert line.locator("[data-copy=text]").inner_text() == citing.plain(entry, catalogue, "")
    bibtex = citing.bibtex(entry, catalogue, "")
    assert line.locator("[data-copy=BibTeX]").inner_text().strip() == bibtex.strip()
    assert page.locator("button.kv-button").count() == 0
    line.locator("summary", has_text="Made by").click()
    line.get_by_role("link", name="figure", exact=True).click()
    assert page.url.endswith("slots.html#cell-figure")
    context.close()


def test_nothing_moves_for_those_who_asked_for_that(visit: Opener) -> None:
    for motion, name in (("reduce", "none"), ("no-preference", "kv-appear")):
        page = visit(reduced_motion=motion)
        page.locator(ANSWER).first.focus()
        page.keyboard.press("Enter")
        card_of(page)
        style = "getComputedStyle(document.getElementById('kv-card')).animationName"
        assert page.evaluate(style) == name
