"""How many bytes a page asks for, to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, Page, Response

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
