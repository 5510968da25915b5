"""A model as a reader names it: one of ``data/models.csv``, or described by a ``config.json``.

A config is read as data: no code that it names is looked for, and nothing is fetched. Its object
becomes :class:`Fields`, the rule of its architecture's :class:`Family` says what each layer keeps,
and layers that keep the same become the groups of a :class:`Model`. An architecture that is not
known is an error, since the same field means different things in different models.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from kvledger.core import data_file
from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole
from kvledger.models.attention_families import ATTENTION_FAMILIES, Family
from kvledger.models.config_fields import ACCEPTED, FILE_NAME, Fields, config_file, read_object
from kvledger.models.hybrid_families import HYBRID_FAMILIES
from kvledger.models.layers import KINDS, dtype_bytes
from kvledger.models.shapes import Model

FAMILIES: dict[str, Family] = ATTENTION_FAMILIES | HYBRID_FAMILIES
"""The architectures that are known, by ``model_type``."""

_WRAPPERS = """
    aya_vision cohere2_vision deepseek_vl_v2 gemma3 gemma3n gemma4 glm4v glm4v_moe granite_speech
    idefics2 idefics3 internvl internvl_chat kimi_k25 kimi_k3 kimi_vl lfm2-vl lfm2_vl llama4 llava
    llava_next llava_next_video llava_onevision mistral3 NemotronH_Nano_VL_V2 paligemma
    qwen2_5_vl qwen2_audio qwen2_vl qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe smolvlm video_llava
    vipllava voxtral
"""
WRAPPERS = frozenset(_WRAPPERS.split())
"""Multimodal architectures whose language model alone keeps K and V, in a config of its own."""

INNER_CONFIGS = ("text_config", "llm_config", "language_config")
"""Where a multimodal config keeps its language model's."""

_NOTHING_PAGED = "no layer keeps K and V of each token, so there is nothing to page"
_INDEXER = (
    "its sparse attention keeps keys of an indexer beside K and V, in a form that depends on the "
    "engine"
)
REFUSED: dict[str, tuple[str, str]] = {
    "deepseek_v32": ("index_head_dim", _INDEXER),
    "deepseek_v4": ("compress_ratios", _INDEXER),
    "falcon_mamba": ("model_type", _NOTHING_PAGED),
    "glm5_next": ("index_head_dim", _INDEXER),
    "glm_moe_dsa": ("index_head_dim", _INDEXER),
    "mamba": ("model_type", _NOTHING_PAGED),
    "mamba2": ("model_type", _NOTHING_PAGED),
    "minimax_m3": ("index_head_dim", _INDEXER),
    "minimax_m3_vl": ("index_head_dim", _INDEXER),
    "mllama": ("cross_attention_layers", "its cross-attention layers keep K and V of images"),
    "phi4flash": ("mb_per_layer", "its second half reads K and V of one layer"),
    "recurrent_gemma": ("lru_width", "the state of its recurrent blocks is not read"),
    "rwkv": ("model_type", _NOTHING_PAGED),
    "zamba2": ("hybrid_layer_ids", "its shared attention blocks are not read"),
}
"""Architectures that are known not to be read: the field that decides, and why."""

_BY_HAND = (
    "give the shape by hand, as kvledger.Model(name, full_layers=..., kv_heads=..., head_dim=...)"
)
# A file that leaves these out is not whole: transformers writes them always, except in the inner
# config of a multimodal model, of which it leaves out what equals the class default.
_SIZES = """
    num_hidden_layers num_layers n_layer n_layers num_attention_heads attention_heads n_head
    n_heads hidden_size n_embd d_model
"""
_NEVER_LEFT_OUT = frozenset(_SIZES.split())
_POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    *("model_max_length", "max_sequence_length"),
)
_QUANTISED = "hf_quant_config.json"


