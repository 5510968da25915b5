"""The reader's own model: its attention shape from a Hugging Face ``config.json``.

The file is read as data: no code that it names is looked for, and nothing is fetched. Each
architecture is read by rules of its own (:mod:`kvledger.models.families`); one that is not known
is an error, since the same field means different things in different models.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole
from kvledger.models.config_fields import ACCEPTED, FILE_NAME, Fields, config_file, read_object
from kvledger.models.families import FAMILIES, INNER_CONFIGS, REFUSED, WRAPPERS
from kvledger.models.layers import KINDS, LayerGroup, dtype_bytes
from kvledger.models.shapes import Model
from kvledger.models.states import Widths

__all__ = ["known_model_types", "read_config"]

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
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
)
_HALF_BYTES = 2
_QUANTISED = "hf_quant_config.json"


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
    state_bytes = None if state_dtype is None else dtype_bytes(state_dtype)
    read = FAMILIES[fields.model_type].read(fields, Widths(kv=kv_bytes, state=state_bytes))
    groups = _merged(read.each)
    if all(group.kind == "state" for group in groups):
        raise LedgerError(f"{file}: no layer keeps K and V, so there is nothing to page")
    model = Model(
        name if name is not None else _default_name(file),
        groups=groups,
        max_position=_max_position(fields),
        source="; ".join([f"{file.name} ({fields.model_type})", *cached, *_defaults(fields)]),
    )
    ranks = whole(
        tensor_parallel,
        "tensor_parallel",
        minimum=1,
        accepted="a whole number of ranks, at least 1, is accepted",
    )
    if read.attention_heads % ranks:
        raise LedgerError(
            f"{file}: tensor_parallel is {ranks}; a number of ranks that divides the "
            f"{read.attention_heads} attention heads is accepted"
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
    if kind is None:
        raise LedgerError(
            f"{file}: {prefix}model_type is missing; it names the architecture, and none is "
            f"guessed: {_BY_HAND}"
        )
    if isinstance(kind, str) and (kind in FAMILIES or (kind in WRAPPERS)):
        return kind
    if isinstance(kind, str) and kind in REFUSED:
        field, why = REFUSED[kind]
        raise LedgerError(
            f"{file}: {prefix}model_type is {shown(kind)}, which is not read ({field}): {why}; "
            f"{_BY_HAND}"
        )
    close = get_close_matches(str(kind)[:100], known_model_types(), n=3)
    near = f", among them {', '.join(close)}" if close else ""
    raise LedgerError(
        f"{file}: {prefix}model_type is {shown(kind)}, not one of the {len(known_model_types())} "
        f"known architectures{near}; {_BY_HAND}"
    )


def _merged(each: Iterable[LayerGroup]) -> list[LayerGroup]:
    """Put layers that keep the same into one group, in the order of :data:`KINDS`."""
    counts = Counter(each)
    groups = [replace(layer, layers=number) for layer, number in counts.items()]
    return sorted(groups, key=lambda group: KINDS.index(group.kind))


def _kv_bytes(
    file: Path, outer: Mapping[str, Any], text: Mapping[str, Any], dtype: str | None
) -> tuple[int, list[str]]:
    """Return the bytes of a cached element, and what to note about them."""
    if dtype is not None:
        return dtype_bytes(dtype), [f"cached as {dtype}"]
    for values, prefix in ((outer, ""), (text, "text model's ")):
        for key in ("quantization_config", "compression_config"):
            scheme = values.get(key)
            if isinstance(scheme, dict):
                bits = _scheme_bits(file, scheme.get("kv_cache_scheme"), f"{prefix}{key}")
                if bits:
                    return bits // 8, ["cached in 8 bits as kv_cache_scheme says"]
    beside = file.with_name(_QUANTISED)
    if file.name == FILE_NAME and beside.is_file():
        scheme = read_object(beside).get("quantization")
        algorithm = scheme.get("kv_cache_quant_algo") if isinstance(scheme, dict) else None
        if _scheme_bits(beside, algorithm, "quantization", "kv_cache_quant_algo"):
            return 1, [f"cached in 8 bits as {_QUANTISED} says"]
    weights = next(
        (
            values[key]
            for values in (text, outer)
            for key in ("dtype", "torch_dtype")
            if values.get(key) is not None
        ),
        None,
    )
    if weights is None:
        return _HALF_BYTES, ["no dtype, cached in 16 bits"]
    if weights not in ("bfloat16", "float16", "float32"):
        raise LedgerError(
            f"{file}: dtype is {shown(weights)}; bfloat16, float16 and float32 are accepted, or "
            "give dtype"
        )
    return _HALF_BYTES, ["cached in 16 bits"] if weights == "float32" else []


def _scheme_bits(
    file: Path, scheme: object, place: str, field: str = "kv_cache_scheme"
) -> int | None:
    """Return 8 if a quantisation scheme says that the cache has 8 bits; None if it says nothing."""
    if scheme is None:
        return None
    if isinstance(scheme, str) and scheme.upper() in ("FP8", "INT8"):
        return 8
    bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
    if bits == 8 and not isinstance(bits, bool | float):
        return 8
    raise LedgerError(
        f"{file}: {place}.{field} is {shown(scheme)}; 8 bits (num_bits 8, or FP8) are accepted, "
        "or give dtype"
    )


def _max_position(fields: Fields) -> int | None:
    """Return the longest context that the file names; None if it names none."""
    there = (name for name in _POSITIONS if fields.values.get(name) is not None)
    return fields.optional_whole(next(there, _POSITIONS[0]))


def _defaults(fields: Fields) -> list[str]:
    """Say which class defaults the answer rests on."""
    used = {name: value for name, value in fields.taken.items() if value is not None}
    if not used:
        return []
    return ["by class default " + ", ".join(f"{name} {value}" for name, value in used.items())]


def _default_name(file: Path) -> str:
    """Return the name of the folder of a ``config.json``, or of a file of another name."""
    name = file.resolve().parent.name if file.name == FILE_NAME else file.stem
    name = name.removesuffix("_config").replace("--", "/")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name) or "model"
