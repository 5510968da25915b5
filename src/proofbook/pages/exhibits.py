"""Figures and tables on a page: their own drawings, and the line under each.

The PNG that a notebook shows gives way to the figure's own files. The line under a figure or a
table lets a reader cite it, fetch it, and see what made it.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from proofbook.catalogue import Entry, citations
from proofbook.pages.addresses import (
    catalogue,
    entry_of,
    kept_by_page,
    link,
    rewrite_bodies,
    site_of,
    to_cell,
    to_file,
    to_source,
)
from proofbook.pages.number_roles import meaning
from proofbook.showing import FIGURE_TEXT, TABLE_HTML, figures_folder, tables_folder

LOGGER = logging.getLogger(__name__)

#: extension of a file -> what a link to it says
NAMES = {"svg": "SVG", "png": "PNG", "csv": "CSV", "bib": "BibTeX", "json": "JSON"}
NAMES["dark.svg"] = "dark SVG"
#: what is shown -> what it can be fetched as
FETCHED = {"figure": ("svg", "png", "csv", "bib", "json"), "table": ("csv", "bib", "json")}
FIGURE_FILES = (*(f".{extension}" for extension in FETCHED["figure"]), ".dark.svg")
#: On a narrow screen a drawing is not made smaller than this share of its drawn width.
LEAST_SCALE = 0.8
# The writer can end a caption only after all that a figure holds.
_WITHIN_CAPTION = re.compile(r"<!--kv-line-->(.*?)<!--/kv-line-->\n*(</figcaption>)?", re.DOTALL)


class kv_figure(nodes.General, nodes.Element):
    """The two drawings (light and dark) of a figure, in a box that scrolls."""


class kv_line(nodes.General, nodes.Element):
    """The line under the figure or table `kv_id`."""


class Drawing(NamedTuple):
    """What a page needs to know of a figure's files: words, and size in CSS pixels."""

    alt: str
    width: int
    height: int


def read_drawing(folder: Path, figure_id: str, digest: str) -> Drawing:
    """Check that all files of a figure are there and belong together.

    If one is missing, of other data, or has no alt text, a ValueError says what to do.
    """
    files = [folder / (figure_id + end) for end in FIGURE_FILES]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise ValueError(
            f"figure {figure_id}: no {', '.join(missing)} in {folder}; the notebook's results were "
            "kept but its figures were not: run `make clean`, then `make book`"
        )
    stamp = json.loads((folder / f"{figure_id}.json").read_text(encoding="utf-8"))
    if not str(stamp.get("data_digest", "")).startswith(digest):
        raise ValueError(
            f"figure {figure_id}: its files are of data {stamp.get('data_digest')!r}, the notebook "
            f"shows data {digest}; run `make clean`, then `make book`"
        )
    alt = str(stamp.get("alt") or "").strip()
    if len(alt.split()) < 4:
        raise ValueError(
            f"figure {figure_id}: alt is {alt!r}; give figure(alt=...) a sentence that says what "
            "the figure shows"
        )
    return Drawing(alt, *svg_size((folder / f"{figure_id}.svg").read_text(encoding="utf-8")))


def svg_size(svg: str) -> tuple[int, int]:
    """Return width and height of an SVG drawing in CSS pixels.

    A drawing that does not say its size in points or pixels is a ValueError.

    Examples
    --------
    >>> svg_size('<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt"></svg>')
    (96, 48)
    """
    root = ElementTree.fromstring(svg)
    sizes = []
    for name in ("width", "height"):
        match = re.fullmatch(r"([\d.]+)(pt|px|)", root.get(name, ""))
        if match is None:
            raise ValueError(f"SVG {name} is {root.get(name)!r}; accepted: a size in pt or px")
        sizes.append(round(float(match[1]) * (4 / 3 if match[2] == "pt" else 1)))
    return sizes[0], sizes[1]


