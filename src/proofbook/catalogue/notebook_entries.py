"""The catalogue as the outputs of notebooks say it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast, get_args

from proofbook import project
from proofbook.catalogue.captions import plain_caption
from proofbook.catalogue.entries import Catalogue, Entry, Kind, What, number_digest
from proofbook.contents import page_files
from proofbook.errors import InputError
from proofbook.marks import FIGURE_TEXT, MARK, RECORD, TABLE_HTML

# What a table's text says after its caption.
KIND_LINE = re.compile(r" (Computed here|Cited: .*|Measured: .*)\.$")


def catalogue_of(notebooks: Mapping[str, Any], *, version: str, source_digest: str) -> Catalogue:
    """Read the catalogue from what notebooks show.

    Parameters
    ----------
    notebooks : mapping of str to notebook
        Page without suffix -> its notebook with outputs, as parsed from its file.
    version : str
        Of the book.
    source_digest : str
        Of the code and data that the outputs were made from.

    Returns
    -------
    Catalogue
        Entries by page in the order given, then in order on the page. An id that is shown again
        with the same content stands where it was first. Outputs of early versions hold neither
        exact values nor full digests: a number's text stands for its value, and the digest of a
        figure is the eight digits shown.

    Raises
    ------
    InputError
        For an output that does not say its kind, a caption with a number that no page shows, or
        an id that is shown twice with different contents; the message names page and cell.
    """
    shown = {page: list(_outputs(page, notebook)) for page, notebook in notebooks.items()}
    texts = {
        page: {each.id: each.text for each in found if each.what == "number"}
        for page, found in shown.items()
    }
    entries: dict[str, Entry] = {}
    for page, found in shown.items():
        for each in found:
            entry = _entry(each, page, texts)
            other = entries.setdefault(entry.id, entry)
            if (other.text, other.digest) != (entry.text, entry.digest):
                raise InputError(
                    f"{page}, cell {entry.cell}: {entry.id} says {entry.text!r}, but "
                    f"{other.text!r} on {other.page}, cell {other.cell}; "
                    "accepted: one content an id"
                )
    return Catalogue(version, source_digest, MappingProxyType(entries))


class _Output(NamedTuple):
    """One output, before its caption is filled in."""

    id: str
    what: What
    cell: str
    text: str
    about: Mapping[str, Any]
    caption: str | None
    early_digest: str


def _outputs(page: str, notebook: Any) -> Iterator[_Output]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            found = identity(data, output.get("metadata", {}))
            if found is None:
                continue
            id, what, early_digest = found
            about = output.get("metadata", {}).get(MARK)
            at = f"{page}, cell {cell.get('id')}: {id}"
            if not isinstance(about, Mapping) or about.get("kind") not in get_args(Kind):
                raise InputError(
                    f"{at} does not say its kind; accepted: outputs of number(), figure(), table()"
                )
            caption = cell.get("metadata", {}).get("mystnb", {}).get("figure", {}).get("caption")
            if what == "number":
                text = _joined(data[RECORD])
            elif what == "table":
                first = _joined(data.get("text/plain", "")).split("\n", 1)[0]
                caption = text = str(about.get("caption") or KIND_LINE.sub("", first))
            else:
                text = str(about.get("title") or "")
            yield _Output(id, what, str(cell.get("id")), text, about, caption, early_digest)


class Shown(NamedTuple):
    """What one output shows, and what an early version of it has for a digest."""

    id: str
    what: What
    early_digest: str


def identity(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> Shown | None:
    """Tell which number, figure or table an output shows; None for any other.

    Parameters
    ----------
    data, metadata : mapping
        Of the output, as in a notebook's file.

    Examples
    --------
    >>> identity({"image/png": "...", "text/plain": "fig-a · data 0123abcd"}, {})
    Shown(id='fig-a', what='figure', early_digest='0123abcd')
    >>> identity({"text/plain": "38"}, {}) is None
    True
    """
    plain = _joined(data.get("text/plain", "")).strip()
    if RECORD in data:
        name = metadata.get("scrapbook", {}).get("name")
        return Shown(str(name), "number", "") if name else None
    figure = FIGURE_TEXT.fullmatch(plain)
    if figure is not None and any(kind.startswith("image/") for kind in data):
        return Shown(figure["id"], "figure", figure["digest"])
    table = TABLE_HTML.match(_joined(data.get("text/html", "")))
    if table is None:
        return None
    return Shown(table["id"], "table", hashlib.sha256(plain.encode()).hexdigest())


def _entry(
    each: _Output,
    page: str,
    texts: Mapping[str, Mapping[str, str]],
) -> Entry:
    about = each.about
    value = unit = alt = caption = None
    text = each.text
    if each.what == "number":
        value = str(about["value"]) if "value" in about else text
        unit = str(about.get("unit") or "")
        digest = number_digest(each.id, value, unit)
    else:
        at = f"{page}, cell {each.cell}: {each.id}"
        caption = plain_caption(each.caption, page, texts, at) if each.caption else None
        text = text or (re.split(r"(?<=\.)\s", caption)[0].rstrip(".") if caption else each.id)
        alt = str(about["alt"]) if about.get("alt") else None
        digest = str(about.get("digest") or each.early_digest)
    source = about.get("source")
    return Entry(
        id=each.id,
        what=each.what,
        kind=cast(Kind, about["kind"]),
        source=str(source) if source is not None else None,
        page=page,
        cell=each.cell,
        text=text,
        value=value,
        unit=unit,
        digest=digest,
        caption=caption,
        alt=alt,
    )


def _joined(text: str | Iterable[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def stored_catalogue(root: Path) -> Catalogue:
    """Read the catalogue of a checkout from its chapters as they are stored.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.

    Raises
    ------
    InputError
        For a chapter that is missing or no notebook, and what :func:`catalogue_of` refuses.

    Examples
    --------
    >>> root = project.repository_root()
    >>> stored_catalogue(root).entries["fig-slack-share"].page if root else "no checkout"
    'chapters/page_tail_slack'
    """
    notebooks = {}
    for path in page_files(root):
        if path.suffix != ".ipynb":
            continue
        page = path.relative_to(root).with_suffix("").as_posix()
        try:
            notebook = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a notebook: {error}") from None
        if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
            raise InputError(f"{path}: no cells; accepted: a Jupyter notebook")
        notebooks[page] = notebook
    return catalogue_of(
        notebooks,
        version=project.this_project(root).version,
        source_digest=project.source_digest(root),
    )
