"""The page of all figures and tables: thumbnails, titles, downloads, and one archive of all.

Its directives are ``kv-figures`` and ``kv-tables``. They list what the catalogue holds; the
thumbnails and the archive are made from the same files that the pages show.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import struct
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from proofbook.catalogue import FILES, Catalogue, Entry
from proofbook.catalogue.check_records import made_date
from proofbook.errors import InputError
from proofbook.pages.archive import archive
from proofbook.pages.links import to_file, to_place
from proofbook.pages.listing import (
    ListingDirective,
    count,
    figure_label,
    kind_text,
    link,
    of_page,
    page_href,
    page_label,
)
from proofbook.pages.page_catalogue import catalogue
from proofbook.pages.page_places import figures_folder, tables_folder
from proofbook.pages.thumbnails import kept_thumbnail

ARCHIVE = "figures.zip"
#: end of a file's name -> what its link says
FIGURE_LINKS: Mapping[str, str] = {
    "svg": "SVG",
    "dark.svg": "dark SVG",
    "png": "PNG",
    "csv": "CSV",
    "bib": "BibTeX",
    "json": "JSON",
}
TABLE_LINKS: Mapping[str, str] = {
    "csv": "CSV",
    "bib": "BibTeX",
    "json": "JSON",
}
#: mode of the page -> the drawing's file and its thumbnail's
MODES = {"light": ("svg", "thumb.png"), "dark": ("dark.svg", "dark.thumb.png")}


class kv_figure_list(nodes.General, nodes.Element):
    """The figures of one page, as cards."""


class kv_table_list(nodes.General, nodes.Element):
    """The tables of one page, as lines."""


class kv_archive(nodes.General, nodes.Element):
    """The line that offers all figures at once."""


class FiguresDirective(ListingDirective):
    """``kv-figures``: every figure, by page."""

    what = "figure"
    node_class = kv_figure_list


class TablesDirective(ListingDirective):
    """``kv-tables``: every table, by page."""

    what = "table"
    node_class = kv_table_list


class ArchiveDirective(SphinxDirective):
    """``kv-archive``: where the archive is and how large."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for the line."""
        return [kv_archive("")]


# ---------------------------------------------------------------- what a list says


def _visit_figures(self: Any, node: kv_figure_list) -> None:
    env = self.builder.env
    page = link(page_href(self.builder, node["kv_page"]), page_label(env, node["kv_page"]))
    self.body.append(f'<p class="kv-of-page">From {page}</p>\n<ul class="kv-cards">\n')
    for entry in of_page(catalogue(), node["kv_page"], "figure"):
        self.body.append(_card(self.builder, entry))
    self.body.append("</ul>\n")
    raise nodes.SkipNode


def _card(builder: Any, entry: Entry) -> str:
    href = to_place(builder, entry.page, entry.anchor)
    label = figure_label(builder.env, entry)
    title = f"{label}: {entry.text}" if label else entry.text
    images = ""
    # A page that is made to be printed must have all its pictures.
    when = ' loading="lazy" decoding="async"' if builder.name == "html" else ""
    for mode, (_, end) in MODES.items():
        name = f"{entry.id}.{end}"
        width, height = png_size(_thumbnail(entry.id, mode))
        images += (
            f'<img class="only-{mode}" src="{to_file(builder, f"figures/{name}")}" '
            f'alt="{escape(entry.alt or entry.text)}" width="{width // 2}" height="{height // 2}"'
            f"{when}>"
        )
    # The words beside the picture link to the same place: one stop for the keyboard is enough.
    return (
        f'<li class="kv-card" id="row-{entry.id}">'
        f'<a class="kv-thumb" href="{escape(href)}" tabindex="-1" aria-hidden="true">{images}</a>'
        f'<div><p class="kv-card-title">{link(href, title)}</p>\n'
        f"<p>{escape(_rest(entry))} "
        f'<span class="kv-kind">{_kind(entry)}</span></p>\n'
        f"{_downloads(builder, entry, 'figures', FIGURE_LINKS)}</div></li>\n"
    )


def _rest(entry: Entry) -> str:
    """Return what a caption says beyond the title, where it begins with the title."""
    caption = entry.caption or ""
    return caption.removeprefix(f"{entry.text}.").strip() if entry.text else caption


