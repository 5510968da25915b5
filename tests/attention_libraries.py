"""Stand-ins for GPU libraries: what each computes from its arguments, as its documentation says.

Each takes the arguments of the version that the peer's docstring names, by the same names and in
the same places, and answers in plain torch. They have no types, as the libraries have none.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import torch


def attend(q, k, v, scale, group):
    """One request: q [q_heads, head_dim], k and v [tokens, kv_heads, dim]."""
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    weights = torch.einsum("hd,thd->ht", q.double() * scale, keys).softmax(-1)
    return torch.einsum("ht,thv->hv", weights, values).to(q.dtype)


# --------------------------------------------------------------------------- FlashInfer
class DecodeWrapper:
    """flashinfer.BatchDecodeWithPagedKVCacheWrapper: NHD pages, a table in CSR."""

    made: ClassVar[list[DecodeWrapper]] = []

    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False
    ):
        assert kv_layout == "NHD"
        assert not float_workspace_buffer.any()
        self.use_tensor_cores = use_tensor_cores
        self.plans = 0
        self.made.append(self)

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        *, q_data_type, kv_data_type, sm_scale,
    ):  # fmt: skip
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        self.plans += 1
        self._rows = (indptr.tolist(), indices.long(), last_page_len.tolist())
        self._sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._types, self._scale = (q_data_type, kv_data_type), sm_scale

    def run(self, q, paged_kv_cache, *, out):
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

    def __init__(self, float_workspace_buffer):
        assert not float_workspace_buffer.any()

    def plan(
        self, *, metadata, num_heads, head_dim_ckv, head_dim_kpe, page_size, causal, sm_scale,
        q_data_type, kv_data_type,
    ):  # fmt: skip
        self._rows, self._latent = metadata, (num_heads, head_dim_ckv, head_dim_kpe, page_size)
        self._types, self._scale, self._causal = (q_data_type, kv_data_type), sm_scale, causal

    def run(self, *, query, kv_cache, out):
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
    def csr(qo_indptr, kv_indptr, kv_indices, kv_len_arr):
        rows = dict(locals())
        assert all(row.dtype == torch.int32 for row in rows.values())
        return rows


flashinfer = SimpleNamespace(
    BatchDecodeWithPagedKVCacheWrapper=DecodeWrapper,
    mla=SimpleNamespace(BatchMLAPagedAttentionWrapper=LatentWrapper, MLAPlanMetadata=Metadata),
)


# --------------------------------------------------------------------------- FlashAttention
def varlen_attn(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None,
    window_size=(-1, -1), enable_gqa=False, seqused_k=None, block_table=None, num_splits=None,
):  # fmt: skip
    """torch.nn.attention.varlen.varlen_attn, with a block table and one query a request."""
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
class Described(SimpleNamespace):
    """A tensor of a cuDNN graph: what is said of it."""

    __hash__ = object.__hash__

    def set_output(self, is_output):
        assert is_output
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self


class Graph:
    """cudnn.pygraph: reads every bound tensor by the sizes and strides that it was told."""

    def __init__(self, **types):
        self.types, self.built = types, False

    def tensor(self, *, name, dim, stride, data_type):
        return Described(name=name, dim=dim, stride=stride, data_type=data_type)

    def sdpa(self, **arguments):
        assert arguments["use_padding_mask"]
        assert not arguments["generate_stats"]
        self.arguments, self.output = arguments, Described()
        return self.output, None

    def build(self, modes):
        assert modes
        self.built = True

    def get_workspace_size(self):
        return 0

    def execute(self, bindings, workspace, *, handle):
        assert self.built
        assert handle == self.types["handle"]

        def view(name):
            described = self.output if name == "output" else self.arguments[name]
            tensor = bindings[described]
            assert tensor.dim() == len(described.dim) == len(described.stride) == 4
            return torch.as_strided(tensor, described.dim, described.stride)

        q, k, v, out = map(view, ("q", "k", "v", "output"))
        table_k, table_v = (view(f"paged_attention_{x}_table")[:, 0, :, 0].long() for x in "kv")
        assert view("seq_len_q").flatten().tolist() == [1] * len(q)
        longest = self.arguments["paged_attention_max_seq_len_kv"]
        assert table_k.shape[1] * k.shape[2] == longest
        group, scale = q.shape[1] // k.shape[1], self.arguments["attn_scale"]
        for request, tokens in enumerate(view("seq_len_kv").flatten().tolist()):
            # [pages, heads, page_size, dim] -> [tokens, heads, dim]
            keys = k[table_k[request]].transpose(1, 2).flatten(0, 1)[:tokens]
            values = v[table_v[request]].transpose(1, 2).flatten(0, 1)[:tokens]
            out[request, :, 0] = attend(q[request, :, 0], keys, values, scale, group)


def cudnn(version=92801):
    """The frontend beside a cuDNN of some version."""
    types = SimpleNamespace(HALF="half", BFLOAT16="bfloat16", FLOAT="float", INT32="int32")
    modes = SimpleNamespace(A="A", FALLBACK="fallback")
    return SimpleNamespace(
        data_type=types, heur_mode=modes, pygraph=Graph, backend_version=lambda: version
    )
