"""What a visit loads: the first page, and each page after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.driver import pages_of_the_book, served
from browser.weight import Scales, heaviest, weighing

FIRST_BYTES = 3_000_000
#: Drawings as Matplotlib writes them: the heaviest page has 670 kB of them.
LATER_BYTES = 900_000
#: The page of all figures shows their own drawings, and fetches each as it is scrolled to.
GALLERY, GALLERY_BYTES = "chapters/figures.html", 4_000_000
#: It loads the traces themselves, to compute with.
HEAVY = "chapters/explorer.html"


@pytest.fixture(scope="module")
def scales(browser: Browser, built_book: Path) -> Iterator[Scales]:
    with served(built_book) as origin, weighing(browser, built_book, origin) as found:
        yield found


@pytest.fixture(scope="module")
def first(scales: Scales) -> dict[str, int]:
    return scales.weigh(pages_of_the_book()[0])


def test_the_first_visit_is_light(first: dict[str, int]) -> None:
    assert len(first) > 10
    assert 100_000 < sum(first.values()) < FIRST_BYTES, heaviest(first)


@pytest.mark.parametrize("path", [page for page in pages_of_the_book()[1:] if page != HEAVY])
def test_a_later_page_is_light(scales: Scales, first: dict[str, int], path: str) -> None:
    fetched = {url: size for url, size in scales.weigh(path).items() if url not in first}
    assert any(url.endswith(path) for url in fetched)
    most = GALLERY_BYTES if path == GALLERY else LATER_BYTES
    assert sum(fetched.values()) < most, heaviest(fetched)


def test_the_gallery_fetches_what_is_looked_at(browser: Browser, built_book: Path) -> None:
    with served(built_book) as origin, weighing(browser, built_book, origin) as found:
        found.page.goto(f"{origin}/{GALLERY}", wait_until="networkidle")
        before = sum(found.fetched.values())
        assert 0 < before < sum(found.weigh(GALLERY).values())


def test_what_is_fetched_late_is_weighed(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "late.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg"><!--{"x" * 5000}--></svg>', encoding="utf-8"
    )
    (tmp_path / "index.html").write_text(
        '<!DOCTYPE html><title>a</title><link rel="icon" href="data:,"><p style="height: 9000px">'
        'a</p><img loading="lazy" src="late.svg" width="9" height="9">',
        encoding="utf-8",
    )
    with served(tmp_path) as origin, weighing(browser, tmp_path, origin) as found:
        fetched = found.weigh("index.html")
    sizes = {url.removeprefix(f"{origin}/"): size for url, size in fetched.items()}
    assert sizes == {name: (tmp_path / name).stat().st_size for name in ("index.html", "late.svg")}
