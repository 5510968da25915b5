"""What a paged decode step is given, checked once, before anything is launched."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from kvledger.core.errors import LedgerError

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class DecodeShape(NamedTuple):
    """The sizes of a decode step: one new token a request, K and V in pages.

    ``longest`` is the greatest length of the batch and ``tokens`` their sum, in tokens. ``latent``
    says that V is a view of the first ``value_dim`` elements of K, as in multi-head latent
    attention: its bytes count once.
    """

    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    page_size: int
    num_pages: int
    max_pages: int
    longest: int
    tokens: int
    latent: bool

    @property
    def group(self) -> int:
        """Query heads that read one K and V head."""
        return self.q_heads // self.kv_heads


def check_decode(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> DecodeShape:
    """Check the tensors of a paged decode step, values of the table and the lengths included.

    Reading the values waits for the device, so a step that is timed is checked before it.

    Parameters
    ----------
    q : Tensor, shape (batch, q_heads, head_dim)
        float16, bfloat16 or float32.
    k_pages : Tensor, shape (num_pages, page_size, kv_heads, head_dim)
        Of q's data type, or float8 beside a 16-bit q.
    v_pages : Tensor, shape (num_pages, page_size, kv_heads, value_dim)
        Of k_pages' data type; it may be a view of k_pages' first elements.
    page_table : Tensor, shape (batch, max_pages)
        int32: the page of each run of page_size tokens. Entries that no token needs are not read.
    lengths : Tensor, shape (batch,)
        int32: tokens a request holds, at least 1.
    scale : float, optional
        Factor on the scores.

    Returns
    -------
    DecodeShape

    Raises
    ------
    LedgerError
        Names the tensor and the entry, its value, and what is accepted.

    Examples
    --------
    >>> pages = torch.zeros(3, 16, 2, 64)
    >>> table = torch.tensor([[2, 0], [1, -1]], dtype=torch.int32)
    >>> lengths = torch.tensor([20, 16], dtype=torch.int32)
    >>> check_decode(torch.zeros(2, 8, 64), pages, pages, table, lengths).group
    4
    >>> check_decode(torch.zeros(2, 8, 64), pages, pages, table, lengths + 1)
    Traceback (most recent call last):
    ...
    kvledger.LedgerError: page_table[1, 1] is -1; accepted: a page from 0 to 2
    """
    for name, tensor, sizes in (
        ("q", q, "batch, q_heads, head_dim"),
        ("k_pages", k_pages, "num_pages, page_size, kv_heads, head_dim"),
        ("v_pages", v_pages, "num_pages, page_size, kv_heads, value_dim"),
        ("page_table", page_table, "batch, max_pages"),
        ("lengths", lengths, "batch"),
    ):
        _check_tensor(name, tensor, sizes, q)
    batch, q_heads, head_dim = q.shape
    num_pages, page_size, kv_heads, _ = k_pages.shape
    value_dim = v_pages.shape[3]
    _same("k_pages", "head_dim", k_pages.shape[3], "q", head_dim)
    for axis, name in enumerate(("num_pages", "page_size", "kv_heads")):
        _same("v_pages", name, v_pages.shape[axis], "k_pages", k_pages.shape[axis])
    _same("page_table", "batch", page_table.shape[0], "q", batch)
    _same("lengths", "batch", lengths.shape[0], "q", batch)
    if q_heads % kv_heads:
        raise LedgerError(
            f"q has {q_heads} heads and k_pages {kv_heads}; "
            "accepted: as many query heads for each K and V head"
        )
    _check_dtypes(q, k_pages, v_pages, page_table, lengths)
    if scale is not None and not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise LedgerError(f"scale is {scale!r}; accepted: a finite number")
    max_pages = page_table.shape[1]
    longest = _check_values(page_table, lengths, page_size, num_pages)
    latent = (
        v_pages.data_ptr() == k_pages.data_ptr()
        and v_pages.stride() == k_pages.stride()
        and value_dim <= head_dim
    )
    return DecodeShape(
        batch,
        q_heads,
        kv_heads,
        head_dim,
        value_dim,
        page_size,
        num_pages,
        max_pages,
        longest,
        int(lengths.sum()),
        latent,
    )


def _check_tensor(name: str, tensor: object, sizes: str, q: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise LedgerError(f"{name} is a {type(tensor).__name__}; accepted: a tensor [{sizes}]")
    if tensor.dim() != sizes.count(",") + 1 or 0 in tensor.shape:
        raise LedgerError(
            f"{name} has shape {list(tensor.shape)}; accepted: [{sizes}], each at least 1"
        )
    if tensor.device != q.device:
        raise LedgerError(f"{name} is on {tensor.device} and q on {q.device}; accepted: one device")
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise LedgerError(
            f"{name} has strides {list(tensor.stride())}; "
            "accepted: elements of the last dimension side by side"
        )


def _same(name: str, size: str, value: int, other: str, expected: int) -> None:
    if value != expected:
        raise LedgerError(
            f"{name} has {size} {value} and {other} {expected}; accepted: the same in both"
        )


def _check_dtypes(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    if q.dtype not in FLOATS:
        raise LedgerError(f"q is {q.dtype}; accepted: {_names(FLOATS)}")
    accepted = (q.dtype,) if q.dtype == torch.float32 else (q.dtype, *FP8)
    if k_pages.dtype not in accepted:
        raise LedgerError(
            f"k_pages is {k_pages.dtype} beside a q of {q.dtype}; accepted: {_names(accepted)}"
        )
    if v_pages.dtype != k_pages.dtype:
        raise LedgerError(
            f"v_pages is {v_pages.dtype} and k_pages {k_pages.dtype}; accepted: the same in both"
        )
    for name, tensor in (("page_table", page_table), ("lengths", lengths)):
        if tensor.dtype != torch.int32:
            raise LedgerError(f"{name} is {tensor.dtype}; accepted: torch.int32")


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(map(str, dtypes))


def _check_values(
    page_table: torch.Tensor, lengths: torch.Tensor, page_size: int, num_pages: int
) -> int:
    """Check every length, and every entry that a length needs; return the greatest length."""
    room = page_table.shape[1] * page_size
    wrong = ((lengths < 1) | (lengths > room)).nonzero()
    if len(wrong):
        request = int(wrong[0, 0])
        raise LedgerError(
            f"lengths[{request}] is {int(lengths[request])}; accepted: 1 to {room} tokens, "
            f"what {page_table.shape[1]} pages of {page_size} hold"
        )
    # 64 bits: page_size - 1 added to a length near 2^31 must not wrap.
    needed = (lengths.long() + page_size - 1) // page_size
    used = torch.arange(page_table.shape[1], device=page_table.device) < needed[:, None]
    wrong = (used & ((page_table < 0) | (page_table >= num_pages))).nonzero()
    if len(wrong):
        request, entry = map(int, wrong[0])
        raise LedgerError(
            f"page_table[{request}, {entry}] is {int(page_table[request, entry])}; "
            f"accepted: a page from 0 to {num_pages - 1}"
        )
    return int(lengths.max())
