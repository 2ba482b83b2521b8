"""Conditions of a script put together: their texts keep what they mean, whatever operators they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

_LOOSE = cst.IfExp | cst.Lambda | cst.NamedExpr | cst.Tuple
"""What binds less than `and`, beside `or`."""


def negated(condition: str) -> str:
    """What is true where a condition is not."""
    test = _parsed(condition)
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return cst.Module([]).code_for_node(test.expression)
    return f"not {condition}" if isinstance(test, cst.Name | cst.Attribute | cst.Call) else f"not ({condition})"


def all_of(conditions: Sequence[str]) -> str:
    """What is true where all of them are."""
    if len(conditions) == 1:
        return conditions[0] if _parsed(conditions[0]) else f"({conditions[0]})"
    return " and ".join(map(_within_and, conditions))


def parsed(condition: str) -> cst.BaseExpression:
    """The expression, also where it goes over several lines, within the parentheses that it stands in."""
    return _parsed(condition) or cst.parse_expression(f"({condition})")


def _within_and(condition: str) -> str:
    test = _parsed(condition)
    either = isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or)
    enclosed = test is not None and bool(test.lpar)
    loose = test is None or either or isinstance(test, _LOOSE)
    return f"({condition})" if loose and not enclosed else condition


def _parsed(condition: str) -> cst.BaseExpression | None:
    """The expression; None where it is one only within the parentheses that it stands in, over several lines."""
    try:
        return cst.parse_expression(condition)
    except cst.ParserSyntaxError:
        return None
