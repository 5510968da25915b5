"""How many blocks are shared among requests that are neighbours in a trace.

A block that comes back hours later is reuse of a retained cache. A block that a neighbour holds
is sharing among requests that may be alive together. The window says which is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole

__all__ = ["NeighbourSharing", "neighbour_sharing", "sharing_by_window"]


class NeighbourSharing(NamedTuple):
    """Blocks of a trace, and those of them that a neighbour holds too.

    Attributes
    ----------
    window_requests : int
        Requests that count as neighbours.
    logical_blocks : int
        Blocks that the requests refer to, each request counted alone.
    shared_blocks : int
        Those that refer to a block which a neighbour ahead already holds.
    """

    window_requests: int
    logical_blocks: int
    shared_blocks: int


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
        The block ids of each request, in the order of arrival. An id stands for a block and
        all that comes before it, so no request holds one twice.
    window : int
        How many requests in a row are neighbours; n or more is the whole trace.
    skip : collection of int
        Ids that are left out of both counts, such as a preamble that every request has.
    how : {"groups", "sliding"}
        ``"groups"`` cuts the trace into groups of `window` requests in a row: shared is logical
        less distinct, summed over the groups. ``"sliding"`` looks back from every request: a
        block is shared if one of the ``window - 1`` requests ahead of it holds it.

    Returns
    -------
    NeighbourSharing
        Numbers of blocks.

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
    >>> neighbour_sharing(requests, window=2, how="sliding")
    NeighbourSharing(window_requests=2, logical_blocks=10, shared_blocks=3)
    >>> neighbour_sharing(requests, window=4)
    NeighbourSharing(window_requests=4, logical_blocks=10, shared_blocks=5)
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
    codes: dict[int, int] = {}
    code: list[int] = []
    holder: list[int] = []
    left_out = frozenset(skip)
    for request, ids in enumerate(page_ids):
        if len(set(ids)) != len(ids):
            raise LedgerError(
                f"page_ids[{request}] holds an id twice; accepted: ids chained to what comes "
                "before them, so that none comes back within a request"
            )
        for page_id in ids:
            if page_id not in left_out:
                code.append(codes.setdefault(page_id, len(codes)))
                holder.append(request)
    # Blocks in a row by id, and for each id by request: whoever held it last is one place ahead.
    blocks, holders = np.array(code, np.int64), np.array(holder, np.int64)
    order = np.argsort(blocks, kind="stable")
    blocks, holders = blocks[order], holders[order]
    again = np.flatnonzero(blocks[1:] == blocks[:-1])
    ahead, behind = holders[:-1][again], holders[1:][again]
    result = []
    for window in windows:
        near = ahead // window == behind // window if how == "groups" else behind - ahead < window
        result.append(NeighbourSharing(window, len(blocks), int(np.count_nonzero(near))))
    return result
