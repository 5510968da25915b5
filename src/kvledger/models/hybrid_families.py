"""Families of models of which some layers, or a part of each, keep a fixed state.

States are laid out as vLLM 0.33.0 lays them out: the last inputs of a short convolution (one
fewer than the kernel is wide) and, where there is one, the recurrent state. Shapes and data types
follow ``MambaStateShapeCalculator`` and ``MambaStateDtypeCalculator`` of
``vllm/model_executor/layers/mamba/mamba_utils.py``. Speculative decoding keeps more; it is not
counted.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.core.errors import shown
from kvledger.models.attention_families import (
    FULL,
    Family,
    Heads,
    Layers,
    Names,
    State,
    every_nth,
    family,
    heads_of,
    latent_layer,
    typed,
    typed_layers,
)
from kvledger.models.config_fields import Fields
from kvledger.models.layers import DTYPE_BYTES, LayerGroup, StateTensor

_LINEAR, _MAMBA = "linear_attention", "mamba"
_DELTA_TYPES = {FULL: FULL, _LINEAR: _LINEAR}
_MAMBA_TYPES = {"attention": FULL, FULL: FULL, _MAMBA: _MAMBA, _LINEAR: _MAMBA}
_CONV_BYTES = 2
"""Bytes of one input of a convolution."""


def _state_layer(*parts: StateTensor) -> LayerGroup:
    return LayerGroup(kind="state", layers=1, states=parts)


def _conv_steps(fields: Fields, name: str) -> int:
    return fields.whole(name, minimum=2) - 1


def _state_bytes(fields: Fields, name: str | None = None, otherwise: int = _CONV_BYTES) -> int:
    """Return the width of a recurrent state: asked for, else named by the config."""
    value = fields.get(name) if name and fields.state_bytes is None else None
    if name and value is not None and (not isinstance(value, str) or value not in DTYPE_BYTES):
        fields.refuse(name, f"is {shown(value)}; known are: {', '.join(DTYPE_BYTES)}")
    return fields.state_bytes or (otherwise if value is None else DTYPE_BYTES[value])


def _gated_delta_net(fields: Fields, _: Heads) -> LayerGroup:
    key_heads = fields.whole("linear_num_key_heads")
    value_heads = fields.whole("linear_num_value_heads")
    key_dim = fields.whole("linear_key_head_dim")
    value_dim = fields.whole("linear_value_head_dim")
    steps = _conv_steps(fields, "linear_conv_kernel_dim")
    state = _state_bytes(fields, "mamba_ssm_dtype")
    return _state_layer(
        StateTensor("convolution of Q and K", key_heads, 2 * key_dim * steps, _CONV_BYTES),
        StateTensor("convolution of V", value_heads, value_dim * steps, _CONV_BYTES),
        StateTensor("recurrent state", value_heads, value_dim * key_dim, state),
    )


def _mamba1(fields: Fields, _: Heads) -> LayerGroup:
    channels = fields.whole("mamba_expand") * fields.whole("hidden_size")
    steps, size = _conv_steps(fields, "mamba_d_conv"), fields.whole("mamba_d_state")
    return _state_layer(
        StateTensor("convolution", channels, steps, _CONV_BYTES),
        StateTensor("recurrent state", channels, size, _state_bytes(fields)),
    )


class _Mamba2Names(NamedTuple):
    """What a family calls the sizes of its Mamba 2 layers."""

    heads: str = "mamba_n_heads"
    head_dim: str = "mamba_d_head"
    groups: str = "mamba_n_groups"
    state: str = "mamba_d_state"
    kernel: str = "mamba_d_conv"
    channels: tuple[str, ...] = ("mamba_expand", "hidden_size")  # product: heads times their size
    dtype: str | None = None


_PLAIN_MAMBA2 = _Mamba2Names()


def _mamba2(names: _Mamba2Names = _PLAIN_MAMBA2) -> State:
    """Make Mamba 2 layers. The size of a head may be ``"auto"``: the channels over the heads."""

    def state(fields: Fields, _: Heads) -> LayerGroup:
        heads, groups = fields.whole(names.heads), fields.whole(names.groups)
        channels, product = 1, " x ".join(names.channels)
        for name in names.channels:
            channels *= fields.whole(name)
        if product and channels % heads:
            fields.refuse(names.heads, f"is {heads}; {product} is {channels}")
        auto = product and fields.get(names.head_dim) == "auto"
        dim = channels // heads if auto else fields.whole(names.head_dim)
        if product and heads * dim != channels:
            fields.refuse(
                names.head_dim, f"is {dim}; {heads} heads of it are not {product} = {channels}"
            )
        size, steps = fields.whole(names.state), _conv_steps(fields, names.kernel)
        return _state_layer(
            StateTensor("convolution of inputs", heads, dim * steps, _CONV_BYTES),
            StateTensor("convolution of B and C", groups, 2 * size * steps, _CONV_BYTES, True),
            StateTensor("recurrent state", heads, dim * size, _state_bytes(fields, names.dtype)),
        )

    return state


def _lightning(fields: Fields, heads: Heads) -> LayerGroup:
    """One square matrix a head, no convolution."""
    size = heads.dim * heads.dim
    return _state_layer(StateTensor("recurrent state", heads.query, size, _state_bytes(fields)))


def _short_convolution(fields: Fields, _: Heads) -> LayerGroup:
    channels = fields.optional_whole("conv_dim") or fields.whole("hidden_size")
    steps = _conv_steps(fields, "conv_L_cache")
    return _state_layer(StateTensor("convolution", channels, steps, _CONV_BYTES))


def _jamba(fields: Fields, layers: int) -> list[str]:
    """One attention layer in each period."""
    period = fields.whole("attn_layer_period")
    offset = fields.whole("attn_layer_offset", minimum=0)
    if offset >= period:
        fields.refuse("attn_layer_offset", f"is {offset}; less than the period of {period}")
    return [FULL if i % period == offset else _MAMBA for i in range(layers)]


def _bamba(fields: Fields, layers: int) -> list[str]:
    full = fields.indices("attn_layer_indices", layers=layers)
    return [FULL if i in full else _MAMBA for i in range(layers)]


def _types_needed(fields: Fields, _: int) -> list[str]:
    fields.missing("layer_types")


def _minimax(fields: Fields, layers: int) -> list[str]:
    marks = fields.marks("attn_type_list", layers)
    if marks is None and fields.model_type == "minimax":  # whose class takes every other
        marks = [i % 2 == 0 for i in range(layers)]
    if marks is None:
        fields.missing("attn_type_list")
    return [FULL if mark else _LINEAR for mark in marks]


def _lfm2(fields: Fields, layers: int) -> list[str]:
    if fields.get("full_attn_idxs") is None:
        fields.missing("layer_types")
    full = fields.indices("full_attn_idxs", layers=layers)
    return [FULL if i in full else "conv" for i in range(layers)]


def _kimi_linear(fields: Fields) -> Layers:
    """Read Kimi Linear: MLA layers among delta-attention layers, numbered from 1."""
    query, layers = fields.whole("num_attention_heads"), fields.layers()
    if isinstance(fields.get("linear_attn_config"), dict):
        where = fields.inner("linear_attn_config")
        names = ("num_heads", "head_dim", "short_conv_kernel_size")
        full = where.indices("full_attn_layers", layers=layers, first=1)
        linear = where.indices("kda_layers", layers=layers, first=1)
        if full & linear or len(full | linear) != layers:
            where.refuse(
                "full_attn_layers",
                f"and kda_layers must hold each of the {layers} layers once, counted from 1",
            )
        types = [FULL if i in full else _LINEAR for i in range(layers)]
    else:
        where, names = fields, ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
        types = fields.words("layer_types", layers, _DELTA_TYPES) or []
        if not types:
            fields.missing("linear_attn_config")
    heads, dim = where.whole(names[0]), where.whole(names[1])
    steps = _conv_steps(where, names[2])
    state = _state_layer(
        StateTensor("convolution of Q, K and V", heads, 3 * dim * steps, _CONV_BYTES),
        StateTensor("recurrent state", heads, dim * dim, _state_bytes(fields, otherwise=4)),
    )
    latent = latent_layer(fields)
    return Layers(query, [latent if kind == FULL else state for kind in types])


def _falcon_h1(fields: Fields) -> Layers:
    """Read Falcon H1: every layer keeps K and V and a state."""
    heads, layers = heads_of(fields), fields.layers()
    given = fields.optional_whole("mamba_d_ssm") is not None
    names = _Mamba2Names(channels=("mamba_d_ssm",)) if given else _PLAIN_MAMBA2
    return Layers(heads.query, [heads.layer("full"), _mamba2(names)(fields, heads)] * layers)


_NEMOTRON_NAMES = _Mamba2Names(
    heads="mamba_num_heads",
    head_dim="mamba_head_dim",
    groups="n_groups",
    state="ssm_state_size",
    kernel="conv_kernel",
    channels=(),
    dtype="mamba_ssm_cache_dtype",
)
_NEMOTRON_MARKS = {"M": _MAMBA, "*": FULL, "-": "mlp", "E": "moe"}


def _nemotron_h(fields: Fields) -> Layers:
    """Read Nemotron H: a pattern of Mamba 2, attention, MLP and expert layers."""
    heads = heads_of(fields, Names(head_dim=("head_dim", "attention_head_dim")))
    field = "layers_block_type" if "layers_block_type" in fields.values else "layer_types"
    types = fields.words(field, None, {**_MAMBA_TYPES, "mlp": "mlp", "moe": "moe"})
    if types is None:
        field = "hybrid_override_pattern"
        pattern = fields.get(field)
        if pattern is None:
            fields.missing(field)
        if not isinstance(pattern, str) or not set(pattern) <= set(_NEMOTRON_MARKS):
            accepted = f"a text of {', '.join(_NEMOTRON_MARKS)} is accepted"
            fields.refuse(field, f"is {shown(pattern)}; {accepted}")
        types = [_NEMOTRON_MARKS[mark] for mark in pattern]
    layers = fields.optional_whole("num_hidden_layers")
    if layers is not None and layers != len(types):
        fields.refuse(field, f"has {len(types)} layers; num_hidden_layers is {layers}")
    kept = [kind for kind in types if kind in (FULL, _MAMBA)]
    return Layers(heads.query, typed_layers(fields, heads, kept, _mamba2(_NEMOTRON_NAMES)))


_delta = typed(every_nth("full_attention_interval", other=_LINEAR), _DELTA_TYPES, _gated_delta_net)
_minimax_marks = typed(_minimax, _DELTA_TYPES, _lightning)
_convolutions = typed(_lfm2, {FULL: FULL, "conv": "conv"}, _short_convolution)
_mamba2_either = typed(_types_needed, _MAMBA_TYPES, _mamba2())
_delta_sizes = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}
_mamba1_sizes = {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}
_mamba2_sizes = {
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
_nemotron_h_sizes = {
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
    "mamba_ssm_cache_dtype": "float32",
}
_kimi_sizes = {
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "linear_head_dim": 128,
    "linear_num_heads": 32,
    "linear_conv_kernel_dim": 4,
}
_period = {"attn_layer_period": 8, "attn_layer_offset": 4}

HYBRID_FAMILIES: dict[str, Family] = {
    "bamba": family(typed(_bamba, {}, _mamba2()), 32, 32, 8, 4096, **_mamba2_sizes),
    "falcon_h1": family(_falcon_h1, 32, 32, 8, 4096, **_mamba2_sizes, mamba_d_ssm=1024),
    "granitemoehybrid": family(_mamba2_either, 32, 32, None, 4096, **_mamba2_sizes),
    "jamba": family(typed(_jamba, {}, _mamba1), 32, 32, 8, 4096, **_period, **_mamba1_sizes),
    "kimi_linear": family(_kimi_linear, 27, 32, None, 2304, **_kimi_sizes),
    "lfm2": family(_convolutions, 32, 32, 8, 2560, conv_L_cache=3),
    "lfm2_moe": family(_convolutions, 32, 32, 8, 2048, conv_L_cache=3),
    "minimax": family(_minimax_marks, 32, 32, 8, 4096),
    "minimax_m1": family(_minimax_marks),
    "minimax_text_01": family(_minimax_marks),
    "nemotron_h": family(_nemotron_h, 0, 32, 8, 4096, 128, **_nemotron_h_sizes),
    "qwen3_5_moe_text": family(_delta, 40, 16, 2, 2048, 256, **_delta_sizes),
    "qwen3_5_text": family(_delta, 32, 16, 4, 4096, 256, **_delta_sizes),
    "qwen3_next": family(_delta, 48, 16, 2, 2048, 256, **_delta_sizes),
}
"""By ``model_type``."""
