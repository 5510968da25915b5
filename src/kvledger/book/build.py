"""Build the book: run what is stale, make the pages, and swap them in whole.

    python -m kvledger.book.build book         HTML in _build/html
    python -m kvledger.book.build notebooks    outputs stored in chapters/*.ipynb
    python -m kvledger.book.build list         the notebooks of the book
    python -m kvledger.book.build clean        remove _build

The results of execution live in ``_build/cache/<digest of code and data>``, so that no result
outlives the code that made it. A build that fails leaves ``_build/html`` as it was.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

# Only the standard library up here: "nothing changed" must be said at once.

#: Files and folders, below the root, that a page can depend on.
INPUTS = ("_config.yml", "_toc.yml", "requirements.txt", "chapters", "src", "data")
STAMP = "build.json"
KEPT_CACHES = 2
#: Tags that change what running a cell does.
RUNNING_TAGS = {"raises-exception", "skip-execution"}
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_TIMEOUT_S = 300
REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="refresh" content="0; url={page}">
<link rel="canonical" href="{page}">
</head>
<body><main><h1>{title}</h1><p><a href="{page}">Open the book</a></p></main></body>
</html>
"""


class BuildError(Exception):
    """A build that cannot go on; the message says where and why."""


class Place(NamedTuple):
    """Where a build keeps what: all below ``_build``."""

    root: Path

    @property
    def build(self) -> Path:
        """Everything that a build writes."""
        return self.root / "_build"

    @property
    def html(self) -> Path:
        """The finished pages."""
        return self.build / "html"

    @property
    def stage(self) -> Path:
        """The pages in the making, with Sphinx's memory of them."""
        return self.build / "stage"


class Run(NamedTuple):
    """One chapter's notebook and what running it gave."""

    path: Path
    notebook: Any
    key: str
    when: float
    seconds: float
    executed: bool
    error: str | None


# ---------------------------------------------------------------- what depends on what


def input_files(root: Path) -> list[Path]:
    """Return every file that a page can depend on, sorted.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.
    """
    files: list[Path] = []
    for name in INPUTS:
        path = root / name
        files += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    made = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache"}
    return sorted(
        path
        for path in files
        if not any(part in made or part.endswith(".egg-info") for part in path.parts)
    )


