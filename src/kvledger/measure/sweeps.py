"""What is measured: decode steps of real models, how their pages lie, and in which order.

All page sizes of a case share one pool, which every page of a layout fills once. So a sweep moves
the same bytes at each page size, and no page is read twice. The first sweep is what would be missed
most if time ran out. Nothing here needs torch.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Page sizes where only a few are measured: the ends, and the size that most engines use.
FEW_PAGE_SIZES = (16, 1, 256)
#: A working set is at least so many times the last-level cache: reading it again finds little.
CACHE_MULTIPLE = 4


class ModelHeads(NamedTuple):
    """The attention heads of a model in one layer, named as in a :class:`CaseShape`."""

    shape: str
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    latent: bool = False

    def token_bytes(self, dtype: str) -> int:
        """Return the bytes of K and V of one token in one layer."""
        elements = self.head_dim if self.latent else self.head_dim + self.value_dim
        return self.kv_heads * elements * DTYPE_BYTES[dtype]


#: As in the models' published configurations; see data/models.csv for the first two.
LLAMA_3_1_8B = ModelHeads("Llama-3.1-8B", 32, 8, 128, 128)
LLAMA_2_7B = ModelHeads("Llama-2-7B", 32, 32, 128, 128)
#: 512 latent elements and 64 of the rotary part; the query is as wide once absorbed.
DEEPSEEK_V2_LITE = ModelHeads("DeepSeek-V2-Lite", 16, 1, 576, 512, latent=True)


class DecodeShape(NamedTuple):
    """The sizes of a decode step: one new token a request, K and V in pages.

    ``dtype`` is that of q. ``pages`` are those of the pool, ``max_pages`` the width of the table,
    ``longest`` the greatest length, ``tokens`` the sum, ``latent`` as in a :class:`CaseShape`.
    """

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
    tokens: int
    latent: bool

    @property
    def group(self) -> int:
        """Query heads that read one K and V head."""
        return self.q_heads // self.kv_heads

    @property
    def ragged(self) -> bool:
        """Whether requests hold different numbers of tokens."""
        return self.tokens < self.batch * self.longest

    @property
    def token_bytes(self) -> int:
        """Bytes of K and V of one token, in q's data type."""
        elements = self.head_dim + (0 if self.latent else self.value_dim)
        return self.kv_heads * elements * DTYPE_BYTES[self.dtype]


def case_of(
    heads: ModelHeads, lengths: Sequence[int], dtype: str, trace: str | None = None
) -> CaseShape:
    """Return a batch of requests, all of one length unless a trace is named."""
    tokens, batch = sum(lengths), len(lengths)
    context = max(lengths) if trace is None else None
    return CaseShape(
        **heads._asdict(),
        id=f"{heads.shape.lower()}.b{batch}.{trace or f'c{context}'}",
        batch=batch,
        context_tokens=context,
        trace=trace,
        tokens=tokens,
        kv_bytes=tokens * heads.token_bytes(dtype),
        dtype=dtype,
        lengths=None if trace is None else tuple(lengths),
    )


