"""The source text of functions, found in their files without running anything."""

from __future__ import annotations

import enum
import functools
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.errors import CannotExpress
from pipetune.distributed.collect.function_sources import function_text, import_of, literal, names_needed
from tests.distributed.numbered_files import run_script

Speed = enum.IntEnum("Speed", "FAST SLOW")
Word = enum.StrEnum("Word", "FAST SLOW")
Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script and returns its names."""
    return functools.partial(run_script, tmp_path / "script.py")


def test_lambdas_on_one_line_are_distinguished(run: Run) -> None:
    found = run("both = (lambda x: x + 1), (lambda x: (x, (lambda y: y)(x)))\ninner = both[1]\n")["both"]
    assert function_text(found[0].__code__) == ("lambda x: x + 1", True)
    assert function_text(found[1].__code__) == ("lambda x: (x, (lambda y: y)(x))", True)
    nested = next(constant for constant in found[1].__code__.co_consts if hasattr(constant, "co_code"))
    assert function_text(nested) == ("lambda y: y", True)


LAMBDAS = ("-x", "'a' if x else 'b'", "{'a': x}", "x.y")


@pytest.mark.parametrize(
    "text", [*(f"lambda x: {body}" for body in LAMBDAS), "lambda x, *, k=2: [y * k for y in x]", "lambda: 3"]
)
def test_every_shape_of_lambda_is_found(run: Run, text: str) -> None:
    assert function_text(run(f"f = [{text}, lambda z: z][0]\n")["f"].__code__) == (text, True)


def test_function_of_a_changed_file_is_not_found(run: Run, tmp_path: Path) -> None:
    function = run("def f(x):\n    return x\n")["f"]
    (tmp_path / "script.py").write_text("# moved\ndef f(x):\n    return x + 1\n")
    linecache.checkcache()
    with pytest.raises(CannotExpress, match="not found"):
        function_text(function.__code__)


def test_needed_names_exclude_locals_and_annotations() -> None:
    text = (
        "@register(LEVEL)\ndef f(x: Tensor, scale=DEFAULT) -> Other:\n    image = load(x)\n"
        "    def g(y):\n        return [helper(y, z) for z in image]\n    return g(image) * np.pi\n"
    )
    assert names_needed(text) == ("DEFAULT", "LEVEL", "helper", "load", "np", "register")
    of_class = "class A(B):\n    size = C\n    def f(self):\n        return D, size\n"
    assert names_needed(of_class) == ("B", "C", "D", "size")


def test_imports_are_found_and_made_absolute(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import os.path\nimport numpy as np\nfrom .near import a as b\nfrom ..far import c\n"
        "def f():\n    from . import near\n"
    )

    for name, found in {
        "os": ("import os.path", "os", ""),
        "np": ("import numpy as np", "numpy", ""),
        "b": ("from package.inner.near import a as b", "package.inner.near", "a"),
        "c": ("from package.far import c", "package.far", "c"),
        "near": ("from package.inner import near", "package.inner", "near"),
        "d": None,
    }.items():
        assert import_of(str(path), name, "package.inner") == found
    assert import_of(str(path), "c", "") is None


@pytest.mark.parametrize("member", [Speed.FAST, Word.FAST, enum.Enum("Plain", "FAST")["FAST"]])
def test_members_of_enumerations_are_not_written_as_what_else_they_are(member: enum.Enum) -> None:
    name = type(member).__name__
    with pytest.raises(CannotExpress, match=f"the member FAST of the enumeration {name} cannot be written down"):
        literal({"mode": [member]})
