"""What the script's variables say of its conditions and loops, without running any code of the script."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterable, Mapping
from types import FrameType, FunctionType
from typing import Any

from pipetune.pipelines import call_sites


def assigned_in(node: ast.AST) -> frozenset[str]:
    """Returns the variables, attributes and items that code assigns, as text."""
    return frozenset(
        ast.unparse(one)
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store)
    )


def closed_over(function: FunctionType) -> dict[str, Any]:
    """Returns the values of the variables of outer functions that a function uses, without those not assigned yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


UNKNOWN = object()
"""The value of an expression of which none is known."""


class KnownVariables:
    """What is known of the values in a part of the script's code, without running any code of the script.

    Args:
        names: the values of the variables when that part begins.
        assigned: what it assigns itself, as `assigned_in` returns it.
    """

    def __init__(self, names: Mapping[str, Any], assigned: frozenset[str]) -> None:
        self._names, self._assigned = names, assigned

    @classmethod
    def in_frame(cls, frame: FrameType, assigned: frozenset[str]) -> KnownVariables:
        return cls({**frame.f_globals, **frame.f_locals}, assigned)

    def with_names(self, names: Mapping[str, Any]) -> KnownVariables:
        """Returns what is known where these variables have these values, too."""
        return KnownVariables({**self._names, **names}, self._assigned - names.keys())

    def may_hold(self, tests: Iterable[ast.expr]) -> bool:
        """Whether all of these conditions may be true."""
        return all(self.truth(test) is not False for test in tests)

    def truth(self, test: ast.expr) -> bool | None:
        """Whether a condition is true; None if that is not known, or may change."""
        match test:
            case ast.BoolOp(op=ast.And(), values=parts):
                return False if any(self.truth(part) is False for part in parts) else None
            case ast.BoolOp(values=parts):
                return False if all(self.truth(part) is False for part in parts) else None
            case ast.UnaryOp(op=ast.Not(), operand=part):
                inner = self.truth(part)
                return None if inner is None else not inner
            case ast.Compare(left, [ast.Is() | ast.Eq() | ast.IsNot() as asked], [ast.Constant(None)]):
                value = self.value(left)
                return None if value is UNKNOWN else (value is None) is not isinstance(asked, ast.IsNot)
            case ast.Compare(left, [ast.Eq()], [right]):
                values = [self.value(left), self.value(right)]
                return False if sum(one is None for one in values) == 1 else None  # a counter is no None
        value = self.value(test)
        return bool(value) if value is None or isinstance(value, bool | int | str) else None

    def steps_until(self, test: ast.expr, counters: Mapping[str, int | None]) -> int:
        """Returns in how many iterations a condition on a counter is surely not met; 0 if that is not known."""
        match test:
            case ast.BoolOp(op=ast.And(), values=parts):
                return max(self.steps_until(part, counters) for part in parts)
            case ast.Compare(ast.Name(name), [ast.Eq() | ast.GtE() | ast.Gt()], [limit]) if name in counters:
                first, last = counters[name], self.value(limit)
                first = self._names.get(name) if first is None else first
                return max(0, last - first) if isinstance(first, int) and isinstance(last, int) else 0
        return 0

    def period(self, test: ast.expr) -> int | None:
        """Returns N where a condition is met once in N iterations, as `step % N == 0` is; None if that is not known."""
        match test:
            case ast.Compare(ast.BinOp(op=ast.Mod(), right=number), [ast.Eq()], [_]) | ast.UnaryOp(
                ast.Not(), ast.BinOp(op=ast.Mod(), right=number)
            ):
                period = self.value(number)
                return period if type(period) is int and period > 0 else None
            case ast.BoolOp(ast.And(), parts):
                periodic = [one for one in parts if self.period(one) is not None]
                others = [one for one in parts if one not in periodic and self.truth(one) is None]
                # `step > 0 and step % N == 0`: what is asked of the same counter holds soon.
                alike = len(periodic) == 1 and all(self._asks_alike(one, periodic[0]) for one in others)
                return self.period(periodic[0]) if alike else None
            case ast.BoolOp(ast.Or(), parts):
                return min(filter(None, map(self.period, parts)), default=None)
        return None

    def _asks_alike(self, test: ast.expr, other: ast.expr) -> bool:
        """Whether a condition depends on nothing that is not known, apart from what another one depends on."""
        depends = {ast.unparse(node) for node in ast.walk(other) if isinstance(node, ast.Name | ast.Attribute)}
        parts = [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute | ast.Call)]
        return not any(self.value(node) is UNKNOWN and ast.unparse(node) not in depends for node in parts)

    def iterations(self, loop: ast.For | ast.While) -> int | None:
        """Returns how often a loop over `range(...)` runs its body; None for any other, and if that is not known."""
        header = loop.iter if isinstance(loop, ast.For) else None
        while isinstance(header, ast.Call) and call_sites.called_name(header) not in ("range", "trange"):
            header = header.args[0] if len(header.args) == 1 else None  # as in `tqdm(range(9))`
        numbers = [self.value(one) for one in header.args] if isinstance(header, ast.Call) else []
        known = numbers and all(type(one) is int for one in numbers) and numbers[2:] != [0]
        steps = range(*numbers) if known else None
        return None if steps is None else max(0, -((steps.start - steps.stop) // steps.step))  # `len` may be too large

    def value(self, expression: ast.expr) -> Any:
        """Returns the value of a constant, or of a variable, attribute or item that the loop does not assign."""
        if ast.unparse(expression) in self._assigned:
            return UNKNOWN
        match expression:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._names.get(name, UNKNOWN)
            case ast.Attribute(value=owner, attr=name):
                held = self.value(owner)
                return UNKNOWN if held is UNKNOWN else inspect.getattr_static(held, name, UNKNOWN)
            case ast.Subscript(value=owner, slice=ast.Constant(value=key)):
                held = self.value(owner)
                return held.get(key, UNKNOWN) if type(held) is dict else UNKNOWN
        return UNKNOWN
