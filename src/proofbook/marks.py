"""How an output in a notebook says what it is: a number, a figure or a table, by its id."""

from __future__ import annotations

import re

__all__ = ["FIGURE_TEXT", "MARK", "RECORD", "TABLE_HTML"]

#: The key of an output's metadata under which it says what it is.
MARK = "proofbook"
#: The kind of data that holds the text of a number.
RECORD = "application/papermill.record/text/plain"
#: The whole text of a figure's output.
FIGURE_TEXT = re.compile(r"(?P<id>fig-[a-z0-9-]+) · data (?P<digest>[0-9a-f]{8,64})")
#: How the HTML of a table's output begins.
TABLE_HTML = re.compile(r'<div class="kv-table"[^>]*? id="(?P<id>tab-[a-z0-9-]+)"')
