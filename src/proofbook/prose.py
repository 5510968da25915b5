"""Check that a chapter types no number by hand and stores everything it shows.

What counts as a typed number, in Markdown cells, pages and figure captions:

* a digit in running text, a heading, a table, an admonition or a directive's title;
  digits may stand in references and code, in the targets of links, in the words of a
  link that leaves the book, and in citations. Number words are words.
* a code span that holds a number and nothing else;
* in mathematics, a number of two or more digits or with a decimal point, and any glued
  value: formulas keep the small constants they are made of, results stay in text;
* in code, a literal number given to ``number()``, and a number on its own in a literal
  caption or alt text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from proofbook.catalogue.notebook_entries import identity
from proofbook.errors import InputError
from proofbook.showing import NUMBER_ID, RECORD
from proofbook.showing.numbers import read_claims

#: The Markdown the book's ``_config.yml`` switches on: read less and a digit could hide.
EXTENSIONS = frozenset({"amsmath", "colon_fence", "deflist", "dollarmath", "tasklist"})

# Roles whose content names a thing elsewhere, or is code, and is not running text.
_NAMING_ROLE = re.compile(
    r"glue(:.*)?|eval(:.*)?|cite(:.*)?|ref|numref|doc|term|eq|any|download|py:.*|func|class|meth|"
    r"mod|attr|data|exc|code|file|kbd|samp|command|program|option|envvar|footcite(:.*)?"
)
_NUMBER_ROLE = re.compile(r"(glue|eval)(:.*)?")
_ACCEPTED = "{glue:text}`id`"
# Directives whose argument is a target or a setting, not a title.
_NO_TITLE = re.compile(
    r"figure|image|include|literalinclude|glue(:.*)?|eval(:.*)?|code|code-block|code-cell|sourcecode|"
    r"math|bibliography|toctree|tableofcontents|auto.*|currentmodule|module|py:.*|grid|raw|"
    r"eval-rst|mermaid|button-.*|only|index|tab-set"
)
_NO_BODY = re.compile(
    r"code|code-block|code-cell|sourcecode|literalinclude|include|toctree|bibliography|auto.*|"
    r"currentmodule|module|mermaid|tableofcontents|index|image"
)
_OPTION = re.compile(r":([\w-]+):\s*(.*)")
_SEEN_OPTION = re.compile(r"caption|alt|title|header|subtitle")
_URL = re.compile(r"\b(?:https?|doi|arxiv):\S+", re.IGNORECASE)
_ONLY_NUMBER = re.compile(r"[-+\u2212]?\s*\d[\d,]*(\.\d+)?\s*%?")
_OWN_NUMBER = re.compile(r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?%?(?![\w/-]|\.\w)")
_MATH_RESULT = re.compile(r"\d(?:[\d.,]|\\,|\{,\})*\d|\.\d")
_MATH_NAMES = re.compile(r"\\(?:label|ref|eqref|tag|operatorname|mathrm|text)\{[^{}]*\}")
_SWITCHES = re.compile(r"nbval|raises-exception|skip-execution")
_SWITCH_COMMENT = re.compile(r"#\s*(NBVAL_\w+|PYTEST_VALIDATE_\w+)", re.IGNORECASE)
_SHOWING = ("number", "cite", "table", "figure", "print", "display")


class Problem(NamedTuple):
    """One thing to mend, and where it stands."""

    file: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.where}: {self.text}"


class Chapter(NamedTuple):
    """A notebook or a Markdown page, read once for all checks."""

    path: Path
    cells: tuple[Any, ...]

    def where(self, index: int) -> str:
        """Name a cell: its id, or its number where it has none."""
        if self.path.suffix == ".md":
            return "page"
        return f"cell {self.cells[index].get('id') or index + 1}"

    def code(self) -> Iterator[tuple[str, Any]]:
        """Yield the code cells, each with its place."""
        return ((self.where(i), c) for i, c in enumerate(self.cells) if c["cell_type"] == "code")

    def markdown(self) -> Iterator[tuple[str, str]]:
        """Yield every piece of MyST with its place: Markdown cells and figure captions."""
        for index, cell in enumerate(self.cells):
            if cell["cell_type"] == "markdown":
                yield self.where(index), cell["source"]
            elif caption := _figure_metadata(cell).get("caption"):
                yield f"{self.where(index)}, caption", str(caption)


def read_chapter(path: Path | str) -> Chapter:
    """Read a notebook, or a Markdown page, which becomes one Markdown cell.

    A file that is absent, of another kind, or not a notebook is an InputError.
    """
    path = Path(path)
    if path.suffix not in {".ipynb", ".md"}:
        raise InputError(f"{path}: accepted: .ipynb and .md")
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            return Chapter(path, ({"cell_type": "markdown", "source": text, "metadata": {}},))
        notebook: Any = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
        return Chapter(path, tuple(notebook.cells))
    except (OSError, ValueError, AttributeError, nbformat.ValidationError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"{path}: cannot be read ({said}); accepted: a notebook or a page"
        ) from error


def check_book(paths: Iterable[Path | str]) -> list[Problem]:
    """Run every check over a whole book: each file, then what only all of them together show.

    That is ids made twice or glued with two texts, and claims that no chapter glues.
    """
    chapters = [read_chapter(path) for path in paths]
    problems = [Problem(c.path.name, *found) for c in chapters for found in _check(c)]
    glued: dict[str, tuple[str, str]] = {}
    anchors: dict[str, str] = {}
    for chapter in chapters:
        name = chapter.path.name
        for where, cell in chapter.code():
            here = f"{name}, {where}"
            said = []
            for id, text in _records(cell):
                first, other = glued.setdefault(id, (text, here))
                if first != text:
                    said.append(f"{id!r} is {text!r} here and {first!r} in {other}")
            for id in filter(None, map(_id, _calls(cell, "figure", "table"))):
                if anchors.setdefault(id, here) != here:
                    said.append(f"{id!r} is made in {anchors[id]} too")
            problems += [Problem(name, where, text) for text in said]
    return problems + [
        Problem("claims.csv", claim.where, f"{id!r} is glued nowhere in the book")
        for id, claim in read_claims().items()
        if id not in glued
    ]


def check_file(path: Path | str) -> list[Problem]:
    """Run every check that needs one file only; return none for a clean page."""
    chapter = read_chapter(path)
    return [Problem(chapter.path.name, *found) for found in _check(chapter)]


def _check(chapter: Chapter) -> list[tuple[str, str]]:
    """Find what to mend, and where: in words, then in code and its outputs."""
    code = list(chapter.code())
    problems = _prose_problems(chapter)
    for check in (_output_problems, _code_problems):
        problems += [(where, text) for where, cell in code for text in check(cell)]
    counts, right = [cell.get("execution_count") for _, cell in code], list(range(1, len(code) + 1))
    if code and not any(cell.get("outputs") for _, cell in code):
        problems.append(("notebook", "no outputs at all: it was trimmed"))
    if counts != right:
        text = f"execution counts {counts}; accepted: {right}, as a fresh run gives"
        problems.append(("notebook", text))
    return problems


def _prose_problems(chapter: Chapter) -> list[tuple[str, str]]:
    """Find typed numbers, numbers in math, other number roles, ids without a use or a number."""
    scan = _Scan()
    glued = {id: where for where, cell in chapter.code() for id, _ in _records(cell)}
    problems = []
    used: set[str] = set()
    for where, source in chapter.markdown():
        scan.problems, scan.ids = [], []
        scan.read(source)
        unknown = [f"{id!r} is glued by no cell of this page" for id in scan.ids if id not in glued]
        problems += [(where, text) for text in (*scan.problems, *unknown)]
        used.update(scan.ids)
    return problems + [
        (where, f"{id!r} is glued, and nothing uses it")
        for id, where in glued.items()
        if id not in used
    ]


# ---------------------------------------------------------------- what a piece of MyST holds


@cache
def _parser() -> MarkdownIt:
    config = MdParserConfig(enable_extensions=set(EXTENSIONS))
    return create_md_parser(config, RendererHTML)


class _Scan:
    """Reads one page's MyST piece by piece, and notes problems and the ids of numbers in use."""

    def __init__(self) -> None:
        self.env: dict[str, Any] = {}
        self.problems: list[str] = []
        self.ids: list[str] = []

    def read(self, text: str) -> None:
        """Note what a piece of MyST holds."""
        for token in _parser().parse(text, self.env):
            if token.type == "inline":
                self._inline(token.children or [])
            elif token.type in {"math_block", "math_block_label", "amsmath"}:
                self._math(token.content)
            elif token.type in {"fence", "colon_fence"}:
                self._fence(token)
            elif token.type == "html_block":
                self._digits(_without_tags(token.content))

    def _digits(self, text: str, what: str = "digit") -> None:
        """Note the first digit of a stretch of text the reader sees."""
        text = _URL.sub("", text)
        at = next((i for i, c in enumerate(text) if c.isdigit()), None)
        if at is not None:
            shown = " ".join(text[max(0, at - 25) : at + 25].split())
            self.problems.append(f"{what} outside a role: {shown!r}")

    def _math(self, text: str) -> None:
        """Note a result that stands in a formula."""
        if re.search(r"\{(glue|eval)[:}]", text):
            self.problems.append(f"glued value inside math: {text.strip()!r}")
        found = _MATH_RESULT.search(_MATH_NAMES.sub("", text))
        if found:
            self.problems.append(f"result {found.group()!r} inside math: {text.strip()!r}")

    def _inline(self, tokens: Sequence[Token]) -> None:
        leaving = False
        run: list[str] = []
        for token in tokens:
            if token.type == "link_open":
                target = str(token.attrs.get("href", ""))
                leaving = token.info == "auto" or bool(re.match(r"[a-z]+://|mailto:", target))
                self._digits(str(token.attrs.get("title", "")), "digit in a link's title")
            elif token.type == "link_close":
                leaving = False
            elif token.type == "myst_role":
                self._role(str(token.meta.get("name", "")), token.content)
            elif token.type.startswith("math_inline"):
                self._math(token.content)
            elif token.type == "code_inline" and _ONLY_NUMBER.fullmatch(token.content.strip()):
                self.problems.append(f"number typed as code: {token.content!r}")
            elif token.type == "image":
                self._inline(token.children or [])
            elif token.type in {"softbreak", "hardbreak"}:
                run.append(" ")
            elif token.type in {"text", "text_special"} and not leaving:
                run.append(token.content)
        self._digits("".join(run))

    def _role(self, name: str, content: str) -> None:
        if name == "glue:text" and NUMBER_ID.fullmatch(content):
            self.ids.append(content)
        elif _NUMBER_ROLE.fullmatch(name):
            said = f"number role {{{name}}}`{content}`; accepted: {_ACCEPTED}, nothing after it"
            self.problems.append(said)
        elif name in {"math", "eq:math"}:
            self._math(content)
        else:
            titled = re.fullmatch(r"(.*\S)\s*<[^<>]+>", content, re.DOTALL)
            words = titled[1] if titled else "" if _NAMING_ROLE.fullmatch(name) else content
            self._digits(words, f"digit in the words of {{{name}}}")

    def _fence(self, token: Token) -> None:
        match = re.match(r"\{([^}]+)\}\s*(.*)", token.info.strip())
        if match is None:
            return  # a code block
        name, title = match[1], match[2]
        if _NUMBER_ROLE.fullmatch(name):
            self.problems.append(f"number directive {{{name}}} {title}; accepted: {_ACCEPTED}")
            return
        lines = token.content.split("\n")
        options = list(takewhile(lambda line: _OPTION.match(line), lines))
        body = "\n".join(lines[len(options) :])
        for option in map(_OPTION.match, options):
            if option and _SEEN_OPTION.fullmatch(option[1]):
                self.read(option[2])
        if name == "math":
            self._math(f"{title}\n{body}")
            return
        if not _NO_TITLE.fullmatch(name):
            self.read(title)
        if name == "eval-rst":
            self._digits(_rst_words(body))
        elif name == "raw":
            self._digits(_without_tags(body))
        elif not _NO_BODY.fullmatch(name):
            self.read(body)


