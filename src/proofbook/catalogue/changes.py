"""What differs between two editions of the book: values, data, kinds, places, comings and goings.

A number's value is compared exactly, and a figure's or table's data by their digest. Where one side
is too old to keep these, what it shows is compared instead, and the answer says so.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from proofbook.catalogue import SHORT_DIGEST, Entry, What
from proofbook.catalogue.editions import Edition
from proofbook.plaintext import counted, listed, printable

Way = Literal["value", "data", "kind", "source", "page"]

#: Units that the text of a number shows by itself, or that are none.
_SAID_UNITS = {None, "", "%", "bytes", "text"}
#: How each way to differ is said of what was and what is.
_SAID: Mapping[Way, str] = {
    "value": "{}, now {}",
    "data": "other data ({}, now {})",
    "kind": "was {}, is {}",
    "source": "was {}, is {}",
    "page": "moved here from {}",
}
_MARKS = re.compile(r"([\\`*_{}\[\]<>|$&~!@#])")


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One number, figure or table that both editions have, and in which ways it differs.

    ``by_text`` tells that what is shown was compared: the two digests are then of different things.
    """

    old: Entry
    new: Entry
    ways: tuple[Way, ...]
    by_text: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """All that differs between two editions, each part in the order of the pages.

    ``by_text`` names what could only be compared by what it shows, ``unknown`` what could not be
    compared at all.
    """

    old: Edition
    new: Edition
    changed: tuple[EntryChange, ...]
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]
    by_text: tuple[Entry, ...]
    unknown: tuple[Entry, ...]

    @property
    def same(self) -> tuple[Entry, ...]:
        """What both editions have and no way tells apart."""
        differ = {change.new.id for change in self.changed}
        differ |= {entry.id for entry in (*self.added, *self.unknown)}
        return tuple(e for e in self.new.catalogue.entries.values() if e.id not in differ)


def compare(old: Edition, new: Edition) -> Changes:
    """Compare two editions.

    An id that stands for another sort of thing in `new` (a table, say, in place of a figure) is
    removed and added.

    Examples
    --------
    >>> from proofbook.catalogue import Catalogue
    >>> book = Edition("now", Catalogue("0.2.0", "0" * 64, {}))
    >>> summary(compare(book, book))
    ['From now to now: nothing changed, nothing added or removed.']
    """
    before, after = old.catalogue.entries, new.catalogue.entries
    changed: list[EntryChange] = []
    by_text: list[Entry] = []
    unknown: list[Entry] = []
    for other in after.values():
        one = before.get(other.id)
        if one is None or one.what != other.what:
            continue
        same, exactly = _same_content(one, other, old, new)
        ways: list[Way] = []
        if same is None:
            unknown.append(other)
        elif not same:
            ways.append("value" if other.what == "number" else "data")
        if not exactly:
            by_text.append(other)
        if one.kind != other.kind:
            ways.append("kind")
        elif one.source != other.source:
            ways.append("source")
        if one.page != other.page:
            ways.append("page")
        if ways:
            changed.append(EntryChange(one, other, tuple(ways), not exactly))
    added, removed = _without(after, before), _without(before, after)
    return Changes(old, new, tuple(changed), added, removed, tuple(by_text), tuple(unknown))


def _without(these: Mapping[str, Entry], those: Mapping[str, Entry]) -> tuple[Entry, ...]:
    sorts = {(entry.id, entry.what) for entry in those.values()}
    return tuple(entry for entry in these.values() if (entry.id, entry.what) not in sorts)


def _same_content(one: Entry, other: Entry, old: Edition, new: Edition) -> tuple[bool | None, bool]:
    """Tell whether the content is the same (None: nobody knows), and whether all of it was seen."""
    early = one.id in old.printed.early or other.id in new.printed.early
    if one.what == "number" and early:
        return one.text == other.text, False
    if one.what == "number":
        return (one.value, one.unit, one.text) == (other.value, other.unit, other.text), True
    if not early:
        # An early release has the first digits of a figure's digest: enough to tell data apart.
        length = min(len(one.digest), len(other.digest))
        return one.digest[:length] == other.digest[:length], True
    rows = old.printed.table_rows.get(one.id), new.printed.table_rows.get(other.id)
    return (None, True) if None in rows else (rows[0] == rows[1], False)


# ---------------------------------------------------------------- in words


def _count(entries: Sequence[Entry], one: str = "", many: str = "") -> str:
    """Say how many numbers, figures and tables these are, and a verb."""
    counts = {what: sum(e.what == what for e in entries) for what in get_args(What)}
    said = listed([counted(n, what) for what, n in counts.items() if n])
    return f"{said} {one if len(entries) == 1 else many}".rstrip()


