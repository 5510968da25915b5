"""What a benchmark says, and how its file is written."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from proofbook.files import write_whole

Answer = TypeVar("Answer")

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda value, bar: value >= bar,
    "<=": lambda value, bar: value <= bar,
    "<": lambda value, bar: value < bar,
}


@dataclass(frozen=True, slots=True)
class Record:
    """One benchmark: what was compared with what, the median, the spread, and the bar.

    ``quantity`` is ``ratio`` (no unit) or ``seconds``. ``bar`` is a comparison and a number, such
    as ``>= 10``; ``met`` tells whether the median passes it.
    """

    name: str
    what: str
    baseline: str
    quantity: str
    median: float
    least: float
    greatest: float
    bar: str
    met: bool
    repetitions: int
    environment: dict[str, str | int]
    date: str


def record(
    name: str, *, what: str, baseline: str, quantity: str, values: Sequence[float], bar: str
) -> Record:
    """Make a record of repeated measurements in this environment, today."""
    comparison, limit = bar.split()
    median = statistics.median(values)
    return Record(
        name=name,
        what=what,
        baseline=baseline,
        quantity=quantity,
        median=_short(median),
        least=_short(min(values)),
        greatest=_short(max(values)),
        bar=bar,
        met=COMPARISONS[comparison](median, float(limit)),
        repetitions=len(values),
        environment={
            "python": platform.python_version(),
            "numpy": np.__version__,
            "system": platform.system(),
            "machine": platform.machine(),
            "cores": os.cpu_count() or 1,
        },
        date=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def timed(work: Callable[..., Answer], *arguments: Any) -> tuple[float, Answer]:
    """Return the seconds that a call takes, and its answer."""
    start = time.perf_counter()
    answer = work(*arguments)
    return time.perf_counter() - start, answer


def merged(path: Path, new: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the records of the file with those of this run in place of older ones."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    records = {each["name"]: each for each in old}
    records.update({each.name: asdict(each) for each in new})
    return list(records.values())


def write(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Replace the file in one step: a reader sees the old records or the new ones, whole."""
    text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, text.encode())


def _short(value: float) -> float:
    """Keep the digits that a repetition would confirm, and a few more."""
    return float(f"{value:.4g}")


def line(each: Record) -> str:
    """Return one record as a line of the printed table."""
    verdict = "met" if each.met else "MISSED"
    unit = " s" if each.quantity == "seconds" else " x"
    spread = f"{each.least:g} to {each.greatest:g}, {each.repetitions} repetitions"
    return f"{each.name:36} {each.median:9.4g}{unit}  bar {each.bar:7} {verdict:7} ({spread})"
