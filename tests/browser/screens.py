"""Pictures of every page, kept so that a person can look at what the tests saw."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from browser.driver import MODES, WIDTHS, Visit


def picture_name(path: str, width: int, mode: str) -> str:
    """Return the file name of a page's picture."""
    return f"{path.removesuffix('.html').replace('/', '-')}-{width}-{mode}.jpg"


#: Fetches the drawings of this mode that a reader would scroll to.
FETCH = """async () => {
  const shown = [...document.images].filter((image) => image.getClientRects().length);
  for (const image of shown) image.loading = "eager";
  await Promise.all(shown.map((image) => image.decode().catch(() => null)));
}"""


def take(visit: Visit, path: str, folder: Path) -> None:
    """Keep a picture of the whole page that is open."""
    target = folder / picture_name(path, visit.width, visit.mode)
    visit.page.evaluate(FETCH)
    visit.page.screenshot(
        path=target, full_page=True, type="jpeg", quality=70, animations="disabled"
    )


def write_index(folder: Path, pages: Sequence[str]) -> None:
    """Write a page that shows all pictures of these pages that there are, small, side by side."""
    rows = []
    for path in pages:
        names = [picture_name(path, width, mode) for width in WIDTHS for mode in MODES]
        shown = "".join(
            f'<a href="{name}"><img src="{name}" alt="{escape(name)}" loading="lazy"></a>'
            for name in names
            if (folder / name).is_file()
        )
        rows.append(f"<h2>{escape(path)}</h2><p>{shown}</p>")
    text = (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Screenshots</title>'
        "<style>p { align-items: start; display: flex; gap: 1rem; } img { border: 1px solid #999; "
        "max-height: 60rem; max-width: 22vw; object-fit: cover; object-position: top; }</style>"
        f"<h1>Every page as the tests saw it</h1>{''.join(rows)}</html>\n"
    )
    (folder / "index.html").write_text(text, encoding="utf-8")
