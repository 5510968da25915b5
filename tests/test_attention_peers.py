"""Each peer against the reference, what it refuses, and that a timed step is only a step."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import attention_libraries as libraries
import pytest
import torch
from decode_steps import made_step
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kvledger.core.errors import LedgerError
from kvledger.measure import library_peers, peers
from kvledger.measure.decode_step import DecodeInputs, paged_decode_reference
from kvledger.measure.peers import Peer, RefusedError, Step, cannot_import, physical_to_logical
from kvledger.measure.sweeps import (
    DEEPSEEK_V2_LITE,
    LLAMA_3_1_8B,
    Placement,
    case_of,
)

BY_NAME = {peer.name: peer for peer in library_peers.PEERS}
#: float32 sums in any order; for 16-bit types some roundings of the weights and the output.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
RAGGED = (1, 47, 16, 33)


def inputs(lengths: tuple[int, ...] = RAGGED, page_size: int = 16, **sizes: Any) -> DecodeInputs:
    return made_step(lengths, page_size, **sizes)


def agrees(step: Step, given: DecodeInputs) -> None:
    """Compare a step with the reference, a second time after its output was overwritten."""
    expected = paged_decode_reference(given)
    dtype = given.q.dtype
    step().fill_(float("nan"))
    out = step()
    assert out.dtype == dtype
    assert out.shape == expected.shape
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


#: A step of Llama-3.1-8B's heads in pages of 16, and one of a latent cache.
STEP = Placement(case_of(LLAMA_3_1_8B, [8192] * 64, "bfloat16"), "random", 16).sizes
LATENT = Placement(case_of(DEEPSEEK_V2_LITE, [8192] * 64, "bfloat16"), "random", 16).sizes


# --------------------------------------------------------------------------- on a CPU
@pytest.mark.parametrize("name", ["sdpa", "gather_sdpa"])
@pytest.mark.parametrize("page_size", [1, 5, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_torch_attention_agrees_with_the_reference(
    name: str, page_size: int, dtype: torch.dtype
) -> None:
    given = inputs(page_size=page_size, dtype=dtype)
    agrees(BY_NAME[name].prepare(given), given)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    page_size=st.integers(1, 20),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    dims=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    latent=st.booleans(),
    scale=st.none() | st.floats(-2, 2),
    seed=st.integers(0, 99),
)
def test_torch_attention_agrees_for_any_sizes(
    lengths: list[int], page_size: int, kv_heads: int, group: int, dims: tuple[int, int],
    latent: bool, scale: float | None, seed: int,
) -> None:  # fmt: skip
    dims = (max(dims), min(dims)) if latent else dims
    heads = (kv_heads * group, kv_heads)
    given = made_step(lengths, page_size, heads=heads, dims=dims, latent=latent, seed=seed)
    given = given._replace(scale=scale)
    for name in ("sdpa", "gather_sdpa"):
        agrees(BY_NAME[name].prepare(given), given)


@pytest.fixture(scope="module")
def flex_steps() -> Iterator[Any]:
    """Steps of FlexAttention, each set of sizes compiled once for this file."""
    reason = BY_NAME["flex_paged"].absent("cpu")
    assert reason is None, reason  # torch's CPU build and a C++ compiler are part of the setup
    return BY_NAME["flex_paged"].prepare


MLA: dict[str, Any] = {"heads": (16, 1), "dims": (576, 512), "latent": True}
SIZES: dict[str, dict[str, Any]] = {
    # Long enough for the kernel for decode; its two ways, for equal and for other lengths.
    "page 1, equal": {"lengths": (600, 600), "page_size": 1, "heads": (3, 3), "dims": (16, 8)},
    "page 16, ragged": {"lengths": (700, 1, 333, 400), "page_size": 16},
    # A page is more than that kernel takes at once.
    "page 256": {"lengths": (700, 300), "page_size": 256, "dtype": torch.bfloat16},
    "latent, page 24": {"lengths": (90, 33), "page_size": 24, **MLA},
}


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_flex_attention_agrees_with_the_reference(flex_steps: Any, sizes: str) -> None:
    given = inputs(**SIZES[sizes])
    agrees(flex_steps(given), given)


@pytest.mark.slow
def test_flex_attention_is_compiled_once_for_all_tables_of_the_same_sizes(flex_steps: Any) -> None:
    from torch._dynamo.utils import counters

    sizes = SIZES["page 16, ragged"]
    flex_steps(inputs(**sizes))
    before = counters["stats"]["unique_graphs"]
    assert before
    for seed in (1, 2):
        given = inputs(**sizes, seed=seed)
        given.lengths.sub_(torch.tensor([seed, 0, 2, 17 * seed], dtype=torch.int32))
        agrees(flex_steps(given), given)
    assert counters["stats"]["unique_graphs"] == before


@pytest.mark.slow
def test_flex_attention_takes_a_page_once_a_request(flex_steps: Any) -> None:
    given = inputs((20, 30), 16)
    given.page_table[0, 1] = given.page_table[0, 0]
    with pytest.raises(RefusedError, match="flex_paged: takes a page at most once in a request"):
        flex_steps(given)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdpa", "gather_sdpa", "flex_paged"])
def test_the_table_says_which_pages_are_read(name: str) -> None:
    given = inputs(**SIZES["page 16, ragged"])
    given.page_table[3, :20] = given.page_table[0, :20]  # requests may share pages
    agrees(BY_NAME[name].prepare(given), given)
    expected = BY_NAME[name].prepare(given)().clone()
    to = torch.randperm(len(given.k_pages), generator=torch.Generator().manual_seed(3))
    k, v = torch.empty_like(given.k_pages), torch.empty_like(given.v_pages)
    k[to], v[to] = given.k_pages, given.v_pages
    moved = given._replace(k_pages=k, v_pages=v)
    other = BY_NAME[name].prepare(moved)().clone()  # its pages are no longer where it says
    assert not torch.allclose(other, expected, atol=0.1)
    moved = moved._replace(page_table=to.int()[given.page_table.clamp(min=0).long()])
    torch.testing.assert_close(BY_NAME[name].prepare(moved)(), expected)


# --------------------------------------------------------------------------- what a step does
class Operations(TorchDispatchMode):
    """Notes what is run, other views of the same memory aside, and the bytes that are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.bytes = list[str](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        self.names += [name] * (name not in ("alias", "slice", "view"))
        self.bytes += out.nbytes if name in ("new_empty", "clone") else 0
        return out


def operations(step: Step) -> list[str]:
    with Operations() as seen:
        step()
    return seen.names


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("lengths", [(32, 32), RAGGED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_torch_attention_is_that_alone_or_with_the_gathering(
    lengths: tuple[int, ...], latent: bool, dtype: torch.dtype
) -> None:
    given = inputs(lengths, dims=(32, 16 if latent else 32), latent=latent, dtype=dtype)
    kernel = ["_scaled_dot_product_flash_attention_for_cpu"]
    assert operations(BY_NAME["sdpa"].prepare(given)) == kernel
    gathered = ["index_select"] * (1 if latent else 2)
    assert operations(BY_NAME["gather_sdpa"].prepare(given)) == gathered + kernel


@pytest.mark.slow
def test_a_step_of_flex_attention_builds_no_mask(
    flex_steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import BlockMask

    given = inputs(**SIZES["page 16, ragged"])
    step = flex_steps(given)
    given.v_pages.mul_(2)  # the pages are read where they lie
    for place, name in (
        (peers, "_block_mask"),
        (peers, "physical_to_logical"),
        (peers, "_compiled"),
        (PagedAttention, "convert_logical_block_mask"),
        (BlockMask, "from_kv_blocks"),
    ):
        monkeypatch.setattr(place, name, Mock(side_effect=AssertionError(name)))
    agrees(step, given)


# --------------------------------------------------------------------------- tables in other forms
@st.composite
def page_tables(draw: st.DrawFn) -> DecodeInputs:
    page_size = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))
    width = max(-(-n // page_size) for n in lengths) + draw(st.integers(0, 2))
    num_pages = len(lengths) * width + draw(st.integers(0, 3))
    order = draw(st.permutations(range(num_pages)))
    table = torch.tensor(order[: len(lengths) * width], dtype=torch.int32)
    table = table.reshape(len(lengths), width)
    for request, length in enumerate(lengths):
        table[request, -(-length // page_size) :] = draw(st.sampled_from([-1, 2**31 - 1]))
    pages = torch.zeros(num_pages, page_size, 1, 1)
    held = torch.tensor(lengths, dtype=torch.int32)
    return DecodeInputs(torch.zeros(len(lengths), 1, 1), pages, pages, table, held)


@given(page_tables())
def test_a_table_in_rows_lists_the_pages_of_each_request(step: DecodeInputs) -> None:
    page_size = step.k_pages.shape[1]
    indptr, listed, last_page_len = library_peers.csr(step)
    assert {part.dtype for part in (indptr, listed, last_page_len)} == {torch.int32}
    filled, places = peers.filled_table(step), physical_to_logical(step)
    start = 0
    for request, length in enumerate(step.lengths.tolist()):
        needed = -(-length // page_size)
        row = step.page_table[request].tolist()
        assert indptr[request : request + 2].tolist() == [start, start + needed]
        assert listed[start : start + needed].tolist() == row[:needed]
        assert last_page_len[request] == length - (needed - 1) * page_size
        assert filled[request].tolist() == row[:needed] + row[:1] * (len(row) - needed)
        expected = [-1] * len(step.k_pages)
        for entry, page in enumerate(row[:needed]):
            expected[page] = entry
        assert places[request].tolist() == expected
        start += needed
    assert len(listed) == start


# --------------------------------------------------------------------------- GPU libraries
@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Peers that are not asked whether they are there, with stand-ins for their libraries."""
    for kind in (library_peers.FlashInfer, library_peers.FlashPaged, library_peers.CudnnPaged):
        monkeypatch.setattr(kind, "absent", lambda self, device: None)
    monkeypatch.setitem(sys.modules, "flashinfer", libraries.flashinfer)  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "cudnn", libraries.cudnn())  # type: ignore[misc]
    monkeypatch.setattr(library_peers, "cudnn_handle", lambda device: "handle")
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", libraries.varlen_attn)
    return BY_NAME


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("heads", [(8, 2), (3, 3)])
@pytest.mark.parametrize(
    ("name", "page_size"),
    [("flashinfer", 1), ("flashinfer", 16), ("cudnn_paged", 1), ("cudnn_paged", 16),
     ("flash_paged", 256)],
)  # fmt: skip
def test_a_library_is_told_the_step_that_is_meant(
    present: dict[str, Peer], name: str, page_size: int, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    given = inputs((1, 47, 300, 33), page_size, heads=heads, dtype=dtype)
    for scale in (None, 0.5):
        scaled = given._replace(scale=scale)
        agrees(present[name].prepare(scaled), scaled)


def test_a_library_is_told_of_a_latent_cache_and_flashinfer_of_matrix_units(
    present: dict[str, Peer],
) -> None:
    given = inputs(**MLA, dtype=torch.bfloat16)
    for name in ("flashinfer", "cudnn_paged"):
        agrees(present[name].prepare(given), given)
    for heads, shared in (((8, 2), True), ((4, 2), False)):
        present["flashinfer"].prepare(inputs(heads=heads, dtype=torch.float16))()
        wrapper = libraries.DecodeWrapper.made[-1]
        assert (wrapper.plans, wrapper.use_tensor_cores) == (1, shared)


def test_the_stand_in_for_varlen_attn_takes_what_torch_takes() -> None:
    from torch.nn.attention.varlen import varlen_attn

    def names(function: Any) -> list[tuple[str, Any]]:
        return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]

    assert names(libraries.varlen_attn) == names(varlen_attn)


# --------------------------------------------------------------------------- JAX's Pallas
@pytest.fixture(scope="module")
def pallas() -> library_peers.PallasPaged:
    pytest.importorskip("jax", reason="JAX is not part of this environment")
    peer = library_peers.PallasPaged(interpret=True)
    assert peer.absent("cpu") is None
    return peer


@pytest.mark.parametrize(
    ("lengths", "page_size", "dtype"),
    [((1, 47, 300), 1, torch.float32), ((1, 47, 300), 16, torch.bfloat16),
     ((1, 47, 300), 128, torch.float32), ((700,), 4, torch.float32)],  # the last one is split
)  # fmt: skip
def test_pallas_agrees_with_the_reference(
    pallas: library_peers.PallasPaged, lengths: tuple[int, ...], page_size: int, dtype: torch.dtype
) -> None:
    given = inputs(lengths, page_size, dtype=dtype)._replace(scale=0.25)
    agrees(pallas.prepare(given), given)


@pytest.mark.parametrize(
    ("page_size", "head_dim", "kv_heads", "taken"),
    [(1, 128, 8, True), (16, 64, 32, True), (256, 128, 8, True), (24, 128, 8, False),
     (16, 96, 8, False)],
)  # fmt: skip
def test_pallas_becomes_triton_code_for_the_sizes_that_are_not_refused(
    pallas: library_peers.PallasPaged, page_size: int, head_dim: int, kv_heads: int, taken: bool
) -> None:
    """JAX lowers the kernel for a GPU without having one; odd sizes stop it."""
    import jax
    from jax import export

    case = STEP._replace(
        batch=2, head_dim=head_dim, value_dim=head_dim, kv_heads=kv_heads, page_size=page_size
    )
    assert (pallas.refuses(case, "cuda") is None) == taken
    pages_per_block, splits = library_peers.pallas_cut(case, units=132)
    columns = library_peers.whole_blocks(
        torch.zeros(1, case.max_pages), pages_per_block * splits
    ).shape[1]
    half, whole = (partial(jax.ShapeDtypeStruct, dtype=kind) for kind in ("bfloat16", "int32"))
    pool = half((kv_heads, 1000, page_size, head_dim))
    kernel = importlib.import_module(library_peers.PallasPaged.module).paged_attention
    cut = partial(kernel, pages_per_compute_block=pages_per_block, k_splits=splits)
    calls = ("__gpu$xla.gpu.triton", "triton_kernel_call")
    unchecked = [export.DisabledSafetyCheck.custom_call(name) for name in calls]
    exported = export.export(jax.jit(cut), platforms=["cuda"], disabled_checks=unchecked)
    arguments = (half((2, 32, head_dim)), pool, pool, whole((2, columns)), whole((2,)))
    lower = partial(exported, *arguments)
    if taken:
        assert "triton" in lower().mlir_module()
    else:
        with pytest.raises(ValueError, match="power of 2"):
            lower()


# --------------------------------------------------------------------------- absent and refused
def test_each_peer_has_a_name_and_says_how_it_is_timed() -> None:
    assert list(BY_NAME)[:2] == ["triton", "sdpa"]
    assert len(BY_NAME) == len(library_peers.PEERS)
    assert {peer.name for peer in library_peers.PEERS if not peer.paged} == {"sdpa"}
    assert {peer.name for peer in library_peers.PEERS if peer.timed_by == "host"} == {
        "pallas_paged"
    }


@pytest.mark.parametrize(
    "name", ["triton", "flash_paged", "flashinfer", "cudnn_paged", "pallas_paged"]
)
def test_a_peer_for_gpus_is_absent_without_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = "a GPU: on a CPU Triton only" if name == "triton" else "an NVIDIA GPU; this is a cpu"
    with pytest.raises(RefusedError) as refused:
        BY_NAME[name].prepare(inputs())
    assert refused.value.reason.startswith(f"needs {kept}")
    assert refused.value.reason == BY_NAME[name].absent("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert BY_NAME[name].absent("cuda") == "needs an NVIDIA GPU; torch finds none"


@pytest.mark.parametrize(
    ("name", "module"),
    [("flashinfer", "flashinfer"), ("cudnn_paged", "cudnn"), ("pallas_paged", "jax"),
     ("flash_paged", "torch.nn.attention.varlen"), ("triton", "triton"),
     ("flex_paged", "torch.nn.attention.experimental._paged_attention")],
)  # fmt: skip
def test_a_library_that_is_not_there_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for loaded in [each for each in sys.modules if each == module or each.startswith(module + ".")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[misc]
    reason = BY_NAME[name].absent("cuda")
    assert reason is not None
    assert "cannot be imported (ModuleNotFoundError" in reason
    assert module in reason


def test_a_library_that_breaks_when_imported_is_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib, "import_module", Mock(side_effect=OSError("libcuda.so.1\nx")))
    assert cannot_import("cudnn") == "cudnn cannot be imported (OSError: libcuda.so.1)"


def test_cudnn_must_know_page_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Mock(side_effect=RuntimeError("Unable to find symbol"))
    for version, reason in (
        (lambda: 90500, None),
        (lambda: 90400, "needs cuDNN 90500; this is 90400"),
        (lost, "the frontend finds no cuDNN (RuntimeError: Unable to find symbol)"),
    ):
        library = libraries.cudnn()
        library.backend_version = version
        monkeypatch.setitem(sys.modules, "cudnn", library)  # type: ignore[misc]
        assert library_peers.CudnnPaged()._lacks("cuda") == reason


def test_a_torch_that_hands_no_table_on_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library_peers.FlashPaged()._lacks("cuda") is None

    def older(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any) -> None: ...

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", older)
    assert library_peers.FlashPaged()._lacks("cuda") == (
        f"torch {torch.__version__} hands no block_table to FlashAttention"
    )


def test_flex_attention_needs_a_compiler_and_a_cpu_that_torch_compiles_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.kernel.flex import flex_cpu

    peers._cannot_compile.cache_clear()
    no_compiler = Mock(side_effect=RuntimeError("none"))
    for place, name, stand_in, reason in (
        (cpp_builder, "get_cpp_compiler", no_compiler, "needs a C++ compiler (RuntimeError: none)"),
        (flex_cpu, "check_cpu_supported", lambda: False, "torch compiles it only for CPUs with"),
    ):
        monkeypatch.setattr(place, name, stand_in)
        assert (BY_NAME["flex_paged"].absent("cpu") or "").startswith(reason)
        peers._cannot_compile.cache_clear()


EQUAL, NOT_FLOAT32 = "equal K and V heads", "float16 and bfloat16, not float32"
LATENT_HEAD = "a latent cache of one head of (576, 512)"


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("flex_paged", {"page_size": 8}, "pages of powers of two from 16 on a GPU, not 8"),
        ("flex_paged", {"page_size": 48}, "pages of powers of two from 16 on a GPU, not 48"),
        ("flash_paged", {}, "pages of multiples of 256, not 16"),
        ("flash_paged", {"page_size": 256, "value_dim": 64}, f"{EQUAL} up to 256, not 128 and 64"),
        ("flash_paged", {"page_size": 256, "dtype": "float32"}, NOT_FLOAT32),
        ("flashinfer", {"dtype": "float32"}, NOT_FLOAT32),
        ("flashinfer", {"value_dim": 64}, f"{EQUAL}, not 128 and 64"),
        ("flashinfer", {"latent": True}, f"{LATENT_HEAD}, not 8 of (128, 128)"),
        ("cudnn_paged", {"dtype": "float32"}, NOT_FLOAT32),
        ("cudnn_paged", {"head_dim": 100}, "heads of multiples of 8, not 100 and 128"),
        ("pallas_paged", {"value_dim": 64}, f"{EQUAL}, not 128 and 64"),
        ("pallas_paged", {"page_size": 24}, "pages of powers of two, not 24"),
        ("pallas_paged", {"head_dim": 8, "value_dim": 8}, "heads of powers of two from 16, not 8"),
    ],
)  # fmt: skip
def test_a_step_that_a_peer_does_not_take_is_refused_before_it_is_made(
    name: str, changes: dict[str, Any], reason: str
) -> None:
    assert BY_NAME[name].refuses(STEP._replace(**changes), "cuda") == f"takes {reason}"


@pytest.mark.parametrize("peer", library_peers.PEERS, ids=lambda peer: peer.name)
def test_the_step_that_most_is_said_of_is_taken_by_all(peer: Peer) -> None:
    assert peer.refuses(STEP._replace(page_size=256), "cuda") is None
    assert BY_NAME["flex_paged"].refuses(STEP._replace(page_size=3), "cpu") is None
    assert BY_NAME["flashinfer"].refuses(LATENT._replace(page_size=1), "cuda") is None


def test_float8_pages_are_for_the_kernel_alone() -> None:
    given = inputs(dtype=torch.bfloat16)
    k, v = (pages.clamp(-9, 9).to(torch.float8_e4m3fn) for pages in given[1:3])
    given = given._replace(k_pages=k, v_pages=v)
    with pytest.raises(RefusedError, match="sdpa: takes no float8_e4m3fn pages beside a q of bf"):
        BY_NAME["sdpa"].prepare(given)
    assert [peer.name for peer in library_peers.PEERS if peer.takes_float8] == ["triton"]


@pytest.mark.parametrize("peer", [BY_NAME["sdpa"], BY_NAME["flashinfer"]], ids=lambda p: p.name)
def test_tensors_that_do_not_go_together_are_no_refusal(peer: Peer) -> None:
    given = inputs()
    given.page_table[1, 2] = 99
    with pytest.raises(LedgerError, match=r"page_table\[1, 2\] is 99; accepted: a page") as error:
        peer.prepare(given)
    assert not isinstance(error.value, RefusedError)


# --------------------------------------------------------------------------- libraries that fail
class Failing(Peer):
    """Fails when it prepares, or when it is first called."""

    name = "failing"
    _prepare = Mock()

    def absent(self, device: torch.device | str) -> str | None:
        return None


@pytest.mark.parametrize("when", ["prepare", "call"])
def test_what_a_library_cannot_do_is_its_refusal_and_an_interrupt_none(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(error: BaseException) -> None:
        fails = Mock(side_effect=error)
        monkeypatch.setattr(Failing, "_prepare", fails if when == "prepare" else lambda *_: fails)
        Failing().prepare(inputs())

    error = RuntimeError("no kernel image\nis available")
    said = r"^failing: cannot be prepared \(RuntimeError: no kernel image\)$"
    with pytest.raises(RefusedError, match=said) as refused:
        prepare(error)
    assert refused.value.__cause__ is error
    with pytest.raises(KeyboardInterrupt):
        prepare(KeyboardInterrupt())


# --------------------------------------------------------------------------- memory and imports
def test_the_memory_that_is_announced_is_the_memory_that_is_taken() -> None:
    given = inputs((30, 40), 16)
    case = STEP._replace(
        dtype="float32", batch=2, kv_heads=2, head_dim=32, value_dim=32,
        page_size=16, pages=7, max_pages=4, longest=40,
    )  # fmt: skip
    gathered = 2 * 4 * 16 * 2 * (32 + 32) * 4  # requests, pages, slots, heads, elements, bytes
    assert BY_NAME["gather_sdpa"].extra_bytes(case) == gathered
    contiguous = 2 * 40 * 2 * (32 + 32) * 4
    assert BY_NAME["sdpa"].extra_bytes(case) == gathered + contiguous
    assert BY_NAME["pallas_paged"].extra_bytes(case) == 7 * 16 * 2 * (32 + 32) * 4
    latent = case._replace(value_dim=8, latent=True)
    assert BY_NAME["sdpa"].extra_bytes(latent) == (gathered + contiguous) // 2
    assert BY_NAME["triton"].extra_bytes(case) == 0

    for name in ("sdpa", "gather_sdpa"):
        with Operations() as taken:
            BY_NAME[name].prepare(given)
        assert taken.bytes == BY_NAME[name].extra_bytes(case)


@pytest.mark.slow
def test_asking_for_the_peers_imports_no_library() -> None:
    code = (
        "import sys; from kvledger.measure.library_peers import PEERS; "
        "print([p.absent('cpu') for p in PEERS if p.name != 'flex_paged'][1]); "
        "heavy = {'jax', 'flashinfer', 'cudnn', 'triton', 'numba', 'joblib'}; "
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["None", "set()"]
