"""Formulas: set as MathML when the book is built, and said in words for readers who listen."""

# Sphinx and latex2mathml ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Any, cast

from bs4 import Tag
from docutils import nodes
from latex2mathml.converter import convert as latex_to_mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number, wrap_displaymath

from proofbook.pages.addresses import rewrite_bodies

LOGGER = logging.getLogger(__name__)
MATHML = "http://www.w3.org/1998/Math/MathML"


@lru_cache(maxsize=1024)
def mathml(latex: str, display: str) -> str:
    r"""Return MathML for a formula, so that no page needs a script to show it.

    `latex` has no delimiters; `display` is ``"inline"`` or ``"block"``, for one that is set apart.
    A part of it that the converter does not know is a ValueError.

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
        LOGGER.warning("formula: %s", error, location=node, type="proofbook", subtype="math")
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
            node, "div", CLASS="kv-math", tabindex="0", role="group", **{"aria-label": "Equation"}
        )
    )
    self.body.append(_formula(node, latex, "block") + number + "</div>\n")
    raise nodes.SkipNode


# ---------------------------------------------------------------- invisible operators

OPENING, CLOSING = "⌈⌊([{", "⌉⌋)]}"
TIMES, APPLIED = "\u2062", "\u2061"
_FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
#: Elements whose children stand in a row.
ROWS = {"math", "mrow", "mstyle", "mpadded", "msqrt", "mtd"}
VALUES = {"mi", "mn", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "mover", "munder"}
#: A space at least this wide stands between two formulas, not between two factors.
WIDE_EM = 0.9


def with_operators(body: str) -> str:
    """Say in each formula of a page what only its look says.

    Ceilings, floors and full stops are no identifiers; between two factors stands a product, and
    between a function and its argument an application, both invisible.

    Examples
    --------
    >>> print(with_operators("<p><math><mn>2</mn><mi>⌈</mi><mi>x</mi><mi>⌉</mi></math></p>"))
    <p><math><mn>2</mn><mo>\u2062</mo><mo form="prefix" stretchy="false">⌈</mo><mi>x</mi>\
