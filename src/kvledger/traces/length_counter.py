"""Length tables of requests that come bit by bit, in memory that does not grow with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvledger.core.lengths import LengthTable

IntArray = NDArray[np.int64]

# Up to this length there is a counter for each; a context of a million tokens is within it.
_DENSE_TOKENS = 1 << 20
_PENDING = 1 << 20


class LengthCounter:
    """Counts requests by length.

    Memory is a counter for each length up to about a million tokens that is not above the longest,
    and a pair of numbers for each different length above.

    Examples
    --------
    >>> counter = LengthCounter()
    >>> counter.add(np.array([9, 5]))
    >>> counter.add(np.array([9, 2**40]))
    >>> table = counter.table()
    >>> table.tokens.tolist(), table.requests.tolist()
    ([5, 9, 1099511627776], [1, 2, 1])
    """

    def __init__(self) -> None:
        self._dense: IntArray = np.zeros(1, np.int64)
        self._sparse: list[tuple[IntArray, IntArray]] = []
        self._pending = 0

    def add(self, lengths: IntArray) -> None:
        """Count the lengths, each at least 1."""
        if not len(lengths):
            return
        if int(lengths.max()) >= _DENSE_TOKENS:
            is_long = lengths >= _DENSE_TOKENS
            self._sparse.append(np.unique(lengths[is_long], return_counts=True))
            self._pending += len(self._sparse[-1][0])
            if self._pending > _PENDING:
                self._merge()
            lengths = lengths[~is_long]
        counts = np.bincount(lengths, minlength=1)
        if len(counts) > len(self._dense):
            counts[: len(self._dense)] += self._dense
            self._dense = counts
        else:
            self._dense[: len(counts)] += counts

    def _merge(self) -> None:
        tokens = np.concatenate([tokens for tokens, _ in self._sparse])
        requests = np.concatenate([requests for _, requests in self._sparse])
        different, which = np.unique(tokens, return_inverse=True)
        total = np.zeros(len(different), np.int64)
        np.add.at(total, which, requests)
        self._sparse = [(different, total)]
        self._pending = 0

    def table(self) -> LengthTable:
        """Return the counts so far.

        Raises
        ------
        LedgerError
            If nothing was counted, or the tokens add up to more than 64 bits hold.
        """
        tokens = np.flatnonzero(self._dense)
        requests = self._dense[tokens]
        if self._sparse:
            self._merge()
            tokens = np.concatenate((tokens, self._sparse[0][0]))
            requests = np.concatenate((requests, self._sparse[0][1]))
        return LengthTable(tokens, requests)
