"""Paged attention of GPU libraries, each used where it can be imported, and the list of peers."""

from __future__ import annotations

import importlib
import inspect
import os
import warnings
from functools import cache, partial
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from kvledger.measure.decode_step import DecodeInputs, used_entries
from kvledger.measure.peers import (
    LEAST_DOT,
    FlexPaged,
    GatherSdpa,
    Peer,
    Sdpa,
    Step,
    Triton,
    cannot_import,
    filled_table,
    first_line,
)
from kvledger.measure.sweeps import DecodeShape

_HALVES = ("float16", "bfloat16")


class FlashPaged(Peer):
    """FlashAttention-2 inside torch, through ``varlen_attn`` and its ``block_table``.

    Signature read in torch 2.13.0; that of 2.11.0 has no ``block_table``.
    """

    name = "flash_paged"
    module = "torch.nn.attention.varlen"
    dtypes = _HALVES

    def _lacks(self, kind: str) -> str | None:
        if "block_table" in inspect.signature(_varlen_attn()).parameters:
            return None
        return f"torch {torch.__version__} hands no block_table to FlashAttention"

    def _odd(self, shape: DecodeShape, kind: str) -> str | None:
        if shape.page_size % 256:
            return f"pages of multiples of 256, not {shape.page_size}"
        dims = (shape.head_dim, shape.value_dim)
        if dims[0] != dims[1] or dims[0] > 256:
            return f"equal K and V heads up to 256, not {dims[0]} and {dims[1]}"
        return None

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        starts = (_one_query_each(inputs), _sums(inputs.lengths))
        return partial(
            _varlen_attn(),
            *(inputs.q.contiguous(), inputs.k_pages, inputs.v_pages),
            *(*starts, 1, shape.longest),
            scale=inputs.scale,
            enable_gqa=shape.group > 1,
            seqused_k=inputs.lengths,
            block_table=filled_table(inputs),
        )


def _varlen_attn() -> Any:
    return importlib.import_module(FlashPaged.module).varlen_attn


def _sums(counts: torch.Tensor) -> torch.Tensor:
    """Return where each request starts, and the end, where they hold so many: int32."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()


def _one_query_each(inputs: DecodeInputs) -> torch.Tensor:
    return _sums(torch.ones_like(inputs.lengths))


class FlashInfer(Peer):
    """FlashInfer's wrappers for batches of paged decode and for a latent cache, planned once.

    On matrix units where four or more query heads share a K and V head. Signatures read in
    flashinfer-python 0.7.4.
    """

    name = "flashinfer"
    module = "flashinfer"
    dtypes = _HALVES
    _WORKSPACE_BYTES = 128 << 20
    #: Elements of the one K vector of a token, and of its part that is V, that FlashInfer knows.
    _LATENT_DIMS = (576, 512)

    def _odd(self, shape: DecodeShape, kind: str) -> str | None:
        dims = (shape.head_dim, shape.value_dim)
        if shape.latent and (dims != self._LATENT_DIMS or shape.kv_heads != 1):
            heads = f"{shape.kv_heads} of {dims}"
            return f"a latent cache of one head of {self._LATENT_DIMS}, not {heads}"
        if not shape.latent and dims[0] != dims[1]:
            return f"equal K and V heads, not {dims[0]} and {dims[1]}"
        return None

    def extra_bytes(self, shape: DecodeShape) -> int:
        """Return the bytes of the workspace and of the table in rows."""
        return self._WORKSPACE_BYTES + 4 * shape.batch * shape.max_pages

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        library = importlib.import_module("flashinfer")
        workspace = torch.zeros(self._WORKSPACE_BYTES, dtype=torch.uint8, device=inputs.q.device)
        out = inputs.q.new_empty(shape.batch, shape.q_heads, shape.value_dim)
        types = {"q_data_type": inputs.q.dtype, "kv_data_type": inputs.k_pages.dtype}
        options = types | {"sm_scale": inputs.scale}
        q, (indptr, indices, last_page_len) = inputs.q.contiguous(), csr(inputs)
        if shape.latent:
            queries = _one_query_each(inputs)
            rows = library.mla.MLAPlanMetadata.csr(queries, indptr, indices, inputs.lengths)
            wrapper = library.mla.BatchMLAPagedAttentionWrapper(workspace)
            wrapper.plan(
                metadata=rows,
                num_heads=shape.q_heads,
                head_dim_ckv=shape.value_dim,
                head_dim_kpe=shape.head_dim - shape.value_dim,
                page_size=shape.page_size,
                causal=False,
                **options,
            )
            latent = inputs.k_pages[:, :, 0]  # [pages, page_size, head_dim]
            return partial(wrapper.run, query=q, kv_cache=latent, out=out)
        wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=shape.group >= 4
        )
        heads = (shape.q_heads, shape.kv_heads, shape.head_dim)
        wrapper.plan(indptr, indices, last_page_len, *heads, shape.page_size, **options)
        return partial(wrapper.run, q, (inputs.k_pages, inputs.v_pages), out=out)


def csr(inputs: DecodeInputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a page table in rows of CSR, as FlashInfer reads it: indptr, indices, last_page_len.

    All int32. Request r holds the pages ``indices[indptr[r]:indptr[r + 1]]``, and
    ``last_page_len[r]`` tokens in the last of them, 1 to page_size.
    """
    used = used_entries(inputs)
    last = (inputs.lengths - 1) % inputs.k_pages.shape[1] + 1
    return _sums(used.sum(1)), inputs.page_table[used], last.int()


