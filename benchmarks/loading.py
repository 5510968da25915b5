"""Loading a long trace to its length tables, against pandas; and the memory that it takes.

The files hold lognormal prompts and outputs and lie in a temporary folder. pandas reads the whole
file and groups twice, by prompt and by prompt plus output: the same two tables of counts. All ways
have read the file once before the clock starts, so that it lies in memory and code is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from records import Record, record, timed

from kvledger.traces import LengthMarginals, load_lengths, load_trace

ROOT = Path(__file__).resolve().parent.parent
NUMBER = 10_000_000
QUICK_NUMBER = 2_000_000
BYTES_A_REQUEST = 16  # of a trace without times


def write_trace(folder: Path, number: int) -> tuple[Path, Path]:
    """Write a trace as CSV and as Parquet, the same rows in both."""
    rng = np.random.default_rng(0)
    prompts = np.clip(rng.lognormal(6.0, 1.0, number), 1, 131072).astype(np.int64)
    outputs = np.clip(rng.lognormal(5.0, 1.0, number), 0, 8192).astype(np.int64)
    table = pa.table({"prompt_tokens": prompts, "output_tokens": outputs})
    csv, parquet = folder / f"{number}.csv", folder / f"{number}.parquet"
    pa_csv.write_csv(table, csv, pa_csv.WriteOptions(quoting_style="none"))
    pa_parquet.write_table(table, parquet)
    return csv, parquet


def grouped(frame: pd.DataFrame) -> tuple[pd.Series[int], pd.Series[int]]:
    """Count requests by prompt and by total, the plain pandas way."""
    total = frame["prompt_tokens"] + frame["output_tokens"]
    return frame.groupby("prompt_tokens").size(), frame.groupby(total).size()


def same(plain: tuple[pd.Series[int], pd.Series[int]], ours: LengthMarginals) -> bool:
    """Tell whether both ways counted the same."""
    return all(
        np.array_equal(series.index.to_numpy(), table.tokens)
        and np.array_equal(series.to_numpy(), table.requests)
        for series, table in zip(plain, (ours.prompt, ours.total), strict=True)
    )


def speed(*, quick: bool) -> list[Record]:
    """Time both ways in turn; they must count the same."""
    number, repetitions = (QUICK_NUMBER, 3) if quick else (NUMBER, 11)
    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = write_trace(Path(folder), number)
        plain: dict[str, Callable[[], Any]] = {
            "pandas.read_csv": lambda: grouped(pd.read_csv(csv)),
            "pandas.read_parquet": lambda: grouped(pd.read_parquet(parquet)),
        }
        ours: dict[str, Callable[[], LengthMarginals]] = {
            "csv": lambda: load_lengths(csv),
            "parquet": lambda: load_lengths(parquet),
        }
        seconds: dict[str, list[float]] = {name: [] for name in (*plain, *ours)}
        for repetition in range(repetitions + 1):
            answers: dict[str, Any] = {}
            for name, work in (*plain.items(), *ours.items()):
                taken, answers[name] = timed(work)
                if repetition:
                    seconds[name].append(taken)
            for one in plain:
                for other in ours:
                    if not same(answers[one], answers[other]):
                        raise AssertionError(f"{one} and load_lengths ({other}) count differently")
    return [
        record(
            f"loading.{name}",
            what=f"speed of loading {number:,} requests from {file} to length tables",
            baseline=f"{reader} of the same requests, plus two groupby",
            quantity="ratio",
            values=[p / o for p, o in zip(seconds[reader], seconds[ours_name], strict=True)],
            bar=bar,
        )
        for name, file, ours_name, reader, bar in (
            ("csv", "CSV", "csv", "pandas.read_csv", ">= 3"),
            ("parquet", "Parquet", "parquet", "pandas.read_csv", ">= 3"),
            ("parquet.read_parquet", "Parquet", "parquet", "pandas.read_parquet", ">= 1"),
        )
    ]


# --------------------------------------------------------------------------- memory


def peak_of_a_process(how: str, path: Path) -> int:
    """Return the most bytes that a process of its own held which loaded the file."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, __file__, how, str(path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


def most_held() -> int:
    """Return the most bytes this process held; what its parent held before does not count."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def memory(*, quick: bool) -> list[Record]:
    """Compare the memory of loading many requests with that of loading few."""
    many, repetitions = (2 * QUICK_NUMBER, 1) if quick else (NUMBER, 3)
    few = QUICK_NUMBER  # already read with compiled code, by which a short file is not
    results = []
    with tempfile.TemporaryDirectory() as folder:
        few_files, many_files = (write_trace(Path(folder), number) for number in (few, many))
        for kind, of_few, of_many in zip(("csv", "parquet"), few_files, many_files, strict=True):
            peak_of_a_process("lengths", of_few)  # compiled once, kept for the processes
            pairs = [
                (peak_of_a_process("lengths", of_few), peak_of_a_process("lengths", of_many))
                for _ in range(repetitions)
            ]
            results.append(
                record(
                    f"loading.memory.{kind}",
                    what=f"peak memory of loading {many:,} requests from {kind} to length tables "
                    f"({pairs[0][1] >> 20} MiB, the libraries included)",
                    baseline=f"peak memory of loading {few:,} requests the same way",
                    quantity="ratio",
                    values=[of_many_ / of_few_ for of_few_, of_many_ in pairs],
                    bar="<= 1.1",
                )
            )
        pairs = [
            (peak_of_a_process("trace", few_files[0]), peak_of_a_process("trace", many_files[0]))
            for _ in range(repetitions)
        ]
    arrays = BYTES_A_REQUEST * (many - few)
    results.append(
        record(
            "loading.memory.trace",
            what=f"peak memory that {many - few:,} more requests of a trace without times take",
            baseline=f"the arrays of the trace, {BYTES_A_REQUEST} bytes a request",
            quantity="ratio",
            values=[(of_many_ - of_few_) / arrays for of_few_, of_many_ in pairs],
            bar="<= 1.1",
        )
    )
    return results


if __name__ == "__main__":
    command, *files = sys.argv[1:]
    if command not in ("lengths", "trace") or len(files) != 1:
        raise SystemExit("python benchmarks/run.py --loading measures loading")
    loaded = load_lengths(files[0]) if command == "lengths" else load_trace(files[0])
    assert loaded.n_requests
    print(most_held())
