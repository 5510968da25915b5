"""Pages of hybrid models, against a simulation token by token and against published page sizes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import kvledger as kv
from kvledger.accounting.page_groups import GroupLayout, GroupPages
from kvledger.models.known import read_config
from kvledger.models.layers import LayerGroup, StateTensor

PUBLISHED = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "configs" / "published.json").read_text(
        encoding="utf-8"
    )
)


def published(folder: Path, which: str, **arguments: Any) -> kv.Model:
    path = folder / "config.json"
    path.write_text(json.dumps(PUBLISHED[which]["config"]), encoding="utf-8")
    return read_config(path, name=which, **arguments)


# --- Token by token -------------------------------------------------------------------------------
class Table:
    """One page table of one request, filled token by token; pages out of reach are freed."""

    def __init__(self, group: LayerGroup, page_size: int) -> None:
        self.group, self.page_size = group, page_size
        self.tokens = 0
        self.pages: dict[int, set[int]] = {}

    def reach(self, query: int) -> set[int]:
        """Return the positions that a query attends to, itself included, one by one."""
        window = self.group.window
        if self.group.kind == "window":
            return {k for k in range(query + 1) if query - k < window}
        if self.group.kind == "chunked":
            return {k for k in range(query + 1) if k // window == query // window}
        return set(range(query + 1))

    def append(self) -> None:
        query = self.tokens
        self.pages.setdefault(query // self.page_size, set()).add(query)
        self.tokens += 1
        needed = self.reach(query)
        self.pages = {i: held for i, held in self.pages.items() if held & needed}

    def kept(self) -> int:
        return len(self.reach(self.tokens - 1)) if self.tokens else 0


kv_groups = st.builds(
    lambda kind, layers, heads, dim, window, n_bytes: LayerGroup(
        kind=kind,
        layers=layers,
        kv_heads=1 if kind == "latent" else heads,
        head_dim=dim,
        window=window if kind in ("window", "chunked") else None,
        bytes_per_element=n_bytes,
    ),
    st.sampled_from(["full", "latent", "window", "chunked"]),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 40),
    st.sampled_from([1, 2, 4]),
)
states = st.builds(
    lambda layers, units, elements: LayerGroup(
        kind="state", layers=layers, states=(StateTensor("state", units, elements, 2),)
    ),
    st.integers(1, 9),
    st.integers(1, 8),
    st.integers(1, 40),
)


@settings(max_examples=200, deadline=None)
@given(kv_groups, st.integers(1, 20), st.integers(1, 120))
def test_pages_and_kept_tokens_as_simulated(
    group: LayerGroup, page_size: int, longest: int
) -> None:
    table = Table(group, page_size)
    most = 0
    for tokens in range(1, longest + 1):
        table.append()
        assert group.tokens_kept(tokens) == table.kept()
        assert group.pages(tokens, page_size) == len(table.pages)
        most = max(most, len(table.pages))
    bound = group.most_pages(page_size)
    assert bound is None or most <= bound


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["window", "chunked"]), st.integers(1, 30), st.integers(1, 12))
def test_the_most_pages_are_reached(kind: str, window: int, page_size: int) -> None:
    group = LayerGroup(kind=kind, layers=1, kv_heads=1, head_dim=1, window=window)
    enough = window * page_size + window + page_size
    seen = max(group.pages(tokens, page_size) for tokens in range(1, enough + 1))
    assert seen == group.most_pages(page_size)


def test_nothing_is_held_before_the_first_token() -> None:
    group = LayerGroup(kind="window", layers=1, kv_heads=1, head_dim=1, window=4)
    assert (group.tokens_kept(0), group.pages(0, 16), group.oldest_kept(0)) == (0, 0, 0)
    state = LayerGroup(kind="state", layers=2, states=(StateTensor("state", 4, 8, 2),))
    assert (state.pages(0, 16), state.pages(1, 16), state.pages(9999, 16)) == (0, 1, 1)
    assert state.tokens_kept(9999) == 0
    layout = kv.separate_layout(kv.load_models()["gpt-oss-20b"], 16)
    assert kv.hybrid_pages([5, 900, 900], layout) == kv.hybrid_pages({5: 1, 900: 2}, layout)


models = st.builds(
    lambda first, others: kv.Model("drawn", groups=[first, *others]),
    kv_groups,
    st.lists(kv_groups | states, max_size=3),
)


@settings(max_examples=200, deadline=None)
@given(models, st.integers(1, 20), st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_bytes_of_separate_pages_as_simulated(
    model: kv.Model, page_size: int, lengths: list[int]
) -> None:
    accounted = kv.hybrid_pages(lengths, kv.separate_layout(model, page_size))
    assert [part.group for part in accounted] == list(model.groups)
    for part in accounted:
        group = part.group
        if group.kind == "state":
            assert part.pages == len(lengths)
            assert part.allocated_bytes == part.kept_bytes
            assert part.kept_bytes == len(lengths) * group.state_bytes_per_request
            continue
        pages, kept, tail, expired = 0, 0, 0, 0
        for n in lengths:
            table = Table(group, page_size)
            for _ in range(n):
                table.append()
            needed = table.reach(n - 1)
            pages += len(table.pages)
            kept += len(needed)
            held = set().union(*table.pages.values())
            expired += len(held - needed)
            tail += len(table.pages) * page_size - len(held)
        per_token = group.kv_bytes_per_token
        assert part.pages == pages
        assert part.allocated_bytes == pages * page_size * per_token
        assert part.kept_bytes == kept * per_token
        assert part.tail_slack_bytes == tail * per_token
        assert part.expired_bytes == expired * per_token
        assert part.padding_bytes == 0
    everything = sum(part.kept_bytes for part in accounted)
    assert everything == sum(model.request_bytes(n) for n in lengths)


# --- One pool for all -----------------------------------------------------------------------------
def unified_or_none(model: kv.Model, page_size: int) -> tuple[GroupLayout, ...] | None:
    """Return a layout, or None where the rules refuse to make one."""
    try:
        return kv.unified_layout(model, page_size)
    except kv.LedgerError as error:
        message = str(error)
    assert "one width is accepted" in message or "latent pages are not padded" in message
    return None


@settings(max_examples=300, deadline=None)
@given(models, st.integers(1, 40), st.lists(st.integers(1, 300), min_size=1, max_size=6))
def test_unified_pages_hold_everything(model: kv.Model, page_size: int, lengths: list[int]) -> None:
    layout = unified_or_none(model, page_size)
    if layout is None:
        return
    for part in layout:
        assert part.tables * part.layers_per_table >= part.group.layers
        assert (part.tables - 1) * part.layers_per_table < part.group.layers
        assert part.page_padding_bytes_per_layer >= 0
        assert part.page_size >= page_size or part.group.kind == "state"
    mixed = len(model.groups) > 1 and not all(group.grows for group in model.groups)
    if mixed:
        assert len({part.page_bytes for part in layout}) == 1
        assert len({part.layers_per_table for part in layout}) == 1
    for part in kv.hybrid_pages(lengths, layout):
        group, made = part.group, part.layout
        assert part.allocated_bytes == part.pages * made.page_bytes
        held = sum(group.pages(n, made.page_size or 1) for n in lengths)
        assert part.pages == held * made.tables
        assert part.layer_padding_bytes == held * made.padding_layers * made.page_bytes_per_layer
        content = held * group.layers * made.content_bytes_per_layer
        slack = part.tail_slack_bytes + part.expired_bytes
        assert part.kept_bytes + slack == content
        assert part.page_padding_bytes == part.allocated_bytes - content - part.layer_padding_bytes


@settings(max_examples=300)
@given(
    st.integers(1, 64),
    st.integers(1, 10**6),
    st.integers(1, 5000),
    st.sampled_from([1, 16, 64, 128]),
    st.integers(1, 64),
)
def test_a_page_is_raised_to_the_least_multiple_that_holds_a_state(
    page_size: int, elements: int, per_token: int, kernel_slots: int, layers: int
) -> None:
    full = LayerGroup(
        kind="full", layers=layers, kv_heads=1, head_dim=per_token, bytes_per_element=1
    )
    state = LayerGroup(kind="state", layers=layers, states=(StateTensor("s", 1, elements, 1),))
    model = kv.Model("drawn", groups=[full, state])
    attention, fixed = kv.unified_layout(model, page_size, kernel_slots=kernel_slots)
    step = max(kernel_slots, page_size)
    per_token = full.kv_bytes_per_token_and_layer
    assert attention.page_size % step == 0
    assert attention.page_size * per_token >= elements
    assert (attention.page_size - step) * per_token < elements
    assert fixed.page_padding_bytes_per_layer == attention.page_bytes_per_layer - elements
    assert attention.page_padding_bytes_per_layer == 0


# Page sizes that vLLM printed when it started, and where they were reported: slots a page, and the
# padding of states in percent where that was printed as well.
REPORTED: dict[str, tuple[str, dict[str, Any], int, str | None]] = {
    # vllm-project/vllm#24280, when states were as wide as the weights
    "Nemotron Nano 9B v2": ("Nemotron-Nano-9B-v2", {"state_dtype": "bfloat16"}, 672, None),
    # vllm-project/vllm#36010, for Qwen3.6 27B, which has the same shape, on two ranks
    "Qwen3.5 27B, two ranks": ("Qwen3.5-27B", {"tensor_parallel": 2}, 784, "0.13"),
    "Qwen3.5 27B": ("Qwen3.5-27B", {}, 784, "0.13"),
    # vllm-project/vllm#35703
    "Qwen3.5 397B, two ranks": ("Qwen3.5-397B-A17B", {"tensor_parallel": 2}, 2096, None),
    # vllm-project/vllm#53749
    "Nemotron 3.5 Lightning": ("Nemotron-3.5-Lightning-30B-A3B", {"dtype": "bfloat16"}, 2096, None),
    # Kimi K3 as it is served on eight ranks with an 8-bit cache
    "Kimi K3, eight ranks": ("Kimi-K3", {"tensor_parallel": 8, "dtype": "fp8"}, 1536, "8.68"),
}


@pytest.mark.parametrize("case", REPORTED)
def test_page_sizes_that_engines_were_seen_to_raise(case: str, tmp_path: Path) -> None:
    which, arguments, slots, padding = REPORTED[case]
    layout = kv.unified_layout(published(tmp_path, which, **arguments))
    attention, fixed = layout
    assert attention.group.grows
    assert attention.page_size == slots
    if padding is not None:
        state = fixed.group.state_bytes_per_layer
        percent = Fraction(100 * fixed.page_padding_bytes_per_layer, state)
        assert abs(percent - Fraction(padding)) <= Fraction(1, 200)


def test_the_tables_of_known_hybrids(tmp_path: Path) -> None:
    """vLLM's own examples: Gemma 3 27B in 1 + 6 tables of 10 layers, gpt-oss in two equal ones."""
    models = kv.load_models()
    tables = {
        "Gemma-3-27B": [(1, 10, 0), (6, 10, 8)],
        "gpt-oss-20b": [(1, 12, 0), (1, 12, 0)],
        "gpt-oss-120b": [(1, 18, 0), (1, 18, 0)],
        "Gemma-2-9B": [(1, 21, 0), (1, 21, 0)],
        "Llama-3.1-8B": [(1, 32, 0)],
    }
    for name, expected in tables.items():
        layout = kv.unified_layout(models[name])
        found = [(part.tables, part.layers_per_table, part.padding_layers) for part in layout]
        assert found == expected, name
        assert {part.page_size for part in layout} == {16}
    kimi = kv.unified_layout(published(tmp_path, "Kimi-K3"))
    found = [(part.tables, part.layers_per_table, part.padding_layers) for part in kimi]
    assert found == [(1, 24, 0), (3, 24, 3)]


