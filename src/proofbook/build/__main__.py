"""Build the book: run what is stale, make the pages, and swap them in whole.

    python -m proofbook.build book         HTML in _build/html
    python -m proofbook.build notebooks    outputs stored in chapters/*.ipynb
    python -m proofbook.build list         the notebooks of the book
    python -m proofbook.build linkcheck    ask for every link that leaves the book (network)
    python -m proofbook.build clean        remove _build

The results of execution live in ``_build/cache/<digest of code and data>``, so that no result
outlives the code that made it. A build that fails leaves ``_build/html`` as it was.
"""

# Only the standard library up here: "nothing changed" must be said at once.
from __future__ import annotations

import argparse
import contextlib
import fcntl
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proofbook.build.kept_runs import (
    notebooks_of,
    run_stale,
    say,
    store_outputs,
)
from proofbook.build.kernels import prepare_kernels
from proofbook.build.printing import pdf_name, printer
from proofbook.build.rendering import check_links, make_pages, restore
from proofbook.catalogue.check_records import read_checks
from proofbook.contents import Place, find_root, input_files, is_current
from proofbook.errors import InputError
from proofbook.files import files_digest
from proofbook.project import source_date


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Let one build at a time write below ``_build``."""
    place.build.mkdir(exist_ok=True)
    with (place.build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def book(place: Place, jobs: int | None = None) -> None:
    """Make the HTML, unless it is there already."""
    started = time.perf_counter()
    restore(place.html)
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
    links, broken = check_links(place.root, place.build / "linkcheck")
    if broken:
        raise InputError("\n".join([f"broken links: {len(broken)}", *broken]))
    say(f"links: {links}, none is broken")


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
