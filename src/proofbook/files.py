"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from proofbook.errors import InputError


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file in one step: a reader finds the old content or the new, whole.

    Raises
    ------
    InputError
        If it cannot be written; what was there stays as it was.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "rows.csv", b"page_size")
    ...     [path.name for path in Path(folder).iterdir()]
    ['rows.csv']
    """
    try:
        replace_whole(path, content)
    except OSError as error:
        raise _refused(path, error) from None


def replace_whole(path: Path, content: bytes) -> None:
    """Write as :func:`write_whole` does, for callers that say themselves what could not be written.

    Raises
    ------
    OSError
        If it cannot be written; what was there stays as it was.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_folder(path: Path) -> None:
    """Find out, before hours of work, that a folder cannot be written to.

    Raises
    ------
    InputError
        If there is no such folder, or it is not writable.
    """
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise _refused(path, error) from None


def check_file(path: Path) -> None:
    """Find out, before hours of work, that a file cannot be written.

    Raises
    ------
    InputError
        If its folder cannot be written to, or the path is a folder itself.
    """
    check_folder(path.parent)
    if path.is_dir():
        raise InputError(f"{path}: cannot be written (it is a folder); accepted: a file")


def _refused(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: cannot be written ({error.strerror}); accepted: a folder that can be written to"
    )
