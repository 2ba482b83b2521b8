"""Moves of a call between functions that build the dataset: the calls that stand for both ends in a common function.

In `ds = load(x)`, `ds = ds.batch(4)` the call of `load` stands for the map that `load` ends with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.draft import Draft, Site
from pipetune.source.functions import class_of_method
from pipetune.source.statements import function_around, name_nodes
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import own_arguments


@dataclass(frozen=True)
class Crossing:
    """Two calls in the body of one function; each of them built an operator itself, or called a function that did."""

    moved: Site
    anchor: Site
    behind: Site  # the call to append to: `anchor`, or the operator's own call in the function that it calls


def crossing_of(draft: Draft, node: str, after: str, current: Pipeline) -> Crossing | None:
    """Returns the calls that stand for two operators in the innermost function on both call stacks.

    Args:
        node: id of the operator that moves.
        after: id of the operator that it moves behind.

    Returns:
        None if the calls of both operators are in the same function, reached by the same calls.

    Raises:
        CannotExpress: there is no such function, or a call in it does not return the operator's dataset.
    """
    one, other = _frames(draft, node), _frames(draft, after)
    if one[1:] == other[1:]:
        return None
    common = 0
    while common < min(len(one), len(other)) and one[-1 - common] == other[-1 - common]:
        common += 1
    if common == len(one) or common == len(other):
        raise CannotExpress("One of the calls stands within the other.")
    left, right = len(one) - 1 - common, len(other) - 1 - common
    crossing = Crossing(one[left], other[right], other[right])
    if crossing.moved.file != crossing.anchor.file or -1 in (crossing.moved.end, crossing.anchor.end):
        raise CannotExpress("The call and the place it moves to stand in different files.")
    if left:
        refuse_other_value(draft, node, left, current)
    try:
        if right:
            refuse_other_value(draft, after, right, current)
    except CannotExpress:
        crossing = replace(crossing, behind=draft.sites[after])  # its function processes the dataset further
    tree = draft.tree(crossing.moved.file)
    if any(site.end not in tree.calls for site in (crossing.moved, crossing.anchor)):
        raise CannotExpress("The functions that make the dataset are not called where both of them are.")
    ends = [tree.calls[site.end] for site in (crossing.moved, crossing.anchor)]
    if function_around(tree, ends[0]) is not function_around(tree, ends[1]):
        raise CannotExpress("The call and the place it moves to stand in different functions.")
    return crossing


def _frames(draft: Draft, node: str) -> tuple[Site, ...]:
    """Returns the call that built an operator and the calls around it, innermost first."""
    if node not in draft.sites:
        raise CannotExpress(draft.problems.get(node, f"Operator {node} has no call in the source."))
    return (draft.sites[node], *draft.around(node))


def refuse_other_value(draft: Draft, node: str, level: int, current: Pipeline) -> None:
    """Refuses if the call `level` frames around an operator does not return the dataset that the operator outputs.

    Raises:
        CannotExpress: the functions in between process the dataset further, or return more than it.
    """
    around = draft.around(node)[level - 1 :]
    for below in current.consumers(node):
        if draft.around(below.id)[-len(around) :] == around:
            raise CannotExpress("The function that makes the dataset goes on with it.")
    for frame in range(level):
        site = draft.sites[node] if frame == 0 else draft.around(node)[frame - 1]
        tree = draft.tree(site.file)
        inside = tree.calls.get(site.end)
        function = function_around(tree, inside) if inside is not None else None
        if not isinstance(function, cst.FunctionDef) or not gives_one_value(function):
            raise CannotExpress("A function between gives more than the dataset.")


def gives_one_value(function: cst.FunctionDef) -> bool:
    """Whether a function returns a plain value: no collection, and it is no generator, coroutine or constructor."""
    if function.name.value in ("__init__", "__new__") or function.asynchronous is not None:
        return False
    finder = _Returns()
    function.body.visit(finder)
    several = cst.Tuple | cst.List | cst.Dict | cst.Set | cst.BaseComp
    return bool(finder.found) and not finder.yields and not any(
        one is None or isinstance(one, several) for one in finder.found
    )


class _Returns(cst.CSTVisitor):
    """Collects what a function returns, without the functions nested in it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[cst.BaseExpression | None] = []
        self.yields = False

    def visit_Return(self, node: cst.Return) -> None:
        self.found.append(node.value)

    def visit_Yield(self, node: cst.Yield) -> None:
        self.yields = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False


def refuse_other_names(tree: SyntaxTree, call: cst.Call, place: cst.Call) -> None:
    """Refuses to write the arguments of a call at a place where a name in them means something else.

    Raises:
        CannotExpress: a name does, or may.
    """
    here, there = tree.scope(call), tree.scope(place)
    if here is None or there is None:
        raise CannotExpress("It is not known what the names in the call's arguments mean elsewhere.")
    for argument in own_arguments(tree, call):
        inside = set(_parameters_within(argument.value))
        for name in name_nodes(argument.value):
            if name.value in inside:
                continue
            meant, means = list(here[name.value]), list(there[name.value])
            if meant and meant == means:
                continue
            if name.value == "self" and _same_object(tree, call, place):
                continue
            raise CannotExpress(f"{name.value} means something else where the call would move to.")


def _parameters_within(value: cst.BaseExpression) -> list[str]:
    """Returns the parameters of every lambda in an expression."""
    found: list[str] = []

    class Collect(cst.CSTVisitor):
        def visit_Param(self, node: cst.Param) -> None:
            found.append(node.name.value)

    value.visit(Collect())
    return found


def _same_object(tree: SyntaxTree, call: cst.Call, place: cst.Call) -> bool:
    """Whether both calls are in methods of one class, of which one calls the other on the same object."""
    functions = [function_around(tree, one) for one in (call, place)]
    classes = [class_of_method(tree, one) for one in functions if isinstance(one, cst.FunctionDef)]
    return len(classes) == 2 and classes[0] is not None and classes[0] is classes[1]
