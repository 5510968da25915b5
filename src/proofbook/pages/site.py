"""What makes the built book a site: lists of all that can be cited, search by id, cards, links.

One Sphinx extension that sets up the parts, each of which is a module of its own. It goes after
``proofbook.pages.extension``, on whose numbers and figures it builds.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["PARTS", "setup"]

PARTS = (
    "proofbook.pages.listing",
    "proofbook.pages.gallery",
    "proofbook.pages.number_list",
    "proofbook.pages.id_search",
    "proofbook.pages.addresses",
    "proofbook.pages.one_mode",
    "proofbook.pages.trimming",
    "proofbook.pages.link_list",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Set up every part."""
    for part in PARTS:
        app.setup_extension(part)
    app.add_css_file("kvledger-site.css", priority=910)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
