"""How one number, figure or table is cited, and the files beside figures and tables that say it.

A cell saves a drawing and its data; on which page it stands, under which caption, and so how it is
cited, is known when all pages are.
"""

from __future__ import annotations

import json
from pathlib import Path

from proofbook.catalogue import (
    SHORT_DIGEST,
    Catalogue,
    Entry,
    entry_json,
    permalink,
    write_catalogue,
)
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import this_project
from proofbook.showing import json_bytes
from proofbook.stamps import stamped_png, stamped_svg

#: Of the book's figures and tables: a drawing of somebody's own data says none.
LICENCE = "CC BY 4.0"
DRAWINGS = (".svg", ".dark.svg", ".png")
_AGAIN = "run `make clean`, then `make book`"

#: What TeX and BibTeX would take for an instruction. Braces become commands, because BibTeX counts
#: even escaped ones.
_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{sign: f"\\{sign}" for sign in "&%$#_"},
}


def escaped(text: str) -> str:
    r"""Return a text as it stands in a field of BibTeX: one line, nothing in it an instruction.

    Examples
    --------
    >>> print(escaped("100% of {a_b}"))
    100\% of \textbraceleft{}a\_b\textbraceright{}
    """
    return "".join(_TEX.get(sign, sign) for sign in _one_line(text))


def _one_line(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())


def bibtex(entry: Entry, catalogue: Catalogue, base_url: str = "") -> str:
    """Return the BibTeX entry that cites one number, figure or table.

    Without a public address of the book, that of the entry is relative to the book.

    Examples
    --------
    >>> entry = Entry("fig-a", "figure", "computed", None, "chapters/a", "c", "Sales grow", None,
    ...               None, "0" * 64, "Sales grow.", "A line.")
    >>> print(bibtex(entry, Catalogue("1.0", "1" * 64, {})))  # doctest: +ELLIPSIS
    @misc{...-fig-a,
      title   = {{Sales grow}},
      author  = {{...}},
      year    = {...},
      version = {1.0},
      url     = {chapters/a.html#fig-a},
      note    = {... 1.0, figure fig-a, data digest 00000000, computed}
    }
    <BLANKLINE>
    """
    here = this_project()
    return (
        f"@misc{{{here.name}-{entry.id},\n"
        f"  title   = {{{{{escaped(title(entry))}}}}},\n"
        f"  author  = {{{{{here.author}}}}},\n"
        f"  year    = {{{here.year}}},\n"
        f"  version = {{{escaped(catalogue.version)}}},\n"
        f"  url     = {{{permalink(entry, base_url)}}},\n"
        f"  note    = {{{escaped(_note(here.name, entry, catalogue))}}}\n"
        "}\n"
    )


def plain(entry: Entry, catalogue: Catalogue, base_url: str = "") -> str:
    """Return the sentence that cites one number, figure or table, as :func:`bibtex` does."""
    here = this_project()
    return (
        f"{here.author} ({here.year}). {title(entry)}. {_note(here.name, entry, catalogue)}. "
        f"{permalink(entry, base_url)}"
    )


def title(entry: Entry) -> str:
    """Return what a citation calls an entry: a title, a table's caption, a number itself."""
    if entry.what != "number":
        return _one_line(entry.text).removesuffix(".")
    shown = entry.text.replace("\N{NO-BREAK SPACE}", " ")
    unit = entry.unit or ""
    if unit.startswith("%"):  # of what stands behind the sign, if anything
        shown = shown.removesuffix("%") + unit
    elif unit not in ("", "text") and not (unit == "bytes" and shown.endswith("B")):
        shown = f"{shown} {unit}"
    return f"{entry.id}: {shown}"


def _note(name: str, entry: Entry, catalogue: Catalogue) -> str:
    source = f" ({entry.source.rstrip('.')})" if entry.source else ""
    return (
        f"{name} {catalogue.version}, {entry.what} {entry.id}, "
        f"data digest {entry.digest[:SHORT_DIGEST]}, {entry.kind}{source}"
    )


# ---------------------------------------------------------------- the files beside the pages


def publish(catalogue: Catalogue, folder: Path, base_url: str = "") -> None:
    """Complete the files of every figure and table, and list everything as JSON.

    Writes ``numbers.json``, ``figures.json`` and ``tables.json`` into `folder`; in its folders
    ``figures`` and ``tables``, as the cells saved them, the ``.bib`` and ``.json`` of each id, and
    the stamp of its drawings. It is an InputError if a file is missing, or of other data
    than the page shows.
    """
    write_catalogue(catalogue, folder, base_url)
    for entry in catalogue.entries.values():
        if entry.what == "number":
            continue
        place = folder / f"{entry.what}s" / entry.id
        path = place.with_name(f"{entry.id}.json")
        try:
            about = json.loads(_saved(path))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: {error}; {_AGAIN}") from None
        if about.get("digest") != entry.digest:
            raise InputError(
                f"{entry.id}: its files are of data {about.get('digest')}, the page shows data "
                f"{entry.digest}; {_AGAIN}"
            )
        about |= {"project": this_project().name, "version": catalogue.version, "licence": LICENCE}
        about |= {"source_digest": catalogue.source_digest, **entry_json(entry, base_url)}
        write_whole(path, json_bytes(about))
        write_whole(path.with_suffix(".bib"), bibtex(entry, catalogue, base_url).encode())
        stamp = stamp_of(entry, catalogue)
        for end in DRAWINGS if entry.what == "figure" else ():
            drawing = place.with_name(f"{entry.id}{end}")
            content = _saved(drawing)
            if end == ".png":
                write_whole(drawing, stamped_png(content, stamp))
            else:
                write_whole(drawing, stamped_svg(content.decode(), stamp).encode())


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


def _saved(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {_AGAIN}") from None
