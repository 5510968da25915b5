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
from proofbook.build.pictures import SHORT_DIGEST, Trace, agree, trace
from proofbook.catalogue import Entry, entry_json, permalink
from proofbook.catalogue.changes import origin

if TYPE_CHECKING:
    from proofbook.build.pictures import Remade
    from proofbook.catalogue.changes import Change

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
    asked = Asked(what, stamp, traced, entry, found)
    return _answer(asked, None if out is None else _remade(asked, Path(out)), as_json)


class Asked(NamedTuple):
    """What was asked for, and what is known of it."""

    what: str
    stamp: Mapping[str, Any] | None
    traced: Trace | None
    entry: Entry | None
    found: Found

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
    from proofbook.build.pictures import remake

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
    since = _changed_since(asked)
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
        parts += ["", traced.verdict()]
        if entry is None:
            parts += _near(traced.id, found)
    if remade is not None:
        said = "the same data" if same_again else "other data"
        parts += ["", f"Made again: {said} ({remade.digest[:SHORT_DIGEST]})."]
        parts += [f"wrote {path}" for path in remade.files]
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
