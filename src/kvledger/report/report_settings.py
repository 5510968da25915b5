"""What a report is asked for, passed to its notebook as data: a JSON file, never as code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kvledger.core.errors import LedgerError
from kvledger.models.known import load_model, load_models
from kvledger.report.deployment import (
    DEFAULT_FIRST,
    DEFAULT_STEP_S,
    Deployment,
    read_deployment,
)

SETTINGS_FILE = "settings.json"
TRACE_FOLDER, MODEL_FOLDER = "trace", "model"
FOLDER_VARIABLE = "KVLEDGER_REPORT_DIR"
"""Names the folder where a notebook that is run for a report keeps its tables and numbers."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A trace, a model and a memory, and how they are looked at.

    Parameters
    ----------
    trace : str
        A file's base name, or a committed trace.
    model : str
        A known model, or the base name of a ``config.json`` or of its folder.
    kv_memory : str
        As :func:`~kvledger.core.units.parse_bytes` reads it.
    model_name : str, optional
        What to call a model that is read from a file; the base name if not given.
    dtype : str, optional
        Data type of the cache.
    tensor_parallel : int
        Ranks that share the KV heads.
    reading : mapping of str to str
        Options of :func:`~kvledger.load_trace`: ``format`` and ``unusable``.
    page_size, max_running, first, step_s
        As of a :class:`~kvledger.report.deployment.Deployment`.
    """

    trace: str
    model: str
    kv_memory: str
    model_name: str | None = None
    dtype: str | None = None
    tensor_parallel: int = 1
    page_size: int = 16
    max_running: int = 256
    first: int = DEFAULT_FIRST
    step_s: tuple[float, float, float] = DEFAULT_STEP_S
    reading: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write them to ``settings.json``."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        (folder / SETTINGS_FILE).write_text(text, encoding="ascii")


def open_deployment(
    trace: str, model: str, kv_memory: str, *, settings: str | Path | None = None
) -> Deployment:
    """Return what a notebook names, or what a file of settings names instead.

    Parameters
    ----------
    trace, model, kv_memory : str
        As :func:`~kvledger.report.deployment.read_deployment` takes them; where there are
        settings, they are not used.
    settings : path, optional
        A file that :meth:`Settings.write` wrote. Its trace and config are looked for beside it.

    Examples
    --------
    >>> open_deployment("azure_code_2023", "Llama-3.1-8B", "60GiB").total.n_requests
    8819
    """
    try:
        return _open(trace, model, kv_memory, settings)
    except LedgerError as error:
        # A notebook tells the command what stopped it by name: there is one name for bad input.
        raise LedgerError(str(error)) from error


def _open(trace: str, model: str, kv_memory: str, settings: str | Path | None) -> Deployment:
    if settings is None:
        return read_deployment(trace, model, kv_memory)
    path = Path(settings)
    given = read_settings(path)
    folder = path.resolve().parent
    return read_deployment(
        _beside(folder, TRACE_FOLDER, given.trace),
        load_model(
            given.model
            if given.model in load_models()
            else _beside(folder, MODEL_FOLDER, given.model),
            given.dtype,
            given.tensor_parallel,
            name=given.model_name or base_name(Path(given.model)),
        ),
        given.kv_memory,
        page_size=given.page_size,
        max_running=given.max_running,
        first=given.first,
        step_s=given.step_s,
        reading=given.reading,
    )


def read_settings(path: Path) -> Settings:
    """Read a file of settings.

    Raises
    ------
    LedgerError
        If it cannot be read, or holds something else.
    """
    names = [each.name for each in fields(Settings)]
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        settings = Settings(**found | {"step_s": tuple(found["step_s"])})
        if not set(settings.reading) <= {"format", "unusable"}:
            raise ValueError(f"reading is {settings.reading!r}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{path}: no settings of a report ({error}); accepted: {', '.join(names)}"
        ) from None
    return settings


def base_name(path: Path) -> str:
    """Return the last part of a path, of ``.`` too."""
    return path.absolute().name


def _beside(folder: Path, within: str, name: str) -> str | Path:
    """Return the file of a name: in its folder or beside the settings; else the name itself."""
    base = base_name(Path(name))
    for path in (folder / within / base, folder / base):
        if base and path.exists():
            return path
    return name
