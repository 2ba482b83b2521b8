"""The user's functions that names and expressions refer to, and all uses of one of them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, ImportAssignment

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft
from pipetune.source.statements import bound_targets, names_read, variable_nodes
from pipetune.source.syntax_tree import SyntaxTree, nodes_within


def imported_function(draft: Draft, file: str, name: cst.Name) -> tuple[str, cst.FunctionDef] | None:
    """Returns the file that defines an imported function, and the function; None unless it is a user's file."""
    other, original = _imported_from(draft, file, name)
    made = _functions_named(original, draft.tree(other).module.body) if other is not None else []
    return (other, made[-1]) if other is not None and made else None


def imported_variable(draft: Draft, file: str, name: cst.Name) -> tuple[str, cst.Name] | None:
    """Returns the user's file that assigns an imported variable, and its name there; None if there is not one."""
    other, original = _imported_from(draft, file, name)
    targets = bound_targets(draft.tree(other).module) if other is not None else []
    found = [one for one in targets if isinstance(one, cst.Name) and one.value == original]
    return (other, found[0]) if other is not None and len(found) == 1 else None


def _imported_from(draft: Draft, file: str, name: cst.Name) -> tuple[str | None, str]:
    """Returns the user's file that a name is imported from, None if it is not, and the name there."""
    package, levels, original = _import_of(draft.tree(file), name) or ("", 0, "")
    return (_file_of(package, importer=file, levels=levels) if package or levels else None), original


def _functions_named(name: str, body: Iterable[cst.CSTNode]) -> list[cst.FunctionDef]:
    return [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == name]


def imported_module(draft: Draft, file: str, name: cst.Name) -> str | None:
    """Returns the user's file that a module name refers to: `import reading`, `from . import reading`."""
    found = _import_of(draft.tree(file), name)
    if found is None:
        return None
    package, levels, original = found
    return _file_of(".".join(filter(None, (package, original))), importer=file, levels=levels)


