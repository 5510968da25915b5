"""Parallel sampling and beam search on a page pool: the pages that sharing saves.

Both store one prompt and then, step by step, one token more for each of several sequences. The
pages that nobody stores twice are those saved: pages without sharing less pages with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole, whole_page_size
from kvledger.replays.allocator import PagePool
from kvledger.replays.policies import whole_number

ParentRule: TypeAlias = Callable[[int, int, np.random.Generator], Sequence[int]]
"""Called with the step, the number of beams and the generator; returns each new beam's parent."""


@dataclass(frozen=True, slots=True)
class DecodingPages:
    """Pages held while several sequences grow out of one prompt, step by step.

    ``tokens``, ``pages_with`` and ``pages_without`` have a value a step.
    """

    sequences: int  # samples or beams
    page_size: int  # slots a page
    tokens: tuple[int, ...]  # stored for each sequence: the prompt and what was fed back
    pages_with: tuple[int, ...]  # held
    pages_without: tuple[int, ...]  # that as many sequences would hold with nothing shared
    copied_pages: int  # copied on write, over all steps

    @property
    def saved_pages(self) -> tuple[int, ...]:
        """Pages without sharing less pages with it, a value a step."""
        pairs = zip(self.pages_without, self.pages_with, strict=True)
        return tuple(without - held for without, held in pairs)

    @property
    def total_saved(self) -> int:
        """Pages saved, summed over the steps."""
        return sum(self.saved_pages)

    @property
    def saved_share(self) -> Fraction:
        """Saved part of the pages without sharing, both summed over the steps; 0 of no steps."""
        return Fraction(self.total_saved, sum(self.pages_without) or 1)

    def __repr__(self) -> str:
        return (
            f"DecodingPages({self.sequences} sequences, {len(self.tokens)} steps: "
            f"{sum(self.pages_with)} pages with sharing, {sum(self.pages_without)} without; "
            f"{self.copied_pages} copied)"
        )


def parallel_sampling(
    prompt_tokens: int,
    output_tokens: int,
    samples: int,
    page_size: int,
    *,
    prompt_step: bool = False,
) -> DecodingPages:
    """Grow several samples out of one prompt.

    Complete pages of the prompt stay shared; its incomplete last page is copied by all samples
    but the last to write. A sample's last token is never stored, so o outputs take o - 1 steps.

    Parameters
    ----------
    prompt_tokens, output_tokens : int
        Tokens of the prompt, and of each of so many ``samples``.
    page_size : int
        Slots a page.
    prompt_step : bool
        Whether the step that stores the prompt counts too, with the samples forked from it.

    Raises
    ------
    LedgerError
        For numbers below 1 or not whole.

    Examples
    --------
    >>> parallel_sampling(9, 3, samples=2, page_size=4, prompt_step=True)
    DecodingPages(2 sequences, 3 steps: 11 pages with sharing, 18 without; 1 copied)
    """
    whole_number(samples, "samples", "sequences")
    return beam_search(
        prompt_tokens, output_tokens, samples, page_size, parents="stay", prompt_step=prompt_step
    )


def beam_search(
    prompt_tokens: int,
    output_tokens: int,
    beams: int,
    page_size: int,
    *,
    parents: Literal["uniform", "stay"] | ParentRule = "uniform",
    seed: int | np.random.Generator = 0,
    prompt_step: bool = False,
) -> DecodingPages:
    """Grow beams out of one prompt; at each step every beam continues one of the last step's.

    The first token of every beam follows the prompt. At each further step a beam forks from its
    parent, the last step's tables are let go of, and then each beam stores its own token. Which
    parent a beam has depends on the model; here it is a stated rule.

    Parameters
    ----------
    prompt_tokens, output_tokens : int
        Tokens of the prompt, and of each of so many ``beams``.
    page_size : int
        Slots a page.
    parents : {"uniform", "stay"} or callable
        Each beam's parent drawn uniformly and independently (an assumption), always the beam
        itself (parallel sampling), or a function of the step (from 2), the number of beams and
        the generator that returns one parent a beam.
    seed : int or numpy Generator
        Of the draws.
    prompt_step : bool
        As in :func:`parallel_sampling`.

    Raises
    ------
    LedgerError
        For numbers below 1 or not whole, an unknown rule, or parents that are no beams.

    Examples
    --------
    >>> beam_search(9, 5, beams=2, page_size=1, parents=lambda step, beams, rng: [0, 0])
    DecodingPages(2 sequences, 4 steps: 50 pages with sharing, 92 without; 0 copied)
    """
    prompt = whole_number(prompt_tokens, "prompt_tokens", "tokens")
    output = whole_number(output_tokens, "output_tokens", "tokens")
    n, size = whole_number(beams, "beams", "sequences"), whole_page_size(page_size)
    if not isinstance(seed, np.random.Generator):
        accepted = "a whole number from 0, or a numpy Generator, is accepted"
        seed = np.random.default_rng(whole(seed, "seed", minimum=0, accepted=accepted))
    if not callable(parents) and parents not in ("uniform", "stay"):
        accepted = '"uniform", "stay" and a function of step, beams and generator are accepted'
        raise LedgerError(f"parents is {shown(parents)}; {accepted}")
    pool = PagePool(n * -(-(prompt + output - 1) // size), size)
    first = pool.admit(prompt)
    assert first is not None, "an empty pool of this size has room"
    tables = [first.table] + [pool.fork(first.table) for _ in range(n - 1)]
    tokens, held = [prompt], [pool.held_pages]
    for step in range(1, output):
        if step > 1 and parents != "stay":
            children = [pool.fork(tables[each]) for each in _chosen(parents, step, n, seed)]
            for table in tables:
                pool.release(table)
            tables = children
        for table in tables:
            grown = pool.append(table)
            assert grown is not None, "no step holds more pages than separate sequences would"
        tokens.append(prompt + step)
        held.append(pool.held_pages)
    counted = slice(0 if prompt_step else 1, None)
    return DecodingPages(
        sequences=n,
        page_size=size,
        tokens=tuple(tokens[counted]),
        pages_with=tuple(held[counted]),
        pages_without=tuple(n * -(-stored // size) for stored in tokens[counted]),
        copied_pages=pool.counts.copied_pages,
    )


def _chosen(
    parents: Literal["uniform"] | ParentRule, step: int, n: int, rng: np.random.Generator
) -> list[int]:
    """Return the parent of each of ``n`` beams at a step."""
    drawn = parents(step, n, rng) if callable(parents) else rng.integers(n, size=n).tolist()
    accepted = f"a beam's number, from 0 to {n - 1}, for each of {n} beams"
    if not isinstance(drawn, Sequence | np.ndarray) or len(drawn) != n:
        raise LedgerError(f"parents at step {step} are {shown(drawn)}; {accepted}")
    name = f"a parent at step {step}"
    chosen = [whole(each, name, minimum=0, accepted=accepted) for each in drawn]
    if max(chosen) >= n:
        raise LedgerError(f"{name} is {max(chosen)}; {accepted}")
    return chosen
