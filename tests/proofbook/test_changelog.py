"""The changelog page: from each release to the next, and to the book as it is built."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Book, make_fixture_book
from editions import book, figure, number, sha256
from hypothesis import given
from hypothesis import strategies as st

from proofbook.catalogue import read_catalogue
from proofbook.catalogue.changes import compare, markdown
from proofbook.catalogue.editions import Edition, snapshot
from proofbook.pages.changelog import heading, history, present_book

pytestmark = pytest.mark.slow


def with_changelog(target: Path, *releases: Edition) -> Book:
    """The small book with the changelog, and releases that it came from."""
    made = make_fixture_book(target)
    shutil.copy(ROOT / "chapters" / "changelog.md", target / "chapters")
    made.edit(
        "_toc.yml",
        "      - file: chapters/notes\n",
        "      - file: chapters/notes\n      - file: chapters/changelog\n",
    )
    for release in releases:
        (target / "data" / "releases").mkdir(exist_ok=True)
        path = target / "data" / "releases" / f"{release.catalogue.version}.json"
        path.write_bytes(snapshot(release))
    return made


FIRST = book(
    number("fixture.allocated", "39", page="chapters/slots"),
    number("fixture.gone", page="chapters/slots"),
    figure("fig-fixture", "other data", page="chapters/slots"),
    version="0.0.9",
)
SECOND = book(
    number("fixture.allocated", "38", page="chapters/slots"),
    figure("fig-fixture", digest=sha256("other data")[:8], page="chapters/slots"),
    version="0.0.10",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Book:
    small = with_changelog(tmp_path_factory.mktemp("changelog"), FIRST, SECOND)
    small.done()
    return small


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())


def test_the_latest_changes_come_first_each_under_its_heading(made: Book) -> None:
    page = made.page("changelog")
    headings = re.findall(r'<section id="(changes-from-[^"]*)">\s*<h3>(.*?)<a', page, re.DOTALL)
    assert [(id, re.sub("<[^>]+>", "", text).split(" ", 1)[1]) for id, text in headings] == [
        ("changes-from-0-0-10", "From 0.0.10 to 1.2.3, this book"),
        ("changes-from-0-0-9", "From 0.0.9 to 0.0.10"),
    ]
    latest, first = page.split('<section id="changes-from-0-0-9"')
    assert "fixture.allocated: 38 slots, now 40" in words(latest)
    assert "fig-fixture: other data (" in words(latest)
    assert "fixture.allocated: 39 slots, now 38 slots." in words(first)
    assert "Removed: 1 number: fixture.gone." in words(first)


def test_the_page_says_what_the_command_says(made: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = (made.root / "_build" / "cache").iterdir()
    monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(folder / "figures"))
    present = present_book(made.root)
    assert present.catalogue == read_catalogue(folder)
    assert "fixture.answer" in present.catalogue.entries
    shown = words(made.page("changelog"))
    for changes in history([FIRST._replace(name="0.0.9"), SECOND._replace(name="0.0.10")], present):
        for line in markdown(changes).splitlines():
            said = re.sub(r"<[^>]+>|`|\\(?=[^\w\s])|^- ", "", line).strip()
            assert said in shown, said


def test_an_id_leads_to_what_the_book_shows_now(made: Book) -> None:
    page = made.page("changelog")
    links = re.findall(
        r'<a class="reference internal" href="([^"]*)"><code[^>]*>(.*?)</code>', page
    )
    assert {re.sub("<[^>]+>", "", text): uri for uri, text in links} == {
        "fig-fixture": "slots.html#fig-fixture",
        "tab-fixture": "slots.html#tab-fixture",
    }  # and numbers to the page of numbers, where a book has one
    assert 'id="fig-fixture"' in made.page("slots")


def test_the_page_follows_the_notebooks(made: Book, tmp_path: Path) -> None:
    """Another number changes the page, whatever Sphinx remembers of it."""
    small = made.copy(tmp_path / "book")
    before = small.page("changelog")
    for name in ("slots.ipynb", "notes.md"):
        path = small.root / "chapters" / name
        text = path.read_text(encoding="utf-8")
        assert text.count("fixture.allocated") > 1
        path.write_text(text.replace("fixture.allocated", "fixture.held"), encoding="utf-8")
    small.done()
    assert "Removed: 1 number: fixture.allocated." in words(small.page("changelog"))
    assert "fixture.held" not in words(before)


def test_a_broken_release_stops_the_build(made: Book, tmp_path: Path) -> None:
    small = made.copy(tmp_path / "book")
    (small.root / "data" / "releases" / "0.0.10.json").write_text("{", encoding="utf-8")
    result = small.build()
    assert result.returncode != 0
    assert "no changelog: " in result.stdout + result.stderr
    assert "0.0.10.json: " in result.stdout + result.stderr


def test_a_book_without_a_release(tmp_path: Path) -> None:
    small = with_changelog(tmp_path / "book")
    small.done()
    assert "No release is on file yet." in small.page("changelog")


@given(st.lists(st.integers(1, 9), max_size=5))
def test_history_goes_from_each_to_the_next(values: list[int]) -> None:
    chain = [book(number("a.b", str(v)), name=str(i)) for i, v in enumerate(values)]
    present = book(number("a.b", "0"), name="present")
    steps = history(chain, present)
    assert [heading(step) for step in steps][::-1] == [
        heading(compare(old, new)) for old, new in zip(chain, [*chain[1:], present], strict=False)
    ]
    assert all(step.new is present for step in steps[:1])
