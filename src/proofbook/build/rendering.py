"""Make the pages from executed notebooks, and swap them in whole or not at all."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from proofbook.build.runs_of_notebooks import Run, say
from proofbook.build.sphinx_runs import run_sphinx
from proofbook.contents import STAMP, BuildError, Place, chapters, input_files, settings
from proofbook.errors import InputError
from proofbook.files import files_digest

REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="refresh" content="0; url={page}">
<link rel="canonical" href="{page}">
</head>
<body><main><h1>{title}</h1><p><a href="{page}">Open the book</a></p></main></body>
</html>
"""


def make_pages(place: Place, runs: Sequence[Run], inputs: str) -> None:
    """Make the HTML from executed notebooks and swap it in, or raise and change nothing.

    Raises
    ------
    BuildError
        If there was any warning.
    """
    from proofbook.build.pdf import make_pdf
    from proofbook.project import source_digest, this_project

    stage, root = place.stage, place.root
    # Sphinx sees edits to pages; all else that pages depend on, it may not.
    others = [
        path
        for path in input_files(root)
        if path.parent != root / "chapters" or path.suffix not in {".ipynb", ".md"}
    ]
    names = [path.relative_to(root).as_posix() for path in chapters(root)]
    state = hashlib.sha256(
        json.dumps([files_digest(others, root), names, sorted(run.key for run in runs)]).encode()
    ).hexdigest()
    state_file = stage / "state"
    if not state_file.is_file() or state_file.read_text(encoding="utf-8") != state:
        shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True, exist_ok=True)
    # Without it, a build that is broken off starts afresh: half a memory hides warnings.
    state_file.unlink(missing_ok=True)
    try:
        result, warnings = run_sphinx(
            root, stage / "html", stage / "doctrees", warningiserror=True, keep_going=True
        )
        print(readable(warnings, root), end="", file=sys.stderr, flush=True)
        reports = sorted((stage / "html" / "reports").rglob("*.err.log"))
        if isinstance(result, BaseException):
            raise BuildError(f"Sphinx failed: {type(result).__name__}: {result}")
        if result != 0:
            raise BuildError("the warnings above are errors")
        if reports:
            raise BuildError("\n".join(path.read_text(encoding="utf-8") for path in reports))
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    first = chapters(root)[0].relative_to(root).with_suffix(".html").as_posix()
    if first != "index.html":
        page = REDIRECT.format(title=settings(root).get("title", "The book"), page=first)
        (stage / "html" / "index.html").write_text(page, encoding="utf-8")
    try:
        say(make_pdf(root, stage / "html", place.build / "pdf"))
    except InputError as error:
        raise BuildError(str(error)) from error
    record = {
        "version": this_project().version,
        "source_digest": source_digest(),
        "inputs": inputs,
    }
    (stage / "html" / STAMP).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    state_file.write_text(state, encoding="utf-8")
    swap_in(stage / "html", place.html)


def readable(warnings: str, root: Path) -> str:
    """Return Sphinx's warnings as a person finds their places.

    MyST-NB counts ten thousand lines a cell; colours are for terminals.

    Parameters
    ----------
    warnings : str
        What Sphinx wrote.
    root : Path
        The book's folder, which is left out of paths.

    Examples
    --------
    >>> readable("/book/chapters/paging.ipynb:140002: WARNING: ...", Path("/book"))
    'chapters/paging.ipynb, cell 14, line 1: WARNING: ...'
    """

    def place(match: re.Match[str]) -> str:
        cell, line = divmod(int(match[1]), 10_000)
        return f".ipynb, cell {cell}, line {max(line - 1, 1)}:" if cell else match[0]

    text = re.sub(r"\x1b\[[0-9;]*m", "", warnings).replace(f"{root}{os.sep}", "")
    return re.sub(r"\.ipynb:(\d+):", place, text)


def swap_in(made: Path, shown: Path) -> None:
    """Show a copy of `made` at `shown`: all of it, or what was there before.

    The copy is complete before the first of two renames, and what the first one moved away comes
    back if the second does not happen.
    """
    new, old = shown.with_name(shown.name + ".new"), shown.with_name(shown.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    # Sphinx's memory of its settings, paths among them, is no page.
    shutil.copytree(made, new, ignore=shutil.ignore_patterns(".buildinfo*"))
    restore(shown)
    if shown.exists():
        shown.rename(old)
    try:
        new.rename(shown)
    except BaseException:
        restore(shown)
        raise
    shutil.rmtree(old, ignore_errors=True)


def restore(shown: Path) -> None:
    """Put back what a swap that was broken off had moved away."""
    old = shown.with_name(shown.name + ".old")
    if old.exists() and not shown.exists():
        old.rename(shown)
    shutil.rmtree(old, ignore_errors=True)
