"""Paged decode attention on a GPU: what is launched, how the work is cut, and what is refused.

The kernels are in :mod:`~kvledger.measure.decode_kernels`. They are written for Hopper and are
right wherever Triton runs, its interpreter included (``TRITON_INTERPRET=1``), whose times mean
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from kvledger.core.errors import LedgerError
from kvledger.measure.decode_inputs import DecodeShape, check_decode
from kvledger.measure.decode_kernels import attend, join

_LOG2_E = math.log2(math.e)
#: Matrix units take at least 16 rows, and 16 elements a step.
_LEAST_DOT = 16
#: Query heads of one program; more would not leave registers for the output.
_MOST_ROWS = 64
#: Elements of a K or V head that one program can hold.
MOST_HEAD_DIM = 576
#: Without a GPU there is nothing to fill; the interpreter is given a small one's size.
_INTERPRETED_UNITS = 8
#: Programs for each of the device's units, so that the last to finish is not waited for long.
_PROGRAMS_PER_UNIT = 8
_LEAST_SPLIT_TOKENS = 512
#: K of a step that is timed to choose tiles; a smaller one says little about a larger.
_LEAST_TUNED_BYTES = 64 << 20
_JOIN_SPLITS = 32
#: Shorter steps leave eight warps too little to load sixteen bytes each.
_STEP_OF_EIGHT_WARPS = 64
#: K and V of one step: with two steps in flight, three programs fit on a multiprocessor of Hopper.
_STAGE_BYTES = 32 << 10
#: Programs that a launch can count along its last axis.
_MOST_BATCH = 65535
#: So that a token's place and a stretch's end stay within 32 bits.
_MOST_LENGTH = 1 << 30


class Tiles(NamedTuple):
    """How the work is cut: tokens a step, warps a program, steps in flight, tokens a program.

    Without ``split_tokens`` the stretch of a program is chosen by the sizes of the batch.
    """

    tokens: int
    warps: int
    stages: int
    split_tokens: int | None = None


#: Tiles found by timing, by device, types and heads.
_tuned: dict[tuple[Any, ...], Tiles] = {}


class DecodePlan:
    """A decode step whose inputs are checked and whose memory is there: call it to launch it.

    The tensors are read anew by each call. Their shapes, the page table and the lengths must stay
    within what was checked.

    Attributes
    ----------
    shape : DecodeShape
        The sizes of the step.
    tiles : Tiles
        How its work is cut.
    splits : int
        Stretches that the longest request is cut into.
    out : Tensor, shape (batch, q_heads, value_dim)
        What each call writes.
    """

    def __init__(
        self,
        q: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        page_table: torch.Tensor,
        lengths: torch.Tensor,
        scale: float | None = None,
        tiles: Tiles | None = None,
    ) -> None:
        shape = check_decode(q, k_pages, v_pages, page_table, lengths, scale)
        _check_kernel(shape, q)
        self.shape = shape
        self.tiles = default_tiles(shape, k_pages.dtype) if tiles is None else tiles
        split_tokens = _split_tokens(shape, self.tiles, _units(q))
        self.splits = triton.cdiv(shape.longest, split_tokens)
        self.out = q.new_empty(shape.batch, shape.q_heads, shape.value_dim)
        parts = (shape.batch, shape.q_heads, self.splits if self.splits > 1 else 0)
        partial = q.new_empty(*parts, shape.value_dim, dtype=torch.float32)
        weight = q.new_empty(*parts, dtype=torch.float32)
        self._constants = attend_constants(shape, q.dtype, self.tiles.tokens, self.splits)
        self._grid = (
            shape.kv_heads * self._constants["ROW_BLOCKS"],
            self.splits,
            shape.batch,
        )
        self._attend = (
            q,
            k_pages,
            v_pages,
            page_table,
            lengths,
            self.out,
            partial,
            weight,
            (shape.head_dim**-0.5 if scale is None else scale) * _LOG2_E,
            shape.page_size,
            split_tokens,
            self.splits,
            *q.stride()[:2],
            *k_pages.stride()[:3],
            *v_pages.stride()[:3],
            page_table.stride(0),
        )
        self._join = (partial, weight, lengths, self.out, split_tokens, self.splits)

    def __call__(self) -> torch.Tensor:
        """Launch the step on the current stream and return ``out``."""
        attend[self._grid](
            *self._attend,
            **self._constants,
            num_warps=self.tiles.warps,
            num_stages=self.tiles.stages,
        )
        if self.splits > 1:
            join[(self.shape.batch * self.shape.q_heads,)](
                *self._join, **join_constants(self.shape)
            )
        return self.out


def plan_decode(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    *,
    tiles: Tiles | None = None,
    tune: bool = False,
) -> DecodePlan:
    """Check a decode step, get its memory, and return what launches it.

    Parameters
    ----------
    q, k_pages, v_pages, page_table, lengths, scale
        See :func:`~kvledger.measure.decode_inputs.check_decode`; the scale is ``head_dim ** -0.5``
        when not given.
    tiles : Tiles, optional
        How the work is cut; chosen by the sizes when not given.
    tune : bool
        On a GPU, time a few ways to cut the work the first time that heads of this shape and
        type come in a large step, and keep the fastest for all of them: so layouts and page sizes
        are compared under the same tiles.

    Returns
    -------
    DecodePlan

    Raises
    ------
    LedgerError
        For tensors that do not go together, a head that one program cannot hold, or a device that
        Triton cannot reach: before any launch.
    """
    tensors = (q, k_pages, v_pages, page_table, lengths, scale)
    plan = DecodePlan(*tensors, tiles=tiles)
    if not tune or tiles is not None or q.device.type != "cuda":
        return plan
    shape = plan.shape
    heads = (shape.kv_heads, shape.group, shape.head_dim, shape.value_dim, shape.latent)
    key = (q.device, q.dtype, k_pages.dtype, *heads)
    if key not in _tuned:
        if shape.tokens * shape.kv_heads * shape.head_dim * k_pages.itemsize < _LEAST_TUNED_BYTES:
            return plan
        others = (DecodePlan(*tensors, tiles=each) for each in candidate_tiles(plan.tiles))
        _tuned[key] = _fastest(plan, others).tiles
    return DecodePlan(*tensors, tiles=_tuned[key])


def paged_decode(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend from one new token a request to the tokens in its pages, in one call.

    Parameters and errors are those of :func:`plan_decode`.

    Returns
    -------
    Tensor, shape (batch, q_heads, value_dim), of q's data type
    """
    return plan_decode(q, k_pages, v_pages, page_table, lengths, scale)()


