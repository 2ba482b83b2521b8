"""Writes the function of a map in another variant; `tf/pipelines/forms.py` does the same at run time."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst import matchers

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.callables import Callee, callee_of, function_given, parameters_of, replace_function
from pipetune.source.chain import links_above
from pipetune.source.draft import Draft
from pipetune.source.flow import refuse_unsafe
from pipetune.source.literals import tensorflow_text
from pipetune.source.statements import name_nodes
from pipetune.source.tree import SyntaxTree


def vectorize(draft: Draft, node: str, *, several: bool, called: str = "") -> Draft:
    """Returns the draft in which the function of the map `node` is called through `tf.vectorized_map`.

    Args:
        several: whether the elements are tuples, whose components a map passes to its function as separate arguments.
        called: the name of the Python function, as captured.

    Raises:
        CannotExpress: another function cannot refer to the function, or the file has no name for TensorFlow.
    """
    vectorized = tensorflow_text(*draft.place_of_names(node), "vectorized_map")
    if vectorized is None:
        raise CannotExpress("The file has no name for TensorFlow, which tf.vectorized_map is reached through.")
    draft, callee = callee_of(draft, node, called=called, unpacked=several)
    return replace_function(draft, node, vectorized_text(callee, vectorized, several=several))


def gets_several(pipeline: Pipeline, node: str) -> bool:
    """Whether the input elements of a map are tuples, whose components its function gets as separate arguments."""
    return pipeline[pipeline[node].inputs[0]].spec.startswith("(")


def vectorized_text(function: Callee, vectorized: str = "tf.vectorized_map", *, several: bool) -> str:
    """Returns the expression that calls `function` on a batch."""
    batch = function.free_name("batch", "batched", "examples")
    if not several:
        return f"lambda {batch}: {vectorized}({function.value}, {batch})"
    row = function.free_name("row", "example", "components")
    return f"lambda *{batch}: {vectorized}(lambda {row}: {function.call(f'*{row}')}, {batch})"


def fuse(draft: Draft, node: str, first: tuple[str, ...], current: Pipeline) -> Draft:
    """Returns the draft in which the map `node` calls the functions of the maps `first` before its own.

    Args:
        first: ids of the upstream maps, most upstream first.

    Raises:
        CannotExpress: another function cannot refer to one of the functions, or it means something else where the map
            `node` is called.
    """
    maps = (*first, node)
    file = draft.sites[node].file
    for name in maps:
        tree, call = draft.find(node)
        _, other = draft.find(name)
        if draft.together(name) != (name,) or draft.sites[name].file != file:
            raise CannotExpress("The maps stand in different files, or one call makes several of them.")
        if other not in links_above(tree, call):
            refuse_unsafe(draft, tree, other, anchor=call)
    several = [gets_several(current, name) for name in maps]
    text = _one_lambda(draft, maps, several)
    if text is not None:
        return replace_function(draft, node, text)
    callees: list[Callee] = []
    for name in maps:
        function = current[name].function
        draft, callee = callee_of(draft, name, called=function.name if function is not None else "")
        callees.append(callee)
    element = Callee("", str, frozenset().union(*(one.names for one in callees))).free_name("element", "example", "row")
    given = f"*{element}" if several[0] else element
    text = callees[0].call(given)
    for callee, unpacked in zip(callees[1:], several[1:], strict=True):
        text = callee.call(f"*{text}" if unpacked else text)
    return replace_function(draft, node, f"lambda {given}: {text}")


def _one_lambda(draft: Draft, maps: Sequence[str], several: Sequence[bool]) -> str | None:
    """Combines the lambdas of maps into one: each parameter is replaced by what the lambda of the previous map returns.

    Returns:
        None if a function is no lambda, or if the result would compute something twice or shadow a name.
    """
    lambdas = []
    for name in maps:
        tree, call = draft.find(name)
        argument = function_given(tree, call)
        if argument is None or not isinstance(argument.value, cst.Lambda):
            return None
        lambdas.append((tree, argument.value))
    tree, top = lambdas[0]
    heading = tree.code[tree.start(top) : _start(tree, top.body)].decode()
    parameters = set(parameters_of(top))
    values, text = _components(tree, top.body), _with_parentheses(tree, top.body)
    is_name = isinstance(top.body, cst.Name)
    for (tree, one), unpacked in zip(lambdas[1:], several[1:], strict=True):
        given = values if unpacked else [(text, is_name)]
        body = _substituted(tree, one, given, hidden=parameters) if given is not None else None
        if body is None:
            return None
        values, text, is_name = None, f"({body})", False  # the result is text, and is not split into components again
        whole = body
    return f"{heading}{whole}"


def _components(tree: SyntaxTree, body: cst.BaseExpression) -> list[tuple[str, bool]] | None:
    """Returns the items of a tuple as text, and whether each is a plain name; None if it is no tuple."""
    if not isinstance(body, cst.Tuple) or any(isinstance(one, cst.StarredElement) for one in body.elements):
        return None
    return [(_with_parentheses(tree, one.value), isinstance(one.value, cst.Name)) for one in body.elements]


def _substituted(
    tree: SyntaxTree, function: cst.Lambda, given: Sequence[tuple[str, bool]], *, hidden: set[str]
) -> str | None:
    """Returns the body of a lambda with its parameters replaced by `given`; None if that could change its meaning.

    Args:
        given: text for each parameter, and whether it is a plain name, which may occur more than once.
        hidden: names that mean something else in the new place.
    """
    plain = function.params.params
    names = [one.name.value for one in plain]
    if parameters_of(function) != names or len(names) != len(given) or any(one.default is not None for one in plain):
        return None
    inside: list[cst.CSTNode] = list(matchers.findall(function.body, matchers.Lambda() | _COMPREHENSION))
    reads = name_nodes(function.body)
    if inside or any(one.value in hidden and one.value not in names for one in reads):
        return None
    code, base = tree.code[_start(tree, function.body) : _end(tree, function.body)], _start(tree, function.body)
    changes = []
    for name, (text, is_name) in zip(names, given, strict=True):
        places = [one for one in reads if one.value == name]
        if not is_name and len(places) != 1:
            return None
        changes += [(tree.start(one) - base, tree.end(one) - base, text) for one in places]
    for start, end, text in sorted(changes, reverse=True):
        code = code[:start] + text.encode() + code[end:]
    return code.decode()


_COMPREHENSION = (
    matchers.ListComp() | matchers.SetComp() | matchers.DictComp() | matchers.GeneratorExp()
)


def _start(tree: SyntaxTree, value: cst.BaseExpression) -> int:
    return tree.start(value.lpar[0] if value.lpar else value)


def _end(tree: SyntaxTree, value: cst.BaseExpression) -> int:
    return tree.end(value.rpar[-1] if value.rpar else value)


def _with_parentheses(tree: SyntaxTree, value: cst.BaseExpression) -> str:
    """Returns an expression as text that can be part of another expression."""
    text = tree.code[_start(tree, value) : _end(tree, value)].decode()
    single = isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.BaseNumber) or value.lpar
    return text if single else f"({text})"
