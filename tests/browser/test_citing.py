"""Citations: what a page copies parses, leads to its place, and is what the command prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Locator
from pybtex.database import Entry as BibEntry
from pybtex.database import parse_string

from browser.driver import ROOT, Visit, pages_of_the_book, visiting
from browser.whole import has_id
from kvledger import __version__
from proofbook.catalogue import Catalogue, Entry, read_catalogue
from proofbook.catalogue import citations as citing

CLIPBOARD = ["clipboard-read", "clipboard-write"]


@pytest.fixture(scope="module")
def copying(browser: Browser, built_book: Path) -> Iterator[Visit]:
    with visiting(browser, built_book, permissions=CLIPBOARD) as visit:
        yield visit


@pytest.fixture(scope="module")
def catalogue(built_book: Path) -> Catalogue:
    return read_catalogue(built_book)


def base_url() -> str:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return str((config.get("html") or {}).get("baseurl") or "")


def copied(visit: Visit, button: Locator) -> str:
    """Press a button with the keyboard, and read what it put on the clipboard."""
    page = visit.page
    page.evaluate("() => navigator.clipboard.writeText('nothing was copied')")
    button.focus()
    page.keyboard.press("Enter")
    for _ in range(40):
        text: str = page.evaluate("() => navigator.clipboard.readText()")
        if text != "nothing was copied":
            return text
        page.wait_for_timeout(25)
    return text


def parsed(bibtex: str) -> tuple[str, BibEntry]:
    found = parse_string(bibtex, "bibtex").entries
    assert len(found) == 1, bibtex
    return next(iter(found.items()))


def wrong_citation(bibtex: str, entry: Entry, folder: Path) -> list[str]:
    """What a BibTeX entry lacks to lead back to what it cites."""
    key, fields = parsed(bibtex)
    note, url = fields.fields["note"], fields.fields["url"]
    path, _, anchor = url.removeprefix(base_url()).partition("#")
    wrong = []
    if key != f"kvledger-{entry.id}":
        wrong.append(f"its key is {key}")
    if fields.fields["version"] != __version__ or f"kvledger {__version__}" not in note:
        wrong.append("it does not say the version")
    if entry.id not in note.replace("\\", ""):
        wrong.append("its note does not say the id")
    if f"data digest {entry.digest[:8]}" not in note:
        wrong.append("its note does not say the digest")
    if entry.kind not in note:
        wrong.append("its note does not say the kind")
    if not (folder / path).is_file():
        wrong.append(f"{path} is no page")
    elif not has_id(folder / path, anchor):
        wrong.append(f"{path} has no place {anchor!r}")
    return wrong


@pytest.mark.parametrize("path", [p for p in pages_of_the_book() if p.startswith("chapters/")])
def test_what_a_page_copies_of_its_figures_and_tables(
    copying: Visit, catalogue: Catalogue, built_book: Path, path: str
) -> None:
    copying.open(path)
    shown = [
        entry
        for entry in catalogue.entries.values()
        if f"{entry.page}.html" == path and entry.what != "number"
    ]
    wrong = []
    for entry in shown:
        line = copying.page.locator(f".kv-line:has(.kv-downloads code:text-is('{entry.id}'))")
        cite = line.locator("details.kv-cite")
        cite.locator("summary").click()
        buttons = cite.locator("button")
        assert buttons.count() == 2, entry.id
        bibtex, plain = (copied(copying, buttons.nth(index)) for index in range(2))
        wrong += [f"{entry.id}: {what}" for what in wrong_citation(bibtex, entry, built_book)]
        if bibtex != citing.bibtex(entry, catalogue, base_url()):
            wrong.append(f"{entry.id}: BibTeX copied: {bibtex}")
        if plain != citing.plain(entry, catalogue, base_url()):
            wrong.append(f"{entry.id}: text copied: {plain}")
        folder = built_book / f"{entry.what}s"
        if (folder / f"{entry.id}.bib").read_text(encoding="utf-8") != bibtex:
            wrong.append(f"{entry.id}: its file says something else")
        data = (folder / f"{entry.id}.csv").read_bytes()
        if sha256(data).hexdigest() != entry.digest:
            wrong.append(f"{entry.id}: the digest is not that of its CSV file")
    assert not wrong, "\n".join(wrong)


def test_every_number_has_a_citation_that_leads_to_it(
    catalogue: Catalogue, built_book: Path
) -> None:
    wrong = [
        f"{entry.id}: {what}"
        for entry in catalogue.entries.values()
        for what in wrong_citation(citing.bibtex(entry, catalogue, base_url()), entry, built_book)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((r"@misc\{kvledger-", "@misc{other-"), "its key is other-"),
        ((r"version = \{[^}]*\}", "version = {0}"), "it does not say the version"),
        ((r"data digest \w+", "data digest 00000000"), "its note does not say the digest"),
        ((r"(url .*#)[^}]*", r"\1nowhere"), "has no place 'nowhere'"),
        ((r"(url .*\{)[^#]*", r"\1chapters/none.html"), "chapters/none.html is no page"),
        ((r", computed\}", "}"), "its note does not say the kind"),
        ((r"(figure|table) [\w-]+,", "it,"), "its note does not say the id"),
    ],
)
def test_a_wrong_citation_is_caught(
    catalogue: Catalogue, built_book: Path, change: tuple[str, str], says: str
) -> None:
    entry = next(
        each
        for each in catalogue.entries.values()
        if each.what == "figure" and each.kind == "computed"
    )
    bibtex = citing.bibtex(entry, catalogue, base_url())
    assert wrong_citation(bibtex, entry, built_book) == []
    changed, times = re.subn(*change, bibtex)
    assert times == 1, bibtex
    assert any(says in what for what in wrong_citation(changed, entry, built_book))
