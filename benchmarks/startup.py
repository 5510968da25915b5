"""The commands as a person waits for them: from their start to their last line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from records import Record, record, timed

ROOT = Path(__file__).resolve().parent.parent
KVLEDGER = [sys.executable, "-m", "kvledger"]
ACCOUNT = ["account", "--lengths", "5,9,17", "--page-size", "4"]
MEMORY = ["--model", "Llama-3.1-8B", "--kv-memory", "60GiB"]


def run(command: list[str], **environment: str) -> None:
    """Run a command with this checkout's package; it must end well."""
    path = {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run(
        command, env=os.environ | path | environment, check=True, stdout=subprocess.DEVNULL
    )


def on_a_terminal(command: list[str]) -> None:
    """Run a command as on a terminal, where its tables are drawn."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        while True:
            try:
                if not os.read(ours, 1 << 16):
                    break
            except OSError:  # the other end is closed
                break
    os.close(ours)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def account(*, quick: bool) -> list[Record]:
    """Time one small command beside the import of NumPy, which it needs, in turns."""
    numpy = [sys.executable, "-c", "import numpy"]
    on_a_terminal([*KVLEDGER, *ACCOUNT])  # bytecode is compiled before the clock starts
    ratios, seconds = [], []
    for _ in range(3 if quick else 15):
        numpy_s = timed(run, numpy)[0]
        account_s = timed(on_a_terminal, [*KVLEDGER, *ACCOUNT])[0]
        ratios.append(account_s / numpy_s)
        seconds.append(account_s)
    what = f"time of `kvledger {' '.join(ACCOUNT)}` on a terminal, start-up included"
    return [
        record(
            "command.account.seconds",
            what=what,
            baseline="none: the time itself",
            quantity="seconds",
            values=seconds,
            bar="< 0.4",
        ),
        record(
            "command.account.start",
            what=what,
            baseline="python -c 'import numpy', in turns",
            quantity="ratio",
            values=ratios,
            bar="<= 4",
        ),
    ]


def write_trace(path: Path, requests: int) -> None:
    """Write a trace with times and lognormal lengths, as requests have them."""
    rng = np.random.default_rng(0)
    prompts = np.clip(rng.lognormal(6.5, 1.0, requests), 1, 32_000).astype(np.int64)
    outputs = np.clip(rng.lognormal(5.0, 0.8, requests), 1, 4_000).astype(np.int64)
    arrivals = np.cumsum(rng.exponential(0.1, requests)).round(3)
    with path.open("w", encoding="ascii") as file:
        file.write("prompt_tokens,output_tokens,arrival_s\n")
        for row in zip(prompts, outputs, arrivals, strict=True):
            file.write("{},{},{}\n".format(*row))


def report(*, quick: bool) -> list[Record]:
    """Time the whole report on a million requests, and its first run ever, which compiles."""
    requests = 20_000 if quick else 1_000_000
    seconds: dict[str, list[float]] = {"compiled": [], "compiling": []}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        write_trace(trace, requests)
        for i in range(1 if quick else 3):
            for state in ("compiling", "compiled"):
                cache = str(Path(folder) / f"cache{i}")
                out = str(Path(folder) / f"{state}{i}")
                command = [*KVLEDGER, "report", str(trace), *MEMORY, "--out", out]
                seconds[state].append(
                    timed(lambda c=command, k=cache: run(c, NUMBA_CACHE_DIR=k))[0]
                )
    words = {
        "compiled": "the replay's code kept from an earlier run",
        "compiling": "the replay's code compiled in it",
    }
    return [
        record(
            f"command.report.{state}",
            what=f"time of `kvledger report` on {requests:,} requests, {words[state]}",
            baseline="none: the time itself",
            quantity="seconds",
            values=seconds[state],
            bar="< 60",
        )
        for state in words
    ]
