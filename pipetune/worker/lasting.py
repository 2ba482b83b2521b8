"""Loops over `range` that last as long as pipetune measures in them.

`for _ in range(steps): train_step(next(iterator))` of a short training is through before anything is measured. The
outermost such loop begins anew instead, as if the script had been asked for more epochs: what stands around the inner
ones (steps that add gradients up, an evaluation) stays as it is. A loop over a dataset needs none of this.
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
    """What the compiled loops ask: whether one that is through begins anew."""

    def __init__(self, taken: Callable[[], int]) -> None:
        """`taken`: elements that this thread has been handed in windows so far."""
        self._taken = taken
        self._standing = threading.local()
        self.begun_anew = False

    def put_in_place(self) -> None:
        """From now on code of `compiled` asks this one, to the end of the process."""
        setattr(builtins, _NAME, self.turns)

    def turns(self, turns: Iterable[Any]) -> Iterable[Any]:
        """What the loop goes through instead of `turns`."""
        return self._rounds(turns) if type(turns) is range else turns

    def _rounds(self, turns: range) -> Iterator[int]:
        loops: list[object] = self._standing.__dict__.setdefault("loops", [])
        loop = object()
        loops.append(loop)
        try:
            before = self._taken()
            yield from turns
            while loops[0] is loop and self._taken() > before:  # once round without a window: none is to come
                before, self.begun_anew = self._taken(), True
                yield from turns
        finally:  # also where the script leaves it by `break`
            loops.remove(loop)


def compiled(source: str | bytes, path: str) -> CodeType:
    """The script's code, every call at its place, its loops over `range` that may train made to last.

    Raises:
        SyntaxError, ValueError: it is not Python.
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
    """Those over `range(...)` that take from an iterator, or go through something and leave it early.

    In their body, or in a function of this file that it calls.
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
