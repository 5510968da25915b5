"""Policies of a replay, as data: what memory is handed out, who is admitted, who has to leave.

Each option that changes a count in some engine has a name here; the replay's loop knows none of
them by its engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole, whole_page_size


def _check_one_of(policy: object, field: str, *names: str) -> None:
    value = getattr(policy, field)
    if value not in names:
        *most, last = (f'"{name}"' for name in names)
        raise LedgerError(f"{field} is {value!r}; {', '.join(most)} and {last} are accepted")


def whole_number(value: object, name: str, unit: str, minimum: int = 1) -> int:
    """Return a number of slots, pages, requests or the like as an int, or refuse it by name."""
    accepted = f"{name} is a whole number of {unit}, at least {minimum}"
    return whole(value, name, minimum=minimum, accepted=accepted)


@dataclass(frozen=True, slots=True)
class Paged:
    """Pages of one size, taken as a request grows.

    Parameters
    ----------
    page_size : int
        Slots a page.
    prefix_cache : bool
        Share complete pages of common prefixes, and keep freed pages until they are reused.
    watermark : float
        Share of the pool's pages, null pages included, that an admission must leave free, from 0
        to below 1, rounded down. Where nothing runs it does not hold.
    preemption : {"recompute", "swap"}
        What becomes of the latest request when a page is missing: its pages are freed and its
        tokens computed again, or they are copied to a host pool, all or none.
    host_pages : int
        Pages of the host pool. A request that does not fit there is recomputed instead.
    null_pages : int
        Pages that an engine never hands out; vLLM keeps one.
    compute_last_token : bool
        Look up all but the last of the tokens to compute, as engines do. Without it a prompt can
        be found whole.
    same_step_hits : bool
        Let a request find pages that another admitted in the same step is about to fill (vLLM);
        without it they are found from the next step on (SGLang).
    whole_prompt_must_fit : bool
        Admit a prompt that enters in chunks only where all of it would fit (vLLM); without it,
        room for its first chunk is enough.
    lone_prompt_whole : bool
        Let a request that is the only one in the system enter whole, whatever the chunk (vLLM).
    merge_duplicates : bool
        At the end of a step, point at the cached page that holds the same and free the copy
        (SGLang). vLLM's table only grows: a duplicate stays until it is freed.

    Raises
    ------
    LedgerError
        For a value outside these ranges, and for swapping with a prefix cache, which no count
        here covers.

    Examples
    --------
    >>> Paged(page_size=16, prefix_cache=True).watermark
    0.0
    """

    page_size: int
    prefix_cache: bool = False
    watermark: float = 0.0
    preemption: Literal["recompute", "swap"] = "recompute"
    host_pages: int = 0
    null_pages: int = 0
    compute_last_token: bool = True
    same_step_hits: bool = True
    whole_prompt_must_fit: bool = True
    lone_prompt_whole: bool = True
    merge_duplicates: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "page_size", whole_page_size(self.page_size))
        for field in ("host_pages", "null_pages"):
            object.__setattr__(self, field, whole_number(getattr(self, field), field, "pages", 0))
        if not isinstance(self.watermark, int | float) or not 0 <= self.watermark < 1:
            raise LedgerError(
                f"watermark is {self.watermark!r}; a share of the pages from 0 to below 1 is "
                "accepted"
            )
        _check_one_of(self, "preemption", "recompute", "swap")
        if self.preemption == "swap" and self.prefix_cache:
            raise LedgerError(
                "preemption is 'swap' with a prefix cache; swapped and shared pages are not "
                "accounted for together: accepted is one of the two"
            )
        if self.host_pages and self.preemption != "swap":
            raise LedgerError(
                f"host_pages is {self.host_pages} without swapping; host pages are accepted with "
                'preemption="swap"'
            )
        if self.merge_duplicates and self.same_step_hits:
            raise LedgerError(
                "merge_duplicates with same_step_hits; copies are merged at the end of a step, so "
                "accepted is merge_duplicates with same_step_hits=False"
            )
        if (self.merge_duplicates or not self.same_step_hits) and not self.prefix_cache:
            raise LedgerError(
                "merge_duplicates and same_step_hits=False are accepted with prefix_cache=True only"
            )


@dataclass(frozen=True, slots=True)
class Contiguous:
    """One run of slots a request, reserved when it is admitted and freed when it ends.

    Parameters
    ----------
    reserve : int or {"pow2", "oracle"}
        Slots reserved: a maximum for everyone, the next power of two, or what the request holds
        at its end.
    fit : {"first", "best", "buddy"}
        Which hole is taken: the first that fits, the smallest that fits, or a block of a
        power-of-two size that is split as needed. A buddy block larger than the reservation is
        not reserved for growth: the rest of it counts as external.
    pow2_of : {"total", "output"}
        What the next power of two is taken of: all that the request holds at its end, or its
        output alone, to which the prompt is added.
    maximum : int, optional
        Most slots that "pow2" reserves: no system reserves beyond the longest sequence that it
        serves. A request that needs more is refused.

    Raises
    ------
    LedgerError
        For an unknown name, a maximum below one slot, or one without "pow2".

    Examples
    --------
    >>> Contiguous(reserve=2048, fit="buddy").reserve
    2048
    """

    reserve: int | Literal["pow2", "oracle"]
    fit: Literal["first", "best", "buddy"] = "first"
    pow2_of: Literal["total", "output"] = "total"
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.reserve not in ("pow2", "oracle"):
            accepted = 'reserve is a whole number of slots, at least 1, or "pow2" or "oracle"'
            number = whole(self.reserve, "reserve", minimum=1, accepted=accepted)
            object.__setattr__(self, "reserve", number)
        _check_one_of(self, "fit", "first", "best", "buddy")
        _check_one_of(self, "pow2_of", "total", "output")
        if self.maximum is not None:
            object.__setattr__(self, "maximum", whole_number(self.maximum, "maximum", "slots"))
            if self.reserve != "pow2":
                raise LedgerError(
                    f"maximum is {self.maximum} and reserve is {self.reserve!r}; a maximum is "
                    'accepted with reserve="pow2"'
                )


Policy: TypeAlias = Paged | Contiguous


@dataclass(frozen=True, slots=True)
class Saturated:
    """Every request waits from the start, so there is always a queue. Time is counted in steps."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests arrive at the trace's times, and a step takes a modelled time.

    The model is an assumption, not a measurement::

        seconds = base_s + running_s x running requests + prefill_s x tokens computed for prompts

    Parameters
    ----------
    base_s, running_s, prefill_s : float
        Seconds a step, a running request and step, and a token computed before the first output.
    speed : float
        Divide the trace's times by this: 2 doubles the load.

    Raises
    ------
    LedgerError
        If a time is negative or not finite, a step takes no time, or the speed is not positive.

    Examples
    --------
    >>> Arrivals(base_s=0.02, running_s=0.0, prefill_s=0.0).speed
    1.0
    """

    base_s: float
    running_s: float = 0.0
    prefill_s: float = 0.0
    speed: float = 1.0

    def __post_init__(self) -> None:
        for field in ("base_s", "running_s", "prefill_s", "speed"):
            value = getattr(self, field)
            kind = "above" if field in ("base_s", "speed") else "of at least"
            in_range = isinstance(value, int | float) and 0 <= value < float("inf")
            if not in_range or (value == 0 and kind == "above"):
                raise LedgerError(f"{field} is {value!r}; a finite number {kind} 0 is accepted")


Clock: TypeAlias = Saturated | Arrivals