# --------------------------------------------------------------------------- how work is cut


def default_tiles(shape: DecodeShape, dtype: torch.dtype) -> Tiles:
    """Choose tiles for a shape and the cache's data type.

    Examples
    --------
    >>> llama = DecodeShape(64, 32, 8, 128, 128, 16, 32768, 512, 8192, 524288, False)
    >>> default_tiles(llama, torch.bfloat16)
    Tiles(tokens=64, warps=4, stages=5, split_tokens=None)
    """
    row_bytes = (shape.head_dim + (0 if shape.latent else shape.value_dim)) * dtype.itemsize
    tokens = 64
    while tokens > _LEAST_DOT and tokens * row_bytes > _STAGE_BYTES:
        tokens //= 2
    # Without matrix units, float32 products would need more registers than four warps have.
    warps = 8 if dtype == torch.float32 else 4
    # Two of the stages look pages up, so five keep two steps of K and V in flight.
    return Tiles(tokens, warps, 5)


def _split_tokens(shape: DecodeShape, tiles: Tiles, units: int) -> int:
    """Return a stretch that gives every unit several programs, all nearly as long."""
    _check_tiles(tiles)
    if tiles.split_tokens is not None:
        return tiles.split_tokens
    heads = shape.kv_heads * triton.cdiv(shape.group, _rows(shape.group))
    wanted = shape.tokens * heads // (units * _PROGRAMS_PER_UNIT)
    splits = triton.cdiv(shape.longest, max(wanted, _LEAST_SPLIT_TOKENS))
    return _up_to_multiple(triton.cdiv(shape.longest, splits), tiles.tokens)


