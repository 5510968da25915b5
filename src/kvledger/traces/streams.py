"""A file or standard input as blocks of whole lines: decompressed, and checked to be UTF-8."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfileobj
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol, Self, cast

import numpy as np

from kvledger.core.errors import LedgerError

STDIN = "standard input"
#: A longer line is only read where it is one JSON value, which is then read in pieces.
LONGEST_LINE_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_SHOW_PROGRESS_FROM = 8 << 20
# An .xz file names the memory that its reader needs; xz -9 asks for 65 MiB.
_XZ_MEMORY_BYTES = 256 << 20
_ACCEPTED = "accepted: a trace file, plain or .gz"


class Block(NamedTuple):
    """Whole lines of a source, and the number of the first of them.

    Where `is_whole` is False the data is a piece of one line that is too long for a block.
    """

    first_line: int
    data: bytes
    is_whole: bool = True


class Source:
    """A file, or standard input (``"-"``), open for reading; a context manager.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    LedgerError
        If it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.is_stdin = str(path) == "-"
        self.label = STDIN if self.is_stdin else printable(str(path))
        self.name = "stdin" if self.is_stdin else Path(path).name
        self._raw = _standard_input() if self.is_stdin else _opened(Path(path))
        self._bar: Any = None
        self._copy: BinaryIO | None = None
        try:
            self._size = _bytes_left(self._raw)
            head = self._raw.read(6)
            if self._size is None:
                self._raw = cast(BinaryIO, io.BufferedReader(_Prepended(head, self._raw)))
            else:
                self._raw.seek(-len(head), io.SEEK_CUR)
        except OSError as error:
            raise self._unreadable(error) from None
        self._wrapping = next((w for w in _WRAPPINGS if head.startswith(w.magic)), None)
        self.is_parquet = head.startswith(b"PAR1")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._copy is not None:
            self._copy.close()
        if not self.is_stdin:
            self._raw.close()

    def progress(self, total: int | None, unit: str) -> Any:
        """Return a progress bar, at a terminal alone: notebooks must stay free of stderr."""
        if sys.stderr.isatty() and (self._size is None or self._size >= _SHOW_PROGRESS_FROM):
            from tqdm import tqdm  # here: it takes longer to import than a small trace to read

            self._bar = tqdm(
                total=total,
                unit=unit,
                unit_scale=True,
                desc=f"reading {printable(self.name)}",
                delay=1.0,
                leave=False,
            )
        return self._bar

    def file(self) -> BinaryIO:
        """Return a file that can be read at any place, as Parquet must be."""
        if self._size is not None:
            return self._raw
        try:
            self._copy = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115
            copyfileobj(self._raw, self._copy, _BLOCK_BYTES)
            self._copy.seek(0)
        except OSError as error:
            raise self._unreadable(error) from None
        return self._copy

    def blocks(self) -> Iterator[Block]:
        """Yield blocks of whole lines, without a byte-order mark."""
        line = 1
        rest: list[bytes] = []
        held = 0
        is_first, in_a_long_line = True, False
        for chunk in self._chunks():
            cut = chunk.rfind(b"\n") + 1
            if chunk and not cut:
                rest.append(chunk)
                held += len(chunk)
                if held <= LONGEST_LINE_BYTES and not in_a_long_line:
                    continue
                data, left = _whole_characters(b"".join(rest))
                in_a_long_line = True
            else:
                data, left = b"".join((*rest, memoryview(chunk)[:cut])), chunk[cut:]
            rest, held = [left], len(left)
            if is_first:
                data = self._without_byte_order_mark(data)
                is_first = False
            self._check_utf8(data, line)
            if in_a_long_line and data:
                end = data.find(b"\n") + 1
                yield Block(line, data[:end] or data, is_whole=False)
                if not end:
                    continue
                in_a_long_line = False
                line += 1
                data = data[end:]
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
            except OSError as error:
                if self._wrapping is None:
                    raise self._unreadable(error) from None
                raise self._damaged(error) from None
            except (EOFError, zlib.error, lzma.LZMAError) as error:
                raise self._damaged(error) from None
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

    def _damaged(self, error: Exception) -> LedgerError:
        assert self._wrapping is not None
        return LedgerError(
            f"{self.label}: the {self._wrapping.name} data is cut short or damaged ({error}); "
            f"accepted: a complete {self._wrapping.suffix} file"
        )

    def _unreadable(self, error: OSError) -> LedgerError:
        return LedgerError(f"{self.label}: cannot be read ({error.strerror or error})")


def printable(text: str) -> str:
    r"""Return a name as it is, or escaped where a terminal would take it for a command.

    Examples
    --------
    >>> print(printable('a "name"'), printable("red: \x1b[31m"))
    a "name" 'red: \x1b[31m'
    """
    return text if text.isprintable() else repr(text)


def _opened(path: Path) -> BinaryIO:
    label = printable(str(path))
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise LedgerError(f"{label}: no such file; {_ACCEPTED}") from None
    except IsADirectoryError:
        raise LedgerError(f"{label}: is a folder; {_ACCEPTED}") from None
    except OSError as error:
        raise LedgerError(f"{label}: cannot be read ({error.strerror})") from None
    except ValueError:  # a NUL in the name
        raise LedgerError(f"{label}: no name of a file; {_ACCEPTED}") from None


def _standard_input() -> BinaryIO:
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise LedgerError(f"{STDIN}: there is none here; {_ACCEPTED}")
    return cast(BinaryIO, stream)


def _bytes_left(raw: BinaryIO) -> int | None:
    """Return the bytes from here to the end; None for a pipe, which has no end yet."""
    try:
        start = raw.tell()
        size = raw.seek(0, io.SEEK_END) - start
        raw.seek(start)
    except (OSError, ValueError):
        return None
    return size


def _whole_characters(data: bytes) -> tuple[bytes, bytes]:
    """Cut ahead of a last character that may have more bytes to come."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] < 0x80:
            break
        if data[-back] >= 0xC0:
            return data[:-back], data[-back:]
    return data, b""


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


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Decompressed(io.RawIOBase):
    """One compressed stream after another, never more of them in memory than was asked for."""

    def __init__(self, raw: BinaryIO, new: Callable[[], _Decompressor]) -> None:
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


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)


_WRAPPINGS = (
    _Wrapping("gzip", ".gz", b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    _Wrapping("bzip2", ".bz2", b"BZh", lambda raw: _Decompressed(raw, bz2.BZ2Decompressor)),
    _Wrapping("xz", ".xz", b"\xfd7zXZ\0", lambda raw: _Decompressed(raw, _xz)),
    _Wrapping("zstd", ".zst", b"\x28\xb5\x2f\xfd", _zstd),
)

#: Endings that a trace's name does without.
SUFFIXES = (*(w.suffix for w in _WRAPPINGS), ".csv", ".jsonl", ".json", ".txt", ".parquet")


def chain_blocks(first: Block, blocks: Iterator[Block]) -> Iterator[Block]:
    """Put back the block that was looked at, if anything is left of it."""
    if first.data:
        yield first
    yield from blocks
