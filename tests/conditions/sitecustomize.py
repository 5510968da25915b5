"""Loaded by every Python of a build under test: another clock, and folders listed another way.

``CONDITION_CLOCK_S`` moves the clock by so many seconds. ``CONDITION_LISTING`` is ``backwards`` or
``shuffled``: the order in which a file system may name what a folder holds.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import random
import time
from functools import partial
from typing import Any

_CLOCK_S = float(os.environ.get("CONDITION_CLOCK_S", "0"))
_LISTING = os.environ.get("CONDITION_LISTING", "")


def move_clock(seconds: float) -> None:
    """Make time and datetime tell another moment."""
    real, real_ns = time.time, time.time_ns
    strftime = time.strftime

    # Partial functions, since a class that keeps one of these must not make a method of it.
    time.time = partial(lambda: real() + seconds)
    time.time_ns = partial(lambda: real_ns() + int(seconds * 1e9))

    def at(told: Any, moment: float | None = None) -> Any:
        return told(time.time() if moment is None else moment)

    for name in ("gmtime", "localtime", "ctime"):
        setattr(time, name, partial(at, getattr(time, name)))
    time.strftime = partial(lambda form, parts=None: strftime(form, parts or time.localtime()))

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(time.time(), tz)

    def utcnow(cls: Any) -> Any:
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    # These two ask the system; today() asks time.time. Compiled modules hold on to the type itself,
    # so it is the type that learns another answer.
    (methods,) = gc.get_referents(datetime.datetime.__dict__)
    methods.update(now=classmethod(now), utcnow=classmethod(utcnow))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


def change_listing(order: str) -> None:
    """Make folders name what they hold in another order."""
    scandir, listdir = os.scandir, os.listdir
    chance = random.Random(1)

    def changed(entries: list[Any]) -> list[Any]:
        if order == "backwards":
            return entries[::-1]
        return chance.sample(entries, len(entries))

    class Scan:
        """An os.scandir whose entries come in another order."""

        def __init__(self, *arguments: Any) -> None:
            with scandir(*arguments) as entries:
                self.entries = iter(changed(sorted(entries, key=lambda entry: entry.name)))

        def __iter__(self) -> Scan:
            return self

        def __next__(self) -> Any:
            return next(self.entries)

        def __enter__(self) -> Scan:
            return self

        def __exit__(self, *arguments: object) -> None:
            self.close()

        def close(self) -> None:
            self.entries = iter(())

    def listed(*arguments: Any) -> list[Any]:
        return changed(sorted(listdir(*arguments)))

    os.scandir, os.listdir = Scan, listed  # type: ignore[assignment]


if _CLOCK_S:
    move_clock(_CLOCK_S)
if _LISTING:
    change_listing(_LISTING)
