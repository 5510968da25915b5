"""The package's own Triton kernel, timed beside the others."""

from __future__ import annotations

import torch

from kvledger.core.errors import LedgerError
from kvledger.measure.peers.peer import Peer, RefusedError, Step, Tensors
from kvledger.measure.peers.peer_case import Asked
from kvledger.measure.peers.refusal_reasons import cannot_import, needs_gpu


class Triton(Peer):
    """:func:`~kvledger.measure.triton_decode.plan_decode`: one kernel for every page size."""

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
        from kvledger.measure.triton_decode import plan_decode

        try:
            return plan_decode(*tensors, tune=True)
        except LedgerError as error:
            raise RefusedError(self.name, str(error)) from error
