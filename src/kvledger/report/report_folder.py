"""Make a report: run the template on a reader's workload, and lay out what it shows in a folder.

Nothing that the reader gives becomes code: the notebook gets the name of a settings file, which
is always the same, and the file is read as data. The kernel works in a folder where the trace and
the config appear under their base names, so it never learns where they are. The folder appears
whole or not at all.
"""

# nbformat ships no types.
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import os
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvledger.core.errors import InputError, LedgerError
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_model, load_models
from kvledger.report.deployment import (
    FOLDER_VARIABLE,
    MODEL_FOLDER,
    SETTINGS_FILE,
    TRACE_FOLDER,
    Settings,
    base_name,
)
from proofbook.files import check_folder, whole_folder
from proofbook.plaintext import shown_name

TEMPLATE = "your_workload.ipynb"
CONTENTS_FILE = "contents.json"
FORMAT = "kvledger report 1"
PAGE_FILE, NOTEBOOK_FILE, FIGURES_FOLDER = "report.html", "report.ipynb", "figures"
INJECTED = "injected-parameters"
_PACKAGE = Path(__file__).resolve().parent.parent
_QUANTISED = "hf_quant_config.json"  # read beside a config.json
_EXTRA = "accepted: pip install 'kvledger[book]', which the report is made with"


def write_report(settings: Settings, out: Path, *, force: bool = False) -> list[Path]:
    """Write a report to a folder.

    Parameters
    ----------
    settings : Settings
        The trace, the model and the memory; a trace or config that is a file by its path, and
        ``-`` for a trace on standard input.
    out, force : Path, bool
        The folder to make, which must be empty if it is there; or replace an earlier report.

    Returns
    -------
    list of Path
        ``report.html`` (one page that holds all), ``report.ipynb``, ``numbers.json``, and the
        folders ``figures`` and ``tables``.

    Raises
    ------
    LedgerError
        For a trace, model or memory that cannot be used, a folder that is in the way or cannot be
        written to, or a package that is missing. Nothing is left then, and an earlier report stays.
    """
    given, out = out, out.absolute()
    check_target(out, force=force)
    parse_bytes(settings.kv_memory, "--kv-memory")
    load_model(settings.model, settings.dtype, settings.tensor_parallel)
    try:
        # Here, because these import half of Jupyter.
        import nbclient  # noqa: F401
        import nbformat

        from kvledger.report.report_page import page_html
    except ImportError as error:
        raise LedgerError(f"{error.name} is not installed; {_EXTRA}") from error
    with tempfile.TemporaryDirectory(prefix="kvledger-") as place:
        work = Path(place)
        inside, files = _files(settings, work)
        try:
            with whole_folder(out, lambda out: check_target(out, force=force)) as stage:
                notebook = run_template(inside, files, work, stage)
                text = str(nbformat.writes(notebook))
                (stage / NOTEBOOK_FILE).write_text(text, encoding="utf-8")
                title = f"Where KV-cache memory goes: {shown_name(inside.trace)}"
                html = page_html(notebook, stage / FIGURES_FOLDER, title=title)
                (stage / PAGE_FILE).write_text(html, encoding="utf-8")
                inside.write(stage)
                write_contents(stage)
        except OSError as error:
            raise LedgerError(
                f"{given}: the report cannot be written ({error.strerror or error}); accepted: a "
                "place with room for it"
            ) from error
    names = (PAGE_FILE, NOTEBOOK_FILE, "numbers.json", FIGURES_FOLDER, "tables")
    return [given / name for name in names]


def _files(settings: Settings, work: Path) -> tuple[Settings, dict[str, Path]]:
    """Return the settings with base names in place of paths, and the files that they stand for."""
    files: dict[str, Path] = {}
    trace, model = Path(settings.trace), Path(settings.model)
    if settings.trace == "-":
        trace = work / "standard-input"
        with trace.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    if trace.exists():
        files[TRACE_FOLDER] = trace
        settings = replace(settings, trace=base_name(trace))
    if settings.model not in load_models() and model.exists():
        files[MODEL_FOLDER] = model
        settings = replace(settings, model=base_name(model))
    return settings, files


# --------------------------------------------------------------------------- the folder


