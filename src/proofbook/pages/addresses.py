"""What depends on where the book is: cards, a map, a page for lost readers, launch buttons.

No address is made up. Where ``html.baseurl`` of ``_config.yml`` is empty, a card has no address and
no picture, and there is no map; where ``repository.url`` is, no button offers to run a notebook.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from proofbook.catalogue import Catalogue, Entry
from proofbook.contents import base_url
from proofbook.pages.gallery import png_size
from proofbook.pages.page_catalogue import catalogue
from proofbook.pages.page_places import figures_folder

__all__ = ["NOT_FOUND", "card_of", "description", "setup"]

#: As much of a page's beginning as a card shows.
DESCRIPTION_CHARACTERS = 200
#: Pages that a map of the site leaves out: nobody looks for them from elsewhere.
UNLISTED = ["404.html", "search.html", "genindex.html"]
NOT_FOUND = """<section id="page-not-found">
<h1>Page not found</h1>
<p>This book has no page at that address. If it came from a citation, look for the id that the
citation names, such as <code>fig-slack-share</code>:</p>
<form action="{root}search.html" method="get" role="search">
<label for="kv-lost">Id or words</label>
<input type="search" id="kv-lost" name="q">
<button type="submit">Search</button>
</form>
<ul>
<li><a href="{root}chapters/figures.html">All figures and tables</a>, with their files</li>
<li><a href="{root}chapters/numbers.html">All numbers</a>, by id</li>
<li><a href="{root}index.html">The first page</a></li>
</ul>
</section>
"""


def _configure(app: Sphinx, config: Config) -> None:
    """Tell the extensions the address, if there is one."""
    settings = cast(Any, config)
    base = base_url(Path(app.srcdir))
    settings.html_baseurl = base
    settings.ogp_site_url = base
    # Drawn cards need fonts of their own and differ by machine; a figure says more.
    settings.ogp_social_cards = {"enable": False}
    settings.ogp_site_name = settings.html_title
    settings.ogp_enable_meta_description = False  # ours leaves out formulas
    settings.notfound_urls_prefix = urlsplit(base).path or "/"
    settings.notfound_context = {
        "title": "Page not found",
        "body": NOT_FOUND.format(root=settings.notfound_urls_prefix),
    }
    if base:
        app.setup_extension("sphinx_sitemap")
        settings.site_url = base
        settings.sitemap_url_scheme = "{link}"
        settings.sitemap_excludes = UNLISTED
        settings.sitemap_indent = 1


def _without_launch(app: Sphinx, config: Config) -> None:
    """Take out the buttons that run a notebook elsewhere where no repository is named.

    The theme would stop at an empty name.
    """
    options = cast(Any, config).html_theme_options
    if not str(options.get("repository_url") or "").strip():
        options["launch_buttons"] = {}


def card_of(listed: Catalogue, page: str) -> Entry | None:
    """Return the figure that stands for a page: its first, or else the book's first.

    Parameters
    ----------
    listed : Catalogue
        What the book shows.
    page : str
        Without suffix.
    """
    figures = [entry for entry in listed.entries.values() if entry.what == "figure"]
    return next((entry for entry in figures if entry.page == page), figures[0] if figures else None)


def description(doctree: nodes.document) -> str:
    """Return how a page begins: its first paragraph without a formula, cut at a word.

    Parameters
    ----------
    doctree : document
        The page.
    """
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section):
            continue  # of a list, a caption or a note
        if next(paragraph.findall(nodes.math), None) is None:
            return textwrap.shorten(paragraph.astext(), DESCRIPTION_CHARACTERS, placeholder=" …")
    return ""


def _card(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
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
        name = f"{entry.id}.png"
        width, height = png_size((figures_folder() / name).read_bytes())
        fields |= {
            "og:image": f"{base}figures/{name}",
            "og:image:alt": entry.alt or entry.text,
            "og:image:width": str(width),
            "og:image:height": str(height),
        }
    context["meta"] = fields


def _without_address(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Take out an address without a host, and give the page for lost readers its root."""
    if pagename == cast(Any, app.config).notfound_pagename:
        context["content_root"] = cast(Any, app.config).notfound_urls_prefix
        context["pageurl"] = None
    if not cast(Any, app.config).html_baseurl:
        tags = context.get("metatags") or ""
        context["metatags"] = re.sub(r'<meta property="og:url"[^>]*>\n?', "", tags)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add cards, the page for wrong addresses and, where there is an address, the map."""
    app.setup_extension("sphinxext.opengraph")
    app.setup_extension("notfound.extension")
    app.connect("config-inited", _configure, priority=90)
    app.connect("config-inited", _without_launch, priority=90)
    app.connect("html-page-context", _card, priority=400)
    app.connect("html-page-context", _without_address, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
