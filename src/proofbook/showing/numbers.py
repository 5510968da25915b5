"""Numbers that prose shows by their ids: exact value, unit, and what is published under the id."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from proofbook import project, showing
from proofbook.errors import InputError
from proofbook.formats import exact_value, float_text, format_value
from proofbook.showing import NUMBER_ID, RECORD, Kind

if TYPE_CHECKING:
    import pandas as pd

TEXT = "text"
PERCENT = "%"


class ClaimMismatch(InputError):  # noqa: N818, says what happened
    """A computed value differs from the published one."""


class Claim(NamedTuple):
    """One published number: a row of ``data/claims.csv`` or of another table of them."""

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


class Quantity(NamedTuple):
    """A value, exact, in the unit that is named beside it."""

    value: str
    unit: str


# ---------------------------------------------------------------- shown


def number(
    id: str,
    value: object,
    fmt: str | None = None,
    *,
    unit: str | None = None,
    kind: Kind = "computed",
    source: str | None = None,
) -> None:
    """Glue one number under an id, for prose to show as ``{glue:text}`id```.

    Parameters
    ----------
    id : str
        Lower-case words joined by dots, such as ``stock.sold_parts``.
    value : int, Fraction, Decimal, float, NumPy scalar or str
        The number itself, not a rounded copy.
    fmt : str, optional
        See :func:`~proofbook.formats.format_value`.
    unit : str, optional
        What it is counted in: ``"parts"``, or ``""`` for a pure number. To be left out where
        something else says it, see :func:`quantity`.
    kind : {"computed", "cited", "measured"}
        Where it comes from.
    source : str, optional
        Citation of a cited number, record file of a measured one.

    Raises
    ------
    ClaimMismatch
        If ``data/claims.csv`` publishes another value under this id.
    InputError
        For a malformed id, an unknown kind, a missing source or unit, a value or format
        :func:`~proofbook.formats.format_value` refuses, or an id shown before with
        another text.

    Examples
    --------
    >>> number("stock.sold", 10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    proofbook.errors.InputError: stock.sold: no unit; accepted: unit='...' ...
    """
    showing.check_id(id, NUMBER_ID, "number")
    showing.check_kind(id, kind, source)
    text = format_value(value, fmt, name=id)
    claim = published(id)
    if claim is not None:
        check_claim(claim, value)
    _glue(id, text, kind, source, quantity(id, value, fmt, unit=unit, claim=claim))


def cite(id: str) -> None:
    """Glue a published number as it was published, with its source.

    The text is the published decimal, with a percent sign where the unit is one.

    Parameters
    ----------
    id : str
        An id of ``data/claims.csv`` or of another table that the project names; any other is an
        InputError.
    """
    showing.check_id(id, NUMBER_ID, "number")
    claim = published(id)
    if claim is None:
        raise InputError(f"{id}: not in {' or '.join(project.this_project().published)}")
    text = claim.text + (PERCENT if claim.unit.startswith(PERCENT) else "")
    _glue(id, text, "cited", claim.source, quantity(id, claim.value, claim=claim))


def _glue(id: str, text: str, kind: Kind, source: str | None, exact: Quantity) -> None:
    showing.once(id, text)
    scrapbook = {"name": id, "mime_prefix": RECORD.removesuffix("text/plain")}
    about = {"kind": kind, "source": source, "value": exact.value, "unit": exact.unit}
    showing.emit({RECORD: text}, {"scrapbook": scrapbook, showing.MARK: about})


# ---------------------------------------------------------------- value and unit


def quantity(
    id: str,
    value: object,
    fmt: str | None = None,
    *,
    unit: str | None = None,
    claim: Claim | None = None,
) -> Quantity:
    """Return a number's exact value with its unit, or refuse one that nothing says, or two things.

    A fraction stands as ``153/4``, a float with twelve significant digits; a format in percent
    makes the value one in percent; ``text`` is the unit of words.

    Examples
    --------
    >>> quantity("stock.mean", Fraction(153, 4), unit="parts")
    Quantity(value='153/4', unit='parts')
    >>> quantity("stock.share", Fraction(183, 500), ".1%")
    Quantity(value='183/5', unit='%')
    """
    if unit is not None and (not isinstance(unit, str) or unit != " ".join(unit.split())):
        raise InputError(f"{id}: unit {unit!r}; accepted: one line of text, '' for a pure number")
    in_percent = isinstance(fmt, str) and fmt.endswith(PERCENT)
    known = PERCENT if in_percent else "bytes" if fmt == "bytes" else None
    if claim is not None or isinstance(value, str):
        known = claim.unit if claim is not None else TEXT
    if known is not None and unit not in (None, known):
        raise InputError(f"{id}: unit {unit!r}, but it is known to be {known!r}; leave it out")
    units = project.this_project().units
    of_id = (u for word, u in units.items() if id == word or id.endswith((f".{word}", f"_{word}")))
    found = known if known is not None else unit if unit is not None else next(of_id, None)
    if found is None:
        ends = f", or an id that ends in {', '.join(units)}" if units else ""
        raise InputError(f"{id}: no unit; accepted: unit='...' ('' for a pure number){ends}")
    if isinstance(value, str):
        return Quantity(value, found)
    times = 100 if in_percent else 1
    if isinstance(value, float | np.floating):
        return Quantity(float_text(float(value) * times), found)
    return Quantity(str(exact_value(value, id) * times), found)


# ---------------------------------------------------------------- published


def read_claims(name: str = "claims.csv") -> dict[str, Claim]:
    """Read a table of published numbers from ``data/``: one of those that the project names.

    Returns
    -------
    dict of str to Claim
        By id, in the order of the file.

    Raises
    ------
    InputError
        If the file is absent or a line is malformed; the message names the line.
    """
    tables = project.this_project().published
    if name not in tables:
        raise InputError(f"table: {name!r}; accepted: {', '.join(tables)}")
    source = tables[name]
    columns = ("id", "value", "unit", *(("where", "note") if source else ("given", "source")))
    claims: dict[str, Claim] = {}
    with project.data_file(name).open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        header = next(rows, [])
        if tuple(header) != columns:
            raise InputError(f"{name} line 1: {header}; accepted: {','.join(columns)}")
        for row in rows:
            at = f"{name} line {rows.line_num}"
            if len(row) != len(columns):
                raise InputError(f"{at}: {len(row)} fields; accepted: {len(columns)}")
            id, value, unit, given, last = row
            if not NUMBER_ID.fullmatch(id):
                raise InputError(f"{at}, id: {id!r}; accepted: {NUMBER_ID.pattern}")
            if id in claims:
                raise InputError(f"{at}, id: {id!r} stands twice")
            if not re.fullmatch(r"-?\d+(\.\d+)?", value):
                raise InputError(f"{at}, value: {value!r}; accepted: a decimal number")
            claims[id] = Claim(id, value, unit, given, source or last, at)
    return claims


def published(id: str) -> Claim | None:
    """Find a published number in any table of the project; None if its id is in none."""
    here = project.this_project()
    tables = [read_claims(name) for name in here.published if (here.data / name).is_file()]
    found = [claims[id] for claims in tables if id in claims]
    if len(found) > 1:
        raise InputError(f"{id}: stands in {found[0].where} and in {found[1].where}")
    return found[0] if found else None


def _same(value: object, claim: Claim) -> bool:
    try:
        return claim.value == (
            Fraction(value) if isinstance(value, str) else exact_value(value, claim.id)
        )
    except ValueError:  # words, or no number at all
        return False


def check_claim(claim: Claim, value: object) -> None:
    """Compare a value with a published one, exactly."""
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
    import pandas as pd

    claims = read_claims()
    reasons = dict(cited) if isinstance(cited, Mapping) else dict.fromkeys(cited, "")
    why = dict(why or {})
    for name, ids in (("recomputed", recomputed), ("cited", reasons), ("why", why)):
        if unknown := sorted(set(ids) - set(claims)):
            raise InputError(f"{name}: {unknown} not in claims.csv")
    if both := sorted(set(recomputed) & set(reasons)):
        raise InputError(f"{both}: recomputed and cited; accepted: one of the two")
    rows = []
    for id, claim in claims.items():
        value = recomputed.get(id)
        if id in reasons and claim.source == "article":
            raise InputError(f"cited: {id} is the article's own; accepted: recomputed")
        if id not in reasons and id not in recomputed:
            raise InputError(f"{id}: neither recomputed nor cited ({claim.where})")
        if id in reasons:
            verdict, reason = "cited", reasons[id]
        elif _same(value, claim):
            verdict, reason = "reproduced", ""
        elif id in why:
            verdict, reason = "differs", why[id]
        else:
            check_claim(claim, value)
        about = (id, claim.value, claim.unit, claim.given, claim.source)
        rows.append((*about, value, verdict, reason or None))
    columns = ["claim", "published", "unit", "given", "source", "recomputed", "verdict", "why"]
    return pd.DataFrame(rows, columns=columns, dtype=object)
