"""Lengths of requests that have given moments: a shape with no more knowledge in it than those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import LedgerError
from kvledger.replays.policies import whole_number
from kvledger.traces import Trace

Family: TypeAlias = Literal["gamma", "lognormal"]
Floats: TypeAlias = npt.NDArray[np.float64]

MOMENTS = ("mean_prompt", "mean_output", "cv_prompt", "cv_output", "resident_now", "resident_later")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompts and outputs, independent but that no sum is above the maximum.

    The density of a prompt of x tokens is proportional to exp(a log x + b x) (gamma) or to
    exp(a log x + b (log x)^2) (lognormal); so is that of an output. Attributes are the moments,
    floats: ``mean_prompt`` and ``mean_output`` of requests that arrive, in tokens; ``cv_prompt``
    and ``cv_output``, standard deviations over means; ``resident_now`` and ``resident_later``,
    the tokens that a request in memory holds and those that it has still to store, on average
    over its steps and over requests.

    ``prompt`` and ``output`` are a and b; ``maximum`` is the most tokens of both together.

    Examples
    --------
    >>> even = Lengths(prompt=(0.0, 0.0), output=(0.0, 0.0), maximum=3)
    >>> round(even.mean_prompt, 6), round(even.mean_output, 6)  # (1, 1), (1, 2) and (2, 1)
    (1.333333, 1.333333)
    """

    prompt: tuple[float, float]
    output: tuple[float, float]
    maximum: int
    prompt_family: Family = "gamma"
    output_family: Family = "gamma"

    def in_memory(self) -> Lengths:
        """Return the lengths of those in memory: each counted as often as it has outputs.

        Examples
        --------
        >>> lengths = Lengths(prompt=(0.0, -0.05), output=(0.0, -0.02), maximum=2048)
        >>> round(lengths.mean_output, 1), round(lengths.in_memory().mean_output, 1)
        (50.5, 100.0)
        """
        return replace(self, output=(self.output[0] + 1, self.output[1]))

    def __getattr__(self, name: str) -> float:
        if name in MOMENTS:
            return _moments(self)[name]
        raise AttributeError(f"lengths have no {name!r}; their moments are {', '.join(MOMENTS)}")

    def trace(self, requests: int, seed: int = 0) -> Trace:
        """Draw requests: one prompt from each of so many equally likely ranges, and outputs alike.

        So the trace's means are close to the model's.

        Examples
        --------
        >>> lengths = Lengths(prompt=(0.0, -0.05), output=(0.0, -0.02), maximum=2048)
        >>> round(float(lengths.trace(1000).output_tokens.mean()))  # of 50.5
        50
        """
        n = whole_number(requests, "requests", "requests")
        rng = np.random.default_rng(seed)

        def levels() -> Floats:
            return rng.permutation((np.arange(n) + rng.random(n)) / n)

        prompts, outputs = _masses(self)
        up_to = np.cumsum(outputs)
        of_prompt = np.cumsum(prompts * up_to[::-1])
        p = np.searchsorted(of_prompt, levels() * of_prompt[-1], side="right") + 1
        room = self.maximum - p
        o = np.searchsorted(up_to, levels() * up_to[room - 1], side="right") + 1
        return Trace(prompt_tokens=p, output_tokens=np.minimum(o, room))


def fit_lengths(
    targets: Mapping[str, float],
    *,
    prompt_family: Family = "gamma",
    output_family: Family = "gamma",
    maximum: int = 2048,
) -> Lengths:
    """Find the lengths that have the moments given.

    ``targets`` are moments by name: four of them, or mean_prompt and mean_output for exponential
    lengths. The rest is as in :class:`Lengths`. Other moments or families, and moments that no
    such lengths have, are a LedgerError.

    Examples
    --------
    >>> found = fit_lengths({"mean_prompt": 20, "mean_output": 60})
    >>> round(found.mean_prompt, 6), round(found.mean_output, 6), found.prompt[0]
    (20.0, 60.0, 0.0)
    """
    exponential = set(targets) == {"mean_prompt", "mean_output"}
    known = {"mean_prompt", "mean_output"} <= set(targets) <= set(MOMENTS)
    if not known or len(targets) not in (2, 4):
        raise LedgerError(
            f"targets are {', '.join(targets)}; accepted are mean_prompt and mean_output, alone "
            f"or with two of {', '.join(MOMENTS[2:])}"
        )
    families = {"prompt_family": prompt_family, "output_family": output_family}
    for name, family in families.items():
        if family not in ("gamma", "lognormal") or (exponential and family != "gamma"):
            raise LedgerError(
                f'{name} is {family!r}; "gamma" and, with four moments, "lognormal" are accepted'
            )
    for name, value in targets.items():
        if not 0 < value < maximum:
            raise LedgerError(
                f"{name} is {value!r}; a positive number below the maximum of {maximum} is accepted"
            )
    guess = Lengths(
        prompt=_start(prompt_family, targets["mean_prompt"]),
        output=_start(output_family, targets["mean_output"]),
        maximum=maximum,
        **families,
    )
    free = (1, 3) if exponential else (0, 1, 2, 3)
    return _solved(guess, free, targets)


