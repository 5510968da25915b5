"""Editions of the book made for tests: entries, catalogues, notebooks, repositories."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from proofbook.catalogue import Catalogue, Entry, number_digest
from proofbook.catalogue.editions import Edition, Printed

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


# ---------------------------------------------------------------- notebooks and repositories


def glued(id: str, text: str, **about: str) -> dict[str, Any]:
    return {
        "output_type": "display_data",
        "data": {"application/papermill.record/text/plain": text},
        "metadata": {
            "scrapbook": {"name": id, "mime_prefix": "application/papermill.record/"},
            "proofbook": {"kind": "computed", "source": None, **about},
        },
    }


def shown_table(id: str, rows: str, caption: str = "What is held.", **about: str) -> dict[str, Any]:
    return {
        "output_type": "display_data",
        "data": {
            "text/html": f'<div class="kv-table" role="region" id="{id}" data-kind="computed">',
            "text/plain": f"{caption} Computed here.\n\n{rows}",
        },
        "metadata": {"proofbook": {"kind": "computed", "source": None, **about}},
    }


def notebook(*outputs: Mapping[str, Any]) -> str:
    cells = [
        {"cell_type": "code", "id": f"cell-{i}", "metadata": {}, "execution_count": i,
         "source": "", "outputs": [output]}
        for i, output in enumerate(outputs, start=1)
    ]  # fmt: skip
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def write_checkout(root: Path, chapters: Mapping[str, str], version: str = "0.1.0") -> Path:
    """Lay out a book: its table of contents, its version, its chapters, and no code."""
    (root / "chapters").mkdir(parents=True, exist_ok=True)
    names = list(chapters)
    listed = "".join(f"  - file: chapters/{name}\n" for name in names[1:])
    toc = f"format: jb-book\nroot: chapters/{names[0]}\n" + (f"chapters:\n{listed}" * bool(listed))
    (root / "_toc.yml").write_text(toc, encoding="utf-8")
    (root / "_config.yml").write_text("title: A book\n", encoding="utf-8")
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "kvledger"\nversion = "{version}"\n', encoding="utf-8"
    )
    (root / "requirements.txt").write_text("# none\n", encoding="utf-8")
    for name, text in chapters.items():
        (root / "chapters" / f"{name}.ipynb").write_text(text, encoding="utf-8")
    return root


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=A", "-c", "user.email=a@b.example", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def commit(root: Path, message: str = "all") -> str:
    """Commit everything; return the commit."""
    if not (root / ".git").exists():
        git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD")


def ids(found: Iterable[Entry]) -> list[str]:
    return [entry.id for entry in found]
