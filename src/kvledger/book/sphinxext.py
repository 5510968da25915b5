"""The book's Sphinx extension: where numbers came from, citable figures, and quiet pages.

A chapter says *what* it shows (``number``, ``table`` and ``figure`` of this package); this
extension says how that looks on a page. It also sees to it that a page asks the network for
nothing, and that what would be a silent gap (an unknown number, a figure without its files, a
formula that cannot be set) is a warning, which the build treats as an error.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import datetime as dt
import json
import os
import posixpath
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

from docutils import nodes
from latex2mathml.converter import convert as latex_to_mathml
from myst_nb.core.variables import RetrievalError
from myst_nb.ext.glue.crossref import read_glue_cache
from myst_nb.ext.glue.domain import NbGlueDomain
from myst_nb.ext.glue.utils import (
    PendingGlueReference,
    PendingGlueReferenceError,
    create_pending_glue_ref,
    glue_warning,
    retrieve_glue_data,
)
from myst_nb.ext.utils import RoleBase
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number, wrap_displaymath

from kvledger import __version__
from kvledger.datafiles import source_digest

LOGGER = logging.getLogger(__name__)
ASSETS = Path(__file__).parent / "assets"
FIGURES_VARIABLE = "KVLEDGER_FIGURES_DIR"

#: kind of number -> (mark on the page, what the legend calls it)
KINDS: dict[str, tuple[str, str]] = {
    "computed": ("", "computed by this book's code"),
    "cited": ("c", "cited, taken from a source and not recomputed"),
    "measured": ("m", "measured, read from a recorded run"),
}
DOTTED = '<span class="kv-computed">dotted</span>'
#: extension of a figure file -> its name in the line of downloads
DOWNLOADS: dict[str, str] = {
    "svg": "SVG",
    "png": "PNG",
    "csv": "data (CSV)",
    "bib": "citation (BibTeX)",
    "json": "stamp (JSON)",
}
FIGURE_FILES = (*(f".{extension}" for extension in DOWNLOADS), ".dark.svg")
FIGURE_TEXT = re.compile(r"^(?P<id>[\w.-]+) · data (?P<digest>[0-9a-f]{8,64})$")
THEBE = re.compile(
    r"\s*<script type=\"text/x-thebe-config\">.*?</script>\s*<script>kernelName = [^<]*</script>",
    re.DOTALL,
)
#: On a narrow screen a drawing is not made smaller than this share of its drawn width.
LEAST_SCALE = 0.8


def cache_folder(root: Path) -> Path:
    """Return the folder of execution results that belong to the present code and data.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.

    Examples
    --------
    >>> cache_folder(Path("book")).parts[:3]
    ('book', '_build', 'cache')
    """
    return root / "_build" / "cache" / source_digest()[:16]


# ---------------------------------------------------------------- numbers


class kv_number(nodes.inline):  # noqa: N801  (docutils names its visitors after the class)
    """A number in the prose, with the kind and the source that came with it."""


def _number_node(key: str, output: dict[str, Any]) -> kv_number:
    """Make the node of one glued value.

    Raises
    ------
    ValueError
        If the value was not glued by ``number``: no plain text, or an unknown kind.
    """
    text = output.get("data", {}).get("text/plain")
    if not isinstance(text, str):
        raise ValueError(f"glued value {key!r} has no text/plain; glue it with number()")
    stamp = output.get("metadata", {}).get("kvledger")
    kind = stamp.get("kind") if isinstance(stamp, dict) else None
    if kind not in KINDS:
        raise ValueError(
            f"glued value {key!r} has kind {kind!r}; accepted: {', '.join(KINDS)} "
            "(glue it with number())"
        )
    source = stamp.get("source")
    title = f"{key}: {kind}" + (f", {source}" if source else "")
    node = kv_number(text, text, classes=["kv-number", f"kv-{kind}"])
    node["kv_kind"] = kind
    node["kv_title"] = title
    return node


class NumberRole(RoleBase):
    """The role ``glue:text``: one number, by its id, of this page or of ``page::id``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the number's node, or a warning that names the id."""
        page, separator, key = self.text.rpartition("::")
        if ":" in key:
            return self._warn(
                f"{self.text!r} asks for a format; the text of a number is decided by number(), "
                "write the id alone"
            )
        if separator:
            try:
                pending = create_pending_glue_ref(
                    self.document, self.source, self.line, page, key, inline=True, gtype="text"
                )
            except PendingGlueReferenceError as error:
                return self._warn(str(error))
            return [pending], []
        try:
            found = retrieve_glue_data(self.document, key)
            node = _number_node(key, {"data": found.data, "metadata": found.metadata})
        except RetrievalError:
            return self._warn(
                f"no cell of this page glues {key!r}; glue it with number({key!r}, ...), or write "
                "page::id for a number of another page"
            )
        except ValueError as error:
            return self._warn(str(error))
        self.set_source_info(node)
        return [node], []

    def _warn(self, message: str) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [], [glue_warning(message, self.document, self.line)]


