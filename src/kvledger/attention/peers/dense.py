"""Torch's own attention on contiguous K and V, and on pages that are gathered first."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from kvledger.attention.peers.base import Asked, Peer, Step, Tensors
from kvledger.attention.peers.tables import filled_table


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

    def extra_bytes(self, asked: Asked) -> int:
        """Return the bytes of the contiguous K and V."""
        return asked.dense_bytes

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        shape = asked.shape
        gather = _Gather(asked, tensors)
        gather()
        # [batch, tokens, heads, dim] -> [batch, heads, tokens, dim], each head's tokens in a row.
        k = gather.k[:, : shape.longest].transpose(1, 2).contiguous()
        v = k[..., : shape.value_dim]
        if not shape.latent:
            v = gather.v[:, : shape.longest].transpose(1, 2).contiguous()
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

    def extra_bytes(self, asked: Asked) -> int:
        """Return the bytes of the gathered K and V."""
        pages = asked.shape.max_pages * asked.shape.page_size
        return asked.dense_bytes * pages // asked.shape.longest

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        shape = asked.shape
        gather = _Gather(asked, tensors)
        k = gather.k[:, : shape.longest].transpose(1, 2)
        v = gather.v[:, : shape.longest].transpose(1, 2)
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
        shape = asked.shape
        table = filled_table(tensors.page_table, tensors.lengths, shape.page_size)
        self._rows = table.flatten().long()
        self._pools = [tensors.k_pages] + ([] if shape.latent else [tensors.v_pages])
        self._copies = [pool.new_empty(len(self._rows), *pool.shape[1:]) for pool in self._pools]
        tokens = (shape.batch, shape.max_pages * shape.page_size)
        self.k = self._copies[0].view(*tokens, shape.kv_heads, shape.head_dim)
        self.v = (
            self.k[..., : shape.value_dim]
            if shape.latent
            else self._copies[1].view(*tokens, shape.kv_heads, shape.value_dim)
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
    shape, scale = asked.shape, tensors.scale
    q = tensors.q.reshape(shape.batch, shape.kv_heads, shape.group, shape.head_dim)
    values = k if shape.latent else v
    mask = None
    if not asked.uniform:
        held = torch.arange(shape.longest, device=q.device) < tensors.lengths[:, None]
        mask = held[:, None, None]

    def step() -> torch.Tensor:
        out = scaled_dot_product_attention(q, k, values, attn_mask=mask, scale=scale)
        return out[..., : shape.value_dim].reshape(shape.batch, shape.q_heads, shape.value_dim)

    return step
