"""The one error that bad input raises."""

from __future__ import annotations


class LedgerError(ValueError):
    """Input that cannot be accounted for.

    The message names the value, where it stands (file, line or field) and what is accepted.

    Examples
    --------
    >>> import kvledger as kv
    >>> kv.paged([5, 9], page_size=0)
    Traceback (most recent call last):
    ...
    kvledger.errors.LedgerError: page_size is 0; a page size is a whole number of slots, at least 1
    """
