"""The committed tables: where they come from, that they are whole, and that they are enough."""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from rawtraces import raw_folder

import kvledger as kv
from kvledger.core.errors import LedgerError
from kvledger.traces import TRACE_NAMES, Trace, derivation, load_lengths, load_trace
from kvledger.traces.derivation import (
    WINDOWS,
    blocks_table,
    common_preamble,
    derive_tables,
    lengths_table,
    load_blocks,
    load_manifest,
    neighbour_sharing,
    requests_table,
    sharing_by_window,
)

DATA = Path(__file__).resolve().parents[2] / "data"
ENTRIES = {entry["path"]: entry for entry in load_manifest(DATA)}
DERIVED = {path: entry for path, entry in ENTRIES.items() if entry["kind"] == "derived"}
BLOCK = derivation._MOONCAKE_BLOCK
SIZES = [1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 64, 100, 128, 256, 512, 1024, 4096]


@pytest.fixture(scope="module")
def raw_traces() -> Path:
    return raw_folder()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def raw_of(folder: Path, name: str) -> Path:
    return folder / DERIVED[f"traces/{name}.lengths.csv"]["raw_file"]


# --------------------------------------------------------------------------- the manifest
def test_the_manifest_names_every_file_and_no_other() -> None:
    there = {p.relative_to(DATA).as_posix() for p in DATA.rglob("*") if p.is_file()}
    records = {path for path, entry in ENTRIES.items() if entry["kind"] == "record"}
    recorded = {path for path in there if any(is_record(path, each) for each in records)}
    assert there - {"manifest.toml"} - recorded == set(ENTRIES) - records
    lengths = {f"traces/{name}.lengths.csv" for name in TRACE_NAMES}
    blocks = {f"traces/mooncake_{kind}.blocks.csv" for kind in ("conversation", "synthetic")}
    requests = {
        f"traces/{name}.requests.csv" for name in ("azure_conv_2023", "mooncake_conversation")
    }
    assert set(DERIVED) == lengths | blocks | requests


def is_record(path: str, pattern: str) -> bool:
    """Tell whether a record's path is the manifest's: ``*`` stands for a name, not a folder."""
    return fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")


@pytest.mark.parametrize("path", [p for p, e in ENTRIES.items() if e["kind"] != "record"])
def test_a_file_is_the_one_that_the_manifest_means(path: str) -> None:
    assert sha256(DATA / path) == ENTRIES[path]["sha256"]


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_says_where_its_file_comes_from(entry: dict[str, str]) -> None:
    needed = {"path", "kind", "holds", "source", "licence"}
    if entry["kind"] == "derived":
        needed |= {"source_path", "source_commit", "licence_notice", "citation", "citation_key"}
        needed |= {"raw_file", "raw_sha256", "sha256", "command"}
        assert re.fullmatch("[0-9a-f]{64}", entry["raw_sha256"])
        assert re.fullmatch("[0-9a-f]{40}", entry["source_commit"])
        notice = (DATA / entry["licence_notice"]).read_text("utf-8")
        assert Path(entry["source_path"]).name in notice
        assert entry["source"] in notice
    elif entry["kind"] == "record":
        needed |= {"command"}
    else:
        needed |= {"sha256"}
    assert needed <= {key for key, value in entry.items() if value}


# --------------------------------------------------------------------------- length tables
@pytest.mark.parametrize("name", TRACE_NAMES)
def test_a_length_table_is_sorted_whole_and_in_unix_lines(name: str) -> None:
    data = (DATA / f"traces/{name}.lengths.csv").read_bytes()
    assert b"\r" not in data
    assert data.endswith(b"\n")
    rows = [tuple(map(int, row)) for row in list(csv.reader(data.decode().splitlines()))[1:]]
    tokens = [row[0] for row in rows]
    assert tokens == sorted(set(tokens))
    assert all(prompts or totals for _, prompts, totals in rows)
    assert sum(row[1] for row in rows) == sum(row[2] for row in rows)


