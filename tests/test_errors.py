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
    with pytest.raises(kv.LedgerError) as caught:
        kv.paged(value, page_size=4)
    assert str(caught.value).startswith(f"{shown}; {LENGTH}")


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
    with pytest.raises(kv.LedgerError) as caught:
        account(iter([]) if case == "empty generator" else value)
    assert str(caught.value).startswith(shown)


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
    with pytest.raises(kv.LedgerError, match="lengths is 'five'; a sequence of whole numbers"):
        TAKERS[taker]("five")


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
    with pytest.raises(kv.LedgerError) as caught:
        SIZE_TAKERS[taker](value)
    assert str(caught.value).startswith(f"page_size is {shown}; {PAGE}")


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
        with pytest.raises(kv.LedgerError, match=re.escape(message)):
            call(GOOD, value)
    for costing in (kv.best_page_size, kv.near_best, kv.closed_form_gap):
        with pytest.raises(kv.LedgerError, match=re.escape(message)):
            costing(GOOD, 1, value)
    if value != []:  # the page size asked for is always tested
        with pytest.raises(kv.LedgerError, match=re.escape(message)):
            kv.c_for_page_size(GOOD, 4, value)


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
    with pytest.raises(kv.LedgerError) as caught:
        kv.shared_pages(value, 4)
    assert str(caught.value).startswith(shown)


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
        with pytest.raises(kv.LedgerError) as caught:
            account()
        assert str(caught.value).startswith(f"{name} is {shown}; {accepted}")


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
        with pytest.raises(kv.LedgerError, match=rf"{what}.* add up to \d+; .*64 bits"):
            account()
    frame = pd.DataFrame({"tokens": [1, 1], "requests": [big, big]})
    with pytest.raises(kv.LedgerError, match=rf"\(requests\) add up to {2**63}; .*64 bits"):
        as_lengths(frame)


def grown(final_lengths: Any) -> Any:
    return kv.contiguous(GOOD, 32, final_lengths=final_lengths)


def identified(page_ids: Any, lengths: Any = (8, 8)) -> Any:
    return kv.shared_page_ids(page_ids, lengths, 4)


def shaped(**change: Any) -> kv.Model:
    return kv.Model("mine", **({"full_layers": 2, "kv_heads": 8, "head_dim": 128} | change))


def ledger(**change: Any) -> kv.Ledger:
    fields: dict[str, Any] = {"requests": 3, "logical_tokens": 31, "tail_slack_slots": 9}
    return kv.Ledger(**(fields | {"allocated_slots": 40, "pages": 10} | change))


ODD = [(-1, "-1"), (2.5, "2.5"), (None, "missing"), ("8", "'8'"), (True, "True")]
RESERVE = 'a whole number of slots, at least 1, or "pow2" or "oracle"'
PREFIX = "prefix is a whole number of tokens, from 0 to the shortest request"
BITS = f"at most {2**63 - 1} (64 bits)"
LLAMA, COUNTS = "Llama-3.1-8B", "lengths are counts; page_ids need"

