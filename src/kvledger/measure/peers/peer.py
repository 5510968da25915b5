"""What a peer is: another way to attend through a page table, prepared once and then timed.

A peer says why it cannot be used on a device, and which steps it does not take, before anything is
launched. Everything that a serving engine does once for many layers or steps, and everything that
is only there because a layout differs, happens in :meth:`Peer.prepare`; what it returns is timed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch

from kvledger.core.errors import LedgerError
from kvledger.measure.decode_inputs import check_decode
from kvledger.measure.peers.peer_case import Asked, Case, dtype_name
from kvledger.measure.peers.refusal_reasons import first_line

Step = Callable[[], torch.Tensor]
"""One decode step's attention: returns [batch, q_heads, value_dim] in the data type of q."""


class RefusedError(LedgerError):
    """A peer does not take this step: a fact to record, not a mistake in the input.

    Attributes
    ----------
    reason : str
        Why, without the peer's name.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


class Tensors(NamedTuple):
    """The checked tensors of a step, and its scale."""

    q: torch.Tensor
    k_pages: torch.Tensor
    v_pages: torch.Tensor
    page_table: torch.Tensor
    lengths: torch.Tensor
    scale: float


class Peer(ABC):
    """One way to attend through a page table.

    Attributes
    ----------
    name : str
        What records call it.
    about : str
        What it is, in a sentence.
    paged : bool
        Whether it reads through the table; if not, it is timed on contiguous K and V alone.
    timed_by : {"events", "host"}
        "events": its work is queued on torch's current stream. "host": on a GPU it is queued on a
        stream of its own, and each step makes torch's stream wait for its result. Such steps are
        timed by the host's clock: the device idle, then some calls in a row, then one
        ``torch.cuda.synchronize()``.
    takes_float8 : bool
        Whether pages may be float8 beside a 16-bit q.

    Slots that no token holds must be finite numbers, as they are in a cache that is reused: some
    peers multiply them by zero.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    paged: ClassVar[bool] = True
    timed_by: ClassVar[Literal["events", "host"]] = "events"
    takes_float8: ClassVar[bool] = False

    @abstractmethod
    def absent(self, device: torch.device | str) -> str | None:
        """Return why this peer cannot be used on a device, or None if it can."""

    def refuses(self, case: Case, device: torch.device | str) -> str | None:
        """Return why this peer does not take a step on a device, or None if it may.

        A library may still refuse when :meth:`prepare` compiles for it.
        """
        return None

    def extra_bytes(self, case: Case) -> int:
        """Return the device memory that a prepared step holds, beside what it is given."""
        return 0

    def prepare(
        self,
        q: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        page_table: torch.Tensor,
        lengths: torch.Tensor,
        scale: float | None = None,
    ) -> Step:
        """Check a step, lay it out and compile it, and return what a decode step does.

        Parameters
        ----------
        q, k_pages, v_pages, page_table, lengths, scale
            See :func:`~kvledger.measure.decode_inputs.check_decode`. q, the pages and the
            table may be copied: what is written to them later need not be seen.

        Returns
        -------
        callable
            It has been called once. The tensor that it returns may be written again by the next
            call.

        Raises
        ------
        RefusedError
            Where the peer is absent, or it or its library does not take this step.
        LedgerError
            For tensors that do not go together.
        """
        shape = check_decode(q, k_pages, v_pages, page_table, lengths, scale)
        asked = Asked.of(shape, q.dtype)
        reason = self.absent(q.device) or self.refuses(asked, q.device)
        if reason is None and k_pages.dtype != q.dtype and not self.takes_float8:
            reason = f"takes no {dtype_name(k_pages.dtype)} pages beside a q of {asked.dtype}"
        if reason is not None:
            raise RefusedError(self.name, reason)
        factor = shape.head_dim**-0.5 if scale is None else float(scale)
        tensors = Tensors(q, k_pages, v_pages, page_table, lengths, factor)
        with torch.no_grad():
            return self._called_once(asked, tensors)

    @abstractmethod
    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        """Return the step; only called where neither `absent` nor `refuses` gives a reason."""

    def _called_once(self, asked: Asked, tensors: Tensors) -> Step:
        """Prepare and call a step, so that what is compiled late or fails late does so now."""
        step = self._prepare(asked, tensors)
        step()
        if tensors.q.is_cuda:
            torch.cuda.synchronize(tensors.q.device)
        return step


class LibraryPeer(Peer):
    """A peer whose kernels a library compiles or picks: what the library will not do is a reason.

    No list of what a library takes is complete. An error of any kind while it prepares is
    reported as its refusal, so that it costs one case and not the measurement.
    """

    def _called_once(self, asked: Asked, tensors: Tensors) -> Step:
        try:
            return super()._called_once(asked, tensors)
        except LedgerError:
            raise
        except Exception as error:
            raise RefusedError(self.name, f"cannot be prepared ({first_line(error)})") from error
