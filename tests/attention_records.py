"""Records made from a formula, of a device that does not exist: for tests, never for ``data/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvledger.measure.record import (
    Absence,
    CaseShape,
    CodeVersion,
    Copy,
    Device,
    HostTiming,
    Record,
    Timing,
    write_record,
)
from kvledger.measure.sweeps import LLAMA_2_7B, LLAMA_3_1_8B, PAGE_SIZES, ModelHeads, case_of

BYTES_PER_S = {"cuda": 4.0e12, "cpu": 2.0e10}


@dataclass(frozen=True)
class MadePeer:
    """How long a peer takes: a share of the bandwidth, and token slots for each page."""

    share: float
    c_random: float = 0.0
    c_in_order: float = 0.0
    page_sizes: tuple[int, ...] = PAGE_SIZES
    own_contiguous: bool = False


GPU_PEERS: Mapping[str, MadePeer] = {
    "triton": MadePeer(0.95, 0.12, 0.07, own_contiguous=True),
    "sdpa": MadePeer(0.93, page_sizes=(), own_contiguous=True),
    "gather_sdpa": MadePeer(0.31, 0.2, 0.15),
    "flex_paged": MadePeer(0.8, 0.3, 0.3, page_sizes=(16, 32, 64, 128, 256)),
    "flashinfer": MadePeer(0.94, 0.2, 0.1),
}
CPU_PEERS: Mapping[str, MadePeer] = {
    "sdpa": MadePeer(0.7, page_sizes=(), own_contiguous=True),
    "gather_sdpa": MadePeer(0.25, 0.4, 0.2),
    "flex_paged": MadePeer(0.2, 0.9, 0.8, page_sizes=(4, 8, 16, 32, 64, 128, 256)),
}

LLAMA3, LLAMA2 = LLAMA_3_1_8B, LLAMA_2_7B
MLA = ModelHeads("MLA-one-head", 16, 1, 576, 512, latent=True)


def made_case(heads: Iterable[Any], batch: int, context: int) -> CaseShape:
    return case_of(ModelHeads(*heads), [context] * batch, "bfloat16")


def made_trace_case(heads: Iterable[Any], lengths: Iterable[int]) -> CaseShape:
    return case_of(ModelHeads(*heads), tuple(lengths), "bfloat16", "azure_conv_2023")


def made_record(
    kind: str = "cuda",
    *,
    name: str | None = None,
    date: str = "2026-01-02T03:04:05Z",
    repetitions: int = 11,
    noise: float = 0.004,
    peers: Mapping[str, MadePeer] | None = None,
    cases: Iterable[CaseShape] | None = None,
    seed: int = 0,
) -> Record:
    """Make a record whose times are bytes / bandwidth x (1 + c x pages / tokens), and noise."""
    rng = np.random.default_rng(seed)
    peers = peers or (GPU_PEERS if kind == "cuda" else CPU_PEERS)
    context = 8192 if kind == "cuda" else 2048
    batch = 64 if kind == "cuda" else 4
    cases = tuple(
        cases
        or (
            made_case(LLAMA3, batch, context),
            made_case(LLAMA2, batch // 4, context),
            made_case(MLA, batch, context),
            made_case(LLAMA3, 1, 4 * context),
            made_trace_case(LLAMA3, range(300, 300 + 37 * batch, 37)),
        )
    )
    timings = []
    for case in cases:
        drift = 1 + noise * rng.standard_normal(repetitions)
        for peer, made in peers.items():
            floor = case.kv_bytes / made.share / BYTES_PER_S[kind]
            layouts = [("contiguous", max(case.held_tokens), 0.0)] * made.own_contiguous
            for size in made.page_sizes:
                layouts += [("in_order", size, made.c_in_order), ("random", size, made.c_random)]
            for layout, size, c in layouts:
                pages = case.batch if layout == "contiguous" else case.pages(size)
                seconds = floor * (1 + c * pages / case.tokens) * drift
                seconds *= np.exp(noise * rng.standard_normal(repetitions))
                timings.append(
                    Timing(
                        case=case.id,
                        peer=peer,
                        layout=layout,
                        page_size=size,
                        pages=pages,
                        moved_bytes=case.kv_bytes + 4 * pages,
                        calls=4,
                        timed_by="events" if kind == "cuda" else "host",
                        seconds=tuple(float(s) for s in seconds),
                        relative_error=1e-3,
                    )
                )
    absent = [Absence("pallas_paged", None, None, "jax is not installed")]
    absent += [
        Absence(peer, case.id, size, f"pages of {size} are too small for it")
        for peer, made in peers.items()
        if made.page_sizes
        for case in cases
        for size in PAGE_SIZES
        if size not in made.page_sizes
    ]
    if "triton" not in peers:
        absent.append(Absence("triton", None, None, "the interpreter's time means nothing"))
    copied = 2 * 2**30
    return Record(
        schema=1,
        kind="attention",
        date=date,
        command="python -m kvledger.measure",
        source=CodeVersion("0" * 40, "0" * 64, False),
        device=Device(
            kind=kind,
            name=name or ("Test device, a GPU" if kind == "cuda" else "Test device, a CPU"),
            units=132 if kind == "cuda" else 2,
            memory_bytes=141 * 10**9,
            last_level_cache_bytes=50 * 2**20,
            driver="1.2" if kind == "cuda" else None,
            capability="9.0" if kind == "cuda" else None,
        ),
        software={"python": "3.11", "torch": "2.0", "triton": None, "numpy": "2.0", "cuda": None},
        settings={
            "quick": False, "seed": seed, "repetitions": repetitions, "page_sizes": list(PAGE_SIZES)
        },
        copy=Copy(copied, (copied / BYTES_PER_S[kind],) * repetitions),
        cases=cases,
        timings=tuple(timings),
        absent=tuple(absent),
        host=_host(rng, repetitions, noise),
        elapsed_s=1.0,
        file=f"{date[:10]}-made-{kind}.json",
    )  # fmt: skip


def _host(rng: np.random.Generator, repetitions: int, noise: float) -> tuple[HostTiming, ...]:
    """Host work as seconds = fixed + by the page + by the token, of so many tokens."""
    requests, held, steps, prompt = 256, 256 * 1024, 64, 8192
    work = {
        "build_page_table": (requests, held, 2e-5, 3e-9, 0.0),
        "extend_page_table": (requests, requests * steps, 0.0, 2e-7, 4e-8),
        "allocate_pages": (requests, requests * steps, 0.0, 6e-8, 4e-8),
        "hash_pages": (1, prompt, 0.0, 1.2e-6, 1.2e-7),
        "hash_pages_packed": (1, prompt, 0.0, 4e-7, 2e-8),
    }
    rows = []
    for size in PAGE_SIZES:
        for what, (of, tokens, fixed, page_s, token_s) in work.items():
            pages = tokens // size
            noisy = np.exp(noise * rng.standard_normal(repetitions))
            seconds = (fixed + page_s * pages + token_s * tokens) * noisy
            times = tuple(float(s) for s in seconds)
            rows.append(HostTiming(what, size, of, tokens, pages, "pages", times))
    return tuple(rows)


def write_made(folder: Path, record: Record) -> Path:
    """Write a made record under the name that the measuring command would give it."""
    path = folder / record.file
    write_record(record, path)
    return path