class CudnnPaged(Peer):
    """cuDNN's ``sdpa`` with a page table for K and one for V, built once as a graph.

    The pages are read where they lie: their order of dimensions is told by strides. What cuDNN
    supports it says when the graph is built. API read in nvidia-cudnn-frontend 1.32.0, which
    builds this graph's operations with cuDNN 9.28.1.
    """

    name = "cudnn_paged"
    module = "cudnn"
    dtypes = _HALVES

    def _lacks(self, kind: str) -> str | None:
        least = 90500  # the first with page tables
        try:
            version = importlib.import_module("cudnn").backend_version()
        except Exception as error:
            return f"the frontend finds no cuDNN ({first_line(error)})"
        return None if version >= least else f"needs cuDNN {least}; this is {version}"

    def _odd(self, shape: DecodeShape, kind: str) -> str | None:
        dims = (shape.head_dim, shape.value_dim)
        if dims[0] % 8 or dims[1] % 8:
            return f"heads of multiples of 8, not {dims[0]} and {dims[1]}"
        return None

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        cudnn, device = importlib.import_module("cudnn"), inputs.q.device
        handle = cudnn_handle(device)
        graph, bindings, out = _cudnn_graph(cudnn, handle, shape, inputs)
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        n_bytes = max(graph.get_workspace_size(), 1)
        workspace = torch.empty(n_bytes, dtype=torch.uint8, device=device)
        execute = partial(graph.execute, bindings, workspace, handle=handle)

        def step() -> torch.Tensor:
            execute()
            return out

        return step


def _cudnn_graph(
    cudnn: Any, handle: Any, shape: DecodeShape, inputs: DecodeInputs
) -> tuple[Any, dict[Any, torch.Tensor], torch.Tensor]:
    """Describe a step to cuDNN: the graph, the tensors bound to it, and where its output goes."""
    types = cudnn.data_type
    kinds = {torch.float16: types.HALF, torch.bfloat16: types.BFLOAT16, torch.int32: types.INT32}
    graph = cudnn.pygraph(
        io_data_type=kinds[inputs.q.dtype],
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        handle=handle,
    )
    bindings: dict[Any, torch.Tensor] = {}

    def bind(name: str, tensor: torch.Tensor) -> Any:
        sizes: dict[str, Any] = {"dim": list(tensor.shape), "stride": list(tensor.stride())}
        described = graph.tensor(name=name, data_type=kinds[tensor.dtype], **sizes)
        bindings[described] = tensor
        return described

    table = filled_table(inputs)[:, None, :, None]
    lengths = inputs.lengths[:, None, None, None]
    output, _ = graph.sdpa(
        name="decode",
        # One query row a request: [batch, q_heads, 1, head_dim].
        q=bind("q", inputs.q[:, :, None]),
        k=bind("k", inputs.k_pages.transpose(1, 2)),  # [pages, kv_heads, page_size, head_dim]
        v=bind("v", inputs.v_pages.transpose(1, 2)),
        generate_stats=False,
        attn_scale=inputs.scale,
        use_padding_mask=True,
        seq_len_q=bind("seq_len_q", torch.ones_like(lengths)),
        seq_len_kv=bind("seq_len_kv", lengths),
        paged_attention_k_table=bind("k_table", table),
        paged_attention_v_table=bind("v_table", table),
        paged_attention_max_seq_len_kv=shape.max_pages * shape.page_size,
    )
    out = inputs.q.new_empty(shape.batch, shape.q_heads, shape.value_dim)
    wide = out[:, :, None]  # as many dimensions as are told
    output.set_output(True).set_dim(list(wide.shape)).set_stride(list(wide.stride()))
    bindings[output] = wide
    return graph, bindings, out


