"""What serving engines accept as a page size, and what they keep for each page.

Facts about other people's software, each with its source: ``data/engine_page_sizes.csv`` and
``data/engine_metadata.csv``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole, whole_page_size

PER = ("entry", "page", "page and request", "request", "token", "scheduled token")
"""What a structure's bytes are counted by: an entry of a request's page table; a page held; a page
for each request of a batch; and three that the page size does not change."""

PRESETS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "table": ("vllm.table.device",),
    "vllm": ("vllm.table.device", "vllm.table.host", "vllm.objects"),
    "flashinfer": ("flashinfer.indices", "flashinfer.indptr"),
    "torch": ("torch.tables",),
    "sglang": ("sglang.req_to_token",),
}
"""Structures that an engine keeps, by a short name. ``"table"`` is one 32-bit entry a page."""

_RULE = re.compile(r"any|multiples of (?P<step>\d+)|powers of two from (?P<least>\d+)|\d+( \d+)*")


@dataclass(frozen=True, slots=True)
class PageSizeRule:
    """Which page sizes an attention kernel reads, or which somebody uses.

    Parameters
    ----------
    id, who, what : str
        Its name here, the engine, and the kernel or use.
    kind : str
        ``"kernel"``: what a kernel accepts. ``"use"``: page sizes in use for other reasons.
    heads : str
        What it reads: ``"kv"`` heads, ``"latent"`` vectors, or ``"any"``.
    accepts : str
        ``"any"``, ``"multiples of 16"``, ``"powers of two from 2"`` or sizes, as ``"32 64"``.
    default : int or None
        The page size that the engine takes when none is asked for, where it is known.
    note, source : str

    Raises
    ------
    LedgerError
        If ``kind``, ``heads`` or ``accepts`` is none of these.

    Examples
    --------
    >>> rule = page_size_rule("vllm.flashinfer")
    >>> rule.accepts_size(32), rule.accepts_size(48)
    (True, False)
    """

    id: str
    who: str
    what: str
    kind: str
    heads: str
    accepts: str
    default: int | None = None
    note: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not _RULE.fullmatch(self.accepts):
            raise LedgerError(
                f"{self.id}: accepts is {self.accepts!r}; accepted: any, multiples of N, powers "
                "of two from N, or page sizes in a row"
            )
        _check_one_of(self.id, "kind", self.kind, ("kernel", "use"))
        _check_one_of(self.id, "heads", self.heads, ("any", "kv", "latent"))

    @property
    def label(self) -> str:
        """Who and what, as tables and messages name it."""
        return f"{self.who}: {self.what}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The page sizes where they are listed one by one; empty for a rule."""
        return () if self.accepts[0].isalpha() else tuple(map(int, self.accepts.split()))

    def accepts_size(self, page_size: int) -> bool:
        """Tell whether pages of this size are read."""
        size = whole_page_size(page_size)
        rule = _RULE.fullmatch(self.accepts)
        assert rule is not None
        if rule["step"]:
            return size % int(rule["step"]) == 0
        if rule["least"]:
            return size >= int(rule["least"]) and size & (size - 1) == 0
        return self.accepts == "any" or size in self.sizes


@dataclass(frozen=True, slots=True)
class Structure:
    """Bytes that an engine keeps beside the cache.

    Parameters
    ----------
    id, who, structure : str
        Its name here, the engine, and what it is.
    n_bytes : int
        Bytes for each ``per``.
    per : str
        One of :data:`PER`.
    place : str
        ``"device"`` (the memory that the cache is in) or ``"host"``.
    note, source : str

    Examples
    --------
    >>> load_structures()["vllm.table.device"].n_bytes
    4
    """

    id: str
    who: str
    structure: str
    n_bytes: int
    per: str
    place: str
    note: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        _check_one_of(self.id, "per", self.per, PER)
        _check_one_of(self.id, "place", self.place, ("device", "host"))


