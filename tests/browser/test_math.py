"""Formulas as a screen reader gets them: by the browser's tree of what is accessible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from browser.driver import Visit, pages_of_the_book
from browser.made_wrong import Wrong, address, visiting_wrong

#: Element -> the role that a screen reader is told.
ROLES = {
    "math": "MathMLMath",
    "mfrac": "MathMLFraction",
    "msqrt": "MathMLSquareRoot",
    "msub": "MathMLSub",
    "msup": "MathMLSup",
    "mi": "MathMLIdentifier",
    "mn": "MathMLNumber",
    "mtext": "MathMLText",
}
VALUES = {"mi", "mn", "mfrac", "msqrt", "msub", "msup", "msubsup"}


def every_part_has_its_role(visit: Visit) -> list[str]:
    """What is a fraction, a root or an index is called so, and no formula is left out."""
    counted: dict[str, int] = visit.page.evaluate(
        """(names) => Object.fromEntries(names.map((name) => [name,
          [...document.querySelectorAll(name)].filter((e) => e.checkVisibility()).length]))""",
        list(ROLES),
    )
    session = visit.page.context.new_cdp_session(visit.page)
    nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    told = Counter(node["role"]["value"] for node in nodes if not node["ignored"])
    return [
        f"{count} {name} on the page, {told[ROLES[name]]} told as {ROLES[name]}"
        for name, count in counted.items()
        if count != told[ROLES[name]]
    ]


def signs_are_operators(visit: Visit) -> list[str]:
    """A variable is one letter or a word; brackets and signs are operators."""
    tokens: list[str] = visit.page.evaluate(
        "() => [...document.querySelectorAll('mi')].map((e) => e.textContent)"
    )
    return [f"{text!r} is told as a variable" for text in tokens if not text.isalpha()]


def products_are_said(visit: Visit) -> list[str]:
    """Between two values stands an operator, if an invisible one; letters spell no word."""
    rows: list[list[tuple[str, str]]] = visit.page.evaluate(
        """() => [...document.querySelectorAll("math, mrow, msqrt, mtd")].map((row) =>
          [...row.children].filter((e) => e.tagName !== "mspace")
            .map((e) => [e.tagName, e.textContent]))"""
    )
    wrong = [
        f"nothing between {one[1]!r} and {other[1]!r}"
        for row in rows
        for one, other in pairwise(row)
        if one[0] in VALUES and other[0] in VALUES
    ]
    for row in rows:
        said = "".join(text if tag == "mi" else " " * (text != "\u2062") for tag, text in row)
        wrong += [f"{word!r} is told letter by letter" for word in said.split() if len(word) > 2]
    return wrong


CHECKS = (every_part_has_its_role, signs_are_operators, products_are_said)


def with_formulas(folder: Path) -> list[str]:
    pages = [page for page in pages_of_the_book() if page.startswith("chapters/")]
    return [p for p in pages if "<math" in (folder / p).read_text(encoding="utf-8")]


def test_formulas_are_told_as_they_are(visit: Visit, built_book: Path) -> None:
    pages = with_formulas(built_book)
    assert len(pages) >= 8
    wrong = []
    for path in pages:
        visit.open(path, settle=False)
        for check in CHECKS:
            wrong += [f"{path}, {check.__name__}: {what}" for what in check(visit)]
    assert not wrong, "\n".join(wrong)


def test_the_source_of_a_formula_is_nowhere(visit: Visit, built_book: Path) -> None:
    for path in with_formulas(built_book):
        visit.open(path, settle=False)
        texts = visit.page.locator("math").all_text_contents()
        assert not [text for text in texts if "\\" in text or "$" in text], path


# ---------------------------------------------------------------- pages made to be wrong

WRONG = {
    "formula that is not told": Wrong(
        every_part_has_its_role,
        '<p aria-hidden="true"><math><mfrac><mi>a</mi><mi>b</mi></mfrac></math></p>',
        "1 mfrac on the page, 0 told",
    ),
    "fence for a variable": Wrong(
        signs_are_operators, "<math><mi>⌈</mi><mi>x</mi><mi>⌉</mi></math>", "'⌈' is told"
    ),
    "factors side by side": Wrong(
        products_are_said, "<math><mn>2</mn><mi>n</mi></math>", "nothing between '2' and 'n'"
    ),
    "word in letters": Wrong(
        products_are_said,
        "<math>" + "<mo>\u2062</mo>".join(f"<mi>{x}</mi>" for x in "tail") + "</math>",
        "'tail' is told letter by letter",
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    with visiting_wrong(browser, tmp_path_factory.mktemp("wrong"), WRONG) as visit:
        yield visit


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {page.check for page in WRONG.values()} == set(CHECKS)
