"""The paper's Figure 2 and what belongs to it, recomputed from the numbers that it prints.

Kwon et al. 2023 print where the memory of four systems went (Figure 2), how many requests each
ran at a time (Figure 13) and how many blocks sharing saved (Figure 15). They do not print the
lengths of the requests, only their means. Here a trace is drawn that has the printed moments,
and it is replayed under the four policies with a queue that never empties.

The lengths have the least particular shape with those moments: a prompt and an output whose
densities are exponentials of ``x`` and ``log x`` (truncated gamma distributions), independent but
for the limit on their sum. Its four numbers come from four printed ones:

1. the mean prompt and 2. the mean output of those that arrive (section 6.1);
3. what a request in memory holds, and 4. what it will still get, on average over the three Orca
   systems (Figure 2's shares times the slots, by Figure 13's requests). A request is in memory
   for as many steps as it has outputs, so this average counts long ones more often.

So the sums of two rows of Figure 2 over three systems are put in. Their split between systems,
and the other rows, come out. Where nothing but means is printed (Alpaca), both shapes are
exponential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.models.known import kv_bytes_per_token
from kvledger.replays import growth
from kvledger.replays.length_densities import Family, Lengths, fit_lengths
from kvledger.replays.policies import Contiguous, Paged, Policy
from kvledger.replays.result import Replay
from kvledger.replays.sampling import ParentRule, beam_search
from kvledger.traces import Trace

ORCAS = ("orca_max", "orca_pow2", "orca_oracle")
"""The systems that reserve."""

SYSTEMS = (*ORCAS, "vllm")
"""The four systems, as ``data/paper_pagedattention.csv`` names them."""

MAXIMUM = 2048
"""Longest sequence that the systems serve, in tokens: section 6.1, for OPT."""

# Where each difference between a computed and a printed number comes from.
_SPREAD = (
    "one mean of residents is put in for all; the printed ones differ between systems that serve "
    "the same requests"
)
_SHAPE = (
    "which power of two a length is rounded up to depends on the whole distribution; moments do "
    "not settle it"
)
_WHY_SHARES: Mapping[tuple[str, str], str] = {
    **{(system, part): _SPREAD for system in ORCAS for part in ("token_states", "reserved")},
    ("orca_max", "internal"): _SPREAD,
    ("orca_max", "external_other"): "none but rounding: seven runs fit, whatever the lengths",
    ("orca_pow2", "internal"): _SHAPE,
    ("orca_pow2", "external_other"): _SHAPE,
    ("orca_oracle", "external_other"): _SHAPE,
    ("vllm", "token_states"): "within the scatter of draws",
}
_NO_QUEUE = (
    "the replay always has a queue; what was measured had fewer requests than memory holds, so it "
    "had none"
)
_WHY_BATCHED: Mapping[tuple[str, str], str] = {
    ("sharegpt", "orca_max"): "none: seven runs fit, whatever the lengths",
    ("sharegpt", "orca_pow2"): _SPREAD,
    ("sharegpt", "orca_oracle"): _SPREAD,
    ("sharegpt", "vllm"): (
        "the printed number and the printed share ask for more tokens a request than any Orca's "
        "do, so they are not averages over the same steps; the replay keeps to the share"
    ),
    ("alpaca", "orca_max"): "none: seven runs fit, whatever the lengths",
    ("alpaca", "orca_pow2"): "only the means of Alpaca's lengths are printed",
    ("alpaca", "orca_oracle"): "only the means of Alpaca's lengths are printed",
    ("alpaca", "vllm"): _NO_QUEUE,
}
_MIX = (
    "of the same requests, six samples save five thirds of what two save; the printed shares do "
    "not, so they are of different requests"
)
_BEAMS = (
    "which beam goes on from which depends on the model; with parents drawn uniformly old "
    "branches die out sooner than they did there"
)
_WHY_SHARING: Mapping[tuple[str, str], str] = {
    ("alpaca", "parallel"): (
        "only the means are printed, and what is saved depends on the spread of prompts and of "
        f"outputs too; besides, {_MIX}"
    ),
    ("alpaca", "beam"): _BEAMS,
    ("sharegpt", "parallel"): _MIX,
    ("sharegpt", "beam"): _BEAMS,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What the replays assume beyond lengths, each with where it comes from."""

    capacity_slots: int  # Table 1: OPT-13B, 12 GiB for the cache
    maximum: int = MAXIMUM
    page_size: int = 16  # section 7.2: the default
    # Share of the pages that an admission leaves free. Not in the paper; the default of its code
    # (vllm-project/vllm, cacheflow/master/block_manager.py at commit 11bc010).
    watermark: float = 0.01
    # How Orca's runs are placed: by a buddy allocator (section 6.1), whose blocks are powers of
    # two up to the longest sequence (the same file on the branch of the Orca baseline, whose
    # benchmark is stored at commit 00ce7dc).
    fit: Literal["buddy", "first", "best"] = "buddy"
    max_running: int = 256  # vLLM's default; Orca's memory never lets so many in
    requests: int = 8000  # drawn; few enough for seconds
    record_every: int = 4  # steps

    def policies(self) -> dict[str, Policy]:
        """Return the policy of each system.

        Orca (Max) reserves the longest sequence. Orca (Pow2) reserves the prompt and the next
        power of two of the output (section 6.1), and never more than the longest sequence (the
        code of the baseline). Orca (Oracle) reserves what a request will hold. vLLM takes pages
        and computes again what it preempts.
        """
        return {
            "orca_max": Contiguous(self.maximum, self.fit),
            "orca_pow2": Contiguous("pow2", self.fit, pow2_of="output", maximum=self.maximum),
            "orca_oracle": Contiguous("oracle", self.fit),
            "vllm": Paged(self.page_size, watermark=self.watermark),
        }


