"""Words in messages and sentences: names from outside made safe to show, lists, counts."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    r"""Write out the characters that cannot be printed: controls, line ends, directions of text.

    Examples
    --------
    >>> print(printable("trace\x1b[2J\n.csv"))
    trace\x1b[2J\n.csv
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def shown_name(text: str) -> str:
    r"""Return a name as one line without spaces around it, never blank.

    Examples
    --------
    >>> shown_name("  my trace.csv "), shown_name("\n"), shown_name("  ")
    ('my trace.csv', '\\n', 'unnamed')
    """
    return printable(text).strip() or "unnamed"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["3/14", "6/7", "2"]), listed(["2"]), listed([])
    ('3/14, 6/7 and 2', '2', '')
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(n: int, noun: str) -> str:
    """Return a count and what is counted, in the plural unless it is one.

    Examples
    --------
    >>> counted(1, "request"), counted(1200, "page")
    ('1 request', '1,200 pages')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
