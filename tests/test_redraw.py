"""The CSV of each figure draws that figure again: nothing that it shows is missing from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from redraw import difference, draw, drawing_of, figure_calls, read_csv

from proofbook import figure

ROOT = Path(__file__).resolve().parent.parent
FIGURES = {
    figure_id: notebook
    for notebook in sorted((ROOT / "chapters").glob("[!_]*.ipynb"))
    for figure_id, _, _ in figure_calls(notebook)
}


@pytest.mark.parametrize("figure_id", FIGURES)
def test_a_figure_is_drawn_again_from_its_csv(
    built_book: Path, figure_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = built_book / "figures"
    frame = read_csv(offered / f"{figure_id}.csv")
    monkeypatch.setenv("PROOFBOOK_FIGURES_DIR", str(tmp_path))
    made = draw(drawing_of(FIGURES[figure_id], figure_id), frame)
    figure(figure_id, made, data=frame, alt="Drawn again from the data that the book offers of it.")
    csvs = [(folder / f"{figure_id}.csv").read_bytes() for folder in (tmp_path, offered)]
    assert csvs[0] == csvs[1]
    svgs = [(folder / f"{figure_id}.svg").read_text("utf-8") for folder in (tmp_path, offered)]
    assert difference(*svgs) == ""


def test_every_figure_of_the_book_is_drawn_again(built_book: Path) -> None:
    offered = {path.stem for path in (built_book / "figures").glob("fig-*.csv")}
    assert offered <= set(FIGURES)
    assert len(offered) > 20


def test_data_that_lack_something_do_not_draw_the_figure(built_book: Path, tmp_path: Path) -> None:
    """One number changed, in any column that is drawn, and the drawing is another."""
    frame = read_csv(built_book / "figures" / "fig-summary.csv")
    drawing = drawing_of(FIGURES["fig-summary"], "fig-summary")
    svgs = []
    for name, rows in (("a", frame), ("b", frame.assign(used=frame["used"] * 1.05))):
        draw(drawing, rows).savefig(tmp_path / f"{name}.svg")
        svgs.append((tmp_path / f"{name}.svg").read_text("utf-8"))
    assert difference(svgs[0], svgs[0]) == ""
    assert difference(*svgs) != ""
