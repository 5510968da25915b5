"""The formula of the fixture book; a test edits it."""

import os
from pathlib import Path


def allocated(lengths: list[int], page: int) -> int:
    """Return the slots of whole pages that hold each length."""
    return sum(-(-n // page) * page for n in lengths)


def note_run(name: str) -> None:
    """Add a line to the log that counts how often a notebook really ran."""
    log = os.environ.get("FIXTURE_LOG")
    if log:
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(f"{name}\n")
