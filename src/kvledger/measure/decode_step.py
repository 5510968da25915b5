"""A paged decode step in torch: its tensors, what they must be, what is computed, how closely.

Every kernel that is measured is compared with :func:`paged_decode_reference` before it is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from kvledger.core.errors import LedgerError
from kvledger.measure.record import CaseShape
from kvledger.measure.sweeps import DecodeShape, Placement

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)

#: Greatest distance from the reference, relative, in the norm of a request's output. For 16-bit
#: types eight roundings, which peers that round scores and weights stay within; for float32 what
#: adding up tens of thousands of terms may cost, and less than 19-bit products (TF32) do.
TOLERANCE = {"float32": 2.0**-14, "float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}
#: Tokens of the requests that are cut short: one, and both sides of where pages end.
SHORT_LENGTHS = (300, 1, 33, 127, 256)
_MOST_CHECKED_TOKENS = 2**17


class DecodeInputs(NamedTuple):
    """The tensors of a paged decode step, the elements of their last dimensions side by side.

    q, [batch, q_heads, head_dim], is float16, bfloat16 or float32. k_pages, [pages, page_size,
    kv_heads, head_dim], and v_pages, [pages, page_size, kv_heads, value_dim], are of its type, or
    float8 beside a 16-bit q; v_pages may be a view of k_pages' first elements. page_table, [batch,
    max_pages], and lengths, [batch], are int32: the page of each run of page_size tokens, where
    entries that no token needs are not read, and the tokens that a request holds, at least 1. The
    scale is a factor on the scores, ``head_dim ** -0.5`` when not given.
    """

    q: torch.Tensor
    k_pages: torch.Tensor
    v_pages: torch.Tensor
    page_table: torch.Tensor
    lengths: torch.Tensor
    scale: float | None = None

    @property
    def factor(self) -> float:
        """The factor on the scores."""
        return float(self.q.shape[-1] ** -0.5 if self.scale is None else self.scale)

    def of_requests(self, requests: list[int]) -> DecodeInputs:
        """Return the step of some of the requests, on the same pages."""
        q, table, lengths = self.q[requests], self.page_table[requests], self.lengths[requests]
        return self._replace(q=q, page_table=table, lengths=lengths)

    def shortened(self, lengths: Sequence[int]) -> DecodeInputs:
        """Return the step with other lengths: a request then holds the first of its tokens."""
        held = torch.tensor(lengths, dtype=torch.int32, device=self.lengths.device)
        return self._replace(lengths=held)


def check_decode(inputs: DecodeInputs) -> DecodeShape:
    """Check the tensors of a step, values of the table and the lengths included; return its sizes.

    Reading the values waits for the device, so a step that is timed is checked before it. An error
    names the tensor and the entry, its value, and what is accepted.
    """
    q, k_pages, v_pages, _, lengths, scale = inputs
    sizes = _checked_sizes(inputs)
    if sizes["q_heads"] % sizes["kv_heads"]:
        raise LedgerError(
            f"q has {sizes['q_heads']} heads and k_pages {sizes['kv_heads']}; "
            "accepted: as many query heads for each K and V head"
        )
    _check_dtypes(inputs)
    if scale is not None and not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise LedgerError(f"scale is {scale!r}; accepted: a finite number")
    _check_values(inputs)
    at_same_place = (v_pages.data_ptr(), v_pages.stride()) == (k_pages.data_ptr(), k_pages.stride())
    return DecodeShape(
        dtype=str(q.dtype).removeprefix("torch."),
        pages=sizes.pop("num_pages"),
        **sizes,
        longest=int(lengths.max()),
        tokens=int(lengths.sum()),
        latent=at_same_place and sizes["value_dim"] <= sizes["head_dim"],
    )


_AXES = (
    "batch, q_heads, head_dim",
    "num_pages, page_size, kv_heads, head_dim",
    "num_pages, page_size, kv_heads, value_dim",
    "batch, max_pages",
    "batch",
)


def _checked_sizes(inputs: DecodeInputs) -> dict[str, int]:
    """Check what the tensors are and where; return the size of each axis, the same in all."""
    device = getattr(inputs.q, "device", None)
    sizes: dict[str, int] = {}
    named: dict[str, str] = {}
    for name, tensor, axes in zip(inputs._fields, inputs, _AXES, strict=False):
        if not isinstance(tensor, torch.Tensor):
            raise LedgerError(f"{name} is a {type(tensor).__name__}; accepted: a tensor [{axes}]")
        if tensor.dim() != axes.count(",") + 1 or 0 in tensor.shape:
            raise LedgerError(
                f"{name} has shape {list(tensor.shape)}; accepted: [{axes}], each at least 1"
            )
        if tensor.device != device:
            raise LedgerError(
                f"{name} is on {tensor.device} and q on {device}; accepted: one device"
            )
        if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
            raise LedgerError(
                f"{name} has strides {list(tensor.stride())}; "
                "accepted: elements of the last dimension side by side"
            )
        for axis, size in zip(axes.split(", "), tensor.shape, strict=True):
            other, expected = named.setdefault(axis, name), sizes.setdefault(axis, size)
            if size != expected:
                raise LedgerError(
                    f"{name} has {axis} {size} and {other} {expected}; accepted: the same in both"
                )
    return sizes


def _check_dtypes(inputs: DecodeInputs) -> None:
    q, k_pages, v_pages = (tensor.dtype for tensor in inputs[:3])
    if q not in FLOATS:
        raise LedgerError(f"q is {q}; accepted: {', '.join(map(str, FLOATS))}")
    accepted = (q,) if q == torch.float32 else (q, *FP8)
    if k_pages not in accepted:
        names = ", ".join(map(str, accepted))
        raise LedgerError(f"k_pages is {k_pages} beside a q of {q}; accepted: {names}")
    if v_pages != k_pages:
        raise LedgerError(f"v_pages is {v_pages} and k_pages {k_pages}; accepted: the same in both")
    for name in ("page_table", "lengths"):
        dtype = getattr(inputs, name).dtype
        if dtype != torch.int32:
            raise LedgerError(f"{name} is {dtype}; accepted: torch.int32")


def _check_values(inputs: DecodeInputs) -> None:
    """Check every length, and every entry that a length needs."""
    table, lengths = inputs.page_table, inputs.lengths
    pages, page_size = inputs.k_pages.shape[:2]
    room = table.shape[1] * page_size
    wrong = ((lengths < 1) | (lengths > room)).nonzero()
    if len(wrong):
        request = int(wrong[0, 0])
        raise LedgerError(
            f"lengths[{request}] is {int(lengths[request])}; accepted: 1 to {room} tokens, "
            f"what {table.shape[1]} pages of {page_size} hold"
        )
    wrong = (used_entries(inputs) & ((table < 0) | (table >= pages))).nonzero()
    if len(wrong):
        request, entry = map(int, wrong[0])
        raise LedgerError(
            f"page_table[{request}, {entry}] is {int(table[request, entry])}; "
            f"accepted: a page from 0 to {pages - 1}"
        )


def used_entries(inputs: DecodeInputs) -> torch.Tensor:
    """Return which entries of the page table hold a token's page: (batch, max_pages), bool."""
    table, page_size = inputs.page_table, inputs.k_pages.shape[1]
    # 64 bits: page_size - 1 added to a length near 2^31 must not wrap.
    needed = (inputs.lengths.long() + page_size - 1) // page_size
    return torch.arange(table.shape[1], device=table.device) < needed[:, None]


