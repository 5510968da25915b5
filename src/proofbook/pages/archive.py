"""An archive that is the same bytes for the same files, whenever and wherever it is made."""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

__all__ = ["archive"]


def archive(files: Mapping[str, Path], date: dt.datetime) -> bytes:
    """Pack files into a ZIP archive.

    Parameters
    ----------
    files : mapping of str to Path
        Name in the archive -> file.
    date : datetime
        What each member bears, to two seconds.

    Returns
    -------
    bytes
        Members sorted by name, readable by all, the same bytes for the same contents.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.csv"
    ...     _ = file.write_text("a")
    ...     packed = archive({"b.csv": file, "a.csv": file}, dt.datetime(2000, 2, 29))
    >>> zipfile.ZipFile(io.BytesIO(packed)).namelist()
    ['a.csv', 'b.csv']
    """
    contents = tuple((name, files[name].read_bytes()) for name in sorted(files))
    return _pack(contents, (date.year, date.month, date.day, date.hour, date.minute, date.second))


@lru_cache(maxsize=2)
def _pack(
    contents: tuple[tuple[str, bytes], ...], when: tuple[int, int, int, int, int, int]
) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, content in contents:
            member = zipfile.ZipInfo(name, when)
            member.create_system = 3  # Unix, wherever it is made: permissions are read from there
            member.external_attr = 0o100644 << 16
            # A PNG is compressed already; it would only take time again.
            method = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
            packed.writestr(member, content, compress_type=method, compresslevel=9)
    return stream.getvalue()
