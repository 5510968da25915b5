"""A file or standard input as blocks of whole lines: decompressed, and checked to be UTF-8."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self, cast

import numpy as np

from kvledger.core.errors import LedgerError
from proofbook.plaintext import printable

STDIN = "standard input"
#: A line is held as a whole, and so is a JSON value of many lines; longer ones are refused.
LONGEST_LINE_BYTES = 512 << 20
_BLOCK_BYTES = 1 << 20
_SHOW_PROGRESS_FROM = 8 << 20
# An .xz file names the memory that its reader needs; xz -9 asks for 65 MiB.
_XZ_MEMORY_BYTES = 256 << 20
_ACCEPTED = "accepted: a trace file, plain or .gz"


class Block(NamedTuple):
    """Whole lines of a source, and the number of the first of them."""

    first_line: int
    data: bytes


class Source:
    """A file, or standard input (``"-"``), open for reading; a context manager.

    What cannot be read is a LedgerError.
    """

    def __init__(self, path: str | Path) -> None:
        self.is_stdin = str(path) == "-"
        self.label = STDIN if self.is_stdin else printable(str(path))
        self.name = "stdin" if self.is_stdin else Path(path).name
        self._raw = _opened(None if self.is_stdin else Path(path))
        self._bar: Any = None
        self._wrapping: _Wrapping | None = None
        try:
            self._size = _bytes_left(self._raw)
            head = self._raw.read(6)
            if self._size is None:
                self._raw = cast(BinaryIO, io.BufferedReader(_Prepended(head, self._raw)))
            else:
                self._raw.seek(-len(head), io.SEEK_CUR)
        except OSError as error:
            raise self._broken(error) from None
        self._wrapping = next((w for w in _WRAPPINGS if head.startswith(w.magic)), None)
        self.is_parquet = head.startswith(b"PAR1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if not self.is_stdin:
            self._raw.close()

    def progress(self, total: int | None, unit: str) -> Any:
        """Return a progress bar, at a terminal alone: notebooks must stay free of stderr."""
        if sys.stderr.isatty() and (self._size is None or self._size >= _SHOW_PROGRESS_FROM):
            from tqdm import tqdm  # here: it takes longer to import than a small trace to read

            what = f"reading {printable(self.name)}"
            self._bar = tqdm(
                total=total, unit=unit, unit_scale=True, desc=what, delay=1.0, leave=False
            )
        return self._bar

    def file(self) -> BinaryIO:
        """Return a file that can be read at any place, as Parquet must be."""
        return io.BytesIO(self._raw.read()) if self._size is None else self._raw

    def blocks(self) -> Iterator[Block]:
        """Yield blocks of whole lines, without a byte-order mark."""
        line, held = 1, 0
        rest: list[bytes] = []
        is_first = True
        for chunk in self._chunks():
            cut = chunk.rfind(b"\n") + 1
            if chunk and not cut:
                rest.append(chunk)
                held += len(chunk)
                if held > LONGEST_LINE_BYTES:
                    raise too_long(self.label, line)
                continue
            data = b"".join((*rest, memoryview(chunk)[:cut]))
            rest, held = [chunk[cut:]], len(chunk) - cut
            if is_first:
                data = self._without_byte_order_mark(data)
                is_first = False
            self._check_utf8(data, line)
            if data:
                yield Block(line, data)
                line += int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))

    def _chunks(self) -> Iterator[bytes]:
        """Yield the data as it comes, decompressed; the last chunk is empty."""
        stream = self._raw if self._wrapping is None else self._wrapping.open(self._raw)
        bar = self.progress(self._size, "B")
        start = 0 if self._size is None else self._raw.tell()
        while True:
            try:
                chunk = stream.read(_BLOCK_BYTES)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise self._broken(error) from None
            if bar is not None:
                done = bar.n + len(chunk) if self._size is None else self._raw.tell() - start
                bar.update(done - bar.n)
            yield chunk
            if not chunk:
                return

    def _without_byte_order_mark(self, data: bytes) -> bytes:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise LedgerError(f"{self.label}, line 1: the encoding is UTF-16; accepted: UTF-8")
        if data.startswith(b"PAR1"):
            raise LedgerError(
                f"{self.label}: compressed Parquet; accepted: the Parquet file itself"
            )
        return data.removeprefix(b"\xef\xbb\xbf")

    def _check_utf8(self, data: bytes, first_line: int) -> None:
        at = data.find(b"\0")
        if at < 0:
            if data.isascii():
                return
            try:
                data.decode("utf-8")
                return
            except UnicodeDecodeError as error:
                at = error.start
        line = first_line + data.count(b"\n", 0, at)
        raise LedgerError(
            f"{self.label}, line {line}: byte 0x{data[at]:02X} is not text in UTF-8; "
            "accepted: UTF-8"
        )

    def _broken(self, error: Exception) -> LedgerError:
        if self._wrapping is None:
            reason = error.strerror if isinstance(error, OSError) else None
            return LedgerError(f"{self.label}: cannot be read ({reason or error})")
        return LedgerError(
            f"{self.label}: the {self._wrapping.name} data is cut short or damaged ({error}); "
            f"accepted: a complete {self._wrapping.suffix} file"
        )


def _opened(path: Path | None) -> BinaryIO:
    """Open a file, or standard input where there is no path."""
    if path is None:
        stream: BinaryIO | None = getattr(sys.stdin, "buffer", None)
        if stream is None:
            raise LedgerError(f"{STDIN}: there is none here; {_ACCEPTED}")
        return stream
    label = printable(str(path))
    try:
        return path.open("rb")
    except FileNotFoundError:
        problem = f"no such file; {_ACCEPTED}"
    except IsADirectoryError:
        problem = f"is a folder; {_ACCEPTED}"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except ValueError:  # a NUL in the name
        problem = f"no name of a file; {_ACCEPTED}"
    raise LedgerError(f"{label}: {problem}")


def _bytes_left(raw: BinaryIO) -> int | None:
    """Return the bytes from here to the end; None for a pipe, which has no end yet."""
    try:
        start = raw.tell()
        size = raw.seek(0, io.SEEK_END) - start
        raw.seek(start)
    except (OSError, ValueError):
        return None
    return size


def too_long(label: str, line: int) -> LedgerError:
    """Return the error of a line, or of a JSON value, that is not read into memory."""
    return LedgerError(
        f"{label}, line {line}: longer than {LONGEST_LINE_BYTES >> 20} MiB; accepted: shorter lines"
    )


class _Prepended(io.RawIOBase):
    """What was read of a pipe already, and then the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


