"""What differs between two editions: every way is seen, nothing else is, and it is said."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from editions import HOSTILE, book, editions, entries, figure, ids, number, sha256
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from proofbook.catalogue import Entry
from proofbook.catalogue.changes import by_page, compare, in_words, markdown, rows, summary
from proofbook.catalogue.editions import Edition


# --------------------------------------------------------------------------- properties
def seen(entry: Entry) -> tuple[Any, ...]:
    """All of an entry that a comparison is about."""
    content = (entry.text, entry.value, entry.unit) if entry.what == "number" else entry.digest
    return entry.what, entry.kind, entry.source, entry.page, content


@given(editions())
def test_a_book_does_not_differ_from_itself(now: Edition) -> None:
    changes = compare(now, now)
    assert (changes.changed, changes.added, changes.removed) == ((), (), ())
    assert ids(changes.same) == list(now.catalogue.entries)
    assert rows(changes) == []
    assert summary(changes)[0].startswith("From now to now: nothing changed, nothing added or")


@given(editions("before"), editions("after"))
def test_old_with_the_changes_is_new(old: Edition, new: Edition) -> None:
    changes = compare(old, new)
    made = {id: seen(entry) for id, entry in old.catalogue.entries.items()}
    for entry in changes.removed:
        del made[entry.id]
    for entry in changes.added:
        assert made.setdefault(entry.id, seen(entry)) == seen(entry)
    for change in changes.changed:
        assert made[change.old.id] == seen(change.old) != seen(change.new)
        made[change.new.id] = seen(change.new)
    assert made == {id: seen(entry) for id, entry in new.catalogue.entries.items()}
    slots = [*ids(changes.same), *ids(changes.added), *(c.new.id for c in changes.changed)]
    assert sorted(slots) == sorted(new.catalogue.entries)


@given(editions("before"), editions("after"))
def test_the_other_way_round_it_is_the_other_way_round(old: Edition, new: Edition) -> None:
    there, back = compare(old, new), compare(new, old)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert {(c.old, c.new, c.ways) for c in there.changed} == {
        (c.new, c.old, c.ways) for c in back.changed
    }


@given(editions("before"), editions("after"))
def test_every_difference_stands_on_one_page_and_in_every_form(old: Edition, new: Edition) -> None:
    changes = compare(old, new)
    pages = by_page(changes)
    assert sorted(c.new.id for p in pages for c in p.changed) == sorted(
        c.new.id for c in changes.changed
    )
    assert sorted(e.id for p in pages for e in p.added) == sorted(ids(changes.added))
    assert sorted(e.id for p in pages for e in p.removed) == sorted(ids(changes.removed))
    text, shown = markdown(changes), {row[2] for row in rows(changes)}
    assert text.count("<details") == text.count("</details>") == len(pages)
    for entry in (*changes.added, *changes.removed, *(c.new for c in changes.changed)):
        assert f"`{entry.id}`" in text
        assert entry.id in shown
    assert not {entry.id for entry in changes.same} & shown


@given(st.lists(st.tuples(entries(), HOSTILE, HOSTILE), max_size=4, unique_by=lambda t: t[0].id))
def test_texts_from_outside_stay_texts_in_markdown(found: list[tuple[Entry, str, str]]) -> None:
    """Whatever a page, a text or a source holds, the Markdown has the slots it has without it."""

    def shape(texts: list[tuple[Entry, str, str]]) -> list[str]:
        old = [replace(e, text=a, source=a, kind="cited", value=a) for e, a, _ in texts]
        new = [replace(e, text=b, source=b, kind="cited", value=b) for e, _, b in texts]
        parsed = MarkdownIt("commonmark").parse(markdown(compare(book(*old), book(*new))))
        inline = [child.type for token in parsed for child in token.children or ()]
        return [token.type for token in parsed] + inline

    assert shape(found) == shape([(e, "a", "b") if a != b else (e, "a", "a") for e, a, b in found])


# --------------------------------------------------------------------------- ways to differ
HIDDEN = "37% (exactly 183/500 %), now 37% (exactly 184/500 %)"  # by rounding
DIGESTS = f"other data ({sha256('old')[:8]}, now {sha256('new')[:8]})"
CITED = number("a.b", kind="cited", source="Smith 2020")
AGAIN = replace(CITED, source="Jones 2021", page="chapters/second", text="5", value="5")
WAYS = [
    (number("a.b", "9"), number("a.b", "10"), "value", "9 slots, now 10 slots"),
    (number("a.b", "4", "slots"), number("a.b", "4", "pages"), "value", "4 slots, now 4 pages"),
    (
        number("a.b", "9.6458", text="9.6"),
        number("a.b", "9.6458", text="9.65"),
        "value",
        "9.6 slots, now 9.65 slots",
    ),
    (
        number("a.b", "183/500", "%", text="37%"),
        number("a.b", "184/500", "%", text="37%"),
        "value",
        HIDDEN,
    ),
    (figure("fig-a", "old"), figure("fig-a", "new"), "data", DIGESTS),
    (figure("tab-a", "old"), figure("tab-a", "new"), "data", DIGESTS),
    (number("a.b"), number("a.b", page="chapters/second"), "page", "moved here from first"),
    (number("a.b"), CITED, "kind", "was computed, is cited (Smith 2020)"),
    (CITED, AGAIN, "value source page", "was cited (Smith 2020), is cited (Jones 2021)"),
]


@pytest.mark.parametrize(("old", "new", "ways", "said"), WAYS)
def test_each_way_to_differ_is_said(old: Entry, new: Entry, ways: str, said: str) -> None:
    (change,) = compare(book(old), book(new)).changed
    assert change.ways == tuple(ways.split())
    assert said in (in_words(change) if " " not in ways else in_words(change)[1:2])


def test_words_alone_are_no_change_and_another_sort_is_another_entry() -> None:
    old = figure("fig-a")
    new = replace(old, text="Other", caption="Other.", alt="Other.", cell="other")
    assert compare(book(old), book(new)).changed == ()
    changes = compare(book(figure("fig-a")), book(replace(number("a"), id="fig-a")))
    assert (ids(changes.removed), ids(changes.added)) == (["fig-a"], ["fig-a"])
    assert changes.changed == ()


# --------------------------------------------------------------------------- early editions
def test_early_notebooks_are_compared_by_what_they_hold() -> None:
    old = book(number("a.b", "9000", ""), number("a.c", "4", ""), early=["a.b", "a.c"])
    changes = compare(old, book(number("a.b", "9000", "slots"), number("a.c", "5", "slots")))
    assert [change.new.id for change in changes.changed] == ["a.c"]
    assert ids(changes.by_text) == ["a.b", "a.c"]
    assert "2 numbers are compared by the text shown" in summary(changes)[1]
    old = book(figure("fig-a", digest=sha256("x")[:8]), figure("fig-b", digest="0" * 8))
    changes = compare(old, book(figure("fig-a", "x"), figure("fig-b", "x")))
    assert [change.new.id for change in changes.changed] == ["fig-b"]
    assert changes.by_text == ()
    tables = [figure("tab-a", "text"), figure("tab-b", "text"), figure("tab-c", "text")]
    old = book(*tables, early=["tab-a", "tab-b", "tab-c"], table_rows={"tab-a": "1", "tab-b": "1"})
    new = book(
        *(replace(table, digest=sha256("data")) for table in tables),
        table_rows={"tab-a": "1", "tab-b": "2", "tab-c": "3"},
    )
    changes = compare(old, new)
    (change,) = changes.changed
    # The digest of a text and that of data would differ whatever they say.
    assert (change.new.id, in_words(change), rows(changes)[0][3:]) == (
        "tab-b", ["other rows"], ["", "other rows"],
    )  # fmt: skip
    assert ids(changes.by_text) == ["tab-a", "tab-b"]
    assert ids(changes.unknown) == ["tab-c"]
    assert ids(changes.same) == ["tab-a"]
    assert "1 table has the same name on both sides but cannot be compared" in summary(changes)[2]


# --------------------------------------------------------------------------- in words
def test_the_summary_counts_each_sort_and_closes_long_parts() -> None:
    old = book(number("a.b"), figure("fig-a"), number("a.gone"), name="0.1.0")
    new = book(number("a.b", "5"), figure("fig-a"), figure("tab-a"), figure("tab-b"), name="0.2.0")
    assert summary(compare(old, new)) == [
        "From 0.1.0 to 0.2.0: 1 number changed; 2 tables added; 1 number removed; 1 figure is the "
        "same."
    ]
    many = [number(f"a.n{i}", page="chapters/second") for i in range(500)]
    text = markdown(compare(book(number("a.b")), book(number("a.b"), *many)))
    opened, rest = text.split("<details")
    assert len(opened.splitlines()) <= 2
    assert rest.startswith(' class="kv-changes">\n<summary><code>second</code>, a new page: 500')
    assert [line[:20] for line in rest.splitlines() if line.startswith("-")] == [
        "- Added: 500 numbers"
    ]
    text = markdown(compare(book(number("a.b", page="chapters/<old>")), book()))
    assert "<summary><code>&lt;old&gt;</code>, a page that is gone: 1 removed</summary>" in text
    assert not re.search("<(?!/?(details|summary|code))", text)
