"""Traces in Parquet files, with the columns of the tables in CSV."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import INT64_MAX
from kvledger.traces.forms import (
    TRACE_FORMATS,
    Columns,
    Reading,
    Rows,
    RowStream,
    Tally,
    name_list,
)
from kvledger.traces.streams import Source
from kvledger.traces.text_tables import (
    TABLES,
    TableReader,
    accepted_time,
    date_nanoseconds,
    format_and_table,
)

_BATCH_ROWS = 1 << 17
_BUFFER_BYTES = 1 << 20
_NOTHING = "a table without rows; accepted: at least one row"


def read_parquet(source: Source, format: str | None, tally: Tally) -> Reading:
    """Read a Parquet file in batches of rows."""
    # Here: no other table needs it, and it takes longer to import than a small trace to read.
    import pyarrow as pa
    import pyarrow.parquet as pq

    label = source.label
    if format is not None and format not in TABLES and format != "lengths":
        raise LedgerError(f"{label}: Parquet; accepted as {format}: {TRACE_FORMATS[format]}")
    try:
        # Read ahead, a row group would be held as a whole, and the next as well.
        file = pq.ParquetFile(source.file(), buffer_size=_BUFFER_BYTES, pre_buffer=False)
        schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise _damaged(label, error) from None
    format, table = format_and_table(label, format, schema.names)
    reader = ParquetReader(label, format, table, schema.names, tally)
    reader.check_types(schema)
    # A column of lengths may be called anything, also what would be a path to a nested one.
    names = None if format == "lengths" else list(reader.name_of.values())

    def rows() -> RowStream:
        bar = source.progress(file.metadata.num_rows, "row")
        first_row = 1
        batches = file.iter_batches(_BATCH_ROWS, columns=names)
        with ThreadPoolExecutor(1) as ahead:  # decodes the next batch while this one is counted
            waiting = ahead.submit(next, batches, None)
            while True:
                try:
                    batch = waiting.result()
                except (pa.ArrowException, OSError) as error:
                    raise _damaged(label, error) from None
                if batch is None:
                    return
                waiting = ahead.submit(next, batches, None)
                yield reader.rows(batch, first_row)
                first_row += batch.num_rows
                if bar is not None:
                    bar.update(batch.num_rows)

    return Reading(rows(), tally, nothing=_NOTHING)


def _damaged(label: str, error: Exception) -> LedgerError:
    problem = str(error).split("\n")[0]
    return LedgerError(
        f"{label}: the Parquet data is cut short or damaged ({problem}); "
        "accepted: a complete Parquet file"
    )


class ParquetReader(TableReader):
    """Reads batches of rows: all at once where every value is right, else one by one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.name_of = {role: self.columns[i] for role, i in self.used.items()}

    def check_types(self, schema: Any) -> None:
        """Raise if a column holds what cannot be tokens, or times."""
        from pyarrow import types

        for role, name in self.name_of.items():
            kind = schema.field(name).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            is_right = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
            accepted = "whole numbers"
            if role == "time":
                accepted = accepted_time(self.table.time_is_date) + ", or timestamps"
                if self.table.time_is_date:
                    is_right = types.is_string(kind) or types.is_large_string(kind)
                if types.is_timestamp(kind):
                    is_right = self.has_nanoseconds = True
            if not is_right:
                raise LedgerError(
                    f"{self.label}: column {name_list([name])} holds {name_list([str(kind)])}; "
                    f"accepted: a column of {accepted}"
                )

    def rows(self, batch: Any, first_row: int) -> Rows:
        """Return the requests of a batch, whose first row has this number."""
        from pyarrow import types

        columns = {}
        for role, name in self.name_of.items():
            column = batch.column(name)
            is_dictionary = types.is_dictionary(column.type)
            columns[role] = column.dictionary_decode() if is_dictionary else column

        def slowly() -> Columns:
            values = zip(*map(_values, columns.values()), strict=True)
            rows = (dict(zip(columns, row, strict=True)) for row in values)
            return self.one_by_one(enumerate(rows, first_row))

        return self.requests(self._at_once(columns), slowly)

    def _at_once(self, columns: dict[str, Any]) -> Columns | None:
        import pyarrow as pa

        if any(column.null_count for column in columns.values()):
            return None
        time = None
        try:
            # Checked: what is no whole number, or has more than 64 bits, is an error.
            numbers = {
                role: column.cast(pa.int64()).to_numpy(zero_copy_only=False)
                for role, column in columns.items()
                if role != "time"
            }
            if "time" in columns:
                time = self._times(columns["time"])
        except (pa.ArrowException, OverflowError):
            return None
        prompt = numbers["prompt"]
        output = numbers["output"] if "output" in numbers else np.zeros_like(prompt)
        if not len(prompt):
            return Columns(prompt, output, time)
        least = np.where(output > 0, 1, 0) if self.table.zero_output_failed else 1
        if int(output.min()) < 0 or bool((prompt < least).any()):
            return None
        if int(prompt.max()) + int(output.max()) > INT64_MAX:
            return None
        if "total" in numbers and bool((numbers["total"] != prompt + output).any()):
            return None
        return None if "time" in columns and time is None else Columns(prompt, output, time)

    def _times(self, column: Any) -> NDArray[Any] | None:
        """Return seconds, or nanoseconds of timestamps and dates; None if any is unusual."""
        import pyarrow as pa
        from pyarrow import types

        time: NDArray[Any]
        if types.is_timestamp(column.type):
            ticks = column.cast(pa.timestamp("ns", column.type.tz))
            time = ticks.cast(pa.int64()).to_numpy(zero_copy_only=False)
        elif self.has_nanoseconds:
            dates = [date_nanoseconds(text) for text in column.to_pylist()]
            if None in dates:
                return None
            time = np.array(dates, np.int64)
        else:
            time = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            if not bool(np.isfinite(time).all()):
                return None
        return time


def _values(column: Any) -> list[Any]:
    """Return Python's values; of timestamps the nanoseconds, which Python's own dates have not."""
    import pyarrow as pa
    from pyarrow import types

    if not types.is_timestamp(column.type):
        return list(column.to_pylist())
    factor = 10**9 // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    ticks = column.cast(pa.int64()).to_pylist()
    return [None if tick is None else tick * factor for tick in ticks]
