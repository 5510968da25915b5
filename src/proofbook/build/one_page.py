"""All finished pages of the book as one HTML document, to be printed.

Sphinx has a builder for that, ``singlehtml``, but it writes the book anew: it keeps ids that
several chapters have, and counts figures and sections in tables of its own. Here the pages are
taken as they were finished, and each id and link is made to work in the whole.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from proofbook.errors import InputError
from proofbook.pages.mathematics import in_words
from proofbook.pages.number_roles import KINDS, kind_signs

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
NOT_PRINTED = (
    "Code that draws a figure or fills a table is not printed, nor are pages that need a screen; "
    "their place says so. The files of each figure and table, and the notebooks, are with the "
    "pages."
)
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
#: Parts, chapters and sections are in the table of contents; the outline has what is below, too.
CONTENTS_LEVELS = 3
_HEADING = re.compile(r"^h[1-6]$")
#: Link texts that say where they lead, so that paper need not repeat it.
_SAYS_WHERE = re.compile(r"^(arXiv|doi|ISBN):", re.IGNORECASE)
_LONG_NAME = re.compile(r"[\w./#-]{12,}")
_JOINT = re.compile(r"(?<=[a-z0-9][._/])(?=[a-zA-Z_]\w)|(?<=[a-zA-Z0-9]_)(?=[0-9a-z])")


class Heading(NamedTuple):
    """One line of the table of contents, and of the PDF's outline."""

    level: int
    text: str
    target: str


class BoundChapter(NamedTuple):
    """One page of the book, in the order of its table of contents."""

    name: str
    level: int
    part: str | None

    @property
    def stem(self) -> str:
        """The last part of its name, which is its id in the document."""
        return posixpath.basename(self.name)

    @property
    def leaf(self) -> str:
        """What CSS calls its leaves; chapters that are left out share theirs."""
        if self.name in LEFT_OUT:
            return "leaf-left-out"
        return "leaf-" + re.sub(r"[^a-zA-Z0-9-]", "-", self.stem)


class Cover(NamedTuple):
    """What the first leaf says: all of it text."""

    title: str
    author: str
    language: str
    version: str
    source_digest: str
    licence: str
    checked: str
    year: str


def book_plan(toc: Mapping[str, Any]) -> list[BoundChapter]:
    """Return the chapters that a table of contents lists, with their part and level.

    Examples
    --------
    >>> toc = {"root": "index", "parts": [{"caption": "One", "chapters": [{"file": "a"}]}]}
    >>> [(chapter.name, chapter.level, chapter.part) for chapter in book_plan(toc)]
    [('index', 1, None), ('a', 2, 'One')]
    """
    found = [BoundChapter(str(toc["root"]), 1, None)]

    def add(entries: Sequence[Mapping[str, Any]], level: int, part: str | None) -> None:
        for entry in entries:
            if "file" in entry:
                found.append(BoundChapter(str(entry["file"]), level, part))
                add(entry.get("sections", ()), level + 1, part)

    for part in (*toc.get("parts", ()), toc):
        caption = part.get("caption")
        add(part.get("chapters", ()), 2 if caption else 1, caption)
    return found


def assemble(
    pages: Mapping[str, str],
    plan: Sequence[BoundChapter],
    cover: Cover,
    *,
    titles: Mapping[str, str] | None = None,
    base_url: str = "",
) -> Callable[[Mapping[str, int]], str]:
    """Put the finished pages of a book into one document, in the order of a plan.

    Parameters
    ----------
    pages : mapping of str to str
        The HTML of each page by its name, such as ``chapters/index``.
    plan, cover : sequence of BoundChapter, Cover
        The order of the pages, and what the first leaf says.
    titles : mapping of str to str, optional
        What each figure says, by its id, for the list of figures.
    base_url : str, optional
        Where the pages are published; without it, links to the site's other files become text.

    Returns
    -------
    callable
        Gives the document, with the leaf of each id that its argument knows in its two lists.

    Raises
    ------
    InputError
        If a page is missing, or a link leads nowhere.

    Examples
    --------
    >>> text = '<article><section id="a"><h1>Slots</h1><p>See <a href="#a">it</a>.</p></section>'
    >>> cover = Cover("Book", "A", "en", "1", "0" * 64, "CC BY 4.0", "Never.", "2026")
    >>> document = assemble({"start": text + "</article>"}, [BoundChapter("start", 1, None)], cover)
    >>> 'See <a href="#a">it</a>' in document({"start": 3})
    True
    """
    missing = [chapter.name for chapter in plan if chapter.name not in pages]
    if missing:
        raise InputError(f"no page {', '.join(missing)}; the table of contents lists it")
    articles = {chapter: _article(chapter.name, pages[chapter.name]) for chapter in plan}
    places = {chapter.name: _ids(article) for chapter, article in articles.items()}
    for chapter in plan:
        if chapter.name in LEFT_OUT:
            articles[chapter] = _left_out(articles[chapter], chapter.name)
        _strip(articles[chapter])
    new = _new_ids(articles)
    body: list[str] = []
    headings: list[Heading] = []
    figures: list[Heading] = []
    part = None
    for chapter, article in articles.items():
        _rename(chapter.name, article, new)
        _relink(chapter, article, places, new, base_url)
        for tag in article.find_all(_HEADING):
            tag.name = f"h{min(int(tag.name[1]) + chapter.level - 1, 6)}"
        over = ""
        if chapter.part and chapter.part != part:
            headings.append(Heading(1, chapter.part, f"kvp-part-{len(headings)}"))
            over = f'<h1 class="kvp-part" id="{headings[-1].target}">{escape(chapter.part)}</h1>\n'
        part = chapter.part
        short = " kvp-short" if chapter.name in LEFT_OUT else ""
        body.append(
            f'<div class="kvp-chapter{short}" id="{chapter.stem}" style="page: {chapter.leaf}">\n'
            f"{over}{article.decode_contents()}\n</div>"
        )
        headings += _headings(article, chapter)
        figures += _figures(article, titles or {})
    opening = _opening(cover, _page_rules(cover, articles))
    main = '<main class="bd-article">\n' + "\n".join(body) + "\n</main>\n</body>\n</html>\n"

    def document(page_of: Mapping[str, int]) -> str:
        lists = _contents(headings, page_of, "Contents")
        if figures:
            lists += "\n" + _contents(figures, page_of, "Figures")
        return f"{opening}\n{lists}\n{main}"

    return document


