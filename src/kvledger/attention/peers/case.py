"""A step that a peer is asked for: what is known of it before any tensor is made."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from kvledger.attention.inputs import DecodeShape


class Case(Protocol):
    """A step that a peer may be asked for: known before any tensor is made.

    ``dtype`` names the data type of q, the pages and the output, such as "bfloat16"; ``ragged``
    says that requests hold different numbers of tokens, ``longest`` the greatest of these;
    ``pages`` are those of the pool, ``max_pages`` those of a row of the table; ``latent`` says
    that V is a view of the first ``value_dim`` elements of K.
    """

    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def q_heads(self) -> int: ...  # noqa: D102
    @property
    def kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def value_dim(self) -> int: ...  # noqa: D102
    @property
    def page_size(self) -> int: ...  # noqa: D102
    @property
    def pages(self) -> int: ...  # noqa: D102
    @property
    def max_pages(self) -> int: ...  # noqa: D102
    @property
    def longest(self) -> int: ...  # noqa: D102
    @property
    def ragged(self) -> bool: ...  # noqa: D102
    @property
    def latent(self) -> bool: ...  # noqa: D102


class Asked(NamedTuple):
    """A :class:`Case`, as the tensors at hand make it."""

    dtype: str
    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    page_size: int
    pages: int
    max_pages: int
    longest: int
    ragged: bool
    latent: bool

    @classmethod
    def of(cls, shape: DecodeShape, dtype: torch.dtype) -> Asked:
        """Return what a checked step asks for, its q of some data type."""
        return cls(
            dtype=dtype_name(dtype),
            batch=shape.batch,
            q_heads=shape.q_heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            value_dim=shape.value_dim,
            page_size=shape.page_size,
            pages=shape.num_pages,
            max_pages=shape.max_pages,
            longest=shape.longest,
            ragged=shape.tokens < shape.batch * shape.longest,
            latent=shape.latent,
        )

    @property
    def group(self) -> int:
        """Query heads that read one K and V head."""
        return self.q_heads // self.kv_heads


def dtype_name(dtype: torch.dtype) -> str:
    """Return a data type's name without the library's.

    Examples
    --------
    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def dense_bytes(case: Case, tokens_per_request: int) -> int:
    """Return the bytes of K and V with equally many tokens for each request."""
    elements = case.kv_heads * (case.head_dim + (0 if case.latent else case.value_dim))
    itemsize: int = getattr(torch, case.dtype).itemsize
    return case.batch * tokens_per_request * elements * itemsize
