"""The same drawing in fewer bytes: what Matplotlib writes as SVG, said shorter.

Coordinates are rounded to hundredths of a point, far below a pixel, and written as steps from
the point before. A hatch of dots, which Matplotlib writes as thousands of curves, becomes as many
points of a round pen. Nothing is left out, and a test compares the pixels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["slim_svg"]

#: Steps a point: coordinates are whole numbers of hundredths.
STEPS = 100
#: How many numbers follow a command, of the commands that Matplotlib writes.
ARITY = {"M": 2, "L": 2, "Q": 4, "C": 6, "Z": 0}

_PATH = re.compile(r'(<path [^>]*?\bd=")([^"]*)("[^>]*>)')
_TOKEN = re.compile(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_DATA = re.compile(r"(?:[MLQCZz]|[-+.\deE]|[\s,])*")
_TRANSLATE = re.compile(r"translate\((-?[\d.]+) (-?[\d.]+)\)")
_PLACE = re.compile(r"(<(?:use|rect)\b[^>]*>)")
_PLACE_VALUE = re.compile(r' (x|y|width|height)="(-?\d+\.\d{3,})"')
_STYLE = re.compile(r'style="[^"]*"')
_STYLE_SPACE = re.compile(r"([:;]) +")


class Segment(NamedTuple):
    """One command of a path with its absolute points, in hundredths."""

    command: str
    points: tuple[tuple[int, int], ...]


def slim_svg(svg: str) -> str:
    r"""Write an SVG drawing of Matplotlib's shorter, without a change that shows.

    Parameters
    ----------
    svg : str
        The text of the drawing. Paths that use other commands than Matplotlib's own (``M``,
        ``L``, ``Q``, ``C``, ``Z``, all absolute) are left as they are.

    Returns
    -------
    str
        The same elements, ids, comments and metadata, with shorter numbers and paths.

    Examples
    --------
    >>> slim_svg('<path d="M 1.000001 2 \nL 4 2 \nL 7.5 2 \nL 7.5 3 \nz" style="fill: #fff"/>')
    '<path d="M1 2h6.5v1z" style="fill:#fff"/>'
    """
    slim = _PATH.sub(_slim_path, svg)
    slim = _TRANSLATE.sub(lambda m: f"translate({_short(m[1])} {_short(m[2])})", slim)
    slim = _PLACE.sub(
        lambda tag: _PLACE_VALUE.sub(lambda m: f' {m[1]}="{_short(m[2])}"', tag[0]), slim
    )
    slim = _STYLE.sub(lambda style: _STYLE_SPACE.sub(r"\1", style[0]), slim)
    # Line breaks between elements count for nothing; within words (a comment, the description) they
    # would.
    return re.sub(r">\n *<", ">\n<", slim)


def _short(text: str) -> str:
    return _decimal(round(float(text) * STEPS))


def _decimal(steps: int) -> str:
    """Write a number of hundredths with as few characters as SVG allows."""
    whole, rest = divmod(abs(steps), STEPS)
    digits = f"{rest:02d}".rstrip("0")
    text = f"{whole or ''}.{digits}" if digits else str(whole)
    return f"-{text}" if steps < 0 else text


def _numbers(values: Sequence[int]) -> str:
    """Write numbers in a row, with a space only where two would run together."""
    text = ""
    for value in values:
        shown = _decimal(value)
        # ".5.5" are two numbers, "5.5" is one; a minus always parts.
        joins = shown.startswith("-") or (shown.startswith(".") and "." in text.split(" ")[-1])
        text += shown if not text or joins else f" {shown}"
    return text


def _slim_path(match: re.Match[str]) -> str:
    before, data, after = match.groups()
    segments = _segments(data)
    if segments is None:
        return match[0]
    dots = _dots(segments, before + after)
    return dots if dots is not None else before + _steps(segments) + after


def _segments(data: str) -> list[Segment] | None:
    """Read a path; None if it holds a command that is not Matplotlib's."""
    if _DATA.fullmatch(data) is None:
        return None
    found: list[Segment] = []
    tokens = _TOKEN.findall(data)
    at = 0
    while at < len(tokens):
        command = tokens[at].upper()
        if command not in ARITY:
            return None
        end = at + 1 + ARITY[command]
        try:
            numbers = [round(float(token) * STEPS) for token in tokens[at + 1 : end]]
        except ValueError:
            return None
        if len(numbers) != ARITY[command] or (not found and command != "M"):
            return None
        found.append(Segment(command, tuple(zip(numbers[::2], numbers[1::2], strict=True))))
        at = end
    return found


