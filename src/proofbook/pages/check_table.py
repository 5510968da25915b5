"""The directive ``checks``: every chapter's last check, and the versions it was made with.

The tables come from the record alone, so that no digit of them is typed, and the same record gives
the same page.
"""

# Sphinx and docutils ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from proofbook.catalogue.check_records import RECORD_FILE, Check, State
from proofbook.pages.page_stamps import Checked, checked, commit_words

#: What the table calls the state of a chapter's check.
STATES: dict[State, str] = {
    "current": "checked",
    "changed": "not checked since it changed",
    "never": "not checked yet",
}
#: Heading -> whether the column holds numbers.
COLUMNS: dict[str, bool] = {
    "chapter": False,
    "state": False,
    "checked on": False,
    "seconds": True,
    "cells": True,
    "numbers": True,
    "tables": True,
    "figures": True,
    "files": False,
    "data digest": False,
    "source digest": False,
}
GAP = '<span role="img" aria-label="no value">–</span>'
MEASURED = f'<span class="kv-kind">Measured: {RECORD_FILE}.</span>'


class kv_checks(nodes.General, nodes.Element):
    """The place of the tables."""


class ChecksDirective(SphinxDirective):
    """The directive ``checks``, without content or options."""

    def run(self) -> list[nodes.Node]:
        """Return the node of the tables."""
        node = kv_checks()
        self.set_source_info(node)
        return [node]


def html_table(
    id: str, caption: str, columns: Mapping[str, bool], rows: Sequence[Sequence[str]]
) -> str:
    """Return a table that reads aloud well, with the look of the chapters' tables.

    Parameters
    ----------
    id : str
        Its anchor.
    caption : str
        A sentence, as plain text.
    columns : mapping of str to bool
        Headings, and whether numbers stand below.
    rows : sequence of sequence of str
        HTML of each cell; the first names its row.

    Examples
    --------
    >>> print(html_table("t", "One.", {"a": False, "n": True}, [["x", "1"]]).splitlines()[2])
    <thead><tr><th scope="col">a</th><th scope="col" class="kv-num">n</th></tr></thead>
    """
    side = [' class="kv-num"' if number else "" for number in columns.values()]
    heads = "".join(
        f'<th scope="col"{mark}>{escape(name)}</th>'
        for name, mark in zip(columns, side, strict=True)
    )
    lines = [
        f'<div class="kv-table" role="region" tabindex="0" aria-label="{escape(caption)}" '
        f'id="{id}" data-kind="measured">',
        f"<table><caption>{escape(caption)} {MEASURED}</caption>",
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    for row in rows:
        cells = "".join(
            f"<td{mark}>{text}</td>" for text, mark in zip(row[1:], side[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row"{side[0]}>{row[0]}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>\n"])


def chapters_table(known: Checked, names: Mapping[str, str]) -> str:
    """Return the table of the chapters: state, date, time and what was compared.

    Parameters
    ----------
    known : Checked
        The record, and the present state.
    names : mapping of str to str
        HTML that names each chapter, by page, in reading order.
    """
    rows = []
    for page, name in names.items():
        check, state = known.checks.get(page), STATES[known.state(page)]
        if check is None:
            rows.append([name, state, *[GAP] * (len(COLUMNS) - 2)])
            continue
        day = check.date.isoformat()
        rows.append(
            [
                name,
                state,
                f'<time datetime="{day}">{day}</time>',
                f"{check.seconds:.1f}",
                *(f"{n:,}" for n in (check.cells, check.numbers, check.tables, check.figures)),
                commit_words(check),
                f"<code>{check.data_digest[:8]}</code>",
                f"<code>{check.source_digest[:8]}</code>",
            ]
        )
    checks = [known.checks[page] for page in names if page in known.checks]
    if checks:
        totals = [
            f"{sum(getattr(check, name) for check in checks):{form}}"
            for name, form in [
                ("seconds", ".1f"),
                *((name, ",") for name in ("cells", "numbers", "tables", "figures")),
            ]
        ]
        rows.append(["all", GAP, GAP, *totals, GAP, GAP, GAP])
    return html_table(
        "checks-chapters",
        "When each chapter was last run again and compared, how long its cells took, and how much "
        "was compared.",
        COLUMNS,
        rows,
    )


def versions_table(known: Checked, pages: Sequence[str]) -> str:
    """Return the table of versions and cores, one column for each machine state that checked."""
    groups: dict[tuple[tuple[str, str], ...], int] = {}
    for page in pages:
        if page in known.checks:
            key = _machine(known.checks[page])
            groups[key] = groups.get(key, 0) + 1
    if not groups:
        return ""
    names = list(dict.fromkeys(name for group in groups for name, _ in group))
    columns = {"what": False}
    for number, chapters in enumerate(groups.values(), start=1):
        of = f"{chapters} chapter{'' if chapters == 1 else 's'}"
        columns[of if of not in columns else f"{of} ({number})"] = False
    rows = [
        [
            escape(name),
            *(escape(dict(group)[name]) if name in dict(group) else GAP for group in groups),
        ]
        for name in names
    ]
    return html_table(
        "checks-versions",
        "What the chapters were checked with: a column for all that were checked with the same.",
        columns,
        rows,
    )


def _machine(check: Check) -> tuple[tuple[str, str], ...]:
    return (*check.versions.items(), ("processor cores", str(check.cores)))


def _visit(self: Any, node: kv_checks) -> None:
    builder, env = self.builder, self.builder.env
    known = checked(Path(builder.srcdir))
    here = getattr(builder, "current_docname", env.config.root_doc)
    pages = [page for page in known.digests if page in env.found_docs]
    names = {
        page: f'<a href="{escape(builder.get_relative_uri(here, page))}">'
        f"{escape(env.titles[page].astext())}</a>"
        for page in pages
    }
    self.body.append(chapters_table(known, names) + versions_table(known, pages))


def _depart(self: Any, node: kv_checks) -> None:
    """Close a node that was written whole when it was opened."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive to a Sphinx application."""
    app.add_directive("checks", ChecksDirective)
    app.add_node(kv_checks, html=(_visit, _depart))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
