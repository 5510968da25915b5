"""Many replays: every trace under every policy, capacity and clock, on all cores or on a cluster.

Each combination is a task of its own, and its row depends on nothing but the combination: not on
where it runs, whether for a second time, or whether its row was found in an earlier sweep's store.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from joblib import Memory, Parallel, delayed, effective_n_jobs
from joblib.externals.loky.process_executor import BrokenProcessPool
from tqdm import tqdm

from kvledger.core.errors import LedgerError, shown
from kvledger.replays.policies import (
    Arrivals,
    Clock,
    Contiguous,
    Paged,
    Policy,
    Saturated,
    whole_number,
)
from kvledger.replays.replay import check_fit, replay
from kvledger.replays.result import FLOWS, LEVELS, Replay
from kvledger.traces import Trace, load_trace
from proofbook.files import check_folder, files_digest

Value: TypeAlias = int | float | str | bool | None
Row: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True)
class _Settings:
    """What all rows of a sweep have in common."""

    max_running: int
    prefill_chunk: int | None
    record_every: int


# Columns that say what was replayed, with their types; those that a policy or a clock does not
# have are missing.
_TYPES = {"int": "Int64", "int | None": "Int64", "bool": "boolean", "float": "float64"}
_KINDS = {
    field.name: _TYPES.get(str(field.type), "string")
    for options in (Paged, Contiguous, Arrivals, _Settings)
    for field in fields(options)
} | dict.fromkeys(("trace", "policy", "clock"), "string")
_POLICY_COLUMNS = dict.fromkeys(field.name for c in (Paged, Contiguous) for field in fields(c))
_CLOCK_COLUMNS = [field.name for field in fields(Arrivals)]
_DESCRIBED = ("trace", "policy", *_POLICY_COLUMNS, "capacity_slots", "clock", *_CLOCK_COLUMNS)
_SHARES = ("blocked_share", "hit_rate", "allocations_per_token", "frees_per_token")

_TOGETHER = 2  # tries of all that is left; after so many kills each runs alone
_CONNECT_S = 5.0
_PACKAGE = Path(__file__).resolve().parent.parent


class _Task(NamedTuple):
    """What one row is about, and the name under which it is stored."""

    key: str
    trace: str
    policy: Policy
    capacity_slots: int
    clock: Clock
    settings: _Settings
    code: str

    def __str__(self) -> str:
        return f"{self.trace}, {self.policy}, capacity_slots={self.capacity_slots}, {self.clock}"


class _KilledError(Exception):
    """The process or the worker that replayed a combination was killed."""


_Finished: TypeAlias = Iterator[tuple[str, Row]]
_Runner: TypeAlias = Callable[[list[_Task]], _Finished]


def sweep(
    traces: Mapping[str, Trace | str | os.PathLike[str]],
    policies: Sequence[Policy],
    capacities: Sequence[int],
    *,
    max_running: int = 256,
    clocks: Sequence[Clock] = (Saturated(),),
    prefill_chunk: int | None = None,
    record_every: int = 1,
    scheduler: str | None = None,
    store: str | os.PathLike[str] | None = None,
    n_jobs: int = -1,
    progress: bool = True,
) -> pd.DataFrame:
    """Replay every trace under every policy, capacity and clock.

    Parameters
    ----------
    traces : mapping of str to Trace or path
        Traces by the names they have in the table; a path is read by :func:`kvledger.load_trace`.
    policies, clocks : sequences of Paged or Contiguous, Saturated or Arrivals
        How memory is handed out, and how requests come.
    capacities : sequence of int
        Slots of the pool; a whole number of pages of every page size.
    max_running, prefill_chunk, record_every : int
        As in :func:`kvledger.replay`, the same for every row.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``: the replays run on its
        workers, which need this package in this version. Without it, on this machine.
    store : path, optional
        Folder in which :class:`joblib.Memory` keeps each finished row, so that a sweep that was
        killed goes on, and two may share a folder. A row is named by a digest of the trace's
        content, the policy, the settings and the source of what a replay runs; one that cannot
        be read is replayed again. Rows are pickled: use folders of your own only.
    n_jobs : int
        Processes on this machine; -1 stands for a process a core.
    progress : bool
        Show a bar on stderr where that is a terminal.

    Returns
    -------
    DataFrame
        One row a combination, in the order of ``product(traces, policies, capacities, clocks)``,
        the same to the last bit wherever it was computed. First what was replayed, with missing
        values for options that a policy or a clock does not have. Then what was found:
        ``requests``, of them ``finished`` and ``refused``; ``steps`` and ``recorded_steps``;
        ``waiting_steps``, summed over requests; every flow of a :class:`~kvledger.Replay` in
        total; the peak and the mean of every level over the recorded steps (``peak_…``,
        ``mean_…``); ``blocked_share``, the share of them in which a request did not fit;
        ``hit_rate``, of all tokens that admitted requests had to prompt with; and
        ``allocations_per_token`` and ``frees_per_token``, over these and the decoded tokens.

    Raises
    ------
    LedgerError
        Before anything runs: for an empty sequence, a combination that cannot be replayed, a
        store that cannot be written, or a scheduler that does not answer. Later: for a
        combination that kills the process it runs in again and again; the message names it.

    Examples
    --------
    >>> three = Trace(prompt_tokens=[5, 9, 17], output_tokens=[4, 4, 4])
    >>> sweep({"three": three}, [Paged(4), Paged(8)], [64], n_jobs=1)[["page_size", "mean_pages"]]
       page_size  mean_pages
    0          4        10.0
    1          8         6.0
    """
    named = _loaded(traces)
    settings = _Settings(
        whole_number(max_running, "max_running", "requests"),
        None if prefill_chunk is None else whole_number(prefill_chunk, "prefill_chunk", "tokens"),
        whole_number(record_every, "record_every", "steps"),
    )
    tasks = _tasks(named, policies, capacities, clocks, settings)
    jobs, keep = _jobs(n_jobs), _keeper(store)
    if scheduler is None:
        rows = _rows(tasks, _on_this_machine(named, jobs), keep, progress)
    else:
        with _connected(scheduler) as client:
            rows = _rows(tasks, _on_cluster(client, named), keep, progress)
    return _frame([_described(task) | rows[task.key] for task in tasks])


def _rows(
    tasks: list[_Task], run: _Runner, keep: Callable[[str, Row | None], Row], progress: bool
) -> dict[str, Row]:
    """Return each task's row by its key: the one that was kept, or the one that it gets now."""
    different = {task.key: task for task in tasks}
    rows: dict[str, Row] = {}
    for key in different:
        with suppress(LookupError):
            rows[key] = keep(key, None)
    todo = [task for key, task in different.items() if key not in rows]
    off = None if progress else True  # None: off but on a terminal
    with tqdm(
        total=len(different), initial=len(rows), unit="replay", leave=False, disable=off
    ) as bar:
        for key, row in _finished(todo, run):
            rows[key] = keep(key, row)
            bar.update()
    return rows


