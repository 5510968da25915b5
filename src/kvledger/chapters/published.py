"""Numbers published elsewhere, each recomputed where the accounting can, and cited where not."""

from __future__ import annotations

import csv
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pandas as pd

from kvledger.accounting.allocations import page_counts
from kvledger.accounting.sharing import shared
from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.models.known import kv_bytes_per_token, load_models
from kvledger.models.shapes import Model

GIB = 2**30

_WHY_OVERSIZED = (
    "recomputed is the pages the request needs; as quoted that is less than the pool holds, so it "
    "would fit; who is admitted is no matter of this accounting"
)
_PAPER_MAXIMUM = 2048  # Kwon et al. 2023, section 6.1: the longest sequence of the OPT models
_TABLE_1 = {"opt13b": "OPT-13B", "opt66b": "OPT-66B", "opt175b": "OPT-175B"}


def paper_numbers() -> pd.DataFrame:
    """Hold the numbers of Kwon et al. 2023 against what the accounting gives.

    Columns: claim, published, unit, where, recomputed (missing where it is only cited), verdict
    (reproduced: equal to the printed digits; differs; cited) and why.

    Examples
    --------
    >>> paper_numbers().set_index("claim").loc["batched.sharegpt.orca_max", "verdict"]
    'reproduced'
    """
    computed = _paper_recomputed()
    why = {
        "table1.opt66b.kv_slots": "the memory is printed in whole GB; the slots need a little more",
    }
    rows = []
    for row in _rows("paper_pagedattention.csv"):
        value = computed.get(row["id"])
        verdict = _verdict(row["value"], value)
        reason = {"cited": _why_cited(row["id"]), "differs": why.get(row["id"])}.get(verdict)
        if verdict == "differs" and reason is None:
            raise LedgerError(f"{row['id']}: published {row['value']}, computed {value}; say why")
        rows.append(
            {
                "claim": row["id"],
                "published": row["value"],
                "unit": row["unit"],
                "where": row["where"],
                "recomputed": value,
                "verdict": verdict,
                "why": reason,
            }
        )
    return pd.DataFrame(rows, dtype=object)


def case_numbers() -> pd.DataFrame:
    """Hold numbers from public bug reports against what the accounting gives.

    Columns: case, given, published, unit, recomputed, verdict, why, thread.

    Examples
    --------
    >>> case_numbers().set_index("case").loc["qwen15_7b_blocks", "recomputed"]
    630
    """
    rows = []
    for row in _rows("cases.csv"):
        value = _CASES[row["id"]]()
        verdict = _verdict(row["answer"], value)
        why = None
        if row["id"] == "oversized":
            verdict, why = "differs", _WHY_OVERSIZED
        elif verdict != "reproduced":
            raise LedgerError(f"{row['id']}: published {row['answer']}, computed {value}; say why")
        rows.append(
            {
                "case": row["id"],
                "given": row["given"],
                "published": row["answer"],
                "unit": row["unit"],
                "recomputed": value,
                "verdict": verdict,
                "why": why,
                "thread": row["thread"],
            }
        )
    return pd.DataFrame(rows, dtype=object)


