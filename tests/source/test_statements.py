"""What is read from a script's code before a change: statements, values, names of TensorFlow, conditions joined."""

from __future__ import annotations

import itertools

import libcst as cst
import pytest

from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import tensorflow_name
from pipetune.source.gathering import PLAIN
from pipetune.source.statements import bound_names, conjunction, negate, only_binds_or_reports, parse_condition
from pipetune.source.syntax_tree import SyntaxTree, consists_of


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("print('rows', len(x))", True),
        ("rows = len(x)", True),
        ("def f(x, y=2): return x.read()", True),
        ("def f(x=next(it)): return x", False),
        ("def f(*, x=next(it)): return x", False),
        ("@register\ndef f(x): return x", False),
        ("x.read()", False),
    ],
)
def test_statements_that_a_call_may_move_across(line: str, tells: bool) -> None:
    tree = SyntaxTree(f"{line}\n".encode())
    assert only_binds_or_reports(tree, tree.module.body[0]) is tells


@pytest.mark.parametrize(
    ("line", "bound"),
    [
        ("a, (b, *c) = x", {"a", "b", "c"}),
        ("for a in b: c = a", {"a", "c"}),
        ("with f() as a: pass", {"a"}),
        ("match x:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass\n    case int() as e: pass", set("abcde")),
    ],
)
def test_names_bound_by_a_statement(line: str, bound: set[str]) -> None:
    assert bound_names(cst.parse_module(f"{line}\n").body[0]) == bound


@pytest.mark.parametrize(
    ("value", "repeats"),
    [("5", True), ("size", True), ("self.size + 1", True), ("-size", True), ("-g()", False), ("g().n", False),
     ("rows[0]", False), ("1 + g()", False)],
)  # fmt: skip
def test_values_that_may_be_written_twice(value: str, repeats: bool) -> None:
    assert consists_of(cst.parse_expression(value), PLAIN) is repeats


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("import tensorflow as tf", "tf"),
        ("import tensorflow.compat.v2 as tf2", "tf2"),
        ("from tensorflow import gather, nest\nimport tensorflow as tf", "tf"),
    ],
)
def test_name_that_a_file_has_for_tensorflow(imports: str, name: str) -> None:
    tree = SyntaxTree(f"{imports}\n".encode())
    assert tensorflow_name(tree, tree.module, "gathering") == name


@pytest.mark.parametrize("imports", ["import numpy as np", "from tensorflow import data, nest"])
def test_file_without_a_name_for_tensorflow(imports: str) -> None:
    tree = SyntaxTree(f"{imports}\n".encode())
    with pytest.raises(CannotExpress, match="which gathering needs"):
        tensorflow_name(tree, tree.module, "gathering")


# Combined conditions keep their meaning for every value of their names.

CONDITIONS = ("a", "not a", "not a and b", "a or b", "(a or b)", "a == b", "a if b else c", "bool(a)", "not (a or b)")
VALUES = [dict(zip("abc", values, strict=True)) for values in itertools.product((False, True), repeat=3)]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_negate_inverts_every_condition(condition: str) -> None:
    assert all(bool(eval(negate(condition), {}, names)) is not bool(eval(condition, {}, names)) for names in VALUES)


@pytest.mark.parametrize("conditions", [(one, other) for one in CONDITIONS for other in ("c", "b or c")])
def test_conjunction_is_true_where_all_conditions_are(conditions: tuple[str, ...]) -> None:
    for names in VALUES:
        wanted = all(eval(one, {}, names) for one in conditions)
        assert bool(eval(conjunction(conditions), {}, names)) is wanted
        assert bool(eval(negate(conjunction(conditions)), {}, names)) is not wanted


def test_multiline_conditions() -> None:
    assert negate("a\n    and b") == "not (a\n    and b)"
    assert conjunction(["a\n    or b", "c"]) == "(a\n    or b) and c"
    assert conjunction(["a\n    or b"]) == "(a\n    or b)"
    assert isinstance(parse_condition("a\n    or b"), cst.BooleanOperation)


def test_no_unnecessary_parentheses_are_added() -> None:
    assert (negate("training"), negate("not self.training")) == ("not training", "self.training")
    assert conjunction(["not training", "shuffle"]) == "not training and shuffle"
