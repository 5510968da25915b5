"""The page of all numbers: what each says, exactly, of what kind it is and where it stands.

Its directive is ``kv-numbers``; it lists what the catalogue holds, a table for each page.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
from html import escape
from typing import Any, cast

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from kvledger.book.catalogue import Entry
from kvledger.book.listing import (
    ListingDirective,
    built_catalogue,
    entry_href,
    kind_text,
    link,
    of_page,
    page_label,
)

__all__ = ["NumbersDirective", "author_year", "setup"]

COLUMNS = ("number", "shown", "exact value", "unit", "kind and source", "digest")
#: As many digits of a digest as name a number; the JSON file has all.
DIGITS = 8


class kv_number_table(nodes.General, nodes.Element):  # noqa: N801  (docutils names its visitors so)
    """The numbers of one page."""


class NumbersDirective(ListingDirective):
    """``kv-numbers``: every number, by page."""

    what = "number"
    node_class = kv_number_table


def author_year(entry: Any) -> str:
    """Return the words by which prose cites a bibliography's entry.

    Parameters
    ----------
    entry : pybtex.database.Entry
        Of the book's bibliography.

    Examples
    --------
    >>> from pybtex.database import Entry, Person
    >>> people = [Person("Kwon, Woosuk"), Person("Li, Zhuohan"), Person("Zhuang, Siyuan")]
    >>> author_year(Entry("misc", {"year": "2023"}, {"author": people}))
    'Kwon et al. 2023'
    >>> author_year(Entry("misc", {"year": "2024"}, {"author": people[:2]}))
    'Kwon and Li 2024'
    """
    people = [" ".join(person.last_names) for person in entry.persons.get("author", ())]
    names = f"{people[0]} et al." if len(people) > 2 else " and ".join(people)
    return f"{names} {entry.fields.get('year', '')}".strip()


def _citations(env: BuildEnvironment) -> dict[str, tuple[str, str]]:
    """Return, for each cited work by its words, the page and the anchor of its reference."""
    if "cite" not in env.domains:
        return {}
    found: dict[str, tuple[str, str]] = {}
    for citation in cast(Any, env.domains["cite"]).citations:
        words = re.sub(r"[{}]", "", author_year(citation.entry))
        found[words] = (citation.bibliography_key.docname, citation.citation_id)
    return found


def _source(writer: Any, source: str, citations: dict[str, tuple[str, str]]) -> str:
    """Return a source with a link to the reference that it begins with, if it does."""
    for words, (page, anchor) in citations.items():
        if words and source.startswith(words):
            return link(entry_href(writer, page, anchor), words) + escape(source[len(words) :])
    return f"<code>{escape(source)}</code>" if "/" in source or "." in source[-6:-3] else escape(source)


def _visit_numbers(self: Any, node: kv_number_table) -> None:
    env, page = self.builder.env, node["kv_page"]
    entries = of_page(built_catalogue(), page, "number")
    citations = _citations(env)
    title = page_label(env, page)
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    self.body.append(
        f'<div class="kv-table kv-numbers" role="region" tabindex="0" '
        f'aria-label="Numbers of {escape(title)}">\n<table><caption>{len(entries)} '
        f"number{'s' if len(entries) != 1 else ''} of {link(entry_href(self, page), title)}"
        f"</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
    )
    self.body += [_row(self, entry, citations) for entry in entries]
    self.body.append("</tbody></table></div>\n")


def _row(writer: Any, entry: Entry, citations: dict[str, tuple[str, str]]) -> str:
    here = link(entry_href(writer, entry.page, entry.anchor), entry.id)
    sources = [_source(writer, entry.source, citations)] if entry.source else []
    # What is shown is the whole value more often than not: saying it twice helps nobody.
    exact = "" if entry.value in (None, entry.text) else str(entry.value)
    cells = (
        escape(entry.text),
        escape(exact),
        escape(entry.unit or ""),
        kind_text(entry.kind, sources),
        f"<code>{entry.digest[:DIGITS]}</code>",
    )
    same = '<span class="kv-same">as shown</span>'
    row = "".join(f"<td>{cell or (same if at == 1 else '')}</td>" for at, cell in enumerate(cells))
    return f'<tr id="row-{entry.id}"><th scope="row">{here}</th>{row}</tr>\n'


def _nothing(self: Any, node: nodes.Node) -> None:
    """Close a node that was written whole when it was opened."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive and what it writes."""
    app.add_directive("kv-numbers", NumbersDirective)
    app.add_node(kv_number_table, html=(_visit_numbers, _nothing))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
