"""What all outputs have in common: an id, a kind, and one content for each id."""

from __future__ import annotations

import re
from typing import Literal

from proofbook.claims import NUMBER_ID
from proofbook.errors import InputError
from proofbook.marks import RECORD

Kind = Literal["computed", "cited", "measured"]

KINDS = ("computed", "cited", "measured")
MIME_PREFIX = RECORD.removesuffix("text/plain")

TABLE_ID = re.compile(r"tab-[a-z0-9]+(-[a-z0-9]+)*")
FIGURE_ID = re.compile(r"fig-[a-z0-9]+(-[a-z0-9]+)*")

# Text shown so far under each id: one id says one thing on every page.
_shown: dict[str, str] = {}


def check_kind(id: str, kind: str, source: str | None) -> None:
    """Refuse a kind that is none, or one without the source that it needs."""
    if kind not in KINDS:
        raise InputError(f"{id}: kind {kind!r}; accepted: {', '.join(KINDS)}")
    if kind == "computed" and source is not None:
        raise InputError(f"{id}: kind 'computed' has no source, got {source!r}")
    if kind != "computed" and not (isinstance(source, str) and source.strip()):
        what = "a citation" if kind == "cited" else "a record file"
        raise InputError(f"{id}: kind {kind!r} needs a source: {what}")


def check_id(id: object, pattern: re.Pattern[str], what: str) -> str:
    """Refuse an id that no page could use as an anchor."""
    if not isinstance(id, str) or not pattern.fullmatch(id):
        raise InputError(f"{what} id: {id!r}; accepted: {pattern.pattern}")
    return id


def check_number_id(id: object) -> str:
    """Refuse an id that prose could not name."""
    return check_id(id, NUMBER_ID, "number")


def once(id: str, text: str) -> None:
    """Refuse to let one id say two things in one chapter."""
    if _shown.setdefault(id, text) != text:
        raise InputError(f"{id}: shown before as {_shown[id]!r}, now as {text!r}")


def emit(data: dict[str, object], metadata: dict[str, object]) -> None:
    """Show one output."""
    from IPython.display import display

    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
