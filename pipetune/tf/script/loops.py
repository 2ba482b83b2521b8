"""Loops in the user's source: which ones enclose a location, and what may change between their iterations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
_TAKING = frozenset({"next", "get", "get_nowait", "pop", "popleft", "popitem", "read", "readline", "recv"})


def loops_around(tree: ast.Module, place: tuple[int, int]) -> list[ast.For]:
    """Returns the `for` loops whose body contains a location, innermost first, within its function."""
    found: list[ast.For] = []
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, ast.For) and holds(node, place):
            found.append(node)
        elif isinstance(node, _SCOPES) and start_of(node) <= place < (node.end_lineno or 0, node.end_col_offset or 0):
            found.clear()
    return found[::-1]


def start_of(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def holds(loop: ast.For, place: tuple[int, int]) -> bool:
    first, last = loop.body[0], loop.body[-1]
    return start_of(first) <= place < (last.end_lineno or 0, last.end_col_offset or 0)


def depends(expression: ast.expr, loop: ast.For) -> bool:
    """Whether the value of an expression may change between iterations of a loop.

    It may if it depends on the loop variable, on what the previous iteration left, or on a call that consumes an item.
    """
    parts = list(_parts(loop.body))
    ever = set().union(*(_names(part, ast.Store) for part in parts))
    changing, bound = _names(loop.target, ast.Store), set[str]()
    for part in parts:
        changing |= (_read(part) - bound) & ever  # as the previous iteration left it
        bound |= _names(part, ast.Store)
    for _ in parts:  # as often as one statement can pass a change to another
        for part in parts:
            if _takes(part) or _read(part) & changing:
                changing |= _names(part, ast.Store) | _owners(part)
    return _takes(expression) or bool(_read(expression) & changing)


def _read(part: ast.AST) -> set[str]:
    grows = _names(part.target, ast.Store) if isinstance(part, ast.AugAssign) else set()
    return _names(part, ast.Load) | grows


def _owners(part: ast.AST) -> set[str]:
    """Names of objects that may store what the statement reads: receivers of calls, written objects, arguments."""
    owners: list[ast.expr] = []
    for node in ast.walk(part):
        if isinstance(node, ast.Call):
            owners += [node.func.value] if isinstance(node.func, ast.Attribute) else []
            owners += [given for given in node.args if isinstance(given, ast.Name)]
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            owners.append(node.value)
    return set().union(*(_names(one, ast.Load) for one in owners))


def _takes(part: ast.AST) -> bool:
    """Whether it consumes from a queue or an iterator, which yields something else the next time."""
    calls = [node.func for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(
        one.attr in _TAKING if isinstance(one, ast.Attribute) else isinstance(one, ast.Name) and one.id == "next"
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
