"""Shared prefix pages: counted from lengths, from tokens and from page ids alike."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st

import kvledger as kv

# Few different tokens, so that equal pages by chance are common.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
REQUESTS = st.lists(TOKENS, min_size=1, max_size=8)
PAGE_SIZE = st.integers(1, 6)


def with_prefix(lengths: Sequence[int], prefix: int) -> list[list[int]]:
    """Return requests that agree in their first tokens and in none after them."""
    head = list(range(prefix))
    return [
        head + list(range(1000 * (i + 1), 1000 * (i + 1) + n - prefix))
        for i, n in enumerate(lengths)
    ]


def naive_pages(requests: list[list[int]], page_size: int) -> tuple[int, int]:
    """Count physical and shared pages by comparing whole beginnings, with no keys at all."""
    seen: set[tuple[int, ...]] = set()
    physical = shared = 0
    for tokens in requests:
        for end in range(page_size, len(tokens) + 1, page_size):
            beginning = tuple(tokens[:end])
            if beginning in seen:
                shared += 1
            else:
                physical += 1
                seen.add(beginning)
        physical += len(tokens) % page_size > 0
    return physical, shared


def naive_engine(requests: list[list[int]], page_size: int) -> list[int]:
    """Count each request's hit tokens as an engine does: leading pages, never all tokens."""
    seen: set[tuple[int, ...]] = set()
    hits = []
    for tokens in requests:
        hit = 0
        while hit + page_size < len(tokens) and tuple(tokens[: hit + page_size]) in seen:
            hit += page_size
        hits.append(hit)
        seen.update(tuple(tokens[:end]) for end in range(page_size, len(tokens) + 1, page_size))
    return hits


@given(REQUESTS, PAGE_SIZE)
def test_pages_are_shared_where_beginnings_equal(requests: list[list[int]], page_size: int) -> None:
    ledger = kv.shared_pages(requests, page_size)
    physical, shared = naive_pages(requests, page_size)
    assert ledger.pages == physical
    assert ledger.shared_tokens == shared * page_size
    assert ledger.logical_tokens == sum(map(len, requests))
    assert ledger.allocated_slots == physical * page_size
    # Sharing neither makes nor saves slack: the tails are the same as without it.
    separate = kv.paged([len(tokens) for tokens in requests], page_size)
    assert ledger.tail_slack_slots == separate.tail_slack_slots
    assert ledger.pages + shared == separate.pages
    hits = naive_engine(requests, page_size)
    ledger = kv.shared_pages(requests, page_size, compute_last_token=True)
    assert ledger.shared_tokens == sum(hits)
    assert all(hit < len(tokens) for hit, tokens in zip(hits, requests, strict=True))
    assert ledger.shared_tokens <= kv.shared_pages(requests, page_size).shared_tokens


@given(REQUESTS, PAGE_SIZE, st.booleans())
def test_chained_page_ids_are_as_tokens(
    requests: list[list[int]], page_size: int, last: bool
) -> None:
    numbers: dict[tuple[int, ...], int] = {}
    ids = [
        [
            numbers.setdefault(tuple(tokens[: first + page_size]), len(numbers))
            for first in range(0, len(tokens), page_size)
        ]
        for tokens in requests
    ]
    lengths = [len(tokens) for tokens in requests]
    expected = kv.shared_pages(requests, page_size, compute_last_token=last)
    assert kv.shared_page_ids(ids, lengths, page_size, compute_last_token=last) == expected
    arrays: list[Any] = [np.array(row) for row in ids]
    assert kv.shared_page_ids(arrays, lengths, page_size, compute_last_token=last) == expected


@given(st.data(), st.integers(1, 9), st.booleans())
def test_lengths_and_a_prefix_are_as_tokens(
    data: st.DataObject, page_size: int, last: bool
) -> None:
    prefix = data.draw(st.integers(0, 30))
    lengths = data.draw(st.lists(st.integers(max(1, prefix), 60), min_size=1, max_size=8))
    expected = kv.shared_pages(with_prefix(lengths, prefix), page_size, compute_last_token=last)
    assert kv.shared(lengths, page_size, prefix, compute_last_token=last) == expected
    longest_first = sorted(lengths, reverse=True)
    of_counts = kv.shared(Counter(lengths), page_size, prefix, compute_last_token=last)
    assert of_counts == kv.shared(longest_first, page_size, prefix, compute_last_token=last)
    if not last:
        # Whoever computes the prefix, it is held once.
        assert of_counts == expected


# What vLLM 0.33.0's KVCacheManager did with prefix caching on, at page size 4: lengths, common
# prefix, pages of each request, physical pages, tokens each request took from the cache.
VLLM = {
    "lengths 20 and 23, prefix of 8": ([20, 23], 8, [5, 6], 9, [0, 8]),
    "two identical prompts of 8": ([8, 8], 8, [2, 2], 3, [0, 4]),
    "two identical prompts of 9": ([9, 9], 9, [3, 3], 4, [0, 8]),
    "lengths 20 and 23, prefix of 6": ([20, 23], 6, [5, 6], 10, [0, 4]),
    "lengths 5, 9 and 17, nothing in common": ([5, 9, 17], 0, [2, 3, 5], 10, [0, 0, 0]),
}


