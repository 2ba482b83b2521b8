"""Combines conditions of a script as text, with parentheses where the precedence of operators requires them."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

_LOOSE = cst.IfExp | cst.Lambda | cst.NamedExpr | cst.Tuple
"""Expressions that bind less tightly than `and`, in addition to `or`."""


def negated(condition: str) -> str:
    """Returns the negation of a condition."""
    test = _parsed(condition)
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return cst.Module([]).code_for_node(test.expression)
    return f"not {condition}" if isinstance(test, cst.Name | cst.Attribute | cst.Call) else f"not ({condition})"


def all_of(conditions: Sequence[str]) -> str:
    """Returns the conjunction of the conditions."""
    if len(conditions) == 1:
        return conditions[0] if _parsed(conditions[0]) else f"({conditions[0]})"
    return " and ".join(map(_within_and, conditions))


def parsed(condition: str) -> cst.BaseExpression:
    """Returns the expression, even if it spans several lines and relies on the parentheses around it in the source."""
    return _parsed(condition) or cst.parse_expression(f"({condition})")


def _within_and(condition: str) -> str:
    test = _parsed(condition)
    either = isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or)
    enclosed = test is not None and bool(test.lpar)
    loose = test is None or either or isinstance(test, _LOOSE)
    return f"({condition})" if loose and not enclosed else condition


def _parsed(condition: str) -> cst.BaseExpression | None:
    """Returns the expression; None if it spans several lines and is valid only in the parentheses around it."""
    try:
        return cst.parse_expression(condition)
    except cst.ParserSyntaxError:
        return None
