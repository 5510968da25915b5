"""The catalogue: what notebooks show, all of it, and the same after a round trip through JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import refused_input
from editions import book, drawn, editions, glued, notebook, number, shown_table
from hypothesis import given, settings
from hypothesis import strategies as st

import proofbook
from proofbook import catalogue
from proofbook.catalogue.editions import Edition
from proofbook.catalogue.notebook_entries import catalogue_of, stored_catalogue
from proofbook.contents import base_url, page_files
from proofbook.errors import InputError

pytestmark = pytest.mark.usefixtures("smallbook")


# --- notebooks ------------------------------------------------------------------------
def read(**pages: dict[str, Any]) -> catalogue.Catalogue:
    return catalogue_of(pages, version="1", source_digest="0" * 64)


def test_captions_are_filled_in() -> None:
    caption = (
        "At $c$ it is {glue:text}`a.n`, there {glue:text}`two::b.n`; see {numref}`fig-b`, "
        "{doc}`this page <other>`, [a link](https://x.example), **bold**, *thin*, `code`."
    )
    found = read(
        one=notebook(glued("a.n", "2*3*4"), drawn("fig-a", "ab" * 32), caption=caption),
        two=notebook(glued("b.n", "$7$")),
    ).entries
    assert found["fig-a"] == catalogue.Entry(
        id="fig-a",
        what="figure",
        kind="computed",
        source=None,
        page="one",
        cell="cell-2",
        text="A title",
        value=None,
        unit=None,
        digest="ab" * 32,
        caption="At c it is 2*3*4, there $7$; see fig-b, this page, a link, bold, thin, code.",
        alt="An alt.",
    )
    assert found["a.n"].caption is None


def test_what_is_said_of_numbers_and_tables_where_they_were_first() -> None:
    table = shown_table("tab-a", "a", "Sales grow.", kind="cited", source="Smith")
    found = read(p=notebook(glued("a.n", "36.6%", value="36.6", unit="%"), table)).entries
    assert (found["a.n"].text, found["a.n"].value, found["a.n"].unit) == ("36.6%", "36.6", "%")
    assert found["a.n"].digest == catalogue.number_digest("a.n", "36.6", "%")
    tab = found["tab-a"]
    assert (tab.kind, tab.source, tab.text) == ("cited", "Smith", "Sales grow.")
    assert (tab.caption, tab.digest, tab.alt) == ("Sales grow.", "d" * 64, None)
    again = glued("a.n", "4")
    found = read(one=notebook(again), two=notebook(again))
    assert [(e.page, e.cell) for e in found.entries.values()] == [("one", "cell-1")]


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        (
            {"one": notebook(glued("a.n", "4")), "two": notebook(glued("a.n", "5"))},
            "two, cell cell-1: a.n says '5', but '4' on one, cell cell-1",
        ),
        (
            {"one": notebook(glued("a.n", "4"), glued("a.n", "4", unit="coins"))},
            "one, cell cell-2: a.n says '4', but '4' on one, cell cell-1",
        ),
        ({"one": notebook(glued("a.n", "4", kind="guessed"))}, "one, cell cell-1: a.n does"),
        (
            {"one": notebook(drawn("fig-a", "0" * 64), caption="{glue:text}`b.n`.")},
            "one, cell cell-1: fig-a: the caption shows 'b.n', which no cell glues",
        ),
    ],
)
def test_notebooks_are_refused(pages: dict[str, Any], says: str) -> None:
    refused_input(re.escape(says), read, **pages)


# --- through JSON ---------------------------------------------------------------------
@given(editions(), st.sampled_from(["", "https://book.example/v1/"]))
@settings(max_examples=60)
def test_a_catalogue_comes_back_from_its_files(edition: Edition, base: str) -> None:
    made = book(*sorted(edition.catalogue.entries.values(), key=lambda entry: entry.page)).catalogue
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        catalogue.write_catalogue(made, where, base)
        contents = {name: (where / name).read_bytes() for name in catalogue.FILES}
        found = catalogue.read_catalogue(where)
        assert found == made
        assert catalogue.to_json(found, base) == catalogue.to_json(made, base)
        catalogue.write_catalogue(found, where, base)
        assert {name: (where / name).read_bytes() for name in catalogue.FILES} == contents
        one = where / "one.json"
        one.write_text(json.dumps(catalogue.to_json(made)), encoding="utf-8")
        assert catalogue.read_catalogue(one) == made


def test_what_the_files_hold(tmp_path: Path) -> None:
    made = catalogue.Catalogue("1", "0" * 64, {"a.n": number("a.n", "4", "parts")})
    catalogue.write_catalogue(made, tmp_path, "https://book.example")
    content = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert (content["project"], content["version"]) == ("smallbook", "1")
    assert content["pages"] == ["chapters/first"]
    (found,) = content["numbers"]
    assert (found["value"], found["unit"], found["kind"]) == ("4", "parts", "computed")
    assert found["permalink"] == "https://book.example/chapters/first.html#n-a.n"
    assert "figures" not in content


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("numbers.json", lambda c: c["numbers"][0].pop("digest"), "`digest` - at `$.numbers[0]`"),
        ("numbers.json", lambda c: c["numbers"][0].update(value=4), "`$.numbers[0].value`"),
        ("numbers.json", lambda c: c["numbers"][0].update(kind="x"), "'x' - at `$.numbers[0].kind"),
        ("numbers.json", lambda c: c["numbers"][0].update(what="table"), "number 1: what 'table'"),
        ("numbers.json", lambda c: c["numbers"].append(c["numbers"][0]), "a.n stands twice"),
        ("numbers.json", lambda c: c["numbers"].append(4), "got `int` - at `$.numbers[1]`"),
        ("numbers.json", lambda c: c.update(numbers={}), "`$.numbers`"),
        ("numbers.json", lambda c: c.pop("numbers"), "no numbers; accepted: a list"),
        ("figures.json", lambda c: c.update(version="2"), "accepted: files of one build"),
        ("tables.json", lambda c: c.pop("version"), "`version`"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, change: Any, says: str) -> None:
    catalogue.write_catalogue(catalogue.Catalogue("1", "0" * 64, {"a.n": number("a.n")}), tmp_path)
    content = json.loads((tmp_path / name).read_text())
    change(content)
    (tmp_path / name).write_text(json.dumps(content))
    said = refused_input(re.escape(says), catalogue.read_catalogue, tmp_path)
    assert said.startswith(f"{tmp_path / name}")
    assert "\n" not in said


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"version": "\xff"}'])
def test_files_that_are_no_catalogue(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    refused_input(r"x\.json: .*; accepted: the JSON of a catalogue", catalogue.read_catalogue, path)
    with pytest.raises(InputError, match=r"numbers\.json: No such file.*a built book's folder"):
        catalogue.read_catalogue(tmp_path)


# --- pages and addresses --------------------------------------------------------------
def test_a_checkout_without_its_parts_and_its_public_address(tmp_path: Path) -> None:
    refused_input(r"_toc\.yml", stored_catalogue, tmp_path)
    for text in ("", "[]", "format: jb-book", "root: ["):
        (tmp_path / "_toc.yml").write_text(text)
        refused_input(r"_toc\.yml (has no 'root'|cannot be read)", page_files, tmp_path)
    (tmp_path / "_toc.yml").write_text("root: a\nchapters: [{file: b}]")
    refused_input(r"lists 'a', but there is no a\.ipynb", page_files, tmp_path)
    (tmp_path / "b.md").write_text("words")
    for text, says in (("{}", "no cells"), ("{", "not a notebook")):
        (tmp_path / "a.ipynb").write_text(text)
        refused_input(rf"a\.ipynb: {says}", stored_catalogue, tmp_path)
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook(glued("x.n", "4"))))
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "7.1"')
    found = stored_catalogue(tmp_path)
    assert (found.version, found.pages) == ("7.1", ("a",))
    path = tmp_path / "_config.yml"
    refused_input("cannot be read", base_url, tmp_path)
    for text in ("", "title: x", "html: {baseurl: ''}", "html:"):
        path.write_text(text)
        assert base_url(tmp_path) == ""
    path.write_text("html: {baseurl: 'https://book.example'}")
    assert base_url(tmp_path) == "https://book.example/"
    for text in ("html: {baseurl: 'javascript:x'}", "html: {baseurl: [1]}"):
        path.write_text(text)
        refused_input(r"html\.baseurl", base_url, tmp_path)


# --- names ----------------------------------------------------------------------------
def test_every_name_is_found_when_it_is_asked_for() -> None:
    assert {"number", "figure", "table", "cite"} < set(proofbook.__all__)
    for name in proofbook.__all__:
        assert getattr(proofbook, name) is not None
        assert name in dir(proofbook)
    with pytest.raises(AttributeError, match="no attribute 'nmber'"):
        getattr(proofbook, "nmber")  # noqa: B009


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import proofbook", {"sphinx", "pandas", "numpy", "matplotlib"}),
        (
            "from pathlib import Path\n"
            "from proofbook.catalogue import citations, editions, notebook_entries\n"
            "notebook_entries.stored_catalogue(Path())",
            {"matplotlib", "pandas", "torch", "nbformat", "sphinx"},
        ),
    ],
)
def test_what_is_not_needed_is_not_loaded(code: str, heavy: set[str]) -> None:
    code = f"import sys\n{code}\nprint(*({heavy!r} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
