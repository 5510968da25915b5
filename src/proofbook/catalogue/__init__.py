"""Every number, figure and table of the book: what it says, where it stands, what made it.

The catalogue is read from what the notebooks show (:mod:`proofbook.catalogue.notebook_entries`), so
it can hold nothing that no page shows. Pages, commands, comparisons of versions and the JSON files
beside the pages all read this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import msgspec

from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import this_project
from proofbook.showing import Kind, json_bytes

What = Literal["number", "figure", "table"]

#: First digits of a digest, as footers and citations show them.
SHORT_DIGEST = 8

#: File beside the pages -> what it lists.
FILES: Mapping[str, What] = MappingProxyType(
    {"numbers.json": "number", "figures.json": "figure", "tables.json": "table"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One number, figure or table.

    Attributes
    ----------
    id : str
        ``stock.sold_parts``, ``fig-stock`` or ``tab-stock``.
    what : {"number", "figure", "table"}
        Which of these it is.
    kind : {"computed", "cited", "measured"}
        Where its value comes from.
    source : str or None
        Citation, or record file; None of what is computed.
    page : str
        The page that shows it, without suffix: ``chapters/stock``.
    cell : str
        Id of the notebook's cell that shows it.
    text : str
        Of a number, the text that is shown; of a figure, its title; of a table, its caption.
    value : str or None
        Of a number, its exact value: ``38``, ``153/4``, ``0.366``, or the words of a text.
    unit : str or None
        Of a number; empty for a pure number, ``text`` for words.
    digest : str
        SHA-256 of the CSV; of a number, see :func:`number_digest`.
    caption : str or None
        Of a figure or table, as plain text, its numbers filled in.
    alt : str or None
        Of a figure, what it shows.
    """

    id: str
    what: What
    kind: Kind
    source: str | None
    page: str
    cell: str
    text: str
    value: str | None
    unit: str | None
    digest: str
    caption: str | None
    alt: str | None

    @property
    def anchor(self) -> str:
        """The id of the element that shows it on its page."""
        return f"n-{self.id}" if self.what == "number" else self.id


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries of one version of the book, by id, in the order in which a reader meets them."""

    version: str
    source_digest: str
    entries: Mapping[str, Entry]

    @property
    def pages(self) -> tuple[str, ...]:
        """The pages that show an entry, in order."""
        return tuple(dict.fromkeys(entry.page for entry in self.entries.values()))


def number_digest(id: str, value: str, unit: str) -> str:
    """SHA-256 of a number: of its id, its exact value and its unit."""
    return hashlib.sha256(f"{id}\0{value}\0{unit}".encode()).hexdigest()


def permalink(entry: Entry, base_url: str = "") -> str:
    """Address of an entry on its page; relative to the book where no public address is known.

    Examples
    --------
    >>> entry = Entry("fig-a", "figure", "computed", None, "chapters/a", "c", "A", None, None,
    ...               "0" * 64, "A.", "A.")
    >>> permalink(entry, "https://book.example")
    'https://book.example/chapters/a.html#fig-a'
    """
    base = base_url.rstrip("/") + "/" if base_url else ""
    return f"{base}{entry.page}.html#{entry.anchor}"


# ---------------------------------------------------------------- as JSON


class Document(msgspec.Struct, kw_only=True):
    """What a JSON file of a catalogue holds; one beside the pages has one of the three lists."""

    version: str
    source_digest: str
    pages: list[str] = []
    numbers: list[Entry] | None = None
    figures: list[Entry] | None = None
    tables: list[Entry] | None = None
    #: Of a release: see :class:`proofbook.catalogue.editions.Printed`.
    table_rows: dict[str, str] = {}
    early: list[str] = []


def to_json(catalogue: Catalogue, base_url: str = "") -> dict[str, Any]:
    """Return a catalogue as one JSON object, for a book at this public address, if it has one.

    It has ``project``, ``version``, ``source_digest``, ``pages`` (in order) and the lists
    ``numbers``, ``figures`` and ``tables``; an entry has the fields of :class:`Entry` and its
    ``permalink``.
    """
    entries = catalogue.entries.values()
    return {
        "project": this_project().name,
        "version": catalogue.version,
        "source_digest": catalogue.source_digest,
        "pages": list(catalogue.pages),
        **{
            f"{what}s": [entry_json(entry, base_url) for entry in entries if entry.what == what]
            for what in get_args(What)
        },
    }


def entry_json(entry: Entry, base_url: str = "") -> dict[str, Any]:
    """Return an entry as a JSON object: its fields and its permalink."""
    return asdict(entry) | {"permalink": permalink(entry, base_url)}


def write_catalogue(catalogue: Catalogue, folder: Path, base_url: str = "") -> None:
    """Write the files of :data:`FILES` into a folder; the same catalogue gives the same bytes."""
    made = to_json(catalogue, base_url)
    for name, what in FILES.items():
        others = {f"{other}s" for other in get_args(What) if other != what}
        content = {key: value for key, value in made.items() if key not in others}
        write_whole(folder / name, json_bytes(content))


def read_catalogue(where: Path) -> Catalogue:
    """Read a catalogue back: by page, and on a page numbers first, then figures, then tables.

    Parameters
    ----------
    where : Path
        A built book's folder, or any with its three files; or one file that holds all three lists,
        as :func:`to_json` gives them.

    Raises
    ------
    InputError
        If a file is missing, no JSON, or lacks a field; the message names file, entry and field.
    """
    if where.is_file():
        return catalogue_from(dict.fromkeys(FILES, (where, read_document(where))))
    return catalogue_from({name: (where / name, read_document(where / name)) for name in FILES})


def read_document(path: Path) -> Document:
    """Read a JSON file of a catalogue; an error names file, entry and field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Document)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; accepted: a built book's folder, or a catalogue's JSON"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; accepted: the JSON of a catalogue") from None


def catalogue_from(parts: Mapping[str, tuple[Path, Document]]) -> Catalogue:
    """Put a catalogue together from documents, by the names of :data:`FILES`, and their paths."""
    first, head = next(iter(parts.values()))
    entries: dict[str, Entry] = {}
    order = {page: at for at, page in enumerate(head.pages)}
    for name, (path, part) in parts.items():
        if (part.version, part.source_digest) != (head.version, head.source_digest):
            raise InputError(
                f"{path}: version {part.version}, sources {part.source_digest}, but in {first} "
                f"{head.version}, {head.source_digest}; accepted: files of one build"
            )
        what = FILES[name]
        listed: list[Entry] | None = getattr(part, f"{what}s")
        if listed is None:
            raise InputError(f"{path}: no {what}s; accepted: a list of {what}s")
        for place, entry in enumerate(listed, start=1):
            if entry.what != what:
                raise InputError(f"{path}, {what} {place}: what {entry.what!r}; accepted: {what!r}")
            if entries.setdefault(entry.id, entry) is not entry:
                raise InputError(f"{path}: {entry.id} stands twice; accepted: one entry an id")
    found = sorted(entries.values(), key=lambda entry: order.get(entry.page, len(order)))
    return Catalogue(
        head.version, head.source_digest, MappingProxyType({entry.id: entry for entry in found})
    )