def _commands(segments: Sequence[Segment]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield relative commands; straight runs along an axis become one."""
    x = y = start_x = start_y = 0
    run: tuple[str, int] | None = None
    for command, points in segments:
        step: tuple[str, int] | None = None
        if command == "L":
            dx, dy = points[0][0] - x, points[0][1] - y
            if dy == 0:
                step = ("h", dx)
            elif dx == 0:
                step = ("v", dy)
        if run is not None:
            # Only onwards: turning back draws a cap or a join where it turns.
            if step is not None and step[0] == run[0] and step[1] * run[1] > 0:
                run = (run[0], run[1] + step[1])
                x, y = points[-1]
                continue
            yield run[0], (run[1],)
            run = None
        if step is not None:
            run = step
        elif command == "M":
            # The first one is absolute, all others are steps.
            yield "m", (points[0][0] - x, points[0][1] - y)
            start_x, start_y = points[0]
        elif command == "Z":
            yield "z", ()
            x, y = start_x, start_y
            continue
        else:
            yield command.lower(), tuple(v for px, py in points for v in (px - x, py - y))
        x, y = points[-1]
    if run is not None:
        yield run[0], (run[1],)


def _steps(segments: Sequence[Segment]) -> str:
    """Write a path as steps; a command that repeats is named once."""
    text, last = "", ""
    for number, (command, values) in enumerate(_commands(segments)):
        written = _numbers(values)
        if command == "m" and number == 0:
            text, last = f"M{written}", "M"
        elif command == last and command not in "mz":
            joined = written.startswith("-") or (
                written.startswith(".") and "." in re.split(r"[ a-zA-Z-]", text)[-1]
            )
            text += written if joined else f" {written}"
        else:
            text += command + written
            last = command
    return text


def _dots(segments: Sequence[Segment], tag: str) -> str | None:
    """Return an element that draws a hatch of equal dots with a round pen, or None.

    Matplotlib draws each dot as a circle of eight curves, filled and stroked in one colour.
    """
    style = re.search(
        r'style="fill: (#\w{6}); stroke: (#\w{6}); stroke-width: ([\d.]+);[^"]*"', tag
    )
    if style is None or style[1] != style[2] or "opacity" in tag or len(segments) % 10:
        return None
    centres: list[tuple[int, int]] = []
    radii: set[int] = set()
    for first in range(0, len(segments), 10):
        dot = segments[first : first + 10]
        if [segment.command for segment in dot] != ["M", *"C" * 8, "Z"]:
            return None
        ends = [segment.points[-1] for segment in dot[:9]]
        (x, low), (_, high) = min(ends, key=lambda p: p[1]), max(ends, key=lambda p: p[1])
        middle = ((x, (low + high) // 2), (high - low) // 2)
        wide = max(px for px, _ in ends) - min(px for px, _ in ends)
        if abs(wide - (high - low)) > 1:
            return None
        centres.append(middle[0])
        radii.add(middle[1])
    if len(centres) < 2 or max(radii) - min(radii) > 1:
        return None
    pen = _decimal(round(float(style[3]) * STEPS) + 2 * max(radii))
    data = ""
    x = y = 0
    for number, (cx, cy) in enumerate(centres):
        data += ("M" if not number else "m") + _numbers((cx - x, cy - y)) + "h0"
        x, y = cx, cy
    return (
        f'<path d="{data}" style="fill: none; stroke: {style[2]}; stroke-width: {pen}; '
        'stroke-linecap: round"/>'
    )
