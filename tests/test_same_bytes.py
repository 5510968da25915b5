"""The same sources make the same bytes, whatever the folder, clock or locale.

The small book and the whole one are built twice, with everything different at once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import samebytes
from conftest import ROOT, Book, make_fixture_book
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from samebytes import ALL_AT_ONCE, CLOCK, FIRST, PLAIN_C, Condition

from proofbook import figure, style
from proofbook import showing as outputs
from proofbook.contents import INPUTS


def built(root: Path, condition: Condition, log: Path) -> dict[str, bytes]:
    done = samebytes.build(root, condition, {"FIXTURE_LOG": str(log)})
    assert done.returncode == 0, f"{condition}\n{done.stdout}\n{done.stderr}"
    return samebytes.tree(root / "_build" / "html")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The small book's sources, never built where they lie."""
    return make_fixture_book(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def first(small: Book, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The small book, built once as all others must come out."""
    folder = tmp_path_factory.mktemp("first")
    samebytes.copy_tree(small.root, files_of(small.root), folder / "book", FIRST)
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
    samebytes.copy_tree(small.root, files_of(small.root), folder, condition)
    assert samebytes.differences(first, built(folder, condition, tmp_path / "log")) == ""


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
        from os import environ
        from sys import executable

        done = subprocess.run(
            [executable, "-c", program],
            cwd=tmp_path,
            env={
                **{k: v for k, v in environ.items() if k not in samebytes.CLEARED},
                **condition.variables,
                "PYTHONPATH": str(samebytes.CONDITIONS),
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
    assert {CLOCK, *PLAIN_C} <= set(ALL_AT_ONCE.variables)


@pytest.mark.slow
def test_a_difference_is_told(first: dict[str, bytes]) -> None:
    page = first["chapters/slots.html"]
    said = samebytes.differences(
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
    done = samebytes.build(small.root, bad)
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
        return samebytes.tree(folder)

    return draw


def test_a_drawing_does_not_depend_on_last_digits(
    drawn: Callable[[float], dict[str, bytes]],
) -> None:
    """The solver's digits beyond the twelfth differ with where in memory things lie."""
    assert samebytes.differences(drawn(0.0), drawn(NOISE)) == ""
    assert samebytes.differences(drawn(0.0), drawn(1e-3)) != ""


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
        samebytes.copy_tree(ROOT, tracked(), folder, condition)
        trees.append(built(folder, condition, tmp_path / "log"))
    assert any(name.endswith(".html") for name in trees[0])
    assert any(name.startswith("figures/") for name in trees[0])
    assert samebytes.differences(*trees) == ""
