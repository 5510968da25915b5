"""Loaded by every Python of a build under test: ``CONDITION_CLOCK_S`` moves its clock."""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import time
from functools import partial
from typing import Any

_CLOCK_S = float(os.environ.get("CONDITION_CLOCK_S", "0"))


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


if _CLOCK_S:
    move_clock(_CLOCK_S)
