"""Imports from other files of the user: the file, and the definition of a function in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import ImportAssignment

from pipetune.source.draft import Draft
from pipetune.source.tree import SyntaxTree


def imported_function(draft: Draft, file: str, name: cst.Name) -> tuple[Draft, str, cst.FunctionDef] | None:
    """Returns the draft with the other file opened, that file, and the function; None unless a user's file has it."""
    statement = _import_of(draft.tree(file), name)
    if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
        return None
    original = next((one.evaluated_name for one in statement.names if _bound(one) == name.value), None)
    module = get_full_name_for_node(statement.module) if statement.module is not None else ""
    other = _file_of(module or "", beside=file, levels=len(statement.relative))
    if original is None or other is None:
        return None
    draft = draft.opened(other)
    for made in draft.tree(other).module.body:
        if isinstance(made, cst.FunctionDef) and made.name.value == original:
            return draft, other, made
    return None


def imported_module(draft: Draft, file: str, name: cst.Name) -> str | None:
    """Returns the user's file that a module name refers to: `import reading`, `from . import reading`."""
    statement = _import_of(draft.tree(file), name)
    if isinstance(statement, cst.Import):
        alias = next((one for one in statement.names if _bound(one) == name.value), None)
        return _file_of(alias.evaluated_name, beside=file, levels=0) if alias is not None else None
    if isinstance(statement, cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar):
        alias = next((one for one in statement.names if _bound(one) == name.value), None)
        package = get_full_name_for_node(statement.module) if statement.module is not None else ""
        module = ".".join(filter(None, (package, alias.evaluated_name))) if alias is not None else ""
        return _file_of(module, beside=file, levels=len(statement.relative)) if module else None
    return None


def _import_of(tree: SyntaxTree, name: cst.Name) -> cst.Import | cst.ImportFrom | None:
    scope = tree.scope(name)
    assignments = list(scope[name.value]) if scope is not None else []
    if len(assignments) != 1 or not isinstance(assignments[0], ImportAssignment):
        return None
    statement = assignments[0].node
    return statement if isinstance(statement, cst.Import | cst.ImportFrom) else None


def _bound(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name


def _file_of(module: str, *, beside: str, levels: int) -> str | None:
    """Returns the file of a module in the importing file's folder or, for an absolute import, in a folder above it."""
    parts = module.split(".") if module else []
    for folder in _folders(beside, levels=levels):
        for path in (os.path.join(folder, *parts) + ".py", os.path.join(folder, *parts, "__init__.py")):
            if os.path.isfile(path):
                return path
    return None


def _folders(file: str, *, levels: int) -> Iterator[str]:
    folder = os.path.dirname(os.path.abspath(file))
    for _ in range(levels - 1):
        folder = os.path.dirname(folder)
    yield folder
    while not levels and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        yield folder
