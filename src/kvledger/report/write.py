"""Make a report: run the template, and lay out what it shows, whole or not at all."""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from kvledger.core.errors import LedgerError
from kvledger.core.units import parse_bytes
from kvledger.models.known import load_model, load_models
from kvledger.report.report_folder import check_target, whole_folder
from kvledger.report.report_settings import MODEL_FOLDER, TRACE_FOLDER, Settings, base_name
from proofbook.plaintext import shown_name

PAGE_FILE = "report.html"
NOTEBOOK_FILE = "report.ipynb"
_STANDARD_INPUT = "standard-input"
_EXTRA = "accepted: pip install 'kvledger[book]', which the report is made with"


def write_report(settings: Settings, out: Path, *, force: bool = False) -> list[Path]:
    """Write a report to a folder.

    Parameters
    ----------
    settings : Settings
        The trace, the model and the memory; a trace or config that is a file by its path, and
        ``-`` for a trace on standard input.
    out : Path
        The folder to make. One that is there must be empty.
    force : bool
        Replace an earlier report.

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
        from kvledger.report.report_page import page_html
        from kvledger.report.template_run import FIGURES_FOLDER, notebook_text, run_template
    except ImportError as error:
        raise LedgerError(f"{error.name} is not installed; {_EXTRA}") from error
    with tempfile.TemporaryDirectory(prefix="kvledger-") as place:
        work = Path(place)
        inside, files = _files(settings, work)
        try:
            with whole_folder(out, force=force) as stage:
                notebook = run_template(inside, files, work, stage)
                (stage / NOTEBOOK_FILE).write_text(notebook_text(notebook), encoding="utf-8")
                title = f"Where KV-cache memory goes: {shown_name(inside.trace)}"
                html = page_html(notebook, stage / FIGURES_FOLDER, title=title)
                (stage / PAGE_FILE).write_text(html, encoding="utf-8")
                inside.write(stage)
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
        trace = work / _STANDARD_INPUT
        with trace.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    if trace.exists():
        files[TRACE_FOLDER] = trace
        settings = replace(settings, trace=base_name(trace))
    if settings.model not in load_models() and model.exists():
        files[MODEL_FOLDER] = model
        settings = replace(settings, model=base_name(model))
    return settings, files
