"""What the tests of the finished pages share: a browser, and windows on the book."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.driver import MODES, WIDTHS, Visit, chromium, new_visit, served, visiting


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visits(browser: Browser, built_book: Path) -> Iterator[dict[tuple[int, str], Visit]]:
    """One window for each width and mode, on the finished book."""
    with served(built_book) as origin:
        found = {
            (width, mode): new_visit(browser, built_book, origin, width, mode)
            for width in WIDTHS
            for mode in MODES
        }
        yield found
        for visit in found.values():
            visit.page.context.close()


@pytest.fixture(scope="module")
def visit(browser: Browser, built_book: Path) -> Iterator[Visit]:
    """A wide, light window on the finished book."""
    with visiting(browser, built_book) as found:
        yield found
