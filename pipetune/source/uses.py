"""Finds where the user's files name a function, that is, what a change of the function would affect."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Assignment

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft
from pipetune.source.functions import class_around, class_of_method, is_of_library
from pipetune.source.statements import name_nodes
from pipetune.source.tree import SyntaxTree

_MOST_ENTRIES = 20_000  # directory entries that are searched: a folder with more holds data, not source
_OTHERS = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__", "build", "dist"})
_TAKE_NAMES = frozenset({"attrgetter", "getattr", "methodcaller", "setattr"})
_DECORATORS = frozenset(
    {"abstractmethod", "cache", "cached_property", "classmethod", "function", "lru_cache", "override", "property",
     "staticmethod", "wraps"}
)  # fmt: skip
"""Decorators, by the last part of their names, that do not give the function to other code."""


@dataclass(frozen=True)
class Use:
    """A place where a function is named: a name, an attribute, or a string with its name."""

    file: str
    node: cst.CSTNode
    place: str  # file and line


def uses_of(draft: Draft, file: str, function: cst.FunctionDef) -> tuple[Draft, list[Use]]:
    """Returns the uses of a function in its file, its package and the folders below, and the draft with them opened.

    For methods, and in other files, every attribute with that name counts. Uses of `__init__` are those of its class;
    uses of `__call__` are calls of instances in the same file.
    """
    tree, name = draft.tree(file), function.name.value
    owner = class_of_method(tree, function)
    if owner is not None and name == "__init__":
        return _uses_of_name(draft, file, owner.name, method=False, node=owner)
    found = [Use(file, one, _place(tree, file, one)) for one in _handed_to_decorators(function)]
    if owner is not None and name == "__call__":
        return draft, [*found, *_calls_of_objects(tree, file, owner)]
    draft, uses = _uses_of_name(draft, file, function.name, method=owner is not None, node=function)
    return draft, [*found, *uses]


def _uses_of_name(
    draft: Draft, file: str, name: cst.Name, *, method: bool, node: cst.FunctionDef | cst.ClassDef
) -> tuple[Draft, list[Use]]:
    tree = draft.tree(file)
    nodes: list[cst.CSTNode] = [*_texts(tree, name.value)]
    if method:
        nodes += _attributes(draft, tree, file, name.value, node)
        owner = class_around(tree, node)
        nodes += [one for one in name_nodes(tree.module) if one.value == name.value and _in_class(tree, one, owner)]
    else:
        nodes += [one for one in name_nodes(tree.module) if one.value == name.value and _may_be(tree, one, node)]
    nodes = [one for one in nodes if one is not name and not _only_a_type(tree, one)]
    found = [Use(file, one, _place(tree, file, one)) for one in nodes]
    for other in _files_naming(draft, file, name.value):
        try:
            draft = draft.opened(other)
            tree = draft.tree(other)
        except CannotExpress:
            continue
        nodes = [*_attributes(draft, tree, other, name.value, node), *_texts(tree, name.value)]
        nodes += [] if method else _imported(tree, name.value)
        found += [Use(other, one, _place(tree, other, one)) for one in nodes if not _only_a_type(tree, one)]
    return draft, found


def _may_be(tree: SyntaxTree, name: cst.Name, node: cst.FunctionDef | cst.ClassDef) -> bool:
    """Whether a name refers to a function or class, or may do so because it is bound more than once."""
    scope = tree.scope(name)
    return scope is not None and any(isinstance(one, Assignment) and one.node is node for one in scope[name.value])


def _in_class(tree: SyntaxTree, name: cst.Name, owner: cst.ClassDef | None) -> bool:
    """Whether a name is directly in the body of a class, as in `train = property(make)`."""
    around = (one for one in tree.ancestors(name) if isinstance(one, cst.FunctionDef | cst.ClassDef | cst.Lambda))
    return owner is not None and next(around, None) is owner


def _imported(tree: SyntaxTree, name: str) -> Iterator[cst.Name]:
    """Yields where a file reads a name that it imports from another file."""
    bound = {
        alias.evaluated_alias or name
        for alias in tree.nodes(cst.ImportAlias)
        if alias.evaluated_name.rpartition(".")[2] == name
    }
    if any(isinstance(one.names, cst.ImportStar) for one in tree.nodes(cst.ImportFrom)):
        bound.add(name)
    for one in name_nodes(tree.module):
        if one.value in bound and not any(isinstance(up, cst.Import | cst.ImportFrom) for up in tree.ancestors(one)):
            yield one


def _attributes(
    draft: Draft, tree: SyntaxTree, file: str, name: str, node: cst.FunctionDef | cst.ClassDef
) -> Iterator[cst.Attribute]:
    """Yields attributes with a name, except those of libraries and of instances of other classes."""
    for one in tree.nodes(cst.Attribute):
        if one.attr.value != name or any(isinstance(up, cst.Import | cst.ImportFrom) for up in tree.ancestors(one)):
            continue
        if not is_of_library(draft, file, one) and not _of_another_class(tree, one, node):
            yield one


def _of_another_class(tree: SyntaxTree, attribute: cst.Attribute, node: cst.FunctionDef | cst.ClassDef) -> bool:
    """Whether it is `self.name` in a class that defines another method of that name."""
    if not isinstance(attribute.value, cst.Name) or attribute.value.value not in ("self", "cls"):
        return False
    around = class_around(tree, attribute)
    inside = around.body.body if around is not None else ()
    own = [one for one in inside if isinstance(one, cst.FunctionDef) and one.name.value == attribute.attr.value]
    return bool(own) and all(one is not node for one in own)


def _only_a_type(tree: SyntaxTree, node: cst.CSTNode) -> bool:
    """Whether a class is named only as a type: in an annotation, or in `isinstance` or `issubclass`."""
    for parent in tree.ancestors(node):
        if isinstance(parent, cst.Annotation):
            return True
        if isinstance(parent, cst.Call) and isinstance(parent.func, cst.Name):
            return parent.func.value in ("isinstance", "issubclass")
        if isinstance(parent, cst.BaseStatement | cst.BaseSmallStatement):
            return False
    return False


def _texts(tree: SyntaxTree, name: str) -> Iterator[cst.SimpleString]:
    """Yields strings that look up an object by that name, as in `getattr(self, "make")`."""
    for one in tree.nodes(cst.SimpleString):
        if one.evaluated_value != name:
            continue
        holder = tree.parent(one)
        call = tree.parent(holder) if isinstance(holder, cst.Arg) else None
        if isinstance(call, cst.Call) and tree.text(call.func).rpartition(".")[2] in _TAKE_NAMES:
            yield one
        subscript = next((up for up in tree.ancestors(one) if isinstance(up, cst.Subscript)), None)
        if subscript is not None and re.search(r"(globals|locals|vars)\(|__dict__", tree.text(subscript.value)):
            yield one


def _handed_to_decorators(function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yields decorators that may give the function to other code, such as `@register("train")`."""
    for one in function.decorators:
        named = one.decorator.func if isinstance(one.decorator, cst.Call) else one.decorator
        last = named.attr if isinstance(named, cst.Attribute) else named
        if not isinstance(last, cst.Name) or last.value not in _DECORATORS | {"setter", "getter"}:
            yield one.decorator


