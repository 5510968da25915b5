"""Each check fires on a notebook doctored for it, and is silent on a clean one."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from proofbook import prose
from proofbook.showing import RECORD
from proofbook.showing.numbers import read_claims

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(
    path for path in (ROOT / "chapters").glob("*") if path.suffix in {".ipynb", ".md"}
)
PAGES = [path for path in CHAPTERS if not path.name.startswith("_")]
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
        code("imports", "import kvledger as kv\nfrom proofbook import number, table, figure", 1),
        code(
            "toy-numbers",
            'number("toy.slots", ledger.allocated_slots)\nnumber("toy.slack", ledger.slack)',
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
            mystnb={
                "figure": {
                    "caption": "Of the slots held, {glue:text}`toy.slack` are slack.",
                    "name": "fig-toy",
                }
            },
        ),
        code(
            "toy-table",
            'table("tab-toy", frame, caption="Slots held by three requests.")',
            4,
            shown(
                text_html='<div class="kv-table" role="region" tabindex="0" aria-label="x" '
                'id="tab-toy" data-kind="computed"></div>',
                text_plain="x",
            ),
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


def page(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "page.md"
    path.write_text(text + "\n", encoding="utf-8")
    return [p.text for p in prose.check_prose(prose.read_chapter(path))]


@pytest.mark.parametrize("text", TYPED)
def test_a_digit_in_prose(tmp_path: Path, text: str) -> None:
    found = page(tmp_path, text)
    assert found
    assert all("digit" in p or "typed as code" in p for p in found)


@pytest.mark.parametrize("text", ALLOWED)
def test_digits_that_are_no_numbers(tmp_path: Path, text: str) -> None:
    assert page(tmp_path, text) == []


@pytest.mark.parametrize("text", MATH)
def test_a_result_in_math(tmp_path: Path, text: str) -> None:
    assert any("inside math" in p for p in page(tmp_path, text))


@pytest.mark.parametrize("text", ROLES)
def test_other_number_roles(tmp_path: Path, text: str) -> None:
    assert any("accepted: {glue:text}`id`" in p for p in page(tmp_path, text))


def test_the_same_markdown_as_the_book() -> None:
    """A digit is read as the book reads it: the same extensions, no more and no fewer."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert set(config["parse"]["myst_enable_extensions"]) == prose.EXTENSIONS


# --- notebooks ------------------------------------------------------------------------

Doctor = Callable[[dict[str, Any]], object]


def source(id: str, text: str) -> Doctor:
    return lambda nb: cell(nb, id).update(source=text)


def outputs(id: str, *stored: dict[str, Any]) -> Doctor:
    return lambda nb: cell(nb, id).update(outputs=list(stored))


def figure_meta(**changed: str) -> Doctor:
    return lambda nb: cell(nb, "toy-figure")["metadata"]["mystnb"]["figure"].update(changed)


def append(id: str, *stored: dict[str, Any]) -> Doctor:
    return lambda nb: cell(nb, id)["outputs"].extend(stored)


def trim(nb: dict[str, Any]) -> None:
    for c in nb["cells"]:
        if c["cell_type"] == "code":
            c.update(outputs=[], execution_count=None)


def trim_outputs(nb: dict[str, Any]) -> None:
    for c in nb["cells"]:
        if c["cell_type"] == "code":
            c.update(outputs=[])


def rename(nb: dict[str, Any]) -> None:
    stored = cell(nb, "toy-numbers")["outputs"]
    stored[0]["metadata"]["scrapbook"]["name"] = "toy.slack"
    stored[1]["metadata"]["scrapbook"]["name"] = "toy.slots"


def alt(text: str) -> Doctor:
    return source("toy-figure", f'figure("fig-toy", fig, data=frame, alt={text})')


STDERR = {"output_type": "stream", "name": "stderr", "text": "Warning"}
ERROR = {"output_type": "error", "ename": "E", "evalue": "no", "traceback": []}
IMAGE = shown(image_png="AAAA", text_plain="<Figure size 720x320>")
LONG = "\n".join(["value = kv.paged(", *["    1,"] * 40, ")"])

