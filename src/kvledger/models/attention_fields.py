"""Read the layers of models that keep K and V, or one latent vector, in every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvledger.core.errors import shown
from kvledger.models.config_fields import MISSING, Fields
from kvledger.models.layers import LayerGroup
from kvledger.models.states import Widths

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


class Layers(NamedTuple):
    """What a config describes: its attention heads, and what each layer keeps."""

    attention_heads: int
    each: list[LayerGroup]


Reader = Callable[[Fields, Widths], Layers]


class Names(NamedTuple):
    """What a family calls the common sizes; a later name is accepted as well."""

    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    hidden: tuple[str, ...] = ("hidden_size",)
    head_dim: tuple[str, ...] = ("head_dim",)


OLDER = Names(
    layers=("n_layer", "num_hidden_layers"),
    heads=("n_head", "num_attention_heads"),
    kv_heads=(),
    hidden=("n_embd", "hidden_size"),
    head_dim=(),
)
PLAIN = Names()


class Heads(NamedTuple):
    """The heads of a layer that keeps K and V."""

    query: int
    kv: int
    dim: int

    def layer(self, kind: str, widths: Widths, window: int | None = None) -> LayerGroup:
        """Return one layer of these heads."""
        return LayerGroup(
            kind=kind,
            layers=1,
            kv_heads=self.kv,
            head_dim=self.dim,
            window=window,
            bytes_per_element=widths.kv,
        )


def heads_of(fields: Fields, names: Names = PLAIN, *, kv: int | None = None) -> Heads:
    """Read the heads; ``kv`` is the number of K and V heads where a flag decides it."""
    query = fields.whole(*names.heads)
    if kv is None:
        given = fields.optional_whole(*names.kv_heads) if names.kv_heads else None
        kv = query if given is None else given
    if query % kv:
        fields.refuse(
            names.kv_heads[0] if names.kv_heads else names.heads[0],
            f"gives {kv} K and V heads; a number that divides the {query} attention heads "
            "is accepted",
        )
    dim = fields.optional_whole(*names.head_dim) if names.head_dim else None
    if dim is None:
        hidden = fields.whole(*names.hidden)
        if hidden % query:
            also = f", or {names.head_dim[0]}," if names.head_dim else ""
            fields.refuse(
                names.hidden[0],
                f"is {hidden}; a multiple of the {query} attention heads{also} is needed",
            )
        dim = hidden // query
    return Heads(query, kv, dim)


def uniform(kind: str, names: Names = PLAIN) -> Reader:
    """Read a model whose layers all keep the same."""

    def read(fields: Fields, widths: Widths) -> Layers:
        no_windows(fields)
        heads = heads_of(fields, names)
        return Layers(heads.query, [heads.layer(kind, widths)] * fields.layers(*names.layers))

    return read


def no_windows(fields: Fields) -> None:
    """Raise if a file asks for windows that its architecture does not have.

    transformers passes over such a field and engines act on it, so what it means is not settled.
    """
    window = fields.get("sliding_window")
    off = fields.get("use_sliding_window") is False
    if window not in (None, MISSING) and not off:
        fields.refuse(
            "sliding_window",
            f"is {shown(window)}; {fields.model_type} has no windows, so null is accepted",
        )
    types = fields.get("layer_types")
    if types not in (None, MISSING) and (
        not isinstance(types, list) or set(map(str, types)) - {FULL}
    ):
        fields.refuse(
            "layer_types",
            f"is {shown(types)}; {fields.model_type} has layers of {FULL} alone",
        )


def windowed(fields: Fields, widths: Widths) -> Layers:
    """Read a model whose layers are all windowed where ``sliding_window`` is a number."""
    heads, layers = heads_of(fields), fields.layers()
    window = fields.optional_whole("sliding_window")
    each = FULL if window is None else SLIDING
    types = fields.words("layer_types", layers, (FULL, SLIDING)) or [each] * layers
    return Layers(heads.query, typed_layers(fields, widths, heads, types))


def typed_layers(
    fields: Fields,
    widths: Widths,
    heads: Heads,
    types: Iterable[str],
    state: LayerGroup | None = None,
) -> list[LayerGroup]:
    """Return the layers that a list of types means; ``state`` is what a linear one keeps."""
    made: dict[str, LayerGroup] = {}
    result = []
    for kind in types:
        if kind not in made:
            if kind == SLIDING:
                made[kind] = heads.layer("window", widths, fields.whole("sliding_window"))
            elif kind == CHUNKED:
                made[kind] = heads.layer("chunked", widths, fields.whole("attention_chunk_size"))
            elif kind == FULL:
                made[kind] = heads.layer("full", widths)
            else:
                assert state is not None
                made[kind] = state
        result.append(made[kind])
    return result


def every_nth_full(
    *names: str, other: str = SLIDING, fixed: int | None = None
) -> Callable[[Fields, int], list[str]]:
    """Return the usual pattern: every n-th layer is full, n being a field or fixed."""

    def types(fields: Fields, layers: int) -> list[str]:
        n = fixed if fixed is not None else fields.whole(*names)
        return [other if (i + 1) % n else FULL for i in range(layers)]

    return types


def typed(pattern: Callable[[Fields, int], list[str]]) -> Reader:
    """Read a model with a type a layer: ``layer_types`` if there, else the class's pattern."""

    def read(fields: Fields, widths: Widths) -> Layers:
        if fields.get("use_bidirectional_attention") in (True, "all"):
            fields.refuse(
                "use_bidirectional_attention", "says that it encodes; a decoder is accepted"
            )
        heads, layers = heads_of(fields), fields.layers()
        types = fields.words("layer_types", layers, (FULL, SLIDING))
        types = types if types is not None else pattern(fields, layers)
        each = typed_layers(fields, widths, heads, types)
        return Layers(heads.query, not_shared(fields, each))

    return read


