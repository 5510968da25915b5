"""The cards that a page shows beside a number or a term under the pointer or in focus.

All that the cards of a page say stands once in the page, as JSON; ``kvledger-page.js`` makes the
one card that is shown.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
from typing import Any, cast

from docutils import nodes
from sphinx.application import Sphinx

from proofbook.catalogue import Entry
from proofbook.catalogue import citations as citing
from proofbook.pages.lines import kv_line
from proofbook.pages.links import numbers_page, to_cell, to_number, to_source
from proofbook.pages.number_roles import KINDS, kv_number
from proofbook.pages.page_catalogue import catalogue, entry_of
from proofbook.pages.terms import definitions, terms_used

#: The first two place the card; they are read-only copies.
SCRIPTS = (
    "vendor/floating-ui.core.umd.min.js",
    "vendor/floating-ui.dom.umd.min.js",
    "kvledger-page.js",
)


def exactly(entry: Entry) -> str | None:
    """Return the exact value of a number with its unit; None of words.

    Examples
    --------
    >>> about = ("a.b", "number", "computed", None, "page", "cell")
    >>> exactly(Entry(*about, "38.3", "153/4", "slots", "0" * 64, None, None))
    '153/4 slots'
    """
    if entry.value is None or entry.unit == "text":
        return None
    return f"{entry.value} {entry.unit or ''}".strip()


def number_card(builder: Any, entry: Entry) -> dict[str, Any]:
    """Return what the card of a number says."""
    base = str(builder.config.html_baseurl or "")
    card: dict[str, Any] = {
        "kind": KINDS[entry.kind][1],
        "value": exactly(entry),
        "source": to_source(builder, entry.source) if entry.source else None,
        "page": to_cell(builder, entry),
        "cell": entry.cell,
        "row": to_number(builder, entry) if numbers_page(builder.env) else None,
        "text": citing.plain(entry, catalogue(), base),
        "BibTeX": citing.bibtex(entry, catalogue(), base),
    }
    return {name: value for name, value in card.items() if value is not None}


def page_cards(app: Sphinx, doctree: nodes.document) -> dict[str, Any]:
    """Return what all the cards of a page say: numbers by id, terms by anchor."""
    numbers = dict.fromkeys(str(node["kv_id"]) for node in doctree.findall(kv_number))
    used = terms_used(doctree)
    known = _definitions(app) if used else {}
    return {
        "numbers": {id: number_card(app.builder, entry_of(id)) for id in numbers},
        "terms": {anchor: known[anchor] for anchor in used if anchor in known},
    }


def _definitions(app: Sphinx) -> dict[str, tuple[str, str]]:
    """Read the glossary once a build."""
    if not hasattr(app, "kvledger_definitions"):
        cast(Any, app).kvledger_definitions = definitions(app.env, app.builder)
    return cast("dict[str, tuple[str, str]]", cast(Any, app).kvledger_definitions)


def embedded(cards: dict[str, Any]) -> str:
    r"""Return JSON as an element of a page: nothing in it can end the element.

    Examples
    --------
    >>> embedded({"terms": {"a": "</script>"}})
    '<script type="application/json" id="kv-cards">{"terms":{"a":"\\u003c/script>"}}</script>\n'
    """
    text = json.dumps(cards, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="kv-cards">{text}</script>\n'


def _add_cards(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Add the cards and the scripts to the pages that have something to show with them."""
    if doctree is None or "body" not in context:
        return
    try:
        cards = page_cards(app, doctree)
    except ValueError:
        return  # the writer warned of it
    shown = any(cards.values())
    if shown:
        context["body"] += embedded(cards)
    if shown or next(iter(doctree.findall(kv_line)), None) is not None:
        for name in SCRIPTS:
            app.add_js_file(name, loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the cards to a Sphinx application."""
    app.connect("html-page-context", _add_cards)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
