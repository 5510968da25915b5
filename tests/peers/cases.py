"""Requests to put to another engine and to ours: drawn from a seed, and cut from real traces.

A request is two lists of token ids, its prompt and its outputs. What an engine without tokens
needs of it are two lengths and one number for every complete page, equal exactly where the pages
and all that stands before them are equal: :func:`page_keys`. :func:`tokens_of_keys` goes the other
way, so that a case can be put to an engine that hashes tokens although no tokens were stored.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Tokens = list[int]

#: Seed of the first drawn case; each next case has the next seed.
SEED = 20_000
DRAWN_CASES = 96

#: Every case from a trace: its name, how it is cut and to how many requests, what lengths are
#: divided by (prompts, outputs), and the setting: page size, pages, prefix cache, running at
#: most, watermark, chunk.
TRACE_CASES = (
    ("opening-cached", "opening", 200, (32, 8), (16, 400, True, 16, 0.0, None)),
    ("opening-plain", "opening", 200, (32, 8), (16, 400, False, 16, 0.0, None)),
    ("opening-watermark", "opening", 200, (32, 8), (16, 400, True, 16, 0.1, None)),
    ("turns-tight", "turns", 200, (32, 8), (16, 400, True, 16, 0.0, None)),
    ("turns-roomy", "turns", 200, (32, 8), (16, 1500, True, 8, 0.0, None)),
    ("turns-plain", "turns", 200, (32, 8), (16, 500, False, 16, 0.0, None)),
    ("turns-chunks", "turns", 200, (32, 8), (16, 500, True, 16, 0.0, 100)),
    ("lengths-plain", "lengths", 150, (4, 4), (16, 160, False, 16, 0.0, None)),
    ("lengths-cached", "lengths", 150, (4, 4), (16, 160, True, 16, 0.0, None)),
    ("lengths-watermark", "lengths", 150, (4, 4), (16, 160, False, 16, 0.02, None)),
    ("lengths-one", "lengths", 60, (8, 4), (1, 1200, True, 16, 0.0, None)),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a case is replayed: ``pages`` are usable ones, a null page is not among them."""

    page_size: int
    pages: int
    prefix_cache: bool
    max_running: int
    watermark: float = 0.0
    prefill_chunk: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Requests in the order of their arrival, all there at the first step."""

    name: str
    setting: Setting
    prompts: list[Tokens]
    outputs: list[Tokens]


def drawn_cases() -> Iterator[Case]:
    """Draw the small cases: page sizes, caching and watermarks in every combination."""
    for i in range(DRAWN_CASES):
        yield drawn_case(
            SEED + i,
            page_size=(1, 4, 16)[i % 3],
            prefix_cache=i % 4 != 3,
            watermark=(0.0, 0.0, 0.1, 0.2)[i // 3 % 4],
            chunked=i % 5 == 4,
        )


def drawn_case(
    seed: int, *, page_size: int, prefix_cache: bool, watermark: float, chunked: bool
) -> Case:
    """Draw requests that share prefixes, go on from one another or repeat, and a tight pool."""
    draw = random.Random(seed)
    prompts: list[Tokens] = []
    outputs: list[Tokens] = []
    stems: list[Tokens] = [[]]
    for _ in range(6):
        stems.append(draw.choice(stems) + fresh(draw, 1, 2 * page_size + 2))
    for _ in range(draw.randrange(14, 34)):
        kind = draw.random()
        if kind < 0.15 and prompts:  # the same again, with the same outputs or with others
            i = draw.randrange(len(prompts))
            prompt, output = prompts[i], outputs[i]
            if draw.random() < 0.5:
                output = output[: draw.randrange(len(output) + 1)] + fresh(draw, 1, 8)
        elif kind < 0.45 and prompts:  # the next turn of a conversation
            i = draw.randrange(max(0, len(prompts) - 12), len(prompts))
            prompt = prompts[i] + outputs[i] + fresh(draw, 1, page_size + 2)
            output = fresh(draw, 1, 20)
        else:
            prompt = draw.choice(stems) + fresh(draw, 1, 2 * page_size + 2)
            output = fresh(draw, 1, 20)
        if draw.random() < 0.03:
            output = []
        prompts.append(prompt)
        outputs.append(output)
    needs = sorted(needed_pages(p, o, page_size) for p, o in zip(prompts, outputs, strict=True))
    running = draw.randrange(2, 9)
    # From just enough for the longest request to nearly enough for all that may run; in one case
    # of eight less than the longest one needs, which is then refused.
    most = max(needs[-1] + 1, sum(needs) * running // len(needs))
    pages = draw.randrange(needs[-1], most + 1)
    if draw.random() < 0.125:
        pages = max(1, needs[-1] - 1)
    chunk = draw.randrange(1, 2 * page_size + 3) if chunked else None
    setting = Setting(page_size, pages, prefix_cache, running, watermark, chunk)
    return Case(f"drawn-{seed}", setting, prompts, outputs)


def fresh(draw: random.Random, least: int, most: int) -> Tokens:
    """Draw tokens from a tiny vocabulary, so that equal runs happen by chance as well."""
    return [draw.randrange(3) for _ in range(draw.randrange(least, most + 1))]


def needed_pages(prompt: Sequence[int], output: Sequence[int], page_size: int) -> int:
    """Pages held at the end: the last sampled token is never stored."""
    stored = len(prompt) + max(0, len(output) - 1)
    return -(-stored // page_size)


def trace_cases(raw: Path) -> Iterator[Case]:
    """Cut the cases from the raw traces in a folder, lengths scaled down."""
    for name, cut, requests, by, setting in TRACE_CASES:
        prompts, outputs = CUTS[cut](raw, requests, *by)
        yield Case(name, Setting(*setting), prompts, outputs)


def opening(
    raw: Path, requests: int, by_prompt: int, by_output: int
) -> tuple[list[Tokens], list[Tokens]]:
    """Take Mooncake's first conversation requests: all begin with the same block, and few go on."""
    return conversation(mooncake(raw)[:requests], by_prompt, by_output)


