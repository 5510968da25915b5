"""The raw public traces, which are not part of the repository, and traces as plain lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kvledger as kv

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


def lists(trace: kv.Trace) -> tuple[list[int], list[int], list[float] | None]:
    """Return prompts, outputs and arrivals."""
    arrivals = None if trace.arrival_s is None else trace.arrival_s.tolist()
    return trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), arrivals
