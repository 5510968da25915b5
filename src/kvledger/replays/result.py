"""What a replay found: one value a step, one a request, and totals."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvledger.accounting.ledger import Ledger
from kvledger.core.errors import LedgerError
from kvledger.replays import engine
from kvledger.replays.policies import Clock, Policy

_STATES = ("finished", "refused", "waiting")
LEVELS = engine.COLUMNS[: engine.C.admitted]
FLOWS = engine.COLUMNS[len(LEVELS) :]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Replay:
    """A trace replayed under a policy.

    Columns of steps are attributes, int64 arrays of one length: *levels* as they stand in the
    step (``running``, ``waiting``, ``blocked``, ``pages``, ``cached_pages`` and every column of
    the ledger), and *flows*, what happened since the step recorded before (``admitted``,
    ``preempted``, ``finished``, ``decoded_tokens``, ``computed_prompt_tokens``,
    ``recomputed_tokens``, ``hit_tokens``, ``resumed_hit_tokens``, ``swapped_out_tokens``,
    ``swapped_in_tokens``, ``allocations``, ``frees``, ``evictions``).

    Parameters
    ----------
    policy, clock : Paged or Contiguous, Saturated or Arrivals
        What handed out the memory; how requests came, and how time passed.
    capacity_slots : int
        Slots of the pool.
    steps, after : int64 arrays, shape (steps recorded, columns) and (columns,)
        The columns, in the order of ``columns``, and flows after the last recorded step.
    time_s : float64 array
        When each recorded step began: seconds, or steps where the clock is saturated.
    requests : DataFrame
        One row a request: state, admitted_step, finished_step, preemptions, hit_tokens,
        waiting_steps, waiting_s and latency_s (missing where it did not get so far).
    running_requests : DataFrame, optional
        One row for each recorded step and request running in it, in the order of admission:
        record, request, held_slots and used_slots.

    Raises
    ------
    LedgerError
        If any step breaks an identity of the ledger.
    """

    policy: Policy
    clock: Clock
    capacity_slots: int
    steps: npt.NDArray[np.int64]
    time_s: npt.NDArray[np.float64]
    after: npt.NDArray[np.int64]
    requests: pd.DataFrame
    running_requests: pd.DataFrame | None = None

    columns = engine.COLUMNS

    def __post_init__(self) -> None:
        distinct = self.logical_tokens - self.shared_tokens
        parts = distinct + self.tail_slack_slots + self.reserved_slots
        whole = self.allocated_slots + self.unallocated_slots + self.external_slots
        least = self.steps.min(initial=0)
        wrong = np.flatnonzero((parts != self.allocated_slots) | (whole != self.capacity_slots))
        if wrong.size or least < 0:
            at = int(wrong[0]) if wrong.size else int(np.argmin(self.steps.min(axis=1)))
            row = dict(zip(self.columns, self.steps[at].tolist(), strict=True))
            raise LedgerError(f"step {at} does not add up to {self.capacity_slots} slots: {row}")
        self.steps.setflags(write=False)
        self.time_s.setflags(write=False)

    def __getattr__(self, name: str) -> npt.NDArray[np.int64]:
        if name in engine.COLUMNS:
            column: npt.NDArray[np.int64] = self.steps[:, engine.COLUMNS.index(name)]
            return column
        raise AttributeError(f"a Replay has no {name!r}; its columns are {', '.join(self.columns)}")

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def distinct_tokens(self) -> npt.NDArray[np.int64]:
        """Logical tokens less shared ones, one value a step."""
        return self.logical_tokens - self.shared_tokens

    @property
    def hit_rate(self) -> float:
        """Prompt tokens found cached on first admission, as a share of all prompt tokens then."""
        hits = self.total("hit_tokens")
        return hits / max(hits + self.total("computed_prompt_tokens"), 1)

    @property
    def shared_of_logical(self) -> float:
        """Logical tokens that point at another's tensor, as a share, over all recorded steps."""
        return float(self.shared_tokens.sum()) / max(float(self.logical_tokens.sum()), 1.0)

    def total(self, column: str) -> int:
        """Return the whole of a flow, such as ``"preempted"``, to the end of the replay.

        Raises
        ------
        LedgerError
            For a level, which does not add up over steps.
        """
        if column not in FLOWS:
            raise LedgerError(f"column is {column!r}; flows are {', '.join(FLOWS)}")
        at = engine.COLUMNS.index(column)
        return int(self.steps[:, at].sum()) + int(self.after[at])

    def mean(self, column: str) -> float:
        """Return the mean of a level over the recorded steps; 0 where nothing ever ran."""
        if column not in (*LEVELS, "distinct_tokens"):
            raise LedgerError(f"column is {column!r}; levels are {', '.join(LEVELS)}")
        return float(getattr(self, column).mean()) if len(self) else 0.0

    def count(self, state: str) -> int:
        """Return how many requests ended ``"finished"``, ``"refused"`` or ``"waiting"``."""
        if state not in _STATES:
            raise LedgerError(f"state is {state!r}; states are {', '.join(_STATES)}")
        return int((self.requests["state"] == state).sum())

    def ledger(self, step: int) -> Ledger:
        """Return the ledger of a recorded step, with its pool."""
        row = dict(zip(self.columns, self.steps[step].tolist(), strict=True))
        kept = {field.name: row[field.name] for field in fields(Ledger) if field.name in row}
        return Ledger(requests=row["running"], capacity_slots=self.capacity_slots, **kept)

    def frame(self) -> pd.DataFrame:
        """Return the steps as a data frame: time_s, every column, and distinct_tokens."""
        names = (*self.columns, "distinct_tokens")
        return pd.DataFrame({"time_s": self.time_s} | {name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        counts = {state: self.count(state) for state in _STATES}
        ends = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
        return (
            f"Replay({self.policy}: {len(self)} steps recorded; {ends}; "
            f"{self.total('preempted')} preemptions)"
        )
