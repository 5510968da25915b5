"""When what a page shows was last checked: the line below a page, and the tables of all checks.

All of it comes from the record that the check writes (:mod:`proofbook.catalogue.check_records`),
never from the clock. A page that shows numbers of other pages is as old as the oldest of what it
shows. The directive ``checks`` makes the tables.
"""

# Sphinx, MyST-NB and docutils ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from myst_nb.ext.glue.utils import PendingGlueReference
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from proofbook.catalogue import What
from proofbook.catalogue.check_records import DIGESTS_FILE, RECORD_FILE, Check, State, read_checks
from proofbook.pages.addresses import kept_by_page, link, to_page
from proofbook.plaintext import counted, listed
from proofbook.project import source_digest, this_project
from proofbook.showing import figures_folder, html_table
from proofbook.showing.tables import GAP

#: The page that says more about checks, where the book has it.
CHECKS_PAGE = "chapters/checks"
#: State of a check, worst first -> what a page says.
UNCHECKED: dict[State, str] = {
    "never": "Not checked yet.",
    "changed": "Not checked since it changed.",
}
#: What the table calls the state of a chapter's check.
STATES: dict[State, str] = {
    "current": "checked",
    "changed": "not checked since it changed",
    "never": "not checked yet",
}
SORTS: tuple[What, ...] = ("number", "table", "figure")
#: Heading -> class of the cells below it.
COLUMNS = {
    **dict.fromkeys(("chapter", "state", "checked on"), ""),
    **dict.fromkeys(("seconds", "cells", "numbers", "tables", "figures"), "kv-num"),
    **dict.fromkeys(("files", "data digest", "source digest"), ""),
}


class Item(NamedTuple):
    """Something that a page shows of another page."""

    page: str
    what: What
    id: str


def note_shown(env: BuildEnvironment, docname: str, items: Iterable[Item]) -> None:
    """Note that a page shows numbers, tables or figures of other pages."""
    kept_by_page(env, "shown").setdefault(docname, []).extend(items)


def _note_numbers(app: Sphinx, doctree: nodes.document) -> None:
    """Note the numbers of other pages, which wait for those pages to be read."""
    here, waiting = app.env.docname, doctree.findall(PendingGlueReference)
    items = (Item(node.refdoc, "number", node.key) for node in waiting if node.refdoc != here)
    note_shown(app.env, here, items)


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


