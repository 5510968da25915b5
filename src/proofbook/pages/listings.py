"""The pages that list every figure, table and number of the book, and one archive of all files.

The lists are written from the catalogue, when a page is written: so they can hold neither more nor
less than what the book shows, and a caption that changes changes here too. Their directives are
``kv-figures``, ``kv-tables``, ``kv-numbers`` and ``kv-archive``; the role ``kv-file`` links to a
file at the root of the site.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import datetime as dt
import io
import json
import posixpath
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, get_args

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective, SphinxRole

from proofbook.catalogue import FILES, SHORT_DIGEST, Catalogue, Entry, What
from proofbook.catalogue.check_records import made_date
from proofbook.errors import InputError
from proofbook.pages.addresses import (
    catalogue,
    link,
    of_page,
    site_of,
    to_file,
    to_page,
    to_place,
    to_source,
)
from proofbook.pages.exhibits import FETCHED, NAMES, drawings, read_drawing
from proofbook.pages.page_checks import Item, note_shown
from proofbook.plaintext import counted
from proofbook.showing import figures_folder, tables_folder

ARCHIVE = "figures.zip"
#: kind -> what a list says of it; what is cited or measured goes on with its source.
KIND_WORDS = {"computed": "computed here", "cited": "cited", "measured": "measured"}
#: what is listed -> the ends of the names of the files that are offered
OFFERED: Mapping[str, tuple[str, ...]] = {
    "figure": ("svg", "dark.svg", *FETCHED["figure"][1:]),
    "table": FETCHED["table"],
}
COLUMNS = ("number", "shown", "exact value", "unit", "kind and source", "digest")


class kv_list(nodes.General, nodes.Element):
    """What one page, `kv_page`, shows of one sort, `kv_what`."""


class kv_archive(nodes.General, nodes.Element):
    """The line that offers all figures at once."""


class kv_file(nodes.inline):
    """A link to a file at the root of the book."""


class ListDirective(SphinxDirective):
    """A section for each page that shows something of a sort, with a list that is filled later.

    A directive for each sort, such as ``kv-figures``, says by its class which one.
    """

    what: What

    def run(self) -> list[nodes.Node]:
        """Make the sections; read the page again when the catalogue changes."""
        for name in FILES:
            self.env.note_dependency(str(figures_folder().parent / name))
        made: list[nodes.Node] = []
        for page in catalogue().pages:
            listed = of_page(page, self.what)
            if not listed:
                continue
            # The line below this page says when all of them were last checked.
            items = (Item(page, entry.what, entry.id) for entry in listed)
            note_shown(self.env, self.env.docname, items)
            title = page_title(self.env, page)
            anchor = f"{self.what}s-{posixpath.basename(page).replace('_', '-')}"
            section = nodes.section("", nodes.title(title, title), ids=[anchor])
            section += kv_list("", kv_page=page, kv_what=self.what)
            self.state.document.note_explicit_target(section)
            made.append(section)
        return made


class ArchiveDirective(SphinxDirective):
    """``kv-archive``: where the archive is and how large."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for the line."""
        return [kv_archive("")]


class FileRole(SphinxRole):
    """``kv-file``: a file at the root of the book that the build itself makes, by its name."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Leave a place for the link: its address differs by page."""
        return [kv_file(self.text, self.text)], []


def page_title(env: BuildEnvironment, page: str) -> str:
    """Return the first heading of a chapter, from its source: pages are read in any order."""
    source = Path(env.doc2path(page))
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    heading = next((line for line in text.splitlines() if line.startswith("# ")), "")
    return heading.removeprefix("# ").strip() or posixpath.basename(page)


# ---------------------------------------------------------------- what a list says


def _visit_list(self: Any, node: kv_list) -> None:
    builder, page, what = self.builder, node["kv_page"], node["kv_what"]
    entries, env = of_page(page, what), builder.env
    title = env.titles[page].astext() if page in env.titles else posixpath.basename(page)
    numbers = env.toc_secnumbers.get(page, {}).get("")
    # As the contents have it: numbered, where they number it.
    title = f"{'.'.join(map(str, numbers))}. {title}" if numbers else title
    here = link(to_page(builder, page), title)
    if what == "number":
        head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
        self.body.append(
            f'<div class="kv-table kv-numbers" role="region" tabindex="0" '
            f'aria-label="Numbers of {escape(title)}">\n<table><caption>'
            f"{counted(len(entries), 'number')} of {here}</caption>\n"
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n"
        )
        self.body += [_number_row(builder, entry) for entry in entries]
        self.body.append("</tbody></table></div>\n")
    else:
        sort, row = ("cards", _figure_card) if what == "figure" else ("lines", _table_line)
        self.body.append(f'<p class="kv-of-page">From {here}</p>\n<ul class="kv-{sort}">\n')
        self.body += [row(builder, entry) for entry in entries]
        self.body.append("</ul>\n")
    raise nodes.SkipNode


def _figure_card(builder: Any, entry: Entry) -> str:
    href, env = to_place(builder, entry.page, entry.anchor), builder.env
    title = entry.text
    numbers = env.toc_fignumbers.get(entry.page, {}).get("figure", {}).get(entry.id)
    if numbers:
        title = f"{env.config.numfig_format['figure'] % '.'.join(map(str, numbers))}: {title}"
    drawing = read_drawing(figures_folder(), entry.id, entry.digest[:SHORT_DIGEST])
    caption = entry.caption or ""
    if entry.text:  # with which a caption may begin
        caption = caption.removeprefix(f"{entry.text}.").strip()
    # The words beside the picture link to the same place: one stop for the keyboard is enough.
    return (
        f'<li class="kv-card" id="row-{entry.id}">'
        f'<a class="kv-thumb" href="{escape(href)}" tabindex="-1" aria-hidden="true">'
        f"{drawings(builder, entry.id, drawing)}</a>"
        f'<div><p class="kv-card-title">{link(href, title)}</p>\n'
        f'<p>{escape(caption)} <span class="kv-kind">{_kind(entry)}</span></p>\n'
        f"{_downloads(builder, entry)}</div></li>\n"
    )


