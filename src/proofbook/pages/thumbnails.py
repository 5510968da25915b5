"""Small pictures of the figures, drawn from their SVG files, for the page that lists them."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

from proofbook.files import write_whole

__all__ = ["WIDTH_PX", "kept_thumbnail", "palette_of", "thumbnail"]

#: Twice the width at which the list shows them.
WIDTH_PX = 448
#: Shares of a colour over paper that the edges of letters and lines need.
SHADES = (0.25, 0.5, 0.75)
#: As many colours as a palette can hold.
MOST_COLOURS = 256
#: Drawn so many times larger first: averaging gives cleaner letters than drawing small.
OVERSIZE = 2


def palette_of(svg: str) -> list[tuple[int, int, int]]:
    """Return the colours of a drawing, each with its shades over the paper.

    A palette that is found from the pixels would lose a colour that covers few of them, and a
    colour of a figure has a meaning.

    Parameters
    ----------
    svg : str
        A drawing whose first colour is its paper's.

    Examples
    --------
    >>> palette_of('<path style="fill: #ffffff"/><path style="fill: #000000"/>')[:3]
    [(255, 255, 255), (0, 0, 0), (191, 191, 191)]
    """
    named = dict.fromkeys(re.findall(r"#[0-9a-f]{6}\b", svg.lower())) or {"#ffffff": None}
    colours = [(int(c[1:3], 16), int(c[3:5], 16), int(c[5:7], 16)) for c in named]
    paper = colours[0]
    shades = [
        (
            round(paper[0] + share * (colour[0] - paper[0])),
            round(paper[1] + share * (colour[1] - paper[1])),
            round(paper[2] + share * (colour[2] - paper[2])),
        )
        for colour in colours[1:]
        for share in SHADES
    ]
    return list(dict.fromkeys(colours + shades))[:MOST_COLOURS]


def thumbnail(svg: str) -> bytes:
    r"""Draw an SVG small, as a PNG with a palette.

    Parameters
    ----------
    svg : str
        A drawing whose letters are paths, as the book's figures are: no font is looked for.

    Returns
    -------
    bytes
        A PNG of :data:`WIDTH_PX` pixels' width; the same bytes for the same drawing.

    Examples
    --------
    >>> png = thumbnail('<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt"/>')
    >>> png[:4], int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    (b'\x89PNG', 448, 224)
    """
    import resvg_py
    from PIL import Image

    # At any other dpi than a browser's, sizes in points are refused.
    large = resvg_py.svg_to_bytes(
        svg_string=svg, width=WIDTH_PX * OVERSIZE, dpi=96.0, skip_system_fonts=True
    )
    with Image.open(io.BytesIO(large)) as picture:
        # Where a drawing leaves the paper bare, it is white.
        paper = Image.new("RGBA", picture.size, "white")
        paper.alpha_composite(picture.convert("RGBA"))
    size = (WIDTH_PX, round(paper.height / OVERSIZE))
    small = paper.convert("RGB").resize(size, Image.Resampling.BOX)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in palette_of(svg) for part in colour])
    few = small.quantize(palette=palette, dither=Image.Dither.NONE)
    stream = io.BytesIO()
    few.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def kept_thumbnail(svg: Path, folder: Path) -> bytes:
    """Return a thumbnail, drawn only if it is not kept from an earlier build.

    Parameters
    ----------
    svg : Path
        The drawing.
    folder : Path
        Where thumbnails are kept, by the digest of their drawing.
    """
    drawing = svg.read_bytes()
    kept = folder / f"{hashlib.sha256(drawing).hexdigest()[:32]}.png"
    if not kept.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(kept, thumbnail(drawing.decode()))
    return kept.read_bytes()
