"""The project that a book belongs to: its name and version, its data, a digest of its sources."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from proofbook.errors import InputError

__all__ = ["Project", "data_file", "offer", "repository_root", "source_digest", "this_project"]

_PACKAGE = Path(__file__).resolve().parent


class Project(NamedTuple):
    """What the pages, figures and citations of a book say of where they come from.

    Parameters
    ----------
    name, version, author : str
        As in ``pyproject.toml``.
    sources : Path
        The checkout, or the folder of an installed package: what :func:`source_digest` is of.
    data : Path
        The folder of committed data.
    """

    name: str
    version: str
    author: str
    sources: Path
    data: Path


_offered: list[Project] = []


def offer(installed: Project) -> None:
    """Name the project that is meant where no checkout is found, as an installed package does."""
    _offered[:] = [installed]


def repository_root() -> Path | None:
    """Return the folder that holds ``_toc.yml``, or None outside a checkout.

    The working folder and those above it are tried first, so that a notebook belongs to the
    checkout that it lies in; the folder of this file comes second.

    Examples
    --------
    >>> root = repository_root()
    >>> root is None or (root / "_toc.yml").is_file()
    True
    """
    for start in (Path.cwd(), _PACKAGE):
        for folder in (start, *start.parents):
            if (folder / "_toc.yml").is_file():
                return folder
    return None


def this_project(root: Path | None = None) -> Project:
    """Return the project of a checkout, or the one that an installed package offers.

    Parameters
    ----------
    root : Path, optional
        The folder that holds ``_toc.yml``; that of :func:`repository_root` unless given.

    Raises
    ------
    InputError
        If there is neither.
    """
    root = root or repository_root()
    if root is not None:
        try:
            about = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            author = about.get("authors", [{"name": about["name"]}])[0]["name"]
            return Project(about["name"], about["version"], author, root, root / "data")
        except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
            if not _offered:
                raise InputError(
                    f"{root / 'pyproject.toml'}: {error}; accepted: a file with [project], "
                    "its name and its version"
                ) from None
    if not _offered:
        raise InputError("no _toc.yml here or above; accepted: a folder inside a book's checkout")
    return _offered[0]


def data_file(name: str, folder: Path | None = None) -> Path:
    """Return the path of a committed data file.

    Parameters
    ----------
    name : str
        Path below the folder, such as ``"claims.csv"``.
    folder : Path, optional
        That of the project unless given.

    Raises
    ------
    InputError
        If there is no such file; the message lists what is there.
    """
    folder = folder or this_project().data
    path = folder / name
    if not path.is_file():
        there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        raise InputError(f"no data file {name!r}; there are: {', '.join(there)}")
    return path


@cache
def source_digest(root: Path | None = None) -> str:
    """Return the SHA-256 of all that the book's numbers are computed from.

    That is every file under ``src/`` and ``data/`` and ``requirements.txt``, each with its path.
    In an installed package, where these are not laid out so, it is the package folder itself.

    Parameters
    ----------
    root : Path, optional
        Another checkout than that of :func:`this_project`.

    Examples
    --------
    >>> len(source_digest())
    64
    """
    root = root or this_project().sources
    if (root / "requirements.txt").is_file():
        folders, files = [root / "src", root / "data"], [root / "requirements.txt"]
    else:
        folders, files = [root], []
    for folder in folders:
        files += [p for p in folder.rglob("*") if p.is_file() and not _is_made(p)]
    digest = hashlib.sha256()
    for path in sorted(files):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _is_made(path: Path) -> bool:
    """Tell whether a file is a by-product (bytecode, package metadata), not a source."""
    return any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
