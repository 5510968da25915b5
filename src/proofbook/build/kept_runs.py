"""Run the notebooks that have no result for the present code and data, and keep what they give.

The results lie in ``_build/cache/<digest of code and data>``, so that no result outlives the code
that made it. A run that fails or writes to stderr is kept nowhere.
"""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from proofbook.build.kernels import KERNELSPEC, CellError, cell_name, run_notebook
from proofbook.catalogue.check_records import DIGESTS_FILE, notebook_digest
from proofbook.contents import base_url, page_files
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import source_digest, this_project
from proofbook.showing import FIGURES_VARIABLE

KEPT_CACHES = 2
#: Tags that change what running a cell does.
RUNNING_TAGS = {"raises-exception", "skip-execution"}


class Run(NamedTuple):
    """One chapter's notebook and what running it gave; no time where it did not run now."""

    path: Path
    notebook: Any
    key: str
    seconds: float | None = None
    error: str | None = None


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


def notebooks_of(root: Path) -> list[Path]:
    """Return the notebooks that the table of contents lists, in its order."""
    return [path for path in page_files(root) if path.suffix == ".ipynb"]


def read_notebook(path: Path) -> Any:
    """Return the notebook in a file; InputError if it is not of format 4.5, or a cell has no id."""
    import nbformat

    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        lacks = [at for at, cell in enumerate(raw.get("cells", []), 1) if not cell.get("id")]
        nbformat.validate(nbformat.from_dict(raw))
    except (ValueError, nbformat.ValidationError) as error:
        raise InputError(f"{path}: not a valid notebook: {error}") from error
    if lacks:
        raise InputError(f"{path}: cell {lacks[0]} has no id; give it a readable one")
    return nbformat.reads(json.dumps(raw), as_version=4)


def run_key(notebook: Any) -> str:
    """Return a digest of a notebook's code, and of the tags that change what running it gives."""
    cells = [
        [cell.source, sorted(RUNNING_TAGS.intersection(cell.metadata.get("tags", ())))]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:24]


def run_stale(root: Path, jobs: int | None = None) -> list[Run]:
    """Run every notebook of the book that has no result for the present code and data.

    An InputError names each chapter and cell that fails or writes to stderr.
    """
    from proofbook.pages.addresses import cache_folder

    paths, folder = notebooks_of(root), cache_folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    prune(folder.parent)
    notebooks = {path: read_notebook(path) for path in paths}
    runs = {path: Run(path, notebook, run_key(notebook)) for path, notebook in notebooks.items()}
    stale = [run for run in runs.values() if not _take_kept(run, folder)]
    say(f"running {len(stale)} of {len(paths)} notebooks" + ("" if stale else ": none is stale"))
    if stale:
        times = root / "_build" / "seconds.json"
        seconds = json.loads(times.read_text(encoding="utf-8")) if times.is_file() else {}
        stale.sort(key=lambda run: -seconds.get(run.path.name, 1e9))  # the longest first
        pool = ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0)))
        try:
            for done in as_completed([pool.submit(_new_run, run, folder) for run in stale]):
                run = done.result()
                runs[run.path] = run
                how = "FAILED" if run.error else "done"
                say(f"  {run.path.name}: {how} in {run.seconds:.1f} s")
                seconds[run.path.name] = run.seconds
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C or an error no other one begins
        write_whole(times, json.dumps(seconds, indent=1, sort_keys=True).encode())
    ordered = list(runs.values())
    failed = [f"{r.path.relative_to(root).as_posix()}, {r.error}" for r in ordered if r.error]
    if failed:
        raise InputError("\n".join(sorted(failed)))
    _list_shown(root, folder, ordered)
    _tell_jupyter_cache(folder, ordered)
    return ordered


def _new_run(run: Run, folder: Path) -> Run:
    """Run a notebook and keep what it gave, if it gave no error."""
    import nbformat

    kept = folder / "runs" / run.key
    shutil.rmtree(kept, ignore_errors=True)
    (kept / "figures").mkdir(parents=True)
    started = time.perf_counter()
    try:
        run_notebook(run.notebook, run.path.parent, {FIGURES_VARIABLE: str(kept / "figures")})
        error = _stderr_of(run.notebook)
    except CellError as failure:
        error = str(failure)
    if error is None:
        # Written last: a run is kept when its notebook is there.
        text = nbformat.writes(run.notebook, nbformat.NO_CONVERT)
        write_whole(kept / "executed.ipynb", text.encode())
    return run._replace(seconds=round(time.perf_counter() - started, 2), error=error)


