"""Finds datasets that a loop of the script rebuilds in each iteration, from nothing that the loop changes."""

from __future__ import annotations

import ast
import functools
import linecache
from dataclasses import dataclass

from pipetune.core.profile import Finding
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script import capture
from pipetune.tf.script.consumption import Consumption
from pipetune.tf.script.loops import depends, holds, loops_around, start_of


@dataclass(frozen=True)
class Turn:
    """A loop that both builds and reads a dataset in each iteration."""

    file: str
    line: int  # of the loop
    made: ast.expr  # the expression in the loop that builds the dataset, itself or in a call


def find(source: LivePipeline, use: Consumption) -> list[Finding]:
    """Returns a finding if the source of the data, or a cache in memory, is built in the loop that reads it.

    Building only the end of the pipeline there, as in `for x in ds.take(9)`, costs little and loses no cached data.
    """
    caches = [node for node in source.pipeline if node.op == "cache" and not node.argument("filename")]
    for node in (*caches, *(node for node in source.pipeline if not node.inputs)):
        turn = built_in(capture.path_of(source.datasets[node.id]), use.path)
        if turn is None:
            continue
        traced = any(node.function is not None for node in source.pipeline)
        return [
            Finding(
                "rebuilt-dataset",
                f"Each turn of the loop in line {turn.line} builds the dataset anew ({_shown(turn.made)}): "
                + ("its functions are traced again" if traced else "all of it is set up again")
                + (", and its cache begins empty: what it keeps is lost with the turn." if node.op == "cache" else "."),
                f"Each access evaluates {turn.made.attr} again; functools.cached_property does it once."
                if isinstance(turn.made, ast.Attribute)
                else "If it is the same data each time, build it once, in front of the loop.",
                turn.file,
                turn.made.lineno,
            )
        ]
    return []


def built_in(made: capture.Path, read: capture.Path) -> Turn | None:
    """Returns the innermost `for` loop around both building and reading, unless the building depends on the loop.

    Args:
        made: the user's call stack where the dataset was created.
        read: the user's call stack where it is consumed.
    """
    for one, other in reversed(_shared(made, read)):
        file = one[0].co_filename
        tree, place = _tree(file), _begin(other)
        expression = _expression(tree, one) if tree is not None else None
        if tree is None or expression is None or place is None:
            return None
        loop = next((loop for loop in loops_around(tree, start_of(expression)) if holds(loop, place)), None)
        if loop is not None:
            return None if depends(_chain(tree, expression), loop) else Turn(file, loop.lineno, expression)
    return None


def _shared(made: capture.Path, read: capture.Path) -> list[tuple[capture.Step, capture.Step]]:
    """Returns the frames that both stacks share, outermost first: those at the same call, then the diverging one."""
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
    """Returns the call or attribute in progress, matched by its end: in a multi-line chain the starts differ."""
    _, line, _, column = capture.span_of(step)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Attribute))
    return next((node for node in nodes if (node.end_lineno, node.end_col_offset) == (line, column)), None)


def _chain(tree: ast.Module, expression: ast.expr) -> ast.expr:
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
