r"""The book as one PDF, made of the finished pages and offered on the first of them.

What is printed comes from the pages, from this package, and from fonts that a pinned dependency
brings. The dates in it are those of the sources: ``SOURCE_DATE_EPOCH``, or the latest check.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proofbook.build.one_page import Chapter, Cover, assemble, book_plan
from proofbook.build.printing import (
    ORIGIN,
    finish,
    page_numbers,
    pdf_name,
    print_settled,
    printer,
)
from proofbook.catalogue.check_records import DIGESTS_FILE, Check, made_date, read_checks
from proofbook.contents import base_url, settings
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.pages.number_roles import DOTTED, KINDS
from proofbook.pages.page_places import cache_folder
from proofbook.pages.page_stamps import commit_words, counted
from proofbook.project import source_digest, this_project

__all__ = ["checked_words", "make_pdf", "offered", "pdf_name"]

STYLES = ("_static/pygments.css", "_static/print-book.css")
#: What a print depends on beside the document and the files that it names.
MADE_BY = (
    "build/pdf.py",
    "build/printing.py",
    "pages/assets/print-book.js",
    "pages/assets/print-book.css",
)


def make_pdf(root: Path, site: Path, kept: Path) -> str:
    """Print the finished pages into the PDF of the site, and offer it on the first page.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.
    site : Path
        The finished pages; the PDF is added to them.
    kept : Path
        A folder for the last PDF, which is used again while nothing that it shows has changed.

    Returns
    -------
    str
        One line for the person who builds: what was made, or why nothing was.

    Raises
    ------
    InputError
        If a link of the book leads nowhere, content does not fit its page, or printing fails.
    """
    import yaml

    config = settings(root)
    plan = book_plan(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))
    first = site / f"{plan[0].name}.html"
    browser, reason = printer()
    if browser is None:
        (site / pdf_name()).unlink(missing_ok=True)
        _write_offer(first, "")
        return f"no {pdf_name()}: {reason}"
    moment = made_date(root)
    cover = cover_of(config, checked_words(root))
    pages, titles = _read_pages(site, plan), _figure_titles(site)

    document = assemble(
        pages,
        plan,
        cover,
        styles=[f"{ORIGIN}/{name}" for name in STYLES],
        marks=_marks(),
        titles=titles,
        base_url=base_url(root),
    )
    state = _state(document.html({}), site, browser, moment)
    pdf, note = kept / pdf_name(), kept / "state"
    if not (pdf.is_file() and note.is_file() and note.read_text(encoding="utf-8") == state):
        numbers = page_numbers(pdf.read_bytes()) if note.is_file() else {}
        printed = print_settled(document.html, site, browser, numbers)
        kept.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        content = finish(
            printed,
            title=f"{cover.title} {cover.version}",
            author=cover.author,
            creator=(
                f"{this_project().name} {cover.version}, source digest {cover.source_digest[:8]}"
            ),
            licence=cover.licence,
            language=cover.language,
            moment=moment,
        )
        write_whole(pdf, content)
        write_whole(note, state.encode())
    shutil.copyfile(pdf, site / pdf_name())
    leaves, size_bytes = _count_pages(pdf), pdf.stat().st_size
    href = Path(os.path.relpath(site / pdf_name(), first.parent)).as_posix()
    _write_offer(first, offer(href, leaves, size_bytes))
    return f"{pdf_name()}: {leaves} pages, {size_bytes / 2**20:.1f} MiB"


def _read_pages(site: Path, plan: list[Chapter]) -> dict[str, str]:
    found = {}
    for chapter in plan:
        path = site / f"{chapter.name}.html"
        if not path.is_file():
            raise InputError(f"no page {chapter.name}.html, which the table of contents lists")
        found[chapter.name] = path.read_text(encoding="utf-8")
    return found


def _figure_titles(site: Path) -> dict[str, str]:
    """Return what each figure says, from the catalogue of the site, where it has one."""
    path = site / "figures.json"
    if not path.is_file():
        return {}
    listed = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return {figure["id"]: figure["text"] for figure in listed}


def _state(html: str, site: Path, browser: str, moment: dt.datetime) -> str:
    """Return a digest of all that the PDF shows and of what prints it."""
    program = Path(browser).stat()
    digest = hashlib.sha256(f"{html}\0{moment}\0{program.st_size} {program.st_mtime_ns}".encode())
    for name in MADE_BY:
        digest.update((Path(__file__).parent.parent / name).read_bytes())
    for source in sorted({*re.findall(r'(?:src|href)="([^"#]+)"', html)}):
        path = site / source.removeprefix(f"{ORIGIN}/").removeprefix("../")
        if path.is_file():
            digest.update(source.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _count_pages(pdf: Path) -> int:
    import pikepdf

    with pikepdf.open(pdf) as document:
        return len(document.pages)


# ---------------------------------------------------------------- what it says of itself


def cover_of(config: Mapping[str, Any], checked: str) -> Cover:
    """Return what the first leaf says, from the book's own settings."""
    sphinx = (config.get("sphinx") or {}).get("config") or {}
    return Cover(
        title=str(config.get("title") or "The book"),
        author=str(config.get("author") or ""),
        language=str(sphinx.get("language") or "en"),
        version=this_project().version,
        source_digest=source_digest(),
        licence=str(config.get("copyright") or ""),
        checked=checked,
        year=this_project().year,
    )


