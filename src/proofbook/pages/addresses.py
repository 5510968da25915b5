"""Where things stand: the results of execution, their files, and their places on the site."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from proofbook.catalogue import FILES, Catalogue, Entry, What, read_catalogue
from proofbook.project import source_digest
from proofbook.showing import figures_folder

ASSETS = Path(__file__).parent / "assets"
#: The page that lists every number, with a row ``row-<id>`` for each.
NUMBERS_PAGE = "numbers"
CITED = re.compile(r"^(?P<name>[^\W\d_][\w'-]*)\b[^,;]*?\b(?P<year>(?:19|20)\d\d)\b")


# ---------------------------------------------------------------- results and their files


def cache_folder(root: Path) -> Path:
    """Return the folder of execution results that belong to the present code and data.

    Examples
    --------
    >>> cache_folder(Path("book")).parts[:3]
    ('book', '_build', 'cache')
    """
    return root / "_build" / "cache" / source_digest()[:16]


def catalogue() -> Catalogue:
    """Return what the executed notebooks show: the numbers, figures and tables of this build."""
    return _read(figures_folder().parent)


@cache
def _read(folder: Path) -> Catalogue:
    return read_catalogue(folder)


def entry_of(id: str) -> Entry:
    """Return one entry; ValueError if no notebook of this build shows the id."""
    try:
        return catalogue().entries[id]
    except KeyError:
        raise ValueError(
            f"{id} is not in the catalogue of this build; run `make clean`, then `make book`"
        ) from None


def of_page(page: str, what: What) -> list[Entry]:
    """Return what a page shows of one sort, in order."""
    return [e for e in catalogue().entries.values() if e.page == page and e.what == what]


def site_of(app: Sphinx, error: Exception | None) -> Path | None:
    """Return the folder of the finished pages; None if they are no site, or were not finished."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return None
    return Path(app.outdir)


def rewrite_bodies(app: Sphinx, rewrite: Callable[[str], str], priority: int) -> None:
    """Put in the place of each page's body what `rewrite` makes of it."""

    def on_page(app: Sphinx, page: str, template: str, context: Any, doctree: object) -> None:
        if "body" in context:
            context["body"] = rewrite(context["body"])

    app.connect("html-page-context", on_page, priority=priority)


def kept_by_page(env: BuildEnvironment, name: str) -> dict[str, list[Any]]:
    """Return a record of Sphinx's memory between builds: page -> what was noted of it.

    What was noted of a page goes when the page is read again, and comes together where pages are
    read side by side.
    """
    notes = cast(Any, env).__dict__.setdefault("proofbook_notes", {})
    return cast("dict[str, list[Any]]", notes.setdefault(name, {}))


def _purge_notes(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    for pages in cast(Any, env).__dict__.get("proofbook_notes", {}).values():
        pages.pop(docname, None)


def _merge_notes(app: Sphinx, env: BuildEnvironment, docnames: Any, other: Any) -> None:
    for name, pages in other.__dict__.get("proofbook_notes", {}).items():
        read = {page: noted for page, noted in pages.items() if page in set(docnames)}
        kept_by_page(env, name).update(read)


# ---------------------------------------------------------------- from the page being written


class Link(NamedTuple):
    """Words, and where they lead; nowhere, if there is no such place on the site."""

    text: str
    href: str | None


def link(href: str, words: str, **attributes: str) -> str:
    """Return a link whose words are text, not markup.

    Examples
    --------
    >>> link("a.csv", "CSV", download="")
    '<a href="a.csv" download>CSV</a>'
    """
    more = "".join(
        f" {name.replace('_', '-')}" + (f'="{escape(value)}"' if value else "")
        for name, value in attributes.items()
    )
    return f'<a href="{escape(href)}"{more}>{escape(words)}</a>'


def to_page(builder: Any, docname: str) -> str:
    """Return the address of a page, from the page being written."""
    return str(builder.get_relative_uri(builder.current_docname, docname))


def to_place(builder: Any, docname: str, anchor: str) -> str:
    """Return the address of an anchor of a page, from the page being written."""
    here = docname == str(builder.current_docname)
    return f"{'' if here else to_page(builder, docname)}#{anchor}"


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
    """Return the cell that shows an entry, named with its page."""
    title = builder.env.titles[entry.page].astext() if entry.page in builder.env.titles else ""
    return Link(title or entry.page, to_place(builder, entry.page, f"cell-{entry.cell}"))


def to_source(builder: Any, source: str) -> Link:
    """Return a source, with its place in the bibliography if it names a work that stands there."""
    domain = cast(Any, builder.env).domains.get("cite")
    if domain is None:
        return Link(source, None)
    entries = domain.bibdata.data.entries
    key = source if source in entries else work_cited(source, entries)
    for citation in domain.citations:
        if citation.key == key:
            page = citation.bibliography_key.docname
            return Link(source, to_place(builder, page, citation.citation_id))
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


def _copy_lists(app: Sphinx, error: Exception | None) -> None:
    """Put ``numbers.json``, ``figures.json`` and ``tables.json`` at the root of the site."""
    site = site_of(app, error)
    if site is not None:
        for name in FILES:
            shutil.copyfile(figures_folder().parent / name, site / name)


def setup(app: Sphinx) -> None:
    """Add the record of what was noted of pages, and the lists at the site's root."""
    app.connect("env-purge-doc", _purge_notes)
    app.connect("env-merge-info", _merge_notes)
    app.connect("build-finished", _copy_lists, priority=900)
