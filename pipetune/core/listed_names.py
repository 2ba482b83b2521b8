"""Whether the list behind a name may change after a dataset was made of it, read from the text of its file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Made:
    """A place where a dataset is made of lists."""

    line: int
    generator: range  # lines of the generator, which only reads them


def may_change(text: str, name: str, made: Made) -> bool:
    """Whether the list called `name` may change once the dataset was made; in doubt yes.

    Every use of the name in the file counts, in whichever scope. A generator reads its lists anew in each epoch.
    """
    try:
        return _Uses(ast.parse(text), made).may_change(name, made.line, handed_to="")
    except (SyntaxError, ValueError):
        return True


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_READERS = frozenset({"len", "zip", "enumerate", "sorted", "list", "tuple", "set", "print", "range", "min", "max"})
_COPIERS = frozenset({"np", "numpy", "tf", "tensorflow"})
_WRITERS = frozenset({"shuffle", "put", "place", "copyto", "putmask"})
_PROPERTIES = frozenset({"shape", "size", "dtype", "ndim", "astype", "copy", "index", "count", "tolist", "mean", "sum"})


class _Uses:
    def __init__(self, module: ast.Module, made: Made) -> None:
        self._module, self._made = module, made
        self._parents: Mapping[ast.AST, ast.AST] = {
            child: parent for parent in ast.walk(module) for child in ast.iter_child_nodes(parent)
        }

    def may_change(self, name: str, line: int, *, handed_to: str) -> bool:
        """The answer for one name; `handed_to`: the function that makes the dataset and gets the list."""
        around = [one for one in ast.walk(self._module) if _holds(one, line)]
        again = any(isinstance(one, ast.For | ast.While) for one in around)
        functions = [one for one in around if isinstance(one, _FUNCTIONS) and self._binds(one, name)]
        scope: ast.AST = functions[-1] if functions else self._module
        if isinstance(scope, _FUNCTIONS):
            argument = next((one for one in ast.walk(scope.args) if isinstance(one, ast.arg) and one.arg == name), None)
            if argument is not None and not self._given_for_good(scope, argument):
                return True
        for node in ast.walk(scope):
            if not isinstance(node, ast.Name) or node.id != name or node.lineno in self._made.generator:
                continue
            inside = [one for one in self._ancestors(node) if isinstance(one, _FUNCTIONS)]
            if any(one is not scope and one not in self._ancestors(scope) and self._binds(one, name) for one in inside):
                continue  # another list of that name
            earlier = node.lineno < line and not again and all(one in around for one in inside)
            if not self._only_reads(node, handed_to) and not (earlier and self._prepares(node)):
                return True
        return False

    def _binds(self, function: ast.AST, name: str) -> bool:
        """Whether the name is a function's own: a parameter, or assigned in it and not said to be global."""
        assert isinstance(function, _FUNCTIONS)
        if any(isinstance(one, ast.arg) and one.arg == name for one in ast.walk(function.args)):
            return True
        inside = list(ast.walk(function))
        if any(isinstance(one, ast.Global | ast.Nonlocal) and name in one.names for one in inside):
            return False
        named = [one for one in inside if isinstance(one, ast.Name) and one.id == name]
        return any(isinstance(one.ctx, ast.Store) and self._function_of(one) is function for one in named)

    def _function_of(self, node: ast.AST) -> ast.AST | None:
        return next((one for one in self._ancestors(node) if isinstance(one, _FUNCTIONS)), None)

    def _ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            node = self._parents[node]
            yield node

    def _only_reads(self, node: ast.Name, handed_to: str) -> bool:
        """Whether the list is counted, copied, compared, or an entry of it taken."""
        match self._parents[node]:
            case ast.Call(func=ast.Name(id=called), args=given) if node in given:
                return called in _READERS or called == handed_to
            case ast.Call(func=ast.Attribute(attr=called) as function, args=given) if node in given:
                return _library(function) in _COPIERS and called not in _WRITERS
            case ast.keyword() as keyword:
                match self._parents[keyword]:
                    case ast.Call(func=ast.Name(id=called)):
                        return called == handed_to
            case ast.Attribute(attr=name, ctx=ast.Load()):
                return name in _PROPERTIES
            case ast.Subscript(value=value, ctx=ast.Load()):
                return value is node
            case ast.For(iter=value) | ast.comprehension(iter=value):
                return value is node
            case ast.Compare() | ast.FormattedValue():
                return True
        return False

    def _prepares(self, node: ast.Name) -> bool:
        """Whether the list is made or put in order here, and nobody else gets hold of it."""
        parent = self._parents[node]
        if isinstance(node.ctx, ast.Store):
            return not isinstance(getattr(parent, "value", None), ast.Name | ast.Attribute)
        match parent:
            case ast.Attribute(value=value) as method:
                return value is node and isinstance(self._parents[method], ast.Call)
            case ast.Call(func=ast.Attribute(attr="shuffle")):
                return True
            case ast.Subscript(value=value):
                return value is node
        return False

    def _given_for_good(self, owner: ast.AST, argument: ast.arg) -> bool:
        """Whether every caller gives the function a list that no other name can change later."""
        if not isinstance(owner, ast.FunctionDef) or argument not in owner.args.args or owner.args.defaults:
            return False
        position = owner.args.args.index(argument)
        calls = [
            one
            for one in ast.walk(self._module)
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == owner.name
        ]
        if not calls or any(owner in self._ancestors(call) for call in calls):
            return False
        return all(self._for_good(call, owner.name, argument.arg, position) for call in calls)

    def _for_good(self, call: ast.Call, owner: str, argument: str, position: int) -> bool:
        named = {one.arg: one.value for one in call.keywords}
        given = named.get(argument) or (call.args[position] if position < len(call.args) else None)
        if isinstance(given, ast.Name):
            return not self.may_change(given.id, call.lineno, handed_to=owner)
        # Anything else is made for this call; what another variable holds is not.
        return isinstance(given, ast.Call | ast.ListComp | ast.List | ast.Tuple)


def _holds(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def _library(function: ast.expr) -> str:
    """The name a dotted one begins with: `np` of `np.random.permutation`."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
