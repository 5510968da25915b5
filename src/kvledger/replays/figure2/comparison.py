"""Shares of the pool and requests at a time, computed and printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvledger.core.errors import LedgerError
from kvledger.replays.figure2 import difference_reasons as reasons
from kvledger.replays.figure2.length_densities import Lengths
from kvledger.replays.figure2.setting import PARTS, SYSTEMS, Setting, paper_setting, published
from kvledger.replays.replay import Paged, Replay, replay


def replays(
    lengths: Lengths,
    setting: Setting | None = None,
    *,
    seed: int = 0,
    even: bool = True,
    systems: Iterable[str] = SYSTEMS,
) -> dict[str, Replay]:
    """Replay one trace under the policy of each system, always with a queue.

    Parameters
    ----------
    lengths : Lengths
        What the requests are drawn from.
    setting : Setting, optional
        The paper's, if not given.
    seed, even : int, bool
        As in :meth:`Lengths.trace`.
    systems : iterable of str
        Some of :data:`SYSTEMS`.

    Returns
    -------
    dict of str to Replay

    Raises
    ------
    LedgerError
        For an unknown system.
    """
    setting = paper_setting() if setting is None else setting
    policies = setting.policies()
    trace = lengths.trace(setting.requests, seed, even=even)
    result = {}
    for system in systems:
        if system not in policies:
            raise LedgerError(f"system is {system!r}; systems are {', '.join(policies)}")
        result[system] = replay(
            trace,
            policies[system],
            capacity_slots=setting.capacity_slots,
            max_running=setting.max_running,
            record_every=setting.record_every,
        )
    return result


def settled(result: Replay, maximum: int = 2048) -> slice:
    """Return the recorded steps after the first filling and before the queue is empty.

    At the first step many requests begin at once. They are gone after as many steps as the
    longest output has, ``maximum`` at most; in a replay too short for that, half of its steps
    with a queue are dropped.
    """
    queued = np.flatnonzero(result.waiting > 0)
    if not queued.size:
        raise LedgerError("no recorded step has a queue; accepted: more requests than fit at once")
    end = int(queued[-1]) + 1
    begin = int(np.searchsorted(result.time_s, maximum))
    return slice(min(begin, end // 2), end)


def mean_shares(result: Replay, maximum: int = 2048) -> dict[str, float]:
    """Return Figure 2's shares of a replay, in percent of the pool, over its settled steps.

    Returns
    -------
    dict
        token_states; reserved (slots that a request will use later); internal (reserved slots
        that it never uses, and slack of last pages); external_other (the rest: rounding to
        blocks, holes, free slots). They add up to 100.
    """
    steps = settled(result, maximum)

    def percent(slots: npt.NDArray[np.int64]) -> float:
        return 100 * float(slots[steps].mean()) / result.capacity_slots

    later = result.reserved_used_later_slots
    return {
        "token_states": percent(result.distinct_tokens),
        "reserved": percent(later),
        "internal": percent(result.reserved_slots - later + result.tail_slack_slots),
        "external_other": percent(result.external_slots + result.unallocated_slots),
    }


def mean_running(result: Replay, maximum: int = 2048) -> float:
    """Return the requests that run at a time, over the settled steps."""
    return float(result.running[settled(result, maximum)].mean())


def shares(named: Mapping[str, Replay]) -> pd.DataFrame:
    """Hold the shares of replays against Figure 2's.

    Columns: system, part, published and computed (percent of the pool), difference (points), why
    (what the difference comes from). Of vLLM the paper prints token states alone; its other
    rows have no published value.
    """
    printed = published()
    rows = []
    for system, result in named.items():
        computed = mean_shares(result)
        for part in PARTS:
            given = printed.get(f"fig2.{system}.{part}")
            if given is None and system != "vllm":
                continue  # Orca (Oracle) has no internal part, printed or computed
            rows.append(
                {
                    "system": system,
                    "part": part,
                    "published": np.nan if given is None else given,
                    "computed": computed[part],
                    "difference": np.nan if given is None else computed[part] - given,
                    "why": reasons.SHARES.get((system, part), ""),
                }
            )
    return pd.DataFrame(rows)


def batched(
    named: Mapping[str, Replay], dataset: Literal["sharegpt", "alpaca"] = "sharegpt"
) -> pd.DataFrame:
    """Hold the requests that run at a time against Figure 13's.

    Columns: system, published, computed, difference_percent (of the published), why.
    """
    printed = published()
    rows = []
    for system, result in named.items():
        given, computed = printed[f"batched.{dataset}.{system}"], mean_running(result)
        rows.append(
            {
                "system": system,
                "published": given,
                "computed": computed,
                "difference_percent": 100 * (computed / given - 1),
                "why": reasons.BATCHED[dataset, system],
            }
        )
    return pd.DataFrame(rows)


def vllm_waste(
    lengths: Lengths, setting: Setting | None = None, *, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split what vLLM leaves unused, and say what each rule of admission has to do with it.

    Returns
    -------
    parts : DataFrame
        part, share (percent of the pool): tail slack; free pages up to the watermark; free pages
        beyond it, which the request at the head of the queue is too long for, or which are
        free while a preempted request has to come back first. The last row is the sum, with the
        published one.
    variants : DataFrame
        variant, token_states, tail_slack, free (percent of the pool), running, preempted.
    """
    setting = paper_setting() if setting is None else setting
    paged = Paged(setting.page_size, watermark=setting.watermark)
    variants: dict[str, Paged] = {
        "as in the paper": paged,
        "no watermark": replace(paged, watermark=0.0),
        "watermark 0.05": replace(paged, watermark=0.05),
        "swapping": replace(paged, preemption="swap", host_pages=setting.capacity_slots),
        "pages of 1 slot": replace(paged, page_size=1),
    }
    trace = lengths.trace(setting.requests, seed)
    rows, first = [], None
    for name, policy in variants.items():
        result = replay(
            trace,
            policy,
            capacity_slots=setting.capacity_slots,
            max_running=setting.max_running,
            record_every=setting.record_every,
        )
        first = result if first is None else first
        computed, steps = mean_shares(result, setting.maximum), settled(result, setting.maximum)
        rows.append(
            {
                "variant": name,
                "token_states": computed["token_states"],
                "tail_slack": computed["internal"],
                "free": computed["external_other"],
                "running": float(result.running[steps].mean()),
                "preempted": result.total("preempted"),
            }
        )
    assert first is not None
    return _waste_parts(first, setting), pd.DataFrame(rows)


