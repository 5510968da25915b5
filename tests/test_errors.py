"""Bad input gets one clear error that names the value and what is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import refused

import kvledger as kv
from kvledger.accounting.metadata import closed_form_c
from kvledger.core.lengths import as_length_array, as_lengths

HUGE = 2**64
GOOD = [5, 9, 17]

LENGTH = "a length is a whole number of tokens, at least 1"
PAGE = "a page size is a whole number of slots, at least 1"
SEQUENCE = "a sequence of whole numbers is accepted"
COST = "a cost per page is a finite number of token-slot equivalents, at least 0"

# Each bad value in a list of lengths, and how the message shows it.
BAD_LENGTHS: dict[str, tuple[Any, str]] = {
    "zero": ([5, 0], "lengths[1] is 0"),
    "negative": ([5, -3], "lengths[1] is -3"),
    "fractional": ([5, 9.5], "lengths[1] is 9.5"),
    "fraction": ([5, Fraction(19, 2)], "lengths[1] is Fraction(19, 2)"),
    "none": ([5, None], "lengths[1] is missing"),
    "nan": ([5, float("nan")], "lengths[1] is missing (NaN)"),
    "pandas na": ([5, pd.NA], "lengths[1] is missing"),
    "pandas nat": ([5, pd.NaT], "lengths[1] is missing"),
    "infinite": ([5, float("inf")], "lengths[1] is inf"),
    "text": ([5, "9"], "lengths[1] is '9'"),
    "bytes": ([5, b"9"], "lengths[1] is b'9'"),
    "true": ([5, True], "lengths[1] is True"),
    "numpy true": ([5, np.True_], "lengths[1] is True"),
    "complex": ([5, 9j], "lengths[1] is 9j"),
    "beyond 64 bits": ([5, HUGE], f"lengths[1] is {HUGE}"),
    "just beyond 63 bits": ([5, 2**63], f"lengths[1] is {2**63}"),
    "beyond and negative": ([2**63, -1], f"lengths[0] is {2**63}"),
    "far beyond": ([5, 10**5000], "lengths[1] is a number of more digits than Python prints"),
    "array with zero": (np.array([5, 0]), "lengths[1] is 0"),
    "array of floats": (np.array([5, 9.5]), "lengths[1] is 9.5"),
    "array with nan": (np.array([5, np.nan]), "lengths[1] is missing (NaN)"),
    "array with inf": (np.array([5, -np.inf]), "lengths[1] is -inf"),
    "array, very negative": (np.array([5, -1e300]), "lengths[1] is -1e+300"),
    "array, very large": (np.array([5, 1e300]), "lengths[1] is 1e+300"),
    "array of unsigned": (np.array([5, 2**63], dtype=np.uint64), f"lengths[1] is {2**63}"),
    "array of bools": (np.array([True, False]), "lengths[0] is True"),
    "array of texts": (np.array(["5", "9"]), "lengths[0] is '5'"),
    "array of objects": (np.array([5, None], dtype=object), "lengths[1] is missing"),
    "array of times": (
        np.array(["2023-11-16"], dtype="datetime64[D]"),
        "lengths[0] is datetime.date(2023, 11, 16)",
    ),
    "masked array": (np.ma.masked_equal([5, 9], 9), "lengths[1] is missing (masked)"),
    "series with na": (pd.Series([5, None], dtype="Int64"), "lengths[1] is missing (NaN)"),
    "series with nan": (pd.Series([5, None]), "lengths[1] is missing (NaN)"),
    "series of texts": (pd.Series(["5", "9"]), "lengths[0] is '5'"),
    "generator": ((n for n in (5, 0)), "lengths[1] is 0"),
    "counts with a zero length": ({0: 2}, "lengths[0] is 0"),
    "counts with a text": ({"5": 2}, "lengths[0] is '5'"),
}


@pytest.mark.parametrize("case", BAD_LENGTHS)
def test_a_bad_length_is_named_with_its_index(case: str) -> None:
    value, shown = BAD_LENGTHS[case]
    if not isinstance(value, dict):
        value = value if isinstance(value, np.ndarray | pd.Series) else list(value)
    assert refused("", kv.paged, value, page_size=4).startswith(f"{shown}; {LENGTH}")


@pytest.mark.parametrize(
    "value", [[5, HUGE], np.array([5, 2**63], dtype=np.uint64), np.array([5, 1e300])]
)
def test_a_length_beyond_64_bits_is_told_the_limit(value: Any) -> None:
    refused(rf"at most {2**63 - 1} \(64 bits\)", as_lengths, value)


# What is no sequence of lengths at all, and how the message begins.
NO_LENGTHS: dict[str, tuple[Any, str]] = {
    "none": (None, f"lengths is missing; {SEQUENCE}"),
    "number": (5, f"lengths is 5; {SEQUENCE}"),
    "numpy number": (np.int64(5), f"lengths is 5; {SEQUENCE}"),
    "text": ("5, 9", f"lengths is '5, 9'; {SEQUENCE}"),
    "bytes": (b"59", f"lengths is b'59'; {SEQUENCE}"),
    "zero dimensions": (np.array(5), "lengths has shape (); one whole number a request"),
    "two dimensions": (np.ones((2, 3), int), "lengths has shape (2, 3); one whole number"),
    "nested list": ([[5, 9], [17, 3]], "lengths has shape (2, 2); one whole number"),
    "ragged list": ([[5, 9], [17]], "lengths is [[5, 9], [17]]; one whole number"),
    "empty list": ([], "lengths is empty; at least one request is needed"),
    "empty array": (np.array([]), "lengths is empty; at least one request is needed"),
    "empty generator": (iter(()), "lengths is empty; at least one request is needed"),
    "empty counts": ({}, "no lengths given; at least one request is needed"),
    "counts of nobody": ({5: 0}, "no lengths given; at least one request is needed"),
    "counts below zero": ({5: -1}, "lengths (requests)[0] is -1; a whole number, at least 0"),
    "counts of a half": ({5: 0.5}, "lengths (requests)[0] is 0.5; a whole number, at least 0"),
    "missing counts": ({5: None}, "lengths (requests)[0] is missing; a whole number, at least 0"),
    "table without columns": (
        pd.DataFrame({"length": [5], "n": [1]}),
        "lengths is a table with the columns length, n; a table of counts has the columns tokens",
    ),
    "table without counts": (
        pd.DataFrame({"tokens": [5]}),
        "lengths is a table with the columns tokens; a table of counts has the columns tokens",
    ),
    "table with a bad length": (
        pd.DataFrame({"tokens": [5, 0], "requests": [1, 1]}),
        f"lengths (tokens)[1] is 0; {LENGTH}",
    ),
    "table with a missing count": (
        pd.DataFrame({"tokens": [5, 9], "requests": [1, None]}),
        "lengths (requests)[1] is missing (NaN); a whole number, at least 0",
    ),
}


@pytest.mark.parametrize("case", NO_LENGTHS)
@pytest.mark.parametrize(
    "account",
    [
        lambda x: kv.paged(x, 4),
        lambda x: kv.contiguous(x, 32),
        lambda x: kv.shared(x, 4, prefix=0),
        lambda x: kv.envelope(x),
    ],
    ids=["paged", "contiguous", "shared", "envelope"],
)
def test_what_is_no_list_of_lengths_is_named(case: str, account: Callable[[Any], object]) -> None:
    value, shown = NO_LENGTHS[case]
    assert refused("", account, iter([]) if case == "empty generator" else value).startswith(shown)


# Every function that takes lengths, or lengths and page sizes, refuses a bad one, whatever else it
# does.
BOTH: dict[str, Callable[[Any, Any], object]] = {
    "paged": kv.paged,
    "paged_sweep": lambda x, p: kv.paged_sweep(x, [4, p]),
    "page_counts": lambda x, p: kv.page_counts(x, [4, p]),
    "tail_slack_distribution": kv.tail_slack_distribution,
    "growth_tail_slack": kv.growth_tail_slack,
    "shared": lambda x, p: kv.shared(x, p, prefix=0),
    "cost": lambda x, p: kv.cost(x, p, 1),
    "best_page_size": lambda x, p: kv.best_page_size(x, 1, [4, p]),
    "envelope": lambda x, p: kv.envelope(x, [4, p]),
    "near_best": lambda x, p: kv.near_best(x, 1, [4, p]),
    "c_for_page_size": kv.c_for_page_size,
    "closed_form_gap": lambda x, p: kv.closed_form_gap(x, 1, [4, p]),
}
TAKERS: dict[str, Callable[[Any], object]] = {
    **{name: partial(lambda call, x: call(x, 4), call) for name, call in BOTH.items()},
    "mean_tail_slack": lambda x: kv.mean_tail_slack(x, 4),
    "growth_tail_slack starts": lambda x: kv.growth_tail_slack(GOOD, 4, start_lengths=x),
    "contiguous": lambda x: kv.contiguous(x, 32),
    "contiguous pow2": lambda x: kv.contiguous(x, "pow2"),
    "contiguous oracle": lambda x: kv.contiguous(x, "oracle"),
    "contiguous final": lambda x: kv.contiguous(GOOD, 32, final_lengths=x),
    "next_power_of_two": kv.next_power_of_two,
    "shared_page_ids": lambda x: kv.shared_page_ids([[1, 2]] * 3, x, 4),
}
SIZE_TAKERS: dict[str, Callable[[Any], object]] = {
    **{name: partial(call, GOOD) for name, call in BOTH.items()},
    "expected_tail_slack": kv.expected_tail_slack,
    "shared_pages": lambda p: kv.shared_pages([GOOD], p),
    "shared_page_ids": lambda p: kv.shared_page_ids([[0]], [5], p),
    "closed_form_c": lambda p: closed_form_c(499, p),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_every_function_names_a_bad_length(taker: str) -> None:
    for bad, shown in ((0, "0"), (9.5, "9.5"), (None, "missing"), ("9", "'9'"), (HUGE, str(HUGE))):
        with pytest.raises(kv.LedgerError, match=rf"lengths\[1\] is {re.escape(shown)}; {LENGTH}"):
            TAKERS[taker]([5, bad, 17])
    refused("lengths is 'five'; a sequence of whole numbers", lambda: TAKERS[taker]("five"))


BAD_SIZES: dict[str, tuple[Any, str]] = {
    "zero": (0, "0"),
    "negative": (-4, "-4"),
    "fractional": (4.5, "4.5"),
    "fraction": (Fraction(9, 2), "Fraction(9, 2)"),
    "decimal": (Decimal("4.5"), "Decimal('4.5')"),
    "none": (None, "missing"),
    "nan": (float("nan"), "missing (NaN)"),
    "infinite": (float("inf"), "inf"),
    "pandas na": (pd.NA, "missing"),
    "text": ("16", "'16'"),
    "true": (True, "True"),
    "numpy true": (np.True_, "True"),
    "list": ([16], "[16]"),
    "array": (np.array([16]), "array([16])"),
    "beyond 64 bits": (HUGE, str(HUGE)),
    "far beyond": (10**5000, "a number of more digits than Python prints"),
}


@pytest.mark.parametrize("case", BAD_SIZES)
@pytest.mark.parametrize("taker", SIZE_TAKERS)
def test_a_bad_page_size_is_named(taker: str, case: str) -> None:
    value, shown = BAD_SIZES[case]
    assert refused("", SIZE_TAKERS[taker], value).startswith(f"page_size is {shown}; {PAGE}")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "page_sizes is empty; at least one page size is needed"),
        (4, "page_sizes is 4; a sequence of whole numbers is accepted"),
        (None, "page_sizes is missing; a sequence of whole numbers is accepted"),
        ("16", "page_sizes is '16'; a sequence of whole numbers is accepted"),
    ],
)
def test_what_is_no_sequence_of_page_sizes_is_named(value: Any, message: str) -> None:
    for call in (kv.page_counts, kv.paged_sweep, kv.envelope):
        refused(re.escape(message), call, GOOD, value)
    for costing in (kv.best_page_size, kv.near_best, kv.closed_form_gap):
        refused(re.escape(message), costing, GOOD, 1, value)
    if value != []:  # the page size asked for is always tested
        refused(re.escape(message), kv.c_for_page_size, GOOD, 4, value)


@pytest.mark.parametrize(
    ("reserve", "shown"),
    [
        (0, "0"),
        (-32, "-32"),
        (32.5, "32.5"),
        ("max", "'max'"),
        ("", "''"),
        (None, "missing"),
        (True, "True"),
        ([32], "[32]"),
        (HUGE, str(HUGE)),
    ],
)
def test_an_unknown_policy_is_named_with_those_there_are(reserve: Any, shown: str) -> None:
    accepted = 'reserve is a whole number of slots, at least 1, or "pow2" or "oracle"'
    assert refused("", kv.contiguous, GOOD, reserve).startswith(f"reserve is {shown}; {accepted}")


def test_final_lengths_are_one_a_request_and_no_request_shrinks() -> None:
    with pytest.raises(kv.LedgerError, match="there are 3 lengths and 2 final_lengths"):
        kv.contiguous(GOOD, 32, final_lengths=[9, 17])
    with pytest.raises(kv.LedgerError, match=r"final_lengths\[1\] is 8; request 1 .* 9 tokens"):
        kv.contiguous(GOOD, 32, final_lengths=[5, 8, 17])
    with pytest.raises(kv.LedgerError, match="there are 3 lengths and 2 final_lengths"):
        kv.contiguous(GOOD, 32, final_lengths={17: 2})
    refused("no request shrinks", kv.contiguous, GOOD, 32, final_lengths={8: 2, 31: 1})
    with pytest.raises(kv.LedgerError, match='over_maximum is \'drop\'; "error" and "count"'):
        kv.contiguous(GOOD, 32, over_maximum="drop")


@pytest.mark.parametrize(
    ("prefix", "shown"),
    [
        (-1, "prefix is -1; "),
        (2.5, "prefix is 2.5; "),
        (None, "prefix is missing; "),
        ("8", "prefix is '8'; "),
        (True, "prefix is True; "),
        (6, "prefix is 6; request 0 has 5 tokens; "),
        (HUGE, f"prefix is {HUGE}; "),
    ],
)
def test_a_bad_prefix_is_named_and_the_request_it_exceeds(prefix: Any, shown: str) -> None:
    accepted = "prefix is a whole number of tokens, from 0 to the shortest request"
    for lengths in (GOOD, {5: 1, 9: 2}):
        assert refused("", kv.shared, lengths, 4, prefix).startswith(f"{shown}{accepted}")


BAD_TOKENS: dict[str, tuple[Any, str]] = {
    "none": (None, "token_ids is missing; a sequence with one sequence of ids a request"),
    "number": (5, "token_ids is 5; a sequence with one sequence of ids a request"),
    "text": ("abc", "token_ids is 'abc'; a sequence with one sequence of ids a request"),
    "empty": ([], "token_ids is empty; at least one request is needed"),
    "numbers": ([1, 2], "token_ids[0] is 1; a token id is a whole number"),
    "texts": (["abcd"], "token_ids[0] is 'abcd'; a token id is a whole number"),
    "empty request": ([[1], []], "token_ids[1] is empty; a request has at least one token"),
    "negative": ([[1, -1]], "token_ids[0][1] is -1; a token id is a whole number, at least 0"),
    "fractional": ([[1], [0.5]], "token_ids[1][0] is 0.5; a token id is a whole number"),
    "missing": ([[1, None]], "token_ids[0][1] is missing; a token id is a whole number"),
    "true": ([[1, True]], "token_ids[0][1] is True; a token id is a whole number"),
    "text token": ([[1, "a"]], "token_ids[0][1] is 'a'; a token id is a whole number"),
}


@pytest.mark.parametrize("case", BAD_TOKENS)
def test_a_bad_token_is_named_with_its_place(case: str) -> None:
    value, shown = BAD_TOKENS[case]
    assert refused("", kv.shared_pages, value, 4).startswith(shown)


def test_keys_are_one_a_request_and_hashable() -> None:
    with pytest.raises(kv.LedgerError, match="there are 1 keys for 2 requests; one a request"):
        kv.shared_pages([[1], [1]], 4, keys=["a"])
    lists: Any = [["a"], ["a"]]
    with pytest.raises(kv.LedgerError, match=r"a key is \['a'\]; a PageContext or another hash"):
        kv.shared_pages([[1, 2], [1, 2]], 1, keys=lists)
    number: Any = 5
    refused("keys is 5; a sequence with one key a request", kv.shared_pages, [[1]], 4, keys=number)
    with pytest.raises(kv.LedgerError, match="keys is 'ab'; a sequence with one key a request"):
        kv.shared_pages([[1], [1]], 4, keys="ab")


def test_page_ids_fill_the_lengths() -> None:
    def account(ids: Any, lengths: Any = (8, 8)) -> object:
        return kv.shared_page_ids(ids, lengths, 4)

    for ids, message in (
        ([[1, 2]], "there are 1 page_ids and 2 lengths; one a request"),
        ([[1, 2], [1]], r"page_ids\[1\] has 1 ids; 8 tokens fill 2 pages"),
        ([[1, 2], [1, None]], r"page_ids\[1\]\[1\] is missing; a page id is a whole number"),
        ([[1, 2], [1, 0.5]], r"page_ids\[1\]\[1\] is 0.5; a page id is a whole number"),
        ([[1, 2], [1, [2]]], r"page_ids\[1\]\[1\] is \[2\]; a page id is a whole number"),
        ([[1, 2], 3], r"page_ids\[1\] is 3; a sequence of whole numbers"),
        ([[1, 2], "12"], r"page_ids\[1\] is '12'; a sequence of whole numbers"),
        (None, "page_ids is missing; a sequence"),
    ):
        refused(message, account, ids)
    for counts in ({8: 2}, as_lengths([8, 8])):
        refused(r"lengths are counts; page_ids need .* order", account, [[1, 2], [1, 2]], counts)


BAD_COSTS: dict[str, tuple[Any, str]] = {
    "negative": (-1, "-1"),
    "slightly negative": (Fraction(-1, 10**9), "Fraction(-1, 1000000000)"),
    "nan": (float("nan"), "missing (NaN)"),
    "numpy nan": (np.float64("nan"), "missing (NaN)"),
    "infinite": (float("inf"), "inf"),
    "decimal nan": (Decimal("nan"), "Decimal('NaN')"),
    "decimal infinite": (Decimal("inf"), "Decimal('Infinity')"),
    "text": ("1", "'1'"),
    "none": (None, "missing"),
    "true": (True, "True"),
    "complex": (1j, "1j"),
    "array": (np.array([1.0]), "array([1.])"),
}


@pytest.mark.parametrize("case", BAD_COSTS)
def test_a_bad_cost_is_named(case: str) -> None:
    value, shown = BAD_COSTS[case]
    for name, accepted, account in (
        ("c", COST, lambda: kv.cost(GOOD, 4, value)),
        ("c", COST, lambda: kv.best_page_size(GOOD, value)),
        ("c", COST, lambda: kv.near_best(GOOD, value)),
        ("c", COST, lambda: kv.closed_form_gap(GOOD, value)),
        ("c", COST, lambda: kv.closed_form_page_size(499, value)),
        ("tolerance", "a share", lambda: kv.near_best(GOOD, 1, tolerance=value)),
        ("n_bytes", "a finite", lambda: kv.slots_from_bytes(value, "Llama-3.1-8B")),
        ("slots", "a finite", lambda: kv.bytes_from_slots(value, "Llama-3.1-8B")),
        ("mean_tokens", "a mean length", lambda: kv.closed_form_page_size(value, 1)),
        ("mean_tokens", "a mean length", lambda: closed_form_c(value, 16)),
    ):
        assert refused("", account).startswith(f"{name} is {shown}; {accepted}")


def test_a_mean_length_is_at_least_one_token() -> None:
    for mean in (0, 0.5, Fraction(99, 100)):
        refused("a mean length is at least 1 token", kv.closed_form_page_size, mean, 1)
        refused("a mean length is at least 1 token", closed_form_c, mean, 16)
    assert closed_form_c(1, 16) == 256
    refused("its closed form is beyond what a float holds", kv.closed_form_page_size, 499, 10**400)
    model = kv.load_models()["Gemma-2-9B"]
    for tokens, shown in ((-1, "-1"), (1.5, "1.5"), ("8", "'8'"), (None, "missing")):
        refused(f"tokens is {shown}; a whole number of at least 0", model.cache_bytes, tokens)
    refused("tokens is 0; a whole number of at least 1", model.window_waste, 0)
    with pytest.raises(kv.LedgerError, match=rf"page_size is {2**40}; a distribution is given up"):
        kv.tail_slack_distribution(GOOD, 2**40)


@pytest.mark.parametrize("model", ["GPT-5", "llama-3.1-8b", "", None, 8, ["Llama-3.1-8B"]])
def test_an_unknown_model_is_named_with_those_there_are(model: Any) -> None:
    for account in (
        lambda: kv.kv_bytes_per_token(model),
        lambda: kv.slots_from_bytes(4, model),
        lambda: kv.bytes_from_slots(1, model),
    ):
        with pytest.raises(kv.LedgerError) as caught:
            account()
        message = str(caught.value)
        assert message.startswith(f"model is {model!r}; known are: OPT-13B, ")
        assert all(name in message for name in kv.load_models())


@pytest.mark.parametrize("dtype", ["fp32", "half", "", 2, ["fp8"]])
def test_an_unknown_data_type_is_named_with_those_there_are(dtype: Any) -> None:
    with pytest.raises(kv.LedgerError) as caught:
        kv.kv_bytes_per_token("Llama-3.1-8B", dtype=dtype)
    assert str(caught.value).startswith(f"dtype is {dtype!r}; known are: float32, float16, bfloat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"full_layers": -1}, "mine: full_layers is -1; a whole number of at least 0"),
        ({"full_layers": 0}, "mine: no layers that keep K and V"),
        ({"full_layers": 1.5}, "mine: full_layers is 1.5; a whole number"),
        ({"kv_heads": 0}, "mine: kv_heads is 0; a whole number of at least 1"),
        ({"head_dim": None}, "mine: head_dim is missing; a whole number of at least 1"),
        ({"bytes_per_element": "2"}, "mine: bytes_per_element is '2'; a whole number"),
        ({"window_layers": 2}, "mine: window is missing; window layers need a window"),
        ({"window_layers": 2, "window": 0}, "mine: window is 0; window layers need a window"),
    ],
)
def test_a_bad_shape_is_named_with_its_field(change: dict[str, Any], message: str) -> None:
    shape: dict[str, Any] = {"full_layers": 2, "kv_heads": 8, "head_dim": 128} | change
    assert refused("", kv.Model, "mine", **shape).startswith(message)


@pytest.mark.parametrize(
    ("tokens", "requests", "message"),
    [
        ([5, 9], [1], r"shapes \(2,\) and \(1,\)"),
        ([9, 5], [1, 1], "must ascend"),
        ([5, 5], [1, 1], "must ascend"),
        ([5, 9], [1, 0], "counts 0 requests for one length; at least 1"),
        ([0, 9], [1, 1], r"tokens\[0\] is 0; a length is a whole number"),
        ([5, 9], [1, 0.5], r"requests\[1\] is 0.5; a whole number, at least 0"),
        ([[5]], [1], r"tokens has shape \(1, 1\)"),
        ([], [], "no lengths given"),
        ([5], [2**62], "lengths add up to 23058430092136939520; .*64 bits"),
        ([1, 2], [2**62, 2**62], r"add up to \d+; .*64 bits"),
    ],
)
def test_a_bad_length_table_says_what_is_wrong(tokens: Any, requests: Any, message: str) -> None:
    refused(message, kv.LengthTable, tokens, requests)


def test_sums_beyond_64_bits_are_an_error_and_never_wrap() -> None:
    big = 2**62
    for account, what in (
        (lambda: kv.paged([big, big], 16), "lengths"),
        (lambda: kv.paged({big: 2}, 16), "lengths"),
        (lambda: kv.paged({5: big, 9: big}, 16), "lengths"),
        (lambda: kv.paged([big + 1], big), "slots of"),
        (lambda: kv.contiguous([1] * 4, 2**61), "reserved slots"),
        (lambda: kv.contiguous([big, big], "oracle"), "lengths"),
        (lambda: kv.shared([big, big], 16, prefix=0), "lengths"),
        (lambda: kv.growth_tail_slack([big, big], 16), "final_lengths|lengths"),
    ):
        refused(rf"{what}.* add up to \d+; .*64 bits", account)
    frame = pd.DataFrame({"tokens": [1, 1], "requests": [big, big]})
    refused(rf"\(requests\) add up to {2**63}; .*64 bits", as_lengths, frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logical_tokens": -1}, "logical_tokens is -1; a whole number from 0"),
        ({"pages": 1.5}, "pages is 1.5; a whole number from 0"),
        ({"pages": None}, "pages is missing; a whole number from 0"),
        ({"requests": "3"}, "requests is '3'; a whole number from 0"),
        ({"allocated_slots": 41}, "allocated_slots is 41; distinct tokens 31 "),
        ({"shared_tokens": 32}, "shared_tokens is 32; at most the 31 logical tokens"),
        ({"reserved_used_later_slots": 1}, "reserved_used_later_slots is 1; at most the 0 "),
        ({"unallocated_slots": 1}, "unallocated_slots and external_slots need a capacity_slots"),
        ({"capacity_slots": 39}, "capacity_slots is 39; allocated 40 + "),
    ],
)
def test_an_inconsistent_ledger_cannot_be_made(change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {
        "requests": 3,
        "logical_tokens": 31,
        "tail_slack_slots": 9,
        "allocated_slots": 40,
        "pages": 10,
    }
    assert kv.Ledger(**fields) == kv.Ledger(**fields)
    assert refused("", kv.Ledger, **fields | change).startswith(message)


def test_the_error_is_a_value_error_under_the_given_name() -> None:
    assert issubclass(kv.LedgerError, ValueError)
    refused(r"prompt_tokens\[0\] is 0", as_length_array, [0], "prompt_tokens")
    with pytest.raises(kv.LedgerError, match="share is 0; a share above 0 and up to 1"):
        as_lengths(GOOD).quantile(Fraction(0))
