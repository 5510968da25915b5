"""The explorer: a page that computes in the reader's browser, with the book's data and no network.

Its directive writes the form and the empty places that the scripts in ``assets/`` fill. The data,
tables of counts among them, are written as one more script, since a page opened from a file may
load scripts and fetch nothing else.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kvledger import __version__
from kvledger.accounting.metadata import DEFAULT_PAGE_SIZES
from kvledger.accounting.survey import TRACE_LABELS
from kvledger.core.lengths import LengthTable
from kvledger.models.known import load_models
from kvledger.traces import TRACE_NAMES, load_lengths
from kvledger.traces.text_tables import TABLES

DATA = "explorer-data.js"
#: In the order in which they build on each other.
_PARTS = ("-accounting", "-reading", "-settings", "-drawing", "-answers", "")
SCRIPTS = (DATA, *(f"explorer{part}.js" for part in _PARTS))
ASSETS = Path(__file__).parent / "assets"
FORM = Path(__file__).with_name("explorer_form.html")


def packed(table: LengthTable) -> str:
    """Write a table of lengths as a short text, which ``unpack`` of the scripts reads.

    For each length, ascending: its distance from the one before, and, after a dot, how many
    requests have it where that is not one. Both in base 36.

    Examples
    --------
    >>> from kvledger.core.lengths import as_lengths
    >>> packed(as_lengths([5, 5, 9]))
    '5.2 4'
    """
    gaps, requests = (
        [np.base_repr(number, 36).lower() for number in column.tolist()]
        for column in (np.diff(table.tokens, prepend=0), table.requests)
    )
    pairs = zip(gaps, requests, strict=True)
    return " ".join(gap if many == "1" else f"{gap}.{many}" for gap, many in pairs)


@cache
def data_script() -> str:
    """Return all that the explorer knows of the project's data, as a script; always the same."""
    data = {
        "version": __version__,
        "page_sizes": list(DEFAULT_PAGE_SIZES),
        "columns": [
            {name: getattr(table, name) for name in ("prompt", "output", "zero_output_failed")}
            for table in TABLES.values()
            if table.output
        ],
        "models": {
            name: {"bytes": str(model.kv_bytes_per_token), "windowed": bool(model.window_layers)}
            for name, model in load_models().items()
        },
        "traces": {
            name: {"label": TRACE_LABELS[name]}
            | {"total": packed(each.total), "prompt": packed(each.prompt)}
            for name in TRACE_NAMES
            for each in [load_lengths(name)]
        },
    }
    # Escaped, so that nothing in it could end a script or a line early.
    text = json.dumps(data, ensure_ascii=True, indent=0).replace("<", "\\u003c")
    return f"globalThis.kvledgerExplorerData = {text};\n"


class kv_explorer(nodes.General, nodes.Element):
    """The explorer's place on a page; its children are what is read where no script runs."""


class ExplorerDirective(SphinxDirective):
    """The directive ``explorer``; its content is shown to readers without JavaScript."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the explorer's node, or an error if there is nothing for readers without it."""
        if not self.content:
            raise self.error("explorer: no content; accepted: what is read without JavaScript")
        node = kv_explorer()
        self.set_source_info(node)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


def _visit(self: Any, node: kv_explorer) -> None:
    self.body.append(FORM.read_text(encoding="utf-8"))
    self.body.append('<noscript><div class="kvx-noscript">\n')


def _depart(self: Any, node: kv_explorer) -> None:
    self.body.append("</div></noscript>\n")


def _add_files(app: Sphinx, _page: str, _form: str, _all: Any, doctree: Any) -> None:
    """Load the explorer's scripts on its page, and on no other."""
    if doctree is None or next(iter(doctree.findall(kv_explorer)), None) is None:
        return
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    (static / DATA).write_text(data_script(), encoding="utf-8")
    app.add_css_file("explorer.css", priority=910)
    for name in SCRIPTS:
        app.add_js_file(name, loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive to a Sphinx application."""
    app.add_directive("explorer", ExplorerDirective)
    app.add_node(kv_explorer, html=(_visit, _depart))
    app.connect("config-inited", lambda _, config: config.html_static_path.append(str(ASSETS)))
    app.connect("html-page-context", _add_files)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
