"""Figures: the PNG that a notebook shows gives way to the figure's own files."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from proofbook.pages.lines import FETCHED, kv_line
from proofbook.pages.links import to_file
from proofbook.pages.page_places import figures_folder
from proofbook.showing import FIGURE_TEXT

LOGGER = logging.getLogger(__name__)

#: What a figure can be fetched as.
DOWNLOADS: tuple[str, ...] = FETCHED["figure"][1]
FIGURE_FILES = (*(f".{extension}" for extension in DOWNLOADS), ".dark.svg")
#: On a narrow screen a drawing is not made smaller than this share of its drawn width.
LEAST_SCALE = 0.8


class kv_figure(nodes.General, nodes.Element):
    """The two drawings (light and dark) of a figure, in a box that scrolls."""


class Drawing(NamedTuple):
    """What a page needs to know of a figure's files: words, and size in CSS pixels."""

    alt: str
    width: int
    height: int


def read_drawing(folder: Path, figure_id: str, digest: str) -> Drawing:
    """Check that all files of a figure are there and belong together.

    Parameters
    ----------
    folder : Path
        The figures folder.
    figure_id : str
        Such as ``fig-tail-slack``.
    digest : str
        First digits of the digest of the figure's data, as the notebook printed it.

    Raises
    ------
    ValueError
        If a file is missing, its data are not the notebook's, or it has no alt text; the message
        says what to do.
    """
    missing = [
        figure_id + end for end in FIGURE_FILES if not (folder / (figure_id + end)).is_file()
    ]
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
    width, height = svg_size((folder / f"{figure_id}.svg").read_text(encoding="utf-8"))
    return Drawing(alt, width, height)


def svg_size(svg: str) -> tuple[int, int]:
    """Return width and height of an SVG drawing in CSS pixels.

    Raises
    ------
    ValueError
        If the drawing does not say its size in points or pixels.

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


class CitableFigures(SphinxTransform):
    """Replace the PNG that a notebook shows with the figure's own files."""

    default_priority = 50  # before images are collected, so that the PNG is not copied as well

    def apply(self, **kwargs: Any) -> None:
        """Rewrite every figure of the page; warn of an image that is not one."""
        found = _figures_of(self.env)
        for bundle in list(self.document.findall(_is_mime_bundle)):
            types = {child["mime_type"] for child in bundle.children}
            if not any(name.startswith("image/") for name in types):
                continue
            match = FIGURE_TEXT.fullmatch(_plain_text(bundle).strip())
            if match is None:
                self._warn("an image that is no figure(); draw it with figure()", bundle)
                continue
            figure_id, frame = match["id"], bundle.parent
            if not isinstance(frame, nodes.figure) or figure_id not in frame["names"]:
                self._warn(
                    f"figure {figure_id}: its cell needs the metadata mystnb.figure with "
                    f'"name": "{figure_id}" and a caption',
                    bundle,
                )
                continue
            if not any(isinstance(child, nodes.caption) for child in frame.children):
                self._warn(f"figure {figure_id} has no caption", bundle)
            try:
                drawing = read_drawing(figures_folder(), figure_id, match["digest"])
            except ValueError as error:
                self._warn(str(error), bundle)
                continue
            other = next((page for page, ids in found.items() if figure_id in ids), None)
            if other is not None:
                self._warn(f"figure {figure_id} is already on page {other}", bundle)
            found.setdefault(self.env.docname, []).append(figure_id)
            picture = kv_figure("", kv_id=figure_id, **drawing._asdict())
            bundle.replace_self(picture)
            frame["classes"].append("kv-figure")
            frame.append(kv_line("", kv_id=figure_id))

    @staticmethod
    def _warn(message: str, node: nodes.Node) -> None:
        LOGGER.warning(message, location=node, type="kvledger", subtype="figure")


def _is_mime_bundle(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "mime_bundle"


def _plain_text(bundle: nodes.Node) -> str:
    for child in bundle.children:
        if isinstance(child, nodes.Element) and child.get("mime_type") == "text/plain":
            return str(child.astext())
    return ""


def _figures_of(env: BuildEnvironment) -> dict[str, list[str]]:
    """Return the figures of each page, kept with the environment between builds."""
    if not hasattr(env, "kvledger_figures"):
        cast(Any, env).kvledger_figures = {}
    return cast("dict[str, list[str]]", cast(Any, env).kvledger_figures)


def _purge_figures(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _figures_of(env).pop(docname, None)


def _merge_figures(
    app: Sphinx, env: BuildEnvironment, docnames: Sequence[str], other: BuildEnvironment
) -> None:
    _figures_of(env).update(
        {page: ids for page, ids in _figures_of(other).items() if page in set(docnames)}
    )


def _visit_figure(self: Any, node: kv_figure) -> None:
    figure_id = node["kv_id"]
    url = to_file(self.builder, "figures")
    size = f'width="{node["width"]}" height="{node["height"]}"'
    least = f'style="min-width: {round(node["width"] * LEAST_SCALE)}px"'
    # A browser does not load a lazy drawing of the other mode, which is not displayed. On a single
    # page, which is made to be printed, all must be there.
    when = ' loading="lazy" decoding="async"' if self.builder.name == "html" else ""
    self.body.append(
        f'<div class="kv-scroll" role="region" tabindex="0" aria-label="Drawing {figure_id}">\n'
    )
    for mode, end in (("light", ".svg"), ("dark", ".dark.svg")):
        self.body.append(
            f'<img class="only-{mode}" src="{url}/{figure_id}{end}" alt="{escape(node["alt"])}" '
            f"{size} {least}{when}>\n"
        )
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _copy_files(app: Sphinx, error: Exception | None) -> None:
    """Put the files of every figure at ``figures/<id>.<ext>`` of the site."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "figures"
    shutil.rmtree(target, ignore_errors=True)
    for figure_id in sorted({i for ids in _figures_of(app.env).values() for i in ids}):
        target.mkdir(parents=True, exist_ok=True)
        for end in FIGURE_FILES:
            shutil.copyfile(figures_folder() / (figure_id + end), target / (figure_id + end))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add citable figures to a Sphinx application."""
    app.add_transform(CitableFigures)
    app.add_node(kv_figure, html=(_visit_figure, None))
    app.connect("env-purge-doc", _purge_figures)
    app.connect("env-merge-info", _merge_figures)
    app.connect("build-finished", _copy_files, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
