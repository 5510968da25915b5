"""The fixed state of linear-attention layers, laid out as vLLM 0.33.0 lays it out.

Each function returns what one layer keeps for one request: the last inputs of its short
convolution (one fewer than the kernel is wide) and, where it has one, its recurrent state. Shapes
and data types follow ``MambaStateShapeCalculator`` and ``MambaStateDtypeCalculator`` of
``vllm/model_executor/layers/mamba/mamba_utils.py``. Speculative decoding keeps more; it is not
counted.
"""

from __future__ import annotations

from typing import NamedTuple

from kvledger.models.config_fields import MISSING, Fields
from kvledger.models.layers import DTYPE_BYTES, LayerGroup, StateTensor


class Widths(NamedTuple):
    """Bytes of one element: of K and V, of a convolution's inputs, and of a recurrent state.

    ``state`` is None where nobody named a data type, so that each design takes its own.
    """

    kv: int
    conv: int = 2
    state: int | None = None


def state_layer(*parts: StateTensor) -> LayerGroup:
    """Return one layer that keeps these parts."""
    return LayerGroup(kind="state", layers=1, states=parts)


def gated_delta_net(fields: Fields, widths: Widths) -> LayerGroup:
    """Return a gated DeltaNet layer (Qwen3-Next, Qwen3.5, OLMo hybrid)."""
    key_heads = fields.whole("linear_num_key_heads")
    value_heads = fields.whole("linear_num_value_heads")
    key_dim = fields.whole("linear_key_head_dim")
    value_dim = fields.whole("linear_value_head_dim")
    steps = _conv_steps(fields, "linear_conv_kernel_dim")
    state = _named_dtype(fields, "mamba_ssm_dtype", widths, otherwise=widths.conv)
    return state_layer(
        StateTensor("convolution of Q and K", key_heads, 2 * key_dim * steps, widths.conv),
        StateTensor("convolution of V", value_heads, value_dim * steps, widths.conv),
        StateTensor("recurrent state", value_heads, value_dim * key_dim, state),
    )


def kimi_delta(fields: Fields, widths: Widths, heads: int, dim: int, kernel: int) -> LayerGroup:
    """Return a Kimi delta attention layer; its recurrent state is float32 unless named."""
    state = DTYPE_BYTES["float32"] if widths.state is None else widths.state
    if kernel < 2:
        fields.refuse("linear_attn_config.short_conv_kernel_size", f"is {kernel}; at least 2")
    return state_layer(
        StateTensor("convolution of Q, K and V", heads, 3 * dim * (kernel - 1), widths.conv),
        StateTensor("recurrent state", heads, dim * dim, state),
    )


def mamba1(fields: Fields, widths: Widths) -> LayerGroup:
    """Return a Mamba layer (Jamba)."""
    channels = fields.whole("mamba_expand") * fields.whole("hidden_size")
    steps = _conv_steps(fields, "mamba_d_conv")
    state = widths.conv if widths.state is None else widths.state
    return state_layer(
        StateTensor("convolution", channels, steps, widths.conv),
        StateTensor("recurrent state", channels, fields.whole("mamba_d_state"), state),
    )


class Mamba2Names(NamedTuple):
    """What a family calls the sizes of its Mamba 2 layers."""

    heads: str = "mamba_n_heads"
    head_dim: str = "mamba_d_head"
    groups: str = "mamba_n_groups"
    state: str = "mamba_d_state"
    kernel: str = "mamba_d_conv"
    channels: tuple[str, ...] = ("mamba_expand", "hidden_size")
    dtype: str | None = None


def mamba2(fields: Fields, widths: Widths, names: Mamba2Names) -> LayerGroup:
    """Return a Mamba 2 layer (Bamba, Falcon H1, Granite hybrid, Nemotron H).

    ``channels`` are the fields whose product must be heads times their size. The size may be
    given as ``"auto"``, which is that product over the heads.
    """
    heads, groups = fields.whole(names.heads), fields.whole(names.groups)
    channels = 1
    for name in names.channels:
        channels *= fields.whole(name)
    if names.channels and channels % heads:
        fields.refuse(names.heads, f"is {heads}; {' x '.join(names.channels)} is {channels}")
    if names.channels and fields.get(names.head_dim) == "auto":
        dim = channels // heads
    else:
        dim = fields.whole(names.head_dim)
    if names.channels and heads * dim != channels:
        fields.refuse(
            names.head_dim,
            f"is {dim}; {heads} heads of it are not {' x '.join(names.channels)} = {channels}",
        )
    size, steps = fields.whole(names.state), _conv_steps(fields, names.kernel)
    state = widths.conv if widths.state is None else widths.state
    if names.dtype is not None:
        state = _named_dtype(fields, names.dtype, widths, otherwise=state)
    return state_layer(
        StateTensor("convolution of inputs", heads, dim * steps, widths.conv),
        StateTensor("convolution of B and C", groups, 2 * size * steps, widths.conv, shared=True),
        StateTensor("recurrent state", heads, dim * size, state),
    )


def lightning(heads: int, dim: int, widths: Widths) -> LayerGroup:
    """Return a lightning-attention layer (MiniMax-01): one square matrix a head, no convolution."""
    state = widths.conv if widths.state is None else widths.state
    return state_layer(StateTensor("recurrent state", heads, dim * dim, state))


def short_convolution(fields: Fields, widths: Widths) -> LayerGroup:
    """Return a gated short-convolution layer (LFM2), which has no recurrent state."""
    channels = fields.optional_whole("conv_dim") or fields.whole("hidden_size")
    steps = _conv_steps(fields, "conv_L_cache")
    return state_layer(StateTensor("convolution", channels, steps, widths.conv))


def _conv_steps(fields: Fields, name: str) -> int:
    return fields.whole(name, minimum=2) - 1


def _named_dtype(fields: Fields, name: str, widths: Widths, *, otherwise: int) -> int:
    """Return the width of a recurrent state: asked for, else named by the config."""
    if widths.state is not None:
        return widths.state
    value = fields.get(name)
    if value is None or value is MISSING:
        return otherwise
    if not isinstance(value, str) or value not in DTYPE_BYTES:
        fields.refuse(name, f"is {value!r:.60}; known are: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[value]