DOCTORED: list[tuple[str, Doctor, str]] = [
    ("digit in prose", source("toy-words", "Slack is 9, {glue:text}`toy.slack`."), "digit outside"),
    (
        "digit in a caption",
        figure_meta(caption="Of the 40 slots, {glue:text}`toy.slack` are slack."),
        "toy-figure, caption: digit outside",
    ),
    (
        "id nobody glues",
        source("toy-words", "Slack is {glue:text}`toy.slack`, {glue:text}`toy.none`."),
        "'toy.none' is glued by no cell",
    ),
    (
        "id nobody glues, in a caption",
        figure_meta(caption="Words {glue:text}`toy.none`."),
        "caption: 'toy.none' is glued by no cell",
    ),
    ("glued id nothing uses", source("title", "# Three requests"), "'toy.slots' is glued, and"),
    (
        "trimmed",
        trim,
        r"no outputs at all",
    ),
    ("trimmed outputs only", trim_outputs, "no outputs at all"),
    ("trimmed counts", trim, "execution counts [None, None, None, None]"),
    (
        "counts out of order",
        lambda nb: cell(nb, "toy-numbers").update(execution_count=7),
        "execution counts [1, 7, 3, 4]",
    ),
    ("cell without output", outputs("toy-numbers"), "it shows something, and no output"),
    ("table without output", outputs("toy-table", shown(text_plain="x")), "table 'tab-toy' is not"),
    (
        "figure of another name",
        outputs("toy-figure", shown(image_png="A", text_plain="fig-old · data 0123abcd")),
        "figure 'fig-toy' is not stored",
    ),
    ("half the records", outputs("toy-numbers", record("toy.slots", "40")), "but not stored"),
    ("ids swapped", rename, "the code glues ['toy.slots', 'toy.slack']"),
    ("stderr", append("imports", STDERR), "stderr is stored: 'Warning'"),
    ("error", append("imports", ERROR), "an error is stored: E: no"),
    ("stray image", append("imports", IMAGE), "an image is stored that figure() did not"),
    ("def", source("imports", "def f():\n    return None"), "line 1: 'f' is defined here"),
    ("async def", source("imports", "async def f():\n    return None"), "'f' is defined here"),
    ("class", source("imports", "x = None\nclass C:\n    pass"), "line 2: 'C' is defined here"),
    ("lambda", source("imports", "f = sorted(x, key=lambda v: v.n)"), "a lambda"),
    ("magic", source("imports", "%matplotlib inline"), "not plain Python"),
    (
        "arithmetic",
        source("imports", "x = ledger.pages * page_size"),
        "warning: line 1: arithmetic",
    ),
    (
        "typed number",
        source("toy-numbers", 'number("toy.slots", 40)\nnumber("toy.slack", ledger.slack)'),
        "given a literal",
    ),
    (
        "number typed in a table's caption",
        source("toy-table", 'table("tab-toy", frame, caption="All 40 slots of three requests.")'),
        "number '40' typed in the caption",
    ),
    (
        "number typed in an alt text",
        alt(f'f"{ALT[:-1]} by 40 of {{n}}."'),
        "number '40' typed in the alt",
    ),
    (
        "comparison switched off by tag",
        lambda nb: cell(nb, "toy-numbers")["metadata"].update(tags=["nbval-ignore-output"]),
        "switches the comparison",
    ),
    (
        "comparison switched off by comment",
        source("imports", "# NBVAL_IGNORE_OUTPUT\nimport kvledger"),
        "switches the comparison",
    ),
    (
        "no caption",
        lambda nb: cell(nb, "toy-figure").update(metadata={}),
        "'fig-toy' has no mystnb.figure caption",
    ),
    (
        "no name",
        lambda nb: cell(nb, "toy-figure").update(metadata={}),
        "'fig-toy' has no mystnb.figure name",
    ),
    ("caption no sentence", figure_meta(caption="Slack"), "is not a sentence"),
    ("other name", figure_meta(name="fig-other"), "'fig-toy' is named 'fig-other'"),
    ("no alt", source("toy-figure", 'figure("fig-toy", fig, data=frame)'), "has no alt text"),
    ("short alt", alt('"A chart."'), "is not a sentence: 'A chart.'"),
    ("alt without full stop", alt(f'"{ALT[:-1]}"'), "is not a sentence"),
    (
        "figure metadata without figure",
        lambda nb: cell(nb, "imports").update(
            metadata={"mystnb": {"figure": {"caption": "Words of it.", "name": "fig-a"}}}
        ),
        "calls no figure()",
    ),
    (
        "two figures in a cell",
        source("toy-figure", f'figure("fig-toy", f, d, alt="{ALT}")\n' * 2),
        "more than one figure",
    ),
    (
        "computed figure id",
        source("toy-figure", f'figure(name, fig, data=frame, alt="{ALT}")'),
        "not a literal",
    ),
    ("no id", lambda nb: cell(nb, "imports").pop("id"), "no cell id"),
    ("random id", lambda nb: cell(nb, "imports").update(id="3fa9c21b"), "not a readable name"),
    ("soup id", lambda nb: cell(nb, "imports").update(id="q7xk2bzt"), "not a readable name"),
    ("id twice", lambda nb: cell(nb, "imports").update(id="toy-table"), "stands twice"),
    ("old format", lambda nb: nb.update(nbformat_minor=4), "nbformat below 4.5"),
    ("long cell", source("imports", LONG), "42 lines of code; accepted: 40"),
    (
        "long median",
        lambda nb: [
            c.update(source=c["source"] + "\na\nb\nc\nd")
            for c in nb["cells"]
            if c["cell_type"] == "code"
        ],
        "a median of 5.5 lines a cell",
    ),
    (
        "many cells",
        lambda nb: nb["cells"].extend(code(f"extra-{n}", "value = kv", n) for n in range(5, 25)),
        "warning: 24 code cells",
    ),
    ("empty cell", source("imports", " "), "an empty code cell"),
]


