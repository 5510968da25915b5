"""Many replays: every trace under every policy, capacity and clock, on all cores or on a cluster.

Each combination is a task of its own, and its row depends on nothing but the combination. So it
does not matter where a task runs, whether it runs a second time because its worker was killed, or
whether its row was found in a store that an earlier sweep left.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import socket
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pandas as pd
from joblib import Parallel, delayed, effective_n_jobs
from joblib.externals.loky.process_executor import (
    BrokenProcessPool,
)
from tqdm import tqdm

from kvledger.core.errors import LedgerError
from kvledger.core.lengths import whole
from kvledger.replays import engine
from kvledger.replays.policies import Arrivals, Clock, Contiguous, Paged, Policy, Saturated
from kvledger.replays.replay import replay
from kvledger.replays.result import Replay
from kvledger.traces.trace import Trace, load_trace
from proofbook.files import check_folder, write_whole

__all__ = ["sweep"]

Value: TypeAlias = int | float | str | bool | None
Row: TypeAlias = dict[str, Value]

_FIRST_FLOW = engine.COLUMNS.index("admitted")
_LEVELS = (*engine.COLUMNS[:_FIRST_FLOW], "distinct_tokens")
_FLOWS = tuple(name for name in engine.COLUMNS[_FIRST_FLOW:] if name != "finished")


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
_POLICY_COLUMNS = ("policy", *dict.fromkeys(f.name for c in (Paged, Contiguous) for f in fields(c)))
_CLOCK_COLUMNS = ("clock", *(f.name for f in fields(Arrivals)))

# Columns of a row: what was found.
_COUNTS = ("requests", "finished", "refused", "steps", "recorded_steps", "waiting_steps")
_PEAKS = tuple(f"peak_{name}" for name in _LEVELS if name != "blocked")
_MEANS = tuple(f"mean_{name}" for name in _LEVELS if name != "blocked")
_SHARES = ("blocked_share", "hit_rate", "allocations_per_token", "frees_per_token")
_KINDS |= dict.fromkeys((*_MEANS, *_SHARES), "float64")
_FOUND = (*_COUNTS, *_FLOWS, *_PEAKS, *_MEANS, *_SHARES)

_FORMAT = 1  # of a store's files
_MOST_KILLS = 2  # after so many kills a combination is tried once more, alone
_CONNECT_S = 5.0
_WORKERLESS_S = 60.0  # a cluster may restart its workers for so long
_LOOK_S = 2.0


class _Combination(NamedTuple):
    """What one row is about."""

    trace: str
    policy: Policy
    capacity_slots: int
    clock: Clock

    def __str__(self) -> str:
        return f"{self.trace}, {self.policy}, capacity_slots={self.capacity_slots}, {self.clock}"


class _Task(NamedTuple):
    """A combination to replay, with the name of its row."""

    key: str
    combination: _Combination
    settings: _Settings
    code: str


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
    policies : sequence of Paged or Contiguous
        How memory is handed out.
    capacities : sequence of int
        Slots of the pool; a whole number of pages of every page size.
    max_running, prefill_chunk, record_every : int
        As in :func:`kvledger.replay`, the same for every row.
    clocks : sequence of Saturated or Arrivals
        How requests come.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``: the replays run on its
        workers, which need this package in this version. Without it, on this machine.
    store : path, optional
        Folder with a file for each finished combination. What is there already is not replayed
        again, so that a sweep that was killed goes on. A combination's file is named by a digest
        of the trace's content, the policy, the settings and this package's source; a file whose
        content is not what was written is replaced.
    n_jobs : int
        Processes on this machine; -1 stands for a process a core.
    progress : bool
        Show a bar on stderr where that is a terminal.

    Returns
    -------
    DataFrame
        One row a combination, in the order of ``product(traces, policies, capacities, clocks)``,
        the same to the last bit wherever it was computed. First what was replayed: ``trace``,
        ``policy`` and its options, ``capacity_slots``, ``clock`` and its options, ``max_running``,
        ``prefill_chunk``, ``record_every``; an option that a policy does not have is missing. Then
        what was found: ``requests``, of them ``finished`` and ``refused``; ``steps`` and
        ``recorded_steps``; ``waiting_steps``, the sum over requests of the steps each waited;
        every flow of a :class:`~kvledger.Replay` in total; the peak and the mean of every
        level over the recorded steps (``peak_…``, ``mean_…``); ``blocked_share``, the share of
        recorded steps in which a request did not fit; ``hit_rate``, tokens found of tokens that
        admitted requests had to prompt with (``hit_tokens`` and ``computed_prompt_tokens``);
        ``allocations_per_token`` and ``frees_per_token``, over the same tokens and
        ``decoded_tokens``.

    Raises
    ------
    LedgerError
        Before anything runs: for an empty sequence, a capacity that is no whole number of pages
        of some policy, a clock of arrivals for a trace without times, a store that cannot be
        written, or a scheduler that does not answer. Later: for a combination that cannot be
        replayed, or that kills the process it runs in again and again; the message names it.

    Examples
    --------
    >>> three = Trace(prompt_tokens=[5, 9, 17], output_tokens=[4, 4, 4])
    >>> table = sweep({"three": three}, [Paged(4), Paged(8)], [64], n_jobs=1)
    >>> table[["page_size", "finished", "mean_pages", "peak_tail_slack_slots"]]
       page_size  finished  mean_pages  peak_tail_slack_slots
    0          4         3        10.0                      9
    1          8         3         6.0                     17
    """
    named = _loaded(traces)
    settings = _settings(max_running, prefill_chunk, record_every)
    combinations = _combinations(named, policies, capacities, clocks)
    jobs = _jobs(n_jobs)
    rows_in = None if store is None else _Store(Path(store))
    client = None if scheduler is None else _connected(scheduler)
    try:
        digests = {name: _trace_digest(trace) for name, trace in named.items()}
        tasks = [_task(each, settings, digests[each.trace]) for each in combinations]
        different = {task.key: task for task in tasks}
        rows: dict[str, Row] = {}
        if rows_in is not None:
            rows = {key: row for key in different if (row := rows_in.read(key)) is not None}
        todo = [task for key, task in different.items() if key not in rows]
        if client is None:
            results = _on_this_machine(todo, named, jobs)
        else:
            results = _on_cluster(client, todo, named)
        bar = tqdm(total=len(different), initial=len(rows), unit="replay", **_shown(progress))
        with bar:
            for key, row in results:
                if rows_in is not None:
                    rows_in.write(key, row)
                rows[key] = row
                bar.update()
    finally:
        if client is not None:
            client.close()
    return _frame([_described(task) | rows[task.key] for task in tasks])


