"""Adds, changes and removes one argument of a call."""

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
    """Returns the changes that set argument `name` of a call to `text`, or remove it if `text` is None.

    Args:
        op: name of the called operator, which determines the order of its parameters.
        text: the value as Python source.

    Raises:
        CannotExpress: a starred argument may already pass the parameter, or the operator has no such parameter.
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
        return [Splice(tree.start(argument), tree.end(argument), b"None")]  # positional arguments follow it
    return [_remove(tree, call, position)]


def _position(tree: SyntaxTree, call: cst.Call, *, op: str, name: str) -> int | None:
    """Index of the argument that is passed for parameter `name`; None if there is none."""
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
    """Whether `**options` certainly has no key `name`: a dict with visible keys, assigned once and only unpacked."""
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
    """Returns the changes that append the argument `text` to a call, formatted like the others.

    Raises:
        CannotExpress: the last argument is a generator expression without parentheses, which must be the only one.
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
    """The position of the last of several items in parentheses (arguments or parameters); offsets in bytes."""

    before: int  # end of the previous item, without its comma, or of the opening parenthesis
    start: int
    end: int
    close: int  # the closing parenthesis
    comma: bool  # whether a comma follows the item


def append_item(code: bytes, items: Items, text: str) -> list[Splice]:
    """Returns the changes that append `text` to the items, formatted like the last one."""
    end, close, comma = items.end, items.close, items.comma
    gap = code[items.before : items.start]
    newlines = list(NEWLINE.finditer(gap))
    if not newlines:  # on the line of the last item; a trailing comma then follows the new one
        return [Splice(end, end, b", " + text.encode())]
    line_break = gap[newlines[-1].start() :]  # newline and indentation of the last item
    tail = code[end:close]
    in_tail = list(NEWLINE.finditer(tail))
    if not in_tail:
        if comma:
            after_comma = end + tail.index(b",") + 1
            return [Splice(after_comma, after_comma, line_break + text.encode() + b",")]
        return [Splice(end, end, b"," + line_break + text.encode())]
    before_close = end + in_tail[-1].start()  # after the comments behind and below the last item
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
            # Alone on its line: the whole line is removed, including its comment.
            return Splice(start - len(gap) + newlines[-1].start(), after + len(rest), b"")
    if is_last:
        return Splice(start - len(gap), end, b"") if position else Splice(start, after, b"")
    following = tree.start(call.args[position + 1])
    between = tree.code[after:following]
    return Splice(start, after if NEWLINE.search(between) else following, b"")


def _value_start(tree: SyntaxTree, argument: cst.Arg) -> int:
    return tree.start(argument.value.lpar[0] if argument.value.lpar else argument.value)


def _gap_before(tree: SyntaxTree, call: cst.Call, position: int) -> bytes:
    """Returns the bytes between the previous argument (or the opening parenthesis) and an argument, with the comma."""
    start = tree.start(call.args[position])
    if position:
        return tree.code[tree.end(call.args[position - 1]) : start]
    return tree.code[tree.start(call.whitespace_before_args) : start]