def _stderr_of(notebook: Any) -> str | None:
    """Return what a cell wrote to stderr, and which one; None if none did."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                text = "".join(output.get("text", "")).strip()
                return f"{cell_name(notebook, index)} wrote to stderr: {text}"
    return None


def _take_kept(run: Run, folder: Path) -> bool:
    """Give a notebook the outputs of an earlier run, if there is one with all its files."""
    from proofbook.catalogue.notebook_entries import identity

    kept = folder / "runs" / run.key
    if not (kept / "executed.ipynb").is_file():
        return False
    executed = [c for c in read_notebook(kept / "executed.ipynb").cells if c.cell_type == "code"]
    outputs = [output for cell in executed for output in cell.outputs]
    found = [identity(output.get("data", {}), output.get("metadata", {})) for output in outputs]
    files = [f"{one.what}s/{one.id}.json" for one in found if one and one.what != "number"]
    if not all((kept / name).is_file() for name in files):
        return False
    ours = [cell for cell in run.notebook.cells if cell.cell_type == "code"]
    for mine, done in zip(ours, executed, strict=True):
        mine.outputs, mine.execution_count = done.outputs, done.execution_count
    return True


def _tell_jupyter_cache(folder: Path, runs: Sequence[Run]) -> None:
    """Put the runs where MyST-NB looks: by its own key, it would run again for each caption."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    cache = get_cache(str(folder / "jupyter_cache"))
    for run in runs:
        bundle = CacheBundleIn(run.notebook, str(run.path))
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _list_shown(root: Path, folder: Path, runs: Sequence[Run]) -> None:
    """Gather and complete the figures and tables of these runs; list digests of what these show."""
    from proofbook.catalogue.citations import publish
    from proofbook.catalogue.notebook_entries import catalogue_of

    for name in ("figures", "tables"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
        for path in (path for run in runs for path in (folder / "runs" / run.key / name).glob("*")):
            shutil.copyfile(path, folder / name / path.name)
    shown = {run.path.relative_to(root).with_suffix("").as_posix(): run.notebook for run in runs}
    made = catalogue_of(shown, version=this_project(root).version, source_digest=source_digest())
    publish(made, folder, base_url(root))
    digests = {page: notebook_digest(notebook) for page, notebook in shown.items()}
    write_whole(folder / DIGESTS_FILE, (json.dumps(digests, indent=1) + "\n").encode())


def prune(folder: Path) -> None:
    """Keep the results of the latest few states of the code only."""
    states = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in states[KEPT_CACHES:]:
        shutil.rmtree(path, ignore_errors=True)


# ---------------------------------------------------------------- outputs stored in the chapters


def stored(source: Any, executed: Any) -> str:
    """Return the text of a notebook with outputs, the same text for the same outputs."""
    import nbformat

    notebook = copy.deepcopy(source)
    kept = {"kernelspec", "language_info"}
    others = {name: value for name, value in source.metadata.items() if name not in kept}
    notebook.metadata = nbformat.from_dict(
        {**others, "kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    )
    cells = zip(notebook.cells, executed.cells, strict=True)
    code = [(ours, theirs) for ours, theirs in cells if ours.cell_type == "code"]
    for count, (ours, theirs) in enumerate(code, start=1):
        ours.metadata.pop("execution", None)
        ours.execution_count = count
        ours.outputs = copy.deepcopy(theirs.outputs)
        for output in ours.outputs:
            if "execution_count" in output:
                output.execution_count = count
    notebook.nbformat_minor = 5
    return str(nbformat.writes(notebook, nbformat.NO_CONVERT)).rstrip("\n") + "\n"


def store_outputs(runs: Sequence[Run]) -> list[Path]:
    """Write outputs into the chapters whose text that changes; return those."""
    changed = []
    for run in runs:
        text = stored(read_notebook(run.path), run.notebook)
        if text != run.path.read_text(encoding="utf-8"):
            write_whole(run.path, text.encode())
            changed.append(run.path)
    return changed
