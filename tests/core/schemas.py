"""The published JSON schemas."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

import jsonschema


@cache
def schema(name: str) -> dict[str, object]:
    """The schema of this kind of file, which is itself valid."""
    text = resources.files("pipetune.schemas").joinpath(f"{name}.schema.json").read_text()
    found: dict[str, object] = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(found)
    return found
