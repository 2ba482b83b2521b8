"""Source text of the user's Python functions and values, for use in a stand-alone module.

A function of another module is imported; one of the main script is copied with everything it needs, because importing
the script would start training. Values are written as they are now, as an expression that represents them completely,
never by the statement that created them; `verify.emitted` proves by its graph that a copy is the same function.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import dis
import enum
import functools
import inspect
import linecache
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import Definition, FunctionSource, string_literal
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node
from pipetune.pipelines.call_sites import definitions_of, first_line

LONGEST = 2_000  # characters of one literal, at most
_MOST_NUMBERS = 64  # numbers of an array, at most

_PUBLIC = ("", "io", "image", "data", "data.experimental", "strings", "math", "audio", "sparse", "nn",
           "linalg", "signal", "random", "lookup", "ragged", "dtypes", "debugging")  # fmt: skip


@functools.cache
def _public_names() -> dict[int, tuple[str, Any]]:
    found: dict[int, tuple[str, Any]] = {}
    for path in reversed(_PUBLIC):
        module: Any = tf
        for part in path.split(".") if path else ():
            module = getattr(module, part, None)
        if module is None:
            continue
        prefix = f"tf.{path}." if path else "tf."
        for name in dir(module):
            value = None if name.startswith("_") else getattr(module, name, None)
            if value is not None and not isinstance(value, ModuleType | int | float | str | bool):
                found[id(value)] = (prefix + name, value)
    return found


def public_name(value: Any) -> str:
    """Returns the public name of an object of TensorFlow ("tf.io.read_file"); '' if it has none."""
    name, found = _public_names().get(id(value), ("", None))
    return name if found is value else ""


def literal(value: Any) -> str:
    """Returns `value` as an expression that uses no names except `tf` and `np`.

    Raises:
        CannotExpress: it is not a plain value, or the expression would be too long.
    """
    text = _write(value)
    if len(text) > LONGEST:
        raise CannotExpress(f"a {type(value).__name__} of {len(text)} characters is too long to write down")
    return text


def names_of_modules(text: str) -> Iterator[tuple[str, str]]:
    """Yields the modules that a literal uses, each as its name and the import statement."""
    if "tf." in text:
        yield "tf", "import tensorflow as tf"
    if "np." in text:
        yield "np", "import numpy as np"


def _write(value: Any) -> str:
    if isinstance(value, enum.Enum):  # also one that is a number or a text as well
        raise CannotExpress(f"the member {value.name} of the enumeration {type(value).__name__} cannot be written down")
    if isinstance(value, str):
        return string_literal(value)
    if value is None or isinstance(value, bool | int | bytes):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    name = public_name(value)
    if name:
        return name
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if isinstance(value, tf.TensorShape):
        return f"tf.TensorShape({value.as_list() if value.rank is not None else None})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _named_tuple(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_write, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return "[" + ", ".join(_write(item) for item in value) + "]"
    if isinstance(value, dict) and type(value) is dict:
        return "{" + ", ".join(f"{_write(key)}: {_write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return f"np.{value.dtype.name}({_write(value.item())})"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size <= _MOST_NUMBERS:
        return f"np.array({_write(value.tolist())}, dtype=np.{value.dtype.name})"
    if isinstance(value, tf.Tensor) and hasattr(value, "numpy") and value.dtype != tf.resource:
        return _tensor(value)
    raise CannotExpress(f"a {type(value).__name__} cannot be written down")


def _named_tuple(value: Any) -> str:
    name = public_name(type(value))
    if not name:
        raise CannotExpress(f"a {type(value).__name__} cannot be written down")
    fields = ", ".join(f"{field}={_write(getattr(value, field))}" for field in value._fields)
    return f"{name}({fields})"


def _tensor(value: Any) -> str:
    array = np.asarray(value.numpy())
    if array.size > _MOST_NUMBERS:
        raise CannotExpress(f"a tensor of {array.size} numbers is too long to write down")
    return f"tf.constant({_write(array.tolist())}, dtype=tf.{value.dtype.name})"


_MAIN = "__main__"
_PLAIN = (bool, int, float, str, bytes, tuple, list, dict)
_LATER_ANNOTATIONS = __future__.annotations.compiler_flag
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})


class FunctionSources:
    """Describes functions; records the names it has used, so that no two copies share a name."""

    def __init__(self) -> None:
        self._makers: dict[str, str] = {}  # name of a function that creates a closure -> its text

    def describe(self, node: Node, function: Callable[..., Any]) -> FunctionSource:
        """Returns the source of `function`, which was passed to operator `node`.

        Raises:
            CannotExpress: it cannot be written without the script that created it; the message says why.
        """
        facts = node.function
        if facts is not None and (facts.reads_variables or facts.writes_variables or facts.mutable_tables):
            what = ", ".join(facts.reads_variables) or "a variable or table"
            raise CannotExpress(
                f"The function {facts.name} of {node.title} uses {what}, which lives in the training process."
            )
        collected = _Collected(self._makers)
        try:
            reference = collected.reference(function)
        except CannotExpress as error:
            name = facts.name if facts is not None else "function"
            reason = error.message[0].lower() + error.message[1:]
            raise CannotExpress(f"The function {name} of {node.title} cannot be copied: {reason}") from error
        return FunctionSource(reference, tuple(collected.definitions.values()))


class _Collected:
    """The definitions that one function needs, in the order in which they must be written."""

    def __init__(self, makers: dict[str, str]) -> None:
        self.definitions: dict[str, Definition] = {}
        self._open: set[str] = set()
        self._makers = makers

    def reference(self, value: Any) -> str:
        """Returns an expression for a function or class."""
        name = public_name(value)
        if name:
            self._define("tf", "import tensorflow as tf")
            return name
        if isinstance(value, functools.partial):
            return self._partial(value)
        inner = getattr(value, "python_function", value)
        if isinstance(inner, MethodType):
            owner = type(inner.__self__).__name__
            raise CannotExpress(f"It is the method {inner.__name__} of a {owner} object of the script.")
        path = _importable(value) or _importable(inner)
        if path is not None:
            module, qualified = path
            if changed := next(_changed_globals(inner, set()), ""):
                raise CannotExpress(f"It uses {changed} of {module}, which was changed after the import.")
            top = qualified.partition(".")[0]
            self._define(top, _from_import(module, top, top))
            return qualified
        members: Iterable[Any] = vars(inner).values() if isinstance(inner, type) else ()
        functions = (getattr(member, "__func__", member) for member in members)
        methods = [method for method in functions if isinstance(method, FunctionType)]  # with its file and globals
        if methods and self._copy(inner.__name__, methods[0]):
            return str(inner.__name__)
        if not isinstance(inner, FunctionType):
            raise CannotExpress(f"It is a {type(value).__name__} object of the script.")
        if inner.__globals__.get(inner.__name__) is value and self._copy(inner.__name__, inner):
            return inner.__name__
        return self._nested(inner)

    def _partial(self, value: functools.partial[Any]) -> str:
        arguments = [self._value("argument", item) for item in value.args]
        arguments += [f"{name}={self._value(name, item)}" for name, item in value.keywords.items()]
        self._define("functools", "import functools")
        return f"functools.partial({', '.join([self.reference(value.func), *arguments])})"

    def _nested(self, function: FunctionType) -> str:
        """Returns an expression for a lambda or nested function; a maker function supplies its closure."""
        text, is_lambda = function_text(function.__code__)
        cells = inspect.getclosurevars(function).nonlocals
        closed = {name: value for name, value in cells.items() if value is not function}
        needed = names_needed(f"_ = ({text})" if is_lambda else text)
        self._bind_all((name for name in needed if name not in cells), function)
        if not closed:
            if is_lambda:
                return f"({text})" if "\n" in text else text
            self._define(function.__name__, text)
            return function.__name__
        arguments = ", ".join(f"{name}={self._value(name, value)}" for name, value in closed.items())
        maker = self._maker("function" if is_lambda else function.__name__, tuple(closed), text, is_lambda)
        return f"{maker}({arguments})"

    def _maker(self, name: str, parameters: tuple[str, ...], text: str, is_lambda: bool) -> str:
        inside = f"return {text}" if is_lambda else f"{text}\n\nreturn {name}"
        indented = "\n".join(f"    {line}" if line else "" for line in inside.split("\n"))
        for number in range(1, 1000):
            maker = f"make_{name}" + (f"_{number}" if number > 1 else "")
            made = f"def {maker}({', '.join(parameters)}):\n{indented}"
            if self._makers.setdefault(maker, made) == made:
                break
        self._define(maker, made)
        return maker

    def _copy(self, name: str, near: FunctionType) -> bool:
        """Copies a function or class at the top level of a file, with everything it needs; False if it is not there."""
        if name in self.definitions or name in self._open:
            return True
        text = _top_level(near.__code__.co_filename, name)
        if not text:
            return False
        self._open.add(name)
        self._bind_all(names_needed(text), near)
        self._define(name, text)
        return True

    def _bind_all(self, names: Iterable[str], near: FunctionType) -> None:
        for name in names:
            if name in near.__globals__:
                self._bind(name, near.__globals__[name], near)
            elif not hasattr(builtins, name):
                raise CannotExpress(f"It uses {name}, which is not defined where it stands.")

    def _bind(self, name: str, value: Any, near: FunctionType) -> None:
        """Defines the global `name` of the function `near` in the module."""
        home, file = near.__globals__.get("__name__", _MAIN), near.__code__.co_filename
        package = near.__globals__.get("__package__") or ""
        imported = import_of(file, name, package)
        if imported is not None and _same(imported[1], imported[2], value):
            self._define(name, imported[0])
        elif isinstance(value, ModuleType):
            self._define(name, f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else ""))
        elif home != _MAIN and _same(home, name, value):
            self._define(name, _from_import(home, name, name))
        elif isinstance(getattr(value, "python_function", value), FunctionType | type) and self._copy(name, near):
            return  # created by a `def` or `class` statement
        else:
            self._define(name, f"{name} = {self._value(name, value)}")

    def _value(self, name: str, value: Any) -> str:
        if callable(value) and not public_name(value):
            return self.reference(value)
        try:
            text = literal(value)
        except CannotExpress as error:
            raise CannotExpress(f"It uses {name}, and {error.message}.") from error
        for module, imported in names_of_modules(text):
            self._define(module, imported)
        return text

    def _define(self, name: str, text: str) -> None:
        known = self.definitions.setdefault(name, Definition(name, text))
        if known.text != text:
            raise CannotExpress(f"It uses two different things called {name}.")


def _importable(value: Any) -> tuple[str, str] | None:
    """Returns the module and qualified name under which `value` can be imported; None if it cannot."""
    name = getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) and name != _MAIN else None
    if module is None or getattr(module, "__spec__", None) is None or name is None:
        return None
    qualified = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    owner: Any = module
    for part in qualified.split("."):
        owner = getattr(owner, part, None)
    if "<" not in qualified and owner is value:
        return name, qualified
    return next(((name, other) for other, found in vars(module).items() if found is value), None)


def _changed_globals(function: Any, seen: set[str]) -> Iterator[str]:
    """Yields plain globals of an imported function whose value is none that its module gives them: an import has not.

    Functions of the same module that it calls are searched too; what a module computes is not compared.
    """
    if not isinstance(function, FunctionType) or not os.path.isfile(function.__code__.co_filename):
        return
    assigned = _assigned_literals(function.__code__.co_filename)
    for name in sorted(_loaded(function.__code__) - seen):
        seen.add(name)
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
            yield from _changed_globals(value, seen)
        elif isinstance(value, _PLAIN) and name in assigned and repr(value) not in assigned[name]:
            yield name


@functools.cache
def _assigned_literals(file: str) -> dict[str, set[str]]:
    """Returns the names that a file binds to literals alone, outside of functions, with the `repr` of each literal."""
    found: dict[str, set[str]] = {}
    computed: set[str] = set()
    todo: list[ast.AST] = [_tree_of(file)]
    while todo:
        node = todo.pop()
        literals: dict[ast.AST, str] = {}
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            with contextlib.suppress(ValueError, TypeError):
                text = repr(ast.literal_eval(node.value))
                literals = dict.fromkeys(node.targets if isinstance(node, ast.Assign) else [node.target], text)
        for target, text in literals.items():
            if isinstance(target, ast.Name):
                found.setdefault(target.id, set()).add(text)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            computed.add(node.id)
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
        todo += [] if inner else [one for one in ast.iter_child_nodes(node) if one not in literals]
    return {name: texts for name, texts in found.items() if name not in computed}


def _same(module: str, name: str, value: Any) -> bool:
    """Whether importing `name` from `module` (or the module itself) would return `value`."""
    found = sys.modules.get(module)
    if found is None or module == _MAIN:
        return False
    held = getattr(found, name, None) if name else found
    return held is value or (bool(name) and held is None and sys.modules.get(f"{module}.{name}") is value)


# -- texts of functions and imports in their files; nothing is executed


def _tree_of(file: str) -> ast.Module:
    """Returns the syntax tree of a source file, or of a notebook cell that `linecache` contains.

    Raises:
        CannotExpress: the source cannot be read.
    """
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CannotExpress(f"The source of {file} cannot be read: {error.msg}.") from error
    if not text:
        raise CannotExpress(f"The source of {file} is not there to copy from.")
    return tree


def _top_level(file: str, name: str) -> str:
    """Returns the text of the last function or class `name` at the top level of `file`; '' if there is none."""
    body = _tree_of(file).body
    found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
    return _text(file, found[-1]) if found else ""


def import_of(file: str, name: str, package: str) -> tuple[str, str, str] | None:
    """Returns the import in `file` that binds `name`; None if there is none.

    Args:
        file: path of the source file.
        name: the bound name.
        package: the package of the file, to resolve relative imports.

    Returns:
        The text of the import on one line, the module, and the imported name or '' for the module itself.

    Raises:
        CannotExpress: the source cannot be read.
    """
    for node in ast.walk(_tree_of(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname == name or (alias.asname is None and alias.name.partition(".")[0] == name):
                    text = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                    return text, alias.name if alias.asname else name, ""
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            for alias in node.names:
                if (alias.asname or alias.name) == name and module:
                    return _from_import(module, alias.name, name), module, alias.name
    return None


def _from_import(module: str, name: str, bound: str) -> str:
    """Returns the text of the import of `name` from `module` under the name `bound`."""
    return f"from {module} import {name}" + (f" as {bound}" if bound != name else "")


def function_text(code: CodeType) -> tuple[str, bool]:
    """Returns the text of the function with the code object `code`, and whether it is a lambda expression.

    Raises:
        CannotExpress: its file has no function, or several, at that location.
    """
    file = code.co_filename
    if code.co_name == "<lambda>":
        lambdas = (node for node in ast.walk(_tree_of(file)) if isinstance(node, ast.Lambda))
        here = (node for node in lambdas if node.lineno == code.co_firstlineno and _covers(node.body, code))
        found: list[ast.AST] = [*here]
        found = found[-1:]  # the innermost: ast.walk visits outer nodes first
    else:
        found = [*definitions_of(code, _tree_of(file))]
    if len(found) != 1:
        where = f"{file}, line {code.co_firstlineno}"
        raise CannotExpress(f"The function {code.co_name} is not found in {where}.")
    return _text(file, found[0]), isinstance(found[0], ast.Lambda)


def names_needed(text: str) -> tuple[str, ...]:
    """Returns the outside names that statements read, except in annotations, in alphabetical order."""
    code = compile(text, "<copied>", "exec", flags=_LATER_ANNOTATIONS, dont_inherit=True)
    return tuple(sorted(_loaded(code) - _stored(code)))


def _loaded(code: CodeType) -> set[str]:
    """Returns the names that code and the functions in it load and do not store themselves."""
    inner = (_loaded(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return (_arguments_of(code, _LOADS) - _stored(code)).union(*inner)


def _stored(code: CodeType) -> set[str]:
    implicit = {"__name__", "__module__", "__qualname__", "__annotations__", "__conditional_annotations__"}
    return implicit | _arguments_of(code, _STORES)


def _arguments_of(code: CodeType, operations: frozenset[str]) -> set[str]:
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname in operations}


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if len(parts) < node.level:
        return ""
    return ".".join(filter(None, (*parts[: len(parts) - node.level + 1], node.module)))


def _covers(body: ast.expr, code: CodeType) -> bool:
    start = (body.lineno, body.col_offset)
    end = (body.end_lineno or 0, body.end_col_offset or 0)
    starts, ends = [], []
    for line, end_line, column, end_column in code.co_positions():
        if line is not None and end_line is not None and column is not None and end_column:
            starts.append((line, column))
            ends.append((end_line, end_column))
    return bool(starts) and min(starts) == start and max(ends) <= end


def _text(file: str, node: ast.AST) -> str:
    lines = linecache.getlines(file)
    if isinstance(node, ast.Lambda):
        return ast.get_source_segment("".join(lines), node) or ast.unparse(node)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    text = textwrap.dedent("".join(lines[first_line(node) - 1 : node.end_lineno])).rstrip()
    try:
        same = ast.dump(ast.parse(text).body[0]) == ast.dump(node)
    except SyntaxError:
        same = False
    # They differ for a string with less indentation than the code, or for two statements on a line.
    return text if same else ast.unparse(node)
