"""Check that a chapter types no number by hand and stores everything it shows.

    python -m proofbook.prose chapters/*.ipynb chapters/*.md

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

import argparse
import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from proofbook.errors import InputError
from proofbook.showing import FIGURE_TEXT, NUMBER_ID, RECORD, TABLE_HTML
from proofbook.showing.figures import MIN_ALT
from proofbook.showing.numbers import read_claims

__all__ = [
    "ACCOUNTING",
    "EXTENSIONS",
    "Chapter",
    "Problem",
    "check_anatomy",
    "check_book",
    "check_cells",
    "check_code",
    "check_figures",
    "check_file",
    "check_glue",
    "check_outputs",
    "check_prose",
    "main",
    "read_chapter",
]

#: The chapters that follow ``chapters/_template.ipynb`` heading by heading.
ACCOUNTING = (
    "contiguous_reservation",
    "page_tail_slack",
    "prefix_sharing",
    "metadata_cost",
    "growth_over_time",
    "paged_attention",
    "page_size_decision",
)

MAX_CODE_CELLS = 20
MAX_MEDIAN_LINES = 3
MAX_LINES = 40

#: The Markdown the book's ``_config.yml`` switches on: read less and a digit could hide.
EXTENSIONS = frozenset({"amsmath", "colon_fence", "deflist", "dollarmath", "tasklist"})

# Roles whose content names a thing elsewhere, or is code, and is not running text.
_NAMING_ROLE = re.compile(
    r"glue(:.*)?|eval(:.*)?|cite(:.*)?|ref|numref|doc|term|eq|any|download|py:.*|func|class|meth|"
    r"mod|attr|data|exc|code|file|kbd|samp|command|program|option|envvar|footcite(:.*)?"
)
_NUMBER_ROLE = re.compile(r"(glue|eval)(:.*)?")
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
_SEEN_OPTION = re.compile(r"caption|alt|title|header|subtitle")
_URL = re.compile(r"\b(?:https?|doi|arxiv):\S+", re.IGNORECASE)
_ONLY_NUMBER = re.compile(r"[-+\u2212]?\s*\d[\d,]*(\.\d+)?\s*%?")
_OWN_NUMBER = re.compile(r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?%?(?![\w/-]|\.\w)")
_MATH_RESULT = re.compile(r"\d(?:[\d.,]|\\,|\{,\})*\d|\.\d")
_MATH_NAMES = re.compile(r"\\(?:label|ref|eqref|tag|operatorname|mathrm|text)\{[^{}]*\}")
_SWITCHES = re.compile(r"nbval|raises-exception|skip-execution")
_SWITCH_COMMENT = re.compile(r"#\s*(NBVAL_\w+|PYTEST_VALIDATE_\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend, and where it stands."""

    file: str
    where: str
    text: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.file}: {self.where}: {'' if self.fatal else 'warning: '}{self.text}"


class Use(NamedTuple):
    """One ``{glue:text}`` in prose."""

    where: str
    id: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """A notebook or a Markdown page, read once for all checks."""

    path: Path
    cells: tuple[Any, ...]
    nbformat_minor: int = 5

    @property
    def name(self) -> str:
        """The file name, as problems show it."""
        return self.path.name

    @property
    def is_notebook(self) -> bool:
        """Whether the page has cells to run."""
        return self.path.suffix == ".ipynb"

    def where(self, index: int) -> str:
        """Name a cell: its id, or its number where it has none."""
        if not self.is_notebook:
            return "page"
        return f"cell {self.cells[index].get('id') or index + 1}"

    def code(self) -> Iterator[tuple[int, Any]]:
        """Yield the code cells with their positions."""
        return ((i, c) for i, c in enumerate(self.cells) if c["cell_type"] == "code")

    def markdown(self) -> Iterator[tuple[str, str]]:
        """Yield every piece of MyST: Markdown cells and figure captions."""
        for index, cell in enumerate(self.cells):
            if cell["cell_type"] == "markdown":
                yield self.where(index), cell["source"]
            elif cell["cell_type"] == "code":
                caption = _figure_metadata(cell).get("caption")
                if isinstance(caption, str):
                    yield f"{self.where(index)}, caption", caption


