"""All finished pages of the book as one HTML document, to be printed.

Sphinx has a builder for that, ``singlehtml``, but it writes the book anew: it keeps ids that
several chapters have ("summary"), links to chapters by anchors that it does not write, and counts
figures and sections in tables of its own. Here the pages are taken as they were finished, so that
every number, figure number and reference is the one that the page shows, and each id and link is
made to work in the whole.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from proofbook.errors import InputError
from proofbook.pages.mathematics import in_words

#: What a formula's words begin with in the document, so that it is tagged as one.
FORMULA = "formula: "
#: Pages that paper does not serve, with what is said in their place. Their opening stays.
LEFT_OUT: Mapping[str, str] = {
    "chapters/explorer": "The explorer computes in the browser from what its reader enters.",
    "chapters/api": "The reference of every function is for the screen.",
    "chapters/figures": "The figures stand in their chapters and are listed at the front; the "
    "files of each are with the pages.",
    "chapters/numbers": "The numbers stand in their chapters; the list of all of them is with the "
    "pages, and as numbers.json.",
}
#: What only a screen has a use for.
SCREEN_ONLY = (
    "script, style, link, button, form, template, .headerlink, .only-dark, .kv-line, "
    ".kv-downloads, .kv-popup, .kv-legend, .kv-checked, .kv-stamp, .kv-pdf, .kv-unseen, "
    ".toctree-wrapper"
)
#: Attributes that only a mouse, a keyboard or a screen reader's live page has a use for.
SCREEN_ATTRIBUTES = ("tabindex", "title", "loading", "download", "aria-describedby", "accesskey")
#: Attributes that name ids of the page.
ID_ATTRIBUTES = ("for", "headers", "aria-labelledby", "aria-controls", "aria-details", "aria-owns")
#: Link texts that say where they lead, so that paper need not repeat it.
SAYS_WHERE = re.compile(r"^(arXiv|doi|ISBN):", re.IGNORECASE)


#: Parts, chapters and sections are in the table of contents; the outline has what is below, too.
CONTENTS_LEVELS = 3

LONG_NAME = re.compile(r"[\w./#-]{12,}")
JOINT = re.compile(r"(?<=[a-z0-9][._/])(?=[a-zA-Z_]\w)|(?<=[a-zA-Z0-9]_)(?=[0-9a-z])")


class Heading(NamedTuple):
    """One line of the table of contents, and of the PDF's outline."""

    level: int
    text: str
    target: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """One page of the book, in the order of its table of contents."""

    name: str
    level: int
    part: str | None


@dataclass(frozen=True, slots=True)
class Cover:
    """What the first leaf says: all of it text."""

    title: str
    author: str
    language: str
    version: str
    source_digest: str
    licence: str
    checked: str
    year: str


@dataclass(frozen=True, slots=True)
class OnePage:
    """The whole book as one document, whose contents lack their page numbers.

    Attributes
    ----------
    headings, figures : tuple of Heading
        What its two lists name, in order: parts, chapters and sections; and figures.
    opening, body : str
        The HTML before these lists and after them. Links lead into the document or to the web.
    """

    headings: tuple[Heading, ...]
    figures: tuple[Heading, ...]
    opening: str
    body: str

    def html(self, page_of: Mapping[str, int]) -> str:
        """Return the document, with the leaf of each id that `page_of` knows in its lists."""
        lists = _contents(self.headings, page_of, "Contents")
        if self.figures:
            lists += "\n" + _contents(self.figures, page_of, "Figures")
        return f"{self.opening}\n{lists}\n{self.body}"


