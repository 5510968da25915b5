"""Slimmed drawings: the same pixels, the same colours, the same points, in fewer bytes."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import resvg_py
from fontTools.pens.recordingPen import RecordingPen
from fontTools.svgLib.path import parse_path
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kvledger.chapters import palette
from proofbook import style
from proofbook.pages.thumbnails import WIDTH_PX, palette_of, thumbnail
from proofbook.slimming import STEPS, slim_svg


def drawn() -> str:
    """A drawing with one of everything: steps, curves, markers, bars with hatches, words."""
    fig, (left, right) = style.canvas(3.0, ncols=2)
    rng = np.random.default_rng(7)
    left.step(np.arange(3000), rng.integers(0, 40, 3000), color=style.INK["light"].ink)
    left.fill_between(np.arange(3000), rng.random(3000) * 9, color=palette.PART["used"].colour)
    left.set_title("Steps: a 100%")
    right.plot([1, 2, 3], [0.123456, 2.3456789, 1.5], **palette.line_style("bwb_v2"))
    for at, (part, hatch) in enumerate(
        [("reserved", None), ("reserved", "...."), ("external", "")]
    ):
        look = palette.part_style(part) | ({"hatch": hatch} if hatch else {})
        right.bar(at + 4, 2.7, **look)
    right.bar(8, 0.02, **palette.part_style("tail slack"))
    stream = io.StringIO()
    with np.errstate(all="ignore"):
        fig.savefig(stream, format="svg", metadata={"Date": None})
    import matplotlib.pyplot as plt

    plt.close(fig)
    return stream.getvalue()


@pytest.fixture(scope="module")
def svg() -> str:
    return drawn()


def pixels(svg: str, zoom: float = 2.0) -> np.ndarray:
    png = resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, dpi=96.0, skip_system_fonts=True)
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def test_nothing_changes_that_shows(svg: str) -> None:
    slim = slim_svg(svg)
    assert len(slim) < 0.45 * len(svg)
    full, small = pixels(svg), pixels(slim)
    assert full.shape == small.shape
    apart = np.abs(full - small).max(axis=2)
    # At twice the size of a page: a hundredth of a point moves the shade of an edge, and no more.
    assert apart.mean() < 0.5
    assert (apart > 96).mean() < 1e-5
    # The measure can fail: a drawing moved by half a pixel is far off.
    moved = svg.replace('<g id="figure_1">', '<g id="figure_1" transform="translate(0.4 0.4)">')
    assert np.abs(full - pixels(moved)).max(axis=2).mean() > 3


def test_a_hatch_of_dots_stays_a_hatch_of_dots(svg: str) -> None:
    def hatch(text: str) -> str:
        found: list[str] = re.findall(r"<pattern.*?</pattern>", text, re.DOTALL)
        return max(found, key=len) if text == svg else next(p for p in found if "h0" in p)

    full, slim = hatch(svg), hatch(slim_svg(svg))
    assert slim.count("h0") == full.count("z\n")
    assert len(slim) < 0.1 * len(full)


def test_elements_ids_and_words_stay(svg: str) -> None:
    slim = slim_svg(svg)
    for found in (r"<(\w+)", r' id="([^"]*)"', r"<!--(.*?)-->", r'href="([^"]*)"', r"#[0-9a-f]{6}"):
        # A dot's fill and pen were one colour named twice.
        assert set(re.findall(found, svg)) == set(re.findall(found, slim))
    assert slim.count("<path") == svg.count("<path")
    assert slim.count("<use") == svg.count("<use")


def test_it_commutes_with_the_dark_drawing_and_settles(svg: str) -> None:
    slim = slim_svg(svg)
    assert slim_svg(style.to_dark(svg)) == style.to_dark(slim)
    assert slim_svg(slim) == slim


coordinate = st.floats(-2000, 2000, allow_nan=False).map(lambda x: round(x, 6))
point = st.tuples(coordinate, coordinate)
segment = st.one_of(
    st.tuples(st.just("L"), point),
    st.tuples(st.just("Q"), point, point),
    st.tuples(st.just("C"), point, point, point),
    st.tuples(st.just("z")),
)
subpath = st.tuples(point, st.lists(segment, min_size=1, max_size=8))


def written(subpaths: list[tuple[tuple[float, float], list[tuple[object, ...]]]]) -> str:
    text = ""
    for start, segments in subpaths:
        text += f"M {start[0]:f} {start[1]:f} \n"
        for name, *points in segments:
            numbers = " ".join(f"{x:f} {y:f}" for x, y in points)  # type: ignore[misc]
            text += f"{name} {numbers} \n" if points else f"{name}\n"
            if name == "z":
                break
    return text


def points(data: str) -> list[tuple[str, tuple[tuple[float, float], ...]]]:
    """Read a path with another reader than ours; straight runs along an axis are one line."""
    pen = RecordingPen()
    parse_path(data, pen)
    found: list[tuple[str, tuple[tuple[float, float], ...]]] = []
    for name, at in pen.value:
        places = tuple((float(x), float(y)) for x, y in at)
        found.append((name, places))
    return found


@given(st.lists(subpath, min_size=1, max_size=4))
def test_every_point_stays_within_half_a_step(
    subpaths: list[tuple[tuple[float, float], list[tuple[object, ...]]]],
) -> None:
    data = written(subpaths)
    slim = slim_svg(f'<path d="{data}"/>').removeprefix('<path d="').removesuffix('"/>')
    before, after = points(data), points(slim)
    tolerance = 0.5 / STEPS + 1e-6
    queue = list(before)
    for name, places in after:
        # Lines that go on along an axis were joined: their last point is the one that counts.
        while queue[0][0] != name or not all(
            abs(x - u) <= tolerance and abs(y - v) <= tolerance
            for (x, y), (u, v) in zip(queue[0][1], places, strict=True)
        ):
            skipped = queue.pop(0)
            assert skipped[0] == "lineTo", (data, slim)
        queue.pop(0)
    assert not queue, (data, slim)


@pytest.mark.parametrize("data", ["m 1.25 2 l 3 4", "M 1 2 A 3 3 0 0 1 4.123456 5", "", "M 1"])
def test_other_paths_are_left_alone(data: str) -> None:
    path = f'<path d="{data}" style="fill:#fff"/>'
    assert slim_svg(path) == path


# ---------------------------------------------------------------- thumbnails


def test_a_thumbnail_keeps_every_meaning(svg: str) -> None:
    png = thumbnail(svg)
    assert png == thumbnail(svg)
    assert len(png) < 20_000
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.mode == "P"
        assert picture.width == WIDTH_PX
        colours = set(picture.convert("RGB").get_flattened_data())
    assert colours <= set(palette_of(svg))
    slack = palette.PART["tail slack"].colour
    small = f'<rect x="40" y="40" width="3" height="3" fill="{slack}"/></svg>'
    with Image.open(io.BytesIO(thumbnail(svg.replace("</svg>", small)))) as picture:
        wanted = tuple(int(slack[i : i + 2], 16) for i in (1, 3, 5))
        # A palette found from the pixels loses a colour that covers so few of them.
        assert wanted in set(picture.convert("RGB").get_flattened_data())


def test_dark_thumbnails_are_dark(svg: str) -> None:
    with Image.open(io.BytesIO(thumbnail(style.to_dark(svg)))) as picture:
        paper = style.INK["dark"].paper
        assert picture.convert("RGB").getpixel((0, 0)) == tuple(
            int(paper[i : i + 2], 16) for i in (1, 3, 5)
        )
