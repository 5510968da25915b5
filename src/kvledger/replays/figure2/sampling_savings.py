"""Blocks saved by parallel sampling and beam search, computed and printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from kvledger.core.errors import LedgerError
from kvledger.replays.allocator import beam_search, parallel_sampling
from kvledger.replays.figure2 import difference_reasons as reasons
from kvledger.replays.figure2.setting import alpaca, paper_setting, published, sharegpt
from kvledger.traces.trace import Trace

Parents: TypeAlias = Literal["uniform"] | Callable[[int, int, np.random.Generator], Sequence[int]]


def sharing(
    *, alpaca_requests: int = 40, sharegpt_requests: int = 5, seed: int = 0
) -> pd.DataFrame:
    """Hold the pages that parallel sampling and beam search save against Figure 15 and its text.

    Requests are drawn as they are found in memory; the pages of each are averaged over its steps,
    with sharing and without. Beam search needs a rule for which beam goes on from which, and
    here every beam's parent is drawn uniformly at every step: an assumption, which
    :func:`beam_assumption` varies. For ShareGPT the text prints a range; its ends are taken for
    two and for six sequences.

    Columns: dataset, method, sequences, published and computed (percent of pages without
    sharing), difference (points), why.
    """
    printed = published()
    rows = []
    for dataset, lengths, requests in (
        ("alpaca", alpaca(), alpaca_requests),
        ("sharegpt", sharegpt(), sharegpt_requests),
    ):
        # What parallel sampling saves depends on the prompts, and is cheap to compute.
        for method, number in (("parallel", 8 * requests), ("beam", requests)):
            trace = lengths.in_memory().trace(number, seed)
            for sequences in (2, 4, 6):
                key = _sharing_key(dataset, method, sequences)
                if key is None:
                    continue
                computed = _saved_percent(trace, method, sequences, "uniform", seed)
                rows.append(
                    {
                        "dataset": dataset,
                        "method": method,
                        "sequences": sequences,
                        "published": printed[key],
                        "computed": computed,
                        "difference": computed - printed[key],
                        "why": reasons.SHARING[dataset, method],
                    }
                )
    return pd.DataFrame(rows)


def beam_assumption(
    reorders: Sequence[float] = (1.0, 0.1, 0.02, 0.0),
    *,
    alpaca_requests: int = 20,
    sharegpt_requests: int = 3,
    seed: int = 0,
) -> pd.DataFrame:
    """Say how the pages that beam search saves depend on how often beams change their parent.

    At each step a beam continues itself, or with the probability given, a beam drawn uniformly:
    1 is the assumption of :func:`sharing`, 0 is parallel sampling.

    Columns: dataset, sequences, published, and one computed share for each probability (percent
    of pages without sharing).
    """
    printed = published()
    rows = []
    for dataset, lengths, requests in (
        ("alpaca", alpaca(), alpaca_requests),
        ("sharegpt", sharegpt(), sharegpt_requests),
    ):
        trace = lengths.in_memory().trace(requests, seed)
        for sequences in (2, 4, 6):
            key = _sharing_key(dataset, "beam", sequences)
            if key is None:
                continue
            row: dict[str, object] = {
                "dataset": dataset,
                "sequences": sequences,
                "published": printed[key],
            }
            for reorder in reorders:
                rule = reordered(reorder)
                row[f"reorder {reorder:g}"] = _saved_percent(trace, "beam", sequences, rule, seed)
            rows.append(row)
    return pd.DataFrame(rows)


def reordered(probability: float) -> Callable[[int, int, np.random.Generator], list[int]]:
    """Return a rule for beam search: each beam goes on, or is replaced with this probability.

    Raises
    ------
    LedgerError
        For a number that is no probability.

    Examples
    --------
    >>> reordered(0.0)(2, 3, np.random.default_rng(0))
    [0, 1, 2]
    """
    if not 0 <= probability <= 1:
        raise LedgerError(f"probability is {probability!r}; a number from 0 to 1 is accepted")

    def parents(step: int, beams: int, rng: np.random.Generator) -> list[int]:
        drawn = rng.integers(beams, size=beams)
        chosen: list[int] = np.where(
            rng.random(beams) < probability, drawn, np.arange(beams)
        ).tolist()
        return chosen

    return parents


def _sharing_key(dataset: str, method: str, sequences: int) -> str | None:
    """Return the id of the printed number; of ShareGPT the text gives the ends of a range."""
    if dataset == "alpaca":
        return f"sharing.alpaca.{method}.n{sequences}"
    end = {2: "low", 6: "high"}.get(sequences)
    return None if end is None else f"sharing.sharegpt.{method}.{end}"


def _saved_percent(trace: Trace, method: str, sequences: int, parents: Parents, seed: int) -> float:
    """Return the saved part of the pages of requests in memory, each averaged over its steps."""
    size, rng = paper_setting().page_size, np.random.default_rng(seed)
    saved = without = 0.0
    for p, o in zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True):
        if method == "parallel":
            pages = parallel_sampling(p, o, sequences, size, prompt_step=True)
        else:
            pages = beam_search(p, o, sequences, size, parents=parents, seed=rng, prompt_step=True)
        saved += pages.total_saved / o
        without += pages.total_without / o
    return 100 * saved / without
