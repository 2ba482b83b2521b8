"""Whether a Python loop begins to read its data anew before the data ends: a cache is then never complete."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType

from pipetune.capture.consumption import WayOut
from pipetune.capture.loops import CONSUMING_CALLS, KnownVariables, assigned_in
from pipetune.capture.rebuilding import contains, function_at, loops_at, source_at, spans, start_of
from pipetune.pipelines import call_sites

SHORTER = frozenset({"islice", "zip", "takewhile"})
_MAKES_ITERATOR = frozenset({"iter", "__iter__", "as_numpy_iterator"})
_ENDS = ("StopIteration", "OutOfRangeError")


def way_out(
    read: call_sites.CallPath, frame: FrameType | None, makers: frozenset[str] = _MAKES_ITERATOR
) -> tuple[WayOut | None, int]:
    """Returns how the code may leave an iterator before its end, and how many elements it surely reads before.

    None if it shows no way; 0 if the number is not known.

    A `for` statement has one if it has a `break` or `return`, raises what the code around it handles, or stops with
    something else, as `zip(range(9), data)`. Who calls `next` has if each iteration of a loop makes the iterator, and
    nothing there handles its end. Who returns the iterator, as `__iter__` does, leaves that to its caller, and so does
    a generator that reads to the end.

    Args:
        read: the user's call stack where the iterator is made.
        frame: the innermost frame of it. What its variables exclude is left out, as `if n == options.steps: break`
            where the option is None.
        makers: names of functions that return an iterator of the data.
    """
    if len(read) < 2 or frame is None:
        return _own_way_out(read, frame, makers)
    (caller, _), name = call_sites.user_frame(frame.f_back), frame.f_code.co_name
    if _returns_iterator(read[0], makers):
        return way_out(read[1:], caller, makers | {name})
    if name == "__iter__" and not frame.f_code.co_flags & inspect.CO_GENERATOR:  # of an object with `__next__`
        return (WayOut.FOR, 0) if _ends_by_itself(read[0]) else way_out(read[1:], caller, makers)
    own = _own_way_out(read, frame, makers)
    if own[0] is None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        return way_out(read[1:], caller, makers | {name})
    return own


@functools.lru_cache(maxsize=64)
def _returns_iterator(step: call_sites.FramePosition, makers: frozenset[str]) -> bool:
    """Whether a frame is in a call that makes an iterator and is returned."""
    tree, place = source_at(step)
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    names = {value.id for value in values if isinstance(value, ast.Name)}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], value) if name in names:
                values.append(value)
    calls = (value for value in values if isinstance(value, ast.Call) and spans(value, place))
    return any(call_sites.called_name(call) in makers for call in calls)


@functools.lru_cache(maxsize=64)
def _ends_by_itself(step: call_sites.FramePosition) -> bool:
    """Whether the class that a frame is in has a `__next__` that ends without having read to the end."""
    tree, place = source_at(step)
    owners = (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and spans(one, place))
    methods = [one for owner in owners for one in owner.body if getattr(one, "name", "") == "__next__"]
    return any(
        any(_raised(node) in _ENDS for node in ast.walk(method)) and not any(map(_handles_end, ast.walk(method)))
        for method in methods
    )


def _own_way_out(
    read: call_sites.CallPath, frame: FrameType | None, makers: frozenset[str]
) -> tuple[WayOut | None, int]:
    found = _ways_out(read, makers)
    if frame is None or found.way is not WayOut.FOR:
        return found.way, 0
    known = KnownVariables.in_frame(frame, found.assigned)
    exits = list(filter(known.may_hold, found.exits))
    if not exits:
        return None, 0
    return WayOut.FOR, min(max((known.steps_until(one, found.counters) for one in tests), default=0) for tests in exits)


@dataclass(frozen=True)
class _Ways:
    """The ways out of a loop, and what they depend on."""

    way: WayOut | None = None
    exits: tuple[tuple[ast.expr, ...], ...] = ()  # for each `break` and `return`, or other end: the conditions of it
    assigned: frozenset[str] = frozenset()  # what the loop, or a function that it may call, assigns, as text
    counters: Mapping[str, int | None] = field(default_factory=dict)  # as `_counters` returns them


@functools.lru_cache(maxsize=64)  # a script may make an iterator in each step
def _ways_out(read: call_sites.CallPath, makers: frozenset[str]) -> _Ways:
    if not read:
        return _Ways()
    tree, place = source_at(read[0])
    loop = header_at(read[0])
    if loop is not None:
        return _ways_out_of(loop, read, loop.iter)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and call_sites.called_name(node) in makers]
    if not any(spans(call, place) for call in calls):
        return _Ways()  # it is read by a comprehension, or a function such as `list`
    if _is_made_once(tree, place):
        return _Ways()
    around, *outside = map(loops_at, read)
    for made, loop in _loops_over_variable(around[0] if around else function_at(read[0]) or tree, place):
        return _ways_out_of(loop, read, made, loop.iter)
    handled = any(map(_handles_end, ast.walk(around[0] if around else tree)))
    return _Ways(WayOut.NEXT if (around or any(outside)) and not handled else None)


def _ways_out_of(loop: ast.For, read: call_sites.CallPath, *iterated: ast.expr) -> _Ways:
    """Returns the ways out of a `for` statement over the value of the last of these expressions."""
    tree, _ = source_at(read[0])
    called = {call_sites.called_name(node) for one in iterated for node in ast.walk(one) if isinstance(node, ast.Call)}
    handled = _handled_around(read)
    elsewhere = {_raised(node) for one in read for node in ast.walk(source_at(one)[0])} - vars(builtins).keys()
    ends = called & SHORTER or (elsewhere - {*_ENDS, *(_raised(node) for node in ast.walk(loop))}) & handled
    exits = (*exits_of(loop.body, handled=handled), *([()] if ends else []))
    return _Ways(WayOut.FOR if exits else None, exits, assigned_in(loop) | _set_by_calls(tree), _counters(loop))


def _loops_over_variable(scope: ast.AST, place: tuple[int, int]) -> Iterator[tuple[ast.expr, ast.For]]:
    """Yields what is assigned to a variable at `place`, and the only `for` statement over it: `it = iter(data)`."""
    for made in ast.walk(scope):
        match made:
            case ast.Assign([ast.Name(name)], value) if spans(made, place):
                used = [one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name]
                loops = [
                    one for one in ast.walk(scope) if isinstance(one, ast.For) and set(ast.walk(one.iter)) & {*used}
                ]
                if len(loops) == 1 and len(used) == 2:  # else `next` may read it, too
                    yield value, loops[0]


def _handled_around(read: call_sites.CallPath) -> frozenset[str]:
    """Returns the names of the exceptions that the code around a reading handles, with those derived from them.

    Not of all exceptions, nor where the handler raises: errors do not belong to what a script does.
    """
    found = set[str]()
    for tree, place in map(source_at, read):
        for node in ast.walk(tree):
            if isinstance(node, ast.Try) and contains(node, place):
                for handler in node.handlers:
                    if not any(isinstance(one, ast.Raise) for one in ast.walk(handler)):
                        found |= _handled_by(handler)
    found -= _ALL
    for tree, _ in map(source_at, read):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not found.isdisjoint(map(_last_name, node.bases)):
                found.add(node.name)
    return frozenset(found)


def elements_in_all(frame: FrameType | None) -> int | None:
    """Returns how many elements the code takes, by a `next` that a frame is in, if loops over ranges alone repeat it.

    None if that is not known.
    """
    elements, innermost = 1, None
    place = source_at((frame.f_code, frame.f_lasti))[1] if frame is not None else (0, 0)
    while frame is not None:
        for loop in loops_at((frame.f_code, frame.f_lasti)):
            innermost, known = innermost or loop, KnownVariables.in_frame(frame, assigned_in(loop))
            iterations = known.iterations(loop)
            if iterations is None or any(map(known.may_hold, exits_of(loop.body))):
                return None
            elements *= iterations
        if innermost is None:
            return None
        frame, _ = call_sites.user_frame(frame.f_back)
    nodes = ast.walk(innermost) if innermost is not None else ()
    calls = [one for one in nodes if isinstance(one, ast.Call) and call_sites.called_name(one) in CONSUMING_CALLS]
    return elements if len(calls) == 1 and spans(calls[0], place) else None


_ALL = frozenset({"Exception", "BaseException"})


def _handled_by(handler: ast.ExceptHandler) -> frozenset[str]:
    """Returns the names of the exceptions that an `except` clause handles."""
    match handler.type:
        case None:
            return _ALL
        case ast.Tuple(elts=types):
            return frozenset(map(_last_name, types))
        case kind:
            return frozenset({_last_name(kind)})


def _raised(node: ast.AST) -> str:
    """Returns the name of the exception that a statement raises; "" if it raises none, or again what it handles."""
    match node:
        case ast.Raise(exc=ast.Call(func=kind)) | ast.Raise(exc=ast.Name() | ast.Attribute() as kind):
            return _last_name(kind)
    return ""


def _set_by_calls(tree: ast.Module) -> frozenset[str]:
    """Returns the attributes and global variables that functions of a file assign, apart from `__init__`, as text."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name != "__init__"]
    shared = {name for one in ast.walk(tree) if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names}
    return frozenset(shared).union(name for one in functions for name in assigned_in(one) if "." in name)


