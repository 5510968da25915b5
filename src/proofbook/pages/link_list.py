"""Every link that leaves the book: listed at each build, and checked when someone asks.

The list, ``links.json``, is made of the finished pages and needs no network. The check does, so it
is a command of its own: ``python -m proofbook.build linkcheck``.
"""

# Sphinx and Jupyter Book ship no types, or not all of them.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urldefrag

from sphinx.application import Sphinx

from proofbook.build.sphinx_runs import run_sphinx
from proofbook.project import source_digest, this_project

__all__ = ["Checked", "check_links", "external_links", "links_of", "setup"]

LINKS = "links.json"
#: What Sphinx calls a link that did not work.
BROKEN = {"broken", "timeout"}


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href") or ""
        if tag == "a" and href.startswith(("http://", "https://")):
            self.found[href] = None


def links_of(page: str) -> list[str]:
    """Return the addresses on other hosts to which a page links, in order, each once.

    Parameters
    ----------
    page : str
        HTML.

    Examples
    --------
    >>> links_of('<a href="https://a.example/x#y">A</a> <a href="notes.html">B</a>')
    ['https://a.example/x#y']
    """
    parser = _Links()
    parser.feed(page)
    return list(parser.found)


def external_links(folder: Path) -> dict[str, list[str]]:
    """Return every address to which finished pages link, with those pages.

    Parameters
    ----------
    folder : Path
        The book's HTML.

    Returns
    -------
    dict
        Sorted: address -> pages, as they are named below `folder`.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.relative_to(folder).parts:
            continue  # a piece of the theme, which is no page
        for address in links_of(path.read_text(encoding="utf-8")):
            found.setdefault(address, set()).add(path.relative_to(folder).as_posix())
    return {address: sorted(pages) for address, pages in sorted(found.items())}


def _finish(app: Sphinx, error: Exception | None) -> None:
    """List the links of the pages that were just made."""
    if error is not None or app.builder is None or app.builder.name != "html":
        return
    links = [
        {"url": url, "pages": pages} for url, pages in external_links(Path(app.outdir)).items()
    ]
    listing: Mapping[str, Any] = {
        "project": this_project().name,
        "version": this_project().version,
        "source_digest": source_digest(),
        "links": links,
    }
    text = json.dumps(listing, indent=1, ensure_ascii=False) + "\n"
    (Path(app.outdir) / LINKS).write_text(text, encoding="utf-8")


class Checked(NamedTuple):
    """What a check of all links found: how many there are, and what is wrong with which."""

    links: int
    broken: tuple[str, ...]


def check_links(root: Path, folder: Path) -> Checked:
    """Ask for every address to which a page links, with Sphinx's own checker.

    Parameters
    ----------
    root : Path
        The folder that holds ``_config.yml``; its notebooks have been run.
    folder : Path
        Where the checker writes; what was there goes.

    Returns
    -------
    Checked
        One line for each broken link: source, line, address and what came instead.

    Raises
    ------
    ValueError
        If the pages could not be read at all.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, said = run_sphinx(root, folder / "out", folder / "doctrees", builder="linkcheck")
    report = folder / "out" / "output.json"
    if isinstance(result, BaseException) or not report.is_file():
        raise ValueError(f"the pages could not be read: {result}\n{said}")
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    addresses = {urldefrag(line["uri"]).url for line in lines if line["uri"].startswith("http")}
    broken = sorted(
        f"{line['filename']}, line {line['lineno']}: {line['uri']}: {line['info'] or 'no answer'}"
        for line in lines
        if line["status"] in BROKEN
    )
    return Checked(len(addresses), tuple(broken))


def setup(app: Sphinx) -> dict[str, Any]:
    """List the links at the end of each build."""
    # After everything that still writes pages or takes some away.
    app.connect("build-finished", _finish, priority=980)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
