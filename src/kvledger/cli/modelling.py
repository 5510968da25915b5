"""``kvledger models``: what a token takes, of the known models or of a ``config.json``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvledger.cli import options as opt
from kvledger.cli.answer import Answer, Table
from kvledger.core.units import bytes_text, parse_bytes
from kvledger.models.known import load_model, load_models
from kvledger.models.shapes import Model


def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]…",
            help="Names, or config.json files or their folders; all known models if none.",
            autocompletion=opt.complete_model,
        ),
    ] = None,
    dtype: opt.Dtype = None,
    tensor_parallel: opt.Ranks = "1",
    kv_memory: opt.MaybeMemory = None,
    as_json: opt.AsJson = False,
) -> str:
    """List models with the KV bytes of a token, on each tensor-parallel rank."""
    n_bytes = None if kv_memory is None else parse_bytes(kv_memory, "--kv-memory")
    ranks = opt.ranks(tensor_parallel)
    shapes = [load_model(name, dtype, ranks) for name in names or load_models()]
    columns = ["model", "layers", "KV bytes per token", "past its windows", "windows hold at most"]
    columns += [] if n_bytes is None else [f"slots in {kv_memory}"]
    rows = []
    for shape in shapes:
        row = [shape.name, f"{shape.layers:,}", f"{shape.kv_bytes_per_token:,}"]
        capped = bool(shape.window_layers)
        row.append(f"{shape.growth_bytes_per_token:,}" if capped else "-")
        row.append(bytes_text(shape.window_cap_bytes) if capped else "-")
        row += [] if n_bytes is None else [f"{n_bytes // shape.kv_bytes_per_token:,}"]
        rows.append(row)
    document = {
        "command": "models",
        "dtype": dtype,
        "tensor_parallel": ranks,
        "kv_memory": n_bytes,
        "models": [model_document(shape, n_bytes) for shape in shapes],
    }
    of = "" if ranks == 1 else f", on each of {ranks} tensor-parallel ranks"
    title = f"What the K and V of a token take{of}; {dtype or 'each model in its own data type'}"
    parts: list[str | Table] = [title, "", Table(columns, rows)]
    if names:
        parts += ["", _groups_table(shapes)]
    return Answer(parts, document).text(as_json)


def _groups_table(shapes: list[Model]) -> Table:
    columns = ["layers by what they keep", "kind", "layers", "KV heads", "head", "window"]
    columns += ["bytes of a token", "bytes of a request's state"]
    rows = []
    for shape in shapes:
        for group in shape.groups:
            heads = [f"{group.kv_heads:,}", f"{group.head_dim:,}"]
            row = [shape.name, group.kind, f"{group.layers:,}"]
            row += ["-", "-"] if group.kind == "state" else heads
            row += [
                "-" if group.window is None else f"{group.window:,}",
                f"{group.kv_bytes_per_token:,}" if group.kv_bytes_per_token else "-",
                f"{group.state_bytes_per_request:,}" if group.state_bytes_per_request else "-",
            ]
            rows.append(row)
    return Table(columns, rows, left=2)


def model_document(shape: Model, n_bytes: int | None) -> dict[str, Any]:
    """Return a model's sizes, each exact."""
    return {
        "name": shape.name,
        "layers": shape.layers,
        "full_layers": shape.full_layers,
        "window_layers": shape.window_layers,
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "growth_bytes_per_token": shape.growth_bytes_per_token,
        "window_cap_bytes": shape.window_cap_bytes,
        "slots": None if n_bytes is None else n_bytes // shape.kv_bytes_per_token,
        "groups": [
            {
                "kind": group.kind,
                "layers": group.layers,
                "kv_heads": group.kv_heads,
                "head_dim": group.head_dim,
                "value_dim": group.value_dim,
                "window": group.window,
                "kv_bytes_per_token": group.kv_bytes_per_token,
                "state_bytes_per_request": group.state_bytes_per_request,
            }
            for group in shape.groups
        ],
        "source": shape.source,
    }
