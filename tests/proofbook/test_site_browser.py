"""The site in a real browser: search by id, wrong addresses, drawings, launch buttons."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser.driver import chromium
from conftest import Book
from playwright.sync_api import Browser, Page, expect
from site_book import BASE

PREFIX = urlsplit(BASE).path


class _Site(http.server.SimpleHTTPRequestHandler):
    """A host that serves a book below a path, and its own page for what is not there."""

    root: Path
    prefix: str

    def translate_path(self, path: str) -> str:
        inner = urlsplit(path).path.removeprefix(self.prefix)
        return str(self.root / inner.lstrip("/"))

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
def served(book: Book, prefix: str = "/") -> Iterator[str]:
    handler = type("Site", (_Site,), {"root": book.html, "prefix": prefix})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


Opener = Callable[[str, str], tuple[Page, list[str]]]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Opener]:
    """Open an address in a mode; the list fills with all that is asked for."""
    contexts = []

    def opened(address: str, mode: str = "light") -> tuple[Page, list[str]]:
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


@pytest.mark.parametrize("path", ["gone.html", "chapters/gone.html", "a/b/c/gone"])
@pytest.mark.parametrize("prefix", ["/", PREFIX])
def test_a_wrong_address_helps(
    nowhere: Book, public: Book, visit: Opener, path: str, prefix: str
) -> None:
    book = public if prefix == PREFIX else nowhere
    with served(book, prefix) as origin:
        page, asked = visit(f"{origin}{prefix}{path}", "light")
        expect(page.locator("article h1")).to_have_text("Page not found")
        assert foreign(asked, origin) == []
        # Every style and script came, from however deep the address was.
        inner = [url.split("?")[0].removeprefix(f"{origin}{prefix}") for url in asked[1:]]
        assert [name for name in inner if not (book.html / name).is_file()] == []
        assert any(name.endswith("kvledger.css") for name in inner)
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
def test_drawings_of_one_mode_are_loaded(
    nowhere: Book, visit: Opener, mode: str, name: str
) -> None:
    with served(nowhere) as origin:
        page, asked = visit(f"{origin}/chapters/{name}.html", mode)
        height = page.evaluate("document.documentElement.scrollHeight")
        for y in range(0, height, 300):
            page.evaluate(f"window.scrollTo(0, {y})")
            page.wait_for_timeout(30)
        page.wait_for_load_state("networkidle")
        drawn = [url.rsplit("/", 1)[1] for url in asked if "/figures/fig-" in url]
        dark = [each for each in drawn if ".dark." in each]
        assert drawn, "the drawing was not loaded at all"
        assert dark == (drawn if mode == "dark" else [])
        # A reader who changes the mode gets the other drawing.
        page.evaluate(
            "(mode) => {document.documentElement.dataset.theme = mode}",
            "light" if mode == "dark" else "dark",
        )
        page.evaluate("window.scrollTo(0, 0)")
        for y in range(0, height, 300):
            page.evaluate(f"window.scrollTo(0, {y})")
            page.wait_for_timeout(30)
        page.wait_for_load_state("networkidle")
        assert len([url for url in asked if "/figures/fig-" in url]) == 2 * len(drawn)


def test_without_scripts_one_drawing_is_shown(nowhere: Book, browser: Browser) -> None:
    with served(nowhere) as origin:
        context = browser.new_context(java_script_enabled=False)
        for name in ("slots", "figures"):
            page = context.new_page()
            page.goto(f"{origin}/chapters/{name}.html")
            expect(page.locator("article img.only-light").first).to_be_visible()
            expect(page.locator("article img.only-dark").first).to_be_hidden()
        context.close()


def test_launch_buttons_load_nothing_from_elsewhere(public: Book, visit: Opener) -> None:
    with served(public, PREFIX) as origin:
        page, asked = visit(f"{origin}{PREFIX}chapters/slots.html", "light")
        page.get_by_role("button", name="Launch interactive content").click()
        expect(page.get_by_role("link", name="Binder")).to_be_visible()
        expect(page.get_by_role("link", name="Colab")).to_be_visible()
        assert foreign(asked, origin) == []
