"""Families of models whose every layer keeps K and V, or one latent vector.

A family is how its fields are read, and what its configuration class takes for those that a file
leaves out: the defaults of Hugging Face transformers 5.24.0, against which a test holds them.
Architectures whose code is not in transformers have no defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvledger.core.errors import shown
from kvledger.models.config_fields import Fields
from kvledger.models.layers import LayerGroup

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


class Layers(NamedTuple):
    """What a config describes: its attention heads, and what each layer keeps."""

    attention_heads: int
    each: list[LayerGroup]


@dataclass(frozen=True)
class Family:
    """An architecture: how its layers are read, and what its files may leave out."""

    read: Callable[[Fields], Layers]
    defaults: Mapping[str, Any]


def family(read: Callable[[Fields], Layers], *sizes: int | None, **other: Any) -> Family:
    """Return a family whose class has these defaults.

    ``sizes`` are the common ones: layers, heads, K and V heads, hidden size, size of a head; None
    where the class computes it from the others.
    """
    names = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    named = zip((*names, "hidden_size", "head_dim"), sizes, strict=False)
    return Family(read, {name: size for name, size in named if size} | other)


class Names(NamedTuple):
    """What a family calls the common sizes; a later name is accepted as well."""

    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    hidden: tuple[str, ...] = ("hidden_size",)
    head_dim: tuple[str, ...] = ("head_dim",)


PLAIN = Names()


class Heads(NamedTuple):
    """The heads of a layer that keeps K and V."""

    query: int
    kv: int
    dim: int

    def layer(self, kind: str, window: int | None = None) -> LayerGroup:
        """Return one layer of these heads."""
        return LayerGroup(kind=kind, layers=1, kv_heads=self.kv, head_dim=self.dim, window=window)


def heads_of(fields: Fields, names: Names = PLAIN, *, kv: int | None = None) -> Heads:
    """Read the heads; ``kv`` is the number of K and V heads where a flag decides it."""
    query = fields.whole(*names.heads)
    if kv is None:
        kv = fields.optional_whole(*names.kv_heads) or query
    if query % kv:
        accepted = f"a number that divides the {query} attention heads is accepted"
        fields.refuse((names.kv_heads or names.heads)[0], f"gives {kv} K and V heads; {accepted}")
    dim = fields.optional_whole(*names.head_dim)
    if dim is None:
        hidden = fields.whole(*names.hidden)
        if hidden % query:
            also = f", or {names.head_dim[0]}," if names.head_dim else ""
            needed = f"a multiple of the {query} attention heads{also} is needed"
            fields.refuse(names.hidden[0], f"is {hidden}; {needed}")
        dim = hidden // query
    return Heads(query, kv, dim)


# --- Every layer keeps the same -----------------------------------------------------------------


def no_windows(fields: Fields) -> None:
    """Raise if a file asks for windows that its architecture does not have.

    transformers passes over such a field and engines act on it, so what it means is not settled.
    """
    window, types, kind = fields.get("sliding_window"), fields.get("layer_types"), fields.model_type
    if window is not None and fields.get("use_sliding_window") is not False:
        accepted = f"{kind} has no windows, so null is accepted"
        fields.refuse("sliding_window", f"is {shown(window)}; {accepted}")
    if types is not None and (not isinstance(types, list) or set(map(str, types)) - {FULL}):
        fields.refuse("layer_types", f"is {shown(types)}; {kind} has layers of {FULL} alone")


def no_windows_of_experts(fields: Fields) -> None:
    """Raise if a Qwen MoE model has windows, on which the implementations do not agree."""
    if fields.flag("use_sliding_window"):
        unsettled = "which layers that means is not settled, so give the shape by hand"
        fields.refuse("use_sliding_window", f"is true; {unsettled}")


def uniform(
    names: Names = PLAIN,
    kv: Callable[[Fields], int | None] = lambda fields: None,
    check: Callable[[Fields], None] = no_windows,
) -> Callable[[Fields], Layers]:
    """Read a model whose layers all keep K and V of every token."""

    def read(fields: Fields) -> Layers:
        check(fields)
        heads = heads_of(fields, names, kv=kv(fields))
        return Layers(heads.query, [heads.layer("full")] * fields.layers(*names.layers))

    return read


def _falcon_kv(fields: Fields) -> int | None:
    """One K and V head, unless the new decoder names how many."""
    if fields.flag("new_decoder_architecture"):
        return fields.optional_whole("num_kv_heads", "n_head_kv")
    return _multi_query_kv(fields)


def _multi_query_kv(fields: Fields) -> int | None:
    return 1 if fields.flag("multi_query") else None


def _chatglm_kv(fields: Fields) -> int | None:
    """Read groups of queries, from ChatGLM2 to GLM-4, if ``multi_query_attention``."""
    if "multi_query_attention" not in fields.values:
        fields.missing("multi_query_attention")
    grouped = fields.flag("multi_query_attention")
    return fields.whole("multi_query_group_num") if grouped else None


def _attn_config_kv(fields: Fields) -> int | None:
    """DBRX and MPT keep ``kv_n_heads`` in an object of their own."""
    inner = fields.inner("attn_config")
    kind = inner.get("attn_type")
    if kind not in (None, "multihead_attention"):
        inner.refuse("attn_type", f"is {shown(kind)}; multihead_attention is accepted")
    return inner.optional_whole("kv_n_heads")


def latent_layer(fields: Fields) -> LayerGroup:
    """Return one MLA layer: the compressed vector and the rotary part of K, in one."""
    if fields.get("use_mla") is False:
        fields.refuse("use_mla", "is false; with MLA it is accepted, else give the shape by hand")
    size = fields.whole("kv_lora_rank") + fields.whole("qk_rope_head_dim", minimum=0)
    return LayerGroup(kind="latent", layers=1, kv_heads=1, head_dim=size)


def latent(fields: Fields) -> Layers:
    """Read a model with multi-head latent attention in every layer."""
    no_windows(fields)
    heads = fields.whole("num_attention_heads")
    return Layers(heads, [latent_layer(fields)] * fields.layers())


# --- A type for each layer ----------------------------------------------------------------------

Pattern = Callable[[Fields, int], list[str]]
State = Callable[[Fields, Heads], LayerGroup]
_SLIDING_TYPES = {FULL: FULL, SLIDING: SLIDING}


def typed(
    pattern: Pattern,
    known: Mapping[str, str] = _SLIDING_TYPES,
    state: State | None = None,
    *,
    sharing: bool = False,
) -> Callable[[Fields], Layers]:
    """Read a model with a type for each layer: ``layer_types`` if there, else the class's pattern.

    ``known`` says which types a file may name and what they mean (none, if the pattern alone
    counts); ``state`` is what a layer keeps that is not one of attention. With ``sharing``, the
    last layers may read what earlier ones keep.
    """

    def read(fields: Fields) -> Layers:
        heads, types = _heads_and_types(fields, pattern, known)
        each = typed_layers(fields, heads, types, state)
        return Layers(heads.query, _not_shared(fields, each) if sharing else each)

    return read


def _heads_and_types(
    fields: Fields, pattern: Pattern, known: Mapping[str, str]
) -> tuple[Heads, list[str]]:
    if fields.get("use_bidirectional_attention") in (True, "all"):
        fields.refuse("use_bidirectional_attention", "says that it encodes; a decoder is accepted")
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, known) if known else None
    return heads, pattern(fields, layers) if types is None else types


def typed_layers(
    fields: Fields, heads: Heads, types: list[str], state: State | None = None
) -> list[LayerGroup]:
    """Return the layers that a list of types means."""
    made = {kind: _layer(fields, heads, kind, state) for kind in dict.fromkeys(types)}
    return [made[kind] for kind in types]


def _layer(fields: Fields, heads: Heads, kind: str, state: State | None = None) -> LayerGroup:
    if kind == FULL:
        return heads.layer("full")
    if kind == SLIDING:
        return heads.layer("window", fields.whole("sliding_window"))
    if kind == CHUNKED:
        return heads.layer("chunked", fields.whole("attention_chunk_size"))
    assert state is not None
    return state(fields, heads)


def _not_shared(fields: Fields, each: list[LayerGroup]) -> list[LayerGroup]:
    """Drop the last layers, if they read K and V that earlier layers keep (Gemma 3n and 4)."""
    shared = fields.optional_whole("num_kv_shared_layers", minimum=0) or 0
    if shared >= len(each):
        fields.refuse("num_kv_shared_layers", f"is {shared}; fewer than the {len(each)} layers")
    return each[: len(each) - shared]


def every_nth(*names: str, n: int | None = None, other: str = SLIDING) -> Pattern:
    """Return the usual pattern: every n-th layer is full, n being fixed or a field."""

    def types(fields: Fields, layers: int) -> list[str]:
        step = fields.whole(*names) if n is None else n
        return [other if (i + 1) % step else FULL for i in range(layers)]

    return types


def _all_windowed(fields: Fields, layers: int) -> list[str]:
    """All layers are windowed where ``sliding_window`` is a number."""
    return [FULL if fields.optional_whole("sliding_window") is None else SLIDING] * layers


def _exaone4(fields: Fields, layers: int) -> list[str]:
    if fields.optional_whole("sliding_window") is None:
        return [FULL] * layers
    return every_nth("sliding_window_pattern")(fields, layers)


def _uses_windows(fields: Fields) -> bool:
    used = fields.flag("use_sliding_window")
    return used and fields.optional_whole("sliding_window") is not None


def _qwen(fields: Fields, layers: int) -> list[str]:
    """Windows from layer ``max_window_layers`` on, if they are used."""
    if not _uses_windows(fields):
        return [FULL] * layers
    first = fields.whole("max_window_layers", minimum=0)
    return [SLIDING if i >= first else FULL for i in range(layers)]


def _rotary(fields: Fields, layers: int) -> list[bool]:
    """Return which layers have rotary positions: ``no_rope_layers`` holds 1 where they do."""
    given = fields.get("no_rope_layers") not in (None, [])
    marks = fields.marks("no_rope_layers", layers) if given else None
    if marks is not None:
        return marks
    n = fields.whole("no_rope_layer_interval")
    return [(i + 1) % n != 0 for i in range(layers)]


def _smollm3(fields: Fields, layers: int) -> list[str]:
    """Windows, if used, on the layers without rotary positions."""
    used = _uses_windows(fields)
    return [SLIDING if used and not rope else FULL for rope in _rotary(fields, layers)]


def _llama4(fields: Fields, layers: int) -> list[str]:
    """Rotary layers attend to their chunk, the others to everything."""
    chunked = fields.optional_whole("attention_chunk_size") is not None
    return [CHUNKED if rope and chunked else FULL for rope in _rotary(fields, layers)]


def _gemma4(fields: Fields) -> Layers:
    """Read Gemma 4: full layers have wider heads, and other K and V heads where K is V."""
    heads, types = _heads_and_types(fields, every_nth(n=6), _SLIDING_TYPES)
    types[-1] = FULL  # as its class does
    changed: dict[int, Heads] = {}
    if fields.get("per_layer_config") is None:
        equal = fields.flag("attention_k_eq_v")
        kv = fields.optional_whole("num_global_key_value_heads") if equal else None
        wide = Heads(heads.query, kv or heads.kv, fields.whole("global_head_dim"))
        changed = {i: wide for i, kind in enumerate(types) if kind == FULL}
    else:
        named = fields.inner("per_layer_config")
        for key in named.values.keys() - {"model_type"}:
            if not key.isdecimal() or int(key) >= len(types):
                named.refuse(key, f"is no layer; the {len(types)} layers are counted from 0")
            one = named.inner(key)
            kv = one.optional_whole("num_key_value_heads") or heads.kv
            changed[int(key)] = Heads(heads.query, kv, one.optional_whole("head_dim") or heads.dim)
    each = [_layer(fields, changed.get(i, heads), kind) for i, kind in enumerate(types)]
    return Layers(heads.query, _not_shared(fields, each))


def _nemotron_nas(fields: Fields) -> Layers:
    """Read pruned Llama-Nemotron models: each layer has its own heads, or none."""
    query, layers = fields.whole("num_attention_heads"), fields.layers()
    blocks = fields.get("block_configs")
    if blocks is None:
        fields.missing("block_configs")
    if not isinstance(blocks, list) or len(blocks) != layers:
        fields.refuse("block_configs", f"is not a list of {layers} objects, one a layer")
    each = []
    for i, block in enumerate(blocks):
        place = f"block_configs[{i}]"
        if not isinstance(block, dict):
            fields.refuse(place, "is not an object")
        one = Fields(fields.path, block, f"{fields.prefix}{place}.").inner("attention")
        if one.flag("no_op") or one.flag("replace_with_linear"):
            continue
        for unread in ("window_length", "num_sink_tokens", "sparsify"):
            if one.get(unread) not in (None, False):
                one.refuse(unread, "is set; layers that keep all K and V are accepted")
        group = one.whole("n_heads_in_group")
        if query % group:
            one.refuse("n_heads_in_group", f"is {group}; it must divide the {query} heads")
        each.append(heads_of(fields, kv=query // group).layer("full"))
    return Layers(query, each)


# --- The families -------------------------------------------------------------------------------

_OLDER_NAMES = Names(
    layers=("n_layer", "num_hidden_layers"),
    heads=("n_head", "num_attention_heads"),
    kv_heads=(),
    hidden=("n_embd", "hidden_size"),
    head_dim=(),
)
_XGLM_NAMES = Names(
    ("num_layers", "num_hidden_layers"),
    ("attention_heads", "num_attention_heads"),
    (),
    ("d_model", "hidden_size"),
    (),
)
_FALCON_NAMES = Names(
    ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"), (), head_dim=()
)
_CHATGLM_NAMES = Names(("num_layers", *PLAIN.layers), kv_heads=(), head_dim=("kv_channels",))
_LIKE_LLAMA = (
    *("apertus", "granite", "granitemoe", "hunyuan_v1_dense", "hunyuan_v1_moe", "llama"),
    *("olmo", "olmo2"),
)
_WITHOUT_DEFAULTS = ("aquila", "deepseek", "internlm", "internlm2", "minicpm", "orion")
_full = uniform()
_no_kv_names = uniform(Names(kv_heads=(), head_dim=()))
_older = uniform(_OLDER_NAMES)
_bloom = uniform(_OLDER_NAMES._replace(hidden=("hidden_size", "n_embed")))
_multi_query = uniform(_OLDER_NAMES, _multi_query_kv)
_falcon = uniform(_FALCON_NAMES, _falcon_kv)
_attn_config = uniform(Names(("n_layers",), ("n_heads",), (), ("d_model",), ()), _attn_config_kv)
_experts_of_qwen = uniform(check=no_windows_of_experts)
_windowed = typed(_all_windowed)
_qwen_windows = typed(_qwen)
_pattern_named = typed(every_nth("sliding_window_pattern", "_sliding_window_pattern"))
_every_2nd, _every_4th = typed(every_nth(n=2)), typed(every_nth(n=4))
_gemma3n = typed(every_nth(n=5), sharing=True)
_chunked = typed(_llama4, {FULL: FULL, CHUNKED: CHUNKED})
_falcon_flags = {"multi_query": True, "new_decoder_architecture": False}
_every = {"sliding_window": 4096, "sliding_window_pattern": 4}
_gemma3_sizes = {**_every, "sliding_window_pattern": 6, "max_position_embeddings": 131072}
_gemma3n_sizes = {"num_kv_shared_layers": 15, "max_position_embeddings": 32768}
_gemma4_sizes = {
    "num_kv_shared_layers": 0,
    "global_head_dim": 512,
    "attention_k_eq_v": False,
    "max_position_embeddings": 131072,
}
_llama4_sizes = {"attention_chunk_size": 8192, "no_rope_layer_interval": 4}
_no_windows: dict[str, Any] = {"use_sliding_window": False, "sliding_window": None}
_qwen_sizes = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_qwen_vl_sizes = {**_qwen_sizes, "max_window_layers": 80}
_qwen_vl = family(_qwen_windows, 80, 64, 8, 8192, **_qwen_vl_sizes)
_mla = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}

ATTENTION_FAMILIES: dict[str, Family] = {
    # every layer keeps everything
    **dict.fromkeys(_LIKE_LLAMA, family(_full, 32, 32, None, 4096)),
    "arcee": family(_full, 32, 32, None, 2560),
    "biogpt": family(_no_kv_names, 24, 16, None, 1024),
    "cohere": family(_full, 40, 64, None, 8192),
    "ernie4_5": family(_full, 18, 16, 2, 1024, 128),
    "ernie4_5_moe": family(_full, 28, 20, 4, 2560),
    "gemma": family(_full, 28, 16, 16, 3072, 256),
    **dict.fromkeys(("glm", "glm4"), family(_full, 40, 32, 2, 4096, 128)),
    "glm4_moe": family(_full, 46, 96, 8, 4096),
    "glm4v_text": family(_full, 40, 32, 2, 4096),
    "glm4v_moe_text": family(_full, 46, 96, 8, 4096),
    "gpt_neox": family(_no_kv_names, 44, 64, None, 6144),
    "minimax_m2": family(_full, 62, 48, 8, 3072, 128),
    "nemotron": family(_full, 32, 48, None, 6144),
    "olmoe": family(_full, 16, 16, None, 2048),
    "opt": family(_no_kv_names, 12, 12, None, 768),
    "persimmon": family(_no_kv_names, 36, 64, None, 4096),
    "phi": family(_full, 24, 32, None, 2048),
    "qwen2_moe": family(_experts_of_qwen, 24, 16, 16, 2048, use_sliding_window=False),
    "qwen3_moe": family(_experts_of_qwen, 24, 32, 4, 2048, use_sliding_window=False),
    "qwen3_vl_moe_text": family(_full, 24, 16, 16, 2048, 128),
    "qwen3_vl_text": family(_full, 32, 32, 32, 4096, 128),
    "seed_oss": family(_full, 64, 80, 8, 4096, 128),
    "stablelm": family(_full, 32, 32, 32, 2560),
    # the same, code not in transformers: nothing may be left out
    **dict.fromkeys(_WITHOUT_DEFAULTS, family(_full)),
    "baichuan": family(_no_kv_names),
    "qwen": family(uniform(Names(kv_heads=(), head_dim=("kv_channels",)))),
    # older names
    "bloom": family(_bloom, n_layer=2, n_head=8, hidden_size=64),
    "codegen": family(_older, n_layer=28, n_head=16, n_embd=4096),
    "gpt2": family(_older, n_layer=12, n_head=12, n_embd=768),
    "gptj": family(_older, n_layer=28, n_head=16, n_embd=4096),
    "xglm": family(uniform(_XGLM_NAMES), num_layers=24, attention_heads=16, d_model=1024),
    # one K and V head, or as many as a flag says
    "chatglm": family(uniform(_CHATGLM_NAMES, _chatglm_kv)),
    "dbrx": family(_attn_config, n_layers=24, n_heads=16, d_model=2048),
    "falcon": family(_falcon, 32, 71, None, 4544, **_falcon_flags),
    "gpt_bigcode": family(_multi_query, n_layer=12, n_head=12, n_embd=768, multi_query=True),
    "mpt": family(_attn_config, n_layers=24, n_heads=16, d_model=2048),
    "nemotron-nas": family(_nemotron_nas),
    # every layer windowed, or none
    "mistral": family(_windowed, 32, 32, 8, 4096, sliding_window=4096),
    "mixtral": family(_windowed, 32, 32, 8, 4096, sliding_window=None),
    "ministral": family(_windowed, 32, 32, 8, 4096, sliding_window=4096),
    "ministral3": family(_windowed, 34, 32, 8, 4096, 128, sliding_window=None),
    "phi3": family(_windowed, 32, 32, None, 3072, sliding_window=None),
    "phimoe": family(_windowed, 32, 32, 8, 4096, sliding_window=None),
    "starcoder2": family(_windowed, 30, 24, 2, 3072, sliding_window=None),
    # some layers windowed or chunked
    "cohere2": family(_pattern_named, 40, 64, None, 8192, **_every),
    "exaone4": family(typed(_exaone4), 32, 32, 32, 4096, **_every),
    "gemma2": family(_every_2nd, 26, 8, 4, 2304, 256, sliding_window=4096),
    "gemma3_text": family(_pattern_named, 26, 8, 4, 2304, 256, **_gemma3_sizes),
    "gemma3n_text": family(_gemma3n, 35, 8, 2, 2048, 256, sliding_window=512, **_gemma3n_sizes),
    "gemma4_text": family(_gemma4, 30, 8, 4, 2304, 256, sliding_window=512, **_gemma4_sizes),
    "gpt_oss": family(_every_2nd, 36, 64, 8, 2880, 64, sliding_window=128),
    "llama4_text": family(_chunked, 48, 40, 8, 5120, 128, **_llama4_sizes),
    "mimo": family(_qwen_windows),
    "olmo3": family(_every_4th, 32, 32, None, 4096, sliding_window=4096),
    "qwen2": family(_qwen_windows, 32, 32, 32, 4096, **_qwen_sizes),
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), _qwen_vl),
    "qwen3": family(_qwen_windows, 32, 32, 32, 4096, 128, **_qwen_sizes),
    "smollm3": family(typed(_smollm3), 36, 16, 4, 2048, **_no_windows, no_rope_layer_interval=4),
    # one latent vector (MLA)
    "deepseek_v2": family(latent, 32, 32, None, 4096, **_mla),
    "deepseek_v3": family(latent, 61, 128, None, 7168, **_mla),
    "glm4_moe_lite": family(latent, 47, 20, None, 2048, **_mla),
    "kimi_k2": family(latent),
    "minicpm3": family(latent, 62, 40, None, 2560, kv_lora_rank=256, qk_rope_head_dim=32),
}
"""By ``model_type``."""