# ---------------------------------------------------------------- ids and links


def _ids(article: Tag) -> set[str]:
    return {str(tag["id"]) for tag in article.find_all(id=True)}


def _new_ids(articles: Mapping[BoundChapter, Tag]) -> dict[tuple[str, str], str]:
    """Make every id unique in the book: one that several pages have takes the page's name."""
    held = [(chapter, old) for chapter, article in articles.items() for old in _ids(article)]
    taken = Counter([old for _, old in held] + [chapter.stem for chapter in articles])
    return {
        (chapter.name, old): old if taken[old] == 1 else f"{chapter.stem}--{old}"
        for chapter, old in held
    }


def _rename(page: str, article: Tag, new: Mapping[tuple[str, str], str]) -> None:
    for tag in article.find_all(id=True):
        tag["id"] = new[page, str(tag["id"])]
    for attribute in ID_ATTRIBUTES:
        for tag in article.select(f"[{attribute}]"):
            names = str(tag[attribute]).split()
            tag[attribute] = " ".join(new.get((page, name), name) for name in names)


def _relink(
    chapter: BoundChapter,
    article: Tag,
    places: Mapping[str, set[str]],
    new: Mapping[tuple[str, str], str],
    base_url: str,
) -> None:
    """Make every link lead into the document or to the web; others become plain text."""
    for link in article.find_all("a"):
        href = str(link.get("href") or "")
        parts = urlsplit(href)
        if parts.scheme in {"http", "https", "mailto"}:
            text = link.get_text().strip()
            if text and not _SAYS_WHERE.match(text) and text.rstrip("/") not in href:
                link.append(_new_tag("span", "kvp-url", f" ({href})"))
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(chapter.name), parts.path))
        target = path.removesuffix(".html") if parts.path else chapter.name
        if href and target in places:
            if parts.fragment and parts.fragment not in places[target]:
                raise InputError(
                    f"{chapter.name}.html links to {href!r}, but there is no such place"
                )
            # What a page has and paper has not, such as a cell of code, is where its chapter is.
            place = new.get((target, parts.fragment), posixpath.basename(target))
            link["href"] = f"#{place}"
        elif href and base_url and not parts.scheme:
            link["href"] = posixpath.join(base_url, path)
        else:
            link.unwrap()


def _new_tag(name: str, css_class: str, text: str) -> Tag:
    tag = Tag(name=name, attrs={"class": css_class})
    tag.string = text
    return tag


# ---------------------------------------------------------------- one page


def _article(page: str, text: str) -> Tag:
    article = BeautifulSoup(text, "html.parser").find("article")
    if not isinstance(article, Tag):
        raise InputError(f"{page}.html has no <article>; it is no page of this book")
    return article


def _strip(article: Tag) -> None:
    """Leave out what only a screen has a use for, and put words where it had none."""
    for line in article.select(".kv-line"):
        # A table gets the line that lets it be cited; a figure has its own within it.
        name, digest = line.select_one(".kv-downloads code"), line.select_one(".kv-digest")
        if name and digest and line.find_parent("figure") is None:
            words = f"{name.get_text()} · data {digest.get_text()[:8]}"
            line.insert_before(_new_tag("p", "kvp-id", words))
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
        for attribute in (*SCREEN_ATTRIBUTES, *(("style",) if tag.name == "img" else ())):
            tag.attrs.pop(attribute, None)


def _let_break(cell: Tag) -> None:
    """Let long names in a table break at their own joints, so that wide tables fit their page."""
    for text in list(cell.find_all(string=_LONG_NAME)):
        *pieces, last = _JOINT.sub("\0", str(text)).split("\0")
        for piece in pieces:
            text.insert_before(piece, Tag(name="wbr", can_be_empty_element=True))
        text.replace_with(last)


