"""A window on the book: opened on a page, and told of all that happens meanwhile."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, sync_playwright

from proofbook.contents import toc_entries

ROOT = Path(__file__).resolve().parent.parent.parent
WIDTHS = (1400, 390)
MODES = ("light", "dark")
#: Pages of the site that no table of contents lists.
OTHERS = ("search.html", "genindex.html", "404.html")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pages_of_the_book() -> list[str]:
    """Return every page that a reader can reach, from the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [f"{name}.html" for name in toc_entries(toc)] + list(OTHERS)


@dataclass
class Visit:
    """A page that was opened, and all that happened meanwhile."""

    page: Page
    folder: Path
    origin: str
    width: int
    mode: str
    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def open(self, path: str, *, settle: bool = True) -> None:
        """Load a page; to settle, wait until nothing has been fetched for half a second."""
        self.foreign.clear()
        self.failed.clear()
        self.console.clear()
        self.page.goto(f"{self.origin}/{path}", wait_until="networkidle" if settle else "load")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that does not write to the test's output."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@functools.cache
def find_chromium() -> str:
    """Return the browser's path; tests fail, and do not skip, without one."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name) if name else None
        if path:
            return path
    pytest.fail("no chromium found: install Debian's chromium, or set CHROMIUM to its path")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and end it."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        try:
            yield found
        finally:
            found.close()


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    """Serve a folder to this machine until `shutdown` is called."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder; give its origin."""
    server = serve(folder)
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def new_visit(
    browser: Browser, folder: Path, origin: str, width: int, mode: str, **options: Any
) -> Visit:
    """Open a window of a width and a colour mode, which may ask one origin and no other."""
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if mode == "dark" else "light",
        **options,
    )
    visit = Visit(context.new_page(), folder, origin, width, mode)

    def request(route: Route, request: Request) -> None:
        if request.url.startswith((origin + "/", "data:", "blob:")):
            route.continue_()
        else:
            visit.foreign.append(request.url)
            route.abort()

    context.route("**/*", request)
    visit.page.on("requestfailed", lambda r: visit.failed.append(f"{r.url}: {r.failure}"))
    visit.page.on(
        "response",
        lambda r: visit.failed.append(f"{r.url}: {r.status}") if r.status >= 400 else None,
    )
    visit.page.on(
        "console",
        lambda m: visit.console.append(m.text) if m.type in {"error", "warning"} else None,
    )
    visit.page.on("pageerror", lambda e: visit.console.append(str(e)))
    return visit


@contextmanager
def visiting(
    browser: Browser, folder: Path, width: int = WIDTHS[0], mode: str = MODES[0], **options: Any
) -> Iterator[Visit]:
    """Serve a folder and open one window on it."""
    with served(folder) as origin:
        visit = new_visit(browser, folder, origin, width, mode, **options)
        try:
            yield visit
        finally:
            visit.page.context.close()
