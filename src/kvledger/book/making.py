"""Which functions made what a cell shows.

The cells are read, not run: every call of a function under ``src/`` is found by its imports, and
the names that a cell uses are followed back through earlier cells to the calls that made them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from kvledger.book.defining import Maker, imported_names, is_ours, locate
from kvledger.errors import LedgerError

__all__ = ["Maker", "locate", "makers"]

#: What shows and does not make, by qualified name.
OUTPUTS = frozenset(
    f"kvledger.{home}"
    for home in (
        "book.showing.figures.figure",
        "book.showing.numbers.cite",
        "book.showing.numbers.number",
        "book.showing.tables.table",
        "report.keeping.number",
    )
)

#: What an output is given to show, and not to say about it.
CONTENTS = frozenset({"value", "frame", "fig", "data"})

# --- what the cells call --------------------------------------------------------------


Makers = dict[str, None]
"""Names of makers, in the order in which they are met."""


@dataclass(slots=True)
class _Value:
    """What is known of a name in a notebook: what made it, and its text where it is a literal."""

    made_by: Makers = field(default_factory=dict)
    literal: object = None
    module: str | None = None
    """Qualified name of the module or function that it stands for."""


class _Shown(NamedTuple):
    """A call of an output function: ids that fit it, and what made what it shows."""

    ids: re.Pattern[str]
    made_by: Makers


def makers(notebook: Any, *, page: str = "notebook") -> dict[tuple[str, str], tuple[str, ...]]:
    r"""Return the functions that made each output of a notebook.

    Parameters
    ----------
    notebook : notebook
        As parsed from its file; outputs tell which ids a cell shows, code what made them.
    page : str
        What an error message calls it.

    Returns
    -------
    dict of (str, str) to tuple of str
        Id of the cell and id shown -> qualified names, those first that the cell itself calls.

    Raises
    ------
    LedgerError
        If a cell is no Python.

    Examples
    --------
    >>> cells = [{"cell_type": "code", "id": "a", "source": "import kvledger as kv"},
    ...          {"cell_type": "code", "id": "b", "source":
    ...           "from kvledger.book import number\nnumber('a.slots', kv.paged([5], 4).pages)",
    ...           "outputs": [{"metadata": {"scrapbook": {"name": "a.slots"}}}]}]
    >>> makers({"cells": cells})
    {('b', 'a.slots'): ('kvledger.paging.paged',)}
    """
    reader = _Reader()
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for cell in notebook["cells"]:
        if cell.get("cell_type") != "code":
            continue
        name = str(cell.get("id"))
        source = cell["source"]
        try:
            tree = ast.parse(source if isinstance(source, str) else "".join(source))
        except SyntaxError as error:
            raise LedgerError(
                f"{page}, cell {name}, line {error.lineno}: no Python ({error.msg})"
            ) from None
        shown = reader.read(tree)
        for id in _ids(cell):
            fitting = [each.made_by for each in shown if each.ids.fullmatch(id)]
            found[name, id] = tuple(dict.fromkeys(chain.from_iterable(fitting)))
    return found


def _ids(cell: Mapping[str, Any]) -> Iterator[str]:
    """Yield every id that a cell's outputs say they show."""
    for output in cell.get("outputs", ()):
        metadata, data = output.get("metadata", {}), output.get("data", {})
        name = metadata.get("scrapbook", {}).get("name") or metadata.get("kvledger", {}).get("id")
        if not name:  # early outputs
            texts = ["".join(data.get(kind, "")) for kind in ("text/plain", "text/html")]
            match = re.match(r"(fig-[\w-]+) · data ", texts[0]) or re.search(
                r' id="(tab-[\w-]+)"', texts[1][:1000]
            )
            name = match[1] if match else None
        if name:
            yield str(name)


