"""Replays beside each other, and their drawings: held against the replays they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import refused
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from replay_models import results

import kvledger as kv
from kvledger.chapters import drawing
from kvledger.chapters import growth_figures as drawings
from kvledger.replays import growth
from kvledger.replays.policies import Contiguous, Paged
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay
from proofbook import style

pytestmark = pytest.mark.usefixtures("no_warnings")

TRACE = kv.Trace([5, 9, 17], [4, 4, 4])
REFUSED = replay(kv.Trace([90, 80], [1, 1]), Paged(4), capacity_slots=16)

ran = results().filter(len)


@pytest.fixture
def three() -> dict[str, Replay]:
    """The article's requests: reserved, in pages, and in a pool that is too small."""
    return {
        "reserved": replay(TRACE, Contiguous(32), capacity_slots=100),
        "pages": replay(TRACE, Paged(4), capacity_slots=100),
        "waiting": replay(TRACE, Contiguous("oracle", fit="buddy"), capacity_slots=48),
    }


@pytest.fixture
def sharing() -> Replay:
    trace = kv.Trace([9] * 6, [3] * 6, page_ids=[[0, 1]] * 6, page_ids_size=4)
    return replay(trace, Paged(4, prefix_cache=True), capacity_slots=24)


def preempting(mode: str = "recompute", host_pages: int = 0) -> Replay:
    """Three requests of 4 + 9 tokens in four pages: two leave, 21 steps pass."""
    policy = Paged(4, preemption=mode, host_pages=host_pages)
    return replay(kv.Trace([4] * 3, [9] * 3), policy, capacity_slots=16)


# Tables.


@given(ran)
def test_the_parts_are_the_capacity_at_every_step(result: Replay) -> None:
    parts = [growth.part(result, name) for name in growth.PARTS]
    assert (np.sum(parts, axis=0) == result.capacity_slots).all()
    assert all((values >= 0).all() for values in parts)


@given(ran, st.floats(0, 0.499))
def test_settled_steps_drop_the_same_share_at_both_ends(result: Replay, drop: float) -> None:
    steps, n = growth.settled(result, drop=drop), len(result)
    assert steps.start == n - steps.stop == int(n * drop)
    assert len(range(n)[steps]) >= 1


@pytest.mark.parametrize("drop", [0.5, 1, -0.1, float("nan")])
def test_bad_numbers_are_refused(drop: float) -> None:
    result = replay(TRACE, Paged(4), capacity_slots=64)
    refused(f"drop is {drop}; a share from 0 to below one half", growth.settled, result, drop=drop)


@given(ran, st.integers(2, 12))
def test_samples_over_time_are_steps_of_the_replay(result: Replay, points: int) -> None:
    frame = growth.over_time({"one": result, "two": result}, points=points)
    one, two = (frame[frame["policy"] == name].drop(columns="policy") for name in ("one", "two"))
    pd.testing.assert_frame_equal(one.reset_index(drop=True), two.reset_index(drop=True))
    assert len(one) == min(points, len(result))
    assert one["time_s"].iloc[0] == result.time_s[0]
    assert one["time_s"].iloc[-1] == result.time_s[-1]
    at = np.searchsorted(result.time_s, one["time_s"])
    for name, column in growth.PARTS.items():
        if name != "reserved_never":
            want = getattr(result, column)[at] / result.capacity_slots
            np.testing.assert_array_equal(one[name], want)
    np.testing.assert_allclose(one[list(growth.PARTS)].sum(axis=1), 1)
    np.testing.assert_array_equal(
        one["shared_share"], result.shared_tokens[at] / result.capacity_slots
    )
    np.testing.assert_array_equal(one["running"], result.running[at])
    np.testing.assert_array_equal(one["waiting"], result.waiting[at])


@pytest.mark.parametrize("points", [1, 0, 2.5, "many"])
def test_a_number_of_points_that_is_none_is_refused(points: Any) -> None:
    with pytest.raises(kv.LedgerError, match=r"points is a whole number of points, at least 2"):
        growth.over_time({"p": replay(TRACE, Paged(4), capacity_slots=64)}, points=points)


