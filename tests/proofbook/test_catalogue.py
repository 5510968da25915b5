"""The catalogue: what notebooks show, all of it, and the same after a round trip through JSON."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofbook
from kvledger import __version__
from proofbook.catalogue import (
    FILES,
    Catalogue,
    Entry,
    number_digest,
    permalink,
    read_catalogue,
    to_json,
    write_catalogue,
)
from proofbook.catalogue.notebook_entries import catalogue_of, stored_catalogue
from proofbook.contents import base_url, page_files, toc_pages
from proofbook.errors import InputError
from proofbook.project import source_digest
from proofbook.showing import RECORD

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def book() -> Catalogue:
    return stored_catalogue(ROOT)


# --- the book -------------------------------------------------------------------------


def test_it_holds_all_that_the_pages_show(book: Catalogue) -> None:
    """Counted in the files' text, without the code that reads notebooks."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in page_files(ROOT) if path.suffix == ".ipynb"
    )
    numbers = set(
        re.findall(r'"scrapbook": \{\s*"mime_prefix": "[^"]+",\s*"name": "([^"]+)"', text)
    )
    figures = set(re.findall(r'"(fig-[a-z0-9-]+) · data [0-9a-f]{8}"', text))
    tables = set(re.findall(r'<div class=\\"kv-table\\"[^>]*? id=\\"(tab-[a-z0-9-]+)\\"', text))
    shown = {"number": numbers, "figure": figures, "table": tables}
    assert all(len(ids) > 20 for ids in shown.values())
    for what, ids in shown.items():
        assert {e.id for e in book.entries.values() if e.what == what} == ids


def test_every_entry_is_whole(book: Catalogue) -> None:
    for id, entry in book.entries.items():
        assert entry.id == id
        assert re.fullmatch("[0-9a-f]{64}", entry.digest), id
        assert entry.text.strip()
        assert (entry.source is None) == (entry.kind == "computed")
        assert (ROOT / f"{entry.page}.ipynb").is_file()
        if entry.what == "number":
            assert entry.value is not None
            assert entry.unit is not None
            assert entry.digest == number_digest(id, entry.value, entry.unit)
            assert entry.caption is entry.alt is None
        else:
            assert entry.caption is not None
            assert not re.search(r"[{}`$]|glue", entry.caption), entry.caption
            assert entry.value is entry.unit is None
            assert (entry.alt is not None) == (entry.what == "figure")


def test_a_number_reads_as_its_value(book: Catalogue) -> None:
    """What is shown is the exact value, rounded: wherever the text is a plain decimal."""
    from fractions import Fraction

    compared = 0
    for entry in book.entries.values():
        text = entry.text.replace(",", "").replace("\N{MINUS SIGN}", "-").removesuffix("%")
        if entry.what != "number" or not re.fullmatch(r"-?\d+(\.\d+)?", text):
            continue
        if entry.unit == "text":
            continue
        places = len(text.partition(".")[2])
        exact = Fraction(str(entry.value))
        assert abs(exact - Fraction(text)) <= Fraction(1, 2 * 10**places), entry.id
        compared += 1
    assert compared > 200


def test_pages_and_their_order(book: Catalogue) -> None:
    listed = [p.relative_to(ROOT).with_suffix("").as_posix() for p in page_files(ROOT)]
    assert list(book.pages) == [page for page in listed if page in set(book.pages)]
    assert (book.version, book.source_digest) == (__version__, source_digest(ROOT))
    assert source_digest(ROOT) == source_digest()
    places = [book.pages.index(entry.page) for entry in book.entries.values()]
    assert places == sorted(places)


def test_a_caption_says_the_numbers_of_its_page(book: Catalogue) -> None:
    caption = book.entries["fig-slack-share"].caption
    assert caption is not None
    for id in ("paged.default_size", "slack.p16.least_share", "slack.p16.greatest_share"):
        assert book.entries[id].text in caption


