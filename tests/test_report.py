"""The report on a reader's own trace: what it says, what it must not say, and that it runs nothing.

The chapter `your_workload` is the template; its parts are tested on odd traces without a kernel,
and the whole command a few times with one.
"""

from __future__ import annotations

import base64
import csv
import errno
import html
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import nbformat
import numpy as np
import psutil
import pytest
from attention_records import made_record, write_made
from browser.driver import FLAGS, find_chromium
from browser.whole import violations
from command_line import ENVIRONMENT, KVLEDGER, run
from conftest import ROOT, refused
from playwright.sync_api import sync_playwright

import kvledger as kv
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import as_lengths
from kvledger.models.known import load_model
from kvledger.report import Settings, findings, report_folder, write_report
from kvledger.report import report_tables as tables
from kvledger.report.deployment import (
    FOLDER_VARIABLE,
    SETTINGS_FILE,
    Deployment,
    open_deployment,
    read_deployment,
    read_settings,
)
from kvledger.traces import LengthMarginals, first_arrivals
from proofbook import showing
from proofbook.files import whole_folder
from proofbook.showing.tables import csv_bytes

MEMORY = ("--model", "Llama-3.1-8B", "--kv-memory", "8GiB")


def report(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return run("report", *arguments, **options)


def leftovers(folder: Path) -> list[str]:
    """Everything in a folder but traces, hidden files included."""
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("trace"))


# --------------------------------------------------------------------------- one whole report
# Each is planted where the report reads, and must be found nowhere in what it writes.
MARKS = {
    "prompt": "SECRETPROMPT",
    "folder": "secretfolder",
    "column": "secretcolumn",
    "cell": "SECRETCELL",
    "id": "714285714285",
    "time": "1699999999",
    "length": "5882353",
}
HOSTILE = 'o\'clock "q" <img src=x onerror=alert(1)> $x^{2$ {0} `b` \\n |a| ${{7*7}}.jsonl'


class Made(NamedTuple):
    """A report that was made, and where it was made from."""

    out: Path
    trace: Path

    @property
    def page(self) -> str:
        return (self.out / "report.html").read_text(encoding="utf-8")

    @property
    def numbers(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "numbers.json").read_text())
        return found