def _without_tags(text: str) -> str:
    return re.sub(r"<!--.*?-->|<[^>]*>", " ", text, flags=re.DOTALL)


def _rst_words(text: str) -> str:
    text = re.sub(r"(?m)^\s*(\.\. .*|:[\w-]+:.*)$", "", text)
    return re.sub(r"``.*?``|:[\w:]+:`[^`]*`|<[^>]*>`_", "", text)


# ---------------------------------------------------------------- what a code cell holds


def _figure_metadata(cell: Any) -> dict[str, Any]:
    found = cell.get("metadata", {}).get("mystnb", {}).get("figure", {})
    return dict(found) if isinstance(found, dict) else {}


def _records(cell: Any) -> Iterator[tuple[str, str]]:
    """Yield the glued (id, text) pairs a code cell stores."""
    for output in cell.get("outputs", []):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name")
        if name is not None:
            yield str(name), str(output.get("data", {}).get(RECORD, ""))


def _tree(cell: Any) -> ast.Module | None:
    try:
        return ast.parse(str(cell["source"]))
    except SyntaxError:
        return None


def _called(node: ast.Call) -> str | None:
    """Name of a contract a call refers to, ``book.number`` or plain ``number``."""
    func = node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id in {"book", "proofbook"} else None
    return func.id if isinstance(func, ast.Name) else None


