"""Whatever a trace is wrapped in, and however long it is: the same requests, in little memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.core.errors import LedgerError
from kvledger.traces import streams
from kvledger.traces.streams import Source

TOKENS = "prompt_tokens,output_tokens\n5,1\n9,0\n"


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}
wrappings = pytest.mark.parametrize("wrapping", WRAPPINGS)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take 100 bytes for a block, and 1000 for a line too long to hold."""
    monkeypatch.setattr(streams, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(streams, "LONGEST_LINE_BYTES", 1000)


def lists(trace: kv.Trace) -> tuple[list[int], list[int]]:
    return trace.prompt_tokens.tolist(), trace.output_tokens.tolist()


# --------------------------------------------------------------------------- compression
@wrappings
def test_compressed_or_not_it_is_the_same(write: Any, wrapping: str) -> None:
    packed = WRAPPINGS[wrapping](TOKENS.encode())
    trace = kv.load_trace(write(packed, f"mine.csv.{wrapping}"))
    assert (lists(trace), trace.name) == (([5, 9], [1, 0]), "mine")
    # The content tells, not the name; and one stream may follow another, as logs are rotated.
    twice = packed + WRAPPINGS[wrapping](b"17,2\n")
    assert lists(kv.load_trace(write(twice, "other.txt"))) == ([5, 9, 17], [1, 0, 2])


@wrappings
@pytest.mark.parametrize("damage", ["cut", "changed", "junk"])
def test_damage_is_one_clear_error(write: Any, wrapping: str, damage: str) -> None:
    packed = WRAPPINGS[wrapping](TOKENS.encode() * 50)
    bad = {
        "cut": packed[:-7],
        "changed": packed[:20] + bytes(255 - byte for byte in packed[20:40]) + packed[40:],
        "junk": packed + b"junk",
    }[damage]
    path = write(bad)
    for load in (kv.load_trace, kv.load_lengths):
        with pytest.raises(LedgerError, match="data is cut short or damaged") as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: the ")
        assert f"; accepted: a complete .{wrapping} file" in str(caught.value)
        assert "\n" not in str(caught.value)


@given(
    st.lists(st.binary(max_size=50), max_size=5), st.sampled_from(["bz2", "xz"]), st.integers(1, 80)
)
def test_streams_come_out_as_they_went_in(parts: list[bytes], wrapping: str, size: int) -> None:
    """Our own loop over bzip2 and xz streams gives what the standard library's own files give."""
    packed = b"".join(map(WRAPPINGS[wrapping], parts))
    wrapped = next(w for w in streams._WRAPPINGS if w.suffix == f".{wrapping}")
    stream = io.BufferedReader(wrapped.open(io.BytesIO(packed)), buffer_size=size)
    expected = b"".join(parts)
    if packed:
        assert stream.read() == expected
    else:
        with pytest.raises(EOFError):
            stream.read()


# --------------------------------------------------------------------------- standard input
def from_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes, *, pipe: bool) -> None:
    stream: Any = io.BytesIO(data)
    if pipe:
        out, into = os.pipe()
        os.write(into, data)
        os.close(into)
        stream = os.fdopen(out, "rb")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))


pipe = pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])


@pipe
@pytest.mark.parametrize(
    "text",
    ["5 9 17", "5,9,17\n", "5, 9,17", "5\n9\n17\n", "5 9\n17", "\n5,\n9 17\r\n", "5\t9 , 17",
     " 5,9,17,\n", "[5, 9, 17]", "length\n5\n9\n17", "5.0 +9 017"],
)  # fmt: skip
def test_plain_numbers_on_stdin(monkeypatch: pytest.MonkeyPatch, text: str, pipe: bool) -> None:
    for load in (kv.load_trace, kv.load_lengths):
        from_stdin(monkeypatch, text.encode(), pipe=pipe)
        loaded: Any = load("-")
        assert (loaded.name, loaded.n_requests) == ("stdin", 3)
        lengths = loaded.prompt_tokens if load is kv.load_trace else loaded.prompt.tokens
        assert sorted(lengths.tolist()) == [5, 9, 17]


@pipe
@pytest.mark.parametrize("wrapping", [None, *WRAPPINGS])
def test_any_format_on_stdin(
    monkeypatch: pytest.MonkeyPatch, wrapping: str | None, pipe: bool
) -> None:
    pack = WRAPPINGS.get(wrapping or "", bytes)
    record = '{"timestamp": 0, "input_length": 5, "output_length": 1}\n'
    for content in (TOKENS, record, '{"usage": {"prompt_tokens": 5, "completion_tokens": 1}}'):
        from_stdin(monkeypatch, pack(content.encode()), pipe=pipe)
        assert lists(kv.load_trace("-"))[0][0] == 5
        assert not sys.stdin.buffer.closed


