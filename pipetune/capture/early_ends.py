"""Whether a Python loop begins to read its data anew before the data ends: a cache is then never complete."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pipetune.capture.consumption import WayOut
from pipetune.capture.rebuilding import loops_at, spans, start_of, tree_of
from pipetune.pipelines import call_sites

SHORTER = frozenset({"islice", "zip"})
_MAKES_ITERATOR = frozenset({"iter", "__iter__", "as_numpy_iterator"})
_ENDS = ("StopIteration", "OutOfRangeError")


def way_out(read: call_sites.CallPath, frame: FrameType | None) -> tuple[WayOut | None, int]:
    """Returns how the code may leave an iterator before its end, and how many elements it surely reads before.

    None if it shows no way; 0 if the number is not known.

    A `for` statement has one if it has a `break` or `return`, or stops with something else, as `zip(range(9), data)`.
    Who calls `next` has if each iteration of a loop makes the iterator, and nothing there handles its end. Who returns
    the iterator, as `__iter__` does, leaves that to its caller, and so does a generator that reads to the end.

    Args:
        read: the user's call stack where the iterator is made.
        frame: the innermost frame of it. What its variables exclude is left out, as `if n == options.steps: break`
            where the option is None.
    """
    return _way_out(read, frame, _MAKES_ITERATOR)


def _way_out(read: call_sites.CallPath, frame: FrameType | None, makers: frozenset[str]) -> tuple[WayOut | None, int]:
    """Returns `way_out`; `makers` are the names of functions that return an iterator of the data."""
    if len(read) < 2 or frame is None:
        return _own_way_out(read, frame, makers)
    (caller, _), name = call_sites.user_frame(frame.f_back), frame.f_code.co_name
    if _returns_iterator(read[0], makers):
        return _way_out(read[1:], caller, makers | {name})
    own = _own_way_out(read, frame, makers)
    if own[0] is None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        return _way_out(read[1:], caller, makers | {name})
    return own


@functools.lru_cache(maxsize=64)
def _returns_iterator(step: call_sites.FramePosition, makers: frozenset[str]) -> bool:
    """Whether a frame is in a call that makes an iterator and is returned."""
    tree, place = tree_of(step[0].co_filename), call_sites.start_of(step)
    if tree is None or place is None:
        return False
    returned = (node.value for node in ast.walk(tree) if isinstance(node, ast.Return))
    return any(
        isinstance(one, ast.Call) and call_sites.called_name(one) in makers and spans(one, place) for one in returned
    )


def _own_way_out(
    read: call_sites.CallPath, frame: FrameType | None, makers: frozenset[str]
) -> tuple[WayOut | None, int]:
    found = _ways_out(read, makers)
    if frame is None or found.way is not WayOut.FOR or found.always:
        return found.way, 0
    known = KnownVariables.in_frame(frame, found.assigned)
    exits = list(filter(known.may_hold, found.exits))
    if not exits:
        return None, 0
    return WayOut.FOR, min(
        max((known.steps_until(test, found.counters) for test in tests), default=0) for tests in exits
    )


@dataclass(frozen=True)
class _Ways:
    """The ways out of a loop, and what they depend on."""

    way: WayOut | None = None
    always: bool = False  # whatever its conditions are
    exits: tuple[tuple[ast.expr, ...], ...] = ()  # for each `break` and `return`: the conditions around it
    assigned: frozenset[str] = frozenset()  # variables, attributes and items that the loop assigns, as text
    counters: Mapping[str, int | None] = field(default_factory=dict)  # as `_counters` returns them


@functools.lru_cache(maxsize=64)  # a script may make an iterator in each step
def _ways_out(read: call_sites.CallPath, makers: frozenset[str]) -> _Ways:
    tree = tree_of(read[0][0].co_filename) if read else None
    place = call_sites.start_of(read[0]) if read else None
    if tree is None or place is None:
        return _Ways()
    loop = header_at(read[0])
    if loop is not None:
        called = {call_sites.called_name(node) for node in ast.walk(loop.iter) if isinstance(node, ast.Call)}
        exits = tuple(exits_of(loop.body))
        always = bool(called & SHORTER)
        return _Ways(WayOut.FOR if always or exits else None, always, exits, assigned_in(loop), _counters(loop))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and call_sites.called_name(node) in makers]
    if not any(spans(call, place) for call in calls):
        return _Ways()  # it is read by a comprehension, or a function such as `list`
    around, *outside = map(loops_at, read)
    handled = any(map(_handles_end, ast.walk(around[0] if around else tree)))
    return _Ways(WayOut.NEXT if (around or any(outside)) and not handled else None)


def _counters(loop: ast.For) -> dict[str, int | None]:
    """Returns the variables that count the iterations of a loop, and what they begin with; None: their value before."""
    stored = [node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    found: dict[str, int | None] = {}
    match loop:
        case ast.For(ast.Tuple([ast.Name(name), *_]), ast.Call(ast.Name("enumerate"), [_])):
            found[name] = 0
    for statement in loop.body:
        match statement:
            case ast.AugAssign(ast.Name(name), ast.Add(), ast.Constant(1)):
                found[name] = None
    return {name: first for name, first in found.items() if stored.count(name) == 1}


def header_at(step: call_sites.FramePosition) -> ast.For | None:
    """Returns the `for` statement that makes or advances its iterator where a frame is; None for any other code."""
    tree, place = tree_of(step[0].co_filename), call_sites.start_of(step)
    if tree is None or place is None:
        return None
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For))
    # CPython names the whole statement, or the call in its header.
    return next((loop for loop in reversed(list(loops)) if place == start_of(loop) or spans(loop.iter, place)), None)


def exits_of(
    body: list[ast.stmt], *, own: bool = True, tests: tuple[ast.expr, ...] = ()
) -> Iterator[tuple[ast.expr, ...]]:
    """Yields the conditions of each statement that leaves a loop with this body, except where an exception is handled.

    Args:
        own: whether `break` in these statements is one of the loop.
        tests: the conditions around them.
    """
    for statement in body:
        match statement:
            case ast.Return():
                yield tests
            case ast.Break() if own:
                yield tests
            case ast.If(test=test, body=then, orelse=otherwise):
                yield from exits_of(then, own=own, tests=(*tests, test))
                yield from exits_of(otherwise, own=own, tests=(*tests, ast.UnaryOp(ast.Not(), test)))
            case ast.For(body=inner, orelse=otherwise) | ast.While(body=inner, orelse=otherwise):
                yield from exits_of(inner, own=False, tests=tests)
                yield from exits_of(otherwise, own=own, tests=tests)
            case ast.With(body=inner):
                yield from exits_of(inner, own=own, tests=tests)
            case ast.Try(body=inner, orelse=otherwise, finalbody=last):
                yield from exits_of([*inner, *otherwise, *last], own=own, tests=tests)
            case ast.Match(cases=cases):
                yield from exits_of([line for case in cases for line in case.body], own=own, tests=tests)


def assigned_in(node: ast.AST) -> frozenset[str]:
    """Returns the variables, attributes and items that code assigns, as text."""
    return frozenset(
        ast.unparse(one)
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store)
    )


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
        """Returns what is known where a frame is."""
        return cls({**frame.f_globals, **frame.f_locals}, assigned)

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
            case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
                values = [self.value(left), self.value(right)]
                return False if sum(one is None for one in values) == 1 else None  # a counter is no None
            case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                value = self.value(left)
                return None if value is UNKNOWN else value is not None
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
        for call in ast.walk(loop.iter) if isinstance(loop, ast.For) else ():
            if isinstance(call, ast.Call) and call_sites.called_name(call) in ("range", "trange"):
                numbers = [self.value(one) for one in call.args]
                if numbers and all(type(one) is int for one in numbers) and numbers[2:] != [0]:
                    return len(range(*numbers))
        return None

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


def _handles_end(node: ast.AST) -> bool:
    """Whether code handles that an iterator is at its end: by an exception, a default of `next`, or an optional."""
    match node:
        case ast.ExceptHandler(type=handled):
            return handled is None or any(name in ast.unparse(handled) for name in (*_ENDS, "Exception"))
        case ast.Call(func=ast.Name(id="next"), args=[_, _]) | ast.Attribute(attr="has_value"):
            return True
    return False
