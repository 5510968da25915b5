"""Every place that the book can be read from, and what each refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import refused_input
from editions import book, figure, glued, notebook, number, sha256, shown_table, write_checkout
from hypothesis import given, settings
from hypothesis import strategies as st

from proofbook import project
from proofbook.catalogue import editions, to_json, write_catalogue
from proofbook.catalogue.changes import compare
from proofbook.catalogue.editions import edition, read_release, release_names, snapshot, this_book

TABLE = shown_table("tab-a", "1  2")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A book of two chapters, as the working folder."""
    root = write_checkout(
        tmp_path / "checkout",
        {"first": notebook(glued("a.b", "9"), TABLE), "second": notebook(glued("a.c", "7"))},
        "0.2.0",
    )
    monkeypatch.chdir(root)
    return root


def test_the_book_here_built_and_in_a_file(checkout: Path, tmp_path: Path) -> None:
    found = edition(".")
    assert found == edition(".", checkout) == this_book(checkout)
    assert (found.name, list(found.catalogue.entries)) == ("0.2.0 here", ["a.b", "tab-a", "a.c"])
    assert found.catalogue.entries["a.c"].page == "chapters/second"
    assert found.printed.table_rows == {"tab-a": sha256("1  2")}
    made = book(number("a.b"), figure("fig-a"), figure("tab-a"))
    write_catalogue(made.catalogue, tmp_path)
    assert edition(str(tmp_path)).catalogue == made.catalogue
    assert edition(str(tmp_path)).name == f"0.2.0 in {tmp_path}"
    path = tmp_path / "all.json"
    path.write_text(json.dumps(to_json(made.catalogue)))
    assert edition(str(path)).catalogue == made.catalogue
    assert compare(edition(str(tmp_path)), edition(str(path))).changed == ()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nope", "'nope': no such release or file; accepted: a release, a built book"),
        ("", "'': no such release or file"),
        ("a\0b", "no such release or file"),
        ("chapters", "'chapters': a folder without numbers.json; accepted"),
    ],
)
def test_what_is_no_edition(checkout: Path, name: str, says: str) -> None:
    refused_input(says, edition, name)


@given(st.text(min_size=1, max_size=30))
@settings(max_examples=25)
def test_whatever_a_name_holds_its_error_is_one_line(text: str) -> None:
    assert "\n" not in refused_input("accepted: a release, a built book", edition, f"--{text}")


NONE = '{"version": "1", "source_digest": "", "numbers": [], "figures": [], "tables": [], %s}'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "accepted: the JSON of a catalogue"),
        ('{"version": "1", "source_digest": "", "numbers": [], "figures": []}', "tables"),
        (NONE % '"table_rows": []', r"`\$\.table_rows`"),
        (NONE % '"early": "a"', r"`\$\.early`"),
    ],
)
def test_a_file_that_is_no_catalogue(checkout: Path, content: str, says: str) -> None:
    path = checkout / "bad.json"
    path.write_text(content)
    refused_input(f"bad.json: .*{says}", edition, str(path))


def test_no_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "_offered", [project.this_project()])
    monkeypatch.setattr(project, "repository_root", lambda: None)
    refused_input(r"'\.': no checkout of the book here; accepted", edition, ".")


# --------------------------------------------------------------------------- releases
def test_releases_are_in_order(checkout: Path) -> None:
    folder = checkout / "data" / "releases"
    folder.mkdir(parents=True)
    made = book(number("a.b"))
    for name in ("0.10.0", "0.9.1", "notes", "0.9"):
        (folder / f"{name}.json").write_bytes(snapshot(made))
    assert release_names() == ["0.9", "0.9.1", "0.10.0"]
    assert edition("0.9.1").name == "0.9.1"
    refused_input(r"no release 'notes'; accepted: 0\.9, 0\.9\.1, 0\.10\.0", read_release, "notes")
    shutil.rmtree(folder)
    refused_input("accepted: none is on file", read_release, "0.9")


def test_keeping_a_release(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = checkout / "data" / "releases" / "0.2.0.json"
    kept.parent.mkdir(parents=True)
    assert editions.main() == 0
    assert capsys.readouterr().out == f"{kept}\n"
    made, found = this_book(checkout), edition("0.2.0")
    assert kept.read_bytes() == snapshot(made)
    assert (found.catalogue, found.printed) == (made.catalogue, made.printed)
    assert editions.main() == 2
    assert capsys.readouterr().err.endswith(
        "0.2.0.json: is kept already; accepted: a version without a release\n"
    )


def test_captions_of_tables_do_not_count(checkout: Path) -> None:
    """The rows of an early table are what is compared: its caption may be worded anew."""
    made = this_book(checkout)
    old = made._replace(printed=made.printed._replace(early=frozenset({"tab-a"})))
    for rows, digest in (("1  2", "e" * 64), ("1  3", "f" * 64)):
        table = shown_table("tab-a", rows, "Held by them all.", digest=digest)
        write_checkout(checkout, {"first": notebook(glued("a.b", "9"), table)}, "0.3.0")
        changed = [(c.new.id, c.ways) for c in compare(old, this_book(checkout)).changed]
        assert changed == ([] if rows == "1  2" else [("tab-a", ("data",))])