def _shown(progress: bool) -> dict[str, Any]:
    return {"disable": None if progress else True, "leave": False}


# --------------------------------------------------------------------------- input


def _loaded(traces: object) -> dict[str, Trace]:
    accepted = "accepted: a mapping of names to traces or paths, at least one"
    if not isinstance(traces, Mapping):
        raise LedgerError(f"traces is {traces!r}; {accepted}")
    if not traces:
        raise LedgerError(f"traces is empty; {accepted}")
    named = {}
    for name, trace in traces.items():
        if not isinstance(name, str):
            raise LedgerError(f"traces has the name {name!r}; accepted: a text")
        if not isinstance(trace, Trace | str | os.PathLike):
            raise LedgerError(f"traces[{name!r}] is {trace!r}; accepted: a Trace or a path")
        named[name] = trace if isinstance(trace, Trace) else load_trace(Path(trace))
    return named


def _settings(max_running: object, prefill_chunk: object, record_every: object) -> _Settings:
    most, chunk, stride = (
        None
        if value is None and name == "prefill_chunk"
        else whole(
            value, name, minimum=1, accepted=f"{name} is a whole number of {unit}, at least 1"
        )
        for name, value, unit in (
            ("max_running", max_running, "requests"),
            ("prefill_chunk", prefill_chunk, "tokens"),
            ("record_every", record_every, "steps"),
        )
    )
    assert most is not None
    assert stride is not None
    return _Settings(most, chunk, stride)


