"""Where on the site something stands, as seen from the page that is being written."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import posixpath
import re
from typing import Any, NamedTuple, cast

from proofbook.catalogue import Entry

#: The page that lists every number, with a row ``row-<id>`` for each.
NUMBERS_PAGE = "numbers"
CITED = re.compile(r"^(?P<name>[^\W\d_][\w'-]*)\b[^,;]*?\b(?P<year>(?:19|20)\d\d)\b")


class Link(NamedTuple):
    """Words, and where they lead; nowhere, if there is no such place on the site."""

    text: str
    href: str | None


def to_place(builder: Any, docname: str, anchor: str) -> str:
    """Return the address of an anchor of a page, from the page being written."""
    current = str(builder.current_docname)
    return f"{'' if docname == current else builder.get_relative_uri(current, docname)}#{anchor}"


def to_file(builder: Any, path: str) -> str:
    """Return the address of a file below the root of the site, from the page being written."""
    # imgpath is how this page reaches _images/, whatever the builder.
    return posixpath.join(posixpath.dirname(str(builder.imgpath)), path)


def to_number(builder: Any, entry: Entry) -> str:
    """Return where all is said of a number: its row in the list of numbers, if there is one."""
    listed = numbers_page(builder.env)
    if listed is None:
        return to_place(builder, entry.page, entry.anchor)
    return to_place(builder, listed, f"row-{entry.id}")


def numbers_page(env: Any) -> str | None:
    """Return the page that lists every number, or None in a book without one."""
    name = posixpath.join(posixpath.dirname(str(env.config.root_doc)), NUMBERS_PAGE)
    return name if name in env.found_docs else None


def to_cell(builder: Any, entry: Entry) -> Link:
    """Return the cell that shows an entry, named with its page where that is another one."""
    title = builder.env.titles[entry.page].astext() if entry.page in builder.env.titles else ""
    return Link(title or entry.page, to_place(builder, entry.page, f"cell-{entry.cell}"))


def to_source(builder: Any, source: str) -> Link:
    """Return a source, with its place in the bibliography if it names a work that stands there.

    Parameters
    ----------
    builder : Builder
        Sphinx's.
    source : str
        A citation such as ``Kwon et al. 2023``, the key of a work, or a file.
    """
    domain = cast(Any, builder.env).domains.get("cite")
    if domain is None:
        return Link(source, None)
    entries = domain.bibdata.data.entries
    key = source if source in entries else work_cited(source, entries)
    for citation in domain.citations:
        if citation.key == key:
            return Link(
                source, to_place(builder, citation.bibliography_key.docname, citation.citation_id)
            )
    return Link(source, None)


def work_cited(source: str, entries: Any) -> str | None:
    """Return the key of the one work whose first author and year a citation names, or None."""
    match = CITED.match(source)
    if match is None:
        return None
    found = []
    for key, entry in entries.items():
        people = entry.persons.get("author", ())
        names = "".join(people[0].last_names) if people else ""
        if names == match["name"] and entry.fields.get("year") == match["year"]:
            found.append(str(key))
    return found[0] if len(found) == 1 else None
