"""The record of checks: written by the check alone, for what it compared, and told on each page."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import functools
import json
import operator
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup
from conftest import ROOT, Book, make_fixture_book, refused_input
from editions import glued
from hypothesis import given
from hypothesis import strategies as st
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

from proofbook.build.nbval_plugin import commit_of, versions
from proofbook.catalogue import check_records as checks
from proofbook.catalogue.check_records import Check, notebook_digest, read_checks, write_checks
from proofbook.contents import page_files
from proofbook.pages import page_checks
from proofbook.project import source_digest
from proofbook.showing import MARK, RECORD

PAGES = [
    path.relative_to(ROOT).with_suffix("").as_posix()
    for path in page_files(ROOT)
    if path.suffix == ".ipynb"
]
A = "a" * 64
B = "b" * 64
EXAMPLE = Check(
    digest=A,
    source_digest=B,
    data_digest="c0ffee00" + "0" * 56,
    date=dt.date(2026, 11, 29),
    seconds=1.25,
    cells=4,
    numbers=38,
    tables=2,
    figures=1,
    commit="0123456789" * 4,
    changed_since=None,
    versions={"python": "3.11.2", "numpy": "2.4.6"},
    cores=2,
)


def stored(page: str, root: Path = ROOT) -> Any:
    return json.loads((root / f"{page}.ipynb").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- what is compared
TEXTS = st.text(alphabet="01a\n", max_size=4)
STREAMS = st.builds(
    lambda name, text: {"output_type": "stream", "name": name, "text": text},
    st.sampled_from(["stdout", "stderr"]),
    TEXTS,
)
SHOWN = st.builds(
    lambda kind, data: {"output_type": kind, "metadata": {}, "data": data},
    st.sampled_from(["display_data", "execute_result"]),
    st.dictionaries(st.sampled_from(["text/plain", "text/html", "image/png"]), TEXTS),
)
ERRORS = st.builds(
    lambda value: {"output_type": "error", "ename": "E", "evalue": value, "traceback": [value]},
    TEXTS,
)
OUTPUTS = st.lists(st.one_of(STREAMS, SHOWN, ERRORS), max_size=4)


#: What nbval says that it does not compare, from the code that says it.
NBVAL_SKIPS = (
    *next(
        constant
        for constant in IPyNbFile.__init__.__code__.co_consts
        if isinstance(constant, tuple) and "execution_count" in constant
    ),
    *("image/png", "image/jpeg"),
)


def nbval_says_same(one: list[Any], other: list[Any]) -> bool:
    """Ask nbval's own comparison, outside of a run."""
    cell: Any = SimpleNamespace(
        colors=SimpleNamespace(FAIL="", ENDC="", OKBLUE=""),
        sanitize=lambda text: text,
        format_output_compare=lambda *_: None,
    )
    both = [
        coalesce_streams([nbformat.from_dict(copy.deepcopy(each)) for each in side])
        for side in (one, other)
    ]
    return bool(IPyNbCell.compare_outputs(cell, *both, skip_compare=NBVAL_SKIPS))


def test_what_is_not_compared_is_what_nbval_skips() -> None:
    assert set(NBVAL_SKIPS) == checks.NOT_COMPARED


@given(OUTPUTS, OUTPUTS)
def test_what_nbval_tells_apart_has_another_digest(one: list[Any], other: list[Any]) -> None:
    assert (checks.compared(one) == checks.compared(other)) == nbval_says_same(one, other)


@given(OUTPUTS)
def test_a_file_and_its_reading_have_one_digest(outputs: list[Any]) -> None:
    """In a file a text is a list of lines; read by nbformat it is one text."""
    counted = [
        {**o, "execution_count": 1} if o["output_type"] == "execute_result" else o for o in outputs
    ]
    cell = nbformat.v4.new_code_cell("1", id="a", outputs=[nbformat.from_dict(o) for o in counted])
    text = nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))
    assert notebook_digest(json.loads(text)) == notebook_digest(nbformat.reads(text, 4))


def number_cell() -> dict[str, Any]:
    return {
        "cell_type": "code",
        "source": 'number("a.b", 38)',
        "metadata": {"tags": ["hide-input"]},
        "execution_count": 1,
        "outputs": [{"output_type": "display_data", **glued("a.b", "38", unit="")}],
    }


