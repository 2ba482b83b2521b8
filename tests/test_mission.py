"""Each promise of the mission has a test that would fail if the promise were broken."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.mission import NOT_KEPT, PROMISES

TESTS = Path(__file__).parent
SECTIONS = {"A": 9, "B": 10, "C": 5, "D": 4, "E": 2}
ROWS = [f"{section}{row}" for section, rows in SECTIONS.items() for row in range(1, rows + 1)]


def marked(text: str) -> Iterator[tuple[str, str]]:
    """Yields (promise, test) for each mark of a test function or class in a module."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not node.name.lower().startswith("test"):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.mission":
                yield from ((ast.literal_eval(argument), node.name) for argument in mark.args)


@pytest.fixture(scope="module")
def tests() -> Mapping[str, list[str]]:
    """The tests of each promise, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.mission(" in text and path != Path(__file__):
            for promise, test in marked(text):
                found[promise].append(f"{path.relative_to(TESTS)}::{test}")
    return found


@pytest.mark.parametrize("promise", sorted(PROMISES.keys() - NOT_KEPT.keys()))
def test_each_promise_has_a_test(tests: Mapping[str, list[str]], promise: str) -> None:
    assert tests.get(promise), f"no test is marked with {promise}: {PROMISES[promise]}"


def test_each_row_has_a_kept_promise() -> None:
    kept = {promise.partition(".")[0] for promise in PROMISES.keys() - NOT_KEPT.keys()}
    assert kept == set(ROWS)


def test_marks_name_existing_promises_that_are_kept(tests: Mapping[str, list[str]]) -> None:
    assert not tests.keys() - PROMISES.keys(), "a mark that names no promise"
    assert not NOT_KEPT.keys() - PROMISES.keys()
    assert not tests.keys() & NOT_KEPT.keys(), "a test holds it: take it out of NOT_KEPT"
