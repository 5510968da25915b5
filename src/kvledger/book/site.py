"""What makes the built book a site: lists of all that can be cited, search by id, cards, links.

One Sphinx extension that sets up the parts, each of which is a module of its own. It goes after
``kvledger.book.sphinxext``, on whose numbers and figures it builds.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from kvledger import __version__

__all__ = ["PARTS", "setup"]

PARTS = (
    "kvledger.book.listing",
    "kvledger.book.gallery",
    "kvledger.book.numberlist",
    "kvledger.book.idsearch",
    "kvledger.book.addresses",
    "kvledger.book.trimming",
    "kvledger.book.links",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Set up every part."""
    for part in PARTS:
        app.setup_extension(part)
    app.add_css_file("kvledger-site.css", priority=910)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
