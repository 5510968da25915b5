"""Every page by keyboard alone: forwards in a wide window, backwards in a narrow one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser

from browser.driver import Visit, pages_of_the_book
from browser.keyboard import (
    PRESS_CHECKS,
    WALK_CHECKS,
    Walk,
    everything_is_reached,
    focus_gets_out,
    focus_is_not_covered,
    focus_is_seen,
    folds_open,
    menus_open_and_close,
    nothing_hidden_is_reached,
    order_is_that_of_the_page,
    overlays_open_and_close,
    skip_link_skips,
    walk,
)
from browser.made_wrong import Wrong, address, visiting_wrong


@pytest.mark.parametrize("path", pages_of_the_book())
def test_page(visits: dict[tuple[int, str], Visit], path: str) -> None:
    wrong = []
    # Backwards the head of the page, which stays, lies over what has the focus, if anything does.
    for window, key in (((1400, "light"), "Tab"), ((390, "dark"), "Shift+Tab")):
        visit = visits[window]
        visit.open(path)
        for press in PRESS_CHECKS:
            wrong += [f"{window}, {press.__name__}: {what}" for what in press(visit)]
        visit.open(path)
        taken = walk(visit, key)
        for check in WALK_CHECKS:
            wrong += [f"{window}, {key}, {check.__name__}: {what}" for what in check(taken)[:8]]
    assert not wrong, "\n".join(wrong)


def test_what_slides_in_is_there_to_be_opened(visits: dict[tuple[int, str], Visit]) -> None:
    visit = visits[390, "dark"]
    visit.open(pages_of_the_book()[1])
    for name in ("primary-toggle", "secondary-toggle", "search-button"):
        assert visit.page.locator(f"button.{name}:visible").count() == 1, name
    assert visit.page.locator(".dropdown:visible").count() == 1


# ---------------------------------------------------------------- pages made to be wrong


class WrongWalk(NamedTuple):
    check: Callable[[Walk], list[str]]
    body: str
    says: str


WRONG_WALKS = {
    "reached by the pointer alone": WrongWalk(
        everything_is_reached,
        '<p><a href="#a">a</a> <a href="#b" id="b">b</a></p><script>'
        "document.addEventListener('keydown', (e) => { if (e.key === 'Tab' && document"
        ".activeElement.textContent === 'a') { e.preventDefault(); document.activeElement.blur();"
        " } })</script>",
        'a#b "b" is not reached',
    ),
    "hidden and reached": WrongWalk(
        nothing_hidden_is_reached,
        '<div style="width: 0; height: 0; overflow: hidden; position: absolute">'
        '<a href="#a" style="display: contents">a</a></div><p><a href="#b">b</a></p>'
        '<script>document.querySelector("[href=\'#b\']").addEventListener("focus", () => {'
        'const e = document.body.appendChild(document.createElement("button")); e.id = "late";'
        "e.focus(); })</script>",
        "button#late",
    ),
    "trap": WrongWalk(
        focus_gets_out,
        '<p><a href="#a">a</a> <input aria-label="b" onblur="this.focus()"></p>'
        "<script>document.querySelector('input').addEventListener('keydown', (e) => {"
        "if (e.key === 'Tab') e.preventDefault(); })</script>",
        "input",
    ),
    "order of its own": WrongWalk(
        order_is_that_of_the_page,
        '<p><a href="#a">a</a> <a href="#b" tabindex="2">b</a></p>',
        'a "a" has the focus after a "b"',
    ),
    "no ring": WrongWalk(
        focus_is_seen,
        '<style>a:focus { outline: none }</style><p><a href="#a">a</a></p>',
        'a "a": its mark has a contrast of 0.0',
    ),
    "faint ring": WrongWalk(
        focus_is_seen,
        '<style>a:focus { outline: 2px solid #ddd }</style><p><a href="#a">a</a></p>',
        'a "a": its mark has a contrast of 1.',
    ),
    "transparent": WrongWalk(
        focus_is_seen,
        '<p><a href="#a" style="opacity: 0">a</a></p>',
        'a "a": its mark has a contrast of 0.0',
    ),
    "under the head": WrongWalk(
        focus_is_not_covered,
        '<div style="position: fixed; inset: 0; background: white">above</div>'
        '<p><a href="#a">a</a></p>',
        'a "a": it lies under div',
    ),
}
DIALOG = '<dialog id="pst-search-dialog"><input aria-label="q"></dialog>'
BUTTON = '<button class="search-button" onclick="{}">Search</button>'
OPENS = "document.querySelector('dialog').showModal()"
MENU = (
    '<div class="dropdown"><button data-bs-toggle="dropdown" aria-expanded="false" {}>Menu</button>'
    '<div class="dropdown-menu"><a href="#a">a</a></div></div>'
)
WRONG = {
    "dead button": Wrong(
        overlays_open_and_close, DIALOG + BUTTON.format(""), "search: Enter does not open it"
    ),
    "dialog that stays": Wrong(
        overlays_open_and_close,
        DIALOG.replace("<dialog", '<dialog oncancel="event.preventDefault()"')
        + BUTTON.format(OPENS),
        "search: Escape does not close it",
    ),
    "dialog that loses the focus": Wrong(
        overlays_open_and_close,
        '<a href="#x" id="x">x</a>'
        + DIALOG.replace("<dialog", '<dialog onfocusin="document.getElementById(`x`).focus()"')
        + BUTTON.format(OPENS.replace("showModal", "show")),
        "search: the focus leaves it",
    ),
    "menu that stays shut": Wrong(
        menus_open_and_close, MENU.format(""), "Menu: Enter does not open it"
    ),
    "menu that stays open": Wrong(
        menus_open_and_close,
        MENU.format("onclick=\"this.setAttribute('aria-expanded', 'true')\""),
        "Menu: Escape does not close it",
    ),
    "fold that stays shut": Wrong(
        folds_open,
        "<details><summary onclick='event.preventDefault()'>More</summary>text</details>",
        "'More' does not change",
    ),
    "no skip link": Wrong(skip_link_skips, '<a href="#a">a</a>', "the first stop leads to #a"),
    "skip link that is not seen": Wrong(
        skip_link_skips,
        '<a href="#main-content" style="position: absolute; top: -99px">skip</a>',
        "the first stop is not seen",
    ),
    "skip link to the wrong place": Wrong(
        skip_link_skips,
        '<a href="#main-content" style="position: fixed; top: 0">skip</a>'
        '<a href="#b">b</a><div id="main-content"></div>',
        "the stop after it is not in the main part",
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    pages = {**WRONG_WALKS, **WRONG}
    folder = tmp_path_factory.mktemp("wrong")
    with visiting_wrong(browser, folder, pages) as visit:  # type: ignore[arg-type]
        yield visit


@pytest.mark.parametrize("key", ["Tab", "Shift+Tab"])
def test_a_good_page_passes_every_check(doctored: Visit, key: str) -> None:
    doctored.open("good.html")
    taken = walk(doctored, key)
    assert len(taken.steps) == 6  # the box that scrolls, and five downloads
    assert [what for check in WALK_CHECKS for what in check(taken)[:8]] == []


@pytest.mark.parametrize("name", WRONG_WALKS)
def test_a_wrong_walk_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    wrong = WRONG_WALKS[name]
    assert wrong.says in "\n".join(wrong.check(walk(doctored)))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {wrong.check for wrong in WRONG_WALKS.values()} == set(WALK_CHECKS)
    assert {wrong.check for wrong in WRONG.values()} == set(PRESS_CHECKS)
