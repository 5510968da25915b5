"""Ways to attend through a page table, each prepared once and then timed.

Everything that a serving engine does once for many layers or steps, and everything that is only
there because a layout differs, happens in :meth:`Peer.prepare`; what it returns is timed. Those of
torch, and this package's own kernel, stand here; those of other libraries, and the list of all, in
:mod:`~kvledger.measure.library_peers`.
"""

from __future__ import annotations

import importlib
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch.nn.functional import scaled_dot_product_attention

from kvledger.core.errors import LedgerError
from kvledger.measure.decode_step import DecodeInputs, check_decode, used_entries
from kvledger.measure.sweeps import DecodeShape

Step = Callable[[], torch.Tensor]
"""One decode step's attention: returns [batch, q_heads, value_dim] in the data type of q."""

#: Rows of the smallest tile that a GPU's matrix units take.
LEAST_DOT = 16


class RefusedError(LedgerError):
    """A peer does not take this step, for a ``reason``: a fact to record, not a mistake."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


class Peer(ABC):
    """One way to attend through a page table.

    It may need a ``module`` to import, a GPU, and one of some ``dtypes`` of q; ``takes_float8``
    says whether pages may be float8 beside a 16-bit q. One that is not ``paged`` is timed on
    contiguous K and V alone. Slots that no token holds must be finite numbers, as they are in a
    cache that is reused: some peers multiply them by zero.

    ``timed_by`` "events": its work is queued on torch's current stream. "host": on a stream of its
    own, whose result torch's stream waits for; such steps are timed by the host's clock.

    ``of_library``: no list of what a library takes is complete, so any error while it prepares is
    reported as its refusal, which costs one case and not the measurement.
    """

    name: ClassVar[str]
    module: ClassVar[str | None] = None
    gpu_only: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("float16", "bfloat16", "float32")
    paged: ClassVar[bool] = True
    timed_by: ClassVar[Literal["events", "host"]] = "events"
    takes_float8: ClassVar[bool] = False
    of_library: ClassVar[bool] = True

    def absent(self, device: torch.device | str) -> str | None:
        """Return why this peer cannot be used on a device, or None if it can."""
        kind = torch.device(device).type
        if self.gpu_only and kind != "cuda":
            return f"needs an NVIDIA GPU; this is a {kind}"
        if kind == "cuda" and not torch.cuda.is_available():
            return "needs an NVIDIA GPU; torch finds none"
        return (self.module and cannot_import(self.module)) or self._lacks(kind)

    def refuses(self, shape: DecodeShape, device: torch.device | str) -> str | None:
        """Return why this peer does not take a step on a device, or None if it may."""
        reason = self._odd(shape, torch.device(device).type)
        if reason is None and shape.dtype not in self.dtypes:
            reason = f"{' and '.join(self.dtypes)}, not {shape.dtype}"
        return reason and f"takes {reason}"

    def extra_bytes(self, shape: DecodeShape) -> int:
        """Return the device memory that a prepared step holds, beside what it is given."""
        return self._extra_tokens(shape) * shape.token_bytes

    def _lacks(self, kind: str) -> str | None:
        """Return what else is missing on a kind of device where the module can be imported."""
        return None

    def _odd(self, shape: DecodeShape, kind: str) -> str | None:
        """Return which sizes this peer takes, where it does not take these."""
        return None

    def _extra_tokens(self, shape: DecodeShape) -> int:
        """Return the tokens whose K and V a prepared step copies."""
        return 0

    def prepare(self, inputs: DecodeInputs) -> Step:
        """Check a step, lay it out, compile it, call it once, and return what a decode step does.

        q, the pages and the table may be copied: what is written to them later need not be seen.
        What the step returns may be written again by its next call. An absent peer, or a step that
        it does not take, is a RefusedError; tensors that do not go together, a LedgerError.
        """
        shape, q = check_decode(inputs), inputs.q
        reason = self.absent(q.device) or self.refuses(shape, q.device)
        cache_dtype = str(inputs.k_pages.dtype).removeprefix("torch.")
        if reason is None and cache_dtype != shape.dtype and not self.takes_float8:
            reason = f"takes no {cache_dtype} pages beside a q of {shape.dtype}"
        if reason is not None:
            raise RefusedError(self.name, reason)
        try:
            with torch.no_grad():
                step = self._prepare(shape, inputs._replace(scale=inputs.factor))
                step()  # what is compiled late or fails late does so now
                if q.is_cuda:
                    torch.cuda.synchronize(q.device)
        except LedgerError:
            raise
        except Exception as error:
            if not self.of_library:
                raise
            raise RefusedError(self.name, f"cannot be prepared ({first_line(error)})") from error
        return step

    @abstractmethod
    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        """Return the step; only called where neither `absent` nor `refuses` gives a reason."""


def first_line(error: BaseException) -> str:
    """Return an error's kind and the first line of what it says."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


