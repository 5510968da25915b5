"""What the pages that list the book's figures, tables and numbers have in common.

The lists are written from the catalogue, when a page is written: so they can hold neither more nor
less than what the book shows, and a caption that changes changes here too.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective, SphinxRole

from kvledger.book.catalogue import FILES, Catalogue, Entry, read_catalogue
from kvledger.book.contracts import figures_folder

__all__ = [
    "KINDS",
    "ListingDirective",
    "built_catalogue",
    "catalogue_folder",
    "entry_href",
    "figure_label",
    "file_href",
    "kind_text",
    "link",
    "page_label",
    "page_title",
    "setup",
]

#: kind -> what a list says of it; what is cited or measured goes on with its source.
KINDS = {"computed": "computed here", "cited": "cited", "measured": "measured"}


def catalogue_folder() -> Path:
    """Return the folder into which the build wrote the catalogue."""
    return figures_folder().parent


@lru_cache(maxsize=4)
def _read(folder: Path, stamp: tuple[int, ...]) -> Catalogue:
    return read_catalogue(folder)


def built_catalogue() -> Catalogue:
    """Return the catalogue of the book that is being built, read once for each state of its files.

    Raises
    ------
    LedgerError
        If it is not there or cannot be read.
    """
    folder = catalogue_folder()
    files = [folder / name for name in FILES]
    return _read(folder, tuple(p.stat().st_mtime_ns if p.is_file() else 0 for p in files))


def page_title(env: BuildEnvironment, page: str) -> str:
    """Return the first heading of a chapter, from its source: pages are read in any order.

    Parameters
    ----------
    env : BuildEnvironment
        Knows where the sources lie.
    page : str
        Without suffix, such as ``chapters/page_tail_slack``.
    """
    source = Path(env.doc2path(page))
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    heading = next((line for line in text.splitlines() if line.startswith("# ")), "")
    return heading.removeprefix("# ").strip() or posixpath.basename(page)


class ListingDirective(SphinxDirective):
    """A section for each page that shows something of a sort, with a list that is filled later."""

    has_content = False
    #: What is listed, what begins the sections' anchors, and which node is filled.
    what: str = ""
    node_class: type[nodes.Element]

    def run(self) -> list[nodes.Node]:
        """Make the sections; read the page again when the catalogue changes."""
        for name in FILES:
            self.env.note_dependency(str(catalogue_folder() / name))
        catalogue = built_catalogue()
        made: list[nodes.Node] = []
        for page in catalogue.pages:
            if not of_page(catalogue, page, self.what):
                continue
            title = page_title(self.env, page)
            anchor = f"{self.what}s-{posixpath.basename(page).replace('_', '-')}"
            section = nodes.section("", nodes.title(title, title), ids=[anchor])
            section += self.node_class("", kv_page=page)
            self.state.document.note_explicit_target(section)
            made.append(section)
        return made


class kv_file(nodes.inline):  # noqa: N801  (docutils names its visitors after the class)
    """A link to a file at the root of the book."""


class FileRole(SphinxRole):
    """``kv-file``: a file at the root of the book that the build itself makes, by its name."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Leave a place for the link: its address differs by page."""
        return [kv_file(self.text, self.text)], []


def _visit_file(self: Any, node: kv_file) -> None:
    self.body.append(link(file_href(self, node.astext()), node.astext()))
    raise nodes.SkipNode


def of_page(catalogue: Catalogue, page: str, what: str) -> list[Entry]:
    """Return what a page shows of one sort, in order."""
    return [e for e in catalogue.entries.values() if e.page == page and e.what == what]


def figure_label(env: BuildEnvironment, entry: Entry) -> str:
    """Return a figure's number as its caption has it, or nothing if it has none.

    Parameters
    ----------
    env : BuildEnvironment
        Has the numbers.
    entry : Entry
        A figure.
    """
    numbers = env.toc_fignumbers.get(entry.page, {}).get("figure", {}).get(entry.id)
    if not numbers:
        return ""
    return str(env.config.numfig_format["figure"] % ".".join(map(str, numbers)))


def page_label(env: BuildEnvironment, page: str) -> str:
    """Return a page's title as the contents have it: numbered, where they number it."""
    title = env.titles[page].astext() if page in env.titles else posixpath.basename(page)
    numbers = env.toc_secnumbers.get(page, {}).get("")
    return f"{'.'.join(map(str, numbers))}. {title}" if numbers else title


def entry_href(writer: Any, page: str, anchor: str = "") -> str:
    """Return the address of a place of the book, from the page that is being written.

    Parameters
    ----------
    writer : HTMLTranslator
        Writes the page.
    page : str
        Without suffix.
    anchor : str
        Id of an element there; the page itself if empty.
    """
    builder = writer.builder
    if builder.name == "singlehtml":  # all pages are one
        return f"#{anchor}" if anchor else f"#document-{page}"
    place = builder.get_relative_uri(builder.current_docname, page)
    return f"{place}#{anchor}" if anchor else str(place)


def file_href(writer: Any, path: str) -> str:
    """Return the address of a file at the root of the book, such as ``figures.zip``."""
    # imgpath is how this page reaches _images/, whatever the builder: the root is above it.
    return posixpath.join(posixpath.dirname(str(writer.builder.imgpath)), path)


def link(href: str, words: str, **attributes: str) -> str:
    """Return a link whose words are text, not markup.

    Examples
    --------
    >>> link("a.csv", "CSV", download="")
    '<a href="a.csv" download>CSV</a>'
    """
    more = "".join(
        f' {name.replace("_", "-")}' + (f'="{escape(value)}"' if value else "")
        for name, value in attributes.items()
    )
    return f'<a href="{escape(href)}"{more}>{escape(words)}</a>'


def kind_text(kind: str, sources: Iterable[str] = ()) -> str:
    """Return kind and source as a line says them.

    Parameters
    ----------
    kind : str
        A key of :data:`KINDS`.
    sources : iterable of str
        HTML of the source, if there is one.

    Examples
    --------
    >>> kind_text("measured", ["<code>run.json</code>"])
    'measured: <code>run.json</code>'
    """
    return ": ".join([KINDS[kind], *sources])


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the role."""
    app.add_role("kv-file", FileRole())
    app.add_node(kv_file, html=(_visit_file, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
