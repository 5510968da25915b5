"""The citation file is valid, and agrees with the package and the licences."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import kvledger as kv

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = Path(__file__).resolve().parent / "data" / "cff-schema-1.2.0.json"
SCHEMA_SHA256 = "0b8d22140da702d766df318dcff3a91af2f39521298dcf36d76315fd99cc169b"


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    # Dates as the texts that the schema means.
    loaded: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(text), default=str))
    return loaded


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())


def errors(validator: Any, citation: dict[str, Any]) -> list[str]:
    return [error.message for error in validator.iter_errors(citation)]


def test_the_schema_and_the_licences_are_the_ones_named() -> None:
    assert hashlib.sha256(SCHEMA.read_bytes()).hexdigest() == SCHEMA_SHA256
    code = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert code.startswith("BSD 3-Clause License\n\nCopyright (c) 2026, kvledger contributors\n")
    assert len(re.findall(r"^\d\. ", code, flags=re.MULTILINE)) == 3
    text = (ROOT / "LICENSE-text").read_text(encoding="utf-8")
    assert "https://creativecommons.org/licenses/by/4.0/" in text


def test_the_citation_is_valid(validator: Any, citation: dict[str, Any]) -> None:
    assert errors(validator, citation) == []
    assert errors(validator, citation | {"date-released": "29 November"})
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["title"] == project["name"]
    assert citation["version"] == project["version"] == kv.__version__
    assert citation["license"] == project["license"]
    assert [a["name"] for a in citation["authors"]] == [a["name"] for a in project["authors"]]
    # There is no DOI and no public address yet: none is given.
    assert not {"doi", "identifiers", "url", "repository", "repository-code"} & set(citation)
