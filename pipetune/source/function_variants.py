"""Writes the function of a map in another variant: on batches, vectorized, parsing a batch of examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.call_arguments import add_argument, needed_tensorflow_text
from pipetune.source.chain import upstream_calls
from pipetune.source.dataset_flow import refuse_unsafe
from pipetune.source.draft import Draft, Splice, replacing, spliced
from pipetune.source.map_functions import (
    Callee,
    callee_of,
    free_parameter,
    given_function,
    parameters_of,
    plain_parameters,
    replace_by_definition,
    replace_function,
)
from pipetune.source.statements import free_name, variable_names, variable_nodes
from pipetune.source.switch_parameters import add_parameter
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import UserFunction, functions_of, functions_referenced, uses_of


def vectorize(draft: Draft, node: str, *, tuple_input: bool, function_name: str) -> Draft:
    """Returns the draft in which the function of the map `node` is called through `tf.vectorized_map`.

    Args:
        tuple_input: whether the elements are tuples, whose components the function gets as separate arguments.
        function_name: the name of the Python function, as captured.

    Raises:
        CannotExpress: another function cannot refer to the function, or the file has no name for TensorFlow.
    """
    vectorized = needed_tensorflow_text(*draft.original_calls[node], "vectorized_map", "tf.vectorized_map")
    draft, callee = callee_of(draft, node, function_name=function_name, unpacked=tuple_input)
    return replace_function(draft, node, vectorized_text(callee, vectorized, tuple_input=tuple_input))


def gets_components(pipeline: Pipeline, node: str) -> bool:
    """Whether the input elements of a map are tuples, whose components its function gets as separate arguments."""
    return pipeline[pipeline[node].inputs[0]].element_spec.is_tuple


def vectorized_text(function: Callee, vectorized: str = "tf.vectorized_map", *, tuple_input: bool) -> str:
    """Returns the expression that calls `function` on a batch."""
    batch = free_parameter([function], "batch", "batched", "examples")
    if not tuple_input:
        return f"lambda {batch}: {vectorized}({function.value}, {batch})"
    row = free_parameter([function], "row", "example", "components")
    return f"lambda *{batch}: {vectorized}(lambda {row}: {function.call(f'*{row}')}, {batch})"


def fuse(draft: Draft, node: str, first: tuple[str, ...], current: Pipeline) -> Draft:
    """Returns the draft in which the map `node` calls the functions of the maps `first` before its own.

    Args:
        first: ids of the upstream maps, most upstream first.

    Raises:
        CannotExpress: another function cannot refer to one of them, or it means something else where `node` is called.
    """
    maps = (*first, node)
    file = draft.sites[node].file
    for name in maps:
        tree, call = draft.find(node)
        _, other = draft.find(name)
        if draft.built_by_same_call(name) != (name,) or draft.sites[name].file != file:
            raise CannotExpress("The maps are in different files, or one call builds several of them.")
        if other not in upstream_calls(tree, call):
            refuse_unsafe(draft, tree, other, anchor=call)
    several = [gets_components(current, name) for name in maps]
    text = _combine_lambdas(draft, maps, several)
    if text is not None:
        return replace_function(draft, node, text)
    callees: list[Callee] = []
    for name in maps:
        function = current[name].function
        draft, callee = callee_of(draft, name, function_name=function.name if function is not None else "")
        callees.append(callee)
    element = free_parameter(callees, "element", "example", "row")
    given = [f"*{element}" if unpacked else element for unpacked in several]
    if len(maps) > _MOST_NESTED:
        *steps, last = (callee.call(argument) for callee, argument in zip(callees, given, strict=True))
        body = [*(f"{element} = {step}" for step in steps), f"return {last}"]
        defined = replace_by_definition(draft, node, given[0], body, names=("fused", "prepare", "apply_all"))
        if defined is not None:
            return defined
    text = callees[0].call(given[0])
    for callee, unpacked in zip(callees[1:], several[1:], strict=True):
        text = callee.call(f"*{text}" if unpacked else text)
    return replace_function(draft, node, f"lambda {given[0]}: {text}")


_MOST_NESTED = 3
"""Functions that are called one within another in a lambda; more are called line by line in a definition."""


def _combine_lambdas(draft: Draft, maps: Sequence[str], tuple_inputs: Sequence[bool]) -> str | None:
    """Returns one lambda for those of maps: each parameter is replaced by what the lambda of the previous map returns.

    None if a function is no lambda, or if the result would compute something twice or shadow a name.
    """
    lambdas = []
    for name in maps:
        tree, call = draft.find(name)
        function = given_function(tree, call)
        if not isinstance(function, cst.Lambda):
            return None
        lambdas.append((tree, function))
    tree, top = lambdas[0]
    heading = tree.code[tree.start(top) : tree.whole_span(top.body)[0]].decode()
    parameters = set(parameters_of(top))
    values, text = _components(tree, top.body), _parenthesized_text(tree, top.body)
    is_name = isinstance(top.body, cst.Name)
    for (tree, one), unpacked in zip(lambdas[1:], tuple_inputs[1:], strict=True):
        given = values if unpacked else [(text, is_name)]
        body = _substitute_parameters(tree, one, given, shadowed=parameters) if given is not None else None
        if body is None:
            return None
        values, text, is_name = None, f"({body})", False  # the result is text, and is not split into components again
    return f"{heading}{body}"


def _components(tree: SyntaxTree, body: cst.BaseExpression) -> list[tuple[str, bool]] | None:
    """Returns the items of a tuple as text, and whether each is a plain name; None if it is no tuple."""
    if not isinstance(body, cst.Tuple) or any(isinstance(one, cst.StarredElement) for one in body.elements):
        return None
    return [(_parenthesized_text(tree, one.value), isinstance(one.value, cst.Name)) for one in body.elements]


def _substitute_parameters(
    tree: SyntaxTree, function: cst.Lambda, arguments: Sequence[tuple[str, bool]], *, shadowed: set[str]
) -> str | None:
    """Returns the body of a lambda with its parameters replaced by `arguments`; None if that could change its meaning.

    Args:
        arguments: text for each parameter, and whether it is a plain name, which may occur more than once.
        shadowed: names that mean something else in the new place.
    """
    names = plain_parameters(function)
    if names is None or len(names) != len(arguments):
        return None
    reads = variable_nodes(function.body)
    kinds = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
    binds = any(nodes_within(function.body, *kinds))  # names of their own
    if binds or any(one.value in shadowed and one.value not in names for one in reads):
        return None
    changes: list[Splice] = []
    for name, (text, is_name) in zip(names, arguments, strict=True):
        places = [one for one in reads if one.value == name]
        if not is_name and len(places) != 1:
            return None
        changes += [replacing(tree, one, text) for one in places]
    start, end = tree.whole_span(function.body)
    return spliced(tree.code, changes, start=start, end=end).decode()


def _parenthesized_text(tree: SyntaxTree, value: cst.BaseExpression) -> str:
    """Returns an expression as text that can be part of another expression."""
    text = tree.whole_text(value)
    single = isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.BaseNumber) or value.lpar
    return text if single else f"({text})"


_SINGLE, _BATCH = "parse_single_example", "parse_example"
_MAX_FUNCTIONS = 40  # user functions that are searched


def use_parse_example(draft: Draft, node: str, *, tuple_elements: bool, function_name: str, unshared: bool) -> Draft:
    """Returns the draft in which the function of the map `node` parses batches.

    Args:
        tuple_elements: whether the elements are tuples.
        function_name: the name of the function, as captured.
        unshared: False if the call of the map also makes another dataset, which must stay as it is.

    Raises:
        CannotExpress: the parsing call is not found, or cannot be changed for this map alone.
    """
    tree, call = draft.find(node)
    file, given = draft.sites[node].file, given_function(tree, call)
    if given is None:
        raise CannotExpress("The map call does not name its function explicitly.")
    path = _path_to_parser(draft, file, given, function_name)
    root = path[0].node  # written in the call of the map, or around it, or elsewhere
    here = not unshared and root not in (call, *tree.ancestors(call)) and call not in tree.ancestors(root)
    first_shared = 0 if here else next((at for at, one in enumerate(path) if _has_other_uses(draft, one)), None)
    if first_shared is None:
        last = path[-1]
        other = draft.tree(last.file)
        return draft.splice(last.file, [replacing(other, one.attr, _BATCH) for one in _parser_references(last)])
    return _add_parser_parameter(draft, node, path, first_shared, tuple_elements=tuple_elements, called=function_name)


def _path_to_parser(draft: Draft, file: str, value: cst.BaseExpression, called: str) -> list[UserFunction]:
    """Returns the call path from the map's own function to the only one that names `parse_single_example`."""
    roots = functions_of(draft, file, value, function_name=called)
    if len(roots) != 1:
        raise CannotExpress("pipetune cannot determine which function is passed to the map.")
    waiting = [[roots[0]]]
    known, found = [roots[0]], list[list[UserFunction]]()
    while waiting and len(known) < _MAX_FUNCTIONS:
        path = waiting.pop(0)
        if _parser_references(path[-1]):
            found.append(path)
        more = functions_referenced(draft, path[-1], known)
        known += more
        waiting += [[*path, one] for one in more]
    if len(found) != 1:
        count = f"{len(found)} functions" if found else "No function"
        raise CannotExpress(
            f"{count} called by the map {'use' if found else 'uses'} {_SINGLE}; exactly one is required."
        )
    return found[0]


