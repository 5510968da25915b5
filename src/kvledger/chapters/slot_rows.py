"""The slots themselves, one row a slot: what the pictures of the small examples draw.

Each function lays out one policy, slot by slot, without asking the accounting; a test holds the
two against each other. Columns: panel, request, slot (position in the request), page (missing
where memory is not paged) and part. The part ``points at`` is a position whose page another
request holds: it takes no slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

HELD = ("used", "tail slack", "reserved")
"""The parts that take a slot."""


def contiguous_slots(panel: str, lengths: Sequence[int], held: Sequence[int]) -> pd.DataFrame:
    """Lay out requests that each reserve a run of slots.

    Examples
    --------
    >>> contiguous_slots("reserve 4", [3], held=[4])["part"].tolist()
    ['used', 'used', 'used', 'reserved']
    """
    return pd.DataFrame(
        {
            "panel": panel,
            "request": request,
            "slot": slot,
            "page": None,
            "part": "used" if slot < tokens else "reserved",
        }
        for request, (tokens, slots) in enumerate(zip(lengths, held, strict=True))
        for slot in range(slots)
    )


def paged_slots(
    panel: str, lengths: Sequence[int], page_size: int, *, prefix: int = 0
) -> pd.DataFrame:
    """Lay out requests that hold whole pages; all but the first point at its prefix pages.

    Examples
    --------
    >>> paged_slots("pages of 2", [3, 3], 2, prefix=2)["part"].tolist()
    ['used', 'used', 'used', 'tail slack', 'points at', 'points at', 'used', 'tail slack']
    """
    shared = prefix // page_size * page_size
    rows = []
    for request, tokens in enumerate(lengths):
        for slot in range(-(-tokens // page_size) * page_size):
            part = "used" if slot < tokens else "tail slack"
            if request and slot < shared:
                part = "points at"
            rows.append(
                {
                    "panel": panel,
                    "request": request,
                    "slot": slot,
                    "page": slot // page_size,
                    "part": part,
                }
            )
    return pd.DataFrame(rows)
