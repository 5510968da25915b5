"""The catalogue as JSON, for the pages and for other people's programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from proofbook.catalogue.entries import Catalogue, Entry, Kind, What, permalink
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import this_project
from proofbook.showing.folders import json_bytes

#: File beside the pages -> what it lists.
FILES: Mapping[str, What] = MappingProxyType(
    {"numbers.json": "number", "figures.json": "figure", "tables.json": "table"}
)


def to_json(catalogue: Catalogue, base_url: str = "") -> dict[str, Any]:
    """Return a catalogue as one JSON object.

    Parameters
    ----------
    catalogue : Catalogue
        What to write.
    base_url : str
        Public address of the book, if it has one.

    Returns
    -------
    dict
        ``project``, ``version``, ``source_digest``, ``pages`` (in order) and the lists
        ``numbers``, ``figures`` and ``tables``; an entry has the fields of :class:`Entry` and its
        ``permalink``.
    """
    made: dict[str, Any] = {
        "project": this_project().name,
        "version": catalogue.version,
        "source_digest": catalogue.source_digest,
        "pages": list(catalogue.pages),
    }
    for what in get_args(What):
        made[f"{what}s"] = [
            entry_json(entry, base_url)
            for entry in catalogue.entries.values()
            if entry.what == what
        ]
    return made


def entry_json(entry: Entry, base_url: str = "") -> dict[str, Any]:
    """Return an entry as a JSON object: its fields and its permalink."""
    made = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return made | {"permalink": permalink(entry, base_url)}


def write_catalogue(catalogue: Catalogue, folder: Path, base_url: str = "") -> None:
    """Write ``numbers.json``, ``figures.json`` and ``tables.json`` into a folder.

    The same catalogue gives the same bytes.

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    made = to_json(catalogue, base_url)
    lists = {f"{what}s" for what in get_args(What)}
    for name, what in FILES.items():
        content = {k: v for k, v in made.items() if k not in lists or k == f"{what}s"}
        write_whole(folder / name, json_bytes(content))


def read_catalogue(where: Path) -> Catalogue:
    """Read a catalogue back.

    Parameters
    ----------
    where : Path
        A built book's folder, or any with its three files; or one file that holds all three lists,
        as :func:`to_json` gives them.

    Returns
    -------
    Catalogue
        Entries by page; on a page numbers come first, then figures, then tables.

    Raises
    ------
    InputError
        If a file is missing, no JSON, or lacks a field; the message names file, entry and field.
    """
    if where.is_dir():
        parts = [_object(where / name) for name in FILES]
        lists = [(where / name, what) for name, what in FILES.items()]
    else:
        parts = [_object(where)] * len(FILES)
        lists = [(where, what) for what in FILES.values()]
    heads = [
        (_text(part, "version", path), _text(part, "source_digest", path))
        for part, (path, _) in zip(parts, lists, strict=True)
    ]
    for head, (path, _) in zip(heads, lists, strict=True):
        if head != heads[0]:
            raise InputError(
                f"{path}: version and source digest {head}, but {heads[0]} in {lists[0][0]}; "
                "accepted: files of one build"
            )
    found = [
        entry
        for part, (path, what) in zip(parts, lists, strict=True)
        for entry in _entries(part, what, path)
    ]
    pages = parts[0].get("pages")
    order = {str(page): i for i, page in enumerate(pages if isinstance(pages, list) else [])}
    found.sort(key=lambda entry: order.get(entry.page, len(order)))  # stable: the rest stays
    entries = {entry.id: entry for entry in found}
    if len(entries) != len(found):
        twice = next(e.id for i, e in enumerate(found) if e.id in {f.id for f in found[:i]})
        raise InputError(f"{where}: {twice} stands twice; accepted: one entry an id")
    return Catalogue(*heads[0], MappingProxyType(entries))


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; accepted: a built book's folder, or a catalogue's JSON"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: {type(content).__name__}; accepted: a JSON object")
    return content


def _text(content: Mapping[str, Any], name: str, at: object) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise InputError(f"{at}, {name}: {value!r}; accepted: a text")
    return value


def _entries(content: Mapping[str, Any], what: What, path: Path) -> Iterator[Entry]:
    listed = content.get(f"{what}s")
    if not isinstance(listed, list):
        raise InputError(f"{path}, {what}s: {listed!r}; accepted: a list of {what}s")
    for place, raw in enumerate(listed, start=1):
        at = f"{path}, {what} {place}"
        if not isinstance(raw, dict):
            raise InputError(f"{at}: {raw!r}; accepted: a JSON object")
        given: dict[str, Any] = {}
        for field in fields(Entry):
            value = raw.get(field.name)
            if value is None and "None" in str(field.type):
                given[field.name] = None
            else:
                given[field.name] = _text(raw, field.name, at)
        if given["what"] != what or given["kind"] not in get_args(Kind):
            raise InputError(
                f"{at}: what {given['what']!r}, kind {given['kind']!r}; accepted: {what!r}, one of "
                f"{', '.join(get_args(Kind))}"
            )
        yield Entry(**given)
