"""The finished pages in a real browser: wide and narrow, light and dark.

Each check is a function that returns what is wrong with a visit. The tests at the end give every
one of them a page made to be wrong, so that a check which cannot fail does not pass.
"""

from __future__ import annotations

import dataclasses
import functools
import http.server
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from kvledger.book.build import toc_entries

ROOT = Path(__file__).resolve().parent.parent
WIDTHS = (1400, 390)
MODES = ("light", "dark")
GRAVE = {"serious", "critical"}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pages_of_the_book() -> list[str]:
    """Return every page that a reader can reach, from the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [f"{name}.html" for name in toc_entries(toc)] + ["search.html", "genindex.html"]


@dataclass
class Visit:
    """A page that was opened, and all that happened meanwhile."""

    page: Page
    folder: Path
    origin: str
    width: int
    mode: str
    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def open(self, path: str, *, settle: bool = True) -> None:
        """Load a page; to settle, wait until nothing has been fetched for half a second."""
        self.foreign.clear()
        self.failed.clear()
        self.console.clear()
        self.page.goto(f"{self.origin}/{path}", wait_until="networkidle" if settle else "load")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that does not write to the test's output."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@functools.cache
def find_chromium() -> str:
    """Return the browser's path; tests fail, and do not skip, without one."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name) if name else None
        if path:
            return path
    pytest.fail("no chromium found: install Debian's chromium, or set CHROMIUM to its path")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield found
        found.close()


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def new_visit(browser: Browser, folder: Path, origin: str, width: int, mode: str) -> Visit:
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if mode == "dark" else "light",
    )
    visit = Visit(context.new_page(), folder, origin, width, mode)

    def request(route: object, request: object) -> None:
        url = request.url  # type: ignore[attr-defined]
        if url.startswith((origin + "/", "data:", "blob:")):
            route.continue_()  # type: ignore[attr-defined]
        else:
            visit.foreign.append(url)
            route.abort()  # type: ignore[attr-defined]

    context.route("**/*", request)
    visit.page.on("requestfailed", lambda r: visit.failed.append(f"{r.url}: {r.failure}"))
    visit.page.on(
        "response",
        lambda r: visit.failed.append(f"{r.url}: {r.status}") if r.status >= 400 else None,
    )
    visit.page.on(
        "console",
        lambda m: visit.console.append(m.text) if m.type in {"error", "warning"} else None,
    )
    visit.page.on("pageerror", lambda e: visit.console.append(str(e)))
    return visit


@pytest.fixture(scope="module")
def visits(browser: Browser, built_book: Path) -> Iterator[dict[tuple[int, str], Visit]]:
    """One window for each width and mode, on the finished book."""
    server = serve(built_book)
    origin = f"http://127.0.0.1:{server.server_port}"
    found = {
        (width, mode): new_visit(browser, built_book, origin, width, mode)
        for width in WIDTHS
        for mode in MODES
    }
    yield found
    for visit in found.values():
        visit.page.context.close()
    server.shutdown()


# ---------------------------------------------------------------- checks


def no_foreign_request(visit: Visit) -> list[str]:
    """Nothing was asked of any machine but the one that served the page."""
    return list(visit.foreign)


def no_failed_response(visit: Visit) -> list[str]:
    """Everything that was asked for came."""
    return list(visit.failed)


def no_console_error(visit: Visit) -> list[str]:
    """The console has no error and no warning."""
    return list(visit.console)


def no_sideways_overflow(visit: Visit) -> list[str]:
    """The page is no wider than the window; what is wide scrolls in a box of its own."""
    found: list[str] = visit.page.evaluate(
        """() => {
          const wide = document.documentElement.scrollWidth;
          if (wide <= window.innerWidth) return [];
          const inBox = (e) => {
            for (let p = e.parentElement; p && p !== document.body; p = p.parentElement)
              if (getComputedStyle(p).overflowX !== "visible") return true;
            return false;
          };
          const out = [...document.querySelectorAll("body *")].filter((e) =>
            e.getBoundingClientRect().right > window.innerWidth + 1 && !inBox(e));
          return [`${wide} px in a window of ${window.innerWidth} px: ` +
            out.slice(0, 5).map((e) => e.outerHTML.slice(0, 80)).join(" | ")];
        }"""
    )
    return found


