"""The book's Sphinx extension: where numbers came from, citable figures, and quiet pages.

A chapter says *what* it shows (``number``, ``table`` and ``figure`` of this package); the modules
of :mod:`proofbook.pages` say how that looks on a page. They also see to it that a page asks the
network for nothing, and that what would be a silent gap (an unknown number, a figure without its
files, a formula that cannot be set) is a warning, which the build treats as an error.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

from proofbook.pages import (
    access,
    addresses,
    changelog,
    exhibits,
    mathematics,
    number_roles,
    page_checks,
)
from proofbook.showing import FIGURES_VARIABLE


def _configure(app: Sphinx, config: Config) -> None:
    """Tie the results of execution to the code and data that they came from."""
    folder = addresses.cache_folder(Path(app.confdir or app.srcdir).resolve())
    os.environ[FIGURES_VARIABLE] = str(folder / "figures")
    settings = cast(Any, config)
    settings.nb_execution_cache_path = str(folder / "jupyter_cache")
    settings.html_static_path.append(str(addresses.ASSETS))
    settings.html_math_renderer = "proofbook"
    # Without a mode each first visit is an error in the browser's console.
    settings.html_context.setdefault("default_mode", "auto")
    if "sphinx.ext.autodoc" in app.extensions:
        app.connect("autodoc-skip-member", _skip_alias)


def _skip_alias(
    app: Sphinx, what: str, name: str, member: object, skip: bool, options: object
) -> bool | None:
    """Leave out "Alias for field number 0": a type's own description says what a field is."""
    return True if type(member).__name__ == "_tuplegetter" else None


def _write_all(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    # Numbers, citations and figure numbers of one page stand on others: writing all of them costs
    # seconds, working out which would have to be right every time.
    return sorted(env.found_docs)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the extension, part by part, to a Sphinx application."""
    app.setup_extension("myst_nb")
    for part in (addresses, number_roles, exhibits, mathematics, page_checks, changelog, access):
        part.setup(app)
    app.add_css_file("book.css", priority=900)
    app.add_css_file("print.css", priority=980, media="print")
    app.connect("config-inited", _configure, priority=100)
    app.connect("env-updated", _write_all)
    return {"env_version": 2, "parallel_read_safe": True, "parallel_write_safe": True}
