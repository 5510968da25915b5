"""What a checkout's book consists of: its pages, its settings, and all that a build depends on.

Only the standard library up here: "nothing changed" must be said at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proofbook.errors import InputError
from proofbook.project import is_made, root_above

TABLE_OF_CONTENTS = "_toc.yml"
CONFIG = "_config.yml"
#: Files and folders, below the root, that a page can depend on.
INPUTS = (
    *(CONFIG, TABLE_OF_CONTENTS, "CITATION.cff", "pyproject.toml", "requirements.txt"),
    *("chapters", "src", "data"),
)
STAMP = "build.json"


class Place(NamedTuple):
    """Where a build keeps what: all below ``_build``."""

    root: Path

    @property
    def build(self) -> Path:
        """Everything that a build writes."""
        return self.root / "_build"

    @property
    def html(self) -> Path:
        """The finished pages."""
        return self.build / "html"

    @property
    def stage(self) -> Path:
        """The pages in the making, with Sphinx's memory of them."""
        return self.build / "stage"


def input_files(root: Path) -> list[Path]:
    """Return every file that a page of the checkout can depend on, sorted."""
    files: list[Path] = []
    for name in INPUTS:
        path = root / name
        files += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sorted(path for path in files if not is_made(path))


def is_current(place: Place, inputs: str) -> bool:
    """Tell whether the finished pages were made from these inputs."""
    try:
        made_of = json.loads((place.html / STAMP).read_text(encoding="utf-8"))["inputs"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(made_of == inputs)


def find_root(start: Path) -> Path:
    """Return the folder at or above `start` that holds ``_toc.yml``."""
    root = root_above(start)
    if root is None:
        raise InputError(f"no _toc.yml in {start} or above it; run this inside the repository")
    return root


# ---------------------------------------------------------------- pages


def page_files(root: Path) -> list[Path]:
    """Return the file of every page of a checkout, in the order of its table of contents.

    One that cannot be read, or lists a file that does not exist, is an InputError.
    """
    toc = _read_yaml(root / TABLE_OF_CONTENTS)
    if "root" not in toc:
        raise InputError(f"{root / TABLE_OF_CONTENTS} has no 'root'; accepted: the jb-book format")
    found = []
    for name in toc_entries(toc):
        candidates = [root / f"{name}{end}" for end in (".ipynb", ".md", "")]
        path = next((p for p in candidates if p.is_file()), None)
        if path is None:
            raise InputError(
                f"{TABLE_OF_CONTENTS} lists {name!r}, but there is no {name}.ipynb or {name}.md"
            )
        found.append(path)
    return found


def toc_entries(entry: Any) -> Iterator[str]:
    """Yield every ``root`` and ``file`` of a table of contents, at any depth.

    Examples
    --------
    >>> list(toc_entries({"root": "a", "parts": [{"chapters": [{"file": "b"}]}]}))
    ['a', 'b']
    """
    if isinstance(entry, Mapping):
        for name in ("root", "file"):
            if name in entry:
                yield str(entry[name])
        for value in entry.values():
            yield from toc_entries(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from toc_entries(value)


def stored_notebooks(root: Path) -> dict[str, Any]:
    """Return the notebooks of a checkout as they are stored, by page, in the book's order."""
    notebooks = {}
    for path in page_files(root):
        if path.suffix != ".ipynb":
            continue
        try:
            notebook = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a notebook: {error}") from None
        if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
            raise InputError(f"{path}: no cells; accepted: a Jupyter notebook")
        notebooks[path.relative_to(root).with_suffix("").as_posix()] = notebook
    return notebooks


# ---------------------------------------------------------------- settings


def settings(root: Path) -> dict[str, Any]:
    """Return what ``_config.yml`` of a checkout sets."""
    return _read_yaml(root / CONFIG)


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    return content if isinstance(content, dict) else {}


def base_url(root: Path) -> str:
    """Return the public address of the book, or an empty text where ``_config.yml`` names none.

    A file that cannot be read, or whose ``html.baseurl`` is no http address, is an InputError.
    """
    html = settings(root).get("html")
    url = html.get("baseurl") if isinstance(html, dict) else None
    if not url:
        return ""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InputError(
            f"{root / CONFIG}, html.baseurl: {url!r}; accepted: an http or https address"
        )
    return url.rstrip("/") + "/"
