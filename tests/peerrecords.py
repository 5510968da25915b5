"""What vLLM's block manager answered, as ``peers/record_vllm.py`` recorded it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "data" / "peers"
FILES = ("vllm_drawn.jsonl", "vllm_traces.jsonl")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case: its requests and setting, and the columns that vLLM gave."""

    name: str
    page_size: int
    pages: int
    prefix_cache: bool
    max_running: int
    watermark: float
    prefill_chunk: int | None
    prompt_tokens: list[int]
    output_tokens: list[int]
    page_keys: list[list[int]]
    answers: dict[str, Any]

    def __repr__(self) -> str:
        return self.name


@cache
def recorded() -> tuple[Recorded, ...]:
    """Read every case."""
    cases: dict[str, Recorded] = {}
    for file in FILES:
        for line in (FOLDER / file).read_text(encoding="utf-8").splitlines()[1:]:
            row = json.loads(line)
            asked = row["requests"]
            if isinstance(asked, str):  # the same as those of an earlier case
                first = cases[asked]
                asked = {
                    name: getattr(first, name)
                    for name in ("prompt_tokens", "output_tokens", "page_keys")
                }
            answers = {**row["answers"], "refused": row["refused"]}
            cases[row["case"]] = Recorded(row["case"], **row["setting"], **asked, answers=answers)
    return tuple(cases.values())


@cache
def heads() -> dict[str, dict[str, Any]]:
    """Read what recorded each file."""
    return {
        file: json.loads((FOLDER / file).read_text(encoding="utf-8").partition("\n")[0])
        for file in FILES
    }
