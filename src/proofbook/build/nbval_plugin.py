"""A pytest plugin: nbval with nothing left out, and the record of what it checked.

    pytest -p proofbook.build.nbval_plugin --nbval chapters/*.ipynb    checks
    with --record-checks                                               and writes it down

Strict nbval compares texts. Each number's id, kind, source and exact value stand in the metadata
of an output, and a cell without stored outputs is compared with nothing: this compares those too.
With ``--record-checks`` a chapter whose cells all passed gets its row in ``chapters/checks.json``;
one of which a cell failed loses it; one that was not run, or not whole, keeps what it had.
"""

# nbval ships no types.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import copy
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

from proofbook import project
from proofbook.build.kept_runs import notebooks_of
from proofbook.build.kernels import prepare_kernels
from proofbook.catalogue import What
from proofbook.catalogue.check_records import (
    RECORD_FILE,
    Check,
    cell_digest,
    compared,
    joined_digest,
    read_checks,
    shown_entries,
    write_checks,
)
from proofbook.contents import find_root, input_files
from proofbook.errors import InputError
from proofbook.files import files_digest
from proofbook.plaintext import counted
from proofbook.project import today

OPTION = "--record-checks"
CELL = "proofbook-cell"
PASSED = "proofbook-passed"
#: The packages whose code decides what a chapter shows.
NUMBER_PACKAGES = ("numpy", "pandas", "numba", "pyarrow", "matplotlib", "torch")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the record."""
    words = f"write a row in {RECORD_FILE} for each chapter whose cells all pass"
    parser.addoption(OPTION, action="store_true", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Start the record, in the process that hears of every result."""
    if not config.getoption(OPTION):
        return
    if not config.getoption("nbval", False) or config.getoption("nbval_sanitize_with", None):
        raise pytest.UsageError(f"{OPTION} records strict checks: add --nbval, without sanitising")
    try:
        root = find_root(config.invocation_params.dir)
        for package in sorted((root / "src").glob("*/__init__.py")):
            name, found = package.parent.name, find_spec(package.parent.name)
            origin = found and found.origin
            if Path(str(origin)).resolve() != package.resolve():
                raise InputError(
                    f"{name} is imported from {origin}, not from {root}: set PYTHONPATH"
                )
        (root / "_build").mkdir(exist_ok=True)
        prepare_kernels(root)
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Recorder(root), "proofbook-recorder")
    except InputError as error:
        raise pytest.UsageError(str(error)) from None


# ---------------------------------------------------------------- comparing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note of each cell what it is, before anything runs: running changes what nbval holds."""
    cells: list[Any] = [item for item in items if _is_cell(item)]
    for item in cells:
        about = {
            "path": str(item.path),
            "cells": sum(c.cell_type == "code" for c in item.parent.nb.cells),
            "number": item.cell_num,
            "digest": cell_digest(item.cell),
            "shown": [list(each) for each in shown_entries(item.cell.outputs)],
        }
        item.user_properties.append((CELL, about))


def _is_cell(item: pytest.Item) -> bool:
    return type(item).__module__ == "nbval.plugin" and hasattr(item, "cell")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, None, None]:
    """Compare what nbval left out, and note that all of it was compared."""
    if not _is_cell(item):
        yield
        return
    from nbval.plugin import NbCellError, coalesce_streams

    stored = compared(coalesce_streams(copy.deepcopy(item.cell.outputs)) or [])
    yield
    now = compared(item.test_outputs or [])
    for key in sorted({*stored, *now}):
        one, other = stored.get(key), now.get(key)
        if one != other:
            differ = f"Cell outputs differ in {key}", item.cell.source
            raise NbCellError(item.cell_num, *differ, f"stored: {one}\nnow:    {other}")
    item.user_properties.append((PASSED, True))


# ---------------------------------------------------------------- recording


@dataclass
class Seen:
    """What was heard of one chapter so far."""

    cells: int
    digests: dict[int, str] = field(default_factory=dict)
    shown: set[tuple[str, str]] = field(default_factory=set)
    seconds: float = 0.0
    failed: bool = False

    @property
    def whole(self) -> bool:
        """Whether every code cell ran and was compared."""
        return not self.failed and sorted(self.digests) == list(range(self.cells))

    def count(self, what: str) -> int:
        """Count the numbers, tables or figures, each id once."""
        return sum(kind == what for kind, _ in self.shown)


