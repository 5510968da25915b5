"""Every page by keyboard alone: forwards in a wide window, backwards in a narrow one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator

from browser.driver import Visit, pages_of_the_book
from browser.made_wrong import Wrong, address, visiting_wrong

#: Defines `kv`: what can be reached, what the focus looks like, and what lies over it.
SCRIPT = """() => {
  const style = document.createElement("style");
  style.textContent = "*, *::before, *::after { transition: none !important; " +
    "animation: none !important; scroll-behavior: auto !important; }";
  document.head.append(style);
  const INTERACTIVE = "a[href], area[href], button, input, select, textarea, summary, iframe, " +
    "[tabindex], [contenteditable], audio[controls], video[controls]";
  const shown = (e) => e.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true}) &&
    e.getClientRects().length > 0;
  const name = (e) => e === document.body ? "body" :
    `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}${e.className && e.className.split ?
      "." + e.className.trim().split(/\\s+/).slice(0, 2).join(".") : ""} ` +
    `"${(e.getAttribute("aria-label") || e.textContent || e.getAttribute("href") || "")
      .trim().replace(/\\s+/g, " ").slice(0, 40)}"`;
  const reachable = () => [...document.querySelectorAll(INTERACTIVE)].filter((e) => {
    if (e.disabled || e.type === "hidden" || e.tabIndex < 0 || !shown(e)) return false;
    if (e.closest("[inert]") || e.closest("fieldset:disabled")) return false;
    if (e.tagName === "SUMMARY" && e.parentElement.tagName !== "DETAILS") return false;
    // Of a group of radio buttons Tab reaches one; the arrows reach the others.
    if (e.type === "radio") {
      const group = [...document.getElementsByName(e.name)].filter(shown);
      return e === (group.find((r) => r.checked) || group[0]);
    }
    return true;
  });
  const number = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const over = (top, under) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => a * top[i] + (1 - a) * under[i]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, two) => {
    const [high, low] = [light(one), light(two)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (e) => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) {
      const colour = number(getComputedStyle(p).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) layers.push(colour);
      if (colour.length === 3) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const look = (e) => {
    const s = getComputedStyle(e);
    return {outline: [s.outlineStyle, s.outlineWidth, s.outlineColor, s.outlineOffset],
            shadow: s.boxShadow, border: [s.borderTopWidth, s.borderTopStyle, s.borderTopColor],
            back: ground(e)};
  };
  // What changes beside an element with focus: its own frame, or that of what it is in.
  const ring = (e, before) => {
    const now = look(e), s = getComputedStyle(e), around = ground(e.parentElement || e);
    const changed = (key) => JSON.stringify(now[key]) !== JSON.stringify(before[key]);
    const against = (colour) => contrast(over(number(colour), around), around);
    const marks = [];
    if (changed("outline") && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1)
      marks.push(s.outlineStyle === "auto" ? 21 : against(s.outlineColor));
    if (changed("shadow") && s.boxShadow !== "none")
      for (const colour of s.boxShadow.match(/rgba?\\([^)]*\\)/g) || [])
        marks.push(against(colour));
    if (changed("border") && s.borderTopStyle !== "none")
      marks.push(against(s.borderTopColor));
    if (changed("back")) marks.push(contrast(now.back, before.back));
    return marks.length && e.checkVisibility({opacityProperty: true}) ? Math.max(...marks) : 0;
  };
  const covered = (e) => {
    // What is larger than the window is looked for in the part that is in it.
    const inside = [...e.getClientRects()].map((r) => ({
      left: Math.max(r.left, 0), right: Math.min(r.right, innerWidth),
      top: Math.max(r.top, 0), bottom: Math.min(r.bottom, innerHeight),
    })).filter((r) => r.right > r.left && r.bottom > r.top)
      .flatMap((r) => [0.1, 0.5, 0.9].flatMap((x) => [0.2, 0.5, 0.8].map((y) =>
        [r.left + x * (r.right - r.left), r.top + y * (r.bottom - r.top)])));
    if (!inside.length) return "it is outside the window";
    const tops = inside.map(([x, y]) => document.elementFromPoint(x, y));
    if (tops.some((t) => t && (e.contains(t) || t.contains(e)))) return "";
    // An input may be drawn by its label.
    if (e.labels && tops.some((t) => t && [...e.labels].some((l) => l.contains(t)))) return "";
    return `it lies under ${name(tops.find(Boolean) || document.body)}`;
  };
  const kv = window.kv = {all: reachable(), seen: [], name};
  kv.before = new Map(kv.all.map((e) => [e, look(e)]));
  kv.step = () => {
    const e = document.activeElement;
    if (!e || e === document.body || e === document.documentElement) return null;
    const index = kv.all.indexOf(e), first = !kv.seen.includes(e);
    kv.seen.push(e);
    // The theme's list of sections unfolds as the walk brings them into view, and its way back to
    // the top comes as the page moves up.
    const unfolded = e.closest("nav.page-toc, #pst-back-to-top") && reachable().includes(e);
    return {index, first, name: name(e), covered: covered(e), hidden: index < 0 && !unfolded,
            ring: kv.before.has(e) ? ring(e, kv.before.get(e)) : 21};
  };
  return kv.all.length;
}"""


class Step(NamedTuple):
    """One element that had the focus."""

    index: int
    name: str
    ring: float
    covered: str
    hidden: bool


class Walk(NamedTuple):
    """What a walk over a page with one key met, in order, and what it should have met."""

    steps: list[Step]
    expected: list[str]
    ended: bool
    backwards: bool


def walk(visit: Visit, key: str = "Tab") -> Walk:
    """Press a key until the focus is back where it began."""
    page = visit.page
    count: int = page.evaluate(SCRIPT)
    page.evaluate("() => { document.activeElement.blur(); getSelection().removeAllRanges(); }")
    steps: list[Step] = []
    ended = False
    # Twice as many as there are, lest a trap keep the test for ever.
    for _ in range(2 * count + 5):
        page.keyboard.press(key)
        found: dict[str, Any] | None = page.evaluate("() => kv.step()")
        if found is None and not steps:
            continue
        if found is None or not found["first"]:
            ended = found is None or found["index"] == steps[0].index
            break
        steps.append(Step(**{name: found[name] for name in Step._fields}))
    names: list[str] = page.evaluate("() => kv.all.map(kv.name)")
    return Walk(steps, names, ended, key == "Shift+Tab")


# ---------------------------------------------------------------- checks of a walk

#: Contrast that a mark around the focus needs against what it lies on (WCAG 1.4.11).
LEAST_CONTRAST = 3.0


def everything_is_reached(walk: Walk) -> list[str]:
    """The key reaches each link, button, field and box that scrolls."""
    reached = {step.index for step in walk.steps}
    return [f"{name} is not reached" for i, name in enumerate(walk.expected) if i not in reached]


def nothing_hidden_is_reached(walk: Walk) -> list[str]:
    """The focus goes to nothing that is not shown."""
    return [f"{step.name} is reached and not shown" for step in walk.steps if step.hidden]


def focus_gets_out(walk: Walk) -> list[str]:
    """The focus comes back to where it began: nothing holds it."""
    if walk.ended or not walk.steps:
        return [] if walk.steps or not walk.expected else ["nothing has the focus"]
    return [f"{walk.steps[-1].name} holds the focus"]


def order_is_that_of_the_page(walk: Walk) -> list[str]:
    """What comes first on the page has the focus first."""
    found = [step for step in walk.steps if step.index >= 0]
    sign = -1 if walk.backwards else 1
    return [
        f"{after.name} has the focus after {before.name}"
        for before, after in pairwise(found)
        if sign * after.index < sign * before.index
    ]


def focus_is_seen(walk: Walk) -> list[str]:
    """What has the focus looks different, and the difference can be told from its ground."""
    return [
        f"{step.name}: its mark has a contrast of {step.ring:.1f}"
        for step in walk.steps
        if step.ring < LEAST_CONTRAST
    ]


def focus_is_not_covered(walk: Walk) -> list[str]:
    """What has the focus lies in the window, and nothing hides all of it (2.4.11)."""
    return [f"{step.name}: {step.covered}" for step in walk.steps if step.covered]


WALK_CHECKS: tuple[Callable[[Walk], list[str]], ...] = (
    everything_is_reached,
    nothing_hidden_is_reached,
    focus_gets_out,
    order_is_that_of_the_page,
    focus_is_seen,
    focus_is_not_covered,
)


# ---------------------------------------------------------------- what opens and closes

#: What slides over a narrow page -> its button, itself, and the key that opens it.
OVERLAYS = {
    "list of pages": ("button.primary-toggle", "dialog#pst-primary-sidebar-modal"),
    "contents of the page": ("button.secondary-toggle", "dialog#pst-secondary-sidebar-modal"),
    "search": ("button.search-button", "dialog#pst-search-dialog"),
}
#: The field of the page that searches.
FIELD = "main form.bd-search input"
#: Up to this width of the window the list of pages is not beside the page.
NARROW = 991
SEEN = "(e) => e.getBoundingClientRect().top >= 0 && e.getBoundingClientRect().height > 0"
HAS_IT = "(e) => e === document.activeElement"
HAS_FOCUS = "(e) => e.contains(document.activeElement) && e !== document.activeElement"


def overlays_open_and_close(visit: Visit) -> list[str]:
    """A list that slides in opens with Enter, takes the focus, keeps it, and goes with Escape."""
    wrong = []
    for name, (button, dialog) in OVERLAYS.items():
        buttons = visit.page.locator(f"{button}:visible")
        if not buttons.count():
            continue  # There is no such list on this page.
        if name == "list of pages" and visit.width > NARROW:
            wrong += _hides_and_shows(visit, buttons.first)
            continue
        if name == "search" and visit.page.locator(FIELD).count():
            wrong += _leads_to_the_field(visit, buttons.first)
            continue
        for key in ("Enter", "Space"):
            buttons.first.focus()
            visit.page.keyboard.press(key)
            if not _becomes(visit, dialog, "(e) => e.open"):
                wrong.append(f"{name}: {key} does not open it")
                continue
            held = [_tab_within(visit, dialog) for _ in range(3)]
            if not all(held):
                wrong.append(f"{name}: the focus leaves it")
            visit.page.keyboard.press("Escape")
            if not _becomes(visit, dialog, "(e) => !e.open"):
                wrong.append(f"{name}: Escape does not close it")
            elif not _becomes(visit, f"{button}:visible >> nth=0", HAS_IT):
                wrong.append(f"{name}: the focus is not back at its button")
    return wrong


def _leads_to_the_field(visit: Visit, button: Locator) -> list[str]:
    """On the page that searches, the button leads to the field that stands there."""
    button.focus()
    visit.page.keyboard.press("Enter")
    if not _becomes(visit, FIELD, HAS_IT):
        return ["search: Enter does not lead to the page's own field"]
    return []


def _hides_and_shows(visit: Visit, button: Locator) -> list[str]:
    """In a wide window the list of pages stands beside the page, and its button hides it."""
    shown = "(e) => e.checkVisibility({visibilityProperty: true}) && "
    shown += "e.getBoundingClientRect().right > 0"
    for wanted in (f"(e) => !(({shown})(e))", shown):
        button.focus()
        visit.page.keyboard.press("Enter")
        if not _becomes(visit, "#pst-primary-sidebar nav a >> nth=0", wanted):
            return ["list of pages: Enter does not hide and show it"]
    return []


def _tab_within(visit: Visit, dialog: str) -> bool:
    """Press Tab; a second time where the focus went to the window's own bar in between."""
    inside = "(e) => document.activeElement === document.body ? null : "
    inside += "e.contains(document.activeElement)"
    for _ in range(2):
        visit.page.keyboard.press("Tab")
        found: bool | None = visit.page.locator(dialog).evaluate(inside)
        if found is not None:
            return found
    return False


