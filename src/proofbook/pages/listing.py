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
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective, SphinxRole

from proofbook.catalogue import FILES, Catalogue, Entry
from proofbook.pages.links import to_file
from proofbook.pages.page_catalogue import catalogue
from proofbook.pages.page_places import figures_folder
from proofbook.pages.page_stamps import Item, note_shown

__all__ = [
    "KINDS",
    "ListingDirective",
    "count",
    "figure_label",
    "kind_text",
    "link",
    "of_page",
    "page_href",
    "page_label",
    "page_title",
    "setup",
]

#: kind -> what a list says of it; what is cited or measured goes on with its source.
KINDS = {"computed": "computed here", "cited": "cited", "measured": "measured"}


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
            self.env.note_dependency(str(figures_folder().parent / name))
        made: list[nodes.Node] = []
        for page in catalogue().pages:
            listed = of_page(catalogue(), page, self.what)
            if not listed:
                continue
            # The line below this page says when all of them were last checked.
            items = (Item(page, entry.what, entry.id) for entry in listed)
            note_shown(self.env, self.env.docname, items)
            title = page_title(self.env, page)
            anchor = f"{self.what}s-{posixpath.basename(page).replace('_', '-')}"
            section = nodes.section("", nodes.title(title, title), ids=[anchor])
            section += self.node_class("", kv_page=page)
            self.state.document.note_explicit_target(section)
            made.append(section)
        return made


class kv_file(nodes.inline):
    """A link to a file at the root of the book."""


class FileRole(SphinxRole):
    """``kv-file``: a file at the root of the book that the build itself makes, by its name."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Leave a place for the link: its address differs by page."""
        return [kv_file(self.text, self.text)], []


def _visit_file(self: Any, node: kv_file) -> None:
    self.body.append(link(to_file(self.builder, node.astext()), node.astext()))
    raise nodes.SkipNode


def of_page(listed: Catalogue, page: str, what: str) -> list[Entry]:
    """Return what a page shows of one sort, in order."""
    return [e for e in listed.entries.values() if e.page == page and e.what == what]


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


def page_href(builder: Any, page: str) -> str:
    """Return the address of a page, from the one that is being written."""
    return str(builder.get_relative_uri(builder.current_docname, page))


def count(number: int, name: str) -> str:
    """Return a number of things in words that fit it.

    Examples
    --------
    >>> count(1, "figure"), count(36, "figure")
    ('1 figure', '36 figures')
    """
    return f"{number} {name}{'' if number == 1 else 's'}"


def link(href: str, words: str, **attributes: str) -> str:
    """Return a link whose words are text, not markup.

    Examples
    --------
    >>> link("a.csv", "CSV", download="")
    '<a href="a.csv" download>CSV</a>'
    """
    more = "".join(
        f" {name.replace('_', '-')}" + (f'="{escape(value)}"' if value else "")
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