def _check_one_of(id: str, field: str, value: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise LedgerError(f"{id}: {field} is {value!r}; accepted: {', '.join(accepted)}")


@cache
def load_page_size_rules() -> dict[str, PageSizeRule]:
    """Return every row of ``data/engine_page_sizes.csv`` by its id.

    Examples
    --------
    >>> load_page_size_rules()["tensorrt_llm"].default
    32
    """
    rules = (
        PageSizeRule(**{**row, "default": int(row["default"]) if row["default"] else None})  # type: ignore[arg-type]
        for row in _rows("engine_page_sizes.csv")
    )
    return {rule.id: rule for rule in rules}


def page_size_rule(id: str) -> PageSizeRule:
    """Return a rule by its id; an unknown one is an error that lists the kernels."""
    rules = load_page_size_rules()
    if id not in rules:
        kernels = (name for name, rule in rules.items() if rule.kind == "kernel")
        raise LedgerError(f"kernel is {id!r}; known are: {', '.join(kernels)}")
    return rules[id]


def kernels_for(latent: bool) -> tuple[PageSizeRule, ...]:
    """Return the kernels that read K and V heads, or those that read latent vectors."""
    heads = ("any", "latent" if latent else "kv")
    rules = load_page_size_rules().values()
    return tuple(rule for rule in rules if rule.kind == "kernel" and rule.heads in heads)


def kernels_accepting(page_size: int, *, latent: bool = False) -> tuple[str, ...]:
    """Return the ids of the kernels that read pages of this size.

    Parameters
    ----------
    page_size : int
        Slots a page.
    latent : bool
        Ask the kernels for latent vectors (MLA) and not those for K and V heads.

    Examples
    --------
    >>> kernels_accepting(1)
    ('sglang.flash_attention_3', 'lightllm.token_attention', 'flash_attention_3')
    """
    return tuple(rule.id for rule in kernels_for(latent) if rule.accepts_size(page_size))


@cache
def load_structures() -> dict[str, Structure]:
    """Return every row of ``data/engine_metadata.csv`` by its id."""
    structures = (
        Structure(n_bytes=int(row.pop("bytes")), **row) for row in _rows("engine_metadata.csv")
    )
    return {structure.id: structure for structure in structures}


def structures_of(
    metadata: str | Mapping[str, int] | Iterable[Structure] | None,
) -> tuple[Structure, ...]:
    """Return the structures that a reader names: a preset, bytes a page, or rows of their own.

    Parameters
    ----------
    metadata : str, mapping, iterable of Structure or None
        One of :data:`PRESETS`; a mapping of names to bytes a table entry; structures; None for
        none at all.

    Raises
    ------
    LedgerError
        For an unknown preset, or bytes that are not whole and at least 0.

    Examples
    --------
    >>> [s.n_bytes for s in structures_of("vllm")]
    [4, 4, 250]
    >>> structures_of({"a page": 32768})[0].per
    'entry'
    """
    if metadata is None:
        return ()
    if isinstance(metadata, str):
        if metadata not in PRESETS:
            raise LedgerError(
                f"metadata is {metadata!r}; known are: {', '.join(PRESETS)}, or bytes by name"
            )
        return tuple(load_structures()[id] for id in PRESETS[metadata])
    if isinstance(metadata, Mapping):
        accepted = "whole bytes a page, at least 0"
        checked = {
            name: whole(value, f"metadata[{name!r}]", minimum=0, accepted=accepted)
            for name, value in metadata.items()
        }
        return tuple(
            Structure(name, "given", name, n_bytes, "entry", "device")
            for name, n_bytes in checked.items()
        )
    structures = tuple(metadata)
    others = [each for each in structures if not isinstance(each, Structure)]
    if others:
        raise LedgerError(f"metadata holds {others[0]!r}; a Structure is accepted")
    return structures


def _rows(name: str) -> list[dict[str, str]]:
    with data_file(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
