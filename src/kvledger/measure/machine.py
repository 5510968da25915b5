"""The machine that measures: what it is, what memory is free, and how long its calls take.

A machine drifts: clocks change, neighbours come and go. So calls are timed in rounds, each of them
once a round, in a new order each time, and compared within a round.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvledger.core.errors import LedgerError
from kvledger.measure.record import CodeVersion, Device
from proofbook.files import files_digest

if TYPE_CHECKING:
    import torch

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MEMORY = Path("/proc/meminfo")
_CPU = Path("/proc/cpuinfo")
#: Limit, use, and of the use what can be given back at once, in either version of control groups.
_CGROUPS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
_CGROUP_FOLDER = Path("/sys/fs/cgroup")
_DRIVER = Path("/proc/driver/nvidia/version")

#: Packages whose versions a record keeps, where they are installed.
_PACKAGES = (
    *("torch", "triton", "numpy", "pandas"),
    *("flashinfer-python", "nvidia-cudnn-frontend", "jax", "jaxlib"),
)
#: Time of one repetition: above what an event, a clock or a launch disturbs.
_REPETITION_S = {"cuda": 0.01, "cpu": 0.005}
_MOST_CALLS = 200
#: A queue of launches is filled while the GPU waits. Cycles, at the clock of the fastest.
_WAIT_CYCLES_PER_S = 2e9
_LONGEST_WAIT_S = 0.05


class DoesNotFitError(LedgerError):
    """A case that this device has no room or no time for: another one may still be measured."""

    @property
    def reason(self) -> str:
        """What does not fit, without what would be accepted."""
        return str(self).split("; accepted")[0]


def pick_device(name: str | None) -> torch.device:
    """Return the device to measure on: the GPU if there is one, unless named."""
    try:
        import torch
    except ImportError as error:
        raise LedgerError(f"{error}; accepted: an environment with torch") from None
    there = torch.cuda.is_available()
    if name not in (None, "cpu", "cuda"):
        raise LedgerError(f"a device is {name!r}; accepted: cpu, cuda")
    if name == "cuda" and not there:
        raise LedgerError("device cuda: torch finds no GPU; accepted: cpu")
    use_gpu = there and name != "cpu"
    return torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")


def describe(device: torch.device) -> Device:
    """Say what a device is."""
    if device.type == "cpu":
        memory = _meminfo("MemTotal")  # says that this is no Linux, where it is none
        cores, model = len(os.sched_getaffinity(0)), _found(_CPU, r"^model name\s*:\s*(.+)$")
        model = model or platform.processor() or platform.machine()
        name = f"{model}, {cores} {'core' if cores == 1 else 'cores'}"
        return Device("cpu", name, cores, memory, cpu_cache_bytes(), driver=None, capability=None)
    import torch

    it = torch.cuda.get_device_properties(device)
    return Device(
        kind="cuda",
        name=it.name,
        units=it.multi_processor_count,
        memory_bytes=it.total_memory,
        last_level_cache_bytes=it.L2_cache_size,
        driver=_driver(),
        capability=f"{it.major}.{it.minor}",
    )


def free_bytes(device: torch.device) -> int:
    """Return the memory that can still be taken, a container's limit included."""
    if device.type == "cuda":
        import torch

        free = torch.cuda.mem_get_info(device)[0]
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + kept)
    return min([_meminfo("MemAvailable"), *_left_in_cgroup()])


def cpu_cache_bytes(folder: Path = _CACHES) -> int:
    """Return the size of the largest cache that the first core shows.

    A virtual machine may show that of the whole processor: it asks for a larger working set.
    """
    listed = " ".join(path.read_text() for path in folder.glob("index*/size"))
    sizes = re.findall(r"(\d+)([KMG]?)", listed)
    if not sizes:
        raise LedgerError(f"{folder}: no cache sizes; accepted: Linux, which lists them there")
    return max(int(size) << 10 * " KMG".index(unit or " ") for size, unit in sizes)


def software() -> dict[str, str | None]:
    """Return the versions of what measured; None for what is not installed."""
    import torch

    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        versions[package] = None
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions | {"torch": str(torch.__version__), "cuda": torch.version.cuda}


def source() -> CodeVersion:
    """Return the commit, and a digest of this room's modules, each with its name."""
    room = Path(__file__).resolve().parent
    changes = _said(["git", "status", "--porcelain", "--", "."], room)
    return CodeVersion(
        commit=_said(["git", "rev-parse", "HEAD"], room) or None,
        digest=files_digest(room.rglob("*.py"), room),
        dirty=None if changes is None else bool(changes),
    )


