"""Giving, changing and taking away one argument of a call."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Assignment

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Splice
from pipetune.source.signatures import parameters
from pipetune.source.text import NEWLINE, line_end
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import own_arguments


def set_argument(tree: SyntaxTree, call: cst.Call, *, op: str, name: str, text: str | None) -> list[Splice]:
    """The changes that give argument `name` the value `text`, or leave it out when `text` is None.

    Raises:
        CannotExpress: a starred argument hides what is given, or the call has no such parameter.
    """
    position = _position(tree, call, op=op, name=name)
    if position is None:
        if text is None:
            _refuse_starred(tree, call, name)
            return []
        names = parameters(op)
        if names is None or name not in names:
            raise CannotExpress(f"pipetune does not know a parameter {name} of {op}.")
        _refuse_starred(tree, call, name)
        return add_argument(tree, call, f"{name}={text}")
    argument = call.args[position]
    if text is not None:
        end = tree.end(argument)
        return [Splice(_value_start(tree, argument), end, text.encode())]
    if argument.keyword is None and position + 1 < len(call.args) and call.args[position + 1].keyword is None:
        return [Splice(tree.start(argument), tree.end(argument), b"None")]  # others by position follow it
    return [_remove(tree, call, position)]


def _position(tree: SyntaxTree, call: cst.Call, *, op: str, name: str) -> int | None:
    """Index of the argument that gives `name`."""
    names = parameters(op) or ()
    own = own_arguments(tree, call)
    first = len(call.args) - len(own)
    starred = False
    for index, argument in enumerate(own):
        starred = starred or argument.star != ""
        if argument.keyword is not None:
            if argument.keyword.value == name:
                return first + index
        elif not starred and index < len(names) and names[index] == name:
            return first + index
    return None


def _refuse_starred(tree: SyntaxTree, call: cst.Call, name: str) -> None:
    if any(argument.star and not _leaves_out(tree, argument, name) for argument in call.args):
        raise CannotExpress(f"The call takes starred arguments, which may already give {name}.")


def _leaves_out(tree: SyntaxTree, argument: cst.Arg, name: str) -> bool:
    """Whether `**options` surely gives no argument of that name: written once, and used for nothing else."""
    value, scope = argument.value, tree.scope(argument)
    if argument.star != "**" or not isinstance(value, cst.Name) or scope is None:
        return False
    assignments = list(scope[value.value])
    if len(assignments) != 1 or not isinstance(assignments[0], Assignment):
        return False
    made = next((one for one in tree.ancestors(assignments[0].node) if isinstance(one, cst.Assign)), None)
    given = [tree.parent(access.node) for access in assignments[0].references]
    if made is None or any(not isinstance(one, cst.Arg) or one.star != "**" for one in given):
        return False
    match made.value:
        case cst.Dict(elements=elements):
            keys = [one.key for one in elements if isinstance(one, cst.DictElement)]
            texts = [key.evaluated_value for key in keys if isinstance(key, cst.SimpleString)]
            return len(texts) == len(elements) and name not in texts
        case cst.Call(func=cst.Name(value="dict"), args=arguments):
            return all(one.keyword is not None and one.keyword.value != name for one in arguments)
    return False


def add_argument(tree: SyntaxTree, call: cst.Call, text: str) -> list[Splice]:
    """The changes that put `text` behind the last argument of a call, set as the others are.

    Raises:
        CannotExpress: the last one is a bare generator expression.
    """
    close = tree.end(call) - 1
    if not call.args:
        opened = tree.start(call.whitespace_before_args)
        return [Splice(opened, opened, text.encode())]
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        raise CannotExpress("A bare generator expression takes no second argument beside it.")
    start, end = tree.start(last), tree.end(last)
    before = start - len(_gap_before(tree, call, len(call.args) - 1))
    return append_item(tree.code, Items(before, start, end, close, isinstance(last.comma, cst.Comma)), text)


@dataclass(frozen=True)
class Items:
    """Where the last of some items in parentheses stands, arguments or parameters; offsets in bytes."""

    before: int  # the end of the one before it, its comma left out, or of the parenthesis
    start: int
    end: int
    close: int  # the closing parenthesis
    comma: bool  # whether one follows the last


def append_item(code: bytes, items: Items, text: str) -> list[Splice]:
    """The changes that put `text` behind the last of some items, set as the others are."""
    end, close, comma = items.end, items.close, items.comma
    gap = code[items.before : items.start]
    newlines = list(NEWLINE.finditer(gap))
    if not newlines:  # beside the last one; a trailing comma then follows the new one
        return [Splice(end, end, b", " + text.encode())]
    line_break = gap[newlines[-1].start() :]  # the newline and the indentation the last one has
    tail = code[end:close]
    in_tail = list(NEWLINE.finditer(tail))
    if not in_tail:
        if comma:
            after_comma = end + tail.index(b",") + 1
            return [Splice(after_comma, after_comma, line_break + text.encode() + b",")]
        return [Splice(end, end, b"," + line_break + text.encode())]
    before_close = end + in_tail[-1].start()  # past comments that stand behind and below the last argument
    new_line = line_break + text.encode() + (b"," if comma else b"")
    if comma:
        return [Splice(before_close, before_close, new_line)]
    if before_close == end:
        return [Splice(end, end, b"," + new_line)]
    return [Splice(end, end, b","), Splice(before_close, before_close, new_line)]


def _remove(tree: SyntaxTree, call: cst.Call, position: int) -> Splice:
    argument = call.args[position]
    start, end = tree.start(argument), tree.end(argument)
    after = end
    if isinstance(argument.comma, cst.Comma):
        after = tree.end(argument.comma)
    gap = _gap_before(tree, call, position)
    newlines = list(NEWLINE.finditer(gap))
    is_last = position + 1 == len(call.args)
    if newlines:
        rest = tree.code[after : line_end(tree.code, after)]
        if not rest.strip() or rest.lstrip().startswith(b"#"):
            # Alone on its line: the line goes, with the comment on it.
            return Splice(start - len(gap) + newlines[-1].start(), after + len(rest), b"")
    if is_last:
        return Splice(start - len(gap), end, b"") if position else Splice(start, after, b"")
    following = tree.start(call.args[position + 1])
    between = tree.code[after:following]
    return Splice(start, after if NEWLINE.search(between) else following, b"")


def _value_start(tree: SyntaxTree, argument: cst.Arg) -> int:
    return tree.start(argument.value.lpar[0] if argument.value.lpar else argument.value)


def _gap_before(tree: SyntaxTree, call: cst.Call, position: int) -> bytes:
    """The bytes between an argument and the one before it (its comma included), or the parenthesis."""
    start = tree.start(call.args[position])
    if position:
        return tree.code[tree.end(call.args[position - 1]) : start]
    return tree.code[tree.start(call.whitespace_before_args) : start]
