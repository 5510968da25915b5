"""The page that lists what changed: from each release to the next, and from the last to this book.

The directive ``kv-changes`` writes what the comparison writes, from the catalogue of the
book that is being built.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from proofbook.catalogue import read_catalogue
from proofbook.catalogue.changes import Changes, compare, markdown
from proofbook.catalogue.editions import Edition, read_release, release_names, what_prints
from proofbook.contents import stored_notebooks
from proofbook.errors import InputError
from proofbook.pages.addresses import kept_by_page
from proofbook.showing import figures_folder

LOGGER = logging.getLogger(__name__)
NUMBERS_PAGE = "chapters/numbers"


def history(releases: Iterable[Edition], present: Edition) -> list[Changes]:
    """Return what changed from each edition to the next, the latest first."""
    steps = [compare(old, new) for old, new in pairwise([*releases, present])]
    return steps[::-1]


def heading(changes: Changes) -> str:
    """Return what a part of the page is called.

    Examples
    --------
    >>> from proofbook.catalogue import Catalogue
    >>> first, now = (Edition(v, Catalogue(v, "", {})) for v in ("0.1.0", "0.2.0"))
    >>> heading(compare(first, now))
    'From 0.1.0 to 0.2.0'
    """
    return f"From {changes.old.name} to {changes.new.name}"


class ChangesDirective(SphinxDirective):
    """``kv-changes``: a section for each release, and one for the book as it is."""

    def run(self) -> list[nodes.Node]:
        """Return the sections, or a warning that says what cannot be read."""
        kept_by_page(self.env, "changelogs")[self.env.docname] = []
        try:
            steps = history(map(read_release, release_names()), present_book(Path(self.env.srcdir)))
        except InputError as error:
            LOGGER.warning(
                f"no changelog: {error}",
                location=self.get_location(),
                type="proofbook",
                subtype="changelog",
            )
            return []
        if not steps:
            return [nodes.paragraph("", "No release is on file yet.")]
        return [self._section(changes) for changes in steps]

    def _section(self, changes: Changes) -> nodes.section:
        title = heading(changes)
        section = nodes.section("", nodes.title(title, title))
        section["ids"].append(nodes.make_id(f"changes-from-{changes.old.catalogue.version}"))
        section["names"].append(nodes.fully_normalize_name(title))
        self.state.document.note_implicit_target(section, section)
        lines = markdown(changes).splitlines()
        body = StringList(lines, source=self.get_source_info()[0])
        self.state.nested_parse(body, self.content_offset, section)
        shown = changes.new.catalogue.entries
        for literal in list(section.findall(nodes.literal)):
            entry = shown.get(literal.astext())
            if entry is not None:
                literal["kv_entry"] = (entry.page, entry.anchor, entry.what)
        return section


class LinksToEntries(SphinxPostTransform):
    """Lead from an id in the changelog to what the present book shows under it."""

    default_priority = 100

    def run(self, **kwargs: Any) -> None:
        """Wrap each id whose place is a page of this book."""
        literals = list(self.document.findall(nodes.literal))
        for literal in (each for each in literals if "kv_entry" in each):
            page, anchor, what = literal["kv_entry"]
            if what == "number":
                # Not every number stands in prose, but each has a row on this page.
                page, anchor = NUMBERS_PAGE, anchor.replace("n-", "row-", 1)
            if page not in self.env.found_docs:
                continue
            uri = self.app.builder.get_relative_uri(self.env.docname, page)
            link = nodes.reference("", "", internal=True, refuri=f"{uri}#{anchor}")
            literal.replace_self(link)
            link += literal


def present_book(root: Path) -> Edition:
    """Return the book that is being built: its catalogue, as the notebooks' results gave it."""
    catalogue = read_catalogue(figures_folder().parent)
    return Edition(
        f"{catalogue.version}, this book", catalogue, what_prints(stored_notebooks(root).values())
    )


def _read_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Make the page anew at every build: it depends on all the others."""
    return sorted(kept_by_page(env, "changelogs").keys() - removed)


def setup(app: Sphinx) -> None:
    """Add the directive."""
    app.add_directive("kv-changes", ChangesDirective)
    app.add_post_transform(LinksToEntries)
    app.connect("env-get-outdated", _read_again)
