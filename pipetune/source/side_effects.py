"""Side effects of a piece of code, and the names that the functions it mentions read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import libcst as cst
from libcst.metadata import QualifiedNameSource

from pipetune.source.statements import Statement, is_dotted, variable_names
from pipetune.source.syntax_tree import EFFECTS, SyntaxTree, nodes_within
from pipetune.source.user_functions import referenced_functions

_PURE = frozenset(
    {"abs", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min", "range", "round",
     "set", "sorted", "str", "sum", "tuple", "zip"}
)  # fmt: skip
"""Builtins that only compute a value."""
_REPORTING = frozenset({"print", "format", "repr"})
_MODULES = frozenset({"absl.logging", "logging", "math", "os.path", "time", "datetime", "pprint"})
"""Modules whose functions change nothing that a function of a dataset could depend on."""
_LOGGERS = frozenset({"log", "logger", "logging"})
_LATER = (cst.Lambda,)  # its body runs later


def contains_call(node: cst.CSTNode) -> bool:
    """Whether a piece of code calls anything; the bodies of lambdas run later and do not count."""
    return any(nodes_within(node, cst.Call, without=_LATER))


def only_binds_or_reports(tree: SyntaxTree, line: cst.CSTNode) -> bool:
    """Whether a statement only binds plain names to values, or only prints, logs or asserts.

    Moving a call across it changes nothing, except through the names it binds.
    """
    match line:
        case cst.SimpleStatementLine(body=parts):
            return all(_part_only_binds_or_reports(tree, part) for part in parts)
        case cst.If(test=test, body=cst.IndentedBlock(body=lines), orelse=orelse):
            inner = [*lines, *([orelse] if orelse is not None else [])]
            return _is_side_effect_free(tree, test) and all(only_binds_or_reports(tree, one) for one in inner)
        case cst.Else(body=cst.IndentedBlock(body=lines)):
            return all(only_binds_or_reports(tree, one) for one in lines)
        case cst.FunctionDef(decorators=[], params=params):
            return not contains_call(params)  # only its defaults run when it is defined
    return False


def _part_only_binds_or_reports(tree: SyntaxTree, part: cst.BaseSmallStatement) -> bool:
    match part:
        case cst.Pass() | cst.AnnAssign(target=cst.Name(), value=None):
            return True
        case cst.Assign(targets=targets, value=value):
            return all(_only_names(one.target) for one in targets) and _is_side_effect_free(tree, value)
        case (
            cst.Expr(value=value)
            | cst.AnnAssign(target=cst.Name(), value=cst.BaseExpression() as value)
            | cst.AugAssign(target=cst.Name(), value=value)
            | cst.Assert(test=value)
        ):
            return _is_side_effect_free(tree, value)
    return False


def _only_names(target: cst.BaseAssignTargetExpression) -> bool:
    if isinstance(target, cst.Tuple):
        return all(isinstance(one.value, cst.Name) for one in target.elements)
    return isinstance(target, cst.Name)


def _is_side_effect_free(tree: SyntaxTree, value: cst.BaseExpression) -> bool:
    if any(nodes_within(value, *EFFECTS, without=_LATER)):
        return False
    return all(_is_harmless_call(tree, call) for call in nodes_within(value, cst.Call, without=_LATER))


def _is_harmless_call(tree: SyntaxTree, call: cst.Call) -> bool:
    scope = tree.scope(call)
    names = scope.get_qualified_names_for(call.func) if scope is not None else set()
    for one in names:
        if one.source is QualifiedNameSource.BUILTIN:
            return one.name.removeprefix("builtins.") in _PURE | _REPORTING
        if one.source is QualifiedNameSource.IMPORT:
            return one.name.rpartition(".")[0] in _MODULES
    match call.func:
        case cst.Attribute(value=cst.Name(value=owner)):
            return owner.lower() in _LOGGERS
    return False


def is_builtin_without_effects(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call is of a builtin that only computes a value."""
    scope = tree.scope(call)
    names = scope.get_qualified_names_for(call.func) if scope is not None else set()
    kinds = {(one.source, one.name.removeprefix("builtins.") in _PURE) for one in names}
    return kinds == {(QualifiedNameSource.BUILTIN, True)}


def is_evaluated_first(tree: SyntaxTree, call: cst.Call, statement: Statement) -> bool:
    """Whether a statement evaluates a call first, and exactly once; only names are read before it."""
    inner: cst.CSTNode = call
    for parent in tree.ancestors(call):
        if inner is statement.value:
            return True
        match parent:
            case cst.Attribute(value=value) if value is inner:
                pass
            case cst.Arg():
                pass
            case cst.Call(func=func, args=args):
                before = list(takewhile(lambda one: one is not inner, args)) if func is not inner else []  # noqa: B023
                if (func is not inner and not is_dotted(func)) or any(contains_call(one) for one in before):
                    return False
            case _:
                return False
        inner = parent
    return False


def names_read_by_functions(tree: SyntaxTree, arguments: Sequence[cst.Arg]) -> frozenset[str]:
    """Returns the names read by the functions of this file that the arguments mention, directly or indirectly."""
    functions = referenced_functions(tree, [one.value for one in arguments])
    return frozenset(name for function in functions for name in variable_names(function.body))
