"""What engines accept and keep: the two tables of facts, and the rules read out of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.models.engines import (
    PER,
    PageSizeRule,
    Structure,
    kernels_accepting,
    load_page_size_rules,
    load_structures,
    page_size_rule,
)

DATA = Path(__file__).resolve().parents[2] / "data"
RULES = load_page_size_rules()


@pytest.mark.parametrize("name", ["engine_page_sizes.csv", "engine_metadata.csv"])
def test_every_row_has_a_source_and_an_id_of_its_own(name: str) -> None:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["source"].strip() and row["who"].strip() for row in rows)


@pytest.mark.parametrize("id", RULES)
def test_a_default_is_accepted_by_its_own_kernel(id: str) -> None:
    rule = RULES[id]
    assert rule.default is None or rule.accepts_size(rule.default)
    assert all(rule.accepts_size(size) for size in rule.sizes)


# Page sizes that the engines' own checks let through, and some that they refuse.
@pytest.mark.parametrize(
    ("id", "accepted", "refused"),
    [
        ("vllm.flash_attention", [16, 48, 128], [1, 8, 24]),
        ("vllm.flashinfer", [16, 32, 64], [1, 48, 128]),
        ("vllm.flashmla", [64], [16, 128]),
        ("vllm.cutlass_mla", [128], [64]),
        ("flash_attention_2", [256, 512, 768], [16, 128]),
        ("flash_attention_3", [1, 2, 3, 19, 256], []),
        ("tensorrt_llm", [2, 32, 64, 128], [1, 3, 48]),
        ("lmcache", [256], [512]),
    ],
)
def test_a_rule_reads_as_its_kernel(id: str, accepted: list[int], refused: list[int]) -> None:
    rule = page_size_rule(id)
    assert all(map(rule.accepts_size, accepted))
    assert not any(map(rule.accepts_size, refused))


@given(st.integers(1, 5000), st.booleans())
def test_kernels_accepting_is_every_kernel_asked(page_size: int, latent: bool) -> None:
    found = kernels_accepting(page_size, latent=latent)
    for id, rule in RULES.items():
        reads = rule.heads != ("kv" if latent else "latent")
        expected = rule.kind == "kernel" and reads and rule.accepts_size(page_size)
        assert (id in found) == expected


@given(st.integers(1, 300), st.integers(1, 5000))
def test_multiples_and_powers_are_arithmetic(step: int, page_size: int) -> None:
    multiples = PageSizeRule("x", "x", "x", "kernel", "any", f"multiples of {step}")
    assert multiples.accepts_size(page_size) == (page_size % step == 0)
    powers = PageSizeRule("x", "x", "x", "kernel", "any", f"powers of two from {step}")
    expected = page_size >= step and page_size in {2**k for k in range(20)}
    assert powers.accepts_size(page_size) == expected
    assert multiples.sizes == powers.sizes == ()


def test_structures_say_what_they_are_counted_by() -> None:
    assert {each.per for each in load_structures().values()} == set(PER)
    # The key is part of the objects: no preset may count it twice.
    assert "counted in vllm.objects" in load_structures()["vllm.key"].note
    assert "mooncake" in RULES
    assert "mooncake" not in kernels_accepting(512)


@pytest.mark.parametrize("accepts", ["", "some", "multiples of", "16,32", "powers of two", "-1"])
def test_a_rule_or_structure_that_is_none_is_named(accepts: str) -> None:
    with pytest.raises(kv.LedgerError, match=r"mine: accepts is .*; accepted: any, multiples of N"):
        PageSizeRule("mine", "x", "x", "kernel", "any", accepts)
    refused("kind is 'x'; accepted: kernel, use", PageSizeRule, "mine", "x", "x", "x", "any", "any")
    with pytest.raises(kv.LedgerError, match="heads is 'x'; accepted: any, kv, latent"):
        PageSizeRule("mine", "x", "x", "kernel", "x", "any")
    refused("per is 'x'; accepted: entry, page", Structure, "mine", "x", "x", 4, "x", "device")
    refused("place is 'x'; accepted: device, host", Structure, "mine", "x", "x", 4, "page", "x")
    refused("page_size is 0", lambda: page_size_rule("flash_attention_3").accepts_size(0))
    refused("kernel is 'x'; known are: vllm", page_size_rule, "x")
