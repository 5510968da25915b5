"""The chapter on the decision reads right whatever has been measured, without an edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attention_records import made_record, write_made

import kvledger as kv
from kvledger.decision import decide
from kvledger.decision.decision_survey import read_words

ROOT = Path(__file__).resolve().parent.parent
CHAPTER = ROOT / "chapters" / "page_size_decision.ipynb"

pytestmark = pytest.mark.slow

# Runs the code cells as they stand and keeps what they show.
RUN = """
import json, sys
from proofbook.showing import RECORD
from proofbook import showing as outputs
shown = {"numbers": {}, "texts": {}}
def keep(data, metadata):
    name = metadata.get("scrapbook", {}).get("name")
    if name is None:
        text = data["text/plain"]
        shown["texts"][text.split(" · ")[0].split("\\n")[0]] = text
    else:
        kind = metadata["proofbook"]
        shown["numbers"][name] = [data[RECORD], kind["kind"], kind["source"]]
outputs.emit = keep
scope = {}
for cell in json.loads(open(sys.argv[1], encoding="utf-8").read())["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
open(sys.argv[2], "w").write(json.dumps(shown))
"""

Shown = dict[str, dict[str, Any]]


def run(folder: Path, *kinds: str) -> Shown:
    records = folder / "records"
    records.mkdir()
    for kind in kinds:
        write_made(records, made_record(kind))
    command = [sys.executable, "-c", RUN, str(CHAPTER), str(folder / "shown.json")]
    env = os.environ | {"KVLEDGER_MEASUREMENTS": str(records), "MPLBACKEND": "Agg"}
    env["PROOFBOOK_FIGURES_DIR"] = str(folder / "figures")
    done = subprocess.run(command, cwd=CHAPTER.parent, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    shown: Shown = json.loads((folder / "shown.json").read_text())
    return shown


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    kinds = {"nothing": (), "a CPU": ("cpu",), "a GPU": ("cpu", "cuda")}
    return {state: run(tmp_path_factory.mktemp("run"), *of) for state, of in kinds.items()}


def table(shown: Shown, caption: str) -> str:
    (text,) = (text for text in shown["texts"].values() if text.startswith(caption))
    return str(text)


MEASURED = "Page sizes near the best in memory, in time, in both"


def test_without_a_gpu_the_time_to_read_is_absent_and_said_to_be(states: dict[str, Shown]) -> None:
    for state in ("nothing", "a CPU"):
        words, kind, source = states[state]["numbers"]["decision.read.words"]
        assert words == "not measured (there is no record from a GPU)"
        assert (kind, source) == ("measured", "no record")
        costs = table(states[state], "Every cost of a page size in slots")
        assert costs.count("not measured  ") > 20
        assert "not measured: no record from a GPU" in table(states[state], MEASURED)


def test_a_cpu_record_stands_as_a_cpus(states: dict[str, Shown]) -> None:
    text = table(states["a CPU"], MEASURED)
    assert "Test device, a CPU, 2026-01-02" in text
    assert text.count("a CPU  ") >= len(kv.TRACE_NAMES)
    assert "made-cpu.json" in text
    assert "not measured: no record from a CPU" in table(states["nothing"], MEASURED)


def test_a_gpu_record_is_taken_as_it_appears(states: dict[str, Shown]) -> None:
    shown = states["a GPU"]
    words, kind, source = shown["numbers"]["decision.read.words"]
    decision = decide("azure_conv_2023", "Llama-3.1-8B", record=made_record())
    assert words == read_words(decision)
    assert "Test device, a GPU" in words
    assert (kind, source) == ("measured", "2026-01-02-made-cuda.json")
    costs = table(shown, "Every cost of a page size in slots").splitlines()
    row = next(line for line in costs if line.split()[:1] == ["16"])
    assert f"{float(decision.cost(16).read_slots or 0):.3f}" in row.split()
    text = table(shown, MEASURED)
    both = decision.in_both
    assert f"{both[0]} to {both[-1]}" in text


def test_what_is_not_measured_does_not_depend_on_records(states: dict[str, Shown]) -> None:
    # Kernels are held against all that is known, so their row follows a record too.
    follow = {"decision.kernel.last_excess", "decision.kernel.last"}
    numbers = []
    for shown in states.values():
        kept = [(name, v) for name, v in shown["numbers"].items() if v[1] != "measured"]
        numbers.append({name: value for name, value in kept if name not in follow})
    assert numbers[0] == numbers[1] == numbers[2]
    assert numbers[0]["decision.example.best"][0] == "2"
    assert numbers[0]["decision.example.c_below"][0] == "3/14"


def test_every_figure_is_drawn_in_every_state(states: dict[str, Shown]) -> None:
    figures = {f"fig-decision-{name}" for name in ("example", "costs", "ranges", "needed")}
    for shown in states.values():
        assert figures <= set(shown["texts"])
