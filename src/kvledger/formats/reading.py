"""Files as blocks of whole lines: plain or gzipped, checked to be text in UTF-8."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from kvledger.errors import LedgerError


class Block(NamedTuple):
    """Whole lines of a file, and the number of the first of them."""

    first_line: int
    data: bytes


_BLOCK_BYTES = 8 << 20
_SHOW_PROGRESS_FROM = 64 << 20


def _open_plain_or_gzip(path: Path) -> tuple[BinaryIO, BinaryIO]:
    raw = path.open("rb")
    is_gzip = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return raw, cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if is_gzip else raw


def read_blocks(path: Path) -> Iterator[Block]:
    """Blocks of whole lines, decompressed, checked to be UTF-8, without a byte-order mark."""
    try:
        raw, stream = _open_plain_or_gzip(path)
    except FileNotFoundError:
        raise LedgerError(f"{path}: no such file; accepted: a trace file, plain or .gz") from None
    except IsADirectoryError:
        raise LedgerError(f"{path}: is a folder; accepted: a trace file, plain or .gz") from None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from None
    size = path.stat().st_size
    # Only for a person at a terminal: notebooks must stay free of stderr.
    progress = size >= _SHOW_PROGRESS_FROM and sys.stderr.isatty()
    line = 1
    with raw, stream:
        rest: list[bytes] = []
        while True:
            try:
                chunk = stream.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise LedgerError(
                    f"{path}: the gzip data is cut short or damaged ({error}); "
                    "accepted: a complete .gz file"
                ) from None
            if progress:
                share = 100 * raw.tell() // size
                sys.stderr.write(f"\rreading {path.name}: {share}%" if chunk else "\r\x1b[K")
                sys.stderr.flush()
            cut = chunk.rfind(b"\n") + 1
            if chunk and not cut:
                rest.append(chunk)
                continue
            data = b"".join((*rest, chunk[:cut]))
            rest = [chunk[cut:]]
            if line == 1:
                data = _without_byte_order_mark(data, path)
            _check_utf8(data, path, line)
            if data:
                yield Block(line, data)
                line += data.count(b"\n")
            if not chunk:
                return


def _without_byte_order_mark(data: bytes, path: Path) -> bytes:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LedgerError(f"{path}, line 1: the encoding is UTF-16; accepted: UTF-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def _check_utf8(data: bytes, path: Path, first_line: int) -> None:
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
        f"{path}, line {line}: byte 0x{data[at]:02X} is not text in UTF-8; accepted: UTF-8"
    )


def chain_blocks(first: Block, blocks: Iterator[Block]) -> Iterator[Block]:
    """Put back the block that was looked at, if anything is left of it."""
    if first.data:
        yield first
    yield from blocks
