"""Which pages the book has, in order, and at which address it is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proofbook.errors import InputError

TABLE_OF_CONTENTS = "_toc.yml"
CONFIG = "_config.yml"


def toc_pages(text: str) -> list[str]:
    r"""Return the pages that a table of contents lists, without suffix, in its order.

    Raises
    ------
    InputError
        If the text is no table of contents in the jb-book format.

    Examples
    --------
    >>> toc_pages("root: chapters/index\nchapters: [{file: chapters/notes}]")
    ['chapters/index', 'chapters/notes']
    """
    import yaml

    try:
        toc = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{TABLE_OF_CONTENTS} cannot be read: {error}") from None
    if not isinstance(toc, dict) or "root" not in toc:
        raise InputError(f"{TABLE_OF_CONTENTS} has no 'root'; accepted: the jb-book format")
    return list(toc_entries(toc))


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


def page_files(root: Path) -> list[Path]:
    """Return the file of every page of a checkout, in the order of its table of contents.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.

    Raises
    ------
    InputError
        If the table of contents cannot be read, or lists a file that does not exist.
    """
    try:
        text = (root / TABLE_OF_CONTENTS).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{root / TABLE_OF_CONTENTS}: {error.strerror}") from None
    found = []
    for name in toc_pages(text):
        candidates = [root / f"{name}{end}" for end in (".ipynb", ".md", "")]
        path = next((p for p in candidates if p.is_file()), None)
        if path is None:
            raise InputError(
                f"{TABLE_OF_CONTENTS} lists {name!r}, but there is no {name}.ipynb or {name}.md"
            )
        found.append(path)
    return found


def settings(root: Path) -> dict[str, Any]:
    """Return what ``_config.yml`` sets.

    Parameters
    ----------
    root : Path
        The folder that holds it.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    import yaml

    path = root / CONFIG
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return config if isinstance(config, dict) else {}


def base_url(root: Path) -> str:
    """Return the public address of the book, or an empty text where ``_config.yml`` names none.

    Parameters
    ----------
    root : Path
        The folder that holds ``_config.yml``.

    Raises
    ------
    InputError
        If the file cannot be read, or its ``html.baseurl`` is no http address.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "_config.yml")
    ...     _ = path.write_text("html: {baseurl: 'https://book.example/v1'}", encoding="utf-8")
    ...     base_url(Path(folder))
    'https://book.example/v1/'
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
