"""An anchor for every code cell, ``cell-<id>``, so that a page can say which cell made what."""

# Sphinx and MyST-NB ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from proofbook.pages.number_roles import kv_number
from proofbook.pages.page_catalogue import catalogue


class CellAnchors(SphinxTransform):
    """Give each code cell its anchor, and those of its numbers that no sentence here shows."""

    default_priority = 60

    def apply(self, **kwargs: Any) -> None:
        """Add the ids to the cells' containers."""
        path = Path(self.env.doc2path(self.env.docname))
        if path.suffix != ".ipynb":
            return
        ids = [cell["id"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        cells = {ids[node["cell_index"]]: node for node in self.document.findall(_is_code_cell)}
        for cell_id, node in cells.items():
            node["ids"].append(f"cell-{cell_id}")
        self._anchor_numbers(cells)

    def _anchor_numbers(self, cells: dict[str, nodes.container]) -> None:
        # The first place that shows a number is where it is cited from.
        shown: set[str] = set()
        for number in self.document.findall(kv_number):
            if number["kv_id"] not in shown:
                shown.add(number["kv_id"])
                number["kv_anchor"] = f"n-{number['kv_id']}"
        for entry in catalogue().entries.values():
            here = entry.what == "number" and entry.page == self.env.docname
            if here and entry.id not in shown and entry.cell in cells:
                cells[entry.cell]["ids"].append(entry.anchor)


def _is_code_cell(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the anchors to a Sphinx application."""
    app.add_transform(CellAnchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