def book_plan(toc: Mapping[str, Any]) -> list[Chapter]:
    """Return the chapters that a table of contents lists, with their part and level.

    Parameters
    ----------
    toc : mapping
        What ``_toc.yml`` holds, in the jb-book format.

    Examples
    --------
    >>> toc = {"root": "index", "parts": [{"caption": "One", "chapters": [{"file": "a"}]}]}
    >>> [(chapter.name, chapter.level, chapter.part) for chapter in book_plan(toc)]
    [('index', 1, None), ('a', 2, 'One')]
    """
    found = [Chapter(str(toc["root"]), 1, None)]

    def add(entries: Sequence[Mapping[str, Any]], level: int, part: str | None) -> None:
        for entry in entries:
            if "file" in entry:
                found.append(Chapter(str(entry["file"]), level, part))
                add(entry.get("sections", ()), level + 1, part)

    for part in toc.get("parts", ()):
        caption = part.get("caption")
        add(part.get("chapters", ()), 2 if caption else 1, caption)
    add(toc.get("chapters", ()), 1, None)
    return found


# ---------------------------------------------------------------- ids and links


def _ids(article: Tag) -> Iterator[Tag]:
    if article.get("id"):
        yield article
    yield from article.find_all(id=True)


def _stem(name: str) -> str:
    return posixpath.basename(name)


def _new_ids(articles: Mapping[str, Tag]) -> dict[tuple[str, str], str]:
    """Give every id of every page one that is its own in the whole book.

    An id that one page alone has, such as a figure's, stays as it is; others take the page's name.
    """
    pages_of: dict[str, list[str]] = {}
    for page, article in articles.items():
        for tag in _ids(article):
            pages_of.setdefault(str(tag["id"]), []).append(page)
    reserved = {_stem(page) for page in articles}
    new = {}
    for old, pages in pages_of.items():
        alone = len(pages) == 1 and old not in reserved
        for page in pages:
            new[page, old] = old if alone else f"{_stem(page)}--{old}"
    return new


def _rename(page: str, article: Tag, new: Mapping[tuple[str, str], str]) -> None:
    for tag in list(_ids(article)):
        tag["id"] = new[page, str(tag["id"])]
    for attribute in ID_ATTRIBUTES:
        for tag in article.select(f"[{attribute}]"):
            names = str(tag[attribute]).split()
            tag[attribute] = " ".join(new.get((page, name), name) for name in names)


def _relink(
    page: str,
    article: Tag,
    places: Mapping[str, set[str]],
    new: Mapping[tuple[str, str], str],
    base_url: str,
) -> None:
    """Make every link lead into the document or to the web; others become plain text.

    Raises
    ------
    InputError
        If a link names a place that its page does not have.
    """
    for link in article.find_all("a"):
        href = str(link.get("href") or "")
        if not href:
            link.unwrap()
            continue
        parts = urlsplit(href)
        if parts.scheme in {"http", "https", "mailto"}:
            _show_target(link, href)
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), parts.path))
        target = page if not parts.path else path.removesuffix(".html")
        if target in places:
            if parts.fragment and parts.fragment not in places[target]:
                raise InputError(f"{page}.html links to {href!r}, but there is no such place")
            # What a page has and paper has not, such as a cell of code, is where its chapter is.
            link["href"] = "#" + new.get((target, parts.fragment), _stem(target))
        elif base_url and not parts.scheme:
            link["href"] = posixpath.join(base_url, path)
        else:
            link.unwrap()


def _show_target(link: Tag, href: str) -> None:
    text = link.get_text().strip()
    if SAYS_WHERE.match(text) or text.rstrip("/") in href or not text:
        return
    span = Tag(name="span", attrs={"class": "kvp-url"})
    span.string = f" ({href})"
    link.append(span)


# ---------------------------------------------------------------- one page


def _article(page: str, text: str) -> Tag:
    soup = BeautifulSoup(text, "html.parser")
    article = soup.find("article")
    if not isinstance(article, Tag):
        raise InputError(f"{page}.html has no <article>; it is no page of this book")
    return article


