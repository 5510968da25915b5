"""The book as it was or is: a release, a built book, a checkout, or a revision of one.

Nothing is checked out: the notebooks of a revision are read from Git's own store.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proofbook import project
from proofbook.catalogue import Catalogue, identity, read_catalogue, stored_catalogue
from proofbook.contents import page_files
from proofbook.errors import InputError, shown
from proofbook.marks import MARK

__all__ = [
    "Edition",
    "Printed",
    "edition",
    "read_release",
    "release_names",
    "this_book",
    "what_prints",
]

ACCEPTED = (
    "a release, a built book's folder, a checkout's folder (. is one), a catalogue's JSON file, or "
    "a git revision"
)
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){1,3}")


class Printed(NamedTuple):
    """What notebooks say besides their catalogue.

    Attributes
    ----------
    table_rows : mapping of str to str
        SHA-256 of the rows that each table prints, by its id, its caption left out.
    early : frozenset of str
        Ids of numbers and tables whose outputs, of an early version, hold neither an exact value
        nor a digest of data; their catalogue has the text in its place.
    """

    table_rows: Mapping[str, str]
    early: frozenset[str]


class Edition(NamedTuple):
    """The book at one time: what to call it, its catalogue, and what its notebooks say besides.

    Without notebooks at hand, ``printed`` is empty.
    """

    name: str
    catalogue: Catalogue
    printed: Printed = Printed({}, frozenset())


# ---------------------------------------------------------------- finding one


def edition(text: str, root: Path | None = None) -> Edition:
    """Return the edition that a reader names.

    Parameters
    ----------
    text : str
        A release, ``.`` for this checkout, a built book's folder, a checkout's folder, a
        catalogue's JSON file, or a git revision; the first of these that there is.
    root : Path, optional
        The checkout whose revisions are meant; the present one unless given.

    Raises
    ------
    InputError
        If it is none of these, or cannot be read.
    """
    if text in release_names():
        return read_release(text)
    root = root or project.repository_root()
    if text == ".":
        if root is None:
            raise InputError(f"'.': no checkout of the book here; accepted: {ACCEPTED}")
        return this_book(root)
    path = Path(text)
    # A name that no system can hold is no file's.
    if text and "\0" not in text and path.is_dir():
        return _from_folder(path, text)
    if text and "\0" not in text and path.is_file():
        return _from_file(path, path.name)
    if root is None:
        raise InputError(f"{shown(text)}: no such release, folder or file; accepted: {ACCEPTED}")
    from proofbook.catalogue.revisions import revision

    return revision(text, root)


def _from_folder(folder: Path, name: str) -> Edition:
    if (folder / "_toc.yml").is_file():
        return this_book(folder)
    if (folder / "numbers.json").is_file():
        catalogue = read_catalogue(folder)
        return Edition(f"{catalogue.version} in {name}", catalogue)
    raise InputError(
        f"{shown(name)}: a folder without _toc.yml or numbers.json; accepted: {ACCEPTED}"
    )


def this_book(root: Path, name: str | None = None) -> Edition:
    """Return the book of a checkout, as its notebooks are stored.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.
    name : str, optional
        What to call it; its version, and that it is the one here, unless given.
    """
    catalogue = stored_catalogue(root)
    notebooks = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in page_files(root)
        if path.suffix == ".ipynb"
    ]
    return Edition(name or f"{catalogue.version} here", catalogue, what_prints(notebooks))


def what_prints(notebooks: Iterable[Any]) -> Printed:
    """Read from notebooks' outputs what is not in their catalogue."""
    rows, early = {}, set()
    for notebook in notebooks:
        for cell in notebook["cells"]:
            for output in cell.get("outputs", ()):
                data, metadata = output.get("data", {}), output.get("metadata", {})
                found = identity(data, metadata)
                if found is None or found.what == "figure":
                    continue
                about = metadata.get(MARK) or {}
                if ("value" if found.what == "number" else "digest") not in about:
                    early.add(found.id)
                if found.what == "table":
                    _, _, printed = "".join(data.get("text/plain", "")).partition("\n\n")
                    rows[found.id] = hashlib.sha256(printed.encode()).hexdigest()
    return Printed(rows, frozenset(early))


# ---------------------------------------------------------------- releases


def releases_folder() -> Path:
    """Return the folder that keeps one catalogue a release."""
    return project.this_project().data / "releases"


def release_names() -> list[str]:
    """Return the releases on file, the first one first.

    Examples
    --------
    >>> release_names()[0]
    '0.1.0'
    """
    names = [path.stem for path in releases_folder().glob("*.json")]
    return sorted(
        (name for name in names if _VERSION.fullmatch(name)),
        key=lambda name: [int(part) for part in name.split(".")],
    )


def read_release(name: str) -> Edition:
    """Return a release.

    Raises
    ------
    InputError
        If none of that name is on file, or its file cannot be read.
    """
    if name not in release_names():
        known = ", ".join(release_names()) or "none is on file"
        raise InputError(f"no release {shown(name)}; accepted: {known}")
    return _from_file(releases_folder() / f"{name}.json", name)


def _from_file(path: Path, name: str) -> Edition:
    catalogue = read_catalogue(path)
    # Beside the catalogue, a release keeps what its notebooks showed.
    document = json.loads(path.read_text(encoding="utf-8"))
    rows, early = document.get("table_rows", {}), document.get("early", [])
    if not isinstance(rows, dict) or not all(isinstance(row, str) for row in rows.values()):
        raise InputError(f"{path}, table_rows; accepted: a digest for each table")
    if not isinstance(early, list) or not all(isinstance(id, str) for id in early):
        raise InputError(f"{path}, early; accepted: a list of ids")
    return Edition(name, catalogue, Printed(rows, frozenset(early)))