class _Reader:
    """Follows names from cell to cell."""

    def __init__(self) -> None:
        self.names: dict[str, _Value] = {}
        self.shown: list[_Shown] = []

    def read(self, tree: ast.Module) -> list[_Shown]:
        """Read one cell; return what it shows."""
        self.shown = []
        for statement in tree.body:
            self._statement(statement)
        return self.shown

    # --- statements

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, meant in imported_names(node, "").items():
                self.names[name] = _Value(module=meant)
        elif isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._bind(target, node.value, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value, self._value(node.value))
        elif isinstance(node, ast.AugAssign):
            self._add(node.target, self._value(node.value))
        elif isinstance(node, ast.For):
            self._loop(node)
        elif isinstance(node, ast.If | ast.While | ast.With | ast.Try):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    self._statement(child)
                elif isinstance(child, ast.expr):
                    self._value(child)
                else:
                    for inner in ast.iter_child_nodes(child):
                        if isinstance(inner, ast.stmt):
                            self._statement(inner)
                        elif isinstance(inner, ast.expr):
                            self._value(inner)
        elif isinstance(node, ast.Expr):
            self._value(node.value)

    def _loop(self, node: ast.For) -> None:
        """Read the body once for each element that is written out, else once for all."""
        rounds = _elements(node.iter)
        if rounds is None:
            self._bind(node.target, None, self._value(node.iter))
            for statement in node.body:
                self._statement(statement)
            return
        self._value(node.iter)  # calls in it may bind names
        for element in rounds:
            if isinstance(element, _Parts):
                self._bind_parts(node.target, element)
            else:
                self._bind(node.target, element, self._value(element))
            for statement in node.body:
                self._statement(statement)

    def _bind_parts(self, target: ast.expr, parts: _Parts) -> None:
        if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(parts):
            for each, part in zip(target.elts, parts, strict=True):
                self._bind(each, part.exact, self._value(part.whole))
        else:
            made: Makers = {}
            for part in parts:
                made |= self._value(part.whole).made_by
            self._bind(target, None, _Value(made))

    def _bind(self, target: ast.expr, source: ast.expr | None, value: _Value) -> None:
        """Give a name its value; parts of a tuple that is written out get their own."""
        if isinstance(target, ast.Name):
            known = source is not None
            self.names[target.id] = value if known else _Value(value.made_by)
        elif isinstance(target, ast.Tuple | ast.List):
            own = source.elts if isinstance(source, ast.Tuple | ast.List) else None
            if own is not None and len(own) == len(target.elts):
                values = [self._value(each) for each in own]
                for each, part, its in zip(target.elts, own, values, strict=True):
                    self._bind(each, part, its)
            else:
                for each in target.elts:
                    self._bind(each, None, _Value(value.made_by))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None, value)
        else:
            self._add(target, value)

    def _add(self, target: ast.expr, value: _Value) -> None:
        """Add to what a name is made of: ``frame["x"] = ...``, ``values |= ...``."""
        base = target
        while isinstance(base, ast.Subscript | ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name):
            old = self.names.get(base.id, _Value())
            self.names[base.id] = _Value(old.made_by | value.made_by)

    # --- expressions

    def _value(self, node: ast.expr) -> _Value:
        """Return what made an expression; note the outputs that are called in it."""
        if isinstance(node, ast.Constant):
            return _Value(literal=node.value)
        if isinstance(node, ast.Name):
            return self.names.get(node.id, _Value())
        if isinstance(node, ast.Attribute):
            base = self._value(node.value)
            if base.module is not None:
                return _Value(module=f"{base.module}.{node.attr}")
            return _Value(base.made_by)
        if isinstance(node, ast.NamedExpr):
            value = self._value(node.value)
            self._bind(node.target, node.value, value)
            return value
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return self._comprehension(node)
        made: Makers = {}
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                made |= self._value(child).made_by
        return _Value(made)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> _Value:
        outside = dict(self.names)
        made: Makers = {}
        for each in node.generators:
            source = self._value(each.iter)
            made |= source.made_by
            self._bind(each.target, None, source)
            for condition in each.ifs:
                made |= self._value(condition).made_by
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        first: Makers = {}
        for part in inner:
            first |= self._value(part).made_by
        self.names = outside
        return _Value(first | made)

    def _call(self, node: ast.Call) -> _Value:
        function = self._value(node.func)
        called = self._called(node, function)
        parts = [*node.args]
        parts += [k.value for k in node.keywords if called not in OUTPUTS or k.arg in CONTENTS]
        given: Makers = {}
        for part in parts:
            given |= self._value(part).made_by
        if called in OUTPUTS:
            if node.args:
                self.shown.append(_Shown(self._pattern(node.args[0]), given))
            return _Value()
        made = {called: None} if called is not None else {}
        return _Value(made | function.made_by | given)

    def _called(self, node: ast.Call, function: _Value) -> str | None:
        """Return the qualified name of what is called, if it is under ``src/``."""
        name = function.module
        inner = node.func
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "getattr":
            # getattr(module, word)(...), with the word of this round of a loop
            owner, word = (self._value(each) for each in inner.args[:2])
            if owner.module is not None and isinstance(word.literal, str):
                name = f"{owner.module}.{word.literal}"
        if name is None or not is_ours(name):
            return None
        found = locate(name)
        # What an early notebook called may be gone from the code: its name still says it.
        return found.name if found is not None else name

    def _pattern(self, node: ast.expr) -> re.Pattern[str]:
        """Return which ids an expression can give: what is not known stands for anything."""
        return re.compile("".join(self._pieces(node)), re.DOTALL)

    def _pieces(self, node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                yield from self._pieces(part)
        elif isinstance(node, ast.FormattedValue):
            yield from self._pieces(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from self._pieces(node.left)
            yield from self._pieces(node.right)
        else:
            literal = self._value(node).literal
            known = isinstance(literal, str | int | float)
            yield re.escape(str(literal)) if known else ".*"


class _Part(NamedTuple):
    """One part of a round: the expression itself, where it is known, and what it is taken from."""

    exact: ast.expr | None
    whole: ast.expr


class _Parts(tuple[_Part, ...]):
    """The parts of a round of a loop over ``zip``."""


def _elements(node: ast.expr) -> list[ast.expr | _Parts] | None:
    """Return what a loop goes through, where it is written out; None where it is not."""
    if isinstance(node, ast.Tuple | ast.List):
        return list(node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        columns = [a.elts if isinstance(a, ast.Tuple | ast.List) else None for a in node.args]
        lengths = [len(column) for column in columns if column is not None]
        if lengths:
            return [
                _Parts(
                    _Part(column[i], column[i]) if column is not None else _Part(None, whole)
                    for column, whole in zip(columns, node.args, strict=True)
                )
                for i in range(min(lengths))
            ]
    return None
