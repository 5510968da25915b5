"""A picture of the book: whether the book still shows the same, and the picture made again.

A picture says by its stamp what it is; the catalogue says what the book shows under that id now.
"""

# Jupyter ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from proofbook.build.kernels import CellError, kernel_environment, run_notebook
from proofbook.catalogue import SHORT_DIGEST, Catalogue, Entry
from proofbook.errors import InputError, shown
from proofbook.files import whole_folder
from proofbook.showing import FIGURES_VARIABLE

_ID = re.compile(r"(fig|tab)-[a-z0-9]+(-[a-z0-9]+)*")
_EXTRA = "accepted: an environment with the packages that the book is made with"


@dataclass(frozen=True, slots=True)
class Provenance:
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

    def verdict(self) -> str:
        """Say whether it is current."""
        now, stamp = self.catalogue.version, self.stamp
        data, code = (str(stamp.get(f"{of}_digest"))[:SHORT_DIGEST] for of in ("data", "source"))
        if self.entry is None:
            return f"Not current: version {now} of the book has no {self.id}."
        if not self.same_data:
            return (
                f"Not current: its data were {data}, version {now} "
                f"of the book shows {self.entry.digest[:SHORT_DIGEST]}."
            )
        if self.same_sources:
            return "Current: the same data, made with the same code."
        if "source_digest" not in stamp:  # a picture out of a notebook
            return "Current: the same data."
        return (
            "Current: the same data. Code or other data of the project changed since "
            f"({code}, now {self.catalogue.source_digest[:SHORT_DIGEST]})."
        )


def trace(stamp: Mapping[str, Any], catalogue: Catalogue) -> Provenance:
    """Return what the catalogue says of a stamped picture.

    The stamp may come from a stranger: an id that is no figure's or table's is an InputError.

    Examples
    --------
    >>> stamp = {"id": "fig-a", "version": "0.1.0", "data_digest": "0" * 64,
    ...          "source_digest": "1" * 64}
    >>> trace(stamp, Catalogue("0.2.0", "1" * 64, {})).verdict()
    'Not current: version 0.2.0 of the book has no fig-a.'
    """
    id = str(stamp["id"])
    if not _ID.fullmatch(id):
        raise InputError(f"the picture's stamp has the id {shown(id)}; accepted: {_ID.pattern}")
    return Provenance(stamp, catalogue.entries.get(id), catalogue)


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


# ---------------------------------------------------------------- made again


class Remade(NamedTuple):
    """What was made again, and the SHA-256 of its data."""

    files: list[Path]
    digest: str


def remake(entry: Entry, root: Path, out: Path, base_url: str = "") -> Remade:
    """Make a figure or a table again: run its chapter up to the cell that shows it.

    Parameters
    ----------
    entry : Entry
        Which one.
    root : Path
        The checkout whose chapter, code and data make it, in a kernel of its own and a folder that
        is thrown away.
    out : Path
        The folder to make, with the files of the figure or table: a new one, or an empty one.
    base_url : str
        Public address of the book, for the citation, if it has one.

    Raises
    ------
    InputError
        If `out` is in the way or cannot be written, the chapter has no such cell, a cell fails, or
        what runs notebooks is not installed. Nothing is left then.
    """
    from proofbook.catalogue.citations import publish

    with whole_folder(out) as stage, tempfile.TemporaryDirectory(prefix="proofbook-") as place:
        work = Path(place)
        _run_chapter(entry, root, work / "figures")
        folder = work / f"{entry.what}s"
        path = folder / f"{entry.id}.json"
        if not path.is_file():
            raise InputError(
                f"{entry.page}, cell {entry.cell}: ran, but saved no {path.name}; accepted: a "
                f"cell that calls {entry.what}({entry.id!r}, ...)"
            )
        saved = json.loads(path.read_text(encoding="utf-8"))
        digest = str(saved["digest"])
        title = str(saved["title"]) if entry.what == "figure" else entry.text
        # A caption says the numbers of the old data.
        caption = entry.caption if digest.startswith(entry.digest) else None
        now = replace(entry, digest=digest, text=title, caption=caption)
        made_by = str(saved["version"]), str(saved["source_digest"])
        publish(Catalogue(*made_by, {now.id: now}), work, base_url)
        made = sorted(folder.glob(f"{entry.id}.*"))
        for path in made:
            shutil.copyfile(path, stage / path.name)
    return Remade([out / path.name for path in made], digest)


def _run_chapter(entry: Entry, root: Path, figures: Path) -> None:
    """Run a chapter up to the cell that shows an entry; on a terminal, show how far it is."""
    for name in ("nbclient", "nbformat", "ipykernel"):
        if find_spec(name) is None:
            raise InputError(f"{name} is not installed; {_EXTRA}")
    import nbformat

    path = root / f"{entry.page}.ipynb"
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a checkout that has it") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}; accepted: a notebook") from None
    if entry.cell not in [cell.get("id") for cell in notebook.cells]:
        raise InputError(f"{path}: no cell {entry.cell!r}, which showed {entry.id}")
    figures.mkdir()
    environment = {**kernel_environment(root), FIGURES_VARIABLE: str(figures)}
    try:
        run_notebook(notebook, path.parent, environment, until=entry.cell, progress=entry.page)
    except CellError as failure:
        raise InputError(f"{entry.page}, cell {failure.cell}: {failure.said}") from None
