"""Numbers in the prose: each shows its kind, leads to all that is known of it, and has a card.

A number that nobody made is a warning. All that the cards of a page say, of numbers and of terms of
the glossary, stands once in the page, as JSON; ``page.js`` makes the one card that is
shown.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, ClassVar, cast

from docutils import nodes
from myst_nb.core.variables import RetrievalError
from myst_nb.ext.glue.crossref import read_glue_cache
from myst_nb.ext.glue.domain import NbGlueDomain
from myst_nb.ext.glue.utils import (
    PendingGlueReference,
    PendingGlueReferenceError,
    create_pending_glue_ref,
    glue_warning,
    retrieve_glue_data,
)
from myst_nb.ext.utils import RoleBase
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from proofbook.catalogue import Entry, citations
from proofbook.pages.addresses import (
    catalogue,
    entry_of,
    numbers_page,
    of_page,
    rewrite_bodies,
    to_cell,
    to_number,
    to_source,
)
from proofbook.pages.mathematics import mathml
from proofbook.showing import MARK

LOGGER = logging.getLogger(__name__)

#: kind of number -> (mark on the page, what the legend calls it)
KINDS: dict[str, tuple[str, str]] = {
    "computed": ("", "computed by this book's code"),
    "cited": ("c", "cited, taken from a source and not recomputed"),
    "measured": ("m", "measured, read from a recorded run"),
}
#: For cards, and for citations that copy themselves. The first two place the card.
SCRIPTS = (
    *("vendor/floating-ui.core.umd.min.js", "vendor/floating-ui.dom.umd.min.js"),
    "page.js",
)


class kv_number(nodes.inline):
    """A number in the prose, with the kind and the source that came with it."""


def _number_node(key: str, output: dict[str, Any]) -> kv_number:
    """Make the node of one glued value; ValueError says that it was not glued by ``number``."""
    text = output.get("data", {}).get("text/plain")
    if not isinstance(text, str):
        raise ValueError(f"glued value {key!r} has no text/plain; glue it with number()")
    stamp = output.get("metadata", {}).get(MARK)
    kind = stamp.get("kind") if isinstance(stamp, dict) else None
    if kind not in KINDS:
        raise ValueError(
            f"glued value {key!r} has kind {kind!r}; accepted: {', '.join(KINDS)} "
            "(glue it with number())"
        )
    source = stamp.get("source")
    node = kv_number(text, text, classes=["kv-number", f"kv-{kind}"])
    node["kv_id"], node["kv_kind"] = key, kind
    node["kv_title"] = f"{key}: {kind}" + (f", {source}" if source else "")
    return node


class NumberRole(RoleBase):
    """The role ``glue:text``: one number, by its id, of this page or of ``page::id``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the number's node, or a warning that names the id."""
        page, separator, key = self.text.rpartition("::")
        if ":" in key:
            return self._warn(
                f"{self.text!r} asks for a format; the text of a number is decided by number(), "
                "write the id alone"
            )
        try:
            if separator:
                where = self.document, self.source, self.line
                return [create_pending_glue_ref(*where, page, key, inline=True, gtype="text")], []
            found = retrieve_glue_data(self.document, key)
            node = _number_node(key, {"data": found.data, "metadata": found.metadata})
        except RetrievalError:
            return self._warn(
                f"no cell of this page glues {key!r}; glue it with number({key!r}, ...), or write "
                "page::id for a number of another page"
            )
        except (PendingGlueReferenceError, ValueError) as error:
            return self._warn(str(error))
        self.set_source_info(node)
        return [node], []

    def _warn(self, message: str) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [], [glue_warning(message, self.document, self.line)]


class NumberDomain(NbGlueDomain):
    """MyST-NB's glue domain with this book's ``glue:text``."""

    roles: ClassVar[dict[str, Any]] = {**NbGlueDomain.roles, "text": NumberRole()}


class NumbersOfOtherPages(SphinxPostTransform):
    """Put in the numbers that a page takes from another page."""

    default_priority = 4  # before MyST-NB's own, which would drop the kind

    def run(self, **kwargs: Any) -> None:
        """Replace each waiting reference, or warn that the other page lacks it."""
        folder = cast(Any, self.env).mystnb_config.output_folder
        for node in list(self.document.findall(PendingGlueReference)):
            if node.gtype != "text":
                continue
            data = read_glue_cache(folder, node.refdoc)
            if node.key not in data:
                continue  # MyST-NB's transform reports it
            try:
                node.replace_self(_number_node(node.key, data[node.key]))
            except ValueError as error:
                _warn(error, node)
                node.parent.remove(node)


