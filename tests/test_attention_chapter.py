"""The chapter on measured attention, run as it stands with no record, a CPU's and a GPU's."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
from attention_records import GPU_PEERS, MadePeer, made_record, write_made
from nbclient import NotebookClient

from proofbook.prose import check_file
from proofbook.showing import RECORD

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "paged_attention.ipynb"
GPU = "NVIDIA H200"

pytestmark = pytest.mark.slow


class Told(NamedTuple):
    """What a run of the chapter shows."""

    notebook: Any
    path: Path

    @property
    def glued(self) -> dict[str, str]:
        numbers = [o for o in self.outputs if "scrapbook" in o.metadata]
        return {o.metadata.scrapbook.name: o.data[RECORD] for o in numbers}

    @property
    def outputs(self) -> list[Any]:
        return [o for cell in self.notebook.cells for o in cell.get("outputs", [])]

    @property
    def tables(self) -> dict[str, str]:
        found = {}
        for output in self.outputs:
            html = output.get("data", {}).get("text/html", "")
            if 'class="kv-table"' in html:
                found[re.findall(r' id="(tab-[a-z-]+)"', html)[0]] = output.data["text/plain"]
        return found

    def kinds(self, of: str) -> set[str]:
        about = [output.metadata.proofbook for output in self.outputs]
        return {str(each.source) for each in about if each.kind == of}

    def page(self) -> str:
        """The prose with every glued text in its place."""
        text = "\n\n".join(c.source for c in self.notebook.cells if c.cell_type == "markdown")
        return re.sub(r"\{glue:text\}`([^`]+)`", lambda found: self.glued[found[1]], text)


def told(folder: Path) -> Told:
    """Run the chapter's cells in a kernel that finds its records in a folder."""
    notebook = nbformat.read(CHAPTER, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where)
    env = {"KVLEDGER_MEASUREMENTS": str(folder), "PROOFBOOK_FIGURES_DIR": str(folder / "figures")}
    client.execute(env=os.environ | env | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    path = folder / CHAPTER.name
    shutil.copy(CHAPTER.with_name("_template.ipynb"), folder)  # the headings it must have
    nbformat.write(notebook, path)
    return Told(notebook, path)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return told(tmp_path_factory.mktemp("nothing"))


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("cpu")
    write_made(folder, made_record("cpu", noise=1e-6))
    return told(folder)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A record from a GPU, and a later one from a CPU that must not take its place."""
    folder = tmp_path_factory.mktemp("gpu")
    peers = {**GPU_PEERS, "cudnn_paged": MadePeer(0.96, 0.1, 0.1, page_sizes=(64, 128, 256))}
    write_made(folder, made_record("cuda", name=GPU, noise=1e-6, peers=peers))
    write_made(folder, made_record("cpu", date="2026-05-06T07:08:09Z"))
    return told(folder)


STATES = ["nothing", "cpu", "gpu"]


@pytest.fixture
def each(request: pytest.FixtureRequest) -> Told:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Told)
    return found


@pytest.mark.parametrize("each", STATES, indirect=True)
def test_the_chapter_holds_its_contracts_whatever_was_measured(each: Told) -> None:
    assert [str(problem) for problem in check_file(each.path)] == []
    assert {o.output_type for o in each.outputs} == {"display_data"}
    page = each.page()
    assert "{glue" not in page
    assert not re.search(r"\b(nan|None|inf)\b", page)


def test_the_states_differ_in_values_and_say_what_was_measured(
    nothing: Told, cpu: Told, gpu: Told
) -> None:
    assert list(nothing.glued) == list(cpu.glued) == list(gpu.glued)
    assert list(nothing.tables) == list(cpu.tables) == list(gpu.tables)
    tables = [[t.split("Measured:")[0] for t in each.tables.values()] for each in (cpu, gpu)]
    captions = [[text.split("\n")[0] for text in each] for each in tables]
    assert captions[0] == captions[1]
    lines = [each.page().split("\n")[2] for each in (nothing, cpu, gpu)]
    assert lines[0].startswith("No record has been taken, from a GPU or from any other device")
    assert lines[1].startswith("No record from a GPU has been taken. What is shown was measured on")
    assert "Test device, a CPU" in lines[1]
    assert lines[2].startswith(f"Measured on one GPU: {GPU}, 2026-01-02. There, this kernel took")


def test_without_a_record_no_number_is_shown_as_measured(nothing: Told) -> None:
    values = {id: text for id, text in nothing.glued.items() if ".cited." not in id}
    for id, text in values.items():
        if not id.startswith("attention.small."):
            assert not re.search(r"\d", text), f"{id}: {text}"
    assert nothing.kinds("measured") == {"no record"}
    for id in ("settings", "losses", "cases", "absent", "fits", "best", "steps"):
        assert "not measured" in nothing.tables[f"tab-attention-{id}"]


def test_the_numbers_are_those_of_the_record(gpu: Told, cpu: Told) -> None:
    made, glued = GPU_PEERS["triton"], gpu.glued
    assert gpu.kinds("measured") == {"2026-01-02-made-cuda.json"}
    assert glued["attention.device"] == f"{GPU}, 2026-01-02"
    assert glued["attention.peer"] == "this kernel"
    assert glued["attention.against"] == "itself"
    assert f"{1 + made.c_random:.2f} times as long with pages of 1," in glued["attention.result"]
    c, low, high = map(float, re.findall(r"-?\d+\.\d+", glued["attention.c"]))
    assert low <= c <= high
    assert c == pytest.approx(made.c_random, abs=2e-3)
    assert glued["attention.verdict"].startswith("The line describes the times")
    assert glued["attention.row_bytes"] == "256"
    bars = gpu.tables["tab-attention-bars"]
    assert f"{made.share / (1 + made.c_random / 16):.1%}" in bars
    assert "not measured" not in bars
    assert cpu.kinds("measured") == {"2026-01-02-made-cpu.json"}
    assert cpu.glued["attention.peer"] == "FlexAttention"
    assert cpu.glued["attention.against"] == "SDPA"
    assert cpu.tables["tab-attention-bars"].count("not measured on a GPU yet") == 3
    assert "H200, 2026" not in "\n".join([cpu.page(), *cpu.tables.values()])


@pytest.mark.parametrize("each", STATES, indirect=True)
def test_what_others_measured_is_marked_as_theirs(each: Told) -> None:
    cited = each.kinds("cited")
    assert any(source.startswith("the source of each row") for source in cited)
    assert "Prabhu et al. 2025, section 3.3" in cited
    assert "26% longer" in each.tables["tab-attention-published"]


def test_every_figure_is_saved_with_its_data(gpu: Told) -> None:
    folder = gpu.path.parent / "figures"
    for name in ("table", "latency", "bandwidth", "published", "fit", "host"):
        for ending in ("svg", "dark.svg", "png", "csv", "json"):
            assert (folder / f"fig-attention-{name}.{ending}").stat().st_size
    assert len((folder / "fig-attention-latency.csv").read_text("utf-8").splitlines()) > 60
