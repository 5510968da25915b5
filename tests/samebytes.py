"""What tests of the same bytes share: conditions, builds under them, and differences in words."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CONDITIONS = Path(__file__).resolve().parent / "conditions"
#: Set by a condition or by nobody.
CLEARED = (
    *("PROOFBOOK_FIGURES_DIR", "SOURCE_DATE_EPOCH", "IPYTHONDIR", "PYTHONUTF8", "PYTHONHASHSEED"),
    *("LC_ALL", "LANG", "LANGUAGE", "TZ", "PYTHONCOERCECLOCALE", "PYTHONIOENCODING"),
)


class Condition(NamedTuple):
    """What may differ between two builds of the same sources."""

    variables: Mapping[str, str] = {}
    umask: int = 0o022
    jobs: int = 1
    #: Moves the dates of the source files, and the order in which they were laid down.
    age_s: int = 0


CLOCK = "CONDITION_CLOCK_S"
FIRST = Condition({"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "1"})
#: In plain C, without the repairs that Python makes, text is ASCII where no encoding is named.
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ALL_AT_ONCE = Condition(
    {
        **PLAIN_C,
        "TZ": "Pacific/Kiritimati",
        "PYTHONHASHSEED": "4242",
        CLOCK: str(400 * 86_400),
    },
    umask=0o077,
    jobs=2,
    age_s=90_000_000,
)


def copy_tree(source: Path, names: list[str], target: Path, condition: Condition) -> None:
    """Lay files down under a condition: their order, dates and modes."""
    if condition.age_s:
        random.Random(condition.age_s).shuffle(names)
    for name in names:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((source / name).read_bytes())
        if condition.age_s:
            then = (source / name).stat().st_mtime - condition.age_s
            os.utime(path, (then, then))


def build(
    root: Path, condition: Condition, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Build the book in a folder with the package as it lies there."""
    kept = {name: value for name, value in os.environ.items() if name not in CLEARED}
    path = os.pathsep.join([str(CONDITIONS), str(root / "src")])
    return subprocess.run(
        [sys.executable, "-m", "proofbook.build", "book", "--jobs", str(condition.jobs)],
        cwd=root,
        env={**kept, **condition.variables, "PYTHONPATH": path, **(extra or {})},
        umask=condition.umask,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> str:
    """Say in words how two trees differ, with the first difference shown; nothing if they do not.

    Of a PDF it is the text that has to be the same.
    """
    lines = [f"only in the first: {name}" for name in sorted(one.keys() - other.keys())]
    lines += [f"only in the second: {name}" for name in sorted(other.keys() - one.keys())]
    changed = [
        name
        for name in sorted(one.keys() & other.keys())
        if _content(name, one[name]) != _content(name, other[name])
    ]
    lines += [f"differs: {name}" for name in changed]
    if changed:
        name = changed[0]
        lines += [f"the first of these, {name}, differs", *_first(one[name], other[name], name)]
    return "\n".join(lines)


def _content(name: str, content: bytes) -> bytes:
    return pdf_text(content).encode() if name.endswith(".pdf") else content


def pdf_text(content: bytes) -> str:
    """Return the text of a PDF, page by page."""
    import pypdfium2

    with contextlib.closing(pypdfium2.PdfDocument(content)) as document:
        return "\f".join(page.get_textpage().get_text_bounded() for page in document)


def _first(one: bytes, other: bytes, name: str) -> list[str]:
    one, other = _content(name, one), _content(name, other)
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    at = min(len(one), len(other)) if at is None else at
    line = one.count(b"\n", 0, at) + 1
    around = slice(max(0, at - 60), at + 60)
    return [
        f"at byte {at}, line {line}:",
        f"  first:  {one[around].decode(errors='replace')!r}",
        f"  second: {other[around].decode(errors='replace')!r}",
    ]
