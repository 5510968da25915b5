"""Tensors of decode steps for tests: pages in a random order, with junk wherever no token is."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvledger.measure.decode_step import DecodeInputs


def made_step(
    lengths: Sequence[int],
    page_size: int,
    *,
    heads: tuple[int, int] = (8, 2),
    dims: tuple[int, int] = (32, 32),
    dtype: torch.dtype = torch.float32,
    cache: torch.dtype | None = None,
    latent: bool = False,
    junk: float = 1000.0,
    foreign: int = 2,
    spare_entries: int = 1,
    seed: int = 0,
) -> DecodeInputs:
    """Make a step of query heads and K and V heads, of K and V dims, in a pool with foreign pages.

    Each row of the table has spare entries, which point nowhere.
    """
    generator = torch.Generator().manual_seed(seed)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator)

    counts = [-(-length // page_size) for length in lengths]
    pool = torch.randperm(sum(counts) + foreign, generator=generator).int()
    table = torch.full((len(lengths), max(counts) + spare_entries), -(2**31), dtype=torch.int32)
    k = torch.full((len(pool), page_size, heads[1], dims[0]), junk)
    v = torch.full((len(pool), page_size, heads[1], dims[1]), junk)
    for request, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        table[request, :count], pool = pool[:count], pool[count:]
        token = torch.arange(length)
        place = (table[request, token // page_size].long(), token % page_size)
        k[place], v[place] = random(length, heads[1], dims[0]), random(length, heads[1], dims[1])
    k, v = k.to(cache or dtype), v.to(cache or dtype)
    q = random(len(lengths), heads[0], dims[0]).to(dtype)
    v = k[..., : dims[1]] if latent else v
    return DecodeInputs(q, k, v, table, torch.tensor(lengths, dtype=torch.int32))
