"""Read the layers of models of which some, or a part of each, keep a fixed state."""

from __future__ import annotations

from kvledger.models import states
from kvledger.models.attention_fields import (
    FULL,
    Layers,
    Names,
    every_nth_full,
    heads_of,
    latent_layer,
    typed_layers,
)
from kvledger.models.config_fields import MISSING, Fields
from kvledger.models.states import Mamba2Names, Widths

_ATTENTION = {"attention": FULL, FULL: FULL}


def kimi_linear(fields: Fields, widths: Widths) -> Layers:
    """Read Kimi Linear: MLA layers among delta-attention layers, numbered from 1."""
    query, layers = fields.whole("num_attention_heads"), fields.layers()
    names = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    types = None
    if isinstance(fields.get("linear_attn_config"), dict):
        inner = fields.inner("linear_attn_config")
        sizes = [inner.whole(n) for n in ("num_heads", "head_dim", "short_conv_kernel_size")]
        full = inner.indices("full_attn_layers", layers=layers, first=1)
        linear = inner.indices("kda_layers", layers=layers, first=1)
        if full is None or linear is None:
            inner.missing("full_attn_layers" if full is None else "kda_layers")
        if full & linear or len(full | linear) != layers:
            inner.refuse(
                "full_attn_layers",
                f"and kda_layers must hold each of the {layers} layers once, counted from 1",
            )
        types = [FULL if i in full else "linear_attention" for i in range(layers)]
    else:
        types = fields.words("layer_types", layers, (FULL, "linear_attention"))
        if types is None:
            fields.missing("linear_attn_config")
        sizes = [fields.whole(name) for name in names]
    latent, state = latent_layer(fields, widths), states.kimi_delta(fields, widths, *sizes)
    return Layers(query, [latent if kind == FULL else state for kind in types])


def delta_hybrid(fields: Fields, widths: Widths) -> Layers:
    """Read gated-DeltaNet hybrids; without a list, every ``full_attention_interval``-th is full."""
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, "linear_attention"))
    if types is None:
        pattern = every_nth_full("full_attention_interval", other="linear_attention")
        types = pattern(fields, layers)
    state = states.gated_delta_net(fields, widths)
    return Layers(heads.query, typed_layers(fields, widths, heads, types, state))


def jamba(fields: Fields, widths: Widths) -> Layers:
    """Read Jamba: one attention layer in each period."""
    heads, layers = heads_of(fields), fields.layers()
    period = fields.whole("attn_layer_period")
    offset = fields.whole("attn_layer_offset", minimum=0)
    if offset >= period:
        fields.refuse("attn_layer_offset", f"is {offset}; less than the period of {period}")
    types = [FULL if i % period == offset else "mamba" for i in range(layers)]
    state = states.mamba1(fields, widths)
    return Layers(heads.query, typed_layers(fields, widths, heads, types, state))


def bamba(fields: Fields, widths: Widths) -> Layers:
    """Read Bamba: attention at the layers that are listed."""
    heads, layers = heads_of(fields), fields.layers()
    full = fields.indices("attn_layer_indices", layers=layers)
    if full is None:
        fields.missing("attn_layer_indices")
    types = [FULL if i in full else "mamba" for i in range(layers)]
    state = states.mamba2(fields, widths, Mamba2Names())
    return Layers(heads.query, typed_layers(fields, widths, heads, types, state))


def falcon_h1(fields: Fields, widths: Widths) -> Layers:
    """Read Falcon H1: every layer keeps K and V and a state."""
    heads, layers = heads_of(fields), fields.layers()
    given = fields.optional_whole("mamba_d_ssm")
    channels = ("mamba_expand", "hidden_size") if given is None else ("mamba_d_ssm",)
    state = states.mamba2(fields, widths, Mamba2Names(channels=channels))
    return Layers(heads.query, [heads.layer("full", widths), state] * layers)


