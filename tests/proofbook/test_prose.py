"""Each check fires on a notebook doctored for it, and is silent on a clean one."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import refused_input

from proofbook import prose
from proofbook.showing import RECORD

ALT = "Three rows of squares, one square a slot, full ones before the empty ones."


def markdown(id: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": id, "metadata": {}, "source": source}


def code(id: str, source: str, count: int, *outputs: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": id,
        "metadata": meta,
        "source": source,
        "execution_count": count,
        "outputs": list(outputs),
    }


def record(id: str, text: str) -> dict[str, Any]:
    meta = {"scrapbook": {"name": id, "mime_prefix": "application/papermill.record/"}}
    return {"output_type": "display_data", "data": {RECORD: text}, "metadata": meta}


def shown(**data: str) -> dict[str, Any]:
    named = {key.replace("_", "/"): value for key, value in data.items()}
    return {"output_type": "display_data", "data": named, "metadata": {}}


def clean() -> dict[str, Any]:
    """Build a small chapter with nothing to complain of."""
    cells = [
        markdown("title", "# Three requests\n\nThey hold {glue:text}`toy.slots` slots."),
        markdown("setup-words", "## The question\n\nSee {cite}`kwon2023` and `page_size=16`."),
        code("imports", "from proofbook import number, table, figure", 1),
        code(
            "toy-numbers",
            'number("toy.slots", stock.held)\nnumber("toy.slack", stock.free)',
            2,
            record("toy.slots", "40"),
            record("toy.slack", "9"),
        ),
        markdown("toy-words", "Slack is {glue:text}`toy.slack` slots: $p - 1$ at most, never two."),
        code(
            "toy-figure",
            f'figure("fig-toy", fig, data=frame, alt="{ALT}")',
            3,
            shown(image_png="AAAA", text_plain="fig-toy · data 0123abcd"),
            mystnb={"figure": {"caption": "Slack: {glue:text}`toy.slack`.", "name": "fig-toy"}},
        ),
        code(
            "toy-table",
            'table("tab-toy", frame, caption="Slots held by three requests.")',
            4,
            shown(text_html='<div class="kv-table" role="region" id="tab-toy">', text_plain="x"),
        ),
    ]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}


def write(folder: Path, notebook: dict[str, Any], name: str = "toy.ipynb") -> Path:
    path = folder / name
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def cell(notebook: dict[str, Any], id: str) -> dict[str, Any]:
    return next(c for c in notebook["cells"] if c["id"] == id)


def problems(path: Path) -> list[str]:
    return [str(p) for p in prose.check_file(path)]


def test_the_clean_chapter_is_silent(tmp_path: Path) -> None:
    notebook = clean()
    nbformat.validate(nbformat.from_dict(copy.deepcopy(notebook)))
    assert problems(write(tmp_path, notebook)) == []


# --- running text ---------------------------------------------------------------------
TYPED = [
    "It holds 40 slots.",
    "## Pages of 4",
    "- one\n- 2 slots",
    "**40** slots",
    "&#52;0 slots",
    "x\u00b2 slots",
    "\u0664 slots",
    "| a |\n|---|\n| 40 |",
    ":::{note}\nIt holds 40 slots.\n:::",
    ":::{note} It holds 40 slots\nYes.\n:::",
    "```{admonition} Title\n:class: tip\n:::{tip}\nNested: 40.\n:::\n```",
    "```{figure} a.png\n:name: fig-a\n\nIt holds 40 slots.\n```",
    "```{figure} a.png\n:alt: It holds 40 slots.\n\nWords.\n```",
    "```{code-block} python\n:caption: All 40 slots\nx = 1\n```",
    "```{list-table} Slots\n* - a\n  - 40\n```",
    "```{eval-rst}\n.. note:: x\n\nIt holds 40 slots.\n```",
    "```{raw} html\n<b>40</b>\n```",
    "<div>\n40\n</div>",
    "<b>40</b> slots",
    "[40 slots](#fig-a)",
    "[words](#fig-a '40 slots')",
    "![It holds 40 slots](a.png)",
    "{ref}`40 slots <fig-a>`",
    "{abbr}`KV (40 slots)`",
    "{sub}`40`",
    "`40` slots",
    "`38.25` slots",
    "term\n: 40 slots",
    "A note.[^a]\n\n[^a]: It holds 40 slots.",
    "{{ slots40 }}",
    ":slots: 40",
]
ALLOWED = [
    "Forty slots, two of them empty.",
    "`page_size=4`, `azure_conv_2023` and `0.1.0`",
    "```python\nx = 40\n```",
    "```{code-block} python\nx = 40\n```",
    "See {cite}`kwon2023`, {ref}`fig-4`, {numref}`fig-4` and {ref}`the figure <fig-4>`.",
    "[the page](https://example.org/2023/40)",
    "[arXiv 2309.06180](https://arxiv.org/abs/2309.06180)",
    "<https://example.org/40> and https://example.org/40",
    "![Words about slots](fig-40.png)",
    "<!-- 40 -->",
    "% 40",
    "(sec-40)=\n## A heading",
    "1. first\n2. second",
    "Words.[^1]\n\n[^1]: A note.",
    ":::{figure} fig-40.png\n:name: fig-40\n:width: 400px\nWords.\n:::",
    "```{bibliography}\n:filter: cited and year > 2000\n```",
    "```{toctree}\n:maxdepth: 2\na40\n```",
    '<span data-x="40">words</span>',
    "$2 L - 1$ and $\\lceil n / p \\rceil$",
    "$$\nc^* = \\frac{1}{2} (p - 1) \\label{eq:40}\n$$",
]
MATH = [
    "$n = 40$",
    "$c = 0.5$",
    "$$\nn = 524{,}288\n$$",
    "$$n = 40$$ (eq-a)",
    "```{math}\n:label: eq-a\nn = 40\n```",
    "\\begin{align}\nn &= 40\n\\end{align}",
    "{math}`n = 40`",
    "$n = {glue:text}`a`$",
    ":::{note}\n$n = 40$\n:::",
]
ROLES = [
    "{glue:text}`toy.slots:.2f`",
    "{glue:}`toy.slots`",
    "{glue}`toy.slots`",
    "{glue:any}`toy.slots`",
    "{eval}`toy`",
    "```{glue:figure} toy\n```",
    "```{glue} toy\n```",
]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "digit|typed as code") for text in TYPED),
        *((text, None) for text in ALLOWED),
        *((text, "inside math") for text in MATH),
        *((text, "accepted: {glue:text}`id`") for text in ROLES),
    ],
)
def test_a_page(tmp_path: Path, text: str, says: str | None) -> None:
    path = tmp_path / "page.md"
    path.write_text(text + "\n", encoding="utf-8")
    found = [problem.text for problem in prose.check_file(path)]
    assert bool(found) == (says is not None), found
    assert all(any(words in text for words in str(says).split("|")) for text in found)


# --- notebooks ------------------------------------------------------------------------
Doctor = Callable[[dict[str, Any]], object]


def source(id: str, text: str) -> Doctor:
    return lambda nb: cell(nb, id).update(source=text)


def outputs(id: str, *stored: dict[str, Any]) -> Doctor:
    return lambda nb: cell(nb, id).update(outputs=list(stored))


def figure_meta(**changed: str) -> Doctor:
    return lambda nb: cell(nb, "toy-figure")["metadata"]["mystnb"]["figure"].update(changed)


def trim(nb: dict[str, Any]) -> None:
    for c in nb["cells"]:
        if c["cell_type"] == "code":
            c.update(outputs=[], execution_count=None)


def rename(nb: dict[str, Any]) -> None:
    stored = cell(nb, "toy-numbers")["outputs"]
    stored[0]["metadata"]["scrapbook"]["name"] = "toy.slack"
    stored[1]["metadata"]["scrapbook"]["name"] = "toy.slots"


def alt(text: str) -> Doctor:
    return source("toy-figure", f'figure("fig-toy", fig, data=frame, alt={text})')


STDERR = {"output_type": "stream", "name": "stderr", "text": "Warning"}
ERROR = {"output_type": "error", "ename": "E", "evalue": "no", "traceback": []}
IMAGE = shown(image_png="AAAA", text_plain="<Figure size 720x320>")

DOCTORED: list[tuple[Doctor, str]] = [
    (source("toy-words", "Slack is 9, {glue:text}`toy.slack`."), "digit outside"),
    (
        figure_meta(caption="Of the 40 slots, {glue:text}`toy.slack` are slack."),
        "toy-figure, caption: digit outside",
    ),
    (
        source("toy-words", "Slack is {glue:text}`toy.slack`, {glue:text}`toy.none`."),
        "'toy.none' is glued by no cell",
    ),
    (
        figure_meta(caption="Words {glue:text}`toy.none`."),
        "caption: 'toy.none' is glued by no cell",
    ),
    (source("title", "# Three requests"), "'toy.slots' is glued, and"),
    (trim, r"no outputs at all"),
    (trim, "execution counts [None, None, None, None]"),
    (lambda nb: cell(nb, "toy-numbers").update(execution_count=7), "execution counts [1, 7, 3, 4]"),
    (outputs("toy-numbers"), "it shows something, and no output"),
    (outputs("toy-table", shown(text_plain="x")), "table 'tab-toy' is not"),
    (
        outputs("toy-figure", shown(image_png="A", text_plain="fig-old · data 0123abcd")),
        "figure 'fig-toy' is not stored",
    ),
    (outputs("toy-numbers", record("toy.slots", "40")), "but not stored"),
    (rename, "the code glues ['toy.slots', 'toy.slack']"),
    (outputs("imports", STDERR), "stderr is stored: 'Warning'"),
    (outputs("imports", ERROR), "an error is stored: E: no"),
    (outputs("imports", IMAGE), "an image is stored that figure() did not"),
    (source("imports", "%matplotlib inline"), "not plain Python"),
    (
        source("toy-numbers", 'number("toy.slots", 40)\nnumber("toy.slack", stock.free)'),
        "given a literal",
    ),
    (
        source("toy-table", 'table("tab-toy", frame, caption="All 40 slots of three requests.")'),
        "number '40' typed in the caption",
    ),
    (alt(f'f"{ALT[:-1]} by 40 of {{n}}."'), "number '40' typed in the alt"),
    (
        lambda nb: cell(nb, "toy-numbers")["metadata"].update(tags=["nbval-ignore-output"]),
        "switches the comparison",
    ),
    (source("imports", "# NBVAL_IGNORE_OUTPUT\nimport proofbook"), "switches the comparison"),
    (
        lambda nb: cell(nb, "toy-figure").update(metadata={}),
        "'fig-toy' has no mystnb.figure caption",
    ),
    (lambda nb: cell(nb, "toy-figure").update(metadata={}), "'fig-toy' is named None"),
    (figure_meta(name="fig-other"), "'fig-toy' is named 'fig-other'"),
    (source("toy-figure", f'figure(name, fig, data=frame, alt="{ALT}")'), "not a literal"),
    (source("imports", " "), "an empty code cell"),
]


@pytest.mark.parametrize(("doctor", "expected"), DOCTORED, ids=[says for _, says in DOCTORED])
def test_a_doctored_notebook(tmp_path: Path, doctor: Doctor, expected: str) -> None:
    notebook = clean()
    doctor(notebook)
    found = problems(write(tmp_path, notebook))
    assert any(expected in p for p in found), found


@pytest.mark.parametrize(
    ("id", "text"),
    [
        # Ids glued in a loop are known by their outputs; a parameter is no typed number.
        ("toy-numbers", "for id, value in found.items():\n    number(id, value)"),
        ("imports", "page_size = 16\nlengths = [5, 9]\nlabel = name + ' trace'\nboth = a & b"),
    ],
)
def test_a_cell_that_is_clean(tmp_path: Path, id: str, text: str) -> None:
    notebook = clean()
    source(id, text)(notebook)
    assert problems(write(tmp_path, notebook)) == []


# --- the whole book -------------------------------------------------------------------
def test_every_claim_is_glued(smallbook: Path) -> None:
    claims = ["stock.sold", "stock.cost", "paper.gain"]

    def missing(ids: list[str]) -> list[str]:
        words = markdown("words", " ".join(f"{{glue:text}}`{id}`" for id in ids))
        cells = [code("claims", "report()", 1, *(record(id, "x") for id in ids)), words]
        return [str(p) for p in prose.check_book([write(smallbook, {**clean(), "cells": cells})])]

    assert missing(claims) == []
    for id in claims:
        (found,) = missing([other for other in claims if other != id])
        assert f"{id!r} is glued nowhere in the book" in found


@pytest.mark.usefixtures("smallbook")
def test_one_id_says_one_thing_in_the_whole_book(tmp_path: Path) -> None:
    notebook = clean()
    first = write(tmp_path, notebook, "a.ipynb")
    cell(notebook, "toy-numbers")["outputs"][0]["data"][RECORD] = "41"
    second = write(tmp_path, notebook, "b.ipynb")
    found = [p.text for p in prose.check_book([first, second])]
    assert any("'toy.slots' is '41' here and '40' in a.ipynb" in text for text in found)
    assert any("'fig-toy' is made in a.ipynb" in text for text in found)


@pytest.mark.parametrize("name", ["a.txt", "broken.ipynb", "absent.md"])
def test_files_that_are_no_chapters(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name != "absent.md":
        path.write_text("{")
    refused_input(rf"{re.escape(name)}.*accepted", prose.check_file, path)
