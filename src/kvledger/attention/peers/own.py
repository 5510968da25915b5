"""The package's own Triton kernel, timed beside the others."""

from __future__ import annotations

import torch

from kvledger.attention.peers.base import Peer, RefusedError, Step, Tensors
from kvledger.attention.peers.case import Asked
from kvledger.attention.peers.reasons import cannot_import, needs_gpu
from kvledger.errors import LedgerError


class Triton(Peer):
    """:func:`~kvledger.attention.triton_decode.plan_decode`: one kernel for every page size."""

    name = "triton"
    about = "this package's Triton kernel"
    takes_float8 = True

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason on a CPU: there Triton only interprets, and that time means nothing."""
        if torch.device(device).type == "cpu":
            return (
                "needs a GPU: on a CPU Triton only interprets, and the time of that means nothing"
            )
        return needs_gpu(device) or cannot_import("triton")

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        from kvledger.attention.triton_decode import plan_decode

        try:
            return plan_decode(*tensors, tune=True)
        except LedgerError as error:
            raise RefusedError(self.name, str(error)) from error
