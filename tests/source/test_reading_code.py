"""What is read from a script's code before a statement moves across it, or is written twice."""

from __future__ import annotations

import libcst as cst
import pytest

from pipetune.source.gathering import _is_plain_value
from pipetune.source.statements import bound_names, only_binds_or_reports
from pipetune.source.syntax_tree import SyntaxTree


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
    assert _is_plain_value(cst.parse_expression(value)) is repeats