class Recorder:
    """Hears every result, and writes the record when all is done."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages = [self._page(path) for path in notebooks_of(root)]
        self.before = self._sources()
        self.commit, self.changed_since = commit_of(root)
        self.date = today()
        self.old = read_checks(root)
        self.seen: dict[str, Seen] = {}
        self.said = ""

    def _page(self, path: Path) -> str:
        return path.relative_to(self.root).with_suffix("").as_posix()

    def _sources(self) -> tuple[str, str]:
        data = [path for path in input_files(self.root) if self.root / "data" in path.parents]
        # The digest is kept for a process's life; what counts is that it is still the same.
        return project.source_digest(fresh=True), files_digest(data, self.root)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase of one cell."""
        properties = dict(report.user_properties)
        about: Any = properties.get(CELL)
        if about is None or self.root not in Path(about["path"]).parents:
            return
        page = self.seen.setdefault(self._page(Path(about["path"])), Seen(about["cells"]))
        page.failed |= report.outcome == "failed"
        if report.when == "call" and report.outcome == "passed" and PASSED in properties:
            page.digests[about["number"]] = about["digest"]
            page.shown |= {(str(what), str(name)) for what, name in about["shown"]}
            page.seconds += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the record, if all that was to run did run and nothing changed meanwhile."""
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.said = f"{RECORD_FILE} stays as it was: the run was broken off"
            return
        try:
            if self._sources() != self.before:
                raise InputError(
                    f"{RECORD_FILE} stays as it was: src/, data/ or requirements.txt changed "
                    "while the chapters ran"
                )
            rows = {page: row for page in self.pages if (row := self._row(page)) is not None}
            write_checks(self.root, rows)
        except InputError as error:
            self.said = str(error)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        whole = [page for page in self.pages if page in self.seen and self.seen[page].whole]
        sums = {what: sum(self.seen[page].count(what) for page in whole) for what in get_args(What)}
        checked = [f"checked {len(whole)} of {len(self.pages)} chapters"]
        checked += [counted(n, what) for what, n in sums.items()]
        self.said = f"{', '.join(checked)}; wrote {RECORD_FILE}"

    def _row(self, page: str) -> Check | None:
        """Return a page's new row, its old one where it was not run whole, or none."""
        seen = self.seen.get(page)
        if seen is None or not seen.whole:
            return None if seen and seen.failed else self.old.get(page)
        source_digest, data_digest = self.before
        return Check(
            digest=joined_digest([seen.digests[number] for number in range(seen.cells)]),
            source_digest=source_digest,
            data_digest=data_digest,
            date=self.date,
            seconds=round(seen.seconds, 2),
            cells=seen.cells,
            numbers=seen.count("number"),
            tables=seen.count("table"),
            figures=seen.count("figure"),
            commit=self.commit,
            changed_since=self.changed_since,
            versions=versions(),
            cores=len(os.sched_getaffinity(0)),
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written, or why nothing was."""
        terminalreporter.write_line(self.said)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide numbers."""
    installed = [name for name in NUMBER_PACKAGES if find_spec(name)]
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in installed},
    }


def commit_of(root: Path) -> tuple[str | None, str | None]:
    """Return the commit that the files are those of, and the one that they were changed since.

    One of the two is None; both are outside a Git repository of the folder's own. The record of
    checks itself, which the next commit takes in, is no change.
    """

    def git(*arguments: str) -> str:
        return subprocess.check_output(
            ["git", *arguments], cwd=root, stderr=subprocess.DEVNULL, encoding="utf-8"
        )

    try:
        if Path(git("rev-parse", "--show-toplevel").rstrip("\n")).resolve() != root.resolve():
            return None, None
        head = git("rev-parse", "--verify", "HEAD").strip()
        changes = git("status", "--porcelain", "-uall", "--", f":(exclude){RECORD_FILE}")
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return (None, head) if changes else (head, None)
