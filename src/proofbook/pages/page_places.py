"""Where a build keeps the results of execution, and where the pages find their files."""

from __future__ import annotations

from pathlib import Path

from proofbook.project import source_digest
from proofbook.showing import FIGURES_VARIABLE, figures_folder, tables_folder

__all__ = ["ASSETS", "FIGURES_VARIABLE", "cache_folder", "figures_folder", "tables_folder"]

ASSETS = Path(__file__).parent / "assets"


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