def _jobs(n_jobs: object) -> int:
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise LedgerError(
            f"n_jobs is {n_jobs!r}; accepted: a number of processes, or -1 for a process a core"
        )
    return int(effective_n_jobs(n_jobs))


def _combinations(
    traces: Mapping[str, Trace], policies: object, capacities: object, clocks: object
) -> list[_Combination]:
    kinds: dict[str, tuple[object, type | tuple[type, ...], str]] = {
        "policies": (policies, (Paged, Contiguous), "Paged or Contiguous"),
        "capacities": (capacities, object, "slots"),
        "clocks": (clocks, (Saturated, Arrivals), "Saturated or Arrivals"),
    }
    lists: list[list[Any]] = []
    for name, (given, kind, what) in kinds.items():
        accepted = f"accepted: a sequence of {what}, at least one"
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise LedgerError(f"{name} is {given!r}; {accepted}")
        if not given:
            raise LedgerError(f"{name} is empty; {accepted}")
        for at, each in enumerate(given):
            if not isinstance(each, kind):
                raise LedgerError(f"{name}[{at}] is {each!r}; {accepted}")
        lists.append(list(given))
    slots = [
        whole(
            value,
            f"capacities[{at}]",
            minimum=1,
            accepted="a capacity is a whole number of slots, at least 1",
        )
        for at, value in enumerate(lists[1])
    ]
    combinations = [_Combination(*each) for each in product(traces, lists[0], slots, lists[2])]
    for each in combinations:
        _check(each, traces[each.trace])
    return combinations


def _check(combination: _Combination, trace: Trace) -> None:
    """Find what cannot be replayed before hours of replays have passed."""
    policy, capacity = combination.policy, combination.capacity_slots
    if isinstance(combination.clock, Arrivals) and trace.arrival_s is None:
        raise LedgerError(f"{combination}: the trace has no arrival_s; accepted: times")
    if not isinstance(policy, Paged):
        return
    pages, rest = divmod(capacity, policy.page_size)
    if rest:
        raise LedgerError(
            f"{combination}: the capacity is no whole number of pages; accepted: a multiple of "
            f"{policy.page_size} slots"
        )
    if pages <= policy.null_pages:
        raise LedgerError(
            f"{combination}: {pages} pages less {policy.null_pages} null pages; at least one "
            "usable page is needed"
        )
    size = trace.page_ids_size
    if policy.prefix_cache and size and size % policy.page_size and policy.page_size % size:
        raise LedgerError(
            f"{combination}: an id of the trace stands for {size} tokens; accepted: page sizes "
            "that divide it or that it divides"
        )


# --------------------------------------------------------------------------- names of rows


