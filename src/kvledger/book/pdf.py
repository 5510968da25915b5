"""The book as one PDF: the finished pages, printed by Chromium and made the same each time.

Chromium lays the document out, tags it and writes its outline; a second print has the page
numbers of the first in its table of contents. What it prints comes from the finished pages and
from fonts that a pinned dependency brings, over no network: every other request is refused, and is
an error. Dates and ids are then set from ``SOURCE_DATE_EPOCH``, or from the record of the last
check.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import mimetypes
import os
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kvledger import __version__
from kvledger.book.onepage import Cover, OnePage, assemble, book_plan
from kvledger.datafiles import source_digest
from kvledger.errors import LedgerError
from kvledger.writing import write_whole

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

__all__ = ["PDF_NAME", "find_chromium", "make_pdf", "offered", "print_document"]

PDF_NAME = "kvledger.pdf"
#: Names under which Chromium is installed, after the one in the variable CHROMIUM.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Stands for the site while it is printed; nothing is asked of any network.
ORIGIN = "http://book.invalid"
STYLES = ("_static/pygments.css", "_static/print-book.css")
#: Width of an upright page between its margins, in CSS pixels (A4 less twice 22 mm).
PAGE_PX = round((210 - 2 * 22) / 25.4 * 96)
LEAST_PT = 6.5
#: A table no higher than this, half a page, is not parted.
WHOLE_PX = 480
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",
]
#: All fonts and drawings first, then one layout: in pieces, it rounds differently each time.
READY = """async () => {
  await Promise.all([...document.fonts].map((font) => font.load()));
  await Promise.all([...document.images].map((image) => image.decode()));
  document.body.hidden = false;
}"""
#: Makes wide tables and equations fit: smaller type first, then a leaf on its side.
FIT = """([least, whole]) => {
  const over = (box, inner) => inner.getBoundingClientRect().right > box.getBoundingClientRect().right + 0.5;
  const shrink = (box, inner) => {
    let size = parseFloat(getComputedStyle(inner).fontSize);
    while (over(box, inner) && size * 0.75 > least) {
      size -= 0.25;
      inner.style.setProperty("font-size", size + "px", "important");
    }
    return !over(box, inner);
  };
  for (const table of document.querySelectorAll("main table")) {
    const box = table.parentElement;
    if (shrink(box, table)) {
      if (box.getBoundingClientRect().height < whole) box.classList.add("kvp-whole");
      continue;
    }
    const chapter = table.closest(".kvp-chapter");
    table.style.removeProperty("font-size");
    box.classList.add("kvp-wide");
    box.style.page = chapter.style.page + "-wide";
    shrink(box, table);
  }
  for (const block of document.querySelectorAll("main .kv-math")) {
    const inner = block.querySelector("math");
    if (inner) shrink(block, inner);
  }
}"""
#: Names everything that would be cut off at the edge of its page.
CLIPPED = """() => {
  const found = [];
  const main = document.querySelector("main");
  for (const part of document.body.querySelectorAll("*")) {
    const own = part.getBoundingClientRect();
    if (!own.width || part.closest("math") !== null && part.localName !== "math") continue;
    const holder = part.closest(".kvp-wide") || document.body;
    const limit = holder.getBoundingClientRect();
    const style = getComputedStyle(part);
    const hides = style.overflowX !== "visible" && part.scrollWidth > part.clientWidth + 1;
    if (hides || own.right > limit.right + 1 || own.left < limit.left - 1) {
      const words = part.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
      found.push(part.localName + "." + part.className + " " + part.id + ": " + words);
    }
  }
  return found;
}"""


def find_chromium() -> str | None:
    """Return the path of Chromium, or None where there is none.

    Raises
    ------
    LedgerError
        If the variable CHROMIUM names something that is not there.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        path = shutil.which(named)
        if path is None:
            raise LedgerError(f"CHROMIUM is {named!r}, which cannot be run; accepted: a browser")
        return path
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def make_pdf(root: Path, site: Path, kept: Path) -> str:
    """Print the finished pages into ``kvledger.pdf`` of the site, and offer it on the first page.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.
    site : Path
        The finished pages; the PDF is added to them.
    kept : Path
        A folder for the last PDF, which is used again while nothing it shows has changed.

    Returns
    -------
    str
        One line for the person who builds: what was made, or why nothing was.

    Raises
    ------
    LedgerError
        If a link of the book leads nowhere, content does not fit its page, or printing fails.
    """
    import yaml

    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    plan = book_plan(toc)
    first = site / f"{plan[0].name}.html"
    browser = find_chromium()
    reason = (
        "Chromium was not found (set CHROMIUM to its path)"
        if browser is None
        else "playwright is not installed"
        if find_spec("playwright") is None
        else None
    )
    if browser is None or reason is not None:
        (site / PDF_NAME).unlink(missing_ok=True)
        _write_offer(first, "")
        return f"no {PDF_NAME}: {reason}"
    pages = {
        chapter.name: (site / f"{chapter.name}.html").read_text(encoding="utf-8")
        for chapter in plan
    }
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8")) or {}
    moment = moment_of(root)
    cover = cover_of(config, moment, checked_line(root))
    base_url = str((config.get("html") or {}).get("baseurl") or "")
    styles = [f"{ORIGIN}/{name}" for name in STYLES if (site / name).is_file()]

    def document(page_of: Mapping[str, int] | None = None) -> OnePage:
        return assemble(
            pages,
            plan,
            cover,
            styles=styles,
            marks=_marks(),
            base_url=base_url,
            page_of=page_of,
        )

    one = document()
    state = _state(one.html, site, moment)
    pdf, note = kept / PDF_NAME, kept / "state"
    if not (pdf.is_file() and note.is_file() and note.read_text(encoding="utf-8") == state):
        content = print_document(one, document, site, browser)
        kept.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        write_whole(pdf, finish(content, cover, moment))
        write_whole(note, state.encode())
    shutil.copyfile(pdf, site / PDF_NAME)
    leaves, size = _count_pages(pdf), pdf.stat().st_size
    _write_offer(first, offer_line(_to(first, site / PDF_NAME), leaves, size))
    return f"{PDF_NAME}: {leaves} pages, {size / 2**20:.1f} MiB"


