"""Where the user's files name a function: what else would change with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft
from pipetune.source.functions import class_of_method, definition_of
from pipetune.source.statements import name_nodes
from pipetune.source.tree import SyntaxTree

_MOST_ENTRIES = 20_000  # of folders that are looked through: a folder of data is none of source
_OTHERS = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__", "build", "dist"})


@dataclass(frozen=True)
class Use:
    """A place where a function is named: a name, an attribute, or a text that says its name."""

    file: str
    node: cst.CSTNode
    place: str  # file and line


def uses_of(draft: Draft, file: str, function: cst.FunctionDef) -> tuple[Draft, list[Use]]:
    """Where a function is named, in its file and in the others beside and below it, and the draft with those opened.

    Of methods and of functions of other files every attribute of that name counts.
    """
    name = function.name.value
    found = list(_uses_in(draft.tree(file), file, function))
    for other in _files_naming(draft, file, name):
        try:
            draft = draft.opened(other)
            tree = draft.tree(other)
        except CannotExpress:
            continue
        method = class_of_method(draft.tree(file), function) is not None
        found += _uses_elsewhere(tree, other, name, method=method)
    return draft, found


def _uses_in(tree: SyntaxTree, file: str, function: cst.FunctionDef) -> Iterator[Use]:
    name, owner = function.name.value, class_of_method(tree, function)
    if owner is not None:
        yield from _attributes(tree, file, name)
        within = [one for one in name_nodes(owner.body) if tree.scope(one) is not None and _in_class(tree, one, owner)]
        named = [one for one in within if one.value == name and one is not function.name]
    else:
        nodes = name_nodes(tree.module)
        named = [one for one in nodes if one is not function.name and definition_of(tree, one) is function]
    for one in named:
        yield Use(file, one, _place(tree, file, one))
    yield from _texts(tree, file, name)


def _in_class(tree: SyntaxTree, name: cst.Name, owner: cst.ClassDef) -> bool:
    """Whether a name stands in the body of a class itself, as in `train = property(make)`."""
    around = (one for one in tree.ancestors(name) if isinstance(one, cst.FunctionDef | cst.ClassDef | cst.Lambda))
    return next(around, None) is owner


def _uses_elsewhere(tree: SyntaxTree, file: str, name: str, *, method: bool) -> Iterator[Use]:
    """Uses in a file that imports the function, or the module that has it."""
    bound = {
        alias.evaluated_alias or name
        for alias in tree.nodes(cst.ImportAlias)
        if alias.evaluated_name.rpartition(".")[2] == name
    }
    for one in name_nodes(tree.module) if not method else ():
        if one.value in bound and not any(isinstance(up, cst.Import | cst.ImportFrom) for up in tree.ancestors(one)):
            yield Use(file, one, _place(tree, file, one))
    yield from _attributes(tree, file, name)
    yield from _texts(tree, file, name)


def _attributes(tree: SyntaxTree, file: str, name: str) -> Iterator[Use]:
    for one in tree.nodes(cst.Attribute):
        imported = any(isinstance(up, cst.Import | cst.ImportFrom) for up in tree.ancestors(one))
        if one.attr.value == name and not imported:
            yield Use(file, one, _place(tree, file, one))


def _texts(tree: SyntaxTree, file: str, name: str) -> Iterator[Use]:
    """Texts that say the name and nothing else, as `getattr(self, "make")` does."""
    for one in tree.nodes(cst.SimpleString):
        if one.evaluated_value == name:
            yield Use(file, one, _place(tree, file, one))


def _files_naming(draft: Draft, file: str, name: str) -> list[str]:
    """The other files of the user's that may name a function of `file`."""
    stem = os.path.splitext(os.path.basename(file))[0]
    module = os.path.basename(os.path.dirname(os.path.abspath(file))) if stem == "__init__" else stem
    words = [re.compile(rf"\b{re.escape(word)}\b") for word in (name, module)]
    found = []
    for path in _files_beside(file):
        text = _text_of(draft, path)
        if all(word.search(text) for word in words) and "import" in text:
            found.append(path)
    return found


def _files_beside(file: str) -> Iterator[str]:
    """The other Python files of the folder, of what is below it, and of the packages it belongs to."""
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


def _place(tree: SyntaxTree, file: str, node: cst.CSTNode) -> str:
    return f"{os.path.basename(file)}:{tree.line(tree.start(node))}"


def _text_of(draft: Draft, path: str) -> str:
    try:
        return draft.read(path)
    except (OSError, SyntaxError, UnicodeError):
        return ""
