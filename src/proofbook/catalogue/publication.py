"""The files of figures and tables, completed with what only the whole book knows.

A cell saves a drawing and its data; on which page it stands, under which caption, and so how it is
cited, is known when all pages are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proofbook.catalogue import Catalogue, Entry, entry_json, write_catalogue
from proofbook.catalogue.citations import bibtex
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import this_project
from proofbook.showing.folders import json_bytes
from proofbook.stamps import stamped_png, stamped_svg

__all__ = ["publish", "stamp_of"]

#: Of the book's figures and tables: a drawing of somebody's own data says none.
LICENCE = "CC BY 4.0"
DRAWINGS = (".svg", ".dark.svg", ".png")


def publish(catalogue: Catalogue, folder: Path, base_url: str = "") -> None:
    """Complete the files of every figure and table, and list everything as JSON.

    Writes ``numbers.json``, ``figures.json`` and ``tables.json`` into `folder`; in its folders
    ``figures`` and ``tables`` the ``.bib`` and ``.json`` of each id, and the stamp of its drawings.

    Parameters
    ----------
    catalogue : Catalogue
        What the pages show.
    folder : Path
        Holds ``figures`` and ``tables``, as the cells saved them.
    base_url : str
        Public address of the book, if it has one.

    Raises
    ------
    InputError
        If a file is missing, or its data are not those that the page shows.
    """
    write_catalogue(catalogue, folder, base_url)
    for entry in catalogue.entries.values():
        if entry.what == "number":
            continue
        place = folder / f"{entry.what}s"
        about = _saved(place / f"{entry.id}.json")
        if about.get("digest") != entry.digest:
            raise InputError(
                f"{entry.id}: its files are of data {about.get('digest')}, the page shows data "
                f"{entry.digest}; run `make clean`, then `make book`"
            )
        about |= {"project": this_project().name, "version": catalogue.version, "licence": LICENCE}
        about |= {"source_digest": catalogue.source_digest, **entry_json(entry, base_url)}
        write_whole(place / f"{entry.id}.json", json_bytes(about))
        write_whole(place / f"{entry.id}.bib", bibtex(entry, catalogue, base_url).encode())
        if entry.what == "figure":
            _stamp_drawings(place, entry, stamp_of(entry, catalogue))


def stamp_of(entry: Entry, catalogue: Catalogue) -> dict[str, str]:
    """Return what a drawing says of itself, see :mod:`proofbook.stamps`."""
    stamp = {
        "project": this_project().name,
        "version": catalogue.version,
        "id": entry.id,
        "title": entry.text,
        "kind": entry.kind,
        "source": entry.source,
        "data_digest": entry.digest,
        "source_digest": catalogue.source_digest,
        "page": entry.page,
        "cell": entry.cell,
        "licence": LICENCE,
    }
    return {key: value for key, value in stamp.items() if value is not None}


def _stamp_drawings(place: Path, entry: Entry, stamp: dict[str, str]) -> None:
    for end in DRAWINGS:
        path = place / f"{entry.id}{end}"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"{path}: {error.strerror}; run `make clean`, then `make book`"
            ) from None
        made = (
            stamped_png(content, stamp)
            if end == ".png"
            else stamped_svg(content.decode(), stamp).encode()
        )
        write_whole(path, made)


def _saved(path: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}; run `make clean`, then `make book`") from None
    return about