def vllm_tokens_per_request(named: Mapping[str, Replay]) -> pd.DataFrame:
    """Return the tokens a running request holds: by the printed numbers, and in replays.

    Columns: system, published (share of Figure 2 times the slots, by Figure 13's requests),
    computed. The printed ones of three systems agree; vLLM's does not, so its share and its
    number of requests are not averages over the same steps.
    """
    printed, slots = published(), paper_setting().capacity_slots
    rows = []
    for system, result in named.items():
        share = printed[f"fig2.{system}.token_states"] / 100
        steps = settled(result)
        running = float(result.running[steps].mean())
        rows.append(
            {
                "system": system,
                "published": share * slots / printed[f"batched.sharegpt.{system}"],
                "computed": float(result.distinct_tokens[steps].mean()) / running,
            }
        )
    return pd.DataFrame(rows)


def _waste_parts(result: Replay, setting: Setting) -> pd.DataFrame:
    steps, capacity = settled(result, setting.maximum), result.capacity_slots
    kept = int(setting.watermark * (capacity // setting.page_size)) * setting.page_size
    free = result.unallocated_slots[steps]
    parts = {
        "tail slack": result.tail_slack_slots[steps],
        "free, within the watermark": np.minimum(free, kept),
        "free beyond it": np.maximum(free - kept, 0),
    }
    percent = {name: 100 * float(slots.mean()) / capacity for name, slots in parts.items()}
    rows = [{"part": name, "share": share, "published": np.nan} for name, share in percent.items()]
    rows.append(
        {
            "part": "all that holds no token",
            "share": sum(percent.values()),
            "published": round(100 - published()["fig2.vllm.token_states"], 6),
        }
    )
    return pd.DataFrame(rows)
