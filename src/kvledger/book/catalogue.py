"""Every number, figure and table of the book: what it says, where it stands, what made it.

The catalogue is read from what the notebooks show, so it can hold nothing that no page shows.
Pages, commands, comparisons of versions and the JSON files beside the pages all read this one.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast, get_args

from kvledger import datafiles
from kvledger.book.contents import page_files
from kvledger.book.making import makers
from kvledger.errors import LedgerError
from kvledger.writing import write_whole

__all__ = [
    "FILES",
    "Catalogue",
    "Entry",
    "Shown",
    "catalogue_of",
    "entry_json",
    "identity",
    "number_digest",
    "permalink",
    "read_catalogue",
    "stored_catalogue",
    "to_json",
    "write_catalogue",
]

PROJECT = "kvledger"
What = Literal["number", "figure", "table"]
Kind = Literal["computed", "cited", "measured"]

#: File beside the pages -> what it lists.
FILES: Mapping[str, What] = MappingProxyType(
    {"numbers.json": "number", "figures.json": "figure", "tables.json": "table"}
)

RECORD = "application/papermill.record/text/plain"
FIGURE_TEXT = re.compile(r"(?P<id>fig-[a-z0-9-]+) · data (?P<digest>[0-9a-f]{8,64})")
TABLE_HTML = re.compile(r'<div class="kv-table"[^>]*? id="(?P<id>tab-[a-z0-9-]+)"')
# What a table's text says after its caption.
KIND_LINE = re.compile(r" (Computed here|Cited: .*|Measured: .*)\.$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One number, figure or table.

    Attributes
    ----------
    id : str
        ``paged.p4.allocated_slots``, ``fig-slack-share`` or ``tab-slack-share``.
    what : {"number", "figure", "table"}
        Which of these it is.
    kind : {"computed", "cited", "measured"}
        Where its value comes from.
    source : str or None
        Citation, or record file; None of what is computed.
    page : str
        The page that shows it, without suffix: ``chapters/page_tail_slack``.
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
    made_by : tuple of str
        The functions under ``src/`` that its cell calls, and those that made its data.

    Examples
    --------
    >>> entry = Entry("a.slots", "number", "computed", None, "chapters/a", "sums", "38.25",
    ...               "153/4", "slots", number_digest("a.slots", "153/4", "slots"), None, None, ())
    >>> entry.anchor
    'n-a.slots'
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
    made_by: tuple[str, ...]

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
    """SHA-256 of a number: of its id, its exact value and its unit.

    Examples
    --------
    >>> number_digest("a.slots", "38", "slots")[:8]
    '067ec7f1'
    """
    return hashlib.sha256(f"{id}\0{value}\0{unit}".encode()).hexdigest()


def permalink(entry: Entry, base_url: str = "") -> str:
    """Address of an entry on its page; relative to the book where no public address is known.

    Examples
    --------
    >>> entry = Entry("fig-a", "figure", "computed", None, "chapters/a", "c", "A", None, None,
    ...               "0" * 64, "A.", "A.", ())
    >>> permalink(entry), permalink(entry, "https://book.example")
    ('chapters/a.html#fig-a', 'https://book.example/chapters/a.html#fig-a')
    """
    base = base_url.rstrip("/") + "/" if base_url else ""
    return f"{base}{entry.page}.html#{entry.anchor}"


# --- from notebooks -------------------------------------------------------------------


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
    LedgerError
        For an output that does not say its kind, a caption with a number that no page shows, or
        an id that is shown twice with different contents; the message names page and cell.
    """
    shown = {page: list(_outputs(page, notebook)) for page, notebook in notebooks.items()}
    texts = {
        page: {each.id: each.text for each in found if each.what == "number"}
        for page, found in shown.items()
    }
    entries: dict[str, Entry] = {}
    for page, notebook in notebooks.items():
        made_by = makers(notebook, page=page)
        for each in shown[page]:
            entry = _entry(each, page, texts, made_by.get((each.cell, each.id), ()))
            other = entries.setdefault(entry.id, entry)
            if (other.text, other.digest) != (entry.text, entry.digest):
                raise LedgerError(
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
            about = output.get("metadata", {}).get("kvledger")
            at = f"{page}, cell {cell.get('id')}: {id}"
            if not isinstance(about, Mapping) or about.get("kind") not in get_args(Kind):
                raise LedgerError(
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
    made_by: tuple[str, ...],
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
        made_by=made_by,
    )


_MARKED = re.compile(
    r"\{(?P<role>[a-z:]+)\}`(?P<content>[^`]+)`"
    r"|\[(?P<link>[^\]]+)\]\([^)]*\)|\$(?P<math>[^$]+)\$|`(?P<code>[^`]+)`"
    r"|\*\*(?P<strong>[^*]+)\*\*|\*(?P<emphasis>[^*]+)\*"
)
_TITLED = re.compile(r"(?P<words>.*?)\s*<(?P<target>[^<>]+)>", re.DOTALL)


def plain_caption(markdown: str, page: str, texts: Mapping[str, Mapping[str, str]], at: str) -> str:
    """Return a caption as plain text, with the numbers that it takes from its page or another.

    Parameters
    ----------
    markdown : str
        As it stands in the cell's metadata.
    page : str
        The page it stands on.
    texts : mapping of str to mapping of str to str
        Texts of the numbers, by page and id.
    at : str
        What the error message calls the place.

    Raises
    ------
    LedgerError
        If a page does not show a number.

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
            raise LedgerError(f"{at}: the caption shows {content!r}, which no cell glues")
        return found

    return " ".join(_MARKED.sub(said, markdown).split())


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
    LedgerError
        For a chapter that is missing or no notebook, and what :func:`catalogue_of` refuses.

    Examples
    --------
    >>> root = datafiles.repository_root()
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
            raise LedgerError(f"{path}: not a notebook: {error}") from None
        if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
            raise LedgerError(f"{path}: no cells; accepted: a Jupyter notebook")
        notebooks[page] = notebook
    return catalogue_of(
        notebooks, version=_version(root), source_digest=datafiles.source_digest(root)
    )


def _version(root: Path) -> str:
    """Return the version that a checkout says it is; a book of another package is of this one's."""
    import kvledger

    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return kvledger.__version__


# --- as JSON --------------------------------------------------------------------------


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
        "project": PROJECT,
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
    return made | {"made_by": list(entry.made_by), "permalink": permalink(entry, base_url)}


def write_catalogue(catalogue: Catalogue, folder: Path, base_url: str = "") -> None:
    """Write ``numbers.json``, ``figures.json`` and ``tables.json`` into a folder.

    The same catalogue gives the same bytes.

    Raises
    ------
    LedgerError
        If a file cannot be written.
    """
    made = to_json(catalogue, base_url)
    lists = {f"{what}s" for what in get_args(What)}
    for name, what in FILES.items():
        content = {k: v for k, v in made.items() if k not in lists or k == f"{what}s"}
        write_whole(folder / name, json_bytes(content))


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return JSON as it is written everywhere here: readable, and the same for the same content."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


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
    LedgerError
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
            raise LedgerError(
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
        raise LedgerError(f"{where}: {twice} stands twice; accepted: one entry an id")
    return Catalogue(*heads[0], MappingProxyType(entries))


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(
            f"{path}: {error.strerror}; accepted: a built book's folder, or a catalogue's JSON"
        ) from None
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"{path}: no JSON: {error}") from None
    if not isinstance(content, dict):
        raise LedgerError(f"{path}: {type(content).__name__}; accepted: a JSON object")
    return content


def _text(content: Mapping[str, Any], name: str, at: object) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise LedgerError(f"{at}, {name}: {value!r}; accepted: a text")
    return value


def _entries(content: Mapping[str, Any], what: What, path: Path) -> Iterator[Entry]:
    listed = content.get(f"{what}s")
    if not isinstance(listed, list):
        raise LedgerError(f"{path}, {what}s: {listed!r}; accepted: a list of {what}s")
    for place, raw in enumerate(listed, start=1):
        at = f"{path}, {what} {place}"
        if not isinstance(raw, dict):
            raise LedgerError(f"{at}: {raw!r}; accepted: a JSON object")
        given: dict[str, Any] = {}
        for field in fields(Entry):
            value = raw.get(field.name)
            if field.name == "made_by":
                if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                    raise LedgerError(f"{at}, made_by: {value!r}; accepted: a list of texts")
                given[field.name] = tuple(value)
            elif value is None and "None" in str(field.type):
                given[field.name] = None
            else:
                given[field.name] = _text(raw, field.name, at)
        if given["what"] != what or given["kind"] not in get_args(Kind):
            raise LedgerError(
                f"{at}: what {given['what']!r}, kind {given['kind']!r}; accepted: {what!r}, one of "
                f"{', '.join(get_args(Kind))}"
            )
        yield Entry(**given)