def check_target(out: Path, *, force: bool) -> None:
    """Find out before any work what is in the way of a folder, and raise LedgerError for it.

    A folder that is there is accepted if it is empty; with ``force`` also if it is an earlier
    report and holds nothing else.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise LedgerError(f"{out}: is no folder; accepted: a new folder, or an empty one")
    there = _files_in(out) if out.is_dir() else set()
    if there and not force:
        raise LedgerError(
            f"{out}: is there and not empty; accepted: a new folder, or --force to replace an "
            "earlier report"
        )
    other = sorted(there - _own(out))
    if other:
        raise LedgerError(
            f"{out}: holds {other[0]!r}, which no report wrote; accepted: a new folder, or one "
            "with an earlier report and nothing else"
        )
    if not out.parent.is_dir():
        raise LedgerError(f"{out.parent}: no such folder; accepted: an existing one to write in")
    check_folder(out.parent)


def write_contents(folder: Path) -> None:
    """Write down which files a report holds, by which it is known for one later."""
    contents = {"format": FORMAT, "files": sorted(_files_in(folder))}
    text = json.dumps(contents, indent=1) + "\n"
    (folder / CONTENTS_FILE).write_text(text, encoding="ascii")


def _files_in(folder: Path) -> set[str]:
    """Return what is in a folder, below it too: files by their path, folders if they are empty."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink() or not any(path.iterdir())
    }


def _own(folder: Path) -> set[str]:
    """Return the files that an earlier report says it wrote."""
    try:
        contents = json.loads((folder / CONTENTS_FILE).read_text(encoding="utf-8"))
        files = {CONTENTS_FILE, *map(str, contents["files"])}
        return files if contents["format"] == FORMAT else set()
    except (OSError, ValueError, TypeError, KeyError):
        return set()


# --------------------------------------------------------------------------- the template


def template_file() -> Path:
    """Return the chapter that is the template: of the checkout, or inside an installed package."""
    candidates = [_PACKAGE.parent.parent / "chapters" / TEMPLATE, _PACKAGE / "chapters" / TEMPLATE]
    for path in candidates:
        if path.is_file():
            return path
    raise LedgerError(
        f"no template at {' or '.join(map(str, candidates))}; install the package whole, or run "
        "from a checkout"
    )


def run_template(settings: Settings, files: Mapping[str, Path], work: Path, kept: Path) -> Any:
    """Run the template and return the notebook with its outputs, or raise what stopped it.

    ``files`` are the trace and the config, where they are files, under ``"trace"`` and
    ``"model"``, as the reader named them; the kernel works in ``work``, an empty folder, and
    figures, tables and numbers go to ``kept``.
    """
    import nbformat

    from proofbook.build.kernels import CellError, run_notebook
    from proofbook.showing import FIGURES_VARIABLE

    settings.write(work)
    for role, path in files.items():
        (work / role).mkdir()
        (work / role / base_name(path)).symlink_to(path.resolve())
        beside = path.with_name(_QUANTISED)
        if role == MODEL_FOLDER and path.is_file() and beside.is_file():
            (work / role / _QUANTISED).symlink_to(beside.resolve())
    notebook = nbformat.reads(template_file().read_text(encoding="utf-8"), as_version=4)
    # Where a kernel in another folder finds this package and what it needs.
    home, variable = str(_PACKAGE.parent), os.environ.get("PYTHONPATH", "")
    paths = [os.path.abspath(path) for path in variable.split(os.pathsep) if path]
    if home not in (*site.getsitepackages(), site.getusersitepackages(), *paths):
        paths.insert(0, home)
    environment = {
        FIGURES_VARIABLE: str(kept / FIGURES_FOLDER),
        FOLDER_VARIABLE: str(kept),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    prepared(notebook)
    try:
        run_notebook(notebook, work, environment, timeout_s=None, progress="report")
    except CellError as error:
        raise _failure(error.name, error.text, work, files) from error
    # Without what the kernel notes about this machine.
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


def prepared(notebook: Any) -> None:
    """Empty the template of the book's outputs, and let it name the settings after its own cell."""
    from nbformat.v4 import new_code_cell

    source = f'# Parameters\nsettings = "{SETTINGS_FILE}"\n'
    cells = []
    for cell in notebook.cells:
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in ("mystnb", "tags")}
        cells.append(cell)
        if cell.cell_type == "code":
            cell.outputs = []
        if "parameters" in cell.metadata.get("tags", ()):
            cells.append(new_code_cell(source, id=INJECTED, metadata={"tags": [INJECTED]}))
    notebook.cells = cells


def _names(error: type[Exception]) -> set[str]:
    """Return the names of an error and of all that are errors of its kind."""
    return {error.__name__}.union(*map(_names, error.__subclasses__()))


def _failure(name: str, text: str, work: Path, files: Mapping[str, Path]) -> Exception:
    """Return what a cell raised, about the files as the reader named them."""
    for role, path in files.items():
        text = text.replace(str(work.resolve() / role / base_name(path)), str(path))
    if name in _names(InputError):
        return LedgerError(text)
    if name == "DeadKernelError":
        return LedgerError(
            "the process that runs the notebook was ended from outside, as one is that takes "
            "too much memory; accepted: a smaller --first, or a smaller trace"
        )
    if name == "OSError":
        return OSError(re.sub(r"^\[Errno \d+\] |: '.*'$", "", text))
    return RuntimeError(f"the notebook stopped with {name}: {text}")
