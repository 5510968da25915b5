"""What others published and what is committed: recomputed, cited or listed, as tables.

Numbers of others are recomputed where the accounting can, and cited where not. They are marked as
theirs and stand in no line with a record's. The committed data and the benchmarks are listed with
where they came from.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pandas as pd

from kvledger.accounting.allocations import page_counts
from kvledger.accounting.sharing import shared
from kvledger.chapters.attention_report import peer_label, quartiles, ratios, sweep_of, view
from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.measure.record import Record
from kvledger.models.known import kv_bytes_per_token, load_models
from kvledger.models.shapes import Model
from proofbook.formats import format_value

GIB = 2**30

_WHY_DIFFERENT = {
    "table1.opt66b.kv_slots": "the memory is printed in whole GB; the slots need a little more",
    "oversized": "recomputed is the pages the request needs; as quoted that is less than the pool "
    "holds, so it would fit; who is admitted is no matter of this accounting",
}
_WHY_CITED = {  # by how a claim begins; the first that fits holds
    ("batched.alpaca",): "not from sizes alone; figure2.batched replays it",
    ("fig2", "batched", "sharing"): "not from sizes alone; the chapter on growth replays it",
    ("kernel", "prefix", "block_size"): "their measurement or setting",
    ("",): "an input, not a result",
}
_PAPER_MAXIMUM = 2048  # Kwon et al. 2023, section 6.1: the longest sequence of the OPT models
_TABLE_1 = {"opt13b": "OPT-13B", "opt66b": "OPT-66B", "opt175b": "OPT-175B"}

# ---------------------------------------------------------------- recomputed


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
    rows = [
        {"claim": row["id"], "published": row["value"], "unit": row["unit"], "where": row["where"]}
        | _compared(row["id"], row["value"], computed.get(row["id"]))
        for row in _rows("paper_pagedattention.csv")
    ]
    return pd.DataFrame(rows, dtype=object)


def case_numbers() -> pd.DataFrame:
    """Hold numbers from public bug reports against what the accounting gives.

    Columns: case, given, published, unit, recomputed, verdict, why, thread.

    Examples
    --------
    >>> case_numbers().set_index("case").loc["qwen15_7b_blocks", "recomputed"]
    630
    """
    rows = [
        {"case": row["id"], "given": row["given"], "published": row["answer"], "unit": row["unit"]}
        | _compared(row["id"], row["answer"], _CASES[row["id"]]())
        | {"thread": row["thread"]}
        for row in _rows("cases.csv")
    ]
    return pd.DataFrame(rows, dtype=object)


def _compared(id: str, published: str, value: Fraction | int | None) -> dict[str, object]:
    """Say how a published number fares; one that differs must say why."""
    verdict = "differs" if id == "oversized" else _verdict(published, value)
    why = None
    if verdict == "cited":
        why = next(words for starts, words in _WHY_CITED.items() if id.startswith(starts))
    elif verdict == "differs" and (why := _WHY_DIFFERENT.get(id)) is None:
        raise LedgerError(f"{id}: published {published}, computed {value}; say why")
    return {"recomputed": value, "verdict": verdict, "why": why}


def model_numbers() -> pd.DataFrame:
    """Hold each model's KV bytes per token, as tabulated, against its shape.

    Columns: model, published (bytes per token, every layer charged in full), recomputed, past
    window (bytes that a further token adds once windows are full) and verdict.
    """
    rows = []
    for row in _rows("models.csv"):
        shape, published = load_models()[row["model"]], row["B_per_token_all_layers_as_full"]
        bytes_now = shape.kv_bytes_per_token, shape.growth_bytes_per_token
        verdict = _verdict(published, shape.kv_bytes_per_token)
        rows.append((shape.name, int(published), *bytes_now, verdict))
    columns = ["model", "published", "recomputed", "past window", "verdict"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


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


def _paper_recomputed() -> dict[str, Fraction | int]:
    """Compute what needs no requests over time: slots, and how many maxima fit in them."""
    printed = {row["id"]: row["value"] for row in _rows("paper_pagedattention.csv")}
    slots = {
        key: int(printed[f"table1.{key}.kv_memory"]) * GIB // kv_bytes_per_token(model)
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


def _waste(full: int, windowed: int, window: int, tokens: int) -> Fraction:
    model = Model("layers", full, 1, 1, window_layers=windowed, window=window)
    return 100 * model.window_waste(tokens)


_CASES: dict[str, Callable[[], Fraction | int]] = {
    "qwen25_7b_bytes": lambda: kv_bytes_per_token("Qwen2.5-7B"),
    "llama2_7b_bytes": lambda: Fraction(69524783104, 132608),
    "qwen15_7b_blocks": lambda: int(
        Fraction("0.9")
        * Fraction("21.89")
        * GIB
        // (64 * Model("Qwen1.5-7B", 32, 32, 128).kv_bytes_per_token)
    ),
    "deepseek_v3_bytes": lambda: kv_bytes_per_token("DeepSeek-V3/R1"),
    "qwen3_head_dim": lambda: kv_bytes_per_token("Qwen3-32B"),
    "gptoss120b_all": lambda: kv_bytes_per_token("gpt-oss-120b"),
    "gptoss120b_growth": lambda: kv_bytes_per_token("gpt-oss-120b", past_window=True),
    "gemma2_waste": lambda: _waste(1, 1, 4096, 8192),
    "ministral_waste": lambda: _waste(1, 3, 32768, 131072),
    "lmcache_chunks": lambda: shared([14816, 14820], page_size=256, prefix=14816).shared_tokens,
    "oversized": lambda: page_counts([1000 + 24], [16])[16],
}

# ---------------------------------------------------------------- what others measured

SOURCES = {
    "kwon2023pagedattention": "Kwon et al. 2023",
    "prabhu2025vattention": "Prabhu et al. 2025",
    "ye2024flashinferblog": "FlashInfer blog 2024",
    "pytorch2025flexinference": "PyTorch blog 2025",
    "flashattention1999": "Dao-AILab/flash-attention, pull request 1999",
    "sglang4356": "sgl-project/sglang, pull request 4356",
}
"""What a table calls each citation."""

SECTOR_BYTES = 32
"""What a GPU's global memory moves at least: CUDA C++ Best Practices Guide, coalesced access."""

