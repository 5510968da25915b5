"""The machine that measures: what it is, what memory is free, and which software it runs."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger.core.errors import LedgerError
from kvledger.measure.record import Device, Source

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
    "torch",
    "triton",
    "numpy",
    "pandas",
    "flashinfer-python",
    "nvidia-cudnn-frontend",
    "jax",
    "jaxlib",
)


class DoesNotFitError(LedgerError):
    """A case that this device has no room or no time for: another one may still be measured.

    Attributes
    ----------
    reason : str
        Why, without what would be accepted.
    """

    @property
    def reason(self) -> str:
        """What does not fit, without what would be accepted."""
        return str(self).split("; accepted")[0]


def pick_device(name: str | None) -> torch.device:
    """Return the device to measure on: the GPU if there is one, unless named.

    Raises
    ------
    LedgerError
        If there is no torch, no device of that kind, or no such kind.
    """
    try:
        import torch
    except ImportError as error:
        raise LedgerError(f"{error}; accepted: an environment with torch") from None
    there = torch.cuda.is_available()
    if name not in (None, "cpu", "cuda"):
        raise LedgerError(f"a device is {name!r}; accepted: cpu, cuda")
    if name == "cuda" and not there:
        raise LedgerError("device cuda: torch finds no GPU; accepted: cpu")
    return (
        torch.device("cuda", torch.cuda.current_device())
        if there and name != "cpu"
        else (torch.device("cpu"))
    )


def describe(device: torch.device) -> Device:
    """Say what a device is.

    Examples
    --------
    >>> import torch
    >>> describe(torch.device("cpu")).units >= 1
    True
    """
    if device.type == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return Device(
            kind="cpu",
            name=f"{_cpu_name()}, {cores} {'core' if cores == 1 else 'cores'}",
            units=cores or 1,
            memory_bytes=_meminfo("MemTotal"),
            last_level_cache_bytes=cpu_cache_bytes(),
            driver=None,
            capability=None,
        )
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


def check_memory(needed: int, device: torch.device, what: str) -> None:
    """Refuse work that does not fit, before anything is taken.

    Raises
    ------
    DoesNotFitError
        Says what is needed and what is free.
    """
    free = free_bytes(device)
    if needed > free:
        raise DoesNotFitError(
            f"{what} needs {needed / 2**30:.1f} GiB on {device.type}, and {free / 2**30:.1f} GiB "
            "are free; accepted: a device with room for the working set"
        )


def cpu_cache_bytes(folder: Path = _CACHES) -> int:
    """Return the size of the largest cache that the first core shows.

    A virtual machine may show the cache of the whole processor, of which it has a part: the
    larger figure asks for the larger working set.

    Raises
    ------
    LedgerError
        If the system does not say.
    """
    sizes: list[int] = []
    for path in sorted(folder.glob("index*/size")):
        found = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if found:
            sizes.append(int(found[1]) << 10 * " KMG".index(found[2] or " "))
    if not sizes:
        raise LedgerError(f"{folder}: no cache sizes; accepted: Linux, which lists them there")
    return max(sizes)


def software() -> dict[str, str | None]:
    """Return the versions of what measured; None for what is not installed."""
    import torch

    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    versions["torch"] = str(torch.__version__)
    versions["cuda"] = torch.version.cuda
    return versions


def source() -> Source:
    """Return the commit, and a digest of this wing's modules, each with its name.

    Examples
    --------
    >>> len(source().digest)
    64
    """
    wing = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(wing.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(wing).as_posix()}\0{content}\n".encode())
    changes = _git(wing, "status", "--porcelain", "--", ".")
    return Source(
        commit=_git(wing, "rev-parse", "HEAD") or None,
        digest=digest.hexdigest(),
        dirty=None if changes is None else bool(changes),
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    if _CPU.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", _CPU.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _meminfo(key: str) -> int:
    try:
        found = re.search(rf"^{key}:\s*(\d+) kB$", _MEMORY.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if not found:
        raise LedgerError(f"{_MEMORY}: no {key}; accepted: Linux, which says there what is free")
    return int(found[1]) * 1024


def _left_in_cgroup() -> list[int]:
    left = []
    for limit, used, given_back in _CGROUPS:
        try:
            path = _CGROUP_FOLDER / used
            room = int((_CGROUP_FOLDER / limit).read_text()) - int(path.read_text())
            found = re.search(
                rf"^{given_back} (\d+)$", path.with_name("memory.stat").read_text(), re.MULTILINE
            )
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        left.append(room + (int(found[1]) if found else 0))
    return left


def _driver() -> str | None:
    """Return the version of the GPU's driver, as the kernel or the driver's own tool says it."""
    try:
        found = re.search(r"Kernel Module(?:\s+for \S+)?\s+([\d.]+)", _DRIVER.read_text())
    except OSError:
        found = None
    if found:
        return found[1]
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() or None
