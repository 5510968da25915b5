"""What makes the built book a site: cards, a map, a page for lost readers, search by id, links.

A second Sphinx extension: it goes after ``proofbook.pages``, on whose numbers and figures
it builds, and sets up the lists of all that can be cited. No address is made up. Where
``html.baseurl`` of ``_config.yml`` is empty, a card has no address and no picture, and there is no
map; where ``repository.url`` is, no button offers to run a notebook.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
import struct
import textwrap
from collections.abc import Iterable
from html import escape, unescape
from pathlib import Path
from typing import Any, ClassVar, cast, get_args
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.domains import Domain, ObjType

from proofbook.catalogue import Catalogue, Entry, What
from proofbook.contents import base_url
from proofbook.pages import listings
from proofbook.pages.access import TEMPLATES
from proofbook.pages.addresses import ASSETS, catalogue, site_of
from proofbook.project import source_digest, this_project
from proofbook.showing import figures_folder, json_bytes

LINKS = "links.json"
NOT_FOUND = TEMPLATES / "not-found.html"
#: As much of a page's beginning as a card shows.
DESCRIPTION_CHARACTERS = 200
#: Pages that a map of the site leaves out: nobody looks for them from elsewhere.
UNLISTED = ["404.html", "search.html", "genindex.html"]
#: One drawing of each figure, that of the reader's mode, from the first moment of a first visit:
#: what the theme does in a script that comes late, until which both drawings would be loaded.
EARLY = (
    'if (document.documentElement.dataset.theme === "auto") '
    'document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches '
    '? "dark" : "light";'
)


def _configure(app: Sphinx, config: Config) -> None:
    """Tell the extensions the address, if there is one."""
    settings = cast(Any, config)
    base = base_url(Path(app.srcdir))
    settings.html_search_scorer = str(ASSETS / "search-scorer.js")
    settings.html_baseurl = base
    settings.ogp_site_url = base
    # Drawn cards need fonts of their own and differ by machine; a figure says more.
    settings.ogp_social_cards = {"enable": False}
    settings.ogp_site_name = settings.html_title
    settings.ogp_enable_meta_description = False  # ours leaves out formulas
    settings.notfound_urls_prefix = urlsplit(base).path or "/"
    settings.notfound_context = {
        "title": "Page not found",
        "body": NOT_FOUND.read_text("utf-8").format(root=settings.notfound_urls_prefix),
    }
    if base:
        app.setup_extension("sphinx_sitemap")
        settings.site_url = base
        settings.sitemap_url_scheme = "{link}"
        settings.sitemap_excludes = UNLISTED
        settings.sitemap_indent = 1
    # The theme would stop at a button for a repository without a name.
    if not str(settings.html_theme_options.get("repository_url") or "").strip():
        settings.html_theme_options["launch_buttons"] = {}


# ---------------------------------------------------------------- cards


def card_of(listed: Catalogue, page: str) -> Entry | None:
    """Return the figure that stands for a page: its first, or else the book's first."""
    figures = [entry for entry in listed.entries.values() if entry.what == "figure"]
    return next((entry for entry in figures if entry.page == page), next(iter(figures), None))


def description(doctree: nodes.document) -> str:
    """Return how a page begins: its first paragraph without a formula, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section):
            continue  # of a list, a caption or a note
        if next(paragraph.findall(nodes.math), None) is None:
            return textwrap.shorten(paragraph.astext(), DESCRIPTION_CHARACTERS, placeholder=" …")
    return ""


def _card(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Choose sort and picture of a page's card, before it is written."""
    if doctree is None:
        return
    # A copy: the card's maker takes out of it what it used.
    fields = dict(context.get("meta") or {})
    fields["og:type"] = "website" if pagename == app.config.root_doc else "article"
    words = description(doctree)
    if words:
        fields["og:description"] = words
        tag = f'<meta name="description" content="{escape(words)}" />'
        context["metatags"] = f"{context.get('metatags') or ''}\n{tag}"
    base = cast(Any, app.config).html_baseurl
    entry = card_of(catalogue(), pagename)
    if base and entry is not None:
        png = (figures_folder() / f"{entry.id}.png").read_bytes()
        width, height = struct.unpack(">II", png[16:24])
        fields |= {
            "og:image": f"{base}figures/{entry.id}.png",
            "og:image:alt": entry.alt or entry.text,
            "og:image:width": str(width),
            "og:image:height": str(height),
        }
    context["meta"] = fields


