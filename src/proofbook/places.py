"""Where the book lies, what its pages depend on, and whether they are up to date.

Only the standard library up here: "nothing changed" must be said at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: Files and folders, below the root, that a page can depend on.
INPUTS = ("_config.yml", "_toc.yml", "requirements.txt", "chapters", "src", "data")
STAMP = "build.json"


class BuildError(Exception):
    """A build that cannot go on; the message says where and why."""


class Place(NamedTuple):
    """Where a build keeps what: all below ``_build``."""

    root: Path

    @property
    def build(self) -> Path:
        """Everything that a build writes."""
        return self.root / "_build"

    @property
    def html(self) -> Path:
        """The finished pages."""
        return self.build / "html"

    @property
    def stage(self) -> Path:
        """The pages in the making, with Sphinx's memory of them."""
        return self.build / "stage"


def input_files(root: Path) -> list[Path]:
    """Return every file that a page can depend on, sorted.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.
    """
    files: list[Path] = []
    for name in INPUTS:
        path = root / name
        files += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    made = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache"}
    return sorted(
        path
        for path in files
        if not any(part in made or part.endswith(".egg-info") for part in path.parts)
    )


def digest_of(paths: Sequence[Path], root: Path) -> str:
    """Return one SHA-256 over the paths and contents of files.

    Parameters
    ----------
    paths : sequence of Path
        Files below `root`.
    root : Path
        What the paths are named from.

    Examples
    --------
    >>> len(digest_of([], Path(".")))
    64
    """
    digest = hashlib.sha256()
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def is_current(place: Place, inputs: str) -> bool:
    """Tell whether the finished pages were made from these inputs."""
    try:
        made_of = json.loads((place.html / STAMP).read_text(encoding="utf-8"))["inputs"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(made_of == inputs)


def find_root(start: Path) -> Path:
    """Return the folder at or above `start` that holds ``_toc.yml``.

    Raises
    ------
    BuildError
        If there is none.
    """
    for folder in (start, *start.parents):
        if (folder / "_toc.yml").is_file():
            return folder
    raise BuildError(f"no _toc.yml in {start} or above it; run this inside the repository")


def chapters(root: Path) -> list[Path]:
    """Return the files that the table of contents lists, in its order.

    Raises
    ------
    BuildError
        If a listed file does not exist, or the table of contents cannot be read.
    """
    from proofbook.contents import page_files
    from proofbook.errors import InputError

    try:
        return page_files(root)
    except InputError as error:
        raise BuildError(str(error)) from error
