"""Where a picture comes from, and whether the book still shows the same.

A picture says by its stamp what it is; the catalogue says what the book shows under that id now.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofbook.build.source_differences import DataChanges, differing_cells
from proofbook.catalogue import Catalogue, Entry
from proofbook.errors import InputError, shown

__all__ = ["Trace", "agree", "data_changes", "trace"]

#: First digits of a digest, as a footer shows them.
SHORT_DIGEST = 8
_ID = re.compile(r"(fig|tab)-[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Trace:
    """A stamp beside the catalogue's entry of the same id, where there is one."""

    stamp: Mapping[str, Any]
    entry: Entry | None
    catalogue: Catalogue

    @property
    def id(self) -> str:
        """The figure's id."""
        return str(self.stamp["id"])

    @property
    def same_data(self) -> bool:
        """Whether the book shows a figure of this id with the same data."""
        return self.entry is not None and agree(self.stamp["data_digest"], self.entry.digest)

    @property
    def same_sources(self) -> bool:
        """Whether code, data and locked packages are those that it was made with."""
        return agree(self.stamp.get("source_digest", ""), self.catalogue.source_digest)

    def verdict(self) -> list[str]:
        """Say whether it is current, and what changed."""
        now = self.catalogue.version
        if self.entry is None:
            return [f"Not current: version {now} of the book has no {self.id}."]
        if not self.same_data:
            return [
                f"Not current: its data were {_short(self.stamp['data_digest'])}, version {now} "
                f"of the book shows {_short(self.entry.digest)}."
            ]
        if self.same_sources:
            return ["Current: the same data, made with the same code."]
        if "source_digest" not in self.stamp:  # a picture out of a notebook
            return ["Current: the same data."]
        made, is_now = self.stamp["source_digest"], self.catalogue.source_digest
        return [
            "Current: the same data. Code or other data of the project changed since "
            f"({_short(made)}, now {_short(is_now)})."
        ]


def trace(stamp: Mapping[str, Any], catalogue: Catalogue) -> Trace:
    """Return what the catalogue says of a stamped picture.

    Parameters
    ----------
    stamp : mapping
        As :func:`proofbook.stamps.read_stamp` returns it.
    catalogue : Catalogue
        The book to compare with.

    Raises
    ------
    InputError
        If the id in the stamp, which may come from a stranger, is no figure's or table's.

    Examples
    --------
    >>> stamp = {"id": "fig-a", "version": "0.1.0", "data_digest": "0" * 64,
    ...          "source_digest": "1" * 64}
    >>> trace(stamp, Catalogue("0.2.0", "1" * 64, {})).verdict()
    ['Not current: version 0.2.0 of the book has no fig-a.']
    """
    id = str(stamp["id"])
    if not _ID.fullmatch(id):
        raise InputError(f"the picture's stamp has the id {shown(id)}; accepted: {_ID.pattern}")
    return Trace(stamp, catalogue.entries.get(id), catalogue)


def agree(one: object, other: object) -> bool:
    """Compare digests, of which one may be the first digits alone.

    Examples
    --------
    >>> agree("d644983b", "d644983b" + "0" * 56), agree("d6", "d6")
    (True, False)
    """
    texts = str(one), str(other)
    length = min(map(len, texts))
    return length >= SHORT_DIGEST and texts[0][:length] == texts[1][:length]


def _short(digest: object) -> str:
    return str(digest)[:SHORT_DIGEST]


def data_changes(
    id: str, old_digest: str, old: list[Path], new_digest: str, new: list[Path]
) -> DataChanges | None:
    """Compare a picture's data with the book's, cell by cell, where both files are at hand.

    Parameters
    ----------
    id : str
        The figure or table.
    old_digest, new_digest : str
        SHA-256 of the data on each side: a file with other content is not looked at.
    old, new : list of Path
        Where each side's CSV file may be; the first that fits is taken.

    Returns
    -------
    DataChanges or None
        None if either file is not there.
    """
    found = [_with_digest(old_digest, old), _with_digest(new_digest, new)]
    if found[0] is None or found[1] is None:
        return None
    return differing_cells(found[0], found[1], f"{id}.csv")


def _with_digest(digest: str, paths: list[Path]) -> bytes | None:
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if agree(digest, hashlib.sha256(content).hexdigest()):
            return content
    return None