def _calls(cell: Any, *names: str) -> list[ast.Call]:
    tree = _tree(cell) or ast.Module([], [])
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _called(n) in names]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position is not None and len(call.args) > position else None


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _id(call: ast.Call) -> str | None:
    return _literal(_argument(call, 0, "id"))


def _typed(node: ast.expr | None) -> str:
    """Return the literal parts of a text argument."""
    if isinstance(node, ast.BinOp):
        return _typed(node.left) + _typed(node.right)
    if isinstance(node, ast.JoinedStr):
        # A letter stands for each computed part, so that "{n}0" is not read as a number.
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in node.values)
    return _literal(node) or ""


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant)


def _code_problems(cell: Any) -> Iterator[str]:
    off = [t for t in cell.get("metadata", {}).get("tags", []) if _SWITCHES.search(t)]
    off += [m.group() for m in _SWITCH_COMMENT.finditer(cell["source"])]
    if off:
        yield f"{off} switches the comparison of outputs off"
    if _tree(cell) is None:
        yield "not plain Python"
    for call in _calls(cell, "number"):
        kind = _literal(_argument(call, None, "kind")) or "computed"
        if kind == "computed" and _is_number(_argument(call, 1, "value")):
            yield f"line {call.lineno}: number() is given a literal, not a result"
    for call in _calls(cell, "table", "figure"):
        key, place = ("caption", None) if _called(call) == "table" else ("alt", 3)
        own = _OWN_NUMBER.search(re.sub(r"`[^`]*`", "", _typed(_argument(call, place, key))))
        if own:
            yield f"line {call.lineno}: number {own.group()!r} typed in the {key}"
    about = _figure_metadata(cell)
    for call in _calls(cell, "figure"):
        id = _id(call)
        if id is None:
            yield "the id of figure() is not a literal"
        elif about.get("name") != id:
            yield f"figure {id!r} is named {about.get('name')!r} in mystnb.figure"
        if not str(about.get("caption", "")).strip():
            yield f"figure {id!r} has no mystnb.figure caption"