@pytest.mark.parametrize("name", TRACE_NAMES)
def test_a_length_table_gives_what_the_raw_trace_gives(raw_traces: Path, name: str) -> None:
    trace = load_trace(raw_of(raw_traces, name))
    table = load_lengths(name)
    assert table.n_requests == trace.n_requests
    assert kv.paged_sweep(table.total, SIZES) == kv.paged_sweep(trace, SIZES)
    assert kv.paged_sweep(table.prompt, SIZES) == kv.paged_sweep(trace.prompt_tokens, SIZES)
    for reserve in (table.total.max_tokens, 2048, 4096, 32768, 5000, "pow2", "oracle"):
        ledgers = [
            kv.contiguous(lengths, reserve, over_maximum="count")
            for lengths in (table.total, trace)
        ]
        assert ledgers[0] == ledgers[1]
    assert kv.envelope(table.total, SIZES) == kv.envelope(trace, SIZES)
    for c in (0, Fraction(1, 4), 1, 4):
        assert kv.best_page_size(table.total, c, SIZES) == kv.best_page_size(trace, c, SIZES)


@pytest.mark.parametrize("page_size", [1, 3, 8, 16, 64])
def test_slack_over_growth_needs_the_marginals_only(raw_traces: Path, page_size: int) -> None:
    table = load_lengths("azure_code_2023")
    trace = load_trace(raw_of(raw_traces, "azure_code_2023"))
    # Every length that every request passes through, one by one.
    starts = np.repeat(trace.prompt_tokens, trace.output_tokens)
    ends = np.cumsum(trace.output_tokens)
    steps = np.arange(1, ends[-1] + 1) - np.repeat(ends - trace.output_tokens, trace.output_tokens)
    raw = int((-(starts + steps) % page_size).sum())

    def up_to(lengths: kv.LengthTable) -> int:
        longest = int(lengths.tokens.max())
        running = np.concatenate(([0], np.cumsum(-np.arange(1, longest + 1) % page_size)))
        return int((running[lengths.tokens] * lengths.requests).sum())

    assert up_to(table.total) - up_to(table.prompt) == raw


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30)), min_size=1, max_size=40))
@settings(deadline=None)
def test_any_trace_survives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    trace = Trace([p for p, _ in rows], [o for _, o in rows])
    path = tmp_path_factory.mktemp("table") / "any.lengths.csv"
    lengths_table(trace).to_csv(path, index=False)
    table = load_lengths(path)
    assert table.name == "any"
    for lengths, raw in ((table.prompt, trace.prompt_tokens), (table.total, trace.total_tokens)):
        assert np.repeat(lengths.tokens, lengths.requests).tolist() == sorted(raw.tolist())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tokens,prompts\n5,1\n", "the columns are tokens, prompts; accepted"),
        ("tokens,prompts,totals\n5,1,2\n", "1 prompts and 2 totals; accepted"),
        ("tokens,prompts,totals\n5,-1,-1\n", "none below 0"),
        ("tokens,prompts,totals\n5,1,\n", "not a length table"),
        ("tokens,prompts,totals\n5,x,1\n", "not a length table"),
        ("", "not a length table"),
    ],
)
def test_a_bad_length_table_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.lengths.csv"
    path.write_text(content)
    refused(message, load_lengths, path)


def test_bad_tables_and_traces_are_named(tmp_path: Path) -> None:
    refused(r"no such trace; accepted: .*azure_code_2023.*bwb_v2", load_lengths, "azure")
    (tmp_path / "manifest.toml").write_text("[[file]\n")
    refused(r"manifest\.toml: .*accepted: TOML", load_manifest, tmp_path)
    refused("has no page_ids; accepted: a trace with block ids", blocks_table, Trace([5], [1]))
    refused("has no times", requests_table, kv.Trace([5], [1]))
    unchained = kv.Trace([20, 20], [1, 1], [0, 1], [[1, 2], [3, 2]], 10)
    refused(r"request 1 of .* a known block after a new one", requests_table, unchained)
    refused(r"no data file 'traces/none\.requests\.csv'", kv.load_requests, "none")
    for window in (0, -1, 2.5, True, "2"):
        refused(r"window is .* at least 1", neighbour_sharing, [[1]], window)
    refused(r"page_ids\[1\] holds an id twice", neighbour_sharing, [[1], [2, 2]], 2)
    with pytest.raises(LedgerError, match="how is 'tiles'; accepted: 'groups', 'sliding'"):
        neighbour_sharing([[1]], 2, how="tiles")