def _visit_tables(self: Any, node: kv_table_list) -> None:
    env = self.builder.env
    page = link(page_href(self.builder, node["kv_page"]), page_label(env, node["kv_page"]))
    self.body.append(f'<p class="kv-of-page">From {page}</p>\n<ul class="kv-lines">\n')
    for entry in of_page(catalogue(), node["kv_page"], "table"):
        href = to_place(self.builder, entry.page, entry.anchor)
        self.body.append(
            f'<li id="row-{entry.id}"><p class="kv-card-title">{link(href, entry.text)} '
            f'<span class="kv-kind">{_kind(entry)}</span></p>\n'
            f"{_downloads(self.builder, entry, 'tables', TABLE_LINKS)}</li>\n"
        )
    self.body.append("</ul>\n")
    raise nodes.SkipNode


def _kind(entry: Entry) -> str:
    words = kind_text(entry.kind, [escape(entry.source)] if entry.source else [])
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def _downloads(builder: Any, entry: Entry, folder: str, ends: Mapping[str, str]) -> str:
    links = [
        link(
            to_file(builder, f"{folder}/{entry.id}.{end}"),
            words,
            aria_label=f"{words} of {entry.id}",
            download="",
        )
        for end, words in ends.items()
    ]
    return f'<p class="kv-downloads"><code>{entry.id}</code>: {" ".join(links)}</p>'


def _visit_archive(self: Any, node: kv_archive) -> None:
    size = len(_archive(Path(self.builder.srcdir)))
    sorts = [entry.what for entry in catalogue().entries.values()]
    self.body.append(
        f'<p class="kv-archive">{link(to_file(self.builder, ARCHIVE), ARCHIVE, download="")} '
        f"({size / 1e6:.1f} MB): {count(sorts.count('figure'), 'figure')} and "
        f"{count(sorts.count('table'), 'table')}, every file that is offered below.</p>\n"
    )
    raise nodes.SkipNode


# ---------------------------------------------------------------- files


def png_size(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG in pixels.

    Examples
    --------
    >>> png_size(bytes(16) + bytes([0, 0, 1, 0, 0, 0, 0, 128]))
    (256, 128)
    """
    width, height = struct.unpack(">II", png[16:24])
    return int(width), int(height)


def _thumbnail(figure_id: str, mode: str) -> bytes:
    drawing = figures_folder() / f"{figure_id}.{MODES[mode][0]}"
    return kept_thumbnail(drawing, figures_folder().parent / "thumbnails")


def listed_files(listed: Catalogue, figures: Path, tables: Path) -> dict[str, Path]:
    """Return every file that the lists offer, by its name in the book.

    Parameters
    ----------
    listed : Catalogue
        What the book shows.
    figures, tables : Path
        The folders that hold their files.

    Raises
    ------
    InputError
        If a file is not there; the message names it.
    """
    found: dict[str, Path] = {}
    for entry in listed.entries.values():
        if entry.what == "number":
            continue
        folder, ends = (figures, FIGURE_LINKS) if entry.what == "figure" else (tables, TABLE_LINKS)
        for end in ends:
            path = folder / f"{entry.id}.{end}"
            if not path.is_file():
                raise InputError(
                    f"{entry.id}, shown on {entry.page}: no {path.name} in {path.parent}; run "
                    "`make clean`, then `make book`"
                )
            found[f"{entry.what}s/{path.name}"] = path
    return found


def _archive(root: Path) -> bytes:
    """Return the archive of all files, made once a build."""
    files = listed_files(catalogue(), figures_folder(), tables_folder())
    files |= {name: figures_folder().parent / name for name in FILES}
    licence = root / "LICENSE-text"
    if licence.is_file():
        files["LICENSE-text"] = licence
    return archive(files, made_date(root))


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Put thumbnails and archive into the finished pages."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for entry in catalogue().entries.values():
        if entry.what == "figure":
            for mode, (_, end) in MODES.items():
                (out / "figures" / f"{entry.id}.{end}").write_bytes(_thumbnail(entry.id, mode))
    if app.builder.name == "html":
        (out / ARCHIVE).write_bytes(_archive(Path(app.srcdir)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives and what they write."""
    app.add_directive("kv-figures", FiguresDirective)
    app.add_directive("kv-tables", TablesDirective)
    app.add_directive("kv-archive", ArchiveDirective)
    app.add_node(kv_figure_list, html=(_visit_figures, None))
    app.add_node(kv_table_list, html=(_visit_tables, None))
    app.add_node(kv_archive, html=(_visit_archive, None))
    # After the figures' own files, for which that folder is emptied.
    app.connect("build-finished", _finish, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
