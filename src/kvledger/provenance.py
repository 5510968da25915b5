"""What the committed data is, where it came from, and what was measured: as tables."""

from __future__ import annotations

import json
import tomllib

import pandas as pd

from kvledger.datafiles import data_file

DIGEST_CHARACTERS = 12


def data_files() -> pd.DataFrame:
    """List the files of ``data/`` that the manifest checks by digest.

    Columns: file, holds, source, licence, SHA-256 (its first characters).

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
            "source": entry["source"].removeprefix("https://"),
            "licence": entry["licence"],
            "SHA-256": entry["sha256"][:DIGEST_CHARACTERS],
        }
        for entry in manifest["file"]
        if entry["kind"] in ("derived", "facts")
    ]
    return pd.DataFrame(rows, dtype=object)
