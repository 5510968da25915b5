"""When each chapter was last run again and compared, and whether that still holds.

``chapters/checks.json`` is written by the check itself (:mod:`proofbook.build.nbval_plugin`) and by
nothing else. A row holds for one notebook and one state of code and data: their digests are in it,
so that a page can say when it was checked, or that it was not since it changed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from proofbook.catalogue import What
from proofbook.catalogue.notebook_entries import identity
from proofbook.errors import InputError
from proofbook.files import write_whole
from proofbook.project import EARLIEST, source_date
from proofbook.showing import MARK, json_bytes

RECORD_FILE = "chapters/checks.json"
#: In the folder of execution results: the digest of what each page shows.
DIGESTS_FILE = "digests.json"
#: What nbval leaves out of a comparison; the last three are drawings and widgets.
NOT_COMPARED = frozenset(
    {"metadata", "traceback", "prompt_number", "output_type", "name", "execution_count"}
    | {"application/vnd.jupyter.widget-view+json", "image/png", "image/jpeg"}
)
#: Tags that change how a cell is run or compared; the others only fold it.
CHECKING_TAGS = re.compile(r"raises-exception|skip-execution|nbval-.*")

State = Literal["current", "changed", "never"]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
#: Git names commits by SHA-1, or, in newer repositories, by SHA-256.
Commit = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]
Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class Check:
    """One chapter's check: of what, when, with what, and how much it compared.

    Attributes
    ----------
    digest : str
        SHA-256 of the chapter's code and of all that its cells show.
    source_digest, data_digest : str
        SHA-256 of ``src/``, ``data/`` and the lock file together, and of ``data/`` alone.
    date : date
        The day, in UTC.
    seconds : float
        How long the cells took.
    cells, numbers, tables, figures : int
        What was run, and what was compared.
    commit : str or None
        The commit whose files these were; None if there were changes beside it, or no commit.
    changed_since : str or None
        The commit that was changed, where `commit` is None.
    versions : mapping of str to str
        Of Python and of the packages that decide numbers.
    cores : int
        Processor cores of the machine.
    """

    digest: Sha256
    source_digest: Sha256
    data_digest: Sha256
    date: dt.date
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    cells: Count
    numbers: Count
    tables: Count
    figures: Count
    commit: Commit | None
    changed_since: Commit | None
    versions: Mapping[str, str]
    cores: Count

    def __post_init__(self) -> None:
        if "python" not in self.versions:
            raise ValueError("no version of python - at `$.versions`")

    def state(self, digest: str | None, source_digest: str) -> State:
        """Tell whether this check is one of the present code, outputs (by digest) and sources."""
        same = self.digest == digest and self.source_digest == source_digest
        return "current" if same else "changed"


# ---------------------------------------------------------------- what is compared


def _text(value: object) -> object:
    """Join the lines that a notebook's file keeps apart."""
    lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
    return "".join(value) if lines else value  # type: ignore[arg-type]


def compared(outputs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return what is compared of a cell's outputs: by key, the values in their order.

    These are the texts that strict nbval compares, and what it leaves out although a reader relies
    on it: the id of each number, and each kind, source and exact value.

    Examples
    --------
    >>> compared([{"output_type": "stream", "name": "stdout", "text": "4"},
    ...           {"output_type": "stream", "name": "stdout", "text": "2"}])
    {'stdout': ['42']}
    """
    found: dict[str, list[Any]] = {}
    streams: dict[str, list[Any]] = {}
    for output in outputs:
        if output["output_type"] == "stream":
            name = str(output["name"])
            if name not in streams:
                streams[name] = found.setdefault(name, [])
                streams[name].append("")
            streams[name][0] += _text(output["text"])
            continue
        for key, value in output.items():
            if key == "data":
                for mime, content in value.items():
                    if mime not in NOT_COMPARED:
                        found.setdefault(mime, []).append(_text(content))
            elif key not in NOT_COMPARED:
                found.setdefault(key, []).append(value)
        metadata = output.get("metadata", {})
        mark = [metadata.get("scrapbook", {}).get("name"), metadata.get(MARK)]
        if mark != [None, None]:
            found.setdefault(f"metadata.{MARK}", []).append(mark)
    return found


def shown_entries(outputs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[What, str]]:
    """Yield the numbers, tables and figures that outputs show, by their ids."""
    for output in outputs:
        found = identity(output.get("data", {}), output.get("metadata", {}))
        if found is not None:
            yield found.what, found.id


def cell_digest(cell: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a code cell: its source, how it is run, and what it shows."""
    parts = [
        _text(cell["source"]),
        sorted(filter(CHECKING_TAGS.fullmatch, cell.get("metadata", {}).get("tags", ()))),
        compared(cell.get("outputs", ())),
    ]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def joined_digest(cells: Sequence[str]) -> str:
    """Return the SHA-256 of a chapter from those of its code cells, in their order."""
    return hashlib.sha256("\n".join(cells).encode()).hexdigest()


def notebook_digest(notebook: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all that a check compares: a notebook's code and what it shows.

    Prose, captions and drawn pictures are no part of it; a figure's data are, by their digest.
    """
    return joined_digest(
        [cell_digest(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    )


# ---------------------------------------------------------------- the record


def read_checks(root: Path) -> dict[str, Check]:
    """Return the checks on record, by page (``chapters/stock``); none without a record.

    If it cannot be read, an InputError names page and field.
    """
    path = root / RECORD_FILE
    if not path.is_file():
        return {}
    at = RECORD_FILE
    checks = {}
    try:
        for page, row in msgspec.json.decode(
            path.read_bytes(), type=dict[str, msgspec.Raw]
        ).items():
            at = f"{RECORD_FILE}, {page}"
            checks[page] = msgspec.json.decode(row, type=Check)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{at}: {error}; accepted: what `make check` writes") from None
    return checks


def made_date(root: Path) -> dt.datetime:
    """Return the date, in UTC, that a made file bears which must have one: an archive, a PDF.

    It is that of ``SOURCE_DATE_EPOCH``, else the day of the latest check on record, else the first
    of 1980, before which an archive cannot name a day.
    """
    chosen = source_date()
    if chosen is not None:
        return chosen
    days = [check.date for check in read_checks(root).values()]
    return max([EARLIEST, *(dt.datetime.combine(day, dt.time(), dt.UTC) for day in days)])


def write_checks(root: Path, checks: Mapping[str, Check]) -> None:
    """Write the record, whole or not at all: one row a page, in the given order."""
    write_whole(root / RECORD_FILE, json_bytes(msgspec.to_builtins(checks)))
