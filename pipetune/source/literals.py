"""Writes values of arguments as Python source, AUTOTUNE by the name that the file already has for it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import libcst as cst
from libcst.metadata import Assignment, QualifiedNameSource, Scope

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import AUTOTUNE, Value
from pipetune.source.signatures import autotuned, parameters
from pipetune.source.tree import SyntaxTree

_ROOTS = ("tensorflow", "tensorflow.compat.v2")  # the same API
_AUTOTUNE = frozenset(f"{root}.{name}" for root in _ROOTS for name in ("data.AUTOTUNE", "data.experimental.AUTOTUNE"))
_FIRST_BY_POSITION = frozenset(
    {"batch", "cache", "padded_batch", "prefetch", "repeat", "shuffle", "skip", "take", "window"}
)
_DEFAULTS: Mapping[str, Mapping[str, Value]] = {"repeat": {"count": -1}, "cache": {"filename": ""}}
"""Default values, which are not written out; arguments that are None are dropped before."""


def write_value(tree: SyntaxTree, call: cst.Call, value: Value, *, op: str, name: str) -> str:
    """Returns a value as source text at the place of `call`."""
    if value == AUTOTUNE and not isinstance(value, bool) and autotuned(op, name):
        return autotune_text(tree, call)
    if isinstance(value, str) and tree.code.count(b'"') > tree.code.count(b"'"):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def write_call(tree: SyntaxTree, call: cst.Call, arguments: Mapping[str, Value], *, op: str) -> str:
    """Returns `op(...)` with `arguments`, to be appended to `call`: the leading one by position, the others by name.

    Raises:
        CannotExpress: the operator needs more than plain values, or is not known.
    """
    if op == "copy_to_device":
        return _write_copy(tree, call, arguments)
    names = parameters(op)
    given = {name: value for name, value in arguments.items() if value is not None}
    for name, default in _DEFAULTS.get(op, {}).items():
        if given.get(name) == default:
            del given[name]
    if names is None or not set(given) <= {*names, "name"}:
        raise CannotExpress(f"pipetune does not know how {op}({', '.join(given)}) is written.")
    if op not in _FIRST_BY_POSITION and op != "unbatch":
        raise CannotExpress(f"{op} needs more than a value, which cannot be made up in the source.")
    parts = []
    for position, name in enumerate([*names, "name"]):
        if name in given:
            text = write_value(tree, call, given[name], op=op, name=name)
            parts.append(text if position == 0 else f"{name}={text}")
    return f"{op}({', '.join(parts)})"


def _write_copy(tree: SyntaxTree, call: cst.Call, arguments: Mapping[str, Value]) -> str:
    """Returns the call of the copy to a device, which is not a dataset method but a function for `apply`."""
    function = tensorflow_text(tree, call, "data.experimental.copy_to_device")
    if function is None:
        raise CannotExpress("The file has no name for TensorFlow, which the copy to the device is reached through.")
    device = write_value(tree, call, arguments["target_device"], op="copy_to_device", name="target_device")
    return f"apply({function}({device}))"


def autotune_text(tree: SyntaxTree, node: cst.CSTNode) -> str:
    """Returns the text for AUTOTUNE at `node`: a name that the file bound to it, else through TensorFlow's alias.

    A file that does not import TensorFlow gets the constant's documented value, -1: an import added for one name would
    be a larger change than the requested one, and could run before code that must come first.
    """
    scope = tree.scope(node)
    if scope is None:
        return "-1"
    for name in _bound_names(tree):
        if _assigned_autotune(tree, scope, name, before=tree.start(node)):
            return name
    found = tensorflow_text(tree, node, "data.AUTOTUNE")
    return found or "-1"


def tensorflow_text(tree: SyntaxTree, node: cst.CSTNode, path: str) -> str | None:
    """Returns the text that `tensorflow.<path>` is reached by at `node`, or None if the file has no name for it."""
    scope = tree.scope(node)
    if scope is None:
        return None
    parts = path.split(".")
    candidates = [
        ".".join([name, *parts[skipped:]])
        for skipped in range(len(parts), -1, -1)  # the shortest text first
        for name in _imported_names(tree)
    ]
    for candidate in candidates:
        names = {(name.name, name.source) for name in scope.get_qualified_names_for(candidate)}
        if any(names == {(f"{root}.{path}", QualifiedNameSource.IMPORT)} for root in _ROOTS):
            return candidate
    return None


def module_text(tree: SyntaxTree, node: cst.CSTNode, module: str) -> str | None:
    """Returns the name of a module at `node`, or None if the file has none for it."""
    scope = tree.scope(node)
    if scope is None:
        return None
    for name in _imported_names(tree):
        found = {(one.name, one.source) for one in scope.get_qualified_names_for(name)}
        if found == {(module, QualifiedNameSource.IMPORT)}:
            return name
    return None


def _imported_names(tree: SyntaxTree) -> list[str]:
    """Local names of every import statement, in the order written."""
    found: list[str] = []
    for alias in tree.nodes(cst.ImportAlias):
        name = alias.evaluated_alias or alias.evaluated_name.partition(".")[0]
        if name not in found:
            found.append(name)
    return found


def _bound_names(tree: SyntaxTree) -> list[str]:
    """Names assigned from something called AUTOTUNE."""
    found: list[str] = []
    for statement in tree.nodes(cst.Assign):
        match statement:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
                if tree.text(statement.value).endswith("AUTOTUNE") and name not in found:
                    found.append(name)
    return found


def _assigned_autotune(tree: SyntaxTree, scope: Scope, name: str, *, before: int) -> bool:
    """Whether `name` is AUTOTUNE and nothing else where `scope` looks it up."""
    assignments = list(scope[name])
    return bool(assignments) and all(
        isinstance(assignment, Assignment) and _is_autotune(tree, assignment, before=before)
        for assignment in assignments
    )


def _is_autotune(tree: SyntaxTree, assignment: Assignment, *, before: int) -> bool:
    statement = next((node for node in tree.ancestors(assignment.node) if isinstance(node, cst.Assign)), None)
    if statement is None or tree.end(statement) > before:
        return False
    names = assignment.scope.get_qualified_names_for(tree.text(statement.value))
    return bool(names) and all(name.name in _AUTOTUNE and name.source is QualifiedNameSource.IMPORT for name in names)
