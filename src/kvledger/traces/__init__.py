"""Request traces: how long real requests are, when they came, and which pages they share.

:func:`load_trace` reads the public formats as they are published. A file that cannot be read
exactly is an error that names the line, the field, the value and what is accepted: a trace that
loads was read whole. :func:`load_lengths` reads the tables in ``data/`` as well that
:mod:`kvledger.traces.derivation` makes of seven public traces.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX, LengthCounter, LengthTable, as_length_array, whole
from kvledger.traces.forms import (
    ALIASES,
    TRACE_FORMATS,
    Reading,
    Skipped,
    Tally,
    format_list,
    name_list,
    nanosecond_rounded,
)
from kvledger.traces.json_lines import read_json
from kvledger.traces.streams import SUFFIXES, Source
from kvledger.traces.text_tables import TABLES, read_table
from proofbook.plaintext import printable

#: The traces whose length tables are in ``data/traces``.
TRACE_NAMES: tuple[str, ...] = (
    "azure_code_2023",
    "azure_conv_2023",
    "mooncake_conversation",
    "mooncake_synthetic",
    "sharegpt_8k",
    "arxiv_summarization_v2",
    "bwb_v2",
)

_LENGTHS_SUFFIX = ".lengths.csv"
_LENGTHS_COLUMNS = ("tokens", "prompts", "totals")


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Trace:
    """Requests in the order of their arrival.

    Parameters
    ----------
    prompt_tokens : array_like of int, shape (n,)
        Tokens of each prompt, at least 1.
    output_tokens : array_like of int, shape (n,)
        Tokens generated for each request, at least 0.
    arrival_s : array_like of float, shape (n,), optional
        Arrival times in seconds. They may tie and may not go backwards; they are stored
        as seconds from the first arrival.
    page_ids : sequence of sequences of int, length n, optional
        Ids of each prompt's complete pages in order, and maybe of a partial last one, each id
        chained to the pages before it: with the same id, all tokens up to that page are the same.
    page_ids_size : int, optional
        Tokens per page id; needed with `page_ids`.
    name : str, optional
        What the trace is called in tables.
    failed_requests : int
        Requests of the source that failed and are not in the trace.
    skipped : mapping from str to int, optional
        All rows of the source that are not in the trace, by reason, the failed among them.

    Raises
    ------
    LedgerError
        Names the field, the position and the value, and says what is accepted.

    Examples
    --------
    >>> trace = Trace([5, 9, 17], [0, 3, 4], arrival_s=[10.0, 10.5, 12.0], name="three")
    >>> trace
    Trace('three': 3 requests, 31 prompt + 7 output tokens, over 2.0 s)
    >>> trace.total_tokens.tolist()
    [5, 12, 21]
    >>> trace.arrival_s.tolist()
    [0.0, 0.5, 2.0]
    >>> Trace([5, 9], [0, 3], skipped={"no usage": 2})
    Trace(2 requests, 14 prompt + 3 output tokens, 2 unusable rows left out (2 no usage))
    """

    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    arrival_s: NDArray[np.float64] | None
    page_ids: tuple[tuple[int, ...], ...] | None
    page_ids_size: int | None
    name: str | None
    skipped: Skipped

    def __init__(
        self,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        arrival_s: ArrayLike | None = None,
        page_ids: Sequence[Sequence[int]] | None = None,
        page_ids_size: int | None = None,
        name: str | None = None,
        failed_requests: int = 0,
        skipped: Mapping[str, int] | None = None,
    ) -> None:
        # Copies: what the caller does to its own arrays later must not reach the trace.
        prompts = as_length_array(prompt_tokens, "prompt_tokens").copy()
        outputs = as_length_array(output_tokens, "output_tokens", minimum=0).copy()
        if len(prompts) == 0:
            raise LedgerError("prompt_tokens is empty; accepted: at least one request")
        _same_length(outputs, prompts, "output_tokens")
        arrivals = None
        if arrival_s is not None:
            arrivals = _arrivals(arrival_s)
            _same_length(arrivals, prompts, "arrival_s")
            arrivals = arrivals - arrivals[0]
        pages = None
        if (page_ids is None) != (page_ids_size is None):
            raise LedgerError(
                "page_ids need page_ids_size, the tokens per id, such as 512; "
                f"accepted: both or neither (page_ids_size is {page_ids_size!r})"
            )
        if page_ids is not None:
            page_ids_size = _page_ids_size(page_ids_size)
            pages = tuple(tuple(ids) for ids in page_ids)
            _same_length(pages, prompts, "page_ids")
            _check_page_ids(pages, prompts, page_ids_size)
        if not isinstance(skipped, Skipped):
            if skipped is None and failed_requests:
                skipped = {"failed": failed_requests}
            skipped = Skipped(skipped or {}, failed_requests)
        _keep(self, prompts, outputs, arrivals, pages, page_ids_size, name, skipped)

    @property
    def failed_requests(self) -> int:
        """Requests of the source that failed; :attr:`skipped` gives the reasons."""
        return self.skipped.failed

    @property
    def total_tokens(self) -> NDArray[np.int64]:
        """Final length of each request, prompt and output, in tokens, shape (n,)."""
        total = self.prompt_tokens + self.output_tokens
        total.setflags(write=False)
        return total

    @property
    def n_requests(self) -> int:
        """Number of requests."""
        return len(self.prompt_tokens)

    def __len__(self) -> int:
        return self.n_requests

    def __repr__(self) -> str:
        prompt, output = map(_sum, (self.prompt_tokens, self.output_tokens))
        parts = [_size(self.name, prompt, output, len(self))]
        if self.arrival_s is not None:
            parts.append(f"over {self.arrival_s[-1]:,.1f} s")
        if self.page_ids is not None:
            parts.append(f"an id per {self.page_ids_size} tokens")
        if self.skipped:
            parts.append(str(self.skipped))
        return f"Trace({', '.join(parts)})"


def _keep(trace: Trace, *values: Any) -> None:
    """Fill a trace with checked values, in the order of its fields, without copying them."""
    prompts, outputs, arrivals, *_ = values
    if int(prompts.max()) + int(outputs.max()) > INT64_MAX:
        for i in np.flatnonzero(prompts > INT64_MAX - outputs)[:1]:
            raise LedgerError(
                f"prompt_tokens[{i}] + output_tokens[{i}] = {prompts[i]} + {outputs[i]} "
                f"is beyond 64 bits; accepted: a total of at most {INT64_MAX} tokens"
            )
    for each in (prompts, outputs, arrivals):
        if each is not None:
            each.setflags(write=False)
    for name, value in zip(Trace.__slots__, values, strict=True):
        object.__setattr__(trace, name, value)


def _sum(tokens: NDArray[np.int64]) -> int:
    """Return the exact sum of numbers from 0, which may be beyond 64 bits."""
    return (int((tokens >> 32).sum()) << 32) + int((tokens & 0xFFFFFFFF).sum())


def _same_length(values: Sequence[Any] | NDArray[Any], prompts: NDArray[Any], field: str) -> None:
    if len(values) != len(prompts):
        raise LedgerError(
            f"{field} has {len(values)} entries for {len(prompts)} prompt_tokens; "
            "accepted: one entry for each request"
        )


def _page_ids_size(value: object) -> int:
    accepted = "accepted: a whole number of tokens, at least 1, such as 512"
    return whole(value, "page_ids_size", minimum=1, accepted=accepted)


def _arrivals(values: ArrayLike) -> NDArray[np.float64]:
    accepted = "accepted: finite seconds that do not go backwards"
    try:
        times = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise LedgerError(f"arrival_s holds something that is not a number; {accepted}") from None
    if times.ndim != 1:
        raise LedgerError(f"arrival_s has {times.ndim} dimensions; accepted: one")
    for i in np.flatnonzero(~np.isfinite(times))[:1]:
        raise LedgerError(f"arrival_s[{i}]: {times[i]} is not finite; {accepted}")
    for i in np.flatnonzero(np.diff(times) < 0)[:1]:
        raise LedgerError(
            f"arrival_s[{i + 1}]: {times[i + 1]} is before {times[i]}, the arrival of the request "
            f"ahead of it; {accepted}"
        )
    return times


def _check_page_ids(
    pages: tuple[tuple[int, ...], ...], prompts: NDArray[np.int64], size: int
) -> None:
    for i, (ids, prompt) in enumerate(zip(pages, prompts.tolist(), strict=True)):
        complete, whole = prompt // size, -(-prompt // size)
        if len(ids) not in (complete, whole):
            raise LedgerError(
                f"page_ids[{i}] has {len(ids)} ids for a prompt of {prompt} tokens; accepted: "
                f"{whole}, one per {size} tokens (or {complete}, complete pages only)"
            )
        for j, page_id in enumerate(ids):
            if isinstance(page_id, bool) or not isinstance(page_id, int | np.integer):
                raise LedgerError(f"page_ids[{i}][{j}] is {page_id!r}; accepted: an integer id")


@dataclass(frozen=True, slots=True, repr=False)
class LengthMarginals:
    """How long the requests of a trace are, as counts.

    Attributes
    ----------
    name : str
        The trace.
    prompt, total : LengthTable
        Requests by the length of their prompt, and with their output, in tokens.
    skipped : mapping from str to int
        Rows of the source that are not counted, by reason.

    Examples
    --------
    >>> lengths = LengthTable([5, 9], [1, 2])
    >>> LengthMarginals("mine", lengths, lengths)
    LengthMarginals('mine': 3 requests, 23 prompt + 0 output tokens)
    >>> print(LengthMarginals("mine", lengths, lengths, {"no usage": 2}).skipped)
    2 unusable rows left out (2 no usage)
    """

    name: str
    prompt: LengthTable
    total: LengthTable
    skipped: Mapping[str, int] = field(default_factory=Skipped)

    def __post_init__(self) -> None:
        if not isinstance(self.skipped, Skipped):
            object.__setattr__(self, "skipped", Skipped(self.skipped))

    @property
    def n_requests(self) -> int:
        """Number of requests."""
        return self.total.n_requests

    @property
    def failed_requests(self) -> int:
        """Requests of the source that failed; :attr:`skipped` gives the reasons."""
        return self.skipped.failed if isinstance(self.skipped, Skipped) else 0

    def __repr__(self) -> str:
        prompt, total = self.prompt.total_tokens, self.total.total_tokens
        parts = [_size(self.name, prompt, total - prompt, self.n_requests)]
        if self.skipped:
            parts.append(str(self.skipped))
        return f"LengthMarginals({', '.join(parts)})"


def _size(name: str | None, prompt: int, output: int, requests: int) -> str:
    start = "" if name is None else f"{name!r}: "
    return f"{start}{requests:,} requests, {prompt:,} prompt + {output:,} output tokens"


def first_arrivals(trace: Trace, n: int) -> Trace:
    """Return the first ``n`` requests of a trace; the trace itself if it has no more.

    Examples
    --------
    >>> first_arrivals(Trace([5, 9, 17], [1, 2, 3], [0, 1, 4]), 2)
    Trace(2 requests, 14 prompt + 3 output tokens, over 1.0 s)
    """
    n = whole(n, "first", minimum=1, accepted="a whole number of requests, at least 1")
    if n >= trace.n_requests:
        return trace
    arrivals = None if trace.arrival_s is None else trace.arrival_s[:n]
    ids, size = (trace.page_ids or ())[:n] or None, trace.page_ids_size
    tokens = trace.prompt_tokens[:n], trace.output_tokens[:n]
    return Trace(*tokens, arrivals, ids, size, name=trace.name)


Unusable = Literal["error", "count"]


def load_trace(
    path: str | Path,
    format: str | None = None,
    *,
    page_ids_size: int | None = None,
    unusable: Unusable = "error",
) -> Trace:
    r"""Read a trace of requests as it was published, or as a server or a benchmark wrote it.

    Parameters
    ----------
    path : str or Path
        A file in one of `TRACE_FORMATS`, or ``"-"`` for standard input. Text is UTF-8, lines end
        in LF or CRLF, and the whole may be compressed (gzip, bzip2, xz, zstd). Tables may be
        Parquet. On standard input, lengths may stand on one line, parted by commas or blanks.
    format : str, optional
        A name out of `TRACE_FORMATS` (``"vllm"`` and ``"sglang"`` are ``"benchmark"``).
        Found from the columns or keys when not given.
    page_ids_size : int, optional
        Tokens per hash id of a JSONL trace, where it is not the publisher's own
        (512 for Mooncake, 16 for Qwen-Bailian).
    unusable : {"error", "count"}
        What a row that cannot be read is: an error, or one more in ``skipped``. What is wrong
        with the whole file (two formats in one, no text in UTF-8) is an error either way.

    Returns
    -------
    Trace
        Times in seconds from the first arrival; of a chat log, when responses were created,
        where all say so. Requests that failed as their source says (BurstGPT's zero responses, a
        benchmark's errors, an HTTP status) and responses without token counts are counted in
        ``skipped``. Several benchmark runs in one file are joined without times: each has a clock
        of its own. A plain length is a prompt with no output.

    Raises
    ------
    LedgerError
        Names the file, the line, the field and the value, and what is accepted. One thing
        cannot be seen: a last line cut inside its last number, unless a total is beside it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.csv"
    >>> _ = path.write_text("prompt_tokens,output_tokens,arrival_s\n4808,10,0.5\n3180,8,0.75")
    >>> load_trace(path)
    Trace('two': 2 requests, 7,988 prompt + 18 output tokens, over 0.2 s)
    """
    options = _options(format, page_ids_size, unusable)
    with Source(path) as source:
        reading = _reading(source, *options)
        return _gathered(reading, source.label, _trace_name(source.name))


def load_lengths(
    name: str | Path,
    format: str | None = None,
    *,
    page_ids_size: int | None = None,
    unusable: Unusable = "error",
) -> LengthMarginals:
    """Read how long the requests of a trace are; the file is read once and never held.

    Parameters
    ----------
    name : str or Path
        One of `TRACE_NAMES`, read from ``data/``; or a file: a derived table
        (``*.lengths.csv``), or whatever :func:`kvledger.load_trace` reads, ``"-"`` included.
    format, page_ids_size, unusable
        As of :func:`kvledger.load_trace`.

    Raises
    ------
    LedgerError
        If there is no such trace or file, or the file is not what it should be.

    Examples
    --------
    >>> code = load_lengths("azure_code_2023")
    >>> code.n_requests, code.total.max_tokens
    (8819, 7841)
    """
    options = _options(format, page_ids_size, unusable)
    if name in TRACE_NAMES:
        return _read_lengths(data_file(f"traces/{name}{_LENGTHS_SUFFIX}"))
    path = Path(name)
    if str(path) != "-" and (path.is_dir() or not path.exists()):
        raise LedgerError(
            f"{printable(str(name))}: no such file and no such trace; accepted: a trace file, "
            f"or one of {', '.join(TRACE_NAMES)}"
        )
    if path.name.endswith(_LENGTHS_SUFFIX):
        return _read_lengths(path)
    with Source(path) as source:
        reading = _reading(source, *options)
        return _counted_lengths(reading, source.label, _trace_name(source.name))


def _options(
    format: str | None, page_ids_size: int | None, unusable: str
) -> tuple[str | None, int | None, Tally]:
    """Return the checked options of reading, and what counts the rows that are left out."""
    format = ALIASES.get(format, format) if isinstance(format, str) else format
    if format is not None and format not in TRACE_FORMATS:
        raise LedgerError(f"format {format!r} is not known; accepted:\n{format_list()}")
    if page_ids_size is not None:
        page_ids_size = _page_ids_size(page_ids_size)
    if unusable not in ("error", "count"):
        raise LedgerError(f"unusable is {unusable!r}; accepted: 'error', 'count'")
    return format, page_ids_size, Tally(count=unusable == "count")


def _reading(
    source: Source, format: str | None, page_ids_size: int | None, tally: Tally
) -> Reading:
    """Begin to read a file of this format, or of the one that its columns or keys tell."""
    label = source.label
    if source.is_parquet:
        from kvledger.traces.parquet import read_parquet

        return read_parquet(source, format, tally)
    blocks = source.blocks()
    first = next((block for block in blocks if block.data.strip()), None)
    if first is None:
        raise LedgerError(f"{label}: the file is empty; accepted:\n{format_list()}")
    where = f"{label}, line {first.first_line}"
    is_json = first.data.lstrip()[:1] in (b"{", b"[")
    if is_json and format in TABLES:
        raise LedgerError(f"{where}: JSON; accepted as {format}: {TRACE_FORMATS[format]}")
    if is_json:
        return read_json(label, first, blocks, format, page_ids_size, tally)
    if format is None or format in TABLES or format == "lengths":
        return read_table(source, first, blocks, format, tally)
    raise LedgerError(f"{where}: not JSON; accepted as {format}: {TRACE_FORMATS[format]}")


def _gathered(reading: Reading, label: str, name: str) -> Trace:
    """Read all requests: 16 bytes each, and 8 more where the trace has times."""
    prompt, output, times = array("q"), array("q"), array("d")
    pages: list[tuple[int, ...]] = []
    has_times = has_pages = True
    with closing(reading.rows) as stream:
        for rows in stream:
            prompt.frombytes(rows.prompt.tobytes())
            output.frombytes(rows.output.tobytes())
            if rows.arrival_s is None or not has_times:
                has_times, times = False, array("d")
            else:
                times.frombytes(rows.arrival_s.tobytes())
            has_pages = has_pages and rows.page_ids is not None
            pages += rows.page_ids or ()
    if not prompt:
        raise _no_requests(label, reading)
    prompts, outputs = np.frombuffer(prompt, np.int64), np.frombuffer(output, np.int64)
    arrivals = np.frombuffer(times, np.float64) if has_times else None
    if arrivals is not None and reading.by_time and bool((arrivals[1:] < arrivals[:-1]).any()):
        order = np.argsort(arrivals, kind="stable")
        prompts, outputs = prompts[order], outputs[order]
        arrivals = nanosecond_rounded(arrivals[order] - arrivals[order[0]])
    ids, size = (tuple(pages), reading.page_ids_size) if has_pages else (None, None)
    trace = Trace.__new__(Trace)
    _keep(trace, prompts, outputs, arrivals, ids, size, name, reading.tally.skipped())
    return trace


def _counted_lengths(reading: Reading, label: str, name: str) -> LengthMarginals:
    """Read all requests, and keep of them how many have which length."""
    prompt, total = LengthCounter(), LengthCounter()
    is_empty = True
    with closing(reading.rows) as stream:
        for rows in stream:
            prompt.add(rows.prompt)
            total.add(rows.prompt + rows.output)
            is_empty = is_empty and not len(rows.prompt)
    if is_empty:
        raise _no_requests(label, reading)
    return LengthMarginals(name, prompt.table(), total.table(), reading.tally.skipped())


def _no_requests(label: str, reading: Reading) -> LedgerError:
    skipped = reading.tally.skipped()
    if not skipped:
        return LedgerError(f"{label}: {reading.nothing}")
    problem = f"no request that can be used: {skipped}"
    if skipped.failed == skipped.rows:
        problem = (
            f"no request that succeeded: {skipped.failed:,} of {skipped.rows:,} failed "
            f"({', '.join(skipped)})"
        )
    return LedgerError(f"{label}: {problem}; accepted: at least one")


def _trace_name(name: str) -> str:
    """Return a file's name without the endings that say how it is written."""
    while suffix := next((s for s in SUFFIXES if name.endswith(s) and name != s), None):
        name = name.removesuffix(suffix)
    return name


def _read_lengths(path: Path) -> LengthMarginals:
    import pandas as pd  # here: it takes longer to import than a small trace to read

    label = printable(str(path))
    accepted = f"accepted: columns {', '.join(_LENGTHS_COLUMNS)} of whole numbers"
    try:
        frame = pd.read_csv(path, dtype=np.int64, na_filter=False)
    except (ValueError, OverflowError) as error:
        raise LedgerError(f"{label}: not a length table ({error}); {accepted}") from None
    if tuple(frame.columns) != _LENGTHS_COLUMNS:
        raise LedgerError(f"{label}: the columns are {name_list(frame.columns)}; {accepted}")
    tokens, prompts, totals = (frame[column].to_numpy() for column in _LENGTHS_COLUMNS)
    if prompts.sum() != totals.sum() or (prompts < 0).any() or (totals < 0).any():
        raise LedgerError(
            f"{label}: {prompts.sum()} prompts and {totals.sum()} totals; "
            "accepted: as many of the one as of the other, none below 0"
        )
    return LengthMarginals(
        path.name.removesuffix(_LENGTHS_SUFFIX),
        LengthTable(tokens[prompts > 0], prompts[prompts > 0]),
        LengthTable(tokens[totals > 0], totals[totals > 0]),
    )
