"""A page by keyboard alone: what Tab reaches, in what order, and whether one sees where one is."""

from __future__ import annotations

from typing import Any, NamedTuple

from browser.driver import Visit

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
    const rects = [...e.getClientRects()].filter((r) => r.width > 0 && r.height > 0);
    const points = rects.flatMap((r) => [0.1, 0.5, 0.9].flatMap((x) => [0.2, 0.5, 0.8].map((y) =>
      [r.left + x * r.width, r.top + y * r.height])));
    const inside = points.filter(([x, y]) =>
      x >= 0 && y >= 0 && x < innerWidth && y < innerHeight);
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
    return {index, first, name: name(e), covered: covered(e),
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


class Walk(NamedTuple):
    """What a walk over a page with one key met, in order, and what it should have met."""

    steps: list[Step]
    expected: list[str]
    ended: bool


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
        steps.append(Step(found["index"], found["name"], found["ring"], found["covered"]))
    names: list[str] = page.evaluate("() => kv.all.map(kv.name)")
    return Walk(steps, names, ended)
