"""What the terms of the glossary mean, for the pages that use them."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, cast

from docutils import nodes
from sphinx import addnodes
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment

from proofbook.pages.mathematics import mathml

#: node -> the element that it is written as in a definition
ELEMENTS: dict[type[nodes.Element], str] = {
    nodes.literal: "code",
    nodes.emphasis: "em",
    nodes.strong: "strong",
}


def terms_used(doctree: nodes.document) -> list[str]:
    """Return the anchors of the terms that a page links to, each once."""
    found = []
    for link in doctree.findall(nodes.reference):
        if any("std-term" in child.get("classes", ()) for child in link.findall(nodes.inline)):
            anchor = link.get("refid") or str(link.get("refuri", "")).partition("#")[2]
            if anchor:
                found.append(str(anchor))
    return list(dict.fromkeys(found))


def definitions(env: BuildEnvironment, builder: Builder) -> dict[str, tuple[str, str]]:
    """Return the term and, as HTML, the definition at each anchor of the glossary."""
    domain = cast(Any, env.get_domain("std"))
    pages = {page for (kind, _), (page, _) in domain.objects.items() if kind == "term"}
    found: dict[str, tuple[str, str]] = {}
    for page in sorted(pages):
        # Resolved, because a definition may hold numbers of other pages.
        doctree = env.get_and_resolve_doctree(page, builder)
        for glossary in doctree.findall(addnodes.glossary):
            for item in glossary.findall(nodes.definition_list_item):
                found.update(_defined(item))
    return found


def _defined(item: nodes.definition_list_item) -> Iterator[tuple[str, tuple[str, str]]]:
    meaning = "".join(
        inline_html(child) for part in item.findall(nodes.definition) for child in part.children
    )
    for term in item.findall(nodes.term):
        for anchor in term["ids"]:
            yield anchor, (" ".join(term.astext().split()), meaning)


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
    if isinstance(node, nodes.paragraph):
        return f"<p>{content}</p>"
    return f"<{tag}>{content}</{tag}>" if tag else content