# ---------------------------------------------------------------- what it says of itself


def moment_of(root: Path) -> dt.datetime | None:
    """Return the date that the PDF bears: ``SOURCE_DATE_EPOCH``, else that of the last check.

    Raises
    ------
    LedgerError
        If ``SOURCE_DATE_EPOCH`` is no whole number of seconds.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        try:
            return dt.datetime.fromtimestamp(int(epoch), dt.UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise LedgerError(
                f"SOURCE_DATE_EPOCH is {epoch!r}; accepted: whole seconds since 1970"
            ) from error
    return None


def checked_line(root: Path) -> str | None:
    return None


def cover_of(config: Mapping[str, Any], moment: dt.datetime | None, checked: str | None) -> Cover:
    """Return what the first leaf says, from the book's own settings."""
    sphinx = (config.get("sphinx") or {}).get("config") or {}
    return Cover(
        title=str(config.get("title") or "The book"),
        author=str(config.get("author") or "its authors"),
        language=str(sphinx.get("language") or "en"),
        version=__version__,
        source_digest=source_digest(),
        licence=str(config.get("copyright") or ""),
        checked=checked,
        year=str(moment.year) if moment else None,
    )


def _marks() -> dict[str, str]:
    from kvledger.book.pages.numbers import DOTTED, KINDS

    return {
        (
            f'<span class="kv-{kind}"><sup class="kv-mark">{mark}</sup></span>' if mark else DOTTED
        ): meaning
        for kind, (mark, meaning) in KINDS.items()
    }


