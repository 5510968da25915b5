"""The Triton kernel under Triton's interpreter, against the reference in float64.

The interpreter is chosen in conftest.py, before Triton is imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import triton
from conftest import refused
from decode_steps import made_step
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.measure import triton_decode
from kvledger.measure.decode_step import FP8, DecodeInputs, paged_decode_reference
from kvledger.measure.sweeps import DecodeShape
from kvledger.measure.triton_decode import (
    MOST_HEAD_DIM,
    DecodePlan,
    Tiles,
    attend_constants,
    candidate_tiles,
    default_tiles,
)

#: ‖out − reference‖ / ‖reference of |V|‖ that rounding to each type explains.
MOST_ERROR = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
PAGE_SIZES = (*range(1, 34), 64)


def make_step(lengths: list[int], page_size: int, **sizes: Any) -> DecodeInputs:
    """A step whose pages hold NaN wherever no token is."""
    return made_step(lengths, page_size, **{"heads": (4, 2), "junk": math.nan} | sizes)


def check(step: DecodeInputs, tiles: Tiles | None = None) -> None:
    """Run the kernel into a poisoned output and compare it with the reference."""
    plan = DecodePlan(step, tiles)
    plan.out.fill_(math.nan)
    out = plan()
    assert out is plan.out
    assert out.dtype == step.q.dtype
    assert error_of(out, step) <= MOST_ERROR[step.q.dtype]


def error_of(out: torch.Tensor, step: DecodeInputs) -> float:
    """How far off the output is, beside what is added up in it: sums of values may cancel."""
    q, k, v = (tensor.float() for tensor in step[:3])
    added = paged_decode_reference(DecodeInputs(q, k, v.abs(), *step[3:]))
    error = float((out.double() - paged_decode_reference(step)).norm() / added.norm())
    assert not math.isnan(error)
    return error


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_every_page_size(page_size: int) -> None:
    """Ragged lengths: one token, a page less one, whole pages, and one more than a tile."""
    lengths = [1, max(1, page_size - 1), page_size, 3 * page_size, 2 * page_size + 1, 65]
    check(make_step(lengths, page_size))


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize("dtype", list(MOST_ERROR))
def test_every_type(dtype: torch.dtype, page_size: int) -> None:
    check(make_step([70, 16, 1], page_size, dtype=dtype))


@pytest.mark.parametrize("cache", FP8)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cache_of_eight_bits(dtype: torch.dtype, cache: torch.dtype) -> None:
    check(make_step([70, 16, 1], 16, dtype=dtype, cache=cache))


@pytest.mark.parametrize(
    ("q_heads", "kv_heads"), [(1, 1), (4, 4), (6, 2), (32, 8), (16, 1), (17, 1), (20, 1), (130, 1)]
)
def test_heads_in_groups(q_heads: int, kv_heads: int) -> None:
    check(make_step([33, 5], 4, heads=(q_heads, kv_heads), dims=(16, 16)))


@pytest.mark.parametrize(
    ("head_dim", "value_dim"),
    [(1, 1), (8, 8), (16, 16), (80, 80), (96, 96), (120, 120), (128, 128), (192, 128), (256, 256)],
)
def test_head_sizes(head_dim: int, value_dim: int) -> None:
    check(make_step([19, 40], 8, dims=(head_dim, value_dim)))


@pytest.mark.parametrize(("head_dim", "value_dim"), [(576, 512), (64, 64), (72, 48)])
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_a_latent_head_of_its_keys(head_dim: int, value_dim: int, page_size: int) -> None:
    dims = (head_dim, value_dim)
    step = make_step([37, 70], page_size, heads=(16, 1), dims=dims, latent=True)
    constants = attend_constants(DecodePlan(step).shape, 16, 1)
    # Only a power of two can be the main part of the key, and then K is read once for both.
    assert constants["LATENT"] == (value_dim in (64, 512))
    check(step)


@pytest.mark.parametrize("page_size", [1, 16, 48, 256])
@pytest.mark.parametrize("split_tokens", [16, 48, 160, 4096])
def test_stretches_join(split_tokens: int, page_size: int) -> None:
    """One stretch and many in one batch; 40 stretches take two steps of joining."""
    step = make_step([1, 16, 17, 641], page_size)
    plan = DecodePlan(step, Tiles(16, 4, 3, split_tokens))
    assert plan.splits == -(-641 // split_tokens)
    check(step, tiles=plan.tiles)


def test_the_identity_table_is_the_contiguous_layout() -> None:
    """One page a request: the same kernel reads one entry for each tile."""
    paged = make_step([64, 64], 4, foreign=0, spare_entries=0)
    k, v = (
        pages[paged.page_table.long()].flatten(1, 2) for pages in (paged.k_pages, paged.v_pages)
    )
    table = torch.tensor([[0], [1]], dtype=torch.int32)
    contiguous = DecodeInputs(paged.q, k, v, table, paged.lengths)
    check(contiguous)
    # The same tiles in the same order: the same bits.
    tiles = Tiles(32, 4, 3, 64)
    assert torch.equal(DecodePlan(contiguous, tiles)(), DecodePlan(paged, tiles)())


def test_tensors_may_be_strided() -> None:
    """K and V as the two halves of one allocation, the table as part of a wider one."""
    step = make_step([30, 9], 8)
    both = torch.stack((step.k_pages, step.v_pages), 1)
    wide = torch.zeros(2, step.page_table.shape[1] + 3, dtype=torch.int32)
    wide[:, : step.page_table.shape[1]] = step.page_table
    q = torch.zeros(2, 2 * step.q.shape[1], step.q.shape[2])
    q[:, ::2] = step.q
    strided = DecodeInputs(
        q[:, ::2], both[:, 0], both[:, 1], wide[:, : step.page_table.shape[1]], step.lengths
    )
    assert not strided.k_pages.is_contiguous()
    check(strided)


def test_pages_may_be_shared_scales_given_and_scores_large() -> None:
    step = make_step([48, 40], 8)
    check(step._replace(scale=0.02))
    check(step._replace(q=step.q * 1000))
    step.page_table[1, :3] = step.page_table[0, :3]
    check(step)


def test_a_plan_reads_its_tensors_anew() -> None:
    step = make_step([40, 3], 8)
    plan = DecodePlan(step)
    first = plan().clone()
    step.q.copy_(torch.randn_like(step.q))
    assert error_of(plan(), step) <= MOST_ERROR[torch.float32]
    assert not torch.equal(first, plan.out)


@st.composite
def steps(draw: st.DrawFn) -> tuple[DecodeInputs, Tiles]:
    lengths = draw(st.lists(st.integers(1, 90), min_size=1, max_size=4))
    kv_heads = draw(st.integers(1, 3))
    tokens = draw(st.sampled_from([16, 32, 64]))
    dtype = draw(st.sampled_from(list(MOST_ERROR)))
    step = make_step(
        lengths,
        draw(st.integers(1, 70)),
        heads=(kv_heads * draw(st.integers(1, 5)), kv_heads),
        dims=(draw(st.integers(1, 40)), draw(st.integers(1, 40))),
        dtype=dtype,
        foreign=draw(st.integers(0, 3)),
        spare_entries=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 2**16)),
    )
    return step, Tiles(tokens, 4, 3, tokens * draw(st.integers(1, 6)))


@pytest.mark.slow
@settings(max_examples=60)
@given(steps())
def test_random_cases(case: tuple[DecodeInputs, Tiles]) -> None:
    step, tiles = case
    check(step, tiles=tiles)


# --------------------------------------------------------------------------- how work is cut
@given(
    batch=st.integers(1, 256),
    longest=st.integers(1, 1 << 20),
    kv_heads=st.sampled_from([1, 2, 8, 32]),
    group=st.integers(1, 130),
    head_dim=st.integers(1, MOST_HEAD_DIM),
    page_size=st.integers(1, 300),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
)
def test_what_is_compiled_covers_the_shape(
    batch: int, longest: int, kv_heads: int, group: int, head_dim: int, page_size: int, dtype: str
) -> None:
    sizes = (kv_heads * group, kv_heads, head_dim, head_dim, page_size, 1, 1)
    shape = DecodeShape(dtype, batch, *sizes, longest, batch * longest, False)
    tiles = default_tiles(shape, getattr(torch, dtype).itemsize)
    constants = attend_constants(shape, tiles.tokens, 1)
    assert constants["ROWS"] * constants["ROW_BLOCKS"] >= group
    assert constants["K_MAIN"] + constants["K_REST"] >= head_dim
    assert constants["V_BLOCK"] >= head_dim
    for name in ("ROWS", "K_MAIN", "V_BLOCK", "TOKENS"):
        assert constants[name] >= 16
        assert constants[name] & (constants[name] - 1) == 0
    # One entry may serve a step only where no step holds tokens of two pages.
    assert constants["PAGE"] == (0 if page_size % tiles.tokens == 0 else page_size)


@pytest.mark.parametrize("batch", [1, 4, 64])
@pytest.mark.parametrize("longest", [1000, 8192, 100_000])
def test_work_is_cut_into_stretches_of_nearly_the_same_length(batch: int, longest: int) -> None:
    """A unit of the interpreter's small device has several programs; no stretch is a crumb."""
    pages = torch.zeros(1, longest, 2, 1)
    ones = torch.ones(batch, dtype=torch.int32)
    step = DecodeInputs(torch.zeros(batch, 2, 1), pages, pages, 0 * ones[:, None], longest * ones)
    plan = DecodePlan(step)
    least = longest - (plan.splits - 1) * -(-longest // plan.splits)
    assert plan.splits == 1 or least >= 256
    # Eight programs for each of eight units, or as many as stretches of 512 tokens give.
    assert batch * 2 * plan.splits >= min(64, batch * 2 * (longest // 512) // 2)


class Timed(NamedTuple):
    """Stands for a plan whose time is known."""

    tiles: Tiles
    milliseconds: float


def test_tuning_keeps_the_fastest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def milliseconds(plan: Timed) -> float:
        if math.isnan(plan.milliseconds):
            raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")
        return plan.milliseconds

    monkeypatch.setattr(triton_decode, "_milliseconds", milliseconds)
    start = Tiles(64, 4, 5)
    others = list(candidate_tiles(start))
    assert start not in others
    assert len(set(others)) == len(others)
    times = [3.0, math.nan, 1.0, 2.0, 5.0]
    plans = [Timed(tiles, time) for tiles, time in zip(others, times, strict=True)]
    kept = triton_decode._fastest(Timed(start, 4.0), iter(plans))
    assert kept == plans[2]


def test_every_candidate_computes_the_same() -> None:
    step = make_step([200, 33], 4)
    for tiles in candidate_tiles(Tiles(64, 4, 5)):
        check(step, tiles=tiles)


# --------------------------------------------------------------------------- what is refused
MOST = f"accepted by the Triton kernel: at most {MOST_HEAD_DIM}"


def changed(**fields: Any) -> DecodeInputs:
    """A step of one request with other fields, each of them its own entry's value."""
    step = make_step([4], 8)
    return step._replace(**{k: torch.full_like(getattr(step, k), v) for k, v in fields.items()})


def many() -> DecodeInputs:
    page, ones = torch.zeros(1, 1, 1, 1), torch.ones(65536, dtype=torch.int32)
    return DecodeInputs(torch.zeros(65536, 1, 1), page, page, 0 * ones[:, None], ones)


@pytest.mark.parametrize(
    ("make", "tiles", "message"),
    [
        (lambda: make_step([4], 8, dims=(MOST_HEAD_DIM + 1, 8)), None, f"head_dim is 577; {MOST}"),
        (lambda: changed(page_table=99), None, "page_table[0, 0] is 99; accepted"),
        (lambda: changed(lengths=0), None, "lengths[0] is 0; accepted: 1 to"),
        (many, None, "batch is 65536; accepted by the Triton kernel: at most 65535"),
        (changed, (24, 48), "tiles.tokens is 24; accepted: a power of two, at least 16"),
        (changed, (8, 48), "tiles.tokens is 8; accepted: a power of two, at least 16"),
        (changed, (32, 48), "tiles.split_tokens is 48; accepted: a multiple of the 32 tokens"),
        (changed, (32, 0), "tiles.split_tokens is 0; accepted: a multiple of the 32 tokens"),
    ],
)
def test_what_the_kernel_cannot_do_is_an_error(
    make: Callable[[], DecodeInputs],
    tiles: tuple[int, int] | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, cut = make(), Tiles(tiles[0], 4, 3, tiles[1]) if tiles else None
    monkeypatch.setattr(triton_decode.DecodePlan, "__call__", None)
    refused(re.escape(message), DecodePlan, step, cut)


def test_a_device_that_triton_cannot_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_decode, "InterpretedFunction", type(None))
    refused(r"q is on cpu; accepted by the Triton kernel: a GPU", DecodePlan, make_step([4], 8))