def test_step_by_step_lays_out_every_step_in_slots(three: dict[str, Replay]) -> None:
    frame = growth.step_by_step(three)
    assert frame["policy"].unique().tolist() == list(three)
    assert (frame[list(growth.PARTS)].sum(axis=1) == frame["capacity"]).all()
    pages = frame[frame["policy"] == "pages"]
    assert pages["step"].tolist() == [0, 1, 2, 3]
    assert pages["used"].tolist() == [31, 34, 37, 40]
    assert pages["tail_slack"].tolist() == [9, 6, 3, 0]
    assert pages["unallocated"].tolist() == [60] * 4
    waiting = frame[frame["policy"] == "waiting"]
    # 8 and 12 slots, 12 of them in a block of 16; the third needs a block of 32.
    assert waiting["running"].tolist() == [2, 2, 2, 2, 1, 1, 1, 1]
    assert waiting["waiting"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert waiting["external"].tolist() == [28] * 4 + [12] * 4
    result = three["reserved"]
    assert growth.part(result, "reserved_later").tolist() == [9, 6, 3, 0]
    assert growth.part(result, "reserved_never").tolist() == [56] * 4
    refused("part is 'shared'; parts are used, tail_slack", growth.part, result, "shared")


@given(ran, st.sampled_from([0.0, 0.1, 0.25, 0.49]))
def test_mean_shares_are_means_over_settled_steps(result: Replay, drop: float) -> None:
    row = growth.mean_shares({"p": result}, drop=drop).iloc[0]
    assert sum(row[name] for name in growth.PARTS) == pytest.approx(1)
    steps = growth.settled(result, drop=drop)
    slots = result.capacity_slots
    for name in growth.PARTS:
        values = growth.part(result, name)[steps].tolist()
        assert row[name] == pytest.approx(sum(values) / len(values) / slots)
    shared = result.shared_tokens[steps].tolist()
    assert row["shared_share"] == pytest.approx(sum(shared) / len(shared) / slots)
    assert row["running"] == pytest.approx(np.mean(result.running[steps]))
    assert row["steps"] == len(result)
    assert row["preempted"] == result.requests["preemptions"].sum()
    assert row["recomputed_tokens"] == result.total("recomputed_tokens")
    assert row["refused"] == (result.requests["state"] == "refused").sum()


def test_pressure_by_hand() -> None:
    frame = growth.pressure(
        {"recompute": preempting(), "swap": preempting("swap", 3)}, drop=0
    ).set_index("setting")
    # 12 prompt tokens, 24 decoded ones; 8 and 4 are computed again, or copied.
    assert frame["recomputed_tokens"].tolist() == [12, 0]
    assert frame["recomputed_share"].tolist() == [12 / 48, 0]
    assert frame["swapped_tokens"].tolist() == [0, 12]
    assert frame["preempted"].tolist() == [2, 2]
    assert frame["steps"].tolist() == [21, 21]
    # Somebody is kept out from step 1, when the third leaves, until step 13, when it returns.
    assert frame["blocked_share"].tolist() == [12 / 21] * 2
    assert frame["mean_waiting_s"].tolist() == [0, 0]
    assert frame["held_share"].tolist() == [preempting().pages.sum() / 21 / 4] * 2
    result = replay(kv.Trace([4] * 3, [2] * 3), Paged(4), capacity_slots=8, max_running=1)
    row = growth.pressure({"p": result}).iloc[0]
    assert (row["mean_waiting_s"], row["worst_waiting_s"]) == (2, 4)


@given(ran)
def test_the_quiet_moment_is_the_emptiest_of_those_without_a_queue(result: Replay) -> None:
    n = len(result)
    middle = [at for at in range(n) if int(n * 0.25) <= at < n - int(n * 0.25)]
    quiet = [at for at in middle if result.waiting[at] == 0]
    if not quiet:
        refused("no moment is quiet", growth.quiet_moment, result)
        return
    best = min(quiet, key=lambda at: int(result.allocated_slots[at]))
    found = growth.quiet_moment(result)
    assert found["time_s"] == result.time_s[best]
    assert found["held_share"] == result.allocated_slots[best] / result.capacity_slots
    assert (found["running"], found["waiting"]) == (result.running[best], 0)
    assert found["preempted_before"] == sum(result.preempted.tolist()[: best + 1])


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30).map(sorted), st.integers(1, 10))
def test_bursts_have_the_same_requests_at_the_same_mean_rate(times: list[int], size: int) -> None:
    n = len(times)
    trace = kv.Trace(range(1, n + 1), [2] * n, times, [[i] for i in range(n)], 64, name="t")
    bursts = growth.in_bursts(trace, size)
    assert bursts.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert bursts.output_tokens.tolist() == trace.output_tokens.tolist()
    assert (bursts.page_ids, bursts.page_ids_size) == (trace.page_ids, 64)
    assert bursts.name == "t"
    assert bursts.arrival_s is not None
    apart = (times[-1] - times[0]) / (n - 1)
    want = [i // size * size * apart for i in range(n)]
    np.testing.assert_allclose(bursts.arrival_s, want)
    even = growth.evenly(trace)
    assert even.arrival_s is not None
    np.testing.assert_allclose(even.arrival_s, np.linspace(0, trace.arrival_s[-1], n))


@pytest.mark.parametrize("trace", [TRACE, kv.Trace([5], [4], [0])])
def test_times_that_cannot_be_spread_are_refused(trace: kv.Trace) -> None:
    refused("has no times to spread; accepted: times, and two", growth.evenly, trace)


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_burst_of_none_is_refused(size: Any) -> None:
    trace = kv.Trace([5, 5], [1, 1], [0, 1])
    refused(f"size is {size}; .* at least 1", growth.in_bursts, trace, size)


ROUND = kv.Trace(
    [9, 9, 9], [1, 1, 1], page_ids=[[0, 1], [2, 3], [0, 1]], page_ids_size=4
)  # A, B and A again, three pages each


def test_hit_rates_by_hand() -> None:
    """Three pages hold A or B; four keep A's first page beside B; five keep both of A's."""
    frame = growth.hit_rates(ROUND, [12, 16, 20], page_size=4, max_running=1)
    assert frame["capacity_slots"].tolist() == [12, 16, 20, None]
    assert frame["hit_tokens"].tolist() == [0, 4, 8, 8]
    assert frame["hit_rate"].tolist() == [0, 4 / 27, 8 / 27, 8 / 27]
    # In three pages each evicts the other's two; in four, one each.
    assert frame["evictions"].tolist() == [4, 2, 0, 0]
    assert frame["preempted"].tolist() == [0] * 4
    assert frame["refused"].tolist() == [0] * 4
    frame = growth.hit_rates(ROUND, [12], page_size=4, max_running=3)
    assert frame["mean_shared_tokens"].iloc[-1] == 8
    assert frame["evictions"].iloc[-1] == frame["preempted"].iloc[-1] == 0
    frame = growth.hit_rates(ROUND, [8], page_size=4, max_running=3)
    assert frame["refused"].tolist() == [3, 0]
    assert frame["hit_tokens"].tolist()[0] == 0
    assert frame["mean_shared_tokens"].tolist()[0] == 0
    endless = 27 + 3 + 3 * 4 + 2  # tokens and a page each, in whole pages
    frame = growth.hit_rates(ROUND, [endless], page_size=4, max_running=1)
    assert frame["capacity_slots"].tolist() == [endless, None]


@pytest.mark.parametrize(
    "table", [growth.over_time, growth.mean_shares, growth.pressure], ids=lambda f: f.__name__
)
def test_a_replay_in_which_nothing_ran_is_refused(table: Any) -> None:
    refused("nothing ran: all 2 requests were refused", table, {"p": REFUSED})


def test_the_moment_of_a_replay_in_which_nothing_ran_is_refused() -> None:
    refused("nothing ran", growth.quiet_moment, REFUSED)
    assert growth.step_by_step({"p": REFUSED}).empty


# Drawings.


def words(fig: Figure) -> list[str]:
    fig.draw_without_rendering()
    texts = [t for t in fig.findobj(Text) if isinstance(t, Text)]
    return [t.get_text() for t in texts if t.get_visible() and t.get_text().strip()]


def stack_tops(ax: Axes) -> dict[float, float]:
    """Highest drawn point at every x."""
    tops: dict[float, float] = {}
    for area in ax.collections:
        for path in area.get_paths():
            for x, y in np.asarray(path.vertices):
                tops[float(x)] = max(tops.get(float(x), 0.0), float(y))
    return tops


def test_layers_are_the_parts_and_sharing_is_none_of_them() -> None:
    assert list(drawings.LAYERS) == list(growth.PARTS)
    assert "shared" not in {part for part, _, _ in drawings.LAYERS.values()}
    assert all(part in drawing.PART for part, _, _ in drawings.LAYERS.values())
    looks = [tuple(drawings.layer_style(name).items()) for name in drawings.LAYERS]
    assert len(set(looks)) == len(looks)


def test_a_pool_over_time_is_a_stack_up_to_its_capacity(three: dict[str, Replay]) -> None:
    frame = growth.over_time(three)
    fig = drawings.pools_over_time(frame, title="Fuller", x_label="steps")
    assert len(fig.axes) == 3
    for ax, result in zip(fig.axes, three.values(), strict=True):
        tops = stack_tops(ax)
        assert set(tops) >= set(result.time_s.tolist())
        np.testing.assert_allclose(list(tops.values()), 1)
        assert ax.get_ylim() == (0, 1)
        assert not ax.lines  # nothing is shared
    said = words(fig)
    assert set(three) <= set(said)
    keys = {
        "used",
        "tail slack",
        "reserved, used later",
        "reserved, never used",
        "holes too small to use",
    }
    assert keys | {"unallocated", "steps"} <= set(said)
    fig = drawings.pools_over_time(
        growth.over_time({"p": three["pages"]}), title="Fuller", x_label="steps"
    )
    said = words(fig)
    assert {"used", "tail slack", "unallocated"} <= set(said)
    assert not {"reserved, used later", "reserved, never used", "holes too small to use"} & set(
        said
    )


def test_what_is_spared_is_a_line_and_no_layer(sharing: Replay) -> None:
    frame = growth.over_time({"cache": sharing})
    fig = drawings.pools_over_time(frame, title="Fuller", x_label="steps")
    (ax,) = fig.axes
    rim, line = ax.lines
    spared = sharing.shared_tokens / sharing.capacity_slots
    for drawn in (rim, line):
        np.testing.assert_array_equal(np.asarray(drawn.get_ydata()), spared)
    assert spared.max() > 0
    assert to_rgba(rim.get_color()) == to_rgba(style.INK["light"].paper)
    colour = to_rgba(drawing.PART["shared"].colour)
    assert to_rgba(line.get_color()) == colour
    assert "spared by sharing" in words(fig)
    for area in ax.collections:
        assert all(tuple(face) != colour for face in np.atleast_2d(area.get_facecolor()))


def test_replayed_shares_stand_beside_published_ones() -> None:
    (one, two), part = list(drawings.SYSTEMS)[:2], next(iter(drawings.SHARES))
    frame = pd.DataFrame(
        {
            "system": [one, two, one],
            "part": [part] * 3,
            "published": [20.4, 38.2, np.nan],
            "computed": [21.0, 37.0, 5.0],
        }
    )
    fig = drawings.beside_paper(frame, title="Close")
    (ax,) = fig.axes
    drawn = {str(line.get_label()): np.asarray(line.get_xdata()).tolist() for line in ax.lines}
    assert drawn == {"published": [20.4, 38.2], "replayed": [21.0, 37.0]}
    heights = [np.asarray(line.get_ydata()).tolist() for line in ax.lines]
    assert heights == [[0, -1], [0, -1]]
    said = words(fig)
    names = [f"{drawings.SYSTEMS[system]}: {drawings.SHARES[part]}" for system in (one, two)]
    assert {*names, "Close", "published", "replayed"} <= set(said)
    assert said.index(names[0]) < said.index(names[1])
