"""Compile the decode kernels for Hopper, with no GPU present, and say what the machine code holds.

Run as a script in a process where Triton compiles (TRITON_INTERPRET unset); prints one JSON list.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kvledger.measure.sweeps import (  # noqa: E402
    DEEPSEEK_V2_LITE,
    LLAMA_2_7B,
    LLAMA_3_1_8B,
    PAGE_SIZES,
    DecodeShape,
    Placement,
    case_of,
)
from kvledger.measure.triton_decode import (  # noqa: E402
    Tiles,
    attend,
    attend_constants,
    candidate_tiles,
    default_tiles,
    join,
    join_constants,
)

HOPPER = GPUTarget("cuda", 90, 32)
TOKENS = 8192
BATCH = 64
SPLIT_TOKENS = 2048
SHAPES = (LLAMA_3_1_8B, LLAMA_2_7B, DEEPSEEK_V2_LITE)
POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32"}
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+ )?([A-Z][A-Z0-9_.]*)", re.M)


def compile_for_hopper(
    kernel: Any, values: dict[str, Any], constants: dict[str, Any], options: dict[str, int]
) -> Any:
    """Compile as a launch would: pointers are aligned, whole numbers specialised by their value."""
    signature, fixed, attributes = {}, dict(constants), {}
    unspecialised = {"page_size", "splits"}  # as the kernels' own do_not_specialize says
    for position, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif isinstance(values[name], str):
            signature[name] = values[name]
            if values[name].startswith("*"):
                attributes[(position,)] = [["tt.divisibility", 16]]
        elif values[name] == 1 and name not in unspecialised:
            signature[name], fixed[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if values[name] % 16 == 0 and name not in unspecialised:
                attributes[(position,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=attributes)
    return triton.compile(source, target=HOPPER, options=options)


def pointers(shape: DecodeShape) -> dict[str, Any]:
    of_type = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), POINTERS[shape.dtype])
    of_type |= dict.fromkeys(("table_ptr", "lengths_ptr"), "*i32")
    return of_type | dict.fromkeys(("partial_ptr", "weight_ptr"), "*fp32")


def attend_for_hopper(shape: DecodeShape, tiles: Tiles) -> Any:
    row = shape.kv_heads * shape.head_dim
    values_row = row if shape.latent else shape.kv_heads * shape.value_dim
    values = pointers(shape) | {
        "scale": "fp32",
        "page_size": shape.page_size,
        "split_tokens": SPLIT_TOKENS,
        "splits": TOKENS // SPLIT_TOKENS,
        "q_batch_stride": shape.q_heads * shape.head_dim,
        "q_head_stride": shape.head_dim,
        "k_page_stride": shape.page_size * row,
        "k_slot_stride": row,
        "k_head_stride": shape.head_dim,
        "v_page_stride": shape.page_size * values_row,
        "v_slot_stride": values_row,
        "v_head_stride": shape.head_dim if shape.latent else shape.value_dim,
        "table_stride": shape.max_pages,
    }
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    return compile_for_hopper(attend, values, attend_constants(shape, tiles.tokens, 2), options)


def join_for_hopper(shape: DecodeShape) -> Any:
    values = pointers(shape) | {"split_tokens": 512, "splits": 16}
    return compile_for_hopper(join, values, join_constants(shape), {})


def machine_code(compiled: Any) -> dict[str, Any]:
    """Return what cuobjdump says of the machine code: instructions, registers, stack."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, listing = (
            subprocess.run(
                [tool, flag, file.name], capture_output=True, text=True, check=True
            ).stdout
            for flag in ("--dump-resource-usage", "--dump-sass")
        )
    instructions = Counter(INSTRUCTION.findall(listing))
    registers, stack = (int(re.findall(rf"\b{what}:(\d+)", usage)[-1]) for what in ("REG", "STACK"))
    return {
        "registers": registers,
        "stack_bytes": stack,
        "shared_bytes": compiled.metadata.shared,
        "instructions": instructions,
    }


def variants() -> list[dict[str, Any]]:
    """Compile each shape, page size and type, as it is cut by default and as tuning may cut it."""
    cases = [(heads, size, "bfloat16") for heads in SHAPES for size in (*PAGE_SIZES, TOKENS)]
    cases += [(LLAMA_3_1_8B, 16, "float16"), (LLAMA_3_1_8B, 16, "float32")]
    rows = []
    seen: dict[str, dict[str, Any]] = {}  # page sizes of whole steps share their code
    for heads, page_size, dtype in cases:
        case = case_of(heads, [TOKENS] * BATCH, dtype)
        shape = Placement(case, "random", page_size).sizes
        chosen = default_tiles(shape, 4 if dtype == "float32" else 2)
        others = candidate_tiles(chosen) if dtype == "bfloat16" else ()
        row: dict[str, Any] = {"shape": heads.shape, "page_size": page_size, "dtype": dtype}
        for tiles in (chosen, *others):
            compiled = attend_for_hopper(shape, tiles)
            if compiled.hash not in seen:
                seen[compiled.hash] = machine_code(compiled)
            cut = {"kernel": "attend", "tiles": list(tiles[:3]), "default": tiles == chosen}
            rows.append(row | cut | seen[compiled.hash])
        if page_size == 16 and dtype == "bfloat16":
            rows.append(row | {"kernel": "join"} | machine_code(join_for_hopper(shape)))
    return rows


if __name__ == "__main__":
    json.dump(variants(), sys.stdout)
