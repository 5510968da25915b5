"""The page of all numbers: what each says, exactly, of what kind it is and where it stands.

Its directive is ``kv-numbers``; it lists what the catalogue holds, a table for each page.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from proofbook.catalogue import Entry
from proofbook.pages.links import to_place, to_source
from proofbook.pages.listing import (
    ListingDirective,
    count,
    kind_text,
    link,
    of_page,
    page_href,
    page_label,
)
from proofbook.pages.page_catalogue import catalogue

__all__ = ["NumbersDirective", "setup"]

COLUMNS = ("number", "shown", "exact value", "unit", "kind and source", "digest")
#: As many digits of a digest as name a number; the JSON file has all.
DIGITS = 8


class kv_number_table(nodes.General, nodes.Element):
    """The numbers of one page."""


class NumbersDirective(ListingDirective):
    """``kv-numbers``: every number, by page."""

    what = "number"
    node_class = kv_number_table


def _source(builder: Any, source: str) -> str:
    """Return a source, linked to its place in the bibliography if it has one."""
    words, href = to_source(builder, source)
    if href:
        return link(href, words)
    return f"<code>{escape(words)}</code>" if words.endswith(".json") else escape(words)


def _visit_numbers(self: Any, node: kv_number_table) -> None:
    env, page = self.builder.env, node["kv_page"]
    entries = of_page(catalogue(), page, "number")
    title = page_label(env, page)
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    self.body.append(
        f'<div class="kv-table kv-numbers" role="region" tabindex="0" '
        f'aria-label="Numbers of {escape(title)}">\n<table><caption>'
        f"{count(len(entries), 'number')} of {link(page_href(self.builder, page), title)}"
        f"</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
    )
    self.body += [_row(self.builder, entry) for entry in entries]
    self.body.append("</tbody></table></div>\n")
    raise nodes.SkipNode


def _row(builder: Any, entry: Entry) -> str:
    here = link(to_place(builder, entry.page, entry.anchor), entry.id)
    sources = [_source(builder, entry.source)] if entry.source else []
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


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive and what it writes."""
    app.add_directive("kv-numbers", NumbersDirective)
    app.add_node(kv_number_table, html=(_visit_numbers, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
