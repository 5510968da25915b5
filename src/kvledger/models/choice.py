"""A model as a reader names it: known by name, or described by a ``config.json``."""

from __future__ import annotations

from pathlib import Path

from kvledger.models.known import Model, load_model, load_models


def choose_model(
    name: str | Path, dtype: str | None = None, ranks: int = 1, *, called: str | None = None
) -> Model:
    """Return a known model, or the one that a file describes, as one rank keeps it.

    Parameters
    ----------
    name : str or Path
        A name in ``data/models.csv``; else a ``config.json`` or its folder.
    dtype : str, optional
        Data type of the cache; the model's own if not given.
    ranks : int
        Tensor-parallel ranks that share the KV heads.
    called : str, optional
        What to call a model that is read from a file; its folder's name if not given.

    Raises
    ------
    LedgerError
        For an unknown name or data type, a file that cannot be read, or heads that do not divide.

    Examples
    --------
    >>> choose_model("Llama-3.1-8B", "fp8").kv_bytes_per_token
    65536
    """
    if str(name) in load_models() or not Path(name).exists():
        model = load_model(str(name))
        model = model if dtype is None else model.with_dtype(dtype)
        return model if ranks == 1 else model.split(ranks)
    from kvledger.models.configs import read_config  # most runs read none

    return read_config(name, dtype=dtype, tensor_parallel=ranks, name=called)
