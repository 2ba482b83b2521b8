"""Loops in the user's source: datasets that one rebuilds in each iteration, and loops over `range(...)` that may train.

The latter begin again for as long as pipetune measures in them.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from pipetune.capture.consumption import Consumption
from pipetune.core.profile import Finding
from pipetune.pipelines import call_sites
from pipetune.pipelines.live import LivePipeline

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
_CONSUMING_METHODS = frozenset({"next", "get", "get_nowait", "pop", "popleft", "popitem", "read", "readline", "recv"})


Loop = ast.For | ast.While


def loops_around(tree: ast.Module, place: tuple[int, int]) -> list[Loop]:
    """Returns the loops whose body contains a location, innermost first, within its function."""
    found: list[Loop] = []
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, Loop) and contains(node, place):
            found.append(node)
        elif isinstance(node, _SCOPES) and start_of(node) <= place < (node.end_lineno or 0, node.end_col_offset or 0):
            found.clear()
    return found[::-1]


def start_of(node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Returns the line (from 1) and column (from 0, in UTF-8 bytes) at which a node starts."""
    return node.lineno, node.col_offset


def contains(loop: Loop, place: tuple[int, int]) -> bool:
    """Whether the body of a loop, without its `else`, contains this line and column."""
    first, last = loop.body[0], loop.body[-1]
    return start_of(first) <= place < (last.end_lineno or 0, last.end_col_offset or 0)


def depends_on_loop(expression: ast.expr, loop: Loop) -> bool:
    """Whether the value of an expression may change between iterations of a loop.

    It may if it depends on the loop variable or what the condition binds, on state left by the previous iteration, or
    on a call that consumes an item.
    """
    parts = list(_parts(loop.body))
    ever = set().union(*(_names(part, ast.Store) for part in parts))
    changing, bound = _names(loop.target if isinstance(loop, ast.For) else loop.test, ast.Store), set[str]()
    for part in parts:
        changing |= (_read(part) - bound) & ever  # as the previous iteration left it
        bound |= _names(part, ast.Store)
    for _ in parts:  # as often as one statement can pass a change to another
        for part in parts:
            if _consumes(part) or _read(part) & changing:
                changing |= _names(part, ast.Store) | _possible_holders(part)
    return _consumes(expression) or bool(_read(expression) & changing)


def _read(part: ast.AST) -> set[str]:
    grows = _names(part.target, ast.Store) if isinstance(part, ast.AugAssign) else set()
    return _names(part, ast.Load) | grows


def _possible_holders(part: ast.AST) -> set[str]:
    """Returns the names of objects that may store what a statement reads: receivers and arguments of calls, targets."""
    owners: list[ast.expr] = []
    for node in ast.walk(part):
        if isinstance(node, ast.Call):
            owners += [node.func.value] if isinstance(node.func, ast.Attribute) else []
            owners += [given for given in node.args if isinstance(given, ast.Name)]
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            owners.append(node.value)
    return set().union(*(_names(one, ast.Load) for one in owners))


