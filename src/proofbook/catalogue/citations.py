"""How one number, figure or table is cited: as BibTeX, as plain text, by its address."""

from __future__ import annotations

from proofbook.catalogue import Catalogue, Entry, permalink
from proofbook.project import this_project

__all__ = ["bibtex", "escaped", "permalink", "plain"]

RELEASE_YEAR = 2026
DIGEST_CHARACTERS = 8

#: What TeX and BibTeX would take for an instruction. Braces become commands, because BibTeX counts
#: even escaped ones.
_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{sign: f"\\{sign}" for sign in "&%$#_"},
}


def escaped(text: str) -> str:
    r"""Return a text as it stands in a field of BibTeX: one line, nothing in it an instruction.

    Examples
    --------
    >>> print(escaped("100% of {a_b}"))
    100\% of \textbraceleft{}a\_b\textbraceright{}
    """
    visible = "".join(sign for sign in " ".join(text.split()) if sign.isprintable())
    return "".join(_TEX.get(sign, sign) for sign in visible)


def bibtex(entry: Entry, catalogue: Catalogue, base_url: str = "") -> str:
    """Return the BibTeX entry that cites one number, figure or table.

    Parameters
    ----------
    entry : Entry
        What is cited.
    catalogue : Catalogue
        The version of the book that it belongs to.
    base_url : str
        Public address of the book; where there is none, the address is relative to the book.

    Examples
    --------
    >>> entry = Entry("fig-a", "figure", "computed", None, "chapters/a", "c", "Slack grows", None,
    ...               None, "0" * 64, "Slack grows.", "A line.")
    >>> print(bibtex(entry, Catalogue("1.0", "1" * 64, {})))
    @misc{kvledger-fig-a,
      title   = {{Slack grows}},
      author  = {{kvledger contributors}},
      year    = {2026},
      version = {1.0},
      url     = {chapters/a.html#fig-a},
      note    = {kvledger 1.0, figure fig-a, data digest 00000000, computed}
    }
    <BLANKLINE>
    """
    return (
        f"@misc{{{this_project().name}-{entry.id},\n"
        f"  title   = {{{{{escaped(title(entry))}}}}},\n"
        f"  author  = {{{{{this_project().author}}}}},\n"
        f"  year    = {{{RELEASE_YEAR}}},\n"
        f"  version = {{{escaped(catalogue.version)}}},\n"
        f"  url     = {{{permalink(entry, base_url)}}},\n"
        f"  note    = {{{escaped(_stamp(entry, catalogue))}}}\n"
        "}\n"
    )


def plain(entry: Entry, catalogue: Catalogue, base_url: str = "") -> str:
    """Return the sentence that cites one number, figure or table.

    Parameters
    ----------
    entry, catalogue, base_url
        As for :func:`bibtex`.

    Examples
    --------
    >>> entry = Entry("a.slots", "number", "cited", "Kwon et al. 2023", "chapters/a", "c", "38",
    ...               "38", "slots", "0" * 64, None, None)
    >>> plain(entry, Catalogue("1.0", "1" * 64, {}))
    'kvledger contributors (2026). a.slots: 38 slots. kvledger 1.0, number a.slots, data digest \
00000000, cited (Kwon et al. 2023). chapters/a.html#n-a.slots'
    """
    return (
        f"{this_project().author} ({RELEASE_YEAR}). {title(entry)}. {_stamp(entry, catalogue)}. "
        f"{permalink(entry, base_url)}"
    )


def title(entry: Entry) -> str:
    """Return what a citation calls an entry: a figure's title, a table's caption, a number itself.

    Examples
    --------
    >>> title(Entry("a.share", "number", "computed", None, "chapters/a", "c", "36.6%", "183/500",
    ...             "%", "0" * 64, None, None))
    'a.share: 36.6%'
    """
    if entry.what != "number":
        return " ".join(entry.text.split()).removesuffix(".")
    shown = entry.text.replace("\N{NO-BREAK SPACE}", " ")
    unit = entry.unit or ""
    if unit.startswith("%"):  # of what stands behind the sign, if anything
        shown = shown.removesuffix("%") + unit
    elif unit not in ("", "text") and not (unit == "bytes" and shown.endswith("B")):
        shown = f"{shown} {unit}"
    return f"{entry.id}: {shown}"


def _stamp(entry: Entry, catalogue: Catalogue) -> str:
    source = f" ({entry.source.rstrip('.')})" if entry.source else ""
    return (
        f"{this_project().name} {catalogue.version}, {entry.what} {entry.id}, "
        f"data digest {entry.digest[:DIGEST_CHARACTERS]}, {entry.kind}{source}"
    )
