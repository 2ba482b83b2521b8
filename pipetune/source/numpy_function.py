"""Rewrites `tf.py_function` as `tf.numpy_function`, and the Python function that it calls as one of arrays."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node
from pipetune.source.call_arguments import arguments_by_name, module_text, tensorflow_name
from pipetune.source.draft import Draft, Splice, replacing
from pipetune.source.map_functions import add_functions, functions_behind_map, outermost, refuse_used_elsewhere
from pipetune.source.statements import Statement, removal_splice, statement_of, unconditional_function
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import definition_of

_NAME = "numpy_call"

_TEXT = '''\
@tf.autograph.experimental.do_not_convert
def numpy_call(func, inp, Tout, name=None):
    """Same as tf.py_function, but func gets NumPy arrays and bytes, not eager tensors."""
    kinds = [tf.as_dtype(kind).as_numpy_dtype for kind in tf.nest.flatten(Tout)]

    def call(*given):
        results = func(*(value.copy() if isinstance(value, np.ndarray) else value for value in given))
        several = results if isinstance(results, (list, tuple)) else [results]
        pairs = zip(several, kinds)
        return [np.asarray(value if kind is object else np.asarray(value), kind) for value, kind in pairs]

    return tf.numpy_function(call, inp, Tout, name=name)
'''


def write(draft: Draft, node: Node) -> Draft:
    """Returns the draft in which the Python code that the function of the map `node` calls gets arrays.

    Raises:
        CannotExpress: a call of `tf.py_function` or the function that it names is not visible, the code that would
            change is used elsewhere, too, or the file has no name for TensorFlow.
    """
    file, root, functions = functions_behind_map(draft, node.id)
    tree = draft.tree(file)
    within = [root, *functions]
    calls = [
        call
        for call in tree.nodes(cst.Call)
        if tree.means_import(call.func, "tensorflow.py_function", at=call)
        and any(one is place for one in tree.ancestors(call) for place in within)
    ]
    if not calls:
        raise CannotExpress("The call of tf.py_function is not visible in the functions that the map refers to.")
    bodies = {id(statement.block) if (statement := _certain_statement(tree, one)) else None for one in calls}
    if len(calls) > 1 and (len(bodies) > 1 or None in bodies):
        raise CannotExpress("There are several calls of tf.py_function, and it is unknown which of them ran.")
    splices: list[Splice] = []
    for call in calls:
        python = _called(tree, call)
        for function in (tree.around(call, cst.FunctionDef), python):
            if isinstance(function, cst.FunctionDef) and any(function is one for one in functions):
                refuse_used_elsewhere(draft, file, function, root)
        splices += [replacing(tree, call.func, _NAME), *_without_numpy(tree, python)]
    return add_functions(draft, file, {_NAME: _helper(tree, calls[0])}, splices, before=calls[0])


def _certain_statement(tree: SyntaxTree, call: cst.Call) -> Statement | None:
    """Returns the statement around a call, if it is one of those that a function always runs; else None."""
    function, statement = unconditional_function(tree, call), statement_of(tree, call)
    certain = function is not None and statement is not None and statement.block is function.body.body
    return statement if certain else None


def _called(tree: SyntaxTree, call: cst.Call) -> cst.FunctionDef | cst.Lambda:
    """Returns the Python function that a call of `tf.py_function` names."""
    given = arguments_by_name(call.args, ("func", "inp", "Tout", "name"))
    value = given["func"].value if given is not None and "func" in given else None
    function = definition_of(tree, value) if isinstance(value, cst.Name) else value
    if not isinstance(function, cst.FunctionDef | cst.Lambda):
        raise CannotExpress("The function that tf.py_function calls is not visible in the call.")
    return function


def _without_numpy(tree: SyntaxTree, function: cst.FunctionDef | cst.Lambda) -> Iterator[Splice]:
    """Yields the changes that remove `.numpy()` behind the parameters of a function."""
    names = {one.name.value for one in (*function.params.posonly_params, *function.params.params)}
    bound: dict[str, int] = {}  # where a parameter is bound to something else
    for call in sorted(nodes_within(function.body, cst.Call), key=tree.start):
        match call:
            case cst.Call(func=cst.Attribute(value=cst.Name(value=name) as given, attr=cst.Name("numpy")), args=[]):
                if name not in names or tree.start(call) > bound.get(name, tree.end(call)):
                    continue
                statement = statement_of(tree, call)
                if statement is not None and statement.name == name and isinstance(function, cst.FunctionDef):
                    bound[name] = tree.end(statement.small)
                    if statement.value is call:
                        yield removal_splice(tree, statement)
                        continue
                yield Splice(tree.end(given), tree.end(call), b"")


def _helper(tree: SyntaxTree, call: cst.Call) -> str:
    """Returns the text of the helper with the names that the file has for TensorFlow and NumPy."""
    place = outermost(tree, call)
    tensorflow = tensorflow_name(tree, place, "calling Python code")
    numpy = module_text(tree, place, "numpy")
    text = _TEXT.replace("tf.", f"{tensorflow}.").replace(f"as {tensorflow}.py_function", "as tf.py_function")
    if numpy is not None:
        return text.replace("np.", f"{numpy}.")
    first, second = 'tensors."""\n', "    import numpy as np\n\n"
    return text.replace(first, first + second)
