"""Draw a figure again from its CSV file alone, with the call that its chapter makes.

A chapter draws with ``figure(id, draw(frame, ...), data=frame, ...)``. Of its code only that call
is run, with what was read from the CSV in the place of the frame, and of the statements before it
only those that its other arguments need: titles and parameters.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

_FRAME = "frame_of_the_csv"
_NUMERAL = re.compile(r"-?\d+(?:/\d+|\.\d+)?")


class Drawing(NamedTuple):
    """How a chapter draws a figure, with `frame_of_the_csv` for its data, and what that needs."""

    call: ast.Call
    before: list[ast.stmt]
    aliases: list[str]


def figure_calls(notebook: Path) -> Iterator[tuple[str, ast.Call, list[ast.stmt]]]:
    """Yield each figure of a notebook: its id, its call of ``figure`` and all that runs before."""
    before: list[ast.stmt] = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        waiting = ast.parse("".join(cell["source"])).body if cell["cell_type"] == "code" else []
        while waiting:
            statement = waiting.pop(0)
            if isinstance(statement, ast.If):  # taken as done
                waiting = statement.body + waiting
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "figure":
                    assert isinstance(node.args[0], ast.Constant)
                    yield str(node.args[0].value), node, before.copy()
            before.append(statement)


def drawing_of(notebook: Path, figure_id: str) -> Drawing:
    """Find how a figure is drawn, and put the data of its CSV in the place of its frame."""
    found = {id: (call, before) for id, call, before in figure_calls(notebook)}
    call, before = found[figure_id]
    draw = call.args[1]
    assert isinstance(draw, ast.Call), f"{figure_id}: it is not drawn by a call"
    assert draw.args, f"{figure_id}: its drawing takes no data"
    data = next(key.value for key in call.keywords if key.arg == "data")
    aliases = {_base(data), _base(draw.args[0])} - {""}
    draw.args[0] = ast.Name(_FRAME, ast.Load())
    wanted = _loads(draw) - {_FRAME, *aliases}
    return Drawing(draw, _needed(before, wanted), sorted(aliases))


def _base(node: ast.expr) -> str:
    """Return the name that an expression is about: `a` of ``a``, ``a := ...`` and ``a.drop()``."""
    match node:
        case ast.Name(id=name) | ast.NamedExpr(target=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Attribute(value=inner):
            return _base(inner)
    return ""


def _loads(node: ast.AST) -> set[str]:
    return _names(node, ast.Load) - set(dir(builtins)) - _inner(node)


def _stores(node: ast.AST) -> set[str]:
    found = _names(node, ast.Store)
    for name in ast.walk(node):
        if isinstance(name, ast.alias):
            found.add((name.asname or name.name).split(".")[0])
        if isinstance(name, ast.FunctionDef):
            found.add(name.name)
    return found - _inner(node)


def _inner(node: ast.AST) -> set[str]:
    """Return the names that only a comprehension knows."""
    loops = [n.target for n in ast.walk(node) if isinstance(n, ast.comprehension)]
    return {name for loop in loops for name in _names(loop, ast.Store)}


def _names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    named = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return {name.id for name in named if isinstance(name.ctx, kind)}


def _needed(before: Sequence[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """Return the statements, in order, that give the wanted names their values."""
    kept: list[ast.stmt] = []
    for statement in reversed(before):
        if _stores(statement) & wanted:
            kept.insert(0, statement)
            if not isinstance(statement, ast.AugAssign):
                wanted = wanted - _stores(statement)
            wanted = wanted | _loads(statement)
    return kept


def words(fig: Figure) -> list[str]:
    """Return the texts that a figure shows."""
    fig.draw_without_rendering()
    texts = [t for t in fig.findobj(Text) if isinstance(t, Text)]
    return [t.get_text() for t in texts if t.get_visible() and t.get_text().strip()]


def draw(drawing: Drawing, frame: pd.DataFrame) -> Any:
    """Run a drawing on a frame; return the Matplotlib figure."""
    space: dict[str, Any] = {"__name__": "chapter"}
    module = ast.Module(drawing.before, [])
    exec(compile(ast.fix_missing_locations(module), "<chapter>", "exec"), space)
    space.update(dict.fromkeys((*drawing.aliases, _FRAME), frame))
    call = ast.fix_missing_locations(ast.Expression(drawing.call))
    return eval(compile(call, "<drawing>", "eval"), space)


def read_csv(path: Path) -> pd.DataFrame:
    """Read a figure's CSV; exact shares stand in it as fractions, such as ``3/14``."""
    frame = pd.read_csv(path)
    for name, column in frame.items():
        texts = [text for text in column.dropna() if isinstance(text, str)]
        if any("/" in text for text in texts) and all(map(_NUMERAL.fullmatch, texts)):
            # Among exact numbers what is missing is None, as it was before it was written.
            exact = [None if pd.isna(text) else _number(text) for text in column]
            frame[name] = pd.Series(exact, index=frame.index, dtype=object)
    return frame


def _number(text: str) -> Fraction | int | float:
    if "/" in text:
        return Fraction(text)
    return float(text) if "." in text else int(text)


# ---------------------------------------------------------------- comparing

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
#: A step shorter than what rounding to the CSV's digits may move a point.
_NO_STEP = re.compile(r"(?<=\d)[hv](?:-?0?\.0[12]|0)(?![\d.])")
_STAMP = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_ID = re.compile(r"\b(id=\"|xlink:href=\"#|href=\"#|url\(#)([A-Za-z]{1,2}[0-9a-f]{6,})")


def difference(one: str, other: str, tolerance: float = 0.02) -> str:
    """Say where two drawings differ in shapes, words, order, colours or places, or nothing.

    Names that were hashed from coordinates are told apart by when they first occur.
    """
    texts = [_NO_STEP.sub("", _renamed(_STAMP.sub("", text))) for text in (one, other)]
    shapes = [_NUMBER.sub("#", text) for text in texts]
    if shapes[0] != shapes[1]:
        at = [*(a == b for a, b in zip(*shapes, strict=False)), False].index(False)
        one, other = (shape[max(0, at - 60) : at + 60] for shape in shapes)
        return f"shapes differ: {one!r} != {other!r}"
    numbers = [[float(n) for n in _NUMBER.findall(text)] for text in texts]
    far = max((abs(a - b) for a, b in zip(*numbers, strict=True)), default=0.0)
    return "" if far <= tolerance else f"a place differs by {far}"


def _renamed(svg: str) -> str:
    names: dict[str, str] = {}
    return _ID.sub(lambda m: m[1] + names.setdefault(m[2], f"name{'x' * (len(names) + 1)}"), svg)
