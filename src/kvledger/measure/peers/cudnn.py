"""cuDNN's attention with page tables, through its frontend's graphs."""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from kvledger.measure.peers.device_tables import filled_table
from kvledger.measure.peers.peer import LibraryPeer, Step, Tensors
from kvledger.measure.peers.peer_case import Asked, Case
from kvledger.measure.peers.refusal_reasons import (
    cannot_import,
    first_line,
    needs_dtype,
    needs_gpu,
)

#: The first cuDNN with page tables.
_LEAST_VERSION = 90500


class CudnnPaged(LibraryPeer):
    """cuDNN's ``sdpa`` with a page table for K and one for V, built once as a graph.

    The pages are read where they lie: their order of dimensions is told by strides. What cuDNN
    supports it says when the graph is built. API read in nvidia-cudnn-frontend 1.32.0, which
    builds this graph's operations with cuDNN 9.28.1.
    """

    name = "cudnn_paged"
    about = "cuDNN's scaled dot-product attention with page tables"

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason without a GPU, the frontend, or a cuDNN that knows page tables."""
        return needs_gpu(device) or cannot_import("cudnn") or too_old()

    def refuses(self, case: Case, device: torch.device | str) -> str | None:
        """Return a reason for other data types, or heads that are no multiple of eight."""
        head_dim, value_dim = case.head_dim, case.value_dim
        if head_dim % 8 or value_dim % 8:
            return f"takes heads of multiples of 8, not {head_dim} and {value_dim}"
        return needs_dtype(case, "float16", "bfloat16")

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        cudnn = importlib.import_module("cudnn")
        device = tensors.q.device
        handle = handle_of(device)
        built = build_graph(cudnn, asked, tensors, handle=handle)
        built.graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        workspace = torch.empty(
            max(built.graph.get_workspace_size(), 1), dtype=torch.uint8, device=device
        )
        execute = partial(built.graph.execute, built.bindings, workspace, handle=handle)

        def step() -> torch.Tensor:
            execute()
            return built.out

        return step


class CudnnGraph(NamedTuple):
    """A graph of one attention step, the tensors bound to it, and where its output goes."""

    graph: Any
    bindings: dict[Any, torch.Tensor]
    out: torch.Tensor


def build_graph(cudnn: Any, asked: Asked, tensors: Tensors, **options: Any) -> CudnnGraph:
    """Describe a paged decode step to cuDNN; nothing is compiled or launched yet."""
    types = cudnn.data_type
    kinds = {
        torch.float16: types.HALF,
        torch.bfloat16: types.BFLOAT16,
        torch.int32: types.INT32,
    }
    graph = cudnn.pygraph(
        io_data_type=kinds[tensors.q.dtype],
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        **options,
    )
    bindings: dict[Any, torch.Tensor] = {}

    def bind(name: str, tensor: torch.Tensor) -> Any:
        described = graph.tensor(
            name=name,
            dim=list(tensor.shape),
            stride=list(tensor.stride()),
            data_type=kinds[tensor.dtype],
        )
        bindings[described] = tensor
        return described

    # One query row a request: [batch, q_heads, 1, head_dim].
    q = bind("q", tensors.q[:, :, None])
    k = bind("k", tensors.k_pages.transpose(1, 2))  # [pages, kv_heads, page_size, head_dim]
    v = bind("v", tensors.v_pages.transpose(1, 2))
    table = filled_table(tensors.page_table, tensors.lengths, asked.page_size)[:, None, :, None]
    lengths = tensors.lengths[:, None, None, None]
    output, _ = graph.sdpa(
        name="decode",
        q=q,
        k=k,
        v=v,
        generate_stats=False,
        attn_scale=tensors.scale,
        use_padding_mask=True,
        seq_len_q=bind("seq_len_q", torch.ones_like(lengths)),
        seq_len_kv=bind("seq_len_kv", lengths),
        paged_attention_k_table=bind("k_table", table),
        paged_attention_v_table=bind("v_table", table),
        paged_attention_max_seq_len_kv=asked.max_pages * asked.page_size,
    )
    out = tensors.q.new_empty(asked.batch, asked.q_heads, asked.value_dim)
    wide = out[:, :, None]
    output.set_output(True).set_dim(list(wide.shape)).set_stride(list(wide.stride()))
    bindings[output] = wide  # as many dimensions as are told
    return CudnnGraph(graph, bindings, out)


def handle_of(device: torch.device) -> Any:
    """Return cuDNN's handle for a device, on torch's current stream there."""
    handle = _new_handle(device)
    stream = torch.cuda.current_stream(device).cuda_stream
    importlib.import_module("cudnn").set_stream(handle, stream)
    return handle


@cache
def _new_handle(device: torch.device) -> Any:
    with torch.cuda.device(device):
        return importlib.import_module("cudnn").create_handle()


def too_old() -> str | None:
    """Return a reason if the cuDNN that the frontend finds has no page tables, or is not found."""
    try:
        version = importlib.import_module("cudnn").backend_version()
    except Exception as error:
        return f"the frontend finds no cuDNN ({first_line(error)})"
    if version < _LEAST_VERSION:
        return f"needs cuDNN {_LEAST_VERSION}; this is {version}"
    return None