def _strip(article: Tag) -> None:
    """Leave out what only a screen has a use for, and put words where it had none."""
    for line in article.select(".kv-line"):
        if line.find_parent("figure") is None:
            line.insert_before(*_table_id(line))
    for tag in article.select(SCREEN_ONLY):
        tag.decompose()
    for number in article.select("a.kv-number"):
        number.name = "span"
        number.attrs = {key: number[key] for key in ("id", "class") if key in number.attrs}
    for formula in article.find_all("math"):
        formula["role"], formula["aria-label"] = "img", FORMULA + in_words(formula)
    for cell in article.select("div.cell"):
        _strip_cell(cell)
    for details in article.find_all("details"):
        for summary in details.find_all("summary", recursive=False):
            summary.decompose()
        details.name = "div"
    for box in article.select(".kv-scroll"):
        box.attrs = {"class": "kv-scroll"}
    for cell in article.select("td:not(.kv-num), th:not(.kv-num)"):
        _let_break(cell)
    for tag in article.find_all(True):
        for attribute in SCREEN_ATTRIBUTES:
            if attribute in tag.attrs:
                del tag[attribute]
        if tag.name == "img":
            tag.attrs.pop("style", None)


def _let_break(cell: Tag) -> None:
    """Let long names in a table break at their own joints, so that wide tables fit their page."""
    for text in list(cell.find_all(string=LONG_NAME)):
        pieces = JOINT.sub("\0", str(text)).split("\0")
        for piece in pieces[:-1]:
            text.insert_before(piece, Tag(name="wbr", can_be_empty_element=True))
        text.replace_with(pieces[-1])


def _table_id(line: Tag) -> list[Tag]:
    """Return the line that lets a printed table be cited: a figure has its own within it."""
    name, digest = line.select_one(".kv-downloads code"), line.select_one(".kv-digest")
    if name is None or digest is None:
        return []
    shown = Tag(name="p", attrs={"class": "kvp-id"})
    shown.string = f"{name.get_text()} · data {digest.get_text()[:8]}"
    return [shown]


def _strip_cell(cell: Tag) -> None:
    """Keep a cell's code where its result is text that answers it; else the result alone."""
    folded = "tag_hide-input" in cell.get_attribute_list("class")
    answers = cell.select_one(".cell_output .output.text_plain, .cell_output .output.stream")
    if folded or answers is None:
        for code in cell.select(".cell_input"):
            (code.find_parent("details") or code).decompose()
    if not cell.get_text(strip=True) and cell.find("img") is None:
        cell.decompose()


def _shift_headings(article: Tag, by: int) -> None:
    for tag in article.find_all(re.compile(r"^h[1-6]$")):
        tag.name = f"h{min(int(tag.name[1]) + by, 6)}"


def _left_out(article: Tag, page: str) -> Tag:
    """Return a page that is left out: its title, its first paragraph, and why it is left out."""
    soup = BeautifulSoup("<article></article>", "html.parser")
    short = soup.article
    assert short is not None
    heading = article.find("h1")
    first = heading.find_next_sibling("p") if isinstance(heading, Tag) else None
    for tag in (heading, first):
        if isinstance(tag, Tag):
            short.append(tag.extract())
    note = soup.new_tag("p", attrs={"class": "kvp-left-out"})
    note.string = (
        f"{LEFT_OUT[page]} That page is not printed: open {page}.html of the book in a browser."
    )
    short.append(note)
    return short


def _headings(article: Tag, chapter: Chapter) -> Iterator[Heading]:
    for tag in article.find_all(re.compile(r"^h[1-6]$")):
        level = int(tag.name[1])
        if level == chapter.level:
            target = _stem(chapter.name)
        else:
            holder = tag if tag.get("id") else tag.find_parent(id=True)
            target = str(holder["id"]) if isinstance(holder, Tag) else _stem(chapter.name)
        yield Heading(level, " ".join(tag.get_text().split()), target)


# ---------------------------------------------------------------- the document


