"""The one error that bad input raises."""

from __future__ import annotations

from proofbook.errors import InputError, shown

__all__ = ["InputError", "LedgerError", "shown"]


class LedgerError(InputError):
    """Input that cannot be accounted for.

    The message names the value, where it stands (file, line or field) and what is accepted.

    Examples
    --------
    >>> import kvledger as kv
    >>> kv.paged([5, 9], page_size=0)
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: page_size is 0; a page size is a whole number of slots, at least 1
    """


LedgerError.__module__ = "kvledger"  # by which it is imported, and so how it prints
