"""JAX's paged attention for GPUs, written in Pallas."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from kvledger.measure.peers.device_tables import filled_table
from kvledger.measure.peers.peer import LibraryPeer, Step, Tensors
from kvledger.measure.peers.peer_case import Asked, Case, dense_bytes
from kvledger.measure.peers.refusal_reasons import cannot_import, needs_dtype, needs_gpu

_MODULE = "jax.experimental.pallas.ops.gpu.paged_attention"
#: Tokens that a program reads at once, where pages are smaller.
_BLOCK_TOKENS = 64
#: As many stretches of the context as the library's default, at most.
_MOST_SPLITS = 16
_LEAST_HEAD_DIM = 16
#: Programs for each multiprocessor that the context is cut for.
_PROGRAMS_PER_UNIT = 4


class PallasPaged(LibraryPeer):
    """``paged_attention`` of JAX's Pallas kernels for GPUs.

    It reads [kv_heads, pages, page_size, head_dim], so the pages are copied once; it has no scale,
    so q is scaled once. Tensors pass between torch and JAX in place, by DLPack. It reads whole
    blocks of pages: a table is filled up to one. Signature and kernel read in jax 0.10.2 and
    0.11.2 (there deprecated); every block that it loads is a power of two elements.

    Parameters
    ----------
    interpret : bool
        Interpret the kernel on a CPU: for tests.
    """

    name = "pallas_paged"
    about = "JAX's paged attention in Pallas"
    timed_by = "host"

    def __init__(self, *, interpret: bool = False) -> None:
        self._interpret = interpret

    def absent(self, device: torch.device | str) -> str | None:
        """Return a reason without a GPU, JAX, its kernel, or a JAX that sees the GPU."""
        # Else JAX takes three quarters of the GPU's memory when it starts.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            if self._interpret:
                return cannot_import(_MODULE)
            return needs_gpu(device) or cannot_import(_MODULE) or _jax_without_gpu()

    def refuses(self, case: Case, device: torch.device | str) -> str | None:
        """Return a reason for unequal heads, and for sizes that are no power of two."""
        if case.head_dim != case.value_dim:
            return f"takes equal K and V heads, not {case.head_dim} and {case.value_dim}"
        if case.head_dim < _LEAST_HEAD_DIM or case.head_dim & (case.head_dim - 1):
            return f"takes heads of powers of two from {_LEAST_HEAD_DIM}, not {case.head_dim}"
        if case.page_size & (case.page_size - 1):
            return f"takes pages of powers of two, not {case.page_size}"
        return needs_dtype(case, "float16", "bfloat16", "float32")

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes of the pages in the kernel's order."""
        return dense_bytes(case, case.pages * case.page_size) // case.batch

    def _prepare(self, asked: Asked, tensors: Tensors) -> Step:
        jax: Any = importlib.import_module("jax")
        units = 1
        if tensors.q.device.type == "cuda":
            units = torch.cuda.get_device_properties(tensors.q.device).multi_processor_count
        pages_per_block, splits = cut(asked, units)
        table = whole_blocks(
            filled_table(tensors.page_table, tensors.lengths, asked.page_size),
            pages_per_block * splits,
        )

        def to_jax(tensor: torch.Tensor) -> Any:
            return jax.dlpack.from_dlpack(tensor.contiguous())

        arguments = [
            to_jax(tensors.q * tensors.scale),
            to_jax(tensors.k_pages.permute(2, 0, 1, 3)),
            to_jax(tensors.v_pages.permute(2, 0, 1, 3)),
            to_jax(table),
            to_jax(tensors.lengths),
        ]
        # Compiled by hand, so that a call does not look up what it is called with.
        compiled = (
            _kernels()
            .paged_attention.lower(
                *arguments,
                pages_per_compute_block=pages_per_block,
                k_splits=splits,
                interpret=self._interpret,
            )
            .compile()
        )

        def step() -> torch.Tensor:
            # Given torch's current stream, JAX makes it wait for the result.
            return from_dlpack(compiled(*arguments))

        return step


def cut(asked: Asked, units: int) -> tuple[int, int]:
    """Return pages that a program reads at once, and stretches that a context is cut into.

    Examples
    --------
    A large batch keeps 132 multiprocessors busy by itself; one long request does not.

    >>> many = Asked("bfloat16", 64, 32, 8, 128, 128, 16, 32768, 512, 8192, False, False)
    >>> cut(many, units=132), cut(many._replace(batch=1), units=132)
    ((4, 2), (4, 16))
    """
    pages, splits = max(1, _BLOCK_TOKENS // asked.page_size), 1
    while (
        splits < _MOST_SPLITS
        and asked.batch * asked.kv_heads * splits < units * _PROGRAMS_PER_UNIT
        and 2 * splits * pages <= asked.max_pages
    ):
        splits *= 2
    return pages, splits


def whole_blocks(table: torch.Tensor, entries: int) -> torch.Tensor:
    """Return a table whose rows are filled up to a multiple of so many entries.

    Examples
    --------
    >>> whole_blocks(torch.tensor([[3, 5, 4]]), 2).tolist()
    [[3, 5, 4, 3]]
    """
    missing = -table.shape[1] % entries
    return torch.cat([table, table[:, :1].expand(-1, missing)], dim=1)


def _kernels() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(_MODULE)


def _jax_without_gpu() -> str | None:
    backend = importlib.import_module("jax").default_backend()
    return None if backend == "gpu" else f"JAX finds no GPU (its backend is {backend})"
