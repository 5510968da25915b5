"""Torch's FlexAttention with its paged class, compiled for each shape and page size."""

from __future__ import annotations

import types
from functools import cache
from typing import Any

import torch

from kvledger.measure.peers.device_tables import filled_table, physical_to_logical
from kvledger.measure.peers.peer import LibraryPeer, RefusedError, Step, Tensors
from kvledger.measure.peers.peer_case import Asked, Case
from kvledger.measure.peers.refusal_reasons import cannot_import, first_line, needs_gpu

_MODULE = "torch.nn.attention.experimental._paged_attention"
#: Query rows of a block mask: the kernels ask for a multiple of the rows that they take at once.
_QUERY_BLOCK = 128
#: Rows of the smallest tile that a GPU's matrix units take.
_LEAST_DOT = 16


class FlexPaged(LibraryPeer):
    """``flex_attention`` on a block mask that ``PagedAttention`` converts to physical pages.

    The class hands out pages itself; here its two tables are set from the table that is given, so
    that the same placement is read. Whole pages are listed as full blocks, which no mask is
    computed for, and a last page that is not full as a partial one. Signatures and kernels read in
    torch 2.11.0 and 2.13.0: on a GPU a block of keys is at most a page and goes through matrix
    units, so pages are powers of two from 16.
    """

    name = "flex_paged"
    about = "torch's FlexAttention with its experimental PagedAttention"

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason where torch lacks the class, or nothing compiles for the device."""
        reason = cannot_import(_MODULE)
        if reason is not None:
            return reason
        if torch.device(device).type == "cpu":
            return _cannot_compile()
        return needs_gpu(device) or cannot_import("triton")

    def refuses(self, case: Case, device: torch.device | str) -> str | None:
        """Return a reason for pages too small or odd for a GPU."""
        size = case.page_size
        if torch.device(device).type == "cuda" and (size < _LEAST_DOT or size & (size - 1)):
            return f"takes pages of powers of two from {_LEAST_DOT} on a GPU, not {size}"
        return None

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes of the class's two tables and of the mask's lists."""
        # int64: where each page of the pool stands in a row, and the row's pages. int32: partial
        # and full blocks, listed by query block and by key block.
        return case.batch * (8 * (case.pages + case.max_pages) + 4 * 4 * case.pages)

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        mask = _block_mask(asked, tensors)
        q = tensors.q[:, :, None]
        # [1, kv_heads, tokens of the whole pool, dim]: views where a page's tokens are in a row.
        k = tensors.k_pages.flatten(0, 1).transpose(0, 1)[None]
        v = tensors.v_pages.flatten(0, 1).transpose(0, 1)[None]
        strides = (q.stride(), k.stride(), v.stride())
        # What the requests hold is read from the tensors: it is not compiled for.
        sizes = asked._replace(longest=0, ragged=False)
        attend = _compiled((sizes, q.device, tensors.scale, strides))
        scale = tensors.scale

        def step() -> torch.Tensor:
            with torch.no_grad():
                out: torch.Tensor = attend(q, k, v, mask, scale)
            return out[:, :, 0]

        return step


def _block_mask(asked: Asked, tensors: Tensors) -> Any:
    """Return the pages of each request as a block mask over the whole pool."""
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import BlockMask

    size = asked.page_size
    table, lengths = tensors.page_table, tensors.lengths
    # Its own tables are made for one page, and replaced.
    paged = PagedAttention(1, size, asked.batch, device=str(table.device))
    paged.n_pages = asked.pages
    paged.page_table = filled_table(table, lengths, size).long()
    paged.physical_to_logical = physical_to_logical(table, lengths, size, asked.pages)
    if int((paged.physical_to_logical >= 0).sum()) != int(((lengths + size - 1) // size).sum()):
        raise RefusedError(FlexPaged.name, "takes a page at most once in a request's table")
    full = (lengths // size).int()
    partial = (lengths % size > 0).int()
    entries = torch.arange(asked.max_pages, dtype=torch.int32, device=table.device)
    # The one partial block of a request, if there is one, comes after its full ones.
    rolled = (entries + full[:, None]) % asked.max_pages
    logical = BlockMask.from_kv_blocks(
        partial[:, None, None],
        rolled[:, None, None].contiguous(),
        full[:, None, None],
        entries.expand(asked.batch, 1, 1, -1).contiguous(),
        BLOCK_SIZE=(_QUERY_BLOCK, size),
        seq_lengths=(1, asked.max_pages * size),
        compute_q_blocks=False,
    )
    return paged.convert_logical_block_mask(logical, kv_len=lengths)


@cache
def _compiled(key: tuple[Any, ...]) -> Any:
    """Return FlexAttention to be compiled for one set of sizes; the next table reuses it.

    Torch counts the versions that it compiles of one code object and gives up after a few: each
    set of sizes gets a code object of its own.
    """
    code = _flex.__code__.replace(co_name=f"flex_{abs(hash(key))}")
    own = types.FunctionType(code, _flex.__globals__)
    return torch.compile(own, dynamic=False, fullgraph=True)


def _flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float
) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=True)


@cache
def _cannot_compile() -> str | None:
    """Return why FlexAttention cannot be compiled for this CPU, or None."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.kernel.flex import flex_cpu

    if not flex_cpu.check_cpu_supported():  # type: ignore[no-untyped-call]
        return "torch compiles it only for CPUs with AVX2, not on macOS"
    try:
        get_cpp_compiler()
    except Exception as error:
        return f"needs a C++ compiler ({first_line(error)})"
    return None
