"""Store what the notebooks gave in the notebooks themselves: the same text for the same outputs."""

# Sphinx, MyST-NB and Jupyter ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofbook.build.runs_of_notebooks import KERNELSPEC, Run, read_notebook
from proofbook.contents import Place, chapters
from proofbook.files import write_whole


def stored(source: Any, executed: Any) -> str:
    """Return the text of a notebook with outputs, the same text for the same outputs.

    Parameters
    ----------
    source : NotebookNode
        The notebook as it is in the repository: ids, prose and metadata are taken from it.
    executed : NotebookNode
        The same notebook with outputs.
    """
    import copy

    import nbformat

    notebook = copy.deepcopy(source)
    kept = {"kernelspec", "language_info"}
    others = {name: value for name, value in source.metadata.items() if name not in kept}
    notebook.metadata = nbformat.from_dict(
        {**others, "kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    )
    count = 0
    for ours, theirs in zip(notebook.cells, executed.cells, strict=True):
        ours.metadata.pop("execution", None)
        if ours.cell_type != "code":
            continue
        count += 1
        ours.execution_count = count
        ours.outputs = copy.deepcopy(theirs.outputs)
        for output in ours.outputs:
            if "execution_count" in output:
                output.execution_count = count
    notebook.nbformat_minor = 5
    text: str = nbformat.writes(notebook, nbformat.NO_CONVERT)
    return text.rstrip("\n") + "\n"


def store_outputs(place: Place, runs: Sequence[Run]) -> list[Path]:
    """Write outputs into the chapters whose text that changes; return those."""
    changed = []
    for run in runs:
        text = stored(read_notebook(run.path), run.notebook)
        if text == run.path.read_text(encoding="utf-8"):
            continue
        write_whole(run.path, text.encode())
        changed.append(run.path)
    return changed


def normalise_kernels(place: Place) -> None:
    """Write the one kernel name into chapters that lack it, so that results are found again."""
    for path in chapters(place.root):
        if path.suffix != ".ipynb":
            continue
        notebook = read_notebook(path)
        if dict(notebook.metadata.get("kernelspec", {})) != KERNELSPEC:
            import nbformat

            notebook.metadata["kernelspec"] = nbformat.from_dict(KERNELSPEC)
            text = nbformat.writes(notebook, nbformat.NO_CONVERT).rstrip("\n") + "\n"
            write_whole(path, text.encode())
