"""The year of the copyright stays as it is written, whatever ``SOURCE_DATE_EPOCH`` says.

Sphinx puts the variable's year in its place. Here the year is a statement of the authors, and no
page changes with the moment at which it is made.
"""

# Sphinx ships no types, or not all of them.
# mypy: disable-error-code="import-untyped,misc"
from __future__ import annotations

from typing import Any, cast

from sphinx.application import Sphinx
from sphinx.config import Config


def setup(app: Sphinx) -> dict[str, Any]:
    """Remember the copyright before Sphinx changes it, and put it back afterwards."""
    written: list[str | tuple[str, ...]] = []

    def remember(app: Sphinx, config: Config) -> None:
        written.append(cast(Any, config).copyright)

    def put_back(app: Sphinx, config: Config) -> None:
        cast(Any, config).copyright = written.pop()

    app.connect("config-inited", remember, priority=1)
    app.connect("config-inited", put_back, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
