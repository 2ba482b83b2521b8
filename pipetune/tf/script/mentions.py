"""Finds the outside names that a function uses, with locations and current values, by reading its bytecode only."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from pipetune.tf.script import capture

_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
_MEMBERS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ARGUMENTS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_MOST_PARTS = 64  # items inspected per container
_MOST_FUNCTIONS = 200  # functions inspected, including those that they call


@dataclass(frozen=True, eq=False)
class Mention:
    """A name as written in the user's code ("train", "self.train"), with its current value."""

    name: str
    value: Any
    file: str
    line: int

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yields the name with its value, and for a container also each of its items: "splits['train']"."""
        yield self.name, self.value
        if isinstance(self.value, dict):
            entries = list(self.value.items())
        else:
            entries = list(enumerate(self.value)) if isinstance(self.value, list | tuple) else []
        yield from ((f"{self.name}[{key!r}]", value) for key, value in entries[:_MOST_PARTS])


@dataclass(frozen=True, eq=False)
class _Call:
    """A Python function, and the arguments it is known to be called with."""

    function: FunctionType
    arguments: Mapping[str, Any]
    key: tuple[object, ...]  # equal for calls with the same arguments


def mentioned(function: Any) -> Iterator[Mention]:
    """Yields every outside name that a user function refers to, including those of the user functions it calls.

    Of library functions in between, only closures, arguments and their attributes are followed.

    Args:
        function: a function, a method, a `tf.function`, a `functools.partial` or a callable object.
    """
    call = _call_of(function)
    return _in_call(call, set()) if call is not None else iter(())


def _call_of(value: Any, /, *given: Any, **named: Any) -> _Call | None:
    """Returns the Python function that runs if `value` is called with at least these arguments; None if unknown."""
    if isinstance(value, functools.partial):
        return _call_of(value.func, *value.args, *given, **{**value.keywords, **named})
    if isinstance(value, MethodType):
        return _call_of(value.__func__, value.__self__, *given, **named)
    if isinstance(value, staticmethod):
        return _call_of(value.__func__, *given, **named)
    inner = inspect.getattr_static(value, "_python_function", None)  # of a tf.function
    if inner is not None:
        return _call_of(inner, *given, **named)
    if isinstance(value, FunctionType):
        key = (value.__code__, *map(id, (*given, *named.values(), *_cells(value))))
        try:
            known = inspect.signature(value, follow_wrapped=False).bind_partial(*given, **named)
        except TypeError:
            return _Call(value, {}, key)
        known.apply_defaults()
        return _Call(value, known.arguments, key)
    called = inspect.getattr_static(type(value), "__call__", None)
    return _call_of(called, value, *given, **named) if isinstance(called, FunctionType) else None


def _in_call(call: _Call, seen: set[object]) -> Iterator[Mention]:
    if call.key in seen or len(seen) >= _MOST_FUNCTIONS:
        return
    seen.add(call.key)
    if capture.is_library(call.function.__code__.co_filename):
        held = (held for value in call.arguments.values() for held in getattr(value, "__dict__", {}).values())
        reached = [*_cells(call.function), *call.arguments.values(), *held]
    else:
        found = list(_named(call))
        yield from found
        reached = [value for mention in found for _, value in mention.parts()]
    for value in reached:
        inner = _call_of(value)
        if inner is not None:
            yield from _in_call(inner, seen)


def _cells(function: FunctionType) -> list[Any]:
    return [_value_of(function, name) for name in function.__code__.co_freevars]


def _named(call: _Call) -> Iterator[Mention]:
    """Yields the arguments and outside names that a function and its nested functions load, and their attributes."""
    function = call.function
    for code in _codes(function.__code__):
        steps = list(dis.get_instructions(code))
        for place, step in enumerate(steps):
            name = str(step.argval)
            outside = step.opname in _READS and (
                not step.opname.endswith("DEREF") or name in function.__code__.co_freevars
            )
            if name in call.arguments and (step.opname in _ARGUMENTS or step.opname.endswith("DEREF")):
                value = call.arguments[name]
            elif outside:
                value = _value_of(function, name)
            else:
                continue
            line = step.positions.lineno if step.positions is not None and step.positions.lineno else 0
            yield Mention(name, value, code.co_filename, line)
            for member in steps[place + 1 :]:
                if member.opname not in _MEMBERS:
                    break
                name, value = f"{name}.{member.argval}", _member(value, str(member.argval))
                yield Mention(name, value, code.co_filename, line)


def _value_of(function: FunctionType, name: str) -> Any:
    """Returns the value that an outside name has in a function; None if it is unbound."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        try:
            return cells[name].cell_contents
        except ValueError:  # not bound yet
            return None
    return function.__globals__.get(name, getattr(builtins, name, None))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and all code objects nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _member(value: Any, name: str) -> Any:
    """Returns an attribute of an object if it can be read without running code of its class; None otherwise."""
    found = inspect.getattr_static(value, name, None)
    if isinstance(found, FunctionType) and inspect.getattr_static(type(value), name, None) is found:
        return MethodType(found, value)
    return found