# --------------------------------------------------------------------------- block tables
def share(frame: pd.DataFrame, window: int, how: str, blocks: str, preamble: str) -> float:
    row = frame[
        (frame.window_requests == window)
        & (frame.how == how)
        & (frame.blocks == blocks)
        & (frame.preamble == preamble)
    ]
    return 100 * row.shared_blocks.item() / row.logical_blocks.item()


@pytest.mark.parametrize(
    ("name", "window", "how", "blocks", "preamble", "percent"),
    [
        ("mooncake_conversation", 12031, "groups", "all", "with", 36.64),
        ("mooncake_conversation", 12031, "groups", "complete", "with", 38.19),
        ("mooncake_conversation", 16, "groups", "all", "with", 3.93),
        ("mooncake_conversation", 16, "sliding", "all", "with", 4.19),
        ("mooncake_conversation", 16, "groups", "all", "without", 0.02),
        ("mooncake_conversation", 16, "sliding", "all", "without", 0.02),
        ("mooncake_synthetic", 3993, "groups", "all", "with", 63.96),
        ("mooncake_synthetic", 16, "groups", "all", "with", 2.15),
        ("mooncake_synthetic", 16, "sliding", "all", "with", 5.23),
    ],
)
def test_blocks_shared_among_neighbours(
    name: str, window: int, how: str, blocks: str, preamble: str, percent: float
) -> None:
    assert round(share(load_blocks(name), window, how, blocks, preamble), 2) == percent


@pytest.mark.parametrize("name", ["mooncake_conversation", "mooncake_synthetic"])
def test_a_block_table_is_whole_and_grows_with_the_window(name: str) -> None:
    frame = load_blocks(name)
    n = load_lengths(name).n_requests
    windows = [*(w for w in WINDOWS if w < n), n]
    for how in ("groups", "sliding"):
        for blocks in ("all", "complete"):
            for preamble in ("with", "without"):
                part = frame.query(f"how == {how!r} and blocks == {blocks!r}").query(
                    f"preamble == {preamble!r}"
                )
                assert part.window_requests.tolist() == windows
                assert len(set(part.logical_blocks)) == 1
                # A window of 2k holds both of its halves' windows of k.
                assert part.shared_blocks.is_monotonic_increasing
                assert part.shared_blocks.iloc[0] == 0
    assert len(frame) == 8 * len(windows)


def test_raw_traces_are_chained(raw_traces: Path) -> None:
    conversation = load_trace(raw_of(raw_traces, "mooncake_conversation"))
    assert common_preamble(conversation) == {0}
    assert conversation.page_ids is not None
    assert all(ids[0] == 0 for ids in conversation.page_ids)
    synthetic = load_trace(raw_of(raw_traces, "mooncake_synthetic"))
    assert common_preamble(synthetic) == frozenset()


@pytest.mark.parametrize("name", ["mooncake_conversation", "mooncake_synthetic"])
def test_block_ids_are_chained(raw_traces: Path, name: str) -> None:
    trace = load_trace(raw_of(raw_traces, name))
    parent: dict[int, tuple[int, int | None]] = {}
    for ids in trace.page_ids or ():
        for position, block in enumerate(ids):
            here = (position, ids[position - 1] if position else None)
            assert parent.setdefault(block, here) == here


def test_a_block_table_by_hand() -> None:
    trace = Trace([20, 25, 20], [1, 1, 1], page_ids=[[7, 1], [7, 1, 2], [7, 3]], page_ids_size=10)
    frame = blocks_table(trace)
    assert frame.window_requests.drop_duplicates().tolist() == [1, 2, 3]
    by = frame.set_index(["how", "blocks", "preamble", "window_requests"])
    assert by.loc[("groups", "all", "with", 3)].tolist() == [7, 3]
    assert by.loc[("groups", "all", "with", 2)].tolist() == [7, 2]
    assert by.loc[("sliding", "all", "with", 2)].tolist() == [7, 3]
    assert by.loc[("groups", "complete", "with", 3)].tolist() == [6, 3]
    assert by.loc[("groups", "all", "without", 3)].tolist() == [4, 1]


