"""An archive that is the same bytes for the same files, whenever and wherever it is made."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

__all__ = ["archive", "archive_date"]

#: The earliest day that a ZIP archive can name, and the day of what has no date.
EPOCH = dt.datetime(1980, 1, 1, tzinfo=dt.UTC)
RECORD = Path("chapters") / "checks.json"


def archive_date(root: Path) -> dt.datetime:
    """Return the date that the members of an archive bear.

    Parameters
    ----------
    root : Path
        The repository: ``chapters/checks.json`` says when the numbers were last checked.

    Returns
    -------
    datetime
        Of ``SOURCE_DATE_EPOCH``, else of that record, else the earliest one possible.

    Raises
    ------
    ValueError
        If ``SOURCE_DATE_EPOCH`` is not a whole number of seconds.
    """
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    if chosen:
        if not chosen.isdecimal():
            raise ValueError(f"SOURCE_DATE_EPOCH: {chosen!r}; accepted: whole seconds since 1970")
        return max(dt.datetime.fromtimestamp(int(chosen), dt.UTC), EPOCH)
    record = root / RECORD
    found = _dates(json.loads(record.read_text(encoding="utf-8"))) if record.is_file() else []
    return max([EPOCH, *found])


def _dates(value: object) -> list[dt.datetime]:
    """Return every date and time that a record holds, at any depth."""
    if isinstance(value, Mapping):
        return [moment for each in value.values() for moment in _dates(each)]
    if isinstance(value, list):
        return [moment for each in value for moment in _dates(each)]
    if isinstance(value, str) and value[:4].isdecimal() and value[4:5] == "-":
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            return []
        return [moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)]
    return []


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
    ...     packed = archive({"b.csv": file, "a.csv": file}, EPOCH)
    >>> zipfile.ZipFile(io.BytesIO(packed)).namelist()
    ['a.csv', 'b.csv']
    """
    contents = tuple((name, files[name].read_bytes()) for name in sorted(files))
    return _pack(contents, date.timetuple()[:6])


@lru_cache(maxsize=2)
def _pack(contents: tuple[tuple[str, bytes], ...], when: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, content in contents:
            member = zipfile.ZipInfo(name, when)  # type: ignore[arg-type]
            member.create_system = 3  # Unix, wherever it is made: permissions are read from there
            member.external_attr = 0o100644 << 16
            # A PNG is compressed already; it would only take time again.
            method = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
            packed.writestr(member, content, compress_type=method, compresslevel=9)
    return stream.getvalue()
