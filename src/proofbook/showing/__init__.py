"""What a chapter may show: a number, a table or a figure, each tied to code and data.

Each is one output whose text strict nbval compares when it runs the chapter again. Here stands what
all have in common: an id, a kind, one content for each id, a mark by which they are found again,
and folders for their files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal, get_args

from proofbook import project
from proofbook.errors import InputError
from proofbook.files import replace_whole

Kind = Literal["computed", "cited", "measured"]

#: The key of an output's metadata under which it says what it is.
MARK = "proofbook"
#: The kind of data that holds the text of a number.
RECORD = "application/papermill.record/text/plain"
#: The whole text of a figure's output.
FIGURE_TEXT = re.compile(r"(?P<id>fig-[a-z0-9-]+) · data (?P<digest>[0-9a-f]{8,64})")
#: How the HTML of a table's output begins.
TABLE_HTML = re.compile(r'<div class="kv-table"[^>]*? id="(?P<id>tab-[a-z0-9-]+)"')
#: Words, digits and underscores, joined by dots; no colon, because ``{glue:text}`id:fmt```
#: reads what follows one as a format.
NUMBER_ID = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
TABLE_ID = re.compile(r"tab-[a-z0-9]+(-[a-z0-9]+)*")
FIGURE_ID = re.compile(r"fig-[a-z0-9]+(-[a-z0-9]+)*")
FIGURES_VARIABLE = "PROOFBOOK_FIGURES_DIR"

# Text shown so far under each id: one id says one thing on every page.
_shown: dict[str, str] = {}


def check_id(id: object, pattern: re.Pattern[str], what: str) -> None:
    """Refuse an id that no page could use as an anchor, and no prose could name."""
    if not isinstance(id, str) or not pattern.fullmatch(id):
        raise InputError(f"{what} id: {id!r}; accepted: {pattern.pattern}")


def check_kind(id: str, kind: str, source: str | None) -> None:
    """Refuse a kind that is none, or one without the source that it needs."""
    if kind not in get_args(Kind):
        raise InputError(f"{id}: kind {kind!r}; accepted: {', '.join(get_args(Kind))}")
    if kind == "computed" and source is not None:
        raise InputError(f"{id}: kind 'computed' has no source, got {source!r}")
    if kind != "computed" and not (isinstance(source, str) and source.strip()):
        what = "a citation" if kind == "cited" else "a record file"
        raise InputError(f"{id}: kind {kind!r} needs a source: {what}")


def once(id: str, text: str) -> None:
    """Refuse to let one id say two things in one chapter."""
    if _shown.setdefault(id, text) != text:
        raise InputError(f"{id}: shown before as {_shown[id]!r}, now as {text!r}")


def emit(data: dict[str, object], metadata: dict[str, object]) -> None:
    """Show one output."""
    from IPython.display import display

    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def figures_folder() -> Path:
    """Return where figures are saved.

    That is ``PROOFBOOK_FIGURES_DIR`` if it is set, else ``_build/figures`` of the repository, else
    ``figures`` in the current folder.
    """
    if chosen := os.environ.get(FIGURES_VARIABLE):
        return Path(chosen)
    root = project.repository_root()
    return root / "_build" / "figures" if root is not None else Path("figures")


def tables_folder() -> Path:
    """Return where tables are saved: ``tables``, beside :func:`figures_folder`."""
    return figures_folder().parent / "tables"


def save(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, which is made if need be, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        replace_whole(folder / name, content)


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return JSON as all files of the book hold it: readable, the same for the same content."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def html_table(
    id: str,
    label: str,
    caption: str,
    columns: Mapping[str, str],
    rows: Sequence[Sequence[str]],
    kind: Kind,
) -> str:
    """Return a table that reads aloud well.

    Parameters
    ----------
    id : str
        Its anchor.
    label : str
        What it shows, as plain text.
    caption : str
        HTML of the caption.
    columns : mapping of str to str
        Headings, each with the class of its cells: ``kv-num``, ``kv-long`` or none.
    rows : sequence of sequence of str
        HTML of each cell; the first names its row.
    kind : {"computed", "cited", "measured"}
        Where the values come from.

    Examples
    --------
    >>> made = html_table("t", "One.", "One.", {"a": "", "n": "kv-num"}, [["x", "1"]], "computed")
    >>> print(made.splitlines()[2])
    <thead><tr><th scope="col">a</th><th scope="col" class="kv-num">n</th></tr></thead>
    """
    sides = [f' class="{name}"' if name else "" for name in columns.values()]
    heads = "".join(
        f'<th scope="col"{side}>{escape(name)}</th>'
        for name, side in zip(columns, sides, strict=True)
    )
    lines = [
        f'<div class="kv-table" role="region" tabindex="0" aria-label="{escape(label)}" '
        f'id="{id}" data-kind="{kind}">',
        f"<table><caption>{caption}</caption>",
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    for first, *rest in rows:
        cells = "".join(
            f"<td{side}>{cell}</td>" for side, cell in zip(sides[1:], rest, strict=True)
        )
        lines.append(f'<tr><th scope="row"{sides[0]}>{first}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])
