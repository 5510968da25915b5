"""Torch's own attention on contiguous K and V, and on pages that are gathered first."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from kvledger.measure.peers.device_tables import filled_table
from kvledger.measure.peers.peer import Peer, Step, Tensors
from kvledger.measure.peers.peer_case import Asked, Case, dense_bytes


class Sdpa(Peer):
    """Torch's ``scaled_dot_product_attention`` on K and V laid out as it likes them.

    The pages are copied once into [batch, kv_heads, tokens, head_dim]. Requests of different
    lengths are padded to the longest, and the padding is read and masked. Signature read in torch
    2.13.0.
    """

    name = "sdpa"
    about = "torch's scaled_dot_product_attention on contiguous K and V"
    paged = False

    def absent(self, device: torch.device | str) -> str | None:
        """Return None: it runs wherever torch does."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes of the contiguous K and V, and of the pages gathered for them."""
        return dense_bytes(case, case.longest + case.max_pages * case.page_size)

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        gather = _Gather(asked, tensors)
        gather()
        # [batch, tokens, heads, dim] -> [batch, heads, tokens, dim], each head's tokens in a row.
        k = gather.k[:, : asked.longest].transpose(1, 2).contiguous()
        v = k[..., : asked.value_dim]
        if not asked.latent:
            v = gather.v[:, : asked.longest].transpose(1, 2).contiguous()
        return _attend(asked, tensors, k, v)


class GatherSdpa(Peer):
    """Copy the pages side by side at every step, then attend with ``scaled_dot_product_attention``.

    What a program does that has no kernel which reads through a table: the copy is its cost. The
    room for the copy is kept. Requests of different lengths are padded to the longest.
    """

    name = "gather_sdpa"
    about = "the pages gathered with index_select, then torch's scaled_dot_product_attention"

    def absent(self, device: torch.device | str) -> str | None:
        """Return None: it runs wherever torch does."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes of the gathered K and V."""
        return dense_bytes(case, case.max_pages * case.page_size)

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        gather = _Gather(asked, tensors)
        k = gather.k[:, : asked.longest].transpose(1, 2)
        v = gather.v[:, : asked.longest].transpose(1, 2)
        attend = _attend(asked, tensors, k, v)

        def step() -> torch.Tensor:
            gather()
            return attend()

        return step


class _Gather:
    """Copies pages to where their tokens stand side by side: ``k`` and ``v``, all requests' rows.

    Of a latent cache, whose V is the first elements of its K, one copy serves both.
    """

    def __init__(self, asked: Asked, tensors: Tensors) -> None:
        table = filled_table(tensors.page_table, tensors.lengths, asked.page_size)
        self._rows = table.flatten().long()
        self._pools = [tensors.k_pages] + ([] if asked.latent else [tensors.v_pages])
        self._copies = [pool.new_empty(len(self._rows), *pool.shape[1:]) for pool in self._pools]
        tokens = (asked.batch, asked.max_pages * asked.page_size)
        self.k = self._copies[0].view(*tokens, asked.kv_heads, asked.head_dim)
        self.v = (
            self.k[..., : asked.value_dim]
            if asked.latent
            else self._copies[1].view(*tokens, asked.kv_heads, asked.value_dim)
        )

    def __call__(self) -> None:
        for pool, copy in zip(self._pools, self._copies, strict=True):
            torch.index_select(pool, 0, self._rows, out=copy)


def _attend(asked: Asked, tensors: Tensors, k: torch.Tensor, v: torch.Tensor) -> Step:
    """Return a step on K and V [batch, kv_heads, tokens, dim].

    The query heads that share a K and V head are handed over as so many query rows: no kernel then
    copies K and V for each of them, as ``enable_gqa`` makes some do. A latent V is handed over as
    the whole of K and the output cut, since kernels for unequal sizes are the slow ones.
    """
    scale = tensors.scale
    q = tensors.q.reshape(asked.batch, asked.kv_heads, asked.group, asked.head_dim)
    values = k if asked.latent else v
    mask = None
    if asked.ragged:
        held = torch.arange(asked.longest, device=q.device) < tensors.lengths[:, None]
        # What is added to the scores: a mask of truth values would be turned into it at each step.
        mask = torch.zeros(held.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(~held, float("-inf"))[:, None, None]

    def step() -> torch.Tensor:
        out = scaled_dot_product_attention(q, k, values, attn_mask=mask, scale=scale)
        return out[..., : asked.value_dim].reshape(asked.batch, asked.q_heads, asked.value_dim)

    return step
