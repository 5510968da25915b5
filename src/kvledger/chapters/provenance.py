"""What the committed data is, where it came from, and what was measured: as tables."""

from __future__ import annotations

import json
import tomllib

import pandas as pd

from kvledger.core import data_file

DIGEST_CHARACTERS = 12


def data_files() -> pd.DataFrame:
    """List the files of ``data/`` that the manifest checks by digest.

    Columns: file, holds, licence, SHA-256 (its first characters).

    Examples
    --------
    >>> "traces/bwb_v2.lengths.csv" in set(data_files()["file"])
    True
    """
    manifest = tomllib.loads(data_file("manifest.toml").read_text(encoding="utf-8"))
    rows = [
        {
            "file": entry["path"],
            "holds": entry["holds"],
            "licence": entry["licence"].split(";")[0],
            "SHA-256": entry["sha256"][:DIGEST_CHARACTERS],
        }
        for entry in manifest["file"]
        if entry["kind"] in ("derived", "facts")
    ]
    return pd.DataFrame(rows, dtype=object)


def benchmarks() -> pd.DataFrame:
    """List what ``benchmarks/run.py`` recorded last: each bar and what was reached.

    Columns: what, against, quantity (a ratio, or seconds), median, least, greatest, bar, met.

    Examples
    --------
    >>> sorted(set(benchmarks()["quantity"]) - {"ratio", "seconds"})
    []
    """
    records = json.loads(data_file("benchmarks.json").read_text(encoding="utf-8"))
    return pd.DataFrame(
        {
            "what": record["what"],
            "against": record["baseline"],
            "quantity": record["quantity"],
            "median": record["median"],
            "least": record["least"],
            "greatest": record["greatest"],
            "bar": record["bar"],
            "met": "yes" if record["met"] else "no",
        }
        for record in records
    )


def benchmark_machine() -> str:
    """Say on what the benchmarks were run, and when.

    Examples
    --------
    >>> "Python" in benchmark_machine()
    True
    """
    records = json.loads(data_file("benchmarks.json").read_text(encoding="utf-8"))
    machines = {
        f"{e['system']} {e['machine']}, {e['cores']} cores, Python {e['python']}, "
        f"NumPy {e['numpy']}, {record['date']}"
        for record in records
        for e in [record["environment"]]
    }
    return "; ".join(sorted(machines))