#: A function, what it is given, and what of its refusal is held fixed.
REFUSED: list[tuple[Callable[..., Any], Any, str]] = [
    (as_lengths, [[5, HUGE]], BITS),
    (as_lengths, [np.array([5, 2**63], dtype=np.uint64)], BITS),
    (as_lengths, [np.array([5, 1e300])], BITS),
    *(
        (kv.contiguous, [GOOD, value], f"reserve is {shown}; reserve is {RESERVE}")
        for value, shown in [*ODD, (0, "0"), ("max", "'max'"), ([32], "[32]"), (HUGE, str(HUGE))]
    ),
    (partial(kv.contiguous, GOOD, 32), {"over_maximum": "drop"}, "over_maximum is 'drop'; \"err"),
    (grown, [[9, 17]], "there are 3 lengths and 2 final_lengths"),
    (grown, [[5, 8, 17]], "final_lengths[1] is 8; request 1"),
    (grown, [{17: 2}], "there are 3 lengths and 2 final_lengths"),
    (grown, [{8: 2, 31: 1}], "no request shrinks"),
    *(
        (kv.shared, [lengths, 4, value], f"prefix is {shown}; {PREFIX}")
        for lengths in (GOOD, {5: 1, 9: 2})
        for value, shown in [*ODD, (6, "6; request 0 has 5 tokens"), (HUGE, str(HUGE))]
    ),
    (kv.shared_pages, [[[1], [1]], 4, ["a"]], "there are 1 keys for 2 requests; one a request"),
    (kv.shared_pages, [[[1]] * 2, 1, [["a"]] * 2], "a key is ['a']; a PageContext or another hash"),
    (kv.shared_pages, [[[1]], 4, 5], "keys is 5; a sequence with one key a request"),
    (kv.shared_pages, [[[1]] * 2, 4, "ab"], "keys is 'ab'; a sequence with one key a request"),
    (identified, [[[1, 2]]], "there are 1 page_ids and 2 lengths; one a request"),
    (identified, [[[1, 2], [1]]], "page_ids[1] has 1 ids; 8 tokens fill 2 pages"),
    (identified, [[[1, 2], [1, None]]], "page_ids[1][1] is missing; a page id is a whole number"),
    (identified, [[[1, 2], [1, 0.5]]], "page_ids[1][1] is 0.5; a page id is a whole number"),
    (identified, [[[1, 2], [1, [2]]]], "page_ids[1][1] is [2]; a page id is a whole number"),
    (identified, [[[1, 2], 3]], "page_ids[1] is 3; a sequence of whole numbers"),
    (identified, [[[1, 2], "12"]], "page_ids[1] is '12'; a sequence of whole numbers"),
    (identified, [None], "page_ids is missing; a sequence"),
    (identified, [[[1, 2]] * 2, {8: 2}], COUNTS),
    (identified, [[[1, 2]] * 2, as_lengths([8, 8])], COUNTS),
    *((kv.closed_form_page_size, [n, 1], "a mean length is at least 1 token") for n in (0, 0.5)),
    (closed_form_c, [Fraction(99, 100), 16], "a mean length is at least 1 token"),
    (kv.closed_form_page_size, [499, 10**400], "its closed form is beyond what a float holds"),
    *(
        (call, [*before, model], f"model is {model!r}; known are: {', '.join(kv.load_models())}")
        for model in ("GPT-5", "llama-3.1-8b", "", None, 8, [LLAMA])
        for call, before in (
            (kv.kv_bytes_per_token, []),
            (kv.slots_from_bytes, [4]),
            (kv.bytes_from_slots, [1]),
        )
    ),
    *(
        (
            partial(kv.kv_bytes_per_token, LLAMA),
            {"dtype": dtype},
            f"dtype is {dtype!r}; known are: float32, float16, bf",
        )
        for dtype in ("fp32", "half", "", 2, ["fp8"])
    ),
    (shaped, {"full_layers": -1}, "mine: full_layers is -1; a whole number of at least 0"),
    (shaped, {"full_layers": 0}, "mine: no layers that keep K and V"),
    (shaped, {"full_layers": 1.5}, "mine: full_layers is 1.5; a whole number"),
    (shaped, {"kv_heads": 0}, "mine: kv_heads is 0; a whole number of at least 1"),
    (shaped, {"head_dim": None}, "mine: head_dim is missing; a whole number of at least 1"),
    (shaped, {"bytes_per_element": "2"}, "mine: bytes_per_element is '2'; a whole number"),
    (shaped, {"window_layers": 2}, "mine: window is missing; window layers need a window"),
    (shaped, {"window_layers": 2, "window": 0}, "mine: window is 0; window layers need a window"),
    *(
        (shaped().cache_bytes, [value], f"tokens is {shown}; a whole number of at least 0")
        for value, shown in ODD[:4]
    ),
    (shaped().window_waste, [0], "tokens is 0; a whole number of at least 1"),
    (kv.LengthTable, [[5, 9], [1]], "shapes (2,) and (1,)"),
    (kv.LengthTable, [[9, 5], [1, 1]], "must ascend"),
    (kv.LengthTable, [[5, 5], [1, 1]], "must ascend"),
    (kv.LengthTable, [[5, 9], [1, 0]], "counts 0 requests for one length; at least 1"),
    (kv.LengthTable, [[0, 9], [1, 1]], "tokens[0] is 0; a length is a whole number"),
    (kv.LengthTable, [[5, 9], [1, 0.5]], "requests[1] is 0.5; a whole number, at least 0"),
    (kv.LengthTable, [[[5]], [1]], "tokens has shape (1, 1)"),
    (kv.LengthTable, [[], []], "no lengths given"),
    (kv.LengthTable, [[5], [2**62]], "lengths add up to 23058430092136939520; "),
    (kv.LengthTable, [[1, 2], [2**62, 2**62]], "add up to "),
    (ledger, {"logical_tokens": -1}, "logical_tokens is -1; a whole number from 0"),
    (ledger, {"pages": 1.5}, "pages is 1.5; a whole number from 0"),
    (ledger, {"pages": None}, "pages is missing; a whole number from 0"),
    (ledger, {"requests": "3"}, "requests is '3'; a whole number from 0"),
    (ledger, {"allocated_slots": 41}, "allocated_slots is 41; distinct tokens 31 "),
    (ledger, {"shared_tokens": 32}, "shared_tokens is 32; at most the 31 logical tokens"),
    (ledger, {"reserved_used_later_slots": 1}, "reserved_used_later_slots is 1; at most the 0 "),
    (
        ledger,
        {"unallocated_slots": 1},
        "unallocated_slots and external_slots need a capacity_slots",
    ),
    (ledger, {"capacity_slots": 39}, "capacity_slots is 39; allocated 40 + "),
    (
        kv.tail_slack_distribution,
        [GOOD, 2**40],
        f"page_size is {2**40}; a distribution is given up",
    ),
    (as_length_array, [[0], "prompt_tokens"], "prompt_tokens[0] is 0"),
    (as_lengths(GOOD).quantile, [Fraction(0)], "share is 0; a share above 0 and up to 1"),
]


@pytest.mark.parametrize(("account", "given", "message"), REFUSED)
def test_what_is_refused_is_named(account: Callable[..., Any], given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        account(**given) if isinstance(given, dict) else account(*given)
    assert isinstance(caught.value, kv.LedgerError)


def test_what_is_whole_is_accepted() -> None:
    assert closed_form_c(1, 16) == 256
    assert ledger() == ledger()
