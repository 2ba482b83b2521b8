"""Writes another method in place of one.

A `padded_batch` in place of `batch` gets the sizes that a map pads to, under the names that the map has for them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

import libcst as cst
from libcst.metadata import GlobalScope

from pipetune.core.edits import ReplaceOperator
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline, Value
from pipetune.source.call_arguments import method_arguments, parameters, set_argument, write_value
from pipetune.source.chain import link_of
from pipetune.source.draft import Draft, Splice, replacing
from pipetune.source.map_functions import functions_behind_map
from pipetune.source.source_files import line_start, newline_of
from pipetune.source.statements import variable_nodes
from pipetune.source.syntax_tree import SyntaxTree


def replace_operator(draft: Draft, edit: ReplaceOperator, current: Pipeline) -> Draft:
    """Returns the draft in which the call of `edit.node` names another method; other arguments stay as they are.

    Raises:
        CannotExpress: the call is not a method of a dataset or makes other operators too, or it has arguments that the
            other method does not have, or starred ones, which may already give an argument of the edit.
    """
    position, new = draft.original_calls[edit.node], dict[str, str]()  # arguments that the operator did not have
    for name, value in edit.arguments.items():
        if name == "padded_shapes":
            new[name] = _padded_shapes_text(draft, edit, current)
        elif value is not None and current[edit.node].arguments.get(name) != value:
            new[name] = write_value(*position, value, op=edit.op, name=name)
    tree, call = draft.find(edit.node)
    link_of(tree, call)
    if len(draft.built_by_same_call(edit.node)) > 1:
        raise CannotExpress("The same call also makes other operators.")
    assert isinstance(call.func, cst.Attribute)
    file, method = draft.sites[edit.node].file, call.func.attr
    named = _pass_by_name(tree, call, parameters(method.value), parameters(edit.op))
    draft = draft.splice(file, [replacing(tree, method, edit.op), *named])
    for name, text in new.items():
        tree, call = draft.find(edit.node)
        draft = draft.splice(file, set_argument(tree, call, op=edit.op, name=name, text=text))
    return draft


def _pass_by_name(tree: SyntaxTree, call: cst.Call, before: tuple[str, ...], now: tuple[str, ...]) -> Iterator[Splice]:
    """Yields the changes that pass arguments by name which another method has at another position."""
    by_name = False
    for position, argument in enumerate(method_arguments(tree, call)):
        if argument.star:
            continue
        name = argument.keyword.value if argument.keyword is not None else "".join(before[position : position + 1])
        if name not in (*now, "name"):
            raise CannotExpress(f"The call passes the argument {name!r}, which the method that replaces it has not.")
        by_name = by_name or now[position : position + 1] != (name,)
        if argument.keyword is None and by_name:
            start = tree.start(argument)
            yield Splice(start, start, f"{name}=".encode())


def _padded_shapes_text(draft: Draft, edit: ReplaceOperator, current: Pipeline) -> str:
    """Returns the shapes of a padded batch as source text at the call of the batch that it replaces.

    A size is written as a name if the padding function of the nearest map upstream reads a global variable of the file
    that is only ever this number.
    """
    above = next((one for one in reversed(current.upstream(edit.node)) if one.op == "map"), None)
    names = _names_of_sizes(draft, above.id, edit.node) if above is not None else {}
    tree, call = draft.find(edit.node)
    key_text = functools.partial(write_value, tree, call, op=edit.op, name="padded_shapes")
    shapes = ast.literal_eval(str(edit.arguments["padded_shapes"]))
    in_one_line = _write(shapes, names, key_text)
    line, added = line_start(tree.code, tree.end(call) - 1), f"padded_, padded_shapes={in_one_line}"
    if not isinstance(shapes, dict) or tree.end(call) - line + len(added) <= _LINE_LENGTH:
        return in_one_line
    ahead = tree.code[line:].decode()
    indentation = ahead[: len(ahead) - len(ahead.lstrip())]
    inner = indentation + tree.indentation_unit.decode()
    items = [f"{inner}{key_text(key)}: {_write(part, names, key_text)}," for key, part in shapes.items()]
    return newline_of(tree.code, line).decode().join(["{", *items, indentation + "}"])


_LINE_LENGTH = 100


def _names_of_sizes(draft: Draft, node: str, batch: str) -> dict[int, str]:
    """Returns the names that the function of the map `node` has for numbers, where the call of `batch` knows them."""
    tree, call = draft.find(batch)
    try:
        file, _, functions = functions_behind_map(draft, node)
    except CannotExpress:
        return {}
    found: dict[int, set[str]] = {}
    for function in functions if file == draft.sites[batch].file else ():
        for name in variable_nodes(function.body):
            if (value := _constant(tree, name, call)) is not None:
                found.setdefault(value, set()).add(name.value)
    return {value: name for value, names in found.items() if len(names) == 1 for name in names}


def _constant(tree: SyntaxTree, name: cst.Name, call: cst.Call) -> int | None:
    """Returns the number of a global variable that is assigned once, in front of a call that reads the same by it."""
    assignment = tree.only_assignment(name)
    value = tree.assigned_value(assignment)
    if assignment is None or not isinstance(assignment.scope, GlobalScope) or not isinstance(value, cst.Integer):
        return None
    same = tree.end(value) <= tree.start(call) and tree.scope(call)[name.value] == {assignment}
    return value.evaluated_value if same else None


def _write(shapes: object, names: dict[int, str], key_text: Callable[[Value], str]) -> str:
    """Returns shapes in the structure of an element (dicts and tuples of lists of sizes) as source text."""
    match shapes:
        case dict():
            items = (f"{key_text(key)}: {_write(part, names, key_text)}" for key, part in shapes.items())
            return "{" + ", ".join(items) + "}"
        case tuple():
            parts = [_write(part, names, key_text) for part in shapes]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        case list():
            return "[" + ", ".join(names.get(size, str(size)) for size in shapes) + "]"
    raise CannotExpress(f"pipetune cannot write the padded shapes {shapes!r}.")
