"""What every page of the book must be: whole, quiet, within the window, and readable by all.

Each check returns what is wrong with a page that was opened.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from browser.driver import Visit

#: A window of 1280 px enlarged four times (WCAG 1.4.10).
REFLOW_WIDTH = 320
#: The distances that a reader may set (WCAG 1.4.12), and letters twice as large (1.4.4).
SPACING = """* { line-height: 1.5 !important; letter-spacing: 0.12em !important;
word-spacing: 0.16em !important; } p { margin-bottom: 2em !important; }"""
LARGE = "html { font-size: 200% !important; }"
#: A reader's machine need not have the typeface of this one: what has to fit has to fit in a wide
#: one too, which `.ci/run` sees to.
WIDE_TYPEFACE = """:root { --pst-font-family-base: "DejaVu Sans", Verdana, sans-serif !important;
--pst-font-family-heading: "DejaVu Sans", Verdana, sans-serif !important; }"""
#: What changes bit by bit is measured when it has changed, not on its way.
AT_ONCE = "*, *::before, *::after { transition: none !important; animation: none !important; }"
SAYS_NOTHING = {"here", "click here", "link", "this", "more", "read more", "this page", ""}


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
    """Every image that is seen comes, with a width; what is fetched late is fetched now."""
    found: list[str] = visit.page.evaluate(
        """async () => {
          const wrong = [];
          for (const i of [...document.images].filter((i) => i.checkVisibility())) {
            i.loading = "eager";
            await i.decode().catch(() => 0);
            if (!i.complete || i.naturalWidth === 0) wrong.push(i.outerHTML);
          }
          return wrong;
        }"""
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


def links_say_where(visit: Visit) -> list[str]:
    """Every link has a name, and the name says where it leads."""
    links: list[tuple[str, str]] = visit.page.evaluate(
        """() => [...document.querySelectorAll("a[href]")].filter((a) => a.checkVisibility())
          .map((a) => [a.getAttribute("href"), (a.getAttribute("aria-label") || a.title ||
             a.textContent + [...a.querySelectorAll("img")].map((i) => i.alt).join(" ")).trim()])"""
    )
    return [
        f"the link to {href} is called {name!r}"
        for href, name in links
        if name.lower().strip(" .") in SAYS_NOTHING
    ]


def has_a_title(visit: Visit) -> list[str]:
    """The window's title is the page's name and the book's."""
    title = visit.page.title()
    heading: str = visit.page.evaluate(
        """() => [...document.querySelectorAll("h1")].filter((h) => h.checkVisibility())
          .map((h) => h.textContent).join(" ")"""
    )
    words = set(re.findall(r"\w+", title.lower()))
    if words & set(re.findall(r"\w+", heading.lower())):
        return []
    return [f"title {title!r} has no word of the heading {heading!r}"]


def _at(visit: Visit, css: str, width: int) -> list[str]:
    """What is too wide in a window of a width with a style put on top.

    The style stands before the window changes, so that neither change takes any time.
    """
    page = visit.page
    before = page.viewport_size
    assert before is not None
    handle = page.add_style_tag(content=AT_ONCE + css)
    try:
        page.set_viewport_size({"width": width, "height": before["height"]})
        return no_sideways_overflow(visit)
    finally:
        handle.evaluate("(e) => e.remove()")
        page.set_viewport_size(before)


def reflows(visit: Visit) -> list[str]:
    """In a window of 320 px nothing has to be scrolled sideways to be read (1.4.10)."""
    return _at(visit, WIDE_TYPEFACE, REFLOW_WIDTH)


def bears_large_letters(visit: Visit) -> list[str]:
    """With letters twice as large the page is still no wider than its window (1.4.4)."""
    return _at(visit, WIDE_TYPEFACE + LARGE, visit.width)


def bears_wide_spacing(visit: Visit) -> list[str]:
    """With the distances that a reader may set nothing is cut off (1.4.12)."""
    handle = visit.page.add_style_tag(content=AT_ONCE + SPACING)
    try:
        clipped: list[str] = visit.page.evaluate(
            """() => [...document.querySelectorAll("body *")].filter((e) => {
              const s = getComputedStyle(e);
              if (!/hidden|clip/.test(s.overflowX + s.overflowY) || !e.checkVisibility())
                return false;
              // What only a screen reader is to read is a pixel large.
              if (e.clientWidth <= 1 || e.clientHeight <= 1 || !e.textContent.trim()) return false;
              return e.scrollWidth > e.clientWidth + 1 && s.overflowX !== "auto" ||
                e.scrollHeight > e.clientHeight + 1 && /hidden|clip/.test(s.overflowY);
            }).map((e) => `cut off: ${e.outerHTML.slice(0, 100)}`)"""
        )
        return no_sideways_overflow(visit) + clipped
    finally:
        handle.evaluate("(e) => e.remove()")


#: What WCAG 2.2 asks at levels A and AA, as far as a program can tell.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
#: Rules that go beyond it and are kept all the same.
MORE_RULES = [
    "aria-text",
    "duplicate-id",
    "empty-heading",
    "heading-order",
    "image-redundant-alt",
    "landmark-banner-is-top-level",
    "landmark-main-is-top-level",
    "landmark-no-duplicate-banner",
    "landmark-no-duplicate-main",
    "landmark-one-main",
    "landmark-unique",
    "page-has-heading-one",
    "region",
    "scope-attr-valid",
    "skip-link",
    "tabindex",
    "table-duplicate-name",
]


def violations(page: Page) -> list[str]:
    """Return what breaks the rules of WCAG 2.2 AA, or some good habits, however mildly."""
    options = {
        "runOnly": {"type": "tag", "values": RULES},
        "rules": {name: {"enabled": True} for name in MORE_RULES},
        "resultTypes": ["violations"],
        # It would fetch style sheets a second time, and those that they import from a wrong place.
        "preload": False,
    }
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {node['html'][:200]}"
        for v in Axe().run(page, options=options).response["violations"]
        for node in v["nodes"][:3]
    ]


def axe_finds_nothing(visit: Visit) -> list[str]:
    """Axe finds nothing wrong with a page."""
    return violations(visit.page)


#: What depends on the width or the mode of the window.
CHECKS: tuple[Callable[[Visit], list[str]], ...] = (
    no_foreign_request,
    no_failed_response,
    no_console_error,
    no_sideways_overflow,
    images_loaded,
    alt_says_something,
    one_rendering_a_mode,
    figures_are_whole,
    axe_finds_nothing,
)
#: What does not is looked at once a page.
ONCE: tuple[Callable[[Visit], list[str]], ...] = (
    downloads_come,
    links_lead_somewhere,
    links_say_where,
    has_a_title,
    reflows,
    bears_large_letters,
    bears_wide_spacing,
)
