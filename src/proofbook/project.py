"""The project that a book belongs to: its name and version, its data, its sources, its date."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from proofbook.errors import InputError
from proofbook.files import files_digest

_PACKAGE = Path(__file__).resolve().parent

DATE_VARIABLE = "SOURCE_DATE_EPOCH"
#: Of what has no date: the first day that a ZIP archive can name.
EARLIEST = dt.datetime(1980, 1, 1, tzinfo=dt.UTC)
#: The last second of the year 9999, beyond which Python has no dates.
LATEST_EPOCH_S = 253_402_300_799


class Project(NamedTuple):
    """What the pages, figures and citations of a book say of where they come from.

    Parameters
    ----------
    name, version, author : str
        As in ``pyproject.toml``.
    year : str
        Of the release, as in ``CITATION.cff``; the present one where that is not known.
    sources : Path
        The checkout, or the folder of an installed package: what :func:`source_digest` is of.
    data : Path
        The folder of committed data.
    units : mapping of str to str
        Last words of a number's id -> the unit that they say with certainty.
    published : mapping of str to str
        Tables of published numbers in the data -> their one source; empty where each row says its
        own.
    """

    name: str
    version: str
    author: str
    year: str
    sources: Path
    data: Path
    units: Mapping[str, str] = MappingProxyType({})
    published: Mapping[str, str] = MappingProxyType({"claims.csv": ""})


_offered: list[Project] = []


def offer(package: Project) -> None:
    """Name the project of an imported package: its words, and itself where no checkout is found."""
    _offered[:] = [package]


def repository_root() -> Path | None:
    """Return the folder that holds ``_toc.yml``, or None outside a checkout.

    The working folder and those above it are tried first, so that a notebook belongs to the
    checkout that it lies in; the folder of this file comes second.
    """
    return root_above(Path.cwd()) or root_above(_PACKAGE)


def root_above(start: Path) -> Path | None:
    """Return the folder at or above `start` that holds ``_toc.yml``, or None if there is none."""
    folders = (start, *start.parents)
    return next((folder for folder in folders if (folder / "_toc.yml").is_file()), None)


def this_project(root: Path | None = None) -> Project:
    """Return the project of a checkout, or the one that an installed package offers.

    `root` holds ``_toc.yml``: that of :func:`repository_root` unless given. It is an InputError if
    there is neither.
    """
    import tomllib  # not needed for most commands, whose start is timed

    root = root or repository_root()
    if root is not None:
        try:
            about = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            author = about.get("authors", [{"name": about["name"]}])[0]["name"]
            made = Project(
                about["name"], about["version"], author, _year(root), root, root / "data"
            )
            if _offered:
                return made._replace(units=_offered[0].units, published=_offered[0].published)
            return made
        except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
            if not _offered:
                raise InputError(
                    f"{root / 'pyproject.toml'}: {error}; accepted: a file with [project], "
                    "its name and its version"
                ) from None
    if not _offered:
        raise InputError("no _toc.yml here or above; accepted: a folder inside a book's checkout")
    return _offered[0]


def _year(root: Path) -> str:
    try:
        text = (root / "CITATION.cff").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^date-released:\s*['\"]?(\d{4})", text, re.MULTILINE)
    return found[1] if found else str(today().year)


def data_file(name: str, folder: Path | None = None) -> Path:
    """Return the path of a committed data file, such as ``"claims.csv"``.

    `name` is its path below `folder`, that of the project unless given. If there is no such file,
    an InputError lists what is there.
    """
    folder = folder or this_project().data
    path = folder / name
    if not path.is_file():
        there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        raise InputError(f"no data file {name!r}; there are: {', '.join(there)}")
    return path


def source_digest(root: Path | None = None, *, fresh: bool = False) -> str:
    """Return the SHA-256 of all that the book's numbers are computed from.

    That is every file under ``src/`` and ``data/`` and ``requirements.txt``, each with its path, of
    `root` or of this project. In an installed package, where these are not laid out so, it is the
    package folder itself. It is kept for a process's life, by folder, unless asked `fresh`.
    """
    digest = _digest_of.__wrapped__ if fresh else _digest_of
    return digest((root or this_project().sources).resolve())


@cache
def _digest_of(root: Path) -> str:
    if (root / "requirements.txt").is_file():
        folders, files = [root / "src", root / "data"], [root / "requirements.txt"]
    else:
        folders, files = [root], []
    for folder in folders:
        files += [p for p in folder.rglob("*") if p.is_file() and not is_made(p)]
    return files_digest(files, root)


def is_made(path: Path) -> bool:
    """Tell whether a file is a by-product, such as bytecode, and no source."""
    made = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache"}
    return any(part in made or part.endswith(".egg-info") for part in path.parts)


# ---------------------------------------------------------------- dates


def source_date() -> dt.datetime | None:
    """Return the moment that ``SOURCE_DATE_EPOCH`` [1]_ sets, in UTC, or None if it is not set.

    What is made carries a date of its sources, never that of the build.

    Raises
    ------
    InputError
        If it is no whole number of seconds since 1970, or beyond the year 9999.

    References
    ----------
    .. [1] https://reproducible-builds.org/specs/source-date-epoch/
    """
    text = os.environ.get(DATE_VARIABLE)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) is None or int(text) > LATEST_EPOCH_S:
        raise InputError(
            f"{DATE_VARIABLE} is {text!r}; accepted: whole seconds since 1970-01-01 UTC, "
            f"at most {LATEST_EPOCH_S}"
        )
    return dt.datetime.fromtimestamp(int(text), dt.UTC)


def today() -> dt.date:
    """Return the present day in UTC, or the day that ``SOURCE_DATE_EPOCH`` sets."""
    return (source_date() or dt.datetime.now(dt.UTC)).date()
