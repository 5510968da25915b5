"""The line below a page: what the page was made of, and when its numbers were last checked.

All of it comes from the record that the check writes, never from the clock. A page that shows
numbers of other pages is as old as the oldest of what it shows.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

from docutils import nodes
from myst_nb.ext.glue.utils import PendingGlueReference
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from proofbook.catalogue import What
from proofbook.catalogue.check_records import DIGESTS_FILE, Check, State, read_checks
from proofbook.pages.page_places import figures_folder
from proofbook.project import source_digest, this_project

#: The page that says more about checks, where the book has it.
CHECKS_PAGE = "chapters/checks"
#: State of a check, worst first -> what a page says.
UNCHECKED: dict[State, str] = {
    "never": "Not checked yet.",
    "changed": "Not checked since it changed.",
}
PLURALS: tuple[What, ...] = ("number", "table", "figure")


class Item(NamedTuple):
    """Something that a page shows of another page."""

    page: str
    what: What
    id: str


def note_shown(env: BuildEnvironment, docname: str, items: Iterable[Item]) -> None:
    """Note that a page shows numbers, tables or figures of other pages.

    Parameters
    ----------
    env : BuildEnvironment
        Sphinx's memory.
    docname : str
        The page that shows them.
    items : iterable of Item
        What it shows, and from where.
    """
    _shown_of(env).setdefault(docname, set()).update(items)


def _shown_of(env: BuildEnvironment) -> dict[str, set[Item]]:
    """Return what each page shows of others, kept with the environment between builds."""
    if not hasattr(env, "kvledger_shown"):
        cast(Any, env).kvledger_shown = {}
    return cast("dict[str, set[Item]]", cast(Any, env).kvledger_shown)


def _purge(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _shown_of(env).pop(docname, None)


def _merge(
    app: Sphinx, env: BuildEnvironment, docnames: Sequence[str], other: BuildEnvironment
) -> None:
    _shown_of(env).update({p: i for p, i in _shown_of(other).items() if p in set(docnames)})


def _note_numbers(app: Sphinx, doctree: nodes.document) -> None:
    """Note the numbers of other pages, which wait for those pages to be read."""
    here = app.env.docname
    note_shown(
        app.env,
        here,
        (
            Item(node.refdoc, "number", node.key)
            for node in doctree.findall(PendingGlueReference)
            if node.refdoc != here
        ),
    )


# ---------------------------------------------------------------- the line


class Checked(NamedTuple):
    """What is known of the checks: on record, and of the pages as they are now."""

    checks: Mapping[str, Check]
    digests: Mapping[str, str]
    source_digest: str

    def state(self, page: str) -> State:
        """Tell whether a page's numbers were checked as they are now."""
        check = self.checks.get(page)
        if check is None:
            return "never"
        return check.state(self.digests.get(page), self.source_digest)


def checked(root: Path) -> Checked:
    """Return what is known of the checks of the book in a folder.

    Raises
    ------
    InputError
        If the record cannot be read.
    """
    try:
        shows = json.loads((figures_folder().parent / DIGESTS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        shows = {}  # not made by this project's build: then nothing is known to be checked
    return Checked(read_checks(root), shows, source_digest())


def counted(counts: Mapping[What, int]) -> str:
    """Return how many numbers, tables and figures there are, in words that fit in a sentence.

    Examples
    --------
    >>> counted({"number": 5, "table": 1, "figure": 0})
    '5 numbers and 1 table'
    >>> counted({"number": 1200, "table": 2, "figure": 3})
    '1,200 numbers, 2 tables and 3 figures'
    """
    parts = [
        f"{counts[what]:,} {what}{'' if counts[what] == 1 else 's'}"
        for what in PLURALS
        if counts.get(what)
    ]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def check_line(
    known: Checked, pages: Iterable[str], others: Iterable[Item], how: str | None
) -> str:
    """Return the HTML that says when what a page shows was last checked; nothing if it shows none.

    Parameters
    ----------
    known : Checked
        The record, and the present state.
    pages : iterable of str
        The page itself, such as ``chapters/page_tail_slack``, if it has cells; all such pages
        where one page holds the whole book.
    others : iterable of Item
        What is shown here of other pages.
    how : str or None
        Address of the page that says more.
    """
    own = set(pages)
    taken = {item for item in others if item.page not in own}
    sources = own | {item.page for item in taken}
    states = {known.state(page) for page in sources}
    for state, words in UNCHECKED.items():
        if state in states:
            return f'<p class="kv-checked" data-state="{state}">{words}{_link(how)}</p>'
    counts: dict[What, int] = dict.fromkeys(PLURALS, 0)
    for page in own:
        check = known.checks[page]
        counts["number"] += check.numbers
        counts["table"] += check.tables
        counts["figure"] += check.figures
    for item in taken:
        counts[item.what] += 1
    words = counted(counts)
    if not words:
        return ""
    words += " of this page" if own else " of other pages, shown here,"
    words += " was" if sum(counts.values()) == 1 else " were"
    oldest = min((known.checks[page] for page in sources), key=lambda check: check.date)
    day, numpy = oldest.date.isoformat(), oldest.versions.get("numpy")
    return (
        f'<p class="kv-checked" data-state="current">{words} last checked on '
        f'<time datetime="{day}">{day}</time>: run again and compared, {commit_words(oldest)}, '
        f"with Python {escape(oldest.versions['python'])}"
        + (f" and NumPy {escape(numpy)}" if numpy else "")
        + f", data digest <code>{oldest.data_digest[:8]}</code>.{_link(how)}</p>"
    )


def commit_words(check: Check) -> str:
    """Return in words, as HTML, which commit was checked."""
    if check.commit is not None:
        return f"at commit <code>{check.commit[:8]}</code>"
    if check.changed_since is not None:
        return f"with changes since commit <code>{check.changed_since[:8]}</code>"
    return "outside a repository"


def _link(how: str | None) -> str:
    return f' <a href="{escape(how)}">How it is checked</a>' if how else ""


def stamp() -> str:
    """Return the line that leads back from a page to what it was made of.

    Examples
    --------
    >>> "source digest" in stamp()
    True
    """
    digest = source_digest()[:8]
    name, version = this_project()[:2]
    return f'<p class="kv-stamp">{name} {version} · source digest <code>{digest}</code></p>'


def _add_lines(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    known = checked(Path(app.srcdir))
    others = _shown_of(app.env).get(pagename, set())
    pages = {pagename} & set(known.digests)
    how = None
    if CHECKS_PAGE in app.env.found_docs:
        how = app.builder.get_relative_uri(pagename, CHECKS_PAGE)
    context["theme_extra_footer"] = check_line(known, pages, others, how) + stamp()


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the lines to a Sphinx application."""
    app.connect("doctree-read", _note_numbers)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
    app.connect("html-page-context", _add_lines, priority=900)
    return {
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