class NumberDomain(NbGlueDomain):
    """MyST-NB's glue domain with this book's ``glue:text``."""

    roles: ClassVar[dict[str, Any]] = {**NbGlueDomain.roles, "text": NumberRole()}


class NumbersOfOtherPages(SphinxPostTransform):
    """Put in the numbers that a page takes from another page."""

    default_priority = 4  # before MyST-NB's own, which would drop the kind

    def run(self, **kwargs: Any) -> None:
        """Replace each waiting reference, or warn that the other page lacks it."""
        folder = cast(Any, self.env).mystnb_config.output_folder
        for node in list(self.document.findall(PendingGlueReference)):
            if node.gtype != "text":
                continue
            data = read_glue_cache(folder, node.refdoc)
            if node.key not in data:
                continue  # MyST-NB's transform reports it
            try:
                node.replace_self(_number_node(node.key, data[node.key]))
            except ValueError as error:
                LOGGER.warning(str(error), location=node, type="kvledger", subtype="number")
                node.parent.remove(node)


def _visit_number(self: Any, node: kv_number) -> None:
    self.body.append(
        f'<span class="{" ".join(node["classes"])}" title="{escape(node["kv_title"])}">'
    )


def _depart_number(self: Any, node: kv_number) -> None:
    mark = KINDS[node["kv_kind"]][0]
    self.body.append(f'<sup class="kv-mark">{mark}</sup></span>' if mark else "</span>")


def legend(body: str) -> str:
    """Return the line that explains the marks of the numbers on a page, or nothing.

    Parameters
    ----------
    body : str
        The HTML of a page.

    Examples
    --------
    >>> legend('<span class="kv-number kv-cited">5</span>')
    '<p class="kv-legend" role="note">Numbers on this page: raised <span class="kv-cited"><sup \
class="kv-mark">c</sup></span>: cited, taken from a source and not recomputed.</p>'
    >>> legend("<p>No numbers.</p>")
    ''
    """
    parts = []
    for kind, (mark, meaning) in KINDS.items():
        if f'class="kv-number kv-{kind}"' not in body:
            continue
        sign = f'raised <span class="kv-{kind}"><sup class="kv-mark">{mark}</sup></span>'
        parts.append(f"{sign if mark else DOTTED}: {meaning}")
    if not parts:
        return ""
    return f'<p class="kv-legend" role="note">Numbers on this page: {"; ".join(parts)}.</p>'


# ---------------------------------------------------------------- figures


class kv_figure(nodes.General, nodes.Element):  # noqa: N801
    """The two drawings (light and dark) of a figure, in a box that scrolls."""


class kv_downloads(nodes.General, nodes.Element):  # noqa: N801
    """The line below a caption: everything a figure can be fetched as."""


class Drawing(NamedTuple):
    """What a page needs to know of a figure's files: words, and size in CSS pixels."""

    alt: str
    width: int
    height: int


def figures_folder() -> Path:
    """Return the folder into which the executed notebooks wrote their figures."""
    return Path(os.environ[FIGURES_VARIABLE])


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
            match = FIGURE_TEXT.match(_plain_text(bundle).strip())
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
            frame.append(kv_downloads("", kv_id=figure_id))

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


def _figures_url(writer: Any) -> str:
    # imgpath is how this page reaches _images/, whatever the builder: figures/ lies beside it.
    return posixpath.join(posixpath.dirname(str(writer.builder.imgpath)), "figures")


def _visit_figure(self: Any, node: kv_figure) -> None:
    url, figure_id = _figures_url(self), node["kv_id"]
    size = f'width="{node["width"]}" height="{node["height"]}"'
    least = f'style="min-width: {round(node["width"] * LEAST_SCALE)}px"'
    self.body.append(
        f'<div class="kv-scroll" role="region" tabindex="0" aria-label="Drawing {figure_id}">\n'
    )
    for mode, end in (("light", ".svg"), ("dark", ".dark.svg")):
        self.body.append(
            f'<img class="only-{mode}" src="{url}/{figure_id}{end}" alt="{escape(node["alt"])}" '
            f"{size} {least}>\n"
        )
    self.body.append("</div>\n")