def _loaded(traces: object) -> dict[str, Trace]:
    accepted = "accepted: a mapping of names to traces or paths, at least one"
    if not isinstance(traces, Mapping) or not traces:
        raise LedgerError(f"traces is {shown(traces)}; {accepted}")
    named = {}
    for name, trace in traces.items():
        if not isinstance(name, str):
            raise LedgerError(f"traces has the name {name!r}; accepted: a text")
        if not isinstance(trace, Trace | str | os.PathLike):
            raise LedgerError(f"traces[{name!r}] is {trace!r}; accepted: a Trace or a path")
        named[name] = trace if isinstance(trace, Trace) else load_trace(Path(trace))
    return named


def _jobs(n_jobs: object) -> int:
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise LedgerError(
            f"n_jobs is {n_jobs!r}; accepted: a number of processes, or -1 for a process a core"
        )
    return int(effective_n_jobs(n_jobs))


def _tasks(
    traces: Mapping[str, Trace],
    policies: object,
    capacities: object,
    clocks: object,
    settings: _Settings,
) -> list[_Task]:
    """Return every combination; one that cannot be replayed is found before hours have passed."""
    every_policy = _listed(policies, "policies", Policy, "Paged or Contiguous")
    every_clock = _listed(clocks, "clocks", Clock, "Saturated or Arrivals")
    slots = [
        whole_number(each, f"capacities[{at}]", "slots")
        for at, each in enumerate(_listed(capacities, "capacities", object, "slots"))
    ]
    digests = {name: _trace_digest(trace) for name, trace in traces.items()}
    tasks = []
    for name, policy, capacity, clock in product(traces, every_policy, slots, every_clock):
        about = {
            "trace": digests[name],
            "policy": [type(policy).__name__, asdict(policy)],
            "capacity_slots": capacity,
            "clock": [type(clock).__name__, asdict(clock)],
            "settings": asdict(settings),
            "code": _code_digest(),
        }
        text = json.dumps(about, sort_keys=True, allow_nan=False)
        key = hashlib.sha256(text.encode()).hexdigest()
        task = _Task(key, name, policy, capacity, clock, settings, _code_digest())
        try:
            check_fit(traces[name], policy, capacity, clock)
        except LedgerError as error:
            raise LedgerError(f"{task}: {error}") from None
        tasks.append(task)
    return tasks


def _listed(given: object, name: str, kind: Any, what: str) -> Sequence[Any]:
    accepted = f"accepted: a sequence of {what}, at least one"
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise LedgerError(f"{name} is {given!r}; {accepted}")
    for at, each in enumerate(given):
        if not isinstance(each, kind):
            raise LedgerError(f"{name}[{at}] is {each!r}; {accepted}")
    return given


