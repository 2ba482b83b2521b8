"""Loops over `range(...)` in the user's source that may train begin again for as long as pipetune measures in them."""

from __future__ import annotations

import ast
import builtins
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

_NAME = "__pipetune_lasting__"
_CONSUMING_CALLS = frozenset({"next", "__next__", "get_next", "get_next_as_optional"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class LoopExtender:
    """Restarts instrumented loops that are exhausted while pipetune still measures in them."""

    def __init__(self, taken: Callable[[], int]) -> None:
        """`taken` returns how many elements this thread has received in measuring windows so far."""
        self._elements_taken = taken
        self._active_loops = threading.local()
        self.restarted = False

    def install(self) -> None:
        """Makes code with extended loops call this object, until the process ends or `uninstall` is called."""
        setattr(builtins, _NAME, self.extend)

    def uninstall(self) -> None:
        """Leaves loops as they are from now on: functions of a notebook that were compiled so may be called later."""
        setattr(builtins, _NAME, _as_it_is)

    def extend(self, iterable: Iterable[Any]) -> Iterable[Any]:
        """Returns the iterable that an instrumented loop uses in place of `iterable`; only a `range` is extended."""
        return self._extended_range(iterable) if type(iterable) is range else iterable

    def _extended_range(self, iterable: range) -> Iterator[int]:
        loops: list[object] = self._active_loops.__dict__.setdefault("loops", [])
        loop = object()
        loops.append(loop)
        try:
            before = self._elements_taken()
            yield from iterable
            while loops[0] is loop and self._elements_taken() > before:  # a round without a window: no more will come
                before, self.restarted = self._elements_taken(), True
                yield from iterable
        finally:  # also if the script leaves the loop by `break`
            loops.remove(loop)


def _as_it_is(iterable: Iterable[Any]) -> Iterable[Any]:
    return iterable


def compile_with_extended_loops(source: str | bytes, path: str) -> CodeType:
    """Returns the compiled script, with loops over `range` that may train extended; all source positions are kept.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    tree = ast.parse(source, path)
    if not extend_loops(tree):
        return compile(source, path, "exec", dont_inherit=True)
    return compile(tree, path, "exec", dont_inherit=True)


def extend_loops(tree: ast.Module) -> bool:
    """Extends, in place, the loops over `range` that may train; returns whether there are any."""
    loops = list(_loops_that_may_train(tree))
    for loop in loops:
        call = ast.copy_location(ast.Name(_NAME, ast.Load()), loop.iter)
        loop.iter = ast.copy_location(ast.Call(call, [loop.iter], []), loop.iter)
    return bool(loops)


def _loops_that_may_train(tree: ast.Module) -> Iterator[ast.For]:
    """Loops over `range(...)` that take elements from an iterator, or iterate something and leave it early by `break`.

    In their body, or in a function of the same file that the body calls.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    taking = set(_CONSUMING_CALLS)
    while True:
        more = {function.name for function in functions if _consumes_iterator(function, taking)} - taking
        if not more:
            break
        taking |= more
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For))
    return (
        loop for loop in loops if iterates_range(loop) and any(_consumes_iterator(part, taking) for part in loop.body)
    )


def _consumes_iterator(part: ast.AST, taking: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and called_name(node) in taking)
        or (isinstance(node, ast.For) and not iterates_range(node) and _is_left_early(node))
        for node in ast.walk(part)
    )


def _is_left_early(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Break) for part in loop.body for node in ast.walk(part))


def iterates_range(loop: ast.For) -> bool:
    """Whether it is `for ... in range(...)`."""
    return isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"


def called_name(call: ast.Call) -> str:
    """Returns the name of the function or method that is called; "" if an expression returns it."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
