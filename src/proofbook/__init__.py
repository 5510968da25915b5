"""What the chapters call, and what checks them.

The Sphinx extension and the build stand in modules of their own, so that a chapter, and
a reader's own notebook, need neither.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the stub beside it.

    A name is imported when it is first used: what looks something up in the catalogue does not load
    the library that draws. The names stand once, in ``__init__.pyi``, where type checkers and
    editors read them too.
    `package` and `file` are its ``__name__`` and ``__file__``.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), list(homes)


__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
