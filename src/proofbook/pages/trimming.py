"""Pages in fewer bytes: markup that changes nothing is left out as a page is written."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

__all__ = ["setup", "trim"]

_SIGNATURE = re.compile(r'<dt class="sig [^"]*".*?</dt>', re.DOTALL)
_PRE = re.compile(r'<span class="pre">([^<]*)</span>')
_SPACE = re.compile(r'<span class="w">(\s*)</span>')
#: Classes of a signature's words that no style sheet of the book looks at there.
_PLAIN = re.compile(r'<span class="(?:n|p|k|s1|mi)">([^<]*)</span>')


def trim(body: str) -> str:
    """Leave out of signatures what they look the same without.

    Sphinx wraps each word of a signature twice, and each space once, for style sheets that this
    book does not have. A page of many functions is half such wrapping.

    Parameters
    ----------
    body : str
        HTML of a page.

    Returns
    -------
    str
        The same words, links, ids and emphasis.

    Examples
    --------
    >>> trim('<dt class="sig py"><span class="n"><span class="pre">a</span></span></dt>')
    '<dt class="sig py">a</dt>'
    >>> trim('<code><span class="pre">a</span></code>')
    '<code><span class="pre">a</span></code>'
    """
    return _SIGNATURE.sub(lambda found: _trim_signature(found[0]), body)


def _trim_signature(signature: str) -> str:
    text = _PRE.sub(r"\1", signature)
    text = _SPACE.sub(r"\1", text)
    while (shorter := _PLAIN.sub(r"\1", text)) != text:
        text = shorter
    return text


def _page_context(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    if "body" in context:
        context["body"] = trim(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Trim each page last."""
    app.connect("html-page-context", _page_context, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
