"""What is measured: decode steps of real models, and the ways their pages can lie.

All page sizes of a case share one pool, which every page of a layout fills once. So a sweep moves
the same bytes at each page size, and no page is read twice.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.measure.record import CaseShape

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

TABLE_ENTRY_BYTES = 4

#: Contexts are multiples of it, so that pages up to this size are all full.
CONTEXT_STEP = 256


class Shape(NamedTuple):
    """The attention heads of a model, in one layer.

    With ``latent``, V is the first ``value_dim`` elements of the one K vector of a token, as in
    multi-head latent attention.
    """

    name: str
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    latent: bool = False

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Return the bytes of K and V of one token in one layer."""
        elements = self.head_dim if self.latent else self.head_dim + self.value_dim
        return self.kv_heads * elements * DTYPE_BYTES[dtype]


#: As in the models' published configurations; see data/models.csv for the first two.
LLAMA_3_1_8B = Shape("Llama-3.1-8B", 32, 8, 128, 128)
LLAMA_2_7B = Shape("Llama-2-7B", 32, 32, 128, 128)
#: 512 latent elements and 64 of the rotary part; the query is as wide once absorbed.
DEEPSEEK_V2_LITE = Shape("DeepSeek-V2-Lite", 16, 1, 576, 512, latent=True)


@dataclass(frozen=True)
class DecodeCase:
    """A decode step: a shape, the tokens that each request holds, and the cache's data type.

    Parameters
    ----------
    shape : Shape
    lengths : tuple of int
        Tokens a request holds.
    dtype : str
    trace : str, optional
        The trace that the lengths were drawn from.

    Examples
    --------
    >>> case = fixed_case(LLAMA_3_1_8B, 64, 8192, "bfloat16")
    >>> case.id, case.tokens, case.kv_bytes
    ('llama-3.1-8b.b64.c8192', 524288, 2147483648)
    """

    shape: Shape
    lengths: tuple[int, ...]
    dtype: str
    trace: str | None = None

    @property
    def id(self) -> str:
        """A name for the case: shape, batch, and context or trace."""
        last = f"c{self.longest}" if self.trace is None else self.trace
        return f"{self.shape.name.lower()}.b{self.batch}.{last}"

    @property
    def batch(self) -> int:
        """Requests."""
        return len(self.lengths)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return max(self.lengths)

    @cached_property
    def tokens(self) -> int:
        """Tokens of all requests."""
        return sum(self.lengths)

    @property
    def ragged(self) -> bool:
        """Whether lengths differ."""
        return min(self.lengths) != self.longest

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V of all tokens."""
        return self.tokens * self.shape.kv_bytes_per_token(self.dtype)

    def described(self) -> CaseShape:
        """Return what a record says of the case."""
        return CaseShape(
            id=self.id,
            shape=self.shape.name,
            q_heads=self.shape.q_heads,
            kv_heads=self.shape.kv_heads,
            head_dim=self.shape.head_dim,
            value_dim=self.shape.value_dim,
            batch=self.batch,
            context_tokens=self.longest if self.trace is None else None,
            trace=self.trace,
            tokens=self.tokens,
            kv_bytes=self.kv_bytes,
            dtype=self.dtype,
            latent=self.shape.latent,
            lengths=None if self.trace is None else self.lengths,
        )


@dataclass(frozen=True)
class Placement:
    """A case with its pages: their size, and how they lie.

    Parameters
    ----------
    case : DecodeCase
    layout : str
        "contiguous" (one page a request), "in_order" or "random".
    page_size : int
        Slots a page.

    Examples
    --------
    >>> case = DecodeCase(LLAMA_2_7B, (5, 9), "float16")
    >>> Placement(case, "in_order", 4).table(np.random.default_rng(0)).tolist()
    [[0, 1, 0], [2, 3, 4]]
    >>> contiguous(case).page_size, contiguous(case).pages
    (256, 2)
    """

    case: DecodeCase
    layout: str
    page_size: int

    @property
    def dtype(self) -> str:
        """Data type of the cache, such as "bfloat16"."""
        return self.case.dtype

    @property
    def batch(self) -> int:
        """Requests."""
        return self.case.batch

    @property
    def q_heads(self) -> int:
        """Query heads."""
        return self.case.shape.q_heads

    @property
    def kv_heads(self) -> int:
        """K and V heads."""
        return self.case.shape.kv_heads

    @property
    def head_dim(self) -> int:
        """Elements of a query or K head."""
        return self.case.shape.head_dim

    @property
    def value_dim(self) -> int:
        """Elements of a V head."""
        return self.case.shape.value_dim

    @property
    def latent(self) -> bool:
        """Whether V is a part of K."""
        return self.case.shape.latent

    @property
    def ragged(self) -> bool:
        """Whether the requests' lengths differ."""
        return self.case.ragged

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Pages of each request."""
        return -(-np.array(self.case.lengths, dtype=np.int64) // self.page_size)

    @property
    def pages(self) -> int:
        """Pages of all requests, which fill the pool."""
        return int(self.counts.sum())

    @cached_property
    def max_pages(self) -> int:
        """Pages of the longest request: the width of the table."""
        return int(self.counts.max())

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return self.case.longest

    @property
    def slots(self) -> int:
        """Slots of the pool."""
        return self.pages * self.page_size

    @property
    def moved_bytes(self) -> int:
        """The fewest bytes that must move: K and V once, q, the output, the table's entries."""
        per_head = self.case.shape.head_dim + self.case.shape.value_dim
        heads = self.batch * self.q_heads * per_head * DTYPE_BYTES[self.dtype]
        return self.case.kv_bytes + heads + self.pages * TABLE_ENTRY_BYTES

    def table(self, rng: np.random.Generator) -> npt.NDArray[np.int32]:
        """Return the page table: every page of the pool in it once.

        Entries that no token needs name page 0: they must not be read, and cannot crash.
        """
        ids = np.arange(self.pages, dtype=np.int32)
        if self.layout == "random":
            rng.shuffle(ids)
        table = np.zeros((self.batch, self.max_pages), dtype=np.int32)
        table[np.arange(table.shape[1]) < self.counts[:, None]] = ids
        return table


