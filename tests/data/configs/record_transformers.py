"""Record what transformers itself caches, for a small model of every architecture it has.

Each case is a ``config.json``. transformers reads it, makes the model with random weights, runs a
few tokens through it and is asked what its cache then holds, layer by layer. The answers are
written to ``transformers.json``, and ``tests/test_configs.py`` compares ``read_config`` with them.

Run it in an environment of its own, with PyTorch and transformers of the version below:

    python tests/data/configs/record_transformers.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from kvledger.models.known import FAMILIES

VERSION = "5.24.0"
TOKENS = 20
OUT = Path(__file__).with_name("transformers.json")

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "intermediate_size": 48,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
NO_HEAD_DIM = {key: value for key, value in SIZES.items() if key != "head_dim"}
WITH_HEAD_DIM = """
    gemma glm glm4 llama mistral ministral3 qwen3 seed_oss ernie4_5 nemotron arcee hunyuan_v1_dense
"""
NO_KV = {key: value for key, value in NO_HEAD_DIM.items() if key != "num_key_value_heads"}
OLDER = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_positions": 64, "vocab_size": 128}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": "auto",
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
LATENT = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    **EXPERTS,
}


def cases() -> dict[str, dict[str, Any]]:
    """Return the configs by name; a name starts with its model type."""
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, *parts: dict[str, Any], **fields: Any) -> None:
        config = {"model_type": name.split(":")[0], **TOKEN_IDS}
        for part in (*parts, fields):
            config |= part
        found[name] = config

    for kind in WITH_HEAD_DIM.split():
        add(kind, SIZES)
        if kind != "hunyuan_v1_dense":  # whose rotary positions need a head_dim
            add(f"{kind}:heads by default", NO_HEAD_DIM, hidden_size=512)
    for kind in ("olmo", "olmo2", "cohere", "granite", "stablelm", "apertus", "phi"):
        add(kind, NO_HEAD_DIM)
    for kind in ("ernie4_5_moe", "granitemoe", "olmoe"):
        add(kind, NO_HEAD_DIM, EXPERTS)
    for kind in ("glm4_moe", "hunyuan_v1_moe", "minimax_m2"):
        add(kind, SIZES, EXPERTS)
    for kind in ("persimmon", "gpt_neox", "biogpt"):
        add(kind, NO_KV)
    add("opt", NO_KV, ffn_dim=48, word_embed_proj_dim=64)
    add("xglm", num_layers=3, attention_heads=4, d_model=64, ffn_dim=48, vocab_size=128)
    add("bloom", n_layer=3, n_head=4, hidden_size=64, vocab_size=128)
    for kind in ("gpt2", "gptj", "codegen"):
        add(kind, OLDER, rotary_dim=8)
    add("gpt2:newer names", NO_KV)
    add("gpt_bigcode:one head", OLDER, multi_query=True)
    add("gpt_bigcode:all heads", OLDER, multi_query=False)
    add("falcon:one head", NO_KV, multi_query=True, new_decoder_architecture=False)
    add("falcon:all heads", NO_KV, multi_query=False, new_decoder_architecture=False)
    add("falcon:new", NO_KV, num_kv_heads=2, multi_query=True, new_decoder_architecture=True)
    add(
        "dbrx",
        n_layers=3,
        n_heads=4,
        d_model=64,
        max_seq_len=64,
        vocab_size=128,
        attn_config={"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 64},
    )
    add("mpt", n_layers=3, n_heads=4, d_model=64, vocab_size=128, attn_config={})

    for kind in ("mistral", "phi3", "starcoder2"):
        add(f"{kind}:window", NO_HEAD_DIM, sliding_window=8)
        add(f"{kind}:null", NO_HEAD_DIM, sliding_window=None)
    add("ministral:window", SIZES, sliding_window=8)
    add("ministral:types", SIZES, sliding_window=8, layer_types=["full_attention"] * 6)
    add("mixtral:window", NO_HEAD_DIM, EXPERTS, sliding_window=8)
    add("mixtral", NO_HEAD_DIM, EXPERTS)
    add("phimoe", NO_HEAD_DIM, EXPERTS, sliding_window=None)
    add("cohere2", NO_HEAD_DIM, sliding_window=8)
    add("cohere2:pattern", NO_HEAD_DIM, sliding_window=8, sliding_window_pattern=3)
    add("exaone4", NO_HEAD_DIM, sliding_window=8)
    add("exaone4:pattern", NO_HEAD_DIM, sliding_window=8, sliding_window_pattern=2)
    add("gemma2", SIZES, sliding_window=8)
    add("gemma2:types", SIZES, sliding_window=8, layer_types=["full_attention"] * 6)
    add("gemma3_text", SIZES, sliding_window=8, num_hidden_layers=8)
    add("gemma3_text:pattern", SIZES, sliding_window=8, sliding_window_pattern=2)
    for shared in (0, 2):
        add(
            f"gemma3n_text:{shared} shared",
            SIZES,
            num_hidden_layers=10,
            sliding_window=8,
            num_kv_shared_layers=shared,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=128,
            laurel_rank=8,
        )
    for same, heads in ((True, 1), (True, None), (False, 1)):
        add(
            f"gemma4_text:{same} {heads}",
            SIZES,
            EXPERTS,
            num_hidden_layers=8,
            sliding_window=8,
            global_head_dim=32,
            num_global_key_value_heads=heads,
            attention_k_eq_v=same,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=128,
            num_kv_shared_layers=0,
        )
    add(
        "gemma4_text:shared",
        SIZES,
        num_hidden_layers=12,
        sliding_window=8,
        global_head_dim=32,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=128,
        num_kv_shared_layers=4,
    )
    add("gpt_oss", SIZES, EXPERTS, sliding_window=8)
    add("llama4_text", SIZES, EXPERTS, attention_chunk_size=8, intermediate_size_mlp=48)
    add("llama4_text:interval", SIZES, EXPERTS, attention_chunk_size=8, no_rope_layer_interval=3)
    rotary = [1, 0, 0, 1, 1, 1]
    add("llama4_text:list", SIZES, EXPERTS, attention_chunk_size=8, no_rope_layers=rotary)
    add("olmo3", NO_HEAD_DIM, sliding_window=8)
    for kind, sizes in (("qwen2", NO_HEAD_DIM), ("qwen3", SIZES)):
        windows = {"sliding_window": 8, "max_window_layers": 4}
        add(f"{kind}:off", sizes, windows, use_sliding_window=False)
        add(f"{kind}:on", sizes, windows, use_sliding_window=True)
    add("qwen2_moe", NO_HEAD_DIM, EXPERTS)
    add("qwen3_moe", SIZES, EXPERTS)
    add("smollm3:off", NO_HEAD_DIM, sliding_window=8, use_sliding_window=False)
    add("smollm3:on", NO_HEAD_DIM, sliding_window=8, use_sliding_window=True)

    for kind in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3"):
        add(kind, NO_KV, LATENT)

    add("bamba", NO_HEAD_DIM, MAMBA2, attn_layer_indices=[1, 4])
    add("falcon_h1:given", NO_HEAD_DIM, MAMBA2, mamba_d_ssm=96, mamba_d_head=12)
    add("falcon_h1:expanded", NO_HEAD_DIM, MAMBA2, mamba_d_ssm=None)
    for words in (["mamba", "attention"], ["linear_attention", "full_attention"]):
        types = [words[0], words[1], *[words[0]] * 3, words[1]]
        add(f"granitemoehybrid:{words[0]}", NO_HEAD_DIM, MAMBA2, EXPERTS, layer_types=types)
    add(
        "jamba",
        NO_HEAD_DIM,
        EXPERTS,
        attn_layer_period=4,
        attn_layer_offset=2,
        mamba_d_state=8,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    )
    marks = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "intermediate_size": 48,
        "vocab_size": 128,
        "mamba_num_heads": 8,
        "mamba_head_dim": 12,
        "ssm_state_size": 16,
        "n_groups": 2,
        "conv_kernel": 4,
        "chunk_size": 16,
        "use_mamba_kernels": False,
    }
    add("nemotron_h:marks", marks, hybrid_override_pattern="M-M*-M", num_hidden_layers=6)
    words = ["mamba", "mlp", "attention", "mamba", "mlp"]
    add("nemotron_h:words", marks, layers_block_type=words)
    add("minimax", SIZES, EXPERTS, block_size=8)
    types = ["linear_attention", "full_attention"] * 3
    add("minimax:types", SIZES, EXPERTS, block_size=8, layer_types=types)
    add("qwen3_next", SIZES, EXPERTS, DELTA)
    add("qwen3_next:interval", SIZES, EXPERTS, DELTA, full_attention_interval=3)
    add("qwen3_5_text", SIZES, DELTA)
    add("qwen3_5_moe_text", SIZES, EXPERTS, DELTA)
    add("lfm2", NO_HEAD_DIM, full_attn_idxs=[1, 3], conv_L_cache=3, block_auto_adjust_ff_dim=False)
    types = ["conv", "conv", "full_attention"] * 2
    add("lfm2:types", NO_HEAD_DIM, layer_types=types, conv_L_cache=3)
    add("lfm2_moe", NO_HEAD_DIM, EXPERTS, layer_types=types, conv_L_cache=3)
    add(
        "kimi_linear",
        NO_KV,
        LATENT,
        linear_attn_config={
            "full_attn_layers": [2, 6],
            "kda_layers": [1, 3, 4, 5],
            "num_heads": 4,
            "head_dim": 16,
            "short_conv_kernel_size": 4,
        },
    )
    return found


def held(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a model of this config and return what each layer of its cache holds."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        read = AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(read).eval()
    with torch.no_grad():
        out = model(torch.randint(3, 100, (1, TOKENS)), use_cache=True)
    cache = out.past_key_values
    apart = dict(enumerate(getattr(cache, "linear_cache", [])))  # MiniMax keeps its states there
    layers = dict(enumerate(cache.layers))
    places = range(max(len(layers), len(apart)))
    return [holds(layers.get(i), apart.get(i)) for i in places]


def holds(layer: Any, state: Any) -> dict[str, Any]:
    """Describe one layer of a cache."""
    if state is not None and len(state):
        return {"class": "LinearAttentionLayer", "recurrent_states": [list(state.shape)]}
    found: dict[str, Any] = {"class": type(layer).__name__}
    keys = getattr(layer, "keys", None)
    if keys is not None and keys.ndim == 4:
        found |= {
            "kv_heads": keys.shape[1],
            "head_dim": keys.shape[3],
            "value_dim": layer.values.shape[3],
            "tokens": keys.shape[2],
        }
    window = getattr(layer, "sliding_window", None)
    if isinstance(window, int):
        found["window"] = window
    for name in ("conv_states", "recurrent_states"):
        value = getattr(layer, name, None)
        if isinstance(value, dict):
            value = [value[key] for key in sorted(value)]
        if value is not None:
            tensors = value if isinstance(value, list | tuple) else [value]
            found[name] = [list(t.shape) for t in tensors if t is not None]
    return found


DEFAULTS = """
    num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_size layer_types
    sliding_window attention_chunk_size kv_lora_rank qk_rope_head_dim num_kv_shared_layers
    multi_query new_decoder_architecture
    linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim
    linear_conv_kernel_dim linear_num_heads linear_head_dim conv_L_cache
    mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv mamba_expand mamba_d_ssm
    ssm_state_size mamba_num_heads mamba_head_dim n_groups conv_kernel mamba_ssm_cache_dtype
    attn_layer_period attn_layer_offset
