"""The committed tables: how they follow from the raw traces, and how they are read.

A length table says how many requests have exactly each length. Slack, reservation, the optimum
and the envelope are sums over lengths, so the table gives each of them exactly as the raw trace
does, for every page size. A block table counts, for the traces that carry block ids, the blocks
that neighbours share: a block that comes back hours later is reuse of a retained cache, one that
a neighbour holds is sharing among requests that may be alive together. A request table keeps the
order, times and shared beginnings that a replay over time needs.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from kvledger.core import data_file, data_folder
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import as_lengths, whole
from kvledger.traces import Trace, load_trace
from kvledger.traces.json_lines import BLOCK_TOKENS

#: Window sizes of the block tables, in requests; the whole trace comes after them.
WINDOWS: tuple[int, ...] = tuple(2**k for k in range(13))

_MOONCAKE_BLOCK = BLOCK_TOKENS["mooncake"]
_MANIFEST_HEAD = """\
# Where every file of this folder comes from. Paths are below this folder.
# kind "derived": made from a raw trace by the command named; `kvledger derive` checks raw_sha256
# before it reads and sha256 before it writes. kind "facts": figures compiled from the sources
# that each row names. kind "licence": notices that the traces' licences ask for.
# kind "release": what a released book shows, taken from the commit that the command names.
# kind "record": written by the measuring command named, and not checked by digest.
"""


def load_manifest(folder: Path | None = None) -> list[dict[str, str]]:
    """Read ``manifest.toml``: one entry for each file of ``data/``.

    Examples
    --------
    >>> {entry["path"]: entry for entry in load_manifest()}["claims.csv"]["kind"]
    'facts'
    """
    path = (folder or data_folder()) / "manifest.toml"
    try:
        entries: list[dict[str, str]] = tomllib.loads(path.read_text("utf-8")).get("file", [])
    except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path}: {error}; accepted: TOML with one [[file]] a file") from None
    return entries


def load_requests(name: str) -> Trace:
    """Read a trace's requests in order, from the table derived from it.

    Arrivals are in whole milliseconds. Block ids are numbered anew; which are equal is as in the
    raw trace, and so is the number of tokens they stand for.

    Parameters
    ----------
    name : str
        ``"azure_conv_2023"`` or ``"mooncake_conversation"``.

    Raises
    ------
    LedgerError
        If there is no such table.

    Examples
    --------
    >>> load_requests("mooncake_conversation").n_requests
    12031
    """
    frame = pd.read_csv(data_file(f"traces/{name}.requests.csv"), dtype=np.int64)
    page_ids: list[tuple[int, ...]] | None = None
    if "like" in frame:
        page_ids, known = [], 0
        for prompt, like, blocks in frame[["prompt_tokens", "like", "blocks"]].to_numpy().tolist():
            new = -(-prompt // _MOONCAKE_BLOCK) - blocks
            start = page_ids[like][:blocks] if blocks else ()
            page_ids.append((*start, *range(known, known + new)))
            known += new
    return Trace(
        frame["prompt_tokens"].to_numpy(),
        frame["output_tokens"].to_numpy(),
        frame["arrival_ms"].to_numpy() / 1000,
        page_ids,
        None if page_ids is None else _MOONCAKE_BLOCK,
        name=name,
    )


def load_blocks(name: str) -> pd.DataFrame:
    """Read how many blocks of a trace neighbours share.

    Parameters
    ----------
    name : str
        ``"mooncake_conversation"`` or ``"mooncake_synthetic"``.

    Notes
    -----
    Columns: ``window_requests`` (the last is the whole trace), ``how`` (``"groups"`` or
    ``"sliding"``, as in :func:`kvledger.neighbour_sharing`), ``blocks`` (``"all"`` hashed blocks,
    the last of a prompt usually partial, or ``"complete"`` blocks only), ``preamble`` (``"with"``
    or ``"without"`` the blocks that most requests start with, in both counts),
    ``logical_blocks``, ``shared_blocks``.

    Examples
    --------
    >>> int(load_blocks("mooncake_conversation")["window_requests"].max())
    12031
    """
    return pd.read_csv(data_file(f"traces/{name}.blocks.csv"))


# --------------------------------------------------------------------------- neighbours


class NeighbourSharing(NamedTuple):
    """Blocks of a trace, and those of them that a neighbour holds too."""

    window_requests: int  # requests that count as neighbours
    logical_blocks: int  # that the requests refer to, each counted alone
    shared_blocks: int  # those that a neighbour ahead already holds


def neighbour_sharing(
    page_ids: Sequence[Sequence[int]],
    window: int,
    *,
    skip: Collection[int] = frozenset(),
    how: Literal["groups", "sliding"] = "groups",
) -> NeighbourSharing:
    """Count the blocks that requests share with their neighbours.

    Parameters
    ----------
    page_ids : sequence of sequences of int, length n
        Each request's block ids, in the order of arrival. An id stands for a block and all before
        it, so no request holds one twice.
    window : int
        How many requests in a row are neighbours; n or more is the whole trace.
    skip : collection of int
        Ids that are left out of both counts, such as a preamble that every request has.
    how : {"groups", "sliding"}
        ``"groups"`` cuts the trace into groups of `window` requests in a row: shared is logical
        less distinct, summed over the groups. ``"sliding"`` looks back from every request: a
        block is shared if one of the ``window - 1`` requests ahead of it holds it.

    Raises
    ------
    LedgerError
        For a window below 1, an unknown `how`, or an id that a request holds twice.

    Examples
    --------
    Block 0 is everywhere; blocks 1 and 2 come back after three requests.

    >>> requests = [[0, 1, 2], [0, 3], [0, 4], [0, 1, 2]]
    >>> neighbour_sharing(requests, window=2)
    NeighbourSharing(window_requests=2, logical_blocks=10, shared_blocks=2)
    >>> neighbour_sharing(requests, window=4, skip={0})
    NeighbourSharing(window_requests=4, logical_blocks=6, shared_blocks=2)
    """
    return sharing_by_window(page_ids, [window], skip=skip, how=how)[0]


def sharing_by_window(
    page_ids: Sequence[Sequence[int]],
    windows: Iterable[int],
    *,
    skip: Collection[int] = frozenset(),
    how: Literal["groups", "sliding"] = "groups",
) -> list[NeighbourSharing]:
    """Count as :func:`neighbour_sharing` does, for many windows in one pass over the blocks.

    Examples
    --------
    >>> [s.shared_blocks for s in sharing_by_window([[0, 1], [0], [0, 1]], [1, 2, 3])]
    [0, 1, 3]
    """
    windows = [
        whole(w, "window", minimum=1, accepted="accepted: a whole number of requests, at least 1")
        for w in windows
    ]
    if how not in ("groups", "sliding"):
        raise LedgerError(f"how is {how!r}; accepted: 'groups', 'sliding'")
    last_holder: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []  # who held a block last, and who holds it again
    logical = 0
    for request, ids in enumerate(page_ids):
        if len(set(ids)) != len(ids):
            raise LedgerError(
                f"page_ids[{request}] holds an id twice; accepted: ids chained to what comes "
                "before them, so that none comes back within a request"
            )
        kept = [page_id for page_id in ids if page_id not in skip]
        logical += len(kept)
        pairs += [(last_holder[page_id], request) for page_id in kept if page_id in last_holder]
        last_holder.update(dict.fromkeys(kept, request))
    ahead, behind = np.array(pairs, np.int64).reshape(-1, 2).T
    result = []
    for window in windows:
        near = ahead // window == behind // window if how == "groups" else behind - ahead < window
        result.append(NeighbourSharing(window, logical, int(np.count_nonzero(near))))
    return result


# --------------------------------------------------------------------------- deriving


def lengths_table(trace: Trace) -> pd.DataFrame:
    """Count the requests of a trace by exact length.

    Of each number of ``tokens``, ascending, it says how many requests have such a prompt
    (``prompts``) and such a final length (``totals``), where not both are 0.

    Examples
    --------
    >>> lengths_table(Trace([5, 9, 5], [0, 1, 4])).to_numpy().tolist()
    [[5, 2, 1], [9, 1, 1], [10, 0, 1]]
    """
    tables = {"prompts": as_lengths(trace.prompt_tokens), "totals": as_lengths(trace.total_tokens)}
    counts = {side: pd.Series(table.requests, index=table.tokens) for side, table in tables.items()}
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
    firsts = Counter(ids[0] for ids in trace.page_ids if ids)
    return frozenset(block for block, n in firsts.items() if n > trace.n_requests / 2)


def blocks_table(trace: Trace) -> pd.DataFrame:
    """Count the blocks that neighbours share, in the columns of :func:`load_blocks`."""
    preamble = common_preamble(trace)
    page_ids, size = trace.page_ids or (), trace.page_ids_size or 1
    complete = (trace.prompt_tokens // size).tolist()
    kinds = {
        "all": page_ids,
        "complete": [ids[:n] for ids, n in zip(page_ids, complete, strict=True)],
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

    Columns: ``arrival_ms`` (whole milliseconds from the first arrival), ``prompt_tokens`` and
    ``output_tokens``; for a trace with block ids also ``like`` (the earlier request, counted from
    0, that held the longest common beginning first; -1 if there is none) and ``blocks`` (how many
    leading blocks are the same). All other blocks are seen for the first time. A trace without
    times, or with a known block after a new one, is a LedgerError.

    Examples
    --------
    >>> trace = Trace([20, 25], [1, 2], [0.0, 1.5], page_ids=[[7, 8], [7, 9, 4]], page_ids_size=10)
    >>> requests_table(trace).to_numpy().tolist()
    [[0, 20, 1, -1, 0], [1500, 25, 2, 0, 1]]
    """
    if trace.arrival_s is None:
        raise LedgerError(f"{trace!r} has no times; accepted: a trace with arrivals")
    arrival_ms = np.rint(trace.arrival_s * 1000).astype(np.int64)
    tokens = {"prompt_tokens": trace.prompt_tokens, "output_tokens": trace.output_tokens}
    frame = pd.DataFrame({"arrival_ms": arrival_ms, **tokens})
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
    """Make the committed tables from the raw traces again; return the files written.

    Every raw file is checked against the SHA-256 in ``data/manifest.toml`` before anything is
    read, and every table against its own before anything is written: all files or none.

    Parameters
    ----------
    raw : str or Path
        Folder with the raw traces, under the manifest's names for them or their publishers'.
    out : str or Path, optional
        Folder to write to; the project's ``data/`` when not given.
    update_manifest : bool
        Accept tables that differ from the manifest, and write a manifest with their SHA-256.

    Raises
    ------
    LedgerError
        If a raw file is missing or not the published one, or a table is not the manifest's.
    """
    raw, out = Path(raw), data_folder() if out is None else Path(out)
    entries = load_manifest()
    derived = [entry for entry in entries if entry["kind"] == "derived"]
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
    for path in (folder / name for name in names):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest != entry["raw_sha256"]:
                raise LedgerError(
                    f"{path}: SHA-256 {digest}; accepted: {entry['raw_sha256']}, the published "
                    "file as in manifest.toml"
                )
            return path
    raise LedgerError(
        f"{folder}: no raw file {' or '.join(names)}; accepted: a folder with it, from "
        f"{entry['source']} at {entry['source_commit']}"
    )


def _manifest_text(entries: list[dict[str, str]]) -> str:
    text = _MANIFEST_HEAD
    for entry in entries:
        # A JSON string is a TOML basic string, quotes and escapes included.
        lines = (f"{key} = {json.dumps(v, ensure_ascii=False)}\n" for key, v in entry.items())
        text += "\n[[file]]\n" + "".join(lines)
    return text


def _write_all(out: Path, files: dict[str, bytes]) -> list[Path]:
    """Write all files, or none: whatever can fail happens in a folder beside them."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".derive-", dir=out) as staging:
            for name, content in files.items():
                for folder in (Path(staging), out):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(staging) / name).write_bytes(content)
            for name in files:
                (Path(staging) / name).replace(out / name)
    except OSError as error:
        raise LedgerError(
            f"{out}: cannot be written ({error.strerror}); accepted: a writable folder"
        ) from None
    return [out / name for name in files]