def _is_made_once(tree: ast.AST, place: tuple[int, int]) -> bool:
    """Whether the statement at `place` makes an iterator where there is none yet: `if self.it is None: self.it = ...`.

    Not if anything else assigns a variable or attribute of that name, but where a module, a class or an object begins.
    """
    for node in ast.walk(tree):
        match node:
            case ast.If(test=ast.Compare(held, [ast.Is()], [ast.Constant(None)]) | ast.UnaryOp(ast.Not(), held)):
                makes = [one for one in node.body if isinstance(one, ast.Assign) and spans(one, place)]
                if [ast.unparse(target) for one in makes for target in one.targets] == [ast.unparse(held)]:
                    return all(one in makes for one in _assignments_to(_last_name(held), tree))
    return False


def _assignments_to(name: str, tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.FunctionDef(name="__init__"):
                continue
            case ast.Assign(targets=targets):
                begins = isinstance(tree, ast.Module | ast.ClassDef)
                if not begins and name in map(_last_name, targets):
                    yield child
        yield from _assignments_to(name, child)


def _last_name(expression: ast.expr) -> str:
    return ast.unparse(expression).rpartition(".")[2]


def _counters(loop: ast.For) -> dict[str, int | None]:
    """Returns the variables that count the iterations of a loop, and what they begin with; None: their value before."""
    stored = [node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    found: dict[str, int | None] = {}
    match loop:
        case ast.For(ast.Tuple([ast.Name(name), *_]), ast.Call(ast.Name("enumerate"), [_], [])):
            found[name] = 0
    for statement in loop.body:
        match statement:
            case ast.AugAssign(ast.Name(name), ast.Add(), ast.Constant(1)):
                found[name] = None
    return {name: first for name, first in found.items() if stored.count(name) == 1}


def header_at(step: call_sites.FramePosition) -> ast.For | None:
    """Returns the `for` statement that makes or advances its iterator where a frame is; None for any other code."""
    tree, place = source_at(step)
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For))
    # CPython names the whole statement, or the call in its header.
    return next((loop for loop in reversed(list(loops)) if place == start_of(loop) or spans(loop.iter, place)), None)