def read_chapter(path: Path | str) -> Chapter:
    """Read a notebook or a Markdown page.

    Parameters
    ----------
    path : path
        A file ending in ``.ipynb`` or ``.md``.

    Returns
    -------
    Chapter
        A page becomes one Markdown cell.

    Raises
    ------
    InputError
        If the file is absent, of another kind, or not a notebook.
    """
    path = Path(path)
    if path.suffix not in {".ipynb", ".md"}:
        raise InputError(f"{path}: accepted: .ipynb and .md")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    if path.suffix == ".md":
        return Chapter(path, ({"cell_type": "markdown", "source": text, "metadata": {}},))
    try:
        notebook = _joined(json.loads(text))
        cells = tuple(notebook["cells"])
        major, minor = notebook["nbformat"], int(notebook["nbformat_minor"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a notebook ({error!r})") from error
    if major != 4:
        raise InputError(f"{path}: nbformat {major}; accepted: 4")
    return Chapter(path, cells, minor)


def _joined(node: Any, key: str = "") -> Any:
    """Join the lists of lines that notebooks store long texts as."""
    if isinstance(node, list):
        if key in {"source", "text"} or "/" in key:
            return "".join(map(str, node))
        return [_joined(item) for item in node]
    if isinstance(node, dict):
        return {name: _joined(value, name) for name, value in node.items()}
    return node


def _figure_metadata(cell: Any) -> dict[str, Any]:
    found = cell.get("metadata", {}).get("mystnb", {}).get("figure", {})
    return dict(found) if isinstance(found, dict) else {}


# --- prose ----------------------------------------------------------------------------


@cache
def _parser() -> MarkdownIt:
    config = MdParserConfig(enable_extensions=set(EXTENSIONS))
    return create_md_parser(config, RendererHTML)


@dataclass(slots=True)
class _Found:
    """What one piece of MyST holds: problems, glue ids in use, headings."""

    problems: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)

    def digits(self, text: str, what: str = "digit") -> None:
        """Note the first digit of a stretch of text the reader sees."""
        text = _URL.sub("", text)
        at = next((i for i, c in enumerate(text) if c.isdigit()), None)
        if at is not None:
            shown = " ".join(text[max(0, at - 25) : at + 25].split())
            self.problems.append(f"{what} outside a role: {shown!r}")

    def math(self, text: str) -> None:
        """Note a result that stands in a formula."""
        if re.search(r"\{(glue|eval)[:}]", text):
            self.problems.append(f"glued value inside math: {text.strip()!r}")
        found = _MATH_RESULT.search(_MATH_NAMES.sub("", text))
        if found:
            self.problems.append(f"result {found.group()!r} inside math: {text.strip()!r}")


def _scan(text: str, env: dict[str, Any] | None = None) -> _Found:
    found = _Found()
    _blocks(_parser().parse(text, {} if env is None else env), found, {} if env is None else env)
    return found


def _blocks(tokens: Sequence[Token], found: _Found, env: dict[str, Any]) -> None:
    for index, token in enumerate(tokens):
        if token.type == "inline":
            _inline(token.children or [], found)
        elif token.type == "heading_open":
            found.headings.append((int(token.tag[1:]), tokens[index + 1].content.strip()))
        elif token.type in {"math_block", "math_block_label", "amsmath"}:
            found.math(token.content)
        elif token.type in {"fence", "colon_fence"}:
            _fence(token, found, env)
        elif token.type == "html_block":
            found.digits(_without_tags(token.content))


def _without_tags(text: str) -> str:
    return re.sub(r"<[^>]*>", " ", re.sub(r"<!--.*?-->", " ", text, flags=re.DOTALL))


def _inline(tokens: Sequence[Token], found: _Found) -> None:
    leaving = False
    run: list[str] = []
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrs.get("href", ""))
            leaving = token.info == "auto" or bool(re.match(r"[a-z]+://|mailto:", target))
            found.digits(str(token.attrs.get("title", "")), "digit in a link's title")
        elif token.type == "link_close":
            leaving = False
        elif token.type == "myst_role":
            _role(str(token.meta.get("name", "")), token.content, found)
        elif token.type == "math_inline" or token.type.startswith("math_inline"):
            found.math(token.content)
        elif token.type == "code_inline":
            if _ONLY_NUMBER.fullmatch(token.content.strip()):
                found.problems.append(f"number typed as code: {token.content!r}")
        elif token.type == "image":
            _inline(token.children or [], found)
        elif token.type in {"softbreak", "hardbreak"}:
            run.append(" ")
        elif token.type in {"text", "text_special"} and not leaving:
            run.append(token.content)
    found.digits("".join(run))