def _said(command: list[str], folder: Path | None = None) -> str | None:
    """Return what a program prints, or None where it is missing or fails."""
    try:
        said = subprocess.check_output(
            command, cwd=folder, stderr=subprocess.DEVNULL, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.strip()


def _found(path: Path, pattern: str) -> str | None:
    """Return what a pattern's group finds in a file of the system, or None."""
    try:
        found = re.search(pattern, path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None


def _meminfo(key: str) -> int:
    kib = _found(_MEMORY, rf"^{key}:\s*(\d+) kB$")
    if kib is None:
        raise LedgerError(f"{_MEMORY}: no {key}; accepted: Linux, which says there what is free")
    return int(kib) * 1024


def _left_in_cgroup() -> list[int]:
    left = []
    for limit, used, given_back in _CGROUPS:
        path = _CGROUP_FOLDER / used
        try:
            room = int((_CGROUP_FOLDER / limit).read_text()) - int(path.read_text())
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        at_once = _found(path.with_name("memory.stat"), rf"^{given_back} (\d+)$")
        left.append(room + int(at_once or 0))
    return left


def _driver() -> str | None:
    """Return the version of the GPU's driver, as the kernel or the driver's own tool says it."""
    said = _found(_DRIVER, r"Kernel Module(?:\s+for \S+)?\s+([\d.]+)")
    said = said or _said(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return said.split("\n")[0] if said else None


@dataclass
class Timed:
    """A call, and its seconds: one entry a round, of ``calls`` made in one repetition.

    ``timed_by`` is "events" (the device's own clock) or "host" (the call returns when its work is
    done).
    """

    name: str
    call: Callable[[], Any]
    timed_by: str
    calls: int = 1
    pilot_s: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def repetition_s(self) -> float:
        """Expected time of one repetition."""
        return self.pilot_s * self.calls


class Stopwatch:
    """Seconds a call on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def pilot(self, timed: Timed) -> None:
        """Find out how long a call takes, and how many make a repetition."""
        timed.calls = 1
        self.seconds(timed)
        timed.pilot_s = self.seconds(timed)
        wanted = _REPETITION_S[self.device.type] / max(timed.pilot_s, 1e-9)
        timed.calls = int(min(max(np.ceil(wanted), 1), _MOST_CALLS))

    def seconds(self, timed: Timed) -> float:
        """Return the seconds of one call, out of ``timed.calls`` made one after another."""
        if timed.timed_by == "events":
            return self._by_events(timed.call, timed.calls)
        self.wait()
        start = time.perf_counter()
        for _ in range(timed.calls):
            timed.call()
        self.wait()
        return (time.perf_counter() - start) / timed.calls

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def _by_events(self, call: Callable[[], Any], calls: int) -> float:
        """Time calls by the device's clock, all of them queued before the first one starts.

        Otherwise the wait for the host to launch the next one would be timed.
        """
        import torch

        self.wait()
        start = time.perf_counter()
        call()  # warms it up, and says how long the host takes to launch one
        launch_s = time.perf_counter() - start
        self.wait()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        wait_s = min(_LONGEST_WAIT_S, 1.5 * launch_s * calls)
        torch.cuda._sleep(int(wait_s * _WAIT_CYCLES_PER_S))  # type: ignore[no-untyped-call]
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000 / calls


def run_rounds(
    timed: Sequence[Timed],
    stopwatch: Stopwatch,
    *,
    repetitions: int,
    least: int,
    deadline: float,
    rng: np.random.Generator,
    say: Callable[[str], None] = lambda text: None,
) -> list[Timed]:
    """Time calls in rounds until there are enough, or the time is up; return those timed.

    ``timed`` are the most important first, each with its pilot done. ``least`` rounds are timed in
    any case: of calls that do not fit so often before ``deadline`` (:func:`time.monotonic`), the
    last are left out; where the first does not fit, that is a DoesNotFitError.
    """
    kept = list(timed)
    while kept and time.monotonic() + least * sum(each.repetition_s for each in kept) > deadline:
        kept.pop()
    if not kept:
        raise DoesNotFitError(
            f"{least} repetitions of {timed[0].name} do not fit into the time; "
            "accepted: a longer --time-limit"
        )
    slowest = 0.0
    for done in range(repetitions):
        start = time.monotonic()
        if done >= least and start + slowest > deadline:
            break
        for index in rng.permutation(len(kept)):
            kept[index].seconds.append(float(f"{stopwatch.seconds(kept[index]):.7g}"))
        slowest = max(slowest, time.monotonic() - start)
        say(f"round {done + 1} of {repetitions}, {slowest:.1f} s each")
    return kept


def copy_call(n_bytes: int, device: torch.device) -> tuple[Callable[[], Any], int]:
    """Return a call that copies so many bytes, and the bytes that it reads and writes."""
    import torch

    elements = n_bytes // 4
    # Random bits: a memory that is full of zeros may be read faster.
    origin = torch.empty(elements, dtype=torch.int32, device=device).random_()
    target = torch.zeros_like(origin)
    return lambda: target.copy_(origin), 2 * elements * 4