@pytest.mark.parametrize(
    ("where", "value", "same"),
    [
        (["source"], 'number("a.b", 39)', False),
        (["outputs", 0, "data", RECORD], "39", False),
        (["outputs", 0, "metadata", "scrapbook", "name"], "a.c", False),
        (["outputs", 0, "metadata", MARK, "kind"], "cited", False),
        (["outputs", 0, "metadata", MARK, "value"], "38.1", False),
        (["metadata", "tags"], ["nbval-ignore-output"], False),
        (["metadata", "tags"], [], True),
        (["execution_count"], 7, True),
    ],
)
def test_digest_holds_all_that_a_reader_relies_on_and_no_more(
    where: list[Any], value: object, same: bool
) -> None:
    cell: Any = number_cell()
    functools.reduce(operator.getitem, where[:-1], cell)[where[-1]] = value
    assert (checks.cell_digest(cell) == checks.cell_digest(number_cell())) == same


# ---------------------------------------------------------------- the record
def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "chapters").mkdir()
    assert read_checks(tmp_path) == {}
    rows = {
        "chapters/b": EXAMPLE,
        "chapters/a": dataclasses.replace(EXAMPLE, commit=None, changed_since="f" * 40),
    }
    write_checks(tmp_path, rows)
    assert read_checks(tmp_path) == rows
    assert list(read_checks(tmp_path)) == list(rows)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("digest", "abc"),
        ("source_digest", A.upper()),
        ("data_digest", None),
        ("date", "29.11.2026"),
        ("date", 20261129),
        ("seconds", -1),
        ("seconds", "1"),
        ("cells", True),
        ("numbers", 1.5),
        ("commit", "main"),
        ("changed_since", ""),
        ("versions", {"numpy": "2"}),
        ("versions", {"python": 3}),
        ("cores", None),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, field: str, value: object) -> None:
    (tmp_path / "chapters").mkdir()
    write_checks(tmp_path, {"chapters/a": EXAMPLE})
    path = tmp_path / checks.RECORD_FILE
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows["chapters/a"][field] = value
    path.write_text(json.dumps(rows), encoding="utf-8")
    refused_input(rf"checks\.json, chapters/a: .*`\$\.{field}.*; accepted", read_checks, tmp_path)
    del rows["chapters/a"][field]
    path.write_text(json.dumps(rows), encoding="utf-8")
    refused_input(rf"chapters/a: .*`{field}`; accepted", read_checks, tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_broken_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "chapters").mkdir()
    (tmp_path / checks.RECORD_FILE).write_text(text, encoding="utf-8")
    refused_input(r"chapters/checks\.json: ", read_checks, tmp_path)


def test_the_date_of_what_must_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chapters").mkdir()
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert checks.made_date(tmp_path).isoformat() == "1980-01-01T00:00:00+00:00"
    later = dataclasses.replace(EXAMPLE, date=dt.date(2027, 1, 2))
    write_checks(tmp_path, {"chapters/a": EXAMPLE, "chapters/b": later, "chapters/c": EXAMPLE})
    assert checks.made_date(tmp_path).isoformat() == "2027-01-02T00:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "951782400")
    assert checks.made_date(tmp_path).isoformat() == "2000-02-29T00:00:00+00:00"


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *who, *arguments], cwd=root, check=True, capture_output=True, encoding="utf-8"
    ).stdout.strip()


def test_a_commit_is_named_where_its_files_are_those_checked(tmp_path: Path) -> None:
    (tmp_path / "chapters").mkdir()
    assert commit_of(tmp_path) == (None, None)
    git(tmp_path, "init", "--quiet")
    assert commit_of(tmp_path) == (None, None)  # a repository without a commit
    (tmp_path / "chapters" / "a.md").write_text("a", encoding="utf-8")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "--quiet", "-m", "A")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(tmp_path) == (head, None)
    # The record itself is written by the check, and committed after it.
    write_checks(tmp_path, {"chapters/a": EXAMPLE})
    assert commit_of(tmp_path) == (head, None)
    (tmp_path / "chapters" / "new.md").write_text("new", encoding="utf-8")
    assert commit_of(tmp_path) == (None, head)
    (tmp_path / "chapters" / "new.md").unlink()
    (tmp_path / "chapters" / "a.md").write_text("b", encoding="utf-8")
    assert commit_of(tmp_path) == (None, head)
    # A folder inside another repository is not that repository's.
    assert commit_of(tmp_path / "chapters") == (None, None)


@pytest.mark.parametrize("page", PAGES)
def test_the_committed_record_is_current(page: str) -> None:
    """Run `make check`, and commit what it writes, after any change to a chapter or to the code."""
    check = read_checks(ROOT).get(page)
    assert check is not None, f"{page} was never checked: run `make check`"
    assert check.state(notebook_digest(stored(page)), source_digest()) == "current", (
        f"{page} changed since it was checked on {check.date}: run `make check`"
    )


