"""Run the notebooks that have no result for the present code and data, and keep what they give.

The results lie in ``_build/cache/<digest of code and data>``, so that no result outlives the code
that made it. A run that fails or writes to stderr is kept nowhere.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from proofbook.catalogue.check_records import DIGESTS_FILE, notebook_digest
from proofbook.contents import BuildError, Place, chapters
from proofbook.files import write_whole

KEPT_CACHES = 2
#: Tags that change what running a cell does.
RUNNING_TAGS = {"raises-exception", "skip-execution"}
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_TIMEOUT_S = 300


class Run(NamedTuple):
    """One chapter's notebook and what running it gave."""

    path: Path
    notebook: Any
    key: str
    seconds: float
    executed: bool
    error: str | None


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


def read_notebook(path: Path) -> Any:
    """Return the notebook in a file.

    Raises
    ------
    BuildError
        If the file is no notebook of format 4.5, or a cell has no id.
    """
    import nbformat

    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BuildError(f"{path}: not a notebook: {error}") from error
    for index, cell in enumerate(raw.get("cells", []), start=1):
        if not cell.get("id"):
            raise BuildError(f"{path}: cell {index} has no id; give it a readable one")
    try:
        notebook = nbformat.from_dict(raw)
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        raise BuildError(f"{path}: not a valid notebook: {error}") from error
    return nbformat.reads(json.dumps(raw), as_version=4)


def cell_name(notebook: Any, index: int) -> str:
    """Return how a person finds a cell: which code cell it is, and its id."""
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    number = code.index(index) + 1 if index in code else 0
    return f"code cell {number} of {len(code)} (id {notebook.cells[index].get('id')})"


def stderr_of(notebook: Any) -> str | None:
    """Return what the first cell that wrote to stderr wrote, with the cell; None if none did."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.get("output_type") == "stream" and output.get("name") == "stderr":
                text = "".join(output.get("text", "")).strip()
                return f"{cell_name(notebook, index)} wrote to stderr: {text}"
    return None


def files_in(notebook: Any) -> list[str]:
    """Return the files, below a run's folder, that hold what a notebook's outputs show."""
    from proofbook.catalogue.notebook_entries import identity

    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            shown = identity(output.get("data", {}), output.get("metadata", {}))
            if shown is not None and shown.what != "number":
                found.append(f"{shown.what}s/{shown.id}.json")
    return found


def execute(path: Path, notebook: Any, figures: Path) -> tuple[float, str | None]:
    """Run a notebook in place, in a kernel of its own.

    Parameters
    ----------
    path : Path
        The notebook's file; the kernel runs in its folder.
    notebook : NotebookNode
        What to run; its outputs are replaced.
    figures : Path
        Where its figures go.

    Returns
    -------
    seconds : float
        How long that took.
    error : str or None
        Which cell failed and how.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    figures.mkdir(parents=True)
    at = [0]

    def note(cell: Any, cell_index: int) -> None:
        at[0] = cell_index

    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name=KERNELSPEC["name"],
        record_timing=False,
        extra_arguments=["--log-level=40"],
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_start=note,
    )
    started = time.perf_counter()
    error = None
    try:
        client.execute(env={**os.environ, "PROOFBOOK_FIGURES_DIR": str(figures)})
    except CellExecutionError as failure:
        error = _failure(notebook, at[0], failure)
    except CellTimeoutError:
        error = f"{cell_name(notebook, at[0])} took longer than {CELL_TIMEOUT_S} s"
    except DeadKernelError:
        error = f"{cell_name(notebook, at[0])}: the kernel died"
    if error is None:
        error = stderr_of(notebook)
    return time.perf_counter() - started, error


def _failure(notebook: Any, index: int, failure: Exception) -> str:
    """Say which cell failed, at which of its lines, and with what."""
    source = notebook.cells[index].source.splitlines()
    for output in notebook.cells[index].get("outputs", ()):
        if output.get("output_type") == "error":
            trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
            count = notebook.cells[index].get("execution_count")
            lines = re.findall(rf"Cell In\[{count}\], line (\d+)", trace)
            line = int(lines[-1]) if lines else 1
            text = source[line - 1].strip() if line <= len(source) else ""
            return (
                f"{cell_name(notebook, index)}, line {line}: {output.ename}: {output.evalue}\n"
                f"    {text}"
            )
    return f"{cell_name(notebook, index)}: {failure}"


