"""The same sources make the same bytes, whatever the folder, clock or locale.

The small book and the whole one are built twice, with everything different at once.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from conftest import ROOT, Book, make_fixture_book, tree
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from proofbook import figure, style
from proofbook import showing as outputs
from proofbook.contents import INPUTS

CONDITIONS = Path(__file__).resolve().parent / "conditions"
#: Set by a condition or by nobody.
CLEARED = (
    *("PROOFBOOK_FIGURES_DIR", "SOURCE_DATE_EPOCH", "IPYTHONDIR", "PYTHONUTF8", "PYTHONHASHSEED"),
    *("LC_ALL", "LANG", "LANGUAGE", "TZ", "PYTHONCOERCECLOCALE", "PYTHONIOENCODING"),
)


class Condition(NamedTuple):
    """What may differ between two builds of the same sources."""

    variables: Mapping[str, str] = {}
    umask: int = 0o022
    jobs: int = 1
    #: Moves the dates of the source files, and the order in which they were laid down.
    age_s: int = 0


CLOCK = "CONDITION_CLOCK_S"
FIRST = Condition({"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "1"})
#: In plain C, without the repairs that Python makes, text is ASCII where no encoding is named.
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ALL_AT_ONCE = Condition(
    {**PLAIN_C, "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "4242", CLOCK: str(400 * 86_400)},
    umask=0o077,
    jobs=2,
    age_s=90_000_000,
)


def copy_tree(source: Path, names: list[str], target: Path, condition: Condition) -> None:
    """Lay files down under a condition: their order, dates and modes."""
    if condition.age_s:
        random.Random(condition.age_s).shuffle(names)
    for name in names:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((source / name).read_bytes())
        if condition.age_s:
            then = (source / name).stat().st_mtime - condition.age_s
            os.utime(path, (then, then))


def build(
    root: Path, condition: Condition, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Build the book in a folder with the package as it lies there."""
    kept = {name: value for name, value in os.environ.items() if name not in CLEARED}
    path = os.pathsep.join([str(CONDITIONS), str(root / "src")])
    return subprocess.run(
        [sys.executable, "-m", "proofbook.build", "book", "--jobs", str(condition.jobs)],
        cwd=root,
        env={**kept, **condition.variables, "PYTHONPATH": path, **(extra or {})},
        umask=condition.umask,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> str:
    """Say in words how two trees differ, with the first difference shown; nothing if they do not.

    Of a PDF it is the text that has to be the same.
    """
    lines = [f"only in the first: {name}" for name in sorted(one.keys() - other.keys())]
    lines += [f"only in the second: {name}" for name in sorted(other.keys() - one.keys())]
    changed = [
        name
        for name in sorted(one.keys() & other.keys())
        if _content(name, one[name]) != _content(name, other[name])
    ]
    lines += [f"differs: {name}" for name in changed]
    if changed:
        name = changed[0]
        lines += [f"the first of these, {name}, differs", *_first(one[name], other[name], name)]
    return "\n".join(lines)


def _content(name: str, content: bytes) -> bytes:
    return pdf_text(content).encode() if name.endswith(".pdf") else content


def pdf_text(content: bytes) -> str:
    """Return the text of a PDF, page by page."""
    import pypdfium2

    with contextlib.closing(pypdfium2.PdfDocument(content)) as document:
        return "\f".join(page.get_textpage().get_text_bounded() for page in document)


def _first(one: bytes, other: bytes, name: str) -> list[str]:
    one, other = _content(name, one), _content(name, other)
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    at = min(len(one), len(other)) if at is None else at
    line = one.count(b"\n", 0, at) + 1
    around = slice(max(0, at - 60), at + 60)
    return [
        f"at byte {at}, line {line}:",
        f"  first:  {one[around].decode(errors='replace')!r}",
        f"  second: {other[around].decode(errors='replace')!r}",
    ]


def built(root: Path, condition: Condition, log: Path) -> dict[str, bytes]:
    done = build(root, condition, {"FIXTURE_LOG": str(log)})
    assert done.returncode == 0, f"{condition}\n{done.stdout}\n{done.stderr}"
    return tree(root / "_build" / "html")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The small book's sources, never built where they lie."""
    return make_fixture_book(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def first(small: Book, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The small book, built once as all others must come out."""
    folder = tmp_path_factory.mktemp("first")
    copy_tree(small.root, files_of(small.root), folder / "book", FIRST)
    return built(folder / "book", FIRST, folder / "log")


def files_of(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


EPOCH = FIRST._replace(variables={**FIRST.variables, "SOURCE_DATE_EPOCH": "951782400"})


@pytest.mark.slow
@pytest.mark.parametrize("condition", [ALL_AT_ONCE, EPOCH], ids=["all at once", "epoch"])
def test_the_small_book(
    small: Book, first: dict[str, bytes], tmp_path: Path, condition: Condition
) -> None:
    # Each build lies in another folder, whose name is longer and has a space.
    folder = tmp_path / "another place" / "and a longer one" / "book"
    copy_tree(small.root, files_of(small.root), folder, condition)
    assert differences(first, built(folder, condition, tmp_path / "log")) == ""


def test_conditions_are_what_they_say(tmp_path: Path) -> None:
    """A condition that does not reach the build would prove nothing."""
    program = (
        "import datetime, locale, os, sys, time; from datetime import date\n"
        "print(round(time.time()), round(datetime.datetime.now(datetime.UTC).timestamp()),"
        " date.today().year, time.strftime('%Y'), time.tzname[0], sep='|')\n"
        "print(locale.getpreferredencoding(False), hash('kvledger'), sep='|')\n"
        "open('made', 'w').close(); print(oct(os.stat('made').st_mode & 0o777)); os.remove('made')"
    )

    def said(condition: Condition) -> list[list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={
                **{k: v for k, v in os.environ.items() if k not in CLEARED},
                **condition.variables,
                "PYTHONPATH": str(CONDITIONS),
            },
            umask=condition.umask,
            capture_output=True,
            encoding="ascii",
            check=True,
        )
        return [line.split("|") for line in done.stdout.splitlines()]

    clock, text, mode = said(FIRST)
    other_clock, other_text, other_mode = said(ALL_AT_ONCE)
    moved = int(ALL_AT_ONCE.variables[CLOCK])
    for one, other in zip(clock[:2], other_clock[:2], strict=True):
        assert moved - 600 < int(other) - int(one) < moved + 600
    assert clock[2:4] != other_clock[2:4]
    assert clock[4] != other_clock[4]
    assert text[0].lower() == "utf-8"
    assert other_text[0].lower() in {"ascii", "us-ascii", "ansi_x3.4-1968"}
    assert text[1] != other_text[1]
    assert (mode, other_mode) == (["0o644"], ["0o600"])


@pytest.mark.slow
def test_a_difference_is_told(first: dict[str, bytes]) -> None:
    page = first["chapters/slots.html"]
    said = differences(
        {"same": b"1", "chapters/slots.html": page, "gone": b""},
        {"same": b"1", "chapters/slots.html": page.replace(b">40</span>", b">41</span>", 1)},
    )
    assert "only in the first: gone" in said
    assert "the first of these, chapters/slots.html, differs" in said
    assert "same" not in said
    assert ">41</span>" in said.splitlines()[-1]


@pytest.mark.parametrize("value", ["", "yesterday", "-1", "1.5", "²", "253402300800", " 1"])
def test_a_bad_epoch_is_one_error(small: Book, tmp_path: Path, value: str) -> None:
    bad = FIRST._replace(variables={**FIRST.variables, "SOURCE_DATE_EPOCH": value})
    done = build(small.root, bad)
    assert done.returncode == 1
    assert f"SOURCE_DATE_EPOCH is {value!r}; accepted: whole seconds since 1970" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (small.root / "_build" / "html").exists()


NOISE = 3e-13


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], dict[str, bytes]]:
    """Draw one figure whose layout is solved with so much noise; return its files."""
    solve = ConstrainedLayoutEngine.execute
    noise = 0.0

    def noisy(self: ConstrainedLayoutEngine, fig: Figure) -> None:
        solve(self, fig)
        for axes in fig.axes:
            x, y, width, height = axes.get_position(True).bounds
            axes.set_position((x + noise, y - noise, width + noise, height - noise))
            axes.set_in_layout(True)

    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", noisy)
    monkeypatch.setattr(outputs, "emit", lambda *_: None)
    monkeypatch.setattr(outputs, "_shown", {}, raising=False)

    def draw(amount: float) -> dict[str, bytes]:
        nonlocal noise
        noise = amount
        folder = tmp_path / str(amount)
        monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(folder))
        data = pd.DataFrame({"x": [1, 2, 3], "y": [3, 1, 2]})
        with mpl.rc_context():
            style.apply()
            fig, panels = plt.subplots(3, 1, layout="constrained", figsize=(8, 6))
            for axes in panels:
                axes.plot(data["x"], data["y"], color=style.INK["light"].ink)
            alt = "Three lines in three panels, each falling and then rising."
            figure("fig-noise", fig, data=data, alt=alt)
        return tree(folder)

    return draw


def test_a_drawing_does_not_depend_on_last_digits(
    drawn: Callable[[float], dict[str, bytes]],
) -> None:
    """The solver's digits beyond the twelfth differ with where in memory things lie."""
    assert differences(drawn(0.0), drawn(NOISE)) == ""
    assert differences(drawn(0.0), drawn(1e-3)) != ""


def tracked() -> list[str]:
    """Return the files that a build reads, of those that Git tracks or would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *INPUTS],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.slow
def test_the_whole_book(tmp_path: Path) -> None:
    places = {
        tmp_path / "one": FIRST._replace(jobs=2),
        tmp_path / "another place" / "with a longer name": ALL_AT_ONCE,
    }
    trees = []
    for folder, condition in places.items():
        copy_tree(ROOT, tracked(), folder, condition)
        trees.append(built(folder, condition, tmp_path / "log"))
    assert any(name.endswith(".html") for name in trees[0])
    assert any(name.startswith("figures/") for name in trees[0])
    assert differences(*trees) == ""
