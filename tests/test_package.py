"""What ``import kvledger`` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kvledger as kv

HEAVY = ("numba", "joblib", "tqdm", "matplotlib", "torch", "pandas", "numpy")


def loaded_by(code: str) -> set[str]:
    """Return the heavy modules that a fresh interpreter has loaded after the code."""
    check = f"import sys\n{code}\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


def test_every_name_is_found_and_listed() -> None:
    for name in kv.__all__:
        assert getattr(kv, name) is not None
        assert name in dir(kv)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pagde'"):
        getattr(kv, "pagde")  # noqa: B009


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import kvledger") == set()


def test_the_replay_is_the_function_whatever_was_imported_first() -> None:
    code = "import kvledger.replays.engine; import kvledger as kv; assert callable(kv.replay)"
    assert "numba" in loaded_by(code)


def test_accounting_loads_neither_the_compiler_nor_torch() -> None:
    loaded = loaded_by("import kvledger as kv; kv.paged([5, 9, 17], 4)")
    assert loaded <= {"numpy", "pandas"}