@cache
def _code_digest() -> str:
    """Return the digest of all source that a row depends on, wherever it is installed."""
    return files_digest(_sources(), _PACKAGE)


def _sources() -> list[Path]:
    """List the files of this package that a replay imports, directly or not.

    Not the whole package: a corrected sentence of a drawing makes no sweep start again.
    """
    reached: set[Path] = set()
    found = ["replays.sweep"]
    while found:
        module = _PACKAGE.joinpath(*found.pop().split("."))
        for path in {module.with_suffix(".py"), module / "__init__.py"} - reached:
            if path.is_file():
                reached.add(path)
                imports = r"(?m)^from kvledger\.([\w.]+) import ([\w, ]*)"
                for name, members in re.findall(imports, path.read_text("utf-8")):
                    found += [name, *(f"{name}.{each}" for each in re.findall(r"\w+", members))]
    return sorted(reached)


def _trace_digest(trace: Trace) -> str:
    """Return the SHA-256 of all that a replay reads of a trace; its name is not part of it."""
    digest = hashlib.sha256()
    for array in (trace.prompt_tokens, trace.output_tokens, trace.arrival_s):
        digest.update(b"none;" if array is None else array.tobytes())
    for ids in trace.page_ids or ():
        digest.update(f"{trace.page_ids_size};{','.join(map(str, ids))};".encode())
    return digest.hexdigest()


# --------------------------------------------------------------------------- the store


def _kept(key: str, row: Row | None) -> Row:
    """Return a row, to be kept under its key; without one, it would have to be in the store."""
    if row is None:
        raise LookupError(key)
    return row


def _keeper(store: str | os.PathLike[str] | None) -> Callable[[str, Row | None], Row]:
    """Return :func:`_kept`, with a memory in a folder if one is given."""
    if store is None:
        return _kept
    folder = Path(store)
    with suppress(OSError):  # the next line says what is wrong
        folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)
    keeper: Callable[[str, Row | None], Row] = Memory(folder, verbose=0).cache(
        _kept, ignore=["row"]
    )
    return keeper


# --------------------------------------------------------------------------- one replay


def _run(task: _Task, trace: Trace) -> tuple[str, Row]:
    """Replay one combination; this is what runs in another process, or on another machine."""
    if task.code != _code_digest():
        raise LedgerError(
            f"the worker at {socket.gethostname()} has another version of kvledger; accepted: "
            "the same source on every worker"
        )
    # Made anew: arrays that came from another process are writable, and for those the engine
    # would be compiled a second time.
    arrays = trace.prompt_tokens, trace.output_tokens, trace.arrival_s
    own = Trace(*arrays, trace.page_ids, trace.page_ids_size)
    options = {"capacity_slots": task.capacity_slots, "clock": task.clock, **asdict(task.settings)}
    try:
        result = replay(own, task.policy, **options)
    except (LedgerError, MemoryError) as error:
        raise LedgerError(f"{task}: {error or 'not enough memory'}") from None
    return task.key, _found(result)


def _found(result: Replay) -> Row:
    recorded, last = len(result), result.requests["finished_step"].max()
    flows = {name: result.total(name) for name in FLOWS}
    levels = {name: getattr(result, name) for name in (*LEVELS, "distinct_tokens")}
    blocked = levels.pop("blocked")
    prompts = flows["hit_tokens"] + flows["computed_prompt_tokens"]
    tokens = prompts + flows["decoded_tokens"]

    # Whole numbers until the one division: no order of summing changes a digit.
    def mean(values: np.ndarray) -> float | None:
        return int(values.sum()) / recorded if recorded else None

    return {
        "requests": len(result.requests),
        "finished": result.count("finished"),
        "refused": result.count("refused"),
        "steps": 0 if last is pd.NA else int(last) + 1,
        "recorded_steps": recorded,
        "waiting_steps": int(result.requests["waiting_steps"].sum()),
        **flows,
        **{f"peak_{name}": int(values.max(initial=0)) for name, values in levels.items()},
        **{f"mean_{name}": mean(values) for name, values in levels.items()},
        "blocked_share": mean(blocked),
        "hit_rate": flows["hit_tokens"] / prompts if prompts else None,
        "allocations_per_token": flows["allocations"] / tokens if tokens else None,
        "frees_per_token": flows["frees"] / tokens if tokens else None,
    }


# --------------------------------------------------------------------------- where it runs