def not_shared(fields: Fields, each: list[LayerGroup]) -> list[LayerGroup]:
    """Drop the last layers, if they read K and V that earlier layers keep (Gemma 3n and 4)."""
    shared = fields.optional_whole("num_kv_shared_layers", minimum=0) or 0
    if shared >= len(each):
        fields.refuse("num_kv_shared_layers", f"is {shared}; fewer than the {len(each)} layers")
    return each[: len(each) - shared]


def qwen(fields: Fields, widths: Widths) -> Layers:
    """Read Qwen2 and Qwen3: windows from layer ``max_window_layers`` on, if they are used."""
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, SLIDING))
    if types is None:
        types = [FULL] * layers
        if (
            fields.flag("use_sliding_window")
            and fields.optional_whole("sliding_window") is not None
        ):
            first = fields.whole("max_window_layers", minimum=0)
            types = [SLIDING if i >= first else FULL for i in range(layers)]
    return Layers(heads.query, typed_layers(fields, widths, heads, types))


def qwen_moe(fields: Fields, widths: Widths) -> Layers:
    """Read Qwen MoE models, on whose windows the implementations do not agree."""
    if fields.flag("use_sliding_window"):
        fields.refuse(
            "use_sliding_window",
            "is true; which layers that means is not settled, so give the shape by hand",
        )
    heads = heads_of(fields)
    return Layers(heads.query, [heads.layer("full", widths)] * fields.layers())


def smollm3(fields: Fields, widths: Widths) -> Layers:
    """Read SmolLM3: windows, if used, on the layers without rotary positions."""
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, SLIDING))
    if types is None:
        windows = fields.flag("use_sliding_window")
        rotary = _rotary(fields, layers)
        used = windows and fields.optional_whole("sliding_window") is not None
        types = [SLIDING if used and not rope else FULL for rope in rotary]
    return Layers(heads.query, typed_layers(fields, widths, heads, types))


def _rotary(fields: Fields, layers: int) -> list[bool]:
    """Return which layers have rotary positions: ``no_rope_layers`` holds 1 where they do."""
    given = fields.get("no_rope_layers")
    if given in (None, MISSING, []):
        n = fields.whole("no_rope_layer_interval")
        return [(i + 1) % n != 0 for i in range(layers)]
    if not isinstance(given, list) or len(given) != layers:
        fields.refuse("no_rope_layers", f"is not a list of {layers} zeros and ones")
    for i, value in enumerate(given):
        if fields.checked(value, f"no_rope_layers[{i}]", 0) > 1:
            fields.refuse(f"no_rope_layers[{i}]", f"is {value}; 0 or 1 is accepted")
    return [bool(value) for value in given]


def llama4(fields: Fields, widths: Widths) -> Layers:
    """Read Llama 4: rotary layers attend to their chunk, the others to everything."""
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, CHUNKED))
    if types is None:
        chunked = fields.optional_whole("attention_chunk_size") is not None
        types = [CHUNKED if rope and chunked else FULL for rope in _rotary(fields, layers)]
    return Layers(heads.query, typed_layers(fields, widths, heads, types))


def gemma4(fields: Fields, widths: Widths) -> Layers:
    """Read Gemma 4: full layers have wider heads, and other K and V heads where K is V."""
    if fields.get("use_bidirectional_attention") == "all":
        fields.refuse("use_bidirectional_attention", "says that it encodes; a decoder is accepted")
    heads, layers = heads_of(fields), fields.layers()
    types = fields.words("layer_types", layers, (FULL, SLIDING))
    if types is None:
        types = every_nth_full(fixed=6)(fields, layers)
    types[-1] = FULL  # as its class does
    each = typed_layers(fields, widths, heads, types)
    by_layer = fields.get("per_layer_config")
    if by_layer is MISSING or by_layer is None:
        kv = None
        if fields.flag("attention_k_eq_v"):
            kv = fields.optional_whole("num_global_key_value_heads")
        wide = Heads(heads.query, kv or heads.kv, fields.whole("global_head_dim"))
        full = wide.layer("full", widths)
        each = [full if kind == FULL else layer for kind, layer in zip(types, each, strict=True)]
    else:
        each = _overridden(fields, widths, heads, types)
    return Layers(heads.query, not_shared(fields, each))