def _import_of(tree: SyntaxTree, name: cst.Name) -> tuple[str, int, str] | None:
    """Returns the package that a name is imported from, the number of dots in front of it, and the name there."""
    assignment = tree.only_assignment(name)
    statement = assignment.node if isinstance(assignment, ImportAssignment) else None
    if not isinstance(statement, cst.Import | cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
        return None
    for alias in statement.names:
        if (alias.evaluated_alias or alias.evaluated_name) == name.value:
            if isinstance(statement, cst.Import):
                return "", 0, alias.evaluated_name
            package = get_full_name_for_node(statement.module) if statement.module is not None else None
            return package or "", len(statement.relative), alias.evaluated_name
    return None


def _file_of(module: str, *, importer: str, levels: int) -> str | None:
    """Returns the file of a module in the importing file's folder or, for an absolute import, in a folder above it.

    Or in a folder `src` there, where projects keep what they install.
    """
    parts = module.split(".") if module else []
    above = Path(os.path.abspath(importer)).parents
    folders = [path for folder in above for path in (folder, folder / "src")]
    for folder in above[levels - 1 : levels] if levels else folders:
        for path in (os.path.join(folder, *parts) + ".py", os.path.join(folder, *parts, "__init__.py")):
            if os.path.isfile(path):
                return path
    return None


_MAX_STEPS = 12  # limit for following names until a function is reached


@dataclass(frozen=True)
class UserFunction:
    """A function of the user: its definition, and the expression that refers to it."""

    file: str
    node: cst.FunctionDef | cst.Lambda
    reference: cst.BaseExpression | None = None  # the name or attribute that refers to it; None for a lambda in place
    reference_file: str = ""  # the file of the reference
    aliased: bool = False  # the reference is another name assigned to it, which is read more than once

    @property
    def body(self) -> cst.CSTNode:
        """The body of the definition."""
        return self.node.body


def definition_of(tree: SyntaxTree, name: cst.Name) -> cst.FunctionDef | None:
    """Returns the function of this file that a name refers to; None if it may refer to anything else."""
    assignment = tree.only_assignment(name)
    made = assignment.node if isinstance(assignment, Assignment) else None
    return made if isinstance(made, cst.FunctionDef) else None


def referenced_functions(tree: SyntaxTree, codes: Iterable[cst.CSTNode]) -> list[cst.FunctionDef]:
    """Returns the functions of this file that pieces of code name, and those that these functions name, and so on."""
    found: list[cst.FunctionDef] = []
    waiting = list(codes)
    while waiting:
        for name in variable_nodes(waiting.pop()):
            function = definition_of(tree, name)
            if function is not None and all(function is not one for one in found):
                found.append(function)
                waiting.append(function.body)
    return found


def class_of_method(tree: SyntaxTree, function: cst.FunctionDef | None) -> cst.ClassDef | None:
    """Returns the class in whose body a function is defined; None for other functions, and for none."""
    block = tree.parent(function)
    owner = tree.parent(block) if isinstance(block, cst.IndentedBlock) else None
    return owner if isinstance(owner, cst.ClassDef) else None


def method_of_attribute(tree: SyntaxTree, attribute: cst.Attribute) -> cst.FunctionDef | None:
    """Returns the method, defined in this file, that an attribute of an object refers to; None unless it is unique."""
    name = attribute.attr.value
    found = [one for one in _functions_named(name, tree.nodes(cst.FunctionDef)) if class_of_method(tree, one)]
    own = tree.around(attribute, cst.ClassDef)
    is_self = isinstance(attribute.value, cst.Name) and attribute.value.value in ("self", "cls")
    inside = [one for one in found if is_self and own is not None and class_of_method(tree, one) is own]
    candidates = inside or found
    return candidates[0] if len(candidates) == 1 else None


def is_library_attribute(draft: Draft, file: str, attribute: cst.Attribute) -> bool:
    """Whether an attribute belongs to a module that is not the user's, or to an object returned by such a module.

    What some modules of Python return may be an object of the user.
    """
    tree = draft.tree(file)
    root: cst.BaseExpression = attribute
    while isinstance(root, cst.Attribute):
        root = root.value
    assignment = tree.only_assignment(root)
    if isinstance(assignment, ImportAssignment) and isinstance(root, cst.Name):
        return imported_module(draft, file, root) is None and imported_function(draft, file, root) is None
    made = tree.assigned_value(assignment)
    called = made.func if isinstance(made, cst.Call) else None
    if called is None or {one.partition(".")[0] for one in tree.imported_names(called)} & _RETURN_USERS_OBJECTS:
        return False
    return isinstance(called, cst.Attribute) and is_library_attribute(draft, file, called)


_RETURN_USERS_OBJECTS = frozenset({"builtins", "copy", "dataclasses", "functools", "pickle", "types"})


def functions_of(
    draft: Draft, file: str, value: cst.BaseExpression, *, function_name: str = "", steps: int = _MAX_STEPS
) -> list[UserFunction]:
    """Returns the user's functions, in any file, that an expression may refer to.

    Args:
        function_name: the name of the function that ran; it selects among several functions.
        steps: how many more names are followed.
    """
    if steps <= 0:
        return []
    tree = draft.tree(file)
    found: list[UserFunction] = []
    match value:
        case cst.Lambda():
            return [UserFunction(file, value)]
        case cst.IfExp(body=body, orelse=orelse):
            for one in (body, orelse):
                found += functions_of(draft, file, one, function_name=function_name, steps=steps - 1)
        case cst.Call() if is_partial(tree, value):
            return functions_of(draft, file, value.args[0].value, function_name=function_name, steps=steps - 1)
        case cst.Name() | cst.Attribute():
            found = _functions_of_name(draft, file, value, function_name=function_name, steps=steps)
    named = [one for one in found if isinstance(one.node, cst.FunctionDef) and one.node.name.value == function_name]
    return named if len(found) > 1 and named else found


def is_partial(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call is one of `functools.partial`."""
    return bool(call.args) and tree.means_import(call.func, "functools.partial", at=call)


def _functions_of_name(
    draft: Draft, file: str, value: cst.Name | cst.Attribute, *, function_name: str, steps: int
) -> list[UserFunction]:
    tree = draft.tree(file)
    if isinstance(value, cst.Attribute):
        if isinstance(value.value, cst.Name) and (module := imported_module(draft, file, value.value)) is not None:
            defined = _functions_named(value.attr.value, draft.tree(module).module.body)
            return [UserFunction(module, one, value, file) for one in defined[-1:]]
        method = method_of_attribute(tree, value)
        return [UserFunction(file, method, value, file)] if method is not None else []
    if (function := definition_of(tree, value)) is not None:
        return [UserFunction(file, function, value, file)]
    assignment = tree.only_assignment(value)
    if isinstance(assignment, Assignment) and isinstance(assignment.node, cst.ClassDef):
        return [UserFunction(file, one, value, file) for one in _functions_named("__init__", assignment.node.body.body)]
    if isinstance(assignment, ImportAssignment):
        imported = imported_function(draft, file, value)
        return [UserFunction(*imported, value, file)] if imported is not None else []
    assigned = tree.assigned_value(assignment)
    if assignment is None or assigned is None or isinstance(assigned, cst.Lambda):
        return []  # a lambda with a name may be used elsewhere
    behind = functions_of(draft, file, assigned, function_name=function_name, steps=steps - 1)
    several = len(assignment.references) > 1
    return [replace(one, aliased=one.aliased or several) for one in behind]


def functions_referenced(draft: Draft, function: UserFunction, known: Sequence[UserFunction]) -> list[UserFunction]:
    """Returns the user's functions that the body of `function` refers to, without those in `known`."""
    found: list[UserFunction] = []
    for reference in names_read(function.body):
        named = functions_of(draft, function.file, reference)
        found += [one for one in named if all(one.node is not other.node for other in (*known, *found))]
    return found


_NAME_LOOKUPS = frozenset({"attrgetter", "getattr", "methodcaller", "setattr"})
_DECORATORS = frozenset(
    {"abstractmethod", "cache", "cached_property", "classmethod", "function", "lru_cache", "override", "property",
     "staticmethod", "wraps"}
    | {"argument", "command", "configurable", "main", "option", "pass_context"}  # of click, Gin, Hydra and Typer
)  # fmt: skip
"""Decorators, by the last part of their names, that do not give the function to other code, or only to what calls it
with what the command line says."""


@dataclass(frozen=True)
class FunctionUse:
    """A place where a function is named: a name, an attribute, or a string with its name."""

    file: str
    node: cst.CSTNode
    location: str  # file and line


def uses_of(draft: Draft, file: str, function: cst.FunctionDef | cst.ClassDef) -> list[FunctionUse]:
    """Returns the uses of a function, or of a class, in its file, its package and the folders below.

    For methods, and in other files, every attribute with that name counts, unless it is set there: `module.make = mine`
    puts another function in its place. Uses of `__init__` are those of its class;
    uses of `__call__` are calls of instances in the same file.
    """
    tree, name = draft.tree(file), function.name.value
    if isinstance(function, cst.ClassDef):
        return _uses_of_name(draft, file, function)
    owner = class_of_method(tree, function)
    if owner is not None and name in ("__init__", "__post_init__"):
        return uses_of(draft, file, owner)
    found = [use_at(tree, file, one) for one in exposing_decorators(function)]
    if owner is not None and name == "__call__":
        return [*found, *_instance_calls(tree, file, owner)]
    return [*found, *_uses_of_name(draft, file, function)]


def _uses_of_name(draft: Draft, file: str, node: cst.FunctionDef | cst.ClassDef) -> list[FunctionUse]:
    tree, name = draft.tree(file), node.name.value
    owner = class_of_method(tree, node) if isinstance(node, cst.FunctionDef) else None
    variables = [one for one in variable_nodes(tree.module) if one.value == name]
    nodes: list[cst.CSTNode] = [*_lookup_strings(tree, name)]
    if owner is not None:
        nodes += _attributes(draft, tree, file, node)
        # Directly in the body of the class, as in `train = property(make)`.
        bodies = (cst.FunctionDef, cst.ClassDef, cst.Lambda)
        nodes += [one for one in variables if tree.around(one, *bodies) is owner]
    else:  # also a name that is bound more than once
        nodes += [one for one in variables if any(bound.node is node for bound in tree.assignments(one))]
    found = [use_at(tree, file, one) for one in nodes if one is not node.name and not _is_type_use(tree, one)]
    for other, tree in trees_mentioning(draft, file, name):
        nodes = [*_attributes(draft, tree, other, node), *_lookup_strings(tree, name)]
        nodes += _imported_names(tree, name) if owner is None else []
        targets = bound_targets(tree.module)
        found += [use_at(tree, other, one) for one in nodes if one not in targets and not _is_type_use(tree, one)]
    return found


def is_read_by_others(draft: Draft, file: str, name: str) -> bool:
    """Whether another of the user's files may read a variable of this file."""
    for other, tree in trees_mentioning(draft, file, name):
        attributes = [one for one in tree.nodes(cst.Attribute) if one.attr.value == name]
        if any(_imported_names(tree, name)) or not all(is_library_attribute(draft, other, one) for one in attributes):
            return True
    return False


def _imported_names(tree: SyntaxTree, name: str) -> Iterator[cst.Name]:
    """Yields where a file reads a name that it imports from another file."""
    bound = {
        alias.evaluated_alias or name
        for alias in tree.nodes(cst.ImportAlias)
        if alias.evaluated_name.rpartition(".")[2] == name
    }
    if any(isinstance(one.names, cst.ImportStar) for one in tree.nodes(cst.ImportFrom)):
        bound.add(name)
    for one in variable_nodes(tree.module):
        if one.value in bound and tree.around(one, cst.Import, cst.ImportFrom) is None:
            yield one


def _attributes(
    draft: Draft, tree: SyntaxTree, file: str, node: cst.FunctionDef | cst.ClassDef
) -> Iterator[cst.Attribute]:
    """Yields attributes with the name of a definition, except those of libraries and of instances of other classes."""
    for one in tree.nodes(cst.Attribute):
        if one.attr.value != node.name.value or tree.around(one, cst.Import, cst.ImportFrom) is not None:
            continue
        if not is_library_attribute(draft, file, one) and not _of_another_class(tree, one, node):
            yield one


def _of_another_class(tree: SyntaxTree, attribute: cst.Attribute, node: cst.FunctionDef | cst.ClassDef) -> bool:
    """Whether it is `self.name` in a class that defines another method of that name."""
    if not isinstance(attribute.value, cst.Name) or attribute.value.value not in ("self", "cls"):
        return False
    around = tree.around(attribute, cst.ClassDef)
    own = _functions_named(attribute.attr.value, around.body.body) if around is not None else []
    return bool(own) and all(one is not node for one in own)


def _is_type_use(tree: SyntaxTree, node: cst.CSTNode) -> bool:
    """Whether a class is named only as a type: in an annotation, or in `isinstance` or `issubclass`."""
    for parent in tree.ancestors(node):
        if isinstance(parent, cst.Annotation):
            return True
        if isinstance(parent, cst.Call) and isinstance(parent.func, cst.Name):
            return parent.func.value in ("isinstance", "issubclass")
        if isinstance(parent, cst.BaseStatement | cst.BaseSmallStatement):
            return False
    return False


def _lookup_strings(tree: SyntaxTree, name: str) -> Iterator[cst.SimpleString]:
    """Yields strings that look up an object by that name, as in `getattr(self, "make")`."""
    for one in tree.nodes(cst.SimpleString):
        if one.evaluated_value != name:
            continue
        holder = tree.parent(one)
        call = tree.parent(holder) if isinstance(holder, cst.Arg) else None
        if isinstance(call, cst.Call) and tree.text(call.func).rpartition(".")[2] in _NAME_LOOKUPS:
            yield one
        subscript = tree.around(one, cst.Subscript)
        if subscript is not None and re.search(r"(globals|locals|vars)\(|__dict__", tree.text(subscript.value)):
            yield one


def is_set_elsewhere(draft: Draft, file: str, name: str) -> bool:
    """Whether a variable of a file may be set as an attribute of the module, or be looked up by its name."""
    for tree in (draft.tree(file), *(other for _, other in trees_mentioning(draft, file, name))):
        attributes = (one for target in bound_targets(tree.module) for one in nodes_within(target, cst.Attribute))
        if any(one.attr.value == name for one in attributes) or any(_lookup_strings(tree, name)):
            return True
    return False


def exposing_decorators(function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yields decorators that may call the function with other arguments, or give it to other code: `@register("a")`."""
    for one in function.decorators:
        named = one.decorator.func if isinstance(one.decorator, cst.Call) else one.decorator
        last = named.attr if isinstance(named, cst.Attribute) else named
        if not isinstance(last, cst.Name) or last.value not in _DECORATORS | {"setter", "getter"}:
            yield one.decorator


def _instance_calls(tree: SyntaxTree, file: str, owner: cst.ClassDef) -> Iterator[FunctionUse]:
    """Yields calls of what may be an instance of a class, by the names and attributes that one was assigned to."""
    names: set[str] = set()
    for statement in tree.nodes(cst.Assign):
        match statement.value:
            case cst.Call(func=cst.Name(value=made)) if made == owner.name.value:
                names |= {tree.text(one.target).rpartition(".")[2] for one in statement.targets}
    for call in tree.nodes(cst.Call):
        match call.func:
            case cst.Name(value=last) | cst.Attribute(attr=cst.Name(value=last)) if last in names:
                yield use_at(tree, file, call)
            case cst.Call(func=cst.Name(value=made)) if made == owner.name.value:
                yield use_at(tree, file, call)


def trees_mentioning(draft: Draft, file: str, name: str) -> Iterator[tuple[str, SyntaxTree]]:
    """Yields the user's other files that may name a function or variable of `file`, if they can be parsed.

    They have its name, its module's and an import; among those near a caller, only files that import the module count.
    """
    stem = os.path.splitext(os.path.basename(file))[0]
    module = os.path.basename(os.path.dirname(os.path.abspath(file))) if stem == "__init__" else stem
    words = [re.compile(rf"\b{re.escape(word)}\b") for word in (name, module)]
    imported = re.compile(rf"^[ \t]*(from|import)\b.*\b{re.escape(module)}\b", re.MULTILINE)
    near = dict.fromkeys(draft.near(file))
    folders = {os.path.dirname(os.path.abspath(caller)): caller for caller in draft.codes}
    folders.pop(os.path.dirname(os.path.abspath(file)), None)  # it was searched
    around = (*draft.codes, *(path for caller in folders.values() for path in draft.near(caller)))
    found = {path: text for path in near if "import" in (text := text_of(draft, path))}
    for path in dict.fromkeys(around):
        if path not in near and path != file and imported.search(text := text_of(draft, path)):
            found[path] = text
    for path, text in found.items():
        if all(word.search(text) for word in words):
            with contextlib.suppress(CannotExpress):
                yield path, draft.tree(path)


def has_other_definition(draft: Draft, file: str, function: cst.FunctionDef, *, caller: str = "") -> bool:
    """Whether another function has the name of a method of `file`, for example an override in a subclass.

    It may be near that file or, if one calls the method from another folder, near the caller.
    """
    name = function.name.value
    word = re.compile(rf"\bdef {re.escape(name)}\b")
    several = len(_functions_named(name, draft.tree(file).nodes(cst.FunctionDef))) > 1
    others = {*draft.near(file), *([caller, *draft.near(caller)] if caller else [])} - {file}
    return several or any(word.search(text_of(draft, path)) for path in others)


def text_of(draft: Draft, path: str) -> str:
    """Returns the text of a file; empty if it cannot be read."""
    try:
        return draft.read(path)
    except (OSError, SyntaxError, UnicodeError):
        return ""


def use_at(tree: SyntaxTree, file: str, node: cst.CSTNode) -> FunctionUse:
    """Returns the use at a node."""
    return FunctionUse(file, node, f"{os.path.basename(file)}:{tree.line(tree.start(node))}")