_USUAL = 16
_SIZES = (1, _USUAL, 128)


def cost_numbers() -> pd.DataFrame:
    """List what others measured of page sizes, attention kernels and page tables.

    Columns: id, citation, where, who, what, bound (up to or under, where only a bound is printed),
    low, high (as printed; both are missing where the source gives words), unit, against, setting,
    finding, chart (what a figure calls it), times_low and times_high. The times are of a run time,
    against the one that the row names: 20% longer is 6/5. Where a source prints times of one kernel
    at several page sizes, they are against its shortest.

    Examples
    --------
    >>> costs = cost_numbers().set_index("id")
    >>> costs.loc["prefill.flashinfer", "high"], costs.loc["prefill.flashinfer", "times_high"]
    (Decimal('42'), Fraction(71, 50))
    """
    rows: list[dict[str, Any]] = []
    for cells in _rows("published_costs.csv"):
        ends = {end: Decimal(cells[end]) if cells[end] else None for end in ("low", "high")}
        rows.append({name: text or None for name, text in cells.items()} | ends)
    for row in rows:
        timed = [r["low"] for r in rows if r["unit"] == "ms" and r["citation"] == row["citation"]]
        for end in ("low", "high"):
            row[f"times_{end}"] = _times(row[end], row["unit"], min(timed, default=None))
    return pd.DataFrame(rows, dtype=object)


def _times(printed: Decimal | None, unit: str, shortest: Decimal | None) -> Fraction | None:
    """Turn a printed time into a multiple of what it is held against; None for other units."""
    if printed is None or unit not in ("% longer", "times as long", "ms"):
        return None
    if unit == "ms":
        return Fraction(printed) / Fraction(shortest or printed)
    return Fraction(printed) if unit == "times as long" else 1 + Fraction(printed) / 100


def printed_costs() -> pd.DataFrame:
    """Lay out the published costs as printed.

    Columns: source (with the section), what, published, against, setting.

    Examples
    --------
    >>> printed_costs().loc[3, "published"]
    'up to 37% longer'
    """
    frame = cost_numbers()
    rows = frame.to_dict("records")
    frame["source"] = [f"{SOURCES[row['citation']]}, {row['where']}" for row in rows]
    frame["published"] = [_printed(row) for row in rows]
    return frame[["source", "what", "published", "against", "setting"]]


def _printed(row: Mapping[Any, Any]) -> str:
    low, high, unit = row["low"], row["high"], str(row["unit"])
    if high is None:
        return str(row["finding"])
    value = f"{row['bound']} {high}" if row["bound"] else f"{low} to {high}"
    value = f"{high}" if low == high else value
    return value + ("" if unit.startswith("%") else " ") + unit


