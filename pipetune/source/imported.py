"""A function that the user imports from another file of theirs: which file, and its definition there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import ImportAssignment

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft
from pipetune.source.statements import name_nodes
from pipetune.source.tree import SyntaxTree


def imported_function(draft: Draft, file: str, name: cst.Name) -> tuple[Draft, str, cst.FunctionDef] | None:
    """The draft with the other file opened, that file, and the function; None where it is not imported from a file.

    Raises:
        CannotExpress: the name is read more than once in `file`.
    """
    tree = draft.tree(file)
    scope = tree.scope(name)
    assignments = list(scope[name.value]) if scope is not None else []
    if len(assignments) != 1 or not isinstance(assignments[0], ImportAssignment):
        return None
    statement = assignments[0].node
    if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
        return None
    original = next((one.evaluated_name for one in statement.names if _bound(one) == name.value), None)
    other = _file_of(statement, beside=file)
    if original is None or other is None:
        return None
    reads = [one for one in name_nodes(tree.module) if one.value == name.value and not _in_import(tree, one)]
    if len(reads) != 1:
        raise CannotExpress(f"{name.value} is used in {len(reads)} places, and would change for all of them.")
    draft = draft.opened(other)
    for made in draft.tree(other).module.body:
        if isinstance(made, cst.FunctionDef) and made.name.value == original:
            return draft, other, made
    return None


def _bound(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name


def _in_import(tree: SyntaxTree, name: cst.Name) -> bool:
    return any(isinstance(parent, cst.Import | cst.ImportFrom) for parent in tree.ancestors(name))


def _file_of(statement: cst.ImportFrom, *, beside: str) -> str | None:
    """The file a statement imports from, looked for beside the importing file and, where it may be, above it."""
    module = get_full_name_for_node(statement.module) if statement.module is not None else ""
    parts = module.split(".") if module else []
    for folder in _folders(beside, levels=len(statement.relative)):
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
