"""Records: what is written is what is read, and what does not hold together is refused by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attention_records import LLAMA3, made_case, made_record, made_trace_case, write_made
from conftest import refused

from kvledger.core.errors import InputError
from kvledger.measure.record import (
    FOLDER_VARIABLE,
    HostTiming,
    Record,
    Timing,
    latest_record,
    read_record,
    record_text,
    records,
    records_folder,
    write_record,
)

MEASUREMENTS = Path(__file__).resolve().parent.parent / "data" / "measurements"


@pytest.fixture(scope="module")
def record() -> Record:
    return made_record("cuda")


def changed(record: Record, change: Callable[[Any], object]) -> str:
    """The text of a record after a change to its JSON."""
    data = json.loads(record_text(record))
    change(data)
    return json.dumps(data)


# --------------------------------------------------------------------------- files
def test_every_committed_record_holds_together() -> None:
    for path in MEASUREMENTS.glob("*") if MEASUREMENTS.is_dir() else ():
        record = read_record(path)
        assert path.suffix == ".json"
        assert path.name.startswith(record.date[:10])
        assert not record.quick
        assert record.source.dirty is not True, f"{path.name} was measured with edited code"
        text = path.read_text("utf-8")
        assert text == record_text(record)  # as the command wrote it
        assert not re.search("/home|/tmp|/root", text)


def test_what_is_written_is_what_is_read(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_record(record, path)
    back = read_record(path)
    assert back.file == "a.json"
    assert replace(back, file=record.file) == record
    assert record_text(back) == path.read_text("utf-8")
    lines = path.read_text("utf-8").splitlines()
    assert sum('"relative_error"' in line for line in lines) == len(record.timings)


def test_a_record_is_never_replaced(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("older")
    refused(r"a\.json is there already; accepted: the name of a new", write_record, record, path)
    assert path.read_text() == "older"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_record_that_does_not_hold_together_is_not_written(
    record: Record, tmp_path: Path
) -> None:
    bad = replace(record, timings=(replace(record.timings[0], case="other"),))
    refused(r"timings\[0\]\.case is 'other'", write_record, bad, tmp_path / "a.json")
    nan = replace(record, elapsed_s=float("nan"))
    refused("a number is NaN; accepted: finite numbers", write_record, nan, tmp_path / "a.json")
    with pytest.raises(InputError, match=r"cannot be written .*; accepted: a folder"):
        write_record(record, tmp_path / "none" / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_records_come_in_order_and_the_latest_by_kind(tmp_path: Path) -> None:
    assert records(tmp_path) == []
    assert latest_record("cuda", tmp_path) is None
    for kind, date in (("cuda", "2026-03-01"), ("cpu", "2026-05-01"), ("cuda", "2026-02-01")):
        write_made(tmp_path, made_record(kind, date=f"{date}T00:00:00Z"))
    quick = made_record("cuda", date="2026-06-01T00:00:00Z")
    write_made(tmp_path, replace(quick, settings={**quick.settings, "quick": True}))
    assert [r.date[:7] for r in records(tmp_path)] == ["2026-02", "2026-03", "2026-05", "2026-06"]
    latest = latest_record("cuda", tmp_path)  # a shortened run is not
    assert latest.file == "2026-03-01-made-cuda.json"
    refused("a kind of device is 'gpu'; accepted: cpu, cuda", latest_record, "gpu", tmp_path)


def test_another_folder_stands_in(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert records_folder().name == "measurements"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    write_made(tmp_path, record)
    assert len(records()) == 1
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "none"))
    refused(rf"{FOLDER_VARIABLE} is '.*none'; accepted: a folder", records)


# --------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=2), r"schema, kind is \(2, 'attention'\); accepted: 1 and"),
        (lambda d: d.update(kind="other"), "schema, kind"),
        (lambda d: d.pop("copy"), "copy is missing; accepted: a value"),
        (lambda d: d.update(more=1), "more is 1; accepted: the fields schema, kind, date"),
        (lambda d: d.update(file="x"), "file is 'x'; accepted: the fields"),
        (lambda d: d.update(date="2026-01-01"), "date is '2026-01-01'; accepted: a time such as"),
        (lambda d: d["device"].update(kind="gpu"), r"device\.kind is 'gpu'; accepted: cpu, cuda"),
        (lambda d: d["device"].update(units="4"), r"device\.units is '4'; accepted: a whole num"),
        (lambda d: d["device"].update(driver=4), r"device\.driver is 4; accepted: a text"),
        (lambda d: d["source"].update(dirty=0), r"source\.dirty is 0; accepted: true or false"),
        (lambda d: d["settings"].pop("quick"), r"settings\.quick is missing; accepted: a bool"),
        (lambda d: d["software"].update(torch=2), r"software\.torch is 2; accepted: a text"),
        (lambda d: d["copy"].update(seconds=[]), r"copy\.seconds is \[\]; accepted: at least one"),
        (lambda d: d["copy"].update(seconds=3), r"copy\.seconds is 3; accepted: a list"),
        (lambda d: d["copy"].update(bytes=0), r"copy\.bytes is 0; accepted: a whole number, at"),
        (lambda d: d.update(cases=[]), r"cases is \[\]; accepted: at least one"),
        (lambda d: d["cases"].append(d["cases"][0]), r"cases\[5\]\.id is 'llama.*each id once"),
        (lambda d: d["cases"][0].update(tokens=1), r"cases\[0\]\.tokens is 1; accepted: 64 x 8192"),
        (lambda d: d["cases"][0].update(trace="x"), r"cases\[0\]\.context_tokens is 8192; accep"),
        (lambda d: d["cases"][4]["lengths"].pop(), r"cases\[4\]\.lengths is \(300, .*as many as"),
        (lambda d: d["timings"].clear(), r"timings is \[\]; accepted: at least one"),
        (lambda d: d["timings"].append(d["timings"][0]), r"timings\[\d+\] is \(.llama.*once"),
        (lambda d: d["timings"][0].update(layout="x"), r"timings\[0\]\.layout is 'x'; accepted: c"),
        (lambda d: d["timings"][0].update(timed_by="x"), r"timings\[0\]\.timed_by is 'x'"),
        (lambda d: d["timings"][0].update(calls=True), r"timings\[0\]\.calls is True; accepted"),
        (lambda d: d["timings"][3].update(pages=5), r"timings\[3\]\.pages is 5; accepted: \d+, wh"),
        (lambda d: d["timings"][0].update(moved_bytes=5), r"timings\[0\]\.moved_bytes is 5; acc"),
        (lambda d: d["timings"][0].update(relative_error=-1), r"timings\[0\]\.relative_error is"),
        (lambda d: d["timings"][1]["seconds"].pop(), r"timings\[1\]\.seconds is '10 repetitions'"),
        (lambda d: d["copy"].update(seconds=[1, 0]), r"copy\.seconds\[1\] is 0; accepted: a time"),
        (lambda d: d["copy"].update(seconds=["1"]), r"copy\.seconds\[0\] is '1'; accepted: a fin"),
        (lambda d: d["absent"][0].update(reason=""), r"absent\[0\]\.reason is ''; accepted: a r"),
        (lambda d: d["host"][0].update(tokens=0), r"host\[0\]\.tokens is 0; accepted: a whole"),
        (lambda d: d.update(host={}), "host is {}; accepted: a list"),
        (lambda d: d.update(copy=[]), r"copy is \[\]; accepted: an object"),
    ],
)
def test_what_does_not_hold_is_named(
    record: Record, tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(changed(record, change), "utf-8")
    refused(rf"bad\.json: {message}", read_record, path)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"elapsed_s": NaN}', '{"a": Infinity}'])
def test_what_is_no_record_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    refused(r"bad\.json: .*accepted: ", read_record, path)
    refused(r"none\.json: .*accepted: a JSON record", read_record, tmp_path / "none.json")


# --------------------------------------------------------------------------- frames
def test_a_ratio_is_taken_within_a_repetition() -> None:
    """A drift that all timings of a repetition share leaves the ratio alone."""
    record = made_record("cuda", noise=0.0)
    drift = np.geomspace(1, 3, 11)
    timings = (replace(t, seconds=tuple(np.array(t.seconds) * drift)) for t in record.timings)
    drifting = replace(record, timings=tuple(timings))
    steady, moved = record.frame(), drifting.frame()
    for column in ("ratio", "ratio_low", "ratio_high"):
        np.testing.assert_allclose(moved[column], steady[column], rtol=1e-12)
    assert (moved.seconds_high > moved.seconds_low).all()
    np.testing.assert_allclose(moved.seconds, steady.seconds * np.sqrt(3), rtol=1e-12)


def test_a_ratio_and_a_share_by_hand() -> None:
    case = made_case(LLAMA3, 2, 512)

    def timing(peer: str, layout: str, size: int, *seconds: float) -> Timing:
        pages = 2 if layout == "contiguous" else 1024 // size
        return Timing(case.id, peer, layout, size, pages, case.kv_bytes, 1, "events", seconds, 0.0)

    record = replace(
        made_record(cases=[case]),
        timings=(
            timing("sdpa", "contiguous", 512, 1.0, 2.0, 4.0),
            timing("triton", "contiguous", 512, 2.0, 2.0, 2.0),
            timing("triton", "random", 16, 4.0, 6.0, 10.0),
            timing("other", "random", 16, 3.0, 6.0, 4.0),
        ),
    )
    frame = record.frame().set_index(["peer", "layout"])
    assert frame.baseline.tolist() == ["sdpa", "triton", "triton", "sdpa"]
    assert frame.ratio.tolist() == [1.0, 1.0, 3.0, 3.0]
    assert frame.loc[("other", "random")][["ratio_low", "ratio_high"]].tolist() == [2.0, 3.0]
    assert frame.loc[("other", "random")][["seconds_low", "seconds_high"]].tolist() == [3.5, 5.0]
    # By its definition: bytes a second, over those of the copy.
    copied = record.copy.bytes / np.median(record.copy.seconds)
    assert frame.share.tolist() == [case.kv_bytes / s / copied for s in (2.0, 2.0, 6.0, 4.0)]


def test_a_record_counts_pages_and_host_work_and_says_what_it_is(record: Record) -> None:
    traced = made_record(cases=[made_trace_case(LLAMA3, [5, 16, 17])])
    assert next(t for t in traced.timings if t.page_size == 16).pages == 1 + 1 + 2
    work = HostTiming("hash_pages", 16, 1, 64, 4, "pages", (1.0, 3.0, 2.0))
    none = replace(work, what="allocate_pages", units=0)
    frame = replace(made_record(), host=(work, none)).host_frame().set_index("what")
    assert frame.seconds.tolist() == [2.0, 2.0]
    assert frame.loc["hash_pages", ["seconds_low", "seconds_high"]].tolist() == [1.5, 2.5]
    assert frame.seconds_per_token.tolist() == [2 / 64] * 2
    assert frame.seconds_per_unit.iloc[0] == 0.5
    assert np.isnan(frame.seconds_per_unit.iloc[1])
    assert record.label == "Test device, a GPU, 2026-01-02"
    assert record.main_case.id == "llama-3.1-8b.b64.c8192"
    assert record.timings[0].median_s == np.median(record.timings[0].seconds)
    frame = record.frame()
    assert (frame.trace.notna() == frame.context_tokens.isna()).all()
    assert frame.context_tokens.dtype == "Int64"
    assert len(frame) == len(record.timings)
    timings = tuple(t for t in record.timings if t.layout != "contiguous")
    paged = replace(record, timings=timings).frame()
    assert paged.ratio.isna().all()
    assert paged.baseline.isna().all()
    assert (paged.share > 0).all()


def test_reading_needs_neither_torch_nor_a_gpu() -> None:
    code = "import sys, kvledger.measure.record as r; r.records(); 'torch' in sys.modules and 1 / 0"
    subprocess.run([sys.executable, "-c", code], check=True)