<mo form="postfix" stretchy="false">⌉</mo></math></p>
    """
    return _FORMULA.sub(lambda found: _with_operators(found[0]), body)


def _with_operators(formula: str) -> str:
    root = ElementTree.fromstring(formula.replace(f' xmlns="{MATHML}"', "", 1))
    for element in root.iter():
        text = element.text or ""
        if element.tag not in {"mi", "mo"} or len(text) != 1:
            continue
        if text in OPENING + CLOSING:
            element.tag = "mo"
            element.set("form", "prefix" if text in OPENING else "postfix")
            element.set("stretchy", "false")
        elif text in ".:;":  # the stops that end a sentence
            element.tag = "mtext"
    for element in list(root.iter()):
        if element.tag in ROWS:
            _join(element)
    text = ElementTree.tostring(root, encoding="unicode")
    return text.replace("<math", f'<math xmlns="{MATHML}"', 1) if MATHML in formula else text


def _join(row: ElementTree.Element) -> None:
    """Put the invisible operator between two neighbours that need one."""
    children = list(row)
    for left, right in pairwise(children):
        after = left
        width = right.tag == "mspace" and re.fullmatch(r"([\d.]+)em", right.get("width", ""))
        if width and float(width[1]) < WIDE_EM:
            following = children[children.index(right) + 1 :]
            after, right = left, following[0] if following else right
        if not (_is_value(left, CLOSING) and _is_value(right, OPENING)):
            continue
        sign = ElementTree.Element("mo")
        named = left.tag == "msub" and (right.text or "") == "("
        sign.text = APPLIED if named else TIMES
        row.insert(list(row).index(after) + 1, sign)


def _is_value(element: ElementTree.Element, fences: str) -> bool:
    return element.tag in VALUES or (element.tag == "mo" and (element.text or "") in {*fences})


# ---------------------------------------------------------------- in words

#: Sign -> words. What is not listed is read as it stands.
SIGNS = {
    "=": "equals",
    "≠": "is not equal to",
    "<": "is less than",
    ">": "is greater than",
    "≤": "is at most",
    "≥": "is at least",
    "≈": "is about",
    "∈": "in",
    "+": "plus",
    "±": "plus or minus",
    "/": "over",
    "∑": "the sum",
    "∏": "the product",
    "∞": "infinity",
    "→": "to",
    "⌈": "the ceiling of",
    "⌉": "end ceiling",
    "⌊": "the floor of",
    "⌋": "end floor",
    "{": "open brace",
    "}": "close brace",
    "′": "prime",
    "\u2061": "of",
    **dict.fromkeys("-−", "minus"),
    **dict.fromkeys("×⋅·", "times"),
    **dict.fromkeys("…⋯", "and so on"),
    **dict.fromkeys("([", "open bracket"),
    **dict.fromkeys(")]", "close bracket"),
    **dict.fromkeys("|∣", "bar"),
    **dict.fromkeys("∗*", "star"),
}
POWERS = {"2": "squared", "3": "cubed", "*": "star", "∗": "star", "′": "prime"}


def in_words(formula: Tag) -> str:
    r"""Return a formula in words.

    Examples
    --------
    >>> from bs4 import BeautifulSoup
    >>> def say(latex: str) -> str:
    ...     return in_words(BeautifulSoup(mathml(latex, "inline"), "html.parser").math)
    >>> say(r"s_p(n) = p \lceil n / p \rceil - n")
    's sub p open bracket n close bracket equals p the ceiling of n over p end ceiling minus n'
    >>> say(r"\sqrt{2 c L}")
    'the square root of 2 c L end root'
    >>> say(r"\sum_{i=1}^{N} \frac{n_i + 1}{2}")
    'the sum from i equals 1 to N of the fraction n sub i plus 1 over 2 end fraction'
    >>> say(r"x^2 \le \frac{1}{2}")
    'x squared is at most 1 over 2'
    """
    return re.sub(r"\s+([,.;])", r"\1", " ".join(_words(formula).split()))


def _words(tag: Tag) -> str:
    parts = [child for child in tag.children if isinstance(child, Tag)]
    said = [_words(part) for part in parts]
    name = tag.name
    if name in {"mi", "mn", "mo", "mtext", "ms"}:
        text = tag.get_text().replace("\xa0", " ").strip()
        return SIGNS.get(text, text)
    if name in {"mspace", "annotation", "annotation-xml"}:
        return ""
    if name in {"msub", "msup", "msubsup", "munder", "mover", "munderover"} and len(said) > 1:
        return _scripts(name, parts, said)
    if name == "mfrac" and len(said) == 2:
        words = f"{said[0]} over {said[1]}"
        return f"the fraction {words} end fraction" if " " in "".join(said) else words
    if name == "msqrt":
        return f"the square root of {' '.join(said)} end root"
    if name == "mroot" and len(said) == 2:
        return f"the root of {said[0]}, index {said[1]}, end root"
    if name == "mtr":
        return " ".join(said) + ";"
    return " ".join(said)


def _scripts(name: str, parts: list[Tag], said: list[str]) -> str:
    base, scripts = said[0], said[1:]
    if base in {SIGNS["∑"], SIGNS["∏"]}:
        low, high = (*scripts, "")[:2] if name != "msup" else ("", scripts[0])
        return base + (f" from {low}" if low else "") + (f" to {high}" if high else "") + " of"
    if name in {"msup", "mover"}:
        raised = parts[1].get_text().strip()
        return f"{base} {POWERS.get(raised, f'to the power {scripts[0]}')}"
    above = f" to the power {scripts[1]}" if len(scripts) > 1 else ""
    return f"{base} sub {scripts[0]}{above}"


def setup(app: Sphinx) -> None:
    """Add the renderer ``proofbook`` of formulas to a Sphinx application."""
    app.add_html_math_renderer(
        "proofbook", (_visit_math, cast(Any, None)), (_visit_math_block, cast(Any, None))
    )
    rewrite_bodies(app, with_operators, 920)
