"""What the readers of traces share: the formats, what is read and left out, words of errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Never, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX, whole
from proofbook.plaintext import counted, printable

#: What :func:`load_trace` accepts: the name for ``format=`` and what such a file holds.
TRACE_FORMATS: dict[str, str] = {
    "azure": "CSV with columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure 2023 and 2024)",
    "burstgpt": "CSV with columns Timestamp, Request tokens, Response tokens (BurstGPT)",
    "prefill_decode": (
        "CSV with columns num_prefill_tokens, num_decode_tokens and maybe num_total_tokens, "
        "arrived_at (Vidur, Etalon)"
    ),
    "tokens": "CSV with columns prompt_tokens, output_tokens and maybe arrival_s",
    "mooncake": (
        "JSONL with timestamp (ms), input_length, output_length and maybe hash_ids "
        "(Mooncake; 512 tokens an id)"
    ),
    "qwen": (
        "JSONL with timestamp (s), input_length, output_length and maybe hash_ids, beside chat_id "
        "(Qwen-Bailian; 16 tokens an id)"
    ),
    "benchmark": (
        "JSON or JSONL results with input_lens, output_lens and maybe start_times, errors "
        "(vllm bench serve --save-detailed, sglang.bench_serving --output-details)"
    ),
    "openai": (
        "JSONL of responses with usage: a batch's output file (custom_id, response, error), or "
        "chat.completion, text_completion or response objects"
    ),
    "lengths": "one length a line, a CSV of one column with a header, or a JSON array of lengths",
}

#: Other names for some of them.
ALIASES = {"vllm": "benchmark", "sglang": "benchmark"}

_MOST_LISTED = 20
_NOTHING: Mapping[str, int] = MappingProxyType({})
_COUNT = "accepted: a count from 0"


class Skipped(Mapping[str, int]):
    """How many rows were left out, by reason: a mapping that does not change.

    A reason names a field and what is wrong with it, never a value: it can be shown where the
    trace itself may not be. ``failed`` of these rows are requests that failed, as their source
    says; the others could not be read, or carry no token counts.

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
        rows = {
            str(reason): whole(n, f"skipped[{reason!r}]", minimum=0, accepted=_COUNT)
            for reason, n in reasons.items()
        }
        self._reasons = {reason: n for reason, n in rows.items() if n}
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
        if not self:
            return "none left out"
        both = (self.failed, "failed request"), (self.rows - self.failed, "unusable row")
        what = " and ".join(counted(n, noun) for n, noun in both if n)
        return f"{what} left out ({', '.join(f'{n:,} {why}' for why, n in self.items())})"


class UnusableRowError(LedgerError):
    """A row that cannot be read; ``reason`` says what is wrong without any of its values."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Tally:
    """Counts rows that are left out while a file is read; :meth:`skipped` is the result.

    Unless `count` is true, the first row that cannot be read is an error.
    """

    def __init__(self, *, count: bool = False) -> None:
        self.count = count
        self._reasons: Counter[str] = Counter()
        self._failed = 0

    def fail(self, reason: str, rows: int = 1) -> None:
        """Count requests that failed, as their source says."""
        self.leave_out(reason, rows)
        self._failed += rows

    def leave_out(self, reason: str, rows: int = 1) -> None:
        """Count rows that hold no request, although nothing says that it failed."""
        self._reasons[reason] += rows

    def refuse(self, problem: UnusableRowError) -> None:
        """Count a row that cannot be read, or raise its error."""
        if not self.count:
            raise problem
        self.leave_out(problem.reason)

    def skipped(self) -> Skipped:
        """Return the counts so far."""
        return Skipped(self._reasons, self._failed)


class Columns(NamedTuple):
    """Some rows of a table as they were read: times in seconds, or of dates in nanoseconds."""

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    time: NDArray[Any] | None


class Rows(NamedTuple):
    """Some requests of a trace, in order: totals within 64 bits, seconds from the first row."""

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    arrival_s: NDArray[np.float64] | None = None
    page_ids: list[tuple[int, ...]] | None = None


#: Rows as they are read; closing it ends the reading.
RowStream: TypeAlias = Generator[Rows, None, None]


class Reading(NamedTuple):
    """A trace being read: its rows as they come, and what is known about them as a whole."""

    rows: RowStream  # each is read when it is asked for; if one has no times, the trace has none
    tally: Tally  # complete when the rows are exhausted
    page_ids_size: int | None = None  # tokens per block id, where there are ids
    by_time: bool = False  # rows may be in another order than that of the times they give
    nothing: str = "no requests; accepted: at least one"  # where not even a row was left out


def format_list() -> str:
    """Return one line for each format, for an error message."""
    lines = [f"  {name}: {holds}" for name, holds in TRACE_FORMATS.items()]
    return "\n".join([*lines, "  (a table may be Parquet; the others plain or .gz .bz2 .xz .zst)"])


def name_list(names: Iterable[str], parting: str = ", ") -> str:
    """Return names of columns or keys as an error message lists them: on one line, not too many."""
    every = [printable(name if len(name) <= 60 else name[:57] + "...") for name in names]
    others = f" and {len(every) - _MOST_LISTED} others" if len(every) > _MOST_LISTED else ""
    return parting.join(every[:_MOST_LISTED]) + others


def accepted_whole(minimum: int) -> str:
    """Say which whole numbers are accepted."""
    return f"a whole number from {minimum} to {INT64_MAX}"


def mixed(label: str, line: int, found: str, format: str) -> Never:
    """Raise the error of a file that changes its format midway."""
    raise LedgerError(
        f"{label}, line {line}: {found} in a file that began as {format}; "
        "accepted: one format a file, and one header"
    )


def nanosecond_rounded(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return differences of seconds, rounded: 61.114 - 61.1 is 0.014, not 0.013999999999996."""
    return cast(NDArray[np.float64], np.round(seconds, 9))
