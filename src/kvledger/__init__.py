"""kvledger: where KV-cache memory goes, in exact numbers.

A name is imported when it is first used. So a command that only multiplies does not load pandas
and the replay's compiler, and the attention wing runs where neither Numba nor tqdm is installed.
"""

from __future__ import annotations

from pathlib import Path

from proofbook import lazy_names
from proofbook.project import Project, offer

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

_HERE = Path(__file__).resolve().parent
_UNITS = {name: name for name in ("slots", "tokens", "pages", "bytes", "requests", "steps")}

# Where no checkout is found, the book's numbers and figures are of this package; in any book, the
# last word of a number's id says its unit, and these tables say what is published.
offer(
    Project(
        name="kvledger",
        version=__version__,
        author="kvledger contributors",
        year="2026",
        sources=_HERE,
        data=_HERE / "data",
        units=_UNITS | {"page_size": "slots", "c": "slots a page"},
        published={"claims.csv": "", "paper_pagedattention.csv": "Kwon et al. 2023"},
    )
)