def _finished(todo: list[_Task], run: _Runner) -> _Finished:
    """Yield rows as they are finished; what was in the hands of a killed process runs again."""
    left = {task.key: task for task in todo}
    for _ in range(_TOGETHER):
        if not left:
            return
        with suppress(_KilledError):
            for key, row in run(list(left.values())):
                del left[key]
                yield key, row
    # A process that dies takes its neighbours along: who kills is found by running alone.
    for task in left.values():
        try:
            yield from run([task])
        except _KilledError:
            raise LedgerError(
                f"{task}: what replays it is killed each time ({_TOGETHER + 1} tries); it may need "
                "more memory than there is"
            ) from None


def _on_this_machine(traces: Mapping[str, Trace], jobs: int) -> _Runner:
    def run(tasks: list[_Task]) -> _Finished:
        if jobs < 2:
            yield from (_run(task, traces[task.trace]) for task in tasks)
            return
        # Compiled code is put into its cache once, so that not every process has to compile.
        replay(Trace([1], [1]), Paged(page_size=1), capacity_slots=1)
        pool = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        try:
            yield from pool(delayed(_run)(task, traces[task.trace]) for task in tasks)
        except BrokenProcessPool:
            raise _KilledError from None

    return run


def _connected(address: object) -> Any:
    """Return a client of a scheduler that answers and has workers with this source."""
    accepted = 'accepted: the address of a running Dask scheduler, such as "tcp://10.0.0.1:8786"'
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
    except ImportError:
        raise LedgerError(
            f"scheduler is {address!r} and Dask is not installed; "
            "pip install 'kvledger[cluster]' brings it"
        ) from None
    if not isinstance(address, str):
        raise LedgerError(f"scheduler is {address!r}; {accepted}")
    try:
        scheme, location = parse_address(address)
        if scheme != "inproc":  # a client that cannot connect goes on trying: look first
            with socket.create_connection(parse_host_port(location), timeout=_CONNECT_S) as line:
                if scheme == "tcp" and not line.recv(1):  # a scheduler greets first
                    raise OSError("what listens there is no Dask scheduler")
        client: Any = Client(  # type: ignore[no-untyped-call]
            address, timeout=_CONNECT_S, set_as_default=False
        )
    except (OSError, ValueError, TypeError) as error:
        raise LedgerError(f"scheduler is {address!r}: {error}; {accepted}") from None
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
        for worker, version in sorted(client.run(_code_digest, on_error="return").items()):
            if version != _code_digest():
                found = "differs" if isinstance(version, str) else f"cannot run it ({version})"
                raise LedgerError(
                    f"scheduler is {address!r}: kvledger on the worker {worker} {found}; accepted: "
                    "the same source on every worker"
                )
    except BaseException as error:
        client.close()
        if isinstance(error, OSError):  # a timeout is one
            raise LedgerError(
                f"scheduler is {address!r}: {error}; accepted: a scheduler with workers"
            ) from None
        raise
    return client


def _on_cluster(client: Any, traces: Mapping[str, Trace]) -> _Runner:
    """Return what runs tasks on a cluster; its scheduler runs again what a killed worker had."""
    from distributed import KilledWorker, as_completed
    from distributed.client import FutureCancelledError

    def run(tasks: list[_Task]) -> _Finished:
        there = {name: client.scatter(traces[name]) for name in {task.trace for task in tasks}}
        sent = {
            client.submit(_run, task, there[task.trace], pure=False, priority=-at): task
            for at, task in enumerate(tasks)
        }
        try:
            for future in as_completed(sent, loop=client.loop):  # type: ignore[no-untyped-call]
                try:
                    yield future.result()
                except LedgerError:
                    raise
                except (KilledWorker, CancelledError, FutureCancelledError):
                    raise _KilledError from None
                except Exception as error:
                    raise LedgerError(
                        f"{sent[future]}: the cluster could not run it: {error!r}"
                    ) from error
        finally:
            with suppress(Exception):  # the scheduler may be gone, and the sweep has ended anyway
                client.cancel(list(sent))

    return run


# --------------------------------------------------------------------------- the table


def _described(task: _Task) -> Row:
    row: Row = dict.fromkeys(_DESCRIBED)
    row |= asdict(task.policy) | asdict(task.clock) | asdict(task.settings)
    row |= {"trace": task.trace, "capacity_slots": task.capacity_slots}
    row |= {name: type(getattr(task, name)).__name__.lower() for name in ("policy", "clock")}
    if row["reserve"] is not None:  # slots or a name: one column holds one kind
        row["reserve"] = str(row["reserve"])
    return row


def _frame(rows: list[Row]) -> pd.DataFrame:
    """Return rows as a table whose types depend on the columns alone."""
    table: dict[str, Any] = {}
    for name in rows[0]:
        found = "float64" if name.startswith("mean_") or name in _SHARES else "int64"
        kind: Any = _KINDS.get(name, found)
        table[name] = pd.array([row[name] for row in rows], dtype=kind)
    return pd.DataFrame(table)
