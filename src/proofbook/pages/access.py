"""What a page lacks for readers with a keyboard, a screen reader, no scripts or no network.

A style sheet for browsers that run no script says in media queries what scripts say with an
attribute: whether the page is light or dark. Pieces of the theme's templates get the element that
they lack. Markup that a screen reader stumbles over is mended, and nothing is asked of another
host. Beside them lie ``access.css`` and ``access.js`` in ``assets/``.
"""

# Sphinx and tinycss2 ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import tinycss2
from sphinx.application import Sphinx
from sphinx.config import Config

from proofbook.pages.addresses import ASSETS, rewrite_bodies, site_of

TEMPLATES = Path(__file__).parent / "templates"
NOSCRIPT = "noscript.css"
#: What the theme writes into ``data-theme`` when no script has yet chosen one of the two.
UNDECIDED = "auto"
MODES = ("light", "dark")
THEBE = re.compile(
    r"\s*<script type=\"text/x-thebe-config\">.*?</script>\s*<script>kernelName = [^<]*</script>",
    re.DOTALL,
)

# ---------------------------------------------------------------- colours without scripts


def without_scripts(css: str) -> str:
    """Return the rules of a style sheet that need a mode, with the reader's system as the mode.

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
            # A comma within brackets parts no selectors.
            every = re.split(r",(?![^()]*\))", tinycss2.serialize(rule.prelude))
            selectors = [
                attribute.sub(f'[data-theme="{UNDECIDED}"]', selector.strip())
                for selector in every
                if attribute.search(selector)
            ]
            if selectors:
                yield f"{', '.join(selectors)}{{{tinycss2.serialize(rule.content)}}}"
        elif rule.type == "at-rule" and rule.content and rule.lower_at_keyword == "media":
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            found = "\n".join(_of_mode(inner, mode))
            if found:
                yield f"@media{tinycss2.serialize(rule.prelude)}{{\n{found}\n}}"


def style_sheets(pages: Iterable[str]) -> list[str]:
    """Return the style sheets that pages load from ``_static``, in the order of the first page.

    Examples
    --------
    >>> style_sheets(['<link href="../_static/a.css?v=1"> <link href="../_static/noscript.css">',
    ...               '<link href="_static/a.css?v=1"> <link href="_static/styles/b.css">'])
    ['a.css', 'styles/b.css']
    """
    pattern = re.compile(r'href="[^"]*\b_static/([^"?]+\.css)')
    found = dict.fromkeys(name for page in pages for name in pattern.findall(page))
    return [name for name in found if name != NOSCRIPT]


# ---------------------------------------------------------------- pages


def tidy(body: str) -> str:
    """Mend what the tools below write in ways that a screen reader cannot follow.

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
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Link to the style sheet without scripts, and ask nothing of the network."""
    href = context["pathto"](f"_static/{NOSCRIPT}", 1)
    link = f'<noscript><link rel="stylesheet" href="{href}"></noscript>'
    context["metatags"] = context.get("metatags", "") + link
    for name in ("script_files", "css_files"):
        context[name] = [item for item in context.get(name, ()) if not _asks_network(item)]


def _asks_network(item: Any) -> bool:
    """Tell whether a script or style belongs to thebe, or lies on another machine."""
    file = str(getattr(item, "filename", "") or "")
    text = f"{item} {file} {getattr(item, 'attributes', {}).get('body') or ''}"
    return "thebe" in text.lower() or "//" in file


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Complete the style sheet for browsers without scripts, from all the others of the site."""
    site = site_of(app, error)
    if site is None:
        return
    static = site / "_static"
    for path in static.glob("*webpack-macros.html"):
        path.unlink()  # pieces of its templates that the theme leaves, which are no pages
    own = (ASSETS / NOSCRIPT).read_text(encoding="utf-8")
    first = Path(cast(Any, app.builder).get_outfilename(app.config.root_doc))
    pages = [first, *(path for path in sorted(site.rglob("*.html")) if path != first)]
    names = style_sheets(path.read_text(encoding="utf-8") for path in pages if path.is_file())
    parts = [without_scripts((static / name).read_text(encoding="utf-8")) for name in names]
    text = "\n".join(filter(None, parts))
    (static / NOSCRIPT).write_text(f"{own}\n{text}\n", encoding="utf-8")


def _configure(app: Sphinx, config: Config) -> None:
    # Before the theme's own, which stand there too.
    cast(Any, config).templates_path.insert(0, str(TEMPLATES))


def _keep_copyright(app: Sphinx) -> None:
    """Keep the authors' year, in whose place Sphinx puts that of ``SOURCE_DATE_EPOCH``."""
    written: list[Any] = []

    def put_back(app: Sphinx, config: Any) -> None:
        config.copyright = written.pop()

    app.connect("config-inited", lambda _, config: written.append(config.copyright), priority=1)
    app.connect("config-inited", put_back, priority=999)


def setup(app: Sphinx) -> None:
    """Add the mends to a Sphinx application."""
    _keep_copyright(app)
    app.add_css_file("access.css", priority=905)
    app.add_js_file("access.js", loading_method="defer")
    app.connect("config-inited", _configure, priority=100)
    app.connect("html-page-context", _page_context, priority=880)
    rewrite_bodies(app, tidy, 880)
    app.connect("build-finished", _finish, priority=910)
