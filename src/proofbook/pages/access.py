r"""What a page lacks for readers with a keyboard, a screen reader, or no scripts.

Three mends. A style sheet for browsers that run no script says in media queries what scripts say
with an attribute: whether the page is light or dark. Formulas say what is a fence, a product and
a function, which :math:`p\lceil n/p\rceil` leaves to the eye. Two pieces of the theme's templates
get the element that they lack. Beside them lie ``access.css`` and ``access.js`` in ``assets/``.
"""

# Sphinx and tinycss2 ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import tinycss2
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

__all__ = ["MATHML", "NOSCRIPT", "setup", "spoken", "without_scripts"]

ASSETS = Path(__file__).parent / "assets"
TEMPLATES = Path(__file__).parent / "templates"
NOSCRIPT = "noscript.css"
MATHML = "http://www.w3.org/1998/Math/MathML"
#: What the theme writes into ``data-theme`` when no script has yet chosen one of the two.
UNDECIDED = "auto"
MODES = ("light", "dark")

# ---------------------------------------------------------------- colours without scripts


def without_scripts(css: str) -> str:
    """Return the rules of a style sheet that need a mode, with the reader's system as the mode.

    Parameters
    ----------
    css : str
        A style sheet whose rules for a mode are about ``html[data-theme=light]`` or ``dark``.

    Returns
    -------
    str
        The same rules for a page on which no script has set the mode, each in a media query.

    Examples
    --------
    >>> print(without_scripts('html[data-theme="dark"] a, b { color: red } i { color: blue }'))
    @media (prefers-color-scheme: dark) {
    html[data-theme="auto"] a{ color: red }
    }
    >>> without_scripts("a { color: red }")
    ''
    """
    rules = tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True)
    blocks = []
    for mode in MODES:
        found = list(_of_mode(rules, mode))
        if found:
            lines = "\n".join(found)
            blocks.append(f"@media (prefers-color-scheme: {mode}) {{\n{lines}\n}}")
    return "\n".join(blocks)


def _of_mode(rules: Iterable[Any], mode: str) -> Iterator[str]:
    """Yield the rules that are about a mode, within the at-rules that they stand in."""
    attribute = re.compile(rf"""\[data-theme=["']?{mode}["']?\]""")
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [
                attribute.sub(f'[data-theme="{UNDECIDED}"]', selector)
                for selector in _selectors(rule.prelude)
                if attribute.search(selector)
            ]
            if selectors:
                yield f"{', '.join(selectors)}{{{tinycss2.serialize(rule.content)}}}"
        elif rule.type == "at-rule" and rule.content and rule.lower_at_keyword == "media":
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            found = "\n".join(_of_mode(inner, mode))
            if found:
                yield f"@media{tinycss2.serialize(rule.prelude)}{{\n{found}\n}}"


def _selectors(prelude: Iterable[Any]) -> list[str]:
    """Split a list of selectors at its commas; those within brackets are no tokens of it."""
    parts: list[list[Any]] = [[]]
    for token in prelude:
        if token.type == "literal" and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return [tinycss2.serialize(part).strip() for part in parts]


# ---------------------------------------------------------------- formulas read aloud

OPENING, CLOSING = "⌈⌊([{", "⌉⌋)]}"
TIMES, APPLIED = "\u2062", "\u2061"
#: Elements whose children stand in a row.
ROWS = {"math", "mrow", "mstyle", "mpadded", "msqrt", "mtd"}
VALUES = {"mi", "mn", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "mover", "munder"}
#: A space at least this wide stands between two formulas, not between two factors.
WIDE_EM = 0.9


def spoken(body: str) -> str:
    """Say in each formula of a page what only its look says.

    Ceilings, floors and full stops are no identifiers; between two factors stands a product, and
    between a function and its argument an application, both invisible.

    Parameters
    ----------
    body : str
        HTML with MathML in it.

    Returns
    -------
    str
        HTML that looks the same.

    Examples
    --------
    >>> print(spoken("<p><math><mn>2</mn><mi>⌈</mi><mi>x</mi><mi>⌉</mi></math></p>"))
    <p><math><mn>2</mn><mo>\u2062</mo><mo form="prefix" stretchy="false">⌈</mo><mi>x</mi>\
<mo form="postfix" stretchy="false">⌉</mo></math></p>
    """
    return re.sub(r"<math\b.*?</math>", lambda found: _spoken(found[0]), body, flags=re.DOTALL)


