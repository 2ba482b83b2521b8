"""The values of expressions that are the same in every run: literals decide them, by way of names and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Assignment, GlobalScope, ImportAssignment

from pipetune.source.call_arguments import TAKES_FUNCTION, arguments_by_name
from pipetune.source.draft import CallSite, Draft, called_name
from pipetune.source.map_functions import given_function, parameters_of
from pipetune.source.statements import variable_nodes
from pipetune.source.syntax_tree import consists_of
from pipetune.source.user_functions import (
    class_of_method,
    exposing_decorators,
    functions_of,
    imported_variable,
    is_partial,
    is_set_elsewhere,
)

MOST_CALLS = 12
"""Calls, one within another, that are followed."""

Place = tuple[str, cst.CSTNode, Sequence[CallSite]]
"""The file of a piece of code, the code, and the calls around the function that it is in, innermost first."""


def is_decided(draft: Draft, file: str, value: cst.BaseExpression, stack: Sequence[CallSite]) -> bool:
    """Whether an expression has one value in every run: all names in it stand for literals.

    Args:
        stack: the calls around the function that it is in, innermost first.
    """
    return all(_known_value(draft, (file, name, stack)) is not None for name in variable_nodes(value))


@dataclass(frozen=True)
class _Known:
    """The value of an expression."""

    value: object


_PLAIN = (
    cst.SimpleString | cst.Integer | cst.Float | cst.Name | cst.UnaryOperation | cst.BooleanOperation | cst.Comparison
    | cst.Tuple | cst.List
)  # fmt: skip


def _known_value(draft: Draft, place: Place, steps: int = MOST_CALLS) -> _Known | None:
    """Returns the value of an expression that compares literals, by way of names and arguments; None for others."""
    file, value, stack = place
    if not steps or not consists_of(value, _PLAIN):
        return None
    known: dict[str, object] = {}
    for name in variable_nodes(value):
        if name.value not in ("True", "False", "None"):
            behind = value_behind(draft, file, name, stack)
            found = _known_value(draft, behind, steps - 1) if behind is not None else None
            if found is None or _may_be_set_elsewhere(draft, file, name):
                return None
            known[name.value] = found.value
    try:
        return _Known(eval(f"({draft.tree(file).text(value)})", {"__builtins__": {}}, known))
    except Exception:
        return None


def value_behind(draft: Draft, file: str, name: cst.Name, stack: Sequence[CallSite]) -> Place | None:
    """Returns the only value that a name has where it is read: of a variable, or what a call gives to a parameter."""
    tree = draft.tree(file)
    assignment = tree.only_assignment(name)
    if isinstance(assignment, ImportAssignment):
        imported = imported_variable(draft, file, name)
        return value_behind(draft, *imported, ()) if imported is not None else None
    if not isinstance(assignment, Assignment):
        return None
    made = assignment.node
    if isinstance(made, cst.Param):
        function = tree.around(made, cst.FunctionDef, cst.Lambda)
        for depth, site in enumerate(stack):
            given = _arguments_of(draft, site, function) if isinstance(function, cst.FunctionDef) else None
            if given is not None:
                if name.value in given:
                    return site.file, given[name.value].value, stack[depth + 1 :]
                return (file, made.default, ()) if made.default is not None else None
        return None
    around = tree.parent(made)
    value = around.value if isinstance(around, cst.AnnAssign) else tree.assigned_value(assignment)
    return (file, value, stack) if value is not None else None


def _may_be_set_elsewhere(draft: Draft, file: str, name: cst.Name) -> bool:
    """Whether a variable of a file, or one that it imports, may be set by code that does not just name it."""
    file, name = imported_variable(draft, file, name) or (file, name)
    assignment = draft.tree(file).only_assignment(name)
    of_file = assignment is not None and isinstance(assignment.scope, GlobalScope)
    return of_file and is_set_elsewhere(draft, file, name.value)


def _arguments_of(draft: Draft, site: CallSite, function: cst.FunctionDef) -> dict[str, cst.Arg] | None:
    """Returns what a call gives to a function, by parameter; None if it is no plain call of this function.

    Of a function that is given to a dataset's method, elements are the arguments: only those of `partial` are known.
    """
    tree = draft.tree(site.file)
    call = tree.calls.get(site.end) if site.end >= 0 else None
    if call is None or any(exposing_decorators(function)):
        return None
    called, arguments = call.func, call.args
    if called_name(call) in TAKES_FUNCTION and (given := given_function(tree, call)) is not None:
        called, arguments = given, ()
    if isinstance(called, cst.Call) and is_partial(tree, called):
        call = called
    if is_partial(tree, call):
        called, arguments = call.args[0].value, call.args[1:]
    found = functions_of(draft, site.file, called)
    if len(found) != 1 or found[0].node is not function or found[0].reference is not called:
        return None
    names = parameters_of(function)
    own = class_of_method(draft.tree(found[0].file), function) is not None and names[:1] in (["self"], ["cls"])
    return arguments_by_name(arguments, tuple(names[1:] if own else names))


def truth(draft: Draft, file: str, test: cst.BaseExpression, stack: Sequence[CallSite]) -> bool | None:
    """Returns whether a condition is met; None unless literals decide it."""
    known = _known_value(draft, (file, test, stack))
    return bool(known.value) if known is not None else None
