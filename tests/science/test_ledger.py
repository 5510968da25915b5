"""The ledger's identities, its addition, and the article's numbers through the public names."""

from __future__ import annotations

import csv
import dataclasses
from fractions import Fraction

import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv
from kvledger.core import data_file

COUNT = st.integers(0, 10**6)
POOL = ("capacity_slots", "unallocated_slots", "external_slots")


def both_pools(one: kv.Ledger, two: kv.Ledger) -> bool:
    return one.capacity_slots is not None and two.capacity_slots is not None


@st.composite
def ledgers(draw: st.DrawFn, *, pool: bool | None = None) -> kv.Ledger:
    logical = draw(COUNT)
    shared = draw(st.integers(0, logical))
    slack, reserved = draw(COUNT), draw(COUNT)
    allocated = logical - shared + slack + reserved
    free = draw(st.none() | COUNT)
    holes = draw(st.none() | COUNT)
    pooled = draw(st.booleans()) if pool is None else pool
    return kv.Ledger(
        requests=draw(COUNT),
        logical_tokens=logical,
        shared_tokens=shared,
        tail_slack_slots=slack,
        reserved_slots=reserved,
        reserved_used_later_slots=draw(st.none() | st.integers(0, reserved)),
        allocated_slots=allocated,
        pages=draw(COUNT),
        refused_requests=draw(COUNT),
        refused_tokens=draw(COUNT),
        capacity_slots=allocated + (free or 0) + (holes or 0) if pooled else None,
        unallocated_slots=free if pooled else None,
        external_slots=holes if pooled else None,
    )


@pytest.mark.parametrize(
    "field", ["logical_tokens", "shared_tokens", "tail_slack_slots", "reserved_slots"]
)
@given(ledger=ledgers(pool=False), by=st.integers(1, 1000))
def test_changing_one_quantity_breaks_the_identity(field: str, ledger: kv.Ledger, by: int) -> None:
    # More shared tokens than logical ones is refused for its own reason.
    message = "distinct tokens|can be shared"
    refused(message, dataclasses.replace, ledger, **{field: getattr(ledger, field) + by})


@pytest.mark.parametrize("field", ["capacity_slots", "unallocated_slots", "external_slots"])
@given(ledger=ledgers(pool=True), by=st.integers(1, 1000))
def test_changing_a_pools_part_breaks_its_identity(field: str, ledger: kv.Ledger, by: int) -> None:
    with pytest.raises(kv.LedgerError, match=r"capacity_slots is \d+; allocated \d+"):
        dataclasses.replace(ledger, **{field: (getattr(ledger, field) or 0) + by})


@given(ledgers(), ledgers())
def test_addition_adds_every_quantity_that_both_know(one: kv.Ledger, two: kv.Ledger) -> None:
    total = one + two
    for field in dataclasses.fields(kv.Ledger):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if a is not None and b is not None and (field.name not in POOL or both_pools(one, two)):
            assert getattr(total, field.name) == a + b
    assert total == two + one


def test_a_sum_knows_what_both_sides_know() -> None:
    known = kv.contiguous([5], reserve=8, final_lengths=[7])
    unknown = dataclasses.replace(known, reserved_used_later_slots=None)
    assert (known + known).reserved_never_used_slots == 2
    assert (known + unknown).reserved_never_used_slots is None
    nothing_reserved = kv.Ledger(requests=1, logical_tokens=3, allocated_slots=3)
    assert (known + nothing_reserved).reserved_never_used_slots == 1
    full = kv.Ledger(requests=1, logical_tokens=4, allocated_slots=4, capacity_slots=4)
    half = kv.Ledger(
        requests=1, logical_tokens=4, allocated_slots=4, capacity_slots=8, unallocated_slots=4
    )
    assert (full + half).unallocated_slots == (half + full).unallocated_slots == 4
    assert (full + half).capacity_slots == 12


@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=30), st.integers(1, 64), st.integers(1, 29)
)
def test_the_ledger_of_all_is_the_sum_of_parts(
    lengths: list[int], page_size: int, cut: int
) -> None:
    parts = [part for part in (lengths[:cut], lengths[cut:]) if part]
    assert sum(kv.paged(part, page_size) for part in parts) == kv.paged(lengths, page_size)
    for reserve in (200, 64, "pow2", "oracle"):
        of_parts = [kv.contiguous(part, reserve, over_maximum="count") for part in parts]
        assert sum(of_parts) == kv.contiguous(lengths, reserve, over_maximum="count")
    one_by_one = [kv.paged([n], page_size) for n in lengths]
    assert sum(one_by_one) == kv.paged(lengths, page_size)