def _becomes(visit: Visit, which: str | Locator, condition: str) -> bool:
    """Tell whether a condition comes true within some seconds, if machines are busy."""
    box = visit.page.locator(which) if isinstance(which, str) else which
    for _ in range(80):
        if box.evaluate(condition):
            return True
        visit.page.wait_for_timeout(50)
    return False


def folds_open(visit: Visit) -> list[str]:
    """Everything that is folded opens and closes with Enter."""
    wrong = []
    for fold in visit.page.locator("article summary:visible").all():
        states = []
        for _ in range(2):
            fold.focus()
            fold.press("Enter")
            states.append(fold.evaluate("(e) => e.parentElement.open"))
        if len(set(states)) == 1:
            wrong.append(f"{fold.text_content()!r} does not change with Enter")
    return wrong


def menus_open_and_close(visit: Visit) -> list[str]:
    """A menu opens with Enter, its items are reached, and Escape closes it."""
    wrong = []
    for menu in visit.page.locator(".dropdown:visible").all():
        button = menu.locator("[data-bs-toggle=dropdown]")
        button.focus()
        visit.page.keyboard.press("Enter")
        name = button.get_attribute("aria-label") or button.text_content()
        if not _becomes(visit, button, "(e) => e.ariaExpanded === 'true'"):
            wrong.append(f"{name}: Enter does not open it")
            continue
        items = menu.locator(".dropdown-menu a, .dropdown-menu button")
        for index in range(items.count()):
            visit.page.keyboard.press("ArrowDown")
            if not _becomes(visit, items.nth(index), HAS_IT):
                wrong.append(f"{name}: item {index + 1} is not reached")
        visit.page.keyboard.press("Escape")
        if not _becomes(visit, button, "(e) => e.ariaExpanded === 'false'"):
            wrong.append(f"{name}: Escape does not close it")
    return wrong