def _role(name: str, content: str, found: _Found) -> None:
    if _NUMBER_ROLE.fullmatch(name):
        if name == "glue:text" and NUMBER_ID.fullmatch(content):
            found.ids.append(content)
        else:
            found.problems.append(
                f"number role {{{name}}}`{content}`; accepted: {{glue:text}}`id`, nothing after it"
            )
    elif name in {"math", "eq:math"}:
        found.math(content)
    elif not _NAMING_ROLE.fullmatch(name):
        found.digits(content, f"digit in the words of {{{name}}}")
    else:
        titled = re.fullmatch(r"(.*\S)\s*<[^<>]+>", content, re.DOTALL)
        if titled:
            found.digits(titled[1], f"digit in the words of {{{name}}}")


def _options(body: str) -> tuple[dict[str, str], str]:
    """Part a directive's options from its content."""
    lines = body.split("\n")
    options: dict[str, str] = {}
    if lines and lines[0].strip() == "---":
        end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
        head, rest = lines[1:end], lines[end + 1 :]
        pattern = re.compile(r"\s*([\w-]+):\s*(.*)")
    else:
        end = 0
        while end < len(lines) and re.match(r":[\w-]+:", lines[end]):
            end += 1
        head, rest = lines[:end], lines[end:]
        pattern = re.compile(r":([\w-]+):\s*(.*)")
    for line in head:
        match = pattern.match(line)
        if match:
            options[match[1]] = match[2]
    return options, "\n".join(rest)


def _fence(token: Token, found: _Found, env: dict[str, Any]) -> None:
    match = re.match(r"\{([^}]+)\}\s*(.*)", token.info.strip())
    if match is None:
        return  # a code block
    name, title = match[1], match[2]
    if _NUMBER_ROLE.fullmatch(name):
        found.problems.append(f"number directive {{{name}}} {title}; accepted: {{glue:text}}`id`")
        return
    options, body = _options(token.content)
    texts = [value for key, value in options.items() if _SEEN_OPTION.fullmatch(key)]
    if name == "math":
        found.math(f"{title}\n{body}")
    elif not _NO_TITLE.fullmatch(name):
        texts.append(title)
    for text in texts:
        _blocks(_parser().parse(text, env), found, env)
    if name == "eval-rst":
        found.digits(_rst_words(body))
    elif name == "raw":
        found.digits(_without_tags(body))
    elif name != "math" and not _NO_BODY.fullmatch(name):
        _blocks(_parser().parse(body, env), found, env)


def _rst_words(text: str) -> str:
    text = re.sub(r"(?m)^\s*(\.\. .*|:[\w-]+:.*)$", "", text)
    text = re.sub(r"``.*?``|:[\w:]+:`[^`]*`", "", text)
    return re.sub(r"<[^>]*>`_", "", text)


