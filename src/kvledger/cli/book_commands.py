"""``kvledger cite``, ``figure`` and ``diff``: what asks the book of numbers, figures and tables."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from kvledger.cli import Table, answer
from kvledger.cli import options as opt
from kvledger.core.errors import InputError, LedgerError, shown
from proofbook.build.pictures import agree, trace
from proofbook.catalogue import FILES, SHORT_DIGEST, Catalogue, Entry, entry_json, permalink
from proofbook.catalogue.changes import compare, markdown, origin, rows, summary
from proofbook.catalogue.citations import bibtex, plain
from proofbook.catalogue.editions import Edition, edition, release_names, this_book
from proofbook.files import check_file, write_whole
from proofbook.project import repository_root


class Found(NamedTuple):
    """The book that a command asks: its catalogue, its public address, the checkout, if any."""

    catalogue: Catalogue
    base_url: str
    root: Path | None


def the_book(folder: str | None) -> Found:
    """Return the book to ask: a built one, or the notebooks of the checkout."""
    root = repository_root()
    if folder is not None:
        if not Path(folder).is_dir():
            raise LedgerError(f"--book {folder}: no such folder; accepted: a built book's folder")
        catalogue = edition(folder).catalogue
        return Found(catalogue, _published_at(Path(folder), catalogue), root)
    if root is None:
        raise LedgerError(
            "no checkout of the book here; accepted: --book with a built book's folder, or a "
            "folder inside a checkout"
        )
    from proofbook.contents import base_url

    return Found(this_book(root).catalogue, base_url(root), root)


def _published_at(folder: Path, catalogue: Catalogue) -> str:
    """Return the public address that a built book gives its entries; empty where it has none."""
    for name, what in FILES.items():
        for raw in json.loads((folder / name).read_text(encoding="utf-8"))[f"{what}s"]:
            link, here = str(raw.get("permalink") or ""), permalink(catalogue.entries[raw["id"]])
            if link.endswith(here):
                return link.removesuffix(here)
    return ""


def find_entry(id: str, catalogue: Catalogue) -> Entry:
    """Return an entry by its id; an error names the nearest ids."""
    if id in catalogue.entries:
        return catalogue.entries[id]
    hint = nearest(id, catalogue) or "none is like it"
    raise LedgerError(
        f"no number, figure or table {shown(id)} in version {catalogue.version}; {hint}"
    )


def nearest(id: str, catalogue: Catalogue) -> str:
    """Say which ids are most like a text, the nearest first; nothing if none is."""
    # Beyond a hundred letters nothing is an id, and comparing takes long.
    near = difflib.get_close_matches(id[:100], list(catalogue.entries), n=5, cutoff=0.6)
    return f"the nearest are {', '.join(near)}" if near else ""


def _complete_id(incomplete: str) -> list[str]:
    try:
        ids = the_book(None).catalogue.entries
    except InputError:
        return []
    return [id for id in ids if id.startswith(incomplete)]


Book = Annotated[
    str | None,
    opt.option("--book", "DIR", "A built book's folder.", "the checkout's stored notebooks"),
]

# --------------------------------------------------------------------------- cite


def cite(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Of a number, figure or table.", autocompletion=_complete_id
        ),
    ],
    form: Annotated[Literal["bibtex", "plain"], typer.Option("--format", help="How.")] = "bibtex",
    book: Book = None,
    as_json: opt.AsJson = False,
) -> str:
    """Print the citation of a number, figure or table, as its page offers it."""
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
    return answer(str(document[form]).splitlines(), document, as_json)


# --------------------------------------------------------------------------- figure


def figure(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_ID",
            help="A PNG or SVG of the book, whatever its name; or the id of a figure or table.",
            autocompletion=_complete_id,
        ),
    ],
    again: Annotated[
        bool, typer.Option("--again", help="Run its chapter up to its cell, and make it again.")
    ] = False,
    out: Annotated[
        str | None, opt.option("--out", "DIR", "With --again: the folder to make.")
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
    id = what if traced is None else traced.id
    document: dict[str, Any] = {
        "command": "figure",
        "asked": what,
        "stamp": stamp,
        "entry": None if entry is None else entry_json(entry, found.base_url),
        "version": found.catalogue.version,
        "source_digest": found.catalogue.source_digest,
        "current": None if traced is None else traced.same_data,
        "same_sources": None if traced is None else traced.same_sources,
        "again": None,
    }
    parts: list[str | Table] = [Table([id, ""], _facts(stamp or {}, entry, found), left=2)]
    if traced is not None:
        near = nearest(traced.id, traced.catalogue) if entry is None else ""
        parts += ["", traced.verdict(), *([f"T{near[1:]}."] if near else [])]
    if out is not None:
        if entry is None:
            raise LedgerError(
                f"{what}: version {found.catalogue.version} of the book has no {id}, so it cannot "
                "be made again"
            )
        old = entry.digest if stamp is None else str(stamp["data_digest"])
        document["again"], words = _again(entry, old, found, Path(out))
        parts += words
    return answer(parts, document, as_json)


def _stamp(what: str) -> Mapping[str, Any] | None:
    """Return the stamp of a picture; None if what is asked for is no file but an id."""
    path = Path(what)
    if "\0" in what or not path.exists():
        if path.suffix.lower() in (".png", ".svg"):
            raise LedgerError(f"{what}: no such file; accepted: a PNG or SVG, or an id")
        return None
    from proofbook.stamps import read_stamp

    return read_stamp(path)


def _facts(stamp: Mapping[str, Any], entry: Entry | None, found: Found) -> list[list[str]]:
    """Return what is known, line by line: what the picture says, or else what the book says."""
    says: dict[str, Any] = dict(stamp)
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


def _again(entry: Entry, old: str, found: Found, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Make a figure or table again, and say of its data whether they are those of before."""
    from proofbook.build.pictures import remake

    if found.root is None:
        raise LedgerError("--again without a checkout; accepted: one, with the chapters and src/")
    opt.end_cleanly()
    remade = remake(entry, found.root, out, found.base_url)
    files, same = [str(path) for path in remade.files], agree(old, remade.digest)
    said = f"{'the same' if same else 'other'} data ({remade.digest[:SHORT_DIGEST]})"
    document = {"files": files, "data_digest": remade.digest, "same_data": same}
    return document, ["", f"Made again: {said}.", *(f"wrote {file}" for file in files)]