def assemble(
    pages: Mapping[str, str],
    plan: Sequence[Chapter],
    cover: Cover,
    *,
    styles: Sequence[str],
    marks: Mapping[str, str],
    titles: Mapping[str, str] | None = None,
    base_url: str = "",
) -> OnePage:
    """Put the finished pages of a book into one document.

    Parameters
    ----------
    pages : mapping of str to str
        The HTML of each page by its name, such as ``chapters/index``.
    plan : sequence of Chapter
        The order of the pages.
    cover : Cover
        What the first leaf says.
    styles : sequence of str
        Addresses of style sheets.
    marks : mapping of str to str
        HTML of each mark on a number, and what it means.
    titles : mapping of str to str, optional
        What each figure says, by its id, for the list of figures; else its caption's first words.
    base_url : str, optional
        Where the pages are published; without it, links to the site's other files become text.

    Raises
    ------
    InputError
        If a page is missing, or a link leads nowhere.

    Examples
    --------
    >>> text = '<article><section id="a"><h1>Slots</h1><p>See <a href="#a">it</a>.</p></section>'
    >>> cover = Cover("Book", "A", "en", "1", "0" * 64, "CC BY 4.0", "Never.", "2026")
    >>> one = assemble({"start": text + "</article>"}, [Chapter("start", 1, None)], cover,
    ...                styles=[], marks={})
    >>> one.headings
    (Heading(level=1, text='Slots', target='start'),)
    >>> 'See <a href="#a">it</a>' in one.html({"start": 3})
    True
    """
    missing = [chapter.name for chapter in plan if chapter.name not in pages]
    if missing:
        raise InputError(f"no page {', '.join(missing)}; the table of contents lists it")
    articles = {chapter.name: _article(chapter.name, pages[chapter.name]) for chapter in plan}
    places = {name: {str(tag["id"]) for tag in _ids(tree)} for name, tree in articles.items()}
    for name in LEFT_OUT.keys() & articles.keys():
        articles[name] = _left_out(articles[name], name)
    for article in articles.values():
        _strip(article)
    new = _new_ids(articles)
    body: list[str] = []
    headings: list[Heading] = []
    figures: list[Heading] = []
    part = None
    for chapter in plan:
        article = articles[chapter.name]
        _rename(chapter.name, article, new)
        _relink(chapter.name, article, places, new, base_url)
        _shift_headings(article, chapter.level - 1)
        begins = chapter.part if chapter.part != part else None
        if begins:
            headings.append(Heading(1, begins, f"kvp-part-{len(headings)}"))
        part = chapter.part
        body.append(_chapter_html(chapter, article, headings[-1] if begins else None))
        headings += _headings(article, chapter)
        figures += _figures(article, titles or {})
    opening = _opening(cover, _page_rules(cover, plan, articles), styles, marks)
    main = '<main class="bd-article">\n' + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    return OnePage(tuple(headings), tuple(figures), opening, main)


def _chapter_html(chapter: Chapter, article: Tag, part: Heading | None) -> str:
    stem = _stem(chapter.name)
    over = f'<h1 class="kvp-part" id="{part.target}">{escape(part.text)}</h1>\n' if part else ""
    small = " kvp-short" if chapter.name in LEFT_OUT else ""
    return (
        f'<div class="kvp-chapter{small}" id="{stem}" style="page: {_page_name(chapter)}">\n{over}'
        f"{article.decode_contents()}\n</div>"
    )


def _page_name(chapter: Chapter) -> str:
    """Return what CSS calls the leaves of a chapter; chapters that are left out share theirs."""
    if chapter.name in LEFT_OUT:
        return "leaf-left-out"
    return "leaf-" + re.sub(r"[^a-zA-Z0-9-]", "-", _stem(chapter.name))


def _css_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("<", "\\3c ") + '"'


