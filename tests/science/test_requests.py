"""Request tables: what a replay needs of a trace survives them, and nothing is invented."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rawtraces import raw_folder

import kvledger as kv
from kvledger.traces import derivation as traces_module
from kvledger.traces.derivation import requests_table

BLOCK = traces_module.MOONCAKE_BLOCK


@pytest.mark.parametrize("name", ["azure_conv_2023", "mooncake_conversation"])
def test_a_request_table_holds_the_raw_trace(name: str) -> None:
    raw, table = kv.load_trace(next(raw_folder().glob(f"{name}.*"))), kv.load_requests(name)
    assert raw.arrival_s is not None
    assert table.arrival_s is not None
    assert (raw.prompt_tokens == table.prompt_tokens).all()
    assert (raw.output_tokens == table.output_tokens).all()
    assert np.abs(raw.arrival_s - table.arrival_s).max() <= 0.001
    assert same_pattern(raw.page_ids, table.page_ids)


def same_pattern(
    one: tuple[tuple[int, ...], ...] | None, two: tuple[tuple[int, ...], ...] | None
) -> bool:
    """Tell whether two traces' ids differ by a renaming only."""
    if one is None or two is None:
        return one is two
    pairs = {pair for a, b in zip(one, two, strict=True) for pair in zip(a, b, strict=True)}
    return len({a for a, _ in pairs}) == len(pairs) == len({b for _, b in pairs})


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 5), st.integers(1, BLOCK)),
        min_size=1,
        max_size=12,
    )
)
def test_any_chained_trace_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int, int]]
) -> None:
    ids: list[list[int]] = []
    fresh = iter(range(10**6, 0, -3))
    for parent, common, new, _ in steps:
        start = ids[parent % len(ids)][:common] if ids else []
        ids.append([*start, *(next(fresh) for _ in range(new))])
    prompts = [BLOCK * (len(own) - 1) + rest for own, (*_, rest) in zip(ids, steps, strict=True)]
    trace = kv.Trace(prompts, [1] * len(ids), np.arange(len(ids)), ids, BLOCK)
    folder = tmp_path_factory.mktemp("data")
    (folder / "traces").mkdir()
    requests_table(trace).to_csv(folder / "traces/mine.requests.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces_module, "data_file", lambda name: folder / name)
        back = kv.load_requests("mine")
    assert (back.prompt_tokens == trace.prompt_tokens).all()
    assert same_pattern(trace.page_ids, back.page_ids)


def test_what_is_no_request_table_is_refused() -> None:
    with pytest.raises(kv.LedgerError, match="has no times"):
        requests_table(kv.Trace([5], [1]))
    unchained = kv.Trace([20, 20], [1, 1], [0, 1], [[1, 2], [3, 2]], 10)
    with pytest.raises(kv.LedgerError, match=r"request 1 of .* a known block after a new one"):
        requests_table(unchained)
    with pytest.raises(kv.LedgerError, match=r"no data file 'traces/none\.requests\.csv'"):
        kv.load_requests("none")
