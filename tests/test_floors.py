"""The floors hold, and import-linter would say so if they did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def copied(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources and the contracts, to break."""
    place = tmp_path_factory.mktemp("floors")
    skip = shutil.ignore_patterns("__pycache__", "assets", "*.egg-info")
    shutil.copytree(root / "src", place / "src", ignore=skip)
    shutil.copyfile(root / "pyproject.toml", place / "pyproject.toml")
    return place


def lint(place: Path) -> subprocess.CompletedProcess[str]:
    script = "import sys; from importlinter.cli import lint_imports_command; "
    return subprocess.run(
        [sys.executable, "-c", f"{script}lint_imports_command(['--no-cache', '--no-logo'])"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(place / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_no_arrow_leads_up_and_there_is_no_circle(copied: Path) -> None:
    result = lint(copied)
    assert result.returncode == 0, result.stdout
    assert "4 kept, 0 broken" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "imported", "broken"),
    [
        ("kvledger/core/errors.py", "kvledger.cli", "kvledger stands on floors"),
        ("kvledger/measure/__init__.py", "kvledger.replays", "kvledger stands on floors"),
        ("proofbook/errors.py", "proofbook.pages", "proofbook stands on floors"),
        ("proofbook/build/__init__.py", "kvledger", "proofbook knows nothing of caches"),
        ("kvledger/core/errors.py", "kvledger.core.units", "no circles"),
    ],
)
def test_a_forbidden_import_is_found(copied: Path, module: str, imported: str, broken: str) -> None:
    path = copied / "src" / module
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(f"{before}\n\nimport {imported}  # noqa: E402\n", encoding="utf-8")
        result = lint(copied)
    finally:
        path.write_text(before, encoding="utf-8")
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{broken} BROKEN" in result.stdout
