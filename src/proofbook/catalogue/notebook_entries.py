"""The catalogue as the outputs of notebooks say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from proofbook import project
from proofbook.catalogue import Catalogue, Entry, What, number_digest
from proofbook.contents import stored_notebooks
from proofbook.errors import InputError
from proofbook.showing import FIGURE_TEXT, MARK, RECORD, TABLE_HTML, Kind

#: What the mark of an output says at least: of all, and of each sort.
_NEEDED = {"number": {"kind", "value", "unit"}, "figure": {"kind", "digest", "title", "alt"}}
_NEEDED["table"] = {"kind", "digest", "caption"}
_MARKED = re.compile(
    r"\{(?P<role>[a-z:]+)\}`(?P<content>[^`]+)`"
    r"|\[(?P<link>[^\]]+)\]\([^)]*\)|\$(?P<math>[^$]+)\$|`(?P<code>[^`]+)`"
    r"|\*\*(?P<strong>[^*]+)\*\*|\*(?P<emphasis>[^*]+)\*"
)
_TITLED = re.compile(r"(?P<words>.*?)\s*<(?P<target>[^<>]+)>", re.DOTALL)


def stored_catalogue(root: Path) -> Catalogue:
    """Read the catalogue of a checkout from its chapters as they are stored."""
    return catalogue_of(
        stored_notebooks(root),
        version=project.this_project(root).version,
        source_digest=project.source_digest(root),
    )


def catalogue_of(notebooks: Mapping[str, Any], *, version: str, source_digest: str) -> Catalogue:
    """Read the catalogue from what notebooks show, in the order of pages and of what is on them.

    An id that is shown again with the same content stands where it was first.

    Parameters
    ----------
    notebooks : mapping of str to notebook
        Page without suffix -> its notebook with outputs, as parsed from its file.
    version, source_digest : str
        Of the book, and of the code and data that the outputs were made from.

    Raises
    ------
    InputError
        For an output that does not say its kind and content, a caption with a number that no page
        shows, or an id that is shown twice with different contents; the message names page and
        cell.
    """
    shown = {page: list(_outputs(page, notebook)) for page, notebook in notebooks.items()}
    texts = {
        page: {entry.id: entry.text for entry, _ in found if entry.what == "number"}
        for page, found in shown.items()
    }
    entries: dict[str, Entry] = {}
    for page, found in shown.items():
        for entry, caption in found:
            if caption is not None:
                at = f"{page}, cell {entry.cell}: {entry.id}"
                entry = replace(entry, caption=plain_caption(caption, page, texts, at))
            other = entries.setdefault(entry.id, entry)
            if (other.text, other.digest) != (entry.text, entry.digest):
                raise InputError(
                    f"{page}, cell {entry.cell}: {entry.id} says {entry.text!r}, but "
                    f"{other.text!r} on {other.page}, cell {other.cell}; "
                    "accepted: one content an id"
                )
    return Catalogue(version, source_digest, MappingProxyType(entries))


def outputs_of(notebook: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each output of a notebook with its cell."""
    return ((cell, output) for cell in notebook["cells"] for output in cell.get("outputs", ()))


def _outputs(page: str, notebook: Any) -> Iterator[tuple[Entry, str | None]]:
    """Yield each entry, and the caption to fill in, if it stands in Markdown beside the output."""
    for cell, output in outputs_of(notebook):
        data, metadata = output.get("data", {}), output.get("metadata", {})
        found = identity(data, metadata)
        if found is None:
            continue
        about = metadata.get(MARK)
        whole = isinstance(about, Mapping) and _NEEDED[found.what] <= set(about)
        if not whole or about["kind"] not in get_args(Kind):
            raise InputError(
                f"{page}, cell {cell.get('id')}: {found.id} does not say its kind and content; "
                "accepted: outputs of number(), figure(), table()"
            )
        caption = value = unit = None
        if found.what == "number":
            text, value, unit = joined(data[RECORD]), str(about["value"]), str(about["unit"])
            digest = number_digest(found.id, value, unit)
        else:
            figure = cell.get("metadata", {}).get("mystnb", {}).get("figure", {})
            caption = about["caption"] if found.what == "table" else figure.get("caption")
            text, digest = str(about.get("title") or caption), str(about["digest"])
        entry = Entry(
            id=found.id,
            what=found.what,
            kind=about["kind"],
            source=about.get("source"),
            page=page,
            cell=str(cell.get("id")),
            text=text,
            value=value,
            unit=unit,
            digest=digest,
            caption=None,
            alt=about.get("alt"),
        )
        yield entry, caption


class Shown(NamedTuple):
    """What one output shows."""

    id: str
    what: What


def identity(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> Shown | None:
    """Tell which number, figure or table an output shows; None for any other.

    Examples
    --------
    >>> identity({"image/png": "...", "text/plain": "fig-a · data 0123abcd"}, {})
    Shown(id='fig-a', what='figure')
    """
    if RECORD in data:
        name = metadata.get("scrapbook", {}).get("name")
        return Shown(str(name), "number") if name else None
    figure = FIGURE_TEXT.fullmatch(joined(data.get("text/plain", "")).strip())
    if figure is not None and any(kind.startswith("image/") for kind in data):
        return Shown(figure["id"], "figure")
    table = TABLE_HTML.match(joined(data.get("text/html", "")))
    return Shown(table["id"], "table") if table is not None else None


def joined(text: str | Iterable[str]) -> str:
    """Return a text that a notebook's file may keep in lines."""
    return text if isinstance(text, str) else "".join(text)


def plain_caption(markdown: str, page: str, texts: Mapping[str, Mapping[str, str]], at: str) -> str:
    """Return a caption as plain text, with the numbers that it takes from its page or another.

    Examples
    --------
    >>> plain_caption("At $c$ it is {glue:text}`a.b` in `x`.", "p", {"p": {"a.b": "4"}}, "here")
    'At c it is 4 in x.'
    """

    def said(match: re.Match[str]) -> str:
        role, content = match["role"], match["content"]
        if role is None:
            return str(match[str(match.lastgroup)])
        if not role.startswith("glue:"):
            titled = _TITLED.fullmatch(content)
            return titled["words"] if titled else content
        other, separator, id = content.rpartition("::")
        found = texts.get(other if separator else page, {}).get(id)
        if found is None:
            raise InputError(f"{at}: the caption shows {content!r}, which no cell glues")
        return found

    return " ".join(_MARKED.sub(said, markdown).split())
