"""How often the script builds and reads a dataset: once, or in each iteration of a loop.

A cache is of no use in a dataset that is read once, and starts empty in each that a loop builds.
"""

from __future__ import annotations

import ast
import dis
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from pipetune.capture.loops import KnownVariables, assigned_in, iterates_range
from pipetune.core.files import is_library
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Finding
from pipetune.pipelines import call_sites
from pipetune.pipelines.live import LivePipeline

if TYPE_CHECKING:
    from pipetune.capture.consumption import Consumption

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
_CONSUMING_METHODS = frozenset({"next", "get", "get_nowait", "pop", "popleft", "popitem", "read", "readline", "recv"})

_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

Loop = ast.For | ast.While
SharedFrame = tuple[call_sites.FramePosition, call_sites.FramePosition]
"""A frame of two call stacks: its position in one, and in the other."""


def loops_around(tree: ast.Module, place: tuple[int, int]) -> list[Loop]:
    """Returns the loops whose body contains a location, innermost first, within its function.

    A comprehension is one, too; its body is the expression that it evaluates. So is a function that calls itself.
    """
    found: list[Loop] = []
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, Loop | _COMPREHENSIONS):
            found += [loop for loop in _loops_of(node) if contains(loop, place)]
        elif isinstance(node, _SCOPES) and spans(node, place):
            found.clear()
            if isinstance(node, ast.FunctionDef) and contains(node, place):
                found += _loops_of_calls(node)
    return found[::-1]


def _loops_of_calls(function: ast.FunctionDef) -> Iterator[Loop]:
    """Yields a loop that does the same as a function that calls itself: with its parameters in place of variables."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(ast.Name("self" | "cls"), name)):
                if name == function.name:
                    names: list[ast.expr] = [ast.Name(one.arg, ast.Store()) for one in function.args.args]
                    loop = ast.For(ast.Tuple(names, ast.Store()), ast.Tuple([], ast.Load()), function.body, [])
                    yield ast.copy_location(loop, function)
                    return


def _loops_of(node: ast.AST) -> list[Loop]:
    """Returns a loop itself, or those that do the same as a comprehension."""
    if isinstance(node, Loop):
        return [node]
    assert isinstance(node, _COMPREHENSIONS)
    values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    body: list[ast.stmt] = [ast.copy_location(ast.Expr(value), value) for value in values]
    return [ast.copy_location(ast.For(one.target, one.iter, body, []), node) for one in node.generators]


def start_of(node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Returns the line (from 1) and column (from 0, in UTF-8 bytes) at which a node starts."""
    return node.lineno, node.col_offset


def spans(node: ast.stmt | ast.expr, place: tuple[int, int]) -> bool:
    """Whether a node's source includes this line and column."""
    return start_of(node) <= place < (node.end_lineno or 0, node.end_col_offset or 0)


def contains(node: Loop | ast.FunctionDef | ast.Try, place: tuple[int, int]) -> bool:
    """Whether the body of a statement, without its `else`, contains this line and column."""
    first, last = node.body[0], node.body[-1]
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


def is_read_once(frame: FrameType, *, method: str = "", dataset: Any) -> bool:
    """Whether the script reads its data by what `frame` is at, and only by this once; False in doubt.

    True if no frame out to the module's is inside a loop of several iterations, their files name `method` and each
    function on the stack exactly once, and `frame` uses no variable afterwards that holds the dataset. Of what is read
    by an iterator, no other function may use one either: each stage of a training may have a loop of its own.

    Args:
        frame: calls `method`, or makes an iterator if that is ''.
        dataset: what is read.
    """
    names, files, shared = [method] if method else [], set[str](), set[str]()
    while not _is_in_a_loop(frame):
        local = _holders(dataset, frame.f_locals)
        held = _holders(dataset, frame.f_globals, getattr(frame.f_locals.get("self"), "__dict__", {}))
        later = {loaded for loaded, offset in _loads(frame.f_code) if offset > frame.f_lasti}
        if (not method or not files) and not later.isdisjoint(local | held):
            return False
        shared |= held | local.intersection((*frame.f_code.co_cellvars, *frame.f_code.co_freevars))
        if frame.f_code.co_name == "<module>":
            codes = [frame.f_code, *(code for file in files - {frame.f_code.co_filename} for code in _compiled(file))]
            inner = [one for code in codes for one in codes_in(code)]
            others = [] if method else [one for one in inner if one not in codes and one.co_name not in names]
            if any(loaded in shared for code in others for loaded, _ in _loads(code, _SHARED)):
                return False
            loaded = [name for code in inner for name, _ in _loads(code)]
            return all(loaded.count(one) == 1 for one in names)
        names.append(frame.f_code.co_name)
        files.add(frame.f_code.co_filename)
        if frame.f_back is None or is_library(frame.f_back.f_code.co_filename):
            return False
        frame = frame.f_back
    return False