def _output_problems(cell: Any) -> Iterator[str]:
    outputs = cell.get("outputs", [])
    if not cell["source"].strip():
        yield "an empty code cell"
    if not outputs and _calls(cell, *_SHOWING):
        yield "it shows something, and no output is stored"
    stored: set[str] = set()
    for output in outputs:
        if output.get("name") == "stderr":
            yield f"stderr is stored: {str(output.get('text', ''))[:60]!r}"
        if output["output_type"] == "error":
            yield f"an error is stored: {output.get('ename')}: {output.get('evalue')}"
        data = output.get("data", {})
        shown = identity(data, output.get("metadata", {}))
        if shown is not None:
            stored.add(shown.id)
        elif "image/png" in data:
            yield "an image is stored that figure() did not make"
    for call in _calls(cell, "figure", "table"):
        id = _id(call)
        if id is not None and id not in stored:
            yield f"the output of {_called(call)} {id!r} is not stored"
    yield from _named_as_in_code(cell)


def _named_as_in_code(cell: Any) -> Iterator[str]:
    """Compare stored ids with the code: nbval compares texts, not the names they go by."""
    records = [id for id, _ in _records(cell)]
    calls = _calls(cell, "number", "cite")
    named = [_id(call) for call in calls]
    missing = [id for id in named if id is not None and id not in records]
    plain = {s.lineno for s in (_tree(cell) or ast.Module([], [])).body if isinstance(s, ast.Expr)}
    looped = any(call.lineno not in plain for call in calls)
    if missing:
        yield f"glued in the code but not stored: {', '.join(missing)}"
    elif calls and named != records and None not in named and not looped:
        yield f"stored under {records}, the code glues {named}"