def _table_line(builder: Any, entry: Entry) -> str:
    href = to_place(builder, entry.page, entry.anchor)
    return (
        f'<li id="row-{entry.id}"><p class="kv-card-title">{link(href, entry.text)} '
        f'<span class="kv-kind">{_kind(entry)}</span></p>\n{_downloads(builder, entry)}</li>\n'
    )


def _kind(entry: Entry) -> str:
    words = KIND_WORDS[entry.kind] + (f": {escape(entry.source)}" if entry.source else "")
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def _downloads(builder: Any, entry: Entry) -> str:
    links = [
        link(
            to_file(builder, f"{entry.what}s/{entry.id}.{end}"),
            NAMES[end],
            aria_label=f"{NAMES[end]} of {entry.id}",
            download="",
        )
        for end in OFFERED[entry.what]
    ]
    return f'<p class="kv-downloads"><code>{entry.id}</code>: {" ".join(links)}</p>'


def _number_row(builder: Any, entry: Entry) -> str:
    here = link(to_place(builder, entry.page, entry.anchor), entry.id)
    kind = KIND_WORDS[entry.kind]
    if entry.source:
        words, href = to_source(builder, entry.source)
        plain = f"<code>{escape(words)}</code>" if words.endswith(".json") else escape(words)
        kind += f": {link(href, words) if href else plain}"
    # What is shown is the whole value more often than not: saying it twice helps nobody.
    same = entry.value is None or entry.value == entry.text
    cells = (
        escape(entry.text),
        '<span class="kv-same">as shown</span>' if same else escape(str(entry.value)),
        escape(entry.unit or ""),
        kind,
        f"<code>{entry.digest[:SHORT_DIGEST]}</code>",
    )
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr id="row-{entry.id}"><th scope="row">{here}</th>{row}</tr>\n'


def _visit_archive(self: Any, node: kv_archive) -> None:
    size = len(_archive(Path(self.builder.srcdir)))
    sorts = [entry.what for entry in catalogue().entries.values()]
    self.body.append(
        f'<p class="kv-archive">{link(to_file(self.builder, ARCHIVE), ARCHIVE, download="")} '
        f"({size / 1e6:.1f} MB): {counted(sorts.count('figure'), 'figure')} and "
        f"{counted(sorts.count('table'), 'table')}, every file that is offered below.</p>\n"
    )
    raise nodes.SkipNode


def _visit_file(self: Any, node: kv_file) -> None:
    self.body.append(link(to_file(self.builder, node.astext()), node.astext()))
    raise nodes.SkipNode


# ---------------------------------------------------------------- the archive


def listed_files(listed: Catalogue, figures: Path, tables: Path) -> dict[str, Path]:
    """Return the files that the lists offer, by name in the book; InputError if one is missing."""
    found: dict[str, Path] = {}
    for entry in listed.entries.values():
        for end in OFFERED.get(entry.what, ()):
            path = (figures if entry.what == "figure" else tables) / f"{entry.id}.{end}"
            if not path.is_file():
                raise InputError(
                    f"{entry.id}, shown on {entry.page}: no {path.name} in {path.parent}; run "
                    "`make clean`, then `make book`"
                )
            found[f"{entry.what}s/{path.name}"] = path
    return found


@lru_cache(maxsize=1)
def _archive(root: Path) -> bytes:
    """Return the archive of all files, made once a build."""
    files = listed_files(catalogue(), figures_folder(), tables_folder())
    files |= {name: figures_folder().parent / name for name in FILES}
    licence = root / "LICENSE-text"
    if licence.is_file():
        files["LICENSE-text"] = licence
    return archive(files, made_date(root))


def archive(files: Mapping[str, Path], date: dt.datetime) -> bytes:
    """Pack files, by their names in the archive, into a ZIP archive whose members bear a date.

    The members are sorted by name and readable by all: the same bytes for the same contents.

    Examples
    --------
    >>> packed = archive({"a.py": Path(__file__)}, dt.datetime(2000, 2, 29))
    >>> zipfile.ZipFile(io.BytesIO(packed)).namelist()
    ['a.py']
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, path in sorted(files.items()):
            member = zipfile.ZipInfo(name, date.timetuple()[:6])
            member.create_system = 3  # Unix, wherever it is made: permissions are read from there
            member.external_attr = 0o100644 << 16
            # A PNG is compressed already; it would only take time again.
            method = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
            packed.writestr(member, path.read_bytes(), compress_type=method, compresslevel=9)
    return stream.getvalue()


def _write_archive(app: Sphinx, error: Exception | None) -> None:
    site = site_of(app, error)
    if site is not None and app.builder.name == "html":
        (site / ARCHIVE).write_bytes(_archive(Path(app.srcdir)))


def setup(app: Sphinx) -> None:
    """Add the directives, the role, and what they write."""
    for what in get_args(What):
        app.add_directive(f"kv-{what}s", type(what, (ListDirective,), {"what": what}))
    app.add_directive("kv-archive", ArchiveDirective)
    app.add_role("kv-file", FileRole())
    app.add_node(kv_list, html=(_visit_list, None))
    app.add_node(kv_archive, html=(_visit_archive, None))
    app.add_node(kv_file, html=(_visit_file, None))
    app.connect("build-finished", _write_archive, priority=950)
