"""What a picture says of itself: written into PNG and SVG, and read back from any file.

The stamp is one JSON object of texts: in a PNG the text chunk ``proofbook``, in an SVG the element
``stamp`` in its metadata. Both hold the same. A file that somebody sends is read with bounds: of a
PNG only its chunks, of an SVG only as far as the stamp, and entities are refused.
"""

# defusedxml ships no types.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from proofbook.errors import InputError
from proofbook.project import this_project

NAMESPACE = "urn:proofbook:stamp"
MAX_FILE_BYTES = 64 * 2**20
MAX_STAMP_BYTES = 2**16

_KEYWORD = "proofbook"
_PNG = b"\x89PNG\r\n\x1a\n"
_ACCEPTED = "accepted: a PNG or SVG drawing of this book"
_NEEDED = ("project", "version", "id", "data_digest")
#: Texts that other programs show of a PNG -> their key in the stamp.
_COMMON = {"Title": "title", "Copyright": "licence"}
_OURS = re.compile(rf'\n?<metadata><stamp xmlns="{NAMESPACE}">[^<]*</stamp></metadata>')


def _stamp_text(stamp: Mapping[str, str]) -> str:
    wrong = [key for key, value in stamp.items() if not isinstance(value, str)]
    missing = [key for key in _NEEDED if key not in stamp]
    if wrong or missing:
        raise InputError(f"stamp: {wrong or missing} not given as texts; needed: {_NEEDED}")
    # Escaped to ASCII, so that no reader can take it for another encoding.
    text = json.dumps(dict(stamp), ensure_ascii=True)
    if len(text) > MAX_STAMP_BYTES:
        raise InputError(f"stamp: {len(text)} bytes; accepted: at most {MAX_STAMP_BYTES}")
    return text


def stamped_png(png: bytes, stamp: Mapping[str, str]) -> bytes:
    """Return a whole PNG with a stamp, in place of one that it had; its pixels stay as they are.

    The stamp holds at least ``project``, ``version``, ``id`` and ``data_digest``. Bytes that are no
    PNG, and a stamp that is no mapping of texts, are an InputError.
    """
    text = _stamp_text(stamp)
    stream = io.BytesIO()
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.load()
            texts = {**getattr(image, "text", {}), _KEYWORD: text}
            texts |= {name: stamp.get(key) for name, key in _COMMON.items()}
            about = PngInfo()
            for name, words in texts.items():
                if words is not None:
                    about.add_text(name, words)
            image.save(stream, "PNG", pnginfo=about, dpi=image.info.get("dpi"))
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"the picture cannot be read ({error}); accepted: a whole PNG") from None
    return stream.getvalue()


def stamped_svg(svg: str, stamp: Mapping[str, str]) -> str:
    """Return an SVG with a stamp, in place of one that it had.

    A stamp that is no mapping of texts, and a text without ``svg`` element, are an InputError.

    Examples
    --------
    >>> stamp = {"project": "book", "version": "1", "id": "fig-a", "data_digest": "0" * 64}
    >>> stamped_svg("<svg><g/></svg>", stamp).splitlines()[1][:49]
    '<metadata><stamp xmlns="urn:proofbook:stamp">{&qu'
    """
    text = escape(_stamp_text(stamp))
    start = re.search(r"<svg\b[^>]*>", svg)
    if start is None or start.group().endswith("/>"):
        raise InputError("no svg element with content in the drawing; accepted: an SVG")
    plain, at = _OURS.sub("", svg), start.end()
    made = f'<metadata><stamp xmlns="{NAMESPACE}">{text}</stamp></metadata>'
    return f"{plain[:at]}\n{made}{plain[at:]}"


# ---------------------------------------------------------------- reading


def read_stamp(path: Path) -> dict[str, str]:
    """Return what a PNG or SVG, possibly from a stranger, says of itself.

    That is as :func:`proofbook.catalogue.citations.stamp_of` makes it; without what a cell cannot
    know, where the drawing comes from a notebook.

    Raises
    ------
    InputError
        If the file cannot be read, is too large, is neither PNG nor SVG, or has no stamp of this
        project.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path}: no such file; {_ACCEPTED}")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"{path}: {size:,} bytes; accepted: at most {MAX_FILE_BYTES:,}")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_ACCEPTED}") from None
    text = _png_text(content, path) if content.startswith(_PNG) else _svg_text(content, path)
    if text is None:
        raise InputError(
            f"{path}: no stamp of {this_project().name} in it; {_ACCEPTED}, as it was downloaded: "
            "a picture that was copied or saved anew has lost it"
        )
    broken = InputError(f"{path}: its stamp is broken; {_ACCEPTED}, as it was downloaded")
    if len(text) > MAX_STAMP_BYTES:
        raise broken
    try:
        stamp = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        raise broken from None
    if any(key not in stamp for key in _NEEDED) or stamp["project"] != this_project().name:
        raise broken
    return stamp


def _png_text(content: bytes, path: Path) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            # Opening reads the chunks before the pixels, with bounds, and no pixel.
            with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
                found: Any = image.info.get(_KEYWORD)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, OverflowError) as error:
        raise InputError(f"{path}: a PNG that cannot be read ({error}); {_ACCEPTED}") from None
    return str(found) if found is not None else None


def _svg_text(content: bytes, path: Path) -> str | None:
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    is_svg = False
    try:
        for event, element in iterparse(io.BytesIO(content), events=("start", "end")):
            name = element.tag.rpartition("}")[2]
            if not is_svg and name != "svg":
                break
            is_svg = True
            if event == "end":
                if element.tag == f"{{{NAMESPACE}}}stamp":
                    return "".join(element.itertext())
                element.clear()
    except DefusedXmlException as error:
        raise InputError(f"{path}: refused, it has entities ({error}); {_ACCEPTED}") from None
    except (ParseError, LookupError, ValueError) as error:
        if is_svg:
            raise InputError(f"{path}: an SVG that cannot be read ({error}); {_ACCEPTED}") from None
    if not is_svg:
        raise InputError(f"{path}: neither PNG nor SVG; {_ACCEPTED}")
    return None
