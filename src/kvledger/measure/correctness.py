"""Whether a peer computes what the reference does: asked before it is timed.

Twice, on the very tensors that are timed: on a few of the requests; and on all of them cut down to
a few hundred tokens or one, where a single token too many, too few or from a wrong page shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kvledger.core.errors import LedgerError
from kvledger.measure.pools import Inputs
from kvledger.measure.reference import paged_decode_reference

#: Greatest distance from the reference, relative, in the norm of a request's output. For 16-bit
#: types eight roundings, which peers that round scores and weights stay within; for float32 what
#: adding up tens of thousands of terms may cost, and less than 19-bit products (TF32) do.
TOLERANCE = {"float32": 2.0**-14, "float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}

#: Tokens of the requests that are cut short: one, and both sides of where pages end.
SHORT_LENGTHS = (300, 1, 33, 127, 256)

_MOST_CHECKED_TOKENS = 2**17


def short_lengths(lengths: Sequence[int], *, ragged: bool = True) -> list[int]:
    """Return the lengths of requests that are cut short, all alike for a peer that asks for that.

    Examples
    --------
    >>> short_lengths([8192, 8192, 20]), short_lengths([8192, 256], ragged=False)
    ([300, 1, 20], [256, 256])
    """
    if not ragged:
        return [min(SHORT_LENGTHS[0], *lengths)] * len(lengths)
    return [min(SHORT_LENGTHS[i % len(SHORT_LENGTHS)], each) for i, each in enumerate(lengths)]


def checked_requests(lengths: Sequence[int]) -> list[int]:
    """Return the requests of a batch that are compared: the first, the last, and the shortest.

    Fewer, where they hold more tokens than are compared in good time.

    Examples
    --------
    >>> checked_requests([8, 5, 3, 9]), checked_requests([2**17, 2**17])
    ([0, 2, 3], [0])
    """
    chosen: list[int] = []
    tokens = 0
    for request in (0, len(lengths) - 1, lengths.index(min(lengths))):
        if request not in chosen and (
            not chosen or tokens + lengths[request] <= _MOST_CHECKED_TOKENS
        ):
            chosen.append(request)
            tokens += lengths[request]
    return sorted(chosen)


def expected(inputs: Inputs, requests: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Return the reference's output for some requests."""
    return paged_decode_reference(*inputs.of_requests(requests), dtype=dtype)


def poisoned(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Call twice, with what the first call returned overwritten before the second.

    So an output that the second call does not write, whether it returns the same memory or gets
    it back from the allocator, is not taken for a result.
    """
    first = call()
    first.fill_(float("nan"))
    del first
    return call()


def relative_error(
    out: torch.Tensor, requests: list[int], reference: torch.Tensor, what: str
) -> float:
    """Return the greatest relative distance among some requests.

    Parameters
    ----------
    out : Tensor, shape (batch, q_heads, value_dim)
    requests : list of int
        Those that the reference holds.
    reference : Tensor, shape (len(requests), q_heads, value_dim)
    what : str
        The peer and the placement, for the error message.

    Raises
    ------
    LedgerError
        If the shape is another, or a value of any request is not finite.
    """
    heads = tuple(reference.shape[1:])
    if out.dim() != 3 or tuple(out.shape[1:]) != heads or out.shape[0] <= max(requests):
        raise LedgerError(
            f"{what}: the output has shape {list(out.shape)}; accepted: [batch, "
            f"{heads[0]}, {heads[1]}]"
        )
    if not bool(torch.isfinite(out).all()):
        raise LedgerError(f"{what}: the output has values that are not finite; accepted: numbers")
    away = (out[requests].to(reference.dtype) - reference).flatten(1).norm(dim=1)
    return float((away / reference.flatten(1).norm(dim=1)).max())


def check_error(error: float, dtype: str, what: str) -> float:
    """Return an error that is within the tolerance of a data type.

    Raises
    ------
    LedgerError
        If it is not: then nothing is timed.
    """
    if not error <= TOLERANCE[dtype]:
        raise LedgerError(
            f"{what}: the output is {error:.3g} away from the reference; accepted: up to "
            f"{TOLERANCE[dtype]:.3g} in {dtype}"
        )
    return error
