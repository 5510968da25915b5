"""Chromium prints one HTML document into a tagged PDF, and pikepdf makes it the same each time."""

from __future__ import annotations

import datetime as dt
import io
import mimetypes
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from proofbook.errors import InputError
from proofbook.project import this_project

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

__all__ = [
    "ORIGIN",
    "destinations",
    "finish",
    "page_numbers",
    "pdf_name",
    "print_settled",
    "printer",
]


ASSETS = Path(__file__).resolve().parent.parent / "pages" / "assets"
#: Names under which Chromium is installed, after the one in the variable CHROMIUM.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Stands for the site while it is printed; no name server knows it.
ORIGIN = "http://book.invalid"
DOCUMENT = "chapters/book.html"
#: An upright page between its margins, in CSS pixels: A4 less 22 mm on each side, 46 mm in height.
PAGE_PX = (round((210 - 44) / 25.4 * 96), round((297 - 46) / 25.4 * 96))
#: The smallest type that a wide table may have.
LEAST_PT = 6.5
#: A table lower than half a page is not parted.
WHOLE_PX = 480
#: Numbers take the same room whatever they are, so that they hold from the second print on.
MOST_PRINTS = 4
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",
)
#: What a formula's words begin with in the document, so that it is tagged as one.
FORMULA = "formula: "


def pdf_name() -> str:
    """Return what the file of the printed book is called."""
    return f"{this_project().name}.pdf"


