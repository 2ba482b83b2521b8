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
import importlib.util
import inspect
import linecache
import math
import operator
import os
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import Definition, FunctionSource, string_literal
from pipetune.core.errors import CannotExpress
from pipetune.core.files import is_library
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
        module: Any = operator.attrgetter(path)(tf) if path else tf
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
    if isinstance(value, tuple) and hasattr(value, "_fields") and (name := public_name(type(value))):
        return f"{name}({', '.join(f'{field}={_write(getattr(value, field))}' for field in value._fields)})"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
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
        array = np.asarray(value.numpy())
        if array.size > _MOST_NUMBERS:
            raise CannotExpress(f"a tensor of {array.size} numbers is too long to write down")
        return f"tf.constant({_write(array.tolist())}, dtype=tf.{value.dtype.name})"
    raise CannotExpress(f"a {type(value).__name__} cannot be written down")


_MAIN = "__main__"
_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, type(None))
_ARRAYS = (np.ndarray, np.generic, tf.Tensor)
_LATER_ANNOTATIONS = __future__.annotations.compiler_flag
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})


def describe(node: Node, function: Callable[..., Any], makers: dict[str, str]) -> FunctionSource:
    """Returns the source of `function`, which was passed to operator `node`.

    Args:
        makers: names of the functions that create closures, with their texts: no two functions share one.

    Raises:
        CannotExpress: it cannot be written without the script that created it; the message says why.
    """
    facts = node.function
    if facts is not None and (facts.reads_variables or facts.writes_variables or facts.mutable_tables):
        what = ", ".join(facts.reads_variables) or "a variable or table"
        raise CannotExpress(
            f"The function {facts.name} of {node.title} uses {what}, which lives in the training process."
        )
    collected = _Collected(makers)
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
            _check_unchanged(inner, frozenset())
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
        self._bind_all(f"_ = ({text})" if is_lambda else text, function, but=cells)
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
        file = near.__code__.co_filename
        definitions = (node for node in _tree_of(file).body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        found = [node for node in definitions if node.name == name]
        if not found:
            return False
        text = _text(file, found[-1])
        self._open.add(name)
        self._bind_all(text, near)
        self._define(name, text)
        return True

    def _bind_all(self, text: str, near: FunctionType, *, but: Container[str] = ()) -> None:
        """Defines the globals of the function `near` that its text reads in the module, except the names `but`."""
        read = _all_names(_compiled(text))
        for name in names_needed(text):
            if name in but:
                continue
            if name in near.__globals__:
                self._bind(name, near.__globals__[name], near, read)
            elif not hasattr(builtins, name):
                raise CannotExpress(f"It uses {name}, which is not defined where it stands.")

    def _bind(self, name: str, value: Any, near: FunctionType, read: frozenset[str]) -> None:
        """Defines the global `name` of the function `near`, whose text has the names `read`, in the module."""
        if text := _import_text(name, value, near, read):
            self._define(name, text)
        elif isinstance(getattr(value, "python_function", value), FunctionType | type) and self._copy(name, near):
            return  # created by a `def` or `class` statement
        elif (text := self._value(name, value)) != name:
            self._define(name, f"{name} = {text}")

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


def _import_text(name: str, value: Any, near: FunctionType, read: frozenset[str]) -> str:
    """Returns an import of the global `name` of `near`, whose text has the names `read`; "" if there is none.

    There is none either for a plain value that was changed after the import: it is written as it is now.
    """
    home, file = near.__globals__.get("__name__", _MAIN), near.__code__.co_filename
    text, module, original = import_of(file, name, near.__globals__.get("__package__") or "") or ("", "", "")
    if not _same(module, original, value):
        text, module, original = "", home, name
        if isinstance(value, ModuleType):
            text = f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
        elif home != _MAIN and _same(home, name, value):
            text = _from_import(home, name, name)
    if text and isinstance(value, _PLAIN):
        return "" if any(_changed(sys.modules[module], frozenset({original}), set())) else text
    if text:
        _check_unchanged(value, read)
        if home == _MAIN and _is_set_in(file, name, read):
            raise CannotExpress(f"It uses {name}, which was changed after the import.")
    return text


def _check_unchanged(value: Any, names: frozenset[str]) -> None:
    if changed := next(_changed(value, names, set()), ""):
        raise CannotExpress(f"It uses {changed}, which was changed after the import.")


def _changed(value: Any, names: frozenset[str], seen: set[Any]) -> Iterator[str]:
    """Yields what the user's modules have other than by their files, so that another process would not import it.

    Compared is what a function `value` reads, or what a module or class `value` calls one of `names`, and what the
    functions, modules and classes among this read in turn: values that are literals in their files, and functions of
    the script. What a module computes is not compared.
    """
    value = getattr(value, "python_function", value)
    value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    if isinstance(value, FunctionType):
        names, space = _all_names(value.__code__), value.__globals__
    elif isinstance(value, ModuleType | type) and not isinstance(value, enum.EnumMeta):
        space = vars(value)
    else:
        return
    owner = value.__name__ if isinstance(value, type) else ""
    module = space.get("__module__" if owner else "__name__", _MAIN)
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if module == _MAIN and seen and not isinstance(value, ModuleType):
        yield value.__name__
    if module == _MAIN or (file, owner, names) in seen or not os.path.isfile(file):
        return
    if is_library(file) and (seen or not isinstance(value, FunctionType)):
        return
    seen.add((file, owner, names))
    literals = _assigned_literals(file, owner)
    for name in sorted(names & space.keys()):
        held, written = space[name], literals.get(name, ())
        # None stands for what is computed when it is needed first.
        compared = isinstance(held, _PLAIN) or (isinstance(held, _ARRAYS) and "None" not in written)
        if not compared:
            yield from _changed(held, names, seen)
        elif written and repr(held) not in written:
            yield f"{name} of {owner or module}"


def _is_set_in(file: str, name: str, attributes: Container[str]) -> bool:
    """Whether a file assigns one of these attributes of what it calls `name`."""
    attribute_nodes = (node for node in ast.walk(_tree_of(file)) if isinstance(node, ast.Attribute))
    stored = (node for node in attribute_nodes if isinstance(node.ctx, ast.Store) and node.attr in attributes)
    return any(isinstance(node.value, ast.Name) and node.value.id == name for node in stored)


@functools.cache
def _assigned_literals(file: str, owner: str) -> dict[str, set[str]]:
    """Returns the names that a file binds to literals alone, with the `repr` of each literal.

    Those bound in classes called `owner`, or for "" those outside of functions and classes.
    """
    found: dict[str, set[str]] = {}
    computed: set[str] = set()
    tree = _tree_of(file)
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == owner)
    todo: list[ast.AST] = [statement for node in classes for statement in node.body] if owner else [tree]
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
        if isinstance(node, ast.alias):  # it may be imported from elsewhere first
            computed.add(node.asname or node.name)
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
    """Returns the syntax tree of a source file, or of a notebook cell that `linecache` contains."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CannotExpress(f"The source of {file} cannot be read: {error.msg}.") from error
    if not text:
        raise CannotExpress(f"The source of {file} is not there to copy from.")
    return tree


def import_of(file: str, name: str, package: str) -> tuple[str, str, str] | None:
    """Returns the import in `file`, a file of `package`, that binds `name`; None if there is none.

    It is the text of the import on one line, the module, and the imported name or '' for the module itself.

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
            relative = "." * node.level + (node.module or "")
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    with contextlib.suppress(ImportError):  # it leads out of the package
                        module = importlib.util.resolve_name(relative, package)
                        return _from_import(module, alias.name, name), module, alias.name
    return None


