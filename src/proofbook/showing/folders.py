"""Where the files of figures and tables are saved, and what their JSON says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proofbook import project

__all__ = ["FIGURES_VARIABLE", "figures_folder", "json_bytes", "tables_folder"]

FIGURES_VARIABLE = "KVLEDGER_FIGURES_DIR"


def figures_folder() -> Path:
    """Where figures are saved.

    Returns
    -------
    Path
        ``KVLEDGER_FIGURES_DIR`` if it is set, else ``_build/figures`` of the repository,
        else ``figures`` in the current folder.
    """
    chosen = os.environ.get(FIGURES_VARIABLE)
    if chosen:
        return Path(chosen)
    root = project.repository_root()
    return root / "_build" / "figures" if root is not None else Path("figures")


def tables_folder() -> Path:
    """Where tables are saved.

    Returns
    -------
    Path
        ``tables``, beside :func:`figures_folder`.
    """
    return figures_folder().parent / "tables"


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return JSON as all its files here hold it: readable, the same for the same content."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