def find_chromium() -> str | None:
    """Return the path of Chromium, or None where there is none.

    Raises
    ------
    InputError
        If the variable CHROMIUM names something that cannot be run.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        path = shutil.which(named)
        if path is None:
            raise InputError(f"CHROMIUM is {named!r}, which cannot be run; accepted: a browser")
        return path
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def printer() -> tuple[str | None, str]:
    """Return the path of a browser that can print here; or None, and why there is none.

    Raises
    ------
    InputError
        If the variable CHROMIUM names something that cannot be run.
    """
    browser = find_chromium()
    if browser is None:
        return None, "Chromium was not found; install it, or set CHROMIUM to its path"
    if find_spec("playwright") is None:
        return None, "playwright is not installed"
    return browser, ""


# ---------------------------------------------------------------- printing


def print_settled(
    document: Callable[[Mapping[str, int]], str],
    site: Path,
    browser: str,
    numbers: Mapping[str, int],
) -> bytes:
    """Print a document until the page numbers that it names are those that it has.

    Parameters
    ----------
    document : callable
        Returns the document's HTML, given the page number of each place that a link leads to.
    site : Path
        The folder that its drawings and styles come from.
    browser : str
        Chromium's path.
    numbers : mapping of str to int
        The page numbers to begin with: none, or those of the last print, which mostly hold.

    Raises
    ------
    InputError
        If Chromium fails, asks for something that is not there, or content does not fit its page.
    """
    from playwright.sync_api import Error, sync_playwright

    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=[*FLAGS])
            try:
                page = chromium.new_page(viewport={"width": PAGE_PX[0], "height": PAGE_PX[1]})
                page.emulate_media(media="print", color_scheme="light")
                for _ in range(MOST_PRINTS):
                    printed = _print(page, document(numbers), site)
                    found = page_numbers(printed)
                    if found == numbers:
                        return printed
                    numbers = found
            finally:
                chromium.close()
    except Error as error:
        line = str(error).strip().splitlines()[0]
        raise InputError(f"the PDF could not be printed: {browser}: {line}") from error
    raise InputError(f"the PDF could not be printed: in {MOST_PRINTS} its page numbers moved")


def _print(page: Page, html: str, site: Path) -> bytes:
    wrong: list[str] = []

    def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        path = unquote(url.path).lstrip("/")
        file = _served(site, path)
        if f"{url.scheme}://{url.netloc}" != ORIGIN:
            wrong.append(f"it asks another host: {route.request.url}")
            route.abort()
        elif path == DOCUMENT:
            route.fulfill(body=html, content_type="text/html; charset=utf-8")
        elif file is None:
            wrong.append(f"it needs a file that is not in the book: {path}")
            route.abort()
        else:
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            route.fulfill(body=file.read_bytes(), content_type=kind)

    page.unroute_all()
    page.route("**/*", answer)
    page.goto(f"{ORIGIN}/{DOCUMENT}", wait_until="load")
    script = (ASSETS / "print-book.js").read_text(encoding="utf-8")
    page.evaluate(f"async () => {{ {script}; window.kvPrint = kvPrint; await kvPrint.ready(); }}")
    page.evaluate("(sizes) => kvPrint.fit(sizes)", [LEAST_PT, WHOLE_PX])
    cut = page.evaluate("(height) => kvPrint.clipped(height)", PAGE_PX[1])
    wrong += [f"it does not fit its page: {name}" for name in cut]
    if wrong:
        raise InputError("the PDF could not be printed: " + "\n".join(sorted(set(wrong))))
    return page.pdf(prefer_css_page_size=True, print_background=True, tagged=True, outline=True)


def _served(site: Path, path: str) -> Path | None:
    """Return the file of an address: of the pages, or a font that comes with matplotlib."""
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
        return {name: number[place[0].objgen] for name, place in destinations(document).items()}


def destinations(document: Any) -> dict[str, Any]:
    """Return the named places of an open PDF: by name, the page and the place on it."""
    places = document.Root.get("/Dests")
    return {} if places is None else {unquote(str(key)[1:]): at for key, at in places.items()}


# ---------------------------------------------------------------- the same each time


def finish(
    pdf: bytes,
    *,
    title: str,
    author: str,
    creator: str,
    licence: str,
    language: str,
    moment: dt.datetime,
) -> bytes:
    """Say what a printed PDF is, mend its tags, and take out what differs from print to print.

    Parameters
    ----------
    pdf : bytes
        What Chromium printed.
    title, author, creator, licence, language : str
        What the file says of itself; nothing of an empty author or licence.
    moment : datetime
        The date that it bears.
    """
    import pikepdf

    with pikepdf.open(io.BytesIO(pdf)) as document:
        info = document.docinfo
        info["/Title"], info["/Creator"] = title, creator
        if author:
            info["/Author"] = author
        for name in ("/CreationDate", "/ModDate"):
            info[name] = moment.strftime("D:%Y%m%d%H%M%S+00'00'")
        with document.open_metadata(set_pikepdf_as_editor=False, update_docinfo=False) as metadata:
            metadata["dc:title"] = title
            metadata["dc:language"] = {language}
            if author:
                metadata["dc:creator"] = [author]
            if licence:
                metadata["dc:rights"] = licence
            metadata["xmp:CreatorTool"] = creator
            metadata["xmp:CreateDate"] = metadata["xmp:ModifyDate"] = moment.isoformat()
        root = document.Root
        root.Lang = pikepdf.String(language)
        root.ViewerPreferences = pikepdf.Dictionary(DisplayDocTitle=True)
        root.PageMode = pikepdf.Name.UseOutlines
        _mend_tags(root.StructTreeRoot)
        _count_cells(root.StructTreeRoot)
        result = io.BytesIO()
        document.save(
            result,
            deterministic_id=True,
            object_stream_mode=pikepdf.ObjectStreamMode.generate,
            recompress_flate=True,
        )
        return result.getvalue()


def _mend_tags(tree: Any) -> None:
    """Tag formulas as such, and as a figure only what has words of its own.

    Chromium also tags the frame around a drawing and its caption as a figure, one without words;
    and it uses tags of PDF 2.0, which older readers have to be told the meaning of.
    """
    import pikepdf

    for element in elements(tree):
        if element.get("/S") != "/Figure":
            continue
        words = str(element.get("/Alt", ""))
        if words.startswith(FORMULA):
            element.S = pikepdf.Name.Formula
            element.Alt = pikepdf.String(words.removeprefix(FORMULA))
        elif not words:
            element.S = pikepdf.Name.Div
    tree.RoleMap = pikepdf.Dictionary(Em=pikepdf.Name.Span, Strong=pikepdf.Name.Span)


def _count_cells(tree: Any) -> None:
    """Name the cells that others name as their headers by their order in the document.

    Chromium names them by a count of all that the browser has laid out so far, which differs by
    one or two on a busy machine.
    """
    import pikepdf

    cells = [(element, f"cell{index:06}") for index, element in enumerate(elements(tree))]
    cells = [(element, name) for element, name in cells if "/ID" in element]
    names = {str(element.ID): name for element, name in cells}
    for element, name in cells:
        element.ID = pikepdf.String(name)
    for element in elements(tree):
        for attributes in element.get("/A", ()):
            if "/Headers" in attributes:
                headers = [names[str(header)] for header in attributes.Headers]
                attributes.Headers = pikepdf.Array(map(pikepdf.String, headers))
    if cells:
        found = [part for element, name in cells for part in (pikepdf.String(name), element)]
        tree.IDTree = pikepdf.Dictionary(Names=pikepdf.Array(found))


def elements(tree: Any) -> Iterator[Any]:
    """Yield every element below an element of a PDF's structure, parents before their children."""
    import pikepdf

    waiting = [tree]
    while waiting:
        element = waiting.pop()
        if not isinstance(element, pikepdf.Dictionary | pikepdf.Array):
            continue
        if isinstance(element, pikepdf.Array):
            waiting += reversed(list(element))
            continue
        yield element
        if "/K" in element:
            waiting.append(element["/K"])