def _spoken(formula: str) -> str:
    root = ElementTree.fromstring(formula.replace(f' xmlns="{MATHML}"', "", 1))
    for element in root.iter():
        _name_signs(element)
    for element in list(root.iter()):
        if element.tag in ROWS:
            _join(element)
    text = ElementTree.tostring(root, encoding="unicode")
    return text.replace("<math", f'<math xmlns="{MATHML}"', 1) if MATHML in formula else text


def _name_signs(element: ElementTree.Element) -> None:
    """Make operators of fences, and words of the stops that end a sentence."""
    text = element.text or ""
    if element.tag not in {"mi", "mo"} or len(text) != 1:
        return
    if text in OPENING + CLOSING:
        element.tag = "mo"
        element.set("form", "prefix" if text in OPENING else "postfix")
        element.set("stretchy", "false")
    elif text in ".:;":
        element.tag = "mtext"


def _join(row: ElementTree.Element) -> None:
    """Put the invisible operator between two neighbours that need one."""
    children = list(row)
    for left, right in pairwise(children):
        after = left
        if _is_narrow_space(right):
            following = children[children.index(right) + 1 :]
            after, right = left, following[0] if following else right
        if not (_ends_value(left) and _begins_value(right)):
            continue
        sign = ElementTree.Element("mo")
        named = left.tag == "msub" and (right.text or "") == "("
        sign.text = APPLIED if named else TIMES
        row.insert(list(row).index(after) + 1, sign)


def _is_narrow_space(element: ElementTree.Element) -> bool:
    if element.tag != "mspace":
        return False
    width = re.fullmatch(r"([\d.]+)em", element.get("width", ""))
    return width is not None and float(width[1]) < WIDE_EM


def _ends_value(element: ElementTree.Element) -> bool:
    return element.tag in VALUES or (element.tag == "mo" and (element.text or "") in {*CLOSING})


def _begins_value(element: ElementTree.Element) -> bool:
    return element.tag in VALUES or (element.tag == "mo" and (element.text or "") in {*OPENING})


# ---------------------------------------------------------------- pages


def _page_context(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    if "body" in context:
        context["body"] = spoken(context["body"])
    href = context["pathto"](f"_static/{NOSCRIPT}", 1)
    link = f'<noscript><link rel="stylesheet" href="{href}"></noscript>'
    context["metatags"] = context.get("metatags", "") + link


def _write_noscript(app: Sphinx, error: Exception | None) -> None:
    """Complete the style sheet for browsers without scripts, from all the others of the site."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    own = (ASSETS / NOSCRIPT).read_text(encoding="utf-8")
    first = Path(cast(Any, app.builder).get_outfilename(app.config.root_doc))
    pages = [first, *(path for path in sorted(static.parent.rglob("*.html")) if path != first)]
    names = style_sheets(path.read_text(encoding="utf-8") for path in pages if path.is_file())
    parts = [without_scripts((static / name).read_text(encoding="utf-8")) for name in names]
    text = "\n".join(part for part in parts if part)
    (static / NOSCRIPT).write_text(f"{own}\n{text}\n", encoding="utf-8")


def style_sheets(pages: Iterable[str]) -> list[str]:
    """Return the style sheets that pages load from ``_static``, in the order of the first page.

    Parameters
    ----------
    pages : iterable of str
        HTML.

    Examples
    --------
    >>> style_sheets(['<link href="../_static/a.css?v=1"> <link href="../_static/noscript.css">',
    ...               '<link href="_static/a.css?v=1"> <link href="_static/styles/b.css">'])
    ['a.css', 'styles/b.css']
    """
    pattern = re.compile(r'href="[^"]*\b_static/([^"?]+\.css)')
    found = dict.fromkeys(name for page in pages for name in pattern.findall(page))
    return [name for name in found if name != NOSCRIPT]


def _configure(app: Sphinx, config: Config) -> None:
    # Before the theme's own, which stand there too.
    cast(Any, config).templates_path.insert(0, str(TEMPLATES))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the mends to a Sphinx application."""
    app.add_css_file("access.css", priority=905)
    app.add_js_file("access.js", loading_method="defer")
    app.connect("config-inited", _configure, priority=100)
    app.connect("html-page-context", _page_context, priority=920)
    app.connect("build-finished", _write_noscript, priority=910)
    return {
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
