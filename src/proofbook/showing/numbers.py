"""Numbers that prose shows by their ids."""

from __future__ import annotations

from proofbook.claims import SOURCES, check_claim, published
from proofbook.errors import InputError
from proofbook.formats import format_value
from proofbook.marks import MARK, RECORD
from proofbook.showing import outputs
from proofbook.showing.outputs import MIME_PREFIX, Kind
from proofbook.showing.quantities import Quantity, quantity

__all__ = ["cite", "number"]


def _glue(id: str, text: str, kind: str, source: str | None, exact: Quantity) -> None:
    outputs.once(id, text)
    about = {"kind": kind, "source": source, "value": exact.value, "unit": exact.unit}
    outputs.emit(
        {RECORD: text},
        {"scrapbook": {"name": id, "mime_prefix": MIME_PREFIX}, MARK: about},
    )


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
        Lower-case words joined by dots, such as ``paged.p4.allocated_slots``.
    value : int, Fraction, Decimal, float, NumPy scalar or str
        The number itself, not a rounded copy.
    fmt : str, optional
        See :func:`~proofbook.formats.format_value`.
    unit : str, optional
        What it is counted in: ``"slots"``, or ``""`` for a pure number. To be left out where
        something else says it: the format (``%``, ``bytes``), the published claim, or the last
        word of the id, see :func:`~proofbook.showing.quantities.quantity`.
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
    >>> number("paged.p4.tail_slack_slots", 10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    proofbook.claims.ClaimMismatch: paged.p4.tail_slack_slots: 10 here, 9 slots published ...
    """
    outputs.check_number_id(id)
    outputs.check_kind(id, kind, source)
    text = format_value(value, fmt, name=id)
    claim = published(id)
    if claim is not None:
        check_claim(claim, value)
    _glue(id, text, kind, source, quantity(id, value, fmt, unit=unit, claim=claim))


def cite(id: str) -> None:
    """Glue a published number as it was published, with its source.

    Parameters
    ----------
    id : str
        An id of ``data/claims.csv`` or ``data/paper_pagedattention.csv``. The text is the
        published decimal, with a percent sign where the unit is one.

    Raises
    ------
    InputError
        If neither table holds the id.
    """
    outputs.check_number_id(id)
    claim = published(id)
    if claim is None:
        raise InputError(f"{id}: not in {' or '.join(dict(SOURCES))}")
    text = claim.text + ("%" if claim.unit.startswith("%") else "")
    _glue(id, text, "cited", claim.source, quantity(id, claim.value, claim=claim))
