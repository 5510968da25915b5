"""A caption as plain text, with the numbers that it shows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proofbook.errors import InputError

_MARKED = re.compile(
    r"\{(?P<role>[a-z:]+)\}`(?P<content>[^`]+)`"
    r"|\[(?P<link>[^\]]+)\]\([^)]*\)|\$(?P<math>[^$]+)\$|`(?P<code>[^`]+)`"
    r"|\*\*(?P<strong>[^*]+)\*\*|\*(?P<emphasis>[^*]+)\*"
)
_TITLED = re.compile(r"(?P<words>.*?)\s*<(?P<target>[^<>]+)>", re.DOTALL)


def plain_caption(markdown: str, page: str, texts: Mapping[str, Mapping[str, str]], at: str) -> str:
    """Return a caption as plain text, with the numbers that it takes from its page or another.

    Parameters
    ----------
    markdown : str
        As it stands in the cell's metadata.
    page : str
        The page it stands on.
    texts : mapping of str to mapping of str to str
        Texts of the numbers, by page and id.
    at : str
        What the error message calls the place.

    Raises
    ------
    InputError
        If a page does not show a number.

    Examples
    --------
    >>> plain_caption("At $c$ it is {glue:text}`a.b` in `x`.", "p", {"p": {"a.b": "4"}}, "here")
    'At c it is 4 in x.'
    """

    def said(match: re.Match[str]) -> str:
        role, content = match["role"], match["content"]
        if role is None:
            return str(match[str(match.lastgroup)])
        if not role.startswith("glue:"):
            titled = _TITLED.fullmatch(content)
            return titled["words"] if titled else content
        other, separator, id = content.rpartition("::")
        found = texts.get(other if separator else page, {}).get(id)
        if found is None:
            raise InputError(f"{at}: the caption shows {content!r}, which no cell glues")
        return found

    return " ".join(_MARKED.sub(said, markdown).split())
