"""Search, on its page and in its dialog: by words, and by the id of what is cited."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urldefrag

import pytest

from browser.driver import Visit
from browser.whole import has_id, no_console_error, no_foreign_request
from proofbook.catalogue import Catalogue, read_catalogue


@pytest.fixture(scope="module")
def catalogue(built_book: Path) -> Catalogue:
    return read_catalogue(built_book)


def results(visit: Visit, query: str) -> list[str]:
    """Search, and return where the results lead, within the site."""
    visit.open(f"search.html?q={query}")
    visit.page.wait_for_selector("#search-results li a", timeout=15_000)
    links: list[str] = visit.page.locator("#search-results li a").evaluate_all(
        "(links) => links.map((a) => a.href)"
    )
    return [link.removeprefix(f"{visit.origin}/").replace("?highlight=", "#?") for link in links]


def test_search_finds_a_page(visit: Visit) -> None:
    assert results(visit, "page")
    assert no_foreign_request(visit) == []
    assert no_console_error(visit) == []


def test_search_finds_every_figure_and_table_by_its_id(visit: Visit, catalogue: Catalogue) -> None:
    """The first result is the page, and where it names a place, that place is the figure."""
    wrong = []
    for entry in catalogue.entries.values():
        if entry.what == "number":
            continue
        first, place = urldefrag(results(visit, entry.id)[0])
        if first != f"{entry.page}.html":
            wrong.append(f"{entry.id}: found first on {first}")
        elif place != entry.anchor:
            wrong.append(f"{entry.id}: found at {place!r}")
    assert not wrong, "\n".join(wrong)


def test_search_finds_a_number_by_its_id(visit: Visit, catalogue: Catalogue) -> None:
    entry = next(each for each in catalogue.entries.values() if each.what == "number")
    found = [urldefrag(link)[0] for link in results(visit, entry.id)]
    assert {f"{entry.page}.html", "chapters/numbers.html"} & set(found)


def test_the_dialog_leads_to_the_results(visit: Visit, catalogue: Catalogue) -> None:
    page = visit.page
    visit.open("chapters/index.html")
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input").wait_for(state="visible")
    entry = next(each for each in catalogue.entries.values() if each.what == "figure")
    page.keyboard.type(entry.id)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")
    page.wait_for_selector("#search-results li a", timeout=15_000)
    page.locator("#search-results li a").first.click()
    page.wait_for_url(f"**/{entry.page}.html*")
    assert has_id(visit.folder / f"{entry.page}.html", entry.anchor)