def drawings(builder: Any, figure_id: str, drawing: Drawing, style: str = "") -> str:
    """Return a figure's two drawings as HTML: that of the reader's mode is displayed."""
    # A browser does not load a lazy drawing that is not displayed. On a single page, which is made
    # to be printed, all must be there.
    when = ' loading="lazy" decoding="async"' if builder.name == "html" else ""
    return "".join(
        f'<img class="only-{mode}" src="{to_file(builder, f"figures/{figure_id}{end}")}" '
        f'alt="{escape(drawing.alt)}" width="{drawing.width}" height="{drawing.height}"'
        f"{style}{when}>\n"
        for mode, end in (("light", ".svg"), ("dark", ".dark.svg"))
    )


class CitableFigures(SphinxTransform):
    """Replace the PNG that a notebook shows with the figure's own files."""

    default_priority = 50  # before images are collected, so that the PNG is not copied as well

    def apply(self, **kwargs: Any) -> None:
        """Rewrite every figure of the page; warn of an image that is not one."""
        for bundle in list(self.document.findall(nodes.container)):
            types = [child.get("mime_type", "") for child in bundle.children]
            if bundle.get("nb_element") == "mime_bundle" and any(
                name.startswith("image/") for name in types
            ):
                self._rewrite(bundle)

    def _rewrite(self, bundle: nodes.container) -> None:
        texts = [c.astext() for c in bundle.children if c.get("mime_type") == "text/plain"]
        match = FIGURE_TEXT.fullmatch("".join(texts[:1]).strip())
        if match is None:
            self._warn("an image that is no figure(); draw it with figure()", bundle)
            return
        figure_id, frame = match["id"], bundle.parent
        if not isinstance(frame, nodes.figure) or figure_id not in frame["names"]:
            self._warn(
                f"figure {figure_id}: its cell needs the metadata mystnb.figure with "
                f'"name": "{figure_id}" and a caption',
                bundle,
            )
            return
        if not any(isinstance(child, nodes.caption) for child in frame.children):
            self._warn(f"figure {figure_id} has no caption", bundle)
        try:
            drawing = read_drawing(figures_folder(), figure_id, match["digest"])
        except ValueError as error:
            self._warn(str(error), bundle)
            return
        found = kept_by_page(self.env, "figures")
        other = next((page for page, ids in found.items() if figure_id in ids), None)
        if other is not None:
            self._warn(f"figure {figure_id} is already on page {other}", bundle)
        found.setdefault(self.env.docname, []).append(figure_id)
        bundle.replace_self(kv_figure("", kv_id=figure_id, kv_drawing=drawing))
        frame["classes"].append("kv-figure")
        frame.append(kv_line("", kv_id=figure_id))

    @staticmethod
    def _warn(message: str, node: nodes.Node) -> None:
        LOGGER.warning(message, location=node, type="proofbook", subtype="figure")


class CitableTables(SphinxTransform):
    """Put the line of a table after the output that shows it."""

    default_priority = 50

    def apply(self, **kwargs: Any) -> None:
        """Add a line to every table of the page."""
        for raw in list(self.document.findall(nodes.raw)):
            match = TABLE_HTML.search(raw.astext())
            bundle: nodes.Element = raw
            while bundle.get("nb_element") != "mime_bundle" and bundle.parent is not None:
                bundle = bundle.parent
            if match is not None and bundle.parent is not None:
                after = bundle.parent.index(bundle) + 1
                bundle.parent.insert(after, kv_line("", kv_id=match["id"]))


def _visit_figure(self: Any, node: kv_figure) -> None:
    drawing = node["kv_drawing"]
    least = f' style="min-width: {round(drawing.width * LEAST_SCALE)}px"'
    self.body.append(
        f'<div class="kv-scroll" role="region" tabindex="0" aria-label="Drawing {node["kv_id"]}">\n'
        f"{drawings(self.builder, node['kv_id'], drawing, least)}</div>\n"
    )
    raise nodes.SkipNode