def write_hostile(folder: Path) -> Path:
    """Write a trace with a mark in everything that is no count."""
    rng = np.random.default_rng(5)
    place = folder / MARKS["folder"] / "below"
    place.mkdir(parents=True)
    path = place / HOSTILE
    lines = []
    for i in range(300):
        prompt = int(MARKS["length"]) if i == 7 else int(rng.integers(1, 6000))
        blocks = -(-prompt // 512)
        start = int(MARKS["id"]) + (0 if i % 3 else 1000 * (i + 1))
        lines.append(
            {
                "timestamp": int(MARKS["time"]) * 1000 + 50 * i,
                "input_length": prompt,
                "output_length": int(rng.integers(1, 200)),
                "hash_ids": list(range(start, start + blocks)),
                "prompt": f"{MARKS['prompt']} {i} <script>alert(2)</script>",
                MARKS["column"]: f"{MARKS['cell']}{i}",
            }
        )
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report on a trace whose every name tries to be more than a name."""
    place = tmp_path_factory.mktemp("made")
    trace = write_hostile(place)
    out = place / "out {0} $(touch ran) '\"<b>"
    done = report(str(trace), *MEMORY, "--out", str(out), cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"wrote {out / name}"
        for name in ("report.html", "report.ipynb", "numbers.json", "figures", "tables")
    ]
    assert sorted(p.name for p in place.iterdir()) == sorted([MARKS["folder"], out.name])
    return Made(out, trace)


@pytest.mark.slow
def test_what_a_report_leaves(made: Made) -> None:
    found = {p.relative_to(made.out).as_posix() for p in made.out.rglob("*") if p.is_file()}
    figures = {name.split(".")[0] for name in found if name.startswith("figures/")}
    assert len(figures) == 6
    for figure in figures:
        assert {f"{figure}{end}" for end in (".svg", ".dark.svg", ".png", ".csv")} <= found
    tables = {name.split(".")[0] for name in found if name.startswith("tables/")}
    assert len(tables) == 9
    for table in tables:
        assert {f"{table}.csv", f"{table}.json"} <= found
    assert not [name for name in found if name.endswith(".bib")]
    assert {"report.html", "report.ipynb", "numbers.json", SETTINGS_FILE} <= found
    contents = json.loads((made.out / report_folder.CONTENTS_FILE).read_text())
    assert {*contents["files"], report_folder.CONTENTS_FILE} == found


@pytest.mark.slow
def test_a_report_holds_no_row_no_prompt_no_id_and_no_path(made: Made) -> None:
    """The marks are searched as bytes, in every file, and in what its encodings hide."""
    places = [str(made.trace.parent), str(made.out.parent), str(ROOT)]
    for path in made.out.rglob("*"):
        if not path.is_file():
            continue
        content = path.read_bytes()
        texts = [content, html.unescape(content.decode("latin-1")).encode("latin-1", "ignore")]
        if path.suffix == ".html":
            texts += map(base64.b64decode, re.findall(rb"base64,([A-Za-z0-9+/=]+)", content))
        for mark in (*MARKS.values(), f"{int(MARKS['length']):,}", *places):
            assert not any(mark.encode() in text for text in texts), (path.name, mark)


@pytest.mark.slow
def test_the_marks_are_where_the_report_reads(made: Made) -> None:
    """Else the test above could not fail."""
    text = made.trace.read_text()
    assert all(mark in text for name, mark in MARKS.items() if name != "folder")
    assert MARKS["folder"] in str(made.trace)
    trace = kv.load_trace(made.trace)
    assert int(MARKS["length"]) in trace.prompt_tokens
    assert any(int(MARKS["id"]) in ids for ids in trace.page_ids)


class Seen(HTMLParser):
    """Elements, their attributes, and the words of the title and the first headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, str] = {}
        self.at = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.at = tag

    def handle_endtag(self, tag: str) -> None:
        self.at = ""

    def handle_data(self, data: str) -> None:
        self.words[self.at] = self.words.get(self.at, "") + data


@pytest.mark.slow
def test_the_page_shows_names_and_runs_nothing(made: Made) -> None:
    seen = Seen(made.page)
    tags = {tag for tag, _ in seen.tags}
    assert not tags & {"script", "iframe", "object", "embed", "link", "base", "form", "style img"}
    for tag, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "srcset", "href", "action", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/svg+xml;base64,", "#fig-")), value
    policy = next(a["content"] for t, a in seen.tags if a.get("http-equiv"))
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert "@import" not in made.page
    assert "url(" not in made.page
    assert seen.words["title"] == f"Where KV-cache memory goes: {HOSTILE}"
    assert html.escape(HOSTILE) in made.page
    assert made.page.count("<sup>c</sup>") == 3  # the bytes of metadata: in prose, in a caption
    assert "{glue" not in made.page
    assert "(not shown)" not in made.page


@pytest.mark.slow
def test_the_notebook_is_given_data_and_no_code(made: Made) -> None:
    """The injected cell is the same whatever the reader's names are."""
    notebook = nbformat.read(made.out / "report.ipynb", as_version=4)
    nbformat.validate(notebook)
    template = nbformat.read(report_folder.template_file(), as_version=4)
    ours = [(cell.cell_type, cell.source) for cell in template.cells]
    theirs = [(cell.cell_type, cell.source) for cell in notebook.cells]
    (injected,) = [cell for cell in notebook.cells if cell.id == "injected-parameters"]
    assert injected.source == '# Parameters\nsettings = "settings.json"\n'
    theirs.remove(("code", injected.source))
    assert theirs == ours
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"mystnb", "tags"}
        for output in cell.get("outputs", ()):
            assert output.output_type == "display_data"
    settings = json.loads((made.out / SETTINGS_FILE).read_text())
    assert (settings["trace"], settings["model"]) == (HOSTILE, "Llama-3.1-8B")
    assert not list(made.out.parent.rglob("ran"))  # nor did a shell run any


