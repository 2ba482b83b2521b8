"""The user's functions that names and expressions refer to, in the same file or in another file of the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst
from libcst.metadata import Assignment, ImportAssignment, QualifiedNameSource

from pipetune.source.draft import Draft
from pipetune.source.imported import imported_function, imported_module
from pipetune.source.tree import SyntaxTree

_MOST_STEPS = 12  # limit for following names until a function is reached


@dataclass(frozen=True)
class UsersFunction:
    """A function of the user: its definition, and the expression that refers to it."""

    file: str
    node: cst.FunctionDef | cst.Lambda
    reference: cst.BaseExpression | None = None  # the name or attribute that refers to it; None for a lambda in place
    referred_in: str = ""  # the file of the reference
    handed_on: bool = False  # the reference is another name assigned to it, which is read more than once

    @property
    def body(self) -> cst.CSTNode:
        return self.node.body


def definition_of(tree: SyntaxTree, name: cst.Name) -> cst.FunctionDef | None:
    """Returns the function of this file that a name refers to; None if it may refer to anything else."""
    scope = tree.scope(name)
    assignments = list(scope[name.value]) if scope is not None else []
    if len(assignments) != 1 or not isinstance(assignments[0], Assignment):
        return None
    made = assignments[0].node
    return made if isinstance(made, cst.FunctionDef) else None


def class_around(tree: SyntaxTree, node: cst.CSTNode) -> cst.ClassDef | None:
    """Returns the innermost class that contains a piece of code, in a method or directly."""
    return next((one for one in tree.ancestors(node) if isinstance(one, cst.ClassDef)), None)


def class_of_method(tree: SyntaxTree, function: cst.FunctionDef) -> cst.ClassDef | None:
    """Returns the class in whose body a function is defined; None for other functions."""
    block = tree.parent(function)
    owner = tree.parent(block) if isinstance(block, cst.IndentedBlock) else None
    return owner if isinstance(owner, cst.ClassDef) else None


def method_called(tree: SyntaxTree, attribute: cst.Attribute) -> cst.FunctionDef | None:
    """Returns the method, defined in this file, that an attribute of an object refers to; None unless it is unique."""
    name = attribute.attr.value
    found = [one for one in tree.nodes(cst.FunctionDef) if one.name.value == name and class_of_method(tree, one)]
    own = class_around(tree, attribute)
    is_self = isinstance(attribute.value, cst.Name) and attribute.value.value in ("self", "cls")
    inside = [one for one in found if is_self and own is not None and class_of_method(tree, one) is own]
    candidates = inside or found
    return candidates[0] if len(candidates) == 1 else None


def is_of_library(draft: Draft, file: str, attribute: cst.Attribute) -> bool:
    """Whether an attribute belongs to a module that is not the user's, or to an object returned by such a module."""
    tree = draft.tree(file)
    root: cst.BaseExpression = attribute
    while isinstance(root, cst.Attribute):
        root = root.value
    scope = tree.scope(root) if isinstance(root, cst.Name) else None
    assignments = list(scope[root.value]) if scope is not None and isinstance(root, cst.Name) else []
    if len(assignments) != 1 or not isinstance(root, cst.Name):
        return False
    if isinstance(assignments[0], ImportAssignment):
        return imported_module(draft, file, root) is None and imported_function(draft, file, root) is None
    made = tree.assigned(assignments[0]) if isinstance(assignments[0], Assignment) else None
    return isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute) and is_of_library(draft, file, made.func)