def paged_decode_reference(
    inputs: DecodeInputs, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Attend from one new token a request to the tokens in its pages, in plain torch.

    Token t of request r stands in page ``page_table[r, t // page_size]`` at slot
    ``t % page_size``. Query head h reads K and V head ``h // (q_heads / kv_heads)``. Everything is
    converted to `dtype` and computed in it.

    Returns
    -------
    Tensor, shape (batch, q_heads, value_dim), of `dtype`

    Examples
    --------
    Two tokens whose keys are alike count the same, wherever their pages are:

    >>> k = torch.zeros(2, 1, 1, 4)
    >>> v = torch.tensor([[1.0], [3.0]]).reshape(2, 1, 1, 1)
    >>> table = torch.tensor([[1, 0]], dtype=torch.int32)
    >>> length = torch.tensor([2], dtype=torch.int32)
    >>> paged_decode_reference(DecodeInputs(torch.ones(1, 1, 4), k, v, table, length))
    tensor([[[2.]]], dtype=torch.float64)
    """
    shape = check_decode(inputs)
    q, k_pages, v_pages, page_table, lengths, _ = inputs
    out = torch.empty(shape.batch, shape.q_heads, shape.value_dim, dtype=dtype, device=q.device)
    for request, length in enumerate(lengths.tolist()):
        tokens = torch.arange(length, device=q.device)
        pages, slots = page_table[request, tokens // shape.page_size], tokens % shape.page_size
        keys = k_pages[pages, slots].to(dtype)  # [tokens, kv_heads, head_dim]
        values = v_pages[pages, slots].to(dtype)
        query = q[request].to(dtype).reshape(shape.kv_heads, shape.group, shape.head_dim)
        weights = torch.einsum("hgd,thd->hgt", query * inputs.factor, keys).softmax(-1)
        out[request] = torch.einsum("hgt,thv->hgv", weights, values).flatten(0, 1)
    return out


class SlotPool:
    """K and V of a case in slots of random values, of which each placement takes a view.

    There is room for the largest of the placements.
    """

    def __init__(self, placements: list[Placement], device: torch.device, seed: int) -> None:
        case = placements[0].case
        slots = max(placement.slots for placement in placements)
        generator = torch.Generator(device=device).manual_seed(seed)

        def random(*size: int) -> torch.Tensor:
            dtype = getattr(torch, case.dtype)
            return torch.randn(size, dtype=dtype, device=device, generator=generator)

        self.q = random(case.batch, case.q_heads, case.head_dim)
        self.k = random(slots, case.kv_heads, case.head_dim)
        self.v = None if case.latent else random(slots, case.kv_heads, case.value_dim)
        self.lengths = torch.tensor(case.held_tokens, dtype=torch.int32, device=device)

    def inputs(self, placement: Placement, rng: np.random.Generator) -> DecodeInputs:
        """Return views of the pool as pages, and a table that uses each of them once."""
        table = torch.from_numpy(placement.table(rng)).to(self.k.device)

        def paged(slots: torch.Tensor) -> torch.Tensor:
            sizes = (placement.sizes.pages, placement.page_size, *slots.shape[1:])
            return slots[: placement.slots].view(sizes)

        k = paged(self.k)
        v = k[..., : placement.case.value_dim] if self.v is None else paged(self.v)
        return DecodeInputs(self.q, k, v, table, self.lengths)


def pool_bytes(placements: list[Placement]) -> int:
    """Return what a pool takes in memory, with the tables of all placements."""
    slots = max(placement.slots for placement in placements)
    tables = sum(4 * p.sizes.max_pages * p.sizes.batch for p in placements)
    return slots * placements[0].sizes.token_bytes + tables


def short_lengths(case: CaseShape, *, ragged: bool = True) -> list[int]:
    """Return a case's lengths cut short, all alike for a peer that asks for that.

    A single token too many, too few or from a wrong page shows among so few.
    """
    if not ragged:
        return [min(SHORT_LENGTHS[0], *case.held_tokens)] * case.batch
    short = SHORT_LENGTHS * (case.batch // len(SHORT_LENGTHS) + 1)
    return [min(pair) for pair in zip(short, case.held_tokens, strict=False)]


def checked_requests(case: CaseShape) -> list[int]:
    """Return the requests that are compared at full length: the first, the last, the shortest.

    Fewer, where they hold more tokens than are compared in good time.
    """
    lengths = case.held_tokens
    chosen, tokens = [0], lengths[0]
    for request in (len(lengths) - 1, lengths.index(min(lengths))):
        if request not in chosen and tokens + lengths[request] <= _MOST_CHECKED_TOKENS:
            chosen.append(request)
            tokens += lengths[request]
    return sorted(chosen)


def poisoned(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Call twice, with what the first call returned overwritten before the second.

    So an output that the second call does not write is not taken for a result.
    """
    first = call()
    first.fill_(float("nan"))
    del first
    return call()


def checked_error(
    out: torch.Tensor, requests: list[int], reference: torch.Tensor, dtype: str, what: str
) -> float:
    """Return the greatest relative distance of some requests from their reference.

    Another shape, a value that is not finite, or a distance beyond the tolerance of the data type
    is a LedgerError: then nothing is timed.
    """
    heads = tuple(reference.shape[1:])
    if out.dim() != 3 or tuple(out.shape[1:]) != heads or out.shape[0] <= max(requests):
        raise LedgerError(
            f"{what}: the output has shape {list(out.shape)}; accepted: [batch, "
            f"{heads[0]}, {heads[1]}]"
        )
    if not bool(torch.isfinite(out).all()):
        raise LedgerError(f"{what}: the output has values that are not finite; accepted: numbers")
    away = (out[requests].to(reference.dtype) - reference).flatten(1).norm(dim=1)
    error = float((away / reference.flatten(1).norm(dim=1)).max())
    if not error <= TOLERANCE[dtype]:
        raise LedgerError(
            f"{what}: the output is {error:.3g} away from the reference; accepted: up to "
            f"{TOLERANCE[dtype]:.3g} in {dtype}"
        )
    return error
