"""``kvledger diff``: which numbers, figures and tables two editions of the book tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer, Table
from proofbook.files import check_file, write_whole

if TYPE_CHECKING:
    from proofbook.catalogue.changes import Changes
    from proofbook.catalogue.editions import Edition

_EDITION = "A release, a built book, a catalogue's JSON, or . for the book here."


def _releases(incomplete: str) -> list[str]:
    from proofbook.catalogue.editions import release_names

    return [name for name in release_names() if name.startswith(incomplete)]


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help=_EDITION, autocompletion=_releases)],
    new: Annotated[str, typer.Argument(metavar="NEW", help=_EDITION, autocompletion=_releases)],
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write it as Markdown too."),
    ] = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say which numbers, figures and tables changed, came or went, from one edition to another."""
    from proofbook.catalogue.changes import compare, markdown, rows, summary
    from proofbook.catalogue.editions import edition

    if out is not None:
        check_file(Path(out))
    changes = compare(edition(old), edition(new))
    written = []
    if out is not None:
        write_whole(Path(out), markdown(changes).encode())
        written.append(f"wrote {out}")
    lines = rows(changes)
    parts: list[str | Table] = [*summary(changes)]
    if lines:
        parts += ["", Table(["page", "what", "id", "was", "is"], lines, left=5)]
    parts += written
    return Answer(parts, _document(changes)).text(as_json)


def _document(changes: Changes) -> dict[str, Any]:
    from proofbook.catalogue import entry_json

    return {
        "command": "diff",
        "old": _about(changes.old),
        "new": _about(changes.new),
        "changed": [
            {
                "id": change.new.id,
                "ways": change.ways,
                "old": entry_json(change.old),
                "new": entry_json(change.new),
            }
            for change in changes.changed
        ],
        "added": [entry_json(entry) for entry in changes.added],
        "removed": [entry_json(entry) for entry in changes.removed],
        "same": [entry.id for entry in changes.same],
        "compared_by_text": [entry.id for entry in changes.by_text],
        "not_compared": [entry.id for entry in changes.unknown],
    }


def _about(edition: Edition) -> dict[str, str]:
    catalogue = edition.catalogue
    return {
        "name": edition.name,
        "version": catalogue.version,
        "source_digest": catalogue.source_digest,
    }