def turns(
    raw: Path, requests: int, by_prompt: int, by_output: int
) -> tuple[list[Tokens], list[Tokens]]:
    """Take the first requests of its long conversations: those of at least eight requests.

    A conversation is told by its second block, the first being common to all.
    """
    rows = [row for row in mooncake(raw) if len(row["hash_ids"]) > 1]
    turns = Counter(row["hash_ids"][1] for row in rows)
    long = [row for row in rows if turns[row["hash_ids"][1]] >= 8]
    return conversation(long[:requests], by_prompt, by_output)


def lengths(
    raw: Path, requests: int, by_prompt: int, by_output: int
) -> tuple[list[Tokens], list[Tokens]]:
    """Take Azure's first rows: nothing is known of the tokens, so no two requests share any."""
    prompts: list[Tokens] = []
    outputs: list[Tokens] = []
    with (raw / "azure_conv_2023.csv").open(encoding="utf-8", newline="") as lines:
        for row, _ in zip(csv.DictReader(lines), range(requests), strict=False):
            prompts.append(unique(2 * len(prompts), scaled(int(row["ContextTokens"]), by_prompt)))
            output = scaled(int(row["GeneratedTokens"]), by_output)
            outputs.append(unique(2 * len(outputs) + 1, output))
    return prompts, outputs


CUTS = {"opening": opening, "turns": turns, "lengths": lengths}


def mooncake(raw: Path) -> list[dict[str, Any]]:
    """Read the rows of Mooncake's conversation trace."""
    with (raw / "mooncake_conversation.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def conversation(
    rows: Sequence[dict[str, Any]], by_prompt: int, by_output: int
) -> tuple[list[Tokens], list[Tokens]]:
    """Make tokens of the block ids, so that blocks are equal where their ids are."""
    prompts: list[Tokens] = []
    outputs: list[Tokens] = []
    block = 512 // by_prompt
    for row in rows:
        prompt = [i * block + k for i in row["hash_ids"] for k in range(block)]
        prompts.append(prompt[: scaled(row["input_length"], by_prompt)])
        outputs.append(unique(len(outputs), scaled(row["output_length"], by_output)))
    return prompts, outputs


def scaled(length: int, by: int) -> int:
    """Divide a length, rounding up: what was there is not gone."""
    return -(-length // by)


def unique(number: int, length: int) -> Tokens:
    """Return tokens that no other number's tokens equal, nor those of a conversation's blocks."""
    first = 100_000_000 + number * 10_000
    return list(range(first, first + length))


def page_keys(case: Case) -> list[list[int]]:
    """Number every complete page of prompt and outputs; equal means equal from the start."""
    size = case.setting.page_size
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    keys: list[list[int]] = []
    for prompt, output in zip(case.prompts, case.outputs, strict=True):
        tokens = prompt + output
        before, chain = -1, []
        for start in range(0, len(tokens) - size + 1, size):
            page = (before, tuple(tokens[start : start + size]))
            before = numbers.setdefault(page, len(numbers))
            chain.append(before)
        keys.append(chain)
    return keys


def tokens_of_keys(
    name: str,
    setting: Setting,
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    keys: Sequence[Sequence[int]] | None,
) -> Case:
    """Make a case with the same lengths and the same equal pages from their numbers alone."""
    size = setting.page_size
    chains = keys if keys is not None else [()] * len(prompt_tokens)
    beyond = 1 + max((key for chain in chains for key in chain), default=-1)
    prompts: list[Tokens] = []
    outputs: list[Tokens] = []
    for i, (prompt, output, chain) in enumerate(
        zip(prompt_tokens, output_tokens, chains, strict=True)
    ):
        tokens = [key * size + k for key in chain for k in range(size)]
        # What follows the last numbered page has a key of its own: no other request's.
        rest = prompt + output - len(tokens)
        tokens += [beyond * size + i * 1_000_000 + k for k in range(rest)]
        prompts.append(tokens[:prompt])
        outputs.append(tokens[prompt:])
    return Case(name, setting, prompts, outputs)
