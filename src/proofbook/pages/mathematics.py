"""Formulas, set as MathML when the book is built."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from typing import Any, cast

from docutils import nodes
from latex2mathml.converter import convert as latex_to_mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number, wrap_displaymath

LOGGER = logging.getLogger(__name__)


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


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the renderer ``kvledger`` of formulas to a Sphinx application."""
    app.add_html_math_renderer(
        "kvledger", (_visit_math, cast(Any, None)), (_visit_math_block, cast(Any, None))
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