def _parser_references(function: UserFunction) -> list[cst.Attribute]:
    """Returns where the body of a function names `parse_single_example`, as in `tf.io.parse_single_example`."""
    return [one for one in nodes_within(function.body, cst.Attribute) if one.attr.value == _SINGLE]


def _has_other_uses(draft: Draft, function: UserFunction) -> bool:
    """Whether code outside the call path also names a function."""
    if isinstance(function.node, cst.Lambda):
        return function.aliased
    uses = uses_of(draft, function.file, function.node)
    return function.aliased or len(uses) != 1 or uses[0].node is not function.reference


def _add_parser_parameter(
    draft: Draft, node: str, path: Sequence[UserFunction], first: int, *, tuple_elements: bool, called: str
) -> Draft:
    """Returns the draft in which the functions of the path from index `first` on get the parser as a parameter."""
    last = path[-1]
    parsers = _parser_references(last)
    texts = {draft.tree(last.file).text(one) for one in parsers}
    if len(texts) != 1:
        raise CannotExpress(f"{_SINGLE} is called under several names.")
    (single,) = texts
    whole = single.removesuffix(_SINGLE) + _BATCH
    functions = path[first:]
    taken = {name for one in functions for name in variable_names(one.node)}
    refusal = "No unused name is left for the parameter that passes the parser."
    name = free_name(taken, "parse_example", "parse_function", "parser", refusal=refusal)
    changes = defaultdict[str, list[Splice]](list)
    for position, function in enumerate(functions):
        tree = draft.tree(function.file)
        if not isinstance(function.node, cst.FunctionDef):
            raise CannotExpress("The function that parses is a lambda that others use too.")
        changes[function.file] += add_parameter(tree, function.node, name, single)
        if position:
            changes[function.reference_file] += _argument_splices(draft, function, f"{name}={name}")
    tree = draft.tree(last.file)
    changes[last.file] += [replacing(tree, one, name) for one in parsers]
    if first:
        changes[functions[0].reference_file] += _argument_splices(draft, functions[0], f"{name}={whole}")
    for file, splices in changes.items():
        draft = draft.splice(file, splices)
    if first:
        return draft
    if draft.sites[node].file != last.file:
        raise CannotExpress("The parsing function has other callers and is defined in another file.")
    draft, callee = callee_of(draft, node, function_name=called)
    batch = free_parameter([callee], "batch", "batched", "examples")
    given = f"*{batch}" if tuple_elements else batch
    return replace_function(draft, node, f"lambda {given}: {callee.call(f'{given}, {name}={whole}')}")


def _argument_splices(draft: Draft, function: UserFunction, text: str) -> list[Splice]:
    """Returns the splices that pass an argument to a function where its caller on the path calls it."""
    tree, reference = draft.tree(function.reference_file), function.reference
    call = tree.parent(reference)
    if not isinstance(call, cst.Call) or call.func is not reference:
        raise CannotExpress("The parsing function is passed on as a value instead of being called directly.")
    return add_argument(tree, call, text)
