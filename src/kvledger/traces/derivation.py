"""The committed tables: how they follow from the raw traces.

A length table says how many requests have exactly each length. Slack, reservation, the optimum
and the envelope are sums over lengths, so the table gives each of them exactly as the raw trace
does, for every page size. A block table counts, for the traces that carry block ids, the blocks
that neighbours share. A request table keeps the order, times and shared beginnings that a replay
over time needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from kvledger.core.datafiles import data_folder
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import as_lengths
from kvledger.traces.neighbours import sharing_by_window
from kvledger.traces.trace import Trace, load_trace

__all__ = [
    "WINDOWS",
    "blocks_table",
    "common_preamble",
    "derive_tables",
    "lengths_table",
    "load_manifest",
    "requests_table",
]

#: Window sizes of the block tables, in requests; the whole trace comes after them.
WINDOWS: tuple[int, ...] = tuple(2**k for k in range(13))

_DERIVED = "derived"
_MANIFEST_HEAD = """\
# Where every file of this folder comes from. Paths are below this folder.
# kind "derived": made from a raw trace by the command named; `kvledger derive` checks raw_sha256
# before it reads and sha256 before it writes. kind "facts": figures compiled from the sources
# that each row names. kind "licence": notices that the traces' licences ask for.
# kind "release": what a released book shows, taken from the commit that the command names.
# kind "record": written by the measuring command named, and not checked by digest.
"""


# --------------------------------------------------------------------------- reading


def load_manifest(folder: Path | None = None) -> list[dict[str, str]]:
    """Read ``manifest.toml``: one entry for each file of ``data/``.

    Examples
    --------
    >>> entry = next(e for e in load_manifest() if e["path"] == "claims.csv")
    >>> entry["kind"]
    'facts'
    """
    path = (folder or data_folder()) / "manifest.toml"
    try:
        entries: list[dict[str, str]] = tomllib.loads(path.read_text("utf-8")).get("file", [])
    except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path}: {error}; accepted: TOML with one [[file]] a file") from None
    return entries


# --------------------------------------------------------------------------- deriving


def lengths_table(trace: Trace) -> pd.DataFrame:
    """Count the requests of a trace by exact length.

    Returns
    -------
    DataFrame
        ``tokens`` ascending, and the numbers of requests with a prompt (``prompts``) and with
        a final length (``totals``) of exactly that many tokens; rows where both are 0 are not
        there.

    Examples
    --------
    >>> lengths_table(Trace([5, 9, 5], [0, 1, 4])).to_numpy().tolist()
    [[5, 2, 1], [9, 1, 1], [10, 0, 1]]
    """
    sides = {
        "prompts": as_lengths(trace.prompt_tokens),
        "totals": as_lengths(trace.total_tokens),
    }
    counts = {side: pd.Series(table.requests, index=table.tokens) for side, table in sides.items()}
    frame = pd.DataFrame(counts).fillna(0).astype(np.int64).sort_index()
    return frame.rename_axis("tokens").reset_index()


def common_preamble(trace: Trace) -> frozenset[int]:
    """Return the first block if more than half of the requests start with it, else nothing.

    Examples
    --------
    >>> trace = Trace([20, 20, 20], [1, 1, 1], page_ids=[[7, 1], [7, 2], [8, 3]], page_ids_size=10)
    >>> common_preamble(trace)
    frozenset({7})
    """
    if trace.page_ids is None:
        raise LedgerError(f"{trace!r} has no page_ids; accepted: a trace with block ids")
    firsts = pd.Series([ids[0] for ids in trace.page_ids if ids])
    counts = firsts.value_counts()
    return frozenset(int(block) for block in counts[counts > trace.n_requests / 2].index)


def blocks_table(trace: Trace) -> pd.DataFrame:
    """Count the blocks that neighbours share, for all `WINDOWS` and both definitions.

    Returns
    -------
    DataFrame
        As :func:`load_blocks`.
    """
    preamble = common_preamble(trace)
    page_ids, size = trace.page_ids, trace.page_ids_size
    assert page_ids is not None  # common_preamble refused it otherwise
    assert size is not None
    kinds = {
        "all": page_ids,
        "complete": tuple(
            ids[: prompt // size]
            for ids, prompt in zip(page_ids, trace.prompt_tokens.tolist(), strict=True)
        ),
    }
    windows = [window for window in WINDOWS if window < trace.n_requests] + [trace.n_requests]
    definitions: tuple[Literal["groups", "sliding"], ...] = ("groups", "sliding")
    rows = [
        (s.window_requests, how, blocks, preamble_side, s.logical_blocks, s.shared_blocks)
        for how in definitions
        for blocks, ids in kinds.items()
        for preamble_side, skip in (("with", frozenset[int]()), ("without", preamble))
        for s in sharing_by_window(ids, windows, skip=skip, how=how)
    ]
    columns = ["window_requests", "how", "blocks", "preamble", "logical_blocks", "shared_blocks"]
    return pd.DataFrame(rows, columns=columns)


def requests_table(trace: Trace) -> pd.DataFrame:
    """Keep what a replay over time needs: arrivals, lengths, and who begins like whom.

    Returns
    -------
    DataFrame
        ``arrival_ms`` (whole milliseconds from the first arrival), ``prompt_tokens`` and
        ``output_tokens``; for a trace with block ids also ``like`` (the earlier request, counted
        from 0, that held the longest common beginning first; -1 if there is none) and ``blocks``
        (how many leading blocks are the same). All other blocks are seen for the first time.

    Raises
    ------
    LedgerError
        If the trace has no times, or its block ids are not chained: a block that was seen before
        follows one that was not.

    Examples
    --------
    >>> trace = Trace([20, 25], [1, 2], [0.0, 1.5], page_ids=[[7, 8], [7, 9, 4]], page_ids_size=10)
    >>> requests_table(trace).to_numpy().tolist()
    [[0, 20, 1, -1, 0], [1500, 25, 2, 0, 1]]
    """
    if trace.arrival_s is None:
        raise LedgerError(f"{trace!r} has no times; accepted: a trace with arrivals")
    frame = pd.DataFrame(
        {
            "arrival_ms": np.rint(trace.arrival_s * 1000).astype(np.int64),
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
        }
    )
    if trace.page_ids is None:
        return frame
    first_holder: dict[int, int] = {}
    like, blocks = [], []
    for i, ids in enumerate(trace.page_ids):
        seen = sum(block in first_holder for block in ids)
        if any(block not in first_holder for block in ids[:seen]):
            raise LedgerError(
                f"request {i} of {trace!r} has a known block after a new one; accepted: block ids "
                "that chain all blocks before them"
            )
        like.append(first_holder[ids[seen - 1]] if seen else -1)
        blocks.append(seen)
        first_holder.update((block, i) for block in ids[seen:])
    return frame.assign(like=like, blocks=blocks)


#: What makes a table, by the end of its name.
_TABLES: dict[str, Callable[[Trace], pd.DataFrame]] = {
    ".lengths.csv": lengths_table,
    ".blocks.csv": blocks_table,
    ".requests.csv": requests_table,
}


def derive_tables(
    raw: str | Path, out: str | Path | None = None, *, update_manifest: bool = False
) -> list[Path]:
    """Make the committed tables from the raw traces again.

    Every raw file is checked against the SHA-256 in ``data/manifest.toml`` before anything is
    read, and every table against its own before anything is written: either all files are
    written or none is.

    Parameters
    ----------
    raw : str or Path
        Folder with the raw traces, under the names of the manifest (``raw_file``) or their
        publishers' (the end of ``source_path``).
    out : str or Path, optional
        Folder to write to; the project's ``data/`` when not given.
    update_manifest : bool
        Accept tables that differ from the manifest, and write a manifest with their SHA-256.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    LedgerError
        If a raw file is missing or is not the published one, or a table differs from the
        manifest and `update_manifest` is not set.
    """
    raw, out = Path(raw), data_folder() if out is None else Path(out)
    entries = load_manifest()
    derived = [entry for entry in entries if entry["kind"] == _DERIVED]
    raw_paths = {entry["raw_file"]: _checked_raw(raw, entry) for entry in derived}
    traces = {name: load_trace(path) for name, path in raw_paths.items()}
    files: dict[str, bytes] = {}
    for entry in derived:
        make = next(make for end, make in _TABLES.items() if entry["path"].endswith(end))
        content = make(traces[entry["raw_file"]]).to_csv(index=False, lineterminator="\n").encode()
        digest = hashlib.sha256(content).hexdigest()
        if digest != entry["sha256"] and not update_manifest:
            raise LedgerError(
                f"{entry['path']}: the table derived now has SHA-256 {digest}; accepted: "
                f"{entry['sha256'] or 'one that the manifest names'}, as in manifest.toml "
                "(--update-manifest accepts the new one)"
            )
        entry["sha256"] = digest
        files[entry["path"]] = content
    if update_manifest:
        files["manifest.toml"] = _manifest_text(entries).encode()
    return _write_all(out, files)


def _checked_raw(folder: Path, entry: dict[str, str]) -> Path:
    names = (entry["raw_file"], entry["source_path"].rsplit("/", 1)[-1])
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise LedgerError(
            f"{folder}: no raw file {' or '.join(names)}; accepted: a folder with it, from "
            f"{entry['source']} at {entry['source_commit']}"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != entry["raw_sha256"]:
        raise LedgerError(
            f"{path}: SHA-256 {digest}; accepted: {entry['raw_sha256']}, the published file as in "
            "manifest.toml"
        )
    return path


def _manifest_text(entries: list[dict[str, str]]) -> str:
    # A JSON string is a TOML basic string, quotes and escapes included.
    tables = (
        "\n".join(
            ("[[file]]", *(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in entry.items()))
        )
        for entry in entries
    )
    return _MANIFEST_HEAD + "".join(f"\n{table}\n" for table in tables)


def _write_all(out: Path, files: dict[str, bytes]) -> list[Path]:
    """Write all files, or none: whatever can fail happens in a folder beside them."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".derive-", dir=out))
    except OSError as error:
        raise LedgerError(
            f"{out}: cannot be written ({error.strerror}); accepted: a writable folder"
        ) from None
    try:
        for name, content in files.items():
            staged = staging / name
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(content)
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        for name in files:
            os.replace(staging / name, out / name)
    except OSError as error:
        raise LedgerError(
            f"{out}: cannot be written ({error}); accepted: a writable folder"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [out / name for name in files]
