"""Names from outside, made safe to show: nothing in them steers a terminal or a layout."""

from __future__ import annotations


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
