"""What one kind of layer keeps of a request, and how ranks divide it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple, TypeVar

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import IntArray, whole

DTYPE_BYTES: dict[str, int] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
}
"""Bytes of one cached element. Scales that quantised caches keep beside are not counted."""

KINDS = ("full", "latent", "window", "chunked", "state")
"""What a layer keeps: K and V of every token; one vector of every token (MLA); K and V of the
last ``window`` tokens; those of the current chunk of ``window`` tokens; a fixed state."""

_CAPPED = ("window", "chunked")

Tokens = TypeVar("Tokens", int, IntArray)
"""The tokens of one request, or those of several."""


def dtype_bytes(dtype: object) -> int:
    """Return the bytes of one element of a data type; an unknown one is an error."""
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise LedgerError(f"dtype is {shown(dtype)}; known are: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


class StateTensor(NamedTuple):
    """A part of a layer's fixed state, in units (heads, groups or channels) that ranks divide.

    ``shared`` units are copied where there are fewer of them than ranks, as K and V heads are;
    others must divide.

    Examples
    --------
    >>> StateTensor("recurrent state", 32, elements_per_unit=128 * 128, bytes_per_element=4).bytes
    2097152
    """

    name: str
    units: int
    elements_per_unit: int
    bytes_per_element: int
    shared: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of this part for one request and layer."""
        return self.units * self.elements_per_unit * self.bytes_per_element


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that keep the same: all that their part of a KV cache depends on.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`.
    layers : int
        How many layers there are of it.
    kv_heads : int
        K and V heads a layer; 1 where one vector stands for both.
    head_dim : int
        Elements of a K head; of a latent layer, its rank plus the rotary part.
    value_dim : int, optional
        Elements of a V head; ``head_dim`` if not given, 0 where one vector stands for both.
    window : int, optional
        Tokens that a window layer keeps, or tokens a chunk.
    bytes_per_element : int
        Bytes of a cached element of K or V.
    states : tuple of StateTensor
        What a state layer keeps.

    Raises
    ------
    LedgerError
        For a kind that is not known, or a size that its kind needs and that is not a whole number.

    Examples
    --------
    >>> local = LayerGroup(kind="window", layers=21, kv_heads=8, head_dim=256, window=4096)
    >>> local.kv_bytes_per_token_and_layer, local.tokens_kept(5000), local.pages(5000, 16)
    (8192, 4096, 257)
    """

    kind: str
    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int | None = None
    window: int | None = None
    bytes_per_element: int = 2
    states: tuple[StateTensor, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LedgerError(f"kind is {shown(self.kind)}; known are: {', '.join(KINDS)}")
        self._check("layers", 1)
        if self.kind == "state":
            if not self.states or not all(isinstance(part, StateTensor) for part in self.states):
                raise LedgerError("state layers: states is empty; at least one StateTensor")
            for part in self.states:
                for field, value in list(part._asdict().items())[1:4]:
                    whole(value, f"state layers: {field} of {part.name}", minimum=1)
            return
        for field in ("kv_heads", "head_dim", "bytes_per_element"):
            self._check(field, 1)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", 0 if self.kind == "latent" else self.head_dim)
        self._check("value_dim", 0)
        if self.kind == "latent" and self.value_dim:
            raise LedgerError(
                f"latent layers: value_dim is {self.value_dim}; one vector stands for both, so 0"
            )
        if self.kind in _CAPPED:
            self._check("window", 1)

    def _check(self, field: str, least: int) -> None:
        value = whole(getattr(self, field), f"{self.kind} layers: {field}", minimum=least)
        object.__setattr__(self, field, value)

    @property
    def grows(self) -> bool:
        """Whether every further token adds to it for ever."""
        return self.kind in ("full", "latent")

    @property
    def capped(self) -> bool:
        """Whether it stops growing at ``window`` tokens."""
        return self.kind in _CAPPED

    @property
    def one_vector(self) -> bool:
        """Whether one vector stands for K and V; it has no heads that ranks could divide."""
        return self.kind != "state" and self.value_dim == 0

    @property
    def kv_bytes_per_token_and_layer(self) -> int:
        """Bytes that one token takes in one layer; 0 for a fixed state."""
        if self.kind == "state":
            return 0
        return self.kv_heads * (self.head_dim + (self.value_dim or 0)) * self.bytes_per_element

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token takes in all layers of the group."""
        return self.layers * self.kv_bytes_per_token_and_layer

    @property
    def state_bytes_per_layer(self) -> int:
        """Bytes of one request's fixed state in one layer."""
        return sum(part.bytes for part in self.states)

    @property
    def state_bytes_per_request(self) -> int:
        """Bytes of one request's fixed state in all layers of the group."""
        return self.layers * self.state_bytes_per_layer

    def oldest_kept(self, tokens: Tokens) -> Tokens:
        """Return the position (from 0) of the oldest token that the newest one attends to.

        Of a chunked layer that is the start of the chunk that the newest token is in.

        Examples
        --------
        >>> llama4 = LayerGroup(kind="chunked", layers=36, kv_heads=8, head_dim=128, window=8192)
        >>> llama4.oldest_kept(8192), llama4.oldest_kept(8193)
        (0, 8192)
        """
        window = self.window or 1
        if self.kind == "state":
            return tokens
        if self.kind == "window":
            return (tokens - window) * (tokens > window)
        return (tokens - 1) // window * window * (tokens > 0) if self.capped else 0 * tokens

    def tokens_kept(self, tokens: Tokens) -> Tokens:
        """Return how many of a request's tokens the newest one attends to, itself included."""
        return tokens - self.oldest_kept(tokens)

    def pages(self, tokens: Tokens, page_size: int) -> Tokens:
        """Return the pages of ``page_size`` slots that hold the kept tokens; a state is one page.

        Pages start at multiples of the page size from the request's first token, so a window
        that slides may touch one page more than it fills.
        """
        if self.kind == "state":
            return 1 * (tokens > 0)
        return (tokens - 1) // page_size - self.oldest_kept(tokens) // page_size + 1

    def most_pages(self, page_size: int) -> int | None:
        """Return the most pages that one request of any length holds; None if it grows for ever.

        A window of w tokens can start anywhere in a page of p slots: ceil((w - 1) / p) + 1 pages.
        A chunk starts at multiples of its size, so at offsets that gcd(w, p) divides.

        Examples
        --------
        >>> LayerGroup(kind="window", layers=1, kv_heads=1, head_dim=1, window=128).most_pages(16)
        9
        """
        if not self.capped or self.window is None:
            return 1 if self.kind == "state" else None
        step = 1 if self.kind == "window" else gcd(self.window, page_size)
        return -(-(self.window + page_size - step) // page_size)

    def with_bytes_per_element(self, n_bytes: int) -> LayerGroup:
        """Return the same layers with another width of cached K and V; states keep theirs."""
        return self if self.kind == "state" else replace(self, bytes_per_element=n_bytes)

    def split(self, ranks: int) -> LayerGroup:
        """Return what one of ``ranks`` tensor-parallel ranks keeps.

        Ranks divide heads. With fewer K and V heads than ranks, each rank keeps a copy of one. A
        latent vector has no heads, so every rank keeps it whole.

        Raises
        ------
        LedgerError
            If the heads, or the parts of a state, do not divide.

        Examples
        --------
        >>> group = LayerGroup(kind="full", layers=1, kv_heads=8, head_dim=128)
        >>> group.split(4).kv_heads, group.split(16).kv_heads
        (2, 1)
        """
        if self.kind == "state":
            parts = (
                part._replace(
                    units=_share(part.units, ranks, f"units of {part.name}", copied=part.shared)
                )
                for part in self.states
            )
            return replace(self, states=tuple(parts))
        if self.one_vector:
            return self
        return replace(self, kv_heads=_share(self.kv_heads, ranks, "kv_heads", copied=True))


def _share(units: int, ranks: int, name: str, *, copied: bool) -> int:
    if units % ranks == 0:
        return units // ranks
    if copied and units < ranks and ranks % units == 0:
        return 1
    also = " or is a multiple of it" if copied else ""
    raise LedgerError(
        f"tensor_parallel is {ranks}; a number of ranks that divides the {units} {name}{also} "
        "is accepted"
    )
