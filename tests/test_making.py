"""Which functions made what a chapter shows: found by reading its cells."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from kvledger import LedgerError
from kvledger.book.catalogue import Catalogue, stored_catalogue
from kvledger.book.making import locate, makers

ROOT = Path(__file__).resolve().parents[1]

#: Shown as they were chosen, so nothing made them; by what they are.
PARAMETERS = {
    "a table of a chapter's parameters": r"tab-\w+-parameters",
    "lengths, prefixes and outputs of a small example": (
        r"(contiguous|paged|sharing)\.length_\w+|sharing\.prefix|growth\.small\.outputs"
    ),
    "a reservation or a page size that is looked at": (
        r"contiguous\.reserve|reservation\.azure_conv\.\w+_reserve|paged\.(small_page|default_size)"
        r"|index\.page_size|metadata\.in_use|decision\.in_use|sharing\.mooncake\.block_size"
    ),
    "a pool, a burst or a batch that is looked at": (
        r"growth\.small\.pool|sharing\.live\.pool|growth\.burst\.size|index\.burst_size"
        r"|(index|sharing\.mooncake)\.neighbours|decision\.held_together"
    ),
    "a cost that is charged": r"metadata\.flat\.cost|decision\.example\.bytes",
    "the name of a model or a trace": r"(index|metadata\.bytes|decision)\.model|decision\.trace",
}


@pytest.fixture(scope="module")
def book() -> Catalogue:
    return stored_catalogue(ROOT)


def test_everything_computed_is_made_by_something(book: Catalogue) -> None:
    bare = {e.id for e in book.entries.values() if e.kind != "cited" and not e.made_by}
    explained = {id for id in bare if any(re.fullmatch(p, id) for p in PARAMETERS.values())}
    assert bare == explained


@pytest.mark.parametrize("what", PARAMETERS)
def test_no_reason_is_out_of_date(book: Catalogue, what: str) -> None:
    found = [entry for id, entry in book.entries.items() if re.fullmatch(PARAMETERS[what], id)]
    assert any(not entry.made_by for entry in found)


def test_every_figure_is_drawn_by_the_book(book: Catalogue) -> None:
    for entry in book.entries.values():
        if entry.what == "figure":
            assert entry.made_by[0].startswith("kvledger.book."), entry.id


def test_no_maker_only_shows(book: Catalogue) -> None:
    shows = ("kvledger.book.showing.", "kvledger.report.keeping.", "kvledger.book.contracts.")
    for entry in book.entries.values():
        assert not [name for name in entry.made_by if name.startswith(shows)], entry.id


def test_makers_are_where_python_finds_them(book: Catalogue) -> None:
    """The same place as the running interpreter says, by import."""
    names = {name for entry in book.entries.values() for name in entry.made_by}
    assert len(names) > 80
    for name in names:
        found = locate(name)
        assert found is not None, name
        assert found.name == name
        module, _, last = name.rpartition(".")
        made = getattr(importlib.import_module(module), last)
        assert made.__module__ == module
        assert callable(made)
        made = inspect.unwrap(made)
        path = Path(inspect.getsourcefile(made) or "")
        assert path == ROOT / "src" / found.file
        lines, start = inspect.getsourcelines(made)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {n.lineno for n in tree.body if getattr(n, "name", None) == last}
        assert found.line in defined
        assert start <= found.line < start + len(lines)


@pytest.mark.parametrize(
    ("id", "made_by"),
    [
        (
            "fig-slack-share",
            ("kvledger.book.drawings.trace_lines", "kvledger.survey.tail_slack",
             "kvledger.traces.load_lengths", "kvledger.book.titles.slack_share"),
        ),
        ("paged.p4.allocated_slots", ("kvledger.paging.paged",)),
        ("metadata.c1.best_cost", ("kvledger.metadata.best_page_size",)),
        (
            "attention.state",
            ("kvledger.book.attention_report.state", "kvledger.attention.record.latest_record"),
        ),
        ("sharing.fork.copied", ("kvledger.allocator.pages.PagePool",)),
        (
            "growth.paper.tail_slack",
            ("kvledger.figure2.comparison.vllm_waste", "kvledger.figure2.setting.sharegpt"),
        ),
        (
            "tab-slack-share",
            ("kvledger.survey.worded", "kvledger.survey.tail_slack",
             "kvledger.traces.load_lengths"),
        ),
    ],
)  # fmt: skip
def test_makers_of_the_book(book: Catalogue, id: str, made_by: tuple[str, ...]) -> None:
    assert book.entries[id].made_by == made_by


# --- small notebooks ------------------------------------------------------------------

HEAD = (
    "import kvledger as kv\nfrom kvledger import survey as sv\nfrom kvledger.book import number\n"
)


def made(source: str, *ids: str, head: str = HEAD) -> list[tuple[str, ...]]:
    outputs = [{"metadata": {"scrapbook": {"name": id}}} for id in ids]
    found = makers(
        {
            "cells": [
                {"cell_type": "markdown", "id": "m", "source": "number("},
                {"cell_type": "code", "id": "h", "source": head.splitlines(keepends=True)},
                {"cell_type": "code", "id": "c", "source": source, "outputs": outputs},
            ]
        }
    )
    return [found["c", id] for id in ids]


PAGED, SHARED = ("kvledger.paging.paged",), ("kvledger.sharing.shared",)
RESERVED = ("kvledger.reservation.contiguous",)


@pytest.mark.parametrize(
    ("source", "made_by"),
    [
        ("number('a', kv.paged([5], 4).pages)", PAGED),
        ("x = kv.paged([5], 4)\ny = x.pages\nnumber('a', y)", PAGED),
        ("x = kv.shared([5], 4)\nx = kv.paged([5], 4)\nnumber('a', x)", PAGED),
        ("x, y = kv.shared([5], 4), kv.paged([5], 4)\nnumber('a', y)", PAGED),
        ("x, *y = kv.paged([5], 4)\nnumber('a', y)", PAGED),
        ("x = {}\nx['k'] = kv.paged([5], 4)\nnumber('a', x['k'])", PAGED),
        ("x = {}\nx |= {p: kv.paged([5], p) for p in (1, 2)}\nnumber('a', x[1])", PAGED),
        ("x = [p for p in kv.paged([5], 4)]\nnumber('a', p)", ()),
        ("number('a', y := kv.paged([5], 4))\nnumber('b', y)", PAGED),
        ("number('a', value=kv.paged([5], 4))", PAGED),
        ("number('a', 4, source=kv.paged([5], 4))", ()),
        ("f = kv.paged\nnumber('a', f([5], 4))", PAGED),
        ("from kvledger.paging import paged as p\nnumber('a', p([5], 4))", PAGED),
        ("import kvledger.paging\nnumber('a', kvledger.paging.paged([5], 4))", PAGED),
        ("import kvledger.paging as pg\nnumber('a', pg.paged([5], 4))", PAGED),
        ("for n in ('paged', 'shared'):\n    number('a', getattr(kv, n)([5], 4))", PAGED + SHARED),
        ("if kv.paged([5], 4):\n    x = kv.shared([5], 4)\nnumber('a', x)", SHARED),
        ("import pandas as pd\nnumber('a', pd.Series([5]).sum())", ()),
        ("number('a', len(kv.TRACE_NAMES))", ()),
        ("number('a', kv.gone(4))", ("kvledger.gone",)),
        ("number('a', sum(kv.paged([5], 4) + kv.shared([5], 4)))", PAGED + SHARED),
    ],
)
def test_names_are_followed(source: str, made_by: tuple[str, ...]) -> None:
    assert made(source, "a") == [made_by]


@pytest.mark.parametrize(
    "source",
    [
        "for n, x in [('a', kv.paged([5], 4)), ('b', kv.shared([5], 4))]:\n    number(f'{n}', x)",
        "y = [kv.paged([5], 4), kv.shared([5], 4)]\nx = kv.paged([5], 4)\nz = kv.shared([5], 4)\n"
        "for n, v in (('a', x), ('b', z)):\n    number('' + n, v)",
        "for n, f in zip(('a', 'b'), (kv.paged, kv.shared)):\n    number(n, f([5], 4))",
    ],
)
def test_a_loop_is_read_round_by_round(source: str) -> None:
    assert made(source, "a", "b") == [PAGED, SHARED]


def test_what_is_not_written_out_fits_all() -> None:
    source = "for n, x in kv.paged([5], 4).items():\n    number(f'a.{n}.slots', x)"
    assert made(source, "a.x.slots", "a.y.slots", "b.x.slots") == [PAGED, PAGED, ()]
    source = "x = kv.shared([5], 4)\nfor n, t in zip(('a', 'b'), x):\n    number(n, t)"
    assert made(source, "a", "b") == [SHARED, SHARED]


def test_a_cell_sees_what_earlier_ones_bound() -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": "h", "source": HEAD},
        {"cell_type": "code", "id": "a", "source": "x = kv.paged([5], 4)"},
        {
            "cell_type": "code",
            "id": "b",
            "source": "number('n', x)\nx = kv.shared([5], 4)",
            "outputs": [{"metadata": {"scrapbook": {"name": "n"}}}],
        },
    ]
    assert makers({"cells": cells}) == {("b", "n"): PAGED}


def test_no_python_is_refused() -> None:
    with pytest.raises(LedgerError, match=r"chapters/a, cell c, line 2: no Python"):
        makers(
            {"cells": [{"cell_type": "code", "id": "c", "source": "x = 1\nx ="}]}, page="chapters/a"
        )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("kvledger.paged", "kvledger.paging.paged"),
        ("kvledger.Paged", "kvledger.replaying.policies.Paged"),
        ("kvledger.book.figure", "kvledger.book.showing.figures.figure"),
        ("kvledger.report.keeping.table", "kvledger.book.showing.tables.table"),
        ("kvledger.allocator.PagePool", "kvledger.allocator.pages.PagePool"),
        ("kvledger.paging", None),
        ("kvledger.nothing", None),
        ("numpy.array", None),
        ("os.path.join", None),
    ],
)
def test_definitions_are_found_through_imports(name: str, found: str | None) -> None:
    place = locate(name)
    assert (place.name if place else None) == found
