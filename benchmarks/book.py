"""The book's build against its notebooks alone, in a copy of the working tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from records import Record, record, timed

ROOT = Path(__file__).resolve().parent.parent
BUILD = ["-m", "proofbook.build"]


def working_tree(target: Path) -> None:
    """Copy every file that git tracks or would, as it is now; nothing that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def python(tree: Path, arguments: Sequence[str]) -> str:
    """Run this environment's Python on the copy, with the copy's package."""
    environment = {k: v for k, v in os.environ.items() if k != "PROOFBOOK_FIGURES_DIR"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**environment, "PYTHONPATH": str(tree / "src")},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def notebooks_of(tree: Path) -> list[str]:
    """Return the notebooks of the book in reading order."""
    return python(tree, [*BUILD, "list"]).split()


def notebooks_alone(tree: Path, notebooks: Sequence[str], results: Path) -> None:
    """Run the notebooks one after another, each by a command of its own."""
    for notebook in notebooks:
        convert = ["-m", "nbconvert", "--to", "notebook", "--execute", "--log-level", "ERROR"]
        python(tree, [*convert, "--output-dir", str(results), notebook])


def edit_prose(tree: Path, notebook: str) -> None:
    """Add a sentence to the last text of a chapter."""
    path = tree / notebook
    content = json.loads(path.read_text(encoding="utf-8"))
    cell = [each for each in content["cells"] if each["cell_type"] == "markdown"][-1]
    cell["source"] = ["".join(cell["source"]), "\n\nOne more sentence was written here."]
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def builds(*, quick: bool) -> list[Record]:
    """Time the first build, one after a change of prose, and one after no change."""
    first, prose, unchanged = [], [], []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            tree, results = Path(folder) / "tree", Path(folder) / "results"
            working_tree(tree)
            notebooks = notebooks_of(tree)
            # Bytecode is compiled before the clock starts: whoever runs first would pay for it.
            python(tree, ["-m", "compileall", "-q", "src"])
            alone = timed(notebooks_alone, tree, notebooks, results)[0]
            first.append(timed(python, tree, [*BUILD, "book"])[0] / alone)
            unchanged.append(timed(python, tree, [*BUILD, "book"])[0])
            edit_prose(tree, notebooks[-1])
            prose.append(timed(python, tree, [*BUILD, "book"])[0] / alone)
    baseline = "the book's notebooks alone, one after another with nbconvert"
    return [
        record(
            "book.first_build",
            what="time of `make book` after installation, every chapter executed",
            baseline=baseline,
            quantity="ratio",
            values=first,
            bar="<= 1",
        ),
        record(
            "book.prose_only",
            what="time of `make book` when only prose changed",
            baseline=baseline,
            quantity="ratio",
            values=prose,
            bar="< 0.25",
        ),
        record(
            "book.unchanged",
            what="time of `make book` when nothing changed",
            baseline="none: the time itself",
            quantity="seconds",
            values=unchanged,
            bar="< 5",
        ),
    ]