@pytest.mark.slow
def test_the_numbers_are_exact_and_those_of_the_trace(made: Made) -> None:
    trace, numbers = kv.load_trace(made.trace), made.numbers
    value = {id.removeprefix("workload."): each["value"] for id, each in numbers.items()}
    lengths, slots = trace.total_tokens, 8 * 2**30 // 131072
    assert value["requests"] == 300
    assert value["slots"] == slots
    assert Fraction(value["mean_total"]) == Fraction(int(lengths.sum()), 300)
    paged = kv.paged(lengths, 16)
    assert Fraction(value["slack_share"]) == paged.unused_share
    assert Fraction(value["slack_end"]) == kv.mean_tail_slack(lengths, 16)
    maximum = 1 << (int(lengths.max()) - 1).bit_length()
    assert value["maximum"] == maximum
    assert Fraction(value["unused_reserved"]) == 1 - Fraction(int(lengths.sum()), 300 * maximum)
    assert value["entry_best"] == kv.best_page_size(lengths, Fraction(4, 131072)).page_size
    assert {each["kind"] for each in numbers.values()} == {"computed", "cited"}
    for id, each in numbers.items():
        assert html.escape(each["shown"]) in made.page, id


@pytest.mark.slow
def test_the_tables_are_exact(made: Made) -> None:
    lengths = kv.load_trace(made.trace).total_tokens
    with (made.out / "tables" / "tab-workload-slack.csv").open(newline="") as file:
        found = {int(row["page size"]): row for row in csv.DictReader(file)}
    for size, row in found.items():
        ledger = kv.paged(lengths, size)
        assert int(row["tail slack slots"]) == ledger.tail_slack_slots
        assert Fraction(row["slack share"]) == ledger.unused_share
    with (made.out / "tables" / "tab-workload-best.csv").open(newline="") as file:
        corners = [(int(r["page size"]), Fraction(r["c from"])) for r in csv.DictReader(file)]
    assert corners == [(size, start) for size, start, _ in kv.envelope(lengths)]
    with (made.out / "figures" / "fig-workload-lengths.csv").open(newline="") as file:
        counted = {int(r["up_to"]): int(r["requests"]) for r in csv.DictReader(file)}
    assert sum(counted.values()) == 300
    for up_to, n in counted.items():
        assert n == int(((lengths > up_to // 2) & (lengths <= up_to)).sum())


@pytest.mark.slow
def test_the_report_is_the_same_anywhere(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, in every file: so nothing of the machine is in it. Made in this process."""
    shutil.copyfile(made.trace, tmp_path / HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home of another"))
    settings = Settings(trace=HOSTILE, model="Llama-3.1-8B", kv_memory="8GiB")
    assert write_report(settings, Path("again"))[0] == Path("again", "report.html")
    ours = {p.relative_to(made.out): p.read_bytes() for p in made.out.rglob("*") if p.is_file()}
    again = tmp_path / "again"
    theirs = {p.relative_to(again): p.read_bytes() for p in again.rglob("*") if p.is_file()}
    assert theirs.keys() == ours.keys()
    assert [str(name) for name in ours if theirs[name] != ours[name]] == []


@pytest.fixture(scope="module")
def visited(made: Made) -> Iterator[Callable[[int, str], tuple[Any, list[str]]]]:
    """Open the page from its file, and note all that it asks for or says."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)

        def visit(width: int, mode: str) -> tuple[Any, list[str]]:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if mode == "dark" else "light",
            )
            page, noted = context.new_page(), []
            address = (made.out / "report.html").as_uri()
            page.on("request", lambda r: noted.append(r.url) if r.url != address else None)
            page.on("console", lambda m: noted.append(m.text))
            page.on("dialog", lambda d: (noted.append(d.message), d.dismiss()))
            page.on("pageerror", lambda e: noted.append(str(e)))
            page.goto(address)
            page.wait_for_timeout(300)
            return page, [each for each in noted if not each.startswith("data:image/svg+xml")]

        yield visit
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_in_a_browser(
    visited: Callable[[int, str], tuple[Any, list[str]]], width: int, mode: str
) -> None:
    page, noted = visited(width, mode)
    assert noted == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawn = page.evaluate("[...document.images].map(i => [i.alt.length > 40, i.naturalWidth > 0])")
    assert drawn == [[True, True]] * 6
    assert page.evaluate("document.scripts.length") == 0
    assert HOSTILE in page.evaluate("document.body.innerText")
    assert violations(page) == []


@pytest.mark.slow
def test_every_reference_on_the_page_leads_somewhere(made: Made) -> None:
    ids = {a["id"] for _, a in Seen(made.page).tags if "id" in a}
    targets = {a["href"] for t, a in Seen(made.page).tags if t == "a"}
    assert targets
    assert {str(t).removeprefix("#") for t in targets} <= ids


# --------------------------------------------------------------------------- other inputs
@pytest.mark.slow
def test_plain_lengths_on_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = report("-", *MEMORY, "--out", str(out), "--json", input="5\n9\n17\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["written"][0] == str(out / "report.html")
    value = {id: each["value"] for id, each in Made(out, out).numbers.items()}
    assert value["workload.name"] == "standard-input"
    assert "only 3 requests" in value["workload.disclosure"]
    assert value["workload.replayed"].startswith("Nothing is replayed: no request has an output")
    assert value["workload.shared"].startswith("This trace has no page ids")
    assert not (out / "figures" / "fig-workload-growth.svg").exists()
    assert not (out / "figures" / "fig-workload-sharing.svg").exists()
    assert "(not shown)" not in Made(out, out).page


@pytest.mark.slow
def test_a_model_from_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "secretfolder"
    folder.mkdir()
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "hidden_size": 4096, "_name_or_path": "/home/secretuser/m",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "trace.txt").write_text("5\n9\n17\n")
    out = tmp_path / "out"
    done = report(str(tmp_path / "trace.txt"), "--model", str(folder / "config.json"),
                  "--kv-memory", "1GiB", "--tensor-parallel", "2", "--out", str(out))  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    numbers = Made(out, out).numbers
    assert numbers["workload.bytes_per_token"]["value"] == 65536
    assert numbers["workload.model"]["value"] == "config.json"
    for path in out.rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes(), path


# --------------------------------------------------------------------------- what gets in the way
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv", *MEMORY], "absent.csv: no such file and no such trace; accepted"),
        (["{trace}", "--model", "GPT-9", "--kv-memory", "1GiB"], "model is 'GPT-9'; known are"),
        (["{trace}", "--model", "Llama-3.1-8B", "--kv-memory", "60"], "room for a page at least"),
        (["{trace}", "--model", "Llama-3.1-8B", "--kv-memory", "60G"], "say 60GB"),
        (["{trace}", *MEMORY, "--page-size", "0"], "equal to 1, not '0'"),
        (["{trace}", *MEMORY, "--first", "-1"], "equal to 1, not '-1'"),
        (["{trace}", *MEMORY, "--dtype", "x"], "dtype is 'x'; known are"),
        (["{bad}", *MEMORY], "{bad}, line 3: output_tokens is 'x'; accepted: a whole number"),
        (["{folder}", *MEMORY], "{folder}"),
    ],
)
def test_bad_input_leaves_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    names = {
        "trace": str(tmp_path / "trace.csv"),
        "bad": str(tmp_path / "trace bad<b>.csv"),
        "folder": str(tmp_path / "trace-folder"),
    }
    Path(names["trace"]).write_text("prompt_tokens,output_tokens\n5,4\n")
    Path(names["bad"]).write_text("prompt_tokens,output_tokens\n5,4\n9,x\n")
    Path(names["folder"]).mkdir()
    given = [each.format(**names) for each in arguments]
    done = report(*given, "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("kvledger: ")
    assert message.format(**names) in done.stderr
    assert leftovers(tmp_path) == []


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    refused("no such folder", report_folder.check_target, tmp_path / "absent" / "out", force=False)
    (tmp_path / "file").write_text("")
    refused("is no folder", report_folder.check_target, tmp_path / "file", force=True)
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    refused("is no folder", report_folder.check_target, tmp_path / "link", force=True)
    report_folder.check_target(tmp_path / "empty", force=False)
    report_folder.check_target(tmp_path / "new", force=False)
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    refused("is there and not empty", report_folder.check_target, full, force=False)
    with pytest.raises(LedgerError, match=re.escape("holds 'notes.txt', which no report wrote")):
        report_folder.check_target(full, force=True)


@contextmanager
def filled(out: Path, text: str, *, force: bool = False) -> Iterator[Path]:
    """Put a page where a report goes, as a report is put there."""
    with whole_folder(out, lambda out: report_folder.check_target(out, force=force)) as stage:
        (stage / "page.html").write_text(text)
        report_folder.write_contents(stage)
        yield stage


def test_force_replaces_an_earlier_report_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with filled(out, "first"):
        pass
    with pytest.raises(LedgerError, match="--force"), filled(out, "second"):
        pass
    with filled(out, "second", force=True) as stage:
        (stage / "page.html").rename(stage / "other.html")
        report_folder.write_contents(stage)
    assert sorted(p.name for p in out.iterdir()) == [report_folder.CONTENTS_FILE, "other.html"]
    (out / "mine.txt").write_text("notes")
    with pytest.raises(LedgerError, match=r"'mine\.txt'"), filled(out, "third", force=True):
        pass
    (out / "mine.txt").unlink()
    (out / "empty folder of mine").mkdir()
    refused("'empty folder of mine'", report_folder.check_target, out, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_report_is_as_private_as_the_reader_sets(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        with filled(tmp_path / "out", "first"):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left")])
def test_an_error_in_the_middle_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException] | BaseException
) -> None:
    out = tmp_path / "out"
    with filled(out, "first"):
        pass
    with pytest.raises((KeyboardInterrupt, OSError)), filled(out, "half", force=True):
        raise error
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (out / "page.html").read_text() == "first"


def test_a_failed_rename_puts_the_old_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with filled(out, "first"):
        pass
    rename, calls = os.rename, []

    def second_fails(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(OSError, match="Input/output"), filled(out, "second", force=True):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (out / "page.html").read_text() == "first"


@pytest.mark.slow
@pytest.mark.parametrize("n_bytes", [40_000, 400_000])
def test_no_room_is_one_line_and_leaves_nothing(tmp_path: Path, n_bytes: int) -> None:
    """A file may not grow beyond a limit: first in the kernel's drawings, then in the page."""
    (tmp_path / "trace.csv").write_text("prompt_tokens,output_tokens\n5,4\n9,4\n")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))

    done = report(
        str(tmp_path / "trace.csv"), *MEMORY, "--out", str(tmp_path / "out"), preexec_fn=limit
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert "out: the report cannot be written (File too large)" in done.stderr
    assert leftovers(tmp_path) == []


def test_a_full_disk_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("kvledger.report.report_folder.run_template", full)
    settings = Settings("azure_code_2023", "Llama-3.1-8B", "1GiB")
    with pytest.raises(LedgerError, match=r"out: the report cannot be written \(No space left"):
        write_report(settings, tmp_path / "out")
    assert leftovers(tmp_path) == []


def started(tmp_path: Path) -> subprocess.Popen[str]:
    """Start a report and wait until its kernel is at work."""
    (tmp_path / "trace.csv").write_text(
        "prompt_tokens,output_tokens\n" + "".join(f"{5 + i % 3000},9\n" for i in range(300_000))
    )
    process = subprocess.Popen(
        [*KVLEDGER, "report", str(tmp_path / "trace.csv"), *MEMORY, "--out", "out"],
        cwd=tmp_path, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # What is started in the background ignores an interrupt, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until:
        parts = list(tmp_path.glob(".out.*.part/numbers.json"))
        if parts:
            return process
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"the kernel never showed a number: {process.communicate()}")


def kernels_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "ipykernel" in str(child.cmdline())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "words"),
    [(signal.SIGINT, 130, "kvledger: interrupted\n"), (signal.SIGTERM, 143, "")],
)
def test_an_interrupt_in_the_middle_leaves_nothing(
    tmp_path: Path, number: signal.Signals, status: int, words: str
) -> None:
    process = started(tmp_path)
    (kernel,) = kernels_of(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (status, "", words)
    assert leftovers(tmp_path) == []
    psutil.wait_procs([kernel], timeout=10)
    assert not kernel.is_running()


@pytest.mark.slow
def test_a_kernel_that_dies_is_one_line(tmp_path: Path) -> None:
    process = started(tmp_path)
    (kernel,) = kernels_of(process)
    kernel.kill()
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert "ended from outside, as one is that takes too much memory" in err
    assert leftovers(tmp_path) == []


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    monkeypatch.delitem(sys.modules, "kvledger.report.report_page", raising=False)
    settings = Settings("azure_code_2023", "Llama-3.1-8B", "1GiB")
    missing = r"latex2mathml.* is not installed; accepted: pip install"
    refused(missing, write_report, settings, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_settings_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / SETTINGS_FILE
    good = Settings("t.csv", "m", "1GiB")
    good.write(tmp_path)
    assert read_settings(path) == good
    for text in ("", "[]", '{"trace": 1}', '{"trace": "t", "step_s": 5}', '{"eval": "1"}', "null"):
        path.write_text(text)
        refused(r"settings\.json: no settings of a report", read_settings, path)


def test_a_report_can_be_run_again_beside_its_trace(tmp_path: Path) -> None:
    """The notebook's settings name the trace as it lies beside them."""
    (tmp_path / "trace.csv").write_text("prompt_tokens,output_tokens\n5,4\n9,4\n")
    Settings("trace.csv", "Llama-3.1-8B", "1GiB", page_size=4, first=1).write(tmp_path)
    work = open_deployment("x", "y", "z", settings=tmp_path / SETTINGS_FILE)
    assert (work.name, work.total.total_tokens, work.page_size) == ("trace.csv", 22, 4)
    assert work.arrivals.n_requests == 1


# --------------------------------------------------------------------------- the template
def test_the_template_ships_and_is_prepared_with_the_name_of_the_settings() -> None:
    assert report_folder.template_file() == ROOT / "chapters" / report_folder.TEMPLATE
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert (
        wheel[f"chapters/{report_folder.TEMPLATE}"] == f"kvledger/chapters/{report_folder.TEMPLATE}"
    )
    extra = project["project"]["optional-dependencies"]["book"]
    assert {"nbclient", "latex2mathml"} <= {re.split(r"[<>=]", each)[0] for each in extra}
    runtime = project["project"]["dependencies"]
    assert {"typer", "rich"} <= {re.split(r"[<>=]", each)[0] for each in runtime}
    notebook = nbformat.read(report_folder.template_file(), as_version=4)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    assert "settings = None" in cell.source.splitlines()
    notebook.cells[0].metadata["papermill"] = {"duration": 1}
    report_folder.prepared(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    assert "papermill" not in notebook.cells[0].metadata
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
    assert tags.index(["injected-parameters"]) == tags.index(["parameters"]) + 1


RNG = np.random.default_rng(1)


def deployment(
    prompts: Any,
    outputs: Any,
    arrival_s: Any = None,
    page_ids: Any = None,
    page_ids_size: int | None = None,
    *,
    memory: int = 2**34,
    only_lengths: bool = False,
    **settings: Any,
) -> Deployment:
    """Make what a report is about, without a file."""
    trace = kv.Trace(prompts, outputs, arrival_s, page_ids, page_ids_size, name="odd")
    lengths = LengthMarginals("odd", as_lengths(trace.prompt_tokens), as_lengths(trace))
    requests = None if only_lengths else trace
    return Deployment("odd", lengths, requests, {}, load_model("Llama-3.1-8B"), memory, **settings)


ODD = {
    "one request": lambda: deployment([5], [4]),
    "no output": lambda: deployment([5], [0]),
    "all of one token": lambda: deployment([1] * 10, [1] * 10),
    "all in whole pages": lambda: deployment([16] * 50, [16] * 50, np.arange(50)),
    "beyond all memory": lambda: deployment([2**40, 5], [3, 4]),
    "none fits": lambda: deployment([10**7] * 3, [5] * 3, memory=2**24),
    "lengths only": lambda: deployment(RNG.integers(1, 9000, 500), [0] * 500, only_lengths=True),
    "all at once": lambda: deployment(
        RNG.integers(1, 9000, 99), RNG.integers(1, 9, 99), [0.0] * 99
    ),
    "an id twice": lambda: deployment([32, 32], [3, 3], [0, 1], [[1, 1], [2, 2]], 16),
    "ids of another chain": lambda: deployment(
        [48, 48], [3, 3], [0, 1], [[1, 2, 3], [4, 2, 3]], 16
    ),
    "ids that fit no page": lambda: deployment(
        [30, 30], [3, 3], [0, 1], [[1, 2, 3], [1, 2, 4]], 10
    ),
    "large pages": lambda: deployment(
        RNG.integers(1, 50, 200), RNG.integers(1, 9, 200), page_size=4096
    ),
    "pages of seven": lambda: deployment(
        RNG.integers(1, 50, 200), RNG.integers(1, 9, 200), page_size=7
    ),
    "days apart": lambda: deployment([5, 9], [3, 3], [0, 1e6], first=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_the_template_holds_for_odd_traces(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell runs, every glued text that the prose needs is there, and no sum is off."""
    work = ODD[name]()
    shown: dict[str, str] = {}
    matplotlib.use("agg")
    monkeypatch.setattr(showing, "_shown", shown)
    monkeypatch.setattr(showing, "emit", lambda *_: None)
    monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(tmp_path / "figures"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr("kvledger.report.open_deployment", lambda *_, **__: work)
    notebook = nbformat.read(report_folder.template_file(), as_version=4)
    names: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, cell.id, "exec"), names)
    used = {
        id
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for id in re.findall(r"\{glue:text\}`([^`]+)`", cell.source)
    }
    assert used <= set(shown)
    text = " ".join(shown[id] for id in used)
    assert not re.search(r"\b1 requests|\bnan\b|None|inf\b", text), text
    assert len(sorted((tmp_path / "figures").glob("*.csv"))) >= 4
    if (tmp_path / "figures" / "fig-workload-growth.csv").exists():
        with (tmp_path / "figures" / "fig-workload-growth.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                parts = ("used", "tail_slack", "reserved_later", "reserved_never", "external",
                         "unallocated")  # fmt: skip
                assert sum(float(row[part]) for part in parts) == pytest.approx(1)


# --------------------------------------------------------------------------- tables and findings
def test_first_arrivals_keep_the_order_and_the_ids() -> None:
    trace = kv.Trace([5, 20, 3], [1, 2, 3], [4, 5, 9], [[1], [1, 2], [9]], 16, name="t")
    first = first_arrivals(trace, 2)
    assert first.prompt_tokens.tolist() == [5, 20]
    assert first.page_ids == ((1,), (1, 2))
    assert first.arrival_s.tolist() == [0, 1]
    assert first_arrivals(trace, 3) is trace
    refused("first is 0", first_arrivals, trace, 0)


def test_fits_counts_and_charges_are_those_of_the_ledgers() -> None:
    work = deployment([100] * 8, [28] * 8, memory=131072 * 1000)
    fits = tables.fitting(work, tables.ledgers(work)).set_index("policy")
    assert work.capacity_slots == 992  # whole pages of 16
    assert fits.loc["pages of 16", "fit"] == 992 // 128
    assert fits.loc["reserve the maximum", "fit"] == 992 // 128
    assert fits.loc["pages of 16", "MiB_per_request"] == 128 * Fraction(131072, 2**20)
    work = deployment([100] * 8, [29] * 8, memory=131072 * 1000)
    fits = tables.fitting(work, tables.ledgers(work)).set_index("policy")
    assert fits.loc["pages of 16", "fit"] == 992 // 144
    assert fits.loc["reserve the maximum", "fit"] == 992 // 256
    assert fits.loc["reserve the maximum", "unused_share"] == Fraction(127, 256)
    counts = tables.length_counts(deployment([1, 2, 3, 4, 5, 1000], [0, 0, 0, 0, 0, 24]))
    assert counts.to_dict("list") == {
        "up_to": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        "prompts": [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1],
        "requests": [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1],
    }
    work = read_deployment(Settings("azure_conv_2023", "Llama-3.1-8B", "60GiB", page_size=24))
    sizes = [2**k for k in range(13)] + [24]
    for each in tables.charges(work):
        best = kv.best_page_size(work.total, each.c, sizes)
        assert each.best == best.page_size
        assert each.excess == kv.cost(work.total, 24, each.c) / best.cost - 1
        assert each.c == Fraction(each.bytes_per_page, 131072)
    with pytest.raises(LedgerError, match=r"kv_memory is 1024 bytes; accepted: room for a page"):
        deployment([5], [4], memory=1024)


def test_what_is_not_replayed_and_which_rows_are_left_out_is_said() -> None:
    work = ODD["ids of another chain"]()
    growth = tables.grow(work)
    assert "pages of 16, prefix cache" in growth.left_out
    text = findings.replayed(work, growth)
    assert (
        "Not replayed is “pages of 16, prefix cache”: the page ids of the trace do not fit." in text
    )
    work = deployment([5], [4])
    assert findings.left_out(work) == "No row of it was left out."
    work = Deployment(
        work.name, work.lengths, work.requests, {"no usage": 1, "HTTP status 429": 2000},
        work.model, work.kv_memory_bytes,
    )  # fmt: skip
    assert findings.left_out(work) == (
        "2,001 rows were left out: 1 no usage, 2,000 HTTP status 429."
    )


def test_the_decision_names_its_device_or_says_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVLEDGER_MEASUREMENTS", str(tmp_path))
    work = open_deployment("azure_conv_2023", "Llama-3.1-8B", "60GiB")
    decision = findings.decision_of(work)
    text = findings.decided(decision)
    assert text == (
        f"In memory alone, page sizes from {decision.memory.low} to {decision.memory.high} are "
        f"within a percent of the best, {decision.memory.best}; above, it is the tail slack that "
        "grows most. The time to read through the page table is not measured, and not guessed."
    )
    assert findings.costs(decision)["read_slots"].isna().all()
    record = made_record("cuda")
    write_made(tmp_path, record)
    decision = findings.decision_of(work)
    text = findings.decided(decision)
    assert "In time alone, page" in text
    assert f"Reading was measured on {record.label}" in text
    assert findings.costs(decision)["read_slots"].notna().all()
    assert findings.decision_of(ODD["beyond all memory"]()) is None
    assert "nothing is decided here" in findings.decided(None)


def test_a_csv_holds_no_formula() -> None:
    import pandas as pd

    frame = pd.DataFrame({"=cmd": ["@x", "-1+1", "plain", "a,b\n"]})
    frame["n"] = pd.Series([1, -2, None, 3], dtype=object)
    lines = list(csv.reader(csv_bytes(frame, "tab-a").decode().splitlines(keepends=True)))
    assert lines == [
        ["'=cmd", "n"], ["'@x", "1"], ["'-1+1", "-2"], ["plain", ""], ["a,b\n", "3"],
    ]  # fmt: skip


def test_the_bytes_of_one_report_do_not_reach_the_next(tmp_path: Path) -> None:
    """A trace named as a known one, or a model, is the known one only if no file says otherwise."""
    (tmp_path / "azure_code_2023").write_text("prompt_tokens,output_tokens\n5,4\n")
    old = Path.cwd()
    os.chdir(tmp_path)
    try:
        inside, files = report_folder._files(
            Settings("azure_code_2023", "Llama-3.1-8B", "1GiB"), tmp_path / "work"
        )
    finally:
        os.chdir(old)
    assert set(files) == {"trace"}
    assert inside.trace == "azure_code_2023"
