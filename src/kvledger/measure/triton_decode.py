"""Paged decode attention on a GPU in Triton: two kernels, and how their work is cut and launched.

A program of :func:`attend` reads one K and V head of one request, along one stretch of its tokens.
The query heads that share that head are the rows of one matrix, padded to the 16 rows that matrix
units take, so K and V are read once for all of them. :func:`join` joins the stretches.

Each token's page is looked up in the table. Where pages hold whole tiles of tokens, one entry
serves a tile; the contiguous layout is that case, a table with one page a request. So the layouts
differ in what is looked up and where it lies, and in nothing else.

The kernels are written for Hopper and are right wherever Triton runs, its interpreter included
(``TRITON_INTERPRET=1``), whose times mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from kvledger.core.errors import LedgerError
from kvledger.measure.decode_step import DecodeInputs, check_decode
from kvledger.measure.sweeps import DecodeShape

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


@triton.jit(do_not_specialize=["page_size", "splits"])  # type: ignore[untyped-decorator]
def attend(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    out_ptr,
    partial_ptr,
    weight_ptr,
    scale,
    page_size,
    split_tokens,
    splits,
    q_batch_stride,
    q_head_stride,
    k_page_stride,
    k_slot_stride,
    k_head_stride,
    v_page_stride,
    v_slot_stride,
    v_head_stride,
    table_stride,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ROW_BLOCKS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    K_MAIN: tl.constexpr,
    K_REST: tl.constexpr,
    V_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    PAGE: tl.constexpr,
    SPLIT: tl.constexpr,
    LATENT: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend from the query heads of one K and V head to one stretch of a request's tokens.

    PAGE is the page size where a tile may hold tokens of several pages, and 0 where every page
    holds whole tiles; then page_size is read when the program runs. DOT is the type that matrix
    units are given: q's own, but float32 where the interpreter cannot multiply bfloat16.
    """
    # Heads are neighbours in memory, so programs that run side by side take neighbouring heads.
    head = tl.program_id(0) // ROW_BLOCKS
    row_block = tl.program_id(0) % ROW_BLOCKS
    split = tl.program_id(1)
    request = tl.program_id(2)

    length = tl.load(lengths_ptr + request)
    first = split * split_tokens
    if first >= length:
        return
    last = tl.minimum(first + split_tokens, length)

    rows = row_block * ROWS + tl.arange(0, ROWS)
    is_row = rows < GROUP
    q_heads = head * GROUP + rows
    main = tl.arange(0, K_MAIN)
    values = tl.arange(0, V_BLOCK)
    within = tl.arange(0, TOKENS)

    q_row = q_ptr + request.to(tl.int64) * q_batch_stride + q_heads[:, None] * q_head_stride
    q_main = tl.load(
        q_row + main[None, :], mask=is_row[:, None] & (main < HEAD_DIM)[None, :], other=0.0
    )
    if K_REST:
        rest = K_MAIN + tl.arange(0, K_REST)
        q_rest = tl.load(
            q_row + rest[None, :], mask=is_row[:, None] & (rest < HEAD_DIM)[None, :], other=0.0
        )

    table = table_ptr + request.to(tl.int64) * table_stride
    k_head = k_ptr + head.to(tl.int64) * k_head_stride
    v_head = v_ptr + head.to(tl.int64) * v_head_stride

    greatest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    gathered = tl.zeros([ROWS, V_BLOCK], tl.float32)

    for start in range(first, last, TOKENS):
        tokens = start + within
        held = tokens < last
        if PAGE:
            page = tl.load(table + tokens // PAGE, mask=held, other=0).to(tl.int64)
            slot = (tokens % PAGE).to(tl.int64)
        else:
            page = tl.load(table + start // page_size).to(tl.int64)
            slot = (start % page_size + within).to(tl.int64)
        k_slot = k_head + page * k_page_stride + slot * k_slot_stride
        k_mask = held[:, None]
        if K_MAIN > HEAD_DIM:
            k_mask = k_mask & (main < HEAD_DIM)[None, :]
        k_main = tl.load(k_slot[:, None] + main[None, :], mask=k_mask, other=0.0)
        if not LATENT:
            v_slot = v_head + page * v_page_stride + slot * v_slot_stride
            v_mask = held[:, None]
            if V_BLOCK > VALUE_DIM:
                v_mask = v_mask & (values < VALUE_DIM)[None, :]
            v = tl.load(v_slot[:, None] + values[None, :], mask=v_mask, other=0.0)
        k_main = k_main.to(q_main.dtype).to(DOT)
        scores = tl.dot(q_main.to(DOT), tl.trans(k_main), input_precision=PRECISION)
        if K_REST:
            rest_mask = held[:, None]
            if K_MAIN + K_REST > HEAD_DIM:
                rest_mask = rest_mask & (rest < HEAD_DIM)[None, :]
            k_rest = tl.load(k_slot[:, None] + rest[None, :], mask=rest_mask, other=0.0)
            k_rest = k_rest.to(q_rest.dtype).to(DOT)
            scores += tl.dot(q_rest.to(DOT), tl.trans(k_rest), input_precision=PRECISION)
        scores = tl.where(held[None, :], scores * scale, float("-inf"))

        # A stretch has a token, and tiles start at one that is held: never all minus infinity.
        higher = tl.maximum(greatest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(greatest - higher)
        total = total * shrink + tl.sum(weights, 1)
        gathered = gathered * shrink[:, None]
        weights = weights.to(q_main.dtype).to(DOT)
        if LATENT:
            gathered = tl.dot(weights, k_main, gathered, input_precision=PRECISION)
        else:
            v = v.to(q_main.dtype).to(DOT)
            gathered = tl.dot(weights, v, gathered, input_precision=PRECISION)
        greatest = higher

    result = gathered / total[:, None]
    mask = is_row[:, None] & (values < VALUE_DIM)[None, :]
    row = request.to(tl.int64) * HEADS + q_heads
    if not SPLIT:
        tl.store(
            out_ptr + row[:, None] * VALUE_DIM + values[None, :],
            result.to(out_ptr.dtype.element_ty),
            mask=mask,
        )
    else:
        part = row * splits + split
        tl.store(partial_ptr + part[:, None] * VALUE_DIM + values[None, :], result, mask=mask)
        tl.store(weight_ptr + part, greatest + tl.log2(total), mask=is_row)


@triton.jit(do_not_specialize=["splits"])  # type: ignore[untyped-decorator]
def join(  # type: ignore[no-untyped-def]
    partial_ptr,
    weight_ptr,
    lengths_ptr,
    out_ptr,
    split_tokens,
    splits,
    HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    V_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Join the stretches of one query head, each weighted by the sum of its exponentials."""
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths_ptr + row // HEADS)
    used = (length + split_tokens - 1) // split_tokens
    values = tl.arange(0, V_BLOCK)
    greatest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    gathered = tl.zeros([V_BLOCK], tl.float32)
    for first in range(0, used, BLOCK):
        split = first + tl.arange(0, BLOCK)
        held = split < used
        part = row * splits + split
        weight = tl.load(weight_ptr + part, mask=held, other=float("-inf"))
        partial = tl.load(
            partial_ptr + part[:, None] * VALUE_DIM + values[None, :],
            mask=held[:, None] & (values < VALUE_DIM)[None, :],
            other=0.0,
        )
        higher = tl.maximum(greatest, tl.max(weight, 0))
        factor = tl.exp2(weight - higher)
        shrink = tl.exp2(greatest - higher)
        total = total * shrink + tl.sum(factor, 0)
        gathered = gathered * shrink + tl.sum(partial * factor[:, None], 0)
        greatest = higher
    tl.store(
        out_ptr + row * VALUE_DIM + values,
        (gathered / total).to(out_ptr.dtype.element_ty),
        mask=values < VALUE_DIM,
    )


class Tiles(NamedTuple):
    """How the work is cut: tokens a step, warps a program, steps in flight, tokens a program.

    Without ``split_tokens`` the stretch of a program is chosen by the sizes of the batch.
    """

    tokens: int
    warps: int
    stages: int
    split_tokens: int | None = None


class DecodePlan:
    """A decode step whose inputs are checked and whose memory is there: call it to launch it.

    It has ``splits`` stretches and writes ``out``. The tensors are read anew by each call; their
    shapes, the page table and the lengths must stay within what was checked.
    """

    def __init__(self, inputs: DecodeInputs, tiles: Tiles | None = None) -> None:
        q, k_pages, v_pages, page_table, lengths, _ = inputs
        self.shape = shape = check_decode(inputs)
        _check_kernel(shape, q)
        self.tiles = default_tiles(shape, k_pages.itemsize) if tiles is None else tiles
        units = _INTERPRETED_UNITS
        if q.device.type == "cuda":
            units = torch.cuda.get_device_properties(q.device).multi_processor_count
        split_tokens = _split_tokens(shape, self.tiles, units)
        self.splits = triton.cdiv(shape.longest, split_tokens)
        self.out = q.new_empty(shape.batch, shape.q_heads, shape.value_dim)
        parts = (shape.batch, shape.q_heads, self.splits if self.splits > 1 else 0)
        partial = q.new_empty(*parts, shape.value_dim, dtype=torch.float32)
        weight = q.new_empty(*parts, dtype=torch.float32)
        self._constants = attend_constants(shape, self.tiles.tokens, self.splits)
        self._grid = (shape.kv_heads * self._constants["ROW_BLOCKS"], self.splits, shape.batch)
        self._attend = (
            *inputs[:5],
            self.out,
            partial,
            weight,
            inputs.factor * _LOG2_E,
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
        warps, stages = self.tiles.warps, self.tiles.stages
        attend[self._grid](*self._attend, **self._constants, num_warps=warps, num_stages=stages)
        if self.splits > 1:
            rows = self.shape.batch * self.shape.q_heads
            join[(rows,)](*self._join, **join_constants(self.shape))
        return self.out


#: Tiles found by timing, by device, types and heads.
_tuned: dict[tuple[Any, ...], Tiles] = {}


def tuned_plan(inputs: DecodeInputs) -> DecodePlan:
    """Check a decode step, get its memory, and return what launches it, under tuned tiles.

    On a GPU, a few ways to cut the work are timed when heads of this shape and type first come in a
    large step, and the fastest is kept: so layouts and page sizes are compared under the same
    tiles. What the kernel cannot do is a LedgerError before any launch.
    """
    plan, q, k_pages = DecodePlan(inputs), inputs.q, inputs.k_pages
    if q.device.type != "cuda":
        return plan
    shape = plan.shape
    heads = (shape.kv_heads, shape.group, shape.head_dim, shape.value_dim, shape.latent)
    key = (q.device, q.dtype, k_pages.dtype, *heads)
    if key not in _tuned:
        if shape.tokens * shape.kv_heads * shape.head_dim * k_pages.itemsize < _LEAST_TUNED_BYTES:
            return plan
        others = (DecodePlan(inputs, each) for each in candidate_tiles(plan.tiles))
        _tuned[key] = _fastest(plan, others).tiles
    return DecodePlan(inputs, _tuned[key])


def _fastest(plan: DecodePlan, others: Iterable[DecodePlan]) -> DecodePlan:
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


def default_tiles(shape: DecodeShape, itemsize: int) -> Tiles:
    """Choose tiles for a shape and the bytes of an element of the cache."""
    row_bytes = (shape.head_dim + (0 if shape.latent else shape.value_dim)) * itemsize
    tokens = 64
    while tokens > _LEAST_DOT and tokens * row_bytes > _STAGE_BYTES:
        tokens //= 2
    # Without matrix units, float32 products would need more registers than four warps have.
    warps = 8 if itemsize == 4 else 4
    # Two of the stages look pages up, so five keep two steps of K and V in flight.
    return Tiles(tokens, warps, 5)


def candidate_tiles(chosen: Tiles) -> Iterator[Tiles]:
    """Yield other tiles to try: more or fewer steps in flight, more warps, longer, shorter steps.

    Tests hold the machine code of each for Hopper: none spills, and all load sixteen bytes at a
    time. That rules out longer steps with eight warps, and eight warps for short steps.
    """
    yield chosen._replace(stages=3)
    yield chosen._replace(stages=7)
    yield chosen._replace(tokens=2 * chosen.tokens, stages=3)
    if chosen.tokens >= _STEP_OF_EIGHT_WARPS:
        yield chosen._replace(warps=8)
    if chosen.tokens > _LEAST_DOT:
        yield chosen._replace(tokens=chosen.tokens // 2, stages=7)


def _split_tokens(shape: DecodeShape, tiles: Tiles, units: int) -> int:
    """Return a stretch that gives every unit several programs, all nearly as long."""
    tokens, split = tiles.tokens, tiles.split_tokens
    if tokens < _LEAST_DOT or tokens & (tokens - 1):
        accepted = f"a power of two, at least {_LEAST_DOT}"
        raise LedgerError(f"tiles.tokens is {tokens}; accepted: {accepted}")
    if split is not None:
        if split < 1 or split % tokens:
            accepted = f"a multiple of the {tokens} tokens of a step"
            raise LedgerError(f"tiles.split_tokens is {split}; accepted: {accepted}")
        return split
    heads = shape.kv_heads * triton.cdiv(shape.group, _rows(shape.group))
    wanted = shape.tokens * heads // (units * _PROGRAMS_PER_UNIT)
    splits = triton.cdiv(shape.longest, max(wanted, _LEAST_SPLIT_TOKENS))
    return int(triton.cdiv(triton.cdiv(shape.longest, splits), tokens)) * tokens


def _rows(group: int) -> int:
    return int(min(_MOST_ROWS, max(_LEAST_DOT, triton.next_power_of_2(group))))


def attend_constants(shape: DecodeShape, tokens: int, splits: int) -> dict[str, Any]:
    """Return what the attending kernel is compiled for: tokens a step, and whether it is split."""
    # A head that is no power of two is a power of two and a rest: 576 is 512 and 64.
    main = max(_LEAST_DOT, 1 << (shape.head_dim.bit_length() - 1))
    rest = shape.head_dim - main
    v_block = max(_LEAST_DOT, triton.next_power_of_2(shape.value_dim))
    rows = _rows(shape.group)
    dot = {"float16": tl.float16, "bfloat16": tl.bfloat16, "float32": tl.float32}[shape.dtype]
    # The interpreter multiplies the bits of bfloat16 as whole numbers: triton-lang/triton#11584.
    if dot == tl.bfloat16 and isinstance(attend, InterpretedFunction):
        dot = tl.float32
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
        "DOT": dot,
        # Matrix units would round float32 to 10 bits.
        "PRECISION": "ieee" if shape.dtype == "float32" else "tf32",
    }


def join_constants(shape: DecodeShape) -> dict[str, int]:
    """Return what the joining kernel is compiled for."""
    return {
        "HEADS": shape.q_heads,
        "VALUE_DIM": shape.value_dim,
        "V_BLOCK": triton.next_power_of_2(shape.value_dim),
        "BLOCK": _JOIN_SPLITS,
    }


def _check_kernel(shape: DecodeShape, q: torch.Tensor) -> None:
    """Refuse what the kernel cannot do, before any launch."""
    accepted = "accepted by the Triton kernel"
    for name, value, most in (
        ("head_dim", shape.head_dim, MOST_HEAD_DIM),
        ("value_dim", shape.value_dim, MOST_HEAD_DIM),
        ("batch", shape.batch, _MOST_BATCH),
        ("the longest length", shape.longest, _MOST_LENGTH),
    ):
        if value > most:
            raise LedgerError(f"{name} is {value}; {accepted}: at most {most}")
    if q.device.type != "cuda" and not isinstance(attend, InterpretedFunction):
        raise LedgerError(f"q is on {q.device}; {accepted}: a GPU (or TRITON_INTERPRET=1, to test)")
