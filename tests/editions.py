"""Editions of the book made for tests: entries, catalogues, notebooks, checkouts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from proofbook.catalogue import Catalogue, Entry, number_digest
from proofbook.catalogue.editions import Edition, Printed
from proofbook.showing import MARK, RECORD

SOURCES = "5" * 64


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def number(id: str, value: str = "4", unit: str = "slots", **fields: Any) -> Entry:
    given = {
        "id": id, "what": "number", "kind": "computed", "source": None, "page": "chapters/first",
        "cell": "sums", "text": value, "value": value, "unit": unit, "caption": None, "alt": None,
        "digest": number_digest(id, value, unit),
    }  # fmt: skip
    return Entry(**(given | fields))


def figure(id: str, data: str = "1,2", **fields: Any) -> Entry:
    given = {
        "id": id, "what": "table" if id.startswith("tab-") else "figure", "kind": "computed",
        "source": None, "page": "chapters/first", "cell": "draw", "text": "Pages hold less",
        "value": None, "unit": None, "caption": "Pages hold less.", "alt": "Two bars.",
        "digest": sha256(data),
    }  # fmt: skip
    return Entry(**(given | fields))


def book(*entries: Entry, version: str = "0.2.0", name: str = "now", **shown: Any) -> Edition:
    catalogue = Catalogue(version, SOURCES, {entry.id: entry for entry in entries})
    rows, early = shown.get("table_rows", {}), shown.get("early", ())
    return Edition(name, catalogue, Printed(rows, frozenset(early)))


# ---------------------------------------------------------------- random ones

HOSTILE = st.text(min_size=1, max_size=20)
IDS = st.sampled_from([f"a.n{i}" for i in range(4)] + ["fig-a", "fig-b", "tab-a", "tab-b"])
PAGES = st.sampled_from(["chapters/first", "chapters/second", "chapters/third"])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    id = draw(IDS)
    kind = draw(st.sampled_from(["computed", "cited", "measured"]))
    source = None if kind == "computed" else draw(HOSTILE)
    fields = {"kind": kind, "source": source, "page": draw(PAGES)}
    if id.startswith(("fig-", "tab-")):
        return figure(id, draw(st.sampled_from("abc")), text=draw(HOSTILE), **fields)
    value, unit = draw(st.sampled_from(["1", "2", "7/2"])), draw(st.sampled_from(["", "slots"]))
    return number(id, value, unit, **fields)


def editions(name: str = "now") -> st.SearchStrategy[Edition]:
    return st.lists(entries(), unique_by=lambda entry: entry.id, max_size=8).map(
        lambda found: book(*found, name=name)
    )


# ---------------------------------------------------------------- notebooks and checkouts


def glued(id: str, text: str, **about: str) -> dict[str, Any]:
    scrapbook = {"name": id, "mime_prefix": "application/papermill.record/"}
    said = {"kind": "computed", "source": None, "value": text, "unit": "parts", **about}
    return {"data": {RECORD: text}, "metadata": {"scrapbook": scrapbook, MARK: said}}


def drawn(id: str, digest: str, **about: str) -> dict[str, Any]:
    said = {"kind": "computed", "source": None, "title": "A title", "alt": "An alt.", **about}
    data = {"image/png": "aGVsbG8=", "text/plain": [f"{id} · data {digest[:8]}"]}
    return {"data": data, "metadata": {MARK: {**said, "digest": digest}}}


def shown_table(id: str, rows: str, caption: str = "What is held.", **about: str) -> dict[str, Any]:
    said = {"kind": "computed", "source": None, "caption": caption, "digest": "d" * 64, **about}
    html = f'<div class="kv-table" role="region" id="{id}" data-kind="computed">'
    data = {"text/html": html, "text/plain": f"{caption} Computed here.\n\n{rows}"}
    return {"data": data, "metadata": {MARK: said}}


def notebook(*outputs: Mapping[str, Any], caption: str | None = None) -> dict[str, Any]:
    """Return a notebook of one output a cell, all under one caption of figures, if any."""
    meta = {"mystnb": {"figure": {"caption": caption, "name": "x"}}} if caption else {}
    cells = [
        {"cell_type": "code", "id": f"cell-{i}", "metadata": meta, "outputs": [output]}
        for i, output in enumerate(outputs, start=1)
    ]
    return {"cells": cells}


def write_checkout(
    root: Path, chapters: Mapping[str, Any], version: str = "0.1.0", name: str = "smallbook"
) -> Path:
    """Lay out a book: its table of contents, its version, its notebooks, and no code."""
    (root / "chapters").mkdir(parents=True, exist_ok=True)
    names = list(chapters)
    listed = "".join(f"  - file: chapters/{name}\n" for name in names[1:])
    toc = f"format: jb-book\nroot: chapters/{names[0]}\n" + (f"chapters:\n{listed}" * bool(listed))
    (root / "_toc.yml").write_text(toc, encoding="utf-8")
    (root / "_config.yml").write_text("title: A book\n", encoding="utf-8")
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "{version}"\n', encoding="utf-8"
    )
    (root / "requirements.txt").write_text("# none\n", encoding="utf-8")
    for page, text in chapters.items():
        (root / "chapters" / f"{page}.ipynb").write_text(json.dumps(text), encoding="utf-8")
    return root


def ids(found: Iterable[Entry]) -> list[str]:
    return [entry.id for entry in found]