def model_numbers() -> pd.DataFrame:
    """Hold each model's KV bytes per token, as tabulated, against its shape.

    Columns: model, published (bytes per token, every layer charged in full), recomputed, past
    window (bytes that a further token adds once windows are full) and verdict.
    """
    rows = []
    for row in _rows("models.csv"):
        shape = load_models()[row["model"]]
        published = row["B_per_token_all_layers_as_full"]
        rows.append(
            {
                "model": shape.name,
                "published": int(published),
                "recomputed": shape.kv_bytes_per_token,
                "past window": shape.growth_bytes_per_token,
                "verdict": _verdict(published, shape.kv_bytes_per_token),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def cost_numbers() -> pd.DataFrame:
    """List what others measured of page sizes, attention kernels and page tables.

    Columns: id, who, what, bound (up to or under, where only a bound is printed), low, high (as
    printed; both are missing where the source gives words), unit, against, setting, finding,
    times_low, times_high, chart (what a figure calls it), where and citation. The times are of a
    run time, against the one that the row names: 20% longer is 6/5. Where a source prints times of
    one kernel at several page sizes, they are against its shortest.

    Examples
    --------
    >>> costs = cost_numbers().set_index("id")
    >>> costs.loc["prefill.flashinfer", "high"], costs.loc["prefill.flashinfer", "times_high"]
    (Decimal('42'), Fraction(71, 50))
    """
    rows = _rows("published_costs.csv")
    shortest: dict[str, Fraction] = {}
    for row in rows:
        if row["unit"] == "ms":
            here = Fraction(row["low"])
            shortest[row["citation"]] = min(here, shortest.get(row["citation"], here))
    frame = []
    for row in rows:
        least = shortest.get(row["citation"])
        frame.append(
            {
                "id": row["id"],
                "who": row["who"],
                "what": row["what"],
                "bound": row["bound"] or None,
                "low": Decimal(row["low"]) if row["low"] else None,
                "high": Decimal(row["high"]) if row["high"] else None,
                "unit": row["unit"] or None,
                "against": row["against"] or None,
                "setting": row["setting"] or None,
                "finding": row["finding"] or None,
                "times_low": _times(row["low"], row["unit"], least),
                "times_high": _times(row["high"], row["unit"], least),
                "chart": row["chart"] or None,
                "where": row["where"],
                "citation": row["citation"],
            }
        )
    return pd.DataFrame(frame, dtype=object)


def _times(printed: str, unit: str, shortest: Fraction | None) -> Fraction | None:
    """Turn a printed time into a multiple of what it is held against; None for other units."""
    if not printed:
        return None
    if unit == "% longer":
        return 1 + Fraction(printed) / 100
    if unit == "times as long":
        return Fraction(printed)
    return Fraction(printed) / shortest if unit == "ms" and shortest else None


def _rows(name: str) -> list[dict[str, str]]:
    with data_file(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _verdict(published: str, value: Fraction | int | None) -> str:
    """Compare to the printed digits: half of the last one is the rounding of the print."""
    if value is None:
        return "cited"
    try:
        printed = Decimal(published)
    except ArithmeticError:
        return "differs"
    places = -int(printed.as_tuple().exponent)
    half = Fraction(1, 2 * 10**places) if places > 0 else Fraction(0)
    return "reproduced" if abs(Fraction(printed) - value) <= half else "differs"


def _why_cited(claim: str) -> str:
    if claim.startswith("batched.alpaca"):
        return "not from sizes alone; figure2.batched replays it"
    if claim.startswith(("fig2", "batched", "sharing")):
        return "not from sizes alone; the chapter on growth replays it"
    if claim.startswith(("kernel", "prefix", "block_size")):
        return "their measurement or setting"
    return "an input, not a result"


def _paper_recomputed() -> dict[str, Fraction | int]:
    """Compute what needs no requests over time: slots, and how many maxima fit in them."""
    memory = {
        row["id"]: int(row["value"])
        for row in _rows("paper_pagedattention.csv")
        if row["id"].endswith("kv_memory")
    }
    slots = {
        key: memory[f"table1.{key}.kv_memory"] * GIB // kv_bytes_per_token(model)
        for key, model in _TABLE_1.items()
    }
    fit = slots["opt13b"] // _PAPER_MAXIMUM
    left = Fraction(slots["opt13b"] - fit * _PAPER_MAXIMUM, slots["opt13b"])
    return {
        **{f"table1.{key}.kv_slots": Fraction(n, 1000) for key, n in slots.items()},
        "batched.sharegpt.orca_max": fit,
        "batched.alpaca.orca_max": fit,
        "fig2.orca_max.external_other": 100 * left,
    }


def _blocks_in_memory() -> int:
    model = Model("Qwen1.5-7B", full_layers=32, kv_heads=32, head_dim=128)
    memory = Fraction("0.9") * Fraction("21.89") * GIB
    return int(memory // (64 * model.kv_bytes_per_token))


def _waste(full: int, windowed: int, window: int, tokens: int) -> Fraction:
    model = Model(
        "layers", full_layers=full, window_layers=windowed, window=window, kv_heads=1, head_dim=1
    )
    return 100 * model.window_waste(tokens)


_CASES: dict[str, Callable[[], Fraction | int]] = {
    "qwen25_7b_bytes": lambda: kv_bytes_per_token("Qwen2.5-7B"),
    "llama2_7b_bytes": lambda: Fraction(69524783104, 132608),
    "qwen15_7b_blocks": _blocks_in_memory,
    "deepseek_v3_bytes": lambda: kv_bytes_per_token("DeepSeek-V3/R1"),
    "qwen3_head_dim": lambda: kv_bytes_per_token("Qwen3-32B"),
    "gptoss120b_all": lambda: kv_bytes_per_token("gpt-oss-120b"),
    "gptoss120b_growth": lambda: kv_bytes_per_token("gpt-oss-120b", past_window=True),
    "gemma2_waste": lambda: _waste(1, 1, 4096, 8192),
    "ministral_waste": lambda: _waste(1, 3, 32768, 131072),
    "lmcache_chunks": lambda: shared([14816, 14820], page_size=256, prefix=14816).shared_tokens,
    "oversized": lambda: page_counts([1000 + 24], [16])[16],
}
