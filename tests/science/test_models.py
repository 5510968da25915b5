"""Every row of the models table recomputed from its shape, and the cases of public reports."""

from __future__ import annotations

import csv
from decimal import Decimal
from fractions import Fraction

import pytest

import kvledger as kv
from kvledger.core import data_file
from kvledger.models.layers import DTYPE_BYTES

GIB = 2**30


def rows_of(name: str) -> list[dict[str, str]]:
    with data_file(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


MODELS = rows_of("models.csv")
CASES = {row["id"]: row for row in rows_of("cases.csv")}


def agrees(value: Fraction | int, printed: str) -> bool:
    """Tell whether a value is printed so: rounded to its digits, ties either way."""
    digits = Decimal(printed)
    last = Fraction(Decimal(1).scaleb(digits.as_tuple().exponent))
    return abs(Fraction(value) - Fraction(digits)) <= last / 2


def vectors(row: dict[str, str]) -> int:
    return 1 if row["attn"].startswith("MLA") else 2


@pytest.mark.parametrize("row", MODELS, ids=[row["model"] for row in MODELS])
def test_every_column_of_a_row_follows_from_its_shape(row: dict[str, str]) -> None:
    model = kv.load_models()[row["model"]]
    per_layer = (
        vectors(row) * int(row["kv_heads"]) * int(row["head_dim"]) * int(row["bytes_per_elem"])
    )
    full, windowed = int(row["full_layers"]), int(row["window_layers"])
    window = int(row["window"] or 0)
    assert model.kv_bytes_per_token_and_layer == per_layer == int(row["B_per_token_per_layer"])

    every = kv.kv_bytes_per_token(row["model"])
    assert every == per_layer * (full + windowed) == int(row["B_per_token_all_layers_as_full"])
    assert agrees(Fraction(every, 1024), row["KiB_per_token_all"])

    growth = kv.kv_bytes_per_token(row["model"], past_window=True)
    assert growth == per_layer * full == int(row["B_per_token_growth_past_window"])
    assert model.window_cap_bytes == per_layer * windowed * window == int(row["window_cap_bytes"])

    assert model.max_position == int(row["max_pos"])
    contexts = {"GiB_at_4096": 4096, "GiB_at_32768": 32768, "GiB_at_max": int(row["max_pos"])}
    for column, tokens in contexts.items():
        held = full * tokens + windowed * min(tokens, window)
        assert model.cache_bytes(tokens) == per_layer * held
        assert agrees(Fraction(model.cache_bytes(tokens), GIB), row[column])

    for column, n_bytes in (("c_dev_4B_slots", 4), ("c_host_250B_slots", 250)):
        assert agrees(kv.slots_from_bytes(n_bytes, row["model"]), row[column])
    # Token by token around the window: every layer before it is full, full layers after.
    model = kv.load_models()[row["model"]]
    window = model.window or 100
    for tokens in (window - 1, window, window + 1):
        step = model.cache_bytes(tokens + 1) - model.cache_bytes(tokens)
        in_window = bool(model.window) and tokens < window
        layers = model.layers if in_window or not model.window_layers else model.full_layers
        assert step == layers * model.kv_bytes_per_token_and_layer
    assert model.cache_bytes(0) == 0


def test_every_row_is_loaded_and_every_case_answered() -> None:
    models = kv.load_models()
    assert list(models) == [row["model"] for row in MODELS]
    assert all(model.source for model in models.values())
    kinds = {row["attn"].split()[0].split("+")[0] for row in MODELS}
    assert kinds == {"MHA", "GQA", "MLA"}
    assert {d: size for d, size in DTYPE_BYTES.items() if size != 1} == {
        "float32": 4,
        "float16": 2,
        "bfloat16": 2,
    }
    assert set(CASES) == {*answers(), "oversized"}


@pytest.mark.parametrize(("dtype", "size"), DTYPE_BYTES.items())
def test_bytes_follow_the_data_type(dtype: str, size: int) -> None:
    for name, model in kv.load_models().items():
        sixteen_bit = kv.kv_bytes_per_token(name)
        assert kv.kv_bytes_per_token(name, dtype=dtype) * 2 == sixteen_bit * size
        assert model.with_dtype(dtype).window_cap_bytes * 2 == model.window_cap_bytes * size
        past = kv.kv_bytes_per_token(name, dtype=dtype, past_window=True)
        assert past * 2 == kv.kv_bytes_per_token(name, past_window=True) * size


def answers() -> dict[str, int | Fraction]:
    """Answer the cases that are an amount of bytes, blocks, tokens or waste."""
    qwen15 = kv.Model("Qwen1.5-7B", full_layers=32, kv_heads=32, head_dim=128)
    deepseek = kv.Model("MLA", full_layers=61, kv_heads=1, head_dim=512 + 64, latent=True)
    gptoss = kv.Model(
        "gpt-oss", full_layers=18, window_layers=18, window=128, kv_heads=8, head_dim=64
    )
    gemma2 = kv.Model(
        "half", full_layers=21, window_layers=21, window=4096, kv_heads=8, head_dim=256
    )
    ministral = kv.Model(
        "three quarters", full_layers=9, window_layers=27, window=32768, kv_heads=8, head_dim=128
    )
    pool = Fraction(9, 10) * Fraction("21.89") * GIB
    return {
        "qwen25_7b_bytes": kv.kv_bytes_per_token("Qwen2.5-7B"),
        "llama2_7b_bytes": kv.kv_bytes_per_token("Llama-2-7B"),
        "qwen15_7b_blocks": int(pool) // (64 * qwen15.kv_bytes_per_token),
        "deepseek_v3_bytes": deepseek.kv_bytes_per_token,
        "qwen3_head_dim": kv.kv_bytes_per_token("Qwen3-32B"),
        "gptoss120b_all": gptoss.kv_bytes_per_token,
        "gptoss120b_growth": gptoss.growth_bytes_per_token,
        "gemma2_waste": 100 * gemma2.window_waste(8192),
        "ministral_waste": 100 * ministral.window_waste(131072),
        "lmcache_chunks": kv.shared([14816, 14820], 256, prefix=14816).shared_tokens,
    }


@pytest.mark.parametrize("case", [case for case in CASES if case != "oversized"])
def test_public_reports_get_the_right_answer(case: str) -> None:
    assert answers()[case] == Fraction(CASES[case]["answer"])


def test_the_table_agrees_with_the_cases() -> None:
    assert kv.kv_bytes_per_token("DeepSeek-V3/R1") == int(CASES["deepseek_v3_bytes"]["answer"])
    assert kv.kv_bytes_per_token("gpt-oss-120b") == int(CASES["gptoss120b_all"]["answer"])
    past = kv.kv_bytes_per_token("gpt-oss-120b", past_window=True)
    assert past == int(CASES["gptoss120b_growth"]["answer"])
    # K and V heads for a latent layer (124928), and hidden size / heads for a head (80).
    as_heads = kv.Model("MLA as heads", full_layers=61, kv_heads=1, head_dim=512)
    assert as_heads.kv_bytes_per_token == 124928
    narrow = kv.Model("hidden / heads", full_layers=64, kv_heads=8, head_dim=80)
    assert narrow.kv_bytes_per_token == 163840 != kv.kv_bytes_per_token("Qwen3-32B")
    assert kv.load_models()["Llama-2-7B"].cache_bytes(132608) == 69524783104


def test_oversized_is_about_admission_and_only_its_arithmetic_is_claimed_here() -> None:
    """Read literally, its 1000 + 24 tokens fit; whether an engine refuses them is not claimed."""
    assert CASES["oversized"]["answer"] == "never"
    usable = 69 - 1
    for tokens in (1000 + 24, 1000 + 24 - 1):
        assert kv.paged([tokens], 16).pages == 64 <= usable
    largest = usable * 16
    assert kv.paged([largest], 16).pages == usable
    assert kv.paged([largest + 1], 16).pages == usable + 1
