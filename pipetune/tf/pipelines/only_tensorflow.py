"""Whether a Python function is made of TensorFlow calls, read from its code: what tracing alone would not show.

A draw of NumPy's or a counter runs once while a function is traced, and is a constant from then on; nothing fails.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras"})
_BUILTINS = frozenset(
    {"len", "range", "int", "float", "bool", "tuple", "list", "dict", "zip", "enumerate", "min", "max", "abs", "sum",
     "isinstance", "slice", "round", "reversed", "map"}
)  # fmt: skip
_PLAIN = (int, float, complex, str, bytes, type(None), type(Ellipsis), np.generic, np.ndarray, np.dtype)
_CONTAINERS = (list, dict, set)
_WRITES = frozenset(
    {"STORE_DEREF", "DELETE_DEREF", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR",
     "DELETE_SUBSCR", "IMPORT_NAME"}
)  # fmt: skip
READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
MEMBERS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def foreign(function: FunctionType) -> str:
    """What a function, or one of the user's that it calls, uses beside TensorFlow and plain values; '' for nothing."""
    return _foreign(function, set())


def value_of(function: FunctionType, name: str) -> Any:
    """What a name outside of a function stands for in it; None where it is bound to nothing."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        try:
            return cells[name].cell_contents
        except ValueError:  # not bound yet
            return None
    return function.__globals__.get(name, getattr(builtins, name, None))


def _foreign(function: FunctionType, seen: set[CodeType]) -> str:
    if function.__code__ in seen:
        return ""
    seen.add(function.__code__)
    for code in codes(function.__code__):
        instructions = list(dis.get_instructions(code))
        for place, instruction in enumerate(instructions):
            name = str(instruction.argval)
            inner_only = instruction.opname.endswith("DEREF") and name not in function.__code__.co_freevars
            if instruction.opname in _WRITES and not inner_only:
                return "an import, or a change of something outside,"
            if instruction.opname == "CONTAINS_OP":  # a tensor is in no list, and nothing fails
                return "a look for something in something,"
            if instruction.opname not in READS or inner_only:
                continue
            after = instructions[place + 1] if place + 1 < len(instructions) else None
            member = str(after.argval) if after is not None and after.opname in MEMBERS else ""
            value = value_of(function, name)
            if not _allowed(value, name, member):
                return f"{name}.{member}" if member else name
            inner = getattr(value, "python_function", value)
            other = _foreign(inner, seen) if isinstance(inner, FunctionType) and not _of_library(inner) else ""
            if other:
                return other
    return ""


def codes(code: CodeType) -> Iterator[CodeType]:
    """A piece of code and every one within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def _allowed(value: Any, name: str, member: str) -> bool:
    if isinstance(value, ModuleType):
        return _root(value.__name__) in _LIBRARIES or (value is np and _is_constant(getattr(np, member or "_", ...)))
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, tuple):
        return all(isinstance(part, _PLAIN) for part in value)
    if isinstance(value, _CONTAINERS):
        return bool(value) and not member  # an empty one is there to be filled, and methods may change it
    if isinstance(value, BuiltinFunctionType) or (isinstance(value, type) and value.__module__ == "builtins"):
        return name in _BUILTINS and getattr(builtins, name, None) is value
    if isinstance(value, FunctionType):
        return True  # looked into
    return _of_library(value)


def _is_constant(value: Any) -> bool:
    """Whether a member of NumPy is a type of numbers or a number: `np.float32`, `np.pi`, `np.newaxis`."""
    return value is None or isinstance(value, float) or (isinstance(value, type) and issubclass(value, np.generic))


def _of_library(value: Any) -> bool:
    modules = (getattr(value, "__module__", None), type(value).__module__)
    return any(isinstance(module, str) and _root(module) in _LIBRARIES for module in modules)


def _root(module: str) -> str:
    return module.partition(".")[0]
