"""Tables: a line under each, and their files on the site."""

# Sphinx and MyST-NB ship no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from proofbook.pages.lines import FETCHED, kv_line
from proofbook.pages.page_catalogue import catalogue
from proofbook.pages.page_places import tables_folder
from proofbook.showing import TABLE_HTML


class CitableTables(SphinxTransform):
    """Put the line of a table after the output that shows it."""

    default_priority = 50

    def apply(self, **kwargs: Any) -> None:
        """Add a line to every table of the page."""
        for raw in list(self.document.findall(nodes.raw)):
            match = TABLE_HTML.search(raw.astext())
            if match is None:
                continue
            bundle: nodes.Element = raw
            while bundle.get("nb_element") != "mime_bundle" and bundle.parent is not None:
                bundle = bundle.parent
            if bundle.parent is not None:
                bundle.parent.insert(
                    bundle.parent.index(bundle) + 1, kv_line("", kv_id=match["id"])
                )


def _copy_files(app: Sphinx, error: Exception | None) -> None:
    """Put the files of every table at ``tables/<id>.<ext>`` of the site."""
    if error is not None or app.builder is None or app.builder.format != "html":
        return
    folder, ends = FETCHED["table"]
    target = Path(app.outdir) / folder
    shutil.rmtree(target, ignore_errors=True)
    for entry in catalogue().entries.values():
        if entry.what != "table" or entry.page not in app.env.found_docs:
            continue
        target.mkdir(parents=True, exist_ok=True)
        for end in ends:
            name = f"{entry.id}.{end}"
            shutil.copyfile(tables_folder() / name, target / name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add citable tables to a Sphinx application."""
    app.add_transform(CitableTables)
    app.connect("build-finished", _copy_files, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