def _strip_cell(cell: Tag) -> None:
    """Keep a cell's code where its result is text that answers it; else the result alone."""
    folded = "tag_hide-input" in cell.get_attribute_list("class")
    if folded or not cell.select(".cell_output .output.text_plain, .cell_output .output.stream"):
        for code in cell.select(".cell_input"):
            (code.find_parent("details") or code).decompose()
    if not cell.get_text(strip=True) and cell.find("img") is None:
        cell.decompose()


def _left_out(article: Tag, page: str) -> Tag:
    """Return a page that is left out: its title, its first paragraph, and why it is left out."""
    short = Tag(name="article")
    for tag in article.select("h1, h1 ~ p")[:2]:
        short.append(tag.extract())
    where = f"That page is not printed: open {page}.html of the book in a browser."
    short.append(_new_tag("p", "kvp-left-out", f"{LEFT_OUT[page]} {where}"))
    return short


def _words(tag: Tag) -> str:
    return " ".join(tag.get_text().split())


def _headings(article: Tag, chapter: BoundChapter) -> Iterator[Heading]:
    for tag in article.find_all(_HEADING):
        level = int(tag.name[1])
        holder = tag if tag.get("id") else tag.find_parent(id=True)
        own = level != chapter.level and isinstance(holder, Tag)
        yield Heading(level, _words(tag), str(holder["id"]) if own and holder else chapter.stem)


def _figures(article: Tag, titles: Mapping[str, str]) -> Iterator[Heading]:
    for figure in article.find_all("figure", id=True):
        if number := figure.select_one(".caption-number"):
            title = " ".join(titles.get(str(figure["id"]), "").split())
            yield Heading(1, f"{_words(number)} {title}", str(figure["id"]))


# ---------------------------------------------------------------- around the pages


def _css_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("<", "\\3c ") + '"'


def _page_rules(cover: Cover, articles: Mapping[BoundChapter, Tag]) -> str:
    """Return a running header for each chapter: CSS cannot take it from a heading in Chromium."""
    rules = {}
    for chapter, article in articles.items():
        heading = None if chapter.name in LEFT_OUT else article.find(_HEADING)
        title = "" if heading is None else _words(heading)
        boxes = (
            f"@top-left {{ content: {_css_text(title)} }} "
            f"@top-right {{ content: {_css_text(f'{cover.title} {cover.version}')} }}"
        )
        for name, size in ((chapter.leaf, ""), (f"{chapter.leaf}-wide", "size: A4 landscape; ")):
            rules[name] = f"@page {name} {{ {size}{boxes} }}"
    return "\n".join(rules.values())


def _contents(headings: Sequence[Heading], page_of: Mapping[str, int], label: str) -> str:
    items = "\n".join(
        f'<li class="kvp-level-{line.level}"><a href="#{line.target}">'
        f'<span class="kvp-entry">{escape(line.text)}</span>'
        f'<span class="kvp-leaf">{page_of.get(line.target, "")}</span></a></li>'
        for line in headings
        if line.level <= CONTENTS_LEVELS
    )
    name = f"kvp-{label.lower()}"
    return (
        f'<nav class="kvp-contents" id="{name}" aria-labelledby="{name}-title">'
        f'<p class="kvp-title" id="{name}-title">{label}</p>\n<ol>\n{items}\n</ol></nav>'
    )


def _opening(cover: Cover, rules: str) -> str:
    """Return the head of the document, and the first leaf."""
    made = f"{cover.version}, source digest {cover.source_digest[:8]}"
    who = " ".join(filter(None, (cover.author, f"({cover.year})")))
    cite = f"{who}{'. ' if who else ''}{cover.title}. Version {made}."
    facts = {
        "Version": made,
        "Checked": cover.checked,
        "How to cite": f"{cite} For one figure, add its id and the data digest at its foot.",
        "Licence": cover.licence,
        "Not printed": NOT_PRINTED,
    }
    rows = "".join(f"<dt>{n}</dt><dd>{escape(text)}</dd>\n" for n, text in facts.items() if text)
    legend = "; ".join(f"{sign}: {escape(KINDS[kind][1])}" for kind, sign in kind_signs().items())
    rows += f"<dt>Numbers</dt><dd>{legend}.</dd>\n"
    return f"""<!DOCTYPE html>
<html lang="{escape(cover.language)}" data-theme="light">
<head>
<meta charset="utf-8">
<title>{escape(cover.title)}</title>
<meta name="author" content="{escape(cover.author)}">
<link rel="stylesheet" href="/_static/pygments.css">
<link rel="stylesheet" href="/_static/print-book.css">
<style>
{rules}
</style>
</head>
<body class="kvp" hidden>
<header class="kvp-cover"><p class="kvp-book">{escape(cover.title)}</p>
<p class="kvp-author">{escape(cover.author)}</p>
<dl>
{rows}</dl></header>"""