def test_a_ledger_is_frozen_and_empty_or_whole() -> None:
    ledger = kv.paged([5, 9, 17], 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ledger.pages = 11
    for field in dataclasses.fields(ledger):
        assert type(getattr(ledger, field.name)) in (int, type(None))
    assert kv.Ledger(requests=0, logical_tokens=0, allocated_slots=0).unused_share == 0
    ledger = kv.paged([5], 4)
    for other in (1, 0.5, "ledger", None):
        with pytest.raises(TypeError):
            ledger + other


def test_repr_keeps_slack_and_sharing_apart_and_says_what_is_never_used() -> None:
    assert repr(kv.shared([20, 23], 4, 8)) == (
        "Ledger(2 requests: 43 tokens in 36 slots, 9 pages; shared 8 tokens, tail slack 1)"
    )
    assert repr(kv.contiguous([5, 40], 32, over_maximum="count")) == (
        "Ledger(1 requests: 5 tokens in 32 slots; reserved 27 (27 never used), refused 1 requests)"
    )
    pool = dataclasses.replace(kv.paged([5], 4), capacity_slots=16, unallocated_slots=8)
    assert repr(pool).endswith("tail slack 3, capacity 16)")


def article_values() -> dict[str, int | Fraction]:
    """Recompute each number of the article that is computable, through the public names."""
    lengths, sizes, pair = [5, 9, 17], [1, 2, 4, 8, 16], [20, 23]
    reserved = kv.contiguous(lengths, reserve=32)
    values: dict[str, int | Fraction] = {
        "contiguous.logical_tokens": reserved.logical_tokens,
        "contiguous.allocated_slots": reserved.allocated_slots,
        "contiguous.unused_slots": reserved.unused_slots,
        "paged.p1.tail_slack_slots": kv.paged(lengths, 1).tail_slack_slots,
        "sharing.logical_tokens": kv.shared(pair, 4, prefix=8).logical_tokens,
        "sharing.separate_slots_first": kv.paged(pair[:1], 4).allocated_slots,
        "sharing.separate_slots_second": kv.paged(pair[1:], 4).allocated_slots,
        "sharing.separate_slots": kv.paged(pair, 4).allocated_slots,
        "sharing.shared_slots": kv.shared(pair, 4, prefix=8).shared_tokens,
        "sharing.physical_slots": kv.shared(pair, 4, prefix=8).allocated_slots,
        "sharing.slots_saved_per_block": kv.shared(pair, 4, prefix=8).allocated_slots
        - kv.shared(pair, 4, prefix=12).allocated_slots,
    }
    for n in lengths:
        values[f"paged.p4.pages_of_{n}"] = kv.paged([n], 4).pages
    for p in (4, 8, 16):
        values[f"paged.p{p}.allocated_slots"] = kv.paged(lengths, p).allocated_slots
        values[f"paged.p{p}.tail_slack_slots"] = kv.paged(lengths, p).tail_slack_slots
    for c in (0, 0.25, 1, 4):
        best = kv.best_page_size(lengths, c, sizes)
        values[f"metadata.c{c}.best_page_size"] = best.page_size
        values[f"metadata.c{c}.best_cost"] = best.cost
    return values


def test_every_number_of_the_article_is_reproduced() -> None:
    with data_file("claims.csv").open(encoding="utf-8", newline="") as file:
        published = {
            row["id"]: Fraction(row["value"])
            for row in csv.DictReader(file)
            if row["source"] == "article"
        }
    assert article_values() == published
    # Kwon et al. 2023, Table 1 and Figure 2: GiB / bytes per token; floor by the maximum.
    with data_file("paper_pagedattention.csv").open(encoding="utf-8", newline="") as file:
        paper = {row["id"]: row["value"] for row in csv.DictReader(file)}
    for key, model in (("opt13b", "OPT-13B"), ("opt66b", "OPT-66B"), ("opt175b", "OPT-175B")):
        # Both columns are rounded: whole GiB, and hundreds of slots.
        slots = round(1000 * float(paper[f"table1.{key}.kv_slots"]))
        gib = Fraction(slots * kv.kv_bytes_per_token(model), 2**30)
        assert round(gib) == int(paper[f"table1.{key}.kv_memory"])
    slots = 12 * 2**30 // kv.kv_bytes_per_token("OPT-13B")
    assert slots == 15728
    residents = slots // 2048
    assert residents == float(paper["batched.sharegpt.orca_max"]) == 7
    left_over = Fraction(slots - residents * 2048, slots)
    assert round(float(100 * left_over), 1) == float(paper["fig2.orca_max.external_other"])
    for policy in ("orca_max", "orca_pow2", "orca_oracle"):
        parts = [float(v) for k, v in paper.items() if k.startswith(f"fig2.{policy}.")]
        assert sum(parts) == pytest.approx(100, abs=0.15)
