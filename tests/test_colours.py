"""One meaning, one colour: in every saved figure, in the drawings' code and in the explorer."""

from __future__ import annotations

import ast
import csv
import json
import re
from pathlib import Path

import pytest
from redraw import figure_calls

from kvledger.chapters import drawing
from kvledger.core.errors import LedgerError
from proofbook import style

ROOT = Path(__file__).resolve().parent.parent
DRAWINGS = ROOT / "src" / "kvledger" / "chapters"
CHAPTERS = ROOT / "chapters"

COLOURS = {
    name: part.colour.lower() for name, part in drawing.PART.items() if part.colour != "none"
}
PLAIN = {*map(str.lower, style.INK["light"]), style.ON_COLOUR}

#: What the words and the data of a figure must hold for a meaning's colour to stand in it.
WORDS = {
    "used": r"\b(used|tokens?|blue|prompt)\b",
    "shared": r"\bshar(e|es|ed|ing)\b|spared|holds too|hold too",
    "tail slack": r"\bslack\b|\bunused\b|where not",
    "reserved": r"\breserv",
    "external": r"\bholes?\b",
    "metadata": r"\bmetadata\b|host objects|page table|table entry|cost of a page|fitted",
}
DATA = {
    "used": r"used|tokens",
    "shared": r"shar|points at",
    "tail slack": r"slack|tokens",
    "reserved": r"reserve|later_share|never_share",
    "external": r"external",
    "metadata": r"metadata|structure|entry|line_ms|c_slots|c_from",
}


def hexes(text: str) -> set[str]:
    return {found.lower() for found in re.findall(r"#[0-9a-fA-F]{6}\b", text)}


def figures() -> list[str]:
    """Return the ids of all figures of the chapters."""
    return [id for path in sorted(CHAPTERS.glob("[!_]*.ipynb")) for id, *_ in figure_calls(path)]


def test_no_two_meanings_share_a_colour_and_none_is_ink() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert not set(COLOURS.values()) & PLAIN
    inks = {c.lower() for mode in style.INK.values() for c in mode}
    parts = {p.colour.lower() for p in drawing.PART.values()} - {"none"}
    assert len(inks) == 6
    assert not inks & (parts | {style.ON_COLOUR})
    assert len(parts) == len(drawing.PART) - 1
    assert {t.colour for t in drawing.TRACE.values()} <= set(style.INK["light"])
    assert len({t.marker for t in drawing.TRACE.values()}) == len(drawing.TRACE) == 7
    assert len({(t.colour, str(t.linestyle)) for t in drawing.TRACE.values()}) == 7
    with pytest.raises(LedgerError, match="part: 'slack'"):
        drawing.part_style("slack")
    with pytest.raises(LedgerError, match="trace: 'azure'"):
        drawing.line_style("azure")


@pytest.mark.parametrize("id", figures())
def test_a_saved_figure_uses_each_colour_for_its_meaning(id: str, built_book: Path) -> None:
    """Nothing but ink, paper and the parts is drawn, and each part is in the words and the data."""
    folder = built_book / "figures"
    drawn = hexes((folder / f"{id}.svg").read_text(encoding="utf-8"))
    assert drawn <= PLAIN | set(COLOURS.values()), "a colour without a meaning"
    about = json.loads((folder / f"{id}.json").read_text(encoding="utf-8"))
    with (folder / f"{id}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    data = " ".join({*rows[0], *(cell for row in rows[1:] for cell in row if cell[:1].isalpha())})
    for name, colour in COLOURS.items():
        if colour in drawn:
            words = f"{about['title']} {about['alt']}"
            assert re.search(WORDS[name], words, re.IGNORECASE), f"no word says {name}"
            assert re.search(DATA[name], data, re.IGNORECASE), f"no column holds {name}"


@pytest.mark.parametrize("id", figures())
def test_the_dark_drawing_keeps_the_meanings(id: str, built_book: Path) -> None:
    light, dark = (
        hexes((built_book / "figures" / f"{id}{end}.svg").read_text(encoding="utf-8"))
        for end in ("", ".dark")
    )
    parts = set(COLOURS.values())
    assert light & parts == dark & parts
    assert dark - parts <= {*map(str.lower, style.INK["dark"]), style.ON_COLOUR}


@pytest.mark.parametrize("path", sorted(DRAWINGS.glob("*_figures.py")), ids=lambda path: path.name)
def test_drawings_name_a_meaning_and_no_colour(path: Path) -> None:
    """A colour is written in `style` alone; a meaning's is asked for by its name."""
    text = path.read_text(encoding="utf-8")
    assert not hexes(text)
    words = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword)]
    named = [w.value for w in words if w.arg in {"color", "facecolor", "edgecolor", "mfc"}]
    assert not [n.value for n in named if isinstance(n, ast.Constant) and n.value != "none"]


def test_the_explorer_has_the_same_colours() -> None:
    css = (DRAWINGS / "assets" / "explorer.css").read_text(encoding="utf-8")
    name_of = {"used": "used", "shared": "shared", "slack": "tail slack"}
    name_of |= {"reserved": "reserved", "metadata": "metadata"}
    for short, name in name_of.items():
        assert f"--kvx-{short}: {COLOURS[name]};" in css
        for rule in re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", css, flags=re.S)):
            if f"var(--kvx-{short})" in rule[1]:
                meaning = "spared" if short == "shared" and "spared" in rule[0] else short
                assert meaning in rule[0], f"{rule[0].strip()} wears the colour of {name}"
    others = {name: colour for name, colour in COLOURS.items() if name not in name_of.values()}
    assert not hexes(css) & set(others.values())


@pytest.mark.parametrize(
    "name", ["proofbook/pages/assets/book.css", "kvledger/report/assets/page.css"]
)
def test_pages_wear_no_colour_of_a_part(name: str) -> None:
    assert not hexes((ROOT / "src" / name).read_text("utf-8")) & set(COLOURS.values())


# ---------------------------------------------------------------- the palette itself