"""


def defaults(kind: str) -> dict[str, Any] | None:
    """Return what the class of a model type takes where a file says nothing."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        return None
    config = CONFIG_MAPPING[kind]()
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        config = config.get_text_config()
    written = config.to_dict()  # in which a field that varies between layers is only one value
    found = {
        name: written[name] if name in written else getattr(config, name, None)
        for name in DEFAULTS.split()
    }
    found["per_layer_config"] = written.get("per_layer_config")
    return {name: value for name, value in found.items() if value is not None}


def main() -> None:
    """Write the answers."""
    import torch
    import transformers

    assert transformers.__version__ == VERSION, transformers.__version__
    rows = []
    for name, config in cases().items():
        print(name, flush=True)
        rows.append({"case": name, "config": config, "layers": held(config)})
    taken = [{"model_type": kind, "defaults": defaults(kind)} for kind in FAMILIES]
    head = {"transformers": VERSION, "torch": torch.__version__, "tokens": TOKENS}
    answers = {"cases": rows, "defaults": taken}
    parts = [f'"head": {json.dumps(head)}']
    for key, values in answers.items():
        lines = ",\n".join(json.dumps(value) for value in values)
        parts.append(f'"{key}": [\n{lines}\n]')
    OUT.write_text(f"{{{', '.join(parts)}}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