@pytest.mark.parametrize(
    ("doctor", "expected"), [d[1:] for d in DOCTORED], ids=[d[0] for d in DOCTORED]
)
def test_a_doctored_notebook(tmp_path: Path, doctor: Doctor, expected: str) -> None:
    notebook = clean()
    doctor(notebook)
    found = problems(write(tmp_path, notebook))
    assert any(expected in p for p in found), found


@pytest.mark.parametrize(
    "id",
    [
        "toy-slots",
        "fig-tail-slack",
        "c0-envelope",
        "azure-code-2023-slack",
        "p4-numbers",
        "imports",
    ],
)
def test_readable_ids(tmp_path: Path, id: str) -> None:
    notebook = clean()
    cell(notebook, "imports")["id"] = id
    assert problems(write(tmp_path, notebook)) == []


def test_ids_glued_in_a_loop_are_known_by_their_outputs(tmp_path: Path) -> None:
    notebook = clean()
    source("toy-numbers", "for id, value in found.items():\n    number(id, value)")(notebook)
    assert problems(write(tmp_path, notebook)) == []


def test_a_parameter_is_no_typed_number(tmp_path: Path) -> None:
    notebook = clean()
    source(
        "imports", "page_size = 16\nlengths = [5, 9, 17]\nlabel = name + ' trace'\nboth = a & b"
    )(notebook)
    assert problems(write(tmp_path, notebook)) == []


# --- anatomy --------------------------------------------------------------------------


def template(folder: Path) -> None:
    text = "# Title\n\n## The question\n\n## The rule"
    notebook = {**clean(), "cells": [markdown("headings", text)]}
    write(folder, notebook, "_template.ipynb")


@pytest.mark.parametrize(
    ("headings", "count"),
    [
        ("## The question\n\n### Below\n\n## The rule", 0),
        ("## The rule\n\n## The question", 1),
        ("## The question", 1),
        ("## The question\n\n## The rule\n\n## More", 1),
    ],
)
def test_anatomy(tmp_path: Path, headings: str, count: int) -> None:
    template(tmp_path)
    notebook = {**clean(), "cells": [markdown("words", headings)]}
    chapter = prose.read_chapter(write(tmp_path, notebook, "page_tail_slack.ipynb"))
    assert len(prose.check_anatomy(chapter)) == count


def test_anatomy_is_for_accounting_chapters(tmp_path: Path) -> None:
    chapter = prose.read_chapter(write(tmp_path, clean(), "index.ipynb"))
    assert prose.check_anatomy(chapter) == []


# --- the whole book -------------------------------------------------------------------


def book_of_claims(folder: Path, left_out: str | None = None) -> Path:
    ids = [id for id in read_claims() if id != left_out]
    notebook = clean()
    notebook["cells"] = [
        code("claims", "report(claims)", 1, *(record(id, "x") for id in ids)),
        markdown("words", " ".join(f"{{glue:text}}`{id}`" for id in ids)),
    ]
    return write(folder, notebook)


def test_every_claim_is_glued(tmp_path: Path) -> None:
    assert prose.check_book([book_of_claims(tmp_path)]) == []


@pytest.mark.parametrize("id", list(read_claims()))
def test_a_claim_missing_from_the_book(tmp_path: Path, id: str) -> None:
    found = [str(p) for p in prose.check_book([book_of_claims(tmp_path, id)])]
    assert len(found) == 1
    assert f"{id!r} is glued nowhere" in found[0]


def test_one_id_says_one_thing_in_the_whole_book(tmp_path: Path) -> None:
    notebook = clean()
    first = write(tmp_path, notebook, "a.ipynb")
    cell(notebook, "toy-numbers")["outputs"][0]["data"][RECORD] = "41"
    second = write(tmp_path, notebook, "b.ipynb")
    found = [p.text for p in prose.check_book([first, second])]
    assert any("'toy.slots' is '41' here and '40' in a.ipynb" in text for text in found)
    assert any("'fig-toy' is made in a.ipynb" in text for text in found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path, clean())
    assert prose.main(["--partial", str(good)]) == 0
    assert "0 problems" in capsys.readouterr().out
    assert prose.main([str(good)]) == 1
    assert "glued nowhere" in capsys.readouterr().out
    (tmp_path / "page.md").write_text("Forty is 40.\n")
    assert prose.main(["--partial", str(good), str(tmp_path / "page.md")]) == 1
    assert "page.md: page: digit outside a role" in capsys.readouterr().out
    assert prose.main(["--partial", str(tmp_path / "none.md")]) == 2
    assert "none.md" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.txt", "broken.ipynb", "old.ipynb"])
def test_files_that_are_no_chapters(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('{"nbformat": 3, "worksheets": []}' if name == "old.ipynb" else "{")
    with pytest.raises(prose.InputError, match=name.replace(".", r"\.")):
        prose.check_file(path)


def test_contracts_need_no_sphinx() -> None:
    command = "import sys, proofbook; sys.exit('sphinx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


# --- this book ------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=[p.name for p in PAGES])
def test_chapter(path: Path) -> None:
    assert [str(p) for p in prose.check_file(path) if p.fatal] == []


def test_the_book() -> None:
    assert [str(p) for p in prose.check_book(PAGES) if p.fatal] == []
