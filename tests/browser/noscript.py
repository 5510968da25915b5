"""A page in a browser that runs no script: all but search, copying and hovering is there."""

from __future__ import annotations

from collections.abc import Callable

from browser.driver import Visit

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
