"""The objects outside a function that its code refers to by name."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.coordinators import name_references

START = """import functools
import tensorflow as tf
class Data:
    def __init__(self, it):
        self.it = it
    @property
    def computed(self):
        raise RuntimeError("code of the script was run")
    def make(self):
        return use(self.it)
class Called(Data):
    def __call__(self):
        return self.make()
def use(value):
    return value
splits, data, called = {"train": it}, Data(it), Called(it)
"""
FIRST = START.count("\n") + 1  # the line on which what follows begins


def places(folder: Path, text: str) -> list[tuple[str, int]]:
    """The names and lines at which `function` of a script refers to the object `it`; line 1 is the first of `text`."""
    path = folder / "train.py"
    path.write_text(START + text)
    space: dict[str, Any] = {"it": object(), "__name__": "__main__"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return [
        (name, mention.line - FIRST + 1)
        for mention in name_references(space["function"])
        for name, value in mention.parts()
        if value is space["it"] and mention.file == str(path)
    ]


METHODS = ("data.make", "called", "lambda: data.make()", "functools.partial(Data.make, data)")


@pytest.mark.parametrize(("text", "expected"), [
    ("def function():\n    it = 2\n    return it", []),
    ("def function(it=None):\n    return it", []),
    ("def function():\n    return data.computed", []),
    ("def function():\n    return unknown.it", []),
    ("def function():\n    function()", []),
    ("function = functools.partial(use, 2)", []),
    ("function = 3", []),
    ("def function():\n    return it", [("it", 2)]),
    ("function = lambda: [use(it) for _ in range(2)]", [("it", 1)]),
    ("def inner():\n    return it\ndef function():\n    return inner()", [("it", 2)]),
    ("def around(x):\n    def made():\n        return x\n    return made\nfunction = around(it)", [("x", 3)]),
    ("@tf.function\ndef function():\n    return it", [("it", 3)]),
    ("@tf.autograph.experimental.do_not_convert\ndef function():\n    return it", [("it", 3)]),
    ("def function():\n    return splits['train']", [("splits['train']", 2)]),
    ("def function():\n    return data.it", [("data.it", 2)]),
    ("def function(x=it):\n    return x", [("x", 2)]),
    ("def function():\n    def later(x):\n        return x + it\n    return later", [("it", 3)]),
    ("def take(x, y):\n    return x, y\nfunction = functools.partial(take, 1, y=it)", [("y", 2)]),
])  # fmt: skip
def test_references_have_names_and_lines(tmp_path: Path, text: str, expected: list[tuple[str, int]]) -> None:
    assert places(tmp_path, text) == expected


@pytest.mark.parametrize("function", METHODS)
def test_methods_are_scanned_with_their_instances(tmp_path: Path, function: str) -> None:
    where = START[: START.index("return use(self.it)")].count("\n") + 1 - FIRST + 1
    assert ("self.it", where) in places(tmp_path, f"function = {function}")


def test_scan_of_mutually_recursive_functions_terminates() -> None:
    def one(*args: Any, **kwargs: Any) -> Any:
        return other(*args, **kwargs)

    def other(*args: Any, **kwargs: Any) -> Any:
        return functools.partial(one, object())(*args, **kwargs)

    assert "other" in [mention.name for mention in name_references(one)]
