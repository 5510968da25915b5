"""The Triton kernels of paged decode attention: one that attends, one that joins.

A program of :func:`attend` reads one K and V head of one request, along one stretch of its tokens.
The query heads that share that head are the rows of one matrix, padded to the 16 rows that matrix
units take, so K and V are read once for all of them. :func:`join` joins the stretches.

Each token's page is looked up in the table. Where pages hold whole tiles of tokens, one entry
serves a tile; the contiguous layout is that case, a table with one page a request. So the layouts
differ in what is looked up and where it lies, and in nothing else.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["page_size", "splits"])
def attend(
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


@triton.jit(do_not_specialize=["splits"])
def join(
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