class Anchors(SphinxTransform):
    """Give each code cell its anchor, and those of its numbers that no sentence here shows."""

    default_priority = 60

    def apply(self, **kwargs: Any) -> None:
        """Add the ids to the cells' containers."""
        path = Path(self.env.doc2path(self.env.docname))
        if path.suffix != ".ipynb":
            return
        ids = [cell["id"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        containers = self.document.findall(nodes.container)
        code = [node for node in containers if node.get("nb_element") == "cell_code"]
        cells = {ids[node["cell_index"]]: node for node in code}
        for cell_id, node in cells.items():
            node["ids"].append(f"cell-{cell_id}")
        # The first place that shows a number is where it is cited from.
        shown: set[str] = set()
        for number in self.document.findall(kv_number):
            if number["kv_id"] not in shown:
                shown.add(number["kv_id"])
                number["kv_anchor"] = f"n-{number['kv_id']}"
        for entry in of_page(self.env.docname, "number"):
            if entry.id not in shown and entry.cell in cells:
                cells[entry.cell]["ids"].append(entry.anchor)


def _warn(error: ValueError, node: nodes.Node) -> None:
    LOGGER.warning(str(error), location=node, type="proofbook", subtype="number")


def _visit_number(self: Any, node: kv_number) -> None:
    around = [node.parent]
    while around[-1].parent is not None:
        around.append(around[-1].parent)
    linked = any(isinstance(parent, nodes.reference) for parent in around)
    attributes = f'class="{" ".join(node["classes"])}"'
    # A copy of a number, in a table of contents or a page's title, is not its place.
    if node.get("kv_anchor") and not linked and isinstance(around[-1], nodes.document):
        attributes += f' id="{node["kv_anchor"]}"'
    tag = "span"
    # A part of a heading or of another link leads nowhere itself.
    if not linked and not any(isinstance(parent, nodes.title) for parent in around):
        try:
            href = to_number(self.builder, entry_of(node["kv_id"]))
            attributes += f' href="{escape(href)}" data-number="{node["kv_id"]}"'
            tag = "a"
        except ValueError as error:
            _warn(error, node)
    self.body.append(f'<{tag} {attributes} title="{escape(node["kv_title"])}">')
    self.context.append(tag)


def _depart_number(self: Any, node: kv_number) -> None:
    mark, tag = KINDS[node["kv_kind"]][0], self.context.pop()
    self.body.append(f'<sup class="kv-mark">{mark}</sup></{tag}>' if mark else f"</{tag}>")


def meaning(kind: str) -> str:
    """Return what it means that something is of a kind, to begin a line with.

    Examples
    --------
    >>> meaning("measured")
    'Measured, read from a recorded run'
    """
    words = KINDS[kind][1]
    return words[0].upper() + words[1:]


def kind_signs() -> dict[str, str]:
    """Return how a number of each kind is marked, as HTML."""
    raised = 'raised <span class="kv-{}"><sup class="kv-mark">{}</sup></span>'
    dotted = '<span class="kv-computed">dotted</span>'
    return {
        kind: raised.format(kind, mark) if mark else dotted for kind, (mark, _) in KINDS.items()
    }


def legend(body: str) -> str:
    """Return the line that explains the marks of the numbers on a page, or nothing.

    Examples
    --------
    >>> legend('<span class="kv-number kv-cited">5</span>')
    '<p class="kv-legend" role="note">Numbers on this page: raised <span class="kv-cited"><sup \
class="kv-mark">c</sup></span>: cited, taken from a source and not recomputed.</p>'
    >>> legend("<p>No numbers.</p>")
    ''
    """
    parts = [
        f"{sign}: {KINDS[kind][1]}"
        for kind, sign in kind_signs().items()
        if f'class="kv-number kv-{kind}"' in body
    ]
    if not parts:
        return ""
    return f'<p class="kv-legend" role="note">Numbers on this page: {"; ".join(parts)}.</p>'


# ---------------------------------------------------------------- the glossary's terms

#: node -> the element that it is written as in a definition
ELEMENTS: dict[type[nodes.Element], str] = {
    nodes.literal: "code",
    nodes.emphasis: "em",
    nodes.strong: "strong",
    nodes.paragraph: "p",
}


def definitions(env: BuildEnvironment, builder: Builder) -> dict[str, tuple[str, str]]:
    """Return the term and, as HTML, the definition at each anchor of the glossary."""
    domain = cast(Any, env.get_domain("std"))
    pages = {page for (kind, _), (page, _) in domain.objects.items() if kind == "term"}
    found: dict[str, tuple[str, str]] = {}
    for page in sorted(pages):
        # Resolved, because a definition may hold numbers of other pages.
        for glossary in env.get_and_resolve_doctree(page, builder).findall(addnodes.glossary):
            for item in glossary.findall(nodes.definition_list_item):
                parts = [c for part in item.findall(nodes.definition) for c in part.children]
                html = "".join(inline_html(child) for child in parts)
                for term in item.findall(nodes.term):
                    words = " ".join(term.astext().split())
                    found.update(dict.fromkeys(term["ids"], (words, html)))
    return found


def inline_html(node: nodes.Node) -> str:
    """Return words, code and formulas as HTML, without the links in them.

    Examples
    --------
    >>> inline_html(nodes.emphasis("", "slots & pages"))
    '<em>slots &amp; pages</em>'
    """
    if isinstance(node, nodes.Text):
        return escape(node.astext(), quote=False)
    if isinstance(node, nodes.math):
        return mathml(node.astext(), "inline")
    content = "".join(inline_html(child) for child in node.children)
    tag = next((tag for kind, tag in ELEMENTS.items() if isinstance(node, kind)), None)
    return f"<{tag}>{content}</{tag}>" if tag else content


# ---------------------------------------------------------------- cards


def number_card(builder: Any, entry: Entry) -> dict[str, Any]:
    """Return what the card of a number says."""
    base = str(builder.config.html_baseurl or "")
    words = entry.value is None or entry.unit == "text"
    card: dict[str, Any] = {
        "kind": KINDS[entry.kind][1],
        "value": None if words else f"{entry.value} {entry.unit or ''}".strip(),
        "source": to_source(builder, entry.source) if entry.source else None,
        "page": to_cell(builder, entry),
        "cell": entry.cell,
        "row": to_number(builder, entry) if numbers_page(builder.env) else None,
        "text": citations.plain(entry, catalogue(), base),
        "BibTeX": citations.bibtex(entry, catalogue(), base),
    }
    return {name: value for name, value in card.items() if value is not None}


def page_cards(app: Sphinx, doctree: nodes.document) -> dict[str, Any]:
    """Return what all the cards of a page say: numbers by id, terms by anchor."""
    numbers = dict.fromkeys(str(node["kv_id"]) for node in doctree.findall(kv_number))
    links = [
        str(link.get("refid") or link.get("refuri", "").partition("#")[2])
        for link in doctree.findall(nodes.reference)
        if any("std-term" in child.get("classes", ()) for child in link.findall(nodes.inline))
    ]
    used = [anchor for anchor in dict.fromkeys(links) if anchor]
    if used and not hasattr(app, "proofbook_definitions"):  # read once a build
        cast(Any, app).proofbook_definitions = definitions(app.env, app.builder)
    known = cast(Any, app).proofbook_definitions if used else {}
    return {
        "numbers": {id: number_card(app.builder, entry_of(id)) for id in numbers},
        "terms": {anchor: known[anchor] for anchor in used if anchor in known},
    }


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
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    if doctree is None or "body" not in context:
        return
    try:
        cards = page_cards(app, doctree)
    except ValueError:
        return  # the writer warned of it
    if any(cards.values()):
        context["body"] += embedded(cards)
    elif 'class="kv-line"' not in context["body"]:
        return
    for name in SCRIPTS:
        app.add_js_file(name, loading_method="defer")


def setup(app: Sphinx) -> None:
    """Add the role, the marks and anchors of numbers, and the cards."""
    app.add_domain(NumberDomain, override=True)
    app.add_post_transform(NumbersOfOtherPages)
    app.add_transform(Anchors)
    app.add_node(kv_number, html=(_visit_number, _depart_number))
    rewrite_bodies(app, lambda body: body + legend(body), 890)
    app.connect("html-page-context", _add_cards)
