"""Python code that a function calls with eager tensors (`tf.py_function`), called with NumPy arrays instead.

Each value passed to `tf.py_function` becomes an eager tensor, and each result is converted by eager ops;
`tf.numpy_function` passes arrays. Code that only calls `.numpy()` on its arguments gets the same values from both.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.files import is_library
from pipetune.core.functions import FunctionFacts
from pipetune.pipelines.call_sites import syntax_tree
from pipetune.pipelines.graphs import CannotEdit, edited_function, replacement_node

_EAGER_CALL = "EagerPyFunc"


def applies(function: FunctionFacts) -> bool:
    """Whether a function calls `tf.py_function`."""
    return _EAGER_CALL in function.operations


def edit_graph(traced: Any) -> Any:
    """Returns a dataset's traced function whose Python code gets arrays, everything else being as it was.

    Raises:
        CannotEdit: the Python code does more with an argument than to call `.numpy()` on it, or cannot be read.
    """
    calls = [node for node in traced.function.graph.as_graph_def().node if node.op == _EAGER_CALL]
    if not calls:
        raise CannotEdit("it calls Python inside a branch, a loop or a traced function")
    replaced = {}
    for node in calls:
        kinds = [tf.as_dtype(kind).as_numpy_dtype for kind in node.attr["Tout"].list.type]
        made = replacement_node(node, "PyFunc", [name for name in node.input if not name.startswith("^")])
        for name in ("Tin", "Tout"):
            made.attr[name].CopyFrom(node.attr[name])
        made.attr["token"].s = _registered(node.attr["token"].s.decode(), kinds).encode()
        replaced[node.name] = [made]
    return edited_function(traced, replaced)


_CALLS: dict[str, tuple[str, Callable[..., Any]]] = {}
"""By the token of a call with eager tensors: that of the call with arrays, which TensorFlow refers to weakly."""


def _registered(token: str, kinds: Sequence[Any]) -> str:
    """Returns the token of the call with arrays that takes the place of one with eager tensors."""
    if token not in _CALLS:
        function = tensorflow_private.eager_function(token)
        require_arrays(function)
        call = _on_arrays(function, kinds)
        _CALLS[token] = tensorflow_private.register_python_function(call), call
    return _CALLS[token][0]


class _Argument:
    """An array with the one method of an eager tensor that is called."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def numpy(self) -> Any:
        return self._value.copy() if isinstance(self._value, np.ndarray) else self._value


def _on_arrays(function: Callable[..., Any], kinds: Sequence[Any]) -> Callable[..., list[Any]]:
    def call(*given: Any) -> list[Any]:
        results = function(*map(_Argument, given))
        several = [] if results is None else results if isinstance(results, list | tuple) else [results]
        # As an eager tensor, an integer that does not fit wraps around, and results beyond those declared are dropped.
        pairs = zip(several, kinds, strict=False)
        return [np.asarray(one if kind is object else np.asarray(one), kind) for one, kind in pairs]

    return call


def require_arrays(function: Any) -> None:
    """Raises unless a Python function does nothing with its arguments but to call `.numpy()` on them.

    Raises:
        CannotEdit: it does, or its code cannot be read.
    """
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType):
        raise CannotEdit("its Python code is no plain function")
    if is_library(plain.__code__.co_filename):
        raise CannotEdit("its Python code belongs to a library")
    definition = _definition(plain)
    body = definition.body if isinstance(definition.body, list) else [ast.Expr(definition.body)]
    given = definition.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
        raise CannotEdit("its Python code has parameters that are starred or have defaults")
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    for name in names[1:] if plain is not function else names:
        _require_array(name, body)
    if any(map(_is_tensorflow, _values_read(plain, body))):
        raise CannotEdit("its Python code calls TensorFlow")


def _definition(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """Returns the syntax tree of a function's definition."""
    code = function.__code__
    written = tensorflow_private.autograph_origin(code.co_filename, code.co_firstlineno)
    file, line = written[:2] if written is not None else (code.co_filename, code.co_firstlineno)
    lines = {line}
    tree = syntax_tree(file)
    if tree is None:
        raise CannotEdit("its Python code cannot be read")
    if written is not None:  # AutoGraph knows statements, which may have several lines
        around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line]
        around = [node for node in around if line <= (node.end_lineno or node.lineno)]
        lines |= {*range(around[-1].lineno, (around[-1].end_lineno or line) + 1)} if around else set()
    names = list(code.co_varnames[: code.co_argcount])
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda)
        and node.lineno in lines
        and [one.arg for one in (*node.args.posonlyargs, *node.args.args)] == names
    ]
    if len(found) != 1:
        raise CannotEdit("its Python code cannot be read")
    return found[0]


def _require_array(name: str, body: Sequence[ast.stmt]) -> None:
    """Raises if a parameter is read in another way than by `.numpy()`, before it is bound to something else."""
    for statement in body:
        bound = isinstance(statement, ast.Assign) and [ast.unparse(one) for one in statement.targets] == [name]
        nodes = list(ast.walk(statement.value if bound and isinstance(statement, ast.Assign) else statement))
        as_array = set(map(id, filter(None, map(_made_an_array, nodes))))
        if any(isinstance(node, ast.Name) and node.id == name and id(node) not in as_array for node in nodes):
            raise CannotEdit(f"its Python code needs {name} as a tensor")
        if any(isinstance(node, ast.arg) and node.arg == name for node in nodes):
            raise CannotEdit(f"its Python code gives {name} another meaning")
        if bound:
            return


def _made_an_array(node: ast.AST) -> ast.Name | None:
    """Returns `x` of a call `x.numpy()`; None for any other node."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="numpy"), args=[], keywords=[]):
            return name
    return None


def _values_read(function: FunctionType, body: Sequence[ast.stmt]) -> Iterator[Any]:
    """Yields what the names of a function's body refer to, as far as they are bound outside of it; imports by name."""
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Name(id=name) if name in known:
                    yield known[name]
                case ast.Import(names=names):
                    yield from (one.name for one in names)
                case ast.ImportFrom(module=str(module)):
                    yield module


def _is_tensorflow(value: Any) -> bool:
    name = value if isinstance(value, str) else value.__name__ if isinstance(value, ModuleType) else None
    module = name or getattr(value, "__module__", None) or ""
    return str(module).partition(".")[0] in ("tensorflow", "keras", "tf_keras")