def _from_import(module: str, name: str, bound: str) -> str:
    return f"from {module} import {name}" + (f" as {bound}" if bound != name else "")


def function_text(code: CodeType) -> tuple[str, bool]:
    """Returns the text of the function with the code object `code`, and whether it is a lambda expression.

    Raises:
        CannotExpress: its file has no function, or several, at that location.
    """
    file, line = code.co_filename, code.co_firstlineno
    found: Sequence[ast.AST] = definitions_of(code, _tree_of(file))
    if code.co_name == "<lambda>":
        lambdas = (node for node in ast.walk(_tree_of(file)) if isinstance(node, ast.Lambda) and node.lineno == line)
        found = [node for node in lambdas if _covers(node.body, code)][-1:]  # the innermost: outer nodes come first
    if len(found) != 1:
        raise CannotExpress(f"The function {code.co_name} is not found in {file}, line {line}.")
    return _text(file, found[0]), isinstance(found[0], ast.Lambda)


def names_needed(text: str) -> tuple[str, ...]:
    """Returns the outside names that statements read, except in annotations, in alphabetical order."""
    code = _compiled(text)
    return tuple(sorted(_loaded(code) - _stored(code)))


def _compiled(text: str) -> CodeType:
    try:
        code: CodeType = compile(text, "<copied>", "exec", flags=_LATER_ANNOTATIONS, dont_inherit=True)
    except SyntaxError as error:  # as of `nonlocal`
        raise CannotExpress(f"It cannot stand outside of another function: {error.msg}.") from error
    return code


def _all_names(code: CodeType) -> frozenset[str]:
    """Returns the names of globals and attributes in code and the functions in it."""
    inner = (_all_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*inner)


def _loaded(code: CodeType) -> set[str]:
    """Returns the names that code and the functions in it load and do not store themselves."""
    inner = (_loaded(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return (_arguments_of(code, _LOADS) - _stored(code)).union(*inner)


def _stored(code: CodeType) -> set[str]:
    implicit = {"__name__", "__module__", "__qualname__", "__annotations__", "__conditional_annotations__"}
    return implicit | _arguments_of(code, _STORES)


def _arguments_of(code: CodeType, operations: frozenset[str]) -> set[str]:
    return {str(one.argval) for one in dis.get_instructions(code) if one.opname in operations}


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