# --------------------------------------------------------------------------- request tables
@pytest.mark.parametrize("name", ["azure_conv_2023", "mooncake_conversation"])
def test_a_request_table_holds_the_raw_trace(name: str) -> None:
    raw, table = kv.load_trace(next(raw_folder().glob(f"{name}.*"))), kv.load_requests(name)
    assert raw.arrival_s is not None
    assert table.arrival_s is not None
    assert (raw.prompt_tokens == table.prompt_tokens).all()
    assert (raw.output_tokens == table.output_tokens).all()
    assert np.abs(raw.arrival_s - table.arrival_s).max() <= 0.001
    assert same_pattern(raw.page_ids, table.page_ids)


def same_pattern(
    one: tuple[tuple[int, ...], ...] | None, two: tuple[tuple[int, ...], ...] | None
) -> bool:
    """Tell whether two traces' ids differ by a renaming only."""
    if one is None or two is None:
        return one is two
    pairs = {pair for a, b in zip(one, two, strict=True) for pair in zip(a, b, strict=True)}
    return len({a for a, _ in pairs}) == len(pairs) == len({b for _, b in pairs})


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 5), st.integers(1, BLOCK)),
        min_size=1,
        max_size=12,
    )
)
def test_chains_come_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int, int]]
) -> None:
    ids: list[list[int]] = []
    fresh = iter(range(10**6, 0, -3))
    for parent, common, new, _ in steps:
        start = ids[parent % len(ids)][:common] if ids else []
        ids.append([*start, *(next(fresh) for _ in range(new))])
    prompts = [BLOCK * (len(own) - 1) + rest for own, (*_, rest) in zip(ids, steps, strict=True)]
    trace = kv.Trace(prompts, [1] * len(ids), np.arange(len(ids)), ids, BLOCK)
    folder = tmp_path_factory.mktemp("data")
    (folder / "traces").mkdir()
    requests_table(trace).to_csv(folder / "traces/mine.requests.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derivation, "data_file", lambda name: folder / name)
        back = kv.load_requests("mine")
    assert (back.prompt_tokens == trace.prompt_tokens).all()
    assert same_pattern(trace.page_ids, back.page_ids)


# --------------------------------------------------------------------------- neighbours
prefixes = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=6), min_size=1, max_size=14)


def _brute(page_ids: list[list[int]], window: int, skip: set[int], how: str) -> tuple[int, int]:
    kept = [[i for i in ids if i not in skip] for ids in page_ids]
    logical = sum(map(len, kept))
    if how == "groups":
        groups = [kept[k : k + window] for k in range(0, len(kept), window)]
        return logical, sum(sum(map(len, g)) - len(set().union(*g)) for g in groups)
    ahead = [set().union(*kept[max(0, r - window + 1) : r], []) for r in range(len(kept))]
    return logical, sum(i in seen for ids, seen in zip(kept, ahead, strict=True) for i in ids)


@given(
    prefixes,
    st.integers(1, 20),
    st.sets(st.integers(0, 12), max_size=2),
    st.sampled_from(["groups", "sliding"]),
)
@settings(deadline=None)
def test_neighbours_by_hand(
    page_ids: list[list[int]], window: int, skip: set[int], how: Any
) -> None:
    found = neighbour_sharing(page_ids, window, skip=skip, how=how)
    assert found == (window, *_brute(page_ids, window, skip, how))
    assert sharing_by_window(page_ids, [window, 1], skip=skip, how=how)[0] == found


@given(prefixes)
def test_the_whole_trace_is_one_group(page_ids: list[list[int]]) -> None:
    whole = len(page_ids)
    groups = neighbour_sharing(page_ids, whole)
    assert groups == neighbour_sharing(page_ids, whole, how="sliding")
    assert neighbour_sharing(page_ids, 1).shared_blocks == 0


