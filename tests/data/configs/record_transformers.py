"""Record what transformers itself caches, for a small model of every architecture it has.

Each case of ``transformers.json`` is a ``config.json``. transformers reads it, makes the model with
random weights, runs a few tokens through it and is asked what its cache then holds, layer by layer.
The answers are written beside the config; ``tests/science/test_configs.py`` compares
``read_config`` with them. A new case is a new line with its name, which starts with its model type,
and its config.

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
    for row in json.loads(OUT.read_text(encoding="utf-8"))["cases"]:
        print(row["case"], flush=True)
        rows.append({**row, "layers": held(row["config"])})
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