def _figures(article: Tag, titles: Mapping[str, str]) -> Iterator[Heading]:
    for figure in article.find_all("figure", id=True):
        number = figure.select_one(".caption-number")
        caption = figure.select_one(".caption-text")
        if number is not None and caption is not None:
            text = " ".join(caption.get_text().split())
            first = re.split(r"(?<=[.:;?!])\s", text, maxsplit=1)[0].rstrip(".:;")
            title = " ".join(titles.get(str(figure["id"]), first).split())
            yield Heading(1, f"{number.get_text().strip()} {title}", str(figure["id"]))


def _page_rules(cover: Cover, plan: Sequence[Chapter], articles: Mapping[str, Tag]) -> str:
    """Return a running header for each chapter: CSS cannot take it from a heading in Chromium."""
    rules = {}
    for chapter in plan:
        heading = articles[chapter.name].find(re.compile("^h[1-6]$"))
        title = " ".join(heading.get_text().split()) if isinstance(heading, Tag) else ""
        name = _page_name(chapter)
        boxes = (
            f"@top-left {{ content: {_css_text('' if chapter.name in LEFT_OUT else title)} }} "
            f"@top-right {{ content: {_css_text(f'{cover.title} {cover.version}')} }}"
        )
        rules[name] = f"@page {name} {{ {boxes} }}"
        rules[f"{name}-wide"] = f"@page {name}-wide {{ size: A4 landscape; {boxes} }}"
    return "\n".join(rules.values())


def _contents(headings: Sequence[Heading], page_of: Mapping[str, int], label: str) -> str:
    lines = [
        f'<li class="kvp-level-{line.level}"><a href="#{line.target}">'
        f'<span class="kvp-entry">{escape(line.text)}</span>'
        f'<span class="kvp-leaf">{page_of.get(line.target, "")}</span></a></li>'
        for line in headings
        if line.level <= CONTENTS_LEVELS
    ]
    items = "\n".join(lines)
    name = f"kvp-{label.lower()}"
    return (
        f'<nav class="kvp-contents" id="{name}" aria-labelledby="{name}-title">'
        f'<p class="kvp-title" id="{name}-title">{label}</p>\n<ol>\n{items}\n</ol></nav>'
    )


def _cover(cover: Cover, marks: Mapping[str, str]) -> str:
    who = " ".join(filter(None, (cover.author, f"({cover.year})")))
    cite = (
        f"{who}{'. ' if who else ''}{cover.title}. Version {cover.version}, "
        f"source digest {cover.source_digest[:8]}."
    )
    legend = "; ".join(f"{sign}: {escape(meaning)}" for sign, meaning in marks.items())
    left = (
        "Code that draws a figure or fills a table is not printed, nor are pages that need a "
        "screen; their place says so. The files of each figure and table, and the notebooks, are "
        "with the pages."
    )
    facts = [
        ("Version", f"{cover.version}, source digest {cover.source_digest[:8]}"),
        ("Checked", cover.checked),
        ("How to cite", f"{cite} For one figure, add its id and the data digest at its foot."),
        ("Licence", cover.licence),
        ("Not printed", left),
    ]
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>\n" for name, text in facts if text
    )
    rows += f"<dt>Numbers</dt><dd>{legend}.</dd>\n" if legend else ""
    return (
        f'<header class="kvp-cover"><p class="kvp-book">{escape(cover.title)}</p>\n'
        f'<p class="kvp-author">{escape(cover.author)}</p>\n<dl>\n{rows}</dl></header>'
    )


def _opening(cover: Cover, rules: str, styles: Sequence[str], marks: Mapping[str, str]) -> str:
    links = "\n".join(f'<link rel="stylesheet" href="{escape(style)}">' for style in styles)
    return f"""<!DOCTYPE html>
<html lang="{escape(cover.language)}" data-theme="light">
<head>
<meta charset="utf-8">
<title>{escape(cover.title)}</title>
<meta name="author" content="{escape(cover.author)}">
{links}
<style>
{rules}
</style>
</head>
<body class="kvp" hidden>
{_cover(cover, marks)}"""