# --- notebooks ------------------------------------------------------------------------


def number_output(id: str, text: str, **about: Any) -> dict[str, Any]:
    return {
        "data": {RECORD: text},
        "metadata": {
            "scrapbook": {"name": id, "mime_prefix": "application/papermill.record/"},
            "kvledger": {"kind": "computed", "source": None, **about},
        },
    }


def figure_output(id: str, data: str, **about: Any) -> dict[str, Any]:
    return {
        "data": {"image/png": "aGVsbG8=", "text/plain": [f"{id} · data {data[:8]}"]},
        "metadata": {"kvledger": {"kind": "computed", "source": None, **about}},
    }


def cell(id: str, *outputs: Any, source: str = "", caption: str | None = None) -> dict[str, Any]:
    metadata = {"mystnb": {"figure": {"caption": caption, "name": "x"}}} if caption else {}
    return {
        "cell_type": "code",
        "id": id,
        "metadata": metadata,
        "source": source,
        "outputs": list(outputs),
    }


def read(**pages: list[dict[str, Any]]) -> Catalogue:
    notebooks = {page: {"cells": cells} for page, cells in pages.items()}
    return catalogue_of(notebooks, version="1", source_digest="0" * 64)


def test_captions_are_filled_in() -> None:
    caption = (
        "At $c$ it is {glue:text}`a.n`, there {glue:text}`two::b.n`; see {numref}`fig-b`, "
        "{doc}`this page <other>`, [a link](https://x.example), **bold**, *thin*, `code`."
    )
    digest = "ab" * 32
    found = read(
        one=[
            cell(
                "c",
                number_output("a.n", "2*3*4"),
                figure_output("fig-a", digest, digest=digest),
                caption=caption,
            )
        ],
        two=[cell("d", number_output("b.n", "$7$"))],
    )
    assert found.entries["fig-a"].caption == (
        "At c it is 2*3*4, there $7$; see fig-b, this page, a link, bold, thin, code."
    )
    assert found.entries["fig-a"].digest == digest


def test_an_early_notebook_can_be_read() -> None:
    """Of version 0.1.0 there are texts and eight digits."""
    table = '<div class="kv-table" role="region" id="tab-a" data-kind="cited"></div>'
    output = {
        "data": {"text/html": [table], "text/plain": "Slack. Cited: Kwon.\n\na"},
        "metadata": {"kvledger": {"kind": "cited", "source": "Kwon"}},
    }
    found = read(
        p=[
            cell("a", number_output("a.n", "36.6%")),
            cell("b", figure_output("fig-a", "01234567"), caption="Slack grows. Fast."),
            cell("c", output),
        ]
    ).entries
    assert (found["a.n"].value, found["a.n"].unit) == ("36.6%", "")
    assert (found["fig-a"].text, found["fig-a"].digest) == ("Slack grows", "01234567")
    assert (found["tab-a"].text, found["tab-a"].kind) == ("Slack.", "cited")
    assert len(found["tab-a"].digest) == 64


