"""How far the comparison depends on the shape of the lengths and on the draw."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from kvledger.replays.figure2.comparison import mean_running, mean_shares, replays, shares
from kvledger.replays.figure2.length_densities import Lengths
from kvledger.replays.figure2.setting import (
    ORCAS,
    Setting,
    paper_setting,
    published,
    sharegpt,
    sharegpt_means_only,
)
from kvledger.replays.replay import Contiguous, replay


def sensitivity(setting: Setting | None = None, *, seed: int = 0) -> pd.DataFrame:
    """Repeat the comparison with other shapes of the same means.

    Columns: shape, cv_prompt, cv_output, resident_final (tokens), worst_part (of the thirteen
    printed shares) and worst_points, mean_points (mean absolute difference), orca_pow2 and
    orca_oracle (requests that run), vllm_token_states.
    """
    setting = replace(paper_setting(), requests=4000) if setting is None else setting
    shapes: dict[str, Lengths] = {
        "as chosen": sharegpt(),
        "lognormal prompts": sharegpt(prompt_family="lognormal"),
        "lognormal prompts and outputs": sharegpt(
            prompt_family="lognormal", output_family="lognormal"
        ),
        "exponential: means only": sharegpt_means_only(),
    }
    base = shapes["as chosen"]
    for cv in (0.75, 0.8, 0.85, 0.9, 0.95):
        shapes[f"spread of outputs {cv}"] = sharegpt(cv_prompt=base.cv_prompt, cv_output=cv)
    for cv in (1.0, 1.4, 1.9):
        shapes[f"spread of prompts {cv}"] = sharegpt(cv_prompt=cv, cv_output=base.cv_output)
    return pd.DataFrame(
        [
            {"shape": name, **_compared(lengths, setting, seed, even=True)}
            for name, lengths in shapes.items()
        ]
    )


def mechanisms(setting: Setting | None = None, *, seed: int = 0) -> pd.DataFrame:
    """Take away, one at a time, what explains the external shares of Orca.

    Columns: system, variant, published and external_other (percent of the pool), running.
    """
    setting = replace(paper_setting(), requests=4000) if setting is None else setting
    trace, limit = sharegpt().trace(setting.requests, seed), setting.maximum
    variants = {
        ("orca_oracle", "buddies"): Contiguous("oracle", "buddy"),
        ("orca_oracle", "best fit"): Contiguous("oracle", "best"),
        ("orca_oracle", "first fit"): Contiguous("oracle", "first"),
        ("orca_pow2", "buddies"): Contiguous("pow2", "buddy", pow2_of="output", maximum=limit),
        ("orca_pow2", "first fit"): Contiguous("pow2", "first", pow2_of="output", maximum=limit),
        ("orca_pow2", "buddies, no limit on what is reserved"): Contiguous(
            "pow2", "buddy", pow2_of="output"
        ),
        ("orca_pow2", "buddies, the power of two of all tokens"): Contiguous("pow2", "buddy"),
    }
    rows = []
    for (system, variant), policy in variants.items():
        result = replay(
            trace,
            policy,
            capacity_slots=setting.capacity_slots,
            record_every=setting.record_every,
        )
        rows.append(
            {
                "system": system,
                "variant": variant,
                "published": published()[f"fig2.{system}.external_other"],
                "external_other": mean_shares(result)["external_other"],
                "running": mean_running(result),
            }
        )
    return pd.DataFrame(rows)


def held_out(setting: Setting | None = None, *, seed: int = 0) -> pd.DataFrame:
    """Compare each Orca system with lengths that know nothing of its own shares.

    The residents put in are those of the other two systems.

    Columns: as in :func:`kvledger.replays.figure2.shares`, and resident_final (tokens).
    """
    frames = []
    for system in ORCAS:
        lengths = sharegpt(systems=[other for other in ORCAS if other != system])
        frame = shares(replays(lengths, setting, seed=seed, systems=[system]))
        final = lengths.resident_now + lengths.resident_later
        frames.append(frame.assign(resident_final=final).drop(columns="why"))
    return pd.concat(frames, ignore_index=True)


def seeds(
    count: int = 5, setting: Setting | None = None, *, even: bool = False, first: int = 1
) -> pd.DataFrame:
    """Repeat the comparison with other draws from the same lengths.

    Columns: as in :func:`sensitivity`, with seed for shape. The moments are those of each draw.
    Drawn independently, as a benchmark draws, a few thousand requests scatter by about what is
    left between the shares computed and printed.
    """
    setting = replace(paper_setting(), requests=3000) if setting is None else setting
    lengths = sharegpt()
    return pd.DataFrame(
        [
            {"seed": seed, **_compared(lengths, setting, seed, even=even)}
            for seed in range(first, first + count)
        ]
    )


def _compared(lengths: Lengths, setting: Setting, seed: int, *, even: bool) -> dict[str, object]:
    named = replays(lengths, setting, seed=seed, even=even)
    frame = shares(named).dropna(subset=["published"])
    points = frame["difference"].abs()
    worst = frame.iloc[int(points.to_numpy().argmax())]
    trace = lengths.trace(setting.requests, seed, even=even)
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
