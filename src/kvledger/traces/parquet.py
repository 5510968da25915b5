"""Traces in Parquet files, with the columns of the tables in CSV."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import INT64_MAX, whole
from kvledger.traces.columns import (
    TABLES,
    Columns,
    Selection,
    Table,
    accepted_time,
    date_nanoseconds,
    table_format,
    table_of,
)
from kvledger.traces.forms import (
    TRACE_FORMATS,
    Reading,
    Rows,
    RowStream,
    UnusableRowError,
    accepted_whole,
    listed,
)
from kvledger.traces.streams import Source

_BATCH_ROWS = 1 << 17
_BUFFER_BYTES = 1 << 20
_NOTHING = "a table without rows; accepted: at least one row"


def read_parquet(source: Source, format: str | None, *, count: bool) -> Reading:
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
    format = format or table_format(label, schema.names)
    table = table_of(label, format, schema.names)
    reader = _ParquetReader(label, table, schema, format, count=count)
    # A column of lengths may be called anything, also what would be a path to a nested one.
    names = None if format == "lengths" else list(reader.used.values())

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

    return Reading(rows(), reader.selection.tally, nothing=_NOTHING)


def _damaged(label: str, error: Exception) -> LedgerError:
    problem = str(error).split("\n")[0]
    return LedgerError(
        f"{label}: the Parquet data is cut short or damaged ({problem}); "
        "accepted: a complete Parquet file"
    )


class _ParquetReader:
    """Reads batches of rows: all at once where every value is right, else one by one."""

    def __init__(self, label: str, table: Table, schema: Any, format: str, *, count: bool) -> None:
        self.label = label
        self.table = table
        self.count = count
        self.format = format
        self.selection = Selection(table)
        self.used = {role: schema.names[i] for role, i in table.used(schema.names).items()}
        self.has_nanoseconds = table.time_is_date
        self.last_time: float | int | None = None
        for role, name in self.used.items():
            self._check_type(name, schema.field(name).type, is_time=role == "time")

    def _check_type(self, name: str, type_: Any, *, is_time: bool) -> None:
        from pyarrow import types

        if types.is_dictionary(type_):
            type_ = type_.value_type
        is_right = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
        accepted = "whole numbers"
        if is_time:
            accepted = accepted_time(self.table.time_is_date) + ", or timestamps"
            if self.table.time_is_date:
                is_right = types.is_string(type_) or types.is_large_string(type_)
            if types.is_timestamp(type_):
                is_right = self.has_nanoseconds = True
        if not is_right:
            raise LedgerError(
                f"{self.label}: column {listed([name])} holds {listed([str(type_)])}; "
                f"accepted: a column of {accepted}"
            )

    def rows(self, batch: Any, first_row: int) -> Rows:
        from pyarrow import types

        columns = {}
        for role, name in self.used.items():
            column = batch.column(name)
            is_dictionary = types.is_dictionary(column.type)
            columns[role] = column.dictionary_decode() if is_dictionary else column
        read = self._at_once(columns)
        if read is None or read.goes_back(self.last_time):
            read = self._one_by_one(columns, first_row)
        if read.time is not None and len(read.time):
            self.last_time = read.time[-1].item()
        return self.selection.rows(read)

    # ----------------------------------------------------------------------- all at once

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
        may_fail = self.table.zero_output_failed
        if int(prompt.min()) < (0 if may_fail else 1) or int(output.min()) < 0:
            return None
        if may_fail and bool((prompt[output > 0] < 1).any()):
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

    # ----------------------------------------------------------------------- one by one

    def _one_by_one(self, columns: dict[str, Any], first_row: int) -> Columns:
        values = {role: _values(column) for role, column in columns.items()}
        prompts: list[int] = []
        outputs: list[int] = []
        times: list[float | int] = []
        last_time = self.last_time
        for i in range(len(columns["prompt"])):
            row = {role: column[i] for role, column in values.items()}
            try:
                prompt, output, time = self._row(row, first_row + i, last_time)
            except UnusableRowError as problem:
                if not self.count:
                    raise
                self.selection.tally.unusable(problem.reason)
                continue
            prompts.append(prompt)
            outputs.append(output)
            if time is not None:
                last_time = time
                times.append(time)
        time_dtype: type[Any] = np.int64 if self.has_nanoseconds else np.float64
        return Columns(
            np.array(prompts, np.int64),
            np.array(outputs, np.int64),
            np.array(times, time_dtype) if "time" in columns else None,
        )

    def _row(
        self, values: dict[str, Any], row: int, last_time: float | int | None
    ) -> tuple[int, int, float | int | None]:
        output = self._whole(values, "output", row, 0) if "output" in values else 0
        failed = self.table.zero_output_failed and output == 0
        prompt = self._whole(values, "prompt", row, 0 if failed else 1)
        if prompt + output > INT64_MAX:
            accepted = f"at most {INT64_MAX} (64 bits)"
            self._fail(row, "the total", f"{prompt} + {output}", accepted, "beyond 64 bits")
        if "total" in values:
            total = self._whole(values, "total", row, 1)
            if total != prompt + output:
                accepted = f"the sum of prompt and output, {prompt} + {output}"
                self._fail(row, self.used["total"], str(total), accepted, "is no sum")
        if "time" not in values:
            return prompt, output, None
        name, value = self.used["time"], values["time"]
        time = self._time(value)
        as_shown = f"{value} ns" if type(value) is int and self.has_nanoseconds else shown(value)
        if time is None:
            self._fail(row, name, as_shown, accepted_time(self.table.time_is_date))
        if last_time is not None and time < last_time:
            accepted = "a time that is not before the row ahead of it"
            self._fail(row, name, as_shown, accepted, "goes back")
        return prompt, output, time

    def _whole(self, values: dict[str, Any], role: str, row: int, minimum: int) -> int:
        value, name = values[role], self.used[role]
        if isinstance(value, Decimal) and value == value.to_integral_value():
            value = int(value)
        where = f"{self.label}, row {row}: {listed([name])}"
        try:
            return whole(value, where, minimum=minimum, accepted=accepted_whole(minimum))
        except LedgerError as error:
            # Not the reader's own name of a column: a reason is shown where the trace is not.
            reason = "length" if self.format == "lengths" else name
            what = "missing" if shown(value).startswith("missing") else "not accepted"
            raise UnusableRowError(str(error), f"{reason} {what}") from None

    def _time(self, value: Any) -> float | int | None:
        """Return seconds, or nanoseconds where these are; None where it is no time."""
        if value is None:
            return None
        if self.has_nanoseconds:
            time = date_nanoseconds(value) if isinstance(value, str) else int(value)
            return time if time is not None and abs(time) <= INT64_MAX else None
        seconds = float(value)
        return seconds if np.isfinite(seconds) else None

    def _fail(
        self, row: int, field: str, value: str, accepted: str, wrong: str = "not accepted"
    ) -> Never:
        raise UnusableRowError(
            f"{self.label}, row {row}: {field} is {value}; accepted: {accepted}",
            f"{field} {'missing' if value.startswith('missing') else wrong}",
        )


def _values(column: Any) -> list[Any]:
    """Return Python's values; of timestamps the nanoseconds, which Python's own dates have not."""
    import pyarrow as pa
    from pyarrow import types

    if not types.is_timestamp(column.type):
        return list(column.to_pylist())
    factor = 10**9 // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    ticks = column.cast(pa.int64()).to_pylist()
    return [None if tick is None else tick * factor for tick in ticks]
