"""Stand-ins for GPU libraries: what each computes from its arguments, as its documentation says.

Each takes the arguments of the version that the peer's docstring names, by the same names and in
the same places, and answers in plain torch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import torch


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, group: int
) -> torch.Tensor:
    """One request: q [q_heads, head_dim], k and v [tokens, kv_heads, dim]."""
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    weights = torch.einsum("hd,thd->ht", q.double() * scale, keys).softmax(-1)
    return torch.einsum("ht,thv->hv", weights, values).to(q.dtype)


# --------------------------------------------------------------------------- FlashInfer


class DecodeWrapper:
    """flashinfer.BatchDecodeWithPagedKVCacheWrapper: NHD pages, a table in CSR."""

    made: ClassVar[list[DecodeWrapper]] = []

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
    ) -> None:
        assert kv_layout == "NHD"
        assert not float_workspace_buffer.any()
        self.use_tensor_cores = use_tensor_cores
        self.plans = 0
        self.made.append(self)

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        sm_scale: float,
    ) -> None:
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        self.plans += 1
        self._rows = (indptr.tolist(), indices.long(), last_page_len.tolist())
        self._sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._types, self._scale = (q_data_type, kv_data_type), sm_scale

    def run(
        self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, ...], *, out: torch.Tensor
    ) -> torch.Tensor:
        k, v = paged_kv_cache
        q_heads, kv_heads, head_dim, page_size = self._sizes
        assert q.is_contiguous()
        assert q.shape[1:] == (q_heads, head_dim)
        assert k.shape[1:] == v.shape[1:] == (page_size, kv_heads, head_dim)
        assert (q.dtype, k.dtype) == self._types
        starts, indices, last = self._rows
        for request in range(len(q)):
            pages = indices[starts[request] : starts[request + 1]]
            tokens = (len(pages) - 1) * page_size + last[request]
            keys, values = (x[pages].flatten(0, 1)[:tokens] for x in (k, v))
            out[request] = attend(q[request], keys, values, self._scale, q_heads // kv_heads)
        return out


class LatentWrapper:
    """flashinfer.mla.BatchMLAPagedAttentionWrapper with CSR metadata and packed inputs."""

    def __init__(self, float_workspace_buffer: torch.Tensor) -> None:
        assert not float_workspace_buffer.any()

    def plan(
        self,
        *,
        metadata: dict[str, torch.Tensor],
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        self._rows, self._latent = metadata, (num_heads, head_dim_ckv, head_dim_kpe, page_size)
        self._types, self._scale, self._causal = (q_data_type, kv_data_type), sm_scale, causal

    def run(
        self, *, query: torch.Tensor, kv_cache: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        heads, ckv, kpe, page_size = self._latent
        assert query.shape[1:] == (heads, ckv + kpe)
        assert kv_cache.shape[1:] == (page_size, ckv + kpe)
        assert (query.dtype, kv_cache.dtype) == self._types
        assert self._rows["qo_indptr"].tolist() == list(range(len(query) + 1))  # one query each
        starts = self._rows["kv_indptr"].tolist()
        for request, tokens in enumerate(self._rows["kv_len_arr"].tolist()):
            pages = self._rows["kv_indices"][starts[request] : starts[request + 1]].long()
            keys = kv_cache[pages].flatten(0, 1)[:tokens, None]
            out[request] = attend(query[request], keys, keys[..., :ckv], self._scale, heads)
        return out


class Metadata:
    """flashinfer.mla.MLAPlanMetadata."""

    @staticmethod
    def csr(
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        rows = {
            "qo_indptr": qo_indptr,
            "kv_indptr": kv_indptr,
            "kv_indices": kv_indices,
            "kv_len_arr": kv_len_arr,
        }
        assert all(row.dtype == torch.int32 for row in rows.values())
        return rows


flashinfer = SimpleNamespace(
    BatchDecodeWithPagedKVCacheWrapper=DecodeWrapper,
    mla=SimpleNamespace(BatchMLAPagedAttentionWrapper=LatentWrapper, MLAPlanMetadata=Metadata),
)


# --------------------------------------------------------------------------- FlashAttention


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: object = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> torch.Tensor:
    """torch.nn.attention.varlen.varlen_attn, with a block table and one query a request."""
    assert seqused_k is not None
    assert block_table is not None
    assert scale is not None
    assert cu_seq_q.tolist() == list(range(len(query) + 1))
    assert max_q == 1
    assert max_k == int(seqused_k.max())
    assert cu_seq_k is None or cu_seq_k.diff().equal(seqused_k)
    group = query.shape[1] // key.shape[2]
    assert enable_gqa or group == 1
    out = torch.empty_like(query)
    for request, tokens in enumerate(seqused_k.tolist()):
        pages = block_table[request].long()
        keys, values = (x[pages].flatten(0, 1)[:tokens] for x in (key, value))
        out[request] = attend(query[request], keys, values, scale, group)
    return out


# --------------------------------------------------------------------------- cuDNN


class Described:
    """A tensor of a cuDNN graph: what is said of it."""

    def __init__(self, **said: Any) -> None:
        self.__dict__.update(said)

    def set_output(self, is_output: bool) -> Described:
        assert is_output
        return self

    def set_dim(self, dim: list[int]) -> Described:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Described:
        self.stride = stride
        return self


class Graph:
    """cudnn.pygraph: reads every bound tensor by the sizes and strides that it was told."""

    def __init__(self, **types: Any) -> None:
        self.types, self.built = types, False

    def tensor(self, *, name: str, dim: Any, stride: Any, data_type: str) -> Described:
        return Described(name=name, dim=dim, stride=stride, data_type=data_type)

    def sdpa(self, **arguments: Any) -> tuple[Described, None]:
        assert arguments["use_padding_mask"]
        assert not arguments["generate_stats"]
        self.arguments, self.output = arguments, Described()
        return self.output, None

    def build(self, modes: list[str]) -> None:
        assert modes
        self.built = True

    def get_workspace_size(self) -> int:
        return 0

    def execute(
        self, bindings: dict[Described, torch.Tensor], workspace: torch.Tensor, *, handle: object
    ) -> None:
        assert self.built
        assert handle == self.types["handle"]

        def view(described: Described) -> torch.Tensor:
            tensor = bindings[described]
            assert tensor.dim() == len(described.dim) == len(described.stride) == 4
            return torch.as_strided(tensor, described.dim, described.stride)

        told = self.arguments
        q, k, v, out = (view(told["q"]), view(told["k"]), view(told["v"]), view(self.output))
        table_k = view(told["paged_attention_k_table"])[:, 0, :, 0].long()
        table_v = view(told["paged_attention_v_table"])[:, 0, :, 0].long()
        assert view(told["seq_len_q"]).flatten().tolist() == [1] * len(q)
        assert table_k.shape[1] * k.shape[2] == told["paged_attention_max_seq_len_kv"]
        for request, tokens in enumerate(view(told["seq_len_kv"]).flatten().tolist()):
            # [pages, heads, page_size, dim] -> [tokens, heads, dim]
            keys = k[table_k[request]].transpose(1, 2).flatten(0, 1)[:tokens]
            values = v[table_v[request]].transpose(1, 2).flatten(0, 1)[:tokens]
            group = q.shape[1] // k.shape[1]
            out[request, :, 0] = attend(q[request, :, 0], keys, values, told["attn_scale"], group)


def cudnn(version: int = 92801) -> SimpleNamespace:
    """The frontend beside a cuDNN of some version."""
    types = SimpleNamespace(HALF="half", BFLOAT16="bfloat16", FLOAT="float", INT32="int32")
    modes = SimpleNamespace(A="A", FALLBACK="fallback")
    return SimpleNamespace(
        data_type=types, heur_mode=modes, pygraph=Graph, backend_version=lambda: version
    )


def failing(error: Exception) -> Callable[..., Any]:
    """A function that raises."""

    def fail(*args: object, **kwargs: object) -> Any:
        raise error

    return fail