@cache
def load_models() -> dict[str, Model]:
    """Return every model of ``data/models.csv`` by name.

    Examples
    --------
    >>> load_models()["Llama-2-70B"].layers
    80
    """
    with data_file("models.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["model"]: Model(
            name=row["model"],
            full_layers=int(row["full_layers"]),
            window_layers=int(row["window_layers"]),
            window=int(row["window"]) if row["window"] else None,
            kv_heads=int(row["kv_heads"]),
            head_dim=int(row["head_dim"]),
            latent=row["attn"].startswith("MLA"),
            bytes_per_element=int(row["bytes_per_elem"]),
            max_position=int(row["max_pos"]) if row["max_pos"] else None,
            source=row["source"],
        )
        for row in rows
    }


def load_model(
    model: str | os.PathLike[str] | Model,
    dtype: str | None = None,
    tensor_parallel: int = 1,
    *,
    name: str | None = None,
) -> Model:
    """Return a model by its name in ``data/models.csv``, or from its ``config.json``.

    Parameters
    ----------
    model : str, path or Model
        A name; else the path of a ``config.json`` or of the folder that holds one, as
        :func:`~kvledger.read_config` reads it; or a shape of your own.
    dtype : str, optional
        Data type of the cache; the model's own if not given.
    tensor_parallel : int
        Ranks that share the KV heads; the shape is then what one of them keeps.
    name : str, optional
        What to call a model that is read from a file; its folder's name if not given.

    Raises
    ------
    LedgerError
        For what is neither a known name nor an existing path (the message lists the known names),
        an unknown data type, a file that cannot be read, or heads that do not divide.

    Examples
    --------
    >>> load_model("Llama-3.1-8B").kv_heads
    8
    >>> load_model("Llama-3.1-8B", "fp8", tensor_parallel=2).kv_bytes_per_token
    32768
    """
    models = load_models()
    if isinstance(model, str) and model in models:
        model = models[model]
    if isinstance(model, Model):
        shape = model if dtype is None else model.with_dtype(dtype)
        return shape if tensor_parallel == 1 else shape.split(tensor_parallel)
    if isinstance(model, str | os.PathLike) and model and os.path.exists(model):
        return read_config(model, dtype=dtype, tensor_parallel=tensor_parallel, name=name)
    raise LedgerError(
        f"model is {model!r}; known are: {', '.join(models)}, or give the path of a config.json "
        "or a Model"
    )


def kv_bytes_per_token(
    model: str | os.PathLike[str] | Model, *, dtype: str | None = None, past_window: bool = False
) -> int:
    """Return the bytes that one token's K and V take in all layers.

    Parameters
    ----------
    model : str, path or Model
        Name in ``data/models.csv``, path of a ``config.json``, or a shape of your own.
    dtype : str, optional
        Data type of the cache; 16-bit if not given.
    past_window : bool
        Count only the layers that still grow once every window is full.

    Raises
    ------
    LedgerError
        For an unknown model or data type.

    Examples
    --------
    >>> kv_bytes_per_token("Llama-3.1-8B")
    131072
    >>> kv_bytes_per_token("gpt-oss-120b", past_window=True)
    36864
    """
    shape = load_model(model, dtype)
    return shape.growth_bytes_per_token if past_window else shape.kv_bytes_per_token


def known_model_types() -> tuple[str, ...]:
    """Return every ``model_type`` that can be read, multimodal ones included.

    Examples
    --------
    >>> {"llama", "gemma3", "deepseek_v3", "qwen3_next"} <= set(known_model_types())
    True
    """
    return tuple(sorted({*FAMILIES, *WRAPPERS}))


