"""Every page without JavaScript: wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.driver import MODES, WIDTHS, Visit, new_visit, pages_of_the_book, served
from browser.made_wrong import GOOD_FIGURE, Wrong, address, visiting_wrong
from browser.noscript import (
    NOSCRIPT_CHECKS,
    folds_open_by_themselves,
    formulas_are_shown,
    nothing_is_dead,
    pages_are_linked,
    paper_has_the_mode,
    says_what_needs_scripts,
    words_are_readable,
)
from browser.whole import (
    no_foreign_request,
    no_sideways_overflow,
    one_rendering_a_mode,
)

CHECKS = (
    *NOSCRIPT_CHECKS,
    no_foreign_request,
    no_sideways_overflow,
    one_rendering_a_mode,
)


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
        words_are_readable,
        '<pre style="background: #505050; color: #000">code</pre>',
        "<pre style",
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
    assert {check.__name__: check(doctored) for check in CHECKS} == {
        check.__name__: [] for check in CHECKS
    }


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {page.check for page in WRONG.values()} == set(NOSCRIPT_CHECKS)
