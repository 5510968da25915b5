"""A few requests in pages by hand: what a decode step reads, and through which entries."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pandas as pd


def small_table(lengths: Sequence[int], page_size: int, seed: int = 0) -> pd.DataFrame:
    """Put a few requests into pages of a pool that were handed out in no order.

    Columns: request, page (of the request), entry (the physical page, as the table has it), tokens
    (of the request in it) and page_size.

    Examples
    --------
    >>> frame = small_table([5, 9], page_size=4)
    >>> frame["tokens"].tolist(), sorted(frame["entry"])
    ([4, 1, 4, 4, 1], [0, 1, 2, 3, 4])
    """
    pages = [
        (request, page, min(page_size, length - page * page_size))
        for request, length in enumerate(lengths)
        for page in range(-(-length // page_size))
    ]
    entries = np.random.default_rng(seed).permutation(len(pages)).tolist()
    return pd.DataFrame(
        {
            "request": request,
            "page": page,
            "entry": entry,
            "tokens": tokens,
            "page_size": page_size,
        }
        for (request, page, tokens), entry in zip(pages, entries, strict=True)
    )


def table_reads(lengths: Sequence[int], page_sizes: Sequence[int]) -> pd.DataFrame:
    """Count what one decode step reads: tokens, and entries of the page table, by page size.

    Columns: page size, tokens read, entries read, tokens an entry.

    Examples
    --------
    >>> table_reads([5, 9, 17], [1, 4])["entries read"].tolist()
    [31, 10]
    """
    tokens = sum(lengths)
    rows = []
    for size in page_sizes:
        entries = len(small_table(lengths, size))
        rows.append(
            {
                "page size": size,
                "tokens read": tokens,
                "entries read": entries,
                "tokens an entry": Fraction(tokens, entries),
            }
        )
    return pd.DataFrame(rows, dtype=object)