def _state(html: str, site: Path, moment: dt.datetime | None) -> str:
    """Return a digest of all that the PDF shows and is printed by."""
    digest = hashlib.sha256(f"{html}\0{moment}\0".encode())
    digest.update(Path(__file__).read_bytes())
    for source in sorted({*re.findall(r'(?:src|href)="([^"#]+)"', html)}):
        path = site / source.removeprefix(f"{ORIGIN}/")
        if path.is_file():
            digest.update(source.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


# ---------------------------------------------------------------- printing


def print_document(
    one: OnePage,
    again: Any,
    site: Path,
    browser: str,
) -> bytes:
    """Print a document twice: the second time with the page numbers of the first.

    Parameters
    ----------
    one : OnePage
        The document without page numbers.
    again : callable
        Returns the document, given the page number of each id.
    site : Path
        The folder that its styles and drawings come from.
    browser : str
        Chromium's path.

    Raises
    ------
    LedgerError
        If Chromium fails, asks for something that is not there, or content does not fit its page.
    """
    from playwright.sync_api import Error, sync_playwright

    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
            try:
                page = chromium.new_page(viewport={"width": PAGE_PX, "height": 1000})
                page.emulate_media(media="print", color_scheme="light")
                first = _print(page, one.html, site)
                return _print(page, again(page_numbers(first)).html, site)
            finally:
                chromium.close()
    except Error as error:
        line = str(error).strip().splitlines()[0]
        raise LedgerError(f"{PDF_NAME}: {browser} failed: {line}") from error


def _print(page: Page, html: str, site: Path) -> bytes:
    wrong: list[str] = []

    def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        path = unquote(url.path).lstrip("/")
        if f"{url.scheme}://{url.netloc}" != ORIGIN:
            wrong.append(f"{route.request.url} is on another host")
            route.abort()
        elif path == "chapters/book.html":
            route.fulfill(body=html, content_type="text/html; charset=utf-8")
        elif (file := _served(site, path)) is not None:
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            route.fulfill(body=file.read_bytes(), content_type=kind)
        else:
            wrong.append(f"{path} is not in the site")
            route.abort()

    page.unroute_all()
    page.route("**/*", answer)
    page.goto(f"{ORIGIN}/chapters/book.html", wait_until="load")
    page.evaluate(READY)
    page.evaluate(FIT, [LEAST_PT, WHOLE_PX])
    wrong += [f"it is cut off at the edge: {name}" for name in page.evaluate(CLIPPED)]
    if wrong:
        raise LedgerError(f"{PDF_NAME}: " + "\n".join(sorted(set(wrong))))
    return page.pdf(prefer_css_page_size=True, print_background=True, tagged=True, outline=True)


def _served(site: Path, path: str) -> Path | None:
    if path.startswith("fonts/"):
        import matplotlib

        file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / path.removeprefix("fonts/")
    else:
        file = site / path
    return file if file.is_file() else None


def page_numbers(pdf: bytes) -> dict[str, int]:
    """Return the page, counted from 1, of every place that a link of the document leads to."""
    import pikepdf

    with pikepdf.open(io.BytesIO(pdf)) as document:
        number = {page.obj.objgen: index for index, page in enumerate(document.pages, start=1)}
        return {name: number[target[0].objgen] for name, target in _destinations(document).items()}


def _destinations(document: Any) -> dict[str, Any]:
    import pikepdf

    found: dict[str, Any] = {}
    dests = document.Root.get("/Dests")
    if dests is not None:
        found |= {unquote(str(key)[1:]): value for key, value in dests.items()}
    names = document.Root.get("/Names")
    if names is not None and "/Dests" in names:
        found |= {str(key): value for key, value in pikepdf.NameTree(names.Dests).items()}
    return found


# ---------------------------------------------------------------- the same each time


def finish(pdf: bytes, cover: Cover, moment: dt.datetime | None) -> bytes:
    """Give a printed PDF its title and author, and take out what differs from print to print."""
    import pikepdf

    with pikepdf.open(io.BytesIO(pdf)) as document:
        info = document.docinfo
        info["/Title"] = f"{cover.title} {cover.version}"
        info["/Author"] = cover.author
        info["/Creator"] = f"kvledger {cover.version}, source digest {cover.source_digest[:8]}"
        for name in ("/CreationDate", "/ModDate"):
            if moment is not None:
                info[name] = moment.strftime("D:%Y%m%d%H%M%S+00'00'")
            elif name in info:
                del info[name]
        document.Root.Lang = cover.language
        document.Root.ViewerPreferences = pikepdf.Dictionary(DisplayDocTitle=True)
        document.Root.PageMode = pikepdf.Name.UseOutlines
        result = io.BytesIO()
        document.save(
            result,
            deterministic_id=True,
            object_stream_mode=pikepdf.ObjectStreamMode.generate,
            compress_streams=True,
        )
        return result.getvalue()


def _count_pages(pdf: Path) -> int:
    import pikepdf

    with pikepdf.open(pdf) as document:
        return len(document.pages)


# ---------------------------------------------------------------- the offer


def _to(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


def offer_line(href: str, leaves: int, size_bytes: int) -> str:
    """Return the line of the first page that offers the PDF.

    Examples
    --------
    >>> offer_line("../kvledger.pdf", 96, 3 * 2**20)
    '<p class="kv-pdf"><a href="../kvledger.pdf">This book as a PDF</a> (96 pages, 3.0 MiB)</p>'
    """
    return (
        f'<p class="kv-pdf"><a href="{href}">This book as a PDF</a> '
        f"({leaves} pages, {size_bytes / 2**20:.1f} MiB)</p>"
    )


def offered(html: str, line: str) -> str:
    """Return a page with the offer below its title: in the place of an older one, if any.

    Examples
    --------
    >>> page = offered("<article><h1>A</h1><p>B</p></article>", '<p class="kv-pdf">C</p>')
    >>> page
    '<article><h1>A</h1>\\n<p class="kv-pdf">C</p><p>B</p></article>'
    >>> offered(page, "")
    '<article><h1>A</h1><p>B</p></article>'
    """
    bare = re.sub(r'\n<p class="kv-pdf">.*?</p>', "", html, flags=re.DOTALL)
    if not line:
        return bare
    article, heading = bare.find("<article"), 0
    heading = bare.find("</h1>", article) + len("</h1>")
    return f"{bare[:heading]}\n{line}{bare[heading:]}"


def _write_offer(page: Path, line: str) -> None:
    old = page.read_text(encoding="utf-8")
    new = offered(old, line)
    if new != old:
        write_whole(page, new.encode())
