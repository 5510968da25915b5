"""What a picture says of itself, whether it is current, and the same figure made again."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import ENVIRONMENT, KVLEDGER, answer, on_a_terminal, refusal, run, said
from conftest import refused_input
from editions import book, figure, glued, notebook, number, sha256, write_checkout
from hypothesis import given
from hypothesis import strategies as st

from kvledger.cli import main
from proofbook.build.pictures import agree, remake, trace
from proofbook.catalogue import Catalogue, write_catalogue
from proofbook.catalogue.notebook_entries import stored_catalogue
from proofbook.errors import InputError
from proofbook.showing import MARK
from proofbook.stamps import read_stamp, stamped_png, stamped_svg

PLAIN_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="4pt" height="4pt"><g/></svg>'
OLD, NEW = "page_size,share\n1,0\n16,0.3\n", "page_size,share\n1,0\n16,0.4\n"


def stamp(**fields: str) -> dict[str, str]:
    return {
        "project": "kvledger", "version": "0.1.0", "id": "fig-a", "title": "Pages hold less",
        "data_digest": sha256(OLD), "source_digest": "5" * 64, "page": "chapters/first",
        "cell": "draw", "licence": "CC BY 4.0",
    } | fields  # fmt: skip


def write_svg(path: Path, **fields: str) -> Path:
    path.write_text(stamped_svg(PLAIN_SVG, stamp(**fields)), encoding="utf-8")
    return path


def write_png(path: Path, **fields: str) -> Path:
    from PIL import Image

    Image.new("L", (4, 4), 255).save(path, "png")
    path.write_bytes(stamped_png(path.read_bytes(), stamp(**fields)))
    return path


def write_book(folder: Path, *entries: Any) -> str:
    folder.mkdir(exist_ok=True)
    write_catalogue(book(*entries).catalogue, folder)
    return str(folder)


# --------------------------------------------------------------------------- a picture and the book
@pytest.mark.parametrize("name", ["fig-a.svg", "taken from a review.PNG", "no-suffix"])
def test_a_picture_by_any_name(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write = write_svg if name.endswith("svg") else write_png
    path = write(tmp_path / name, data_digest=sha256(OLD))
    folder = write_book(tmp_path / "html", figure("fig-a", OLD))
    found = answer(["figure", str(path), "--book", folder], capsys)
    assert found["stamp"] == stamp()
    assert (found["current"], found["same_sources"]) == (True, True)
    out = said(["figure", str(path), "--book", folder], capsys)
    assert "Current: the same data, made with the same code." in out
    for part in ("Pages hold less", "kvledger 0.1.0", "chapters/first.html#fig-a", "draw",
                 sha256(OLD), "5" * 64, "CC BY 4.0", "computed"):  # fmt: skip
        assert part in out


def test_a_picture_beside_the_book(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_svg(tmp_path / "a.svg", source_digest="7" * 64, title="Pages held less")
    folder = write_book(tmp_path / "html", figure("fig-a", OLD))
    found = answer(["figure", str(path), "--book", folder], capsys)
    assert (found["current"], found["same_sources"]) == (True, False)
    out = said(["figure", str(path), "--book", folder], capsys)
    assert "Code or other data of the project changed since (77777777, now 55555555)." in out
    assert "now titled     Pages hold less" in out
    path = write_svg(tmp_path / "sent by mail.svg")
    folder = write_book(tmp_path / "html", figure("fig-a", NEW))
    assert answer(["figure", str(path), "--book", folder], capsys)["current"] is False
    out = said(["figure", str(path), "--book", folder], capsys)
    assert f"Not current: its data were {sha256(OLD)[:8]}, version 0.2.0 of the book shows" in out
    path = write_png(tmp_path / "a.png", id="fig-ab")
    folder = write_book(tmp_path / "html", figure("fig-a"), figure("fig-abc"))
    found = answer(["figure", str(path), "--book", folder], capsys)
    assert (found["entry"], found["current"]) == (None, False)
    out = said(["figure", str(path), "--book", folder], capsys)
    assert "Not current: version 0.2.0 of the book has no fig-ab." in out
    assert "The nearest are fig-abc, fig-a." in out
    again = ["figure", str(path), "--book", folder, "--again", "--out", str(tmp_path / "out")]
    assert "has no fig-ab, so it cannot be made again" in refusal(again, capsys)
    hostile = "\x1b[2J[bold]markup\u202e\nline"
    path = write_png(tmp_path / "a.png", title=hostile, version=hostile, data_digest=hostile)
    folder = write_book(tmp_path / "html", figure("fig-a"))
    assert main(["figure", str(path), "--book", folder]) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert r"\x1b[2J[bold]markup\u202e\nline" in out
    from PIL import Image

    path = tmp_path / "a.png"
    Image.new("L", (4, 4)).save(path)
    assert "no stamp of kvledger" in refusal(["figure", str(path)], capsys)
    folder = write_book(tmp_path / "html", figure("tab-a", OLD))
    found = answer(["figure", "tab-a", "--book", folder], capsys)
    assert (found["stamp"], found["current"], found["again"]) == (None, None, None)
    assert found["entry"]["digest"] == sha256(OLD)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("../../etc/passwd", "the picture's stamp has the id '../../etc/passwd'; accepted: (fig|"),
        ("fig-a\n\x1b[2J", "the picture's stamp has the id 'fig-a"),
        ("", "the picture's stamp has the id ''; accepted"),
    ],
)
def test_an_id_is_no_path(
    tmp_path: Path, id: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_book(tmp_path / "html", figure("fig-a"))
    path = write_svg(tmp_path / "a.svg", id=id)
    assert message in refusal(["figure", str(path), "--book", folder], capsys)


# --------------------------------------------------------------------------- what cannot be told
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PLAIN_SVG, "no stamp of kvledger in it"),
        ("just words", "neither PNG nor SVG"),
        ("", "neither PNG nor SVG"),
        ("\x89PNG", "neither PNG nor SVG"),
    ],
)
def test_a_file_without_a_stamp(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "picture.svg"
    path.write_text(content)
    folder = write_book(tmp_path / "html", figure("fig-a"))
    said = refusal(["figure", str(path), "--book", folder], capsys)
    assert message in said
    assert str(path) in said


def test_what_is_asked_wrongly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_book(tmp_path / "html", figure("fig-abc"), number("a.b"))
    for arguments, message in (
        (["fig-abd"], "no number, figure or table 'fig-abd' in version 0.2.0; the nearest are fig"),
        (["zzz"], "no number, figure or table 'zzz' in version 0.2.0; none is like it"),
        (["a.b"], "'a.b' is a number; accepted: a figure or a table (kvledger cite a.b"),
        (["absent.png"], "absent.png: no such file; accepted: a PNG or SVG, or an id"),
        (["fig-abc", "--again"], "--again and --out DIR; accepted: both, or neither"),
        (["fig-abc", "--out", "x"], "--again and --out DIR; accepted: both, or neither"),
        (["fig\0"], "no number, figure or table 'fig\\x00'"),
    ):
        assert message in refusal(["figure", *arguments, "--book", folder], capsys)
    said = refusal(["figure", "fig-abc", "--book", str(tmp_path / "absent")], capsys)
    assert "absent: no such folder; accepted: a built book's folder" in said


@given(st.text("0123456789abcdef", max_size=64), st.text("0123456789abcdef", max_size=64))
def test_digests_agree_if_one_begins_the_other(one: str, other: str) -> None:
    expected = min(len(one), len(other)) >= 8 and (one.startswith(other) or other.startswith(one))
    assert agree(one, other) == agree(other, one) == expected
    assert agree(one, one) == (len(one) >= 8)


def test_a_stamp_of_little_is_read() -> None:
    """A stamp from the notebook says no source digest: it changes with every edit."""
    few = {"id": "fig-a", "version": "0.1.0", "data_digest": sha256(OLD)}
    traced = trace(few, Catalogue("0.2.0", "5" * 64, {"fig-a": figure("fig-a", OLD)}))
    assert (traced.same_data, traced.same_sources) == (True, False)
    assert traced.verdict() == "Current: the same data."


# --------------------------------------------------------------------------- made again
IMPORTS = """
import pandas as pd
from proofbook import figure, number, table
from proofbook import style
style.apply()
"""
DRAW = """
frame = pd.DataFrame({"page_size": [1, 16], "share": [0, VALUE]})
fig, axes = style.canvas(3.0); axes.set_title("Pages hold less")
axes.plot(frame["page_size"], frame["share"], color=style.INK["light"].ink)
figure("fig-a", fig, data=frame, alt="A line that rises from nothing at one slot to a share at 16.")
"""
TABLE = 'table("tab-a", frame, caption="The share of slack by page size.")'
NEVER = "raise RuntimeError('cells after it are not run')"


def cell(id: str, source: str, *outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code", "id": id, "metadata": {}, "execution_count": 1, "source": source,
        "outputs": list(outputs),
    }  # fmt: skip


def stored(id: str, digest: str) -> dict[str, Any]:
    about = {
        "kind": "computed",
        "source": None,
        "title": "Pages hold less",
        "alt": "A line.",
        "digest": digest,
    }
    return {
        "output_type": "display_data",
        "data": {"image/png": "", "text/plain": f"{id} · data {digest[:8]}"},
        "metadata": {MARK: about},
    }


def checkout(root: Path, value: str = "3", *, before: str = "", digest: str | None = None) -> Path:
    cells = [
        cell("imports", IMPORTS + before),
        {"cell_type": "markdown", "id": "words", "metadata": {}, "source": "Words."},
        cell("draw", DRAW.replace("VALUE", value), stored("fig-a", digest or data_digest(value))),
        cell("rows", TABLE),
        cell("never", NEVER),
    ]
    made = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return write_checkout(root, {"first": made}, "0.2.0", "kvledger")


def data_digest(value: str) -> str:
    return sha256(f"page_size,share\n1,0\n16,{value}\n")


FILES = ["fig-a.bib", "fig-a.csv", "fig-a.dark.svg", "fig-a.json", "fig-a.png", "fig-a.svg"]


@pytest.mark.slow
def test_a_figure_is_made_again_by_its_chapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "book")
    monkeypatch.chdir(root)
    before = sorted(root.rglob("*"))
    found = answer(["figure", "fig-a", "--again", "--out", "../out"], capsys)
    assert found["again"]["same_data"] is True
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert found["again"]["files"] == [f"../out/{name}" for name in FILES]
    assert sha256((out / "fig-a.csv").read_text()) == found["again"]["data_digest"]
    assert sorted(root.rglob("*")) == before
    for name in ("fig-a.png", "fig-a.svg", "fig-a.dark.svg"):
        made = read_stamp(out / name)
        assert (made["page"], made["cell"], made["id"]) == ("chapters/first", "draw", "fig-a")
    # What was made is a picture of the book, and current.
    assert answer(["figure", "../out/fig-a.png"], capsys)["current"] is True
    assert "url     = {chapters/first.html#fig-a}" in (out / "fig-a.bib").read_text()


@pytest.mark.slow
def test_data_that_come_out_otherwise_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "book", "5")
    picture = write_svg(tmp_path / "old.svg", data_digest=data_digest("3"))
    monkeypatch.chdir(root)
    arguments = ["figure", str(picture), "--again", "--out", str(tmp_path / "out")]
    assert answer(arguments, capsys)["again"]["same_data"] is False


@pytest.mark.slow
def test_a_table_is_made_again_too(tmp_path: Path) -> None:
    root = checkout(tmp_path / "book")
    entry = figure("tab-a", data_digest("3"), cell="rows", digest=data_digest("3"))
    remade = remake(entry, root, tmp_path / "out")
    assert remade.digest == data_digest("3")
    assert sorted(path.name for path in remade.files) == ["tab-a.bib", "tab-a.csv", "tab-a.json"]
    about = json.loads((tmp_path / "out" / "tab-a.json").read_text())
    assert (about["page"], about["cell"]) == ("chapters/first", "rows")


def only_the_book(tmp_path: Path) -> bool:
    return [path.name for path in tmp_path.iterdir()] == ["book"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cell": "never"}, r"chapters/first, cell never: RuntimeError: cells after it are not"),
        ({"cell": "imports"}, r"chapters/first, cell imports: ran, but saved no fig-a\.json"),
        ({"cell": "gone"}, r"first\.ipynb: no cell 'gone', which showed fig-a"),
        (
            {"page": "chapters/gone"},
            r"gone\.ipynb: No such file.*; accepted: a checkout that has it",
        ),
    ],
)
def test_what_cannot_be_made_again(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    root = checkout(tmp_path / "book")
    entry = replace(stored_catalogue(root).entries["fig-a"], **fields)
    assert refused_input(message, remake, entry, root, tmp_path / "out").isprintable()
    assert only_the_book(tmp_path)


@pytest.mark.slow
def test_a_kernel_that_dies_leaves_nothing(tmp_path: Path) -> None:
    root = checkout(tmp_path / "book", before="import os\nos._exit(3)")
    entry = stored_catalogue(root).entries["fig-a"]
    refused_input("cell imports: its process was ended", remake, entry, root, tmp_path / "out")
    assert only_the_book(tmp_path)


def test_a_folder_in_the_way_is_left_alone(tmp_path: Path) -> None:
    root = checkout(tmp_path / "book")
    entry = stored_catalogue(root).entries["fig-a"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("out", "link", "book/_toc.yml"):
        with pytest.raises(InputError, match="already exists; accepted: a new folder"):
            remake(entry, root, tmp_path / name)
    refused_input("cannot be written", remake, entry, root, tmp_path / "absent" / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]


def test_a_broken_chapter_is_named(tmp_path: Path) -> None:
    root = checkout(tmp_path / "book")
    entry = stored_catalogue(root).entries["fig-a"]
    (root / "chapters" / "first.ipynb").write_text("{")
    refused_input(r"first\.ipynb: .*; accepted: a notebook", remake, entry, root, tmp_path / "out")


def test_without_a_checkout_it_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvledger.cli.book_commands.repository_root", lambda: None)
    folder = write_book(tmp_path / "html", figure("fig-a"))
    arguments = ["figure", "fig-a", "--book", folder, "--again", "--out", str(tmp_path / "out")]
    assert "--again without a checkout; accepted: one, with" in refusal(arguments, capsys)
    assert "no checkout of the book here; accepted: --book" in refusal(["figure", "fig-a"], capsys)


SLOW = "import os, time\nopen('../started', 'w').write(str(os.getpid()))\ntime.sleep(60)"


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing(tmp_path: Path, ending: signal.Signals, status: int) -> None:
    root = checkout(tmp_path / "book", before=SLOW)
    process = subprocess.Popen(
        [*KVLEDGER, "figure", "fig-a", "--again", "--out", "../out"],
        cwd=root, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell starts what runs in the background with interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    started = root / "started"
    deadline = time.monotonic() + 60
    while not (started.is_file() and started.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    kernel = int(started.read_text())
    process.send_signal(ending)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    assert "Traceback" not in err
    assert only_the_book(tmp_path)
    while Path(f"/proc/{kernel}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{kernel}").exists()


@pytest.mark.slow
def test_progress_is_for_a_terminal(tmp_path: Path) -> None:
    root = checkout(tmp_path / "book")
    command = ("figure", "fig-a", "--again", "--out")
    piped = run(*command, "../piped", cwd=root)
    assert (piped.returncode, piped.stderr) == (0, "")
    text = on_a_terminal(*command, "../shown", cwd=root, stdout=subprocess.DEVNULL)
    assert "chapters/first" in text
    assert "2/2" in text


# --------------------------------------------------------------------------- cite
@pytest.mark.slow
def test_what_cite_prints_is_what_the_files_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "book")
    monkeypatch.chdir(root)
    remake(stored_catalogue(root).entries["fig-a"], root, tmp_path / "out")
    assert main(["cite", "fig-a"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == (tmp_path / "out" / "fig-a.bib").read_text().splitlines()


def test_cite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = book(number("a.b", "38"), figure("fig-a"))
    write_catalogue(made.catalogue, tmp_path, "https://book.example/v1/")
    found = answer(["cite", "a.b", "--book", str(tmp_path)], capsys)
    assert found["permalink"] == "https://book.example/v1/chapters/first.html#n-a.b"
    assert found["plain"].endswith(found["permalink"])
    assert found["permalink"] in found["bibtex"]
    assert (found["value"], found["unit"], found["kind"]) == ("38", "slots", "computed")
    assert main(["cite", "a.b", "--format", "plain", "--book", str(tmp_path)]) == 0
    assert capsys.readouterr().out == found["plain"] + "\n"
    folder = write_book(tmp_path / "html", number("a.pages"), figure("fig-a"))
    for arguments, message in (
        (["a.page"], "no number, figure or table 'a.page' in version 0.2.0; the nearest are a.pag"),
        (["\x1b[2J"], "no number, figure or table '\\x1b[2J'"),
        (["x" * 100_000], "none is like it"),
        (["fig-a", "--format", "apa"], "'apa' is not one of 'bibtex', 'plain'"),
    ):
        assert message in refusal(["cite", *arguments, "--book", folder], capsys)


def test_cite_of_a_checkout_that_has_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_checkout(tmp_path, {"first": notebook(glued("a.b", "9"))}, name="kvledger")
    (root / "_config.yml").write_text("html: {baseurl: 'https://book.example'}\n")
    monkeypatch.chdir(root)
    link = answer(["cite", "a.b"], capsys)["permalink"]
    assert link == "https://book.example/chapters/first.html#n-a.b"
