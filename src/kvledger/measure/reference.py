"""Paged decode attention in plain torch: the meaning of the operation.

Every kernel that is measured is compared with it first.
"""

from __future__ import annotations

import torch

from kvledger.measure.decode_inputs import check_decode


def paged_decode_reference(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Attend from one new token a request to the tokens in its pages.

    Token t of request r stands in page ``page_table[r, t // page_size]`` at slot
    ``t % page_size``. Query head h reads K and V head ``h // (q_heads / kv_heads)``.

    Parameters
    ----------
    q, k_pages, v_pages, page_table, lengths, scale
        See :func:`~kvledger.measure.decode_inputs.check_decode`; the scale is ``head_dim ** -0.5``
        when not given.
    dtype : torch.dtype
        What everything is converted to and computed in.

    Returns
    -------
    Tensor, shape (batch, q_heads, value_dim), of `dtype`

    Raises
    ------
    LedgerError
        For tensors that do not go together.

    Examples
    --------
    Two tokens whose keys are alike count the same, wherever their pages are:

    >>> k = torch.zeros(2, 1, 1, 4)
    >>> v = torch.tensor([[1.0], [3.0]]).reshape(2, 1, 1, 1)
    >>> table = torch.tensor([[1, 0]], dtype=torch.int32)
    >>> length = torch.tensor([2], dtype=torch.int32)
    >>> paged_decode_reference(torch.ones(1, 1, 4), k, v, table, length)
    tensor([[[2.]]], dtype=torch.float64)
    """
    shape = check_decode(q, k_pages, v_pages, page_table, lengths, scale)
    factor = shape.head_dim**-0.5 if scale is None else scale
    out = torch.empty(shape.batch, shape.q_heads, shape.value_dim, dtype=dtype, device=q.device)
    for request, length in enumerate(lengths.tolist()):
        tokens = torch.arange(length, device=q.device)
        pages, slots = page_table[request, tokens // shape.page_size], tokens % shape.page_size
        keys = k_pages[pages, slots].to(dtype)  # [tokens, kv_heads, head_dim]
        values = v_pages[pages, slots].to(dtype)
        query = q[request].to(dtype).reshape(shape.kv_heads, shape.group, shape.head_dim)
        weights = torch.einsum("hgd,thd->hgt", query * factor, keys).softmax(-1)
        out[request] = torch.einsum("hgt,thv->hgv", weights, values).flatten(0, 1)
    return out
