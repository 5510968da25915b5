"""Build the book: run what is stale, make the pages, and swap them in whole.

    python -m proofbook.build book         HTML in _build/html
    python -m proofbook.build notebooks    outputs stored in chapters/*.ipynb
    python -m proofbook.build list         the notebooks of the book
    python -m proofbook.build linkcheck    ask for every link that leaves the book (network)
    python -m proofbook.build clean        remove _build

The results of execution live in ``_build/cache/<digest of code and data>``, so that no result
outlives the code that made it. A build that fails leaves ``_build/html`` as it was.
"""

# Jupyter Book ships no types.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from proofbook.build.kept_runs import Run, notebooks_of, run_stale, say, store_outputs
from proofbook.build.kernels import prepare_kernels
from proofbook.build.printing import make_pdf, pdf_name, printer
from proofbook.catalogue.check_records import read_checks
from proofbook.contents import (
    STAMP,
    Place,
    find_root,
    input_files,
    is_current,
    page_files,
    settings,
)
from proofbook.errors import InputError
from proofbook.files import files_digest, whole_folder
from proofbook.project import source_date, source_digest, this_project

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


# ---------------------------------------------------------------- the pages


def make_pages(place: Place, runs: Sequence[Run], inputs: str) -> str:
    """Make the HTML from executed notebooks and swap it in.

    Returns one line on the printed book: what was made, or why nothing was. Any warning is an
    InputError, which changes nothing.
    """
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
        print(_readable(warnings, root), end="", file=sys.stderr, flush=True)
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
    printed = make_pdf(root, html, place.html)
    record = {"version": this_project().version, "source_digest": source_digest(), "inputs": inputs}
    (html / STAMP).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    state_file.write_text(state, encoding="utf-8")
    with whole_folder(place.html, check=lambda _: None) as whole:
        # .buildinfo holds absolute paths.
        ignored = shutil.ignore_patterns(".buildinfo*")
        shutil.copytree(html, whole, ignore=ignored, dirs_exist_ok=True)
    return printed


def _run_sphinx(root: Path, out: Path, doctrees: Path, **options: Any) -> tuple[Any, str]:
    """Run Sphinx as Jupyter Book sets it; return zero, or what stopped it, and its warnings."""
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


def _readable(warnings: str, root: Path) -> str:
    """Name the places of warnings by cell, for which MyST-NB counts 10,000 lines; no colours."""

    def place(match: re.Match[str]) -> str:
        cell, line = divmod(int(match[1]), 10_000)
        return f".ipynb, cell {cell}, line {max(line - 1, 1)}:" if cell else match[0]

    text = re.sub(r"\x1b\[[0-9;]*m", "", warnings).replace(f"{root}{os.sep}", "")
    return re.sub(r"\.ipynb:(\d+):", place, text)


# ---------------------------------------------------------------- the commands


def book(place: Place, jobs: int | None = None) -> None:
    """Make the HTML, unless it is there already."""
    started = time.perf_counter()
    inputs = files_digest(input_files(place.root), place.root)
    # A browser that was installed since the pages were made is a reason to make them again.
    owed = not (place.html / pdf_name()).is_file() and printer()[0] is not None
    if is_current(place, inputs) and not owed:
        say(f"nothing changed: {place.html.relative_to(place.root)} is up to date")
        return
    prepare_kernels(place.root)
    runs = run_stale(place.root, jobs)
    say(f"notebooks: {time.perf_counter() - started:.1f} s; making the pages")
    say(make_pages(place, runs, inputs))
    say(
        f"the book is in {place.html.relative_to(place.root)}, made in "
        f"{time.perf_counter() - started:.1f} s; open index.html there"
    )


def notebooks(place: Place, jobs: int | None = None) -> None:
    """Run the chapters and store their outputs in them."""
    prepare_kernels(place.root)
    runs = run_stale(place.root, jobs)
    changed = store_outputs(runs)
    for path in changed:
        say(f"  stored outputs in {path.relative_to(place.root).as_posix()}")
    say(f"{len(changed)} of {len(runs)} notebooks changed")


def list_notebooks(place: Place, jobs: int | None = None) -> None:
    """Print the notebooks that the table of contents lists, one a line."""
    for path in notebooks_of(place.root):
        say(path.relative_to(place.root).as_posix())


def linkcheck(place: Place, jobs: int | None = None) -> None:
    """Ask for every address to which a page links; a broken one is a failure."""
    prepare_kernels(place.root)
    run_stale(place.root, jobs)
    folder = place.build / "linkcheck"
    shutil.rmtree(folder, ignore_errors=True)
    result, said = _run_sphinx(place.root, folder / "out", folder / "doctrees", builder="linkcheck")
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
    if broken:
        raise InputError("\n".join([f"broken links: {len(broken)}", *broken]))
    say(f"links: {len(links)}, none is broken")


def clean(place: Place, jobs: int | None = None) -> None:
    """Remove everything that a build made."""
    for path in list(place.build.iterdir()) if place.build.is_dir() else []:
        if path.name != ".lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


COMMANDS: dict[str, Callable[[Place, int | None], None]] = {
    "book": book,
    "notebooks": notebooks,
    "list": list_notebooks,
    "linkcheck": linkcheck,
    "clean": clean,
}


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Let one build at a time write below ``_build``."""
    place.build.mkdir(exist_ok=True)
    with (place.build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proofbook.build", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("--jobs", type=int, help="notebooks to run side by side (one per core)")
    options = parser.parse_args(arguments)
    try:
        place = Place(find_root(Path.cwd()))
        source_date()  # a bad one is an error before anything runs
        read_checks(place.root)
        with locked(place):
            COMMANDS[options.command](place, options.jobs)
    except InputError as error:
        print(f"\nbuild failed: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
