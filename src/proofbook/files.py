"""Files and folders that appear whole or not at all, and a digest over many."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from proofbook.errors import InputError


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file in one step: a reader finds the old content or the new, whole.

    If it cannot be written, which is an InputError, what was there stays as it was.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "rows.csv", b"shop,sold")
    ...     [path.name for path in Path(folder).iterdir()]
    ['rows.csv']
    """
    try:
        replace_whole(path, content)
    except OSError as error:
        raise _refused(path, error) from None


def replace_whole(path: Path, content: bytes) -> None:
    """Write as :func:`write_whole` does, but raise OSError, for callers with words of their own."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(out: Path, check: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Give a folder to fill; it takes its place when the block ends without an error.

    Until then it is a hidden sibling, which any error, and Ctrl-C, removes. What was there before
    stays until the new one is in its place.

    Parameters
    ----------
    out : Path
        The folder to make.
    check : callable, optional
        Raises for what may not give way to it, before and after the block; unless given, anything
        but an empty folder.

    Raises
    ------
    InputError
        If there is something at `out` that may not give way, or it cannot be written to.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with whole_folder(Path(place) / "made") as folder:
    ...         _ = (folder / "page.html").write_text("whole")
    ...     sorted(path.name for path in Path(place).rglob("*"))
    ['made', 'page.html']
    """
    check = check or _check_free
    check(out)
    check_folder(out.parent)
    stage = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part"))
    try:
        yield stage
        mask = os.umask(0o077)
        os.umask(mask)
        stage.chmod(0o777 & ~mask)
        check(out)  # again: much time may have passed
        _put(stage, out)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _put(stage: Path, out: Path) -> None:
    if not out.is_dir() or not any(out.iterdir()):
        stage.rename(out)  # an empty folder gives way
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".old"))
    try:
        out.rename(old)
        stage.rename(out)
    except BaseException:
        if not out.exists():
            old.rename(out)
        raise
    finally:
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)


def _check_free(out: Path) -> None:
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise InputError(f"{out}: already exists; accepted: a new folder, or an empty one")


def files_digest(paths: Iterable[Path], root: Path) -> str:
    """Return one SHA-256 over the paths, seen from `root`, and the contents of files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def check_folder(path: Path) -> None:
    """Find out, before hours of work, that a folder cannot be written to, or is none."""
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise _refused(path, error) from None


def check_file(path: Path) -> None:
    """Find out, before hours of work, that a file cannot be written, or is a folder."""
    check_folder(path.parent)
    if path.is_dir():
        raise InputError(f"{path}: cannot be written (it is a folder); accepted: a file")


def _refused(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: cannot be written ({error.strerror}); accepted: a folder that can be written to"
    )
