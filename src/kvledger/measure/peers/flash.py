"""FlashAttention through a page table, as torch carries it, and FlashInfer."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import Any

import torch

from kvledger.measure.peers.device_tables import csr, filled_table
from kvledger.measure.peers.peer import LibraryPeer, Step, Tensors
from kvledger.measure.peers.peer_case import Asked, Case
from kvledger.measure.peers.refusal_reasons import cannot_import, needs_dtype, needs_gpu

_HALVES = ("float16", "bfloat16")
_WORKSPACE_BYTES = 128 << 20
#: Elements of the one K vector of a token, and of its part that is V, that FlashInfer knows.
_LATENT_DIMS = (576, 512)


class FlashPaged(LibraryPeer):
    """FlashAttention-2 inside torch, through ``varlen_attn`` and its ``block_table``.

    Signature read in torch 2.13.0; that of 2.11.0 has no ``block_table``. The kernel takes pages
    of multiples of 256 tokens and heads of up to 256 elements, K and V alike.
    """

    name = "flash_paged"
    about = "FlashAttention-2 as torch carries it, with its block table"

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason without a GPU, or with a torch that hands no table to the kernel."""
        reason = needs_gpu(device) or cannot_import("torch.nn.attention.varlen")
        return reason or lacks_block_table()

    def refuses(self, case: Case, device: torch.device | str) -> str | None:
        """Return a reason for other page sizes, heads or data types."""
        if case.page_size % 256:
            return f"takes pages of multiples of 256, not {case.page_size}"
        if case.head_dim != case.value_dim or case.head_dim > 256:
            return f"takes equal K and V heads up to 256, not {case.head_dim} and {case.value_dim}"
        return needs_dtype(case, *_HALVES)

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        from torch.nn.attention.varlen import varlen_attn

        q, lengths = tensors.q.contiguous(), tensors.lengths
        table = filled_table(tensors.page_table, lengths, asked.page_size)
        starts = torch.zeros(asked.batch + 1, dtype=torch.int32, device=q.device)
        starts[1:] = lengths.cumsum(0)
        queries = torch.arange(asked.batch + 1, dtype=torch.int32, device=q.device)
        attend: Any = varlen_attn
        return partial(
            attend,
            q,
            tensors.k_pages,
            tensors.v_pages,
            queries,
            starts,
            1,
            asked.longest,
            scale=tensors.scale,
            enable_gqa=asked.group > 1,
            seqused_k=lengths,
            block_table=table,
        )


def lacks_block_table() -> str | None:
    """Return a reason if this torch's ``varlen_attn`` takes no table, or None."""
    from torch.nn.attention.varlen import varlen_attn

    if "block_table" in inspect.signature(varlen_attn).parameters:
        return None
    return f"torch {torch.__version__} hands no block_table to FlashAttention"


class FlashInfer(LibraryPeer):
    """FlashInfer's wrappers for batches of paged decode, planned once.

    ``BatchDecodeWithPagedKVCacheWrapper`` on matrix units where four or more query heads share a K
    and V head, and ``BatchMLAPagedAttentionWrapper`` for a latent cache. Signatures read in
    flashinfer-python 0.7.4.
    """

    name = "flashinfer"
    about = "FlashInfer's batch decode with a paged cache"

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason without a GPU or the library."""
        return needs_gpu(device) or cannot_import("flashinfer")

    def refuses(self, case: Case, device: torch.device | str) -> str | None:
        """Return a reason for other data types, and for unequal heads that are not latent."""
        dims = (case.head_dim, case.value_dim)
        if case.latent and (dims != _LATENT_DIMS or case.kv_heads != 1):
            heads = f"{case.kv_heads} of {dims}"
            return f"takes a latent cache of one head of {_LATENT_DIMS}, not {heads}"
        if not case.latent and case.head_dim != case.value_dim:
            return f"takes equal K and V heads, not {case.head_dim} and {case.value_dim}"
        return needs_dtype(case, *_HALVES)

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes of the workspace and of the table in rows."""
        return _WORKSPACE_BYTES + 4 * case.batch * case.max_pages

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        library = importlib.import_module("flashinfer")
        workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=tensors.q.device)
        plan = plan_latent if asked.latent else plan_heads
        return plan(library, workspace, asked, tensors)


def plan_heads(library: Any, workspace: torch.Tensor, asked: Asked, tensors: Tensors) -> Step:
    """Plan FlashInfer's decode wrapper, and return its run."""
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_tensor_cores=asked.group >= 4
    )
    wrapper.plan(
        *csr(tensors.page_table, tensors.lengths, asked.page_size),
        asked.q_heads,
        asked.kv_heads,
        asked.head_dim,
        asked.page_size,
        q_data_type=tensors.q.dtype,
        kv_data_type=tensors.k_pages.dtype,
        sm_scale=tensors.scale,
    )
    out = tensors.q.new_empty(asked.batch, asked.q_heads, asked.value_dim)
    q, pages = tensors.q.contiguous(), (tensors.k_pages, tensors.v_pages)
    return partial(wrapper.run, q, pages, out=out)


def plan_latent(library: Any, workspace: torch.Tensor, asked: Asked, tensors: Tensors) -> Step:
    """Plan FlashInfer's wrapper for a latent cache, and return its run."""
    rows = csr(tensors.page_table, tensors.lengths, asked.page_size)
    queries = torch.arange(asked.batch + 1, dtype=torch.int32, device=tensors.q.device)
    wrapper = library.mla.BatchMLAPagedAttentionWrapper(workspace)
    wrapper.plan(
        metadata=library.mla.MLAPlanMetadata.csr(
            queries, rows.indptr, rows.indices, tensors.lengths
        ),
        num_heads=asked.q_heads,
        head_dim_ckv=asked.value_dim,
        head_dim_kpe=asked.head_dim - asked.value_dim,
        page_size=asked.page_size,
        causal=False,
        sm_scale=tensors.scale,
        q_data_type=tensors.q.dtype,
        kv_data_type=tensors.k_pages.dtype,
    )
    out = tensors.q.new_empty(asked.batch, asked.q_heads, asked.value_dim)
    latent = tensors.k_pages[:, :, 0]  # [pages, page_size, head_dim]
    return partial(wrapper.run, query=tensors.q.contiguous(), kv_cache=latent, out=out)
