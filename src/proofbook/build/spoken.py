"""Formulas in words: what a PDF reader reads aloud, for it does not know MathML."""

from __future__ import annotations

import re

from bs4 import Tag

__all__ = ["spoken"]

#: Sign -> words. What is not listed is read as it stands.
SIGNS = {
    "=": "equals",
    "≠": "is not equal to",
    "<": "is less than",
    ">": "is greater than",
    "≤": "is at most",
    "≥": "is at least",
    "≈": "is about",
    "∈": "in",
    "+": "plus",
    "-": "minus",
    "−": "minus",
    "±": "plus or minus",
    "×": "times",
    "⋅": "times",
    "·": "times",
    "/": "over",
    "∑": "the sum",
    "∏": "the product",
    "∞": "infinity",
    "→": "to",
    "…": "and so on",
    "⋯": "and so on",
    "⌈": "the ceiling of",
    "⌉": "end ceiling",
    "⌊": "the floor of",
    "⌋": "end floor",
    "(": "open bracket",
    ")": "close bracket",
    "[": "open bracket",
    "]": "close bracket",
    "{": "open brace",
    "}": "close brace",
    "|": "bar",
    "∣": "bar",
    "∗": "star",
    "*": "star",
    "′": "prime",
    "\u2061": "of",
}
POWERS = {"2": "squared", "3": "cubed", "*": "star", "∗": "star", "′": "prime"}


def spoken(formula: Tag) -> str:
    r"""Return a formula in words.

    Parameters
    ----------
    formula : Tag
        A ``math`` element of MathML.

    Examples
    --------
    >>> from bs4 import BeautifulSoup
    >>> from proofbook.pages.mathematics import mathml
    >>> def say(latex: str) -> str:
    ...     return spoken(BeautifulSoup(mathml(latex, "inline"), "html.parser").math)
    >>> say(r"s_p(n) = p \lceil n / p \rceil - n")
    's sub p open bracket n close bracket equals p the ceiling of n over p end ceiling minus n'
    >>> say(r"\sqrt{2 c L}")
    'the square root of 2 c L end root'
    >>> say(r"\sum_{i=1}^{N} \frac{n_i + 1}{2}")
    'the sum from i equals 1 to N of the fraction n sub i plus 1 over 2 end fraction'
    >>> say(r"x^2 \le \frac{1}{2}")
    'x squared is at most 1 over 2'
    """
    return re.sub(r"\s+([,.;])", r"\1", " ".join(_words(formula).split()))


def _words(tag: Tag) -> str:
    parts = [child for child in tag.children if isinstance(child, Tag)]
    said = [_words(part) for part in parts]
    name = tag.name
    if name in {"mi", "mn", "mo", "mtext", "ms"}:
        text = tag.get_text().replace("\xa0", " ").strip()
        return SIGNS.get(text, text)
    if name in {"mspace", "annotation", "annotation-xml"}:
        return ""
    if name in {"msub", "msup", "msubsup", "munder", "mover", "munderover"} and len(said) > 1:
        return _scripts(name, parts, said)
    if name == "mfrac" and len(said) == 2:
        simple = not any(" " in part for part in said)
        return f"{said[0]} over {said[1]}" if simple else _fraction(*said)
    if name == "msqrt":
        return f"the square root of {' '.join(said)} end root"
    if name == "mroot" and len(said) == 2:
        return f"the root of {said[0]}, index {said[1]}, end root"
    if name == "mtr":
        return " ".join(said) + ";"
    return " ".join(said)


def _fraction(above: str, below: str) -> str:
    return f"the fraction {above} over {below} end fraction"


def _scripts(name: str, parts: list[Tag], said: list[str]) -> str:
    base, scripts = said[0], said[1:]
    if base in {SIGNS["∑"], SIGNS["∏"]}:
        low, high = (*scripts, "")[:2] if name != "msup" else ("", scripts[0])
        return base + (f" from {low}" if low else "") + (f" to {high}" if high else "") + " of"
    if name in {"msup", "mover"}:
        raised = parts[1].get_text().strip()
        return f"{base} {POWERS.get(raised, f'to the power {scripts[0]}')}"
    above = f" to the power {scripts[1]}" if len(scripts) > 1 else ""
    return f"{base} sub {scripts[0]}{above}"
