"""A step that a peer is asked for: what is known of it before any tensor is made."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from kvledger.measure.decode_inputs import DecodeShape


class Case(Protocol):
    """A step that a peer may be asked for: known before any tensor is made."""

    @property
    def dtype(self) -> str:
        """Data type of q, the pages and the output, such as "bfloat16"."""

    @property
    def batch(self) -> int:
        """Requests."""

    @property
    def q_heads(self) -> int:
        """Query heads."""

    @property
    def kv_heads(self) -> int:
        """K and V heads."""

    @property
    def head_dim(self) -> int:
        """Elements of a K head."""

    @property
    def value_dim(self) -> int:
        """Elements of a V head."""

    @property
    def page_size(self) -> int:
        """Slots a page."""

    @property
    def pages(self) -> int:
        """Pages of the pool."""

    @property
    def max_pages(self) -> int:
        """Entries of a row of the table."""

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""

    @property
    def ragged(self) -> bool:
        """Whether requests hold different numbers of tokens."""

    @property
    def latent(self) -> bool:
        """Whether V is a view of the first ``value_dim`` elements of K."""


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
