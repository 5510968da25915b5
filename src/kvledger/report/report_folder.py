"""A folder that appears whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvledger.core.errors import LedgerError
from proofbook.files import check_folder

CONTENTS_FILE = "contents.json"
FORMAT = "kvledger report 1"


def check_target(out: Path, *, force: bool) -> None:
    """Find out before any work that a folder cannot be made, or would be in the way of another.

    A folder that is there is accepted if it is empty; with ``force`` also if it is an earlier
    report and holds nothing else.

    Raises
    ------
    LedgerError
        Names what is in the way.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise LedgerError(f"{out}: is no folder; accepted: a new folder, or an empty one")
    if out.is_dir():
        there = _files(out)
        if there and not force:
            raise LedgerError(
                f"{out}: is there and not empty; accepted: a new folder, or --force to replace an "
                "earlier report"
            )
        other = sorted(there - _own(out))
        if other:
            raise LedgerError(
                f"{out}: holds {other[0]!r}, which no report wrote; accepted: a new folder, or one "
                "with an earlier report and nothing else"
            )
    if not out.parent.is_dir():
        raise LedgerError(f"{out.parent}: no such folder; accepted: an existing one to write in")
    check_folder(out.parent)


@contextmanager
def whole_folder(out: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a folder to fill; it takes its place when the block ends without an error.

    Until then it is a hidden sibling, which any error, and Ctrl-C, removes. What was there before
    stays until the new one is in its place.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as place:
    ...     out = Path(place) / "report"
    ...     with whole_folder(out) as folder:
    ...         _ = (folder / "page.html").write_text("<p>whole</p>")
    ...     sorted(path.name for path in out.iterdir()), len(list(Path(place).iterdir()))
    (['contents.json', 'page.html'], 1)
    """
    check_target(out, force=force)
    stage = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part"))
    try:
        yield stage
        contents = {"format": FORMAT, "files": sorted(_files(stage))}
        (stage / CONTENTS_FILE).write_text(json.dumps(contents, indent=1) + "\n", encoding="ascii")
        stage.chmod(0o777 & ~_umask())
        _put(stage, out, force)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _put(stage: Path, out: Path, force: bool) -> None:
    check_target(out, force=force)  # again: much time has passed
    if not out.is_dir() or not any(out.iterdir()):
        os.rename(stage, out)  # an empty folder gives way
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".old"))
    try:
        os.rename(out, old)
        os.rename(stage, out)
    except BaseException:
        if not out.exists():
            os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _files(folder: Path) -> set[str]:
    """Return what is in a folder, below it too: files by their path, folders if they are empty."""
    found = set()
    for path in folder.rglob("*"):
        if not path.is_dir() or path.is_symlink() or not any(path.iterdir()):
            found.add(path.relative_to(folder).as_posix())
    return found


def _own(folder: Path) -> set[str]:
    """Return the files that an earlier report says it wrote."""
    try:
        contents = json.loads((folder / CONTENTS_FILE).read_text(encoding="utf-8"))
        if contents["format"] != FORMAT:
            return set()
        return {CONTENTS_FILE, *map(str, contents["files"])}
    except (OSError, ValueError, TypeError, KeyError):
        return set()
