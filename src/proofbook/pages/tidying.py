"""What the tools below write that a reader or a screen reader stumbles over, mended."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

THEBE = re.compile(
    r"\s*<script type=\"text/x-thebe-config\">.*?</script>\s*<script>kernelName = [^<]*</script>",
    re.DOTALL,
)


def tidy(body: str) -> str:
    """Mend what the tools below write in ways that a screen reader cannot follow.

    Parameters
    ----------
    body : str
        The HTML of a page.

    Examples
    --------
    >>> tidy('<div role="list"><div role="doc-biblioentry">A</div></div>')
    '<div role="list"><div role="listitem">A</div></div>'
    >>> tidy('<tr><th class="head stub"></th><th>a</th></tr>')
    '<tr><td class="head stub"></td><th>a</th></tr>'
    """
    # What is left of the launch buttons that this book does not have.
    body = THEBE.sub("", body)
    # A list may hold list items only; the newer role is not one.
    body = body.replace('role="doc-biblioentry"', 'role="listitem"')
    # A header cell with nothing in it heads nothing.
    return re.sub(r"<th\b([^>]*)>(\s|<p>\s*</p>)*</th>", r"<td\1></td>", body)


def _tidy_page(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Mend the body, and ask nothing of the network."""
    if "body" in context:
        context["body"] = tidy(context["body"])
    for name in ("script_files", "css_files"):
        context[name] = [item for item in context.get(name, ()) if not _asks_network(item)]


def _asks_network(item: Any) -> bool:
    """Tell whether a script or style belongs to thebe, or lies on another machine."""
    attributes = getattr(item, "attributes", {})
    text = f"{item} {getattr(item, 'filename', '')} {attributes.get('body') or ''}"
    return "thebe" in text.lower() or "//" in str(getattr(item, "filename", "") or "")


def _remove_templates(app: Sphinx, error: Exception | None) -> None:
    """Remove the pieces of its templates that the theme leaves, which are no pages."""
    if error is None and app.builder is not None and app.builder.format == "html":
        for path in (Path(app.outdir) / "_static").glob("*webpack-macros.html"):
            path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the mending to a Sphinx application."""
    app.connect("html-page-context", _tidy_page, priority=880)
    app.connect("build-finished", _remove_templates, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
