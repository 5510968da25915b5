"""Figure 2 of the paper: twelve printed shares and a zero, each within two points, and why."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import refused

from kvledger.core.errors import LedgerError
from kvledger.replays import figure2
from kvledger.replays.length_densities import Family, Lengths, fit_lengths
from kvledger.replays.policies import Contiguous, Paged, Policy
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay
from kvledger.traces import Trace

POINTS = 2.0  # the bar on each share
REQUESTS = 0.10  # the bar on the requests that Orca runs


@pytest.fixture(scope="module")
def lengths() -> Lengths:
    return figure2.sharegpt()


@pytest.fixture(scope="module")
def named(lengths: Lengths) -> dict[str, Replay]:
    return figure2.replays(lengths)


# Lengths


def test_the_papers_pool_and_bad_moments() -> None:
    setting = figure2.paper_setting()
    assert (setting.capacity_slots, setting.maximum, setting.page_size) == (15728, 2048, 16)
    refused("targets are mean_prompt; accepted are", fit_lengths, {"mean_prompt": 100})
    with pytest.raises(LedgerError, match="targets are mean_prompt, mean_output, median"):
        fit_lengths({"mean_prompt": 1, "mean_output": 1, "median": 1, "cv_output": 1})
    refused("prompt_family is 'weibull'", figure2.sharegpt, prompt_family="weibull")
    with pytest.raises(LedgerError, match="mean_prompt is 3000; a positive number below"):
        fit_lengths({"mean_prompt": 3000, "mean_output": 10})
    for impossible in (
        {"mean_prompt": 1500, "mean_output": 1500},
        {"mean_prompt": 100, "mean_output": 100, "cv_prompt": 1, "cv_output": 30},
    ):
        refused("no lengths have mean_prompt", fit_lengths, impossible)
    refused(re.escape("cv_prompt is 1.0 and cv_output is None"), figure2.sharegpt, cv_prompt=1.0)
    refused("systems are vllm; accepted", figure2.sharegpt, systems=["vllm"])
    refused("requests is 0", lambda: figure2.alpaca().trace(0))
    alone = replay(Trace([5], [5]), Paged(4), capacity_slots=64)
    refused("no recorded step has a queue", figure2.settled, alone)


@pytest.mark.parametrize("dataset", ["sharegpt", "alpaca"])
def test_lengths_have_the_printed_means(dataset: str) -> None:
    printed, made = figure2.published(), getattr(figure2, dataset)()
    trace = made.trace(8000)
    for side, tokens in (("input", trace.prompt_tokens), ("output", trace.output_tokens)):
        mean = printed[f"lengths.{dataset}.{side}_mean"]
        model = made.mean_prompt if side == "input" else made.mean_output
        assert model == pytest.approx(mean, rel=1e-6)
        assert tokens.mean() == pytest.approx(mean, rel=0.01)
    assert trace.prompt_tokens.min() >= 1
    assert trace.output_tokens.min() >= 1
    assert trace.total_tokens.max() <= 2048


def test_those_in_memory_are_as_long_as_the_printed_shares_say(lengths: Lengths) -> None:
    printed = figure2.residents()
    assert printed["final"].min() == pytest.approx(717, abs=0.5)
    assert printed["final"].max() == pytest.approx(757, abs=0.5)
    trace = lengths.trace(8000)
    p, o = trace.prompt_tokens, trace.output_tokens
    final = ((p + o - 1) * o).sum() / o.sum()
    assert 717 < final < 757
    assert final == pytest.approx(printed["final"].mean(), rel=0.01)
    assert (p + o).mean() == pytest.approx(499.3, rel=0.01)  # those that arrive are shorter
    assert lengths.resident_now == pytest.approx(printed["now"].mean(), rel=1e-6)
    assert lengths.resident_later == pytest.approx(printed["later"].mean(), rel=1e-6)


@pytest.mark.parametrize("family", ["gamma", "lognormal"])
def test_moments_are_those_of_every_pair(family: Family) -> None:
    made = Lengths(prompt=(0.3, -0.2), output=(-0.4, -0.1), maximum=9, output_family=family)
    pairs = [(p, o) for p, o in product(range(1, 9), repeat=2) if p + o <= 9]
    second = np.log if family == "lognormal" else np.sqrt
    x = np.array([p for p, _ in pairs], float)
    y = np.array([o for _, o in pairs], float)
    w = x**0.3 * np.exp(-0.2 * x) * y**-0.4 * np.exp(-0.1 * second(y) ** 2)
    w /= w.sum()
    steps = w * y / (w @ y)  # of all steps in memory, those of each pair
    assert made.mean_prompt == pytest.approx(w @ x)
    assert made.mean_output == pytest.approx(w @ y)
    assert made.cv_prompt == pytest.approx(np.sqrt(w @ x**2 - (w @ x) ** 2) / (w @ x))
    assert made.cv_output == pytest.approx(np.sqrt(w @ y**2 - (w @ y) ** 2) / (w @ y))
    assert made.resident_now == pytest.approx(steps @ (x + (y - 1) / 2))
    assert made.resident_later == pytest.approx(steps @ ((y - 1) / 2))
    if family == "gamma":
        assert made.in_memory().mean_output == pytest.approx(steps @ y)
        assert made.in_memory().mean_prompt == pytest.approx(steps @ x)


def test_draws_have_the_masses_of_the_model() -> None:
    made = Lengths(prompt=(0.5, -0.5), output=(0.0, -0.3), maximum=6)
    trace = made.trace(200_000, seed=3)
    assert trace.prompt_tokens.mean() == pytest.approx(made.mean_prompt, rel=0.01)
    assert trace.output_tokens.mean() == pytest.approx(made.mean_output, rel=0.01)
    spread = trace.output_tokens.std() / trace.output_tokens.mean()
    assert spread == pytest.approx(made.cv_output, rel=0.01)
    drawn = zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    assert set(drawn) == {(p, o) for p, o in product(range(1, 6), repeat=2) if p + o <= 6}


@pytest.mark.parametrize("families", list(product(["gamma", "lognormal"], repeat=2)))
def test_any_family_is_fitted(families: tuple[Family, ...]) -> None:
    made = figure2.sharegpt(
        prompt_family=families[0], output_family=families[1], cv_prompt=1.4, cv_output=0.8
    )
    assert (made.cv_prompt, made.cv_output) == pytest.approx((1.4, 0.8), rel=1e-6)
    assert (made.mean_prompt, made.mean_output) == pytest.approx((161.31, 337.99), rel=1e-6)


# Shares


def test_orca_runs_the_printed_number_of_requests(named: dict[str, Replay]) -> None:
    frame = figure2.batched(named).set_index("system")
    assert frame.loc["orca_max", "computed"] == 7.0
    for system in figure2.ORCAS:
        assert abs(frame.loc[system, "difference_percent"]) < 100 * REQUESTS
    # vLLM's stays off, for the reason that the next test shows.
    assert 10 < frame.loc["vllm", "difference_percent"] < 17
    assert frame["why"].str.len().min() > 10
    # By the printed shares and numbers, vLLM's requests hold more tokens than any Orca's.
    printed, slots = figure2.published(), figure2.paper_setting().capacity_slots
    held = {
        system: printed[f"fig2.{system}.token_states"]
        / 100
        * slots
        / printed[f"batched.sharegpt.{system}"]
        for system in figure2.SYSTEMS
    }
    assert max(held[system] for system in figure2.ORCAS) < 460 < 495 < held["vllm"]
    replayed = [
        figure2.mean_shares(result)["token_states"] / figure2.mean_running(result)
        for result in named.values()
    ]
    assert max(replayed) / min(replayed) < 1.02
    frame = figure2.shares(named)
    printed = frame.dropna(subset=["published"])
    assert len(printed) == 12
    assert printed["difference"].abs().max() < POINTS, printed.to_string()
    assert printed["why"].str.len().min() > 10
    # The thirteenth: Orca (Oracle) has no internal part, printed or computed.
    assert figure2.mean_shares(named["orca_oracle"])["internal"] == 0.0


def test_what_vllm_leaves_unused_is_more_than_tail_slack(lengths: Lengths) -> None:
    parts, variants = figure2.vllm_waste(lengths)
    share = parts.set_index("part")["share"]
    assert share["all that holds no token"] == pytest.approx(3.7, abs=0.5)
    assert share.iloc[:3].sum() == pytest.approx(share.iloc[3])
    assert 1.4 < share["tail slack"] < 1.9  # half a page of 439 tokens
    assert share["free, within the watermark"] < 1
    assert share["free beyond it"] > 1
    rows = variants.set_index("variant")
    # Pages are free though no watermark asks for it: the head of the queue does not fit.
    assert rows.loc["no watermark", "free"] > 1.5
    assert rows.loc["pages of 1 slot", "tail_slack"] == 0
    assert rows.loc["watermark 0.05", "preempted"] < rows.loc["no watermark", "preempted"]
    setting = replace(figure2.paper_setting(), requests=800, record_every=1)
    for system, result in figure2.replays(lengths, setting).items():
        pool = result.allocated_slots + result.unallocated_slots + result.external_slots
        assert (pool == setting.capacity_slots).all(), system
        held = result.distinct_tokens + result.tail_slack_slots + result.reserved_slots
        assert (held == result.allocated_slots).all(), system
        assert (result.reserved_used_later_slots <= result.reserved_slots).all() or system == "vllm"
        assert sum(figure2.mean_shares(result).values()) == pytest.approx(100)
        assert result.count("finished") == setting.requests


def test_buddies_and_the_limit_explain_orcas_external_share(lengths: Lengths) -> None:
    setting = replace(figure2.paper_setting(), requests=4000)
    pow2 = Contiguous("pow2", "buddy", pow2_of="output", maximum=setting.maximum)
    variants: dict[str, Policy] = {
        "orca_oracle, buddies": Contiguous("oracle", "buddy"),
        "orca_oracle, best fit": Contiguous("oracle", "best"),
        "orca_oracle, first fit": Contiguous("oracle", "first"),
        "orca_pow2, buddies": pow2,
        "orca_pow2, first fit": replace(pow2, fit="first"),
        "orca_pow2, no limit on what is reserved": replace(pow2, maximum=None),
        "orca_pow2, the power of two of all tokens": Contiguous("pow2", "buddy"),
    }
    printed = figure2.published()
    off = {
        name: figure2.mean_shares(result)["external_other"]
        - printed[f"fig2.{name.partition(',')[0]}.external_other"]
        for name, result in figure2.replays(lengths, setting, policies=variants).items()
    }
    assert abs(off.pop("orca_oracle, buddies")) < POINTS
    assert abs(off.pop("orca_pow2, buddies")) < POINTS
    assert off.pop("orca_pow2, no limit on what is reserved") > 3 * POINTS
    assert max(off.values()) < -15


def test_other_draws_stay_within_the_bar(lengths: Lengths) -> None:
    for seed in (1, 2, 3):
        frame = figure2.shares(figure2.replays(lengths, seed=seed))
        assert frame["difference"].abs().max() < POINTS, (seed, frame.to_string())
    setting = replace(figure2.paper_setting(), requests=500)
    one, two, other = (
        figure2.shares(figure2.replays(lengths, setting, seed=seed)) for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(one, two)
    assert not one["computed"].equals(other["computed"])
    assert figure2.sharegpt() == lengths


def test_a_system_by_the_other_two_and_by_other_shapes() -> None:
    frame = figure2.held_out()
    assert len(frame) == 11
    assert frame["difference"].abs().max() < POINTS + 0.5, frame.to_string()
    frame = figure2.sensitivity().set_index("shape")
    worst = frame["worst_points"].abs()
    assert worst["as chosen"] < POINTS
    assert worst["lognormal prompts"] < POINTS + 0.5
    assert worst["spread of outputs 0.75"] > POINTS
    assert worst["exponential: means only"] > worst["as chosen"]
    assert frame["mean_points"].max() < POINTS
    for system, printed in (("orca_pow2", 9.81), ("orca_oracle", 13.62)):
        assert frame[system].sub(printed).abs().max() < REQUESTS * printed


def test_alpaca_from_two_means() -> None:
    frame = figure2.batched(figure2.replays(figure2.alpaca()), "alpaca").set_index("system")
    for system in figure2.ORCAS:
        assert abs(frame.loc[system, "difference_percent"]) < 100 * REQUESTS
    assert frame.loc["vllm", "computed"] > frame.loc["vllm", "published"]


# Sharing


def test_sharing_beside_the_printed() -> None:
    frame = figure2.sharing()
    assert len(frame) == 10
    assert frame["why"].str.len().min() > 10
    by = frame.set_index(["dataset", "method", "sequences"])
    for dataset in ("alpaca", "sharegpt"):
        two, six = (by.loc[(dataset, "parallel", n), "computed"] for n in (2, 6))
        assert six / two == pytest.approx(5 / 3)
    printed = by["published"]
    ratio = printed["sharegpt", "parallel", 6] / printed["sharegpt", "parallel", 2]
    assert ratio > 1.8  # so not of the same requests
    assert frame.loc[frame["method"] == "parallel", "difference"].abs().max() < 6
    beams = frame[frame["method"] == "beam"]
    assert (beams["difference"] > 0).all()  # parents drawn uniformly share the most


@pytest.mark.parametrize(("parents", "sign"), [("stay", -1), ("uniform", 1)])
def test_printed_beams_lie_between_the_two_assumptions(parents: Any, sign: int) -> None:
    frame = figure2.sharing(parents=parents, alpaca_requests=10, sharegpt_requests=2)
    beams = frame[frame["method"] == "beam"]
    assert (sign * beams["difference"] > 0).all()