def _overridden(fields: Fields, widths: Widths, heads: Heads, types: list[str]) -> list[LayerGroup]:
    """Return layers of which ``per_layer_config`` overrides the heads of some."""
    named = fields.inner("per_layer_config")
    changes: dict[int, Heads] = {}
    for key in named.values:
        if key == "model_type":
            continue
        if not key.isdecimal() or int(key) >= len(types):
            named.refuse(key, f"is no layer; the {len(types)} layers are counted from 0")
        one = named.inner(key)
        changes[int(key)] = Heads(
            heads.query,
            one.optional_whole("num_key_value_heads") or heads.kv,
            one.optional_whole("head_dim") or heads.dim,
        )
    return [
        typed_layers(fields, widths, changes.get(i, heads), [kind])[0]
        for i, kind in enumerate(types)
    ]


def latent_layer(fields: Fields, widths: Widths) -> LayerGroup:
    """Return one MLA layer: the compressed vector and the rotary part of K, in one."""
    if fields.get("use_mla") is False:
        fields.refuse("use_mla", "is false; with MLA it is accepted, else give the shape by hand")
    size = fields.whole("kv_lora_rank") + fields.whole("qk_rope_head_dim", minimum=0)
    return LayerGroup(
        kind="latent", layers=1, kv_heads=1, head_dim=size, bytes_per_element=widths.kv
    )


def latent(fields: Fields, widths: Widths) -> Layers:
    """Read a model with multi-head latent attention in every layer."""
    no_windows(fields)
    heads = fields.whole("num_attention_heads")
    return Layers(heads, [latent_layer(fields, widths)] * fields.layers())


def falcon(fields: Fields, widths: Widths) -> Layers:
    """Read Falcon: one K and V head, unless the new decoder names how many."""
    query = ("num_attention_heads", "n_head")
    names = Names(("num_hidden_layers", "n_layer"), query, (), head_dim=())
    if fields.flag("new_decoder_architecture"):
        given = fields.optional_whole("num_kv_heads", "n_head_kv")
        kv = fields.whole(*query) if given is None else given
    else:
        kv = 1 if fields.flag("multi_query") else fields.whole(*query)
    heads = heads_of(fields, names, kv=kv)
    return Layers(heads.query, [heads.layer("full", widths)] * fields.layers(*names.layers))


def gpt_bigcode(fields: Fields, widths: Widths) -> Layers:
    """Read GPTBigCode: one K and V head if ``multi_query``."""
    heads = heads_of(fields, OLDER, kv=1 if fields.flag("multi_query") else None)
    return Layers(heads.query, [heads.layer("full", widths)] * fields.layers(*OLDER.layers))


def chatglm(fields: Fields, widths: Widths) -> Layers:
    """Read ChatGLM2 to GLM-4: groups of queries if ``multi_query_attention``."""
    groups = None
    if "multi_query_attention" not in fields.values:
        fields.missing("multi_query_attention")
    if fields.flag("multi_query_attention"):
        groups = fields.whole("multi_query_group_num")
    names = Names(("num_layers", "num_hidden_layers"), kv_heads=(), head_dim=("kv_channels",))
    heads = heads_of(fields, names, kv=groups)
    return Layers(heads.query, [heads.layer("full", widths)] * fields.layers(*names.layers))


def attention_object(fields: Fields, widths: Widths) -> Layers:
    """Read DBRX and MPT, which keep ``kv_n_heads`` in an object of their own."""
    names = Names(("n_layers",), ("n_heads",), (), ("d_model",), ())
    inner = fields.inner("attn_config")
    kind = inner.get("attn_type")
    if kind not in (MISSING, None, "multihead_attention"):
        inner.refuse("attn_type", f"is {kind!r:.60}; multihead_attention is accepted")
    heads = heads_of(fields, names, kv=inner.optional_whole("kv_n_heads"))
    return Layers(heads.query, [heads.layer("full", widths)] * fields.layers(*names.layers))


def nemotron_nas(fields: Fields, widths: Widths) -> Layers:
    """Read pruned Llama-Nemotron models: each layer has its own heads, or none."""
    query, layers = fields.whole("num_attention_heads"), fields.layers()
    blocks = fields.get("block_configs")
    if blocks is MISSING or blocks is None:
        fields.missing("block_configs")
    if not isinstance(blocks, list) or len(blocks) != layers:
        fields.refuse("block_configs", f"is not a list of {layers} objects, one a layer")
    each = []
    for i, block in enumerate(blocks):
        place = f"block_configs[{i}]"
        if not isinstance(block, dict):
            fields.refuse(place, "is not an object")
        one = Fields(fields.path, block, f"{fields.prefix}{place}.", {}).inner("attention")
        if one.flag("no_op") or one.flag("replace_with_linear"):
            continue
        for unread in ("window_length", "num_sink_tokens", "sparsify"):
            if one.get(unread) not in (MISSING, None, False):
                one.refuse(unread, "is set; layers that keep all K and V are accepted")
        group = one.whole("n_heads_in_group")
        if query % group:
            one.refuse("n_heads_in_group", f"is {group}; it must divide the {query} heads")
        each.append(heads_of(fields, kv=query // group).layer("full", widths))
    return Layers(query, each)
