"""The tensors of a case: one pool of slots, and a view of it for each placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from kvledger.measure.cases import DecodeCase, Placement


class Inputs(NamedTuple):
    """What a paged decode step is given; see `check_decode`."""

    q: torch.Tensor
    k_pages: torch.Tensor
    v_pages: torch.Tensor
    page_table: torch.Tensor
    lengths: torch.Tensor

    def of_requests(self, requests: list[int]) -> Inputs:
        """Return the step of some of the requests, on the same pages."""
        return self._replace(
            q=self.q[requests], page_table=self.page_table[requests], lengths=self.lengths[requests]
        )

    def shortened(self, lengths: Sequence[int]) -> Inputs:
        """Return the step with other lengths: a request then holds the first of its tokens."""
        held = torch.tensor(lengths, dtype=torch.int32, device=self.lengths.device)
        return self._replace(lengths=held)


class Pool:
    """K and V of a case in slots of random values, of which each placement takes a view.

    Parameters
    ----------
    case : DecodeCase
    placements : list of Placement
        Those that will be asked for: the pool has room for the largest.
    device : torch.device
    seed : int

    Examples
    --------
    >>> from kvledger.measure.cases import LLAMA_2_7B, contiguous
    >>> case = DecodeCase(LLAMA_2_7B, (5, 9), "float16")
    >>> pages = Placement(case, "random", 4)
    >>> pool = Pool(case, [pages], torch.device("cpu"), seed=0)
    >>> [list(each.shape) for each in pool.inputs(pages, np.random.default_rng(0))]
    [[2, 32, 128], [5, 4, 32, 128], [5, 4, 32, 128], [2, 3], [2]]
    """

    def __init__(
        self, case: DecodeCase, placements: list[Placement], device: torch.device, seed: int
    ) -> None:
        shape, dtype = case.shape, getattr(torch, case.dtype)
        slots = max(placement.slots for placement in placements)
        generator = torch.Generator(device=device).manual_seed(seed)

        def random(*size: int) -> torch.Tensor:
            return torch.randn(size, dtype=dtype, device=device, generator=generator)

        self.q = random(case.batch, shape.q_heads, shape.head_dim)
        self.k = random(slots, shape.kv_heads, shape.head_dim)
        self.v = None if shape.latent else random(slots, shape.kv_heads, shape.value_dim)
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)

    def inputs(self, placement: Placement, rng: np.random.Generator) -> Inputs:
        """Return views of the pool as pages, and a table that uses each of them once."""
        table = torch.from_numpy(placement.table(rng)).to(self.k.device)

        def paged(slots: torch.Tensor) -> torch.Tensor:
            sizes = (placement.pages, placement.page_size, *slots.shape[1:])
            return slots[: placement.slots].view(sizes)

        k = paged(self.k)
        v = k[..., : placement.value_dim] if self.v is None else paged(self.v)
        return Inputs(self.q, k, v, table, self.lengths)


def pool_bytes(case: DecodeCase, placements: list[Placement]) -> int:
    """Return what a pool takes in memory, with the tables of all placements."""
    slots = max(placement.slots for placement in placements)
    tables = sum(p.max_pages * p.batch * 4 for p in placements)
    return slots * case.shape.kv_bytes_per_token(case.dtype) + tables
