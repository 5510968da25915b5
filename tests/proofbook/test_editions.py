"""Every place that the book can be read from, and what each refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from editions import (
    book,
    commit,
    figure,
    git,
    glued,
    notebook,
    number,
    sha256,
    shown_table,
    write_checkout,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from proofbook.catalogue.revisions import digest_of_sources, revision, snapshot

from kvledger.traces.derivation import load_manifest
from proofbook import project as datafiles
from proofbook.catalogue import revisions, to_json, write_catalogue
from proofbook.catalogue.changes import compare
from proofbook.catalogue.editions import edition, read_release, release_names, this_book
from proofbook.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
EXACT = {"value": "9", "unit": "slots"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of two commits: an early book of one chapter, and a later one of two."""
    root = tmp_path / "checkout"
    write_checkout(root, {"first": notebook(glued("a.b", "9"), shown_table("tab-a", "1  2"))})
    commit(root, "early")
    git(root, "tag", "early")
    later = notebook(glued("a.b", "9", **EXACT), shown_table("tab-a", "1  2", digest="d" * 64))
    write_checkout(root, {"first": later, "second": notebook(glued("a.c", "7", **EXACT))}, "0.2.0")
    commit(root, "later")
    return root


# --------------------------------------------------------------------------- git revisions


def test_a_revision_is_read_and_nothing_is_checked_out(checkout: Path) -> None:
    (checkout / "chapters" / "first.ipynb").write_text("not a notebook any more")
    before = {p: p.read_bytes() for p in checkout.rglob("*") if p.is_file()}
    old, new = revision("early", checkout), revision("HEAD", checkout)
    assert (old.catalogue.version, new.catalogue.version) == ("0.1.0", "0.2.0")
    assert list(old.catalogue.entries) == ["a.b", "tab-a"]
    assert list(new.catalogue.entries) == ["a.b", "tab-a", "a.c"]
    assert new.catalogue.entries["a.c"].page == "chapters/second"
    assert (old.printed.early, new.printed.early) == ({"a.b", "tab-a"}, frozenset())
    assert old.name == f"0.1.0 at {git(checkout, 'rev-parse', 'early')[:7]}"
    changes = compare(old, new)
    assert changes.changed == ()
    assert [entry.id for entry in changes.added] == ["a.c"]
    assert {p: p.read_bytes() for p in checkout.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["HEAD~1", "early", "HEAD^{/early}"])
def test_a_revision_by_any_name_git_has_for_it(checkout: Path, name: str) -> None:
    assert revision(name, checkout).catalogue == revision("early", checkout).catalogue


def test_a_checkout_within_a_repository(checkout: Path, tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "book"
    shutil.copytree(checkout, inner, ignore=shutil.ignore_patterns(".git"))
    commit(tmp_path / "outer")
    assert list(revision("HEAD", inner).catalogue.entries) == ["a.b", "tab-a", "a.c"]


def test_the_digest_of_sources_is_that_of_a_checkout(tmp_path: Path) -> None:
    files = ["src/a/b.py", "src/a.py", "src/a-b.py", "data/x y.csv", "data/ü.csv"]
    write_checkout(tmp_path, {"first": notebook()})
    for name in [*files, "requirements.txt", "README.md"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n", encoding="utf-8")
    commit(tmp_path)
    expected = datafiles.source_digest(tmp_path)
    assert revision("HEAD", tmp_path).catalogue.source_digest == expected
    contents = {name: f"{name}\n".encode() for name in [*files, "requirements.txt"]}
    assert digest_of_sources(contents) == expected


@given(st.text(min_size=1, max_size=30))
@settings(max_examples=25)  # each asks git
def test_no_text_is_taken_for_an_option_or_a_command(text: str) -> None:
    """A name of nothing is an error in one line, whatever it holds; the tags here hold none."""
    name = f"--{text}"
    with pytest.raises(InputError, match="accepted: a release, a built book") as caught:
        edition(name, ROOT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "'nope': no such release, folder, file or revision; accepted: a release"),
        ("HEAD~99", "no such release, folder, file or revision"),
        ("", "'': no such release"),
        ("a\0b", "git cannot be asked"),
        ("HEAD:chapters/first.ipynb", "no such release"),
    ],
)
def test_what_is_no_revision(checkout: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        edition(name, checkout)


def test_a_revision_without_a_book(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    commit(tmp_path)
    with pytest.raises(InputError, match=r"'HEAD': no _toc\.yml at this revision; accepted"):
        revision("HEAD", tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("chapters/first.ipynb", "{", r"HEAD:chapters/first\.ipynb: .*; accepted: a notebook"),
        ("chapters/first.ipynb", "[]", r"HEAD:chapters/first\.ipynb: no cells; accepted"),
        ("_toc.yml", "a: [", r"'HEAD': _toc\.yml cannot be read"),
        ("_toc.yml", "- a", r"'HEAD': _toc\.yml has no 'root'"),
        ("pyproject.toml", "[project", "'HEAD': .*; accepted: a revision with a book"),
        ("pyproject.toml", "[project]", "'HEAD': 'version'; accepted: a revision with a book"),
    ],
)
def test_a_revision_with_a_broken_book(
    checkout: Path, file: str, content: str, message: str
) -> None:
    (checkout / file).write_text(content)
    commit(checkout)
    with pytest.raises(InputError, match=message) as caught:
        revision("HEAD", checkout)
    assert caught.type is InputError


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"git cannot be asked \(.*\); accepted: a release"):
        revision("HEAD", checkout)


