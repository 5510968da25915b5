"""The line under a figure or a table: cite it, fetch it, see what made it."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from proofbook.catalogue import Entry
from proofbook.catalogue import citations as citing
from proofbook.pages.links import Link, to_cell, to_file, to_source
from proofbook.pages.number_roles import meaning
from proofbook.pages.page_catalogue import catalogue, entry_of

LOGGER = logging.getLogger(__name__)

#: extension of a file -> what the line calls it
NAMES = {"svg": "SVG", "png": "PNG", "csv": "CSV", "bib": "BibTeX", "json": "JSON"}
#: what is shown -> (folder on the site, what it can be fetched as)
FETCHED = {
    "figure": ("figures", ("svg", "png", "csv", "bib", "json")),
    "table": ("tables", ("csv", "bib", "json")),
}
# The writer can end a caption only after all that a figure holds.
_WITHIN_CAPTION = re.compile(r"<!--kv-line-->(.*?)<!--/kv-line-->\n*(</figcaption>)?", re.DOTALL)


class kv_line(nodes.General, nodes.Element):
    """The line under the figure or table `kv_id`."""


def line_html(builder: Any, entry: Entry) -> str:
    """Return the line under a figure or a table."""
    return (
        f'<div class="kv-line" role="group" aria-label="Cite, fetch or trace {entry.id}">\n'
        f"{_downloads(builder, entry)}{_citation(builder, entry)}{_making(builder, entry)}</div>\n"
    )


def _downloads(builder: Any, entry: Entry) -> str:
    folder, ends = FETCHED[entry.what]
    links = [
        f'<a href="{to_file(builder, f"{folder}/{entry.id}.{end}")}" download>'
        f'{NAMES[end]}<span class="kv-unseen"> of {entry.id}</span></a>'
        for end in ends
    ]
    return f'<p class="kv-downloads"><code>{entry.id}</code> {" ".join(links)}</p>\n'


def _citation(builder: Any, entry: Entry) -> str:
    base = str(builder.config.html_baseurl or "")
    bibtex = citing.bibtex(entry, catalogue(), base)
    plain = citing.plain(entry, catalogue(), base)
    return (
        f'<details class="kv-cite"><summary>Cite<span class="kv-unseen"> {entry.id}</span>'
        "</summary>\n"
        f'<pre class="kv-citation" data-copy="BibTeX">{escape(bibtex)}</pre>\n'
        f'<p class="kv-citation" data-copy="text">{escape(plain)}</p>\n</details>\n'
    )


def _making(builder: Any, entry: Entry) -> str:
    cell = to_cell(builder, entry)
    items = [f'The cell <a href="{cell.href}"><code>{entry.cell}</code></a> shows it.']
    source = f": {_link_html(to_source(builder, entry.source))}" if entry.source else ""
    items.append(f"{meaning(entry.kind)}{source}.")
    items.append(f'SHA-256 of the data: <code class="kv-digest">{entry.digest}</code>.')
    lines = "".join(f"<li>{item}</li>\n" for item in items)
    return (
        f'<details class="kv-made"><summary>Made by<span class="kv-unseen"> ({entry.id})</span>'
        f"</summary>\n<ul>\n{lines}</ul>\n</details>\n"
    )


def _link_html(link: Link) -> str:
    text = escape(link.text.rstrip("."))
    return f'<a href="{escape(link.href)}">{text}</a>' if link.href else text


def _visit(self: Any, node: kv_line) -> None:
    try:
        line = line_html(self.builder, entry_of(node["kv_id"]))
    except ValueError as error:
        LOGGER.warning(str(error), location=node, type="kvledger", subtype="line")
        return
    self.body.append(f"<!--kv-line-->{line}<!--/kv-line-->")


def _depart(self: Any, node: kv_line) -> None:
    """Close a node that was written whole when it was opened."""


def after_captions(body: str) -> str:
    """Let the lines stand after the captions, whose words name the figures to screen readers.

    Examples
    --------
    >>> after_captions("<figcaption>A<!--kv-line-->b<!--/kv-line--></figcaption>")
    '<figcaption>A</figcaption>b'
    """
    return _WITHIN_CAPTION.sub(lambda match: f"{match[2] or ''}{match[1]}", body)


def _move(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    if "body" in context:
        context["body"] = after_captions(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the line to a Sphinx application."""
    app.add_node(kv_line, html=(_visit, _depart))
    app.connect("html-page-context", _move, priority=870)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
