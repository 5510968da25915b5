"""Where the code of a function can be read: its entry in the list of functions, or its file."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kvledger
from kvledger.book.pages.links import to_place


class Function(NamedTuple):
    """A function of the sources: its name, its place in the list of functions, and its line."""

    name: str
    href: str | None
    file: str | None
    line: int | None
    source_href: str | None


def function(builder: Any, name: str) -> Function:
    """Find a function.

    Parameters
    ----------
    builder : Builder
        Sphinx's.
    name : str
        With its module, such as ``kvledger.paging.paged``.
    """
    href = None
    objects = builder.env.domaindata.get("py", {}).get("objects", {})
    for known in (name, public_name(name)):
        if known in objects:
            href = to_place(builder, objects[known].docname, objects[known].node_id)
            break
    file, line = definition(name, Path(builder.confdir).resolve()) or (None, None)
    return Function(name, href, file, line, _at_repository(builder, file, line))


def public_name(name: str) -> str:
    """Return the name under which the package offers an object, if it does; else the name.

    Examples
    --------
    >>> public_name("kvledger.paging.paged"), public_name("kvledger.book.slots.pages_of")
    ('kvledger.paged', 'kvledger.book.slots.pages_of')
    """
    module, _, last = name.rpartition(".")
    offered = f"kvledger.{last}"
    return offered if kvledger._HOME_OF.get(last) == module else name


@cache
def definition(name: str, root: Path) -> tuple[str, int] | None:
    """Return the file below a folder, and the line, in which an object is defined.

    Examples
    --------
    >>> from kvledger.datafiles import repository_root
    >>> root = repository_root()
    >>> definition("kvledger.paging.paged", root)[0] if root else "src/kvledger/paging.py"
    'src/kvledger/paging.py'
    """
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        path = Path(spec.origin).resolve()
        node: ast.AST | None = ast.parse(path.read_text(encoding="utf-8"))
        for part in parts[length:]:
            node = _member(node, part)
        if node is not None and path.is_relative_to(root):
            return path.relative_to(root).as_posix(), int(getattr(node, "lineno", 1))
        return None
    return None


def _member(node: ast.AST | None, name: str) -> ast.AST | None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for child in getattr(node, "body", ()):
        if isinstance(child, kinds) and child.name == name:
            return child
    return None


def _at_repository(builder: Any, file: str | None, line: int | None) -> str | None:
    """Return the address of a line where the book's configuration names a repository."""
    options = builder.config.html_theme_options
    url = str(options.get("repository_url") or "").rstrip("/")
    if not url or file is None:
        return None
    branch = str(options.get("repository_branch") or "") or "main"
    return f"{url}/blob/{branch}/{file}#L{line}"