def test_a_folder_that_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", os.fspath(tmp_path.parent))
    with pytest.raises(InputError, match="no such release, folder, file or revision"):
        edition("HEAD", tmp_path)


# --------------------------------------------------------------------------- folders and files


def test_a_checkout_by_its_folder(checkout: Path) -> None:
    found = edition(str(checkout))
    assert found.catalogue == revision("HEAD", checkout).catalogue
    assert found == edition(".", checkout)
    assert (found.name, this_book(checkout, "it").name) == ("0.2.0 here", "it")


def test_a_built_book_and_a_file_of_the_same(tmp_path: Path) -> None:
    made = book(number("a.b"), figure("fig-a"), figure("tab-a"))
    write_catalogue(made.catalogue, tmp_path)
    assert edition(str(tmp_path)).catalogue == made.catalogue
    assert edition(str(tmp_path)).name == f"0.2.0 in {tmp_path}"
    path = tmp_path / "all.json"
    path.write_text(json.dumps(to_json(made.catalogue)))
    assert edition(str(path)).catalogue == made.catalogue
    assert compare(edition(str(tmp_path)), edition(str(path))).changed == ()


def test_a_snapshot_reads_back_whole(checkout: Path, tmp_path: Path) -> None:
    made = revision("early", checkout)
    path = tmp_path / "kept.json"
    path.write_bytes(snapshot(made))
    found = edition(str(path))
    assert (found.catalogue, found.printed) == (made.catalogue, made.printed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON"),
        ("[]", "accepted: a JSON object"),
        ('{"version": "1", "source_digest": "", "numbers": [], "figures": []}', "tables"),
        (
            '{"version": "1", "source_digest": "", "numbers": [{}], "figures": [], "tables": []}',
            "number 1",
        ),
        (
            '{"version": "1", "source_digest": "", "numbers": [], "figures": [], "tables": [], '
            '"table_rows": []}',
            "table_rows; accepted: a digest for each table",
        ),
        (
            '{"version": "1", "source_digest": "", "numbers": [], "figures": [], "tables": [], '
            '"early": "a"}',
            "early; accepted: a list of ids",
        ),
    ],
)
def test_a_file_that_is_no_catalogue(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(InputError, match=f"bad.json.*{message}"):
        edition(str(path))


def test_a_folder_of_other_things(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder without _toc\.yml or numbers\.json; accepted"):
        edition(str(tmp_path))


def test_nothing_and_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "repository_root", lambda: None)
    with pytest.raises(InputError, match=r"'\.': no checkout of the book here; accepted"):
        edition(".")
    with pytest.raises(InputError, match="'HEAD': no such release, folder or file; accepted"):
        edition("HEAD")


# --------------------------------------------------------------------------- releases


def test_releases_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "releases").mkdir()
    made = book(number("a.b"))
    for name in ("0.10.0", "0.9.1", "notes", "0.9"):
        (tmp_path / "releases" / f"{name}.json").write_bytes(snapshot(made))
    monkeypatch.setattr(datafiles, "data_folder", lambda: tmp_path)
    assert release_names() == ["0.9", "0.9.1", "0.10.0"]
    assert edition("0.9.1").name == "0.9.1"
    with pytest.raises(InputError, match=r"no release 'notes'; accepted: 0\.9, 0\.9\.1, 0\.10\.0"):
        read_release("notes")
    shutil.rmtree(tmp_path / "releases")
    with pytest.raises(InputError, match="accepted: none is on file"):
        read_release("0.9")


@pytest.mark.parametrize("name", release_names())
def test_a_release_on_file_is_what_its_commit_shows(name: str) -> None:
    (entry,) = [e for e in load_manifest() if e["path"] == f"releases/{name}.json"]
    commit_named = entry["command"].split()[-2]
    try:
        made = revision(commit_named, ROOT)
    except InputError:
        pytest.skip(f"the history here does not reach back to {commit_named}")
    assert snapshot(made) == (ROOT / "data" / entry["path"]).read_bytes()
    assert made.catalogue.version == name == read_release(name).catalogue.version


def test_a_present_version_is_later_than_every_release() -> None:
    """A release is on file when it is over: what is built now is the next one, or the last."""
    order = [*release_names(), this_book(ROOT).catalogue.version]
    assert order == sorted(order, key=lambda name: [int(part) for part in name.split(".")])


def test_keeping_a_release(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    out = checkout / "0.1.0.json"
    assert revisions.main(["early", str(out)]) == 0
    assert out.read_bytes() == snapshot(revision("early", checkout))
    assert revisions.main(["HEAD", str(out)]) == 2
    said = capsys.readouterr().err
    assert "the version at HEAD is 0.2.0; accepted: a file 0.2.0.json" in said
    assert said.count("\n") == 1
    assert revisions.main(["nope", str(out)]) == 2


def test_captions_of_tables_do_not_count(checkout: Path) -> None:
    """The rows of an early table are what is compared: its caption may be worded anew."""
    old = revision("early", checkout)
    reworded = notebook(glued("a.b", "9"), shown_table("tab-a", "1  2", "Held by them all."))
    write_checkout(checkout, {"first": reworded})
    assert this_book(checkout).printed.table_rows["tab-a"] == sha256("1  2")
    assert compare(old, this_book(checkout)).changed == ()
    other = notebook(glued("a.b", "9"), shown_table("tab-a", "1  3"))
    write_checkout(checkout, {"first": other})
    (change,) = compare(old, this_book(checkout)).changed
    assert (change.new.id, change.ways) == ("tab-a", ("data",))