def is_in_body(here: call_sites.CallPath, read: call_sites.CallPath) -> bool:
    """Whether a call stack is in the body of the `for` statement that made its iterator where another one was."""
    loop = header_at(read[0]) if read else None
    return loop is not None and any(step[0] is read[0][0] and loop in loops_at(step) for step in here)


def exits_of(
    body: list[ast.stmt],
    *,
    own: bool = True,
    tests: tuple[ast.expr, ...] = (),
    handled: frozenset[str] = frozenset(),
) -> Iterator[tuple[ast.expr, ...]]:
    """Yields the conditions of each statement that leaves a loop with this body, except where an exception is handled.

    Args:
        own: whether `break` in these statements is one of the loop.
        tests: the conditions around them.
        handled: names of the exceptions that leave the loop, as the code around it handles them.
    """
    exits = functools.partial(exits_of, own=own, tests=tests, handled=handled)
    for statement in body:
        match statement:
            case ast.Return():
                yield tests
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("sys" | "os"), "exit" | "_exit"), [] | [ast.Constant(0)])):
                yield tests
            case ast.Break() if own:
                yield tests
            case ast.Raise() if _raised(statement) in handled:
                yield tests
            case ast.If(test=test, body=then, orelse=otherwise):
                yield from exits(then, tests=(*tests, test))
                yield from exits(otherwise, tests=(*tests, ast.UnaryOp(ast.Not(), test)))
            case ast.For(body=inner, orelse=otherwise) | ast.While(body=inner, orelse=otherwise):
                yield from exits(inner, own=False)
                yield from exits(otherwise)
            case ast.With(body=inner):
                yield from exits(inner)
            case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=last):
                here = frozenset[str]().union(*map(_handled_by, handlers))
                yield from exits(inner, handled=frozenset() if here & _ALL else handled - here)
                yield from exits([*otherwise, *last])
            case ast.Match(cases=cases):
                yield from exits([line for case in cases for line in case.body])


def _handles_end(node: ast.AST) -> bool:
    """Whether code handles that an iterator is at its end: by an exception, a default of `next`, or an optional."""
    match node:
        case ast.ExceptHandler(type=handled):
            return handled is None or any(name in ast.unparse(handled) for name in (*_ENDS, "Exception"))
        case ast.Call(func=ast.Name(id="next"), args=[_, _]) | ast.Attribute(attr="has_value"):
            return True
    return False