def images_loaded(visit: Visit) -> list[str]:
    """Every image has come, with a width."""
    found: list[str] = visit.page.evaluate(
        """() => [...document.images]
          .filter((i) => !i.complete || i.naturalWidth === 0).map((i) => i.outerHTML)"""
    )
    return found


def alt_says_something(visit: Visit) -> list[str]:
    """Every image of the article has a sentence or more for those who do not see it."""
    alts: list[tuple[str, str | None]] = visit.page.evaluate(
        """() => [...document.querySelectorAll("article img, figure img")]
          .map((i) => [i.getAttribute("src"), i.getAttribute("alt")])"""
    )
    return [
        f"{src}: alt is {alt!r}"
        for src, alt in alts
        if len((alt or "").split()) < 6 or not re.search(r"[.!?]$", (alt or "").strip())
    ]


def one_rendering_a_mode(visit: Visit) -> list[str]:
    """Each figure shows one drawing, and it is the one for this mode."""
    found: list[str] = visit.page.evaluate(
        """(mode) => [...document.querySelectorAll("figure")].flatMap((f) => {
          const seen = [...f.querySelectorAll("img")].filter((i) => i.getClientRects().length);
          const right = seen.length === 1 && seen[0].classList.contains(`only-${mode}`);
          return right ? [] : [`${f.id}: ${seen.length} drawings, ` +
            seen.map((i) => i.className).join(", ")];
        })""",
        visit.mode,
    )
    return found


def figures_are_whole(visit: Visit) -> list[str]:
    """Each figure has an id, a caption, a box that the keyboard reaches, and its downloads."""
    found: list[str] = visit.page.evaluate(
        """() => [...document.querySelectorAll("figure")].flatMap((f) => {
          const lacks = [];
          if (!f.id.startsWith("fig-")) lacks.push("an id");
          const caption = f.querySelector("figcaption .caption-text");
          if (!caption || caption.textContent.trim().split(/\\s+/).length < 4)
            lacks.push("a caption");
          if (!f.querySelector('.kv-scroll[tabindex="0"][role="region"][aria-label]'))
            lacks.push("a scroll box");
          const ends = [...f.querySelectorAll(".kv-downloads a")].map((a) => a.pathname)
            .filter((p) => p.startsWith(`/figures/${f.id}.`)).map((p) => p.split(".").pop());
          for (const end of ["svg", "png", "csv", "bib", "json"])
            if (!ends.includes(end)) lacks.push(`a download of ${end}`);
          return lacks.length ? [`${f.id || "figure"} lacks ${lacks.join(", ")}`] : [];
        })"""
    )
    return found


def downloads_come(visit: Visit) -> list[str]:
    """Every file offered for download is there, and not empty."""
    urls: list[str] = visit.page.evaluate(
        """() => [...document.querySelectorAll("a[download], .kv-downloads a")]
          .map((a) => a.href)"""
    )
    wrong = []
    for url in sorted(set(urls)):
        response = visit.page.request.get(url)
        if response.status != 200 or not response.body():
            wrong.append(f"{url}: {response.status}")
    return wrong


def links_lead_somewhere(visit: Visit) -> list[str]:
    """Every link within the book leads to a page that exists and a place on it that exists."""
    links: list[str] = visit.page.evaluate(
        """() => [...document.querySelectorAll("a[href]")].map((a) => a.getAttribute("href"))"""
    )
    wrong = []
    for link in sorted(set(links)):
        url, fragment = urldefrag(urljoin(visit.page.url, link))
        if not url.startswith(visit.origin + "/"):
            continue
        path = visit.folder / unquote(urlsplit(url).path).lstrip("/")
        if path.is_dir():
            path /= "index.html"
        if not path.is_file():
            wrong.append(f"{link}: no such page")
        elif fragment and path.suffix == ".html" and not has_id(path, unquote(fragment)):
            wrong.append(f"{link}: no such place on that page")
    return wrong


@functools.cache
def ids_on(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))


def has_id(path: Path, fragment: str) -> bool:
    return fragment in ids_on(path)


def axe_finds_nothing_grave(visit: Visit) -> list[str]:
    """The axe rules find nothing that keeps a reader out."""
    violations = Axe().run(visit.page).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {v['nodes'][0]['html'][:200]}"
        for v in violations
        if v["impact"] in GRAVE
    ]


