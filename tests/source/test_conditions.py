"""Conditions put together mean what they meant, for every value of their names."""

from __future__ import annotations

import itertools

import libcst as cst
import pytest

from pipetune.source.conditions import all_of, negated, parsed

CONDITIONS = ("a", "not a", "not a and b", "a or b", "(a or b)", "a == b", "a if b else c", "bool(a)", "not (a or b)")
VALUES = [dict(zip("abc", values, strict=True)) for values in itertools.product((False, True), repeat=3)]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_negated(condition: str) -> None:
    assert all(bool(eval(negated(condition), {}, names)) is not bool(eval(condition, {}, names)) for names in VALUES)


@pytest.mark.parametrize("conditions", [(one, other) for one in CONDITIONS for other in ("c", "b or c")])
def test_all_of(conditions: tuple[str, ...]) -> None:
    for names in VALUES:
        wanted = all(eval(one, {}, names) for one in conditions)
        assert bool(eval(all_of(conditions), {}, names)) is wanted
        assert bool(eval(negated(all_of(conditions)), {}, names)) is not wanted


def test_over_several_lines() -> None:
    assert negated("a\n    and b") == "not (a\n    and b)"
    assert all_of(["a\n    or b", "c"]) == "(a\n    or b) and c"
    assert all_of(["a\n    or b"]) == "(a\n    or b)"
    assert isinstance(parsed("a\n    or b"), cst.BooleanOperation)


def test_nothing_is_put_in_parentheses_that_stands_without() -> None:
    assert (negated("training"), negated("not self.training")) == ("not training", "self.training")
    assert all_of(["not training", "shuffle"]) == "not training and shuffle"