# ---------------------------------------------------------------- the line


def line_html(builder: Any, entry: Entry) -> str:
    """Return the line under a figure or a table."""
    id, base = entry.id, str(builder.config.html_baseurl or "")
    files = " ".join(
        f'<a href="{to_file(builder, f"{entry.what}s/{id}.{end}")}" download>'
        f'{NAMES[end]}<span class="kv-unseen"> of {id}</span></a>'
        for end in FETCHED[entry.what]
    )
    bibtex = escape(citations.bibtex(entry, catalogue(), base))
    plain = escape(citations.plain(entry, catalogue(), base))
    source = ""
    if entry.source:
        words, href = to_source(builder, entry.source)
        words = words.rstrip(".")
        source = f": {link(href, words) if href else escape(words)}"
    return (
        f'<div class="kv-line" role="group" aria-label="Cite, fetch or trace {id}">\n'
        f'<p class="kv-downloads"><code>{id}</code> {files}</p>\n'
        f'<details class="kv-cite"><summary>Cite<span class="kv-unseen"> {id}</span></summary>\n'
        f'<pre class="kv-citation" data-copy="BibTeX">{bibtex}</pre>\n'
        f'<p class="kv-citation" data-copy="text">{plain}</p>\n</details>\n'
        f'<details class="kv-made"><summary>Made by<span class="kv-unseen"> ({id})</span></summary>'
        f'\n<ul>\n<li>The cell <a href="{to_cell(builder, entry).href}"><code>{entry.cell}</code>'
        f"</a> shows it.</li>\n<li>{meaning(entry.kind)}{source}.</li>\n"
        f'<li>SHA-256 of the data: <code class="kv-digest">{entry.digest}</code>.</li>\n'
        "</ul>\n</details>\n</div>\n"
    )


def _visit_line(self: Any, node: kv_line) -> None:
    try:
        line = line_html(self.builder, entry_of(node["kv_id"]))
    except ValueError as error:
        LOGGER.warning(str(error), location=node, type="proofbook", subtype="line")
    else:
        self.body.append(f"<!--kv-line-->{line}<!--/kv-line-->")
    raise nodes.SkipNode


def after_captions(body: str) -> str:
    """Let the lines stand after the captions, whose words name the figures to screen readers.

    Examples
    --------
    >>> after_captions("<figcaption>A<!--kv-line-->b<!--/kv-line--></figcaption>")
    '<figcaption>A</figcaption>b'
    """
    return _WITHIN_CAPTION.sub(lambda match: f"{match[2] or ''}{match[1]}", body)


def _copy_files(app: Sphinx, error: Exception | None) -> None:
    """Put the files at ``figures/<id>.<ext>`` and ``tables/<id>.<ext>`` of the site."""
    site = site_of(app, error)
    if site is None:
        return
    figures = {id for ids in kept_by_page(app.env, "figures").values() for id in ids}
    shown = [e for e in catalogue().entries.values() if e.what == "table"]
    tables = {entry.id for entry in shown if entry.page in app.env.found_docs}
    ends = tuple(f".{end}" for end in FETCHED["table"])
    for name, folder, ids, files in (
        ("figures", figures_folder(), figures, FIGURE_FILES),
        ("tables", tables_folder(), tables, ends),
    ):
        shutil.rmtree(site / name, ignore_errors=True)
        for file in (id + end for id in sorted(ids) for end in files):
            (site / name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file, site / name / file)


def setup(app: Sphinx) -> None:
    """Add citable figures and tables to a Sphinx application."""
    app.add_transform(CitableFigures)
    app.add_transform(CitableTables)
    app.add_node(kv_figure, html=(_visit_figure, None))
    app.add_node(kv_line, html=(_visit_line, None))
    rewrite_bodies(app, after_captions, 870)
    app.connect("build-finished", _copy_files, priority=900)