# --------------------------------------------------------------------------- deriving
def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.mark.slow
def test_deriving_gives_the_committed_bytes_every_time(raw_traces: Path, tmp_path: Path) -> None:
    for out in (tmp_path / "one", tmp_path / "two" / "deep"):
        written = derive_tables(raw_traces, out)
        assert tree(out) == {path: (DATA / path).read_bytes() for path in DERIVED}
        assert {p.relative_to(out).as_posix() for p in written} == set(DERIVED)
    raw = tmp_path / "raw"
    raw.mkdir()
    for entry in DERIVED.values():
        shutil.copy(raw_traces / entry["raw_file"], raw / Path(entry["source_path"]).name)
    assert len(derive_tables(raw, tmp_path / "out")) == len(DERIVED)
    derive_tables(raw_traces, tmp_path, update_manifest=True)
    assert (tmp_path / "manifest.toml").read_bytes() == (DATA / "manifest.toml").read_bytes()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two raw files made up here, and a manifest that means them."""
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "lengths.csv").write_text("prompt_tokens,output_tokens\n5,1\n9,0\n5,4\n")
    (raw / "ids.jsonl").write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}\n'
        '{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [0]}\n'
    )
    tables = {"traces/lengths.lengths.csv": "lengths.csv", "traces/ids.blocks.csv": "ids.jsonl"}
    entries = [
        {
            "path": path, "kind": "derived", "source": "here", "source_path": "data/" + file,
            "source_commit": "now", "raw_file": file, "raw_sha256": sha256(raw / file),
            "sha256": "",
        }
        for path, file in tables.items()
    ]  # fmt: skip
    monkeypatch.setattr(derivation, "load_manifest", lambda: [dict(entry) for entry in entries])
    derive_tables(raw, tmp_path / "first", update_manifest=True)
    entries[:] = load_manifest(tmp_path / "first")
    return raw


def test_small_tables_by_hand(small: Path, tmp_path: Path) -> None:
    derive_tables(small, tmp_path / "out")
    first = tree(tmp_path / "first")
    assert tree(tmp_path / "out") == {k: v for k, v in first.items() if k != "manifest.toml"}
    assert first["traces/lengths.lengths.csv"] == (b"tokens,prompts,totals\n5,2,0\n6,0,1\n9,1,2\n")
    lines = first["traces/ids.blocks.csv"].decode().splitlines()
    assert lines[:4] == [
        "window_requests,how,blocks,preamble,logical_blocks,shared_blocks",
        "1,groups,all,with,3,0",
        "2,groups,all,with,3,1",
        "1,groups,all,without,1,0",
    ]
    assert "2,sliding,complete,with,2,1" in lines
    out, path = tmp_path / "none", small / "ids.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(
        LedgerError, match=r"ids\.jsonl: SHA-256 [0-9a-f]{64}; accepted: [0-9a-f]{64}"
    ):
        derive_tables(small, out, update_manifest=True)
    path.unlink()
    refused(r"no raw file ids\.jsonl .* from here at now", derive_tables, small, out)
    assert not out.exists()


def test_another_table_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shifted(trace: Trace) -> pd.DataFrame:
        return lengths_table(trace).assign(tokens=lambda frame: frame.tokens + 1)

    monkeypatch.setitem(derivation._TABLES, ".lengths.csv", shifted)
    out = tmp_path / "out"
    refused(r"lengths\.csv: the table derived now has SHA-256", derive_tables, small, out)
    assert not out.exists()
    derive_tables(small, out, update_manifest=True)
    entries = load_manifest(out)
    assert [e["sha256"] for e in entries] == [sha256(out / e["path"]) for e in entries]
    assert [e | {"sha256": ""} for e in entries] == [
        e | {"sha256": ""} for e in load_manifest(tmp_path / "first")
    ]


def test_a_failed_write_leaves_old(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    old = out / "traces" / "lengths.lengths.csv"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    write_bytes = Path.write_bytes

    def failing(self: Path, data: bytes) -> int:
        if self.name == "ids.blocks.csv":  # the last of the files
            raise OSError(28, "No space left on device")
        return write_bytes(self, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    refused(r"cannot be written .*No space left.*accepted", derive_tables, small, out)
    assert tree(out) == {"traces/lengths.lengths.csv": b"old"}


# --------------------------------------------------------------------------- facts
@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("claims.csv", ["id", "value", "unit", "given", "source"], 30),
        ("cases.csv", ["id", "given", "answer", "unit", "thread"], 11),
        ("paper_pagedattention.csv", ["id", "value", "unit", "where", "note"], 51),
    ],
)
def test_facts_have_an_id_each_and_a_source(name: str, columns: list[str], rows: int) -> None:
    frame = pd.read_csv(DATA / name)
    assert frame.columns.tolist() == columns
    assert len(frame) == rows
    assert frame.id.is_unique
    source = {"claims.csv": "source", "cases.csv": "thread"}.get(name, "where")
    assert frame[source].notna().all()
