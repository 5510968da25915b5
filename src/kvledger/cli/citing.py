"""``kvledger cite``: how one number, figure or table is quoted."""

from __future__ import annotations

from typing import Annotated

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer
from kvledger.cli.finding import Book, complete_id, find_entry, the_book
from kvledger.core.errors import LedgerError, shown

_FORMATS = ("bibtex", "plain")


def _formats(incomplete: str) -> list[str]:
    return [name for name in _FORMATS if name.startswith(incomplete)]


def cite(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Of a number, figure or table.", autocompletion=complete_id
        ),
    ],
    form: Annotated[
        str,
        typer.Option("--format", metavar="bibtex|plain", help="How.", autocompletion=_formats),
    ] = "bibtex",
    book: Book = None,
    as_json: opt.AsJson = False,
) -> str:
    """Print the citation of a number, figure or table, as its page offers it."""
    from proofbook.catalogue import entry_json
    from proofbook.catalogue.citations import bibtex, plain

    if form not in _FORMATS:
        raise LedgerError(f"--format is {shown(form)}; accepted: {' or '.join(_FORMATS)}")
    found = the_book(book)
    entry = find_entry(id, found.catalogue)
    asked = entry, found.catalogue, found.base_url
    document = {
        "command": "cite",
        "version": found.catalogue.version,
        "source_digest": found.catalogue.source_digest,
        **entry_json(entry, found.base_url),
        "bibtex": bibtex(*asked),
        "plain": plain(*asked),
    }
    return Answer(document[form].splitlines(), document).text(as_json)