def _marks() -> dict[str, str]:
    """Return how each kind of number is marked, as HTML, and what that means."""
    signs = {
        kind: f'raised <span class="kv-{kind}"><sup class="kv-mark">{mark}</sup></span>'
        for kind, (mark, _) in KINDS.items()
        if mark
    }
    return {signs.get(kind, DOTTED): meaning for kind, (_, meaning) in KINDS.items()}


def checked_words(root: Path) -> str:
    """Say when the numbers of the book were last run again and compared, from the record of that.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.

    Raises
    ------
    InputError
        If the record cannot be read.
    """
    checks = read_checks(root)
    try:
        shown = json.loads((cache_folder(root) / DIGESTS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        shown = {}  # not made by this project's build: then nothing is known to be checked
    digest = source_digest()
    held = {
        page: checks[page]
        for page, digest_shown in shown.items()
        if page in checks and checks[page].state(digest_shown, digest) == "current"
    }
    if not held:
        return "Not checked yet, or not since it changed."
    if len(held) < len(shown):
        return (
            f"{len(held)} of {len(shown)} chapters with numbers were checked as they are; "
            "the others not, or not since they changed."
        )
    return _all_checked(held)


def _all_checked(held: Mapping[str, Check]) -> str:
    total = counted(
        {
            "number": sum(check.numbers for check in held.values()),
            "table": sum(check.tables for check in held.values()),
            "figure": sum(check.figures for check in held.values()),
        }
    )
    oldest = min(held.values(), key=lambda check: check.date)
    commit = re.sub("<[^>]*>", "", commit_words(oldest))
    return (
        f"{total} were run again and compared, the longest ago on {oldest.date.isoformat()}, "
        f"{commit}, with Python {oldest.versions['python']}, "
        f"data digest {oldest.data_digest[:8]}."
    )


# ---------------------------------------------------------------- the offer


def offer(href: str, leaves: int, size_bytes: int) -> str:
    """Return the line of the first page that offers the PDF.

    Examples
    --------
    >>> offer("../kvledger.pdf", 96, 3 * 2**20)
    '<p class="kv-pdf"><a href="../kvledger.pdf">This book as a PDF</a> (96 pages, 3.0 MiB)</p>'
    """
    return (
        f'<p class="kv-pdf"><a href="{href}">This book as a PDF</a> '
        f"({leaves} pages, {size_bytes / 2**20:.1f} MiB)</p>"
    )


def offered(html: str, line: str) -> str:
    r"""Return a page with the offer below its title: in the place of an older one, if any.

    Examples
    --------
    >>> page = offered("<article><h1>A</h1><p>B</p></article>", '<p class="kv-pdf">C</p>')
    >>> page
    '<article><h1>A</h1>\n<p class="kv-pdf">C</p><p>B</p></article>'
    >>> offered(page, "")
    '<article><h1>A</h1><p>B</p></article>'
    """
    bare = re.sub(r'\n<p class="kv-pdf">.*?</p>', "", html, flags=re.DOTALL)
    end = bare.find("</h1>", max(bare.find("<article"), 0))
    if not line or end < 0:
        return bare
    end += len("</h1>")
    return f"{bare[:end]}\n{line}{bare[end:]}"


def _write_offer(page: Path, line: str) -> None:
    old = page.read_text(encoding="utf-8")
    new = offered(old, line)
    if new != old:
        write_whole(page, new.encode())
