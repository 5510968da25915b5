"""Stamps in pictures: the same in PNG and SVG, pixels untouched, strangers' files with care."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest
from conftest import refused_input
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from proofbook import stamps
from proofbook.errors import InputError
from proofbook.stamps import NAMESPACE, read_stamp, stamped_png, stamped_svg

pytestmark = pytest.mark.usefixtures("smallbook")
STAMP = {
    "project": "smallbook",
    "version": "1.2",
    "id": "fig-a",
    "title": "Slack grows",
    "data_digest": "0" * 64,
    "source_digest": "1" * 64,
    "licence": "CC BY 4.0",
}
SVG = (
    '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
    '<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" '
    '"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n'
    '<svg xmlns="http://www.w3.org/2000/svg" width="9pt"><metadata><a/></metadata><g/></svg>'
)


def png(**texts: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    for name, text in texts.items():
        info.add_text(name, text)
    stream = io.BytesIO()
    Image.effect_noise((16, 9), 90).save(stream, "PNG", pnginfo=info)
    return stream.getvalue()


def read(content: bytes) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.jpg"  # the name says nothing
        path.write_bytes(content)
        return read_stamp(path)


def pixels(content: bytes) -> bytes:
    with Image.open(io.BytesIO(content)) as image:
        return image.tobytes()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(st.dictionaries(st.sampled_from(["title", "page", "cell", "licence", "source"]), TEXTS))
@settings(max_examples=60)
def test_both_give_back_what_was_written(words: dict[str, str]) -> None:
    stamp = {**STAMP, **words}
    drawing = png()
    stamped = stamped_png(drawing, stamp)
    assert read(stamped) == read(stamped_svg(SVG, stamp).encode()) == stamp
    assert pixels(stamped) == pixels(drawing)


def test_a_new_stamp_takes_the_place_of_the_old_and_changes_no_drawing() -> None:
    new = {**STAMP, "page": "chapters/a", "title": "Ångström"}
    drawing = png(Software="smallbook 1", Title="old")
    once, twice = stamped_png(drawing, new), stamped_png(stamped_png(drawing, STAMP), new)
    assert once == twice
    with Image.open(io.BytesIO(once)) as image:
        image.load()
        assert image.text["Title"] == "Ångström"  # type: ignore[attr-defined]
        assert image.text["Software"] == "smallbook 1"  # type: ignore[attr-defined]
        assert image.text["Copyright"] == "CC BY 4.0"  # type: ignore[attr-defined]
    assert stamped_svg(stamped_svg(SVG, STAMP), new) == stamped_svg(SVG, new)
    assert stamped_svg(SVG, new).count(NAMESPACE) == 1
    root = ET.fromstring(stamped_svg(SVG, STAMP))
    plain = ET.fromstring(SVG)
    root.remove(root[0])
    assert [e.tag for e in root.iter()] == [e.tag for e in plain.iter()]
    assert root.attrib == plain.attrib


@pytest.mark.parametrize("size", [0, 7, 8, 20, 40, 90])
def test_no_whole_picture_is_refused(size: int) -> None:
    refused_input("accepted: a whole PNG", stamped_png, png()[:size], STAMP)
    for text in ("", "<html></html>", "<svg/>"):
        refused_input("accepted: an SVG", stamped_svg, text, STAMP)


@pytest.mark.parametrize(
    "stamp",
    [{}, {**STAMP, "title": 4}, {k: v for k, v in STAMP.items() if k != "id"},
     {**STAMP, "title": "x" * 2**17}],
)  # fmt: skip
def test_a_stamp_is_refused(stamp: dict[str, str]) -> None:
    refused_input("stamp", stamped_png, png(), stamp)
    refused_input("stamp", stamped_svg, SVG, stamp)


# --- strangers' files -----------------------------------------------------------------
def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_chunk(kind: bytes, data: bytes) -> bytes:
    whole = png()
    return whole[:33] + chunk(kind, b"proofbook\0" + data) + whole[33:]


def with_text(text: bytes) -> bytes:
    return with_chunk(b"tEXt", text)


def huge_png() -> bytes:
    """A picture that claims to be larger than any memory."""
    header = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0)
    return png()[:8] + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """Compressed text that fills the memory of whoever unpacks it."""
    return with_chunk(b"zTXt", b"\0" + zlib.compress(b"x" * 2**27))


BODY = f'<svg xmlns="http://www.w3.org/2000/svg"><stamp xmlns="{NAMESPACE}">&c;</stamp></svg>'
LAUGHS = (
    '<!DOCTYPE svg [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    f'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>{BODY}'
)
OUTSIDE = f'<!DOCTYPE svg [<!ENTITY c SYSTEM "file:///etc/passwd">]>{BODY}'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "neither PNG nor SVG"),
        (b"GIF89a", "neither PNG nor SVG"),
        (b"<html></html>", "neither PNG nor SVG"),
        (b"\xff\xd8\xff\xe0", "neither PNG nor SVG"),
        (b"\0" * 1000, "neither PNG nor SVG"),
        (png(), "no stamp of smallbook"),
        (png(Title="smallbook"), "no stamp of smallbook"),
        (SVG.encode(), "no stamp of smallbook"),
        (png()[:30], "cannot be read"),
        (stamped_svg(SVG, STAMP)[:350].encode(), "cannot be read"),
        (huge_png(), "cannot be read"),
        (text_bomb(), "cannot be read|no stamp|broken"),
        (LAUGHS.encode(), "entities"),
        (OUTSIDE.encode(), "entities"),
        (with_text(b"{"), "broken"),
        (with_text(b"[" * 60_000), "broken"),
        (with_text(b"[]"), "broken"),
        (with_text(b"{}"), "broken"),
        (with_text(b'{"project": 4}'), "broken"),
        (with_text(json.dumps({**STAMP, "project": "other"}).encode()), "broken"),
        (with_text(json.dumps({**STAMP, "title": "x" * 70_000}).encode()), "broken"),
    ],
)  # fmt: skip
def test_a_strangers_file_is_one_clear_error(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(content)
    said = refused_input(says, read_stamp, path)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said


@given(st.binary(max_size=300), st.integers(0, 200))
@settings(max_examples=80)
def test_damage_is_an_error_or_nothing(noise: bytes, at: int) -> None:
    for whole in (stamped_png(png(), STAMP), stamped_svg(SVG, STAMP).encode()):
        damaged = whole[:at] + noise + whole[at + len(noise) :]
        try:
            found = read(damaged)
        except InputError:
            continue
        assert found["project"] == "smallbook"


def test_what_cannot_be_read_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused_input("no such file", read_stamp, tmp_path / "absent.png")
    refused_input("no such file", read_stamp, tmp_path)
    monkeypatch.setattr(stamps, "MAX_FILE_BYTES", 10)
    path = tmp_path / "large.png"
    path.write_bytes(png())
    refused_input("bytes; accepted: at most 10", read_stamp, path)
