"""Changes a function that makes several datasets for one of them only: a parameter whose default keeps the old way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import libcst as cst

from pipetune.core.edits import Rewrite
from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import add_argument, append_item, named_arguments
from pipetune.source.draft import CallSite, Draft, FunctionKey, Splice
from pipetune.source.map_functions import parameters_of
from pipetune.source.statements import variable_nodes
from pipetune.source.syntax_tree import SyntaxTree
from pipetune.source.user_functions import class_of_method, functions_of, has_other_definition
from pipetune.source.version_merging import function_at, merge_versions, path_of


def add_parameter(tree: SyntaxTree, function: cst.FunctionDef, name: str, default: str) -> list[Splice]:
    """Returns the splices that add a parameter with a default, after all others except `**kwargs`.

    Args:
        name: of the new parameter.
        default: source text of its default.

    Raises:
        CannotExpress: the function has a parameter of that name, or its parameters are positional-only.
    """
    if name in parameters_of(function):
        raise CannotExpress(f"{function.name.value} already has a parameter named {name}.")
    given = function.params
    if given.posonly_params and not given.params:
        raise CannotExpress(f"{function.name.value} takes only positional arguments.")
    starred = [given.star_arg] if isinstance(given.star_arg, cst.Param) else []
    plain = [*given.posonly_params, *given.params, *starred, *given.kwonly_params]
    text = f"{name}={default}"
    if isinstance(given.star_kwarg, cst.Param):
        start = tree.start(given.star_kwarg)
        if tree.code[start - 1 : start] == b"*":
            start = tree.code.rindex(b"**", 0, start)
        return [Splice(start, start, f"{text}, ".encode())]
    opened = tree.code.index(b"(", tree.end(function.name)) + 1
    ended: cst.CSTNode = function.whitespace_before_colon
    if function.returns is not None and isinstance(function.returns.whitespace_before_indicator, cst.CSTNode):
        ended = function.returns.whitespace_before_indicator
    close = tree.start(ended) - 1
    if not plain:
        return [Splice(opened, opened, text.encode())]
    last = plain[-1]
    gap = tree.code[tree.end(plain[-2]) if len(plain) > 1 else opened : tree.start(last)]
    value = last.default or (last.annotation.annotation if last.annotation is not None else None)
    end = tree.whole_span(value)[1] if value is not None else tree.end(last.name)  # without its comma
    return append_item(tree.code, gap, end, close, comma=isinstance(last.comma, cst.Comma), text=text)


CallPath = tuple[CallSite, ...]
"""The calls from an operator's own outward to the first that makes only its dataset, which sets the parameter to True;
as places in one draft."""


def switch_name(rewrite: Rewrite) -> str:
    """Returns the name of the parameter that turns a rewrite on."""
    return rewrite.rule.replace("-", "_")


def add_switch_parameter(before: Draft, after: Draft, call_paths: Sequence[CallPath], *, name: str) -> Draft:
    """Returns the draft in which functions that make several datasets behave as in `after` for one of them only.

    Args:
        before: the draft before the edit.
        after: the draft with the edit for all of these datasets.
        call_paths: of the operators whose calls are in such functions; positions in `before`.

    Raises:
        CannotExpress: a function on the way cannot get the parameter, or the two versions cannot be merged.
    """
    names = _functions_on_path(before, call_paths)
    for (file, path), calls in names.items():
        function = function_at(before.tree(file), path)
        _refuse_decorated(function)
        if any(one.value == name for one in variable_nodes(function)) or name in parameters_of(function):
            raise CannotExpress(f"{function.name.value} already uses the name {name}.")
        for call in calls:
            _refuse_indirect_call(before, call, function)
    for file, path in names:
        after = merge_versions(before, after, (file, path), condition=name)
    for file, path in names:
        tree = after.tree(file)
        after = after.splice(file, add_parameter(tree, function_at(tree, path), name, "False"))
    return _pass_true(after, before, call_paths, name=name)


def turn_on(draft: Draft, call_paths: Sequence[CallPath], *, name: str) -> Draft:
    """Returns the draft in which another dataset passes a parameter that `add_switch_parameter` has added before.

    Args:
        call_paths: of the operators of that dataset.

    Raises:
        CannotExpress: a function on the way has no such parameter, or a call cannot pass it.
    """
    functions = [function_at(draft.tree(file), path) for file, path in _functions_on_path(draft, call_paths)]
    if not functions or any(name not in parameters_of(function) for function in functions):
        raise CannotExpress(f"No parameter {name} is on the way to the dataset.")
    return _pass_true(draft, draft, call_paths, name=name)


def _pass_true(draft: Draft, before: Draft, call_paths: Sequence[CallPath], *, name: str) -> Draft:
    """Returns the draft in which the outermost call of each path passes True, and those inside it pass that on."""
    for call_path in dict.fromkeys(call_paths):
        _, *inner, outermost = call_path
        for call in inner:
            draft = _add_argument_once(draft, before, call, name, value=name)
        draft = _add_argument_once(draft, before, outermost, name, value="True")
    return draft


def _refuse_decorated(function: cst.FunctionDef) -> None:
    """Refuses to add a parameter to a function if decorators or implicit calls may not pass it on."""
    name = function.name.value
    for one in function.decorators:
        if not isinstance(one.decorator, cst.Name) or one.decorator.value not in ("staticmethod", "classmethod"):
            raise CannotExpress(f"{name} has a decorator, so no parameter can be added.")
    if name.startswith("__") and name.endswith("__") and name != "__init__":
        raise CannotExpress(f"{name} is called implicitly, so no parameter can be added.")


def _functions_on_path(draft: Draft, call_paths: Sequence[CallPath]) -> dict[FunctionKey, list[CallSite]]:
    """Returns the functions that get the parameter, each with its calls on the way."""
    found: dict[FunctionKey, list[CallSite]] = {}
    for call_path in call_paths:
        for inner, call in pairwise(call_path):
            tree = draft.tree(inner.file)
            function = tree.around(tree.calls.get(inner.end), cst.FunctionDef)
            if function is None:
                raise CannotExpress("A call on the way to the dataset is not inside a function.")
            calls = found.setdefault((inner.file, path_of(tree, function)), [])
            if call not in calls:
                calls.append(call)
    return found


def _refuse_indirect_call(draft: Draft, call: CallSite, function: cst.FunctionDef) -> None:
    """Refuses a call that cannot pass an argument to the function: through `apply`, `partial` or another name."""
    tree = draft.tree(call.file)
    made = tree.calls.get(call.end)
    if made is None:
        raise CannotExpress(f"{function.name.value} is called where no argument can be added.")
    defined = functions_of(draft, call.file, made.func)
    if [one.node for one in defined] != [function]:
        raise CannotExpress(f"{function.name.value} is not called directly by its name.")
    of_object = isinstance(made.func, cst.Attribute) and class_of_method(draft.tree(defined[0].file), function)
    if of_object and has_other_definition(draft, call.file, function):
        raise CannotExpress(f"Several functions or methods are named {function.name.value}.")


def _add_argument_once(draft: Draft, before: Draft, call: CallSite, name: str, *, value: str) -> Draft:
    """Returns the draft with the argument `name` in a call of `before`, unless it is already given."""
    stacks = ((stack, draft.call_stacks[node]) for node, stack in before.call_stacks.items() if call in stack)
    place = next((now[stack.index(call)] for stack, now in stacks), None)
    if place is None or place.end < 0:
        raise CannotExpress("A call that would have to pass the parameter is changed by the same rewrite.")
    tree = draft.tree(place.file)
    made = tree.calls[place.end]
    if name in named_arguments(made):
        return draft
    return draft.splice(place.file, add_argument(tree, made, f"{name}={value}"))
