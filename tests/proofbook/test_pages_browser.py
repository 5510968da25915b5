"""Cards, citations and the site in a real browser: pointer, keyboard, touch and no script."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.driver import chromium, served
from conftest import BASE, Book
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from proofbook.catalogue import Catalogue
from proofbook.catalogue import citations as citing

SIZES = {"wide": (1400, 900), "narrow": (390, 844)}
ANSWER = '[data-number="fixture.answer"]'
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def _is_ours(message: ConsoleMessage) -> bool:
    """Tell an error of the page from what axe causes: it asks for a style's own imports again."""
    return message.type == "error" and not message.location["url"].endswith("/basic.css")


@pytest.fixture
def visit(browser: Browser, pages_book: Book) -> Iterator[Opener]:
    """Open a page of the book in a window of its own; a console error fails the test."""
    contexts: list[BrowserContext] = []
    said: list[str] = []
    with served(pages_book.html) as origin:

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
                viewport={"width": width, "height": height}, color_scheme=mode, **options
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


def no_card(page: Page) -> None:
    expect(page.locator("#kv-card")).to_be_hidden()


def open_card(page: Page, selector: str = ANSWER) -> None:
    page.locator(selector).first.focus()
    page.keyboard.press("Enter")


def focused(page: Page) -> str | None:
    """Return the id of the number that has the focus."""
    found: str | None = page.evaluate("document.activeElement.dataset.number")
    return found


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
    no_card(page)


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
    no_card(page)


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
    no_card(page)


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
        if focused(page) == "fixture.answer":
            break
    else:
        pytest.fail("no number is reached by the keyboard")
    card_of(page)  # focus alone shows it
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    described = page.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert "4 slots" in page.locator(f"#{described}").inner_text()
    # On to the next number, without a stop in the card.
    page.keyboard.press("Tab")
    assert focused(page) == "fixture.cited"
    expect(page.locator("#kv-card")).to_contain_text("fixture.cited")
    # Enter goes into the card; beyond its last control the page goes on where it was left.
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "kv-card"
    stops = page.locator("#kv-card a, #kv-card button").count()
    for _ in range(stops):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('#kv-card') !== null")
    page.keyboard.press("Tab")
    assert focused(page) == "fixture.measured"
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    assert focused(page) == "fixture.measured"
    no_card(page)


def test_escape_closes_and_gives_the_focus_back(visit: Opener) -> None:
    page = visit()
    number = page.locator(ANSWER).first
    open_card(page)
    assert number.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    no_card(page)
    assert focused(page) == "fixture.answer"
    assert number.get_attribute("aria-expanded") == "false"
    # What focus alone has shown is dismissed too, without moving the focus.
    page.keyboard.press("Tab")
    card_of(page)
    page.keyboard.press("Escape")
    no_card(page)
    assert focused(page) == "fixture.cited"


def test_a_screen_reader_gets_name_and_description(visit: Opener) -> None:
    page = visit()
    number = page.locator(ANSWER).first
    expect(number).to_have_accessible_name("4")
    expect(number).to_have_accessible_description("fixture.answer: computed")
    open_card(page)
    expect(page.get_by_role("dialog", name="fixture.answer")).to_be_focused()


def test_terms_show_their_definition_and_stay_links(visit: Opener) -> None:
    page = visit()
    term = page.locator("a:has(> .std-term)").first
    term.hover()
    assert "A run of slots" in card_of(page)
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
        no_card(page)


# ---------------------------------------------------------------- copying
@pytest.mark.parametrize("id", ["fixture.answer", "fig-fixture", "tab-fixture"])
def test_the_citation_is_copied(visit: Opener, pages_catalogue: Catalogue, id: str) -> None:
    page = visit(f"{pages_catalogue.entries[id].page}.html")
    line = page.get_by_role("group", name=f"Cite, fetch or trace {id}")
    is_number = id == "fixture.answer"
    (page.locator(ANSWER).first if is_number else line.get_by_text(f"Cite {id}")).focus()
    page.keyboard.press("Enter")
    for name, cited in (("BibTeX", citing.bibtex), ("text", citing.plain)):
        (page if is_number else line).get_by_role("button", name=f"Copy {name}").click()
        expect(page.get_by_role("status")).to_have_text(f"{name} copied.")
        assert clipboard(page) == cited(pages_catalogue.entries[id], pages_catalogue, "")


REFUSED = """() => {
  navigator.clipboard.writeText = () => Promise.reject(new DOMException("refused"));
}"""


def test_where_the_clipboard_is_refused_the_text_is_selected(
    visit: Opener, pages_catalogue: Catalogue
) -> None:
    page = visit()
    page.evaluate(REFUSED)
    page.locator(ANSWER).first.click()
    expected = citing.bibtex(pages_catalogue.entries["fixture.answer"], pages_catalogue, "")
    page.get_by_role("button", name="Copy BibTeX").click()
    expect(page.get_by_role("status")).to_have_text("BibTeX selected: copy it with your keyboard.")
    assert page.evaluate("getSelection().toString()").strip() == expected.strip()


def test_from_a_file_everything_works_too(browser: Browser, pages_book: Book) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto((pages_book.html / "chapters" / "start.html").as_uri())
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
        open_card(page, "a[data-number]")
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