def cannot_import(module: str) -> str | None:
    """Import a module, and return why that failed, or None."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a library without its driver may raise anything
        return f"{module} cannot be imported ({first_line(error)})"
    return None


def filled_table(inputs: DecodeInputs) -> torch.Tensor:
    """Return the table with the request's own first page wherever no token's page stands.

    Some kernels read those entries and discard what they find there.
    """
    table = inputs.page_table
    return torch.where(used_entries(inputs), table, table[:, :1])


class Triton(Peer):
    """:func:`~kvledger.measure.triton_decode.tuned_plan`: one kernel for every page size."""

    name = "triton"
    module = "triton"
    takes_float8 = True
    of_library = False

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason on a CPU: there Triton only interprets, and that time means nothing."""
        if torch.device(device).type == "cpu":
            said = "on a CPU Triton only interprets, and the time of that means nothing"
            return f"needs a GPU: {said}"
        return super().absent(device)

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        from kvledger.measure.triton_decode import tuned_plan

        try:
            return tuned_plan(inputs)
        except LedgerError as error:
            raise RefusedError(self.name, str(error)) from error


class Sdpa(Peer):
    """Torch's ``scaled_dot_product_attention`` on K and V laid out as it likes them, copied once.

    Requests of different lengths are padded to the longest, and the padding is read and masked.
    Signature read in torch 2.13.0.
    """

    name = "sdpa"
    gpu_only = False
    paged = False
    of_library = False

    def _extra_tokens(self, shape: DecodeShape) -> int:
        # The contiguous K and V, and the pages gathered for them.
        return shape.batch * (shape.longest + shape.max_pages * shape.page_size)

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        gather = _Gather(shape, inputs)
        gather()
        # Each head's tokens in a row.
        k = gather.k.contiguous()
        v = k[..., : shape.value_dim] if shape.latent else gather.v.contiguous()
        return _attend(shape, inputs, k, v)


class GatherSdpa(Peer):
    """Copy the pages side by side at every step, then attend with ``scaled_dot_product_attention``.

    What a program does that has no kernel which reads through a table: the copy is its cost.
    """

    name = "gather_sdpa"
    gpu_only = False
    of_library = False

    def _extra_tokens(self, shape: DecodeShape) -> int:
        return shape.batch * shape.max_pages * shape.page_size

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        gather = _Gather(shape, inputs)
        attend = _attend(shape, inputs, gather.k, gather.v)

        def step() -> torch.Tensor:
            gather()
            return attend()

        return step


class _Gather:
    """Copies pages to where their tokens stand side by side: ``k`` and ``v`` of all requests.

    Both are views [batch, heads, longest, dim]; of a latent cache, one copy serves both.
    """

    def __init__(self, shape: DecodeShape, inputs: DecodeInputs) -> None:
        self._rows = filled_table(inputs).flatten().long()
        self._pools = [inputs.k_pages] + ([] if shape.latent else [inputs.v_pages])
        self._copies = [pool.new_empty(len(self._rows), *pool.shape[1:]) for pool in self._pools]
        self.k, *rest = (self._view(shape, copy) for copy in self._copies)
        self.v = rest[0] if rest else self.k[..., : shape.value_dim]

    @staticmethod
    def _view(shape: DecodeShape, copy: torch.Tensor) -> torch.Tensor:
        tokens = copy.view(shape.batch, shape.max_pages * shape.page_size, *copy.shape[2:])
        return tokens[:, : shape.longest].transpose(1, 2)

    def __call__(self) -> None:
        for pool, copy in zip(self._pools, self._copies, strict=True):
            torch.index_select(pool, 0, self._rows, out=copy)


