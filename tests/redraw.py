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

_FRAME = "frame_of_the_csv"
_NUMERAL = re.compile(r"-?\d+(?:/\d+|\.\d+)?")


class Drawing(NamedTuple):
    """How a chapter draws a figure, with `frame_of_the_csv` for its data, and what that needs."""

    call: ast.Call
    before: list[ast.stmt]
    aliases: list[str]


def statements(notebook: Path) -> list[ast.stmt]:
    """Return all that a notebook runs, in order; what stands under an ``if`` is taken as done."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found: list[ast.stmt] = []
    for cell in cells:
        if cell["cell_type"] == "code":
            for statement in ast.parse("".join(cell["source"])).body:
                found += _unfolded(statement)
    return found


def _unfolded(statement: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.If):
        for inner in statement.body:
            yield from _unfolded(inner)
    else:
        yield statement


def figures_of(notebook: Path) -> list[str]:
    """Return the ids of the figures that a notebook draws."""
    return [str(_id_of(call)) for s in statements(notebook) for call in _figure_calls(s)]


def _figure_calls(statement: ast.stmt) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "figure"
    ]


def _id_of(call: ast.Call) -> object:
    return call.args[0].value if isinstance(call.args[0], ast.Constant) else None


def drawing_of(notebook: Path, figure_id: str) -> Drawing:
    """Find how a figure is drawn, and put the data of its CSV in the place of its frame."""
    every = statements(notebook)
    at, call = next(
        (i, call)
        for i, statement in enumerate(every)
        for call in _figure_calls(statement)
        if _id_of(call) == figure_id
    )
    draw = call.args[1]
    assert isinstance(draw, ast.Call), f"{figure_id}: it is not drawn by a call"
    assert draw.args, f"{figure_id}: its drawing takes no data"
    data = next(key.value for key in call.keywords if key.arg == "data")
    aliases = {_base(data), _base(draw.args[0])} - {""}
    draw.args[0] = ast.Name(_FRAME, ast.Load())
    wanted = _loads(draw) - {_FRAME, *aliases}
    return Drawing(draw, _needed(every[:at], wanted), sorted(aliases))


def _base(node: ast.expr) -> str:
    """Return the name that an expression is about: `a` of ``a``, ``a := ...`` and ``a.drop()``."""
    match node:
        case ast.Name(id=name) | ast.NamedExpr(target=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Attribute(value=inner):
            return _base(inner)
    return ""


def _loads(node: ast.AST) -> set[str]:
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_load(n)}
    return found - set(dir(builtins)) - _inner(node)


def _stores(node: ast.AST) -> set[str]:
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not _is_load(n)}
    for name in ast.walk(node):
        if isinstance(name, ast.alias):
            found.add((name.asname or name.name).split(".")[0])
        if isinstance(name, ast.FunctionDef):
            found.add(name.name)
    return found - _inner(node)


def _inner(node: ast.AST) -> set[str]:
    """Return the names that only a comprehension knows."""
    loops = [n.target for n in ast.walk(node) if isinstance(n, ast.comprehension)]
    return {n.id for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Name)}


def _is_load(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


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
        at = next(
            (i for i, (a, b) in enumerate(zip(*shapes, strict=False)) if a != b),
            min(map(len, shapes)),
        )
        return (
            f"shapes differ: {shapes[0][at - 60 : at + 60]!r} != {shapes[1][at - 60 : at + 60]!r}"
        )
    numbers = [[float(n) for n in _NUMBER.findall(text)] for text in texts]
    far = max((abs(a - b) for a, b in zip(*numbers, strict=True)), default=0.0)
    return "" if far <= tolerance else f"a place differs by {far}"


def _renamed(svg: str) -> str:
    names: dict[str, str] = {}
    return _ID.sub(lambda m: m[1] + names.setdefault(m[2], f"name{'x' * (len(names) + 1)}"), svg)