def _consumes(part: ast.AST) -> bool:
    """Whether a statement consumes from a queue or an iterator, which returns another item the next time."""
    calls = [node.func for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(
        one.attr in _CONSUMING_METHODS
        if isinstance(one, ast.Attribute)
        else isinstance(one, ast.Name) and one.id == "next"
        for one in calls
    )


def _parts(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yields the simple statements, and the headers of compound ones, at all depths."""
    for statement in body:
        blocks = [part for name in _BLOCKS for part in getattr(statement, name, ()) if isinstance(part, ast.AST)]
        if not blocks or isinstance(statement, ast.expr):
            yield statement
        elif isinstance(statement, ast.For):
            yield ast.Assign([statement.target], statement.iter)
        else:
            yield from (part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr | ast.withitem))
        yield from _parts(blocks)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, context)}


def is_read_once(frame: FrameType, *, method: str = "", data: str) -> bool:
    """Whether the script reads its data by what `frame` is at, and only by this once; False in doubt.

    True if all frames out to the module's belong to one file, none of them is inside a loop, the file names `method`
    and each function on the stack exactly once, and `frame` does not use the variable `data` afterwards.

    Args:
        frame: calls `method`, or makes an iterator if that is ''.
        data: the variable that holds the dataset; '' if none does.
    """
    if data and any(loaded == data and offset > frame.f_lasti for loaded, offset in _loads(frame.f_code)):
        return False
    names, file = [method] if method else [], frame.f_code.co_filename
    while not _in_a_loop(frame.f_code, frame.f_lasti):
        if frame.f_code.co_name == "<module>":
            return all(_times_loaded(frame.f_code, one) == 1 for one in names)
        names.append(frame.f_code.co_name)
        if frame.f_back is None or frame.f_back.f_code.co_filename != file or call_sites.is_library(file):
            return False
        frame = frame.f_back
    return False


def _in_a_loop(code: CodeType, offset: int) -> bool:
    """Whether `offset` is inside a loop: a backward jump crosses it."""
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return any(step.opcode in jumps and step.argval <= offset < step.offset for step in dis.get_instructions(code))


def _loads(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yields the names that `code` loads, with their bytecode offsets."""
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_"):
            values = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            yield from ((value, step.offset) for value in values if isinstance(value, str))


def _times_loaded(code: CodeType, name: str) -> int:
    """Returns how often `code`, including nested functions and classes, loads something called `name`."""
    inner = sum(_times_loaded(one, name) for one in code.co_consts if isinstance(one, CodeType))
    return inner + sum(loaded == name for loaded, _ in _loads(code))


@dataclass(frozen=True)
class RebuildLoop:
    """A loop that both builds and reads a dataset in each iteration."""

    file: str
    loop: Loop
    building_expression: ast.expr  # the expression in the loop that builds the dataset, itself or in a call
    alike: bool  # whether what it builds does not depend on the iteration

    @property
    def reads_one_after_another(self) -> bool:
        """Whether the iterations read alike datasets, or those of one epoch after another."""
        return self.alike or (isinstance(self.loop, ast.For) and _iterates_range(self.loop))


def find(source: LivePipeline, use: Consumption) -> list[Finding]:
    """Returns a finding if the source of the data, or a memory cache, is built in the loop that reads it; else [].

    Building only the end of the pipeline there, as in `for x in ds.take(9)`, costs little and loses no cached data.
    """
    caches = [node for node in source.pipeline if node.op == "cache" and not node.argument("filename")]
    for node in (*caches, *(node for node in source.pipeline if not node.inputs)):
        turn = rebuild_loop(call_sites.path_of(source.datasets[node.id]), use.call_path)
        if turn is None or not turn.alike:
            continue
        traced = any(node.function is not None for node in source.pipeline)
        return [
            Finding(
                "rebuilt-dataset",
                f"Each iteration of the loop in line {turn.loop.lineno} rebuilds the dataset ("
                f"{_shown(turn.building_expression)}): "
                + ("its functions are retraced" if traced else "the whole pipeline is set up again")
                + (
                    ", and its cache starts empty: cached data is lost after each iteration."
                    if node.op == "cache"
                    else "."
                ),
                f"Each access evaluates {turn.building_expression.attr} again; functools.cached_property does it once."
                if isinstance(turn.building_expression, ast.Attribute)
                else "If the data is the same in each iteration, build the dataset once, before the loop.",
                turn.file,
                turn.building_expression.lineno,
            )
        ]
    return []


def rebuilt_operators(source: LivePipeline, use: Consumption) -> frozenset[str]:
    """Returns the ids of the operators that a loop builds in each iteration, and reads once: no cache of it is used.

    What `fit` reads in several epochs is read more than once.
    """
    if use.epochs is not None and use.epochs > 1:
        return frozenset()
    return frozenset(
        node.id
        for node in source.pipeline
        if is_built_for_one_read(call_sites.path_of(source.datasets[node.id]), use.call_path)
    )


def operators_to_build_once(source: LivePipeline, use: Consumption) -> frozenset[str]:
    """Returns the ids of the operators that the loop which reads the dataset builds alike in each iteration."""
    turns = (
        (node.id, rebuild_loop(call_sites.path_of(source.datasets[node.id]), use.call_path)) for node in source.pipeline
    )
    return frozenset(name for name, turn in turns if turn is not None and turn.alike)


def is_built_for_one_read(made: call_sites.CallPath, read: call_sites.CallPath) -> bool:
    """Whether a loop around both builds a dataset and reads it, and no other loop inside it reads it again.

    Args:
        made: the user's call stack where the dataset was created.
        read: the user's call stack where it is consumed.
    """
    shared = _shared_frames(made, read)
    if not shared:
        return False
    *outer, (building, reading) = shared
    loops = _loops_around(building)
    if _loops_around(reading)[:1] != loops[:1] or any(map(_loops_around, read[: -len(shared)])):
        return False
    return bool(loops) or any(_loops_around(one) for one, _ in outer)


def _loops_around(step: call_sites.FramePosition) -> list[Loop]:
    tree, place = _tree(step[0].co_filename), _start_of(step)
    return loops_around(tree, place) if tree is not None and place is not None else []


def rebuild_loop(made: call_sites.CallPath, read: call_sites.CallPath) -> RebuildLoop | None:
    """Returns the innermost loop around both building and reading; None if there is none.

    Args:
        made: the user's call stack where the dataset was created.
        read: the user's call stack where it is consumed.
    """
    for one, other in reversed(_shared_frames(made, read)):
        file = one[0].co_filename
        tree, place = _tree(file), _start_of(other)
        expression = _expression(tree, one) if tree is not None else None
        if tree is None or expression is None or place is None:
            return None
        loop = next((loop for loop in loops_around(tree, start_of(expression)) if contains(loop, place)), None)
        if loop is not None:
            alike = not depends_on_loop(_method_chain(tree, expression), loop)
            return RebuildLoop(file, loop, expression, alike)
    return None


def _shared_frames(
    made: call_sites.CallPath, read: call_sites.CallPath
) -> list[tuple[call_sites.FramePosition, call_sites.FramePosition]]:
    """Returns the frames that both stacks share, outermost first: those at the same call, then the diverging one."""
    found = []
    for one, other in zip(reversed(made), reversed(read), strict=False):
        if one[0] is not other[0]:
            break
        found.append((one, other))
        if one[1] != other[1]:
            break
    return found


_tree = functools.lru_cache(maxsize=16)(call_sites.syntax_tree)


def _start_of(step: call_sites.FramePosition) -> tuple[int, int] | None:
    line, _, column, _ = call_sites.span_of(step)
    return None if line is None or column is None else (line, column)


def _expression(tree: ast.Module, step: call_sites.FramePosition) -> ast.expr | None:
    """Returns the call or attribute in progress, matched by its end: in a multi-line chain the starts differ."""
    _, line, _, column = call_sites.span_of(step)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Attribute))
    return next((node for node in nodes if (node.end_lineno, node.end_col_offset) == (line, column)), None)


def _method_chain(tree: ast.Module, expression: ast.expr) -> ast.expr:
    """Returns the whole chain of method calls that starts with the expression."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    attribute = parents.get(expression)
    while isinstance(attribute, ast.Attribute):
        call = parents.get(attribute)
        if not isinstance(call, ast.Call) or call.func is not attribute:
            break
        expression, attribute = call, parents.get(call)
    return expression


def _shown(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    return text if len(text) <= 60 else f"{text[:57]}..."


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
        loop for loop in loops if _iterates_range(loop) and any(_consumes_iterator(part, taking) for part in loop.body)
    )


def _consumes_iterator(part: ast.AST, taking: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and _called_name(node) in taking)
        or (isinstance(node, ast.For) and not _iterates_range(node) and _is_left_early(node))
        for node in ast.walk(part)
    )


def _is_left_early(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Break) for part in loop.body for node in ast.walk(part))


def _iterates_range(loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