def _attend(shape: DecodeShape, inputs: DecodeInputs, k: torch.Tensor, v: torch.Tensor) -> Step:
    """Return a step on K and V [batch, kv_heads, tokens, dim].

    Query heads that share a K and V head are handed over as so many query rows: ``enable_gqa``
    makes some kernels copy K and V. A latent V is handed over as the whole of K and the output cut,
    since kernels for unequal sizes are the slow ones.
    """
    q = inputs.q.reshape(shape.batch, shape.kv_heads, shape.group, shape.head_dim)
    values, scale = k if shape.latent else v, inputs.scale
    mask = None
    if shape.ragged:
        held = torch.arange(shape.longest, device=q.device) < inputs.lengths[:, None]
        # What is added to the scores: a mask of truth values would be turned into it at each step.
        mask = torch.zeros(held.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(~held, float("-inf"))[:, None, None]

    def step() -> torch.Tensor:
        out = scaled_dot_product_attention(q, k, values, attn_mask=mask, scale=scale)
        return out[..., : shape.value_dim].reshape(shape.batch, shape.q_heads, shape.value_dim)

    return step


class FlexPaged(Peer):
    """``flex_attention`` on a block mask that ``PagedAttention`` converts to physical pages.

    The class hands out pages itself; here its two tables are set from the table that is given.
    Whole pages are listed as full blocks, which no mask is computed for. Signatures and kernels
    read in torch 2.11.0 and 2.13.0: on a GPU a block of keys is at most a page and goes through
    matrix units, so pages are powers of two from 16.
    """

    name = "flex_paged"
    module = "torch.nn.attention.experimental._paged_attention"
    gpu_only = False

    def _lacks(self, kind: str) -> str | None:
        return _cannot_compile() if kind == "cpu" else cannot_import("triton")

    def _odd(self, shape: DecodeShape, kind: str) -> str | None:
        size = shape.page_size
        if kind == "cuda" and (size < LEAST_DOT or size & (size - 1)):
            return f"pages of powers of two from {LEAST_DOT} on a GPU, not {size}"
        return None

    def extra_bytes(self, shape: DecodeShape) -> int:
        """Return the bytes of the class's two tables and of the mask's lists."""
        # int64: where each page of the pool stands in a row, and the row's pages. int32: partial
        # and full blocks, listed by query block and by key block.
        return shape.batch * (8 * (shape.pages + shape.max_pages) + 4 * 4 * shape.pages)

    def _prepare(self, shape: DecodeShape, inputs: DecodeInputs) -> Step:
        mask, scale = _block_mask(shape, inputs), inputs.scale
        q = inputs.q[:, :, None]
        # [1, kv_heads, tokens of the whole pool, dim]: views where a page's tokens are in a row.
        k = inputs.k_pages.flatten(0, 1).transpose(0, 1)[None]
        v = inputs.v_pages.flatten(0, 1).transpose(0, 1)[None]
        strides = (q.stride(), k.stride(), v.stride())
        # What the requests hold is read from the tensors: it is not compiled for.
        sizes = shape._replace(longest=0, tokens=0)
        attend = _compiled((sizes, q.device, scale, strides))

        def step() -> torch.Tensor:
            with torch.no_grad():
                out: torch.Tensor = attend(q, k, v, mask, scale)
            return out[:, :, 0]

        return step


def physical_to_logical(inputs: DecodeInputs) -> torch.Tensor:
    """Return, for each request and each page of the pool, where that page stands in its row.

    int64, shape (batch, pages); -1 where the request does not hold the page.
    """
    table = inputs.page_table
    requests, entries = used_entries(inputs).nonzero(as_tuple=True)
    places = torch.full((len(table), len(inputs.k_pages)), -1, device=table.device)
    places[requests, table[requests, entries].long()] = entries
    return places


def _block_mask(shape: DecodeShape, inputs: DecodeInputs) -> Any:
    """Return the pages of each request as a block mask over the whole pool."""
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import BlockMask

    size, lengths, device = shape.page_size, inputs.lengths, inputs.q.device
    # Its own tables are made for one page, and replaced.
    paged = PagedAttention(1, size, shape.batch, device=str(device))
    paged.n_pages = shape.pages
    paged.page_table = filled_table(inputs).long()
    paged.physical_to_logical = physical_to_logical(inputs)
    if int((paged.physical_to_logical >= 0).sum()) != int(used_entries(inputs).sum()):
        raise RefusedError(FlexPaged.name, "takes a page at most once in a request's table")
    full = (lengths // size).int()
    partial = (lengths % size > 0).int()
    entries = torch.arange(shape.max_pages, dtype=torch.int32, device=device)
    # The one partial block of a request, if there is one, comes after its full ones.
    rolled = (entries + full[:, None]) % shape.max_pages
    logical = BlockMask.from_kv_blocks(
        partial[:, None, None],
        rolled[:, None, None].contiguous(),
        full[:, None, None],
        entries.expand(shape.batch, 1, 1, -1).contiguous(),
        # Query rows: the kernels ask for a multiple of the rows that they take at once.
        BLOCK_SIZE=(128, size),
        seq_lengths=(1, shape.max_pages * size),
        compute_q_blocks=False,
    )
    return paged.convert_logical_block_mask(logical, kv_len=lengths)


@cache
def _compiled(key: tuple[Any, ...]) -> Any:
    """Return FlexAttention to be compiled for one set of sizes; the next table reuses it.

    Torch gives up after a few compiled versions of one code object: each set gets its own.
    """
    code = _flex.__code__.replace(co_name=f"flex_{abs(hash(key))}")
    own = types.FunctionType(code, _flex.__globals__)
    return torch.compile(own, dynamic=False, fullgraph=True)


def _flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float
) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=True)


@cache
def _cannot_compile() -> str | None:
    """Return why FlexAttention cannot be compiled for this CPU, or None."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.kernel.flex import flex_cpu

    if not flex_cpu.check_cpu_supported():  # type: ignore[no-untyped-call]
        return "torch compiles it only for CPUs with AVX2, not on macOS"
    try:
        get_cpp_compiler()
    except Exception as error:
        return f"needs a C++ compiler ({first_line(error)})"
    return None
