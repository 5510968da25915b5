"""What a measurement says a page costs in time, for a model whose attention it measured.

Nothing is carried over to other heads: where a record has no case of a model's shape, or no sweep
of page sizes, there is no cost, and the reason is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvledger.accounting.metadata import exact_cost
from kvledger.core.errors import LedgerError
from kvledger.models.known import Model, load_model

if TYPE_CHECKING:
    from kvledger.measure.record import CaseShape, Record

__all__ = ["CacheShape", "ReadTime", "allocation_seconds", "cache_shape", "read_time"]

_OWN = "triton"  # this project's kernel, as records name it
_GATHERS = "gather"  # a peer that copies pages before it reads them comes last


class CacheShape(NamedTuple):
    """What a page-size decision needs of a model.

    ``groups`` counts the kinds of layers that keep page tables of their own; ``kv_heads`` and
    ``layer_bytes`` are those of one layer, None where layers differ, and ``latent`` says whether
    one vector stands for K and V. Fixed states are no part of it: a page size does not change
    them.
    """

    name: str
    bytes_per_token: int
    layers: int
    groups: int
    kv_heads: int | None
    layer_bytes: int | None
    latent: bool


def cache_shape(model: str | Model) -> CacheShape:
    """Return what a page-size decision needs of a model: the one place that looks into it.

    Every layer is charged for every token, those with a window too.

    Examples
    --------
    >>> shape = cache_shape("gpt-oss-20b")
    >>> shape.bytes_per_token, shape.layers, shape.groups
    (49152, 24, 2)
    """
    found = load_model(model)
    widths = {(group.kv_heads, group.kv_bytes_per_token_and_layer) for group in found.kv_groups}
    kv_heads, layer_bytes = widths.pop() if len(widths) == 1 else (None, None)
    return CacheShape(
        name=found.name,
        bytes_per_token=found.kv_bytes_per_token,
        layers=found.layers,
        groups=len(found.kv_groups),
        kv_heads=kv_heads,
        layer_bytes=layer_bytes,
        latent=found.latent,
    )


@dataclass(frozen=True, slots=True)
class ReadTime:
    """The cost of reading a page through the table, in the time of token slots.

    Attributes
    ----------
    device : str
        What was measured on, and the day.
    on_gpu : bool
        Whether that was a GPU.
    file : str
        The record's file.
    case, peer : str
        The case that was measured, and the kernel.
    c_slots, c_low, c_high : Fraction
        Slots a page and the ends of its interval, as :class:`~kvledger.measure.fit.PageCost`
        gives them; a cost below nothing counts as nothing. ``c_high`` is None if it has no bound.
    straight : bool
        Whether the times do lie on the fitted line; if not, a page's cost is not one number.
    residual_share, spread_share : float
        How far the worst page size is off the line, and how far its repetitions spread.
    slot_s : float
        Seconds to read one slot in one layer.
    allocation_s : float or None
        Seconds of the host for each page given out, where the record has them.
    """

    device: str
    on_gpu: bool
    file: str
    case: str
    peer: str
    c_slots: Fraction
    c_low: Fraction
    c_high: Fraction | None
    straight: bool
    residual_share: float
    spread_share: float
    slot_s: float
    allocation_s: float | None

    def allocation_slots(self, layers: int) -> Fraction | None:
        """Return one allocation's time in the time to read a slot in all layers."""
        if self.allocation_s is None:
            return None
        return exact_cost(self.allocation_s / (self.slot_s * layers))


def read_time(record: Record, shape: CacheShape, *, peer: str | None = None) -> ReadTime:
    """Take the cost of a page for a model out of a measurement record.

    Parameters
    ----------
    record : Record
        As :func:`kvledger.measure.record.read_record` gives it.
    shape : CacheShape
        Of the model: a case must have its K and V heads and its bytes a token and layer.
    peer : str, optional
        Whose times; else this project's kernel if it was timed, else the widest sweep.

    Raises
    ------
    LedgerError
        If no case has the model's heads, or none of those that have was timed at three page
        sizes; the message lists what there is.
    """
    from kvledger.measure.fit import MIN_PAGE_SIZES, page_cost

    if shape.layer_bytes is None:
        raise LedgerError(
            f"{shape.name} has layers of different widths; a record times layers of one width"
        )
    cases = [case for case in record.cases if _has_shape(case, shape)]
    if not cases:
        there = ", ".join(dict.fromkeys(f"{case.shape} in {case.dtype}" for case in record.cases))
        raise LedgerError(
            f"{record.label} has no case of {shape.kv_heads} K and V heads and "
            f"{shape.layer_bytes} bytes a token and layer, as {shape.name} has; there are: {there}"
        )
    for case in cases:
        swept = _swept(record, case.id, MIN_PAGE_SIZES)
        chosen = peer or min(swept, key=lambda each: swept[each], default="")
        if chosen not in swept:
            continue
        cost = page_cost(record, case.id, chosen)
        return ReadTime(
            device=record.label,
            on_gpu=record.device.kind == "cuda",
            file=record.file,
            case=case.id,
            peer=chosen,
            c_slots=exact_cost(max(cost.c_slots, 0.0)),
            c_low=exact_cost(max(cost.c_low, 0.0)),
            c_high=exact_cost(max(cost.c_high, 0.0)) if np.isfinite(cost.c_high) else None,
            straight=cost.straight,
            residual_share=cost.residual_share,
            spread_share=cost.spread_share,
            slot_s=cost.a_s / cost.tokens,
            allocation_s=allocation_seconds(record),
        )
    who = f"of {peer} " if peer else ""
    raise LedgerError(
        f"{record.label} has no sweep {who}over {MIN_PAGE_SIZES} page sizes or more for "
        f"{', '.join(case.id for case in cases)}"
    )


def allocation_seconds(record: Record) -> float | None:
    """Return the host's seconds for each page given out while decoding, or None.

    The least-squares slope of the time against pages given out, over the page sizes of the record:
    what each token costs whatever the page size is no part of it.
    """
    work = [w for w in record.host if w.what == "allocate_pages"]
    pages = np.array([w.units for w in work], dtype=float)
    seconds = np.array([float(np.median(w.seconds)) for w in work])
    if len(set(pages.tolist())) < 2 or len({w.tokens for w in work}) != 1:
        return None
    far = pages - pages.mean()
    return max(float((far * seconds).sum() / (far**2).sum()), 0.0)


def _has_shape(case: CaseShape, shape: CacheShape) -> bool:
    return (case.kv_heads, case.kv_bytes) == (
        shape.kv_heads,
        case.tokens * (shape.layer_bytes or 0),
    )


def _swept(record: Record, case: str, at_least: int) -> dict[str, tuple[bool, bool, int]]:
    """Peers with a sweep of a case, each with its place in line: least is first."""
    sizes: dict[str, set[int]] = {}
    for timing in record.timings:
        if timing.case == case and timing.layout == "random":
            sizes.setdefault(timing.peer, set()).add(timing.page_size)
    return {
        peer: (peer != _OWN, peer.startswith(_GATHERS), -len(found))
        for peer, found in sizes.items()
        if len(found) >= at_least
    }
