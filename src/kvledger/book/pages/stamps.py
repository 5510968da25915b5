"""The line below a page that leads back to what the page was made of."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import datetime as dt
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from kvledger import __version__
from kvledger.datafiles import source_digest


def stamp(env: BuildEnvironment, pagename: str) -> str:
    """Return the line that leads back from a page to what it was made of."""
    pages = getattr(env, "nb_metadata", {})
    times = {
        page: values["exec_data"]["mtime"]
        for page, values in pages.items()
        if values.get("exec_data")
    }
    parts = [f"kvledger {__version__}", f"source digest <code>{source_digest()[:8]}</code>"]
    if times:
        # A page without cells shows numbers of others: it is as old as the oldest of those.
        moment = times.get(pagename, min(times.values()))
        day = dt.datetime.fromtimestamp(moment, dt.UTC).date().isoformat()
        parts.append(f'numbers last checked <time datetime="{day}">{day}</time>')
    return f'<p class="kv-stamp">{" · ".join(parts)}</p>'


def _add_stamp(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    context["theme_extra_footer"] = stamp(app.env, pagename)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the line to a Sphinx application."""
    app.connect("html-page-context", _add_stamp, priority=900)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