def digest_of(paths: Sequence[Path], root: Path) -> str:
    """Return one SHA-256 over the paths and contents of files.

    Parameters
    ----------
    paths : sequence of Path
        Files below `root`.
    root : Path
        What the paths are named from.

    Examples
    --------
    >>> len(digest_of([], Path(".")))
    64
    """
    digest = hashlib.sha256()
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def is_current(place: Place, inputs: str) -> bool:
    """Tell whether the finished pages were made from these inputs."""
    try:
        made_of = json.loads((place.html / STAMP).read_text(encoding="utf-8"))["inputs"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(made_of == inputs)


def find_root(start: Path) -> Path:
    """Return the folder at or above `start` that holds ``_toc.yml``.

    Raises
    ------
    BuildError
        If there is none.
    """
    for folder in (start, *start.parents):
        if (folder / "_toc.yml").is_file():
            return folder
    raise BuildError(f"no _toc.yml in {start} or above it; run this inside the repository")


def chapters(root: Path) -> list[Path]:
    """Return the files that the table of contents lists, in its order.

    Raises
    ------
    BuildError
        If a listed file does not exist, or the table of contents cannot be read.
    """
    from kvledger.book.contents import page_files
    from kvledger.errors import LedgerError

    try:
        return page_files(root)
    except LedgerError as error:
        raise BuildError(str(error)) from error


# ---------------------------------------------------------------- running notebooks


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


def figures_in(notebook: Any) -> list[str]:
    """Return the ids of the figures that a notebook's outputs show."""
    from kvledger.book.sphinxext import FIGURE_TEXT

    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            match = FIGURE_TEXT.match("".join(data.get("text/plain", "")).strip())
            if match is not None and any(name.startswith("image/") for name in data):
                found.append(match["id"])
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
        client.execute(env={**os.environ, "KVLEDGER_FIGURES_DIR": str(figures)})
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
    import matplotlib.font_manager  # noqa: F401


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
    from kvledger.book.sphinxext import cache_folder

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
    _gather_figures(folder, ordered)
    _write_catalogue(place.root, folder, ordered)
    _tell_jupyter_cache(folder, ordered)
    return ordered


def new_run(path: Path, notebook: Any, key: str, folder: Path) -> Run:
    """Run a notebook and keep what it gave, if it gave no error."""
    import nbformat

    kept = folder / "runs" / key
    shutil.rmtree(kept, ignore_errors=True)
    when = time.time()
    seconds, error = execute(path, notebook, kept / "figures")
    if error is None:
        facts = {"seconds": round(seconds, 3), "when": when}
        (kept / "run.json").write_text(json.dumps(facts), encoding="utf-8")
        # Written last: a run is kept when its notebook is there.
        write_whole(kept / "executed.ipynb", nbformat.writes(notebook, nbformat.NO_CONVERT))
    return Run(path, notebook, key, when, seconds, True, error)


def kept_run(path: Path, notebook: Any, key: str, folder: Path) -> Run | None:
    """Return a notebook with the outputs of an earlier run, or None if it has to run."""
    kept = folder / "runs" / key
    if not (kept / "executed.ipynb").is_file():
        return None
    executed = read_notebook(kept / "executed.ipynb")
    if not all((kept / "figures" / f"{name}.json").is_file() for name in figures_in(executed)):
        return None
    facts = json.loads((kept / "run.json").read_text(encoding="utf-8"))
    theirs = [cell for cell in executed.cells if cell.cell_type == "code"]
    ours = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for mine, done in zip(ours, theirs, strict=True):
        mine.outputs, mine.execution_count = done.outputs, done.execution_count
    return Run(path, notebook, key, facts["when"], facts["seconds"], False, None)


def _tell_jupyter_cache(folder: Path, runs: Sequence[Run]) -> None:
    """Put the runs where MyST-NB looks for them.

    Its own key changes with every caption, and it would run the notebook again for that.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from jupyter_cache.cache.db import NbCacheRecord, session_context

    cache = get_cache(str(folder / "jupyter_cache"))
    for run in runs:
        try:
            cache.match_cache_notebook(run.notebook)
        except KeyError:
            pass
        else:
            if not run.executed:
                continue
        record = cache.cache_notebook_bundle(
            CacheBundleIn(run.notebook, str(run.path), data={"execution_seconds": run.seconds}),
            check_validity=False,
            overwrite=True,
        )
        # The day on a page is the day on which its cells ran.
        with session_context(cache.db) as session:
            session.query(NbCacheRecord).filter_by(pk=record.pk).update(
                {"created": dt.datetime.fromtimestamp(run.when)}
            )
            session.commit()


def _gather_figures(folder: Path, runs: Sequence[Run]) -> None:
    """Bring the figures of these runs together, and no others."""
    target = folder / "figures"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for run in runs:
        for path in sorted((folder / "runs" / run.key / "figures").glob("*")):
            shutil.copyfile(path, target / path.name)


def _write_catalogue(root: Path, folder: Path, runs: Sequence[Run]) -> None:
    """List what these runs show, for the pages and for other people's programs."""
    from kvledger import __version__
    from kvledger.book.catalogue import catalogue_of, write_catalogue
    from kvledger.book.contents import base_url
    from kvledger.datafiles import source_digest
    from kvledger.errors import LedgerError

    shown = {run.path.relative_to(root).with_suffix("").as_posix(): run.notebook for run in runs}
    try:
        made = catalogue_of(shown, version=__version__, source_digest=source_digest())
        write_catalogue(made, folder, base_url(root))
    except LedgerError as error:
        raise BuildError(str(error)) from error


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


# ---------------------------------------------------------------- pages


def make_pages(place: Place, runs: Sequence[Run], inputs: str) -> None:
    """Make the HTML from executed notebooks and swap it in, or raise and change nothing.

    Raises
    ------
    BuildError
        If there was any warning.
    """
    from jupyter_book.sphinx import build_sphinx

    from kvledger import __version__
    from kvledger.datafiles import source_digest

    stage, root = place.stage, place.root
    # Sphinx sees edits to pages; all else that pages depend on, it may not.
    others = [
        path
        for path in input_files(root)
        if path.parent != root / "chapters" or path.suffix not in {".ipynb", ".md"}
    ]
    names = [path.relative_to(root).as_posix() for path in chapters(root)]
    state = hashlib.sha256(
        json.dumps([digest_of(others, root), names, sorted(run.key for run in runs)]).encode()
    ).hexdigest()
    state_file = stage / "state"
    if not state_file.is_file() or state_file.read_text(encoding="utf-8") != state:
        shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True, exist_ok=True)
    # Without it, a build that is broken off starts afresh: half a memory hides warnings.
    state_file.unlink(missing_ok=True)
    warnings = io.StringIO()
    try:
        with contextlib.redirect_stderr(warnings):
            result = build_sphinx(
                str(root),
                str(stage / "html"),
                noconfig=True,
                path_config=str(root / "_config.yml"),
                confoverrides={
                    "external_toc_path": (root / "_toc.yml").as_posix(),
                    "latex_individualpages": False,
                },
                doctreedir=str(stage / "doctrees"),
                warningiserror=True,
                keep_going=True,
                quiet=True,
            )
        print(readable(warnings.getvalue(), root), end="", file=sys.stderr, flush=True)
        reports = sorted((stage / "html" / "reports").rglob("*.err.log"))
        if isinstance(result, BaseException):
            raise BuildError(f"Sphinx failed: {type(result).__name__}: {result}")
        if result != 0:
            raise BuildError("the warnings above are errors")
        if reports:
            raise BuildError("\n".join(path.read_text(encoding="utf-8") for path in reports))
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    first = chapters(root)[0].relative_to(root).with_suffix(".html").as_posix()
    if first != "index.html":
        page = REDIRECT.format(title=_title(root), page=first)
        (stage / "html" / "index.html").write_text(page, encoding="utf-8")
    record = {
        "version": __version__,
        "source_digest": source_digest(),
        "inputs": inputs,
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    (stage / "html" / STAMP).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    state_file.write_text(state, encoding="utf-8")
    swap_in(stage / "html", place.html)


def readable(warnings: str, root: Path) -> str:
    """Return Sphinx's warnings as a person finds their places.

    MyST-NB counts ten thousand lines a cell; colours are for terminals.

    Parameters
    ----------
    warnings : str
        What Sphinx wrote.
    root : Path
        The book's folder, which is left out of paths.

    Examples
    --------
    >>> readable("/book/chapters/paging.ipynb:140002: WARNING: ...", Path("/book"))
    'chapters/paging.ipynb, cell 14, line 1: WARNING: ...'
    """

    def place(match: re.Match[str]) -> str:
        cell, line = divmod(int(match[1]), 10_000)
        return f".ipynb, cell {cell}, line {max(line - 1, 1)}:" if cell else match[0]

    text = re.sub(r"\x1b\[[0-9;]*m", "", warnings).replace(f"{root}{os.sep}", "")
    return re.sub(r"\.ipynb:(\d+):", place, text)


def _title(root: Path) -> str:
    import yaml

    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8")) or {}
    return str(config.get("title", "The book"))


def swap_in(made: Path, shown: Path) -> None:
    """Show a copy of `made` at `shown`: all of it, or what was there before.

    The copy is complete before the first of two renames, and what the first one moved away comes
    back if the second does not happen.
    """
    new, old = shown.with_name(shown.name + ".new"), shown.with_name(shown.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(made, new)
    restore(shown)
    if shown.exists():
        shown.rename(old)
    try:
        new.rename(shown)
    except BaseException:
        restore(shown)
        raise
    shutil.rmtree(old, ignore_errors=True)


def restore(shown: Path) -> None:
    """Put back what a swap that was broken off had moved away."""
    old = shown.with_name(shown.name + ".old")
    if old.exists() and not shown.exists():
        old.rename(shown)
    shutil.rmtree(old, ignore_errors=True)


# ---------------------------------------------------------------- storing outputs


def stored(source: Any, executed: Any) -> str:
    """Return the text of a notebook with outputs, the same text for the same outputs.

    Parameters
    ----------
    source : NotebookNode
        The notebook as it is in the repository: ids, prose and metadata are taken from it.
    executed : NotebookNode
        The same notebook with outputs.
    """
    import copy

    import nbformat

    notebook = copy.deepcopy(source)
    kept = {"kernelspec", "language_info"}
    others = {name: value for name, value in source.metadata.items() if name not in kept}
    notebook.metadata = nbformat.from_dict(
        {**others, "kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    )
    count = 0
    for ours, theirs in zip(notebook.cells, executed.cells, strict=True):
        ours.metadata.pop("execution", None)
        if ours.cell_type != "code":
            continue
        count += 1
        ours.execution_count = count
        ours.outputs = copy.deepcopy(theirs.outputs)
        for output in ours.outputs:
            if "execution_count" in output:
                output.execution_count = count
    notebook.nbformat_minor = 5
    text: str = nbformat.writes(notebook, nbformat.NO_CONVERT)
    return text.rstrip("\n") + "\n"


def write_whole(path: Path, text: str) -> None:
    """Replace a file's text at once, so that nobody ever reads half of it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def store_outputs(place: Place, runs: Sequence[Run]) -> list[Path]:
    """Write outputs into the chapters whose text that changes; return those."""
    changed = []
    for run in runs:
        text = stored(read_notebook(run.path), run.notebook)
        if text == run.path.read_text(encoding="utf-8"):
            continue
        write_whole(run.path, text)
        changed.append(run.path)
    return changed


def normalise_kernels(place: Place) -> None:
    """Write the one kernel name into chapters that lack it, so that results are found again."""
    for path in chapters(place.root):
        if path.suffix != ".ipynb":
            continue
        notebook = read_notebook(path)
        if dict(notebook.metadata.get("kernelspec", {})) != KERNELSPEC:
            import nbformat

            notebook.metadata["kernelspec"] = nbformat.from_dict(KERNELSPEC)
            text = nbformat.writes(notebook, nbformat.NO_CONVERT).rstrip("\n") + "\n"
            write_whole(path, text)


# ---------------------------------------------------------------- commands


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Let one build at a time write below ``_build``."""
    place.build.mkdir(exist_ok=True)
    with (place.build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def book(place: Place, jobs: int | None = None) -> None:
    """Make the HTML, unless it is there already."""
    started = time.perf_counter()
    restore(place.html)
    inputs = digest_of(input_files(place.root), place.root)
    if is_current(place, inputs):
        say(f"nothing changed: {place.html.relative_to(place.root)} is up to date")
        return
    prepare_kernels(place)
    runs = run_stale(place, jobs)
    say(f"notebooks: {time.perf_counter() - started:.1f} s; making the pages")
    make_pages(place, runs, inputs)
    say(
        f"the book is in {place.html.relative_to(place.root)}, made in "
        f"{time.perf_counter() - started:.1f} s; open index.html there"
    )


def notebooks(place: Place, jobs: int | None = None) -> None:
    """Run the chapters and store their outputs in them."""
    prepare_kernels(place)
    normalise_kernels(place)
    runs = run_stale(place, jobs)
    changed = store_outputs(place, runs)
    for path in changed:
        say(f"  stored outputs in {path.relative_to(place.root).as_posix()}")
    say(f"{len(changed)} of {len(runs)} notebooks changed")


def list_notebooks(place: Place, jobs: int | None = None) -> None:
    """Print the notebooks that the table of contents lists, one a line."""
    for path in chapters(place.root):
        if path.suffix == ".ipynb":
            say(path.relative_to(place.root).as_posix())


def clean(place: Place, jobs: int | None = None) -> None:
    """Remove everything that a build made."""
    for path in list(place.build.iterdir()) if place.build.is_dir() else []:
        if path.name == ".lock":
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


COMMANDS: dict[str, Callable[[Place, int | None], None]] = {
    "book": book,
    "notebooks": notebooks,
    "list": list_notebooks,
    "clean": clean,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m kvledger.book.build", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("--jobs", type=int, help="notebooks to run side by side (one per core)")
    options = parser.parse_args(arguments)
    try:
        place = Place(find_root(Path.cwd()))
        with locked(place):
            COMMANDS[options.command](place, options.jobs)
    except BuildError as error:
        print(f"\nbuild failed: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
