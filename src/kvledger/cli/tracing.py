"""``kvledger figure``: what made a picture, whether it is current, and the picture again."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Never

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer, Table
from kvledger.cli.finding import Book, Found, complete_id, find_entry, nearest, the_book
from kvledger.core.errors import LedgerError, shown
from proofbook.build.tracing import SHORT_DIGEST, Trace, agree, data_changes, trace
from proofbook.catalogue import Entry, entry_json, permalink
from proofbook.catalogue.changes import origin

if TYPE_CHECKING:
    from proofbook.build.remaking import Remade
    from proofbook.build.source_differences import DataChanges
    from proofbook.catalogue.changes import Change

#: So many differing cells of a figure's data are shown to people.
_CELLS_SHOWN = 8
_SUFFIXES = (".png", ".svg")


def figure(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_ID",
            help="A PNG or SVG of the book, whatever its name; or the id of a figure or table.",
            autocompletion=complete_id,
        ),
    ],
    again: Annotated[
        bool, typer.Option("--again", help="Run its chapter up to its cell, and make it again.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="With --again: the folder to make."),
    ] = None,
    book: Book = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say what made a figure or table, whether a picture of it is current; make it again.

    Making it again needs a checkout, and what the book is made with: pip install 'kvledger[book]'.
    """
    if again != (out is not None):
        raise LedgerError("--again and --out DIR; accepted: both, or neither")
    stamp = _stamp(what)
    found = the_book(book)
    traced = None if stamp is None else trace(stamp, found.catalogue)
    entry = find_entry(what, found.catalogue) if traced is None else traced.entry
    if entry is not None and entry.what == "number":
        raise LedgerError(
            f"{shown(what)} is a number; accepted: a figure or a table (kvledger cite {entry.id} "
            "says where a number is from)"
        )
    asked = Asked(what, stamp, traced, entry, found, None if book is None else Path(book))
    return _answer(asked, None if out is None else _remade(asked, Path(out)), as_json)


class Asked(NamedTuple):
    """What was asked for, and what is known of it; ``folder`` is a built book."""

    what: str
    stamp: Mapping[str, Any] | None
    traced: Trace | None
    entry: Entry | None
    found: Found
    folder: Path | None

    @property
    def id(self) -> str:
        """The figure's or table's id."""
        return self.what if self.traced is None else self.traced.id

    @property
    def digest(self) -> str:
        """SHA-256 of the data that is asked about, or its first digits."""
        if self.stamp is not None:
            return str(self.stamp["data_digest"])
        return "" if self.entry is None else self.entry.digest


def _stamp(what: str) -> Mapping[str, Any] | None:
    """Return the stamp of a picture; None if what is asked for is no file but an id."""
    path = Path(what)
    if "\0" in what or not path.exists():
        if path.suffix.lower() in _SUFFIXES:
            raise LedgerError(f"{what}: no such file; accepted: a PNG or SVG, or an id")
        return None
    from proofbook.stamps import read_stamp

    return read_stamp(path)


def _remade(asked: Asked, out: Path) -> Remade:
    from proofbook.build.remaking import remake

    if asked.entry is None:
        raise LedgerError(
            f"{asked.what}: version {asked.found.catalogue.version} of the book has no {asked.id}, "
            "so it cannot be made again"
        )
    if asked.found.root is None:
        raise LedgerError("--again without a checkout; accepted: one, with the chapters and src/")
    signal.signal(signal.SIGTERM, _end)
    return remake(asked.entry, asked.found.root, out, asked.found.base_url)


def _end(number: int, frame: FrameType | None) -> Never:
    """End as Ctrl-C does, cleaning up, when asked to terminate."""
    sys.exit(128 + number)


def _answer(asked: Asked, remade: Remade | None, as_json: bool) -> str:
    entry, traced, found = asked.entry, asked.traced, asked.found
    since, data = _changed_since(asked), _data_changes(asked, remade)
    same_again = None if remade is None else agree(asked.digest, remade.digest)
    document = {
        "command": "figure",
        "asked": asked.what,
        "stamp": asked.stamp,
        "entry": None if entry is None else entry_json(entry, found.base_url),
        "version": found.catalogue.version,
        "source_digest": found.catalogue.source_digest,
        "current": None if traced is None else traced.same_data,
        "same_sources": None if traced is None else traced.same_sources,
        "changed_since": [change.new.id for change in since],
        "cells": None if data is None else [cell._asdict() for cell in data.cells],
        "again": None
        if remade is None
        else {
            "files": [str(path) for path in remade.files],
            "data_digest": remade.digest,
            "same_data": same_again,
        },
    }
    parts: list[str | Table] = [Table([asked.id, ""], _facts(asked), left=2)]
    if traced is not None:
        parts += ["", *traced.verdict()]
        if entry is None:
            parts += _near(traced.id, found)
    if remade is not None:
        said = "the same data" if same_again else "other data"
        parts += ["", f"Made again: {said} ({remade.digest[:SHORT_DIGEST]})."]
        parts += [f"wrote {path}" for path in remade.files]
    parts += _data_in_words(data)
    parts += _since_in_words(since, asked)
    return Answer(parts, document).text(as_json)


