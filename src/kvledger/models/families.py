"""The architectures that are known, by their ``model_type``.

A family says how its fields are read, and what its configuration class takes for those that a
file leaves out: the defaults of Hugging Face transformers 5.24.0, against which a test holds them.
Architectures whose code is not in transformers have no defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvledger.models.attention_fields import (
    FULL,
    OLDER,
    Names,
    Reader,
    attention_object,
    chatglm,
    every_nth_full,
    falcon,
    gemma4,
    gpt_bigcode,
    latent,
    llama4,
    nemotron_nas,
    qwen,
    qwen_moe,
    smollm3,
    typed,
    uniform,
    windowed,
)
from kvledger.models.hybrid_families import (
    bamba,
    delta_hybrid,
    falcon_h1,
    granite_hybrid,
    jamba,
    kimi_linear,
    lfm2,
    minimax,
    nemotron_h,
)


@dataclass(frozen=True)
class Family:
    """An architecture: how its layers are read, and what its files may leave out."""

    read: Reader
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _family(
    read: Reader,
    layers: int,
    heads: int,
    kv_heads: int | None,
    hidden: int,
    head_dim: int | None = None,
    **other: Any,
) -> Family:
    """Return a family whose class has these defaults for the common sizes."""
    sizes = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "head_dim": head_dim,
    }
    return Family(read, {name: value for name, value in sizes.items() if value} | other)


_full = uniform("full")
_no_kv_names = uniform("full", Names(kv_heads=(), head_dim=()))
_older = uniform("full", OLDER)
_interleaved_4 = typed(every_nth_full(fixed=4))
_qwen_windows: dict[str, Any] = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_qwen_vl: dict[str, Any] = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 80,
}
_delta: dict[str, Any] = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}
_mamba2: dict[str, Any] = {
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
_nemotron_h_sizes: dict[str, Any] = {
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
    "mamba_ssm_cache_dtype": "float32",
}

FAMILIES: dict[str, Family] = {
    # every layer keeps everything
    "apertus": _family(_full, 32, 32, None, 4096),
    "arcee": _family(_full, 32, 32, None, 2560),
    "biogpt": _family(_no_kv_names, 24, 16, None, 1024),
    "cohere": _family(_full, 40, 64, None, 8192),
    "ernie4_5": _family(_full, 18, 16, 2, 1024, 128),
    "ernie4_5_moe": _family(_full, 28, 20, 4, 2560),
    "gemma": _family(_full, 28, 16, 16, 3072, 256),
    "glm": _family(_full, 40, 32, 2, 4096, 128),
    "glm4": _family(_full, 40, 32, 2, 4096, 128),
    "glm4_moe": _family(_full, 46, 96, 8, 4096),
    "glm4v_text": _family(_full, 40, 32, 2, 4096),
    "glm4v_moe_text": _family(_full, 46, 96, 8, 4096),
    "gpt_neox": _family(_no_kv_names, 44, 64, None, 6144),
    "granite": _family(_full, 32, 32, None, 4096),
    "granitemoe": _family(_full, 32, 32, None, 4096),
    "hunyuan_v1_dense": _family(_full, 32, 32, None, 4096),
    "hunyuan_v1_moe": _family(_full, 32, 32, None, 4096),
    "llama": _family(_full, 32, 32, None, 4096),
    "minimax_m2": _family(_full, 62, 48, 8, 3072, 128),
    "nemotron": _family(_full, 32, 48, None, 6144),
    "olmo": _family(_full, 32, 32, None, 4096),
    "olmo2": _family(_full, 32, 32, None, 4096),
    "olmoe": _family(_full, 16, 16, None, 2048),
    "opt": _family(_no_kv_names, 12, 12, None, 768),
    "persimmon": _family(_no_kv_names, 36, 64, None, 4096),
    "phi": _family(_full, 24, 32, None, 2048),
    "qwen3_vl_moe_text": _family(_full, 24, 16, 16, 2048, 128),
    "qwen3_vl_text": _family(_full, 32, 32, 32, 4096, 128),
    "seed_oss": _family(_full, 64, 80, 8, 4096, 128),
    "stablelm": _family(_full, 32, 32, 32, 2560),
    # the same, code not in transformers: nothing may be left out
    "aquila": Family(_full),
    "baichuan": Family(_no_kv_names),
    "deepseek": Family(_full),
    "internlm": Family(_full),
    "internlm2": Family(_full),
    "minicpm": Family(_full),
    "orion": Family(_full),
    "qwen": Family(uniform("full", Names(kv_heads=(), head_dim=("kv_channels",)))),
    # older names
    "bloom": Family(
        uniform("full", OLDER._replace(hidden=("hidden_size", "n_embed"))),
        {"n_layer": 2, "n_head": 8, "hidden_size": 64},
    ),
    "codegen": Family(_older, {"n_layer": 28, "n_head": 16, "n_embd": 4096}),
    "gpt2": Family(_older, {"n_layer": 12, "n_head": 12, "n_embd": 768}),
    "gptj": Family(_older, {"n_layer": 28, "n_head": 16, "n_embd": 4096}),
    "xglm": Family(
        uniform(
            "full",
            Names(
                ("num_layers", "num_hidden_layers"),
                ("attention_heads", "num_attention_heads"),
                (),
                ("d_model", "hidden_size"),
                (),
            ),
        ),
        {"num_layers": 24, "attention_heads": 16, "d_model": 1024},
    ),
    # one K and V head, or as many as a flag says
    "chatglm": Family(chatglm),
    "dbrx": Family(attention_object, {"n_layers": 24, "n_heads": 16, "d_model": 2048}),
    "falcon": _family(falcon, 32, 71, None, 4544, multi_query=True, new_decoder_architecture=False),
    "gpt_bigcode": Family(
        gpt_bigcode, {"n_layer": 12, "n_head": 12, "n_embd": 768, "multi_query": True}
    ),
    "mpt": Family(attention_object, {"n_layers": 24, "n_heads": 16, "d_model": 2048}),
    "nemotron-nas": Family(nemotron_nas),
    # every layer windowed, or none
    "mistral": _family(windowed, 32, 32, 8, 4096, sliding_window=4096),
    "mixtral": _family(windowed, 32, 32, 8, 4096, sliding_window=None),
    "ministral": _family(windowed, 32, 32, 8, 4096, sliding_window=4096),
    "ministral3": _family(windowed, 34, 32, 8, 4096, 128, sliding_window=None),
    "phi3": _family(windowed, 32, 32, None, 3072, sliding_window=None),
    "phimoe": _family(windowed, 32, 32, 8, 4096, sliding_window=None),
    "starcoder2": _family(windowed, 30, 24, 2, 3072, sliding_window=None),
    # some layers windowed or chunked
    "cohere2": _family(
        typed(every_nth_full("sliding_window_pattern", "_sliding_window_pattern")),
        40,
        64,
        None,
        8192,
        sliding_window=4096,
        sliding_window_pattern=4,
    ),
    "exaone4": _family(
        typed(
            lambda fields, layers: (
                [FULL] * layers
                if fields.optional_whole("sliding_window") is None
                else every_nth_full("sliding_window_pattern")(fields, layers)
            )
        ),
        32,
        32,
        32,
        4096,
        sliding_window=4096,
        sliding_window_pattern=4,
    ),
    "gemma2": _family(typed(every_nth_full(fixed=2)), 26, 8, 4, 2304, 256, sliding_window=4096),
    "gemma3_text": _family(
        typed(every_nth_full("sliding_window_pattern", "_sliding_window_pattern")),
        26,
        8,
        4,
        2304,
        256,
        sliding_window=4096,
        sliding_window_pattern=6,
        max_position_embeddings=131072,
    ),
    "gemma3n_text": _family(
        typed(every_nth_full(fixed=5)),
        35,
        8,
        2,
        2048,
        256,
        sliding_window=512,
        num_kv_shared_layers=15,
        max_position_embeddings=32768,
    ),
    "gemma4_text": _family(
        gemma4,
        30,
        8,
        4,
        2304,
        256,
        sliding_window=512,
        num_kv_shared_layers=0,
        global_head_dim=512,
        attention_k_eq_v=False,
        max_position_embeddings=131072,
    ),
    "gpt_oss": _family(typed(every_nth_full(fixed=2)), 36, 64, 8, 2880, 64, sliding_window=128),
    "llama4_text": _family(
        llama4, 48, 40, 8, 5120, 128, attention_chunk_size=8192, no_rope_layer_interval=4
    ),
    "mimo": Family(qwen),
    "olmo3": _family(_interleaved_4, 32, 32, None, 4096, sliding_window=4096),
    "qwen2": _family(qwen, 32, 32, 32, 4096, **_qwen_windows),
    "qwen2_5_vl": _family(qwen, 80, 64, 8, 8192, **_qwen_vl),
    "qwen2_5_vl_text": _family(qwen, 80, 64, 8, 8192, **_qwen_vl),
    "qwen2_moe": _family(qwen_moe, 24, 16, 16, 2048, use_sliding_window=False),
    "qwen2_vl": _family(qwen, 80, 64, 8, 8192, **_qwen_vl),
    "qwen2_vl_text": _family(qwen, 80, 64, 8, 8192, **_qwen_vl),
    "qwen3": _family(qwen, 32, 32, 32, 4096, 128, **_qwen_windows),
    "qwen3_moe": _family(qwen_moe, 24, 32, 4, 2048, use_sliding_window=False),
    "smollm3": _family(
        smollm3,
        36,
        16,
        4,
        2048,
        use_sliding_window=False,
        sliding_window=None,
        no_rope_layer_interval=4,
    ),
    # one latent vector (MLA)
    "deepseek_v2": _family(latent, 32, 32, None, 4096, kv_lora_rank=512, qk_rope_head_dim=64),
    "deepseek_v3": _family(latent, 61, 128, None, 7168, kv_lora_rank=512, qk_rope_head_dim=64),
    "glm4_moe_lite": _family(latent, 47, 20, None, 2048, kv_lora_rank=512, qk_rope_head_dim=64),
    "kimi_k2": Family(latent),
    "minicpm3": _family(latent, 62, 40, None, 2560, kv_lora_rank=256, qk_rope_head_dim=32),
    # a fixed state in some layers
    "bamba": _family(bamba, 32, 32, 8, 4096, **_mamba2),
    "falcon_h1": _family(falcon_h1, 32, 32, 8, 4096, **_mamba2, mamba_d_ssm=1024),
    "granitemoehybrid": _family(granite_hybrid, 32, 32, None, 4096, **_mamba2),
    "jamba": _family(
        jamba,
        32,
        32,
        8,
        4096,
        attn_layer_period=8,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
    ),
    "kimi_linear": _family(
        kimi_linear,
        27,
        32,
        None,
        2304,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        linear_head_dim=128,
        linear_num_heads=32,
        linear_conv_kernel_dim=4,
    ),
    "lfm2": _family(lfm2, 32, 32, 8, 2560, conv_L_cache=3),
    "lfm2_moe": _family(lfm2, 32, 32, 8, 2048, conv_L_cache=3),
    "minimax": _family(minimax, 32, 32, 8, 4096),
    "minimax_m1": Family(minimax),
    "minimax_text_01": Family(minimax),
    "nemotron_h": _family(nemotron_h, 0, 32, 8, 4096, 128, **_nemotron_h_sizes),
    "qwen3_5_moe_text": _family(delta_hybrid, 40, 16, 2, 2048, 256, **_delta),
    "qwen3_5_text": _family(delta_hybrid, 32, 16, 4, 4096, 256, **_delta),
    "qwen3_next": _family(delta_hybrid, 48, 16, 2, 2048, 256, **_delta),
}
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