CHECKS: tuple[Callable[[Visit], list[str]], ...] = (
    no_foreign_request,
    no_failed_response,
    no_console_error,
    no_sideways_overflow,
    images_loaded,
    alt_says_something,
    one_rendering_a_mode,
    figures_are_whole,
    axe_finds_nothing_grave,
)
#: What does not depend on width and mode is looked at once a page.
ONCE = (downloads_come, links_lead_somewhere)


# ---------------------------------------------------------------- the book


@pytest.mark.parametrize("path", pages_of_the_book())
def test_page(visits: dict[tuple[int, str], Visit], path: str) -> None:
    wrong = []
    for (width, mode), visit in visits.items():
        first = (width, mode) == (WIDTHS[0], MODES[0])
        visit.open(path, settle=first)  # what is fetched late does not depend on the mode
        for check in CHECKS + (ONCE if first else ()):
            wrong += [f"{width} px, {mode}, {check.__name__}: {what}" for what in check(visit)]
    assert not wrong, "\n".join(wrong)


def test_the_first_page_leads_to_the_book(visits: dict[tuple[int, str], Visit]) -> None:
    visit = visits[WIDTHS[0], MODES[0]]
    first = pages_of_the_book()[0]
    visit.page.goto(f"{visit.origin}/")
    visit.page.wait_for_url(f"{visit.origin}/{first}")


def test_paper_is_light(visits: dict[tuple[int, str], Visit]) -> None:
    visit = visits[WIDTHS[0], "dark"]
    visit.open(pages_of_the_book()[1])
    visit.page.emulate_media(media="print", color_scheme="dark")
    assert visit.page.locator("figure").count() > 0
    assert one_rendering_a_mode(dataclasses.replace(visit, mode="light")) == []
    assert one_rendering_a_mode(visit) != []
    visit.page.emulate_media(media="screen", color_scheme="dark")
    assert one_rendering_a_mode(visit) == []


def test_every_page_is_visited(built_book: Path) -> None:
    made = {path.relative_to(built_book).as_posix() for path in built_book.rglob("*.html")}
    assert made - {"index.html"} == set(pages_of_the_book())


def test_search_finds_a_page(visits: dict[tuple[int, str], Visit]) -> None:
    visit = visits[WIDTHS[0], MODES[0]]
    visit.open("search.html?q=page")
    visit.page.wait_for_selector("#search-results li a", timeout=10_000)
    assert no_foreign_request(visit) == []
    assert no_console_error(visit) == []


# ---------------------------------------------------------------- pages made to be wrong

GOOD_FIGURE = """<figure id="fig-a"><div class="kv-scroll" role="region" tabindex="0"
aria-label="Drawing fig-a"><img class="only-light" src="a.svg" width="40" height="40"
alt="A square shows that this page is as it should be."></div>
<figcaption><p><span class="caption-text">A square, as it should be.</span></p>
<p class="kv-downloads"><a href="figures/fig-a.svg">svg</a> <a href="figures/fig-a.png">png</a>
<a href="figures/fig-a.csv">csv</a> <a href="figures/fig-a.bib">bib</a>
<a href="figures/fig-a.json">json</a></p></figcaption></figure>"""
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"></head>
<body><main><h1>A page</h1><article>{body}</article></main></body></html>"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><path d="M0 0h9v9z"/></svg>'
ALT = 'alt="A square shows that this page is as it should be."'

