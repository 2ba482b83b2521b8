"""Maps each op of a function's graph to the statement of its body that created it, from TensorFlow's op tracebacks."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from types import FunctionType
from typing import Any


def statements_of(function: Any, ops: Sequence[Any]) -> list[int] | None:
    """Returns, for every op, the index of the statement in the function's body that created it.

    An op that no statement created gets the index of the op before it (inputs 0). None if the function is not a plain
    `def`, its source cannot be read, or its statements did not run in order.
    """
    body = _body(function)
    if body is None:
        return None
    lines = [(one.lineno, one.end_lineno or one.lineno) for one in body]
    found, last = list[int](), 0
    for op in ops:
        line = _line_within(function, op, first=lines[0][0], last=lines[-1][1])
        places = [place for place, (start, end) in enumerate(lines) if line is not None and start <= line <= end]
        if places and places[0] < last:
            return None
        last = places[0] if places else last
        found.append(last)
    return found


def _body(function: Any) -> list[ast.stmt] | None:
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        return None
    code = function.__code__
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == code.co_name
        and node.lineno == code.co_firstlineno
        and not node.decorator_list
    ]
    return found[0].body if len(found) == 1 else None


def _line_within(function: FunctionType, op: Any, *, first: int, last: int) -> int | None:
    """Returns the line of the body that ran when an op was created: that of the outermost frame of the function."""
    file, name = function.__code__.co_filename, function.__code__.co_name
    for frame in op.traceback or ():
        if frame.filename == file and frame.name in (name, f"tf__{name}") and first <= frame.lineno <= last:
            return int(frame.lineno)
    return None
