"""Strict nbval catches every changed digit: in a glued value, a table, a printed line, a figure.

Each chapter is copied, one digit is changed in one compared output of every cell that has any,
and nbval must fail on exactly those cells.
"""

from __future__ import annotations

import copy
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from conftest import ROOT

from proofbook import prose
from proofbook.showing import RECORD

CHAPTERS = sorted(p for p in (ROOT / "chapters").glob("*.ipynb") if not p.name.startswith("_"))
COMPARED = (RECORD, "text/html", "text/plain")
Notebook = Any
Place = tuple[int, int, str]

SOURCES = {
    "imports": "import pandas as pd\nfrom proofbook import figure, number, style, table",
    "lengths": "lengths = [5, 9, 17]\npages = [-(-n // 4) for n in lengths]",
    "numbers": """number("toy.slots", 4 * sum(pages), unit="slots")
number("toy.pages", sum(pages), unit="pages")""",
    "printed": "print(4 * sum(pages), 'slots')\nprint(sum(pages), 'pages')",
    "value": "4 * sum(pages) - sum(lengths)",
    "frame": 'frame = pd.DataFrame({"request": ["a", "b", "c"], "length": lengths})',
    "table": 'table("tab-toy", frame, caption="Three requests.")',
    "figure": "fig, ax = style.canvas(2)\nax.bar(frame['request'], frame['length'])\n"
    'figure("fig-toy", fig, data=frame, '
    'alt="Three bars, one a request, each taller than the one before.")',
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Notebook:
    """Execute a notebook that shows one thing of each sort."""
    cells = [nbformat.v4.new_code_cell(text, id=id) for id, text in SOURCES.items()]
    cells[-1]["metadata"]["mystnb"] = {"figure": {"caption": "Words.", "name": "fig-toy"}}
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("toy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROOFBOOK_FIGURES_DIR", str(folder))
        nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def texts(output: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, holder, key) of every text of an output that nbval compares."""
    if output["output_type"] == "stream":
        yield "stdout", output, "text"
    for key in COMPARED:
        if key in output.get("data", {}):
            yield key, output["data"], key


def places(cell: Any) -> list[tuple[int, str]]:
    """List every compared text of a cell that holds a digit."""
    return [
        (index, name)
        for index, output in enumerate(cell.get("outputs", []))
        for name, holder, key in texts(output)
        if re.search(r"\d", holder[key])
    ]


def change_digit(cell: Any, place: tuple[int, str], chance: random.Random) -> None:
    index, wanted = place
    for name, holder, key in texts(cell["outputs"][index]):
        if name == wanted:
            text = holder[key]
            at = chance.choice([m.start() for m in re.finditer(r"\d", text)])
            other = chance.choice([d for d in "0123456789" if d != text[at]])
            holder[key] = text[:at] + other + text[at + 1 :]
            assert holder[key] != text


def code_cells(notebook: Notebook) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def nbval(notebook: Notebook, folder: Path, name: str) -> dict[int, bool]:
    """Run strict nbval on a notebook; say of each code cell whether it passed."""
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    (folder / "pytest.ini").write_text("[pytest]\n")
    report = folder / f"{name}.xml"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini")),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "--nbval", "--nbval-current-env"),
            *(f"--junitxml={report}", str(path)),
        ],
        cwd=folder,
        env={**os.environ, "PROOFBOOK_FIGURES_DIR": str(folder / "figures"), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode in {0, 1}, run.stdout + run.stderr
    results = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        number = re.search(r"Cell (\d+)", case.attrib["name"])
        assert number, case.attrib
        assert case.find("skipped") is None
        results[int(number[1])] = case.find("failure") is None and case.find("error") is None
    assert sorted(results) == list(range(len(code_cells(notebook))))
    return results


def expect(notebook: Notebook, changed: set[int], folder: Path, name: str) -> None:
    results = nbval(notebook, folder, name)
    assert {cell for cell, passed in results.items() if not passed} == changed


def test_an_untouched_notebook_passes(toy: Notebook, tmp_path: Path) -> None:
    expect(toy, set(), tmp_path, "toy")


LAYERS = 4


def test_every_sort_of_output_is_tried(toy: Notebook) -> None:
    """The toy notebook holds every sort of text, and the layers below reach all of them."""
    found = [places(cell) for cell in code_cells(toy)]
    assert {name for cell in found for _, name in cell} == {"stdout", *COMPARED}
    assert 1 < max(map(len, found)) <= LAYERS


@pytest.mark.parametrize("layer", range(LAYERS))
def test_every_output_of_the_toy_notebook(toy: Notebook, tmp_path: Path, layer: int) -> None:
    """Each compared text of each output is changed once, one text of a cell at a time."""
    notebook = copy.deepcopy(toy)
    changed = set()
    for number, cell in enumerate(code_cells(notebook)):
        there = places(cell)
        if there:
            change_digit(cell, there[layer % len(there)], random.Random(f"{layer} {number}"))
            changed.add(number)
    assert changed
    expect(notebook, changed, tmp_path, f"layer{layer}")


def test_a_trimmed_notebook_passes_nbval_and_fails_the_check(toy: Notebook, tmp_path: Path) -> None:
    """Nothing stored, nothing compared: so a check of its own must see to it."""
    notebook = copy.deepcopy(toy)
    for cell in code_cells(notebook):
        cell.update(outputs=[], execution_count=None)
    expect(notebook, set(), tmp_path, "trimmed")
    found = [problem.text for problem in prose.check_file(tmp_path / "trimmed.ipynb")]
    assert any("no outputs at all" in text for text in found)
    assert any("execution counts" in text for text in found)
    assert sum("no output is stored" in text for text in found) == 4


def test_one_output_less_fails(toy: Notebook, tmp_path: Path) -> None:
    """A cell that keeps some of its outputs is compared whole."""
    notebook = copy.deepcopy(toy)
    cells = code_cells(notebook)
    numbers = list(SOURCES).index("numbers")
    del cells[numbers]["outputs"][0]
    expect(notebook, {numbers}, tmp_path, "less")


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAPTERS, ids=[p.stem for p in CHAPTERS])
def test_a_digit_changed_in_a_chapter(path: Path, tmp_path: Path) -> None:
    """One digit of one output of every cell: every one of these cells fails, no other does."""
    notebook = nbformat.read(path, as_version=4)
    changed = set()
    chance = random.Random(path.name)
    for number, cell in enumerate(code_cells(notebook)):
        there = places(cell)
        if there:
            change_digit(cell, chance.choice(there), chance)
            changed.add(number)
    assert changed, f"{path.name} stores no output with a digit"
    expect(notebook, changed, tmp_path, path.stem)


def test_no_sanitiser_hides_digits(pytestconfig: pytest.Config) -> None:
    """Nothing in this project softens the comparison."""
    assert pytestconfig.getoption("nbval_sanitize_with", None) is None
    names = ("pyproject.toml", "Makefile", ".ci/run", "pytest.ini", "tox.ini", "setup.cfg")
    for file in [ROOT / name for name in names] + sorted((ROOT / "tests").glob("conftest.py")):
        if file.is_file():
            found = re.search(r"sanitize|nbval-lax|NBVAL_IGNORE", file.read_text(encoding="utf-8"))
            assert found is None, f"{file.name}: {found}"
