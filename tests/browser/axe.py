"""What axe finds on a page: the rules of WCAG 2.2 AA that a program can tell, and good habits."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from browser.driver import Visit

#: What WCAG 2.2 asks at levels A and AA, as far as a program can tell.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
#: Rules that go beyond it and are kept all the same.
MORE_RULES = [
    "aria-text",
    "duplicate-id",
    "empty-heading",
    "heading-order",
    "image-redundant-alt",
    "landmark-banner-is-top-level",
    "landmark-main-is-top-level",
    "landmark-no-duplicate-banner",
    "landmark-no-duplicate-main",
    "landmark-one-main",
    "landmark-unique",
    "page-has-heading-one",
    "region",
    "scope-attr-valid",
    "skip-link",
    "tabindex",
    "table-duplicate-name",
]


def violations(page: Page) -> list[str]:
    """Return what breaks the rules of WCAG 2.2 AA, or some good habits, however mildly."""
    options = {
        "runOnly": {"type": "tag", "values": RULES},
        "rules": {name: {"enabled": True} for name in MORE_RULES},
        "resultTypes": ["violations"],
        # It would fetch style sheets a second time, and those that they import from a wrong place.
        "preload": False,
    }
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {node['html'][:200]}"
        for v in Axe().run(page, options=options).response["violations"]
        for node in v["nodes"][:3]
    ]


def axe_finds_nothing(visit: Visit) -> list[str]:
    """Axe finds nothing wrong with a page."""
    return violations(visit.page)
