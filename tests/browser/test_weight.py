"""What a visit loads: the first page, and each page after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Response

from browser.driver import pages_of_the_book, served

SCROLL = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight / 2) {
    scrollTo(0, y);
    await new Promise((done) => setTimeout(done, 20));
  }
}"""


class Scales:
    """A window that adds up the size, uncompressed, of all files that a page asks for."""

    def __init__(self, page: Page, folder: Path, origin: str) -> None:
        self.page, self.folder, self.origin = page, folder, origin
        self.fetched: dict[str, int] = {}
        page.on("response", self._note)

    def _note(self, response: Response) -> None:
        if not response.url.startswith(self.origin):
            return
        path = self.folder / unquote(urlsplit(response.url).path).lstrip("/")
        path = path / "index.html" if path.is_dir() else path
        self.fetched[response.url] = path.stat().st_size if path.is_file() else 0

    def weigh(self, path: str) -> dict[str, int]:
        """Open a page, go to its end, and return what was fetched, in bytes."""
        self.fetched = {}
        self.page.goto(f"{self.origin}/{path}", wait_until="networkidle")
        self.page.evaluate(SCROLL)
        self.page.wait_for_load_state("networkidle")
        return self.fetched


@contextmanager
def weighing(browser: Browser, folder: Path, origin: str) -> Iterator[Scales]:
    """Open a window that has fetched nothing yet."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    yield Scales(context.new_page(), folder, origin)
    context.close()


def heaviest(fetched: dict[str, int]) -> str:
    """Name the files that weigh most."""
    most = sorted(fetched.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{urlsplit(url).path} {size}" for url, size in most)


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
        assert 0 < sum(found.fetched.values()) < sum(found.weigh(GALLERY).values())


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
