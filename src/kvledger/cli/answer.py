"""What a command found: tables for people, and the same as exact JSON for programs.

Names of files, models and columns come from outside. They are data here too: nothing in them is
read as markup, and what would steer a terminal is written out.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proofbook.plaintext import json_text, printable

_PIPED_WIDTH = 10_000  # nothing is folded where no terminal sets a width


class Table(NamedTuple):
    """Rows of texts under headings; the first ``left`` columns are aligned to the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


def answer(parts: Sequence[str | Table], document: Mapping[str, Any], as_json: bool) -> str:
    """Return lines and tables as text, or the document as JSON, without the last line's end."""
    if as_json:
        return json_text(document)
    from rich import box  # a tenth of a second that --json does not wait for
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=None if terminal else _PIPED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        if isinstance(part, str):
            console.print(Text(printable(part)), soft_wrap=True)
            continue
        shown = RichTable(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False)
        for i, column in enumerate(part.columns):
            side = "left" if i < part.left else "right"
            shown.add_column(Text(printable(column)), justify=side, overflow="fold")  # type: ignore[arg-type]
        for row in part.rows:
            shown.add_row(*(Text(printable(cell)) for cell in row))
        console.print(shown)
    lines = console.file.getvalue().split("\n")  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines).rstrip()
