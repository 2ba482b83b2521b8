"""Extends loops over `range` for as long as pipetune measures in them.

`for _ in range(steps): train_step(next(iterator))` of a short training would be exhausted before anything is measured.
The outermost such loop is restarted instead, as if the script had been asked for more epochs; whatever surrounds the
inner loops (gradient accumulation steps, an evaluation) keeps its meaning. A loop over a dataset needs none of this.
"""

from __future__ import annotations

import ast
import builtins
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

_NAME = "__pipetune_lasting__"
_TAKING = frozenset({"next", "__next__", "get_next", "get_next_as_optional"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Lasting:
    """Restarts instrumented loops that are exhausted while pipetune still measures in them."""

    def __init__(self, taken: Callable[[], int]) -> None:
        """`taken` returns how many elements this thread has received in measuring windows so far."""
        self._taken = taken
        self._standing = threading.local()
        self.begun_anew = False

    def put_in_place(self) -> None:
        """Makes the code of `compiled` call this object, from now on to the end of the process."""
        setattr(builtins, _NAME, self.turns)

    def turns(self, turns: Iterable[Any]) -> Iterable[Any]:
        """The iterable that an instrumented loop iterates in place of `turns`; only a `range` is extended."""
        return self._rounds(turns) if type(turns) is range else turns

    def _rounds(self, turns: range) -> Iterator[int]:
        loops: list[object] = self._standing.__dict__.setdefault("loops", [])
        loop = object()
        loops.append(loop)
        try:
            before = self._taken()
            yield from turns
            while loops[0] is loop and self._taken() > before:  # a round without a window: no more will come
                before, self.begun_anew = self._taken(), True
                yield from turns
        finally:  # also if the script leaves the loop by `break`
            loops.remove(loop)


def compiled(source: str | bytes, path: str) -> CodeType:
    """Compiles the script with loops over `range` that may train extended; all source positions are kept.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    tree = ast.parse(source, path)
    loops = list(_loops_that_may_train(tree))
    if not loops:
        return compile(source, path, "exec", dont_inherit=True)
    for loop in loops:
        asked = ast.copy_location(ast.Name(_NAME, ast.Load()), loop.iter)
        loop.iter = ast.copy_location(ast.Call(asked, [loop.iter], []), loop.iter)
    return compile(tree, path, "exec", dont_inherit=True)


def _loops_that_may_train(tree: ast.Module) -> Iterator[ast.For]:
    """Loops over `range(...)` that take elements from an iterator, or iterate something and leave it early by `break`.

    In their body, or in a function of the same file that the body calls.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    taking = set(_TAKING)
    while True:
        more = {function.name for function in functions if _takes(function, taking)} - taking
        if not more:
            break
        taking |= more
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For))
    return (loop for loop in loops if _over_range(loop) and any(_takes(part, taking) for part in loop.body))


def _takes(part: ast.AST, taking: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and _called(node) in taking)
        or (isinstance(node, ast.For) and not _over_range(node) and _is_left_early(node))
        for node in ast.walk(part)
    )


def _is_left_early(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Break) for part in loop.body for node in ast.walk(part))


def _over_range(loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
