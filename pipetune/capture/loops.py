"""Loops in the user's source: which may train last for as long as pipetune measures in them, and what the script's
variables say of conditions and loops, without running any code of the script.

A loop over `range(...)` begins again. One that would end by its condition, or by `break` or `return`, goes on.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import called_name

_NAME = "__pipetune_lasting__"
_LEAVES = "__pipetune_leaves__"
_ALL = "all"
CONSUMING_CALLS = frozenset({"next", "__next__", "get_next", "get_next_as_optional"})

NodeType = TypeVar("NodeType", bound=ast.AST)
LoopType = TypeVar("LoopType", ast.For, ast.While, ast.AsyncFor)


class LoopExtender:
    """Makes instrumented loops go on that would end while pipetune still measures in them."""

    def __init__(
        self,
        taken: Callable[[], int],
        is_repeated: Callable[[FrameType, int | None], bool] = lambda _frame, _left: False,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """Nothing is extended before `install`.

        Args:
            taken: returns how many elements this thread has received in measuring windows so far.
            is_repeated: whether code runs in a further loop than those that it leaves: as many as are given, innermost
                first, or all of its function (None).
            on_end: called when the script's outermost loop would end, and goes on.
        """
        self._elements_taken, self._is_repeated, self._on_end = taken, is_repeated, on_end
        self._threads = threading.local()
        self.restarted = False

    def install(self) -> None:
        """Makes code with extended loops call this object, until the process ends or `uninstall` is called."""
        setattr(builtins, _NAME, self.extend)
        setattr(builtins, _LEAVES, self.leaves)

    def uninstall(self) -> None:
        """Leaves loops as they are from now on: functions of a notebook that were compiled so may be called later."""
        for name in (_NAME, _LEAVES):
            if hasattr(builtins, name):
                delattr(builtins, name)

    def extend(self, iterable: Iterable[Any]) -> Iterable[Any]:
        """Returns the iterable that an instrumented loop uses in place of `iterable`; only a `range` is extended.

        So is the one that tqdm shows, which keeps its length.
        """
        if type(iterable) is range:
            return self._extended_range(iterable)
        shown: Any = iterable
        if type(getattr(shown, "iterable", None)) is range:
            shown.iterable = self._extended_range(shown.iterable)
        return iterable

    def leaves(self, left: str) -> bool:
        """Whether an instrumented loop ends where the script ends it: `left` says how many loops that leaves, or "all".

        It goes on if it is the outermost loop of the script, and pipetune has measured in it since this was last asked
        at the same place.
        """
        taken, places = self._elements_taken(), self._threads.__dict__.setdefault("places", {})
        if taken == 0:
            return True
        frame = sys._getframe(1)
        place = (id(frame), frame.f_code, frame.f_lasti)  # a condition may say so in every step from now on
        before = places.get(place)
        if taken == before or (before is None and self._is_repeated(frame, None if left == _ALL else int(left))):
            return True
        places[place] = taken
        self.restarted = True
        self._on_end()
        return False

    def _extended_range(self, iterable: range) -> Iterator[int]:
        loops: list[object] = self._threads.__dict__.setdefault("loops", [])
        loop = object()
        loops.append(loop)
        try:
            before = self._elements_taken()
            yield from iterable
            while loops[0] is loop and self._elements_taken() > before:  # a round without a window: no more will come
                before, self.restarted = self._elements_taken(), True
                if not self._is_repeated(sys._getframe(1), 0):
                    self._on_end()
                yield from iterable
        finally:  # also if the script leaves the loop by `break`
            loops.remove(loop)


def compile_with_extended_loops(source: str | bytes, path: str) -> CodeType:
    """Returns the compiled script, with the loops extended that may train; all source positions are kept.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    tree = ast.parse(source, path)
    try:
        return compile(tree if extend_loops(tree) else source, path, "exec", dont_inherit=True)
    except RecursionError:  # only a tree of nodes may be too deep
        return compile(source, path, "exec", dont_inherit=True)


def extend_loops(tree: ast.Module) -> bool:
    """Extends, in place, the loops that may train; returns whether there are any.

    Not those behind code that is nested too deep, as an `if` with hundreds of `elif` is.
    """
    extension = _Extension(set(_loops_that_may_train(tree)))
    with contextlib.suppress(RecursionError):
        extension.visit(tree)
    return extension.changed


