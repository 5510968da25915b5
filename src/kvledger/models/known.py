"""Models by name: those of ``data/models.csv``, and the reader's own from a ``config.json``."""

from __future__ import annotations

import csv
import os
from functools import cache

from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.models.layers import DTYPE_BYTES
from kvledger.models.shapes import Model

__all__ = ["DTYPE_BYTES", "Model", "kv_bytes_per_token", "load_model", "load_models"]


@cache
def load_models() -> dict[str, Model]:
    """Return every model of ``data/models.csv`` by name.

    Examples
    --------
    >>> load_models()["Llama-2-70B"].layers
    80
    """
    path = data_file("models.csv")
    with path.open(encoding="utf-8", newline="") as file:
        models = [_from_row(row) for row in csv.DictReader(file)]
    return {model.name: model for model in models}


def load_model(model: str | os.PathLike[str] | Model) -> Model:
    """Return a model by its name in ``data/models.csv``, or from its ``config.json``.

    Parameters
    ----------
    model : str, path or Model
        A name; else the path of a ``config.json`` or of the folder that holds one, as
        :func:`~kvledger.read_config` reads it. A :class:`Model` is returned as it is.

    Raises
    ------
    LedgerError
        For what is neither a known name nor an existing path; the message lists the known names.

    Examples
    --------
    >>> load_model("Llama-3.1-8B").kv_heads
    8
    """
    if isinstance(model, Model):
        return model
    models = load_models()
    if isinstance(model, str) and model in models:
        return models[model]
    if isinstance(model, str | os.PathLike) and model and _exists(model):
        from kvledger.models.configs import read_config  # most runs read none

        return read_config(model)
    raise LedgerError(
        f"model is {model!r}; known are: {', '.join(models)}, or give the path of a config.json "
        "or a Model"
    )


def kv_bytes_per_token(
    model: str | os.PathLike[str] | Model, *, dtype: str | None = None, past_window: bool = False
) -> int:
    """Return the bytes that one token's K and V take in all layers.

    Parameters
    ----------
    model : str, path or Model
        Name in ``data/models.csv``, path of a ``config.json``, or a shape of your own.
    dtype : str, optional
        Data type of the cache; 16-bit if not given.
    past_window : bool
        Count only the layers that still grow once every window is full.

    Raises
    ------
    LedgerError
        For an unknown model or data type.

    Examples
    --------
    >>> kv_bytes_per_token("Llama-3.1-8B")
    131072
    >>> kv_bytes_per_token("gpt-oss-120b", past_window=True)
    36864
    """
    shape = load_model(model)
    if dtype is not None:
        shape = shape.with_dtype(dtype)
    return shape.growth_bytes_per_token if past_window else shape.kv_bytes_per_token


def _exists(path: str | os.PathLike[str]) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a null character is in no path
        return False


def _from_row(row: dict[str, str]) -> Model:
    return Model(
        name=row["model"],
        full_layers=int(row["full_layers"]),
        window_layers=int(row["window_layers"]),
        window=int(row["window"]) if row["window"] else None,
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        latent=row["attn"].startswith("MLA"),
        bytes_per_element=int(row["bytes_per_elem"]),
        max_position=int(row["max_pos"]) if row["max_pos"] else None,
        source=row["source"],
    )