def cudnn_handle(device: torch.device) -> Any:
    """Return cuDNN's handle for a device, on torch's current stream there."""
    handle = _new_cudnn_handle(device)
    stream = torch.cuda.current_stream(device).cuda_stream
    importlib.import_module("cudnn").set_stream(handle, stream)
    return handle


@cache
def _new_cudnn_handle(device: torch.device) -> Any:
    with torch.cuda.device(device):
        return importlib.import_module("cudnn").create_handle()


class PallasPaged(Peer):
    """``paged_attention`` of JAX's Pallas kernels for GPUs; interpreted on a CPU, for tests.

    It has its own order of dimensions and no scale: the pages are copied and q is scaled once. It
    reads whole blocks of pages, each of a power of two elements: a table is filled up to one.
    Signature and kernel read in jax 0.10.2 and 0.11.2 (there deprecated).
    """

    name = "pallas_paged"
    module = "jax.experimental.pallas.ops.gpu.paged_attention"
    timed_by = "host"

    def __init__(self, *, interpret: bool = False) -> None:
        self._interpret = interpret

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason without a GPU, JAX, its kernel, or a JAX that sees the GPU."""
        # Else JAX takes three quarters of the GPU's memory when it starts.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return cannot_import(self.module) if self._interpret else super().absent(device)

    def _lacks(self, kind: str) -> str | None:
        backend = importlib.import_module("jax").default_backend()
        return None if backend == "gpu" else f"JAX finds no GPU (its backend is {backend})"

    def _odd(self, shape: DecodeShape, kind: str) -> str | None:
        dim, size = shape.head_dim, shape.page_size
        if dim != shape.value_dim:
            return f"equal K and V heads, not {dim} and {shape.value_dim}"
        if dim < LEAST_DOT or dim & (dim - 1):
            return f"heads of powers of two from {LEAST_DOT}, not {dim}"
        return f"pages of powers of two, not {size}" if size & (size - 1) else None

    def _extra_tokens(self, shape: DecodeShape) -> int:
        return shape.pages * shape.page_size  # in the kernel's order

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        jax: Any = importlib.import_module("jax")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            kernel = importlib.import_module(self.module).paged_attention
        units = 1
        if inputs.q.device.type == "cuda":
            units = torch.cuda.get_device_properties(inputs.q.device).multi_processor_count
        pages, splits = pallas_cut(shape, units)

        def to_jax(tensor: torch.Tensor) -> Any:
            return jax.dlpack.from_dlpack(tensor.contiguous())

        arguments = [
            to_jax(inputs.q * inputs.factor),
            to_jax(inputs.k_pages.permute(2, 0, 1, 3)),
            to_jax(inputs.v_pages.permute(2, 0, 1, 3)),
            to_jax(whole_blocks(filled_table(inputs), pages * splits)),
            to_jax(inputs.lengths),
        ]
        options = {"pages_per_compute_block": pages, "k_splits": splits}
        # Compiled by hand, so that a call does not look up what it is called with.
        compiled = kernel.lower(*arguments, **options, interpret=self._interpret).compile()

        def step() -> torch.Tensor:
            # Given torch's current stream, JAX makes it wait for the result.
            return from_dlpack(compiled(*arguments))

        return step


def pallas_cut(shape: DecodeShape, units: int) -> tuple[int, int]:
    """Return pages that a program reads at once, and stretches that a context is cut into.

    A block holds at least 64 tokens. Each multiprocessor is to have four programs, and a context
    at most 16 stretches, as many as the library's default.
    """
    pages, splits = max(1, 64 // shape.page_size), 1
    programs = shape.batch * shape.kv_heads
    while splits < min(16, 4 * units / programs) and 2 * splits * pages <= shape.max_pages:
        splits *= 2
    return pages, splits


def whole_blocks(table: torch.Tensor, entries: int) -> torch.Tensor:
    """Return a table whose rows are filled up to a multiple of so many entries."""
    missing = -table.shape[1] % entries
    return torch.cat([table, table[:, :1].expand(-1, missing)], dim=1)


#: One of each, this package's kernel and the contiguous baseline first.
PEERS: tuple[Peer, ...] = (
    Triton(),
    Sdpa(),
    GatherSdpa(),
    FlexPaged(),
    FlashPaged(),
    FlashInfer(),
    CudnnPaged(),
    PallasPaged(),
)