def skip_link_skips(visit: Visit) -> list[str]:
    """The first press of Tab offers to skip to the main part, and Enter does so."""
    page = visit.page
    page.reload()  # or Tab would go on from where the focus was
    page.keyboard.press("Tab")
    href = page.evaluate("() => document.activeElement.getAttribute('href')")
    if href != "#main-content":
        return [f"the first stop leads to {href}"]
    if not _becomes(visit, "a[href='#main-content']", SEEN):
        return ["the first stop is not seen"]
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside: bool = page.locator("#main-content").evaluate(HAS_FOCUS)
    return [] if inside else ["the stop after it is not in the main part"]


PRESS_CHECKS: tuple[Callable[[Visit], list[str]], ...] = (
    overlays_open_and_close,
    menus_open_and_close,
    folds_open,
    skip_link_skips,
)


@pytest.mark.parametrize("path", pages_of_the_book())
def test_page(visits: dict[tuple[int, str], Visit], path: str) -> None:
    wrong = []
    # Backwards the head of the page, which stays, lies over what has the focus, if anything does.
    for window, key in (((1400, "light"), "Tab"), ((390, "dark"), "Shift+Tab")):
        visit = visits[window]
        visit.open(path)
        for press in PRESS_CHECKS:
            wrong += [f"{window}, {press.__name__}: {what}" for what in press(visit)]
        visit.open(path)
        taken = walk(visit, key)
        for check in WALK_CHECKS:
            wrong += [f"{window}, {key}, {check.__name__}: {what}" for what in check(taken)[:8]]
    assert not wrong, "\n".join(wrong)