def summary(changes: Changes) -> list[str]:
    """Say in a sentence or more what happened, and what could not be compared whole."""
    groups = {
        "changed": [change.new for change in changes.changed],
        "added": changes.added,
        "removed": changes.removed,
    }
    said = [f"{_count(entries)} {word}" for word, entries in groups.items() if entries]
    nothing = " or ".join(word for word, entries in groups.items() if not entries)
    if not said:
        said = ["nothing changed, nothing added or removed"]
    elif nothing:
        said.append(f"nothing {nothing}")
    if changes.same:
        said.append(f"{_count(changes.same, 'is', 'are')} the same")
    sentences = [f"From {changes.old.name} to {changes.new.name}: {'; '.join(said)}."]
    if changes.by_text:
        sentences.append(
            f"{_count(changes.by_text, 'is', 'are')} compared by the text shown, because one side "
            "keeps no exact values of them."
        )
    if changes.unknown:
        sentences.append(
            f"{_count(changes.unknown, 'has', 'have')} the same name on both sides but cannot be "
            "compared: one side keeps no digest of the data."
        )
    return sentences


def in_words(change: EntryChange) -> list[str]:
    """Say each way in which one thing differs, as ``was`` and ``is``, ready for a sentence."""
    pairs = [(_SAID[way], *_was_is(change, way)) for way in change.ways]
    return [said.format(was, now) if was else now for said, was, now in pairs]


def _was_is(change: EntryChange, way: Way) -> tuple[str, str]:
    old, new = change.old, change.new
    if way == "value":
        was, now = _with_unit(old), _with_unit(new)
        if was != now:
            return was, now
        return f"{was} (exactly {old.value} {old.unit})", f"{now} (exactly {new.value} {new.unit})"
    if way == "data":
        if change.by_text:
            return "", "other rows"
        return old.digest[:SHORT_DIGEST], new.digest[:SHORT_DIGEST]
    if way == "page":
        return _page(old), _page(new)
    return origin(old), origin(new)


def _with_unit(entry: Entry) -> str:
    return entry.text if entry.unit in _SAID_UNITS else f"{entry.text} {entry.unit}"


def origin(entry: Entry) -> str:
    """Say where an entry's value comes from: its kind, and its source if it has one."""
    return f"{entry.kind} ({entry.source})" if entry.source else entry.kind


def _page(entry: Entry) -> str:
    return entry.page.removeprefix("chapters/")


class PageChanges(NamedTuple):
    """What differs on one page."""

    page: str
    changed: list[EntryChange]
    added: list[Entry]
    removed: list[Entry]


def by_page(changes: Changes) -> list[PageChanges]:
    """Part what differs by page, in the order of the newer edition, then of the older."""
    pages: dict[str, PageChanges] = {}
    for edition in (changes.new, changes.old):
        for entry in edition.catalogue.entries.values():
            pages.setdefault(_page(entry), PageChanges(_page(entry), [], [], []))
    for change in changes.changed:
        pages[_page(change.new)].changed.append(change)
    for entry in changes.added:
        pages[_page(entry)].added.append(entry)
    for entry in changes.removed:
        pages[_page(entry)].removed.append(entry)
    return [page for page in pages.values() if page.changed or page.added or page.removed]


def rows(changes: Changes) -> list[list[str]]:
    """Return lines for a terminal: page, what happened, id, was, is."""
    lines = []
    for page in by_page(changes):
        for change in page.changed:
            lines += [[page.page, way, change.new.id, *_was_is(change, way)] for way in change.ways]
        lines += [[page.page, "added", entry.id, "", _brief(entry)] for entry in page.added]
        lines += [[page.page, "removed", entry.id, _brief(entry), ""] for entry in page.removed]
    return lines


def _brief(entry: Entry) -> str:
    return _with_unit(entry) if entry.what == "number" else f"data {entry.digest[:SHORT_DIGEST]}"


# ---------------------------------------------------------------- Markdown


def markdown(changes: Changes) -> str:
    """Return what differs as Markdown: a summary, then a part for each page that opens.

    Texts of the editions are data: nothing in them is read as Markdown or HTML.
    """
    here, there = (
        {_page(e) for e in edition.catalogue.entries.values()}
        for edition in (changes.new, changes.old)
    )
    out = [" ".join(_escaped(sentence) for sentence in summary(changes)), ""]
    for page in by_page(changes):
        parts: dict[str, Sized] = {"changed": page.changed, "added": page.added}
        parts["removed"] = page.removed
        counts = ", ".join(f"{len(these):,} {word}" for word, these in parts.items() if these)
        gone = "" if page.page in here else ", a page that is gone"
        state = gone if page.page in there else ", a new page"
        out += [
            '<details class="kv-changes">',
            f"<summary><code>{html.escape(printable(page.page))}</code>{state}: {counts}</summary>",
            "",
        ]
        for change in page.changed:
            out.append(f"- {_code(change.new.id)}: {_escaped('; '.join(in_words(change)))}.")
        for word, entries in (("Added", page.added), ("Removed", page.removed)):
            for what in get_args(What):
                these = [entry for entry in entries if entry.what == what]
                ids = ", ".join(_code(entry.id) for entry in these)
                out += [f"- {word}: {_count(these)}: {ids}."] if these else []
        out += ["", "</details>", ""]
    return "\n".join(out)


def _escaped(text: str) -> str:
    """Return a text whose every character shows as itself in Markdown."""
    return _MARKS.sub(r"\\\1", printable(text))


def _code(text: str) -> str:
    """Return a text as a span of code, whatever backticks it holds."""
    text = printable(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"