def published() -> dict[str, float]:
    """Return the paper's numbers by id, as ``data/paper_pagedattention.csv`` has them.

    Examples
    --------
    >>> published()["fig2.vllm.token_states"]
    96.3
    """
    frame = pd.read_csv(data_file("paper_pagedattention.csv"))
    return dict(zip(frame["id"], frame["value"].astype(float), strict=True))


def paper_setting() -> Setting:
    """Return the setting of Figure 2: OPT-13B and the memory that Table 1 gives its cache.

    Examples
    --------
    >>> paper_setting().capacity_slots
    15728
    """
    memory = int(published()["table1.opt13b.kv_memory"] * 2**30)
    return Setting(capacity_slots=memory // kv_bytes_per_token("OPT-13B"))


def residents() -> pd.DataFrame:
    """Return what a request in memory holds and will get, by the printed shares and requests.

    Columns: system, now, later, final (tokens a request).

    Examples
    --------
    >>> residents().set_index("system")["final"].round().tolist()
    [757.0, 717.0, 732.0]
    """
    printed, slots = published(), paper_setting().capacity_slots
    rows = []
    for system in ORCAS:
        of_one = slots / 100 / printed[f"batched.sharegpt.{system}"]
        now, later = (of_one * printed[f"fig2.{system}.{p}"] for p in ("token_states", "reserved"))
        rows.append({"system": system, "now": now, "later": later, "final": now + later})
    return pd.DataFrame(rows)


def sharegpt(
    *,
    systems: Sequence[str] = ORCAS,
    prompt_family: Family = "gamma",
    output_family: Family = "gamma",
    cv_prompt: float | None = None,
    cv_output: float | None = None,
) -> Lengths:
    """Return lengths that have the printed moments of ShareGPT.

    Parameters
    ----------
    systems : sequence of str
        Orca systems whose printed residents are averaged.
    prompt_family, output_family : {"gamma", "lognormal"}
        Kind of density.
    cv_prompt, cv_output : float, optional
        Relative spreads to have instead of what the printed residents ask for; both or none.

    Raises
    ------
    LedgerError
        For other systems, one spread without the other, or if no such lengths are found.

    Examples
    --------
    >>> lengths = sharegpt()
    >>> round(lengths.mean_prompt, 2), round(lengths.resident_now + lengths.resident_later, 1)
    (161.31, 735.3)
    """
    if (cv_prompt is None) != (cv_output is None):
        raise LedgerError(
            f"cv_prompt is {cv_prompt!r} and cv_output is {cv_output!r}; both are accepted, or none"
        )
    targets = _printed_means("sharegpt")
    if cv_prompt is not None and cv_output is not None:
        targets |= {"cv_prompt": cv_prompt, "cv_output": cv_output}
    else:
        known = residents().set_index("system")
        if not systems or not set(systems) <= set(known.index):
            raise LedgerError(
                f"systems are {', '.join(systems) or 'none'}; accepted: some of {', '.join(ORCAS)}"
            )
        mean = known.loc[list(systems), ["now", "later"]].mean()
        targets |= {"resident_now": float(mean["now"]), "resident_later": float(mean["later"])}
    return fit_lengths(targets, prompt_family=prompt_family, output_family=output_family)


def alpaca() -> Lengths:
    """Return exponential lengths with Alpaca's printed means; no other moment is printed.

    Examples
    --------
    >>> round(alpaca().mean_output, 2)
    58.45
    """
    return fit_lengths(_printed_means("alpaca"))


def _printed_means(dataset: str) -> dict[str, float]:
    printed = published()
    return {
        f"mean_{ours}": printed[f"lengths.{dataset}.{theirs}_mean"]
        for ours, theirs in (("prompt", "input"), ("output", "output"))
    }


def replays(
    lengths: Lengths,
    setting: Setting | None = None,
    *,
    seed: int = 0,
    policies: Mapping[str, Policy] | None = None,
) -> dict[str, Replay]:
    """Replay one trace under several policies, always with a queue.

    Without others, the setting is the paper's and the policies are those of the four systems.
    """
    setting = paper_setting() if setting is None else setting
    return growth.replays(
        lengths.trace(setting.requests, seed),
        policies or setting.policies(),
        capacity_slots=setting.capacity_slots,
        max_running=setting.max_running,
        record_every=setting.record_every,
    )


def settled(result: Replay) -> slice:
    """Return the recorded steps after the first filling and before the queue is empty.

    At the first step many requests begin at once. They are gone after as many steps as the
    longest sequence has tokens; in a replay too short for that, half of its steps with a queue
    are dropped.
    """
    queued = np.flatnonzero(result.waiting > 0)
    if not queued.size:
        raise LedgerError("no recorded step has a queue; accepted: more requests than fit at once")
    end = int(queued[-1]) + 1
    begin = int(np.searchsorted(result.time_s, MAXIMUM))
    return slice(min(begin, end // 2), end)


def mean_shares(result: Replay) -> dict[str, float]:
    """Return Figure 2's shares of a replay, in percent of the pool, over its settled steps.

    Returns
    -------
    dict
        token_states; reserved (slots that a request will use later); internal (reserved slots
        that it never uses, and slack of last pages); external_other (the rest: rounding to
        blocks, holes, free slots). They add up to 100.
    """
    steps = settled(result)

    def percent(slots: npt.NDArray[np.int64]) -> float:
        return 100 * float(slots[steps].mean()) / result.capacity_slots

    later = result.reserved_used_later_slots
    return {
        "token_states": percent(result.distinct_tokens),
        "reserved": percent(later),
        "internal": percent(result.reserved_slots - later + result.tail_slack_slots),
        "external_other": percent(result.external_slots + result.unallocated_slots),
    }


def mean_running(result: Replay) -> float:
    """Return the requests that run at a time, over the settled steps."""
    return float(result.running[settled(result)].mean())


def shares(named: Mapping[str, Replay]) -> pd.DataFrame:
    """Hold the shares of replays against Figure 2's.

    Columns: system, part, published and computed (percent of the pool), difference (points), why
    (what the difference comes from). Of vLLM the paper prints token states alone; its other
    rows have no published value.
    """
    printed = published()
    rows = []
    for system, result in named.items():
        for part, computed in mean_shares(result).items():
            given = printed.get(f"fig2.{system}.{part}", np.nan)
            if np.isnan(given) and system != "vllm":
                continue  # Orca (Oracle) has no internal part, printed or computed
            why = _WHY_SHARES.get((system, part), "")
            rows.append((system, part, given, computed, computed - given, why))
    columns = ["system", "part", "published", "computed", "difference", "why"]
    return pd.DataFrame(rows, columns=columns)


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
        difference = 100 * (computed / given - 1)
        rows.append((system, given, computed, difference, _WHY_BATCHED[dataset, system]))
    columns = ["system", "published", "computed", "difference_percent", "why"]
    return pd.DataFrame(rows, columns=columns)


def vllm_waste(lengths: Lengths) -> tuple[pd.DataFrame, pd.DataFrame]:
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
    setting = paper_setting()
    paged = Paged(setting.page_size, watermark=setting.watermark)
    variants: dict[str, Policy] = {
        "as in the paper": paged,
        "no watermark": replace(paged, watermark=0.0),
        "watermark 0.05": replace(paged, watermark=0.05),
        "swapping": replace(paged, preemption="swap", host_pages=setting.capacity_slots),
        "pages of 1 slot": replace(paged, page_size=1),
    }
    named = replays(lengths, setting, policies=variants)
    rows = []
    for name, result in named.items():
        held, _, slack, free = mean_shares(result).values()
        rows.append((name, held, slack, free, mean_running(result), result.total("preempted")))
    columns = ["variant", "token_states", "tail_slack", "free", "running", "preempted"]
    frame = pd.DataFrame(rows, columns=columns)
    return _waste_parts(named["as in the paper"], setting), frame


def _waste_parts(result: Replay, setting: Setting) -> pd.DataFrame:
    steps, capacity = settled(result), result.capacity_slots
    kept = int(setting.watermark * (capacity // setting.page_size)) * setting.page_size
    free = result.unallocated_slots[steps]
    parts = {
        "tail slack": result.tail_slack_slots[steps],
        "free, within the watermark": np.minimum(free, kept),
        "free beyond it": np.maximum(free - kept, 0),
    }
    percent = {name: 100 * float(slots.mean()) / capacity for name, slots in parts.items()}
    frame = pd.DataFrame({"part": [*percent], "share": [*percent.values()], "published": np.nan})
    printed = round(100 - published()["fig2.vllm.token_states"], 6)
    frame.loc[len(frame)] = ["all that holds no token", sum(percent.values()), printed]
    return frame


def sensitivity() -> pd.DataFrame:
    """Repeat the comparison with other shapes of the same means.

    Columns: shape, cv_prompt, cv_output, resident_final (tokens), worst_part (of the thirteen
    printed shares) and worst_points, mean_points (mean absolute difference), orca_pow2 and
    orca_oracle (requests that run), vllm_token_states.
    """
    base = sharegpt()
    shapes: dict[str, Lengths] = {
        "as chosen": base,
        "lognormal prompts": sharegpt(prompt_family="lognormal"),
        "lognormal prompts and outputs": sharegpt(
            prompt_family="lognormal", output_family="lognormal"
        ),
        "exponential: means only": fit_lengths(_printed_means("sharegpt")),
    }
    for cv in (0.75, 0.8, 0.85, 0.9, 0.95):
        shapes[f"spread of outputs {cv}"] = sharegpt(cv_prompt=base.cv_prompt, cv_output=cv)
    for cv in (1.0, 1.4, 1.9):
        shapes[f"spread of prompts {cv}"] = sharegpt(cv_prompt=cv, cv_output=base.cv_output)
    setting = replace(paper_setting(), requests=4000)
    return pd.DataFrame(
        {"shape": name, **_compared(lengths, setting)} for name, lengths in shapes.items()
    )


def _compared(lengths: Lengths, setting: Setting) -> dict[str, object]:
    """Return the moments of a draw, and how far its shares are from the printed ones."""
    named = replays(lengths, setting)
    frame = shares(named).dropna(subset=["published"])
    points = frame["difference"].abs()
    worst = frame.iloc[int(points.to_numpy().argmax())]
    trace = lengths.trace(setting.requests)
    p, o = trace.prompt_tokens, trace.output_tokens
    return {
        "cv_prompt": float(p.std() / p.mean()),
        "cv_output": float(o.std() / o.mean()),
        "resident_final": float(((p + o - 1) * o).sum() / o.sum()),
        "worst_part": f"{worst['system']} {worst['part']}",
        "worst_points": float(worst["difference"]),
        "mean_points": float(points.mean()),
        "orca_pow2": mean_running(named["orca_pow2"]),
        "orca_oracle": mean_running(named["orca_oracle"]),
        "vllm_token_states": mean_shares(named["vllm"])["token_states"],
    }


def held_out() -> pd.DataFrame:
    """Compare each Orca system with lengths that know nothing of its own shares.

    The residents put in are those of the other two systems.

    Columns: those of :func:`shares` but why, and resident_final (tokens).
    """
    policies = paper_setting().policies()
    frames = []
    for system in ORCAS:
        lengths = sharegpt(systems=[other for other in ORCAS if other != system])
        frame = shares(replays(lengths, policies={system: policies[system]}))
        final = lengths.resident_now + lengths.resident_later
        frames.append(frame.assign(resident_final=final).drop(columns="why"))
    return pd.concat(frames, ignore_index=True)


def sharing(
    *,
    parents: Literal["uniform", "stay"] | ParentRule = "uniform",
    alpaca_requests: int = 40,
    sharegpt_requests: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Hold the pages that parallel sampling and beam search save against Figure 15 and its text.

    Requests are drawn as they are found in memory; the pages of each are averaged over its steps,
    with sharing and without. Beam search needs a rule for which beam goes on from which: the
    ``parents`` of :func:`kvledger.replays.sampling.beam_search`. That every beam's parent is drawn
    uniformly at every step is an assumption. For ShareGPT the text prints a range; its ends are
    taken for two and for six sequences.

    Columns: dataset, method, sequences, published and computed (percent of pages without
    sharing), difference (points), why.
    """
    printed = published()
    rows = []
    for dataset, lengths, requests in (
        ("alpaca", alpaca(), alpaca_requests),
        ("sharegpt", sharegpt(), sharegpt_requests),
    ):
        ends = {2: "n2", 4: "n4", 6: "n6"} if dataset == "alpaca" else {2: "low", 6: "high"}
        # What parallel sampling saves depends on the prompts, and is cheap to compute.
        for method, number in (("parallel", 8 * requests), ("beam", requests)):
            trace = lengths.in_memory().trace(number, seed)
            rule = "stay" if method == "parallel" else parents
            for sequences, end in ends.items():
                given = printed[f"sharing.{dataset}.{method}.{end}"]
                computed = _saved_percent(trace, sequences, rule, seed)
                why = _WHY_SHARING[dataset, method]
                rows.append((dataset, method, sequences, given, computed, computed - given, why))
    columns = ["dataset", "method", "sequences", "published", "computed", "difference", "why"]
    return pd.DataFrame(rows, columns=columns)


def _saved_percent(
    trace: Trace, sequences: int, parents: Literal["uniform", "stay"] | ParentRule, seed: int
) -> float:
    """Return the saved part of the pages of requests in memory, each averaged over its steps."""
    size, rng = paper_setting().page_size, np.random.default_rng(seed)
    saved = without = 0.0
    for p, o in zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True):
        pages = beam_search(p, o, sequences, size, parents=parents, seed=rng, prompt_step=True)
        saved += pages.total_saved / o
        without += sum(pages.pages_without) / o
    return 100 * saved / without
