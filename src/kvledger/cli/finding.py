"""Where a command finds the book's catalogue, and an entry of it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kvledger.core.errors import LedgerError, shown
from proofbook.catalogue import FILES, Catalogue, Entry, permalink
from proofbook.catalogue.editions import Edition, edition, this_book
from proofbook.project import repository_root

Book = Annotated[
    str | None,
    typer.Option(
        "--book",
        metavar="DIR",
        help="A built book's folder.",
        show_default="the checkout's stored notebooks",
    ),
]


class Found(NamedTuple):
    """The book that a command asks: an edition, its public address, and the checkout, if any."""

    edition: Edition
    base_url: str
    root: Path | None

    @property
    def catalogue(self) -> Catalogue:
        """All that the book shows."""
        return self.edition.catalogue


def the_book(folder: str | None) -> Found:
    """Return the book to ask: a built one, or the notebooks of the checkout.

    Raises
    ------
    LedgerError
        If there is neither, or it cannot be read.
    """
    root = repository_root()
    if folder is not None:
        if not Path(folder).is_dir():
            raise LedgerError(f"--book {folder}: no such folder; accepted: a built book's folder")
        found = edition(folder)
        if (Path(folder) / "_toc.yml").is_file():
            return Found(found, _address(Path(folder)), Path(folder))
        return Found(found, _published_at(Path(folder), found.catalogue), root)
    if root is None:
        raise LedgerError(
            "no checkout of the book here; accepted: --book with a built book's folder, or a "
            "folder inside a checkout"
        )
    return Found(this_book(root), _address(root), root)


def _address(root: Path) -> str:
    from proofbook.contents import base_url

    return base_url(root)


def _published_at(folder: Path, catalogue: Catalogue) -> str:
    """Return the public address that a built book gives its entries; empty where it has none."""
    for name, what in FILES.items():
        for raw in json.loads((folder / name).read_text(encoding="utf-8"))[f"{what}s"]:
            link, here = str(raw.get("permalink") or ""), permalink(catalogue.entries[raw["id"]])
            if link.endswith(here):
                return link.removesuffix(here)
    return ""


def find_entry(id: str, catalogue: Catalogue) -> Entry:
    """Return an entry by its id.

    Raises
    ------
    LedgerError
        If there is none; the message names the nearest ids.
    """
    if id in catalogue.entries:
        return catalogue.entries[id]
    near = nearest(id, catalogue.entries)
    hint = f"the nearest are {', '.join(near)}" if near else "none is like it"
    raise LedgerError(
        f"no number, figure or table {shown(id)} in version {catalogue.version}; {hint}"
    )


def nearest(id: str, ids: Iterable[str]) -> list[str]:
    """Return the ids most like a text, the nearest first.

    Examples
    --------
    >>> nearest("fig-slack-shares", ["fig-slack-share", "tab-slack-share", "paged.pages"])
    ['fig-slack-share', 'tab-slack-share']
    """
    # Beyond a hundred letters nothing is an id, and comparing takes long.
    return difflib.get_close_matches(id[:100], list(ids), n=5, cutoff=0.6)


def complete_id(incomplete: str) -> list[str]:
    """Return the ids that begin so."""
    try:
        ids = the_book(None).catalogue.entries
    except LedgerError:
        return []
    return [id for id in ids if id.startswith(incomplete)]