def check_prose(chapter: Chapter) -> list[Problem]:
    """Find numbers typed by hand, numbers in math, and number roles of another form."""
    env: dict[str, Any] = {}
    return [
        Problem(chapter.name, where, text)
        for where, source in chapter.markdown()
        for text in _scan(source, env).problems
    ]


# --- glue -----------------------------------------------------------------------------


def _records(cell: Any) -> Iterator[tuple[str, str]]:
    """Yield the glued (id, text) pairs a code cell stores."""
    for output in cell.get("outputs", []):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name")
        if name is not None:
            yield str(name), str(output.get("data", {}).get(RECORD, ""))


def _uses(chapter: Chapter) -> list[Use]:
    env: dict[str, Any] = {}
    return [Use(where, id) for where, source in chapter.markdown() for id in _scan(source, env).ids]


def check_glue(chapter: Chapter) -> list[Problem]:
    """Find ids in prose that no cell glues, and glued ids that no prose uses."""
    uses = _uses(chapter)
    glued = {id: chapter.where(i) for i, cell in chapter.code() for id, _ in _records(cell)}
    problems = [
        Problem(chapter.name, use.where, f"{use.id!r} is glued by no cell of this page")
        for use in uses
        if use.id not in glued
    ]
    used = {use.id for use in uses}
    problems += [
        Problem(chapter.name, where, f"{id!r} is glued, and nothing uses it")
        for id, where in glued.items()
        if id not in used
    ]
    return problems


# --- code -----------------------------------------------------------------------------


def _tree(cell: Any) -> ast.Module | None:
    try:
        return ast.parse(str(cell["source"]))
    except SyntaxError:
        return None


def _called(node: ast.AST) -> str | None:
    """Name of a contract a call refers to, ``book.number`` or plain ``number``."""
    if not isinstance(node, ast.Call):
        return None
    func = node.func
    if isinstance(func, ast.Name):
        return func.id
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id in {"book", "kvbook"} else None
    return None


def _calls(cell: Any, *names: str) -> list[ast.Call]:
    tree = _tree(cell)
    if tree is None:
        return []
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _called(n) in names]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position is not None and len(call.args) > position else None


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _typed(node: ast.expr | None) -> str | None:
    """Return the literal parts of a text argument; None where it has none."""
    if isinstance(node, ast.BinOp):
        sides = [_typed(node.left), _typed(node.right)]
        return "".join(s for s in sides if s) or None
    if isinstance(node, ast.JoinedStr):
        # A letter stands for each computed part, so that "{n}0" is not read as a number.
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in node.values)
    return _literal(node)