def test_without_scripts_all_is_there(
    browser: Browser, pages_book: Book, pages_catalogue: Catalogue
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    start = (pages_book.html / "chapters" / "start.html").as_uri()
    page.goto(start)
    assert page.locator(ANSWER).first.get_attribute("title") == "fixture.answer: computed"
    page.locator(ANSWER).first.click()
    assert page.url.endswith("numbers.html#row-fixture.answer")
    page.goto(start.replace("start", "slots"))
    entry = pages_catalogue.entries["fig-fixture"]
    line = page.locator(".kv-line", has_text="fig-fixture")
    line.locator("summary", has_text="Cite").click()
    assert line.locator("[data-copy=text]").inner_text() == citing.plain(entry, pages_catalogue, "")
    bibtex = citing.bibtex(entry, pages_catalogue, "")
    assert line.locator("[data-copy=BibTeX]").inner_text().strip() == bibtex.strip()
    assert page.locator("button.kv-button").count() == 0
    line.locator("summary", has_text="Made by").click()
    line.get_by_role("link", name="figure", exact=True).click()
    assert page.url.endswith("slots.html#cell-figure")
    context.close()


def test_nothing_moves_for_those_who_asked_for_that(visit: Opener) -> None:
    for motion, name in (("reduce", "none"), ("no-preference", "kv-appear")):
        page = visit(reduced_motion=motion)
        open_card(page)
        card_of(page)
        style = "getComputedStyle(document.getElementById('kv-card')).animationName"
        assert page.evaluate(style) == name


# ---------------------------------------------------------------- the site
PREFIX = urlsplit(BASE).path


class _Site(http.server.SimpleHTTPRequestHandler):
    """A host that serves a book below a path, and its own page for what is not there."""

    root: Path
    prefix: str

    def translate_path(self, path: str) -> str:
        return str(self.root / urlsplit(path).path.removeprefix(self.prefix).lstrip("/"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        content = (self.root / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def hosted(book: Book, prefix: str = "/") -> Iterator[str]:
    handler = type("Site", (_Site,), {"root": book.html, "prefix": prefix})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


Looker = Callable[[str, str], tuple[Page, list[str]]]


@pytest.fixture
def look(browser: Browser) -> Iterator[Looker]:
    """Open an address in a mode; the list fills with all that is asked for."""
    contexts = []

    def opened(address: str, mode: str) -> tuple[Page, list[str]]:
        context = browser.new_context(color_scheme="dark" if mode == "dark" else "light")
        contexts.append(context)
        page, asked = context.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address, wait_until="networkidle")
        return page, asked

    yield opened
    for context in contexts:
        context.close()


def foreign(asked: list[str], origin: str) -> list[str]:
    return [url for url in asked if not url.startswith((f"{origin}/", "data:", "blob:"))]


def scroll(page: Page) -> None:
    """Go through a page from its top, so that all of it is loaded."""
    for y in range(0, page.evaluate("document.documentElement.scrollHeight"), 300):
        page.evaluate(f"window.scrollTo(0, {y})")
        page.wait_for_timeout(30)
    page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("path", ["gone.html", "chapters/gone.html", "a/b/c/gone"])
@pytest.mark.parametrize("prefix", ["/", PREFIX])
def test_a_wrong_address_helps(
    nowhere: Book, public: Book, look: Looker, path: str, prefix: str
) -> None:
    book = public if prefix == PREFIX else nowhere
    with hosted(book, prefix) as origin:
        page, asked = look(f"{origin}{prefix}{path}", "light")
        expect(page.locator("article h1")).to_have_text("Page not found")
        assert foreign(asked, origin) == []
        # Every style and script came, from however deep the address was.
        inner = [url.split("?")[0].removeprefix(f"{origin}{prefix}") for url in asked[1:]]
        assert [name for name in inner if not (book.html / name).is_file()] == []
        assert any(name.endswith("book.css") for name in inner)
        links = page.locator("article a[href], .bd-sidebar-primary a[href]")
        hrefs = [urlsplit(h).path for h in links.evaluate_all("(all) => all.map((a) => a.href)")]
        assert len(hrefs) > 5
        for href in hrefs:
            assert href.startswith(prefix)
            assert (book.html / href.removeprefix(prefix)).is_file(), href
        page.get_by_label("Id or words").fill("fig-fixture")
        page.locator("#page-not-found").get_by_role("button").click()
        first = page.locator("#search-results ul.search > li a").first
        expect(first).to_have_text("fig-fixture")


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", ["slots", "figures"])
def test_drawings_of_one_mode_are_loaded(nowhere: Book, look: Looker, mode: str, name: str) -> None:
    with hosted(nowhere) as origin:
        page, asked = look(f"{origin}/chapters/{name}.html", mode)
        scroll(page)
        drawn = [url.rsplit("/", 1)[1] for url in asked if "/figures/fig-" in url]
        dark = [each for each in drawn if ".dark." in each]
        assert drawn, "the drawing was not loaded at all"
        assert dark == (drawn if mode == "dark" else [])
        # A reader who changes the mode gets the other drawing.
        page.evaluate(
            "(mode) => {document.documentElement.dataset.theme = mode}",
            "light" if mode == "dark" else "dark",
        )
        scroll(page)
        assert len([url for url in asked if "/figures/fig-" in url]) == 2 * len(drawn)


def test_without_scripts_one_drawing_is_shown(nowhere: Book, browser: Browser) -> None:
    with hosted(nowhere) as origin:
        context = browser.new_context(java_script_enabled=False)
        for name in ("slots", "figures"):
            page = context.new_page()
            page.goto(f"{origin}/chapters/{name}.html")
            expect(page.locator("article img.only-light").first).to_be_visible()
            expect(page.locator("article img.only-dark").first).to_be_hidden()
        context.close()


def test_launch_buttons_load_nothing_from_elsewhere(public: Book, look: Looker) -> None:
    with hosted(public, PREFIX) as origin:
        page, asked = look(f"{origin}{PREFIX}chapters/slots.html", "light")
        page.get_by_role("button", name="Launch interactive content").click()
        expect(page.get_by_role("link", name="Binder")).to_be_visible()
        expect(page.get_by_role("link", name="Colab")).to_be_visible()
        assert foreign(asked, origin) == []
