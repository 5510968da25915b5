"""KV bytes per token of a model, from the shape of its attention.

What a token costs depends on the layer. A full-attention layer keeps K and V of every token; a
sliding-window layer keeps those of the last ``window`` tokens only; a latent (MLA) layer keeps one
compressed vector instead of K and V heads. Linear-attention layers hold a fixed state and nothing
per token, and are not counted.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

from kvledger.datafiles import data_file
from kvledger.errors import LedgerError
from kvledger.lengths import whole

DTYPE_BYTES: dict[str, int] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
}
"""Bytes of one cached element. Scales that quantised caches keep beside are not counted."""


@dataclass(frozen=True, slots=True)
class Model:
    """The attention shape of a model: all that its KV cache's size depends on.

    Parameters
    ----------
    name : str
        What it is called.
    full_layers : int
        Layers that keep every token.
    window_layers : int
        Layers that keep the last ``window`` tokens.
    window : int or None
        Tokens a window layer keeps; None if there is no such layer.
    kv_heads : int
        K and V heads a layer; 1 for a latent layer.
    head_dim : int
        Elements a head; of a latent layer, its rank plus the rotary part.
    latent : bool
        Whether one vector stands for both K and V (MLA).
    bytes_per_element : int
        Bytes of a cached element.
    max_position : int or None
        Longest context, in tokens, where it is known.
    source : str
        Where the shape was read.

    Raises
    ------
    LedgerError
        For a negative or fractional size, no layer at all, or window layers without a window.

    Examples
    --------
    >>> Model("Qwen2.5-7B", full_layers=28, kv_heads=4, head_dim=128).kv_bytes_per_token
    57344
    """

    name: str
    full_layers: int
    kv_heads: int
    head_dim: int
    window_layers: int = 0
    window: int | None = None
    latent: bool = False
    bytes_per_element: int = 2
    max_position: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        sizes = ("kv_heads", "head_dim", "bytes_per_element")
        for field in ("full_layers", "window_layers", *sizes):
            least = 1 if field in sizes else 0
            value = whole(
                getattr(self, field),
                f"{self.name}: {field}",
                minimum=least,
                accepted=f"a whole number of at least {least} is accepted",
            )
            object.__setattr__(self, field, value)
        if not self.layers:
            raise LedgerError(f"{self.name}: no layers that keep K and V; at least one is needed")
        if self.window_layers:
            window = whole(
                self.window,
                f"{self.name}: window",
                minimum=1,
                accepted="window layers need a window of at least one token",
            )
            object.__setattr__(self, "window", window)

    @property
    def layers(self) -> int:
        """Layers that keep K and V."""
        return self.full_layers + self.window_layers

    @property
    def kv_bytes_per_token_and_layer(self) -> int:
        """Bytes that one token takes in one layer."""
        vectors = 1 if self.latent else 2
        return vectors * self.kv_heads * self.head_dim * self.bytes_per_element

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token in every layer, which is what a slot takes if no window is used."""
        return self.layers * self.kv_bytes_per_token_and_layer

    @property
    def growth_bytes_per_token(self) -> int:
        """Bytes that each further token adds once the window is full."""
        return self.full_layers * self.kv_bytes_per_token_and_layer

    @property
    def window_cap_bytes(self) -> int:
        """Bytes at which the window layers of one request stop growing."""
        return self.window_layers * (self.window or 0) * self.kv_bytes_per_token_and_layer

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes that the K and V of one request need, window layers capped.

        Parameters
        ----------
        tokens : int
            Tokens the request holds.

        Examples
        --------
        >>> load_model("Gemma-2-9B").cache_bytes(4096) / 2**30
        1.3125
        """
        tokens = whole(tokens, "tokens", minimum=0, accepted="a whole number, at least 0")
        in_window = min(tokens, self.window or 0)
        layer_tokens = self.full_layers * tokens + self.window_layers * in_window
        return layer_tokens * self.kv_bytes_per_token_and_layer

    def window_waste(self, tokens: int) -> Fraction:
        """Return the share wasted if every layer is charged in full, as one page size for all does.

        Examples
        --------
        >>> half = Model("half windows of 4096", full_layers=1, window_layers=1, window=4096,
        ...              kv_heads=8, head_dim=128)
        >>> half.window_waste(8192)
        Fraction(1, 4)
        """
        tokens = whole(tokens, "tokens", minimum=1, accepted="a whole number, at least 1")
        return 1 - Fraction(self.cache_bytes(tokens), tokens * self.kv_bytes_per_token)

    def with_dtype(self, dtype: str) -> Model:
        """Return the same shape with another cache data type.

        Raises
        ------
        LedgerError
            For an unknown data type; the message lists the known ones.

        Examples
        --------
        >>> load_model("Llama-3.1-8B").with_dtype("fp8").kv_bytes_per_token
        65536
        """
        if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            raise LedgerError(f"dtype is {dtype!r}; known are: {', '.join(DTYPE_BYTES)}")
        return replace(self, bytes_per_element=DTYPE_BYTES[dtype])


@cache
def load_models() -> dict[str, Model]:
    """Return every model of ``data/models.csv`` by name.

    Examples
    --------
    >>> load_models()["Llama-2-70B"].layers
    80
    """
    path = data_file("models.csv")
    with path.open(encoding="utf-8", newline="") as file:
        models = [_from_row(row) for row in csv.DictReader(file)]
    return {model.name: model for model in models}


def load_model(model: str | Model) -> Model:
    """Return a model by its name in ``data/models.csv``; a :class:`Model` is returned as it is.

    Raises
    ------
    LedgerError
        For an unknown name; the message lists the known ones.
    """
    if isinstance(model, Model):
        return model
    models = load_models()
    if not isinstance(model, str) or model not in models:
        raise LedgerError(f"model is {model!r}; known are: {', '.join(models)}, or give a Model")
    return models[model]


def kv_bytes_per_token(
    model: str | Model, *, dtype: str | None = None, past_window: bool = False
) -> int:
    """Return the bytes that one token's K and V take in all layers.

    Parameters
    ----------
    model : str or Model
        Name in ``data/models.csv``, or a shape of your own.
    dtype : str, optional
        Data type of the cache; 16-bit if not given.
    past_window : bool
        Count only the layers that still grow once every window is full.

    Raises
    ------
    LedgerError
        For an unknown model or data type.

    Examples
    --------
    >>> kv_bytes_per_token("Llama-3.1-8B")
    131072
    >>> kv_bytes_per_token("gpt-oss-120b", past_window=True)
    36864
    """
    shape = load_model(model)
    if dtype is not None:
        shape = shape.with_dtype(dtype)
    return shape.growth_bytes_per_token if past_window else shape.kv_bytes_per_token


def _from_row(row: dict[str, str]) -> Model:
    return Model(
        name=row["model"],
        full_layers=int(row["full_layers"]),
        window_layers=int(row["window_layers"]),
        window=int(row["window"]) if row["window"] else None,
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        latent=row["attn"].startswith("MLA"),
        bytes_per_element=int(row["bytes_per_elem"]),
        max_position=int(row["max_pos"]) if row["max_pos"] else None,
        source=row["source"],
    )
