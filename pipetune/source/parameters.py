"""Adds a parameter to a function of the user; its default keeps the old behavior."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.arguments import Items, append_item
from pipetune.source.callables import parameters_of
from pipetune.source.draft import Splice
from pipetune.source.tree import SyntaxTree


def add_parameter(tree: SyntaxTree, function: cst.FunctionDef, name: str, default: str) -> list[Splice]:
    """Returns the splices that add a parameter with a default, after all others except `**kwargs`.

    Args:
        name: of the new parameter.
        default: source text of its default.

    Raises:
        CannotExpress: the function has a parameter of that name, or its parameters are positional-only.
    """
    if name in parameters_of(function):
        raise CannotExpress(f"{function.name.value} has a {name} of its own.")
    given = function.params
    if given.posonly_params and not given.params:
        raise CannotExpress(f"{function.name.value} takes its arguments by position only.")
    plain: list[cst.Param] = [*given.posonly_params, *given.params]
    if isinstance(given.star_arg, cst.Param):
        plain.append(given.star_arg)
    plain += given.kwonly_params
    text = f"{name}={default}"
    if isinstance(given.star_kwarg, cst.Param):
        start = tree.start(given.star_kwarg)
        if tree.code[start - 1 : start] == b"*":
            start = tree.code.rindex(b"**", 0, start)
        return [Splice(start, start, f"{text}, ".encode())]
    opened = tree.code.index(b"(", tree.end(function.name)) + 1
    ended: cst.CSTNode = function.whitespace_before_colon
    if function.returns is not None and isinstance(function.returns.whitespace_before_indicator, cst.CSTNode):
        ended = function.returns.whitespace_before_indicator
    close = tree.start(ended) - 1
    if not plain:
        return [Splice(opened, opened, text.encode())]
    last = plain[-1]
    before = tree.end(plain[-2]) if len(plain) > 1 else opened
    comma = isinstance(last.comma, cst.Comma)
    start, end = tree.start(last), _end_of(tree, last)
    return append_item(tree.code, Items(before, start, end, close, comma), text)


def _end_of(tree: SyntaxTree, parameter: cst.Param) -> int:
    """Returns the offset at which a parameter ends, including its default but not its comma."""
    last = parameter.default or (parameter.annotation.annotation if parameter.annotation is not None else None)
    if last is None:
        return tree.end(parameter.name)
    return tree.end(last.rpar[-1] if last.rpar else last)
