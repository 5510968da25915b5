"""Published numbers, and whether the computed ones agree with them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from proofbook import project
from proofbook.errors import InputError
from proofbook.formats import exact_value

__all__ = [
    "NUMBER_ID",
    "Claim",
    "ClaimMismatch",
    "check_claim",
    "claims_table",
    "published",
    "read_claims",
]

#: Words, digits and underscores, joined by dots; no colon, because ``{glue:text}`id:fmt```
#: reads what follows one as a format.
NUMBER_ID = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")


class ClaimMismatch(InputError):  # noqa: N818, says what happened
    """A computed value differs from the published one."""


class Claim(NamedTuple):
    """One published number: a row of ``data/claims.csv`` or of the paper's numbers."""

    id: str
    text: str
    unit: str
    given: str
    source: str
    where: str

    @property
    def value(self) -> Fraction:
        """The published decimal, exactly."""
        return Fraction(self.text)


SOURCES = (
    ("claims.csv", ("id", "value", "unit", "given", "source")),
    ("paper_pagedattention.csv", ("id", "value", "unit", "where", "note")),
)


def _read(name: str, columns: Sequence[str], path: Path) -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        header = next(rows, [])
        if tuple(header) != tuple(columns):
            raise InputError(f"{name} line 1: {header}; accepted: {','.join(columns)}")
        for row in rows:
            at = f"{name} line {rows.line_num}"
            if len(row) != len(columns):
                raise InputError(f"{at}: {len(row)} fields; accepted: {len(columns)}")
            id_, value, unit, given, last = row
            if not NUMBER_ID.fullmatch(id_):
                raise InputError(f"{at}, id: {id_!r}; accepted: {NUMBER_ID.pattern}")
            if id_ in claims:
                raise InputError(f"{at}, id: {id_!r} stands twice")
            if not re.fullmatch(r"-?\d+(\.\d+)?", value):
                raise InputError(f"{at}, value: {value!r}; accepted: a decimal number")
            source = last if columns[-1] == "source" else "Kwon et al. 2023"
            claims[id_] = Claim(id_, value, unit, given, source, at)
    return claims


def read_claims(name: str = "claims.csv") -> dict[str, Claim]:
    """Read a table of published numbers from ``data/``.

    Parameters
    ----------
    name : {"claims.csv", "paper_pagedattention.csv"}
        Which table.

    Returns
    -------
    dict of str to Claim
        By id, in the order of the file.

    Raises
    ------
    InputError
        If the file is absent or a line is malformed; the message names the line.
    """
    columns = dict(SOURCES).get(name)
    if columns is None:
        raise InputError(f"table: {name!r}; accepted: {', '.join(n for n, _ in SOURCES)}")
    return _read(name, columns, project.data_file(name))


def published(id: str) -> Claim | None:
    """Find a published number in either table; None if its id is in neither.

    Raises
    ------
    InputError
        If both tables hold the id.

    Examples
    --------
    >>> published("metadata.c0.25.best_cost").value
    Fraction(153, 4)
    """
    found = [claims[id] for claims in map(read_claims, dict(SOURCES)) if id in claims]
    if len(found) > 1:
        raise InputError(f"{id}: stands in {found[0].where} and in {found[1].where}")
    return found[0] if found else None


def _same(value: object, claim: Claim) -> bool:
    if isinstance(value, str):
        try:
            return Fraction(value) == claim.value
        except ValueError:
            return False
    return exact_value(value, claim.id) == claim.value


def check_claim(claim: Claim, value: object) -> None:
    """Compare a value with a published one, exactly.

    Raises
    ------
    ClaimMismatch
        If they differ; the message names both, the unit, the source and the line.
    """
    if not _same(value, claim):
        raise ClaimMismatch(
            f"{claim.id}: {value} here, {claim.text} {claim.unit} published "
            f"({claim.source}; given {claim.given or 'nothing more'}; {claim.where})"
        )


def claims_table(
    recomputed: Mapping[str, object],
    cited: Mapping[str, str] | Iterable[str] = (),
    why: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Lay the published numbers beside the recomputed ones.

    Parameters
    ----------
    recomputed : mapping of str to number
        Value of every claim of the article, by id.
    cited : mapping of str to str, or iterable of str
        Claims from elsewhere that are not recomputed, each with the reason.
    why : mapping of str to str, optional
        Explanation of a recomputed value that differs from the published one.

    Returns
    -------
    DataFrame
        Columns ``claim``, ``published``, ``unit``, ``given``, ``source``, ``recomputed``,
        ``verdict`` (reproduced, cited or differs) and ``why``, in the order of
        ``data/claims.csv``.

    Raises
    ------
    ClaimMismatch
        If a value differs and `why` does not say why.
    InputError
        For an id that is not a claim, a claim left out, one given twice, or a claim of the
        article that is only cited.
    """
    claims = read_claims()
    reasons = dict(cited) if isinstance(cited, Mapping) else dict.fromkeys(cited, "")
    why = dict(why or {})
    for name, ids in (("recomputed", recomputed), ("cited", reasons), ("why", why)):
        unknown = sorted(set(ids) - set(claims))
        if unknown:
            raise InputError(f"{name}: {unknown} not in claims.csv")
    both = sorted(set(recomputed) & set(reasons))
    if both:
        raise InputError(f"{both}: recomputed and cited; accepted: one of the two")
    rows = []
    for id, claim in claims.items():
        value = recomputed.get(id)
        if id in reasons:
            if claim.source == "article":
                raise InputError(f"cited: {id} is the article's own; accepted: recomputed")
            verdict, reason = "cited", reasons[id]
        elif id not in recomputed:
            raise InputError(f"{id}: neither recomputed nor cited ({claim.where})")
        elif _same(value, claim):
            verdict, reason = "reproduced", ""
        elif id in why:
            verdict, reason = "differs", why[id]
        else:
            check_claim(claim, value)
        rows.append(
            {
                "claim": id,
                "published": claim.value,
                "unit": claim.unit,
                "given": claim.given,
                "source": claim.source,
                "recomputed": value,
                "verdict": verdict,
                "why": reason or None,
            }
        )
    return pd.DataFrame(rows, dtype=object)
