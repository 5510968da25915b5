"""What every room stands on: errors, lengths, units, and where the committed data is."""

from __future__ import annotations

from pathlib import Path

from kvledger.core.errors import InputError, LedgerError
from proofbook import project

_PACKAGE = Path(__file__).resolve().parent.parent


def data_folder() -> Path:
    """Return ``data/`` of the checkout, or of the package; LedgerError if neither exists."""
    candidates = [_PACKAGE.parent.parent / "data", _PACKAGE / "data"]
    for folder in candidates:
        if (folder / "manifest.toml").is_file():
            return folder
    raise LedgerError(
        f"no data folder with a manifest.toml at {' or '.join(map(str, candidates))}; "
        "install the package whole, or run from a checkout"
    )


def data_file(name: str) -> Path:
    """Return the path of a file below ``data/``; a LedgerError lists what is there if it is not.

    Examples
    --------
    >>> data_file("claims.csv").name
    'claims.csv'
    """
    try:
        return project.data_file(name, data_folder())
    except InputError as error:
        raise LedgerError(str(error)) from None
