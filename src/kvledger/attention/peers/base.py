"""What a peer is: another way to attend through a page table, prepared once and then timed.

A peer says why it cannot be used on a device, and which steps it does not take, before anything is
launched. Everything that a serving engine does once for many layers or steps, and everything that
is only there because a layout differs, happens in :meth:`Peer.prepare`; what it returns is timed.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch

from kvledger.attention.inputs import DecodeShape, check_decode
from kvledger.errors import LedgerError

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


class Asked(NamedTuple):
    """A step that a peer is asked for: known before any tensor is made.

    ``dtype`` is the data type of q and the output, ``cache_dtype`` that of the pages, and
    ``device`` a kind of device, "cpu" or "cuda".
    """

    shape: DecodeShape
    dtype: torch.dtype
    cache_dtype: torch.dtype
    device: str

    @property
    def uniform(self) -> bool:
        """Whether all requests hold equally many tokens."""
        return self.shape.batch * self.shape.longest == self.shape.tokens

    @property
    def dense_bytes(self) -> int:
        """Bytes of K and V laid out in one row a request, all as long as the longest."""
        values = 0 if self.shape.latent else self.shape.value_dim
        elements = self.shape.kv_heads * (self.shape.head_dim + values)
        return self.shape.batch * self.shape.longest * elements * self.cache_dtype.itemsize


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

    Slots that no token holds must be finite numbers, as they are in a cache that is reused: some
    peers multiply them by zero.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    paged: ClassVar[bool] = True
    timed_by: ClassVar[Literal["events", "host"]] = "events"

    @abstractmethod
    def absent(self, device: torch.device | str) -> str | None:
        """Return why this peer cannot be used on a device, or None if it can."""

    def refuses(self, asked: Asked) -> str | None:
        """Return why this peer does not take a step, or None if it may.

        A library may still refuse when :meth:`prepare` compiles for it.
        """
        if asked.cache_dtype != asked.dtype:
            return f"takes no {_short(asked.cache_dtype)} pages beside a q of {_short(asked.dtype)}"
        return None

    def extra_bytes(self, asked: Asked) -> int:
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
            See :func:`~kvledger.attention.inputs.check_decode`. q, the pages and the table may be
            copied: what is written to them later need not be seen.

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
        asked = Asked(shape, q.dtype, k_pages.dtype, q.device.type)
        reason = self.absent(q.device) or self.refuses(asked)
        if reason is not None:
            raise RefusedError(self.name, reason)
        factor = shape.head_dim**-0.5 if scale is None else float(scale)
        tensors = Tensors(q, k_pages, v_pages, page_table, lengths, factor)
        with torch.no_grad():
            step = self._prepare(asked, tensors)
            self._first(step, q.device)
        return step

    @abstractmethod
    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        """Return the step; only called where neither `absent` nor `refuses` gives a reason."""

    def _first(self, step: Step, device: torch.device) -> None:
        """Call the step once, so that what is compiled late or fails late does so now."""
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)


class LibraryPeer(Peer):
    """A peer whose kernels a library compiles or picks: what the library will not do is a reason.

    No list of what a library takes is complete. An error of any kind while it prepares is
    reported as its refusal, so that it costs one case and not the measurement.
    """

    def _first(self, step: Step, device: torch.device) -> None:
        try:
            super()._first(step, device)
        except Exception as error:
            raise RefusedError(self.name, f"its first call failed ({first_line(error)})") from error

    def prepare(
        self,
        q: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        page_table: torch.Tensor,
        lengths: torch.Tensor,
        scale: float | None = None,
    ) -> Step:
        """Do as :meth:`Peer.prepare` says, and report the library's errors as refusals."""
        try:
            return super().prepare(q, k_pages, v_pages, page_table, lengths, scale)
        except LedgerError:
            raise
        except Exception as error:
            raise RefusedError(self.name, f"cannot be prepared ({first_line(error)})") from error


def first_line(error: BaseException) -> str:
    r"""Return an error's kind and the first line of what it says.

    Examples
    --------
    >>> first_line(ValueError("head_dim 80\nis not supported"))
    'ValueError: head_dim 80'
    """
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


def cannot_import(module: str) -> str | None:
    """Import a module, and return why that failed, or None.

    Examples
    --------
    >>> cannot_import("json")
    >>> cannot_import("no_such_library")
    "no_such_library cannot be imported (ModuleNotFoundError: No module named 'no_such_library')"
    """
    try:
        importlib.import_module(module)
    except Exception as error:  # a library without its driver may raise anything
        return f"{module} cannot be imported ({first_line(error)})"
    return None


def needs_gpu(device: torch.device | str) -> str | None:
    """Return a reason if a device is no NVIDIA GPU that torch reaches.

    Examples
    --------
    >>> needs_gpu("cpu")
    'needs an NVIDIA GPU; this is a cpu'
    """
    kind = torch.device(device).type
    if kind != "cuda":
        return f"needs an NVIDIA GPU; this is a {kind}"
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU; torch finds none"
    return None


def needs_dtype(asked: Asked, *accepted: torch.dtype) -> str | None:
    """Return a reason if the data type of q is not one of those accepted."""
    if asked.dtype in accepted:
        return None
    return f"takes {' and '.join(map(_short, accepted))}, not {_short(asked.dtype)}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