def candidate_tiles(chosen: Tiles) -> Iterator[Tiles]:
    """Yield other tiles to try: more or fewer steps in flight, more warps, longer, shorter steps.

    Tests hold the machine code of each for Hopper: none spills, and all load sixteen bytes at a
    time. That rules out longer steps with eight warps, and eight warps for short steps.

    Examples
    --------
    >>> next(candidate_tiles(Tiles(64, 4, 5)))
    Tiles(tokens=64, warps=4, stages=3, split_tokens=None)
    """
    yield chosen._replace(stages=3)
    yield chosen._replace(stages=7)
    yield chosen._replace(tokens=2 * chosen.tokens, stages=3)
    if chosen.tokens >= _STEP_OF_EIGHT_WARPS:
        yield chosen._replace(warps=8)
    if chosen.tokens > _LEAST_DOT:
        yield chosen._replace(tokens=chosen.tokens // 2, stages=7)


def _fastest(plan: DecodePlan, others: Iterator[DecodePlan]) -> DecodePlan:
    """Return the plan with the least median time; what does not fit the device is passed over."""
    best, least = plan, _milliseconds(plan)
    for other in others:
        try:
            taken = _milliseconds(other)
        except triton.runtime.errors.OutOfResources:
            continue
        if taken < least:
            best, least = other, taken
    return best


def _milliseconds(plan: DecodePlan) -> float:
    return float(triton.testing.do_bench(plan, warmup=10, rep=30, return_mode="median"))


def _rows(group: int) -> int:
    return int(min(_MOST_ROWS, max(_LEAST_DOT, triton.next_power_of_2(group))))


def _up_to_multiple(value: int, step: int) -> int:
    return int(triton.cdiv(value, step)) * step


def _units(q: torch.Tensor) -> int:
    if q.device.type != "cuda":
        return _INTERPRETED_UNITS
    return int(torch.cuda.get_device_properties(q.device).multi_processor_count)


def attend_constants(
    shape: DecodeShape, dtype: torch.dtype, tokens: int, splits: int
) -> dict[str, Any]:
    """Return what the attending kernel is compiled for: tokens a step, and whether it is split."""
    # A head that is no power of two is a power of two and a rest: 576 is 512 and 64.
    main = max(_LEAST_DOT, 1 << (shape.head_dim.bit_length() - 1))
    rest = shape.head_dim - main
    v_block = max(_LEAST_DOT, triton.next_power_of_2(shape.value_dim))
    rows = _rows(shape.group)
    return {
        "HEADS": shape.q_heads,
        "GROUP": shape.group,
        "ROWS": rows,
        "ROW_BLOCKS": triton.cdiv(shape.group, rows),
        "HEAD_DIM": shape.head_dim,
        "VALUE_DIM": shape.value_dim,
        "K_MAIN": main,
        "K_REST": max(_LEAST_DOT, triton.next_power_of_2(rest)) if rest > 0 else 0,
        "V_BLOCK": v_block,
        "TOKENS": tokens,
        "PAGE": 0 if shape.page_size % tokens == 0 else shape.page_size,
        "SPLIT": splits > 1,
        "LATENT": shape.latent and shape.value_dim == v_block == main,
        "DOT": _dot_type(dtype),
        # Matrix units would round float32 to 10 bits.
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
    }


def _dot_type(dtype: torch.dtype) -> tl.dtype:
    # The interpreter multiplies the bits of bfloat16 as whole numbers: triton-lang/triton#11584.
    if dtype == torch.bfloat16 and isinstance(attend, InterpretedFunction):
        return tl.float32
    return {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}[
        dtype
    ]


def join_constants(shape: DecodeShape) -> dict[str, int]:
    """Return what the joining kernel is compiled for."""
    return {
        "HEADS": shape.q_heads,
        "VALUE_DIM": shape.value_dim,
        "V_BLOCK": triton.next_power_of_2(shape.value_dim),
        "BLOCK": _JOIN_SPLITS,
    }


# --------------------------------------------------------------------------- what is refused


def _check_kernel(shape: DecodeShape, q: torch.Tensor) -> None:
    for name, value, most in (
        ("head_dim", shape.head_dim, MOST_HEAD_DIM),
        ("value_dim", shape.value_dim, MOST_HEAD_DIM),
        ("batch", shape.batch, _MOST_BATCH),
        ("the longest length", shape.longest, _MOST_LENGTH),
    ):
        if value > most:
            raise LedgerError(f"{name} is {value}; accepted by the Triton kernel: at most {most}")
    if q.device.type != "cuda" and not isinstance(attend, InterpretedFunction):
        raise LedgerError(
            f"q is on {q.device}; accepted by the Triton kernel: a GPU "
            "(or TRITON_INTERPRET=1 set before Triton is imported, for tests)"
        )


def _check_tiles(tiles: Tiles) -> None:
    tokens, split = tiles.tokens, tiles.split_tokens
    if tokens < _LEAST_DOT or tokens & (tokens - 1):
        raise LedgerError(
            f"tiles.tokens is {tokens}; accepted: a power of two, at least {_LEAST_DOT}"
        )
    if split is not None and (split < 1 or split % tokens):
        raise LedgerError(
            f"tiles.split_tokens is {split}; accepted: a multiple of the {tokens} tokens of a step"
        )
