"""Where the raw public traces lie, if they lie anywhere: they are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def raw_folder() -> Path:
    """The folder ``KVLEDGER_RAW_TRACES``, else ``../shared/traces``; skips where there is none."""
    named = os.environ.get("KVLEDGER_RAW_TRACES")
    folder = Path(named) if named else ROOT.parent / "shared" / "traces"
    if not folder.is_dir():
        if named:
            pytest.fail(f"KVLEDGER_RAW_TRACES names {named}, which is no folder")
        pytest.skip("no raw traces: set KVLEDGER_RAW_TRACES to a folder that has them")
    return folder
