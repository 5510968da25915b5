"""A page table in the forms that libraries read: dense without holes, in rows of CSR, inverted."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Csr(NamedTuple):
    """The pages of all requests in one row, as FlashInfer reads them; all int32.

    Request r holds the pages ``indices[indptr[r]:indptr[r + 1]]``, and ``last_page_len[r]`` tokens
    in the last of them, 1 to page_size.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor


def used_entries(page_table: torch.Tensor, lengths: torch.Tensor, page_size: int) -> torch.Tensor:
    """Return which entries of a page table hold a token's page.

    Returns
    -------
    Tensor, shape (batch, max_pages), bool

    Examples
    --------
    >>> table = torch.tensor([[2, 0], [1, -1]], dtype=torch.int32)
    >>> used_entries(table, torch.tensor([20, 16], dtype=torch.int32), 16).tolist()
    [[True, True], [True, False]]
    """
    entries = torch.arange(page_table.shape[1], device=page_table.device)
    needed = (lengths.long() + page_size - 1) // page_size
    return entries < needed[:, None]


def filled_table(page_table: torch.Tensor, lengths: torch.Tensor, page_size: int) -> torch.Tensor:
    """Return the table with the request's own first page wherever no token's page stands.

    Some kernels read those entries and discard what they find there.

    Returns
    -------
    Tensor, shape (batch, max_pages), int32

    Examples
    --------
    >>> table = torch.tensor([[2, 0], [1, -1]], dtype=torch.int32)
    >>> filled_table(table, torch.tensor([20, 16], dtype=torch.int32), 16).tolist()
    [[2, 0], [1, 1]]
    """
    return torch.where(used_entries(page_table, lengths, page_size), page_table, page_table[:, :1])


def csr(page_table: torch.Tensor, lengths: torch.Tensor, page_size: int) -> Csr:
    """Return the table as rows of CSR.

    Examples
    --------
    >>> table = torch.tensor([[2, 0], [1, -1]], dtype=torch.int32)
    >>> rows = csr(table, torch.tensor([20, 16], dtype=torch.int32), 16)
    >>> rows.indptr.tolist(), rows.indices.tolist(), rows.last_page_len.tolist()
    ([0, 2, 3], [2, 0, 1], [4, 16])
    """
    used = used_entries(page_table, lengths, page_size)
    indptr = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
    indptr[1:] = used.sum(1).cumsum(0)
    return Csr(indptr, page_table[used], ((lengths - 1) % page_size + 1).int())


def physical_to_logical(
    page_table: torch.Tensor, lengths: torch.Tensor, page_size: int, num_pages: int
) -> torch.Tensor:
    """Return, for each request and each page of the pool, where that page stands in its row.

    Returns
    -------
    Tensor, shape (batch, num_pages), int64
        -1 where the request does not hold the page.

    Examples
    --------
    >>> table = torch.tensor([[2, 0], [1, -1]], dtype=torch.int32)
    >>> lengths = torch.tensor([20, 16], dtype=torch.int32)
    >>> physical_to_logical(table, lengths, 16, num_pages=4).tolist()
    [[1, -1, 0, -1], [-1, 0, -1, -1]]
    """
    requests, entries = used_entries(page_table, lengths, page_size).nonzero(as_tuple=True)
    places = torch.full(
        (len(page_table), num_pages), -1, dtype=torch.int64, device=page_table.device
    )
    places[requests, page_table[requests, entries].long()] = entries
    return places
