"""What several test files share: the repository, the finished book, and a small book to break."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from proofbook import project, showing
from proofbook.catalogue import Catalogue, read_catalogue
from proofbook.contents import Place, input_files, is_current
from proofbook.errors import InputError
from proofbook.files import files_digest

# Read when Triton is first imported: its kernels run on a CPU, slowly. What must compile them for a
# GPU does so in a process of its own, without this.
os.environ["TRITON_INTERPRET"] = "1"

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = Path(__file__).resolve().parent / "build_fixture"

# Tests run side by side on busy machines: how long one example takes says nothing.
settings.register_profile("kvledger", deadline=None)
settings.load_profile("kvledger")

# The small book is run by test_build.py, and its notebooks have no outputs to compare. What records
# vLLM needs vLLM: `make test-peers`. Conditions are loaded by the Pythons of builds under test.
collect_ignore_glob = ["build_fixture/*", "peers/*", "conditions/*"]


#: Fixtures that build a book, or start a browser: what uses one takes longer than some seconds.
SLOW_FIXTURES = {"browser", "built_book", "chromium", "first", "made", "nowhere", "recorded", "toy"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow by what they need."""
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


def refused(message: str, call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Prove that a call is refused with an error of this pattern; return what it says."""
    from kvledger import LedgerError  # where it can be imported: proofbook is tested without it

    with pytest.raises(LedgerError, match=message or None) as caught:
        call(*arguments, **named)
    return str(caught.value)


def refused_input(message: str, call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Prove the same of what proofbook refuses."""
    with pytest.raises(InputError, match=message or None) as caught:
        call(*arguments, **named)
    return str(caught.value)


@pytest.fixture
def no_warnings() -> Iterator[None]:
    """Make an error of every warning, such as one of a drawing, and close what is drawn."""
    import matplotlib.pyplot as plt

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What an earlier test of this process left open is noticed whenever memory is tidied up.
        warnings.simplefilter("ignore", ResourceWarning)
        yield
    plt.close("all")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of texts or bytes into the test's folder."""

    def write(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def built_book() -> Path:
    """The HTML of the book as it is now; a missing or an old one is a failure."""
    place = Place(ROOT)
    if not is_current(place, files_digest(input_files(ROOT), ROOT)):
        pytest.fail(f"{place.html} is missing or older than its sources: run `make book` first")
    return place.html


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Book(NamedTuple):
    """A small book with code of its own, to build and to break."""

    root: Path

    @property
    def html(self) -> Path:
        return self.root / "_build" / "html"

    @property
    def log(self) -> Path:
        return self.root / "runs.log"

    def build(self, command: str = "book") -> subprocess.CompletedProcess[str]:
        """Run the build's command line on it, with the package as copied into it."""
        return subprocess.run(
            [sys.executable, "-m", "proofbook.build", command],
            cwd=self.root,
            env={
                **{k: v for k, v in os.environ.items() if k != "PROOFBOOK_FIGURES_DIR"},
                "PYTHONPATH": str(self.root / "src"),
                "FIXTURE_LOG": str(self.log),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def done(self, command: str = "book") -> str:
        """Build without an error or a word of one; return what is said."""
        result = self.build(command)
        assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
        return result.stdout

    @contextmanager
    def notebook(self, name: str) -> Iterator[dict[str, Any]]:
        """Give a chapter's notebook, to be edited."""
        path = self.root / "chapters" / f"{name}.ipynb"
        notebook = json.loads(path.read_text(encoding="utf-8"))
        yield notebook
        path.write_text(json.dumps(notebook), encoding="utf-8")

    def runs(self) -> list[str]:
        """Return the notebooks that really ran so far, one entry a run."""
        return self.log.read_text(encoding="utf-8").split() if self.log.exists() else []

    def page(self, name: str) -> str:
        return (self.html / "chapters" / f"{name}.html").read_text(encoding="utf-8")

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that occurs once in a file."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def tree(self) -> dict[str, bytes]:
        """Return every file of the finished pages with its content."""
        return tree(self.html)

    def copy(self, target: Path) -> Book:
        shutil.copytree(self.root, target, dirs_exist_ok=True)
        return Book(target)


def make_fixture_book(target: Path) -> Book:
    """Lay the small book out with a copy of the package, so that code can be edited."""
    shutil.copytree(FIXTURE, target, dirs_exist_ok=True)
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src" / "proofbook", target / "src" / "proofbook", ignore=skip)
    (target / "data").mkdir()
    for path in (ROOT / "data").iterdir():  # the tables of claims; the traces are not needed
        if path.is_file():
            shutil.copyfile(path, target / "data" / path.name)
    (target / "requirements.txt").write_text("# of the small book\n", encoding="utf-8")
    return Book(target)


# ---------------------------------------------------------------- to stand in a small book

CLAIMS = """\
id,value,unit,given,source
stock.sold,40,parts,"three shops, one week",article
stock.cost,38.25,coins,a mean,article
paper.gain,2,times,at best,Smith 2020
"""
PAPER = """\
id,value,unit,where,note
fig2.full,68.5,% of the room,Figure 2,
fig2.empty,7.00,parts,Figure 2,read off
"""


@pytest.fixture
def smallbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Smallbook 1.2.3 as the working folder, with two tables of published numbers."""
    root = tmp_path / "smallbook"
    shutil.copytree(FIXTURE, root)
    (root / "data").mkdir()
    (root / "data" / "claims.csv").write_text(CLAIMS, encoding="utf-8")
    (root / "data" / "paper.csv").write_text(PAPER, encoding="utf-8")
    (root / "requirements.txt").write_text("# none\n", encoding="utf-8")
    monkeypatch.chdir(root)
    words = project.this_project()._replace(
        units={"parts": "parts", "size": "parts"},
        published={"claims.csv": "", "paper.csv": "Kwon 2023"},
    )
    monkeypatch.setattr(project, "_offered", [words])
    return root


@pytest.fixture
def outputs(
    smallbook: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Collect what a notebook of the small book would show, in a process of its own."""
    shown: list[tuple[dict[str, Any], dict[str, Any]]] = []
    monkeypatch.setattr(showing, "emit", lambda data, meta: shown.append((data, meta)))
    monkeypatch.setattr(showing, "_shown", {})
    monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(tmp_path / "figures"))
    return shown


# ---------------------------------------------------------------- the small book as a site

BASE = "https://book.example/kv/"
#: What the real configuration says of launching, so that the test is of that.
LAUNCH = """launch_buttons:
  notebook_interface: jupyterlab
  binderhub_url: https://mybinder.org
  colab_url: https://colab.research.google.com
"""


def _built(book: Book) -> Book:
    book.done()
    return book


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The small book, built once; tests take copies."""
    return _built(make_fixture_book(tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="session")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The small book with the pages that list everything, and no address and no repository."""
    book = make_fixture_book(tmp_path_factory.mktemp("nowhere"))
    lists = ("figures", "numbers")
    for name in lists:
        shutil.copy(ROOT / "chapters" / f"{name}.md", book.root / "chapters")
    entries = "".join(f"      - file: chapters/{name}\n" for name in ("notes", *lists))
    book.edit("_toc.yml", "      - file: chapters/notes\n", entries)
    extension = "    - proofbook.pages\n"
    book.edit("_config.yml", extension, f"{extension}    - proofbook.pages.site\n")
    book.edit("_config.yml", "html:\n", 'html:\n  baseurl: ""\n')
    book.edit("_config.yml", "launch_buttons:\n", LAUNCH)
    book.edit("_config.yml", '  url: ""\n', '  url: ""\n  branch: main\n')
    return _built(book)


@pytest.fixture(scope="session")
def public(nowhere: Book, tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The same with both; its notebooks need not run again."""
    book = nowhere.copy(tmp_path_factory.mktemp("public"))
    book.edit("_config.yml", 'baseurl: ""', f'baseurl: "{BASE}"')
    book.edit("_config.yml", '  url: ""', '  url: "https://github.com/example/kv"')
    return _built(book)


@pytest.fixture(scope="session")
def built_pages(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The small book of pages_book.py, built."""
    from pages_book import make_pages_book

    return _built(make_pages_book(tmp_path_factory.mktemp("pages")))


@pytest.fixture
def pages_book(built_pages: Book, monkeypatch: pytest.MonkeyPatch) -> Book:
    """The same as the working folder: a citation names the project of that."""
    monkeypatch.chdir(built_pages.root)
    return built_pages


@pytest.fixture
def pages_catalogue(pages_book: Book) -> Catalogue:
    """What its JSON files say."""
    return read_catalogue(pages_book.html)