class _Decompressed(io.RawIOBase):
    """Bzip2 or xz streams in a row; unlike the library's, refuses a rest, and too much memory."""

    def __init__(self, raw: BinaryIO, new: Callable[[], Any]) -> None:
        self._raw = raw
        self._new = new
        self._now = new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while True:
            if self._now.eof:
                data = self._now.unused_data
                while not (data := data.lstrip(b"\0")):  # padding
                    data = self._raw.read(_BLOCK_BYTES)
                    if not data:
                        return 0
                self._now = self._new()
            elif self._now.needs_input:
                data = self._raw.read(_BLOCK_BYTES)
                if not data:
                    raise EOFError("it ends before its end marker")
            out = self._now.decompress(data, len(buffer))
            data = b""
            if out:
                buffer[: len(out)] = out
                return len(out)


class _Wrapping(NamedTuple):
    name: str
    suffix: str
    magic: bytes
    open: Callable[[BinaryIO], Any]


def _zstd(raw: BinaryIO) -> Any:
    import pyarrow as pa  # here: Python's own zstd comes with 3.14

    # Arrow closes what it reads from, and standard input is not to be closed.
    unowned = io.BufferedReader(_Prepended(b"", raw))
    return pa.CompressedInputStream(pa.PythonFile(unowned, mode="r"), "zstd")


_WRAPPINGS = (
    _Wrapping("gzip", ".gz", b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    _Wrapping("bzip2", ".bz2", b"BZh", lambda raw: _Decompressed(raw, bz2.BZ2Decompressor)),
    _Wrapping(
        "xz",
        ".xz",
        b"\xfd7zXZ\0",
        lambda raw: _Decompressed(raw, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)),
    ),
    _Wrapping("zstd", ".zst", b"\x28\xb5\x2f\xfd", _zstd),
)

#: Endings that a trace's name does without.
SUFFIXES = (*(w.suffix for w in _WRAPPINGS), ".csv", ".jsonl", ".json", ".txt", ".parquet")
