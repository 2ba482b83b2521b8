"""Datasets that a loop of the script builds anew in each turn, out of nothing that the loop changes."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipetune.core.profile import Finding
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script import capture
from pipetune.tf.script.consumption import Consumption

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
_TAKING = frozenset({"next", "get", "get_nowait", "pop", "popleft", "popitem", "read", "readline", "recv"})


@dataclass(frozen=True)
class Turn:
    """A loop in each turn of which a dataset is both made and read."""

    file: str
    line: int  # of the loop
    made: ast.expr  # what is evaluated in the loop and makes the dataset, in some call of it


def find(source: LivePipeline, use: Consumption) -> list[Finding]:
    """A finding where the source of the data, or a cache in memory, is made in the loop that reads it.

    What only ends the pipeline there, as `for x in ds.take(9)` does, costs little and forgets nothing.
    """
    caches = [node for node in source.pipeline if node.op == "cache" and not node.argument("filename")]
    for node in (*caches, *(node for node in source.pipeline if not node.inputs)):
        turn = built_in(capture.path_of(source.datasets[node.id]), use.path)
        if turn is None:
            continue
        return [
            Finding(
                "rebuilt-dataset",
                f"Each turn of the loop in line {turn.line} builds the dataset anew ({_shown(turn.made)}): its "
                "functions are traced again"
                + (", and its cache begins empty: nothing it keeps is ever read." if node.op == "cache" else "."),
                f"{turn.made.attr} is evaluated at each access; functools.cached_property does it once."
                if isinstance(turn.made, ast.Attribute)
                else "If it is the same data each time, build it once, in front of the loop.",
                turn.file,
                turn.made.lineno,
            )
        ]
    return []


def built_in(made: capture.Path, read: capture.Path) -> Turn | None:
    """The innermost `for` loop around both the making and the reading, if nothing that makes it depends on the loop.

    Args:
        made: the user's calls in which the dataset was made.
        read: those in which it is consumed.
    """
    for one, other in reversed(_shared(made, read)):
        file = one[0].co_filename
        tree, place = _tree(file), _begin(other)
        expression = _expression(tree, one) if tree is not None else None
        if tree is None or expression is None or place is None:
            return None
        loop = next((loop for loop in _loops(tree, _start(expression)) if _holds(loop, place)), None)
        if loop is not None:
            return None if _depends(_chain(tree, expression), loop) else Turn(file, loop.lineno, expression)
    return None


def _shared(made: capture.Path, read: capture.Path) -> list[tuple[capture.Step, capture.Step]]:
    """The frames both pass through, the outermost first: those at the same call, and the one where they part."""
    found = []
    for one, other in zip(reversed(made), reversed(read), strict=False):
        if one[0] is not other[0]:
            break
        found.append((one, other))
        if one[1] != other[1]:
            break
    return found


@functools.lru_cache(maxsize=16)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _begin(step: capture.Step) -> tuple[int, int] | None:
    line, _, column, _ = capture.span_of(step)
    return None if line is None or column is None else (line, column)


def _expression(tree: ast.Module, step: capture.Step) -> ast.expr | None:
    """The call or attribute that a frame stands at, by its end: in a chain over lines its start is another."""
    _, line, _, column = capture.span_of(step)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Attribute))
    return next((node for node in nodes if (node.end_lineno, node.end_col_offset) == (line, column)), None)


def _chain(tree: ast.Module, expression: ast.expr) -> ast.expr:
    """The whole chain of calls that the expression begins."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    attribute = parents.get(expression)
    while isinstance(attribute, ast.Attribute):
        call = parents.get(attribute)
        if not isinstance(call, ast.Call) or call.func is not attribute:
            break
        expression, attribute = call, parents.get(call)
    return expression


def _loops(tree: ast.Module, place: tuple[int, int]) -> list[ast.For]:
    """The `for` loops whose body holds a place, the innermost first, up to the function it stands in."""
    found: list[ast.For] = []
    for node in ast.walk(tree):  # what holds another comes before it
        if isinstance(node, ast.For) and _holds(node, place):
            found.append(node)
        elif isinstance(node, _SCOPES) and _start(node) <= place < (node.end_lineno or 0, node.end_col_offset or 0):
            found.clear()
    return found[::-1]


def _start(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _holds(loop: ast.For, place: tuple[int, int]) -> bool:
    first, last = loop.body[0], loop.body[-1]
    return _start(first) <= place < (last.end_lineno or 0, last.end_col_offset or 0)


def _depends(expression: ast.expr, loop: ast.For) -> bool:
    """Whether the expression reads what may change from turn to turn: by the loop, by the turn before, by taking."""
    parts = list(_parts(loop.body))
    ever = set().union(*(_names(part, ast.Store) for part in parts))
    changing, bound = _names(loop.target, ast.Store), set[str]()
    for part in parts:
        changing |= (_read(part) - bound) & ever  # as the turn before left it
        bound |= _names(part, ast.Store)
    for _ in parts:  # as often as one can hand on to the next
        for part in parts:
            if _takes(part) or _read(part) & changing:
                changing |= _names(part, ast.Store) | _owners(part)
    return _takes(expression) or bool(_read(expression) & changing)


def _read(part: ast.AST) -> set[str]:
    grows = _names(part.target, ast.Store) if isinstance(part, ast.AugAssign) else set()
    return _names(part, ast.Load) | grows


def _owners(part: ast.AST) -> set[str]:
    """What may keep something the statement reads: objects that are called or written to, and what is handed over."""
    owners: list[ast.expr] = []
    for node in ast.walk(part):
        if isinstance(node, ast.Call):
            owners += [node.func.value] if isinstance(node.func, ast.Attribute) else []
            owners += [given for given in node.args if isinstance(given, ast.Name)]
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            owners.append(node.value)
    return set().union(*(_names(one, ast.Load) for one in owners))


def _takes(part: ast.AST) -> bool:
    """Whether it takes something from a queue or an iterator, which gives something else the next time."""
    calls = [node.func for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(
        one.attr in _TAKING if isinstance(one, ast.Attribute) else isinstance(one, ast.Name) and one.id == "next"
        for one in calls
    )


def _parts(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Simple statements, and the heads of compound ones."""
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


def _shown(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    return text if len(text) <= 60 else f"{text[:57]}..."
