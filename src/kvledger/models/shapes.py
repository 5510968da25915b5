"""The attention shape of a model, and what its KV cache takes.

What a token costs depends on the layer. A full-attention layer keeps K and V of every token; a
sliding-window layer keeps those of the last ``window`` tokens only, a chunked one those of the
current chunk; a latent (MLA) layer keeps one compressed vector instead of K and V heads. A
linear-attention layer holds a fixed state and nothing per token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole
from kvledger.models.layers import LayerGroup, dtype_bytes


@dataclass(frozen=True, slots=True, init=False)
class Model:
    """The attention shape of a model: all that its KV cache's size depends on.

    Layers that keep the same are one group. A model of one kind of layer, or of full and window
    layers of one width, is made from its sizes; any other from its ``groups``.

    Parameters
    ----------
    name : str
        What it is called.
    full_layers, window_layers : int
        Layers that keep every token, and those that keep the last ``window`` tokens.
    kv_heads, head_dim : int
        K and V heads a layer and elements a head; 1 head for a latent layer, of its rank plus the
        rotary part.
    window : int or None
        Tokens a window layer keeps; None if there is no such layer.
    latent : bool
        Whether one vector stands for both K and V (MLA).
    bytes_per_element : int
        Bytes of a cached element.
    max_position : int or None
        Longest context, in tokens, where it is known.
    source : str
        Where the shape was read.
    groups : iterable of LayerGroup
        The layers by what they keep, instead of the sizes above.
    tensor_parallel : int
        The number of ranks, if the shape is what one of them keeps.

    Raises
    ------
    LedgerError
        For a negative or fractional size, no layer that keeps K and V, window layers without a
        window, or both groups and sizes.

    Examples
    --------
    >>> Model("Qwen2.5-7B", full_layers=28, kv_heads=4, head_dim=128).kv_bytes_per_token
    57344
    """

    name: str
    groups: tuple[LayerGroup, ...]
    max_position: int | None
    source: str
    tensor_parallel: int

    def __init__(
        self,
        name: str,
        full_layers: int = 0,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        window_layers: int = 0,
        window: int | None = None,
        latent: bool = False,
        bytes_per_element: int = 2,
        max_position: int | None = None,
        source: str = "",
        *,
        groups: Iterable[LayerGroup] = (),
        tensor_parallel: int = 1,
    ) -> None:
        groups = list(groups)
        sizes = (full_layers, kv_heads, head_dim, window_layers, window, latent, bytes_per_element)
        if groups and sizes != (0, None, None, 0, None, False, 2):
            raise LedgerError(f"{name}: groups and sizes; a model is made from one or the other")
        if not groups:
            full = whole(full_layers, f"{name}: full_layers", minimum=0)
            windowed = whole(window_layers, f"{name}: window_layers", minimum=0)
            one = LayerGroup(
                kind="latent" if latent else "full",
                layers=1,
                kv_heads=whole(kv_heads, f"{name}: kv_heads", minimum=1),
                head_dim=whole(head_dim, f"{name}: head_dim", minimum=1),
                bytes_per_element=whole(bytes_per_element, f"{name}: bytes_per_element", minimum=1),
            )
            groups = [replace(one, layers=full)] if full else []
            if windowed:
                accepted = "window layers need a window of at least one token"
                kept = whole(window, f"{name}: window", minimum=1, accepted=accepted)
                groups.append(replace(one, kind="window", layers=windowed, window=kept))
        if not all(isinstance(group, LayerGroup) for group in groups):
            raise LedgerError(f"{name}: groups are not all LayerGroup; a LayerGroup is accepted")
        ranks = whole(tensor_parallel, f"{name}: tensor_parallel", minimum=1)
        values = (name, tuple(groups), max_position, source, ranks)
        for field, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, field, value)
        if not self.layers:
            raise LedgerError(f"{name}: no layers that keep K and V; at least one is needed")

    @property
    def kv_groups(self) -> tuple[LayerGroup, ...]:
        """The groups that keep K and V, so all but fixed states."""
        return tuple(group for group in self.groups if group.kind != "state")

    @property
    def full_layers(self) -> int:
        """Layers that keep every token."""
        return sum(group.layers for group in self.groups if group.grows)

    @property
    def window_layers(self) -> int:
        """Layers that stop growing: sliding windows and attention chunks."""
        return sum(group.layers for group in self.groups if group.capped)

    @property
    def state_layers(self) -> int:
        """Layers that keep a fixed state. One that keeps K and V as well is also counted there."""
        return sum(group.layers for group in self.groups if group.kind == "state")

    @property
    def layers(self) -> int:
        """Layers that keep K and V."""
        return self.full_layers + self.window_layers

    @property
    def window(self) -> int | None:
        """Tokens that window layers keep; None if there are none."""
        capped = [group for group in self.groups if group.capped]
        return self._common("window", capped) if capped else None

    @property
    def kv_heads(self) -> int:
        """K and V heads a layer."""
        return self._common("kv_heads")

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self._common("head_dim")

    @property
    def bytes_per_element(self) -> int:
        """Bytes of a cached element of K or V."""
        return self._common("bytes_per_element")

    @property
    def latent(self) -> bool:
        """Whether one vector stands for K and V in every layer that keeps them."""
        return all(group.one_vector for group in self.kv_groups)

    def _common(self, field: str, groups: Iterable[LayerGroup] | None = None) -> int:
        values = {getattr(group, field) for group in groups or self.kv_groups}
        if len(values) > 1:
            raise LedgerError(
                f"{self.name}: {field} differs between layers "
                f"({', '.join(map(str, sorted(values)))}); read it from groups"
            )
        return int(values.pop())

    @property
    def kv_bytes_per_token_and_layer(self) -> int:
        """Bytes that one token takes in one layer, where layers do not differ."""
        return self._common("kv_bytes_per_token_and_layer")

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token in every layer, which is what a slot takes if no window is used."""
        return sum(group.kv_bytes_per_token for group in self.groups)

    @property
    def growth_bytes_per_token(self) -> int:
        """Bytes that each further token adds once the window is full."""
        return sum(group.kv_bytes_per_token for group in self.groups if group.grows)

    @property
    def window_cap_bytes(self) -> int:
        """Bytes at which the window layers of one request stop growing."""
        return sum(
            group.kv_bytes_per_token * (group.window or 0) for group in self.groups if group.capped
        )

    @property
    def state_bytes_per_request(self) -> int:
        """Bytes of one request's fixed states, whatever its length."""
        return sum(group.state_bytes_per_request for group in self.groups)

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes that K and V of a request's tokens need, windows and chunks capped.

        Examples
        --------
        >>> from kvledger.models.known import load_model
        >>> load_model("Gemma-2-9B").cache_bytes(4096) / 2**30
        1.3125
        """
        tokens = whole(tokens, "tokens", minimum=0)
        return sum(group.tokens_kept(tokens) * group.kv_bytes_per_token for group in self.kv_groups)

    def request_bytes(self, tokens: int) -> int:
        """Return what one request needs: its K and V and, once it has a token, its fixed states.

        Examples
        --------
        >>> Model("Qwen2.5-7B", full_layers=28, kv_heads=4, head_dim=128).request_bytes(2)
        114688
        """
        return self.cache_bytes(tokens) + (self.state_bytes_per_request if tokens else 0)

    def window_waste(self, tokens: int) -> Fraction:
        """Return the share wasted if every layer is charged in full, as one page size for all does.

        Examples
        --------
        >>> half = Model("half windows of 4096", full_layers=1, window_layers=1, window=4096,
        ...              kv_heads=8, head_dim=128)
        >>> half.window_waste(8192)
        Fraction(1, 4)
        """
        tokens = whole(tokens, "tokens", minimum=1)
        return 1 - Fraction(self.cache_bytes(tokens), tokens * self.kv_bytes_per_token)

    def with_dtype(self, dtype: str) -> Model:
        """Return the same shape with another cache data type. Fixed states keep theirs.

        An unknown type is a LedgerError that lists the known ones.

        Examples
        --------
        >>> from kvledger.models.known import load_model
        >>> load_model("Llama-3.1-8B").with_dtype("fp8").kv_bytes_per_token
        65536
        """
        n_bytes = dtype_bytes(dtype)
        groups = tuple(group.with_bytes_per_element(n_bytes) for group in self.groups)
        return replace(self, groups=groups)

    def split(self, tensor_parallel: int) -> Model:
        """Return what one of so many tensor-parallel ranks keeps.

        Raises
        ------
        LedgerError
            If the heads do not divide (see :meth:`LayerGroup.split`), or the model is split.

        Examples
        --------
        >>> from kvledger.models.known import load_model
        >>> load_model("Llama-3.1-8B").split(16).kv_bytes_per_token     # 8 heads, each kept twice
        16384
        """
        ranks = whole(tensor_parallel, "tensor_parallel", minimum=1)
        if self.tensor_parallel != 1:
            raise LedgerError(
                f"{self.name}: tensor_parallel is {self.tensor_parallel} already; "
                "a whole model is split"
            )
        try:
            groups = tuple(group.split(ranks) for group in self.groups)
        except LedgerError as error:
            raise LedgerError(f"{self.name}: {error}") from None
        return replace(self, groups=groups, tensor_parallel=ranks)