class _Extension(ast.NodeTransformer):
    """Makes loops depend on the `LoopExtender`.

    What an `if` does before it leaves a loop, such as a last evaluation, is left out with that. Not extended is what
    leaves where the script handles an exception, which may be the end of its data, or in an `else`, where each further
    iteration might do nothing.
    """

    def __init__(self, loops: set[ast.For | ast.While]) -> None:
        self._extended = loops
        self._around: list[bool] = []  # of each loop around, in the same function: whether it is extended
        self._fixed = False  # inside what leaves as in the script
        self.changed = False

    def visit(self, node: ast.AST) -> Any:
        """Visits statements: no expression has a loop, and a sum of hundreds of terms is nested too deep."""
        return node if isinstance(node, ast.expr) else super().visit(node)

    def visit_For(self, node: ast.For) -> ast.For:
        self._visit_loop(node)
        if node in self._extended and (iterates_range(node) or called_name(node.iter) in ("tqdm", "trange")):
            node.iter = self._placed(_call(_NAME, node.iter, otherwise="iter"), node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self._visit_loop(node)
        if node in self._extended and not isinstance(node.test, ast.Constant):
            goes_on = ast.UnaryOp(ast.Not(), _leaves("0"))
            node.test = self._placed(ast.BoolOp(ast.Or(), [node.test, goes_on]), node.test)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        left = self._loops_left(node.body[-1])
        with self._leaving_fixed(self._fixed or bool(left)):
            node.body = [self.visit(part) for part in node.body]
        if left:
            node.test = self._placed(ast.BoolOp(ast.And(), [node.test, _leaves(left)]), node.test)
        chained = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        with self._leaving_fixed(self._fixed or not chained):
            node.orelse = [self.visit(part) for part in node.orelse]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        with self._leaving_fixed(True):
            return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.AST) -> ast.AST:
        around, self._around = self._around, []
        with self._leaving_fixed(False):
            self.generic_visit(node)
        self._around = around
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def _visit_loop(self, node: LoopType) -> LoopType:
        self._around.append(node in self._extended)
        with self._leaving_fixed(False):
            node.body = [self.visit(part) for part in node.body]
        self._around.pop()
        node.orelse = [self.visit(part) for part in node.orelse]
        return node

    visit_AsyncFor = _visit_loop

    def _visit_exit(self, node: ast.Break | ast.Return) -> ast.AST:
        left = self._loops_left(node)
        return node if not left else self._placed(ast.If(_leaves(left), [node], []), node)

    visit_Break = visit_Return = _visit_exit

    @contextlib.contextmanager
    def _leaving_fixed(self, fixed: bool) -> Iterator[None]:
        before, self._fixed = self._fixed, fixed
        yield
        self._fixed = before

    def _loops_left(self, node: ast.stmt) -> str:
        """Returns how many loops a statement leaves, or that it leaves all; "" if nothing depends on it."""
        if self._fixed:
            return ""
        if isinstance(node, ast.Return):
            return _ALL if any(self._around) else ""
        return "1" if isinstance(node, ast.Break) and self._around[-1:] == [True] else ""

    def _placed(self, new: NodeType, old: ast.AST) -> NodeType:
        """Returns new nodes with the position of `old`, where they have none of their own."""
        self.changed = True
        for node in ast.walk(new):
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        return new


def _leaves(left: str) -> ast.expr:
    return _call(_LEAVES, ast.Constant(left), otherwise="bool")  # true of every text


def _call(name: str, argument: ast.expr, *, otherwise: str) -> ast.expr:
    """Returns a call of a builtin of that name, or of another one where it is not installed.

    It may not be: a function of the script may be sent to a process of its own, by joblib or Ray.
    """
    load = ast.Load()
    module = ast.Call(ast.Name("__import__", load), [ast.Constant("builtins")], [])
    get = ast.Attribute(ast.Attribute(module, "__dict__", load), "get", load)
    function = ast.Call(get, [ast.Constant(name), ast.Attribute(module, otherwise, load)], [])
    return ast.Call(function, [argument], [])


def _loops_that_may_train(tree: ast.Module) -> Iterator[ast.For | ast.While]:
    """Yields the loops that take elements from an iterator, or iterate something else than a range.

    Of loops over `range(...)` those that iterate something in their body and leave it early. In the body, or
    in a function of the same file that the body calls.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    taking = set(CONSUMING_CALLS)
    while more := {function.name for function in functions if _consumes_iterator(function, taking)} - taking:
        taking |= more
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.While) and (
            (isinstance(loop, ast.For) and not iterates_range(loop))
            or any(_consumes_iterator(part, taking) for part in loop.body)
        ):
            yield loop


def _consumes_iterator(part: ast.AST, taking: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and called_name(node) in taking)
        or (isinstance(node, ast.For) and not iterates_range(node) and _is_left_early(node))
        for node in ast.walk(part)
    )


def _is_left_early(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Break | ast.Return) for part in loop.body for node in ast.walk(part))


def iterates_range(loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"


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
