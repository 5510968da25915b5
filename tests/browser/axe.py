"""What axe finds on a page: the rules of WCAG 2.2 AA that a program can tell, and good habits."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe

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


def axe_finds_nothing(visit: Visit) -> list[str]:
    """The rules of WCAG 2.2 AA, and some good habits, find nothing, however mild."""
    # By name, since a rule runs once whether it is asked for by name or by tag.
    options = {
        "runOnly": {"type": "tag", "values": RULES},
        "rules": {name: {"enabled": True} for name in MORE_RULES},
        "resultTypes": ["violations"],
    }
    violations = Axe().run(visit.page, options=options).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {node['html'][:200]}"
        for v in violations
        for node in v["nodes"][:3]
    ]