def test_the_committed_record_holds_the_chapters_in_order() -> None:
    assert list(read_checks(ROOT)) == PAGES


# ---------------------------------------------------------------- the check itself
def check(book: Book, *arguments: str, env: dict[str, str] | None = None) -> Any:
    """Run the check on a small book; return what pytest said."""
    files = [f"chapters/{name}.ipynb" for name in ("start", "slots")]
    given = arguments if any(a.startswith("chapters/") for a in arguments) else (*arguments, *files)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "proofbook.build.nbval_plugin", "-c", os.devnull, "--rootdir", str(book.root)),
            *given,
        ],
        cwd=book.root,
        env={
            **{k: v for k, v in os.environ.items() if k not in {"PYTEST_ADDOPTS"}},
            "PYTHONPATH": str(book.root / "src"),
            "PROOFBOOK_FIGURES_DIR": str(book.root / "_build" / "checked"),
            "FIXTURE_LOG": str(book.log),
            **(env or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return SimpleNamespace(status=done.returncode, said=done.stdout + done.stderr)


RECORDS = ("--nbval", "--record-checks")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A small book whose outputs are stored, and checked; tests take copies."""
    book = make_fixture_book(tmp_path_factory.mktemp("recorded"))
    book.done("notebooks")
    result = check(book, *RECORDS, "-n", "2", "--dist", "loadfile")
    assert result.status == 0, result.said
    assert "checked 2 of 2 chapters, 4 numbers, 1 figure, 1 table; wrote" in result.said
    return book


@pytest.fixture
def book(recorded: Book, tmp_path: Path) -> Book:
    return recorded.copy(tmp_path / "book")


def record_of(book: Book) -> bytes:
    return (book.root / checks.RECORD_FILE).read_bytes()


def test_the_check_writes_what_it_compared(recorded: Book) -> None:
    rows = read_checks(recorded.root)
    assert list(rows) == ["chapters/start", "chapters/slots"]
    for page, row in rows.items():
        assert row.digest == notebook_digest(stored(page, recorded.root))
        assert (row.commit, row.changed_since) == (None, None)
        assert row.versions == versions()
        assert row.seconds > 0
        assert row.cores >= 1
    counts = {page: (r.cells, r.numbers, r.tables, r.figures) for page, r in rows.items()}
    assert counts == {"chapters/start": (2, 3, 0, 0), "chapters/slots": (4, 1, 1, 1)}


def test_pages_say_when_they_were_checked(book: Book) -> None:
    book.done()
    rows = read_checks(book.root)
    day = rows["chapters/slots"].date.isoformat()
    said = line_of(book.page("slots"))
    assert said.startswith(
        f"1 number, 1 table and 1 figure of this page were last checked on {day}: run again and "
        "compared, outside a repository, with Python "
    )
    assert f"data digest {rows['chapters/slots'].data_digest[:8]}." in said
    # A page without cells is as old as what it shows.
    assert line_of(book.page("notes")).startswith("1 number of other pages, shown here, was last")
    # So is one that lists what others show.
    (book.root / "chapters" / "list.md").write_text("# List\n\n```{kv-numbers}\n```\n")
    book.edit(
        "_toc.yml", "- file: chapters/notes", "- file: chapters/notes\n      - file: chapters/list"
    )
    book.edit(
        "_config.yml",
        "- proofbook.pages",
        "- proofbook.pages\n    - proofbook.pages.site",
    )
    book.done()
    assert line_of(book.page("list")).startswith("4 numbers of other pages, shown here, were last")
    # Another formula: what was checked is no longer what is shown.
    book.edit("src/fixture_formula.py", "* page for n", "* page + 1 for n")
    book.done()
    for name in ("start", "slots", "notes", "list"):
        assert line_of(book.page(name)) == "Not checked since it changed."
    book.edit("src/fixture_formula.py", "* page + 1 for n", "* page for n")
    (book.root / checks.RECORD_FILE).unlink()
    book.done()
    assert line_of(book.page("notes")) == "Not checked yet."


def line_of(page: str) -> str:
    found = re.findall(r'<p class="kv-checked"[^>]*>(.*?)</p>', page, re.DOTALL)
    assert len(found) == 1, found
    return re.sub(r"<[^>]+>", "", found[0])


def test_a_failed_chapter_loses_its_row_and_no_other(book: Book) -> None:
    with book.notebook("slots") as notebook:
        code_of(notebook)[1]["outputs"][0]["data"][RECORD] = "41"
    result = check(book, *RECORDS, env={"SOURCE_DATE_EPOCH": "951782400"})
    assert result.status == 1
    assert "checked 1 of 2 chapters" in result.said
    (row,) = read_checks(book.root).items()
    assert row[0] == "chapters/start"
    assert row[1].date == dt.date(2000, 2, 29)


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("change", ["kind", "id", "trim"])
def test_what_nbval_leaves_out_is_compared_too(book: Book, change: str) -> None:
    with book.notebook("start") as notebook:
        metadata = code_of(notebook)[1]["outputs"][0]["metadata"]
        if change == "kind":
            metadata[MARK]["kind"] = "cited"
        elif change == "id":
            metadata["scrapbook"]["name"] = "fixture.other"
        else:
            for cell in code_of(notebook):
                cell.update(outputs=[], execution_count=None)
    before = record_of(book)
    strict = check(book, "--nbval", "-p", "no:proofbook.build.nbval_plugin", "chapters/start.ipynb")
    assert strict.status == 0, "nbval itself has come to compare this: then say so in the docs"
    result = check(book, "--nbval", "chapters/start.ipynb")
    assert result.status == 1
    assert "Cell outputs differ in" in result.said
    assert record_of(book) == before  # without the option nothing is written


def test_a_partial_run_marks_nothing(book: Book) -> None:
    before = read_checks(book.root)
    epoch = {"SOURCE_DATE_EPOCH": "951782400"}
    cells = [f"chapters/{name}.ipynb::Cell 0" for name in ("start", "slots")]
    assert check(book, *RECORDS, *cells, env=epoch).status == 0
    assert read_checks(book.root) == before
    # One chapter alone renews its own row.
    assert check(book, *RECORDS, "chapters/start.ipynb", env=epoch).status == 0
    after = read_checks(book.root)
    assert after["chapters/slots"] == before["chapters/slots"]
    assert after["chapters/start"].date == dt.date(2000, 2, 29)


@pytest.mark.parametrize(
    ("does", "status", "says"),
    [
        ("raise KeyboardInterrupt", 2, "stays as it was: the run was broken off"),
        ("Path('data/more.csv').write_text('a')", 1, "changed while the chapters ran"),
    ],
)
def test_a_run_that_is_disturbed_writes_nothing(
    book: Book, does: str, status: int, says: str
) -> None:
    before = record_of(book)
    (book.root / "chapters" / "test_it.py").write_text(
        f"from pathlib import Path\ndef test_it():\n    {does}\n", encoding="utf-8"
    )
    result = check(book, *RECORDS, "chapters/start.ipynb", "chapters/test_it.py")
    assert result.status == status
    assert says in result.said
    assert record_of(book) == before


def test_a_record_that_cannot_be_written_is_an_error(book: Book) -> None:
    path = book.root / checks.RECORD_FILE
    path.unlink()
    path.mkdir()
    result = check(book, *RECORDS, "chapters/start.ipynb")
    assert result.status == 1
    assert "checks.json: cannot be written" in result.said


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["--record-checks"], {}, "records strict checks: add --nbval"),
        ([*RECORDS, "--nbval-sanitize-with", "x"], {}, "without sanitising"),
        (RECORDS, {"SOURCE_DATE_EPOCH": "now"}, "SOURCE_DATE_EPOCH is 'now'; accepted: "),
        (RECORDS, {"PYTHONPATH": str(ROOT / "src")}, "proofbook is imported from"),
    ],
)
def test_what_cannot_be_recorded_is_one_error(
    book: Book, arguments: list[str], env: dict[str, str], words: str
) -> None:
    before = record_of(book)
    result = check(book, *arguments, env=env)
    assert result.status == pytest.ExitCode.USAGE_ERROR
    assert words in result.said
    assert "Traceback" not in result.said
    assert record_of(book) == before


# ---------------------------------------------------------------- what pages say
def known(**changes: Any) -> page_checks.Checked:
    late = {"date": dt.date(2026, 11, 1), "commit": None, "changed_since": "f" * 40}
    rows = {"chapters/a": EXAMPLE, "chapters/b": dataclasses.replace(EXAMPLE, **late)}
    digests = {"chapters/a": A, "chapters/b": A}
    return page_checks.Checked(
        **({"checks": rows, "digests": digests, "source_digest": B} | changes)
    )


def words(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


def test_the_line_below_a_page() -> None:
    assert words(page_checks.check_line(known(), ["chapters/a"], [], "checks.html")) == (
        "38 numbers, 2 tables and 1 figure of this page were last checked on 2026-11-29: run again "
        "and compared, at commit 01234567, with Python 3.11.2 and NumPy 2.4.6, data digest "
        "c0ffee00. How it is checked"
    )
    # Shown with a number of an older page, it is as old as that one.
    item = page_checks.Item("chapters/b", "number", "x.y")
    line = words(page_checks.check_line(known(), ["chapters/a"], [item, item], None))
    assert line.startswith("39 numbers, 2 tables")
    assert "checked on 2026-11-01: run again and compared, with changes since commit ff" in line
    line = words(page_checks.check_line(known(), [], [item], None))
    assert line.startswith("1 number of other pages, shown here, was last checked on 2026-11-01")
    assert page_checks.check_line(known(), [], [], "checks.html") == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"digests": {"chapters/a": B, "chapters/b": A}}, "Not checked since it changed."),
        ({"digests": {"chapters/b": A}}, "Not checked since it changed."),
        ({"source_digest": A}, "Not checked since it changed."),
        ({"checks": {}}, "Not checked yet."),
    ],
)
def test_a_page_says_when_it_was_not_checked(changes: dict[str, Any], said: str) -> None:
    assert words(page_checks.check_line(known(**changes), ["chapters/a"], [], None)) == said
    # Nor were those that show its numbers.
    item = page_checks.Item("chapters/a", "number", "x.y")
    assert words(page_checks.check_line(known(**changes), ["chapters/b"], [item], None)) == said


@given(st.dictionaries(st.sampled_from(["number", "table", "figure"]), st.integers(0, 3000)))
def test_counts_are_told_in_full(counts: Any) -> None:
    said = page_checks.amounts(counts)
    for what in ("number", "table", "figure"):
        match = re.search(rf"([\d,]+) {what}(s?)\b", said)
        count = counts.get(what, 0)
        assert (match is not None) == (count > 0)
        if match:
            assert int(match[1].replace(",", "")) == count
            assert (match[2] == "") == (count == 1)


def cells(html: str) -> list[list[str]]:
    rows = BeautifulSoup(html, "html.parser").find_all("tr")
    return [[c.get_text("", strip=True) for c in row.find_all(["th", "td"])] for row in rows]


def test_the_table_of_checks() -> None:
    names = {"chapters/a": '<a href="a.html">A</a>', "chapters/b": "B", "chapters/c": "C"}
    heads, *rows = table = cells(page_checks.chapters_table(known(), names))
    assert {len(row) for row in table} == {len(heads)}
    assert [row[0] for row in rows] == ["A", "B", "C", "all"]
    assert dict(zip(heads, rows[0], strict=True)) == {
        "chapter": "A",
        "state": "checked",
        "checked on": "2026-11-29",
        "seconds": "1.2",
        "cells": "4",
        "numbers": "38",
        "tables": "2",
        "figures": "1",
        "files": "at commit01234567",
        "data digest": "c0ffee00",
        "source digest": "bbbbbbbb",
    }
    assert rows[2][1:] == ["not checked yet", *["–"] * (len(heads) - 2)]
    assert dict(zip(heads, rows[3], strict=True))["numbers"] == "76"
    assert all(head for head in heads)


def test_the_table_of_versions() -> None:
    assert cells(page_checks.versions_table(known(), ["chapters/a", "chapters/b"])) == [
        ["what", "2 chapters"],
        ["python", "3.11.2"],
        ["numpy", "2.4.6"],
        ["processor cores", "2"],
    ]
    other = dataclasses.replace(EXAMPLE, versions={"python": "3.12.0"}, cores=4)
    mixed = known(checks={"chapters/a": EXAMPLE, "chapters/b": other})
    assert cells(page_checks.versions_table(mixed, ["chapters/a", "chapters/b"])) == [
        ["what", "1 chapter", "1 chapter (2)"],
        ["python", "3.11.2", "3.12.0"],
        ["numpy", "2.4.6", "–"],
        ["processor cores", "2", "4"],
    ]
    assert page_checks.versions_table(known(checks={}), ["chapters/a"]) == ""


def test_every_page_of_the_book_was_checked(built_book: Path) -> None:
    """A page shows what was checked, and says so; one with nothing to check does not."""
    rows = read_checks(ROOT)
    for path in page_files(ROOT):
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        html = (built_book / f"{page}.html").read_text(encoding="utf-8")
        shows = re.search(r'class="kv-number |<figure class="[^"]*kv-figure', html) is not None
        lines = re.findall(r'<p class="kv-checked" data-state="(\w+)">(.*?)</p>', html, re.DOTALL)
        if page in rows or shows:
            ((state, line),) = lines
            assert state == "current", f"{page}: {words(line)}"
        if page in rows:
            assert re.search(r"were? last checked on|was last checked on", line), page
            assert f"{rows[page].figures} figure" in line or not rows[page].figures
