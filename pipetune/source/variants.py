"""Changes a function that makes several datasets for one of them only, by a parameter that is False by default.

The current function and the edited one are merged statement by statement: what differs is put under a condition on
the parameter, and the calls that lead to the one dataset pass it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.arguments import add_argument
from pipetune.source.branches import function_at, merged, path_of
from pipetune.source.callables import parameters_of
from pipetune.source.draft import Draft, Function, Site
from pipetune.source.functions import functions_of
from pipetune.source.parameters import add_parameter
from pipetune.source.statements import function_around, name_nodes
from pipetune.source.uses import defined_elsewhere

_DECORATORS = frozenset({"staticmethod", "classmethod"})


@dataclass(frozen=True)
class Passage:
    """The calls from an operator's own outward to the first that makes only its dataset, as positions in one draft."""

    own: Site
    around: tuple[Site, ...]  # innermost first; the last one sets the parameter to True


def with_parameter(before: Draft, after: Draft, passages: Sequence[Passage], *, name: str) -> Draft:
    """Returns the draft in which functions that make several datasets behave as in `after` for one of them only.

    Args:
        before: the draft before the edit.
        after: the draft with the edit for all of these datasets.
        passages: of the operators whose calls are in such functions; positions in `before`.
        name: of the new parameter.

    Raises:
        CannotExpress: a function on the way cannot get the parameter, or the two versions cannot be merged.
    """
    names = _functions_passed(before, passages)
    for (file, path), calls in names.items():
        function = function_at(before.tree(file), path)
        refuse_decorated(function)
        if any(one.value == name for one in name_nodes(function)) or name in parameters_of(function):
            raise CannotExpress(f"{function.name.value} has a {name} of its own.")
        for call in calls:
            _refuse_other_call(before, call, function)
    for file, path in names:
        after = merged(before, after, (file, path), condition=name)
    draft = after
    for (file, path), _ in names.items():
        tree = draft.tree(file)
        draft = draft.splice(file, add_parameter(tree, function_at(tree, path), name, "False"))
    for passage in dict.fromkeys(passages):
        draft = _passed_along(draft, before, passage, name)
    return draft


def refuse_decorated(function: cst.FunctionDef) -> None:
    """Refuses to add a parameter to a function if decorators or implicit calls may not pass it on.

    Raises:
        CannotExpress: the function has an unknown decorator, or is a special method other than `__init__`.
    """
    for one in function.decorators:
        if not isinstance(one.decorator, cst.Name) or one.decorator.value not in _DECORATORS:
            raise CannotExpress(f"{function.name.value} has a decorator, and can be given no parameter.")
    if function.name.value.startswith("__") and function.name.value != "__init__":
        raise CannotExpress(f"{function.name.value} is called without its name, and can be given no parameter.")


def _functions_passed(draft: Draft, passages: Sequence[Passage]) -> dict[Function, list[Site]]:
    """Returns the functions that get the parameter, each with its calls on the way."""
    found: dict[Function, list[Site]] = {}
    for passage in passages:
        inner = passage.own
        for call in passage.around:
            tree = draft.tree(inner.file)
            place = tree.calls.get(inner.end)
            function = function_around(tree, place) if place is not None else None
            if not isinstance(function, cst.FunctionDef):
                raise CannotExpress("A call on the way stands in no function.")
            calls = found.setdefault((inner.file, path_of(tree, function)), [])
            if call not in calls:
                calls.append(call)
            inner = call
    return found


def _refuse_other_call(draft: Draft, call: Site, function: cst.FunctionDef) -> None:
    """Refuses a call that cannot pass an argument to the function: through `apply`, `partial` or another name."""
    tree = draft.tree(call.file)
    made = tree.calls.get(call.end)
    if made is None:
        raise CannotExpress(f"{function.name.value} is called where it can be given no argument.")
    _, found = functions_of(draft, call.file, made.func)
    if [one.node for one in found] != [function]:
        raise CannotExpress(f"{function.name.value} is called in another way than by its name.")
    if isinstance(made.func, cst.Attribute) and defined_elsewhere(draft, call.file, function):
        raise CannotExpress(f"There are several methods called {function.name.value}.")


def _passed_along(draft: Draft, before: Draft, passage: Passage, name: str) -> Draft:
    """Returns the draft in which the calls of a passage pass the parameter on; the outermost sets it to True."""
    for position, call in enumerate(passage.around):
        last = position == len(passage.around) - 1
        draft = _given(draft, before, call, f"{name}={'True' if last else name}")
    return draft


def _given(draft: Draft, before: Draft, call: Site, text: str) -> Draft:
    """Returns the draft with one more argument in a call of `before`, unless it is already given."""
    place = next(
        (draft.ways[node][at] for node, way in before.ways.items() for at, one in enumerate(way) if one == call), None
    )
    if place is None or place.end < 0:
        raise CannotExpress("A call that would be given the parameter is changed by the same edit.")
    tree = draft.tree(place.file)
    made = tree.calls[place.end]
    known = text.partition("=")[0]
    if any(one.keyword is not None and one.keyword.value == known for one in made.args):
        return draft
    return draft.splice(place.file, add_argument(tree, made, text))