def test_an_id_shown_again_stands_where_it_was_first() -> None:
    again = number_output("a.n", "4", value="4", unit="slots")
    found = read(one=[cell("a", again)], two=[cell("b", again)])
    assert [(e.page, e.cell) for e in found.entries.values()] == [("one", "a")]


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        (
            {"one": [cell("a", number_output("a.n", "4"))],
             "two": [cell("b", number_output("a.n", "5"))]},
            "two, cell b: a.n says '5', but '4' on one, cell a",
        ),
        (
            {"one": [cell("a", number_output("a.n", "4", value="4", unit="slots")),
                     cell("b", number_output("a.n", "4", value="4", unit="pages"))]},
            "one, cell b: a.n says '4', but '4' on one, cell a",
        ),
        ({"one": [cell("a", number_output("a.n", "4", kind="guessed"))]}, "one, cell a: a.n does"),
        (
            {"one": [cell("a", figure_output("fig-a", "0" * 8), caption="{glue:text}`b.n`.")]},
            "one, cell a: fig-a: the caption shows 'b.n', which no cell glues",
        ),
        ({"one": [cell("a", source="number(")]}, "one, cell a, line 1: no Python"),
    ],
)  # fmt: skip
def test_notebooks_are_refused(pages: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        read(**pages)


# --- through JSON ---------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.from_regex(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", fullmatch=True)
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
PAGES = ("chapters/one", "chapters/two", "index")


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    ids = draw(st.lists(IDS, unique=True, max_size=6))
    entries = []
    for at, id in enumerate(ids):
        what = draw(st.sampled_from(["number", "figure", "table"]))
        kind = draw(st.sampled_from(["computed", "cited", "measured"]))
        is_number = what == "number"
        entries.append(
            Entry(
                id=id if is_number else f"{what[:3]}-{at}",
                what=what,  # type: ignore[arg-type]
                kind=kind,  # type: ignore[arg-type]
                source=None if kind == "computed" else draw(WORDS),
                page=draw(st.sampled_from(PAGES)),
                cell=draw(WORDS),
                text=draw(WORDS),
                value=draw(WORDS) if is_number else None,
                unit=draw(WORDS) if is_number else None,
                digest=draw(DIGESTS),
                caption=None if is_number else draw(WORDS),
                alt=draw(WORDS) if what == "figure" else None,
            )
        )
    entries.sort(key=lambda entry: PAGES.index(entry.page))
    return Catalogue(draw(WORDS), draw(DIGESTS), {entry.id: entry for entry in entries})


@given(catalogues(), st.sampled_from(["", "https://book.example/v1/"]))
@settings(max_examples=60)
def test_a_catalogue_comes_back_from_its_files(made: Catalogue, base: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        write_catalogue(made, where, base)
        contents = {name: (where / name).read_bytes() for name in FILES}
        found = read_catalogue(where)
        assert found == made
        assert to_json(found, base) == to_json(made, base)
        write_catalogue(found, where, base)
        assert {name: (where / name).read_bytes() for name in FILES} == contents
        one = where / "one.json"
        one.write_text(json.dumps(to_json(made)), encoding="utf-8")
        assert read_catalogue(one) == made


def test_what_the_files_hold(book: Catalogue, tmp_path: Path) -> None:
    write_catalogue(book, tmp_path, "https://book.example")
    for name, what in FILES.items():
        content = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        listed = content[name.removesuffix(".json")]
        assert content["project"] == "kvledger"
        assert [e["id"] for e in listed] == [e.id for e in book.entries.values() if e.what == what]
        assert all(e["permalink"].startswith("https://book.example/chapters/") for e in listed)
    slots = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))["numbers"]
    found = next(e for e in slots if e["id"] == "paged.p4.allocated_slots")
    assert (found["value"], found["unit"], found["kind"]) == ("40", "slots", "computed")
    assert found["page"] == "chapters/page_tail_slack"


