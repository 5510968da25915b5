"""What chapters refer to: terms, figures, equations and sources, each where it is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pybtex.database import parse_file

import kvledger as kv

ACCOUNTING = (
    "contiguous_reservation",
    "page_tail_slack",
    "prefix_sharing",
    "metadata_cost",
    "growth_over_time",
    "paged_attention",
    "page_size_decision",
)
CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
NOTEBOOKS = sorted(CHAPTERS.glob("[!_]*.ipynb"))
PAGES = [*NOTEBOOKS, *sorted(CHAPTERS.glob("*.md"))]
_ROLE = r"\{%s\}`(?:[^`<]*<)?([^`>]+)>?`"
_EQUATION = re.compile(r"\$\$(.+?)\$\$[ ]*(?:\(([^)\n]+)\))?", re.DOTALL)


def cells(path: Path) -> list[tuple[str, str, str | None]]:
    """Return each piece of a page in order: its kind, its text, and the figure it shows."""
    if path.suffix == ".md":
        return [("markdown", path.read_text(encoding="utf-8"), None)]
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        figure = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
        found.append((cell["cell_type"], "".join(cell["source"]), figure))
    return found


def prose(path: Path) -> str:
    return "\n\n".join(text for kind, text, _ in cells(path) if kind == "markdown")


def named(role: str, text: str) -> list[str]:
    return re.findall(_ROLE % role, text)


def glossary() -> set[str]:
    text = (CHAPTERS / "notation.md").read_text(encoding="utf-8")
    body = text.split("```{glossary}\n")[1].split("```")[0]
    return {line for line in body.splitlines() if line and not line.startswith((" ", ":"))}


SHOWN = [
    (path, figure, at)
    for path in NOTEBOOKS
    for at, (_, _, figure) in enumerate(cells(path))
    if figure is not None
]


# ---------------------------------------------------------------- terms
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_terms_are_in_the_glossary_and_linked_at_first_use_only(path: Path) -> None:
    used = named("term", prose(path))
    assert set(used) <= glossary()
    assert len(used) == len(set(used)), "a term is linked once a page"


@pytest.mark.parametrize("name", ACCOUNTING)
def test_a_chapter_links_the_words_it_needs(name: str) -> None:
    assert named("term", prose(CHAPTERS / f"{name}.ipynb"))


def test_the_words_of_the_argument_are_linked_somewhere() -> None:
    linked = {term for path in NOTEBOOKS for term in named("term", prose(path))}
    terms = {"slot", "page", "page size", "tail slack", "reserved", "shared tokens"}
    assert terms | {"metadata cost"} <= linked


# ---------------------------------------------------------------- figures
@pytest.mark.parametrize(("path", "figure", "at"), SHOWN, ids=[figure for _, figure, _ in SHOWN])
def test_a_figure_is_referred_to_before_it_appears(path: Path, figure: str, at: int) -> None:
    before = "\n".join(text for kind, text, _ in cells(path)[:at] if kind == "markdown")
    assert figure in named("numref", before)


# ---------------------------------------------------------------- equations
def test_every_equation_has_a_label_of_its_own_and_is_referred_to() -> None:
    labels = [label for path in PAGES for _, label in _EQUATION.findall(prose(path))]
    assert len(labels) > 5
    assert all(re.fullmatch(r"eq-[a-z-]+", label) for label in labels), labels
    assert len(set(labels)) == len(labels)
    used = {name for path in PAGES for name in named("eq", prose(path))}
    assert used == set(labels)


# ---------------------------------------------------------------- sources
def test_every_source_can_be_found_and_is_cited() -> None:
    entries = parse_file(str(CHAPTERS / "references.bib")).entries
    text = "\n".join(prose(path) for path in PAGES)
    keys = ",".join([*named("cite:t", text), *named("cite:p", text)])
    cited = {key.strip() for key in keys.split(",")}
    assert cited == set(entries)
    for key, entry in entries.items():
        fields = entry.fields
        assert fields.get("doi") or fields.get("url", "").startswith("https://"), key
        if "doi" in fields:
            assert re.fullmatch(r"10\.\d{4,9}/\S+", fields["doi"]), key
    assert f"version = {{{kv.__version__}}}," in prose(CHAPTERS / "index.ipynb")
