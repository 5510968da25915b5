"""Citations: read back by a BibTeX parser, whatever a title holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pybtex.database import parse_string

from proofbook.catalogue import Catalogue, Entry
from proofbook.catalogue.citations import (
    RELEASE_YEAR,
    bibtex,
    escaped,
    permalink,
    plain,
    title,
)
from proofbook.catalogue.notebook_entries import stored_catalogue

ROOT = Path(__file__).resolve().parents[2]
FIGURE = Entry(
    "fig-a", "figure", "measured", "data/run.json", "chapters/a_b", "c", "Slack grows", None, None,
    "0123456789abcdef" * 4, "Slack grows.", "A line that rises.",
)  # fmt: skip
BOOK = Catalogue("1.2", "f" * 64, {"fig-a": FIGURE})

#: What TeX shows for a command without arguments that an escaped text may hold.
SHOWN = {
    "textbackslash": "\\",
    "textbraceleft": "{",
    "textbraceright": "}",
    "textasciicircum": "^",
    "textasciitilde": "~",
}


def typeset(field: str) -> str:
    """What TeX shows of a field: the commands that are known, and no other."""
    text = re.sub(r"\\([a-z]+)\{\}", lambda m: SHOWN[m[1]], field)
    return re.sub(r"\\([&%$#_])", r"\1", text)


def fields(text: str) -> dict[str, str]:
    (entry,) = parse_string(text, "bibtex").entries.values()
    return {**entry.fields, "author": " and ".join(map(str, entry.persons["author"]))}


def one_line(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_title_comes_back(words: str) -> None:
    found = fields(bibtex(replace(FIGURE, text=words), BOOK))
    outer = re.fullmatch(r"\{(.*)\}", found["title"], re.DOTALL)
    assert outer is not None
    assert typeset(outer[1]).split() == one_line(words).removesuffix(".").split()
    assert set(found) == {"title", "author", "year", "version", "url", "note"}
    assert found["url"] == "chapters/a_b.html#fig-a"


@given(st.text(st.sampled_from("\\{}%$#_&~^\"'@,= a\n"), max_size=30))
def test_hostile_words_stay_words(words: str) -> None:
    source = one_line(words).strip() or "x"
    found = fields(bibtex(replace(FIGURE, text=words, source=source), BOOK))
    said = typeset(found["note"])
    assert said.split() == (
        "kvledger 1.2, figure fig-a, data digest 01234567, measured "
        f"({one_line(source).rstrip('.')})"
    ).split()  # fmt: skip


@given(st.text(st.sampled_from("\\{}%$#_&~^ab"), max_size=30))
def test_an_escaped_text_has_balanced_braces(words: str) -> None:
    text = escaped(words)
    assert text.count("{") == text.count("}")
    assert typeset(text) == one_line(words)
    assert not re.search(r"(?<!\\)[%$#&_^~]", text)


def test_both_say_all_that_leads_back() -> None:
    for text in (bibtex(FIGURE, BOOK), plain(FIGURE, BOOK)):
        for part in ("kvledger", "1.2", "fig-a", "01234567", "measured", "data/run.json",
                     "chapters/a_b.html#fig-a", str(RELEASE_YEAR), "Slack grows"):  # fmt: skip
            assert part in text
    assert "\n" not in plain(FIGURE, BOOK)
    base = "https://book.example/v1"
    assert f"{base}/chapters/a_b.html#fig-a" in plain(FIGURE, BOOK, base)
    assert fields(bibtex(FIGURE, BOOK, base))["url"] == permalink(FIGURE, base)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"text": "38", "value": "38", "unit": "slots"}, "a.n: 38 slots"),
        ({"text": "4.2", "value": "21/5", "unit": ""}, "a.n: 4.2"),
        ({"text": "36.6%", "value": "36.6", "unit": "%"}, "a.n: 36.6%"),
        ({"text": "1.6", "value": "1.64", "unit": "%"}, "a.n: 1.6%"),
        ({"text": "96.3%", "value": "963/10", "unit": "% of KV memory"}, "a.n: 96.3% of KV memory"),
        ({"text": "60\u00a0GiB", "value": "64424509440", "unit": "bytes"}, "a.n: 60 GiB"),
        ({"text": "Azure chat", "value": "Azure chat", "unit": "text"}, "a.n: Azure chat"),
        ({"text": "5", "value": "5", "unit": "x"}, "a.n: 5 x"),
    ],
)
def test_a_number_is_cited_with_its_unit(changed: dict[str, Any], says: str) -> None:
    number = replace(FIGURE, id="a.n", what="number", caption=None, alt=None, **changed)
    assert title(number) == says


def test_every_entry_of_the_book_can_be_cited() -> None:
    book = stored_catalogue(ROOT)
    entries = [bibtex(entry, book) for entry in book.entries.values()]
    parsed = parse_string("\n".join(entries), "bibtex")
    assert len(parsed.entries) == len(book.entries)
    for entry in book.entries.values():
        found = parsed.entries[f"kvledger-{entry.id}"]
        note = typeset(found.fields["note"])
        assert entry.id in note
        assert entry.digest[:8] in note
        assert entry.kind in note
        assert found.fields["version"] == book.version
        assert found.fields["url"] == permalink(entry)


def test_the_year_is_that_of_the_release() -> None:
    released = re.search(r"date-released:\s*['\"]?(\d{4})", (ROOT / "CITATION.cff").read_text())
    assert released is not None
    assert int(released[1]) == RELEASE_YEAR