def _visit_downloads(self: Any, node: kv_downloads) -> None:
    url, figure_id = _figures_url(self), node["kv_id"]
    links = [
        f'<a href="{url}/{figure_id}.{end}" aria-label="{name} of {figure_id}" download>{name}</a>'
        for end, name in DOWNLOADS.items()
    ]
    self.body.append(f'<p class="kv-downloads"><code>{figure_id}</code>: {" ".join(links)}</p>\n')


def _nothing(self: Any, node: nodes.Node) -> None:
    """Close a node that was written whole when it was opened."""


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Put the files of every figure at ``figures/<id>.<ext>`` of the site."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return
    # The theme leaves pieces of its templates there, which are no pages.
    for path in (Path(app.outdir) / "_static").glob("*webpack-macros.html"):
        path.unlink()
    target = Path(app.outdir) / "figures"
    shutil.rmtree(target, ignore_errors=True)
    for figure_id in sorted({i for ids in _figures_of(app.env).values() for i in ids}):
        target.mkdir(parents=True, exist_ok=True)
        for end in FIGURE_FILES:
            shutil.copyfile(figures_folder() / (figure_id + end), target / (figure_id + end))


# ---------------------------------------------------------------- mathematics


@lru_cache(maxsize=1024)
def mathml(latex: str, display: str) -> str:
    r"""Return MathML for a formula, so that no page needs a script to show it.

    Parameters
    ----------
    latex : str
        The formula, without delimiters.
    display : {"inline", "block"}
        In a line, or set apart.

    Raises
    ------
    ValueError
        If the converter does not know part of the formula.

    Examples
    --------
    >>> "<mi>n</mi>" in mathml(r"\lceil n / p \rceil", "inline")
    True
    >>> mathml(r"\nosuchcommand", "inline")
    Traceback (most recent call last):
        ...
    ValueError: \nosuchcommand is not known to the formula converter, in: \nosuchcommand
    """
    # It knows split, which is set the same way, and takes aligned for plain braces.
    known = re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{split}", latex)
    try:
        result = str(latex_to_mathml(known, display=display))
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}, in: {latex}") from error
    # The converter copies what it does not know into the result, where nobody would see an error.
    unknown = re.search(r">(\\[A-Za-z]+|&)<", result) or re.search(r"(<mo ?/>)", result)
    if unknown is not None:
        raise ValueError(f"{unknown[1]} is not known to the formula converter, in: {latex}")
    return result


def _formula(node: nodes.Element, latex: str, display: str) -> str:
    try:
        return mathml(latex, display)
    except ValueError as error:
        LOGGER.warning("formula: %s", error, location=node, type="kvledger", subtype="math")
        return f"<code>{escape(latex)}</code>"


def _visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(_formula(node, node.astext(), "inline"))
    raise nodes.SkipNode


def _visit_math_block(self: Any, node: nodes.math_block) -> None:
    latex = node.astext().strip()
    if not node.get("no-wrap", node.get("nowrap")) and re.search(r"\\\\|(?<!\\)&", latex):
        latex = latex if latex.startswith(r"\begin") else wrap_displaymath(latex, None, False)
    number = ""
    if node.get("number"):
        value = get_node_equation_number(self, node)
        number = f'<span class="eqno">({value})'
        if node.get("ids"):
            number += (
                f'<a class="headerlink" href="#{node["ids"][0]}" title="Link to this equation"'
                f' aria-label="Link to equation {value}">#</a>'
            )
        number += "</span>"
    self.body.append(
        self.starttag(
            node,
            "div",
            CLASS="kv-math",
            tabindex="0",
            role="group",
            **{"aria-label": "Equation"},
        )
    )
    self.body.append(_formula(node, latex, "block") + number + "</div>\n")
    raise nodes.SkipNode


# ---------------------------------------------------------------- pages


