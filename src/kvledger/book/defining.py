"""Where a function is defined, found by reading the sources and not by importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from kvledger import _HOME_OF as LAZY_NAMES

__all__ = ["Maker", "imported_names", "is_ours", "locate"]

_PACKAGE = Path(__file__).resolve().parent.parent
_SOURCES = _PACKAGE.parent


class Maker(NamedTuple):
    """A function or class, and where it is defined."""

    name: str
    file: str
    line: int


@cache
def _module_file(module: str) -> Path | None:
    """Return the file of a module under ``src/``, or None."""
    first, *rest = module.split(".")
    # Beside an installed package lies everything else that is installed.
    if first != _PACKAGE.name and _SOURCES.name != "src":
        return None
    base = _SOURCES.joinpath(first, *rest)
    return next((p for p in (base / "__init__.py", base.with_suffix(".py")) if p.is_file()), None)


@cache
def _definitions(module: str) -> Mapping[str, int | str]:
    """Return what a module defines, by its line, and what it imports, by its qualified name."""
    path = _module_file(module)
    if path is None:
        return {}
    found: dict[str, int | str] = {}
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _top_level(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id: node.lineno for t in targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= imported_names(node, package)
    return found


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            handlers = chain.from_iterable(h.body for h in getattr(node, "handlers", ()))
            yield from _top_level(chain(node.body, node.orelse, handlers))


def imported_names(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, str]:
    """Return the names that an import binds, with the qualified names they stand for."""
    if isinstance(node, ast.Import):
        first = [(each, each.name.split(".")[0]) for each in node.names]
        return {each.asname or top: each.name if each.asname else top for each, top in first}
    base = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    return {a.asname or a.name: f"{base}.{a.name}" for a in node.names}


@cache
def locate(name: str) -> Maker | None:
    """Find where a qualified name is defined, through all that import it under another.

    Parameters
    ----------
    name : str
        Such as ``kvledger.paged``.

    Returns
    -------
    Maker or None
        With the name of the place where it is defined; None of what is not under ``src/``, and of
        a module.

    Examples
    --------
    >>> locate("kvledger.paged").name, locate("kvledger.paged").file
    ('kvledger.paging.paged', 'kvledger/paging.py')
    >>> locate("pandas.DataFrame") is None
    True
    """
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        module, _, last = name.rpartition(".")
        if module == _PACKAGE.name and last in LAZY_NAMES:
            name = f"{LAZY_NAMES[last]}.{last}"
            continue
        found = _definitions(module).get(last)
        if isinstance(found, int):
            path = _module_file(module)
            assert path is not None
            return Maker(name, path.relative_to(_SOURCES).as_posix(), found)
        if found is None:
            return None
        name = found
    return None


def is_ours(name: str) -> bool:
    """Tell whether a qualified name begins with a package or module under ``src/``.

    Examples
    --------
    >>> is_ours("kvledger.paged"), is_ours("pandas.DataFrame")
    (True, False)
    """
    return _module_file(name.split(".")[0]) is not None
