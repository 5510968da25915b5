"""Where the committed data files are, and a digest of what the numbers were computed from."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from kvledger.errors import LedgerError

_PACKAGE = Path(__file__).resolve().parent


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


def data_folder() -> Path:
    """Return ``data/`` of the checkout, or the copy inside an installed package.

    Raises
    ------
    LedgerError
        If neither exists.
    """
    candidates = [_PACKAGE.parent.parent / "data", _PACKAGE / "data"]
    for folder in candidates:
        if (folder / "manifest.toml").is_file():
            return folder
    raise LedgerError(
        f"no data folder with a manifest.toml at {' or '.join(map(str, candidates))}; "
        "install the package whole, or run from a checkout"
    )


def data_file(name: str) -> Path:
    """Return the path of a file in ``data/``.

    Parameters
    ----------
    name : str
        Path below ``data/``, such as ``"models.csv"``.

    Raises
    ------
    LedgerError
        If there is no such file; the message lists what is there.

    Examples
    --------
    >>> data_file("claims.csv").name
    'claims.csv'
    """
    folder = data_folder()
    path = folder / name
    if not path.is_file():
        there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        raise LedgerError(f"no data file {name!r}; there are: {', '.join(there)}")
    return path


@cache
def source_digest(root: Path | None = None) -> str:
    """Return the SHA-256 of all that the book's numbers are computed from.

    That is every file under ``src/`` and ``data/`` and ``requirements.txt``, each with its path.
    In an installed package, where these are not laid out so, it is the package folder itself.

    Parameters
    ----------
    root : Path, optional
        Another checkout than the one that this package is part of.

    Examples
    --------
    >>> len(source_digest())
    64
    """
    root = _PACKAGE.parent.parent if root is None else root
    if (root / "requirements.txt").is_file():
        folders, files = [root / "src", root / "data"], [root / "requirements.txt"]
    else:
        root, folders, files = _PACKAGE, [_PACKAGE], []
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
