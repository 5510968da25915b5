"""The catalogue as the pages use it: found beside the figures, copied to the root of the site."""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from proofbook.catalogue import FILES, Catalogue, Entry, read_catalogue
from proofbook.pages.page_places import figures_folder


def catalogue() -> Catalogue:
    """Return what the executed notebooks show: the numbers, figures and tables of this build."""
    return _read(figures_folder().parent)


@cache
def _read(folder: Path) -> Catalogue:
    return read_catalogue(folder)


def entry_of(id: str) -> Entry:
    """Return one entry.

    Raises
    ------
    ValueError
        If no notebook of this build shows the id.
    """
    try:
        return catalogue().entries[id]
    except KeyError:
        raise ValueError(
            f"{id} is not in the catalogue of this build; run `make clean`, then `make book`"
        ) from None


def _copy_lists(app: Sphinx, error: Exception | None) -> None:
    """Put ``numbers.json``, ``figures.json`` and ``tables.json`` at the root of the site."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return
    for name in FILES:
        shutil.copyfile(figures_folder().parent / name, Path(app.outdir) / name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the files to the site of a Sphinx application."""
    app.connect("build-finished", _copy_lists, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