def tidy(body: str) -> str:
    """Mend what the tools below write in ways that a screen reader cannot follow.

    Parameters
    ----------
    body : str
        The HTML of a page.

    Examples
    --------
    >>> tidy('<div role="list"><div role="doc-biblioentry">A</div></div>')
    '<div role="list"><div role="listitem">A</div></div>'
    >>> tidy('<tr><th class="head stub"></th><th>a</th></tr>')
    '<tr><td class="head stub"></td><th>a</th></tr>'
    """
    # What is left of the launch buttons that this book does not have.
    body = THEBE.sub("", body)
    # A list may hold list items only; the newer role is not one.
    body = body.replace('role="doc-biblioentry"', 'role="listitem"')
    # A header cell with nothing in it heads nothing.
    return re.sub(r"<th\b([^>]*)>(\s|<p>\s*</p>)*</th>", r"<td\1></td>", body)


def _page_context(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Finish a page: marks explained, stamp below, nothing asked of the network."""
    if "body" in context:
        body = tidy(context["body"])
        context["body"] = body + legend(body)
    for name in ("script_files", "css_files"):
        context[name] = [item for item in context.get(name, ()) if not _asks_network(item)]
    context["theme_extra_footer"] = stamp(app.env, pagename)


def _asks_network(item: Any) -> bool:
    """Tell whether a script or style belongs to thebe, or lies on another machine."""
    attributes = getattr(item, "attributes", {})
    text = f"{item} {getattr(item, 'filename', '')} {attributes.get('body') or ''}"
    return "thebe" in text.lower() or "//" in str(getattr(item, "filename", "") or "")


def stamp(env: BuildEnvironment, pagename: str) -> str:
    """Return the line that leads back from a page to what it was made of."""
    pages = getattr(env, "nb_metadata", {})
    times = {
        page: values["exec_data"]["mtime"]
        for page, values in pages.items()
        if values.get("exec_data")
    }
    parts = [f"kvledger {__version__}", f"source digest <code>{source_digest()[:8]}</code>"]
    if times:
        # A page without cells shows numbers of others: it is as old as the oldest of those.
        moment = times.get(pagename, min(times.values()))
        day = dt.datetime.fromtimestamp(moment, dt.UTC).date().isoformat()
        parts.append(f'numbers last checked <time datetime="{day}">{day}</time>')
    return f'<p class="kv-stamp">{" · ".join(parts)}</p>'


def _configure(app: Sphinx, config: Config) -> None:
    """Tie the results of execution to the code and data that they came from."""
    folder = cache_folder(Path(app.confdir or app.srcdir).resolve())
    os.environ[FIGURES_VARIABLE] = str(folder / "figures")
    cast(Any, config).nb_execution_cache_path = str(folder / "jupyter_cache")
    cast(Any, config).html_static_path.append(str(ASSETS))
    cast(Any, config).html_math_renderer = "kvledger"
    # Without a mode each first visit is an error in the browser's console.
    cast(Any, config).html_context.setdefault("default_mode", "auto")
    if "sphinx.ext.autodoc" in app.extensions:
        app.connect("autodoc-skip-member", _skip_alias)


def _skip_alias(
    app: Sphinx, what: str, name: str, member: object, skip: bool, options: object
) -> bool | None:
    """Leave out "Alias for field number 0": a type's own description says what a field is."""
    return True if type(member).__name__ == "_tuplegetter" else None


def _write_all(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    # Numbers, citations and figure numbers of one page stand on others: writing all of them costs
    # seconds, working out which would have to be right every time.
    return sorted(env.found_docs)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the extension to a Sphinx application."""
    app.setup_extension("myst_nb")
    app.setup_extension("kvledger.book.explorer")
    app.setup_extension("kvledger.book.changelog")
    app.add_domain(NumberDomain, override=True)
    app.add_post_transform(NumbersOfOtherPages)
    app.add_transform(CitableFigures)
    app.add_node(kv_number, html=(_visit_number, _depart_number))
    app.add_node(kv_figure, html=(_visit_figure, _nothing))
    app.add_node(kv_downloads, html=(_visit_downloads, _nothing))
    app.add_html_math_renderer(
        "kvledger", (_visit_math, cast(Any, None)), (_visit_math_block, cast(Any, None))
    )
    app.add_css_file("kvledger.css", priority=900)
    app.connect("config-inited", _configure, priority=100)
    app.connect("env-purge-doc", _purge_figures)
    app.connect("env-merge-info", _merge_figures)
    app.connect("env-updated", _write_all)
    app.connect("html-page-context", _page_context, priority=900)
    app.connect("build-finished", _finish, priority=900)
    return {
        "version": __version__,
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
