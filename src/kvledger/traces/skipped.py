"""Rows of a source that are not in a trace, counted by the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole

_NOTHING: Mapping[str, int] = MappingProxyType({})
_COUNT = "accepted: a count from 0"


class Skipped(Mapping[str, int]):
    """How many rows were left out, by reason: a mapping that does not change.

    A reason names a field and what is wrong with it, never a value: it can be shown where the
    trace itself may not be.

    Parameters
    ----------
    reasons : mapping from str to int
        Rows left out for each reason; reasons of no row are dropped.
    failed : int
        How many of these rows are requests that failed, as their source says. The others could
        not be read, or carry no token counts.

    Raises
    ------
    LedgerError
        If a count is not a whole number from 0, or more failed than were left out.

    Examples
    --------
    >>> skipped = Skipped({"HTTP status 429": 2, "no usage": 1}, failed=2)
    >>> skipped["no usage"], skipped.rows, skipped.failed
    (1, 3, 2)
    >>> print(skipped)
    2 failed requests and 1 unusable row left out (2 HTTP status 429, 1 no usage)
    """

    __slots__ = ("_reasons", "failed")

    def __init__(self, reasons: Mapping[str, int] = _NOTHING, failed: int = 0) -> None:
        counted = {
            str(reason): whole(rows, f"skipped[{reason!r}]", minimum=0, accepted=_COUNT)
            for reason, rows in reasons.items()
        }
        self._reasons = {reason: rows for reason, rows in counted.items() if rows}
        self.failed = whole(failed, "failed_requests", minimum=0, accepted=_COUNT)
        if self.failed > self.rows:
            raise LedgerError(
                f"failed_requests is {self.failed} of {self.rows} skipped rows; "
                "accepted: at most as many as were skipped"
            )

    @property
    def rows(self) -> int:
        """Number of rows left out."""
        return sum(self._reasons.values())

    def __getitem__(self, reason: str) -> int:
        return self._reasons[reason]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def __repr__(self) -> str:
        return f"Skipped({self._reasons!r}, failed={self.failed})"

    def __str__(self) -> str:
        unusable = self.rows - self.failed
        what = [_counted(self.failed, "failed request")] if self.failed else []
        what += [_counted(unusable, "unusable row")] if unusable else []
        if not what:
            return "none left out"
        reasons = ", ".join(f"{rows:,} {reason}" for reason, rows in self._reasons.items())
        return f"{' and '.join(what)} left out ({reasons})"


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


class Tally:
    """Counts rows while a file is read; :meth:`skipped` is the result.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.fail("no response")
    >>> tally.unusable("no usage", 2)
    >>> tally.skipped()
    Skipped({'no response': 1, 'no usage': 2}, failed=1)
    """

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._failed = 0

    def fail(self, reason: str, rows: int = 1) -> None:
        """Count requests that failed, as their source says."""
        self._reasons[reason] += rows
        self._failed += rows

    def unusable(self, reason: str, rows: int = 1) -> None:
        """Count rows that cannot be used although nothing says that the request failed."""
        self._reasons[reason] += rows

    def skipped(self) -> Skipped:
        """Return the counts so far."""
        return Skipped(self._reasons, self._failed)
