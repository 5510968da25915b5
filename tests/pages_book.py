"""A small book whose pages have one of everything that a reader can point at.

Two chapters with numbers of every kind, a figure, a table, a glossary, a list of numbers and a
list of functions; ``test_pages.py`` reads its HTML, ``test_pages_browser.py`` uses it.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from conftest import Book, make_fixture_book

from proofbook.build.kernels import KERNELSPEC

TOC = """format: jb-book
root: chapters/start
parts:
  - caption: Chapters
    numbered: true
    chapters:
      - file: chapters/slots
      - file: chapters/numbers
      - file: chapters/words
      - file: chapters/api
"""
SETUP = """import pandas as pd
from fixture_formula import allocated

from proofbook import figure, number, style, table

lengths = [5, 9, 17]"""
START = [
    (
        "md",
        "title",
        "# Start\n\nThe answer is {glue:text}`fixture.answer`, "
        "a source says {glue:text}`fixture.cited`, a run took {glue:text}`fixture.measured`, and a "
        "share is {glue:text}`fixture.share`. A {term}`page` has a {term}`page size`. Here it is "
        "again: {glue:text}`fixture.answer`. Another page says "
        "{glue:text}`slots.ipynb::fixture.allocated`.",
    ),
    ("code", "setup", SETUP),
    (
        "code",
        "answer",
        'number("fixture.answer", allocated([3], page=4), unit="slots")\n'
        'number("fixture.cited", 5, unit="", kind="cited", source="Smith 2020, section 2")\n'
        'number("fixture.measured", 7, unit="ms", kind="measured", source="data/run.json")\n'
        'number("fixture.share", allocated([3], page=4) / 9, ".1%")',
    ),
    ("code", "unseen", 'number("fixture.unseen", 3, unit="")'),
]
SLOTS = [
    ("md", "title", "# Slots\n\nThree requests hold {glue:text}`fixture.allocated` slots."),
    ("code", "setup", SETUP),
    ("code", "number", 'number("fixture.allocated", allocated(lengths, page=4), unit="slots")'),
    (
        "code",
        "table",
        'frame = pd.DataFrame({"page size": [1, 2, 4, 8]})\n'
        'frame["allocated slots"] = [allocated(lengths, page=p) for p in frame["page size"]]\n'
        'table("tab-fixture", frame, caption="Larger pages hold more slots.")',
    ),
    (
        "code",
        "figure",
        "fig, ax = style.canvas(2.6)\n"
        'ax.plot(frame["page size"], frame["allocated slots"], color=style.INK["light"].ink)\n'
        'ax.set_title("Larger pages hold more slots")\n'
        'figure("fig-fixture", fig, data=frame, alt="A line rises from one to eight slots a page: '
        'allocated slots grow with the page size.")',
    ),
]
WORDS = r"""# Words

```{glossary}
page
  A run of slots, allocated whole: $n \le p$ of them are *used* & `held`.

page size
  The slots of a {term}`page`, in all {glue:text}`slots.ipynb::fixture.allocated`.
```

{cite}`smith2020` is in the list.

```{bibliography}
```
"""
API = """# Functions

```{py:function} fixture_formula.allocated(lengths, page)
The slots of whole pages.
```
"""


def _notebook(cells: list[tuple[str, str, str]]) -> str:
    caption = "At four slots a page they hold {glue:text}`fixture.allocated`."
    made = nbformat.v4.new_notebook()
    for kind, id, source in cells:
        new = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        made["cells"].append(new(source, id=id))
        if id == "figure":
            shown = {"figure": {"caption": caption, "name": "fig-fixture"}}
            made["cells"][-1]["metadata"]["mystnb"] = shown
    made["metadata"]["kernelspec"] = KERNELSPEC
    return str(nbformat.writes(made))


def make_pages_book(target: Path) -> Book:
    """Lay the book out."""
    book = make_fixture_book(target)
    chapters = target / "chapters"
    for path in chapters.iterdir():
        if path.name != "references.bib":
            path.unlink()
    (chapters / "start.ipynb").write_text(_notebook(START), encoding="utf-8")
    (chapters / "slots.ipynb").write_text(_notebook(SLOTS), encoding="utf-8")
    ids = ["answer", "cited", "measured", "share", "unseen", "allocated"]
    rows = "\n\n".join(f'<p id="row-fixture.{id}">fixture.{id}</p>' for id in ids)
    (chapters / "numbers.md").write_text(f"# Numbers\n\n{rows}\n", encoding="utf-8")
    (chapters / "words.md").write_text(WORDS, encoding="utf-8")
    (chapters / "api.md").write_text(API, encoding="utf-8")
    (target / "_toc.yml").write_text(TOC, encoding="utf-8")
    return book
