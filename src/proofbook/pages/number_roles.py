"""Numbers in the prose: each shows its kind, and a number that nobody made is a warning."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from collections.abc import Iterator
from html import escape
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
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from proofbook.pages.links import to_number
from proofbook.pages.page_catalogue import entry_of
from proofbook.showing import MARK

LOGGER = logging.getLogger(__name__)

#: kind of number -> (mark on the page, what the legend calls it)
KINDS: dict[str, tuple[str, str]] = {
    "computed": ("", "computed by this book's code"),
    "cited": ("c", "cited, taken from a source and not recomputed"),
    "measured": ("m", "measured, read from a recorded run"),
}
DOTTED = '<span class="kv-computed">dotted</span>'


class kv_number(nodes.inline):
    """A number in the prose, with the kind and the source that came with it."""


def _number_node(key: str, output: dict[str, Any]) -> kv_number:
    """Make the node of one glued value.

    Raises
    ------
    ValueError
        If the value was not glued by ``number``: no plain text, or an unknown kind.
    """
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
    title = f"{key}: {kind}" + (f", {source}" if source else "")
    node = kv_number(text, text, classes=["kv-number", f"kv-{kind}"])
    node["kv_id"] = key
    node["kv_kind"] = kind
    node["kv_title"] = title
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
        if separator:
            try:
                pending = create_pending_glue_ref(
                    self.document, self.source, self.line, page, key, inline=True, gtype="text"
                )
            except PendingGlueReferenceError as error:
                return self._warn(str(error))
            return [pending], []
        try:
            found = retrieve_glue_data(self.document, key)
            node = _number_node(key, {"data": found.data, "metadata": found.metadata})
        except RetrievalError:
            return self._warn(
                f"no cell of this page glues {key!r}; glue it with number({key!r}, ...), or write "
                "page::id for a number of another page"
            )
        except ValueError as error:
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
                LOGGER.warning(str(error), location=node, type="kvledger", subtype="number")
                node.parent.remove(node)


def _visit_number(self: Any, node: kv_number) -> None:
    attributes = f'class="{" ".join(node["classes"])}"'
    if node.get("kv_anchor") and _is_in_place(node):
        attributes += f' id="{node["kv_anchor"]}"'
    try:
        href = _href(self.builder, node)
    except ValueError as error:
        LOGGER.warning(str(error), location=node, type="kvledger", subtype="number")
        href = None
    if href is not None:
        attributes += f' href="{escape(href)}" data-number="{node["kv_id"]}"'
    tag = "span" if href is None else "a"
    self.body.append(f'<{tag} {attributes} title="{escape(node["kv_title"])}">')
    self.context.append(tag)


def _depart_number(self: Any, node: kv_number) -> None:
    mark, tag = KINDS[node["kv_kind"]][0], self.context.pop()
    self.body.append(f'<sup class="kv-mark">{mark}</sup></{tag}>' if mark else f"</{tag}>")


def _ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    while node.parent is not None:
        node = node.parent
        yield node


def _is_in_place(node: nodes.Node) -> bool:
    """Tell a number on its page from a copy of it, in a table of contents or a page's title."""
    return any(isinstance(parent, nodes.document) for parent in _ancestors(node)) and not any(
        isinstance(parent, nodes.reference) for parent in _ancestors(node)
    )


def _href(builder: Any, node: kv_number) -> str | None:
    """Return where a number leads; nowhere, where it is part of a heading or of another link."""
    if any(isinstance(parent, (nodes.reference, nodes.title)) for parent in _ancestors(node)):
        return None
    return to_number(builder, entry_of(node["kv_id"]))


def meaning(kind: str) -> str:
    """Return what it means that something is of a kind, to begin a line with.

    Examples
    --------
    >>> meaning("measured")
    'Measured, read from a recorded run'
    """
    words = KINDS[kind][1]
    return words[0].upper() + words[1:]


def legend(body: str) -> str:
    """Return the line that explains the marks of the numbers on a page, or nothing.

    Parameters
    ----------
    body : str
        The HTML of a page.

    Examples
    --------
    >>> legend('<span class="kv-number kv-cited">5</span>')
    '<p class="kv-legend" role="note">Numbers on this page: raised <span class="kv-cited"><sup \
class="kv-mark">c</sup></span>: cited, taken from a source and not recomputed.</p>'
    >>> legend("<p>No numbers.</p>")
    ''
    """
    parts = []
    for kind, (mark, meaning) in KINDS.items():
        if f'class="kv-number kv-{kind}"' not in body:
            continue
        sign = f'raised <span class="kv-{kind}"><sup class="kv-mark">{mark}</sup></span>'
        parts.append(f"{sign if mark else DOTTED}: {meaning}")
    if not parts:
        return ""
    return f'<p class="kv-legend" role="note">Numbers on this page: {"; ".join(parts)}.</p>'


def _explain(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    if "body" in context:
        context["body"] += legend(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the role and the marks of numbers to a Sphinx application."""
    app.add_domain(NumberDomain, override=True)
    app.add_post_transform(NumbersOfOtherPages)
    app.add_node(kv_number, html=(_visit_number, _depart_number))
    app.connect("html-page-context", _explain, priority=890)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