def _holders(dataset: Any, *scopes: Mapping[str, Any]) -> set[str]:
    """Returns the variables that hold a dataset, or a list or dict with it."""

    def holds(value: Any) -> bool:
        items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
        return value is dataset or any(one is dataset for one in items)

    return {name for scope in scopes for name, value in list(scope.items()) if holds(value)}


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yields `code`, and the functions and classes in it at all depths."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes_in(one)


@functools.cache
def _compiled(file: str) -> tuple[CodeType, ...]:
    try:
        return (compile(Path(file).read_bytes(), file, "exec", dont_inherit=True),)
    except (OSError, SyntaxError, ValueError):  # it was moved, or changed, since it was imported
        return ()


def _is_in_a_loop(frame: FrameType) -> bool:
    """Whether a frame is inside a loop, apart from `range(1)`: a backward jump crosses its position."""
    jumps, steps = {*dis.hasjrel, *dis.hasjabs}, dis.get_instructions(frame.f_code)
    if not any(step.opcode in jumps and step.argval <= frame.f_lasti < step.offset for step in steps):
        return False
    loops = loops_at((frame.f_code, frame.f_lasti))
    return not loops or any(KnownVariables.in_frame(frame, assigned_in(one)).iterations(one) != 1 for one in loops)


_SHARED = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD")
"""Instructions that load what is no parameter or variable of a function."""


def _loads(code: CodeType, kinds: tuple[str, ...] = ("LOAD_",)) -> Iterator[tuple[str, int]]:
    """Yields the names that `code` loads by instructions of these kinds, with their bytecode offsets."""
    for step in dis.get_instructions(code):
        if step.opname.startswith(kinds):
            values = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            yield from ((value, step.offset) for value in values if isinstance(value, str))


@dataclass(frozen=True)
class RebuildLoop:
    """A loop that both builds and reads a dataset in each iteration."""

    file: str
    loop: Loop
    building_expression: ast.expr  # the expression in the loop that builds the dataset, itself or in a call
    alike: bool  # whether what it builds does not depend on the iteration
    reads_once: bool  # whether no other loop inside it reads the dataset

    @property
    def reads_one_after_another(self) -> bool:
        """Whether the iterations read alike datasets, or those of one epoch after another."""
        return self.alike or (isinstance(self.loop, ast.For) and iterates_range(self.loop))


def find(source: LivePipeline, use: Consumption) -> list[Finding]:
    """Returns a finding if the source of the data, or a memory cache, is built in the loop that reads it; else [].

    Building only the end of the pipeline there, as in `for x in ds.take(9)`, costs little and loses no cached data.
    """
    caches = [node for node in source.pipeline if node.op == "cache" and not node.argument("filename")]
    for node in (*caches, *(node for node in source.pipeline if not node.inputs)):
        turn = rebuild_loop(call_sites.path_of(source.datasets[node.id]), use.call_path)
        if turn is None or not turn.alike:
            continue
        built, traced = turn.building_expression, any(one.function is not None for one in source.pipeline)
        message = (
            f"Each iteration of the loop in line {turn.loop.lineno} rebuilds the dataset ({_shown(built)}): "
            f"{'its functions are retraced' if traced else 'the whole pipeline is set up again'}"
        )
        if node.op == "cache":
            message += ", and its cache starts empty: cached data is lost after each iteration"
        hint = "If the data is the same in each iteration, build the dataset once, before the loop."
        if isinstance(built, ast.Attribute):
            hint = f"Each access evaluates {built.attr} again; functools.cached_property does it once."
        return [Finding("rebuilt-dataset", f"{message}.", hint, turn.file, built.lineno)]
    return []


def rebuild_loops(source: LivePipeline, use: Consumption) -> dict[str, RebuildLoop]:
    """Returns the loops that build operators and read the dataset in each iteration, by the ids of the operators."""
    turns = {
        node.id: rebuild_loop(call_sites.path_of(source.datasets[node.id]), use.call_path) for node in source.pipeline
    }
    return {name: turn for name, turn in turns.items() if turn is not None}


def rebuilt_operators(pipeline: Pipeline, turns: Mapping[str, RebuildLoop], *, epochs: int | None) -> frozenset[str]:
    """Returns the ids of the operators that a loop builds in each iteration, and reads once: no cache of it is used.

    Args:
        pipeline: the pipeline that the loop reads.
        turns: its `rebuild_loops`.
        epochs: of the call of `fit` that reads it, or validates on it; None if none does, or it is not known.
    """
    found = set[str]()
    for node in pipeline if epochs is None or epochs <= 1 else ():
        if not found.isdisjoint(node.inputs) or (node.id in turns and turns[node.id].reads_once):
            found.add(node.id)
    return frozenset(found)


