"""Run the template on a reader's workload, in a kernel of its own.

Nothing that the reader gives becomes code: the notebook gets the name of a settings file, which
is always the same, and the file is read as data. The kernel works in a folder where the trace and
the config appear under their base names, so it never learns where they are.
"""

# Papermill and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import logging
import os
import re
import signal
import site
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kvledger.core.errors import LedgerError
from kvledger.report.report_settings import (
    FOLDER_VARIABLE,
    MODEL_FOLDER,
    SETTINGS_FILE,
    Settings,
    base_name,
)

_PACKAGE = Path(__file__).resolve().parent.parent
TEMPLATE = "your_workload.ipynb"
FIGURES_FOLDER = "figures"
_INJECTED = "injected-parameters"
_STARTUP_S = 120
_QUANTISED = "hf_quant_config.json"  # read beside a config.json


def template_file() -> Path:
    """Return the chapter that is the template: of the checkout, or inside an installed package.

    Raises
    ------
    LedgerError
        If neither exists.
    """
    candidates = [_PACKAGE.parent.parent / "chapters" / TEMPLATE, _PACKAGE / "chapters" / TEMPLATE]
    for path in candidates:
        if path.is_file():
            return path
    raise LedgerError(
        f"no template at {' or '.join(map(str, candidates))}; install the package whole, or run "
        "from a checkout"
    )


def run_template(settings: Settings, files: Mapping[str, Path], work: Path, kept: Path) -> Any:
    """Run the template and return the notebook with its outputs.

    Parameters
    ----------
    settings : Settings
        What is asked for.
    files : mapping of str to Path
        The trace and the config, where they are files, under ``"trace"`` and ``"model"``, as the
        reader named them.
    work : Path
        An empty folder for the kernel to work in.
    kept : Path
        Where figures, tables and numbers go.

    Raises
    ------
    LedgerError
        What the notebook raised; or that the kernel died.
    """
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").addHandler(logging.NullHandler())  # errors are raised here
    settings.write(work)
    for role, path in files.items():
        (work / role).mkdir()
        link = work / role / base_name(path)
        link.symlink_to(path.resolve())
        beside = path.with_name(_QUANTISED)
        if role == MODEL_FOLDER and path.is_file() and beside.is_file():
            (work / role / _QUANTISED).symlink_to(beside.resolve())
    source = template_file().read_text(encoding="utf-8")
    notebook = nbformat.reads(source, as_version=4)  # a node: Papermill formats paths with braces
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []  # the book's
    with _kernels(work, kept) as manager:
        try:
            result = _interruptible(
                lambda: papermill.execute_notebook(
                    notebook,
                    None,
                    parameters={"settings": SETTINGS_FILE},
                    progress_bar=sys.stderr.isatty(),
                    start_timeout=_STARTUP_S,
                    kernel_manager_class=manager,
                )
            )
        except PapermillExecutionError as error:
            raise _failure(error.ename, error.evalue, work, files) from error
        except DeadKernelError as error:
            raise LedgerError(
                "the process that runs the notebook was ended from outside, as one is that takes "
                "too much memory; accepted: a smaller --first, or a smaller trace"
            ) from error
    return cleaned(result)


@contextmanager
def _kernels(work: Path, kept: Path) -> Iterator[type[Any]]:
    """Give a manager of kernels without the reader's own settings; none outlives the block."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's kernel, not the user's
    from jupyter_client.manager import AsyncKernelManager

    options = {
        "cwd": str(work),
        "env": os.environ
        | {
            "IPYTHONDIR": str(work / ".ipython"),
            "PROOFBOOK_FIGURES_DIR": str(kept / FIGURES_FOLDER),
            FOLDER_VARIABLE: str(kept),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "PYTHONPATH": os.pathsep.join(_import_path()),
        },
        "extra_arguments": ["--log-level=50"],
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    started: list[Any] = []

    class Manager(AsyncKernelManager):
        """Starts kernels there, and remembers their processes."""

        async def start_kernel(self, *_: Any, **given: Any) -> None:  # type: ignore[override]
            self.connection_file = str(work / "kernel.json")
            await super().start_kernel(**(given | options))
            started.append(self.provisioner)

    try:
        yield Manager
    except (KeyboardInterrupt, SystemExit):
        for kernel in started:  # each leads a session of its own; what else ends it, waits for it
            with suppress(OSError):
                os.killpg(kernel.pid, signal.SIGKILL)
                os.waitpid(kernel.pid, 0)
        raise


def _import_path() -> list[str]:
    """Return where a kernel in another folder finds this package and what it needs."""
    home = str(_PACKAGE.parent)
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    given = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return given if home in installed or home in given else [home, *given]


def _interruptible(call: Any) -> Any:
    """Make a call in a thread, so that Ctrl-C is not caught by the loop that waits for a kernel."""
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["result"] = call()
        except BaseException as error:  # handed on to the caller's thread
            outcome["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)  # in short waits, so that a signal is handled
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def _failure(name: str, text: str, work: Path, files: Mapping[str, Path]) -> Exception:
    """Return what a cell raised, about the files as the reader named them."""
    for role, path in files.items():
        text = text.replace(str(work.resolve() / role / base_name(path)), str(path))
    if name == "LedgerError":
        return LedgerError(text)
    if name == "OSError":
        return OSError(re.sub(r"^\[Errno \d+\] |: '.*'$", "", text))
    return RuntimeError(f"the notebook stopped with {name}: {text}")


def cleaned(notebook: Any) -> Any:
    """Return a notebook without what Papermill and the kernel noted about this machine."""
    notebook.metadata = {
        key: notebook.metadata[key] for key in ("kernelspec",) if key in notebook.metadata
    } | {"language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in ("mystnb", "tags")}
        if _INJECTED in cell.metadata.get("tags", ()):
            cell.id = _INJECTED  # in place of a random one
    return notebook


def notebook_text(notebook: Any) -> str:
    """Return a notebook as its file holds it."""
    import nbformat

    return str(nbformat.writes(notebook))
