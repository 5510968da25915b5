"""What a peer is: another way to attend through a page table, prepared once and then timed.

A peer says why it cannot be used on a device, and which steps it does not take, before anything is
launched. Everything that a serving engine does once for many layers or steps, and everything that
is only there because a layout differs, happens in :meth:`Peer.prepare`; what it returns is timed.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch

from kvledger.attention.inputs import check_decode
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


class Case(Protocol):
    """A step that a peer may be asked for: known before any tensor is made.

    ``dtype`` names the data type of q, the pages and the output, such as "bfloat16"; ``ragged``
    says that requests hold different numbers of tokens, ``longest`` the greatest of these;
    ``pages`` are those of the pool, ``max_pages`` those of a row of the table; ``latent`` says
    that V is a view of the first ``value_dim`` elements of K.
    """

    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def q_heads(self) -> int: ...  # noqa: D102
    @property
    def kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def value_dim(self) -> int: ...  # noqa: D102
    @property
    def page_size(self) -> int: ...  # noqa: D102
    @property
    def pages(self) -> int: ...  # noqa: D102
    @property
    def max_pages(self) -> int: ...  # noqa: D102
    @property
    def longest(self) -> int: ...  # noqa: D102
    @property
    def ragged(self) -> bool: ...  # noqa: D102
    @property
    def latent(self) -> bool: ...  # noqa: D102


class Asked(NamedTuple):
    """A :class:`Case`, as the tensors at hand make it."""

    dtype: str
    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    page_size: int
    pages: int
    max_pages: int
    longest: int
    ragged: bool
    latent: bool

    @property
    def group(self) -> int:
        """Query heads that read one K and V head."""
        return self.q_heads // self.kv_heads


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
        asked = Asked(
            dtype_name(q.dtype),
            shape.batch,
            shape.q_heads,
            shape.kv_heads,
            shape.head_dim,
            shape.value_dim,
            shape.page_size,
            shape.num_pages,
            shape.max_pages,
            shape.longest,
            shape.tokens < shape.batch * shape.longest,
            shape.latent,
        )
        reason = self.absent(q.device) or self.refuses(asked, q.device)
        if reason is None and k_pages.dtype != q.dtype and not self.takes_float8:
            reason = f"takes no {dtype_name(k_pages.dtype)} pages beside a q of {asked.dtype}"
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


def needs_dtype(case: Case, *accepted: str) -> str | None:
    """Return a reason if the data type of a step is not one of those accepted."""
    if case.dtype in accepted:
        return None
    return f"takes {' and '.join(accepted)}, not {case.dtype}"


def dtype_name(dtype: torch.dtype) -> str:
    """Return a data type's name without the library's.

    Examples
    --------
    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def dense_bytes(case: Case, tokens_per_request: int) -> int:
    """Return the bytes of K and V with equally many tokens for each request."""
    elements = case.kv_heads * (case.head_dim + (0 if case.latent else case.value_dim))
    itemsize: int = getattr(torch, case.dtype).itemsize
    return case.batch * tokens_per_request * elements * itemsize
