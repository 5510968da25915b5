"""The build: what fails it, what it says then, and that no page is ever half made or stale."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Book, refused_input

from proofbook.build.kept_runs import prune
from proofbook.contents import find_root
from proofbook.files import whole_folder
from proofbook.pages.exhibits import FETCHED, FIGURE_FILES, read_drawing
from proofbook.pages.number_roles import KINDS


@pytest.fixture
def book(small: Book, tmp_path: Path) -> Book:
    """A copy of the built small book, with what the build remembers."""
    return small.copy(tmp_path / "book")


def edit_notebook(book: Book, name: str, cell_id: str, source: str) -> None:
    with book.notebook(name) as notebook:
        (cell,) = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
        cell["source"] = source


def fails_and_keeps_pages(book: Book) -> str:
    """Build, expect a failure that leaves the pages as they were; return what it said."""
    before = book.tree()
    assert before
    result = book.build()
    assert result.returncode != 0, result.stdout
    assert book.tree() == before
    assert not list((book.root / "_build").glob(".html.*"))
    return result.stdout + result.stderr


# ---------------------------------------------------------------- what a page shows
def test_numbers_carry_kind_and_source_on_every_page(small: Book) -> None:
    page = small.page("start")
    assert 'title="fixture.answer: computed">4</a>' in page
    assert 'title="fixture.cited: cited, Smith 2020">5<sup class="kv-mark">c</sup>' in page
    assert 'title="fixture.measured: measured, data/run.json">7<sup class="kv-mark">m</sup>' in page
    for kind in KINDS:
        assert KINDS[kind][1] in page
    # A page explains the marks that it has, and no others.
    assert KINDS["cited"][1] not in small.page("slots")
    shown = 'title="fixture.allocated: computed">40</a>'
    assert small.page("notes").count(shown) == 2
    caption = small.page("slots").split("<figcaption>")[1].split("</figcaption>")[0]
    assert shown in caption
    assert "Fig. 1.1" in caption


def test_figures_are_whole_and_pages_need_no_network(small: Book) -> None:
    page = small.page("slots")
    assert page.count('id="fig-fixture"') == 1
    for end in FIGURE_FILES:
        assert (small.html / "figures" / f"fig-fixture{end}").is_file()
    for end in FETCHED["figure"]:
        assert f'href="../figures/fig-fixture.{end}"' in page
    assert 'class="only-light" src="../figures/fig-fixture.svg"' in page
    assert 'class="only-dark" src="../figures/fig-fixture.dark.svg"' in page
    assert not (small.html / "_images").exists()  # nothing is named by a hash
    for path in small.html.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert "thebe" not in page.lower(), path
        assert "mathjax.js" not in page.lower(), path
    assert "<math" in small.page("slots")
    assert 'href="slots.html#equation-eq-pages"' in small.page("notes")


def test_stamp_and_redirect(small: Book) -> None:
    record = json.loads((small.html / "build.json").read_text(encoding="utf-8"))
    assert set(record) == {"version", "source_digest", "inputs"}  # and nothing of the clock
    for name in ("start", "slots", "notes"):
        assert f"source digest <code>{record['source_digest'][:8]}</code>" in small.page(name)
        # No check of this book is on record, and the day of its build says nothing.
        assert '<p class="kv-checked" data-state="never">Not checked yet.</p>' in small.page(name)
    assert 'url=chapters/start.html"' in (small.html / "index.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------- what runs again
def test_nothing_changed_is_quick(book: Book) -> None:
    before, runs = book.tree(), book.runs()
    started = time.perf_counter()
    assert "up to date" in book.done()
    assert time.perf_counter() - started < 5
    assert book.tree() == before
    assert book.runs() == runs


def test_prose_alone_runs_nothing_and_shows_at_once(book: Book) -> None:
    book.log.unlink()
    book.edit("chapters/notes.md", "# Notes", "# Remarks")
    book.edit("chapters/slots.ipynb", "At four slots a page", "With pages of four slots")
    book.edit("chapters/slots.ipynb", "Three requests hold", "Three requests now hold")
    assert "running 0 of 2" in book.done()
    assert book.runs() == []
    page = book.page("slots")
    assert "With pages of four slots" in page  # a caption, which is a cell's metadata
    assert "Three requests now hold" in page
    assert '<span class="doc">Remarks</span>' in page  # a title that another page shows
    assert "2. Remarks" in book.page("start")


def test_edited_formula_changes_the_number_on_every_page(book: Book) -> None:
    book.log.unlink()
    book.edit("src/fixture_formula.py", "* page for n", "* page + 1 for n")
    book.done()
    assert sorted(book.runs()) == ["slots", "start"]
    assert 'title="fixture.answer: computed">5</a>' in book.page("start")
    for name in ("slots", "notes"):
        assert 'title="fixture.allocated: computed">43</a>' in book.page(name)
        assert ">40</span>" not in book.page(name)
    assert '<td class="kv-num">43</td>' in book.page("slots").split('id="tab-fixture"')[1]
    assert "4,43" in (book.html / "figures" / "fig-fixture.csv").read_text(encoding="utf-8")
    # Taking the edit back brings the old numbers back, from results that were kept.
    book.log.unlink()
    book.edit("src/fixture_formula.py", "* page + 1 for n", "* page for n")
    book.done()
    assert 'title="fixture.allocated: computed">40</a>' in book.page("notes")
    assert "4,40" in (book.html / "figures" / "fig-fixture.csv").read_text(encoding="utf-8")
    assert book.runs() == []


def test_an_edited_cell_runs_its_chapter_only_and_edited_data_all(book: Book) -> None:
    book.log.unlink()
    book.edit("chapters/slots.ipynb", "lengths = [5, 9, 17]", "lengths = [5, 9, 18, 1]")
    book.done()
    assert book.runs() == ["slots"]
    assert 'title="fixture.allocated: computed">44</a>' in book.page("notes")
    book.log.unlink()
    (book.root / "data" / "more.csv").write_text("a\n1\n", encoding="utf-8")
    book.done()
    assert sorted(book.runs()) == ["slots", "start"]


# ---------------------------------------------------------------- what fails
def test_failing_cell_is_named(book: Book) -> None:
    edit_notebook(book, "slots", "number", "# a comment\nallocated(lengths, page=0)")
    said = fails_and_keeps_pages(book)
    assert "chapters/slots.ipynb, code cell 2 of 4 (id number), line 2: ZeroDivisionError" in said
    assert "allocated(lengths, page=0)" in said
    # It fails again: nothing of it was kept.
    assert "ZeroDivisionError" in fails_and_keeps_pages(book)


def test_stderr_in_a_cell_fails(book: Book) -> None:
    edit_notebook(book, "start", "setup", "import sys\nprint('beware', file=sys.stderr)")
    # The cell below lacks its names then; the one above is what is tested.
    edit_notebook(book, "start", "answer", "print('fine')")
    said = fails_and_keeps_pages(book)
    assert "chapters/start.ipynb, code cell 1 of 2 (id setup) wrote to stderr: beware" in said


UNKNOWN = "{glue:text}`fixture.nothing`", "no cell of this page glues 'fixture.nothing'"
WARNINGS = dict(
    [
        UNKNOWN,
        (
            "{glue:text}`slots.ipynb::fixture.none`",
            "Glue reference 'fixture.none' not found in doc 'chapters/slots'",
        ),
        ("{glue:text}`fixture.answer:.3f`", "write the id alone"),
        (r"$\nosuchcommand$", r"\nosuchcommand is not known to the formula converter"),
        ("{ref}`nowhere`", "undefined label: 'nowhere'"),
    ]
)


def test_every_warning_fails(book: Book) -> None:
    book.edit("chapters/start.ipynb", "The answer is", json.dumps("; ".join(WARNINGS))[1:-1])
    said = fails_and_keeps_pages(book)
    for message in WARNINGS.values():
        lines = [line for line in said.splitlines() if message in line]
        assert any("WARNING" in line for line in lines), (message, said)
    assert "chapters/start.ipynb, cell 1, line 3: WARNING" in said


def test_one_warning_fails_and_goes_on_failing(book: Book) -> None:
    new, message = UNKNOWN
    book.edit("chapters/start.ipynb", "The answer is", new)
    assert message in fails_and_keeps_pages(book)
    # Sphinx forgets a warning that it pickled away; the build must not.
    assert message in fails_and_keeps_pages(book)


def no_caption(book: Book) -> None:
    with book.notebook("slots") as notebook:
        for cell in notebook["cells"]:
            cell["metadata"].pop("mystnb", None)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda book: (book.root / "chapters" / "notes.md").unlink(),
            "no chapters/notes.ipynb or chapters/notes.md",
        ),
        (
            lambda book: book.edit("chapters/start.ipynb", '   "id": "setup",\n', ""),
            "start.ipynb: cell 2 has no id",
        ),
        (no_caption, "figure fig-fixture: its cell needs the metadata mystnb.figure"),
        (
            lambda book: edit_notebook(book, "slots", "figure", "style.canvas(2.6)[0]"),
            "an image that is no figure()",
        ),
    ],
)
def test_what_fails_is_named(book: Book, spoil: Callable[[Book], None], says: str) -> None:
    spoil(book)
    assert says in fails_and_keeps_pages(book)


def test_lost_figure_is_drawn_again(book: Book) -> None:
    for path in (book.root / "_build" / "cache").glob("*/runs/*/figures/fig-fixture.json"):
        path.unlink()
    book.log.unlink()
    book.edit("chapters/notes.md", "# Notes", "# Remarks")
    book.done()
    assert book.runs() == ["slots"]


@pytest.mark.parametrize("end", FIGURE_FILES)
def test_missing_figure_file_is_named(small: Book, tmp_path: Path, end: str) -> None:
    for path in (small.html / "figures").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    digest = json.loads((tmp_path / "fig-fixture.json").read_text(encoding="utf-8"))["data_digest"]
    assert read_drawing(tmp_path, "fig-fixture", digest[:8]).width > 500
    with pytest.raises(ValueError, match="make clean"):
        read_drawing(tmp_path, "fig-fixture", "00000000")
    (tmp_path / f"fig-fixture{end}").unlink()
    with pytest.raises(ValueError, match=f"no fig-fixture{end} in .*make clean"):
        read_drawing(tmp_path, "fig-fixture", digest[:8])


def test_pages_that_cannot_take_their_place_leave_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tmp_path / "html"
    shown.mkdir()
    (shown / "page.html").write_text("old", encoding="utf-8")
    rename = Path.rename

    def breaks_off(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            raise OSError("no space left")
        return rename(self, target)

    def swap() -> None:
        with whole_folder(shown, check=lambda _: None) as made:
            (made / "page.html").write_text("new", encoding="utf-8")

    monkeypatch.setattr(Path, "rename", breaks_off)
    with pytest.raises(OSError, match="no space"):
        swap()
    assert (shown / "page.html").read_text(encoding="utf-8") == "old"
    monkeypatch.undo()
    swap()
    assert (shown / "page.html").read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [shown]


def test_results_of_the_latest_states_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(["now", "before", "old", "older"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"now", "before"}


def test_outside_a_repository(tmp_path: Path) -> None:
    refused_input(r"no _toc\.yml in", find_root, tmp_path)


# ---------------------------------------------------------------- stored outputs
def test_notebooks_stores_outputs_and_then_leaves_them(book: Book) -> None:
    path = book.root / "chapters" / "slots.ipynb"
    before = json.loads(path.read_text(encoding="utf-8"))
    book.done("notebooks")
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [1, 2, 3, 4]
    assert [cell["id"] for cell in notebook["cells"]] == [cell["id"] for cell in before["cells"]]
    (glued,) = code[1]["outputs"]
    assert glued["data"] == {"application/papermill.record/text/plain": "40"}
    assert "image/png" in code[3]["outputs"][0]["data"]
    assert code[3]["metadata"] == before["cells"][-2]["metadata"]
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    modified = path.stat().st_mtime_ns
    assert "0 of 2 notebooks changed" in book.done("notebooks")
    assert path.stat().st_mtime_ns == modified
    # Run afresh, without any result kept, they give the same text to the last byte.
    book.done("clean")
    assert "0 of 2 notebooks changed" in book.done("notebooks")
    assert path.read_text(encoding="utf-8") == text


def test_stored_outputs_follow_the_code(book: Book) -> None:
    book.done("notebooks")
    book.edit("src/fixture_formula.py", "* page for n", "* page + 1 for n")
    assert "2 of 2 notebooks changed" in book.done("notebooks")
    notebook = json.loads((book.root / "chapters" / "slots.ipynb").read_text(encoding="utf-8"))
    (glued,) = next(c for c in notebook["cells"] if c["id"] == "number")["outputs"]
    assert glued["data"] == {"application/papermill.record/text/plain": "43"}