def broken(folder: Path, name: str, change: Any) -> Path:
    entry = Entry("a.n", "number", "computed", None, "p", "c", "4", "4", "slots",
                  number_digest("a.n", "4", "slots"), None, None, ())  # fmt: skip
    write_catalogue(Catalogue("1", "0" * 64, {"a.n": entry}), folder)
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("numbers.json", lambda c: c["numbers"][0].pop("digest"), "number 1, digest: None"),
        ("numbers.json", lambda c: c["numbers"][0].update(value=4), "number 1, value: 4"),
        ("numbers.json", lambda c: c["numbers"][0].update(kind="x"), "kind 'x'"),
        ("numbers.json", lambda c: c["numbers"][0].update(what="table"), "what 'table'"),
        ("numbers.json", lambda c: c["numbers"].append(c["numbers"][0]), "a.n stands twice"),
        ("numbers.json", lambda c: c["numbers"].append(4), "number 2: 4; accepted: a JSON object"),
        ("numbers.json", lambda c: c.update(numbers={}), "numbers: {}; accepted: a list"),
        ("figures.json", lambda c: c.update(version="2"), "accepted: files of one build"),
        ("tables.json", lambda c: c.pop("version"), "version: None; accepted: a text"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, change: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_catalogue(broken(tmp_path, name, change))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"{", "no JSON"), (b"[]", "accepted: a JSON object"), (b"\xff", "no JSON"),
     (b"[" * 100_000, "no JSON")],
)  # fmt: skip
def test_files_that_are_no_catalogue(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_catalogue(path)
    with pytest.raises(InputError, match="a built book's folder"):
        read_catalogue(tmp_path / "absent.json")
    with pytest.raises(InputError, match=r"numbers\.json"):
        read_catalogue(tmp_path)


# --- pages and addresses --------------------------------------------------------------


def test_a_checkout_without_its_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"_toc\.yml"):
        stored_catalogue(tmp_path)
    (tmp_path / "_toc.yml").write_text("root: a\nchapters: [{file: b}]")
    with pytest.raises(InputError, match=r"lists 'a', but there is no a\.ipynb"):
        page_files(tmp_path)
    (tmp_path / "a.ipynb").write_text("{}")
    (tmp_path / "b.md").write_text("words")
    with pytest.raises(InputError, match=r"a\.ipynb: no cells"):
        stored_catalogue(tmp_path)
    (tmp_path / "a.ipynb").write_text("{")
    with pytest.raises(InputError, match="not a notebook"):
        stored_catalogue(tmp_path)
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell("a", number_output("x.n", "4"))]}))
    found = stored_catalogue(tmp_path)
    assert (found.version, found.pages) == (__version__, ("a",))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "7.1"')
    assert stored_catalogue(tmp_path).version == "7.1"


@pytest.mark.parametrize("text", ["", "[]", "format: jb-book", "root: ["])
def test_a_table_of_contents_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"_toc\.yml"):
        toc_pages(text)


def test_the_public_address(tmp_path: Path) -> None:
    path = tmp_path / "_config.yml"
    with pytest.raises(InputError, match="cannot be read"):
        base_url(tmp_path)
    for text in ("", "title: x", "html: {baseurl: ''}", "html:"):
        path.write_text(text)
        assert base_url(tmp_path) == ""
    path.write_text("html: {baseurl: 'https://book.example'}")
    assert base_url(tmp_path) == "https://book.example/"
    for text in ("html: {baseurl: 'javascript:x'}", "html: {baseurl: [1]}"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"html\.baseurl"):
            base_url(tmp_path)
    assert base_url(ROOT) == "" or base_url(ROOT).startswith("http")


def test_permalinks(book: Catalogue) -> None:
    links = [permalink(entry) for entry in book.entries.values()]
    assert len(set(links)) == len(links)
    number = book.entries["paged.p4.allocated_slots"]
    assert permalink(number) == "chapters/page_tail_slack.html#n-paged.p4.allocated_slots"


def test_a_look_up_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom proofbook.catalogue import stored_catalogue\n"
        "from proofbook import citing\nfrom pathlib import Path\n"
        f"assert stored_catalogue(Path({str(ROOT)!r})).entries\n"
        "print(*({'matplotlib', 'pandas', 'torch', 'nbformat', 'sphinx'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_names_that_type_checkers_see_of_the_book_are_those_found() -> None:
    tree = ast.parse(Path(proofbook.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen.pop("proofbook") == ("style",)
    assert seen == proofbook._HOMES
    assert sorted(proofbook.__all__) == sorted([*proofbook._HOME_OF, "style"])
    for name in proofbook.__all__:
        assert getattr(proofbook, name) is not None
        assert name in dir(proofbook)
    with pytest.raises(AttributeError, match="no attribute 'nmber'"):
        getattr(proofbook, "nmber")  # noqa: B009
