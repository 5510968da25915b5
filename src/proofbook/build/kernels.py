"""A notebook run in a kernel of its own, whatever the user's own Jupyter and IPython settings."""

# Jupyter ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from proofbook.errors import InputError

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_TIMEOUT_S = 300
_STARTUP_S = 120
_NOT_RAISED = {"CellTimeoutError", "DeadKernelError"}


class CellError(InputError):
    """A cell that raised, took too long, or whose kernel died.

    Its `cell` is the cell's id, and `said` what it raised in one line: `name` and `text`, or the
    text alone where `name` is ``CellTimeoutError`` or ``DeadKernelError``.
    """

    def __init__(self, place: str, cell: str, name: str, text: str, line: str = "") -> None:
        self.cell, self.name, self.text = cell, name, text
        self.said = text if name in _NOT_RAISED else f"{name}: {text}"
        super().__init__(f"{place}: {self.said}" + (f"\n    {line}" if line else ""))


def run_notebook(
    notebook: Any,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    until: str | None = None,
    timeout_s: int | None = CELL_TIMEOUT_S,
    progress: str | None = None,
) -> None:
    """Run a notebook in place, in a kernel of its own that does not outlive the call.

    Ctrl-C, and an exception that a signal's handler raises, end the kernel at once.

    Parameters
    ----------
    notebook : NotebookNode
        What to run, of nbformat 4; its outputs are replaced.
    folder : Path
        The kernel's working folder.
    environment : mapping of str to str, optional
        Variables of the kernel, over those of this process.
    until : str, optional
        The id of the last cell to run; what follows is cut off, and so are cells without code.
    timeout_s : int or None
        The longest that a cell may take; None sets no limit.
    progress : str, optional
        What a bar on stderr says, if that is a terminal; there is none without it.

    Raises
    ------
    CellError
        If a cell raises, takes too long, or the kernel dies; outputs up to there stay.
    InputError
        If there is no kernel ``python3``, or no cell has the id `until`.

    Examples
    --------
    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> notebook = new_notebook(cells=[new_code_cell("1 / 0", id="divide")])
    >>> run_notebook(notebook, Path("."))
    Traceback (most recent call last):
        ...
    proofbook.build.kernels.CellError: code cell 1 of 1 (id divide), line 1: \
ZeroDivisionError: division by zero
        1 / 0
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from tqdm import tqdm

    if until is not None:
        ids = [cell.get("id") for cell in notebook.cells]
        if until not in ids:
            raise InputError(f"the notebook has no cell {until!r}; accepted: a cell's id")
        kept = notebook.cells[: ids.index(until) + 1]
        notebook.cells = [cell for cell in kept if cell.cell_type == "code"]
    _check_kernel()
    cells, at = len(notebook.cells), 0
    no_bar = True if progress is None else None  # None asks whether stderr is a terminal
    with (
        tempfile.TemporaryDirectory(prefix="kernel-") as own,
        tqdm(total=cells, desc=progress, unit=" cells", disable=no_bar) as bar,
    ):

        def note(cell: Any, cell_index: int) -> None:
            nonlocal at
            at = cell_index
            bar.update(cell_index - bar.n)

        client = NotebookClient(
            notebook,
            timeout=timeout_s,
            startup_timeout=_STARTUP_S,
            kernel_name=KERNELSPEC["name"],
            record_timing=False,
            extra_arguments=["--log-level=50"],
            resources={"metadata": {"path": str(folder)}},
            on_cell_start=note,
        )
        client.create_kernel_manager().connection_file = str(Path(own) / "kernel.json")
        settings = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "IPYTHONDIR": own}
        try:
            _execute(client, settings | dict(environment or {}))
        except CellExecutionError as error:
            raise _failure(notebook, at, str(error.ename), str(error.evalue)) from None
        except CellTimeoutError:
            said = f"took longer than {timeout_s} s"
            raise _failure(notebook, at, "CellTimeoutError", said) from None
        except DeadKernelError:
            raise _failure(notebook, at, "DeadKernelError", "its process was ended") from None
        bar.update(cells - bar.n)


def _execute(client: Any, environment: dict[str, str]) -> None:
    """Run cells in a thread, so that Ctrl-C reaches this one, which then ends the kernel."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            client.execute(env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


def cell_name(notebook: Any, index: int) -> str:
    """Return how a person finds a code cell: which one it is, and its id."""
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    number = code.index(index) + 1
    return f"code cell {number} of {len(code)} (id {notebook.cells[index].get('id')})"


def _failure(notebook: Any, index: int, name: str, text: str) -> CellError:
    """Say which cell failed, at which of its lines, and with what."""
    cell, place, line = notebook.cells[index], cell_name(notebook, index), ""
    errors = [each for each in cell.get("outputs", ()) if each.get("output_type") == "error"]
    if errors and name not in _NOT_RAISED:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(errors[0].traceback))
        lines = re.findall(rf"Cell In\[{cell.get('execution_count')}\], line (\d+)", trace)
        number = int(lines[-1]) if lines else 1
        line = "".join(cell.source.splitlines()[number - 1 : number]).strip()
        place += f", line {number}"
    return CellError(place, str(cell.get("id")), name, text, line)


# ---------------------------------------------------------------- this Python, this checkout


def kernel_environment(root: Path) -> dict[str, str]:
    """Return the variables with which a kernel imports a checkout's own packages."""
    paths = [str(root / "src"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def prepare_kernels(root: Path) -> None:
    """See to it that every kernel that this process starts runs this Python, on this checkout.

    It is an InputError if the kernel named python3 is another Python's.
    """
    os.environ.update(kernel_environment(root))
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    # A start-up file in the user's own IPython profile would be part of every result.
    os.environ["IPYTHONDIR"] = str(root / "_build" / "ipython")
    _check_kernel()
    # Its first use anywhere builds a font list and says so on stderr, which would fail a cell.
    importlib.import_module("matplotlib.font_manager")


def _check_kernel() -> None:
    # This environment's kernel before the user's.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        command = KernelSpecManager().get_kernel_spec(KERNELSPEC["name"]).argv[0]
    except NoSuchKernel as error:
        raise InputError("there is no kernel 'python3'; install ipykernel") from error
    # jupyter_client replaces a bare name with the Python that it runs in.
    if os.sep in command and Path(command).absolute() != Path(sys.executable).absolute():
        raise InputError(
            f"the kernel 'python3' runs {command}, but this is {sys.executable}; remove that "
            "kernel or reinstall ipykernel here"
        )