def check_code(chapter: Chapter) -> list[Problem]:
    """Find definitions, arithmetic, typed results and switched-off comparisons in code."""
    problems = []
    for index, cell in chapter.code():
        where = chapter.where(index)

        def note(text: str, fatal: bool = True, where: str = where) -> None:
            problems.append(Problem(chapter.name, where, text, fatal))

        tags = cell.get("metadata", {}).get("tags", [])
        off = [t for t in tags if _SWITCHES.search(t)]
        off += [m.group() for m in _SWITCH_COMMENT.finditer(cell["source"])]
        if off:
            note(f"{off} switches the comparison of outputs off")
        tree = _tree(cell)
        if tree is None:
            note("not plain Python")
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                note(f"line {node.lineno}: {node.name!r} is defined here; define it in src/")
            elif isinstance(node, ast.Lambda):
                note(f"line {node.lineno}: a lambda; define a function in src/")
            elif isinstance(node, ast.BinOp) and _is_arithmetic(node):
                note(f"line {node.lineno}: arithmetic; call src/ instead", fatal=False)
        for call in _calls(cell, "number"):
            value = _argument(call, 1, "value")
            kind = _literal(_argument(call, None, "kind")) or "computed"
            if kind == "computed" and _is_number(value):
                note(f"line {call.lineno}: number() is given a literal, not a result")
        for call in _calls(cell, "table", "figure"):
            key, place = ("caption", None) if _called(call) == "table" else ("alt", 3)
            text = _typed(_argument(call, place, key)) or ""
            own = _OWN_NUMBER.search(re.sub(r"`[^`]*`", "", text))
            if own:
                note(f"line {call.lineno}: number {own.group()!r} typed in the {key}")
    return problems


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant)


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Tell sums and products from joined texts, repeated lists and masks of rows."""
    sides = (node.left, node.right)
    if any(_typed(side) is not None or isinstance(side, (ast.List, ast.Tuple)) for side in sides):
        return False
    return not isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))


def check_cells(chapter: Chapter) -> list[Problem]:
    """Check cell ids, and how many and how long the code cells are."""
    if not chapter.is_notebook:
        return []
    problems = []
    seen: set[str] = set()
    if (chapter.nbformat_minor or 0) < 5:
        problems.append(Problem(chapter.name, "notebook", "nbformat below 4.5 has no cell ids"))
    for index, cell in enumerate(chapter.cells):
        id = cell.get("id")
        where = f"cell {index + 1}"
        if not id:
            problems.append(Problem(chapter.name, where, "no cell id"))
        elif id in seen:
            problems.append(Problem(chapter.name, where, f"id {id!r} stands twice"))
        elif not _readable(id):
            problems.append(Problem(chapter.name, where, f"id {id!r} is not a readable name"))
        seen.add(id)
    lines = []
    for index, cell in chapter.code():
        lines.append(_logical_lines(cell["source"]))
        physical = len(cell["source"].splitlines())
        if physical > MAX_LINES:
            text = f"{physical} lines of code; accepted: {MAX_LINES}"
            problems.append(Problem(chapter.name, chapter.where(index), text))
    if len(lines) > MAX_CODE_CELLS:
        text = f"{len(lines)} code cells; about {MAX_CODE_CELLS} are enough"
        problems.append(Problem(chapter.name, "notebook", text, fatal=False))
    if lines and statistics.median(lines) > MAX_MEDIAN_LINES:
        text = (
            f"a median of {statistics.median(lines):g} lines a cell; accepted: {MAX_MEDIAN_LINES}"
        )
        problems.append(Problem(chapter.name, "notebook", text))
    return problems


def _readable(id: str) -> bool:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", id):
        return False
    # Made-up ids are hexadecimal or letter soup; a name has a word with a vowel.
    words = [w for w in re.split(r"[^a-z]+", id) if len(w) >= 3]
    soup = re.fullmatch(r"[0-9a-f]{6,}", id.replace("-", "")) and re.search(r"\d", id)
    mixed = any(re.search(r"\d[a-z]+\d|[a-z]\d+[a-z]{2,}\d*", part) for part in id.split("-"))
    return not soup and not mixed and any(re.search(r"[aeiouy]", w) for w in words)


def _logical_lines(source: str) -> int:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return len(source.splitlines())
    return sum(token.type == tokenize.NEWLINE for token in tokens)


# --- outputs --------------------------------------------------------------------------

_SHOWING = ("number", "cite", "table", "figure", "print", "display")


def check_outputs(chapter: Chapter) -> list[Problem]:
    """Check that outputs are stored whole, in order, without stderr, and as the code names them."""
    problems = []
    code = [(i, c) for i, c in chapter.code() if c["source"].strip()]
    for index, _ in ((i, c) for i, c in chapter.code() if not c["source"].strip()):
        problems.append(Problem(chapter.name, chapter.where(index), "an empty code cell"))
    counts = [c.get("execution_count") for _, c in code]
    if counts != list(range(1, len(code) + 1)):
        text = (
            f"execution counts {counts}; accepted: 1 to {len(code)} in order, as a fresh run gives"
        )
        problems.append(Problem(chapter.name, "notebook", text))
    if code and not any(c.get("outputs") for _, c in code):
        problems.append(Problem(chapter.name, "notebook", "no outputs at all: it was trimmed"))
    for index, cell in code:
        where = chapter.where(index)
        for text in _output_problems(cell):
            problems.append(Problem(chapter.name, where, text))
    return problems


def _output_problems(cell: Any) -> Iterator[str]:
    outputs = cell.get("outputs", [])
    for output in outputs:
        if output.get("name") == "stderr":
            yield f"stderr is stored: {str(output.get('text', ''))[:60]!r}"
        if output["output_type"] == "error":
            yield f"an error is stored: {output.get('ename')}: {output.get('evalue')}"
    tree = _tree(cell)
    shows = bool(_calls(cell, *_SHOWING))
    if not outputs and shows:
        yield "it shows something, and no output is stored"
    records = [id for id, _ in _records(cell)]
    if tree is not None:
        yield from _named_as_in_code(cell, tree, records)
    plains = [str(o.get("data", {}).get("text/plain", "")) for o in outputs]
    htmls = [str(o.get("data", {}).get("text/html", "")) for o in outputs]
    for call in _calls(cell, "figure"):
        id = _literal(_argument(call, 0, "id"))
        if id and not any((m := FIGURE_TEXT.fullmatch(p)) and m[1] == id for p in plains):
            yield f"the output of figure {id!r} is not stored"
    for call in _calls(cell, "table"):
        id = _literal(_argument(call, 0, "id"))
        if id and not any((m := TABLE_HTML.match(h)) and m[1] == id for h in htmls):
            yield f"the output of table {id!r} is not stored"
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data and not FIGURE_TEXT.fullmatch(str(data.get("text/plain", ""))):
            yield "an image is stored that figure() did not make"


def _named_as_in_code(cell: Any, tree: ast.Module, records: list[str]) -> Iterator[str]:
    """Compare stored ids with the code: nbval compares texts, not the names they go by."""
    calls = _calls(cell, "number", "cite")
    named = [_literal(_argument(call, 0, "id")) for call in calls]
    missing = [id for id in named if id is not None and id not in records]
    plain = {s.lineno for s in tree.body if isinstance(s, ast.Expr)}
    looped = any(call.lineno not in plain for call in calls)
    if missing:
        yield f"glued in the code but not stored: {', '.join(missing)}"
    elif calls and named != records and None not in named and not looped:
        yield f"stored under {records}, the code glues {named}"


# --- figures --------------------------------------------------------------------------


def check_figures(chapter: Chapter) -> list[Problem]:
    """Check that each figure has a caption, its own name and a sentence of alt text."""
    problems = []
    for index, cell in chapter.code():
        where = chapter.where(index)
        calls = _calls(cell, "figure")
        meta = _figure_metadata(cell)
        texts: list[str] = []
        if len(calls) > 1:
            texts.append("more than one figure in a cell")
        if meta and not calls:
            texts.append("mystnb.figure on a cell that calls no figure()")
        for call in calls:
            id = _literal(_argument(call, 0, "id"))
            if id is None:
                texts.append("the id of figure() is not a literal")
            if not meta.get("caption", "").strip():
                texts.append(f"figure {id!r} has no mystnb.figure caption")
            elif not re.search(r"\w{2}.*\.\s*$", meta["caption"], re.DOTALL):
                texts.append(f"the caption of figure {id!r} is not a sentence")
            if not meta.get("name"):
                texts.append(f"figure {id!r} has no mystnb.figure name")
            elif id is not None and meta["name"] != id:
                texts.append(f"figure {id!r} is named {meta['name']!r} in mystnb.figure")
            alt = _argument(call, 3, "alt")
            typed = _typed(alt)
            if alt is None:
                texts.append(f"figure {id!r} has no alt text")
            elif typed is not None and (len(typed) < MIN_ALT or not typed.rstrip().endswith(".")):
                texts.append(f"the alt text of figure {id!r} is not a sentence: {typed!r}")
        problems += [Problem(chapter.name, where, text) for text in texts]
    return problems


# --- anatomy and the whole book -------------------------------------------------------


def _headings(chapter: Chapter, level: int) -> list[str]:
    return [
        text
        for cell in chapter.cells
        if cell["cell_type"] == "markdown"
        for depth, text in _scan(cell["source"]).headings
        if depth == level
    ]


def check_anatomy(chapter: Chapter, template: Path | None = None) -> list[Problem]:
    """Check that an accounting chapter has the template's level-two headings, in its order."""
    if chapter.path.stem not in ACCOUNTING or not chapter.is_notebook:
        return []
    template = template or chapter.path.with_name("_template.ipynb")
    wanted, got = _headings(read_chapter(template), 2), _headings(chapter, 2)
    if wanted == got:
        return []
    return [Problem(chapter.name, "headings", f"{got}; accepted: {wanted}, as in {template.name}")]


