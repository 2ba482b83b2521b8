"""Writes the function of a map in another variant: on batches, vectorized, parsing a batch of examples; or, where one
function makes several datasets, for one of them only: a parameter whose default keeps the old way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import libcst as cst

from pipetune.core.edits import Rewrite
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.call_arguments import add_argument, append_item, named_arguments, needed_tensorflow_text
from pipetune.source.chain import upstream_calls
from pipetune.source.dataset_flow import refuse_unsafe
from pipetune.source.draft import CallSite, Draft, FunctionKey, Splice, replacing, spliced
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
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import (
    UserFunction,
    class_of_method,
    functions_of,
    functions_referenced,
    has_other_definition,
    uses_of,
)
from pipetune.source.version_merging import function_at, merge_versions, path_of


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
            _refuse_indirect_call(before, call, file, function)
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


def _refuse_indirect_call(draft: Draft, call: CallSite, file: str, function: cst.FunctionDef) -> None:
    """Refuses a call that cannot pass an argument to the function: through `apply`, `partial` or another name.

    The call has led to the function in the run: one of a method of that name, whatever object it is of, called it.
    """
    made, name = draft.tree(call.file).calls.get(call.end), function.name.value
    if made is None:
        raise CannotExpress(f"{name} is called where no argument can be added.")
    in_class = class_of_method(draft.tree(file), function) is not None
    method = made.func if in_class and isinstance(made.func, cst.Attribute) else None
    given = {one.value for argument in made.args for one in nodes_within(argument, cst.Name)}
    by_name = method is not None and method.attr.value == name and name not in given  # not `ds.apply(self.apply)`
    if not by_name and [one.node for one in functions_of(draft, call.file, made.func)] != [function]:
        raise CannotExpress(f"{name} is not called directly by its name.")
    if method is not None and has_other_definition(draft, file, function, caller=call.file):
        raise CannotExpress(f"Several functions or methods are named {name}.")


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