@cache
def _code_digest() -> str:
    """Return the SHA-256 of all source that a row depends on, wherever it is installed."""
    digest = hashlib.sha256()
    for name, path in _sources():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _sources() -> list[tuple[str, Path]]:
    """List the files of this package that a replay imports, directly or not.

    Not the whole package: a corrected sentence of a drawing makes no sweep start again.
    """
    package = Path(__file__).resolve().parent.parent
    reached: dict[str, Path] = {}
    found = ["replays.sweep"]
    while found:
        module = package.joinpath(*found.pop().split("."))
        paths = sorted(module.glob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
        for path in paths:
            name = path.relative_to(package).as_posix()
            if name not in reached:
                reached[name] = path
                found += re.findall(r"(?m)^from kvledger\.([\w.]+) import", path.read_text("utf-8"))
    return sorted(reached.items())


def _trace_digest(trace: Trace) -> str:
    """Return the SHA-256 of all that a replay reads of a trace; its name is not part of it."""
    digest = hashlib.sha256()
    arrival = trace.arrival_s
    for array, kind in (
        (trace.prompt_tokens, "<i8"),
        (trace.output_tokens, "<i8"),
        (arrival, "<f8"),
    ):
        digest.update(b"none;" if array is None else array.astype(kind).tobytes())
    if trace.page_ids is not None:
        digest.update(f";{trace.page_ids_size};".encode())
        for ids in trace.page_ids:
            digest.update((",".join(map(str, ids)) + ";").encode())
    return digest.hexdigest()


def _task(combination: _Combination, settings: _Settings, trace_digest: str) -> _Task:
    about = {
        "trace": trace_digest,
        "policy": [type(combination.policy).__name__, asdict(combination.policy)],
        "capacity_slots": combination.capacity_slots,
        "clock": [type(combination.clock).__name__, asdict(combination.clock)],
        "settings": asdict(settings),
        "code": _code_digest(),
    }
    return _Task(_digest(about), combination, settings, _code_digest())


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class _Store:
    """A folder with a file for each finished row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with suppress(OSError):  # the next line says what is wrong
            folder.mkdir(parents=True, exist_ok=True)
        check_folder(folder)

    def read(self, key: str) -> Row | None:
        """Return a row, or None if it is not there as it was written."""
        try:
            content = json.loads((self._folder / f"{key}.json").read_bytes())
            row: Row = content["row"]
            is_whole = content == self._content(key, row) and tuple(row) == _FOUND
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return row if is_whole else None

    def write(self, key: str, row: Row) -> None:
        """Write a row so that it is there whole or not at all."""
        text = json.dumps(self._content(key, row), indent=1) + "\n"
        write_whole(self._folder / f"{key}.json", text.encode())

    @staticmethod
    def _content(key: str, row: Row) -> dict[str, object]:
        return {"format": _FORMAT, "key": key, "row": row, "sha256": _digest([key, row])}


# --------------------------------------------------------------------------- one replay


def _run(task: _Task, trace: Trace, started: str | None = None) -> Row:
    """Replay one combination; this is what runs in another process, or on another machine."""
    if started is not None:
        (Path(started) / task.key).touch()
    if task.code != _code_digest():
        raise LedgerError(
            f"the worker at {socket.gethostname()} has another version of kvledger; accepted: "
            "the same source on every worker"
        )
    each = task.combination
    # Made anew: arrays that came from another process are writable, and for those the engine
    # would be compiled a second time.
    own = Trace(
        trace.prompt_tokens,
        trace.output_tokens,
        trace.arrival_s,
        trace.page_ids,
        trace.page_ids_size,
    )
    try:
        result = replay(
            own,
            each.policy,
            capacity_slots=each.capacity_slots,
            clock=each.clock,
            max_running=task.settings.max_running,
            prefill_chunk=task.settings.prefill_chunk,
            record_every=task.settings.record_every,
        )
    except (LedgerError, MemoryError) as error:
        raise LedgerError(f"{each}: {error or 'not enough memory'}") from None
    return _found(result)


def _found(result: Replay) -> Row:
    recorded = len(result)
    levels = {name: getattr(result, name) for name in _LEVELS}
    # Whole numbers until the one division: no order of summing changes a digit.
    means = {
        name: int(values.sum()) / recorded if recorded else None for name, values in levels.items()
    }
    flows = {name: result.total(name) for name in _FLOWS}
    prompts = flows["hit_tokens"] + flows["computed_prompt_tokens"]
    tokens = prompts + flows["decoded_tokens"]
    last = result.requests["finished_step"].max()
    row: Row = {
        "requests": len(result.requests),
        "finished": result.count("finished"),
        "refused": result.count("refused"),
        "steps": 0 if last is pd.NA else int(last) + 1,
        "recorded_steps": recorded,
        "waiting_steps": int(result.requests["waiting_steps"].sum()),
    }
    row |= flows
    row |= {f"peak_{name}": int(v.max(initial=0)) for name, v in levels.items()}
    row |= {f"mean_{name}": mean for name, mean in means.items()}
    row |= {
        "blocked_share": means["blocked"],
        "hit_rate": flows["hit_tokens"] / prompts if prompts else None,
        "allocations_per_token": flows["allocations"] / tokens if tokens else None,
        "frees_per_token": flows["frees"] / tokens if tokens else None,
    }
    return {name: row[name] for name in _FOUND}


# --------------------------------------------------------------------------- this machine


def _on_this_machine(
    todo: list[_Task], traces: Mapping[str, Trace], jobs: int
) -> Iterator[tuple[str, Row]]:
    """Yield rows as they are finished; what was in the hands of a killed process runs again."""
    jobs = min(jobs, len(todo))
    if jobs < 2:
        for task in todo:
            yield task.key, _run(task, traces[task.combination.trace])
        return
    _compile()
    waiting = {task.key: task for task in todo}
    kills: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kvledger-sweep-") as folder:
        while waiting:
            suspect = next((key for key in waiting if kills[key] >= _MOST_KILLS), None)
            # A process that dies takes its neighbours along: a suspect runs alone.
            batch = [waiting[suspect]] if suspect else list(waiting.values())
            try:
                for key, row in _in_processes(batch, traces, jobs, folder):
                    del waiting[key]
                    yield key, row
            except BrokenProcessPool:
                if suspect:
                    raise LedgerError(
                        f"{batch[0].combination}: the process that replays it is killed each time "
                        f"({_MOST_KILLS + 1} tries); it may need more memory than there is"
                    ) from None
                begun = {path.name for path in Path(folder).iterdir()} & set(waiting)
                kills.update(begun or list(waiting))
            for path in Path(folder).iterdir():
                path.unlink()


def _in_processes(
    tasks: list[_Task], traces: Mapping[str, Trace], jobs: int, folder: str
) -> Iterator[tuple[str, Row]]:
    pool = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
    return iter(
        pool(delayed(_named_run)(task, traces[task.combination.trace], folder) for task in tasks)
    )


def _named_run(task: _Task, trace: Trace, started: str) -> tuple[str, Row]:
    return task.key, _run(task, trace, started)


def _compile() -> None:
    """Fill the cache of compiled code once, so that not every process has to compile."""
    replay(Trace([1], [1]), Paged(page_size=1), capacity_slots=1)


# --------------------------------------------------------------------------- a cluster


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
            host, port = parse_host_port(location)
            with socket.create_connection((host, port), timeout=_CONNECT_S) as line:
                if scheme == "tcp" and not line.recv(1):  # a scheduler greets first
                    raise OSError("what listens there is no Dask scheduler")
        client: Any = Client(  # type: ignore[no-untyped-call]
            address, timeout=_CONNECT_S, set_as_default=False
        )
    except (OSError, ValueError, TypeError) as error:
        raise LedgerError(f"scheduler is {address!r}: {error}; {accepted}") from None
    try:
        _check_workers(client, address)
    except BaseException:
        client.close()
        raise
    return client


def _check_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
        versions = client.run(_code_digest, on_error="return")
    except (TimeoutError, OSError) as error:
        raise LedgerError(
            f"scheduler is {address!r}: {error}; accepted: a scheduler with workers"
        ) from None
    for worker, version in sorted(versions.items()):
        if version != _code_digest():
            found = f"cannot run it ({version})" if isinstance(version, Exception) else "differs"
            raise LedgerError(
                f"scheduler is {address!r}: kvledger on the worker {worker} {found}; accepted: "
                "the same source on every worker"
            )


def _on_cluster(
    client: Any, todo: list[_Task], traces: Mapping[str, Trace]
) -> Iterator[tuple[str, Row]]:
    """Yield rows as they are finished; the scheduler runs again what a killed worker had."""
    suspects = []
    for task, row in _submitted(client, todo, traces):
        if row is None:
            suspects.append(task)
        else:
            yield task.key, row
    for task in suspects:  # they died in company, and the scheduler blames all alike
        for _, row in _submitted(client, [task], traces):
            if row is None:
                raise LedgerError(
                    f"{task.combination}: the worker that replays it is killed each time; it may "
                    "need more memory than there is"
                )
            yield task.key, row


def _submitted(
    client: Any, todo: list[_Task], traces: Mapping[str, Trace]
) -> Iterator[tuple[_Task, Row | None]]:
    """Yield tasks with their rows as they are finished; none for one that lost many workers."""
    from distributed import KilledWorker

    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    tasks: dict[str, _Task] = {}
    sent: list[Any] = []
    try:
        with warnings.catch_warnings():
            # A trace is sent within a task, not scattered: so the scheduler can send it again
            # when the worker that held it is gone.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            there = {
                name: client.submit(_itself, traces[name], pure=False)
                for name in dict.fromkeys(task.combination.trace for task in todo)
            }
            for at, task in enumerate(todo):
                trace = there[task.combination.trace]
                future = client.submit(_run, task, trace, pure=False, priority=-at)
                tasks[future.key] = task
                sent.append(future)
        for future in sent:
            future.add_done_callback(finished.put)
        for _ in todo:
            future = _next_finished(finished, client)
            task = tasks[future.key]
            try:
                row = future.result()
            except LedgerError:
                raise
            except KilledWorker:
                row = None
            except CancelledError:
                raise LedgerError(
                    f"{task.combination}: the scheduler dropped it; is it still running?"
                ) from None
            except Exception as error:
                raise LedgerError(
                    f"{task.combination}: the cluster could not run it: {error!r}"
                ) from error
            yield task, row
    finally:
        with suppress(Exception):  # the scheduler may be gone, and the sweep has ended anyway
            client.cancel(sent)


def _itself(trace: Trace) -> Trace:
    return trace


def _next_finished(finished: queue.SimpleQueue[Any], client: Any) -> Any:
    """Wait for the next future, as long as there is a cluster that could finish it."""
    seen = time.monotonic()
    while True:
        with suppress(queue.Empty):
            return finished.get(timeout=_LOOK_S)
        workers = 0
        with suppress(OSError):  # the scheduler may be gone for a moment, or for good
            workers = len(client.nthreads())
        if client.status == "running" and workers:
            seen = time.monotonic()
        elif time.monotonic() - seen > _WORKERLESS_S:
            raise LedgerError(
                f"the scheduler has had no workers for {_WORKERLESS_S:.0f} s; what was finished "
                "is in the store, if there is one"
            )


# --------------------------------------------------------------------------- the table


def _described(task: _Task) -> Row:
    each = task.combination
    policy, clock = asdict(each.policy), asdict(each.clock)
    if "reserve" in policy:  # slots or a name: one column holds one kind
        policy["reserve"] = str(policy["reserve"])
    row: Row = {"trace": each.trace}
    row |= {name: policy.get(name) for name in _POLICY_COLUMNS}
    row["policy"] = type(each.policy).__name__.lower()
    row["capacity_slots"] = each.capacity_slots
    row |= {name: clock.get(name) for name in _CLOCK_COLUMNS}
    row["clock"] = type(each.clock).__name__.lower()
    row |= asdict(task.settings)
    return row


def _frame(rows: list[Row]) -> pd.DataFrame:
    """Return rows as a table whose types depend on the columns alone."""
    table: dict[str, Any] = {}
    for name in rows[0]:
        kind: Any = _KINDS.get(name, "int64")
        table[name] = pd.array([row[name] for row in rows], dtype=kind)
    return pd.DataFrame(table)
