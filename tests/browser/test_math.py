"""Formulas as a screen reader gets them: signs are operators, and products are said."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from browser.driver import pages_of_the_book

VALUES = {"mi", "mn", "mfrac", "msqrt", "msub", "msup", "msubsup"}


def wrong_formulas(html: str) -> list[str]:
    """What a screen reader would say wrongly of a page's formulas, or not at all."""
    soup = BeautifulSoup(html, "html.parser")
    wrong = [
        f"{tag.get_text()!r} is told as a variable"
        for tag in soup.find_all("mi")
        if not tag.get_text().isalpha()
    ]
    for row in soup.select("math, mrow, msqrt, mtd"):
        parts = [(tag.name, tag.get_text()) for tag in row.find_all(recursive=False)]
        parts = [part for part in parts if part[0] != "mspace"]
        wrong += [
            f"nothing between {one[1]!r} and {other[1]!r}"
            for one, other in pairwise(parts)
            if one[0] in VALUES and other[0] in VALUES
        ]
        said = "".join(text if tag == "mi" else " " * (text != "\u2062") for tag, text in parts)
        wrong += [f"{word!r} is told letter by letter" for word in said.split() if len(word) > 2]
    sources = [tag.get_text() for tag in soup.find_all("math") if set("\\$") & {*tag.get_text()}]
    return wrong + [f"the source of a formula is shown: {text}" for text in sources]


def test_formulas_are_told_as_they_are(built_book: Path) -> None:
    texts = {page: (built_book / page).read_text(encoding="utf-8") for page in pages_of_the_book()}
    assert sum("<math" in text for text in texts.values()) >= 8
    assert {page: found for page, text in texts.items() if (found := wrong_formulas(text))} == {}


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("<mi>⌈</mi><mi>x</mi><mi>⌉</mi>", "'⌈' is told"),
        ("<mn>2</mn><mi>n</mi>", "nothing between '2' and 'n'"),
        (
            "<mo>\u2062</mo>".join(f"<mi>{x}</mi>" for x in "tail"),
            "'tail' is told letter by letter",
        ),
        (r"<mtext>\nosuch</mtext>", r"the source of a formula is shown: \nosuch"),
    ],
)
def test_a_wrong_formula_is_caught(formula: str, says: str) -> None:
    assert says in "\n".join(wrong_formulas(f"<p><math>{formula}</math></p>"))