def _facts(asked: Asked) -> list[list[str]]:
    """Return what is known, line by line: what the picture says, or else what the book says."""
    entry, found = asked.entry, asked.found
    says: dict[str, Any] = dict(asked.stamp or {})
    if entry is not None:
        says = {
            "title": entry.text,
            "version": found.catalogue.version,
            "page": entry.page,
            "cell": entry.cell,
            "data_digest": entry.digest,
            "source_digest": found.catalogue.source_digest,
        } | {name: value for name, value in says.items() if value}
    title = says.get("title")
    lines: list[tuple[str, str | None]] = [
        ("title", title),
        ("now titled", entry.text if entry is not None and entry.text != title else None),
        ("made by", f"kvledger {says.get('version')}"),
        ("page", permalink(entry, found.base_url) if entry is not None else says.get("page")),
        ("cell", says.get("cell")),
        ("kind", None if entry is None else origin(entry)),
        ("data", says.get("data_digest")),
        ("code and data", says.get("source_digest")),
        ("licence", says.get("licence")),
    ]
    return [[name, value] for name, value in lines if value]


def _near(id: str, found: Found) -> list[str]:
    near = nearest(id, found.catalogue.entries)
    return [f"The nearest are {', '.join(near)}."] if near else []


def _data_changes(asked: Asked, remade: Remade | None) -> DataChanges | None:
    """Compare the data cell by cell, where both sides' CSV files are at hand."""
    name = f"{asked.id}.csv"
    books = [] if asked.folder is None else [asked.folder]
    if asked.found.root is not None:
        books.append(asked.found.root / "_build" / "html")
    now = [folder / kind / name for folder in books for kind in ("figures", "tables")]
    if asked.stamp is not None:
        path = Path(asked.what)
        before = [path.with_suffix(".csv"), path.with_name(name)]
    else:
        before = now
    if remade is not None:
        ours = [path for path in remade.files if path.name == name]
        return data_changes(asked.id, asked.digest, before, remade.digest, ours)
    if asked.entry is None:
        return None
    return data_changes(asked.id, asked.digest, before, asked.entry.digest, now)


def _data_in_words(data: DataChanges | None) -> list[str | Table]:
    if data is None or not data:
        return []
    said: list[str | Table] = [""]
    if data.rows[0] != data.rows[1]:
        said.append(f"Its data had {data.rows[0]:,} rows, now {data.rows[1]:,}.")
    for word, names in (("new", data.columns_added), ("gone", data.columns_removed)):
        if names:
            said.append(f"Columns that are {word}: {', '.join(names)}.")
    if data.cells:
        shown_cells = data.cells[:_CELLS_SHOWN]
        said.append(
            Table(
                ["row", "column", "was", "is"],
                [[str(c.row), c.column, c.old, c.new] for c in shown_cells],
                left=4,
            )
        )
        more = len(data.cells) - len(shown_cells)
        if more:
            said.append(f"and {more:,} more values")
    return said


def _changed_since(asked: Asked) -> list[Change]:
    """Return what else changed on the picture's page since its release, if its data did."""
    from proofbook.catalogue.changes import compare
    from proofbook.catalogue.editions import read_release, release_names

    if asked.traced is None or asked.entry is None or asked.traced.same_data:
        return []
    version = str(asked.traced.stamp["version"])
    if version not in release_names():
        return []
    changes = compare(read_release(version), asked.found.edition)
    return [change for change in changes.changed if change.new.page == asked.entry.page]


def _since_in_words(since: list[Change], asked: Asked) -> list[str | Table]:
    from proofbook.catalogue.changes import in_words

    if not since or asked.traced is None:
        return []
    rows = [[change.new.id, "; ".join(in_words(change))] for change in since]
    heading = f"changed on its page since {asked.traced.stamp['version']}"
    return ["", Table([heading, ""], rows, left=2)]
