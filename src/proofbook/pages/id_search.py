"""Let the book's search find a figure, a table or a number by its id.

Sphinx parts the words of a page at hyphens and dots and takes their endings off, so an id is not
among them. It also keeps an index of named objects with the place of each: the ids go there.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, cast

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.domains import Domain, ObjType

from proofbook.pages.page_catalogue import catalogue

__all__ = ["EntryDomain", "setup"]

#: Objects that only share a word with what was typed come after the pages that do.
AFTER_PAGES = 2
#: Puts first what was typed word for word.
SCORER = Path(__file__).with_name("search_scorer.js")


class EntryDomain(Domain):
    """What the catalogue lists, as objects that a search finds by name."""

    name = "kvledger"
    label = "kvledger"
    object_types: ClassVar[dict[str, ObjType]] = {
        "figure": ObjType("figure"),
        "table": ObjType("table"),
        "number": ObjType("number"),
    }

    def get_objects(self) -> Iterable[tuple[str, str, str, str, str, int]]:
        """Yield each entry as an object: name, name shown, sort, page, anchor, importance."""
        for entry in catalogue().entries.values():
            yield entry.id, entry.id, entry.what, entry.page, entry.anchor, AFTER_PAGES

    def merge_domaindata(self, docnames: Any, otherdata: Any) -> None:
        """Keep nothing: the catalogue is read when it is asked for."""

    def resolve_any_xref(self, *args: Any) -> list[Any]:
        """Answer no reference: prose refers to figures by their labels."""
        return []


def _configure(app: Sphinx, config: Config) -> None:
    cast(Any, config).html_search_scorer = str(SCORER)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the domain."""
    app.add_domain(EntryDomain)
    app.connect("config-inited", _configure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
