"""Where a build keeps the results of execution, and where the pages find the figures."""

from __future__ import annotations

import os
from pathlib import Path

from kvledger.datafiles import source_digest

ASSETS = Path(__file__).parent.parent / "assets"
FIGURES_VARIABLE = "KVLEDGER_FIGURES_DIR"


def cache_folder(root: Path) -> Path:
    """Return the folder of execution results that belong to the present code and data.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.

    Examples
    --------
    >>> cache_folder(Path("book")).parts[:3]
    ('book', '_build', 'cache')
    """
    return root / "_build" / "cache" / source_digest()[:16]


def figures_folder() -> Path:
    """Return the folder into which the executed notebooks wrote their figures."""
    return Path(os.environ[FIGURES_VARIABLE])