def beside(record: Record | None) -> pd.DataFrame:
    """Put published run times, as multiples, above those of the record's main case.

    Columns: label, kind (published or measured), low (missing where only a bound is printed),
    middle (of a measured one: the median, between its quartiles), high, words, against, source.
    """
    rows: list[dict[str, object]] = []
    for row in cost_numbers().to_dict("records"):
        if row["chart"] is None:
            continue
        low, high = row["times_low"], row["times_high"]
        least = f"{format_value(low, '.2f')} to" if low not in (None, high) else ""
        words = f"{row['bound'] or least} {format_value(high, '.2f')}".strip()
        against = row["against"] or "its own pages of 128"
        rows.append(
            {"label": row["chart"], "kind": "published", "low": low, "middle": None, "high": high}
            | {"words": words, "against": against, "source": SOURCES[row["citation"]]}
        )
    seen = view(record)
    if seen is None:
        return pd.DataFrame(rows, dtype=object)
    for name in dict.fromkeys(t.peer for t in seen.record.timings):
        timings = sweep_of(seen.record, name)
        timed = {timing.page_size for timing in timings}
        usual = _USUAL if _USUAL in timed else min(timed, default=0)
        for timing in timings:
            base = seen.record.baseline(timing)
            if timing.page_size not in (_SIZES if name == seen.peer else (usual,)) or base is None:
                continue
            low, middle, high = quartiles(ratios(timing, base))
            against = "itself" if base.peer == name else peer_label(base.peer)
            label = f"{peer_label(name)}: pages of {timing.page_size}"
            mine = {"label": label, "kind": "measured", "low": low, "middle": middle, "high": high}
            mine["words"] = format_value(middle, ".2f")
            rows.append(mine | {"against": f"{against}, contiguous", "source": seen.record.label})
    return pd.DataFrame(rows, dtype=object)


def beside_sources(record: Record | None) -> str:
    """Name where the rows of :func:`beside` come from."""
    return "the source of each row" + (f"; {record.file}" if record is not None else "")


class Cited(NamedTuple):
    """A number of somebody else's, and whose."""

    value: Decimal
    source: str


def cited() -> dict[str, Cited]:
    """Return the single figures that the prose on measured attention cites.

    Examples
    --------
    >>> cited()["instructions_high"]
    Cited(value=Decimal('13'), source='Prabhu et al. 2025, section 3.3')
    """
    costs = cost_numbers()
    counted = costs[costs["id"] == "prefill.instructions"].to_dict("records")[0]
    source = f"{SOURCES[counted['citation']]}, {counted['where']}"
    return {
        "instructions_low": Cited(counted["low"], source),
        "instructions_high": Cited(counted["high"], source),
        "sector": Cited(Decimal(SECTOR_BYTES), "NVIDIA, CUDA C++ Best Practices Guide"),
    }


# ---------------------------------------------------------------- what is committed

_DIGEST_CHARACTERS = 12


def data_files() -> pd.DataFrame:
    """List the files of ``data/`` that the manifest checks by digest.

    Columns: file, holds, licence, SHA-256 (its first characters).

    Examples
    --------
    >>> "traces/bwb_v2.lengths.csv" in set(data_files()["file"])
    True
    """
    files = tomllib.loads(data_file("manifest.toml").read_text(encoding="utf-8"))["file"]
    listed = [entry for entry in files if entry["kind"] in ("derived", "facts")]
    frame = pd.DataFrame(listed, dtype=object).rename(columns={"path": "file"})
    frame["licence"] = [entry["licence"].split(";")[0] for entry in listed]
    frame["SHA-256"] = [entry["sha256"][:_DIGEST_CHARACTERS] for entry in listed]
    return frame[["file", "holds", "licence", "SHA-256"]]


def benchmarks() -> pd.DataFrame:
    """List what ``benchmarks/run.py`` recorded last: each bar and what was reached.

    Columns: what, against, quantity (a ratio, or seconds), median, least, greatest, bar, met.

    Examples
    --------
    >>> sorted(set(benchmarks()["quantity"]) - {"ratio", "seconds"})
    []
    """
    names = ["what", "baseline", "quantity", "median", "least", "greatest", "bar", "met"]
    frame = pd.DataFrame(_benchmarks())[names].rename(columns={"baseline": "against"})
    return frame.assign(met=frame["met"].map({True: "yes", False: "no"}))


def _benchmarks() -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(data_file("benchmarks.json").read_text("utf-8"))
    return records


def benchmark_machine() -> str:
    """Say on what the benchmarks were run, and when.

    Examples
    --------
    >>> "Python" in benchmark_machine()
    True
    """
    machines = {
        f"{e['system']} {e['machine']}, {e['cores']} cores, Python {e['python']}, "
        f"NumPy {e['numpy']}, {record['date']}"
        for record in _benchmarks()
        for e in [record["environment"]]
    }
    return "; ".join(sorted(machines))