def _without_address(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Take out an address without a host, and give the page for lost readers its root."""
    if pagename == cast(Any, app.config).notfound_pagename:
        context["content_root"] = cast(Any, app.config).notfound_urls_prefix
        context["pageurl"] = None
    if not cast(Any, app.config).html_baseurl:
        tags = context.get("metatags") or ""
        context["metatags"] = re.sub(r'<meta property="og:url"[^>]*>\n?', "", tags)


# ---------------------------------------------------------------- search

#: Objects that only share a word with what was typed come after the pages that do.
AFTER_PAGES = 2


class EntryDomain(Domain):
    """What the catalogue lists, as objects that a search finds by name.

    Sphinx parts the words of a page at hyphens and dots and takes their endings off, so an id is
    not among them. It also keeps an index of named objects with the place of each.
    """

    name = "proofbook"
    label = "proofbook"
    object_types: ClassVar[dict[str, ObjType]] = {what: ObjType(what) for what in get_args(What)}

    def get_objects(self) -> Iterable[tuple[str, str, str, str, str, int]]:
        """Yield each entry as an object: name, name shown, sort, page, anchor, importance."""
        for entry in catalogue().entries.values():
            yield entry.id, entry.id, entry.what, entry.page, entry.anchor, AFTER_PAGES

    def merge_domaindata(self, docnames: Any, otherdata: Any) -> None:
        """Keep nothing: the catalogue is read when it is asked for."""

    def resolve_any_xref(self, *args: Any) -> list[Any]:
        """Answer no reference: prose refers to figures by their labels."""
        return []


# ---------------------------------------------------------------- links


def links_of(page: str) -> list[str]:
    """Return the addresses on other hosts to which a page links, in order, each once.

    Examples
    --------
    >>> links_of('<a href="https://a.example/x#y">A</a> <a href="notes.html">B</a>')
    ['https://a.example/x#y']
    """
    found = re.findall(r'<a\s[^>]*?\bhref="(https?://[^"]*)"', page)
    return list(dict.fromkeys(map(unescape, found)))


def external_links(folder: Path) -> dict[str, list[str]]:
    """Return every address to which finished pages link, with the names of those pages, sorted."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.relative_to(folder).parts:
            continue  # a piece of the theme, which is no page
        for address in links_of(path.read_text(encoding="utf-8")):
            found.setdefault(address, set()).add(path.relative_to(folder).as_posix())
    return {address: sorted(pages) for address, pages in sorted(found.items())}


def _write_links(app: Sphinx, error: Exception | None) -> None:
    """List the links of the pages that were just made."""
    site = site_of(app, error)
    if site is None or app.builder.name != "html":
        return
    listing = {
        "project": this_project().name,
        "version": this_project().version,
        "source_digest": source_digest(),
        "links": [{"url": url, "pages": pages} for url, pages in external_links(site).items()],
    }
    (site / LINKS).write_bytes(json_bytes(listing))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the lists, cards, search, links and, where there is an address, the map."""
    listings.setup(app)
    app.setup_extension("sphinxext.opengraph")
    app.setup_extension("notfound.extension")
    app.add_domain(EntryDomain)
    app.add_js_file(None, body=EARLY, priority=1)
    app.add_css_file("site.css", priority=910)
    app.connect("config-inited", _configure, priority=90)
    app.connect("html-page-context", _card, priority=400)
    app.connect("html-page-context", _without_address, priority=600)
    # After everything that still writes pages or takes some away.
    app.connect("build-finished", _write_links, priority=980)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
