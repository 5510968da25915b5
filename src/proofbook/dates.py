"""The one date that what is made may carry: a date of its sources, never that of the build."""

from __future__ import annotations

import datetime as dt
import os
import re

from proofbook.errors import InputError

VARIABLE = "SOURCE_DATE_EPOCH"
#: Of what has no date: the first day that a ZIP archive can name.
EARLIEST = dt.datetime(1980, 1, 1, tzinfo=dt.UTC)
#: The last second of the year 9999, beyond which Python has no dates.
LATEST_EPOCH_S = 253_402_300_799


def source_date() -> dt.datetime | None:
    """Return the moment that ``SOURCE_DATE_EPOCH`` sets, in UTC, or None if it is not set.

    Raises
    ------
    InputError
        If it is no whole number of seconds since 1970, or beyond the year 9999.

    References
    ----------
    .. [1] SOURCE_DATE_EPOCH specification, https://reproducible-builds.org/specs/source-date-epoch/

    Examples
    --------
    >>> os.environ[VARIABLE] = "951782400"
    >>> source_date().isoformat()
    '2000-02-29T00:00:00+00:00'
    >>> del os.environ[VARIABLE]
    >>> source_date() is None
    True
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) is None or int(text) > LATEST_EPOCH_S:
        raise InputError(
            f"{VARIABLE} is {text!r}; accepted: whole seconds since 1970-01-01 UTC, "
            f"at most {LATEST_EPOCH_S}"
        )
    return dt.datetime.fromtimestamp(int(text), dt.UTC)


def today() -> dt.date:
    """Return the present day in UTC, or the day that ``SOURCE_DATE_EPOCH`` sets.

    Raises
    ------
    InputError
        As :func:`source_date`.

    Examples
    --------
    >>> today() >= dt.date(1970, 1, 1)
    True
    """
    return (source_date() or dt.datetime.now(dt.UTC)).date()