def rebuild_loop(made: call_sites.CallPath, read: call_sites.CallPath) -> RebuildLoop | None:
    """Returns the innermost loop around both building and reading; None if none is, or only the first time builds it.

    Args:
        made: the user's call stack where the dataset was created.
        read: the user's call stack where it is consumed.
    """
    shared = shared_frames(made, read)
    builders = made[: len(made) - len(shared)]
    if any(map(_is_kept, builders)) or any(_is_chosen(*frame) for frame in shared[-1:]):
        return None  # what an iteration builds may serve later ones: a function keeps it, or `if x is None` decides
    called = read[: len(read) - len(shared)]  # by what reads it in the innermost of these frames
    reads_once = not any(map(loops_at, called))
    for one, other in reversed(shared):
        tree, place = source_at(other)
        expression = _expression(tree, one)
        if expression is None:
            return None
        around = loops_around(tree, place)
        loop = next((loop for loop in around if contains(loop, start_of(expression))), None)
        if loop is not None:
            alike = not depends_on_loop(_method_chain(tree, expression), loop)
            return RebuildLoop(one[0].co_filename, loop, expression, alike, reads_once and loop is around[0])
        reads_once = reads_once and not around
    return None


def loops_at(step: call_sites.FramePosition) -> list[Loop]:
    """Returns the `loops_around` a frame's position; none where its source cannot be read."""
    return loops_around(*source_at(step))


def function_at(step: call_sites.FramePosition) -> ast.FunctionDef | None:
    """Returns the innermost function whose body contains a frame's position; None where its source cannot be read."""
    tree, place = source_at(step)
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and contains(node, place)]
    return around[-1] if around else None


def is_repeated(frame: FrameType, left: int | None) -> bool:
    """Whether the code that a frame runs is in a further loop than the innermost ones that it leaves; None: all of it.

    A loop is looked for in the callers, too.
    """
    own, *callers = call_sites.path_from(frame)
    return (left is not None and len(loops_at(own)) > left) or any(map(loops_at, callers))


def _is_chosen(building: call_sites.FramePosition, reading: call_sites.FramePosition) -> bool:
    """Whether an `if` decides on the building, but not on the reading in the same function."""
    (_, place), (tree, read) = source_at(building), source_at(reading)
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    ends = [(start_of(node.body[0]), (node.end_lineno or 0, node.end_col_offset or 0)) for node in branches]
    return any(first <= place < last and not first <= read < last for first, last in ends)


def _is_kept(building: call_sites.FramePosition) -> bool:
    """Whether a function keeps what it builds: its decorator does, or it assigns what its conditions look up."""
    function = function_at(building)
    return function is not None and (
        any("cache" in ast.unparse(decorator).lower() for decorator in function.decorator_list)
        or bool(_looked_up(function) & _assigned(function))
    )


def _looked_up(function: ast.FunctionDef) -> set[str]:
    """Returns what conditions and `try` blocks evaluate, as text: `self.made`, and `kept` in `name not in kept`."""
    parts: list[ast.AST] = []
    for node in ast.walk(function):
        parts += [node.test] if isinstance(node, ast.If | ast.IfExp) else node.body if isinstance(node, ast.Try) else []
    return {ast.unparse(node) for part in parts for node in ast.walk(part) if isinstance(node, ast.expr)}


def _assigned(function: ast.FunctionDef) -> set[str]:
    """Returns what outlives a call of a function and is assigned there, as text: attributes, containers, globals.

    An attribute is returned by its name in quotes, too, as in `hasattr(self, 'made')`. What only counts is left out.
    """
    counted = {id(node.target) for node in ast.walk(function) if isinstance(node, ast.AugAssign)}
    found = set[str]()
    for node in ast.walk(function):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()) if id(node) not in counted:
                found |= {ast.unparse(node), repr(name)}
            case ast.Subscript(value=container, ctx=ast.Store()) if id(node) not in counted:
                found.add(ast.unparse(container))
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found.update(names)
    return found


def shared_frames(made: call_sites.CallPath, read: call_sites.CallPath) -> list[SharedFrame]:
    """Returns the frames that both stacks share, outermost first: those at the same call, then the diverging one."""
    found = []
    for one, other in zip(reversed(made), reversed(read), strict=False):
        if one[0] is not other[0]:
            break
        found.append((one, other))
        if one[1] != other[1]:
            break
    return found


tree_of = functools.lru_cache(maxsize=16)(call_sites.syntax_tree)


def source_at(step: call_sites.FramePosition) -> tuple[ast.Module, tuple[int, int]]:
    """Returns the syntax tree of the file that a frame is in, and where the code starts that runs there.

    The tree is empty, and so nothing is found in it, if the file cannot be read or the place is not known.
    """
    tree, place = tree_of(step[0].co_filename), call_sites.start_of(step)
    return (ast.Module([], []), (0, 0)) if tree is None or place is None else (tree, place)


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