def read_config(
    path: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    tensor_parallel: int = 1,
    name: str | None = None,
    state_dtype: str | None = None,
) -> Model:
    """Read the attention shape of a model from its ``config.json``.

    Parameters
    ----------
    path : str or path
        The file, or the folder that holds it. An ``hf_quant_config.json`` beside it is read too.
    dtype : str, optional
        Data type of cached K and V, as an engine's ``kv_cache_dtype``. If not given: 8 bits where
        the config says that the cache is quantised so, else 16, which is what engines cache
        models of 16 and of 32 bits in.
    tensor_parallel : int
        Ranks that share the model: the shape is then what one of them keeps. K and V heads
        divide among ranks; fewer heads than ranks are copied; a latent vector is kept by each.
    name : str, optional
        What to call it; the folder's name, or the file's, if not given.
    state_dtype : str, optional
        Data type of the recurrent states of linear-attention layers, as an engine's
        ``mamba_ssm_cache_dtype``. If not given: what the config or the architecture says.

    Returns
    -------
    Model
        Layers that keep the same in one group: growing ones first, then capped ones, then fixed
        states. ``source`` names the file and every class default that it relied on.

    Raises
    ------
    LedgerError
        For a file that cannot be read or is no config, an architecture that is not known, a field
        that is missing or is no whole number, heads that do not divide. The message names the
        file, the field, its value and what is accepted.

    Notes
    -----
    Layers that predict further tokens ahead (``num_nextn_predict_layers``) are not counted, nor
    is what quantised caches keep in scales.

    Examples
    --------
    >>> import json, tempfile
    >>> shape = {"model_type": "qwen3", "num_hidden_layers": 36, "num_attention_heads": 32,
    ...          "num_key_value_heads": 8, "hidden_size": 4096, "head_dim": 128}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "config.json").write_text(json.dumps(shape))
    ...     model = read_config(folder, name="Qwen3-8B")
    ...     rank = read_config(folder, name="Qwen3-8B", tensor_parallel=4, dtype="fp8")
    >>> model.kv_bytes_per_token, rank.kv_bytes_per_token
    (147456, 18432)
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise LedgerError(f"path is {shown(path)}; {ACCEPTED}")
    file = config_file(Path(os.fspath(path)))
    outer = read_object(file)
    fields = _text_fields(file, outer)
    kv_bytes, cached = _kv_bytes(file, outer, fields.values, dtype)
    fields.state_bytes = None if state_dtype is None else dtype_bytes(state_dtype)
    attention_heads, layers = FAMILIES[fields.model_type].read(fields)
    alike = Counter(layer.with_bytes_per_element(kv_bytes) for layer in layers)
    groups = [replace(layer, layers=number) for layer, number in alike.items()]
    groups.sort(key=lambda group: KINDS.index(group.kind))
    if all(group.kind == "state" for group in groups):
        raise LedgerError(f"{file}: no layer keeps K and V, so there is nothing to page")
    positions = (name for name in _POSITIONS if fields.values.get(name) is not None)
    max_position = fields.optional_whole(next(positions, _POSITIONS[0]))
    taken = ", ".join(
        f"{name} {value}" for name, value in fields.taken.items() if value is not None
    )
    defaults = [f"by class default {taken}"] if taken else []
    model = Model(
        name if name is not None else _default_name(file),
        groups=groups,
        max_position=max_position,
        source="; ".join([f"{file.name} ({fields.model_type})", *cached, *defaults]),
    )
    accepted = "a whole number of ranks, at least 1, is accepted"
    ranks = whole(tensor_parallel, "tensor_parallel", minimum=1, accepted=accepted)
    if attention_heads % ranks:
        raise LedgerError(
            f"{file}: tensor_parallel is {ranks}; a number of ranks that divides the "
            f"{attention_heads} attention heads is accepted"
        )
    try:
        return model.split(ranks)
    except LedgerError as error:
        raise LedgerError(f"{file}: {error}") from None


def _text_fields(file: Path, outer: dict[str, Any]) -> Fields:
    """Return the fields of the language model, which a multimodal config keeps inside."""
    values, prefix = outer, ""
    while True:
        kind = _model_type(file, values, prefix)
        inner = [key for key in INNER_CONFIGS if values.get(key) is not None]
        if kind not in WRAPPERS or (kind in FAMILIES and not inner):
            break
        if len(inner) != 1:
            what = f"{' and '.join(inner)} are there" if inner else "is missing"
            raise LedgerError(
                f"{file}: {prefix}{inner[0] if inner else INNER_CONFIGS[0]} {what}; a {kind} "
                f"config has one of {', '.join(INNER_CONFIGS)}"
            )
        prefix += f"{inner[0]}."
        values = values[inner[0]]
        if not isinstance(values, dict):
            raise LedgerError(f"{file}: {prefix[:-1]} is {shown(values)}; an object is accepted")
    if values.get("is_encoder_decoder") is True:
        raise LedgerError(
            f"{file}: {prefix}is_encoder_decoder is true; a decoder alone is accepted, since "
            "cross-attention layers keep K and V of the input as well"
        )
    defaults: Mapping[str, Any] = FAMILIES[kind].defaults
    if not prefix:
        defaults = {key: value for key, value in defaults.items() if key not in _NEVER_LEFT_OUT}
    return Fields(file, values, prefix, defaults)


def _model_type(file: Path, values: Mapping[str, Any], prefix: str) -> str:
    """Return an architecture that is known; any other is an error that says what to do."""
    kind = values.get("model_type")
    if isinstance(kind, str) and (kind in FAMILIES or kind in WRAPPERS):
        return kind
    if kind is None:
        wrong = "is missing; it names the architecture, and none is guessed:"
    elif isinstance(kind, str) and kind in REFUSED:
        field, why = REFUSED[kind]
        wrong = f"is {shown(kind)}, which is not read ({field}): {why};"
    else:
        from difflib import get_close_matches  # for this error alone

        known = known_model_types()
        close = get_close_matches(str(kind)[:100], known, n=3)
        near = f", among them {', '.join(close)}" if close else ""
        wrong = f"is {shown(kind)}, not one of the {len(known)} known architectures{near};"
    raise LedgerError(f"{file}: {prefix}model_type {wrong} {_BY_HAND}")


def _kv_bytes(
    file: Path, outer: Mapping[str, Any], text: Mapping[str, Any], dtype: str | None
) -> tuple[int, list[str]]:
    """Return the bytes of a cached element, and what to note about them."""
    if dtype is not None:
        return dtype_bytes(dtype), [f"cached as {dtype}"]
    for where, place, holder, field in _quantisations(file, outer, text):
        scheme = holder.get(field) if isinstance(holder, dict) else None
        bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
        named = isinstance(scheme, str) and scheme.upper() in ("FP8", "INT8")
        if named or (bits == 8 and not isinstance(bits, float)):
            return 1, [f"cached in 8 bits as {field if where is file else _QUANTISED} says"]
        if scheme is not None:
            raise LedgerError(
                f"{where}: {place}.{field} is {shown(scheme)}; 8 bits (num_bits 8, or FP8) are "
                "accepted, or give dtype"
            )
    weights = (values.get(key) for values in (text, outer) for key in ("dtype", "torch_dtype"))
    named_weights = next((dtype for dtype in weights if dtype is not None), None)
    if named_weights is None:
        return 2, ["no dtype, cached in 16 bits"]
    if named_weights not in ("bfloat16", "float16", "float32"):
        raise LedgerError(
            f"{file}: dtype is {shown(named_weights)}; bfloat16, float16 and float32 are accepted, "
            "or give dtype"
        )
    return 2, ["cached in 16 bits"] if named_weights == "float32" else []


def _quantisations(
    file: Path, outer: Mapping[str, Any], text: Mapping[str, Any]
) -> Iterator[tuple[Path, str, object, str]]:
    """Yield each file, place, object and field that may say how the cache is quantised."""
    for values, prefix in ((outer, ""), (text, "text model's ")):
        for key in ("quantization_config", "compression_config"):
            yield file, f"{prefix}{key}", values.get(key), "kv_cache_scheme"
    beside = file.with_name(_QUANTISED)
    if file.name == FILE_NAME and beside.is_file():
        holder = read_object(beside).get("quantization")
        yield beside, "quantization", holder, "kv_cache_quant_algo"


def _default_name(file: Path) -> str:
    """Return the name of the folder of a ``config.json``, or of a file of another name."""
    name = file.resolve().parent.name if file.name == FILE_NAME else file.stem
    name = name.removesuffix("_config").replace("--", "/")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name) or "model"