def _masses(lengths: Lengths) -> tuple[Floats, Floats]:
    """Return the masses of 1 .. maximum - 1 tokens, of prompts and of outputs, before the limit."""
    x = np.arange(1, lengths.maximum, dtype=np.float64)
    log = np.log(x)
    second = {"gamma": x, "lognormal": log**2}

    def mass(density: tuple[float, float], family: Family) -> Floats:
        exponent = density[0] * log + density[1] * second[family]
        weights = np.exp(exponent - exponent.max())
        masses: Floats = weights / weights.sum()
        return masses

    prompts = mass(lengths.prompt, lengths.prompt_family)
    return prompts, mass(lengths.output, lengths.output_family)


@lru_cache(maxsize=512)
def _moments(lengths: Lengths) -> dict[str, float]:
    """Sum the moments exactly over every pair of a prompt and an output within the limit."""
    prompts, outputs = _masses(lengths)
    x = np.arange(1, lengths.maximum, dtype=np.float64)
    # A prompt of p leaves room for outputs of 1 .. maximum - p: the cumulated masses, reversed.
    p = prompts * np.cumsum(outputs)[::-1]
    o = outputs * np.cumsum(prompts)[::-1]
    product = float((outputs * x * np.cumsum(prompts * x)[::-1]).sum() / o.sum())
    p, o = p / p.sum(), o / o.sum()
    mean_p, mean_o = float(p @ x), float(o @ x)
    square_o = float(o @ x**2)
    # A request with o outputs is in memory for o steps, with p, p + 1, ..., p + o - 1 tokens.
    later = (square_o - mean_o) / (2 * mean_o)
    return {
        "mean_prompt": mean_p,
        "mean_output": mean_o,
        "cv_prompt": float(np.sqrt(p @ x**2 - mean_p**2)) / mean_p,
        "cv_output": float(np.sqrt(square_o - mean_o**2)) / mean_o,
        "resident_now": product / mean_o + later,
        "resident_later": later,
    }


def _start(family: Family, mean: float) -> tuple[float, float]:
    if family == "gamma":
        return 0.0, -1 / mean  # exponential
    return np.log(mean) - 1.5, -0.5  # a spread of one in the logarithm


def _solved(guess: Lengths, free: Sequence[int], targets: Mapping[str, float]) -> Lengths:
    """Solve for the moments by Newton's method, each step halved until it helps."""
    at, chosen = np.array([*guess.prompt, *guess.output]), list(free)
    scale = np.maximum(np.abs(at), [0.1, 1e-6, 0.1, 1e-6])

    def lengths(values: Floats) -> Lengths:
        a, b, c, d = (float(v) for v in values)
        return replace(guess, prompt=(a, b), output=(c, d))

    def misses(values: Floats) -> Floats:
        with np.errstate(all="ignore"):  # a step too far leaves no mass within the limit
            moments = _moments(lengths(values))
            far = np.array([np.log(moments[name] / value) for name, value in targets.items()])
        finite: Floats = np.nan_to_num(far, nan=np.inf)
        return finite

    now = misses(at)
    for _ in range(60):
        if np.abs(now).max() < 1e-10:
            return lengths(at)
        slopes = np.empty((len(now), len(chosen)))
        for column, i in enumerate(chosen):
            moved = at.copy()
            moved[i] += 1e-6 * scale[i]
            slopes[:, column] = (misses(moved) - now) / (1e-6 * scale[i])
        if not np.isfinite(slopes).all() or np.linalg.matrix_rank(slopes) < len(chosen):
            break
        step = np.zeros(4)
        step[chosen] = np.linalg.solve(slopes, -now)
        for _ in range(40):
            trial = misses(at + step)
            if np.linalg.norm(trial) < np.linalg.norm(now):
                break
            step /= 2
        at, now = at + step, trial
    if np.abs(now).max() < 1e-7:
        return lengths(at)
    wanted = ", ".join(f"{name} {value:g}" for name, value in targets.items())
    raise LedgerError(
        f"no lengths have {wanted} with a {guess.prompt_family} prompt, a {guess.output_family} "
        f"output and at most {guess.maximum} tokens; accepted: moments that such lengths can have"
    )
