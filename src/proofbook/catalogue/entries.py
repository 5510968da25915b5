"""What the book shows, one entry each, and where an entry is found."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

What = Literal["number", "figure", "table"]
Kind = Literal["computed", "cited", "measured"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One number, figure or table.

    Attributes
    ----------
    id : str
        ``paged.p4.allocated_slots``, ``fig-slack-share`` or ``tab-slack-share``.
    what : {"number", "figure", "table"}
        Which of these it is.
    kind : {"computed", "cited", "measured"}
        Where its value comes from.
    source : str or None
        Citation, or record file; None of what is computed.
    page : str
        The page that shows it, without suffix: ``chapters/page_tail_slack``.
    cell : str
        Id of the notebook's cell that shows it.
    text : str
        Of a number, the text that is shown; of a figure, its title; of a table, its caption.
    value : str or None
        Of a number, its exact value: ``38``, ``153/4``, ``0.366``, or the words of a text.
    unit : str or None
        Of a number; empty for a pure number, ``text`` for words.
    digest : str
        SHA-256 of the CSV; of a number, see :func:`number_digest`.
    caption : str or None
        Of a figure or table, as plain text, its numbers filled in.
    alt : str or None
        Of a figure, what it shows.

    Examples
    --------
    >>> entry = Entry("a.slots", "number", "computed", None, "chapters/a", "sums", "38.25",
    ...               "153/4", "slots", number_digest("a.slots", "153/4", "slots"), None, None)
    >>> entry.anchor
    'n-a.slots'
    """

    id: str
    what: What
    kind: Kind
    source: str | None
    page: str
    cell: str
    text: str
    value: str | None
    unit: str | None
    digest: str
    caption: str | None
    alt: str | None

    @property
    def anchor(self) -> str:
        """The id of the element that shows it on its page."""
        return f"n-{self.id}" if self.what == "number" else self.id


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries of one version of the book, by id, in the order in which a reader meets them."""

    version: str
    source_digest: str
    entries: Mapping[str, Entry]

    @property
    def pages(self) -> tuple[str, ...]:
        """The pages that show an entry, in order."""
        return tuple(dict.fromkeys(entry.page for entry in self.entries.values()))


def number_digest(id: str, value: str, unit: str) -> str:
    """SHA-256 of a number: of its id, its exact value and its unit.

    Examples
    --------
    >>> number_digest("a.slots", "38", "slots")[:8]
    '067ec7f1'
    """
    return hashlib.sha256(f"{id}\0{value}\0{unit}".encode()).hexdigest()


def permalink(entry: Entry, base_url: str = "") -> str:
    """Address of an entry on its page; relative to the book where no public address is known.

    Examples
    --------
    >>> entry = Entry("fig-a", "figure", "computed", None, "chapters/a", "c", "A", None, None,
    ...               "0" * 64, "A.", "A.")
    >>> permalink(entry), permalink(entry, "https://book.example")
    ('chapters/a.html#fig-a', 'https://book.example/chapters/a.html#fig-a')
    """
    base = base_url.rstrip("/") + "/" if base_url else ""
    return f"{base}{entry.page}.html#{entry.anchor}"