@pytest.mark.parametrize("case", VLLM)
def test_vllm_held_the_same_pages(case: str) -> None:
    lengths, prefix, pages_each, physical, hits = VLLM[case]
    requests = with_prefix(lengths, prefix)
    for ledger in (
        kv.shared(lengths, 4, prefix, compute_last_token=True),
        kv.shared_pages(requests, 4, compute_last_token=True),
    ):
        assert ledger.pages == physical
        assert ledger.shared_tokens == sum(hits)
        assert ledger.allocated_slots == 4 * physical
        assert ledger.logical_tokens == sum(lengths)
    assert [kv.paged([n], 4).pages for n in lengths] == pages_each
    assert naive_engine(requests, 4) == hits


def test_an_incomplete_page_of_the_prefix_is_not_shared() -> None:
    assert kv.shared([20, 23], 4, prefix=7).shared_tokens == 4
    assert kv.shared([20, 23], 4, prefix=3).shared_tokens == 0
    assert kv.shared([6, 6], 4, prefix=6).pages == 3  # the equal tails are each their own
    # SGLang held 2 pages for two identical prompts of 8 tokens; so does the plain count.
    assert kv.shared([8, 8], 4, prefix=8).pages == 2
    assert kv.shared_pages([list(range(8))] * 2, 4).pages == 2
    short, long = list(range(8)), list(range(9))
    for requests, pages in (([short, long], 3), ([long, short], 4)):
        assert kv.shared_pages(requests, 4, compute_last_token=True).pages == pages
        assert kv.shared_pages(requests, 4).pages == 3


TEXT = list(range(100, 124))


@pytest.mark.parametrize("page_size", [1, 2, 4, 8])
def test_the_same_words_elsewhere_share_nothing(page_size: int) -> None:
    assert kv.shared_pages([TEXT, [7, *TEXT]], page_size).shared_tokens == 0
    # A page's key chains its parent: equal tokens after unequal ones are other tensors.
    ours, theirs = [1] * 8, [1] * 7 + [2]
    shared = kv.shared_pages([ours + TEXT, theirs + TEXT], page_size).shared_tokens
    assert shared == 7 // page_size * page_size


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "another-model"),
        ("adapter", "lora-a"),
        ("cache_salt", "tenant-a"),
        ("position_scheme", "yarn-4x"),
    ],
)
def test_another_context_shares_nothing_and_the_same_one_everything(field: str, value: str) -> None:
    plain = kv.PageContext(model="a-model")
    other = dataclasses.replace(plain, **{field: value})
    everything = len(TEXT)
    for keys, shared in (
        ([plain, other], 0),
        ([other, other], everything),
        ([plain, dataclasses.replace(plain)], everything),
        ([other, plain, other, plain], 2 * everything),
    ):
        assert kv.shared_pages([TEXT] * len(keys), 4, keys).shared_tokens == shared


def image(offset: int, length: int, identifier: str) -> kv.PageContext:
    return kv.PageContext(images=(kv.Image(offset, length, identifier),))


def test_an_image_separates_the_pages_from_its_first_one_on() -> None:
    """VLLM 0.33.0 with an image at tokens 4 to 7 of 13: the same image hit 12, another 4."""
    tokens = list(range(13))
    cat, dog = image(4, 4, "cat"), image(4, 4, "dog")
    assert kv.shared_pages([tokens] * 2, 4, [cat, cat]).shared_tokens == 12
    assert kv.shared_pages([tokens] * 2, 4, [cat, dog]).shared_tokens == 4
    assert kv.shared_pages([tokens] * 2, 4, [cat, kv.PageContext()]).shared_tokens == 4
    # Placeholder tokens are alike; where the image begins is not.
    placeholder = [9] * 8
    keys = [image(1, 2, "cat"), image(2, 2, "cat")]
    assert kv.shared_pages([placeholder] * 2, 4, keys).shared_tokens == 0
    two_images = kv.PageContext(images=(kv.Image(0, 2, "cat"), kv.Image(4, 2, "dog")))
    swapped = kv.PageContext(images=(kv.Image(0, 2, "dog"), kv.Image(4, 2, "cat")))
    assert kv.shared_pages([placeholder] * 2, 4, [two_images, swapped]).shared_tokens == 0
    contexts = [kv.PageContext("x"), kv.PageContext("", "x"), kv.PageContext("", "", "x")]
    for one, two in itertools.combinations([*contexts, kv.PageContext("", "", "", "x")], 2):
        assert kv.shared_pages([TEXT, TEXT], 4, [one, two]).shared_tokens == 0


@given(st.integers(1, 24), st.integers(0, 23), st.integers(1, 10), st.integers(1, 8))
def test_pages_before_an_image_are_shared(
    tokens: int, offset: int, length: int, page_size: int
) -> None:
    text = TEXT[:tokens]
    keys = [image(offset, length, name) for name in ("cat", "dog")]
    unaffected = min(offset, tokens) // page_size * page_size
    complete = tokens // page_size * page_size
    expected = complete if offset >= complete else unaffected
    assert kv.shared_pages([text, text], page_size, keys).shared_tokens == expected


def test_any_hashable_key_can_stand_for_a_context() -> None:
    assert kv.shared_pages([TEXT] * 3, 4, ["a", "b", "a"]).shared_tokens == len(TEXT)
    pages = [kv.shared([20, 23], 4, prefix).pages for prefix in range(0, 21, 4)]
    assert pages == [11, 10, 9, 8, 7, 6]
    # LMCache PR 2207: prompts of 14816 and 14820 tokens reuse 57 chunks of 256.
    assert kv.shared([14816, 14820], 256, prefix=14816).shared_tokens == 14592
    ledger = kv.shared({1000: 10**12, 2000: 1}, 16, prefix=512)
    assert ledger.shared_tokens == 512 * 10**12
    refused(r"add up to \d+; .*64 bits", kv.shared, {1000: 2**60}, 16, prefix=512)
