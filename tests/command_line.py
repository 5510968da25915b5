"""The command, run in this process, in one of its own or on a terminal, and what it answers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

import kvledger as kv
from kvledger.cli import main

KVLEDGER = [sys.executable, "-m", "kvledger"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(kv.__file__).parent.parent), "COLUMNS": "200"}


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    options = {"capture_output": True, "text": True, "check": False, "timeout": 300} | options
    environment = ENVIRONMENT | options.pop("environment", {})
    return subprocess.run([*KVLEDGER, *arguments], env=environment, **options)


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what ``--json`` prints."""
    return json.loads(said([*arguments, "--json"], capsys))


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command that is done prints for people."""
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of a command that refuses what it is given."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("kvledger: ")
    assert err.removesuffix("\n").isprintable()
    return err


def on_a_terminal(*arguments: str, **options: Any) -> str:
    """Return what a command writes to a terminal, unless options send it elsewhere."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    environment = ENVIRONMENT | {"TERM": "xterm-256color"}
    options = {"stdout": theirs, "stderr": theirs, "stdin": theirs, "env": environment} | options
    process = subprocess.Popen([*KVLEDGER, *arguments], **options)
    os.close(theirs)
    text = b""
    while True:
        try:
            chunk = os.read(ours, 1 << 16)
        except OSError:  # the terminal is gone with the process
            break
        if not chunk:
            break
        text += chunk
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return text.decode()