def functions_of(
    draft: Draft, file: str, value: cst.BaseExpression, *, called: str = "", steps: int = _MOST_STEPS
) -> tuple[Draft, list[UsersFunction]]:
    """Returns the draft with more files opened, and the user's functions in them that an expression may refer to.

    Args:
        called: the name of the function that ran; it selects among several functions.
        steps: how many more names are followed.
    """
    if steps <= 0:
        return draft, []
    tree = draft.tree(file)
    found: list[UsersFunction] = []
    match value:
        case cst.Lambda():
            return draft, [UsersFunction(file, value)]
        case cst.IfExp(body=body, orelse=orelse):
            for one in (body, orelse):
                draft, more = functions_of(draft, file, one, called=called, steps=steps - 1)
                found += more
        case cst.Call() if is_partial(tree, value):
            return functions_of(draft, file, value.args[0].value, called=called, steps=steps - 1)
        case cst.Name() | cst.Attribute():
            draft, found = _named(draft, file, value, called=called, steps=steps)
    named = [one for one in found if isinstance(one.node, cst.FunctionDef) and one.node.name.value == called]
    return draft, (named if len(found) > 1 and named else found)


def is_partial(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call is one of `functools.partial`."""
    scope = tree.scope(call)
    found = scope.get_qualified_names_for(call.func) if scope is not None else ()
    names = {(one.name, one.source) for one in found}
    return bool(call.args) and names == {("functools.partial", QualifiedNameSource.IMPORT)}


def _named(
    draft: Draft, file: str, value: cst.Name | cst.Attribute, *, called: str, steps: int
) -> tuple[Draft, list[UsersFunction]]:
    tree = draft.tree(file)
    if isinstance(value, cst.Attribute):
        if isinstance(value.value, cst.Name) and (module := imported_module(draft, file, value.value)) is not None:
            draft = draft.opened(module)
            body = draft.tree(module).module.body
            defined = [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == value.attr.value]
            return draft, [UsersFunction(module, one, value, file) for one in defined[-1:]]
        method = method_called(tree, value)
        return draft, [UsersFunction(file, method, value, file)] if method is not None else []
    function = definition_of(tree, value)
    if function is not None:
        return draft, [UsersFunction(file, function, value, file)]
    scope = tree.scope(value)
    assignments = list(scope[value.value]) if scope is not None else []
    if len(assignments) != 1:
        return draft, []
    if isinstance(assignments[0], Assignment) and isinstance(assignments[0].node, cst.ClassDef):
        inside = assignments[0].node.body.body
        made = [one for one in inside if isinstance(one, cst.FunctionDef) and one.name.value == "__init__"]
        return draft, [UsersFunction(file, one, value, file) for one in made]
    if isinstance(assignments[0], ImportAssignment):
        imported = imported_function(draft, file, value)
        if imported is None:
            return draft, []
        draft, other, definition = imported
        return draft, [UsersFunction(other, definition, value, file)]
    assigned = tree.assigned(assignments[0]) if isinstance(assignments[0], Assignment) else None
    if assigned is None or isinstance(assigned, cst.Lambda):
        return draft, []  # a lambda with a name may be used elsewhere
    draft, behind = functions_of(draft, file, assigned, called=called, steps=steps - 1)
    several = len(assignments[0].references) > 1
    return draft, [replace(one, handed_on=one.handed_on or several) for one in behind]


def functions_called(
    draft: Draft, function: UsersFunction, known: Sequence[UsersFunction]
) -> tuple[Draft, list[UsersFunction]]:
    """Returns the draft, and the user's functions that the body of `function` refers to, without those in `known`."""
    found: list[UsersFunction] = []
    for reference in references_in(function.body):
        draft, named = functions_of(draft, function.file, reference)
        found += [one for one in named if all(one.node is not other.node for other in (*known, *found))]
    return draft, found


def references_in(body: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
    """Yields the names and attributes that a piece of code reads; for `a.b.c` only the whole."""
    finder = _References()
    body.visit(finder)
    yield from finder.found


class _References(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[cst.Name | cst.Attribute] = []

    def visit_Name(self, node: cst.Name) -> None:
        self.found.append(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        self.found.append(node)
        inner = node.value
        while isinstance(inner, cst.Attribute):
            inner = inner.value
        if not isinstance(inner, cst.Name):
            inner.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Param(self, node: cst.Param) -> bool:
        if node.default is not None:
            node.default.visit(self)
        return False
