"""The unusual training scripts of the end-to-end tests compile, and each has a docstring."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
PATHS = sorted(SCRIPTS.rglob("*.py"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_script_compiles_and_has_docstring(path: Path) -> None:
    source = path.read_text()
    compile(source, str(path), "exec")
    assert len(ast.get_docstring(ast.parse(source)) or "") > 20


def test_scripts_were_found() -> None:
    assert len(PATHS) > 50
