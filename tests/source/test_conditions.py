"""Combined conditions keep their meaning for every value of their names."""

from __future__ import annotations

import itertools

import libcst as cst
import pytest

from pipetune.source.statements import conjunction, negate, parse_condition

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
