"""Every page without JavaScript: wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.driver import MODES, WIDTHS, Visit, new_visit, pages_of_the_book, served
from browser.made_wrong import GOOD_FIGURE, Wrong, address, visiting_wrong
from browser.whole import no_foreign_request, no_sideways_overflow, one_rendering_a_mode

#: What the reading of text needs (WCAG 1.4.3).
LEAST_CONTRAST = 4.5
LIGHTNESS = """
  const number = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = number(colour).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, two) => {
    const [high, low] = [light(one), light(two)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (e) => {
    for (let p = e; p; p = p.parentElement) {
      const colour = number(getComputedStyle(p).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return getComputedStyle(p).backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
"""


def paper_has_the_mode(visit: Visit) -> list[str]:
    """The page is light or dark as the reader's system asks for it."""
    lightness: float = visit.page.evaluate(
        f"() => {{ {LIGHTNESS} return light(ground(document.querySelector('article, main'))); }}"
    )
    is_light = lightness > 0.5
    return [] if is_light == (visit.mode == "light") else [f"the paper's lightness is {lightness}"]


def words_are_readable(visit: Visit) -> list[str]:
    """Prose, code, tables, links and formulas stand out from what they lie on."""
    found: list[str] = visit.page.evaluate(
        f"""(least) => {{ {LIGHTNESS}
          const words = "p, li, td, th, dt, dd, a, span, code, pre, summary, h1, h2, h3, mi, mn";
          const shown = {{visibilityProperty: true}};
          return [...document.querySelectorAll(words)].filter((e) => e.checkVisibility(shown) &&
            [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) &&
            // A pixel large: for screen readers.
            e.getBoundingClientRect().width > 1)
            .map((e) => [e, contrast(getComputedStyle(e).color, ground(e))])
            .filter(([e, c]) => c < least).slice(0, 5)
            .map(([e, c]) => `${{c.toFixed(1)}}: ${{e.outerHTML.slice(0, 90)}}`); }}""",
        LEAST_CONTRAST,
    )
    return found


def pages_are_linked(visit: Visit) -> list[str]:
    """The other pages can be gone to, and a narrow page says at its head where the list is."""
    shown: int = visit.page.evaluate(
        """() => [...document.querySelectorAll("nav a[href]")].filter((a) => a.checkVisibility()
          && a.getBoundingClientRect().left >= 0 &&
          a.getBoundingClientRect().right <= innerWidth).length"""
    )
    wrong = [] if shown >= 10 else [f"{shown} links to other pages are shown"]
    narrow = visit.width < 992
    link = visit.page.locator("a.kv-all-pages:visible")
    if narrow and not link.count():
        wrong.append("nothing at the head leads to the list of pages")
    elif narrow:
        target = link.first.get_attribute("href") or "#"
        if not visit.page.locator(target).is_visible():
            wrong.append(f"{target} is not shown")
    return wrong


def formulas_are_shown(visit: Visit) -> list[str]:
    """Every formula has a place on the page, and is not its source."""
    found: list[str] = visit.page.evaluate(
        """() => [...document.querySelectorAll("article math, article .math")].filter((m) => {
          const r = m.getBoundingClientRect();
          return r.width < 3 || r.height < 3 || /\\\\[a-z(]/.test(m.textContent);
        }).map((m) => m.outerHTML.slice(0, 120))"""
    )
    return found


def nothing_is_dead(visit: Visit) -> list[str]:
    """No button is shown that does nothing; one in a menu opens that menu by having the focus."""
    found: list[str] = visit.page.evaluate(
        """() => [...document.querySelectorAll("main button, header button, input, select")]
          .filter((e) => e.checkVisibility() && e.getClientRects().length)
          .filter((e) => !e.closest(".dropdown"))
          .map((e) => e.outerHTML.slice(0, 90))"""
    )
    for menu in visit.page.locator(".dropdown:visible").all():
        menu.locator("button").first.focus()
        if not menu.locator("a:visible").count():
            found.append(f"a menu that does not open: {menu.inner_html()[:90]}")
    return found


def folds_open_by_themselves(visit: Visit) -> list[str]:
    """What is folded is of the kind that a browser unfolds."""
    wrong: list[str] = visit.page.evaluate(
        """() => [...document.querySelectorAll("article .toggle, article .tag_hide-input, "
          + "article .tag_hide-cell, article .tag_hide-output")]
          .filter((e) => !e.querySelector("details > summary"))
          .map((e) => e.outerHTML.slice(0, 90))"""
    )
    fold = visit.page.locator("article summary:visible").first
    if visit.page.locator("article summary:visible").count():
        before = fold.evaluate("(e) => e.parentElement.open")
        fold.click()
        if fold.evaluate("(e) => e.parentElement.open") == before:
            wrong.append(f"a fold that does not move: {fold.text_content()}")
    return wrong


def says_what_needs_scripts(visit: Visit) -> list[str]:
    """What cannot be without scripts says so, in words that are seen."""
    needs = visit.page.locator("#kvledger-explorer, #search-results").count()
    if not needs:
        return []
    text: str = visit.page.locator("main").inner_text()
    return [] if "JavaScript" in text else ["nothing says that the page needs JavaScript"]


NOSCRIPT_CHECKS: tuple[Callable[[Visit], list[str]], ...] = (
    paper_has_the_mode,
    words_are_readable,
    pages_are_linked,
    formulas_are_shown,
    nothing_is_dead,
    folds_open_by_themselves,
    says_what_needs_scripts,
)


CHECKS = (*NOSCRIPT_CHECKS, no_foreign_request, no_sideways_overflow, one_rendering_a_mode)


@pytest.fixture(scope="module")
def scriptless(browser: Browser, built_book: Path) -> Iterator[list[Visit]]:
    with served(built_book) as origin:
        found = [
            new_visit(browser, built_book, origin, width, mode, java_script_enabled=False)
            for width in WIDTHS
            for mode in MODES
        ]
        yield found
        for visit in found:
            visit.page.context.close()


@pytest.mark.parametrize("path", pages_of_the_book())
def test_page(scriptless: list[Visit], path: str) -> None:
    wrong = []
    for visit in scriptless:
        visit.open(path, settle=False)
        for check in CHECKS:
            wrong += [
                f"{visit.width} px, {visit.mode}, {check.__name__}: {what}" for what in check(visit)
            ]
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- pages made to be wrong
PAGES = '<a class="kv-all-pages" href="#n">All pages</a><nav id="n">{}</nav>'.format(
    "".join(f'<a href="#{i}">{i}</a> ' for i in range(10))
)
WRONG = {
    "dark paper": Wrong(
        paper_has_the_mode, "<style>body { background: #111; color: #eee }</style>", "lightness"
    ),
    "black on grey": Wrong(
        words_are_readable, '<pre style="background: #505050; color: #000">code</pre>', "<pre style"
    ),
    "no pages": Wrong(pages_are_linked, "<nav></nav>", "0 links to other pages"),
    "pages off the page": Wrong(
        pages_are_linked,
        PAGES.replace("<nav", '<nav style="position: fixed; left: -500px"'),
        "0 links to other pages",
    ),
    "no way to the pages": Wrong(
        pages_are_linked, PAGES.replace("kv-all-pages", "x"), "nothing at the head"
    ),
    "source of a formula": Wrong(
        formulas_are_shown, r'<span class="math">\(p \le 4\)</span>', r"\(p \le 4\)"
    ),
    "formula without height": Wrong(
        formulas_are_shown, "<math><mphantom></mphantom></math>", "<math>"
    ),
    "dead button": Wrong(nothing_is_dead, "<button>Open</button>", "<button>Open"),
    "menu that stays shut": Wrong(
        nothing_is_dead,
        '<div class="dropdown"><button>b</button><a href="#a" hidden>a</a></div>',
        "a menu that does not open",
    ),
    "fold that a script opens": Wrong(
        folds_open_by_themselves, '<div class="toggle">a</div>', 'class="toggle"'
    ),
    "silent search": Wrong(
        says_what_needs_scripts, '<div id="search-results"></div>', "needs JavaScript"
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("wrong")
    with visiting_wrong(browser, folder, WRONG, java_script_enabled=False) as visit:
        (folder / "right.html").write_text(
            (folder / "good.html").read_text(encoding="utf-8").replace(GOOD_FIGURE, GOOD),
            encoding="utf-8",
        )
        yield visit


GOOD = f"""{GOOD_FIGURE}{PAGES}<p>See <a href="#n">all</a>, <a href="#n"
title="a.b: computed"><span class="kv-number">4</span></a> and
<math><mi>p</mi><mo>=</mo><mn>4</mn></math>.</p>
<details><summary>More</summary>of it</details>"""


def test_a_good_page_passes_every_check(doctored: Visit) -> None:
    doctored.open("right.html")
    assert [what for check in CHECKS for what in check(doctored)] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {page.check for page in WRONG.values()} == set(NOSCRIPT_CHECKS)
