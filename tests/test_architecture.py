"""docs/architecture.md names modules and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| (\d+) \| `([\w/]+\.py)` \| (.*?) \|", PAGE, re.M)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w./]+(?:\.py|/))`", PAGE))))
def test_modules_and_folders_exist(name: str) -> None:
    folders = [ROOT / folder for folder in ("pipetune", "tests", "examples", "benchmarks")]
    found = [ROOT / name, *(folder / name for folder in folders)]
    assert any(path.exists() for path in found) or any(list(folder.rglob(name)) for folder in folders)


def test_steps_of_the_way_are_counted_and_few() -> None:
    assert [int(number) for number, *_ in STEPS] == list(range(1, len(STEPS) + 1))
    assert 30 <= len(STEPS) <= 40


@pytest.mark.parametrize(("file", "names"), [step[1:] for step in STEPS])
def test_functions_of_the_way_exist(file: str, names: str) -> None:
    defined = _defined(ast.parse((ROOT / "pipetune" / file).read_text(encoding="utf-8")).body)
    assert set(re.findall(r"`([\w.]+)`", names)) <= defined


def _defined(body: list[ast.stmt], within: str = "") -> set[str]:
    names = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(within + statement.name)
            if isinstance(statement, ast.ClassDef):
                names |= _defined(statement.body, f"{statement.name}.")
    return names