def test_what_slides_in_is_there_to_be_opened(visits: dict[tuple[int, str], Visit]) -> None:
    visit = visits[390, "dark"]
    visit.open(pages_of_the_book()[1])
    for name in ("primary-toggle", "secondary-toggle", "search-button"):
        assert visit.page.locator(f"button.{name}:visible").count() == 1, name
    assert visit.page.locator(".dropdown:visible").count() == 1


# ---------------------------------------------------------------- pages made to be wrong
WRONG_WALKS = {
    "reached by the pointer alone": Wrong(
        everything_is_reached,
        '<p><a href="#a">a</a> <a href="#b" id="b">b</a></p><script>'
        "document.addEventListener('keydown', (e) => { if (e.key === 'Tab' && document"
        ".activeElement.textContent === 'a') { e.preventDefault(); document.activeElement.blur();"
        " } })</script>",
        'a#b "b" is not reached',
    ),
    "hidden and reached": Wrong(
        nothing_hidden_is_reached,
        '<div style="width: 0; height: 0; overflow: hidden; position: absolute">'
        '<a href="#a" style="display: contents">a</a></div><p><a href="#b">b</a></p>'
        '<script>document.querySelector("[href=\'#b\']").addEventListener("focus", () => {'
        'const e = document.body.appendChild(document.createElement("button")); e.id = "late";'
        "e.focus(); })</script>",
        "button#late",
    ),
    "trap": Wrong(
        focus_gets_out,
        '<p><a href="#a">a</a> <input aria-label="b" onblur="this.focus()"></p>'
        "<script>document.querySelector('input').addEventListener('keydown', (e) => {"
        "if (e.key === 'Tab') e.preventDefault(); })</script>",
        "input",
    ),
    "order of its own": Wrong(
        order_is_that_of_the_page,
        '<p><a href="#a">a</a> <a href="#b" tabindex="2">b</a></p>',
        'a "a" has the focus after a "b"',
    ),
    "no ring": Wrong(
        focus_is_seen,
        '<style>a:focus { outline: none }</style><p><a href="#a">a</a></p>',
        'a "a": its mark has a contrast of 0.0',
    ),
    "faint ring": Wrong(
        focus_is_seen,
        '<style>a:focus { outline: 2px solid #ddd }</style><p><a href="#a">a</a></p>',
        'a "a": its mark has a contrast of 1.',
    ),
    "transparent": Wrong(
        focus_is_seen,
        '<p><a href="#a" style="opacity: 0">a</a></p>',
        'a "a": its mark has a contrast of 0.0',
    ),
    "under the head": Wrong(
        focus_is_not_covered,
        '<div style="position: fixed; inset: 0; background: white">above</div>'
        '<p><a href="#a">a</a></p>',
        'a "a": it lies under div',
    ),
}
DIALOG = '<dialog id="pst-search-dialog"><input aria-label="q"></dialog>'
BUTTON = '<button class="search-button" onclick="{}">Search</button>'
OPENS = "document.querySelector('dialog').showModal()"
MENU = (
    '<div class="dropdown"><button data-bs-toggle="dropdown" aria-expanded="false" {}>Menu</button>'
    '<div class="dropdown-menu"><a href="#a">a</a></div></div>'
)
WRONG = {
    "dead button": Wrong(
        overlays_open_and_close, DIALOG + BUTTON.format(""), "search: Enter does not open it"
    ),
    "dialog that stays": Wrong(
        overlays_open_and_close,
        DIALOG.replace("<dialog", '<dialog oncancel="event.preventDefault()"')
        + BUTTON.format(OPENS),
        "search: Escape does not close it",
    ),
    "dialog that loses the focus": Wrong(
        overlays_open_and_close,
        '<a href="#x" id="x">x</a>'
        + DIALOG.replace("<dialog", '<dialog onfocusin="document.getElementById(`x`).focus()"')
        + BUTTON.format(OPENS.replace("showModal", "show")),
        "search: the focus leaves it",
    ),
    "menu that stays shut": Wrong(
        menus_open_and_close, MENU.format(""), "Menu: Enter does not open it"
    ),
    "menu that stays open": Wrong(
        menus_open_and_close,
        MENU.format("onclick=\"this.setAttribute('aria-expanded', 'true')\""),
        "Menu: Escape does not close it",
    ),
    "fold that stays shut": Wrong(
        folds_open,
        "<details><summary onclick='event.preventDefault()'>More</summary>text</details>",
        "'More' does not change",
    ),
    "no skip link": Wrong(skip_link_skips, '<a href="#a">a</a>', "the first stop leads to #a"),
    "skip link that is not seen": Wrong(
        skip_link_skips,
        '<a href="#main-content" style="position: absolute; top: -99px">skip</a>',
        "the first stop is not seen",
    ),
    "skip link to the wrong place": Wrong(
        skip_link_skips,
        '<a href="#main-content" style="position: fixed; top: 0">skip</a>'
        '<a href="#b">b</a><div id="main-content"></div>',
        "the stop after it is not in the main part",
    ),
}


@pytest.fixture(scope="module")
def doctored(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("wrong")
    with visiting_wrong(browser, folder, WRONG_WALKS | WRONG) as visit:
        yield visit


@pytest.mark.parametrize("key", ["Tab", "Shift+Tab"])
def test_a_good_page_passes_every_check(doctored: Visit, key: str) -> None:
    doctored.open("good.html")
    taken = walk(doctored, key)
    assert len(taken.steps) == 6  # the box that scrolls, and five downloads
    assert [what for check in WALK_CHECKS for what in check(taken)[:8]] == []


@pytest.mark.parametrize("name", WRONG_WALKS)
def test_a_wrong_walk_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    wrong = WRONG_WALKS[name]
    assert wrong.says in "\n".join(wrong.check(walk(doctored)))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_is_caught(doctored: Visit, name: str) -> None:
    doctored.open(address(name))
    assert WRONG[name].says in "\n".join(WRONG[name].check(doctored))


def test_every_check_has_a_wrong_page() -> None:
    assert {wrong.check for wrong in WRONG_WALKS.values()} == set(WALK_CHECKS)
    assert {wrong.check for wrong in WRONG.values()} == set(PRESS_CHECKS)
