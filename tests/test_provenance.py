"""The tables of the reproduce page say what the manifest and the records say."""

from __future__ import annotations

import hashlib
import json

from kvledger.chapters import published
from kvledger.core import data_file, data_folder


def test_every_derived_table_is_listed_with_its_digest() -> None:
    frame = published.data_files()
    tables = {p.relative_to(data_folder()).as_posix() for p in data_folder().glob("traces/*.csv")}
    assert tables <= set(frame["file"])
    for file, digest in zip(frame["file"], frame["SHA-256"], strict=True):
        content = data_file(file).read_bytes()
        assert hashlib.sha256(content).hexdigest().startswith(digest)


def test_benchmarks_are_shown_as_recorded() -> None:
    records = json.loads(data_file("benchmarks.json").read_text(encoding="utf-8"))
    frame = published.benchmarks()
    assert frame["what"].tolist() == [r["what"] for r in records]
    assert frame["median"].tolist() == [r["median"] for r in records]
    assert (frame["met"] == "yes").tolist() == [r["met"] for r in records]
    assert all(str(r["environment"]["python"]) in published.benchmark_machine() for r in records)
