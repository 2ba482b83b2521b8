"""Finds the call in a source text that a recorded location refers to."""

from __future__ import annotations

import libcst as cst
from libcst.metadata import QualifiedNameSource

from pipetune.core.errors import CannotExpress
from pipetune.core.location import SourceLocation
from pipetune.source.tree import SyntaxTree

_STATEMENTS: tuple[type[cst.CSTNode], ...] = (cst.BaseSmallStatement, cst.BaseCompoundStatement)


def locate(tree: SyntaxTree, location: SourceLocation) -> cst.Call:
    """Returns the call in `tree` that `location` refers to, found by its end and its method name.

    The end is used because in a multi-line chain CPython's span starts at the method name, while the end is always the
    call's closing parenthesis. If only the statement is known, the method name alone decides, and only if it occurs
    there once.

    Raises:
        CannotExpress: no call, or more than one, matches the location.
    """
    if not location.exact:
        return _only_call_in_statement(tree, location)
    call = tree.calls.get(tree.offset(location.end_line, location.end_column))
    if call is None:
        raise CannotExpress(f"No call ends at the recorded position of {location.method} ({location}).")
    if called_name(call) != location.method and location.method not in _imported_as(tree, call):
        raise CannotExpress(f"The call at {location} does not name {location.method}.")
    return call


def called_name(call: cst.Call) -> str | None:
    """Returns the last name of the called expression: `map` in `ds.map(f)`, None in `table["map"](f)`."""
    match call.func:
        case cst.Attribute(attr=cst.Name(value=name)) | cst.Name(value=name):
            return name
    return None


def _imported_as(tree: SyntaxTree, call: cst.Call) -> set[str]:
    """Returns the names that the called function has in the modules it is imported from."""
    scope = tree.scope(call)
    if scope is None or not isinstance(call.func, cst.Name):
        return set()
    names = scope.get_qualified_names_for(call.func)
    return {name.name.rpartition(".")[2] for name in names if name.source is QualifiedNameSource.IMPORT}


def _only_call_in_statement(tree: SyntaxTree, location: SourceLocation) -> cst.Call:
    statements = _innermost_statements(tree, location.line)
    found = [
        call
        for call in tree.calls.values()
        if called_name(call) == location.method and _statement_of(tree, call) in statements
    ]
    if len(found) != 1:
        raise CannotExpress(f"{location.method} stands {len(found)} times in the statement at {location}.")
    return found[0]


def _innermost_statements(tree: SyntaxTree, line: int) -> list[cst.CSTNode]:
    """Returns the statements on a line that contain no other one on it; several if semicolons separate them."""
    holding = [
        statement
        for statement in tree.nodes(*_STATEMENTS)
        if tree.line(tree.start(statement)) <= line <= tree.line(tree.end(statement))
    ]
    around = {parent for statement in holding for parent in tree.ancestors(statement)}
    return [statement for statement in holding if statement not in around]


def _statement_of(tree: SyntaxTree, node: cst.CSTNode) -> cst.CSTNode | None:
    return next(
        (
            parent
            for parent in tree.ancestors(node)
            if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement)
        ),
        None,
    )
