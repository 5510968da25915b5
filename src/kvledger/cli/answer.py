"""What a command found: tables for people, and the same as exact JSON for programs.

Names of files, models and columns come from outside. They are data here too: nothing in them is
read as markup, and what would steer a terminal is written out.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from proofbook.plaintext import printable

Json: TypeAlias = Any
_PIPED_WIDTH = 10_000  # nothing is folded where no terminal sets a width


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under headings; the first ``left`` columns are aligned to the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Lines and tables in the order shown, and the document that ``--json`` prints instead."""

    parts: Sequence[str | Table]
    document: Mapping[str, Json]

    def text(self, as_json: bool) -> str:
        """Return all of it as text, without the last line's end."""
        return json_text(self.document) if as_json else _for_people(self.parts)


def exact(value: object) -> Json:
    """Return a value as JSON has it: whole numbers as they are, fractions as texts.

    Examples
    --------
    >>> exact({"c": Fraction(3, 14), "pages": 10, "end": float("inf")})
    {'c': '3/14', 'pages': 10, 'end': None}
    """
    if isinstance(value, Mapping):
        return {str(key): exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float) and value == float("inf"):
        return None
    return value


def json_text(document: Mapping[str, Json]) -> str:
    """Return a document as JSON in ASCII, which no terminal obeys."""
    return json.dumps(exact(document), indent=1, allow_nan=False)


def _for_people(parts: Sequence[str | Table]) -> str:
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