@pytest.mark.parametrize(
    ("full", "window", "per_table"),
    [(12, 13, 13), (10, 14, 14), (10, 15, 10), (10, 20, 10), (20, 30, 20), (1, 1, 1), (2, 3, 2)],
)
def test_kinds_of_nearly_as_many_layers_share_tables(
    full: int, window: int, per_table: int
) -> None:
    model = kv.Model(
        "drawn", full_layers=full, window_layers=window, window=128, kv_heads=8, head_dim=64
    )
    layout = kv.unified_layout(model)
    assert {part.layers_per_table for part in layout} == {per_table}
    assert [part.tables for part in layout] == [-(-full // per_table), -(-window // per_table)]


def test_narrower_layers_get_more_slots_or_are_padded(tmp_path: Path) -> None:
    gemma = published(tmp_path, "Gemma-4-26B-A4B")
    full, window = kv.unified_layout(gemma)
    assert full.group.kv_bytes_per_token_and_layer * 2 == window.group.kv_bytes_per_token_and_layer
    assert (full.page_size, window.page_size) == (32, 16)
    assert full.page_padding_bytes_per_layer == window.page_padding_bytes_per_layer == 0
    wide = LayerGroup(kind="full", layers=2, kv_heads=3, head_dim=64)
    narrow = LayerGroup(kind="window", layers=2, kv_heads=2, head_dim=64, window=8)
    layout = kv.unified_layout(kv.Model("drawn", groups=[wide, narrow]))
    assert [part.page_size for part in layout] == [16, 16]
    assert [part.page_padding_bytes_per_layer for part in layout] == [0, 16 * 64 * 2 * 2]
    latent = LayerGroup(kind="latent", layers=2, kv_heads=1, head_dim=100)
    with pytest.raises(kv.LedgerError, match="latent pages are not padded"):
        kv.unified_layout(kv.Model("drawn", groups=[latent, narrow]))
    wide = LayerGroup(kind="full", layers=2, kv_heads=3, head_dim=64)
    narrow = LayerGroup(kind="full", layers=5, kv_heads=2, head_dim=64)
    model = kv.Model("pruned", groups=[wide, narrow])
    assert kv.unified_layout(model) == kv.separate_layout(model, 16)
    kimi = published(tmp_path, "Kimi-K3", tensor_parallel=8, dtype="fp8")
    assert kv.unified_layout(kimi)[0].page_size % 128 == 0
    assert kv.unified_layout(kimi, kernel_slots=64)[0].page_size == 1472


def test_what_one_pool_costs_a_short_request(tmp_path: Path) -> None:
    """A request of one token holds a page in each table: on Qwen3.5-27B, 784 slots of 16 layers
    for it, and 48 states."""
    model = published(tmp_path, "Qwen3.5-27B")
    attention, fixed = kv.hybrid_pages([1], kv.unified_layout(model))
    assert (attention.pages, fixed.pages) == (1, 3)
    assert attention.tail_slack_bytes == 783 * 16 * 4096
    assert fixed.kept_bytes == 48 * 3207168
    assert fixed.page_padding_bytes == 48 * (784 * 4096 - 3207168)
    apart, _ = kv.hybrid_pages([1], kv.separate_layout(model, 16))
    assert apart.tail_slack_bytes == 15 * 16 * 4096


# --- Bad input ------------------------------------------------------------------------------------
def test_bad_arguments_are_named() -> None:
    model = kv.load_models()["Gemma-3-27B"]
    for layout in (kv.separate_layout, kv.unified_layout):
        for page_size in (0, -1, 1.5, None, "16"):
            refused("page_size is", layout, model, page_size)
    for slots in (0, -16, "16"):
        refused("kernel_slots is", kv.unified_layout, model, kernel_slots=slots)
    refused(r"lengths\[1\] is 0", kv.hybrid_pages, [5, 0], kv.separate_layout(model, 16))
    one = LayerGroup(kind="full", layers=2, kv_heads=2, head_dim=64)
    two = LayerGroup(kind="window", layers=2, kv_heads=4, head_dim=64, window=8)
    state = LayerGroup(kind="state", layers=2, states=(StateTensor("state", 4, 8, 2),))
    with pytest.raises(kv.LedgerError, match="take 512, 1024 bytes a token beside fixed states"):
        kv.unified_layout(kv.Model("drawn", groups=[one, two, state]))
    layout = kv.separate_layout(kv.load_models()["OPT-175B"], 16)
    refused("64 bits", kv.hybrid_pages, {2**40: 2**40}, layout)
    (layout,) = kv.separate_layout(kv.load_models()["Llama-3.1-8B"], 16)
    ones = ("requests", "pages", "tail_slack_bytes", "expired_bytes", "page_padding_bytes")
    good: dict[str, Any] = dict.fromkeys((*ones, "layer_padding_bytes"), 1)
    good |= {"layout": layout, "allocated_bytes": 10, "kept_bytes": 6}
    assert GroupPages(**good).waste_bytes == 4
    refused(r"allocated_bytes is 10; kept 5 \+ waste 4 = 9", GroupPages, **good | {"kept_bytes": 5})
    refused("expired_bytes is -1", GroupPages, **good | {"expired_bytes": -1})
