"""Dataset methods called through the class: in `tf.data.Dataset.map(ds, f)`, the first argument is the dataset."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst.metadata import Assignment, QualifiedNameSource

from pipetune.source.signatures import CONSTRUCTORS, METHODS
from pipetune.source.tree import SyntaxTree

_CLASSES = ("Dataset", "DatasetV2", "DatasetV1")
_MOST_NAMES = 8  # names followed from one assignment to the next, until the class is found


def is_unbound(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call calls a dataset method through the class."""
    match call.func:
        case cst.Attribute(value=owner, attr=cst.Name(value=method)):
            return method in METHODS and method not in CONSTRUCTORS and _is_class(tree, owner, _MOST_NAMES)
    return False


def own_arguments(tree: SyntaxTree, call: cst.Call) -> Sequence[cst.Arg]:
    """Returns the arguments of a method call, without the dataset that comes first in a call through the class."""
    return call.args[1:] if is_unbound(tree, call) else call.args


def receiver_of(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression | None:
    """Returns the dataset whose method is called; None if the call does not show it or is not a method call."""
    if is_unbound(tree, call):
        first = call.args[0] if call.args else None
        return first.value if first is not None and first.keyword is None and not first.star else None
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def _is_class(tree: SyntaxTree, owner: cst.BaseExpression, names: int) -> bool:
    """Whether an expression is a dataset class: an imported one, or a name that was assigned one."""
    scope = tree.scope(owner)
    if scope is None:
        return False
    imported = [one.name for one in scope.get_qualified_names_for(owner) if one.source is QualifiedNameSource.IMPORT]
    if imported:
        last = imported[0].rpartition(".")[2]
        return last in _CLASSES or (last.endswith("Dataset") and last in CONSTRUCTORS)
    if isinstance(owner, cst.Attribute):
        return tree.text(owner).endswith("data.Dataset")  # of TensorFlow, under a name that is not an import
    if not isinstance(owner, cst.Name):
        return False
    values = [tree.assigned(one) for one in scope[owner.value] if isinstance(one, Assignment)]
    given = [value for value in values if isinstance(value, cst.Name | cst.Attribute)]
    return names > 0 and any(_is_class(tree, value, names - 1) for value in given)
