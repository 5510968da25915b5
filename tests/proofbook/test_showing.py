"""Numbers, tables, figures and claims: what they emit, what they save, what they refuse."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import refused_input
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import proofbook
from proofbook.errors import InputError
from proofbook.showing import MARK, RECORD, tables_folder
from proofbook.showing.numbers import quantity
from proofbook.stamps import read_stamp

Output = tuple[dict[str, Any], dict[str, Any]]
pytestmark = pytest.mark.usefixtures("outputs")


# --- the format language --------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "fmt", "text"),
    [
        (40, None, "40"),
        (9999, None, "9999"),
        (10000, None, "10,000"),
        (-12345, None, "\u221212,345"),
        (np.int64(40), None, "40"),
        (Fraction(153, 4), None, "38.25"),
        (Fraction(1, 16), None, "0.0625"),
        (Decimal("38.25"), None, "38.25"),
        ("Azure code", None, "Azure code"),
        (Fraction(3, 14), "fraction", "3/14"),
        (Fraction(-3, 14), "fraction", "\u22123/14"),
        (2, "fraction", "2"),
        (1234567, ",d", "1,234,567"),
        (2.0, "d", "2"),
        (0.366, ".1%", "36.6%"),
        (5, "+d", "+5"),
        (0, "+d", "0"),
        (-5, "+d", "\u22125"),
        (-0.001, ".1f", "0.0"),
        (1234.5, ",.1f", "1,234.5"),
        (0.00012345, ".2g", "0.00012"),
        (123456, ",.2g", "120,000"),
        (999.6, ".3g", "1000"),
        (57344, "bytes", "56\u00a0KiB"),
        (1000, "bytes", "1000\u00a0B".replace("1000", "1,000")),
        (69524783104, "bytes", "64.75\u00a0GiB"),
    ],
)
def test_format(value: object, fmt: str | None, text: str) -> None:
    assert proofbook.format_value(value, fmt) == text


@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.integers(0, 6))
def test_decimals_are_those_of_python(value: float, digits: int) -> None:
    expected = f"{value:.{digits}f}"
    if float(expected) == 0:
        expected = expected.lstrip("-")  # a zero has no sign on a page
    assert proofbook.format_value(value, f".{digits}f") == expected.replace("-", "\u2212")


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**12), st.integers(1, 8))
def test_significant_digits(value: Fraction, digits: int) -> None:
    shown = Fraction(proofbook.format_value(value, f".{digits}g"))
    # Half of the last digit shown is all that rounding may take.
    first = math.floor(math.log10(shown))
    assert abs(shown - value) <= Fraction(1, 2) * Fraction(10) ** (first - digits + 1)


@pytest.mark.parametrize(
    ("value", "fmt", "says"),
    [
        (math.nan, ".1f", "finite"),
        (math.inf, ".1f", "finite"),
        (0.5, None, "needs a format"),
        (Fraction(3, 14), None, "needs a format"),
        (True, None, "truth value"),
        (None, None, "NoneType"),
        (1j, None, "complex"),
        (2.5, "d", "whole number"),
        (1, "x", "format 'x'"),
        (1, "f", "how many digits"),
        (1, ".0g", "how many digits"),
        (1, ".2e", "format '.2e'"),
        (2.5, "bytes", "whole number of bytes"),
        ("text", ".1f", "for the text"),
        (" ", None, "not blank"),
        ("a\nb", None, "one line"),
    ],
)
def test_format_refuses(value: object, fmt: str | None, says: str) -> None:
    said = refused_input(says, proofbook.format_value, value, fmt, name="paged.slack")
    assert "paged.slack" in said


# --- numbers --------------------------------------------------------------------------
def test_number_emits_one_record(outputs: list[Output]) -> None:
    proofbook.number("stock.parts", 40)
    about = {"kind": "computed", "source": None, "value": "40", "unit": "parts"}
    scrapbook = {"name": "stock.parts", "mime_prefix": "application/papermill.record/"}
    assert outputs == [({RECORD: "40"}, {"scrapbook": scrapbook, MARK: about})]
    proofbook.number("toy.seconds", 1.25, ".2f", unit="s", kind="measured", source="bench.json")
    about = {"kind": "measured", "source": "bench.json", "value": "1.25", "unit": "s"}
    assert outputs[1][1][MARK] == about


def test_one_id_says_one_thing(outputs: list[Output]) -> None:
    proofbook.number("stock.parts", 40)
    proofbook.number("stock.parts", 40)
    with pytest.raises(InputError, match=r"stock\.parts: shown before as '40', now as '41'"):
        proofbook.number("stock.parts", 41)
    assert len(outputs) == 2


@pytest.mark.parametrize(
    ("id", "value", "fmt", "unit", "says"),
    [
        ("a.free_parts", 38, None, None, ("38", "parts")),
        ("parts", 31, None, None, ("31", "parts")),
        ("a.mean_parts", Fraction(153, 4), None, None, ("153/4", "parts")),
        ("a.best_size", 0.1 + 0.2, ".2f", None, ("0.3", "parts")),
        ("a.share", Fraction(183, 500), ".1%", None, ("183/5", "%")),
        ("a.share", 0.366, ".1%", None, ("36.6", "%")),
        ("a.memory", 57344, "bytes", None, ("57344", "bytes")),
        ("a.ratio", 2.5, ".1f", "", ("2.5", "")),
        ("a.held_parts", 12, None, "parts a week", ("12", "parts a week")),
        ("a.name", "The other shop", None, None, ("The other shop", "text")),
        ("fig2.full", Fraction("68.5"), ".1f", None, ("137/2", "% of the room")),
        ("stock.cost", 38.25, ".2f", None, ("38.25", "coins")),
    ],
)
def test_value_and_unit(
    outputs: list[Output],
    id: str,
    value: Any,
    fmt: str | None,
    unit: str | None,
    says: tuple[str, str],
) -> None:
    proofbook.number(id, value, fmt, unit=unit)
    about = outputs[0][1][MARK]
    assert (about["value"], about["unit"]) == says


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(({"id": id}, "number id") for id in ("", "A.b", "a:b", "a b", "a..b", ".a", "4a", "a-b")),
        *(({"id": id}, "number id") for id in (4, None)),
        ({"kind": "guessed"}, "computed, cited, measured"),
        ({"kind": "cited"}, "needs a source"),
        ({"kind": "measured", "source": " "}, "needs a source"),
        ({"source": "Kwon"}, "no source"),
        ({"id": "a.near"}, r"a\.near: no unit; accepted: .*''.* ends in parts, size"),
        ({"id": "a.backparts"}, "no unit"),
        ({"fmt": ".1%"}, "'parts', but it is known to be '%'"),
        ({"fmt": "bytes"}, "known to be 'bytes'"),
        ({"value": "words"}, "known to be 'text'"),
        ({"id": "stock.sold", "value": 40, "unit": "coins"}, "known to be 'parts'"),
        ({"unit": " parts"}, "one line of text"),
        ({"unit": 4}, "one line of text"),
    ],
)
def test_number_refuses(outputs: list[Output], given: dict[str, Any], says: str) -> None:
    with_unit = {"unit": "parts"} if "id" not in given else {}
    refused_input(says, proofbook.number, **{"id": "a.b", "value": 4, **with_unit} | given)
    assert not outputs


@given(st.fractions())
def test_an_exact_value_loses_nothing(value: Fraction) -> None:
    assert Fraction(quantity("a.b", value, ".3g", unit="").value) == value
    assert Fraction(quantity("a.share", value, ".3%").value) == 100 * value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_keeps_twelve_digits(value: float) -> None:
    assert float(quantity("a.b", value, ".3g", unit="").value) == pytest.approx(value, rel=1e-11)


# --- published numbers ----------------------------------------------------------------
@pytest.mark.parametrize("id", ["stock.sold", "stock.cost", "paper.gain"])
def test_every_claim_is_compared(smallbook: Path, id: str) -> None:
    claim = proofbook.read_claims()[id]
    proofbook.number(id, claim.value)
    with pytest.raises(proofbook.ClaimMismatch) as caught:
        proofbook.number(id, claim.value + Fraction(1, 10**6), ".2f")  # before rounding
    message = str(caught.value)
    assert all(part in message for part in (id, claim.text, claim.unit, claim.source))
    line = message.split("claims.csv line ")[1].rstrip(")")
    text = (smallbook / "data" / "claims.csv").read_text(encoding="utf-8").splitlines()
    assert text[int(line) - 1].startswith(f"{id},{claim.text},")


def test_cited_claims_are_compared_too() -> None:
    with pytest.raises(proofbook.ClaimMismatch, match="gain"):
        proofbook.number("paper.gain", 3, kind="cited", source="Smith 2020")
    with pytest.raises(proofbook.ClaimMismatch, match=r"fig2\.full"):
        proofbook.number("fig2.full", "68.4%", kind="cited", source="Kwon 2023")


@pytest.mark.parametrize(
    ("id", "text", "value", "source"),
    [
        ("paper.gain", "2", "2", "Smith 2020"),
        ("fig2.full", "68.5%", "137/2", "Kwon 2023"),
        ("fig2.empty", "7.00", "7", "Kwon 2023"),
        ("stock.sold", "40", "40", "article"),
    ],
)
def test_cite(outputs: list[Output], id: str, text: str, value: str, source: str) -> None:
    proofbook.cite(id)
    ((data, meta),) = outputs
    assert data == {RECORD: text}
    about = meta[MARK]
    assert (about["kind"], about["value"], about["source"]) == ("cited", value, source)
    assert meta["scrapbook"]["name"] == id


def test_cite_knows_only_published_numbers(smallbook: Path) -> None:
    refused_input(r"toy\.parts: not in claims\.csv or paper\.csv", proofbook.cite, "toy.parts")
    with pytest.raises(InputError, match=r"'other\.csv'; accepted: claims\.csv, paper\.csv"):
        proofbook.read_claims("other.csv")
    path = smallbook / "data" / "paper.csv"
    path.write_text(path.read_text() + "stock.sold,41,parts,Figure 3,\n")
    with pytest.raises(InputError, match=r"stock\.sold: stands in claims\.csv .* and in paper"):
        proofbook.cite("stock.sold")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1"),
        ("id,value,unit,source\n", "line 1"),
        ("id,value,unit,given,source\na,1,slots,x\n", "line 2: 4 fields"),
        ("id,value,unit,given,source\na,one,slots,x,article\n", "line 2, value: 'one'"),
        ("id,value,unit,given,source\nA b,1,slots,x,article\n", "line 2, id: 'A b'"),
        ("id,value,unit,given,source\na,1,s,x,y\na,1,s,x,y\n", "line 3, id: 'a' stands twice"),
    ],
)
def test_a_malformed_table_of_claims(smallbook: Path, text: str, says: str) -> None:
    (smallbook / "data" / "claims.csv").write_text(text)
    refused_input(f"claims.csv {says}", proofbook.read_claims)


RECOMPUTED = {"stock.sold": 40, "stock.cost": Fraction(153, 4)}
CITED = {"paper.gain": "needs a shop"}


def test_claims_table() -> None:
    frame = proofbook.claims_table(
        {**RECOMPUTED, "stock.sold": 41}, CITED, why={"stock.sold": "a test"}
    )
    assert list(frame["claim"]) == list(proofbook.read_claims())
    assert list(frame["verdict"]) == ["differs", "reproduced", "cited"]
    assert list(frame["why"]) == ["a test", None, "needs a shop"]
    assert list(frame["recomputed"]) == [41, Fraction(153, 4), None]
    proofbook.table("tab-claims", frame, caption="Every published number.")


@pytest.mark.parametrize(
    ("recomputed", "cited", "says"),
    [
        ({**RECOMPUTED, "unheard.of": 1}, CITED, "unheard"),
        (RECOMPUTED, {**CITED, "unheard.of": "x"}, "unheard"),
        ({**RECOMPUTED, "paper.gain": 2}, CITED, "recomputed and cited"),
        ({**RECOMPUTED, "stock.sold": 41}, CITED, "41 here, 40 parts published"),
        ({"stock.sold": 40}, CITED, r"stock\.cost: neither"),
        ({"stock.sold": 40}, {**CITED, "stock.cost": "no"}, "article's own"),
    ],
)
def test_claims_table_refuses(recomputed: Any, cited: Any, says: str) -> None:
    refused_input(says, proofbook.claims_table, recomputed, cited)


# --- tables ---------------------------------------------------------------------------
FRAME = pd.DataFrame(
    {
        "trace": ["Azure <code>", "BWB"],
        "requests": [8819, 12345],
        "slack (slots)": [Fraction(15, 2), None],
        "share": [0.25, math.nan],
        "exact": [True, False],
    }
)
CAPTION = "Slack is smaller in `azure_code` & fewer."


def test_table_as_text(outputs: list[Output]) -> None:
    proofbook.table("tab-slack", FRAME, caption=CAPTION, formats={"share": ".1%"})
    assert outputs[0][0]["text/plain"] == (
        "Slack is smaller in azure_code & fewer. Computed here.\n"
        "\n"
        "trace         requests  slack (slots)  share  exact\n"
        "------------  --------  -------------  -----  -----\n"
        "Azure <code>     8,819            7.5  25.0%  yes\n"
        "BWB             12,345              \u2013      \u2013  no"
    )


def test_table_as_html(outputs: list[Output]) -> None:
    proofbook.table(
        "tab-slack", FRAME, caption=CAPTION, formats={"share": ".1%"}, kind="cited", source="Kwon"
    )
    tree = ET.fromstring(outputs[0][0]["text/html"].replace("&nbsp;", " "))
    assert tree.attrib == {
        "class": "kv-table",
        "role": "region",
        "tabindex": "0",
        "aria-label": "Slack is smaller in azure_code & fewer.",
        "id": "tab-slack",
        "data-kind": "cited",
    }
    caption = tree.find("table/caption")
    assert caption is not None
    assert "".join(caption.itertext()) == "Slack is smaller in azure_code & fewer. Cited: Kwon."
    heads = tree.findall("table/thead/tr/th")
    assert [h.text for h in heads] == list(FRAME.columns)
    assert {h.get("scope") for h in heads} == {"col"}
    rows = tree.findall("table/tbody/tr")
    assert [r[0].text for r in rows] == ["Azure <code>", "BWB"]
    assert all(r[0].tag == "th" and r[0].get("scope") == "row" for r in rows)
    assert [c.get("class") for c in rows[0]] == [None, "kv-num", "kv-num", "kv-num", None]
    gap = rows[1][2][0]
    assert (gap.get("aria-label"), gap.get("role"), gap.text) == ("no value", "img", "\u2013")
    assert not [th for th in tree.iter("th") if not "".join(th.itertext()).strip()]


def test_table_saves_exact_values(outputs: list[Output], tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"what": ["a", "=b"], "share": [Fraction(1, 3), None], "x": [0.1 + 0.2, 2.0]}
    )
    proofbook.table(
        "tab-exact", frame, caption="Three `values`.", formats={"share": ".1%", "x": ".0f"}
    )
    folder = tmp_path / "tables"
    assert sorted(p.name for p in folder.iterdir()) == ["tab-exact.csv", "tab-exact.json"]
    content = (folder / "tab-exact.csv").read_bytes()
    assert content == b"what,share,x\na,1/3,0.3\n'=b,,2\n"
    about = json.loads((folder / "tab-exact.json").read_text())
    meta = outputs[0][1][MARK]
    assert meta == {
        "id": "tab-exact",
        "kind": "computed",
        "source": None,
        "caption": "Three values.",
        "digest": hashlib.sha256(content).hexdigest(),
    }
    assert {key: about[key] for key in meta} == meta
    assert proofbook.data_digest(frame) == meta["digest"]


def test_table_depends_on_nothing_but_its_values(outputs: list[Output]) -> None:
    proofbook.table("tab-a", FRAME, caption=CAPTION, formats={"share": ".1%"})
    with pd.option_context("display.precision", 2, "display.max_columns", 1):
        proofbook.showing._shown.clear()
        proofbook.table("tab-a", FRAME.convert_dtypes(), caption=CAPTION, formats={"share": ".1%"})
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("frame", "more", "says"),
    [
        (FRAME, {}, "column 'share', row 1.*needs a format"),
        (FRAME, {"formats": {"share": ".1%", "none": "d"}}, r"formats for \['none'\]"),
        (FRAME, {"formats": {"share": "q"}}, "column 'share', row 1: format 'q'"),
        (FRAME[:0], {}, "empty"),
        ([1], {}, "DataFrame"),
        (pd.DataFrame({"": [1]}), {}, "none empty"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "different names"),
        (pd.DataFrame({"a": [1]}, index=["x"]), {}, "index has no name"),
        (pd.DataFrame({"a": [None, "x"], "b": [1, 2]}), {}, "names the rows"),
        (pd.DataFrame({"a": [math.inf]}), {"formats": {"a": ".1f"}}, "finite"),
        (FRAME, {"caption": "Slack"}, "sentence"),
        (FRAME, {"caption": "Slack of a `trace."}, "backticks"),
        (FRAME, {"kind": "cited"}, "source"),
        (FRAME, {"id": "slack"}, "table id"),
    ],
)
def test_table_refuses(frame: Any, more: dict[str, Any], says: str, tmp_path: Path) -> None:
    given = {"id": "tab-slack", "caption": CAPTION, **more}
    refused_input(says, proofbook.table, given.pop("id"), frame, **given)
    assert not (tmp_path / "tables").exists()


# --- figures --------------------------------------------------------------------------
ALT = "Two bars of slots: the first holds more tokens than the second, which has slack."
DATA = pd.DataFrame({"policy": ["pages", "reserved"], "slots": [40, 96], "share": [0.775, 31 / 96]})


def draw() -> Figure:
    fig, ax = proofbook.style.canvas(2.4)
    ax.barh(0, 40, color="#0072b2")
    ax.barh(1, 96, color="none", hatch="////", edgecolor=proofbook.style.INK["light"].faint)
    ax.text(5, 0, "forty", color=proofbook.style.ON_COLOUR)
    ax.set(xlim=(0, 150), ylim=(-0.6, 1.6), xlabel="slots", title="Pages hold less")
    return fig


def test_figure_saves_and_shows(outputs: list[Output], tmp_path: Path) -> None:
    proofbook.figure("fig-bars", draw(), DATA, ALT)
    folder = tmp_path / "figures"
    ends = ["csv", "dark.svg", "json", "png", "svg"]
    assert sorted(p.name for p in folder.iterdir()) == [f"fig-bars.{end}" for end in ends]
    content = (folder / "fig-bars.csv").read_bytes()
    full = hashlib.sha256(content).hexdigest()
    assert full == proofbook.data_digest(DATA)
    ((data, meta),) = outputs
    assert data["text/plain"] == f"fig-bars · data {full[:8]}"
    assert set(data) == {"image/png", "text/plain"}
    assert meta[MARK] == {
        "id": "fig-bars",
        "kind": "computed",
        "source": None,
        "title": "Pages hold less",
        "alt": ALT,
        "digest": full,
    }
    assert content == b"policy,slots,share\npages,40,0.775\nreserved,96,0.322916666667\n"
    about = json.loads((folder / "fig-bars.json").read_text())
    assert {key: about[key] for key in meta[MARK]} == meta[MARK]
    digests = about["data_digest"], about["data_sha256"]
    assert (about["version"], digests) == ("1.2.3", (full[:8], full))
    with Image.open(folder / "fig-bars.png") as large:
        # Twice the size on the page, at 96 pixels an inch.
        assert large.size == (int(7.2 * 192), int(2.4 * 192))
        with Image.open(io.BytesIO(data["image/png"])) as shown:
            assert shown.size[0] < large.size[0]
    assert plt.get_fignums() == []


def test_drawings_and_json_say_the_same(outputs: list[Output], tmp_path: Path) -> None:
    proofbook.figure("fig-bars", draw(), DATA, ALT)
    folder = tmp_path / "figures"
    about = json.loads((folder / "fig-bars.json").read_text())
    stamp, *others = [
        read_stamp(folder / f"fig-bars{end}") for end in (".svg", ".dark.svg", ".png")
    ]
    assert others == [stamp, stamp]
    assert stamp["data_digest"] == about["digest"] == proofbook.data_digest(DATA)
    assert stamp == {**{key: about[key] for key in stamp}, "data_digest": about["digest"]}
    assert set(stamp) >= {"project", "version", "id", "title", "source_digest"}
    # A cell knows no page, and a reader's own drawing no licence of ours.
    assert not {"page", "cell", "licence"} & set(stamp)
    shown = tmp_path / "shown.png"
    shown.write_bytes(outputs[0][0]["image/png"])
    # An edit of the code must not change what is stored in a notebook.
    del stamp["source_digest"]
    assert read_stamp(shown) == stamp


def test_figure_is_the_same_each_time(tmp_path: Path) -> None:
    proofbook.figure("fig-bars", draw(), DATA, ALT)
    folder = tmp_path / "figures"
    first = {p.name: p.read_bytes() for p in folder.iterdir()}
    proofbook.figure("fig-bars", draw(), DATA, ALT)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == first
    svg = first["fig-bars.svg"].decode()
    assert "<dc:date>" not in svg
    assert "<text" not in svg  # letters are paths: the same on a machine without the font
    assert f"smallbook 1.2.3 · fig-bars · data {proofbook.data_digest(DATA)[:8]}" in svg


def colours(svg: str) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", svg.lower()))


def test_dark_drawing_swaps_three_colours_and_words_are_readable(tmp_path: Path) -> None:
    proofbook.figure("fig-bars", draw(), DATA, ALT)
    light, dark = (
        (tmp_path / "figures" / f"fig-bars{end}.svg").read_text() for end in ("", ".dark")
    )
    inks = set(proofbook.style.INK["light"])
    assert inks <= colours(light)
    assert not inks & colours(dark)
    assert colours(light) - inks == colours(dark) - set(proofbook.style.INK["dark"])
    assert proofbook.style.ON_COLOUR in colours(dark)
    assert light.count("<pattern") == dark.count("<pattern") >= 1
    assert len(ET.fromstring(light).findall(".//*")) == len(ET.fromstring(dark).findall(".//*"))
    pattern = re.search(r"<pattern.*?</pattern>", light, re.DOTALL)
    assert pattern
    assert proofbook.style.INK["light"].faint in pattern.group()

    def luminance(colour: str) -> float:
        channels = np.array(to_rgb(colour))
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for ink, paper, faint in proofbook.style.INK.values():
        for colour, least in ((ink, 7), (faint, 3)):
            dark, light = sorted((luminance(colour), luminance(paper)))
            assert (light + 0.05) / (dark + 0.05) > least


def spoiled(what: str) -> Figure:
    fig = draw()
    ax = fig.axes[0]
    if what == "blue words":
        ax.text(60, 0, "blue", color="#0072B2")
    elif what == "black bar":
        ax.barh(0, 3, left=60, color="black")
    elif what == "runs out":
        ax.text(140, 0, "a label much too long for its place", clip_on=False)
        fig.set_layout_engine("none")
    elif what == "on the footer":
        fig.text(0.98, 0.02, "covers the footer", ha="right", va="bottom")
    elif what == "axis on the footer":
        fig.clear()
        fig.set_layout_engine("none")
        ax = fig.add_axes((0.6, 0.1, 0.36, 0.8))
        ax.set_xlabel("covers the footer", loc="right", labelpad=-8)
    return fig


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("blue words", "'blue' are drawn in #0072b2"),
        ("black bar", "drawn in black"),
        ("runs out", "runs out of the figure by .* at the right"),
        ("on the footer", "'covers the footer' lies on the footer"),
        ("axis on the footer", "lies on the footer"),
    ],
)
def test_figure_refuses_a_drawing(
    outputs: list[Output], tmp_path: Path, what: str, says: str
) -> None:
    refused_input(says, proofbook.figure, "fig-bars", spoiled(what), DATA, ALT)
    assert not outputs
    assert not (tmp_path / "figures").exists()
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"id": "bars"}, "figure id"),
        ({"alt": "A chart."}, "at least 40 characters"),
        ({"alt": ALT[:-1]}, "full stop"),
        ({"data": DATA[:0]}, "empty"),
        ({"data": {"a": [1]}}, "DataFrame"),
        ({"data": pd.DataFrame({"a": [math.inf]})}, "column 'a'.*finite"),
        ({"fig": None}, "Matplotlib Figure"),
        ({"kind": "measured"}, "record file"),
    ],
)
def test_figure_refuses(outputs: list[Output], changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        proofbook.figure(**({"id": "fig-bars", "fig": draw(), "data": DATA, "alt": ALT} | changed))
    assert not outputs
    plt.close("all")


def test_one_figure_id_has_one_data_and_a_failed_save_leaves_nothing_half(tmp_path: Path) -> None:
    proofbook.figure("fig-bars", draw(), DATA, ALT)
    with pytest.raises(InputError, match="shown before"):
        proofbook.figure("fig-bars", draw(), DATA.assign(slots=[41, 96]), ALT)
    path = tmp_path / "figures" / "fig-bars.svg"
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):  # what makes a report says it in the reader's words
        proofbook.figure("fig-bars", draw(), DATA, ALT)
    assert plt.get_fignums() == []
    assert not list((tmp_path / "figures").glob(".*"))


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (proofbook.figures_folder(), tables_folder()) == (
        tmp_path / "figures",
        tmp_path / "tables",
    )
    monkeypatch.delenv("PROOFBOOK_FIGURES_DIR")
    monkeypatch.setattr(proofbook.project, "repository_root", lambda: tmp_path)
    assert proofbook.figures_folder() == tmp_path / "_build" / "figures"
    assert tables_folder() == tmp_path / "_build" / "tables"
    monkeypatch.setattr(proofbook.project, "repository_root", lambda: None)
    assert (proofbook.figures_folder(), tables_folder()) == (Path("figures"), Path("tables"))


def test_the_digest_follows_the_data_not_its_last_bit() -> None:
    nudged = DATA.assign(share=np.nextafter(DATA["share"].to_numpy(), 1))
    assert proofbook.data_digest(nudged) == proofbook.data_digest(DATA)
    assert proofbook.data_digest(DATA.assign(share=DATA["share"] + 1e-9)) != proofbook.data_digest(
        DATA
    )


# --- labels ---------------------------------------------------------------------------
@given(st.lists(st.floats(0, 100), min_size=1, max_size=7), st.floats(1, 12))
def test_spread_labels(wanted: list[float], gap: float) -> None:
    placed = proofbook.style._spread(np.sort(wanted), gap, 0.0, 100.0)
    assert np.all(np.diff(placed) >= gap - 1e-9)
    assert placed[0] >= -1e-9
    assert placed[-1] <= 100 + 1e-9
    apart = np.all(np.diff(np.sort(wanted)) >= gap)
    if apart:
        assert np.allclose(placed, np.sort(wanted))


def test_end_labels_do_not_overlap() -> None:
    refused_input("height_in", proofbook.style.canvas, 0)
    fig, ax = proofbook.style.canvas(3.2)
    ends = []
    for height in range(7):
        ax.plot([1, 2, 3], [1, 2, 3 + height / 50])
        ends.append((3.0, 3 + height / 50, f"line {height}"))
    labels = proofbook.style.end_labels(ax, ends)
    fig.draw_without_rendering()
    boxes = [Text.get_window_extent(label) for label in labels]  # without the leaders
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]]
    assert not any(a.y0 < b.y1 and b.y0 < a.y1 for a, b in pairs)
    assert proofbook.style.end_labels(ax, []) == []
    plt.close(fig)
