"""The book as it was or is: a release, a built book, or the notebooks here.

``python -m proofbook.catalogue.editions`` keeps the book here as a release of its version.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proofbook import project
from proofbook.catalogue import (
    FILES,
    Catalogue,
    catalogue_from,
    read_catalogue,
    read_document,
    to_json,
)
from proofbook.catalogue.notebook_entries import identity, joined, outputs_of, stored_catalogue
from proofbook.contents import stored_notebooks
from proofbook.errors import InputError, shown
from proofbook.files import write_whole
from proofbook.showing import json_bytes

ACCEPTED = "a release, a built book's folder, a catalogue's JSON file, or . for the book here"
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){1,3}")


class Printed(NamedTuple):
    """What notebooks say besides their catalogue.

    Attributes
    ----------
    table_rows : mapping of str to str
        SHA-256 of the rows that each table prints, by its id, its caption left out.
    early : frozenset of str
        Ids of numbers and tables of an early release, whose outputs held neither an exact value
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


def edition(text: str, root: Path | None = None) -> Edition:
    """Return the edition that a reader names.

    Parameters
    ----------
    text : str
        A release, ``.`` for the book here (of the checkout `root`, if given), a built book's
        folder, or a catalogue's JSON file; the first of these that there is.

    Raises
    ------
    InputError
        If it is none of these, or cannot be read.
    """
    if text in release_names():
        return read_release(text)
    if text == ".":
        root = root or project.repository_root()
        if root is None:
            raise InputError(f"'.': no checkout of the book here; accepted: {ACCEPTED}")
        return this_book(root)
    # A name that no system can hold is no file's.
    path = Path(text.replace("\0", ""))
    if text and (path / "numbers.json").is_file():
        catalogue = read_catalogue(path)
        return Edition(f"{catalogue.version} in {text}", catalogue)
    if text and path.is_file():
        return _from_file(path, path.name)
    what = "a folder without numbers.json" if text and path.is_dir() else "no such release or file"
    raise InputError(f"{shown(text)}: {what}; accepted: {ACCEPTED}")


def this_book(root: Path) -> Edition:
    """Return the book of a checkout, as its notebooks are stored."""
    catalogue = stored_catalogue(root)
    printed = what_prints(stored_notebooks(root).values())
    return Edition(f"{catalogue.version} here", catalogue, printed)


def what_prints(notebooks: Iterable[Any]) -> Printed:
    """Read from notebooks' outputs what is not in their catalogue."""
    rows = {}
    for notebook in notebooks:
        for _, output in outputs_of(notebook):
            data = output.get("data", {})
            found = identity(data, output.get("metadata", {}))
            if found is not None and found.what == "table":
                _, _, printed = joined(data.get("text/plain", "")).partition("\n\n")
                rows[found.id] = hashlib.sha256(printed.encode()).hexdigest()
    return Printed(rows, frozenset())


# ---------------------------------------------------------------- releases


def releases_folder() -> Path:
    """Return the folder that keeps one catalogue a release."""
    return project.this_project().data / "releases"


def release_names() -> list[str]:
    """Return the releases on file, the first one first."""
    names = [path.stem for path in releases_folder().glob("*.json")]
    return sorted(
        (name for name in names if _VERSION.fullmatch(name)),
        key=lambda name: [int(part) for part in name.split(".")],
    )


def read_release(name: str) -> Edition:
    """Return a release; an error names those on file."""
    if name not in release_names():
        known = ", ".join(release_names()) or "none is on file"
        raise InputError(f"no release {shown(name)}; accepted: {known}")
    return _from_file(releases_folder() / f"{name}.json", name)


def _from_file(path: Path, name: str) -> Edition:
    # Beside the catalogue, a release keeps what its notebooks showed.
    document = read_document(path)
    printed = Printed(document.table_rows, frozenset(document.early))
    return Edition(name, catalogue_from(dict.fromkeys(FILES, (path, document))), printed)


def snapshot(made: Edition) -> bytes:
    """Return an edition as the JSON of a release: its catalogue, and what its notebooks show."""
    rows = dict(sorted(made.printed.table_rows.items()))
    early = sorted(made.printed.early)
    return json_bytes(to_json(made.catalogue) | {"table_rows": rows, "early": early})


def main() -> int:
    """Keep the book here as a release; return the exit status."""
    try:
        made = edition(".")
        out = releases_folder() / f"{made.catalogue.version}.json"
        if out.exists():
            raise InputError(f"{out}: is kept already; accepted: a version without a release")
        write_whole(out, snapshot(made))
    except InputError as error:
        print(f"proofbook: {error}", file=sys.stderr)
        return 2
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
