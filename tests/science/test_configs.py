"""Models read from a config.json, against published shapes and against what transformers caches."""

from __future__ import annotations

import copy
import csv
import json
import re
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvledger as kv
from kvledger.core import data_file
from kvledger.models.config_fields import MOST_LAYERS
from kvledger.models.known import (
    FAMILIES,
    INNER_CONFIGS,
    REFUSED,
    WRAPPERS,
    known_model_types,
    load_model,
    read_config,
)
from kvledger.models.layers import KINDS, LayerGroup, StateTensor

FOLDER = Path(__file__).resolve().parents[1] / "data" / "configs"
PUBLISHED = json.loads((FOLDER / "published.json").read_text(encoding="utf-8"))
RECORDED = json.loads((FOLDER / "transformers.json").read_text(encoding="utf-8"))
CASES = {row["case"]: row for row in RECORDED["cases"]}
DEFAULTS = {row["model_type"]: row["defaults"] for row in RECORDED["defaults"]}
with data_file("models.csv").open(encoding="utf-8", newline="") as opened:
    ROWS = {row["model"]: row for row in csv.DictReader(opened)}

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}


def written(folder: Path, config: Any, name: str = "config.json") -> Path:
    path = folder / name
    text = config if isinstance(config, str) else json.dumps(config)
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, config: Any, **arguments: Any) -> kv.Model:
    return read_config(written(folder, config), **arguments)


def published(folder: Path, which: str, **arguments: Any) -> kv.Model:
    return read(folder, PUBLISHED[which]["config"], **arguments)


