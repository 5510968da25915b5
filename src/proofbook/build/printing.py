"""The book as one PDF: Chromium prints the finished pages, pikepdf makes it the same each time.

What is printed comes from the pages, from this package, and from fonts that a pinned dependency
brings. The dates in it are those of the sources: ``SOURCE_DATE_EPOCH``, or the latest check.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from proofbook.catalogue.check_records import made_date
from proofbook.contents import base_url, settings
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import source_digest, this_project

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from proofbook.build.one_page import Cover

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
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--font-render-hinting=none"),
)


def pdf_name() -> str:
    """Return what the file of the printed book is called."""
    return f"{this_project().name}.pdf"


def printer() -> tuple[str | None, str]:
    """Return the path of a browser that can print here; or None, and why there is none.

    It is an InputError if the variable CHROMIUM names something that cannot be run.
    """
    named = os.environ.get("CHROMIUM")
    browser = next(filter(None, map(shutil.which, [named] if named else BROWSERS)), None)
    if named and browser is None:
        raise InputError(f"CHROMIUM is {named!r}, which cannot be run; accepted: a browser")
    if browser is None:
        return None, "Chromium was not found; install it, or set CHROMIUM to its path"
    if find_spec("playwright") is None:
        return None, "playwright is not installed"
    return browser, ""


def print_settled(
    document: Callable[[Mapping[str, int]], str],
    site: Path,
    browser: str,
    numbers: Mapping[str, int],
) -> bytes:
    """Print a document until the page numbers that it names are those that it has.

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
    import matplotlib

    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    wrong: list[str] = []

    def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        path = unquote(url.path).lstrip("/")
        font = path.removeprefix("fonts/")
        file = site / path if font == path else fonts / font
        if f"{url.scheme}://{url.netloc}" != ORIGIN:
            wrong.append(f"it asks another host: {route.request.url}")
            route.abort()
        elif path == DOCUMENT:
            route.fulfill(body=html, content_type="text/html; charset=utf-8")
        elif not file.is_file():
            wrong.append(f"it needs a file that is not in the book: {path}")
            route.abort()
        else:
            route.fulfill(path=file)

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


def finish(pdf: bytes, cover: Cover, moment: dt.datetime) -> bytes:
    """Say what a printed PDF is, mend its tags, and take out what differs from print to print."""
    import pikepdf

    creator = f"{this_project().name} {cover.version}, source digest {cover.source_digest[:8]}"
    with pikepdf.open(io.BytesIO(pdf)) as document:
        with document.open_metadata(set_pikepdf_as_editor=False) as about:
            about["dc:title"] = f"{cover.title} {cover.version}"
            about["dc:language"] = {cover.language}
            if cover.author:
                about["dc:creator"] = [cover.author]
            if cover.licence:
                about["dc:rights"] = cover.licence
            about["xmp:CreatorTool"] = creator
            about["xmp:CreateDate"] = about["xmp:ModifyDate"] = moment.isoformat()
        root = document.Root
        root.Lang = pikepdf.String(cover.language)
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
    """Tag formulas as such, as a figure only what has words, and all as older readers know it."""
    # Chromium also tags the frame around a drawing and its caption, and uses tags of PDF 2.0.
    import pikepdf

    from proofbook.build.one_page import FORMULA

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
    """Name header cells by their order: Chromium's own count differs when a machine is busy."""
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
        if isinstance(element, pikepdf.Array):
            waiting += reversed(list(element))
        elif isinstance(element, pikepdf.Dictionary):
            yield element
            waiting += [element["/K"]] if "/K" in element else []


def make_pdf(root: Path, site: Path, shown: Path) -> str:
    """Print the finished pages into the PDF of the site, and offer it on the first page.

    Returns one line for the person who builds: what was made, or why nothing was.

    Parameters
    ----------
    root, site : Path
        The folder that holds ``_toc.yml``, and the finished pages, which the PDF joins.
    shown : Path
        The finished pages before these, if any: where their page numbers hold, one print is enough.

    Raises
    ------
    InputError
        If a link of the book leads nowhere, content does not fit its page, or printing fails.
    """
    import pikepdf
    import yaml

    from proofbook.build.one_page import Cover, assemble, book_plan

    plan = book_plan(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))
    first, name = site / f"{plan[0].name}.html", pdf_name()
    browser, reason = printer()
    if browser is None:
        (site / name).unlink(missing_ok=True)
        _offer(first, "")
        return f"no {name}: {reason}"
    config = settings(root)
    sphinx = (config.get("sphinx") or {}).get("config") or {}
    cover = Cover(
        title=str(config.get("title") or "The book"),
        author=str(config.get("author") or ""),
        language=str(sphinx.get("language") or "en"),
        version=this_project().version,
        source_digest=source_digest(),
        licence=str(config.get("copyright") or ""),
        checked=checked_words(root),
        year=this_project().year,
    )
    files = {chapter.name: site / f"{chapter.name}.html" for chapter in plan}
    pages = {c: path.read_text(encoding="utf-8") for c, path in files.items() if path.is_file()}
    listing = json.loads((site / "figures.json").read_text(encoding="utf-8"))
    document = assemble(
        pages,
        plan,
        cover,
        titles={figure["id"]: figure["text"] for figure in listing["figures"]},
        base_url=base_url(root),
    )
    last = shown / name
    numbers = page_numbers(last.read_bytes()) if last.is_file() else {}
    pdf = finish(print_settled(document, site, browser, numbers), cover, made_date(root))
    write_whole(site / name, pdf)
    with pikepdf.open(io.BytesIO(pdf)) as printed_book:
        leaves = len(printed_book.pages)
    size = f"{leaves} pages, {len(pdf) / 2**20:.1f} MiB"
    href = Path(os.path.relpath(site / name, first.parent)).as_posix()
    link = f'<a href="{href}">This book as a PDF</a>'
    _offer(first, f'<p class="kv-pdf">{link} ({size})</p>')
    return f"{name}: {size}"


def checked_words(root: Path) -> str:
    """Say when the numbers of a book were last run again and compared, from the record of that."""
    from proofbook.pages.addresses import cache_folder
    from proofbook.pages.page_checks import amounts, checked, commit_words, shown_counts

    known = checked(root, cache_folder(root))
    held = [known.checks[page] for page in known.digests if known.state(page) == "current"]
    if not held:
        return "Not checked yet, or not since it changed."
    if len(held) < len(known.digests):
        return (
            f"{len(held)} of {len(known.digests)} chapters with numbers were checked as they are; "
            "the others not, or not since they changed."
        )
    oldest = min(held, key=lambda check: check.date)
    commit = re.sub("<[^>]*>", "", commit_words(oldest))
    return (
        f"{amounts(shown_counts(held))} were run again and compared, the longest ago on "
        f"{oldest.date.isoformat()}, {commit}, with Python {oldest.versions['python']}, "
        f"data digest {oldest.data_digest[:8]}."
    )


def _offer(page: Path, line: str) -> None:
    """Write the offer below a page's title, in the place of an older one, if any."""
    html = page.read_text(encoding="utf-8")
    html = re.sub(r'\n<p class="kv-pdf">.*?</p>', "", html, flags=re.DOTALL)
    end = html.find("</h1>", max(html.find("<article"), 0)) + len("</h1>")
    if line and end >= len("</h1>"):
        html = f"{html[:end]}\n{line}{html[end:]}"
    write_whole(page, html.encode())