def check_file(path: Path | str) -> list[Problem]:
    """Run every check that needs one file only.

    Parameters
    ----------
    path : path
        A notebook or a Markdown page.

    Returns
    -------
    list of Problem
        In the order of the checks; empty for a clean page.
    """
    chapter = read_chapter(path)
    problems = check_prose(chapter) + check_glue(chapter)
    if chapter.is_notebook:
        for check in (check_outputs, check_code, check_cells, check_figures, check_anatomy):
            problems += check(chapter)
    return problems


def check_book(paths: Iterable[Path | str]) -> list[Problem]:
    """Run every check over a whole book: each file, and the claims across all of them.

    Parameters
    ----------
    paths : iterable of path
        All notebooks and pages of the book.

    Returns
    -------
    list of Problem
        Those of each file; then claims that no chapter glues, figure and table ids made
        twice, and ids glued with two different texts.
    """
    paths = [Path(path) for path in paths]
    problems = [problem for path in paths for problem in check_file(path)]
    glued: dict[str, tuple[str, str]] = {}
    anchors: dict[str, str] = {}
    for path in paths:
        chapter = read_chapter(path)
        for index, cell in chapter.code():
            where = f"{chapter.name}, {chapter.where(index)}"
            for id, text in _records(cell):
                first, other = glued.setdefault(id, (text, where))
                if first != text:
                    problems.append(
                        Problem(
                            chapter.name,
                            chapter.where(index),
                            f"{id!r} is {text!r} here and {first!r} in {other}",
                        )
                    )
            for call in _calls(cell, "figure", "table"):
                anchor = _literal(_argument(call, 0, "id"))
                if anchor is not None and anchors.setdefault(anchor, where) != where:
                    text = f"{anchor!r} is made in {anchors[anchor]} too"
                    problems.append(Problem(chapter.name, chapter.where(index), text))
    problems += [
        Problem("claims.csv", claim.where, f"{id!r} is glued nowhere in the book")
        for id, claim in read_claims().items()
        if id not in glued
    ]
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    """Print every problem of the files named; return 1 if one of them is fatal."""
    parser = argparse.ArgumentParser(
        prog="python -m proofbook.prose",
        description="Check that chapters type no number by hand and store all they show.",
    )
    parser.add_argument("files", nargs="+", type=Path, help="notebooks and Markdown pages")
    parser.add_argument(
        "--partial", action="store_true", help="some files only: do not look for missing claims"
    )
    given = parser.parse_args(argv)
    try:
        problems = (
            [problem for path in given.files for problem in check_file(path)]
            if given.partial
            else check_book(given.files)
        )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem)
    fatal = sum(problem.fatal for problem in problems)
    print(f"{len(given.files)} files, {fatal} problems, {len(problems) - fatal} warnings")
    return 1 if fatal else 0


if __name__ == "__main__":
    sys.exit(main())
