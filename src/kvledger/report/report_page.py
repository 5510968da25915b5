"""The report as one page of HTML that holds all it shows and runs nothing.

Markdown is read by the same parser as the book's. Glued values come from the notebook's outputs
and are put in as text, after the Markdown has been read, so nothing in a name is markup. Of the
outputs, tables and figures are shown; any other is shown as the text that it is.
"""

# nbconvert and latex2mathml ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from latex2mathml.converter import convert as mathml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from nbconvert.exporters import HTMLExporter

from kvledger import __version__
from proofbook.prose import EXTENSIONS
from proofbook.showing import FIGURE_TEXT, RECORD, TABLE_HTML

_ASSETS = Path(__file__).resolve().parent / "assets"
_TITLED = re.compile(r"(?P<words>.*\S)\s*<(?P<target>[^<>]+)>", re.DOTALL)


def page_html(notebook: Any, figures: Path, *, title: str) -> str:
    """Return the page of a notebook that was run.

    Parameters
    ----------
    notebook : NotebookNode
        With its outputs.
    figures : Path
        Where the drawings of its figures are.
    title : str
        What the window is called.

    Returns
    -------
    str
        Drawings, style and all: the page asks for nothing.
    """
    exporter = _Exporter(notebook, figures)
    resources = {
        "kvledger": {
            "title": title,
            "style": (_ASSETS / "page.css").read_text(encoding="utf-8"),
            "footer": (
                "Numbers are computed from the trace; those with a raised c are cited. "
                f"Made by kvledger {__version__}. Beside this page: report.ipynb, the notebook "
                "with the code; figures, as SVG, PNG and CSV; tables, as CSV; numbers.json, exact."
            ),
        }
    }
    html, _ = exporter.from_notebook_node(notebook, resources=resources)
    return str(html)


class Glued(NamedTuple):
    """A glued text, and where it is from if it was not computed."""

    text: str
    mark: str
    source: str


def glued(notebook: Any) -> dict[str, Glued]:
    """Return the texts that a notebook's cells glued, by id."""
    found: dict[str, Glued] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            about = output.get("metadata", {})
            name = about.get("scrapbook", {}).get("name")
            if name is not None:
                kind = about["kvledger"]["kind"]
                mark = "" if kind == "computed" else kind[0]
                source = f"{kind}: {about['kvledger']['source']}" if mark else ""
                found[str(name)] = Glued(_joined(output["data"][RECORD]), mark, source)
    return found


class _Exporter(HTMLExporter):
    """nbconvert's HTML with the book's Markdown, figures and tables."""

    def __init__(self, notebook: Any, figures: Path) -> None:
        self.figures = figures
        self.prose = _Prose(glued(notebook), _numbers(notebook))
        super().__init__(
            template_name="assets",
            extra_template_basedirs=[str(_ASSETS.parent)],
            filters={"kvledger_outputs": self.outputs},
        )

    def default_filters(self) -> Any:
        """Put the book's Markdown in place of nbconvert's."""
        yield from super().default_filters()
        yield "markdown2html", self.prose.html

    def outputs(self, cell: Any) -> str:
        """Return what a code cell shows."""
        return "\n".join(filter(None, (self._output(cell, each) for each in cell.outputs)))

    def _output(self, cell: Any, output: Any) -> str:
        data: Mapping[str, Any] = output.get("data", {})
        if RECORD in data:
            return ""
        text = _joined(data.get("text/plain", output.get("text", "")))
        figure = FIGURE_TEXT.fullmatch(text)
        if figure is not None:
            return self._figure(cell, figure["id"])
        table = _joined(data.get("text/html", ""))
        if TABLE_HTML.match(table):
            return table
        return f'<pre tabindex="0">{escape(text)}</pre>' if text.strip() else ""

    def _figure(self, cell: Any, id: str) -> str:
        about = _about(self.figures / f"{id}.json")
        light, dark = (_data_url(self.figures / f"{id}{end}.svg") for end in ("", ".dark"))
        caption = self.prose.html(cell.metadata["mystnb"]["figure"]["caption"])
        number = self.prose.numbers[id]
        return (
            f'<figure id="{id}"><div class="scroll" tabindex="0"><picture>'
            f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" alt="{escape(about["alt"])}" '
            f'width="{round(96 * about["width_in"])}" height="{round(96 * about["height_in"])}">'
            f'</picture></div><figcaption><span class="number">Figure {number}.</span> '
            f"{_unwrapped(caption)}</figcaption></figure>"
        )


class _Prose:
    """The book's Markdown as HTML, with the roles that a chapter uses."""

    def __init__(self, texts: Mapping[str, Glued], numbers: Mapping[str, int]) -> None:
        self.texts = texts
        self.numbers = numbers
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
            return self._glued(content)
        if name == "numref":
            number = self.numbers.get(content)
            if number is None:
                return "the figure that is not shown"
            return f'<a href="#{escape(content)}">Figure {number}</a>'
        titled = _TITLED.fullmatch(content)
        return f"<em>{escape(titled['words'] if titled else content.replace('_', ' '))}</em>"

    def _glued(self, id: str) -> str:
        if id not in self.texts:
            return "(not shown)"
        text, mark, source = self.texts[id]
        if not mark:
            return escape(text)
        return f'<span title="{escape(source)}">{escape(text)}<sup>{escape(mark)}</sup></span>'

    def _math_inline(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return str(mathml(tokens[at].content))

    def _math_block(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return str(mathml(tokens[at].content.strip(), display="block"))


def _numbers(notebook: Any) -> dict[str, int]:
    """Return the figures that are shown, by id, numbered in order."""
    ids = [
        match["id"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if (match := FIGURE_TEXT.fullmatch(_joined(output.get("data", {}).get("text/plain", ""))))
    ]
    return {id: number for number, id in enumerate(ids, start=1)}


def _about(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return about


def _data_url(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _unwrapped(paragraph: str) -> str:
    return paragraph.strip().removeprefix("<p>").removesuffix("</p>")


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