def checked(root: Path, results: Path | None = None) -> Checked:
    """Return what is known of the checks of a book; InputError if the record cannot be read."""
    digests = (results or figures_folder().parent) / DIGESTS_FILE
    try:
        shows = json.loads(digests.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        shows = {}  # not made by this project's build: then nothing is known to be checked
    return Checked(read_checks(root), shows, source_digest())


def amounts(counts: Mapping[What, int]) -> str:
    """Return how many numbers, tables and figures there are, in words that fit in a sentence.

    Examples
    --------
    >>> amounts({"number": 1200, "table": 1, "figure": 0})
    '1,200 numbers and 1 table'
    """
    return listed([counted(counts[what], what) for what in SORTS if counts.get(what)])


def shown_counts(checks: Iterable[Check]) -> Counter[What]:
    """Return how many numbers, tables and figures were checked in all."""
    total: Counter[What] = Counter()
    for check in checks:
        total.update({"number": check.numbers, "table": check.tables, "figure": check.figures})
    return total


def check_line(
    known: Checked, pages: Iterable[str], others: Iterable[Item], how: str | None
) -> str:
    """Return the HTML that says when what a page shows was last checked; nothing if it shows none.

    `pages` is the page itself, if it has cells; all such pages, where one page holds the whole
    book. `others` is what it shows of other pages, `how` the address of the page that says more.
    """
    own = set(pages)
    taken = {item for item in others if item.page not in own}
    sources = own | {item.page for item in taken}
    states = {known.state(page) for page in sources}
    more = f' <a href="{escape(how)}">How it is checked</a>' if how else ""
    for state, words in UNCHECKED.items():
        if state in states:
            return f'<p class="kv-checked" data-state="{state}">{words}{more}</p>'
    counts = shown_counts(known.checks[page] for page in own)
    counts.update(item.what for item in taken)
    if not counts.total():
        return ""
    words = amounts(counts) + (" of this page" if own else " of other pages, shown here,")
    words += " was" if counts.total() == 1 else " were"
    oldest = min((known.checks[page] for page in sources), key=lambda check: check.date)
    day, numpy = oldest.date.isoformat(), oldest.versions.get("numpy")
    return (
        f'<p class="kv-checked" data-state="current">{words} last checked on '
        f'<time datetime="{day}">{day}</time>: run again and compared, {commit_words(oldest)}, '
        f"with Python {escape(oldest.versions['python'])}"
        + (f" and NumPy {escape(numpy)}" if numpy else "")
        + f", data digest <code>{oldest.data_digest[:8]}</code>.{more}</p>"
    )


def commit_words(check: Check) -> str:
    """Return in words, as HTML, which commit was checked."""
    if check.commit is not None:
        return f"at commit <code>{check.commit[:8]}</code>"
    if check.changed_since is not None:
        return f"with changes since commit <code>{check.changed_since[:8]}</code>"
    return "outside a repository"


def stamp() -> str:
    """Return the line that leads back from a page to what it was made of."""
    digest = source_digest()[:8]
    name, version = this_project()[:2]
    return f'<p class="kv-stamp">{name} {version} · source digest <code>{digest}</code></p>'


def _add_lines(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    known = checked(Path(app.srcdir))
    others = kept_by_page(app.env, "shown").get(pagename, ())
    how = None
    if CHECKS_PAGE in app.env.found_docs:
        how = app.builder.get_relative_uri(pagename, CHECKS_PAGE)
    lines = check_line(known, {pagename} & set(known.digests), others, how) + stamp()
    context["theme_extra_footer"] = lines


# ---------------------------------------------------------------- the tables


class kv_checks(nodes.General, nodes.Element):
    """The place of the tables."""


class ChecksDirective(SphinxDirective):
    """The directive ``checks``, without content or options."""

    def run(self) -> list[nodes.Node]:
        """Return the node of the tables."""
        return [kv_checks()]


def _html_table(
    id: str, label: str, columns: Mapping[str, str], rows: Sequence[Sequence[str]]
) -> str:
    caption = f'{escape(label)} <span class="kv-kind">Measured: {RECORD_FILE}.</span>'
    return html_table(id, label, caption, columns, rows, "measured") + "\n"


def chapters_table(known: Checked, names: Mapping[str, str]) -> str:
    """Return the table of the chapters: state, date, time and what was compared."""
    rows = []
    checks = [known.checks[page] for page in names if page in known.checks]
    for page, name in names.items():
        check, state = known.checks.get(page), STATES[known.state(page)]
        if check is None:
            rows.append([name, state, *[GAP] * (len(COLUMNS) - 2)])
            continue
        day = check.date.isoformat()
        digests = [f"<code>{it[:8]}</code>" for it in (check.data_digest, check.source_digest)]
        when = f'<time datetime="{day}">{day}</time>'
        rows.append([name, state, when, *_sums([check]), commit_words(check), *digests])
    if checks:
        rows.append(["all", GAP, GAP, *_sums(checks), GAP, GAP, GAP])
    return _html_table(
        "checks-chapters",
        "When each chapter was last run again and compared, how long its cells took, and how much "
        "was compared.",
        COLUMNS,
        rows,
    )


def _sums(checks: Sequence[Check]) -> list[str]:
    counts = ("cells", "numbers", "tables", "figures")
    totals = [f"{sum(getattr(check, name) for check in checks):,}" for name in counts]
    return [f"{sum(check.seconds for check in checks):.1f}", *totals]


def versions_table(known: Checked, pages: Sequence[str]) -> str:
    """Return the table of versions and cores, one column for each machine state that checked."""
    checks = [known.checks[page] for page in pages if page in known.checks]
    states = [(*c.versions.items(), ("processor cores", str(c.cores))) for c in checks]
    groups = Counter(states)
    tables = [dict(group) for group in groups]
    if not groups:
        return ""
    columns = {"what": ""}
    for number, chapters in enumerate(groups.values(), start=1):
        of = counted(chapters, "chapter")
        columns[of if of not in columns else f"{of} ({number})"] = ""
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [
        [escape(name), *(escape(table[name]) if name in table else GAP for table in tables)]
        for name in names
    ]
    return _html_table(
        "checks-versions",
        "What the chapters were checked with: a column for all that were checked with the same.",
        columns,
        rows,
    )


def _visit_checks(self: Any, node: kv_checks) -> None:
    builder, env = self.builder, self.builder.env
    known = checked(Path(builder.srcdir))
    pages = [page for page in known.digests if page in env.found_docs]
    names = {page: link(to_page(builder, page), env.titles[page].astext()) for page in pages}
    self.body.append(chapters_table(known, names) + versions_table(known, pages))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the lines and the directive to a Sphinx application."""
    app.add_directive("checks", ChecksDirective)
    app.add_node(kv_checks, html=(_visit_checks, None))
    app.connect("doctree-read", _note_numbers)
    app.connect("html-page-context", _add_lines, priority=900)