def granite_hybrid(fields: Fields, widths: Widths) -> Layers:
    """Read Granite 4 hybrids: attention or Mamba 2, layer by layer."""
    heads, layers = heads_of(fields), fields.layers()
    known = {**_ATTENTION, "mamba": "mamba", "linear_attention": "mamba"}
    types = fields.words("layer_types", layers, known)
    if types is None:
        fields.missing("layer_types")
    types = [known[kind] for kind in types]
    state = states.mamba2(fields, widths, Mamba2Names()) if "mamba" in types else None
    return Layers(heads.query, typed_layers(fields, widths, heads, types, state))


_NEMOTRON_MARKS = {"M": "mamba", "*": FULL, "-": "mlp", "E": "moe"}
_NEMOTRON_STATE = Mamba2Names(
    heads="mamba_num_heads",
    head_dim="mamba_head_dim",
    groups="n_groups",
    state="ssm_state_size",
    kernel="conv_kernel",
    channels=(),
    dtype="mamba_ssm_cache_dtype",
)


def nemotron_h(fields: Fields, widths: Widths) -> Layers:
    """Read Nemotron H: a pattern of Mamba 2, attention, MLP and expert layers."""
    heads = heads_of(fields, Names(head_dim=("head_dim", "attention_head_dim")))
    known = {**_ATTENTION, "mamba": "mamba", "linear_attention": "mamba", "mlp": "mlp"}
    known["moe"] = "mlp"
    field = "layers_block_type" if "layers_block_type" in fields.values else "layer_types"
    words = fields.words(field, None, known)
    if words is not None:
        types = [known[word] for word in words]
    else:
        pattern = fields.get("hybrid_override_pattern")
        if pattern is MISSING or pattern is None:
            fields.missing("hybrid_override_pattern")
        if not isinstance(pattern, str) or not set(pattern) <= set(_NEMOTRON_MARKS):
            fields.refuse(
                "hybrid_override_pattern",
                f"is {pattern!r:.60}; a text of {', '.join(_NEMOTRON_MARKS)} is accepted",
            )
        field, types = "hybrid_override_pattern", [_NEMOTRON_MARKS[mark] for mark in pattern]
    layers = fields.optional_whole("num_hidden_layers")
    if layers is not None and layers != len(types):
        fields.refuse(field, f"has {len(types)} layers; num_hidden_layers is {layers}")
    state = states.mamba2(fields, widths, _NEMOTRON_STATE) if "mamba" in types else None
    kept = [kind for kind in types if kind in (FULL, "mamba")]
    return Layers(heads.query, typed_layers(fields, widths, heads, kept, state))


def minimax(fields: Fields, widths: Widths) -> Layers:
    """Read MiniMax-01 and M1: lightning attention between full layers."""
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, "linear_attention"))
    if types is None:
        marks = fields.get("attn_type_list")
        if marks is MISSING and fields.model_type == "minimax":  # whose class takes every other
            marks = [(i + 1) % 2 for i in range(layers)]
        if marks is MISSING or marks is None:
            fields.missing("attn_type_list")
        if not isinstance(marks, list) or len(marks) != layers:
            fields.refuse("attn_type_list", f"is not a list of {layers} zeros and ones")
        for i, mark in enumerate(marks):
            if fields.checked(mark, f"attn_type_list[{i}]", 0) > 1:
                fields.refuse(f"attn_type_list[{i}]", f"is {mark}; 0 or 1 is accepted")
        types = [FULL if mark else "linear_attention" for mark in marks]
    state = states.lightning(heads.query, heads.dim, widths)
    return Layers(heads.query, typed_layers(fields, widths, heads, types, state))


def lfm2(fields: Fields, widths: Widths) -> Layers:
    """Read LFM2: short convolutions between full layers."""
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, "conv"))
    if types is None:
        full = fields.indices("full_attn_idxs", layers=layers)
        if full is None:
            fields.missing("layer_types")
        types = [FULL if i in full else "conv" for i in range(layers)]
    state = states.short_convolution(fields, widths)
    return Layers(heads.query, typed_layers(fields, widths, heads, types, state))