def contiguous(case: DecodeCase) -> Placement:
    """Return the placement without pages: each request's tokens side by side, in one page."""
    return Placement(case, "contiguous", -(-case.longest // CONTEXT_STEP) * CONTEXT_STEP)


# --------------------------------------------------------------------------- making cases


def fixed_case(shape: Shape, batch: int, context_tokens: int, dtype: str) -> DecodeCase:
    """Return a batch of requests of the same length."""
    return DecodeCase(shape, (context_tokens,) * batch, dtype)


def trace_case(shape: Shape, batch: int, trace: str, dtype: str, seed: int = 0) -> DecodeCase:
    """Return a batch with the lengths of a trace's running requests; see `running_lengths`."""
    return DecodeCase(shape, running_lengths(trace, batch, seed), dtype, trace)


def running_lengths(trace: str, batch: int, seed: int = 0) -> tuple[int, ...]:
    """Draw what requests of a trace hold in a decode step.

    A request is in as many steps as it has output tokens, so it is drawn with that weight, at any
    of these steps alike: it then holds its prompt and the output so far. Drawn without
    replacement.

    Parameters
    ----------
    trace : str
        Name of a table ``data/traces/NAME.requests.csv``.
    batch : int
        Requests to draw.
    seed : int
        The same seed gives the same lengths.

    Raises
    ------
    LedgerError
        If there is no such table, or it has fewer requests with output.

    Examples
    --------
    >>> running_lengths("azure_conv_2023", 3) == running_lengths("azure_conv_2023", 3)
    True
    """
    path = data_file(f"traces/{trace}.requests.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(int(r["prompt_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(file)]
    prompts, outputs = np.array(rows, dtype=np.int64).T
    if not 1 <= batch <= np.count_nonzero(outputs):
        raise LedgerError(
            f"a batch of {trace} is {batch}; accepted: 1 to {np.count_nonzero(outputs)} requests"
        )
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(rows), size=batch, replace=False, p=outputs / outputs.sum())
    held = prompts[drawn] + rng.integers(1, outputs[drawn] + 1)
    return tuple(held.tolist())
