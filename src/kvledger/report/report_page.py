"""The report as one page of HTML that holds all it shows and runs nothing.

Markdown is read by the same parser as the book's. Glued values come from the notebook's outputs
and are put in as text, after the Markdown has been read, so nothing in a name is markup. Of the
outputs, tables and figures are shown; any other is shown as the text that it is.
"""

# latex2mathml ships no types.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert as mathml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from kvledger import __version__
from proofbook.prose import EXTENSIONS
from proofbook.showing import FIGURE_TEXT, MARK, RECORD, TABLE_HTML

# The page asks no host for anything and runs nothing: its policy forbids both.
_PAGE, _STYLE = (
    Path(__file__).resolve().parent / "assets" / name for name in ("report_page.html", "page.css")
)
_TITLED = re.compile(r"(?P<words>.*\S)\s*<(?P<target>[^<>]+)>", re.DOTALL)
_FOOTER = (
    "Numbers are computed from the trace; those with a raised c are cited. "
    f"Made by kvledger {__version__}. Beside this page: report.ipynb, the notebook "
    "with the code; figures, as SVG, PNG and CSV; tables, as CSV; numbers.json, exact."
)


def page_html(notebook: Any, figures: Path, *, title: str) -> str:
    """Return the page of a notebook that was run, its figures' drawings being in a folder.

    Drawings, style and all are in it: the page asks for nothing. ``title`` names the window.
    """
    prose = _Prose(notebook)
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cells.append(f'<section class="prose">{prose.html(cell.source)}</section>')
        for output in cell.get("outputs", ()):
            cells.append(_shown(cell, output, figures, prose))
    return _PAGE.read_text(encoding="utf-8").format(
        title=escape(title),
        style=_STYLE.read_text(encoding="utf-8"),
        cells="\n".join(filter(None, cells)),
        footer=escape(_FOOTER),
    )


def _shown(cell: Any, output: Any, figures: Path, prose: _Prose) -> str:
    """Return what one output shows; nothing of a number, which prose shows."""
    data: Mapping[str, Any] = output.get("data", {})
    if RECORD in data:
        return ""
    text = _joined(data.get("text/plain", output.get("text", "")))
    figure = FIGURE_TEXT.fullmatch(text)
    if figure is not None:
        return _figure(figure["id"], cell, figures, prose)
    table = _joined(data.get("text/html", ""))
    if TABLE_HTML.match(table):
        return table
    return f'<pre tabindex="0">{escape(text)}</pre>' if text.strip() else ""


def _figure(id: str, cell: Any, figures: Path, prose: _Prose) -> str:
    about = json.loads((figures / f"{id}.json").read_text(encoding="utf-8"))
    light, dark = (
        base64.b64encode((figures / f"{id}{end}.svg").read_bytes()).decode("ascii")
        for end in ("", ".dark")
    )
    caption = prose.html(cell.metadata["mystnb"]["figure"]["caption"]).strip()
    return (
        f'<figure id="{id}"><div class="scroll" tabindex="0"><picture>'
        '<source media="(prefers-color-scheme: dark)" '
        f'srcset="data:image/svg+xml;base64,{dark}">'
        f'<img src="data:image/svg+xml;base64,{light}" alt="{escape(about["alt"])}" '
        f'width="{round(96 * about["width_in"])}" height="{round(96 * about["height_in"])}">'
        f'</picture></div><figcaption><span class="number">Figure {prose.numbers[id]}.</span> '
        f"{caption.removeprefix('<p>').removesuffix('</p>')}</figcaption></figure>"
    )


class _Prose:
    """The book's Markdown as HTML, with the roles that a chapter uses.

    ``texts`` are the texts that cells glued, as HTML, and ``numbers`` the figures that are shown,
    numbered in order; both by id.
    """

    def __init__(self, notebook: Any) -> None:
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        for output in (each for cell in notebook.cells for each in cell.get("outputs", ())):
            data, about = output.get("data", {}), output.get("metadata", {})
            figure = FIGURE_TEXT.fullmatch(_joined(data.get("text/plain", "")))
            if figure is not None:
                self.numbers[figure["id"]] = len(self.numbers) + 1
            if "scrapbook" in about:
                kind, text = about[MARK]["kind"], escape(_joined(data[RECORD]))
                if kind != "computed":
                    title = escape(f"{kind}: {about[MARK]['source']}")
                    text = f'<span title="{title}">{text}<sup>{escape(kind[0])}</sup></span>'
                self.texts[about["scrapbook"]["name"]] = text
        config = MdParserConfig(enable_extensions=set(EXTENSIONS))
        self.parser = create_md_parser(config, RendererHTML)
        self.parser.options["html"] = False
        for kind in ("myst_role", "math_inline", "math_block"):
            self.parser.renderer.rules[kind] = getattr(self, f"_{kind}")  # type: ignore[attr-defined]

    def html(self, source: str) -> str:
        """Return Markdown as HTML."""
        return str(self.parser.render(source))

    def _myst_role(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        """Return a role: a glued value, a reference to a figure, or the words of a link."""
        name, content = str(tokens[at].meta["name"]), tokens[at].content
        if name == "glue:text":
            return self.texts.get(content, "(not shown)")
        if name == "numref":
            number = self.numbers.get(content)
            if number is None:
                return "the figure that is not shown"
            return f'<a href="#{escape(content)}">Figure {number}</a>'
        titled = _TITLED.fullmatch(content)
        return f"<em>{escape(titled['words'] if titled else content.replace('_', ' '))}</em>"

    def _math_inline(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return str(mathml(tokens[at].content))

    def _math_block(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return str(mathml(tokens[at].content.strip(), display="block"))


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
