"""Calls of a dataset's method through its class, `tf.data.Dataset.map(ds, f)`: the first argument is the dataset."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst.metadata import Assignment, QualifiedNameSource

from pipetune.source.signatures import CONSTRUCTORS, METHODS
from pipetune.source.tree import SyntaxTree

_CLASSES = ("Dataset", "DatasetV2", "DatasetV1")
_MOST_NAMES = 8  # that one class is assigned to, one after the other


def is_unbound(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call names a method of a dataset through the class."""
    match call.func:
        case cst.Attribute(value=owner, attr=cst.Name(value=method)):
            return method in METHODS and method not in CONSTRUCTORS and _is_class(tree, owner, _MOST_NAMES)
    return False


def own_arguments(tree: SyntaxTree, call: cst.Call) -> Sequence[cst.Arg]:
    """The arguments of a method's call without the dataset that a call through the class is given first."""
    return call.args[1:] if is_unbound(tree, call) else call.args


def receiver_of(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression | None:
    """The dataset whose method is called; None where it is not written there, or the call is no method's."""
    if is_unbound(tree, call):
        first = call.args[0] if call.args else None
        return first.value if first is not None and first.keyword is None and not first.star else None
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def _is_class(tree: SyntaxTree, owner: cst.BaseExpression, names: int) -> bool:
    """Whether an expression is a class of datasets: by what it was imported as, or a name for that."""
    scope = tree.scope(owner)
    if scope is None:
        return False
    imported = [one.name for one in scope.get_qualified_names_for(owner) if one.source is QualifiedNameSource.IMPORT]
    if imported:
        last = imported[0].rpartition(".")[2]
        return last in _CLASSES or (last.endswith("Dataset") and last in CONSTRUCTORS)
    if isinstance(owner, cst.Attribute):
        return tree.text(owner).endswith("data.Dataset")  # of TensorFlow under a name that was not imported
    if not isinstance(owner, cst.Name):
        return False
    values = [tree.assigned(one) for one in scope[owner.value] if isinstance(one, Assignment)]
    given = [value for value in values if isinstance(value, cst.Name | cst.Attribute)]
    return names > 0 and any(_is_class(tree, value, names - 1) for value in given)
