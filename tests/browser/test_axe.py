"""Axe finds nothing on any page, wide and narrow, light and dark; pictures of them are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.axe import axe_finds_nothing
from browser.driver import ROOT, Visit, pages_of_the_book
from browser.made_wrong import Wrong, address, visiting_wrong
from browser.screens import take, write_index

SCREENSHOTS = ROOT / "_build" / "screenshots"


@pytest.fixture(scope="module")
def screenshots() -> Iterator[Path]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    yield SCREENSHOTS
    write_index(SCREENSHOTS, pages_of_the_book())


@pytest.mark.parametrize("path", pages_of_the_book())
def test_page(visits: dict[tuple[int, str], Visit], screenshots: Path, path: str) -> None:
    wrong = []
    for (width, mode), visit in visits.items():
        visit.open(path, settle=False)
        wrong += [f"{width} px, {mode}: {what}" for what in axe_finds_nothing(visit)]
        take(visit, path, screenshots)
    assert not wrong, "\n".join(wrong)


WRONG = {
    "faint text": Wrong(
        axe_finds_nothing,
        '<p style="color: #ddd; background: #fff">faint</p>',
        "color-contrast (serious)",
    ),
    "list of no items": Wrong(
        axe_finds_nothing,
        '<div role="list"><div role="doc-biblioentry">a</div></div>',
        "aria-required-children (critical)",
    ),
    "level skipped": Wrong(axe_finds_nothing, "<h2>A</h2><h4>B</h4>", "heading-order (moderate)"),
    "small target": Wrong(
        axe_finds_nothing,
        '<p><button style="all: unset; width: 9px; height: 9px" aria-label="a">.</button>'
        '<button style="all: unset; width: 9px; height: 9px" aria-label="b">.</button></p>',
        "target-size (serious)",
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    with visiting_wrong(browser, tmp_path_factory.mktemp("wrong"), WRONG) as visit:
        yield visit


def test_a_good_page_passes_every_check(doctored: Visit) -> None:
    doctored.open("good.html")
    assert {check.__name__: check(doctored) for check in (axe_finds_nothing,)} == {
        check.__name__: [] for check in (axe_finds_nothing,)
    }


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {page.check for page in WRONG.values()} == {axe_finds_nothing}
