"""Finds out what a file holds, and hands it to the reader of that format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole
from kvledger.traces.benchmark_logs import read_benchmark
from kvledger.traces.chat_logs import is_openai, read_openai
from kvledger.traces.columns import TABLES
from kvledger.traces.forms import (
    TRACE_FORMATS,
    Reading,
    Rows,
    RowStream,
    Tally,
    accepted_whole,
    format_list,
    listed,
    mixed,
)
from kvledger.traces.json_lines import Record, numbers, records
from kvledger.traces.request_records import read_requests
from kvledger.traces.streams import Block, Source, chain_blocks
from kvledger.traces.text_tables import read_table


def read(source: Source, format: str | None, page_ids_size: int | None, *, count: bool) -> Reading:
    """Begin to read a trace.

    Parameters
    ----------
    source : Source
        Where it is.
    format : str or None
        A name out of `TRACE_FORMATS`; found from the columns or keys when None.
    page_ids_size : int or None
        Tokens per block id of a JSONL trace, where it is not the publisher's own.
    count : bool
        Rows that cannot be read are counted by reason; if False, the first is an error.

    Raises
    ------
    LedgerError
        If no format fits, or the file is none of the format asked for.
    """
    label = source.label
    if source.is_parquet:
        from kvledger.traces.parquet import read_parquet

        return read_parquet(source, format, count=count)
    blocks = source.blocks()
    first = next((block for block in blocks if block.data.strip()), None)
    if first is None:
        raise LedgerError(f"{label}: the file is empty; accepted:\n{format_list()}")
    where = f"{label}, line {first.first_line}"
    is_json = first.data.lstrip()[:1] in (b"{", b"[")
    if is_json and format in TABLES:
        raise LedgerError(f"{where}: JSON; accepted as {format}: {TRACE_FORMATS[format]}")
    if is_json:
        return _read_json(label, blocks, first, format, page_ids_size, count=count)
    if format is None or format in TABLES or format == "lengths":
        return read_table(source, blocks, first, format, count=count)
    raise LedgerError(f"{where}: not JSON; accepted as {format}: {TRACE_FORMATS[format]}")


def _read_json(
    label: str,
    blocks: Iterator[Block],
    first: Block,
    format: str | None,
    size: int | None,
    *,
    count: bool,
) -> Reading:
    tally = Tally()
    if first.data.lstrip()[:1] == b"[":
        if format not in (None, "lengths"):
            raise LedgerError(
                f"{label}, line 1: a JSON array; accepted as {format}: {TRACE_FORMATS[format]}"
            )
        rows = _array_rows(label, chain_blocks(first, blocks), tally, count=count)
        return Reading(rows, tally, nothing="an empty JSON array; accepted: at least one length")
    if format == "lengths":
        raise LedgerError(
            f"{label}, line {first.first_line}: a JSON object; "
            f"accepted as lengths: {TRACE_FORMATS['lengths']}"
        )
    malformed = tally.unusable if count else None
    found = records(label, chain_blocks(first, blocks), malformed=malformed)
    if format is None:
        head = next(found)
        format = _record_format(label, head)
        found = _of_one_kind(label, chain([head], found), format)
    if format == "benchmark":
        return read_benchmark(label, found, count=count, tally=tally)
    if format == "openai":
        return read_openai(label, found, count=count, tally=tally)
    return read_requests(label, found, format, size, count=count, tally=tally)


def _of_one_kind(label: str, found: Iterator[Record], format: str) -> Iterator[Record]:
    for record in found:
        kind = _kind(record.fields)
        if kind is not None and kind != format:
            mixed(label, record.line, kind, format)
        yield record


def _kind(fields: dict[str, Any]) -> str | None:
    if "input_lens" in fields or "output_lens" in fields or "request_throughput" in fields:
        return "benchmark"
    if "input_length" in fields or "output_length" in fields or "hash_ids" in fields:
        return "qwen" if "chat_id" in fields or "parent_chat_id" in fields else "mooncake"
    return "openai" if is_openai(fields) else None


def _record_format(label: str, record: Record) -> str:
    fields = record.fields
    kind = _kind(fields)
    if kind is not None:
        return kind
    if set(fields) == {"error"}:
        return "openai"  # what a server answers to a request that it refuses
    hint = ""
    if "prompt" in fields or "conversations" in fields or "messages" in fields:
        hint = " (prompts as text carry no token counts: tokenise them first)"
    elif "custom_id" in fields and "body" in fields:
        hint = " (a batch's requests carry no token counts: its output file does)"
    raise LedgerError(
        f"{label}, line {record.line}: no known trace has the keys {listed(fields)}{hint}; "
        f"accepted:\n{format_list()}"
    )


def _array_rows(label: str, blocks: Iterator[Block], tally: Tally, *, count: bool) -> RowStream:
    """Yield the lengths of a JSON array."""
    position = 0
    for entries in numbers(label, blocks):
        lengths = []
        for entry in entries:
            where = f"{label}, entry {position}"
            position += 1
            try:
                lengths.append(whole(entry, where, minimum=1, accepted=accepted_whole(1)))
            except LedgerError:
                if not count:
                    raise
                tally.unusable("entry not accepted")
        yield Rows(np.array(lengths, np.int64), np.zeros(len(lengths), np.int64))