def prepare_kernels(place: Place) -> None:
    """See to it that kernels run this Python, on this checkout, whatever the user's settings.

    Raises
    ------
    BuildError
        If the kernel named python3 is another Python's.
    """
    source = str(place.root / "src")
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = source + (os.pathsep + inherited if inherited else "")
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    # A start-up file in the user's own IPython profile would be part of every result.
    os.environ["IPYTHONDIR"] = str(place.build / "ipython")
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        command = KernelSpecManager().get_kernel_spec(KERNELSPEC["name"]).argv[0]
    except NoSuchKernel as error:
        raise BuildError("there is no kernel 'python3'; install ipykernel") from error
    # jupyter_client replaces a bare name with the Python that it runs in.
    if os.sep in command and Path(command).absolute() != Path(sys.executable).absolute():
        raise BuildError(
            f"the kernel 'python3' runs {command}, but the book is built by {sys.executable}; "
            "remove that kernel or reinstall ipykernel here"
        )
    # Its first use anywhere builds a font list and says so on stderr, which would fail a cell.
    importlib.import_module("matplotlib.font_manager")


def run_key(notebook: Any) -> str:
    """Return a digest of all that decides what running a notebook gives, beside code and data.

    That is its code, and not its prose, captions or the tags that only fold a cell.
    """
    cells = [
        [cell.source, sorted(RUNNING_TAGS.intersection(cell.metadata.get("tags", ())))]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    return hashlib.sha256(json.dumps([kernel, cells]).encode()).hexdigest()[:24]


def run_stale(place: Place, jobs: int | None = None) -> list[Run]:
    """Run every notebook of the book that has no result for the present code and data.

    Parameters
    ----------
    place : Place
        The book.
    jobs : int, optional
        How many notebooks run side by side; one per core unless given.

    Returns
    -------
    list of Run
        One for each notebook in the table of contents, outputs included.

    Raises
    ------
    BuildError
        If a cell fails or writes to stderr; the message names each such chapter and cell.
    """
    from proofbook.pages.extension import cache_folder

    paths = [path for path in chapters(place.root) if path.suffix == ".ipynb"]
    folder = cache_folder(place.root)
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    prune(folder.parent)
    runs: dict[Path, Run] = {}
    stale: list[tuple[Path, Any, str]] = []
    for path in paths:
        notebook = read_notebook(path)
        key = run_key(notebook)
        kept = kept_run(path, notebook, key, folder)
        if kept is None:
            stale.append((path, notebook, key))
        else:
            runs[path] = kept
    say(f"running {len(stale)} of {len(paths)} notebooks" + ("" if stale else ": none is stale"))
    if stale:
        seconds = _read_seconds(place)
        stale.sort(key=lambda item: -seconds.get(item[0].name, 1e9))  # the longest first
        with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
            waiting = {pool.submit(new_run, *item, folder): item[0] for item in stale}
            for done in as_completed(waiting):
                run = runs[waiting[done]] = done.result()
                say(
                    f"  {run.path.name}: {'FAILED' if run.error else 'done'} in {run.seconds:.1f} s"
                )
                seconds[run.path.name] = run.seconds
        _write_seconds(place, seconds)
    failed = [run for run in runs.values() if run.error]
    if failed:
        lines = [f"{run.path.relative_to(place.root).as_posix()}, {run.error}" for run in failed]
        raise BuildError("\n".join(sorted(lines)))
    ordered = [runs[path] for path in paths]
    _gather_files(folder, ordered)
    _publish(place.root, folder, ordered)
    _note_digests(place, folder, ordered)
    _tell_jupyter_cache(folder, ordered)
    return ordered


def new_run(path: Path, notebook: Any, key: str, folder: Path) -> Run:
    """Run a notebook and keep what it gave, if it gave no error."""
    import nbformat

    kept = folder / "runs" / key
    shutil.rmtree(kept, ignore_errors=True)
    seconds, error = execute(path, notebook, kept / "figures")
    if error is None:
        facts = {"seconds": round(seconds, 3)}
        (kept / "run.json").write_text(json.dumps(facts), encoding="utf-8")
        # Written last: a run is kept when its notebook is there.
        text = nbformat.writes(notebook, nbformat.NO_CONVERT)
        write_whole(kept / "executed.ipynb", text.encode())
    return Run(path, notebook, key, seconds, True, error)


def kept_run(path: Path, notebook: Any, key: str, folder: Path) -> Run | None:
    """Return a notebook with the outputs of an earlier run, or None if it has to run."""
    kept = folder / "runs" / key
    if not (kept / "executed.ipynb").is_file():
        return None
    executed = read_notebook(kept / "executed.ipynb")
    if not all((kept / name).is_file() for name in files_in(executed)):
        return None
    facts = json.loads((kept / "run.json").read_text(encoding="utf-8"))
    theirs = [cell for cell in executed.cells if cell.cell_type == "code"]
    ours = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for mine, done in zip(ours, theirs, strict=True):
        mine.outputs, mine.execution_count = done.outputs, done.execution_count
    return Run(path, notebook, key, facts["seconds"], False, None)


def _tell_jupyter_cache(folder: Path, runs: Sequence[Run]) -> None:
    """Put the runs where MyST-NB looks for them.

    Its own key changes with every caption, and it would run the notebook again for that.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    cache = get_cache(str(folder / "jupyter_cache"))
    for run in runs:
        try:
            cache.match_cache_notebook(run.notebook)
        except KeyError:
            pass
        else:
            if not run.executed:
                continue
        cache.cache_notebook_bundle(
            CacheBundleIn(run.notebook, str(run.path), data={"execution_seconds": run.seconds}),
            check_validity=False,
            overwrite=True,
        )


def _gather_files(folder: Path, runs: Sequence[Run]) -> None:
    """Bring the figures and tables of these runs together, and no others."""
    for name in ("figures", "tables"):
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for run in runs:
            for path in sorted((folder / "runs" / run.key / name).glob("*")):
                shutil.copyfile(path, target / path.name)


def _publish(root: Path, folder: Path, runs: Sequence[Run]) -> None:
    """List what these runs show, and complete the files of figures and tables."""
    from proofbook.catalogue.citations import publish
    from proofbook.catalogue.notebook_entries import catalogue_of
    from proofbook.contents import base_url
    from proofbook.errors import InputError
    from proofbook.project import source_digest, this_project

    shown = {run.path.relative_to(root).with_suffix("").as_posix(): run.notebook for run in runs}
    try:
        made = catalogue_of(
            shown, version=this_project(root).version, source_digest=source_digest()
        )
        publish(made, folder, base_url(root))
    except InputError as error:
        raise BuildError(str(error)) from error


def _note_digests(place: Place, folder: Path, runs: Sequence[Run]) -> None:
    """Write down what the pages show, so that each can tell whether just that was checked."""
    digests = {
        run.path.relative_to(place.root).with_suffix("").as_posix(): notebook_digest(run.notebook)
        for run in runs
    }
    write_whole(folder / DIGESTS_FILE, (json.dumps(digests, indent=1) + "\n").encode())


def prune(folder: Path) -> None:
    """Keep the results of the latest few states of the code only."""
    states = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in states[KEPT_CACHES:]:
        shutil.rmtree(path, ignore_errors=True)


def _read_seconds(place: Place) -> dict[str, float]:
    try:
        return dict(json.loads((place.build / "seconds.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _write_seconds(place: Place, seconds: Mapping[str, float]) -> None:
    rounded = {name: round(value, 2) for name, value in sorted(seconds.items())}
    (place.build / "seconds.json").write_text(json.dumps(rounded, indent=1), encoding="utf-8")
