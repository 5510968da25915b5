"""Why a peer is absent or refuses, in the words that a record keeps."""

from __future__ import annotations

import importlib

import torch

from kvledger.measure.peers.peer_case import Case


def first_line(error: BaseException) -> str:
    r"""Return an error's kind and the first line of what it says.

    Examples
    --------
    >>> first_line(ValueError("head_dim 80\nis not supported"))
    'ValueError: head_dim 80'
    """
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


def cannot_import(module: str) -> str | None:
    """Import a module, and return why that failed, or None.

    Examples
    --------
    >>> cannot_import("json")
    >>> cannot_import("no_such_library")
    "no_such_library cannot be imported (ModuleNotFoundError: No module named 'no_such_library')"
    """
    try:
        importlib.import_module(module)
    except Exception as error:  # a library without its driver may raise anything
        return f"{module} cannot be imported ({first_line(error)})"
    return None


def needs_gpu(device: torch.device | str) -> str | None:
    """Return a reason if a device is no NVIDIA GPU that torch reaches.

    Examples
    --------
    >>> needs_gpu("cpu")
    'needs an NVIDIA GPU; this is a cpu'
    """
    kind = torch.device(device).type
    if kind != "cuda":
        return f"needs an NVIDIA GPU; this is a {kind}"
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU; torch finds none"
    return None


def needs_dtype(case: Case, *accepted: str) -> str | None:
    """Return a reason if the data type of a step is not one of those accepted."""
    if case.dtype in accepted:
        return None
    return f"takes {' and '.join(accepted)}, not {case.dtype}"