# --------------------------------------------------------------------------- diff

_EDITION = "A release, a built book, a catalogue's JSON, or . for the book here."


def _releases(incomplete: str) -> list[str]:
    return [name for name in release_names() if name.startswith(incomplete)]


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help=_EDITION, autocompletion=_releases)],
    new: Annotated[str, typer.Argument(metavar="NEW", help=_EDITION, autocompletion=_releases)],
    out: Annotated[str | None, opt.option("--out", "FILE", "Write it as Markdown too.")] = None,
    as_json: opt.AsJson = False,
) -> str:
    """Say which numbers, figures and tables changed, came or went, from one edition to another."""
    if out is not None:
        check_file(Path(out))
    changes = compare(edition(old), edition(new))
    document = {
        "command": "diff",
        "old": _about(changes.old),
        "new": _about(changes.new),
        "changed": [
            {"id": c.new.id, "ways": c.ways, "old": entry_json(c.old), "new": entry_json(c.new)}
            for c in changes.changed
        ],
        "added": [entry_json(entry) for entry in changes.added],
        "removed": [entry_json(entry) for entry in changes.removed],
        "same": [entry.id for entry in changes.same],
        "compared_by_text": [entry.id for entry in changes.by_text],
        "not_compared": [entry.id for entry in changes.unknown],
    }
    parts: list[str | Table] = [*summary(changes)]
    if lines := rows(changes):
        parts += ["", Table(["page", "what", "id", "was", "is"], lines, left=5)]
    if out is not None:
        write_whole(Path(out), markdown(changes).encode())
        parts.append(f"wrote {out}")
    return answer(parts, document, as_json)


def _about(edition: Edition) -> dict[str, str]:
    about = edition.catalogue
    return {"name": edition.name, "version": about.version, "source_digest": about.source_digest}
