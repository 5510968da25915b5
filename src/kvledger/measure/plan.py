"""What a run measures, in the order of what would be missed most if time ran out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvledger.core.errors import LedgerError
from kvledger.measure.cases import (
    CONTEXT_STEP,
    DEEPSEEK_V2_LITE,
    LLAMA_2_7B,
    LLAMA_3_1_8B,
    DecodeCase,
    Placement,
    Shape,
    contiguous,
    fixed_case,
    running_lengths,
    trace_case,
)

PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

#: Page sizes where only a few are measured: the ends, and the size that most engines use.
FEW_PAGE_SIZES = (16, 1, 256)

#: A working set is at least so many times the last-level cache: reading it again finds little.
CACHE_MULTIPLE = 4

#: Eight minutes on a GPU, three on a CPU and half of one, less what starting and ending take.
TIME_LIMIT_S = {"cuda": 450.0, "cpu": 168.0}
QUICK_TIME_LIMIT_S = 25.0

REPETITIONS = 11
QUICK_REPETITIONS = 5
#: Below it a median and quartiles say little.
MIN_REPETITIONS = 5

#: The host's work: running requests of a trace, decode steps a repetition, a prompt to hash.
HOST_TRACE, HOST_REQUESTS = "azure_conv_2023", 256
HOST_STEPS = 64
HOST_PROMPT_TOKENS = 2**15
#: Its share of the time, beside the weights of sweeps.
HOST_WEIGHT = 1.2


@dataclass(frozen=True)
class Sweep:
    """A case, the page sizes to try in order of importance, and their layouts.

    ``weight`` is its share of the time that is left, beside the weights of those to come.
    """

    case: DecodeCase
    page_sizes: tuple[int, ...]
    layouts: tuple[str, ...] = ("random",)
    weight: float = 1.0

    def placements(self) -> list[Placement]:
        """Return the contiguous layout, then those with pages."""
        paged = [
            Placement(self.case, layout, size)
            for size in self.page_sizes
            for layout in self.layouts
        ]
        return [contiguous(self.case), *paged]


def gpu_sweeps(page_sizes: tuple[int, ...], *, quick: bool, seed: int) -> list[Sweep]:
    """Return what is measured on a GPU: 16-bit caches of 0.5 to 9 GB.

    Examples
    --------
    >>> sweeps = gpu_sweeps(PAGE_SIZES, quick=False, seed=0)
    >>> sweeps[0].case.id, len(sweeps[0].placements())
    ('llama-3.1-8b.b64.c8192', 19)
    """
    sizes, few = _by_importance(page_sizes), _few(page_sizes)
    both, dtype = ("random", "in_order"), "bfloat16"
    main = Sweep(fixed_case(LLAMA_3_1_8B, 64, 8192, dtype), sizes, both, weight=8)
    if quick:
        return [replace(main, page_sizes=few)]
    batches = (
        (128, 4096),
        (1, 131072),
        (128, 1024),
        (16, 32768),
        (4, 131072),
        (32, 16384),
        (8, 65536),
        (2, 131072),
    )
    return [
        main,
        Sweep(fixed_case(LLAMA_2_7B, 64, 8192, dtype), sizes, weight=3),
        Sweep(fixed_case(DEEPSEEK_V2_LITE, 64, 8192, dtype), sizes, weight=3),
        Sweep(trace_case(LLAMA_3_1_8B, 128, "azure_conv_2023", dtype, seed), sizes, weight=2),
        *(Sweep(fixed_case(LLAMA_3_1_8B, b, c, dtype), few) for b, c in batches),
        Sweep(trace_case(LLAMA_3_1_8B, 32, "mooncake_conversation", dtype, seed), few),
    ]


def cpu_sweeps(
    page_sizes: tuple[int, ...], *, quick: bool, seed: int, least_bytes: int
) -> list[Sweep]:
    """Return what is measured on a CPU: 32-bit caches of at least so many bytes.

    float32 because torch's attention on a CPU reads it as it is, and converts 16-bit elements
    one tile at a time, several times slower than memory: pages would hide behind that.

    Examples
    --------
    >>> sweeps = cpu_sweeps(PAGE_SIZES, quick=True, seed=0, least_bytes=2**27)
    >>> [sweep.case.id for sweep in sweeps]
    ['llama-3.1-8b.b4.c8192']
    """
    sizes, few = _by_importance(page_sizes), _few(page_sizes)
    both, dtype = ("random", "in_order"), "float32"

    def at_least(shape: Shape, batch: int, context_tokens: int) -> DecodeCase:
        per_request = context_tokens * shape.kv_bytes_per_token(dtype)
        return fixed_case(shape, max(batch, -(-least_bytes // per_request)), context_tokens, dtype)

    def of_trace(trace: str, batch: int) -> DecodeCase:
        while True:
            case = trace_case(LLAMA_3_1_8B, batch, trace, dtype, seed)
            if case.kv_bytes >= least_bytes:
                return case
            batch *= 2

    main = Sweep(at_least(LLAMA_3_1_8B, 4, 8192), sizes, both, weight=12)
    if quick:
        return [replace(main, page_sizes=few)]
    return [
        main,
        Sweep(at_least(LLAMA_2_7B, 4, 2048), few, weight=2),
        Sweep(at_least(DEEPSEEK_V2_LITE, 16, 8192), few, weight=2),
        Sweep(of_trace("azure_conv_2023", 32), few, weight=2),
        Sweep(at_least(LLAMA_3_1_8B, 128, 1024), few),
        Sweep(at_least(LLAMA_3_1_8B, 1, 131072), few),
    ]


def host_lengths(seed: int) -> tuple[int, ...]:
    """Return the tokens that the running requests of the host's work hold."""
    return running_lengths(HOST_TRACE, HOST_REQUESTS, seed)


def _few(page_sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in FEW_PAGE_SIZES if size in page_sizes) or page_sizes[:1]


def _by_importance(page_sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*_few(page_sizes), *(size for size in page_sizes if size not in _few(page_sizes)))


def check_page_sizes(page_sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return page sizes in ascending order, each once.

    Raises
    ------
    LedgerError
        If there is none, or one does not divide the step of the contexts: pages would not be
        full, and each size would move other bytes.

    Examples
    --------
    >>> check_page_sizes((16, 1, 16))
    (1, 16)
    """
    for size in page_sizes:
        if size < 1 or CONTEXT_STEP % size:
            raise LedgerError(
                f"a page size is {size}; accepted: powers of 2 from 1 to {CONTEXT_STEP}"
            )
    if not page_sizes:
        raise LedgerError("no page sizes; accepted: at least one")
    return tuple(sorted(set(page_sizes)))
