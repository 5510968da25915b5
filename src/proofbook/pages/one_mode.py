"""One drawing of each figure: that of the reader's mode, from the first moment of a first visit.

The theme finds out a new reader's mode in a script that comes late. Until then the drawings of both
modes are shown, and so both are loaded; the few words of script here come before the page's body.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["EARLY", "setup"]

#: What the theme does with "auto", done before there is anything to draw.
EARLY = (
    'if (document.documentElement.dataset.theme === "auto") '
    'document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches '
    '? "dark" : "light";'
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the script before all others."""
    app.add_js_file(None, body=EARLY, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
