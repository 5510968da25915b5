"""Sphinx over the book, with the settings that Jupyter Book makes of ``_config.yml``."""

# Jupyter Book ships no types.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

__all__ = ["run_sphinx"]


def run_sphinx(root: Path, out: Path, doctrees: Path, **options: Any) -> tuple[Any, str]:
    """Run a builder of Sphinx over every page.

    Parameters
    ----------
    root : Path
        The folder that holds ``_config.yml`` and ``_toc.yml``; its notebooks have been run.
    out, doctrees : Path
        Where the pages go, and Sphinx's memory of them.
    **options
        More of what ``jupyter_book.sphinx.build_sphinx`` takes, such as ``builder``.

    Returns
    -------
    result : int or BaseException
        Zero if all went well, or what stopped Sphinx.
    said : str
        Its warnings.
    """
    from jupyter_book.sphinx import build_sphinx

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        result = build_sphinx(
            str(root),
            str(out),
            noconfig=True,
            path_config=str(root / "_config.yml"),
            confoverrides={
                "external_toc_path": (root / "_toc.yml").as_posix(),
                "latex_individualpages": False,
            },
            doctreedir=str(doctrees),
            quiet=True,
            **options,
        )
    return result, said.getvalue()