def _calls_of_objects(tree: SyntaxTree, file: str, owner: cst.ClassDef) -> Iterator[Use]:
    """Yields calls of what may be an instance of a class, by the names and attributes that one was assigned to."""
    names: set[str] = set()
    for statement in tree.nodes(cst.Assign):
        match statement.value:
            case cst.Call(func=cst.Name(value=made)) if made == owner.name.value:
                names |= {tree.text(one.target).rpartition(".")[2] for one in statement.targets}
    for call in tree.nodes(cst.Call):
        match call.func:
            case cst.Name(value=last) | cst.Attribute(attr=cst.Name(value=last)) if last in names:
                yield Use(file, call, _place(tree, file, call))
            case cst.Call(func=cst.Name(value=made)) if made == owner.name.value:
                yield Use(file, call, _place(tree, file, call))


def _files_naming(draft: Draft, file: str, name: str) -> list[str]:
    """Returns the user's other files that may name a function of `file`: with its name, its module's and an import."""
    stem = os.path.splitext(os.path.basename(file))[0]
    module = os.path.basename(os.path.dirname(os.path.abspath(file))) if stem == "__init__" else stem
    words = [re.compile(rf"\b{re.escape(word)}\b") for word in (name, module)]
    found = []
    for path in _files_beside(file):
        text = _text_of(draft, path)
        if all(word.search(text) for word in words) and "import" in text:
            found.append(path)
    return found


def defined_elsewhere(draft: Draft, file: str, function: cst.FunctionDef) -> bool:
    """Whether another function has the name of a method, for example an override in a subclass."""
    name = function.name.value
    same = [one for one in draft.tree(file).nodes(cst.FunctionDef) if one.name.value == name]
    word = re.compile(rf"\bdef {re.escape(name)}\b")
    return len(same) > 1 or any(word.search(_text_of(draft, path)) for path in _files_beside(file))


def _files_beside(file: str) -> Iterator[str]:
    """Yields the other Python files of the folder, of its subfolders, and of the packages it belongs to."""
    own, folder = os.path.abspath(file), os.path.dirname(os.path.abspath(file))
    while os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    waiting, seen = [folder], 0
    while waiting:
        above = waiting.pop(0)
        try:
            entries = sorted(os.scandir(above), key=lambda one: one.name)
        except OSError:
            continue
        seen += len(entries)
        if seen > _MOST_ENTRIES:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _OTHERS and not entry.name.startswith("."):
                    waiting.append(entry.path)
            elif entry.name.endswith(".py") and entry.path != own:
                yield entry.path


def _text_of(draft: Draft, path: str) -> str:
    try:
        return draft.read(path)
    except (OSError, SyntaxError, UnicodeError):
        return ""


def _place(tree: SyntaxTree, file: str, node: cst.CSTNode) -> str:
    return f"{os.path.basename(file)}:{tree.line(tree.start(node))}"