WRONG: dict[str, tuple[Callable[[Visit], list[str]], str, str]] = {
    "script from elsewhere": (
        no_foreign_request,
        '<script src="http://elsewhere.invalid/a.js"></script>',
        "elsewhere.invalid",
    ),
    "fetch from elsewhere": (
        no_foreign_request,
        "<script>fetch('http://elsewhere.invalid/b').catch(() => 0)</script>",
        "elsewhere.invalid/b",
    ),
    "font from elsewhere": (
        no_foreign_request,
        "<style>@font-face{font-family:x;src:url(http://elsewhere.invalid/f)}h1{font-family:x}"
        "</style>",
        "elsewhere.invalid/f",
    ),
    "missing file": (no_failed_response, '<script src="none.js"></script>', "none.js: 404"),
    "console error": (no_console_error, "<script>console.error('broken')</script>", "broken"),
    "exception": (no_console_error, "<script>throw new Error('thrown')</script>", "thrown"),
    "wide block": (
        no_sideways_overflow,
        '<div style="width: 600px">wide</div>',
        "px in a window of 390 px",
    ),
    "long word": (no_sideways_overflow, "<p>" + "x" * 200 + "</p>", "px in a window of 390 px"),
    "broken image": (images_loaded, f'<img src="none.png" {ALT}>', "none.png"),
    "no alt": (
        alt_says_something,
        GOOD_FIGURE.replace("alt=", "data-alt="),
        "a.svg: alt is None",
    ),
    "alt of a hash": (
        alt_says_something,
        GOOD_FIGURE.replace(ALT, 'alt="../_images/0a1b2c.png"'),
        "0a1b2c",
    ),
    "two drawings": (
        one_rendering_a_mode,
        GOOD_FIGURE.replace("</div>", f'<img class="only-dark" src="a.svg" {ALT}></div>'),
        "fig-a: 2 drawings",
    ),
    "no drawing": (
        one_rendering_a_mode,
        GOOD_FIGURE.replace("<img", '<img style="display: none"'),
        "fig-a: 0 drawings",
    ),
    "drawing of the other mode": (
        one_rendering_a_mode,
        GOOD_FIGURE.replace("only-light", "only-dark"),
        "1 drawings, only-dark",
    ),
    "no caption": (
        figures_are_whole,
        GOOD_FIGURE.replace("A square, as it should be.", ""),
        "fig-a lacks a caption",
    ),
    "no id": (
        figures_are_whole,
        GOOD_FIGURE.replace('<figure id="fig-a">', "<figure>"),
        "figure lacks an id",
    ),
    "no keyboard": (
        figures_are_whole,
        GOOD_FIGURE.replace(' tabindex="0"', "").replace('\ntabindex="0"', ""),
        "a scroll box",
    ),
    "no data": (
        figures_are_whole,
        GOOD_FIGURE.replace('<a href="figures/fig-a.csv">csv</a>', ""),
        "a download of csv",
    ),
    "lost download": (
        downloads_come,
        GOOD_FIGURE.replace("fig-a.csv", "fig-b.csv"),
        "fig-b.csv: 404",
    ),
    "link to nowhere": (links_lead_somewhere, '<a href="none.html">a</a>', "no such page"),
    "link to no place": (links_lead_somewhere, '<a href="#none">a</a>', "no such place"),
    "faint text": (
        axe_finds_nothing_grave,
        '<p style="color: #ddd; background: #fff">faint</p>',
        "color-contrast (serious)",
    ),
    "list of no items": (
        axe_finds_nothing_grave,
        '<div role="list"><div role="doc-biblioentry">a</div></div>',
        "aria-required-children (critical)",
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """A narrow window on a folder of pages made to be wrong, one of them made right."""
    folder = tmp_path_factory.mktemp("doctored")
    (folder / "figures").mkdir()
    (folder / "a.svg").write_text(SVG, encoding="utf-8")
    for end in ("svg", "png", "csv", "bib", "json"):
        (folder / "figures" / f"fig-a.{end}").write_text(SVG, encoding="utf-8")
    (folder / "good.html").write_text(PAGE.format(body=GOOD_FIGURE), encoding="utf-8")
    for name, (_, body, _) in WRONG.items():
        file = folder / f"{name.replace(' ', '-')}.html"
        file.write_text(PAGE.format(body=body), encoding="utf-8")
    server = serve(folder)
    visit = new_visit(browser, folder, f"http://127.0.0.1:{server.server_port}", 390, "light")
    yield visit
    visit.page.context.close()
    server.shutdown()


def test_a_good_page_passes_every_check(doctored: Visit) -> None:
    doctored.open("good.html")
    assert {check.__name__: check(doctored) for check in CHECKS + ONCE} == {
        check.__name__: [] for check in CHECKS + ONCE
    }


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    check, _, message = WRONG[name]
    doctored.open(f"{name.replace(' ', '-')}.html")
    assert message in "\n".join(check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {check for check, _, _ in WRONG.values()} == set(CHECKS + ONCE)
