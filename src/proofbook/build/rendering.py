"""Make the pages from executed notebooks, and swap them in whole or not at all."""

# Jupyter Book ships no types.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

from proofbook.contents import STAMP, Place, input_files, page_files, settings
from proofbook.errors import InputError
from proofbook.files import files_digest
from proofbook.project import source_digest, this_project

if TYPE_CHECKING:
    from proofbook.build.kept_runs import Run

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


def make_pages(place: Place, runs: Sequence[Run], inputs: str) -> str:
    """Make the HTML from executed notebooks and swap it in, or raise and change nothing.

    Returns one line on the printed book: what was made, or why nothing was.

    Raises
    ------
    InputError
        If there was any warning.
    """
    from proofbook.build.printing import make_pdf

    stage, root = place.stage, place.root
    # Sphinx sees edits to pages; all else that pages depend on, it may not.
    others = [
        path
        for path in input_files(root)
        if path.parent != root / "chapters" or path.suffix not in {".ipynb", ".md"}
    ]
    pages = [path.relative_to(root).as_posix() for path in page_files(root)]
    state = hashlib.sha256(
        json.dumps([files_digest(others, root), pages, sorted(run.key for run in runs)]).encode()
    ).hexdigest()
    state_file = stage / "state"
    if not state_file.is_file() or state_file.read_text(encoding="utf-8") != state:
        shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True, exist_ok=True)
    # Without it, a build that is broken off starts afresh: half a memory hides warnings.
    state_file.unlink(missing_ok=True)
    html = stage / "html"
    try:
        result, warnings = _run_sphinx(
            root, html, stage / "doctrees", warningiserror=True, keep_going=True
        )
        print(readable(warnings, root), end="", file=sys.stderr, flush=True)
        reports = sorted((html / "reports").rglob("*.err.log"))
        if isinstance(result, BaseException):
            raise InputError(f"Sphinx failed: {type(result).__name__}: {result}")
        if result != 0:
            raise InputError("the warnings above are errors")
        if reports:
            raise InputError("\n".join(path.read_text(encoding="utf-8") for path in reports))
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    first = Path(pages[0]).with_suffix(".html").as_posix()
    if first != "index.html":
        page = REDIRECT.format(title=settings(root).get("title", "The book"), page=first)
        (html / "index.html").write_text(page, encoding="utf-8")
    printed = make_pdf(root, html, place.build / "pdf")
    record = {
        "version": this_project().version,
        "source_digest": source_digest(),
        "inputs": inputs,
    }
    (html / STAMP).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    state_file.write_text(state, encoding="utf-8")
    swap_in(html, place.html)
    return printed


def _run_sphinx(root: Path, out: Path, doctrees: Path, **options: Any) -> tuple[Any, str]:
    """Run Sphinx with the settings that Jupyter Book makes of ``_config.yml``.

    What comes back is zero if all went well, or what stopped Sphinx; and its warnings.
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


def readable(warnings: str, root: Path) -> str:
    """Return Sphinx's warnings as a person finds their places.

    MyST-NB counts ten thousand lines a cell; colours are for terminals.

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


def check_links(root: Path, folder: Path) -> tuple[int, list[str]]:
    """Ask for every address to which a page links, with Sphinx's own checker.

    Returns how many there are, and of each broken one its source, line, address and what came.

    Raises
    ------
    InputError
        If the pages could not be read at all.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, said = _run_sphinx(root, folder / "out", folder / "doctrees", builder="linkcheck")
    report = folder / "out" / "output.json"
    if isinstance(result, BaseException) or not report.is_file():
        raise InputError(f"the pages could not be read: {result}\n{said}")
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    links = {urldefrag(line["uri"]).url for line in lines if line["uri"].startswith("http")}
    broken = sorted(
        f"{line['filename']}, line {line['lineno']}: {line['uri']}: {line['info'] or 'no answer'}"
        for line in lines
        if line["status"] in {"broken", "timeout"}
    )
    return len(links), broken


# ---------------------------------------------------------------- swapping in


def swap_in(made: Path, shown: Path) -> None:
    """Show a copy of `made` at `shown`: all of it, or what was there before.

    The copy is complete before the first of two renames, and what the first one moved away comes
    back if the second does not happen.
    """
    new, old = shown.with_name(shown.name + ".new"), shown.with_name(shown.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    # .buildinfo holds absolute paths.
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
