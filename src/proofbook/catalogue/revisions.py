"""The book at a revision of its repository, read from Git's store: no file is checked out.

``python -m proofbook.catalogue.revisions REVISION data/releases/VERSION.json`` keeps one as a
release.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from proofbook import project
from proofbook.catalogue import catalogue_of, to_json
from proofbook.catalogue.editions import ACCEPTED, Edition, what_prints
from proofbook.contents import TABLE_OF_CONTENTS, toc_pages
from proofbook.errors import InputError, shown
from proofbook.files import write_whole

__all__ = ["digest_of_sources", "main", "revision", "snapshot"]

_ABOUT = "pyproject.toml"
_LOCK = "requirements.txt"


def revision(text: str, root: Path) -> Edition:
    """Return the book at a git revision of a checkout.

    Parameters
    ----------
    text : str
        What Git takes for a commit: ``HEAD~3``, a tag, a hash.
    root : Path
        The folder that holds ``_toc.yml``.

    Raises
    ------
    InputError
        If there is no such revision, it holds no book, or a chapter of it cannot be read.
    """
    commit = _commit(text, root)
    tree = _tree(commit, root)
    missing = [path for path in (TABLE_OF_CONTENTS, _ABOUT) if path not in tree]
    if missing:
        raise InputError(
            f"{shown(text)}: no {missing[0]} at this revision; accepted: a revision with a book"
        )
    toc, about = _blobs(root, [tree[TABLE_OF_CONTENTS], tree[_ABOUT]])
    try:
        pages = [page for page in toc_pages(toc.decode()) if f"{page}.ipynb" in tree]
        version = str(tomllib.loads(about.decode())["project"]["version"])
    except (InputError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError) as error:
        raise InputError(f"{shown(text)}: {error}; accepted: a revision with a book") from None
    sources = [path for path in tree if path == _LOCK or path.startswith(("src/", "data/"))]
    wanted = [*(f"{page}.ipynb" for page in pages), *sources]
    read = _blobs(root, [tree[path] for path in wanted])
    notebooks = {
        page: _notebook(content, f"{text}:{page}.ipynb")
        for page, content in zip(pages, read, strict=False)  # the sources come after
    }
    digest = digest_of_sources(dict(zip(sources, read[len(pages) :], strict=True)))
    catalogue = catalogue_of(notebooks, version=version, source_digest=digest)
    return Edition(f"{version} at {commit[:7]}", catalogue, what_prints(notebooks.values()))


def digest_of_sources(contents: Mapping[str, bytes]) -> str:
    """Return what ``project.source_digest`` says of a checkout with these files and no others.

    Parameters
    ----------
    contents : mapping of str to bytes
        The files under ``src/`` and ``data/`` and ``requirements.txt``, by their paths.
    """
    digest = hashlib.sha256()
    for path in sorted(contents, key=PurePosixPath):
        content = hashlib.sha256(contents[path]).hexdigest()
        digest.update(f"{path}\0{content}\n".encode())
    return digest.hexdigest()


def _notebook(content: bytes, where: str) -> Any:
    try:
        notebook = json.loads(content)
    except ValueError as error:
        raise InputError(f"{where}: {error}; accepted: a notebook") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise InputError(f"{where}: no cells; accepted: a notebook")
    return notebook


# ---------------------------------------------------------------- asking Git


def _git(root: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            input=given,
            capture_output=True,
            check=False,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, ValueError) as error:  # no git here; or a text that no argument can hold
        raise InputError(f"git cannot be asked ({error}); accepted: {ACCEPTED}") from None


def _commit(text: str, root: Path) -> str:
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    done = _git(root, *asked)
    commit = done.stdout.decode().strip()
    if done.returncode or not re.fullmatch("[0-9a-f]{40,64}", commit):
        raise InputError(
            f"{shown(text)}: no such release, folder, file or revision; accepted: {ACCEPTED}"
        )
    return commit


def _tree(commit: str, root: Path) -> dict[str, str]:
    """Return the files of a commit below a folder: their paths from there, each with its blob."""
    done = _git(root, "ls-tree", "-r", "-z", commit)
    if done.returncode:
        raise InputError(f"git ls-tree {commit}: {done.stderr.decode().strip()}")
    found = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").split("\0"):
        about, _, path = line.partition("\t")
        if about.split(" ")[1:2] == ["blob"]:
            found[path] = about.split(" ")[2]
    return found


def _blobs(root: Path, blobs: Iterable[str]) -> list[bytes]:
    """Return the contents of blobs, asked for in one call."""
    asked = list(blobs)
    done = _git(root, "cat-file", "--batch", given="".join(f"{blob}\n" for blob in asked).encode())
    contents, at = [], 0
    for blob in asked:
        end = done.stdout.find(b"\n", at)
        head = done.stdout[at:end].split(b" ")
        if done.returncode or len(head) != 3:
            raise InputError(f"git cat-file {blob}: {done.stderr.decode().strip() or 'missing'}")
        start = end + 1
        at = start + int(head[2]) + 1  # a line end follows the content
        contents.append(done.stdout[start : at - 1])
    return contents


# ---------------------------------------------------------------- keeping a release


def snapshot(made: Edition) -> bytes:
    """Return an edition as the JSON of a release: its catalogue, and what its notebooks show.

    Which functions made an entry is left out: it is read by the present code, and never compared.
    """
    kept = made.catalogue.entries
    document = to_json(replace(made.catalogue, entries=kept)) | {
        "table_rows": dict(sorted(made.printed.table_rows.items())),
        "early": sorted(made.printed.early),
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a revision's catalogue to a file; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proofbook.catalogue.revisions")
    parser.add_argument("revision", help="what git takes for a commit")
    parser.add_argument("out", type=Path, help="the file to write: data/releases/VERSION.json")
    options = parser.parse_args(arguments)
    try:
        root = project.repository_root()
        if root is None:
            raise InputError("no checkout here; accepted: one, with its history")
        made = revision(options.revision, root)
        if options.out.name != f"{made.catalogue.version}.json":
            raise InputError(
                f"{options.out}: the version at {options.revision} is {made.catalogue.version}; "
                f"accepted: a file {made.catalogue.version}.json"
            )
        write_whole(options.out, snapshot(made))
    except InputError as error:
        print(f"proofbook: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