@pipe
def test_parquet_on_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipe: bool) -> None:
    import pandas as pd

    pd.DataFrame({"prompt_tokens": [5], "output_tokens": [1]}).to_parquet(tmp_path / "t")
    from_stdin(monkeypatch, (tmp_path / "t").read_bytes(), pipe=pipe)
    assert lists(kv.load_trace(Path("-"))) == ([5], [1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input: the file is empty"),
        ("5,,9", "line 1: length is missing; accepted: a whole number"),
        ("5\n,9", "line 2: length is missing"),
        ("5 9\n17 x", "line 2: length is 'x'"),
        ("5 0", "line 1: length is '0'"),
        ("5 1e3", "line 1: length is '1e3'"),
        ("5 9.5", "line 1: length is '9.5'"),
        ("5 ٣", "line 1: length is '٣'"),
        ("100,20\n200,30\n", "line 1: 2 numbers on every line; accepted: a table with a header, o"),
        ("1,2,3\n4,5,6", "line 1: 3 numbers on every line"),
    ],
)
def test_bad_numbers_are_named(monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    for load in (kv.load_trace, kv.load_lengths):
        from_stdin(monkeypatch, text.encode(), pipe=True)
        assert refused(message, load, "-").startswith("standard input")


def test_a_list_named_as_one_may_be_columns(monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    from_stdin(monkeypatch, b"100,20\n200,30\n", pipe=True)
    assert lists(kv.load_trace("-", "lengths"))[0] == [100, 20, 200, 30]
    assert kv.load_lengths(write("100,20\n200,30\n"), "lengths").n_requests == 4
    # In a file, a list of lengths that is not said to be one has one a line.
    refused(r"line 1: 2 fields in '100,20'; accepted: 1", kv.load_trace, write("100,20\n200,30\n"))


def test_other_ways_in(monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    refused("standard input: there is none here", kv.load_trace, "-")
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    packed = lzma.compress(b"5\n", filters=filters)
    refused(r"xz data is cut short or damaged .*[Mm]emory", kv.load_trace, write(packed))


def test_a_named_pipe(tmp_path: Path) -> None:
    """What a shell hands over as ``<(zcat trace.gz)``."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    code = f"open({str(path)!r}, 'wb').write(b'5\\n9\\n')"
    for load in (kv.load_trace, kv.load_lengths):
        writer = subprocess.Popen([sys.executable, "-c", code])
        assert load(path).n_requests == 2
        assert writer.wait(timeout=60) == 0


# --------------------------------------------------------------------------- long lines
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("5," * 2000 + "5", "line 1: longer than"),
        ("5\n" + "5," * 2000, "line 2: longer than"),
        ("prompt_tokens,output_tokens\n1,1\n1," + "1" * 3000 + "\n", "line 3: longer than"),
        ('{"input_lens": "' + "x" * 5000 + '"}', "line 1: longer than"),
        ('\n{"input_lens": [\n' + "1,\n" * 2000, "line 2: longer than"),
        ("[\n" + "5,\n" * 2000 + "5]", "line 1: longer than"),
        (b'{"a": ["' + b"x" * 70 + b"\xff", "line 1: byte 0xFF is not text"),
        (b"\xef\xbb\xbf" + b"5," * 2000, "line 1: longer than"),
    ],
)
def test_too_long_is_one_clear_error(write: Any, content: str | bytes, message: str) -> None:
    path = write(content)
    for load in (kv.load_trace, kv.load_lengths):
        assert refused(message, load, path).startswith(str(path))


@pytest.mark.usefixtures("small_pieces")
def test_a_value_on_many_lines_may_be_longer_than_a_block(write: Any) -> None:
    lengths = [i % 977 + 1 for i in range(100)]
    assert lists(kv.load_trace(write(json.dumps(lengths, indent=1))))[0] == lengths
    run = {"input_lens": lengths, "output_lens": lengths}
    assert lists(kv.load_trace(write(json.dumps(run, indent=0)))) == (lengths, lengths)


# --------------------------------------------------------------------------- memory
def peak_of(work: Callable[[], object]) -> int:
    """Return the bytes that were held at most, NumPy's included."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def long_file(path: Path, kind: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    prompts, outputs = rng.integers(1, 9000, rows).tolist(), rng.integers(0, 900, rows).tolist()
    line = {
        "csv": "{},{}\n",
        "jsonl": '{{"timestamp": 0, "input_length": {}, "output_length": {}}}\n',
        "log": '{{"usage": {{"prompt_tokens": {}, "completion_tokens": {}}}, "x": "' + "y" * 99
        + '"}}\n',
    }[kind]  # fmt: skip
    with path.open("w") as file:
        file.write("prompt_tokens,output_tokens\n" if kind == "csv" else "")
        for prompt, output in zip(prompts, outputs, strict=True):
            file.write(line.format(prompt, output))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rows"), [("csv", 200_000), ("jsonl", 20_000), ("log", 20_000)])
def test_counting_lengths_takes_no_more_memory_for_more_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rows: int
) -> None:
    monkeypatch.setattr(streams, "_BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr("kvledger.traces.json_lines._BATCH", 1 << 10)
    peaks = []
    for factor in (1, 1, 4):  # the first imports, and compiles
        long_file(tmp_path / "t", kind, factor * rows)
        peaks.append(peak_of(lambda: kv.load_lengths(tmp_path / "t")))
    assert peaks[2] < 1.2 * peaks[1]


def test_a_trace_takes_its_arrays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_BLOCK_BYTES", 1 << 16)
    long_file(tmp_path / "t", "csv", 500_000)
    kv.load_trace(tmp_path / "t")  # imports, and compiles
    assert peak_of(lambda: kv.load_trace(tmp_path / "t")) < 1.5 * 16 * 500_000


@wrappings
def test_a_small_file_that_unpacks_large_takes_no_memory(tmp_path: Path, wrapping: str) -> None:
    lines = 10_000_000
    packed = WRAPPINGS[wrapping](b"7\n" * lines)
    assert len(packed) < 100_000
    (tmp_path / "t").write_bytes(packed)
    kv.load_lengths(tmp_path / "t")  # imports, and compiles
    lengths: Any = None

    def load() -> None:
        nonlocal lengths
        lengths = kv.load_lengths(tmp_path / "t")

    assert peak_of(load) < 64 << 20
    assert lengths.n_requests == lines


def test_one_endless_line_takes_little_memory(tmp_path: Path, small_pieces: None) -> None:
    (tmp_path / "t").write_bytes(gzip.compress(b"7" * 50_000_000))

    def load() -> None:
        refused("line 1: longer than", kv.load_lengths, tmp_path / "t")

    assert peak_of(load) < 4 << 20


# --------------------------------------------------------------------------- progress
class Bar:
    """Stands in for tqdm and remembers what it was told."""

    made: list[Bar]

    def __init__(self, *, total: int | None, **options: Any) -> None:
        self.total, self.options, self.n, self.closed = total, options, 0, False
        Bar.made.append(self)

    def update(self, n: int) -> None:
        assert not self.closed
        self.n += n

    def close(self) -> None:
        self.closed = True


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO | None = None) -> list[Bar]:
    """Let every progress bar be remembered; not a fixture, as pytest itself sets stderr anew."""
    Bar.made = []
    monkeypatch.setattr("tqdm.tqdm", Bar)
    monkeypatch.setattr(sys, "stderr", stderr or Terminal())
    monkeypatch.setattr(streams, "_SHOW_PROGRESS_FROM", 1)
    return Bar.made


@pytest.mark.parametrize("wrapping", [None, *WRAPPINGS])
def test_progress_reaches_the_end(
    write: Any, monkeypatch: pytest.MonkeyPatch, wrapping: str | None
) -> None:
    bars = at_a_terminal(monkeypatch)
    path = write(WRAPPINGS.get(wrapping or "", bytes)(TOKENS.encode() + b"5,1\n" * 1000))
    for load in (kv.load_trace, kv.load_lengths):
        load(path)
    assert len(bars) == 2
    for bar in bars:
        assert bar.n == bar.total == path.stat().st_size
        assert bar.closed
        assert bar.options["desc"] == "reading trace.csv"
        assert bar.options["leave"] is False


def test_progress_of_a_pipe_and_of_no_terminal(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    bars = at_a_terminal(monkeypatch, stderr)
    kv.load_trace(write(TOKENS))
    assert (bars, stderr.getvalue()) == ([], "")
    bars = at_a_terminal(monkeypatch)
    from_stdin(monkeypatch, b"5 9 17", pipe=True)
    kv.load_trace("-")
    assert (bars[0].total, bars[0].n, bars[0].closed) == (None, 6, True)
    bars = at_a_terminal(monkeypatch)
    with pytest.raises(LedgerError):
        kv.load_trace(write(TOKENS + "x", "a\x1b[31mb"))
    assert bars[0].closed
    assert bars[0].options["desc"].isprintable()


@pytest.mark.parametrize("content", [TOKENS, "[5, 9]", '{"usage": null}\n{"error": 1}', "5\n9\n"])
def test_a_small_trace_is_read_without_what_large_ones_need(write: Any, content: str) -> None:
    code = (
        "import sys\nfrom kvledger.traces import load_lengths\n"
        "try:\n    load_lengths(sys.argv[1])\nexcept ValueError:\n    pass\n"
        "print(*{'pandas', 'pyarrow', 'numba', 'tqdm'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, write(content)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_source_is_closed_after_an_error(write: Any) -> None:
    with pytest.raises(LedgerError), Source(write(TOKENS)) as source:
        raise LedgerError("stop")
    assert source._raw.closed


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    refused("no name of a file", kv.load_trace, "a\0b")
    refused(r"cannot be read \(File name too long\)", kv.load_trace, tmp_path / ("x" * 300))
