"""Make one figure or table again: run its chapter up to the cell that shows it.

The chapter's own code and data make it, in a kernel of its own and a folder that is thrown away.
What is left is a new folder with that figure's files, or nothing.
"""

# Jupyter ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from proofbook.catalogue import Catalogue, Entry
from proofbook.errors import InputError
from proofbook.files import check_folder
from proofbook.showing import FIGURES_VARIABLE

__all__ = ["Remade", "remake"]

CELL_TIMEOUT_S = 300
_EXTRA = "accepted: an environment with the packages that the book is made with"


class Remade(NamedTuple):
    """What was made again, and the SHA-256 of its data."""

    files: list[Path]
    digest: str


def remake(entry: Entry, root: Path, out: Path, base_url: str = "") -> Remade:
    """Make a figure or a table again.

    Parameters
    ----------
    entry : Entry
        Which one.
    root : Path
        The checkout whose chapter, code and data make it.
    out : Path
        The folder to make, with the files of the figure or table. It must not exist.
    base_url : str
        Public address of the book, for the citation, if it has one.

    Raises
    ------
    InputError
        If `out` is in the way or cannot be written, the chapter has no such cell, a cell fails, or
        what runs notebooks is not installed. Nothing is left then.
    """
    if out.is_symlink() or out.exists():
        raise InputError(f"{out}: is there already; accepted: a new folder")
    check_folder(out.absolute().parent)
    notebook = _up_to(entry, root)
    with tempfile.TemporaryDirectory(prefix="kvledger-") as place:
        work = Path(place)
        figures = work / "figures"
        figures.mkdir()
        _run(notebook, entry, root, work, figures)
        folder = figures if entry.what == "figure" else work / "tables"
        saved = folder / f"{entry.id}.json"
        if not saved.is_file():
            raise InputError(
                f"{entry.page}, cell {entry.cell}: ran, but saved no {saved.name}; accepted: a "
                f"cell that calls {entry.what}({entry.id!r}, ...)"
            )
        digest = _complete(entry, json.loads(saved.read_text(encoding="utf-8")), work, base_url)
        return Remade(_leave(sorted(folder.glob(f"{entry.id}.*")), out), digest)


def _complete(entry: Entry, saved: Mapping[str, Any], work: Path, base_url: str) -> str:
    """Give the files their citation and stamps, as a build does; return the digest of the data."""
    from proofbook.catalogue.citations import publish

    digest = str(saved["digest"])
    title = str(saved["title"]) if entry.what == "figure" else entry.text
    # A caption says the numbers of the old data.
    caption = entry.caption if digest.startswith(entry.digest) else None
    made = replace(entry, digest=digest, text=title, caption=caption)
    about = str(saved["version"]), str(saved["source_digest"])
    publish(Catalogue(*about, {made.id: made}), work, base_url)
    return digest


def _leave(made: list[Path], out: Path) -> list[Path]:
    """Put files into a new folder, which appears with all of them."""
    try:
        parent = out.absolute().parent
        stage = Path(tempfile.mkdtemp(dir=parent, prefix=f".{out.name}.", suffix=".part"))
        try:
            for path in made:
                shutil.copyfile(path, stage / path.name)
            stage.chmod(0o755)
            if out.exists():  # much time has passed
                raise InputError(f"{out}: is there already; accepted: a new folder")
            stage.rename(out)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    return [out / path.name for path in made]


def _up_to(entry: Entry, root: Path) -> Any:
    """Return the chapter's notebook, cut after the cell that shows the entry."""
    try:
        import nbformat
    except ImportError as error:
        raise InputError(f"{error.name} is not installed; {_EXTRA}") from error
    path = root / f"{entry.page}.ipynb"
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; accepted: a checkout that has this chapter"
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: {error}; accepted: a notebook") from None
    cells = [cell.get("id") for cell in notebook.cells]
    if entry.cell not in cells:
        raise InputError(f"{path}: no cell {entry.cell!r}, which showed {entry.id}")
    kept = notebook.cells[: cells.index(entry.cell) + 1]
    notebook.cells = [cell for cell in kept if cell.cell_type == "code"]
    return notebook


def _run(notebook: Any, entry: Entry, root: Path, work: Path, figures: Path) -> None:
    """Run a notebook's cells; on a terminal, show how far it is."""
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
        from tqdm import tqdm

        from proofbook.build.runs_of_notebooks import prepare_kernels
        from proofbook.contents import BuildError, Place
    except ImportError as error:
        raise InputError(f"{error.name} is not installed; {_EXTRA}") from error
    at = [0]

    def note(cell: Any, cell_index: int) -> None:
        at[0] = cell_index
        bar.update(cell_index - bar.n)

    # Progress is for a terminal only: disable=None asks whether stderr is one.
    with (
        _as_it_was(),
        tqdm(total=len(notebook.cells), desc=entry.page, unit=" cells", disable=None) as bar,
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a _build that is not there, and not needed
                prepare_kernels(Place(root))
        except BuildError as error:
            raise InputError(str(error)) from None
        os.environ["IPYTHONDIR"] = str(work / "ipython")
        os.environ[FIGURES_VARIABLE] = str(figures)
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--log-level=40"],
            resources={"metadata": {"path": str((root / entry.page).parent)}},
            on_cell_start=note,
        )
        try:
            _interruptible(client, dict(os.environ))
        except CellExecutionError as error:
            said = f"{error.ename}: {error.evalue}"
            raise InputError(f"{entry.page}, cell {_id(notebook, at[0])}: {said}") from None
        except CellTimeoutError:
            raise InputError(
                f"{entry.page}, cell {_id(notebook, at[0])}: took longer than {CELL_TIMEOUT_S} s"
            ) from None
        except DeadKernelError:
            raise InputError(
                f"{entry.page}, cell {_id(notebook, at[0])}: the process that ran it was ended"
            ) from None
        bar.update(len(notebook.cells) - bar.n)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Give this process its environment back."""
    kept = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def _id(notebook: Any, index: int) -> str:
    return str(notebook.cells[index].get("id"))


def _interruptible(client: Any, environment: dict[str, str]) -> None:
    """Run cells in a thread, so that Ctrl-C reaches this one and ends the kernel too."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            client.execute(env=environment)
        except BaseException as error:  # handed on to the caller's thread
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)  # in short waits, so that a signal is handled
    except BaseException:
        kernel = getattr(client.km, "provisioner", None)
        if kernel is not None and kernel.pid:
            with suppress(OSError):
                os.killpg(kernel.pid, signal.SIGKILL)  # it leads a session of its own
        thread.join(10)
        raise
    if raised:
        raise raised[0]