def refusal(path: Any, **arguments: Any) -> str:
    with pytest.raises(kv.LedgerError) as caught:
        read_config(path, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- Published models ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", ROWS)
def test_the_config_of_every_tabulated_model_gives_its_row(name: str, tmp_path: Path) -> None:
    row, tabulated = ROWS[name], kv.load_models()[name]
    read = published(tmp_path, name, name=name)
    if name == "Phi-3-mini-4k":  # its config says 2047; the row, of litgpt, says 2048
        assert (read.window, tabulated.window) == (2047, 2048)
        one_more = {"window": 2048}
    else:
        assert read.window == tabulated.window
        one_more = {}
    kept = [
        LayerGroup(
            kind=group.kind,
            layers=group.layers,
            kv_heads=group.kv_heads,
            head_dim=group.head_dim,
            value_dim=group.value_dim,
            bytes_per_element=group.bytes_per_element,
            **({"window": group.window} | one_more if group.capped else {}),
        )
        for group in read.kv_groups
    ]
    assert tuple(kept) == tabulated.groups
    assert read.name == name
    assert read.max_position == tabulated.max_position == int(row["max_pos"])
    assert read.layers + read.state_layers == int(row["layers"])
    assert bool(read.state_layers) == ("linear" in row["attn"])
    if not one_more:
        for tokens in (1, 4096, 32768):
            assert read.cache_bytes(tokens) == tabulated.cache_bytes(tokens)


def test_the_record_is_whole() -> None:
    assert set(ROWS) <= set(PUBLISHED)
    assert all(entry["from"] for entry in PUBLISHED.values())
    script = runpy.run_path(str(FOLDER / "record_transformers.py"))
    assert (
        RECORDED["head"] | {"transformers": script["VERSION"], "tokens": script["TOKENS"]}
        == (RECORDED["head"])
    )
    assert all(case.split(":")[0] == row["config"]["model_type"] for case, row in CASES.items())
    # Types without a causal model of their own share the reader of one that was run.
    run = {row["config"]["model_type"] for row in CASES.values()}
    known = {kind for kind, defaults in DEFAULTS.items() if defaults is not None}
    readers = {FAMILIES[kind].read for kind in run}
    assert all(FAMILIES[kind].read in readers for kind in known - run)
    assert set(DEFAULTS) == set(FAMILIES)


def groups_of(model: kv.Model) -> list[tuple[Any, ...]]:
    return [
        (group.kind, group.layers, group.kv_heads, group.head_dim, group.window)
        for group in model.kv_groups
    ]


OTHERS: dict[str, list[tuple[Any, ...]]] = {
    "Llama-4-Scout": [("full", 12, 8, 128, None), ("chunked", 36, 8, 128, 8192)],
    "Gemma-4-26B-A4B": [("full", 5, 2, 512, None), ("window", 25, 8, 256, 1024)],
    "Llama-3.3-Nemotron-Super-49B": [("full", 49, 8, 128, None)],
    "Kimi-K3": [("latent", 24, 1, 576, None)],
    "MiniMax-M2.5": [("full", 62, 8, 128, None)],
    "Nemotron-Nano-9B-v2": [("full", 4, 8, 128, None)],
    "Nemotron-H-56B": [("full", 10, 8, 128, None)],
    "Qwen3-VL-8B": [("full", 36, 8, 128, None)],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_growing_layers_come_first_then_capped_ones_then_states(name: str, tmp_path: Path) -> None:
    model = published(tmp_path, name)
    assert groups_of(model) == OTHERS.get(name, groups_of(model))
    order = [KINDS.index(group.kind) for group in model.groups]
    assert order == sorted(order)
    alike = [(group.kind, group.kv_heads, group.head_dim, group.window) for group in model.groups]
    assert len(set(alike)) == len(alike)


# --- What transformers caches -------------------------------------------------------------------
CHUNKED = ("llama4_text",)
# transformers repeats these K and V heads before it caches them; engines do not.
REPEATED = {"falcon:new": (4, 2)}


def expected_layers(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield what each layer kept, as transformers answered."""
    kind = row["config"]["model_type"]
    for layer in row["layers"]:
        if "kv_heads" in layer:
            heads, dim, value = layer["kv_heads"], layer["head_dim"], layer["value_dim"]
            if row["case"] in REPEATED:
                repeated, heads = REPEATED[row["case"]]
                assert layer["kv_heads"] == repeated
            window = layer.get("window")
            if "kv_lora_rank" in row["config"]:
                yield ("latent", heads, dim + value, 0, None)
            elif window is None:
                yield ("full", heads, dim, value, None)
            else:
                yield ("chunked" if kind in CHUNKED else "window", heads, dim, value, window)
        if "conv_states" in layer or "recurrent_states" in layer:
            (conv,) = layer.get("conv_states") or [[1, 0, 1]]
            (state,) = layer.get("recurrent_states") or [[1, 0]]
            elements = 1
            for size in state[1:]:
                elements *= size
            # transformers keeps as many inputs as the kernel is wide, engines one fewer
            yield ("state", conv[1] * (conv[2] - 1), elements)


def read_layers(model: kv.Model) -> Iterator[tuple[tuple[Any, ...], int]]:
    for group in model.groups:
        if group.kind == "state":
            sizes = {"convolution": 0, "recurrent": 0}
            for part in group.states:
                sizes[part.name.split()[0]] += part.units * part.elements_per_unit
            yield ("state", *sizes.values()), group.layers
        else:
            shape = (group.kind, group.kv_heads, group.head_dim, group.value_dim, group.window)
            yield shape, group.layers


@pytest.mark.parametrize("case", CASES)
def test_a_model_keeps_what_transformers_was_seen_to_cache(case: str, tmp_path: Path) -> None:
    row, tokens = CASES[case], RECORDED["head"]["tokens"]
    model = read(tmp_path, row["config"])
    assert Counter(dict(read_layers(model))) == Counter(expected_layers(row))
    # Windows hold what the next token needs.
    held = {(layer.get("window"), layer["tokens"]) for layer in row["layers"] if "tokens" in layer}
    for group in model.kv_groups:
        if group.kind == "chunked":
            continue  # of which transformers keeps a sliding window as long as a chunk
        # transformers drops what the next token does not attend to: one token of a full window
        after = min(tokens, group.window - 1) if group.window else tokens
        assert (group.window, after) in held
        assert group.tokens_kept(tokens) == min(tokens, group.window or tokens)


def default_kinds(defaults: dict[str, Any], layers: int) -> Counter[str]:
    """Count the layers of each kind that a class makes when a file says nothing."""
    if "layer_types" in defaults:
        types = Counter(defaults["layer_types"])
        dropped = defaults["layer_types"][layers - defaults.get("num_kv_shared_layers", 0) :]
        types -= Counter(dropped)
        names = {
            "full_attention": "full",
            "sliding_attention": "window",
            "chunked_attention": "chunked",
            "linear_attention": "state",
        }
        return Counter({names[kind]: number for kind, number in types.items()})
    windowed = bool(defaults.get("sliding_window"))
    return Counter({"window" if windowed else "full": layers})


# Their layers cannot be told from defaults: nothing keeps K and V, or a list is asked for.
NO_DEFAULT_LAYERS = {
    *("bamba", "dbrx", "falcon_h1", "granitemoehybrid", "kimi_linear"),
    *("lfm2", "lfm2_moe", "mpt", "nemotron_h"),
}
# Their class rounds hidden size over heads down; an inner config must name head_dim.
ROUNDED = {"glm4_moe", "glm4v_moe_text"}


@pytest.mark.parametrize("kind", [k for k, d in DEFAULTS.items() if d and k in FAMILIES])
def test_what_an_inner_config_leaves_out_is_what_the_class_takes(kind: str, tmp_path: Path) -> None:
    defaults = DEFAULTS[kind]
    for name, value in FAMILIES[kind].defaults.items():
        if name in defaults and name != "mamba_d_head":  # which a class computes from "auto"
            assert value == defaults[name], name
    if kind in NO_DEFAULT_LAYERS:
        return
    path = written(tmp_path, {"model_type": "llava", "text_config": {"model_type": kind}})
    if kind in ROUNDED:
        assert defaults["hidden_size"] % defaults["num_attention_heads"]
        refused("or head_dim, is needed", read_config, path)
        return
    model = read_config(path)
    layers = defaults["num_hidden_layers"]
    if "kv_lora_rank" in defaults:
        assert groups_of(model) == [
            ("latent", layers, 1, defaults["kv_lora_rank"] + defaults["qk_rope_head_dim"], None)
        ]
        return
    kinds: Counter[str] = Counter()
    for group in model.groups:
        kinds[group.kind] += group.layers
    assert kinds == default_kinds(defaults, layers)
    heads = defaults["num_attention_heads"]
    dim = defaults.get("head_dim") or defaults["hidden_size"] // heads
    kv_heads = defaults.get("num_key_value_heads") or heads
    if kind in ("falcon", "gpt_bigcode"):
        assert defaults["multi_query"]
        kv_heads = 1
    for group in model.kv_groups:
        full_of_gemma4 = kind == "gemma4_text" and group.kind == "full"
        wide = {layer["head_dim"] for layer in defaults.get("per_layer_config", {}).values()}
        assert {group.head_dim} == (wide if full_of_gemma4 else {dim})
        assert group.kv_heads == kv_heads
        window = defaults.get("sliding_window") or defaults.get("attention_chunk_size")
        assert group.window == (window if group.capped else None)
    assert "by class default" in model.source


# --- Ranks --------------------------------------------------------------------------------------
@pytest.mark.parametrize("heads", [1, 2, 4, 8, 12, 32, 40, 96])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 16, 32])
def test_a_rank_keeps_the_heads_it_reads(heads: int, ranks: int, tmp_path: Path) -> None:
    """Query head by query head: rank r has the r-th part of them, and needs the K they read."""
    for kv_heads in (n for n in range(1, heads + 1) if heads % n == 0):
        config = LLAMA | {
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 64,
        }
        path = written(tmp_path, config)
        divides = heads % ranks == 0
        if not divides or (kv_heads % ranks and ranks % kv_heads):
            with pytest.raises(kv.LedgerError, match=f"tensor_parallel is {ranks}; a number of"):
                read_config(path, tensor_parallel=ranks)
            continue
        share = heads // ranks
        read = [
            {q // (heads // kv_heads) for q in range(rank * share, (rank + 1) * share)}
            for rank in range(ranks)
        ]
        model = read_config(path, tensor_parallel=ranks)
        assert {model.kv_heads} == {len(one) for one in read}
        assert model.tensor_parallel == ranks


@pytest.mark.parametrize(
    ("name", "ranks"), [("Qwen3.5-27B", 4), ("Kimi-K3", 8), ("Nemotron-Nano-9B-v2", 4)]
)
def test_states_divide_among_ranks(name: str, ranks: int, tmp_path: Path) -> None:
    whole, rank = published(tmp_path, name), published(tmp_path, name, tensor_parallel=ranks)
    assert rank.state_bytes_per_request * ranks == whole.state_bytes_per_request


def test_states_of_a_rank(tmp_path: Path) -> None:
    """8 groups on 8 ranks divide; 1 group on 8 ranks is kept by each."""
    config = copy.deepcopy(PUBLISHED["Nemotron-Nano-9B-v2"]["config"]) | {"n_groups": 1}
    model = read(tmp_path, config)
    rank = read(tmp_path, config, tensor_parallel=8)
    (state,), (part) = (g for g in model.groups if g.kind == "state"), rank.groups[-1]
    convolution = 2 * 128 * 3 * 2  # B and C of one group: two states of 128, 3 inputs, 16-bit
    shared = state.state_bytes_per_layer - convolution
    assert part.state_bytes_per_layer == shared // 8 + convolution
    config = copy.deepcopy(PUBLISHED["Qwen3.5-27B"]["config"])
    config["text_config"] |= {"num_attention_heads": 32, "linear_num_key_heads": 12}
    path = written(tmp_path, config)
    message = "tensor_parallel is 8; a number of ranks that divides the 12 units of convolution"
    refused(message, read_config, path, tensor_parallel=8)
    whole = published(tmp_path, "DeepSeek-V3/R1")
    assert published(tmp_path, "DeepSeek-V3/R1", tensor_parallel=8).groups == whole.groups
    rank = read(tmp_path, LLAMA, tensor_parallel=2)
    refused("tensor_parallel is 2 already", rank.split, 2)


# --- Data types ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "arguments", "n_bytes"),
    [
        ({}, {}, 2),
        ({"torch_dtype": "float32"}, {}, 2),
        ({"torch_dtype": None}, {}, 2),
        ({"torch_dtype": None, "dtype": "float16"}, {}, 2),
        ({}, {"dtype": "float32"}, 4),
        ({}, {"dtype": "fp8"}, 1),
        ({}, {"dtype": "fp8_e5m2"}, 1),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}, {}, 1),
        ({"quantization_config": {"kv_cache_scheme": "FP8"}}, {}, 1),
        ({"compression_config": {"kv_cache_scheme": {"num_bits": 8}}}, {}, 1),
        ({"quantization_config": {"kv_cache_scheme": None}}, {}, 2),
        ({"quantization_config": {"quant_method": "fp8"}}, {}, 2),
        ({"quantization_config": None}, {}, 2),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}, {"dtype": "bfloat16"}, 2),
    ],
)
def test_the_width_of_the_cache_is_asked_for_or_read(
    change: dict[str, Any], arguments: dict[str, Any], n_bytes: int, tmp_path: Path
) -> None:
    assert read(tmp_path, LLAMA | change, **arguments).bytes_per_element == n_bytes


def test_quantisation_is_read_beside_or_inside_the_config(tmp_path: Path) -> None:
    written(tmp_path, LLAMA)
    beside = {"quantization": {"kv_cache_quant_algo": "FP8"}}
    written(tmp_path, beside, "hf_quant_config.json")
    assert read_config(tmp_path).bytes_per_element == 1
    written(tmp_path, {"quantization": {"kv_cache_quant_algo": None}}, "hf_quant_config.json")
    assert read_config(tmp_path).bytes_per_element == 2
    written(tmp_path, {"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "hf_quant_config.json")
    refused(r"kv_cache_quant_algo is 'NVFP4'; 8 bits", read_config, tmp_path)
    assert read_config(tmp_path, dtype="fp8").bytes_per_element == 1
    assert published(tmp_path, "Gemma-4-31B-NVFP4").bytes_per_element == 1
    assert published(tmp_path, "Qwen3-32B-FP8-Static").bytes_per_element == 1
    inner = {"model_type": "llava", "text_config": LLAMA | {"quantization_config": {}}}
    inner["text_config"]["quantization_config"] = {"kv_cache_scheme": {"num_bits": 8}}
    assert read(tmp_path, inner).bytes_per_element == 1


def test_the_width_of_a_state_is_asked_for_or_read(tmp_path: Path) -> None:
    """Qwen3.5-27B: 48 heads of 128 x 128 in float32, and 3 inputs of 10240 channels in 16 bits."""
    conv, state = 10240 * 3 * 2, 48 * 128 * 128
    for asked, n_bytes in ((None, 4), ("float32", 4), ("bfloat16", 2), ("fp8", 1)):
        group = published(tmp_path, "Qwen3.5-27B", state_dtype=asked).groups[-1]
        assert group.state_bytes_per_layer == conv + n_bytes * state
    cached = published(tmp_path, "Qwen3.5-27B", dtype="fp8").groups[-1]
    assert cached.state_bytes_per_layer == conv + 4 * state  # K and V alone
    config = CASES["qwen3_next"]["config"]
    narrow = read(tmp_path, config).groups[-1]
    wide = read(tmp_path, config | {"mamba_ssm_dtype": "float32"}).groups[-1]
    recurrent = 4 * 12 * 8
    assert wide.state_bytes_per_layer - narrow.state_bytes_per_layer == 2 * recurrent


# --- Where the model stands in the file, and the file in the folder -------------------------------
@pytest.mark.parametrize("inner", INNER_CONFIGS)
@pytest.mark.parametrize("wrapper", sorted(WRAPPERS - set(FAMILIES)))
def test_a_multimodal_language_model_is_read(wrapper: str, inner: str, tmp_path: Path) -> None:
    config = {"model_type": wrapper, inner: LLAMA, "vision_config": {"num_hidden_layers": 24}}
    assert read(tmp_path, config).groups == load_model("Llama-3.1-8B").groups


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS & set(FAMILIES)))
def test_older_multimodal_configs_are_flat(wrapper: str, tmp_path: Path) -> None:
    flat = LLAMA | {"model_type": wrapper}
    assert read(tmp_path, flat).groups == load_model("Llama-3.1-8B").groups
    nested = {"model_type": wrapper, "text_config": LLAMA | {"model_type": f"{wrapper}_text"}}
    assert read(tmp_path, nested).groups == load_model("Llama-3.1-8B").groups


def test_a_folder_a_file_and_a_path_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, LLAMA)
    models = [read_config(p) for p in (tmp_path, path, str(path))]
    models += [load_model(p) for p in (tmp_path, str(path))]
    assert len({model.groups for model in models}) == 1
    assert {model.name for model in models} == {tmp_path.name}
    assert kv.kv_bytes_per_token(str(path)) == kv.kv_bytes_per_token("Llama-3.1-8B")
    assert kv.slots_from_bytes(131072, str(tmp_path)) == 1
    assert read(tmp_path, LLAMA).source == "config.json (llama)"
    mistral = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    model = read(tmp_path, mistral | {"model_type": "mistral"})
    assert model.source == (
        "config.json (mistral); by class default num_key_value_heads 8, sliding_window 4096"
    )
    assert "no dtype, cached in 16 bits" in published(tmp_path, "MiniMax-M2.5").source
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen3-8B").mkdir()
    written(tmp_path / "Qwen3-8B", LLAMA)
    assert load_model("Qwen3-8B").layers == 36
    assert load_model("./Qwen3-8B").layers == 32


def test_the_name_is_that_of_the_folder_or_file_or_the_one_given(tmp_path: Path) -> None:
    (tmp_path / "org--model").mkdir()
    written(tmp_path / "org--model", LLAMA)
    assert read_config(tmp_path / "org--model").name == "org/model"
    assert (
        read_config(written(tmp_path, LLAMA, "Qwen--Qwen3-8B_config.json")).name == "Qwen/Qwen3-8B"
    )
    assert read_config(tmp_path / "org--model", name="mine").name == "mine"
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    model = read_config(written(folder, LLAMA))
    assert model.name == "<img src=x onerror=alert(1)>"
    lines = tmp_path / "a\nb\x1b[31m"
    lines.mkdir()
    assert read_config(written(lines, LLAMA)).name == "a\N{REPLACEMENT CHARACTER}b" + (
        "\N{REPLACEMENT CHARACTER}[31m"
    )


def test_windows_that_are_off_and_odd_json_are_read(tmp_path: Path) -> None:
    for off in (
        {"sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"layer_types": ["full_attention"] * 32},
        {"layer_types": None},
    ):
        model = read(tmp_path, LLAMA | off)
        assert model.groups == load_model("Llama-3.1-8B").groups
    text = "\ufeff" + json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")]})
    assert "Infinity" in text
    assert read(tmp_path, text).layers == 32


def test_code_that_a_config_names_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w').close()\n"
    for module in ("configuration_evil", "modeling_evil", "evil"):
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
    hooks = {
        "auto_map": {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"},
        "trust_remote_code": True,
        "transformers_version": "__import__('evil')",
        "_name_or_path": "$(touch ran)",
        "custom_pipelines": {"x": {"impl": "evil.Evil"}},
    }
    assert read(tmp_path, LLAMA | hooks).layers == 32
    assert not mark.exists()
    assert not {"evil", "configuration_evil", "modeling_evil"} & set(sys.modules)


# --- Bad input ------------------------------------------------------------------------------------
NUMBER = "a whole number of at least 1 is accepted"
BY_HAND = "give the shape by hand, as kvledger.Model(name, full_layers=..."

# A field of a good config, a bad value (...: the field goes), and how the message goes on.
BAD: list[tuple[str, Any, str]] = [
    ("num_hidden_layers", ..., " is missing; a llama config"),
    ("num_hidden_layers", None, f" is missing; {NUMBER}"),
    ("num_attention_heads", ..., " is missing; a llama"),
    ("hidden_size", ..., " is missing; a llama config needs it"),
    ("num_hidden_layers", -3, f" is -3; {NUMBER}"),
    ("num_key_value_heads", 0, f" is 0; {NUMBER}"),
    ("num_hidden_layers", True, f" is True; {NUMBER}"),
    ("head_dim", 128.0, f" is 128.0; {NUMBER}"),
    ("head_dim", float("inf"), f" is inf; {NUMBER}"),
    ("num_attention_heads", "32", f" is '32'; {NUMBER}"),
    ("hidden_size", [4096], f" is [4096]; {NUMBER}"),
    ("head_dim", {"a": 1}, f" is {{'a': 1}}; {NUMBER}"),
    ("head_dim", 10**30, " is 1000000000000000000000000000000; a whole"),
    ("num_hidden_layers", 10**9, f" is 1000000000; at most {MOST_LAYERS} are accepted"),
    ("hidden_size", 4097, " is 4097; a multiple of the 32 attention heads, or head_dim, is needed"),
    ("num_key_value_heads", 5, " gives 5 K and V heads; a number that divides the 32 attention he"),
    ("model_type", ..., " is missing; it names the architecture, and none"),
    ("model_type", None, " is missing; it names the architecture"),
    ("model_type", "lama", " is 'lama', not one of the"),
    ("model_type", "<script>alert(1)</script>", " is '<script>alert(1)</script>', not one of the"),
    ("model_type", ["llama"], " is ['llama'], not one of"),
    ("model_type", "", " is '', not one of the"),
    ("model_type", "deepseek_v32", " is 'deepseek_v32', which is not read (index_head_dim): its s"),
    ("is_encoder_decoder", True, " is true; a decoder alone"),
    ("dtype", "int3", " is 'int3'; bfloat16, float16 and float32"),
    (
        "quantization_config",
        {"kv_cache_scheme": {"num_bits": 4}},
        ".kv_cache_scheme is {'num_bits': 4}; 8 bits (num_bits 8, or FP8)",
    ),
    ("quantization_config", {"kv_cache_scheme": True}, ".kv_cache_scheme is True; 8 bits"),
    ("sliding_window", 4096, " is 4096; llama has no windows, so null is accepted"),
    (
        "layer_types",
        ["full_attention", "sliding_attention"],
        " is ['full_attention', 'sliding_attention']; llama has layers of full_attent",
    ),
    ("max_position_embeddings", -1, f" is -1; {NUMBER}"),
]


def changed(config: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (config | change).items() if value is not ...}


@pytest.mark.parametrize(("field", "value", "message"), BAD)
def test_a_bad_field_is_named(field: str, value: Any, message: str, tmp_path: Path) -> None:
    message, config = f"{field}{message}", changed(LLAMA, {field: value})
    path = written(tmp_path, config)
    assert refusal(path).startswith(f"{path}: {message}")
    if value is ... and field != "model_type":
        return  # an inner config may leave out what its class takes by default
    path = written(tmp_path, {"model_type": "gemma3", "text_config": config})
    places = (f"{path}: text_config.{message}", f"{path}: text model's {message}")
    assert refusal(path).startswith((*places, f"{path}: {message}"))


# The same of recorded configs, where the value means nothing.
BAD_LAYERS: dict[str, list[tuple[str, Any, str]]] = {
    "gemma2": [
        ("layer_types", ["full_attention"], " has 1 entries; one for each of 6 layers"),
        (
            "layer_types",
            ["full_attention"] * 5 + ["mystery"],
            "[5] is 'mystery'; known are: full_attention, sliding_attention",
        ),
        ("layer_types", "full", " is 'full'; a list of"),
        ("sliding_window", None, " is missing; a whole number"),
    ],
    "exaone4": [("sliding_window_pattern", "LLLG", " is 'LLLG'; a whole number")],
    "gemma3_text": [("use_bidirectional_attention", True, " says that it encodes")],
    "gemma3n_text:2 shared": [("num_kv_shared_layers", 10, " is 10; fewer than the 10 layers")],
    "gpt2": [("num_hidden_layers", 4, " is 4 but n_layer is 3")],
    "qwen3_moe": [("use_sliding_window", True, " is true; which layers that means is not settled")],
    "qwen2:on": [("use_sliding_window", "yes", " is 'yes'; true or false is accepted")],
    "llama4_text": [
        ("no_rope_layers", [1, 0], " is not a list of 6 zeros and ones"),
        ("no_rope_layers", [1, 0, 1, 1, 1, 2], "[5] is 2; 0 or 1 is accepted"),
    ],
    "deepseek_v3": [("kv_lora_rank", None, " is missing; a whole number")],
    "deepseek_v2": [("use_mla", False, " is false")],
    "qwen3_next": [
        ("linear_num_value_heads", None, " is missing"),
        ("linear_conv_kernel_dim", 1, " is 1; a whole number of at least 2"),
    ],
    "nemotron_h:marks": [
        ("mamba_ssm_cache_dtype", "float8", " is 'float8'; known are: float32"),
        ("hybrid_override_pattern", "M-M*-X", " is 'M-M*-X'; a text of M, *, -, E is accepted"),
        ("hybrid_override_pattern", "M*", " has 2 layers; num_hidden_layers is 6"),
        ("hybrid_override_pattern", ..., " is missing; a nemotron_h config needs it"),
    ],
    "bamba": [
        ("mamba_d_head", 17, " is 17; 8 heads of it are not mamba_expand x hidden_size = 128"),
        ("attn_layer_indices", None, " is missing; a bamba config needs it"),
        ("attn_layer_indices", [6], "[0] is 6; there are 6 layers"),
        ("attn_layer_indices", [1, 1], "[1] is 1, which stands twice"),
    ],
    "jamba": [("attn_layer_offset", 4, " is 4; less than the period")],
    "granitemoehybrid:mamba": [("layer_types", None, " is missing")],
    "kimi_linear": [
        (
            "linear_attn_config",
            {"full_attn_layers": [2], "kda_layers": [1, 3, 4, 5]},
            ".full_attn_layers and kda_layers must hold each of the 6 layers once",
        ),
        (
            "linear_attn_config",
            {"full_attn_layers": [0], "kda_layers": [1]},
            ".full_attn_layers[0] is 0; a whole number of at least 1",
        ),
    ],
    "mpt": [
        ("attn_config", ..., " is missing; a mpt config needs it"),
        ("attn_config", 8, " is 8; an object is accepted"),
        ("attn_config", {"attn_type": "grouped"}, ".attn_type is 'grouped'; multihead_attention i"),
    ],
}


@pytest.mark.parametrize("base", BAD_LAYERS)
def test_layers_that_mean_nothing_are_named(base: str, tmp_path: Path) -> None:
    for field, value, message in BAD_LAYERS[base]:
        path = written(tmp_path, changed(CASES[base]["config"], {field: value}))
        assert refusal(path).startswith(f"{path}: {field}{message}")


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_an_architecture_that_is_not_read_says_why(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA | {"model_type": kind})
    field, why = REFUSED[kind]
    message = refusal(path)
    assert f"model_type is {kind!r}, which is not read ({field}): {why}" in message
    assert BY_HAND in message
    assert kind not in known_model_types()


@pytest.mark.parametrize("name", ["Qwen3.5-27B", "Kimi-K3", "Gemma-3-27B", "Llama-4-Scout"])
def test_a_multimodal_config_needs_its_language_model(name: str, tmp_path: Path) -> None:
    config = copy.deepcopy(PUBLISHED[name]["config"])
    inner = config.pop("text_config")
    refused(r"text_config is missing; a \w+ config has one of", read, tmp_path, config)
    config |= {"text_config": inner, "llm_config": inner}
    refused("text_config text_config and llm_config are there", read, tmp_path, config)
    for value in ([inner], "text", 8):
        with pytest.raises(kv.LedgerError, match=r"text_config is .*; an object is accepted"):
            read(tmp_path, config | {"text_config": value, "llm_config": None})


NO_CONFIG: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "line 1, column 1: no JSON (Expecting value)"),
    "half": ('{"model_type": "llama",', "line 1, column 24: no JSON"),
    "yaml": ("model_type: llama", "line 1, column 1: no JSON"),
    "a list": ("[1, 2]", "a JSON list; accepted: a Hugging Face config.json"),
    "a number": ("8", "a JSON number; accepted"),
    "a text": ('"llama"', "a JSON text; accepted"),
    "null": ("null", "a JSON null; accepted"),
    "a key twice": ('{"a": 1, "a": 2}', "the key 'a' stands twice; once is accepted"),
    "an inner key twice": ('{"b": {"<a>": 1, "<a>": 1}}', "the key '<a>' stands twice"),
    "no UTF-8": (b'{"a": "\xff"}', "no UTF-8 at byte 7"),
    "deep": ("[" * 100_000 + "]" * 100_000, "nested too deeply to be read"),
    "deep objects": ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply to be read"),
    "many digits": (f'{{"a": {"9" * 5000}}}', "a number of more digits than Python reads"),
}


@pytest.mark.parametrize("case", NO_CONFIG)
def test_a_file_that_is_no_config_is_named(case: str, tmp_path: Path) -> None:
    content, message = NO_CONFIG[case]
    path = tmp_path / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = refusal(path)
    assert said.startswith(f"{path}: {message}")
    assert "Hugging Face config.json" in said or "twice" in message


def test_what_is_not_there_or_no_file_is_named(tmp_path: Path) -> None:
    accepted = "accepted: a Hugging Face config.json, or the folder that holds one"
    absent, empty = tmp_path / "absent", tmp_path / "empty"
    empty.mkdir()
    for path, message in (
        (absent, f"{absent}: no such file or folder; {accepted}"),
        (empty, f"{empty}: a folder without a config.json; {accepted}"),
        (Path("/dev/null"), f"/dev/null: not a regular file; {accepted}"),
    ):
        assert refusal(path) == message
    for nothing in ("", None, 8, ["x"], b"x"):
        refused(r"^path is .*; accepted: a Hugging Face", read_config, nothing)
    for odd in ("a\0b", "x" * 5000):
        refused("accepted: a Hugging Face config", read_config, odd)
        refused(r"model is .* known are", load_model, odd)


def test_bad_arguments_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, LLAMA)
    for ranks in (0, -1, 1.5, True, "2", None):
        with pytest.raises(kv.LedgerError, match=r"tensor_parallel is .*; a whole number of ranks"):
            read_config(path, tensor_parallel=ranks)
    for name in ("dtype", "state_dtype"):
        for value in ("int4", "auto", "", 8):
            refused(r"dtype is .*; known are: float32", read_config, path, **{name: value})
    path = written(tmp_path, LLAMA | {"model_type": "qwen9"})
    message = refusal(path)
    assert f"not one of the {len(known_model_types())} known architectures, among them" in message
    assert re.search(r"among them .*qwen3", message)
    assert BY_HAND in message
    monkeypatch.setattr("kvledger.models.config_fields._LARGEST_BYTES", 100)
    path = written(tmp_path, LLAMA)
    refused("more than 100 bytes", read_config, path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.integers(-3, 300)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "auto", "llama", "float32"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_value_gives_a_model_or_one_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    configs = [row["config"] for row in CASES.values()]
    configs += [entry["config"] for entry in PUBLISHED.values()]
    config = copy.deepcopy(data.draw(st.sampled_from(configs)))
    target = config
    if isinstance(config.get("text_config"), dict) and data.draw(st.booleans()):
        target = config["text_config"]
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON)
    path = written(tmp_path, config)
    ranks = data.draw(st.sampled_from([1, 2, 3, 8]))
    message = ""
    try:
        model = read_config(path, tensor_parallel=ranks)
    except kv.LedgerError as error:
        message = str(error)
    if message:
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
    else:
        assert model.layers >= 1
        assert model.kv_bytes_per_token >= 1
        assert model.request_bytes(1) >= model.cache_bytes(1) >= 1


# --- Models of several widths -----------------------------------------------------------------
def test_a_size_that_differs_between_layers_is_read_from_its_group(tmp_path: Path) -> None:
    model = published(tmp_path, "Gemma-4-26B-A4B", name="gemma")
    per_token = 5 * 2 * 2 * 512 * 2 + 25 * 2 * 8 * 256 * 2
    assert model.kv_bytes_per_token == per_token
    assert model.growth_bytes_per_token == 5 * 2 * 2 * 512 * 2
    assert model.window == 1024
    assert model.window_cap_bytes == 1024 * 25 * 2 * 8 * 256 * 2
    for field, values in (("kv_heads", "2, 8"), ("head_dim", "256, 512")):
        message = rf"gemma: {field} differs between layers \({values}\); read it from groups"
        refused(message, getattr, model, field)


def test_layers_of_a_pruned_model_may_all_differ(tmp_path: Path) -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 8, "no_op": False}},
        {"attention": {"n_heads_in_group": None, "no_op": True}},
        {"attention": {"n_heads_in_group": 16, "no_op": False, "replace_with_linear": False}},
        {"attention": {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}},
    ]
    config = LLAMA | {
        "model_type": "nemotron-nas",
        "num_hidden_layers": 4,
        "num_key_value_heads": None,
        "block_configs": blocks,
    }
    assert groups_of(read(tmp_path, config)) == [
        ("full", 1, 4, 128, None),
        ("full", 1, 2, 128, None),
    ]
    blocks[0]["attention"]["window_length"] = 1024
    refused(r"block_configs\[0\].attention.window_length is set", read, tmp_path, config)


def test_architectures_of_their_own_words(tmp_path: Path) -> None:
    config = {
        "model_type": "chatglm",
        "num_layers": 40,
        "num_attention_heads": 32,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "kv_channels": 128,
        "hidden_size": 4096,
        "seq_length": 131072,
        "torch_dtype": "bfloat16",
    }
    model = read(tmp_path, config)
    assert groups_of(model) == [("full", 40, 2, 128, None)]
    assert model.max_position == 131072
    every = read(tmp_path, config | {"multi_query_attention": False})
    assert every.kv_heads == 32
    del config["multi_query_attention"]
    refused("multi_query_attention is missing", read, tmp_path, config)
    config = LLAMA | {
        "model_type": "minimax_text_01",
        "num_hidden_layers": 8,
        "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1],
    }
    model = read(tmp_path, config)
    assert groups_of(model) == [("full", 1, 8, 128, None)]
    assert model.groups[-1].state_bytes_per_layer == 32 * 128 * 128 * 2
    with pytest.raises(kv.LedgerError, match="attn_type_list is not a list of 8 zeros and ones"):
        read(tmp_path, config | {"attn_type_list": [0, 1]})
    # transformers writes the heads of full layers so when it saves a config itself.
    case = CASES["gemma4_text:True 1"]["config"]
    plain = read(tmp_path, case)
    saved = changed(case, {"global_head_dim": ..., "num_global_key_value_heads": ...})
    saved["per_layer_config"] = {
        "05": {"head_dim": 32, "num_key_value_heads": 1},
        "7": {"head_dim": 32, "num_key_value_heads": 1},
    }
    assert read(tmp_path, saved).groups == plain.groups
    saved["per_layer_config"]["8"] = {}
    refused(r"per_layer_config.8 is no layer; the 8 layers", read, tmp_path, saved)


def test_a_group_of_bad_sizes_is_an_error() -> None:
    good: dict[str, Any] = {"kind": "full", "layers": 2, "kv_heads": 8, "head_dim": 64}
    part = StateTensor("state", 4, 8, 2)
    for change, message in (
        ({"kind": "linear"}, "kind is 'linear'; known are: full, latent, window, chunked, state"),
        ({"layers": 0}, "full layers: layers is 0"),
        ({"kind": "window"}, "window layers: window is missing"),
        ({"kind": "chunked", "window": 0}, "chunked layers: window is 0"),
        ({"kind": "latent", "value_dim": 64}, "latent layers: value_dim is 64; one vector"),
        ({"value_dim": -1}, "full layers: value_dim is -1"),
        ({"kind": "state"}, "state layers: states is empty"),
        ({"kind": "state", "states": (part._replace(units=0),)}, "state layers: units of state"),
    ):
        assert refused("", LayerGroup, **good | change).startswith(message)


def test_a_model_is_made_from_groups_or_from_sizes(tmp_path: Path) -> None:
    group = LayerGroup(kind="full", layers=2, kv_heads=8, head_dim=64)
    made = kv.Model("mine", groups=[group])
    assert made == kv.Model("mine", full_layers=2, kv_heads=8, head_dim=64)
    assert hash(made) == hash(kv.Model("mine", 2, 8, 64))
    with pytest.raises(kv.LedgerError, match="mine: groups and sizes; a model is made from one"):
        kv.Model("mine", full_layers=2, groups=[group])
    refused("mine: groups are not all LayerGroup", kv.Model, "mine", groups=["full"])
    state = LayerGroup(kind="state", layers=2, states=(StateTensor("state", 4, 8, 2),))
    refused("mine: no layers that keep K and V", kv.Model, "mine", groups=[state])
    both = kv.Model("mine", groups=[group, state])
    assert both.state_bytes_per_request == 2 * 4 * 8 * 2
    assert both.request_bytes(0) == both.cache_bytes(0) == 0
    assert both.request_bytes(3) - both.cache_bytes(3) == both.state_bytes_per_request
    assert (both.layers, both.state_layers, both.kv_heads) == (2, 2, 8)
    config = CASES["nemotron_h:marks"]["config"] | {"hybrid_override_pattern": "M-M-M-"}
    message = refusal(written(tmp_path, config))
    assert message.endswith(": no layer keeps K and V, so there is nothing to page")
