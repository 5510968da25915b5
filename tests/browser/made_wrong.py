"""Pages made to be wrong, each for one check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser

from browser.driver import Visit, visiting


class Wrong(NamedTuple):
    """A page that a check must not pass: what its body is, and what the check says of it."""

    check: Callable[..., list[str]]
    body: str
    says: str


GOOD_FIGURE = """<figure id="fig-a"><div class="kv-scroll" role="region" tabindex="0"
aria-label="Drawing fig-a"><img class="only-light" src="a.svg" width="40" height="40"
alt="A square shows that this page is as it should be."></div>
<figcaption><p><span class="caption-text">A square, as it should be.</span></p>
<p class="kv-downloads"><a href="figures/fig-a.svg">svg</a> <a href="figures/fig-a.png">png</a>
<a href="figures/fig-a.csv">csv</a> <a href="figures/fig-a.bib">bib</a>
<a href="figures/fig-a.json">json</a></p></figcaption></figure>"""
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"></head>
<body><main><h1>A page</h1><article>{body}</article></main></body></html>"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><path d="M0 0h9v9z"/></svg>'
ALT = 'alt="A square shows that this page is as it should be."'


def write_pages(folder: Path, bodies: Mapping[str, str]) -> None:
    """Write a folder of pages by name, a good one among them, and the files of the one figure."""
    (folder / "figures").mkdir()
    (folder / "a.svg").write_text(SVG, encoding="utf-8")
    for end in ("svg", "png", "csv", "bib", "json"):
        (folder / "figures" / f"fig-a.{end}").write_text(SVG, encoding="utf-8")
    for name, body in {"good": GOOD_FIGURE, **bodies}.items():
        (folder / address(name)).write_text(PAGE.replace("{body}", body), encoding="utf-8")


def address(name: str) -> str:
    """Return the file name of a page by its name."""
    return f"{name.replace(' ', '-')}.html"


@contextmanager
def visiting_wrong(
    browser: Browser, folder: Path, wrong: Mapping[str, Wrong], **options: Any
) -> Iterator[Visit]:
    """Open a narrow window on a folder of pages made to be wrong, and one made right."""
    write_pages(folder, {name: page.body for name, page in wrong.items()})
    with visiting(browser, folder, 390, "light", **options) as visit:
        yield visit