def running_lengths(trace: str, batch: int, seed: int = 0) -> tuple[int, ...]:
    """Draw what requests of a trace hold in a decode step, without replacement.

    A request is in as many steps as it has output tokens, so it is drawn with that weight, at any
    of these steps alike: it then holds its prompt and the output so far.
    """
    with data_file(f"traces/{trace}.requests.csv").open(newline="", encoding="utf-8") as file:
        rows = [(int(r["prompt_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(file)]
    prompts, outputs = np.array(rows, dtype=np.int64).T
    most = np.count_nonzero(outputs)
    if not 1 <= batch <= most:
        raise LedgerError(f"a batch of {trace} is {batch}; accepted: 1 to {most} requests")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(rows), size=batch, replace=False, p=outputs / outputs.sum())
    held = prompts[drawn] + rng.integers(1, outputs[drawn] + 1)
    return tuple(held.tolist())


@dataclass(frozen=True)
class Placement:
    """A case with its pages: their size in slots, and how they lie.

    ``layout`` is "contiguous" (one page a request), "in_order" or "random".

    Examples
    --------
    >>> case = case_of(LLAMA_2_7B, [5, 9], "float16", trace="two")
    >>> Placement(case, "in_order", 4).table(np.random.default_rng(0)).tolist()
    [[0, 1, 0], [2, 3, 4]]
    """

    case: CaseShape
    layout: str
    page_size: int

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Pages of each request."""
        return -(-np.array(self.case.held_tokens, dtype=np.int64) // self.page_size)

    @cached_property
    def sizes(self) -> DecodeShape:
        """The sizes of the step; its pages fill the pool."""
        case, counts = self.case, self.counts
        of_case = ("dtype", "batch", *ModelHeads._fields[1:], "tokens")
        return DecodeShape(
            **{name: getattr(case, name) for name in of_case},
            page_size=self.page_size,
            pages=int(counts.sum()),
            max_pages=int(counts.max()),
            longest=max(case.held_tokens),
        )

    @property
    def slots(self) -> int:
        """Slots of the pool."""
        return self.sizes.pages * self.page_size

    @property
    def moved_bytes(self) -> int:
        """The fewest bytes that must move: K and V once, q, the output, the table's entries."""
        case = self.case
        elements = case.batch * case.q_heads * (case.head_dim + case.value_dim)
        table = self.sizes.pages * TABLE_ENTRY_BYTES
        return case.kv_bytes + elements * DTYPE_BYTES[case.dtype] + table

    def table(self, rng: np.random.Generator) -> npt.NDArray[np.int32]:
        """Return the page table: every page of the pool in it once.

        Entries that no token needs name page 0: they must not be read, and cannot crash.
        """
        ids = np.arange(self.sizes.pages, dtype=np.int32)
        if self.layout == "random":
            rng.shuffle(ids)
        table = np.zeros((self.case.batch, self.sizes.max_pages), dtype=np.int32)
        table[np.arange(table.shape[1]) < self.counts[:, None]] = ids
        return table


def contiguous(case: CaseShape) -> Placement:
    """Return the placement without pages: each request's tokens side by side, in one page."""
    return Placement(case, "contiguous", -(-max(case.held_tokens) // CONTEXT_STEP) * CONTEXT_STEP)


@dataclass(frozen=True)
class Sweep:
    """A case, the page sizes to try in order of importance, and their layouts.

    ``weight`` is its share of the time that is left, beside the weights of those to come.
    """

    case: CaseShape
    page_sizes: tuple[int, ...]
    layouts: tuple[str, ...] = ("random",)
    weight: float = 1.0

    def placements(self) -> list[Placement]:
        """Return the contiguous layout, then those with pages."""
        paged = ((how, size) for size in self.page_sizes for how in self.layouts)
        return [contiguous(self.case), *(Placement(self.case, *each) for each in paged)]


def gpu_sweeps(page_sizes: tuple[int, ...], *, quick: bool, seed: int) -> list[Sweep]:
    """Return what is measured on a GPU: 16-bit caches of 0.5 to 9 GB."""
    (sizes, few), dtype = _by_importance(page_sizes), "bfloat16"

    def fixed(heads: ModelHeads, batch: int, context_tokens: int) -> CaseShape:
        return case_of(heads, (context_tokens,) * batch, dtype)

    def traced(trace: str, batch: int) -> CaseShape:
        return case_of(LLAMA_3_1_8B, running_lengths(trace, batch, seed), dtype, trace)

    main = Sweep(fixed(LLAMA_3_1_8B, 64, 8192), sizes, ("random", "in_order"), weight=8)
    if quick:
        return [replace(main, page_sizes=few)]
    batches = (
        *((128, 4096), (1, 131072), (128, 1024), (16, 32768)),
        *((4, 131072), (32, 16384), (8, 65536), (2, 131072)),
    )
    return [
        main,
        Sweep(fixed(LLAMA_2_7B, 64, 8192), sizes, weight=3),
        Sweep(fixed(DEEPSEEK_V2_LITE, 64, 8192), sizes, weight=3),
        Sweep(traced("azure_conv_2023", 128), sizes, weight=2),
        *(Sweep(fixed(LLAMA_3_1_8B, *each), few) for each in batches),
        Sweep(traced("mooncake_conversation", 32), few),
    ]


def cpu_sweeps(
    page_sizes: tuple[int, ...], *, quick: bool, seed: int, least_bytes: int
) -> list[Sweep]:
    """Return what is measured on a CPU: 32-bit caches of at least so many bytes.

    float32 because torch's attention on a CPU converts 16-bit elements one tile at a time, several
    times slower than memory: pages would hide behind that.
    """
    (sizes, few), dtype = _by_importance(page_sizes), "float32"

    def at_least(heads: ModelHeads, batch: int, context_tokens: int) -> CaseShape:
        per_request = context_tokens * heads.token_bytes(dtype)
        return case_of(heads, (context_tokens,) * max(batch, -(-least_bytes // per_request)), dtype)

    def of_trace(trace: str, batch: int) -> CaseShape:
        lengths = running_lengths(trace, batch, seed)
        case = case_of(LLAMA_3_1_8B, lengths, dtype, trace)
        return case if case.kv_bytes >= least_bytes else of_trace(trace, 2 * batch)

    main = Sweep(at_least(LLAMA_3_1_8B, 4, 8192), sizes, ("random", "in_order"), weight=12)
    if quick:
        return [replace(main, page_sizes=few)]
    return [
        main,
        Sweep(at_least(LLAMA_2_7B, 4, 2048), few, weight=2),
        Sweep(at_least(DEEPSEEK_V2_LITE, 16, 8192), few, weight=2),
        Sweep(of_trace("azure_conv_2023", 32), few, weight=2),
        Sweep(at_least(LLAMA_3_1_8B, 128, 1024), few),
        Sweep(at_least(LLAMA_3_1_8B, 1, 131072), few),
    ]


def _by_importance(page_sizes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return all page sizes, the most telling first, and the few of them."""
    few = tuple(size for size in FEW_PAGE_SIZES if size in page_sizes) or page_sizes[:1]
    return tuple(dict.fromkeys((*few, *page_sizes))), few


def check_page_sizes(page_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return page sizes in ascending order, each once; each must divide the contexts' step.

    Else pages would not be full, and each size would move other bytes.
    """
    accepted = f"accepted: powers of 2 from 1 to {CONTEXT_STEP}"
    for size in page_sizes:
        if size < 1 or CONTEXT_STEP % size:
            raise LedgerError(f"a page size is {size}; {accepted}")
    if not page_sizes:
        raise LedgerError(f"no page sizes; {accepted}")
    return tuple(sorted(set(page_sizes)))
